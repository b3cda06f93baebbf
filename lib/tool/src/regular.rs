//! Opens files that a person names.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a regular file for reading. Opening a FIFO would wait for a writer, for ever if there is none, and a device may have
/// no end.
///
/// # Errors
/// That of open(2), or `InvalidInput` for everything that is not a regular file.
pub fn open_regular(path: impl AsRef<Path>) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(file)
}
