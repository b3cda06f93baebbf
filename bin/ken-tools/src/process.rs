//! The process of a call or of its preview: `ken-sandbox`, with what the description allows, which runs the program.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use command_fds::CommandFdExt;
use ken_tool::find_program;
use ken_types::error::JSON_ERRORS;
use nix::sys::memfd::{MFdFlags, memfd_create};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::entry::{Confinement, Entry, Permissions};
use crate::reach;

/// The maximum number of bytes that are kept of the beginning of standard error.
const MAX_ERRORS_BYTES: usize = 4 * 1024;
/// How much longer than the tool's timeout the sandbox can take. It is more than the time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

pub(crate) struct Ended {
    pub(crate) end: End,
    /// Standard output, not redacted. A tool can repeat secrets of this part, so code that shows this text must redact
    /// it.
    pub(crate) output: Vec<u8>,
    /// Standard error, trimmed and redacted.
    pub(crate) errors: String,
}

pub(crate) enum End {
    Status(u8),
    TimedOut,
    TooMuch,
}

/// The exit status of ken-sandbox(1) after a timeout. A tool may exit with it as well.
const TIMED_OUT: u8 = 124;

/// A process to run.
pub(crate) struct Work<'a> {
    pub(crate) entry: &'a Entry,
    pub(crate) command: &'a [String],
    /// The text for standard input.
    pub(crate) input: String,
    /// Whether it can change files and reach the network, if the description allows that.
    pub(crate) may_change: bool,
    /// The maximum size of its standard output, in bytes. If it writes more, it is killed.
    pub(crate) max: usize,
    /// Additional environment variables.
    pub(crate) variables: Vec<(&'static str, String)>,
}

/// Runs a command of a tool to its end. If the future is dropped before that, the command is killed with all processes
/// that it has started. The error says why it was not run.
pub(crate) async fn run(work: &Work<'_>) -> Result<Ended, String> {
    let mut child = spawn(command(work).await?)?;
    let output = child.stdout.take();
    let output = async { head(output, work.max).await };
    finish(&mut child, work, output).await
}

