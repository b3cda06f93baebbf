//! The one error type that crosses a wire, a pipe or an HTTP connection, and the closed table of its codes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What went wrong, as one of a closed set. The set, the HTTP status and the exit code are documented in ken-wire(5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// Malformed JSON, a missing or unknown field, a bad value; `at` says where.
    Invalid,
    /// The secret is wrong or missing.
    Unauthenticated,
    /// A valid identity, but not the owner.
    Forbidden,
    NotFound,
    /// An ambiguous selector, or a state that does not allow the change.
    Conflict,
    /// Over a stated limit.
    TooLarge,
    /// Over a rate or queue limit; `retry_after_ms` is set.
    Busy,
    /// A defect. Details go to the log and the message names the log line.
    Internal,
    /// A part is down or not configured.
    Unavailable,
    Deadline,
    Cancelled,
}

/// One row for each code: name on the wire, HTTP status, exit status.
const TABLE: [(Code, &str, u16, u8); 11] = [
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
];

impl Code {
    fn row(self) -> (Code, &'static str, u16, u8) {
        // A test makes sure that the table is in the order of declaration.
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
    /// The call may have taken effect, or may still do so. Repeating it with the same ids tells.
    Unknown,
}

/// An error as it travels: `{"code","message","hint"?,"at"?,"retry_after_ms"?,"outcome"?}`.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    pub code: Code,
    /// For people: names the thing and what is wrong with it. It may be reworded; programs read `code` and `at`.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Where: a JSON pointer (`/text`), a query parameter (`?limit`) or a header name.
    pub at: Option<String>,
    /// When to try again, in milliseconds; always set for `busy`.
    pub retry_after_ms: Option<u64>,
    /// Absent if the call certainly did not take effect and will not.
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

    pub fn at(mut self, at: impl Into<String>) -> Error {
        self.at = Some(at.into());
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }

    /// Adds that the call may have taken effect nevertheless.
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
        if let Some(at) = self.at.as_ref().filter(|at| !at.is_empty()) {
            write!(f, " (at {at})")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "; {hint}")?;
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
