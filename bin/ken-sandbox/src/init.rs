//! The process between the supervisor and the command: it starts the command, passes TERM on, and ends when the command ends.

use std::os::fd::OwnedFd;

use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, read, setpgid, setsid};

use crate::cli::CANNOT_CONFINE;
use crate::confine::Command;
use crate::process;

/// Never returns: ends with the exit status of the command.
pub(crate) fn run(command: Command, channel: OwnedFd) -> ! {
    let status = start(command, channel).map_or(CANNOT_CONFINE.into(), wait);
    process::exit(status)
}

fn start(command: Command, channel: OwnedFd) -> nix::Result<Pid> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // The user is mapped and the death signal is set before the supervisor can go on: an end of file means that it is gone.
    if read(&channel, &mut [0])? == 0 {
        process::exit(CANNOT_CONFINE.into());
    }
    // A session of its own has no terminal, so the command cannot reach that of the caller.
    setsid()?;
    // SAFETY: this process has one thread.
    #[allow(unsafe_code)]
    match unsafe { fork() }? {
        ForkResult::Child => {
            let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
            command.run(&channel)
        }
        ForkResult::Parent { child } => Ok(child),
    }
}

/// Reaps every process of the sandbox until the command has ended.
fn wait(command: Pid) -> i32 {
    let signals = process::handled();
    loop {
        match signals.wait() {
            Ok(Signal::SIGCHLD) => {
                if let Some(status) = reap(command) {
                    return status;
                }
            }
            Ok(signal) => {
                let group = Pid::from_raw(-command.as_raw());
                let _ = kill(group, signal);
            }
            Err(_) => {}
        }
    }
}

/// The status of the command, when it is among the dead.
fn reap(command: Pid) -> Option<i32> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == command => return Some(code),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == command => return Some(128 + signal as i32),
            Ok(WaitStatus::StillAlive) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}