/// Does the same for a tool that asks whether it may go on: it writes one line, which `decide` gets, and goes on when it
/// is sent a byte. Its standard output is a socket for that. If it is not let go on, it is sent the end instead.
pub(crate) async fn run_asking<D, W>(work: &Work<'_>, decide: D) -> Result<Ended, String>
where
    D: FnOnce(String) -> W,
    W: Future<Output = bool>,
{
    let (ours, theirs) = UnixStream::pair().map_err(unready)?;
    let theirs =
        theirs.into_std().and_then(|theirs| theirs.set_nonblocking(false).map(|()| theirs)).map_err(unready)?;
    let mut command = command(work).await?;
    command.env(GATE, "1").stdout(Stdio::from(OwnedFd::from(theirs)));
    let mut child = spawn(command)?;
    let output = async {
        let mut ours = BufReader::new(ours);
        if let Some(question) = line(&mut ours).await {
            // A tool that has ended meanwhile cannot be answered, and need not be.
            let _ = if decide(question).await { ours.write_all(b"y").await } else { ours.shutdown().await };
        }
        head(Some(ours), work.max).await
    };
    finish(&mut child, work, output).await
}

/// The variable that tells a tool that it has to ask.
const GATE: &str = "KEN_GATE";
/// The maximum length of its question, in bytes.
const MAX_QUESTION_BYTES: u64 = 64 * 1024;

/// Reads the question of a tool; `None` if it ends without one.
async fn line(from: &mut (impl AsyncBufRead + Unpin)) -> Option<String> {
    let mut line = String::new();
    let read = from.take(MAX_QUESTION_BYTES).read_line(&mut line).await;
    read.ok().filter(|_| line.ends_with('\n')).map(|_| line)
}

fn spawn(mut command: Command) -> Result<Child, String> {
    // The descriptors of the command are closed when it is dropped here, so that the end of an output is seen.
    command.spawn().map_err(|error| format!("The sandbox could not be started: {error}"))
}

async fn finish(child: &mut Child, work: &Work<'_>, output: impl Future<Output = Vec<u8>>) -> Result<Ended, String> {
    match timeout(work.entry.timeout + GRACE, exchange(child, work, output)).await {
        Ok(Ok(ended)) => Ok(ended),
        Ok(Err(error)) => Err(format!("The tool could not be run: {error}")),
        Err(_) => Ok(Ended { end: End::TimedOut, output: Vec::new(), errors: String::new() }),
    }
}

async fn command(work: &Work<'_>) -> Result<Command, String> {
    let mut command = match work.entry.sandbox {
        Confinement::Touch => confined(work).await?,
        Confinement::Own => {
            let (program, words) = work.command.split_first().ok_or("The tool has no command.")?;
            let mut command = unconfined(program)?;
            command.args(words);
            command
        }
    };
    command.envs(work.variables.iter().map(|(name, value)| (name, value))).env(JSON_ERRORS.0, JSON_ERRORS.1);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    if ken_service::is_part() {
        // kend sends SIGTERM to the whole group of a part. The calls that have begun can then end, until the time to stop is over.
        command.process_group(0);
    }
    Ok(command)
}

fn installed(program: &str) -> Result<PathBuf, String> {
    find_program(program).ok_or_else(|| format!("The program {program} is not installed, so the tool cannot be run."))
}

/// Returns the command for a program that confines itself, without what kend has given to this process alone.
pub(crate) fn unconfined(program: &str) -> Result<Command, String> {
    let mut command = Command::new(installed(program)?);
    command.current_dir("/");
    for own in [
        "KEN_CONFIG_FD", "KEN_SECRETS_FD", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID", "NOTIFY_SOCKET",
        "WATCHDOG_USEC",
    ] {
        command.env_remove(own);
    }
    Ok(command)
}

fn unready(error: std::io::Error) -> String {
    format!("The tool could not be prepared: {error}")
}

/// Returns a command of ken-sandbox with the options for `touch`. Without `may_change`, it can write nothing and reach
/// no network. The caller adds the program.
pub(crate) async fn sandbox(touch: &Permissions, may_change: bool) -> Result<Command, String> {
    let mut command = Command::new(installed("ken-sandbox")?);
    for path in &touch.read {
        command.arg("--read").arg(path);
    }
    for path in &touch.write {
        command.arg(if may_change { "--write" } else { "--read" }).arg(path);
    }
    if may_change && !touch.state.is_empty() {
        // In a shell the variable can be missing. The tool then runs without these folders.
        if let Some(state) = std::env::var_os("KEN_STATE_DIR").map(PathBuf::from) {
            for folder in &touch.state {
                let folder = state.join(folder);
                std::fs::create_dir_all(&folder).map_err(unready)?;
                command.arg("--write").arg(folder);
            }
            command.args(["--env", "KEN_STATE_DIR"]);
        }
    }
    if may_change {
        if touch.network {
            command.arg("--network");
        }
        for address in reach::addresses(&touch.reach).await {
            command.arg("--reach").arg(address);
        }
    }
    Ok(command)
}

async fn confined(work: &Work<'_>) -> Result<Command, String> {
    let entry = work.entry;
    let mut command = sandbox(&entry.touch, work.may_change).await?;
    command.arg("--timeout").arg(entry.timeout.as_secs_f64().to_string());
    if let Some(secrets) = secrets(work).map_err(unready)? {
        let number = secrets.as_raw_fd().to_string();
        command.args(["--fd", &number, "--env", "KEN_SECRETS_FD"]);
        command.env("KEN_SECRETS_FD", number);
        command.preserved_fds(vec![secrets]);
    }
    for name in &entry.env {
        command.arg("--env").arg(name);
    }
    for name in work.variables.iter().map(|(name, _)| *name).chain([JSON_ERRORS.0]) {
        command.arg("--env").arg(name);
    }
    command.args(["--cwd", "/", "--"]).args(work.command);
    Ok(command)
}

/// Returns a memory file with the named secrets that are set. They are not in the environment, because others could
/// read it through the process. A preview gets no secrets.
fn secrets(work: &Work<'_>) -> std::io::Result<Option<OwnedFd>> {
    let names = work.entry.secrets.iter().filter(|_| work.may_change);
    let entries = names.filter_map(|name| Some(format!("{name}={}\0", ken_service::secret(name)?)));
    let text: String = entries.collect();
    if text.is_empty() { Ok(None) } else { memory_file(text.as_bytes()).map(Some) }
}

/// Returns a memory file with entries of `NAME=value` and a NUL, to be passed to a process as `KEN_SECRETS_FD`.
pub(crate) fn memory_file(text: &[u8]) -> std::io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("secrets", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(text)?;
    file.rewind()?;
    Ok(file.into())
}

/// Gives a sandbox variables for its command. Every user of the machine could read them as arguments. In the environment of
/// ken-sandbox, a name such as `PATH` or `LD_PRELOAD` would have an effect on ken-sandbox itself.
pub(crate) fn set_variables<V: AsRef<OsStr>>(
    command: &mut Command,
    variables: &BTreeMap<String, V>,
) -> std::io::Result<()> {
    let text = variables.iter().flat_map(|(name, value)| [name.as_bytes(), b"=", value.as_ref().as_bytes(), b"\0"]);
    let file = memory_file(&text.collect::<Vec<_>>().concat())?;
    command.arg("--env-fd").arg(file.as_raw_fd().to_string());
    command.preserved_fds(vec![file]);
    Ok(())
}

async fn exchange(child: &mut Child, work: &Work<'_>, output: impl Future<Output = Vec<u8>>) -> std::io::Result<Ended> {
    let started = Instant::now();
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // An error is ignored, because a tool need not read all of its input.
            let _ = stdin.write_all(work.input.as_bytes()).await;
        }
    };
    // A tool that writes too much is killed, which also ends its standard error.
    let read = async {
        let output = output.await;
        if output.len() > work.max {
            let _ = child.start_kill();
        }
        output
    };
    let (output, errors, ()) = tokio::join!(read, drained(stderr), write);
    if output.len() > work.max {
        return Ok(Ended { end: End::TooMuch, output: Vec::new(), errors });
    }
    let status = child.wait().await?;
    let end = match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(TIMED_OUT) if started.elapsed() >= work.entry.timeout => End::TimedOut,
        Some(status) => End::Status(status),
        None => End::Status(u8::MAX),
    };
    Ok(Ended { end, output, errors })
}

/// Reads to the end, but at most `max` + 1 bytes.
async fn head(from: Option<impl AsyncRead + Unpin>, max: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        // After an error, the bytes read before it are used.
        let _ = from.take(max as u64 + 1).read_to_end(&mut bytes).await;
    }
    bytes
}

/// Reads to the end, so that the tool never blocks, and keeps only the beginning.
async fn drained(from: Option<impl AsyncRead + Unpin>) -> String {
    let mut kept = Vec::new();
    if let Some(mut from) = from {
        let mut buffer = [0; 4096];
        let max = MAX_ERRORS_BYTES + ken_service::longest_secret();
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            let room = max.saturating_sub(kept.len());
            kept.extend(buffer.iter().take(count.min(room)));
        }
    }
    ken_service::redacted_head(&kept, MAX_ERRORS_BYTES).trim().to_owned()
}
