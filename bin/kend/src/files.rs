//! Opens the configuration files, and checks that other users cannot change them.

use std::path::Path;

use ken_trusted::Others;
use ken_types::Error;

use crate::problem::Problem;

/// The maximum size of a configuration file, in bytes.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// Returns the text of a file, or `None` if there is no such file.
pub(crate) fn read(path: &Path, others: Others) -> Result<Option<String>, Problem> {
    let bytes = ken_trusted::find(path, others, MAX_FILE_BYTES);
    let text = bytes.map_err(|error| problem(path, error))?.map(String::from_utf8);
    let text = text.transpose();
    text.map_err(|error| Problem::whole(path, format!("cannot be read: {error}")))
}

/// Checks the folder that contains the configuration.
pub(crate) fn check_folder(path: &Path) -> Result<(), Problem> {
    ken_trusted::check_folder(path).map_err(|error| problem(path, error))
}

fn problem(path: &Path, error: Error) -> Problem {
    Problem { hint: error.hint, ..Problem::whole(path, error.message) }
}
