//! Small files that only their owner can read, and that are replaced atomically.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use ken_trusted::Others;
use ken_types::Error;

/// The maximum size of a file, in bytes: a thousand keys have a quarter of it.
const MAX_BYTES: u64 = 1 << 20;

/// Creates a folder for these files, with mode 0700.
pub(crate) fn folder(path: &Path) -> Result<(), Error> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| Error::unavailable(format!("{}: {error}", path.display())))
}

/// Reads a file that only its owner can read. Returns `None` if it does not exist.
pub(crate) fn read(path: &Path) -> Result<Option<String>, Error> {
    ken_trusted::find_secret_text(path, MAX_BYTES)
}

/// Creates or replaces a file with mode 0600. It is on disk when this returns; after an error the old file is unchanged.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Error> {
    let written = ken_trusted::replace(path, text.as_bytes(), Others::Nothing);
    // A full disk is no fault of the caller.
    written.map_err(|error| Error::unavailable(format!("{}: {}", path.display(), error.message)))
}
