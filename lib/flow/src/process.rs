//! A tool that is kept as a co-process.
//!
//! A process gets one line at a time. Every line has a tag ([`ken_tool::Tag`]), which a tool of ken repeats at the end of its
//! answer; an answer with another tag is rejected. With a tool that does not support tags, a late or repeated answer could
//! not be recognised, so each of its processes receives only a single line. No answer can therefore reach the wrong request.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ken_tool::Tag;
use ken_types::Error;
use ken_types::error::JSON_ERRORS;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, getpid, getppid, kill_process_group, set_parent_process_death_signal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Maximum size of an answer, in bytes; a tool that writes more is killed.
pub const MAX_ANSWER: usize = 16 * 1024 * 1024;

/// How much of the end of standard error is kept, in bytes: more than a long line, such as an error in JSON, so that its beginning is there.
const MAX_KEPT_BYTES: usize = 64 * 1024;
/// The maximum size of the line of standard error that is shown, in bytes.
const MAX_ERROR_BYTES: usize = 512;

/// Initial and minimum size of the read buffer; most answers are smaller.
const READ_BYTES: usize = 8 * 1024;

/// How long to wait for the standard error of a process that has ended.
const STDERR_TIMEOUT: Duration = Duration::from_millis(100);

/// How a tool is started.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) environment: Vec<(std::ffi::OsString, std::ffi::OsString)>,
}

/// Why a process gave no answer.
#[derive(Debug)]
pub(crate) enum Fault {
    NotStarted(io::Error),
    /// It ended or closed its standard output. Contains its last line on standard error.
    Ended {
        how: String,
        stderr: Option<String>,
    },
    /// It wrote a line that is not the answer to the current request.
    Unsolicited,
    TooLong,
    NotText,
    NotJson(Error),
}

/// A running tool. Dropping it kills its process group.
pub(crate) struct Process {
    child: Child,
    input: Sender,
    output: Receiver,
    errors: Errors,
    /// The part of the answer that has been read so far.
    buffer: Vec<u8>,
    /// Number of lines that were sent.
    lines: u64,
}

impl Process {
    pub(crate) fn start(launch: &Launch) -> io::Result<Process> {
        let mut child = command(launch).spawn()?;
        let missing = || io::Error::other("a pipe is missing");
        let input = child.stdin.take().ok_or_else(missing)?.into_owned_fd()?;
        let output = child.stdout.take().ok_or_else(missing)?.into_owned_fd()?;
        let errors = child.stderr.take().ok_or_else(missing)?.into_owned_fd()?;
        Ok(Process {
            child,
            input: Sender::from_owned_fd(input)?,
            output: Receiver::from_owned_fd(output)?,
            errors: Errors::of(Receiver::from_owned_fd(errors)?),
            buffer: Vec::new(),
            lines: 0,
        })
    }

    /// Whether it is alive and has written nothing since its last answer. This asks the kernel, because the state of the
    /// runtime may be out of date.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut byte = [0u8; 1];
        matches!(rustix::io::read(&self.output, &mut byte), Err(rustix::io::Errno::AGAIN))
    }

    /// Sends a line, given without its line feed, and waits for the answer. The process cannot be used again after an error,
    /// or when the future is dropped early.
    pub(crate) async fn ask(&mut self, line: &str) -> Result<Reply, Fault> {
        self.lines += 1;
        let tag = Tag::new(self.lines);
        let bytes = [line.as_bytes(), tag.as_bytes(), b"\n"].concat();
        if self.input.write_all(&bytes).await.is_err() {
            return Err(self.ended().await);
        }
        match self.read_line().await {
            Ok(Some(end)) => self.answer(tag, end),
            Ok(None) => Err(Fault::TooLong),
            Err(_) => Err(self.ended().await),
        }
    }

    /// Takes the line that ends at `end` of the buffer as the answer to the line with this tag.
    fn answer(&mut self, tag: Tag, end: usize) -> Result<Reply, Fault> {
        let is_last = self.buffer.len() == end + 1;
        let mut line = std::mem::take(&mut self.buffer);
        line.truncate(end);
        let found = Tag::of(&line);
        let is_asked = match found {
            Some(found) => found == tag,
            // Only the first answer is accepted without a tag, and only if the process has read its whole input: output that
            // was written before that cannot be the answer.
            None => self.lines == 1 && !rustix::io::ioctl_fionread(&self.input).is_ok_and(|unread| unread > 0),
        };
        if !is_asked {
            return Err(Fault::Unsolicited);
        }
        line.truncate(end - found.map_or(0, |_| Tag::BYTES));
        let text = String::from_utf8(line).map_err(|_| Fault::NotText)?;
        Ok(Reply { text, is_clean: is_last && found.is_some() })
    }

    /// Reads until a line ends, and returns the position of its line feed; `None` if the line is too long.
    async fn read_line(&mut self) -> io::Result<Option<usize>> {
        loop {
            let searched = self.buffer.len();
            self.buffer.reserve(READ_BYTES);
            if self.output.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let new = self.buffer.get(searched..).unwrap_or_default();
            if let Some(place) = end_of_line(new) {
                return Ok(Some(searched + place));
            }
            if self.buffer.len() > MAX_ANSWER {
                return Ok(None);
            }
        }
    }

    /// Returns how the process ended. A process that has closed its output is treated as ended.
    async fn ended(&mut self) -> Fault {
        let waited = timeout(STDERR_TIMEOUT, self.child.wait()).await;
        let how = match waited {
            Ok(Ok(status)) => described(status),
            _ => "closed its output".to_owned(),
        };
        Fault::Ended { how, stderr: self.errors.last().await }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        kill_group(&self.child);
        self.errors.task.abort();
    }
}

