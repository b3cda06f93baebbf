//! System calls that the supervisor makes in the command's place (seccomp_unotify(2)): changes of modes and times
//! ([`metadata`]), and calls that name an address ([`network`]).

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::libc;
use seccompiler::BpfProgram;

use crate::grant::Grant;
use crate::metadata;
use crate::network::{self, Reach};

/// `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV` of <linux/seccomp.h>: a signal does not interrupt a call that is being made, so it
/// is never made twice.
const WAIT_KILLABLE: libc::c_ulong = 1 << 5;

/// Installs the filter in the calling thread. Returns the descriptor from which the calls that wait are read.
#[allow(unsafe_code)]
pub(crate) fn listen(filter: &BpfProgram) -> Result<OwnedFd, Errno> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| Errno::E2BIG)?,
        filter: filter.as_ptr().cast_mut().cast(),
    };
    let install = |flags: libc::c_ulong| {
        // SAFETY: the program lives during the call, and the kernel copies it.
        let descriptor =
            unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
        Errno::result(descriptor)
    };
    // Linux before 5.19 does not know the second flag. There a signal can make a call return EINTR although it was made.
    let descriptor = install(libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | WAIT_KILLABLE).or_else(|errno| match errno {
        Errno::EINVAL => install(libc::SECCOMP_FILTER_FLAG_NEW_LISTENER),
        errno => Err(errno),
    })?;
    let descriptor = i32::try_from(descriptor).map_err(|_| Errno::EOVERFLOW)?;
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

// The requests of <linux/seccomp.h>.
nix::ioctl_readwrite!(receive, b'!', 0, libc::seccomp_notif);
nix::ioctl_readwrite!(answer, b'!', 1, libc::seccomp_notif_resp);
nix::ioctl_write_ptr!(is_valid, b'!', 2, u64);

/// What the answers depend on.
pub(crate) struct Limits {
    /// The writable folders.
    pub(crate) roots: Vec<Grant>,
    pub(crate) reach: Reach,
}

/// Answers one waiting call. A call that may take long is answered by a thread of its own.
#[allow(unsafe_code)]
pub(crate) fn serve(listener: &Arc<OwnedFd>, limits: &Limits) {
    // SAFETY: plain data, of which all bytes may be zero.
    let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the structure that it is given.
    if unsafe { receive(listener.as_raw_fd(), &raw mut call) }.is_err() {
        return; // the caller is dead
    }
    // If the caller still waits, the process numbers that were used are its own and not those of a later process.
    // SAFETY: the id lives during the call.
    let still_waits = || unsafe { is_valid(listener.as_raw_fd(), &raw const call.id) }.is_ok();
    if network::CALLS.contains(&call.data.nr.into()) {
        let listener = Arc::clone(listener);
        match network::Call::read(&call, &limits.reach) {
            Ok(_) if !still_waits() => {}
            Ok(waiting) => waiting.execute(move |result| reply(&listener, call.id, result)),
            Err(errno) => reply(&listener, call.id, Err(errno)),
        }
        return;
    }
    let done = metadata::Call::read(&call).and_then(|change| change.apply(&limits.roots, still_waits));
    reply(listener, call.id, done.map(|()| 0));
}

#[allow(unsafe_code)]
fn reply(listener: &OwnedFd, id: u64, result: Result<i64, Errno>) {
    let mut reply = libc::seccomp_notif_resp {
        id,
        val: result.unwrap_or_default(),
        error: result.err().map_or(0, |errno| -(errno as i32)),
        flags: 0,
    };
    // SAFETY: the structure lives during the call. It fails when the caller is dead.
    let _ = unsafe { answer(listener.as_raw_fd(), &raw mut reply) };
}
