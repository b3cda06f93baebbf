//! The namespaces of the sandbox, where they may be made: of processes, so that the end of init ends every process of the
//! sandbox, even if the supervisor is killed (without it the supervisor adopts and kills what is left); of mounts
//! ([`crate::mounts`]); and, for a command without network, of the network, so that it has a loopback interface for itself.

use std::fs;
use std::mem::size_of;
use std::os::fd::{AsRawFd, RawFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, getegid, geteuid};

use crate::group::Group;

/// `CLONE_INTO_CGROUP` of <linux/sched.h>, which the constant of libc is too narrow for.
const INTO_GROUP: u64 = 0x2_0000_0000;

/// A child made by [`fork_inside`].
pub(crate) enum Forked {
    /// In the supervisor: init, and whether it has a PID namespace of its own.
    Supervisor { init: Pid, is_alone: bool },
    /// In init, before anything else, with the namespaces that it has. It must wait until the supervisor lets it go on.
    Init { namespaces: libc::c_int },
}

/// Forks. The child is the first process of new namespaces of the kinds `wanted` if the kernel allows it, or at least of a PID
/// namespace; also to an ordinary user by way of a user namespace in which it stays the same user.
pub(crate) fn fork_inside(wanted: libc::c_int, group: Option<&Group>) -> Result<Forked, Errno> {
    let group = group.map(Group::descriptor);
    for namespaces in attempts(wanted) {
        let has_users = namespaces & libc::CLONE_NEWUSER != 0;
        match fork_with(namespaces, group).or_else(|_| fork_with(namespaces, None)) {
            Ok(None) => return Ok(Forked::Init { namespaces }),
            Ok(Some(init)) if !has_users || map_user(init).is_ok() => {
                return Ok(Forked::Supervisor { init, is_alone: true });
            }
            Ok(Some(init)) => {
                // It waits for a message that never comes.
                let _ = kill(init, Signal::SIGKILL);
                let _ = waitpid(init, None);
            }
            Err(_) => {}
        }
    }
    match fork_with(0, group).or_else(|_| plain())? {
        Some(init) => Ok(Forked::Supervisor { init, is_alone: false }),
        None => Ok(Forked::Init { namespaces: 0 }),
    }
}

/// The kinds to try, the best first. Root needs no user namespace, unless it is in a container that has taken its rights.
fn attempts(wanted: libc::c_int) -> Vec<libc::c_int> {
    let mut kinds = vec![wanted, wanted & !libc::CLONE_NEWNET, libc::CLONE_NEWPID];
    kinds.dedup();
    let is_root = geteuid().is_root();
    let each = kinds.into_iter().flat_map(|kinds| [is_root.then_some(kinds), Some(kinds | libc::CLONE_NEWUSER)]);
    each.flatten().collect()
}

/// Switches on the loopback interface of a network namespace that has just been made.
#[allow(unsafe_code)]
pub(crate) fn raise_loopback() -> Result<(), Errno> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: plain data, of which all bytes may be zero.
    let mut interface: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, letter) in interface.ifr_name.iter_mut().zip(b"lo") {
        *place = *letter as libc::c_char;
    }
    interface.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the structure lives during the call.
    Errno::result(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const interface) }).map(drop)
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
