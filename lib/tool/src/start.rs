//! Whether standard output was closed when the process started.
//!
//! Before `main`, std opens /dev/null in the place of a closed standard stream, so that a tool called with `>&-` would
//! write its answer to nowhere and report success. The loader runs `.init_array` before std looks.
#![allow(unsafe_code)] // one function that the loader calls; see the SAFETY lines

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether the process was started without a standard output.
pub(crate) fn stdout_was_closed() -> bool {
    STDOUT_WAS_CLOSED.load(Ordering::Relaxed)
}

// SAFETY: the section holds addresses of functions of this type, which glibc and musl call one by one before `main`, in
// the only thread there is.
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

#[cfg(target_os = "linux")]
extern "C" fn look() {
    // Duplicating a descriptor is a bare system call, which needs nothing of what std prepares before `main`.
    // SAFETY: 1 is borrowed for one call that fails with EBADF when it is closed; nothing is done to it.
    let stdout = unsafe { BorrowedFd::borrow_raw(1) };
    STDOUT_WAS_CLOSED.store(stdout.try_clone_to_owned().is_err(), Ordering::Relaxed);
}
