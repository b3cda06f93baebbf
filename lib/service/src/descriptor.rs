//! Takes ownership of descriptors that the parent process has passed. This is the only file here that needs `unsafe`.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use ken_types::Error;

/// Takes ownership of an inherited descriptor. Call this only at the start, and once for each number: then nothing else in this
/// process has opened a descriptor with that number.
#[allow(unsafe_code)]
pub(crate) fn own(fd: RawFd) -> Result<OwnedFd, Error> {
    if fd <= 2 || std::fs::symlink_metadata(format!("/proc/self/fd/{fd}")).is_err() {
        return Err(Error::invalid(
            "LISTEN_FDS",
            format!("descriptor {fd} is named but not open"),
        ));
    }
    // SAFETY: it is open, and by the rule above nobody else in this process owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
