//! The upgrade of kend without an interruption: what the running program hands over to the one that takes its place in the same
//! process. The document is in a memory file; descriptors keep their numbers over the exec.
//!
//! The new program is first run beside the old one, to read the document and the configuration (`--check --takeover`). Only what it
//! has accepted is handed over, because after the exec there is no way back.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use ken_types::Error;
use ken_types::ops::kend::Death;
use ken_types::places::Places;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, killpg, sigprocmask};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::descriptor::{adopt, keep_over_exec};
use crate::source::ConfigSource;

/// The form of the document. A program takes over only from one that writes the same form.
pub(crate) const FORM: u32 = 1;
/// The new program reads two files and a document; a hundredth of this is enough.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(2);
const MAX_OUTPUT_BYTES: u64 = 4_096;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Handover {
    pub(crate) form: u32,
    /// The version of the program that wrote this.
    pub(crate) version: String,
    #[serde(flatten)]
    pub(crate) places: Places,
    #[serde(flatten)]
    pub(crate) source: ConfigSource,
    pub(crate) background: bool,
    pub(crate) next_mark: u64,
    /// kend.lock and parts.lock.
    pub(crate) locks: [RawFd; 2],
    pub(crate) control: RawFd,
    pub(crate) notify: RawFd,
    pub(crate) sockets: Vec<HeldSocket>,
    pub(crate) parts: BTreeMap<String, PartState>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct HeldSocket {
    pub(crate) part: String,
    pub(crate) name: String,
    /// The path of a Unix socket, or else the configured address of a TCP socket.
    pub(crate) path: Option<PathBuf>,
    pub(crate) address: Option<std::net::SocketAddr>,
    pub(crate) local: Option<std::net::SocketAddr>,
    pub(crate) fd: Option<RawFd>,
}

/// A part. Times are in milliseconds, before or after the handover.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct PartState {
    pub(crate) wanted: bool,
    pub(crate) restart_wanted: bool,
    pub(crate) process: Option<ProcessState>,
    pub(crate) backoff_ms: Option<u64>,
    pub(crate) failed: Option<String>,
    pub(crate) delay_ms: u64,
    pub(crate) started_ms_ago: Vec<u64>,
    pub(crate) starts: u64,
    pub(crate) ever_ready: bool,
    pub(crate) setbacks: u32,
    pub(crate) status_text: Option<String>,
    pub(crate) deaths: Vec<Death>,
    pub(crate) log_read: RawFd,
    pub(crate) log_write: RawFd,
    pub(crate) is_in_a_line: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ProcessState {
    pub(crate) pid: i32,
    pub(crate) mark: u64,
    pub(crate) guard: RawFd,
    #[serde(flatten)]
    pub(crate) programs: Programs,
    pub(crate) age_ms: u64,
    pub(crate) ready_ms_ago: Option<u64>,
    /// Why it is being ended: `requested`, `by itself`, or the deadline that it has missed.
    pub(crate) ending: Option<(String, Option<u64>)>,
}

/// Identifies a program file, to notice that another one was installed in its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProgramFile {
    inode: u64,
    modified: (i64, i64),
}

impl ProgramFile {
    pub(crate) fn of(path: &Path) -> Option<ProgramFile> {
        let meta = std::fs::metadata(path).ok()?;
        Some(ProgramFile { inode: meta.ino(), modified: (meta.mtime(), meta.mtime_nsec()) })
    }
}

/// The program of a part, and those that it may execute: its rules are for these files and not for others in their place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Programs {
    #[serde(rename = "program")]
    pub(crate) own: Option<ProgramFile>,
    /// `None` if it is not known, because an earlier kend has started the part.
    pub(crate) run: Option<Vec<Option<ProgramFile>>>,
}

impl Programs {
    pub(crate) fn of(own: &Path, run: &[PathBuf]) -> Programs {
        Programs { own: ProgramFile::of(own), run: Some(run.iter().map(|path| ProgramFile::of(path)).collect()) }
    }

    /// Whether others have been installed in the place of these.
    pub(crate) fn differ_from(&self, installed: &Programs) -> bool {
        self.own != installed.own || self.run.is_some() && self.run != installed.run
    }
}

impl Handover {
    /// Reads the document. Fails if it is of a form that this program does not know.
    pub(crate) fn read(fd: RawFd) -> Result<Handover, Error> {
        let at = "--takeover";
        let file = adopt(fd).map_err(|errno| Error::invalid(at, format!("descriptor {fd}: {}", errno.desc())))?;
        let (mut file, mut text) = (File::from(file), String::new());
        let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
        read.map_err(|error| Error::invalid(at, error.to_string()))?;
        let value: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| Error::invalid(at, error.to_string()))?;
        let form = value.get("form").and_then(serde_json::Value::as_u64);
        if form != Some(u64::from(FORM)) {
            let why =
                format!("the state is of form {}, and this kend takes over form {FORM}", form.unwrap_or_default());
            return Err(Error::invalid(at, why).hint("ken down; ken up -d"));
        }
        serde_json::from_value(value).map_err(|error| Error::invalid(at, error.to_string()))
    }

    fn written(&self) -> Result<File, Error> {
        let failed = |error: String| Error::internal(format!("the state cannot be written: {error}"));
        let file = memfd_create("handover", MFdFlags::MFD_CLOEXEC).map_err(|errno| failed(errno.desc().to_owned()))?;
        let mut file = File::from(file);
        let text = serde_json::to_vec(self).map_err(|error| failed(error.to_string()))?;
        file.write_all(&text).map_err(|error| failed(error.to_string()))?;
        Ok(file)
    }
}

