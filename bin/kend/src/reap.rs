//! Dead children, and the processes that dead parts left behind.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// How long leftover processes may take to end when they are killed at the very end.
const SWEEP: Duration = Duration::from_secs(1);

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    Signal(Signal),
}

impl Exit {
    /// As text for a person: `exit 1`, `signal SIGKILL`.
    pub(crate) fn text(self) -> String {
        match self {
            Exit::Code(code) => format!("exit {code}"),
            Exit::Signal(signal) => format!("signal {signal}"),
        }
    }
}

/// The next dead child.
pub(crate) fn next() -> Option<(Pid, Exit)> {
    loop {
        return match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Err(Errno::EINTR) => continue,
            Ok(WaitStatus::Exited(pid, code)) => Some((pid, Exit::Code(code))),
            Ok(WaitStatus::Signaled(pid, signal, _)) => Some((pid, Exit::Signal(signal))),
            _ => None,
        };
    }
}

/// Children that kend has adopted, as the subreaper of its descendants, because their parents are dead. `living` are left
/// out.
pub(crate) fn adopted(living: &[Pid]) -> Vec<Pid> {
    let text = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    let pids = text.split_whitespace().filter_map(|pid| pid.parse().ok().map(Pid::from_raw));
    pids.filter(|pid| !living.contains(pid)).collect()
}

/// Kills everything that is left below kend when no part lives any more, except children that it had before it became
/// kend. Returns what cannot be killed.
pub(crate) fn sweep(earlier: &[Pid]) -> Vec<String> {
    let end = Instant::now() + SWEEP;
    loop {
        let left = adopted(earlier);
        if left.is_empty() || Instant::now() >= end {
            return left.into_iter().map(command).collect();
        }
        for pid in left {
            let _ = kill(pid, Signal::SIGKILL);
            let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
        }
        // The children of one become ours only when it is dead.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The mark that a process has inherited (spawn.rs); `None` when it is gone.
pub(crate) fn mark(pid: Pid) -> Option<u64> {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max file locks"))?;
    let hard = line.split_whitespace().nth(1)?;
    Some(hard.parse().unwrap_or(u64::MAX))
}

/// A process with its command, for messages.
pub(crate) fn command(pid: Pid) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{pid} ({})", name.trim())
}
