//! What is said to a user who may not read the files of a system.

use std::io;
use std::path::Path;

use ken_types::Error;

pub(crate) fn denied(path: &Path, error: &io::Error) -> Error {
    Error::forbidden(format!("{} cannot be read: {error}", path.display()))
        .hint("only root may, and the user to whom the system belongs")
}
