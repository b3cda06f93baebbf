//! System calls that the supervisor makes in the command's place (seccomp_unotify(2)): changes of modes and times
//! ([`metadata`]), and what reaches for an address ([`network`]).

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use nix::errno::Errno;
use nix::libc;

use crate::metadata;
use crate::network::{self, Reach};

/// `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV` of <linux/seccomp.h>: a call that is being made is not cut by a signal, and so
/// never made twice.
const UNCUT: libc::c_ulong = 1 << 5;

/// Installs the filter in the calling thread and gives back the descriptor from which its calls are read.
#[allow(unsafe_code)]
pub(crate) fn listen(network: bool) -> Result<OwnedFd, Errno> {
    let program = filter(network);
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| Errno::E2BIG)?,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the program lives during the call, and the kernel copies it.
    unsafe {
        let descriptor = Errno::result(libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | UNCUT,
            &raw const program,
        ))?;
        Ok(OwnedFd::from_raw_fd(
            i32::try_from(descriptor).map_err(|_| Errno::EOVERFLOW)?,
        ))
    }
}

/// Asks the supervisor and allows the rest. The other architecture of this processor is not looked at: the filters that come
/// after this one end the process there.
fn filter(network: bool) -> Vec<libc::sock_filter> {
    let statement = |code: u32, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    // seccomp_data begins with the number of the call.
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    let addressed = if network { network::CALLS } else { &[] };
    for call in metadata::CALLS.iter().chain(addressed) {
        program.push(libc::sock_filter {
            code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
            jt: 0,
            jf: 1,
            k: *call as u32,
        });
        program.push(statement(
            libc::BPF_RET | libc::BPF_K,
            libc::SECCOMP_RET_USER_NOTIF,
        ));
    }
    program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    program
}

// The requests of <linux/seccomp.h>.
nix::ioctl_readwrite!(receive, b'!', 0, libc::seccomp_notif);
nix::ioctl_readwrite!(answer, b'!', 1, libc::seccomp_notif_resp);
nix::ioctl_write_ptr!(is_valid, b'!', 2, u64);

/// What the answers depend on.
pub(crate) struct Limits {
    /// The writable folders, without links in their paths.
    pub(crate) roots: Vec<PathBuf>,
    pub(crate) reach: Reach,
}

/// Answers one waiting call. One that may wait for somebody else is answered by a thread of its own.
#[allow(unsafe_code)]
pub(crate) fn serve(listener: &Arc<OwnedFd>, limits: &Limits) {
    // SAFETY: plain data, of which all bytes may be zero.
    let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the structure that it is given.
    if unsafe { receive(listener.as_raw_fd(), &raw mut call) }.is_err() {
        return; // the caller is dead
    }
    // The process numbers that were used are those of the caller if it still waits.
    // SAFETY: the id lives during the call.
    let still_waits = || unsafe { is_valid(listener.as_raw_fd(), &raw const call.id) }.is_ok();
    if network::CALLS.contains(&call.data.nr.into()) {
        let listener = Arc::clone(listener);
        match network::Call::read(&call, &limits.reach) {
            Ok(_) if !still_waits() => {}
            Ok(waiting) => waiting.make(move |result| reply(&listener, call.id, result)),
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
