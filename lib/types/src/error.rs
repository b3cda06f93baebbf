//! The error type that is sent between parts, from tools and over HTTP, and the table of its codes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What went wrong. The set of codes is closed; ken-wire(5) documents it, with the HTTP status and exit code of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// Malformed JSON, a missing or unknown field, or a bad value. `at` names the place.
    Invalid,
    /// The secret is wrong or missing.
    Unauthenticated,
    /// The identity is valid, but the thing belongs to another one.
    Forbidden,
    NotFound,
    /// A name that several things have, or a state that does not allow the change.
    Conflict,
    /// Larger than a documented limit.
    TooLarge,
    /// Above a limit on rate or queue length. `retry_after_ms` is set.
    Busy,
    /// A defect in ken. The details are in the log, and the message names the log line.
    Internal,
    /// A part is not running or not configured.
    Unavailable,
    Deadline,
    Cancelled,
    /// It was there and was deleted for good.
    Gone,
}

/// One row for each code: its name on the wire, HTTP status and exit status.
const TABLE: [(Code, &str, u16, u8); 12] = [
    (Code::Invalid, "invalid", 400, 2),
    (Code::Unauthenticated, "unauthenticated", 401, 2),
    (Code::Forbidden, "forbidden", 403, 2),
    (Code::NotFound, "not_found", 404, 2),
    (Code::Conflict, "conflict", 409, 2),
    (Code::TooLarge, "too_large", 413, 2),
    (Code::Busy, "busy", 429, 75),
    (Code::Internal, "internal", 500, 70),
    (Code::Unavailable, "unavailable", 503, 75),
    (Code::Deadline, "deadline", 504, 75),
    (Code::Cancelled, "cancelled", 499, 75),
    (Code::Gone, "gone", 410, 2),
];

impl Code {
    fn row(self) -> (Code, &'static str, u16, u8) {
        // A test checks that the rows are in the order in which the codes are declared.
        TABLE[self as usize]
    }

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The HTTP status that this code maps to.
    pub fn http_status(self) -> u16 {
        self.row().2
    }

    /// The exit status of a tool that ends with this code (sysexits.h for 70 and 75).
    pub fn exit_status(self) -> u8 {
        self.row().3
    }

    /// Every code, in the order of the table in ken-wire(5).
    pub fn all() -> impl Iterator<Item = Code> {
        TABLE.iter().map(|row| row.0)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether a failed call took effect, where that is not certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The call may have taken effect, or may still do so. The caller finds out by repeating it with the same ids.
    Unknown,
}

/// The environment variable, with its value, for which a program writes its errors as JSON. Whoever starts a program of
/// ken to read its errors sets it; for people errors are sentences, on a terminal and in a pipe.
pub const JSON_ERRORS: (&str, &str) = ("KEN_ERRORS", "json");

/// Whether the environment asks for errors as JSON.
pub fn wants_json_errors() -> bool {
    std::env::var_os(JSON_ERRORS.0).is_some_and(|value| value == JSON_ERRORS.1)
}

/// Returns the error that a program of ken has written to standard error, if that is the single line `{"error":{…}}`.
pub fn reported(stderr: &[u8]) -> Option<Error> {
    #[derive(Deserialize)]
    struct Line {
        error: Error,
    }
    serde_json::from_slice(stderr).ok().map(|Line { error }| error)
}

/// Does the same for the last line of a program that may write others before it, such as warnings.
pub fn reported_last(stderr: &[u8]) -> Option<Error> {
    reported(stderr.trim_ascii_end().rsplit(|byte| *byte == b'\n').next()?)
}

/// An error as it is sent: `{"code","message","hint"?,"at"?,"retry_after_ms"?,"outcome"?}`.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    pub code: Code,
    /// Text for people, which names the thing and what is wrong with it. The wording may change; programs read `code`
    /// and `at`.
    pub message: String,
    /// How to fix the problem.
    pub hint: Option<String>,
    /// The place of the error: a JSON pointer (`/text`), a query parameter (`?limit`) or a header name.
    pub at: Option<String>,
    /// How long to wait before the next attempt, in milliseconds. Always set for `busy`.
    pub retry_after_ms: Option<u64>,
    /// Absent if it is certain that the call did not take effect and will not.
    pub outcome: Option<Outcome>,
}

impl Error {
    pub fn new(code: Code, message: impl Into<String>) -> Error {
        Error { code, message: message.into(), hint: None, at: None, retry_after_ms: None, outcome: None }
    }

    /// An error for an invalid value at `at`.
    pub fn invalid(at: impl Into<String>, message: impl Into<String>) -> Error {
        Error::new(Code::Invalid, message).at(at)
    }

    pub fn not_found(message: impl Into<String>) -> Error {
        Error::new(Code::NotFound, message)
    }

    pub fn forbidden(message: impl Into<String>) -> Error {
        Error::new(Code::Forbidden, message)
    }

    pub fn conflict(message: impl Into<String>) -> Error {
        Error::new(Code::Conflict, message)
    }

    pub fn too_large(message: impl Into<String>) -> Error {
        Error::new(Code::TooLarge, message)
    }

    pub fn internal(message: impl Into<String>) -> Error {
        Error::new(Code::Internal, message)
    }

    pub fn unavailable(message: impl Into<String>) -> Error {
        Error::new(Code::Unavailable, message)
    }

    pub fn busy(message: impl Into<String>, retry_after_ms: u64) -> Error {
        Error { retry_after_ms: Some(retry_after_ms), ..Error::new(Code::Busy, message) }
    }

    pub fn deadline(message: impl Into<String>) -> Error {
        Error::new(Code::Deadline, message)
    }

    pub fn cancelled(message: impl Into<String>) -> Error {
        Error::new(Code::Cancelled, message)
    }

    pub fn gone(message: impl Into<String>) -> Error {
        Error::new(Code::Gone, message)
    }

    pub fn at(mut self, at: impl Into<String>) -> Error {
        self.at = Some(at.into());
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }

    /// Adds that the call may have taken effect although it failed.
    pub fn outcome_unknown(mut self) -> Error {
        self.outcome = Some(Outcome::Unknown);
        self
    }

    pub fn is_outcome_unknown(&self) -> bool {
        self.outcome == Some(Outcome::Unknown)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        // Standard input has no name but the sign for it, and the message says what is meant.
        if let Some(at) = self.at.as_ref().filter(|at| !at.is_empty() && *at != "-") {
            write!(f, " (at {at})")?;
        }
        if let Some(hint) = &self.hint {
            // Below a list, a hint would read as a part of its last row.
            let separator = if self.message.contains('\n') { "\n" } else { "; " };
            write!(f, "{separator}{hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_declaration_order_and_names_match_serde() {
        for (index, code) in Code::all().enumerate() {
            assert_eq!(code as usize, index);
            assert_eq!(serde_json::to_value(code).unwrap(), code.name());
        }
    }

    #[test]
    fn absent_parts_are_left_out() {
        let text = serde_json::to_string(&Error::invalid("/text", "text is missing")).unwrap();
        assert_eq!(text, r#"{"code":"invalid","message":"text is missing","at":"/text"}"#);
    }
}
