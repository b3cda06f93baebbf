//! System calls that the supervisor makes in the command's place (seccomp_unotify(2)): changes of modes and times
//! ([`metadata`]), and calls that name an address ([`network`]).

use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use nix::errno::Errno;
use nix::libc;

use crate::metadata;
use crate::network::{self, Reach};

/// `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV` of <linux/seccomp.h>: a signal does not interrupt a call that is being made, so it
/// is never made twice.
const UNCUT: libc::c_ulong = 1 << 5;

/// Installs the filter in the calling thread. Returns the descriptor from which its calls are read.
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

/// The program that passes calls to the supervisor and allows all others. It ignores the architecture, because the filters that
/// are installed after it end a process of another one.
fn filter(network: bool) -> Vec<libc::sock_filter> {
    let load = |offset: usize| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset as u32);
    let end = |action: u32| statement(libc::BPF_RET | libc::BPF_K, action);
    // Skips `equal` statements if the loaded value is this one, else `other` statements.
    let jump = |value: u32, equal: u8, other: u8| libc::sock_filter {
        jt: equal,
        jf: other,
        ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value)
    };
    let mut program = vec![load(offset_of!(libc::seccomp_data, nr))];
    let mut calls = metadata::CALLS.to_vec();
    if network {
        // sendto(2) without an address is send(2): it reaches only where the socket is connected already, as write(2) does. The
        // pointer to the address, the fifth argument, is compared in two halves.
        let address = offset_of!(libc::seccomp_data, args) + 4 * size_of::<u64>();
        program.extend([
            jump(libc::SYS_sendto as u32, 0, 6),
            load(address),
            jump(0, 0, 3),
            load(address + size_of::<u32>()),
            jump(0, 0, 1),
            end(libc::SECCOMP_RET_ALLOW),
            end(libc::SECCOMP_RET_USER_NOTIF),
        ]);
        calls.extend(network::CALLS);
    }
    for call in calls {
        program.extend([jump(call as u32, 0, 1), end(libc::SECCOMP_RET_USER_NOTIF)]);
    }
    program.push(end(libc::SECCOMP_RET_ALLOW));
    program
}

fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    }
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
