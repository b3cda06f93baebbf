//! The rules of the project in the workspace.

use std::path::{Path, PathBuf};

use ken_types::Error;
use serde::Serialize;

use crate::{Accepted, State, sha256_hex};

/// The name of the file, in the root of the workspace.
pub const PROJECT_FILE: &str = "AGENTS.md";
/// The maximum size of the file, in bytes.
pub const PROJECT_BYTES: u64 = 32 * 1024;

/// The project rules in an `AGENTS.md`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Project {
    pub file: PathBuf,
    pub state: State,
    pub sha256: String,
    #[serde(skip)]
    pub text: String,
}

impl Project {
    /// Reads the file in this folder. Returns `None` if there is none. Fails if the file cannot be
    /// used.
    pub fn of(folder: &Path, accepted: &Accepted) -> Result<Option<Project>, Error> {
        let file = folder.join(PROJECT_FILE);
        let at_file = |error: Error| Error { at: Some(file.display().to_string()), ..error };
        let Some(bytes) = ken_trusted::find_any(&file, PROJECT_BYTES).map_err(at_file)? else {
            return Ok(None);
        };
        let text = String::from_utf8(bytes).map_err(|_| at_file(Error::invalid("", "not UTF-8")))?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        let sha256 = sha256_hex(text.as_bytes());
        let state = match accepted.projects.get(&file.display().to_string()) {
            Some(known) if *known == sha256 => State::Accepted,
            Some(_) => State::Changed,
            None => State::New,
        };
        Ok(Some(Project { file, state, sha256, text }))
    }
}
