//! Signals and the end of the processes of a sandbox.

use nix::libc;
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};

/// Signals that the supervisor and init wait for.
pub(crate) fn handled() -> SigSet {
    [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect()
}

/// Ends this process without running what the supervisor registered for its own end.
#[allow(unsafe_code)]
pub(crate) fn exit(status: i32) -> ! {
    // SAFETY: does not return and touches no memory.
    unsafe { libc::_exit(status) }
}

/// Gives the command the signals that a process starts with.
pub(crate) fn reset_signals() -> nix::Result<()> {
    SigSet::empty().thread_set_mask()?;
    for number in 1..32 {
        if let Ok(number) = Signal::try_from(number) {
            // KILL and STOP cannot be set, and need not be.
            // SAFETY: the default action runs no code of this process.
            #[allow(unsafe_code)]
            let _ = unsafe { signal(number, SigHandler::SigDfl) };
        }
    }
    Ok(())
}
