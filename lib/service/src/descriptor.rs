//! Takes ownership of descriptors that the parent process has passed. This is the only file of the crate that needs
//! `unsafe`.

use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use ken_types::Error;

/// Takes the descriptor whose number is in an environment variable; `None` if the variable is not set. Call this only
/// at the start, and once for each variable.
pub(crate) fn inherited(variable: &str) -> Result<Option<OwnedFd>, Error> {
    let Ok(number) = std::env::var(variable) else {
        return Ok(None);
    };
    let fd = number.parse();
    let fd = fd.map_err(|_| Error::invalid(variable, format!("{number:?} is not a descriptor")))?;
    own(fd).map(Some)
}

/// Reads the text behind the descriptor whose number is in an environment variable, at most `max_bytes` of it; `None` if the variable is
/// not set. As with [`inherited`].
pub(crate) fn text(variable: &str, max_bytes: u64) -> Result<Option<String>, Error> {
    let Some(fd) = inherited(variable)? else { return Ok(None) };
    let mut text = String::new();
    let read = File::from(fd).take(max_bytes).read_to_string(&mut text);
    read.map_err(|error| Error::invalid(variable, format!("it cannot be read: {error}")))?;
    Ok(Some(text))
}

/// Takes ownership of an inherited descriptor. Call this only at the start, and once for each number, because otherwise
/// another part of this process could already have opened a descriptor with that number.
#[allow(unsafe_code)]
pub(crate) fn own(fd: RawFd) -> Result<OwnedFd, Error> {
    if fd <= 2 || std::fs::symlink_metadata(format!("/proc/self/fd/{fd}")).is_err() {
        let message = format!("descriptor {fd} is named but not open");
        return Err(Error::invalid("LISTEN_FDS", message));
    }
    // SAFETY: the descriptor is open, and callers follow the rule above, so nothing else in this process owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
