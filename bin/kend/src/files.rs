//! Opens the files that decide what kend runs.

use std::path::Path;

use ken_trusted::Others;
use ken_types::Error;

use crate::problem::Problem;

/// No configuration is larger.
const LIMIT_BYTES: u64 = 4 * 1024 * 1024;

/// The text of a file; `None` if there is no such file.
pub(crate) fn read(path: &Path, others: Others) -> Result<Option<String>, Problem> {
    let bytes = ken_trusted::find(path, others, LIMIT_BYTES);
    let text = bytes.map_err(|error| problem(path, error))?.map(String::from_utf8);
    let text = text.transpose();
    text.map_err(|error| Problem::whole(path, format!("cannot be read: {error}")))
}

/// Checks the folder in which the configuration lies.
pub(crate) fn check_folder(path: &Path) -> Result<(), Problem> {
    ken_trusted::check_folder(path).map_err(|error| problem(path, error))
}

fn problem(path: &Path, error: Error) -> Problem {
    Problem { hint: error.hint, ..Problem::whole(path, error.message) }
}
