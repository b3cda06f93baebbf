//! A problem in a file, with its line, its key and, if there is one, a hint.

use std::fmt;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) file: PathBuf,
    pub(crate) line: Option<usize>,
    /// `section.key`, or empty for a problem of the file as a whole.
    pub(crate) key: String,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Problem {
    /// Returns a problem of the file as a whole.
    pub(crate) fn whole(file: &Path, message: impl Into<String>) -> Problem {
        Problem { file: file.to_owned(), line: None, key: String::new(), message: message.into(), hint: None }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}
