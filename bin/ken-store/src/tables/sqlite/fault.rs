//! Converts errors of the database to the errors that callers get.

use ken_types::{Code, Error};
use rusqlite::ErrorCode;

use crate::tables::sql::log_mark;

/// Converts an error. The details only go to the log, and the message contains a mark by which the line in the log can be found.
pub(super) fn error(error: rusqlite::Error) -> Error {
    let (line, detail) = (log_mark(), error.to_string());
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => {
            tracing::error!(line, detail, "the disk is full");
            let message = format!("the disk of the database is full (log line {line})");
            Error::new(Code::Unavailable, message).hint("free some space; the store continues by itself")
        }
        Some(ErrorCode::SystemIoFailure | ErrorCode::ReadOnly | ErrorCode::CannotOpen) => {
            tracing::error!(line, detail, "the database cannot be read or written");
            let message = format!("the disk of the database fails or is read-only (log line {line})");
            Error::new(Code::Unavailable, message)
                .hint("dmesg says what is wrong with the disk; ken doctor, if it is read-only")
        }
        Some(ErrorCode::ConstraintViolation) => Error::conflict("an id that has to be new exists already"),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            tracing::error!(line, detail, "the database is damaged");
            Error::internal(format!("the database is damaged (log line {line})"))
                .hint("run ken-store --check, then restore a backup: ken-store(8)")
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            tracing::warn!(line, detail, "the database is locked");
            let message = format!("another program holds a lock on the database (log line {line})");
            let hint = "end that program (fuser -v ken.db names it); the store continues by itself";
            Error::new(Code::Unavailable, message).hint(hint)
        }
        _ => {
            tracing::error!(line, detail, "a statement failed");
            Error::internal(format!("the store could not do this (log line {line})"))
        }
    }
}
