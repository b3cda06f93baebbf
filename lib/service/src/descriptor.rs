//! Taking over a descriptor that the parent process has passed: the one place here that needs `unsafe`.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use ken_types::Error;

/// Owns an inherited descriptor. Call at the start only, and once for each number: the environment that names the
/// descriptors belongs to this process alone, and nothing else has been opened yet that could have such a number.
#[allow(unsafe_code)]
pub(crate) fn own(fd: RawFd) -> Result<OwnedFd, Error> {
    if fd <= 2 || std::fs::symlink_metadata(format!("/proc/self/fd/{fd}")).is_err() {
        return Err(Error::invalid(
            "LISTEN_FDS",
            format!("descriptor {fd} was announced and is not open"),
        ));
    }
    // SAFETY: it is open, and by the rule above nobody else in this process owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
