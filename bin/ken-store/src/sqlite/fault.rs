//! What can go wrong in the database, and how it is told at the edge.

use ken_types::{Code, Error};
use rusqlite::ErrorCode;

/// A refusal that the caller may know, or a failure of the database.
#[derive(Debug)]
pub(crate) enum Fault {
    Refused(Error),
    Sql(rusqlite::Error),
    /// A stored record does not read as what it was written as.
    Record(serde_json::Error),
}

pub(crate) type Done<T> = Result<T, Fault>;

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Refused(error)
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Fault {
        Fault::Sql(error)
    }
}

impl From<serde_json::Error> for Fault {
    fn from(error: serde_json::Error) -> Fault {
        Fault::Record(error)
    }
}

impl From<Fault> for Error {
    /// Details go to the log; the message names the line.
    fn from(fault: Fault) -> Error {
        let (kind, detail) = match fault {
            Fault::Refused(error) => return error,
            Fault::Sql(error) => (kind(&error), error.to_string()),
            Fault::Record(error) => (Kind::Defect, format!("a stored record cannot be read: {error}")),
        };
        let line = log_line();
        match kind {
            Kind::Full => {
                tracing::error!(line, detail, "the database cannot grow");
                Error::new(
                    Code::Unavailable,
                    format!("the disk of the database is full or fails (log line {line})"),
                )
                .hint("free some space; the store goes on by itself")
            }
            Kind::Damaged => {
                tracing::error!(line, detail, "the database is damaged");
                Error::internal(format!("the database is damaged (log line {line})"))
                    .hint("run ken-store --check, then restore a backup: ken-store(8)")
            }
            Kind::Known => Error::conflict("an id that is to be new is known already"),
            Kind::Defect => {
                tracing::error!(line, detail, "a statement failed");
                Error::internal(format!("the store could not do this (log line {line})"))
            }
        }
    }
}

/// A mark that is in the log and in the answer.
fn log_line() -> String {
    let mark: Result<[u8; 4], _> = ken_types::id::random();
    mark.map_or_else(
        |_| "?".into(),
        |bytes| format!("{:08x}", u32::from_be_bytes(bytes)),
    )
}

pub(crate) enum Kind {
    Full,
    Damaged,
    /// An id is taken.
    Known,
    Defect,
}

pub(crate) fn kind(error: &rusqlite::Error) -> Kind {
    match error.sqlite_error_code() {
        Some(
            ErrorCode::DiskFull | ErrorCode::SystemIoFailure | ErrorCode::ReadOnly | ErrorCode::CannotOpen,
        ) => Kind::Full,
        Some(ErrorCode::ConstraintViolation) => Kind::Known,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Kind::Damaged,
        _ => Kind::Defect,
    }
}
