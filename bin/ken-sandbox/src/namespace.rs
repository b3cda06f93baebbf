//! A PID namespace for the sandbox, where one may be made. It is a bonus: with it the end of init ends every process of the
//! sandbox, even if the supervisor is killed. Without it the supervisor adopts and kills what is left.

use std::fs;
use std::mem::size_of;
use std::os::fd::RawFd;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, getegid, geteuid};

use crate::group::Group;

/// `CLONE_INTO_CGROUP` of <linux/sched.h>, which the constant of libc is too narrow for.
const INTO_GROUP: u64 = 0x2_0000_0000;

/// A child made by [`fork_inside`].
pub(crate) enum Forked {
    /// In the supervisor: init, and whether it has a namespace of its own.
    Supervisor { init: Pid, is_alone: bool },
    /// In init, before anything else. It must wait until the supervisor lets it go on.
    Init,
}

/// Forks. The child is the first process of a new PID namespace if the kernel allows it, also to an ordinary user by way of
/// a user namespace in which it stays the same user.
pub(crate) fn fork_inside(group: Option<&Group>) -> Result<Forked, Errno> {
    let is_root = geteuid().is_root();
    let flags = match is_root {
        true => libc::CLONE_NEWPID,
        false => libc::CLONE_NEWPID | libc::CLONE_NEWUSER,
    };
    let group = group.map(Group::descriptor);
    match fork_with(flags, group).or_else(|_| fork_with(flags, None)) {
        Ok(None) => return Ok(Forked::Init),
        Ok(Some(init)) if is_root || map_user(init).is_ok() => {
            return Ok(Forked::Supervisor { init, is_alone: true });
        }
        Ok(Some(init)) => {
            // It waits for a message that never comes.
            let _ = kill(init, Signal::SIGKILL);
            let _ = waitpid(init, None);
        }
        Err(_) => {}
    }
    match fork_with(0, group).or_else(|_| plain())? {
        Some(init) => Ok(Forked::Supervisor { init, is_alone: false }),
        None => Ok(Forked::Init),
    }
}

/// fork(2), for kernels and sandboxes without clone3(2).
fn plain() -> Result<Option<Pid>, Errno> {
    // SAFETY: this process has one thread.
    #[allow(unsafe_code)]
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(Some(child)),
        ForkResult::Child => Ok(None),
    }
}

/// `None` in the child. A process that is started in its group need not be moved there later, which takes milliseconds.
#[allow(unsafe_code)]
fn fork_with(flags: libc::c_int, group: Option<RawFd>) -> Result<Option<Pid>, Errno> {
    // SAFETY: plain data, of which all bytes may be zero.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = u64::from(flags.cast_unsigned());
    arguments.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
    if let Some(group) = group {
        arguments.flags |= INTO_GROUP;
        arguments.cgroup = u64::from(group.cast_unsigned());
    }
    // SAFETY: without CLONE_VM and with a null stack this is fork(2) into new namespaces; this process has one thread.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<libc::clone_args>()) };
    match Errno::result(pid)? {
        0 => Ok(None),
        pid => Ok(Some(Pid::from_raw(i32::try_from(pid).map_err(|_| Errno::EOVERFLOW)?))),
    }
}

/// Maps the user to its own number; no other user exists in the namespace.
fn map_user(init: Pid) -> std::io::Result<()> {
    let (user, group) = (geteuid(), getegid());
    fs::write(format!("/proc/{init}/setgroups"), "deny")?;
    fs::write(format!("/proc/{init}/gid_map"), format!("{group} {group} 1"))?;
    fs::write(format!("/proc/{init}/uid_map"), format!("{user} {user} 1"))
}
