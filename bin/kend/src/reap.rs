//! The dead, and what they left behind.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

/// How long killed leftovers may take to go at the very end.
const SWEEP: Duration = Duration::from_secs(1);

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    Signal(Signal),
}

impl Exit {
    /// For people: `exit 1`, `signal SIGKILL`.
    pub(crate) fn text(self) -> String {
        match self {
            Exit::Code(code) => format!("exit {code}"),
            Exit::Signal(signal) => format!("signal {signal}"),
        }
    }
}

/// The next dead child. If it was a part, its process group is killed before its number can be given to another.
pub(crate) fn next(is_part: impl Fn(Pid) -> bool) -> Option<(Pid, Exit)> {
    loop {
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let status = match waitid(Id::All, look) {
            Err(Errno::EINTR) => continue,
            Err(_) | Ok(WaitStatus::StillAlive) => return None,
            Ok(status) => status,
        };
        let (pid, exit) = match status {
            WaitStatus::Exited(pid, code) => (pid, Exit::Code(code)),
            WaitStatus::Signaled(pid, signal, _) => (pid, Exit::Signal(signal)),
            _ => return None,
        };
        if is_part(pid) {
            let _ = killpg(pid, Signal::SIGKILL);
        }
        let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
        return Some((pid, exit));
    }
}

/// Children that kend has adopted: their part, or whoever stood between, is dead. Those that are named as living are left out.
pub(crate) fn adopted(living: &[Pid]) -> Vec<Pid> {
    let text = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    let pids = text
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok().map(Pid::from_raw));
    pids.filter(|pid| !living.contains(pid)).collect()
}

/// Kills all that is left below kend, marked or not, when no part lives any more, but for children that it had before it
/// was kend. Names what will not go.
pub(crate) fn sweep(strangers: &[Pid]) -> Vec<String> {
    let end = Instant::now() + SWEEP;
    loop {
        let left = adopted(strangers);
        if left.is_empty() || Instant::now() >= end {
            return left.into_iter().map(command).collect();
        }
        for pid in left {
            let _ = kill(pid, Signal::SIGKILL);
            let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
        }
        // What one leaves behind comes to us only when it is dead.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The part's process that a descendant stems from: `LISTEN_PID` comes down to all that do not clear it.
pub(crate) fn ancestor(pid: Pid) -> Option<Pid> {
    let environment = std::fs::read(PathBuf::from(format!("/proc/{pid}/environ"))).ok()?;
    let value = environment
        .split(|byte| *byte == 0)
        .find_map(|pair| pair.strip_prefix(b"LISTEN_PID="))?;
    std::str::from_utf8(value).ok()?.parse().ok().map(Pid::from_raw)
}

/// The command of a process, to name it.
pub(crate) fn command(pid: Pid) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{pid} ({})", name.trim())
}
