//! Collects ended children and finds the processes that ended parts left behind.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// How long killed leftover processes get to end when kend itself ends.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(1);

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    Signal(Signal),
}

impl Exit {
    /// Returns a text for a person: `exit 1`, `signal SIGKILL`.
    pub(crate) fn text(self) -> String {
        match self {
            Exit::Code(code) => format!("exit {code}"),
            Exit::Signal(signal) => format!("signal {signal}"),
        }
    }

    pub(crate) fn code(self) -> Option<i32> {
        if let Exit::Code(code) = self { Some(code) } else { None }
    }

    pub(crate) fn signal(self) -> Option<i32> {
        if let Exit::Signal(signal) = self { Some(signal as i32) } else { None }
    }
}

/// Returns all processes of the machine.
pub(crate) fn all() -> impl Iterator<Item = Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw))
}

/// Returns the next ended child, if any.
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

/// Returns all children of kend except `living`. kend is the subreaper of its descendants, so these include processes
/// whose parents have ended.
pub(crate) fn adopted(living: &[Pid]) -> Vec<Pid> {
    let text = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    let pids = text.split_whitespace().filter_map(|pid| pid.parse().ok().map(Pid::from_raw));
    pids.filter(|pid| !living.contains(pid)).collect()
}

/// Kills all remaining descendants of kend after the parts have ended, except the children that it had before it became
/// kend. Returns the processes that cannot be killed.
pub(crate) fn sweep(earlier: &[Pid]) -> Vec<String> {
    let end = Instant::now() + SWEEP_TIMEOUT;
    loop {
        let left = adopted(earlier);
        if is_over(left.len(), Instant::now(), end) {
            return left.into_iter().map(command).collect();
        }
        for pid in left {
            let _ = kill(pid, Signal::SIGKILL);
            let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
        }
        // The children of a killed process become children of kend only when that process has ended.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether nothing is left to kill, or what is left cannot be killed.
fn is_over(left: usize, now: Instant, end: Instant) -> bool {
    left == 0 || now >= end
}

/// Returns the mark that a process has inherited (spawn.rs), or `None` if the process has ended.
pub(crate) fn mark(pid: Pid) -> Option<u64> {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max file locks"))?;
    let hard = line.split_whitespace().nth(1)?;
    Some(hard.parse().unwrap_or(u64::MAX))
}

/// Returns the pid and command name of a process, for messages.
pub(crate) fn command(pid: Pid) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{pid} ({})", name.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_children_are_ended_but_those_from_before() {
        let sleep = || std::process::Command::new("/bin/sleep").arg("1000").spawn().unwrap();
        let [mut earlier, mut left] = [sleep(), sleep()];
        let [kept, gone] = [&earlier, &left].map(|child| Pid::from_raw(child.id() as i32));
        assert_eq!(adopted(&[kept]), [gone]);
        assert_eq!(sweep(&[kept]), Vec::<String>::new());
        assert_eq!(adopted(&[]), [kept]);
        assert!(left.try_wait().is_err(), "it was waited for");
        earlier.kill().unwrap();
        earlier.wait().unwrap();
    }

    /// A process that no signal ends, such as one that waits for a disk, must not keep kend from ending.
    #[test]
    fn what_cannot_be_killed_is_given_up_in_time() {
        let end = Instant::now();
        let (before, after) = (end.checked_sub(Duration::from_millis(1)).unwrap(), end + Duration::from_millis(1));
        for (left, now, is) in
            [(0, before, true), (1, before, false), (1, end, true), (1, after, true), (0, after, true)]
        {
            assert_eq!(is_over(left, now, end), is, "{left}");
        }
    }
}