pub(crate) fn kill_group(child: &Child) {
    // The process id, which is the group's, cannot be reused before the child has been waited for.
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    if let Some(group) = pid.and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL); // it may have exited
    }
}

/// The position of the first line feed, which is nearly always the last byte.
fn end_of_line(bytes: &[u8]) -> Option<usize> {
    let (last, before) = bytes.split_last()?;
    if before.contains(&b'\n') {
        return before.iter().position(|byte| *byte == b'\n');
    }
    (*last == b'\n').then_some(before.len())
}

/// The answer to a line.
pub(crate) struct Reply {
    pub(crate) text: String,
    /// Whether the answer had the tag and nothing followed it; else the process must not be used again.
    pub(crate) is_clean: bool,
}

/// Reads standard error continuously, so that the tool never blocks, and keeps its end.
struct Errors {
    kept: Arc<Mutex<Vec<u8>>>,
    task: JoinHandle<()>,
}

impl Errors {
    fn of(pipe: Receiver) -> Errors {
        let kept = Arc::default();
        let task = tokio::spawn(read_errors(pipe, Arc::clone(&kept)));
        Errors { kept, task }
    }

    /// The last line that is not blank, once the process has ended.
    async fn last(&mut self) -> Option<String> {
        let _ = timeout(STDERR_TIMEOUT, &mut self.task).await; // use what has arrived by then
        let kept = self.kept.lock();
        let text = String::from_utf8_lossy(&kept);
        last_line(&text).map(|line| ken_text::head(line, MAX_ERROR_BYTES).to_owned())
    }
}

/// Returns the last line that is not blank.
pub(crate) fn last_line(text: &str) -> Option<&str> {
    text.lines().map(str::trim).rfind(|line| !line.is_empty())
}

async fn read_errors(pipe: Receiver, kept: Arc<Mutex<Vec<u8>>>) {
    while pipe.readable().await.is_ok() {
        let mut buffer = [0; 4096];
        match pipe.try_read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => {
                let mut kept = kept.lock();
                kept.extend_from_slice(buffer.get(..count).unwrap_or_default());
                let excess = kept.len().saturating_sub(MAX_KEPT_BYTES);
                kept.drain(..excess);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
        tokio::task::yield_now().await; // let others run during a flood of output
    }
}

#[allow(unsafe_code)] // one function between fork and exec; see the SAFETY line
pub(crate) fn command(launch: &Launch) -> Command {
    let mut command = Command::new(&launch.program);
    command
        .args(&launch.args)
        .env_clear()
        .envs(launch.environment.iter().map(|(name, value)| (name, value)))
        .env(JSON_ERRORS.0, JSON_ERRORS.1)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0) // so that its children are killed with it
        .kill_on_drop(true);
    let parent = getpid();
    // SAFETY: between fork and exec it makes two system calls and neither allocates nor locks.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have ended before the signal was set.
            if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::NotConnected.into()) }
        });
    }
    command
}

/// How a process ended, as text for an error message.
pub(crate) fn described(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}
