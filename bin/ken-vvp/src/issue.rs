//! A problem of a document, and where it is.

use serde::Serialize;

#[derive(Serialize)]
pub(crate) struct Issue {
    pub(crate) kind: &'static str,
    pub(crate) severity: Severity,
    /// A JSON pointer to the place in the document.
    pub(crate) at: String,
    pub(crate) message: String,
    /// The statements of a cycle, with the first one repeated at the end. Empty for other problems.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) path: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    Error,
    Warning,
}

impl Issue {
    pub(crate) fn error(kind: &'static str, at: impl Into<String>, message: impl Into<String>) -> Issue {
        Issue { kind, severity: Severity::Error, at: at.into(), message: message.into(), path: Vec::new() }
    }

    pub(crate) fn warning(kind: &'static str, at: impl Into<String>, message: impl Into<String>) -> Issue {
        Issue { severity: Severity::Warning, ..Issue::error(kind, at, message) }
    }
}
