//! What the parent has left to the process: whether standard output is closed, and an ignored SIGCHLD.
//!
//! Before `main`, std opens /dev/null in place of a closed standard stream. A tool called with `>&-` would therefore
//! write its answer to /dev/null and report success. The loader runs the functions in `.init_array` before std does
//! this.
//!
//! If the parent ignores SIGCHLD, as some runtimes of containers do, this process inherits it: the kernel then keeps the status of no
//! child, and every wait for one fails.
#![allow(unsafe_code)] // one function that the loader calls; see the SAFETY lines

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigHandler, Signal, signal};

static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether the process was started without a standard output.
pub(crate) fn stdout_was_closed() -> bool {
    STDOUT_WAS_CLOSED.load(Ordering::Relaxed)
}

// SAFETY: the section contains addresses of functions of this type. glibc and musl call them one after the other before
// `main`, while there is only one thread.
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

#[cfg(target_os = "linux")]
extern "C" fn start() {
    // Duplicating a descriptor is a plain system call, which does not depend on anything that std initialises before
    // `main`. SAFETY: descriptor 1 is borrowed for a single call, which fails with EBADF if it is closed and does not
    // change it.
    let stdout = unsafe { BorrowedFd::borrow_raw(1) };
    STDOUT_WAS_CLOSED.store(stdout.try_clone_to_owned().is_err(), Ordering::Relaxed);
    // SAFETY: the default action runs no code of this process.
    _ = unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) };
}
