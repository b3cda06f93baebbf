//! The process between the supervisor and the command: it starts the command, passes TERM on, and ends when the command ends.

use std::os::fd::OwnedFd;

use nix::libc;
use nix::sys::prctl;
use nix::sys::resource::Resource;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getpid, read, setpgid, setsid, write};

use crate::cli::CANNOT_CONFINE;
use crate::confine::{self, Command, WALLS};
use crate::walls::Walls;
use crate::{mounts, namespace, process};

/// What init sets up around the command.
pub(crate) struct Setup {
    pub(crate) plan: mounts::Plan,
    pub(crate) landlock: i32,
    /// Whether to end after the walls have been reported, without a command.
    pub(crate) report_only: bool,
}

impl Setup {
    /// Sets up the mounts and the network in the namespaces that there are.
    fn run(&self, namespaces: libc::c_int, command: &Command) -> Result<Walls, String> {
        let has = |kind| namespaces & kind != 0;
        let processes = getpid().as_raw() == 1;
        let mounts = has(libc::CLONE_NEWNS) && mounts::make_private();
        let mut walls = Walls { landlock: self.landlock, processes, mounts, ..Walls::default() };
        walls.check(!self.plan.held.is_empty())?;
        if mounts {
            let set_up = mounts::set_up(&self.plan, &command.grants);
            set_up.map_err(|(path, errno)| format!("{path} cannot be mounted: {}", errno.desc()))?;
            walls.own_proc = processes && mounts::own_proc();
        }
        walls.loopback = has(libc::CLONE_NEWNET) && namespace::raise_loopback().is_ok();
        Ok(walls)
    }
}

/// Never returns: ends with the exit status of the command.
pub(crate) fn run(command: Command, setup: &Setup, namespaces: libc::c_int, channel: OwnedFd) -> ! {
    let status = start(command, setup, namespaces, channel).map_or(CANNOT_CONFINE.into(), wait);
    process::exit(status)
}

fn start(mut command: Command, setup: &Setup, namespaces: libc::c_int, channel: OwnedFd) -> nix::Result<Pid> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // The user is mapped and the death signal is set before the supervisor can go on: an end of file means that it is gone.
    if read(&channel, &mut [0])? == 0 {
        process::exit(CANNOT_CONFINE.into());
    }
    let walls = setup.run(namespaces, &command).unwrap_or_else(|why| confine::fail(&channel, CANNOT_CONFINE, &why));
    write(&channel, &[&[WALLS][..], walls.json().as_bytes()].concat())?;
    if setup.report_only {
        process::exit(0);
    }
    if !walls.processes {
        // All processes of the user count, and there could be too many already.
        command.limits.retain(|(resource, _)| *resource != Resource::RLIMIT_NPROC);
    }
    // A session of its own has no terminal, so the command cannot reach that of the caller.
    setsid()?;
    // SAFETY: this process has one thread.
    #[allow(unsafe_code)]
    match unsafe { fork() }? {
        ForkResult::Child => {
            let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
            command.run(walls, &channel)
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