#[derive(Default)]
pub(crate) struct Upgrade {
    /// The path of this program when it was started. By now another program may be there.
    pub(crate) program: PathBuf,
    /// The new program has agreed. The reply to who asked for it is sent first.
    pub(crate) is_due: bool,
    /// The parts that are still to be started anew.
    pub(crate) left: VecDeque<String>,
    /// The one that is being started anew, and how often it had been started before.
    pub(crate) current: Option<(String, u64)>,
}

impl Upgrade {
    pub(crate) fn of_this_program() -> Upgrade {
        Upgrade { program: std::env::current_exe().unwrap_or_default(), ..Upgrade::default() }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left.is_empty() && self.current.is_none()
    }

    /// Leaves the other parts as they are.
    pub(crate) fn give_up(&mut self) {
        self.left.clear();
        self.current = None;
    }
}

/// Runs the new program beside this one, to check that it can take over. Returns its version, or what it says against it.
pub(crate) fn check(program: &Path, state: &Handover) -> Result<String, Error> {
    let file = state.written()?;
    let failed = |why: String| Error::unavailable(format!("{}: {why}", program.display()));
    keep_over_exec(&file, true).map_err(|errno| failed(errno.desc().to_owned()))?;
    let (ended, said) = run(program, file.as_raw_fd()).map_err(|error| failed(error.to_string()))?;
    let why = match ended {
        Some(status) if status.success() => return Ok(said),
        Some(status) if said.is_empty() => status.to_string(),
        Some(_) => said,
        None => format!("it has not answered within {} s", CHECK_TIMEOUT.as_secs()),
    };
    Err(failed(format!("cannot take over: {why}")).hint("nothing has changed"))
}

/// Runs the check to its end, or for as long as it may take. Returns its status, `None` if it took too long, and what it has written.
/// That is in a file, because the end of a pipe would be waited for as long as any process has it.
fn run(program: &Path, state: RawFd) -> std::io::Result<(Option<ExitStatus>, String)> {
    let mut output = File::from(memfd_create("output", MFdFlags::MFD_CLOEXEC)?);
    let mut command = Command::new(program);
    command.args(["--check", "--takeover", &state.to_string()]).stdin(Stdio::null()).process_group(0);
    let mut child = command.stdout(output.try_clone()?).stderr(output.try_clone()?).spawn()?;
    let end = Instant::now() + CHECK_TIMEOUT;
    let mut ended = child.try_wait()?;
    while ended.is_none() && Instant::now() < end {
        std::thread::sleep(POLL_INTERVAL);
        ended = child.try_wait()?;
    }
    if let Ok(group) = i32::try_from(child.id()) {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    child.wait()?;
    let mut said = Vec::new();
    output.rewind()?;
    output.take(MAX_OUTPUT_BYTES).read_to_end(&mut said)?;
    // The limit may cut a character.
    Ok((ended, String::from_utf8_lossy(&said).trim().to_owned()))
}

/// Runs the new program in the place of this one. Returns only if that fails; then everything is as before.
pub(crate) fn exec(program: &Path, state: &Handover, kept: &[BorrowedFd<'_>]) -> Error {
    let failed = |why: String| Error::unavailable(format!("{}: {why}", program.display()));
    let file = match state.written() {
        Ok(file) => file,
        Err(error) => return error,
    };
    let all = || kept.iter().copied().chain([file.as_fd()]);
    let words =
        [program.as_os_str().as_bytes(), b"--takeover", file.as_raw_fd().to_string().as_bytes()].map(CString::new);
    let words: Result<Vec<CString>, _> = words.into_iter().collect();
    let words = match words {
        Ok(words) => words,
        Err(error) => return failed(error.to_string()),
    };
    // Until the new program handles signals, they wait: SIGTERM would otherwise end it.
    let mut before = SigSet::empty();
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before));
    let opened: Result<(), _> = all().try_for_each(|fd| keep_over_exec(fd, true));
    let why = match (opened, words.first()) {
        (Ok(()), Some(path)) => nix::unistd::execv(path, &words).map_or_else(|errno| errno, |never| match never {}),
        (Err(errno), _) => errno,
        (Ok(()), None) => nix::errno::Errno::ENOENT,
    };
    all().for_each(|fd| _ = keep_over_exec(fd, false));
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
    failed(why.desc().to_owned())
}

/// Lets the signals through that have waited since the exec.
pub(crate) fn unblock_signals() {
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that a part runs is as much its own as the one that it is; a state of an earlier kend does not know it.
    #[test]
    fn programs_that_are_replaced_are_others() {
        let dir = tempfile::tempdir().unwrap();
        let [own, tool] = ["own", "tool"].map(|name| dir.path().join(name));
        let put = |path: &Path| {
            let new = path.with_extension("new");
            std::fs::write(&new, "").unwrap();
            std::fs::rename(&new, path).unwrap();
        };
        let now = || Programs::of(&own, std::slice::from_ref(&tool));
        put(&own);
        let before = now();
        let unknown = Programs { run: None, ..before.clone() };
        assert!(!before.differ_from(&now()) && !unknown.differ_from(&now()));
        put(&tool);
        assert!(before.differ_from(&now()) && !unknown.differ_from(&now()));
        let before = now();
        std::fs::write(dir.path().join("other"), "").unwrap();
        put(&own);
        assert!(before.differ_from(&now()) && unknown.differ_from(&now()));
    }
}
