//! Converts errors of the server and of the connection to the errors that callers get. Each names the server and says what to do. The
//! password of the URL is in none of them.

use std::error::Error as StdError;

use ken_types::{Code, Error};
use tokio_postgres::error::{DbError, Severity, SqlState};

use super::server::Server;
use crate::tables::sql::log_mark;

/// Why a statement was not executed.
#[derive(Debug)]
pub(super) enum Failure {
    Server(tokio_postgres::Error),
    /// The server has not answered in time.
    Silent,
    /// The connection ended during the request.
    Closed,
    /// There was no connection any more, so that nothing was sent.
    Cut,
}

impl Failure {
    fn of_server(&self) -> Option<&DbError> {
        match self {
            Failure::Server(error) => error.as_db_error(),
            _ => None,
        }
    }

    /// Returns whether the connection cannot be used any more. An error that the server did not report has broken it, and so has one after
    /// which the server ends the session.
    pub(super) fn ends_connection(&self) -> bool {
        let is_fatal = |error: &DbError| {
            matches!(error.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
                || error.code().code().starts_with("08")
        };
        self.of_server().is_none_or(is_fatal)
    }

    /// Returns whether a table is not there, or is not found because the role may not use the schema.
    pub(super) fn is_loss_of_tables(&self) -> bool {
        self.of_server().is_some_and(|error| *error.code() == SqlState::UNDEFINED_TABLE)
    }

    /// Returns whether the fence of a transaction has failed: it divides by the number of rows of this host. No other statement divides.
    pub(super) fn is_loss_of_place(&self) -> bool {
        self.of_server().is_some_and(|error| *error.code() == SqlState::DIVISION_BY_ZERO)
    }

    /// Returns the text of the innermost error: the outer ones only say that there was one.
    fn text(&self) -> String {
        match self {
            Failure::Silent => "it does not answer".into(),
            Failure::Closed | Failure::Cut => "the connection broke".into(),
            Failure::Server(error) => match (error.as_db_error(), error.source()) {
                (Some(error), _) => error.message().to_owned(),
                (None, Some(cause)) => format!("{error}: {cause}"),
                (None, None) => error.to_string(),
            },
        }
    }
}

/// Converts a failure. A server to which the password was sent as it is can repeat it.
pub(super) fn error(server: &Server, failure: &Failure) -> Error {
    let said = server.without_password(failure.text()).replace(char::is_control, " ");
    let error = match failure.of_server() {
        Some(error) => of_server(&server.name, error.code(), &said),
        None => unavailable(&server.name, &said, CONNECT_REMEDY),
    };
    // What a person has to mend is in the error itself, which the writer logs.
    tracing::debug!(detail = said, "{}", error.message);
    error
}

/// Also for what is found only before the server answers: a password that is missing, TLS that it does not have, an unknown certificate.
const CONNECT_REMEDY: &str =
    "start the server, or correct what its URL says of it: the address, sslmode, the password (ken-postgres(7))";

fn unavailable(server: &str, what: &str, hint: &str) -> Error {
    Error::unavailable(format!("{server}: {what}")).hint(format!("{hint}; the store continues by itself"))
}

/// The conditions that a person has to mend: the code, and what to do.
fn remedy(code: &SqlState) -> Option<&'static str> {
    Some(match *code {
        SqlState::DISK_FULL | SqlState::OUT_OF_MEMORY => "make room for the server",
        SqlState::TOO_MANY_CONNECTIONS => {
            "raise max_connections, or end other programs (a store needs five connections)"
        }
        SqlState::READ_ONLY_SQL_TRANSACTION => {
            "name the primary (target_session_attrs=read-write), or: ALTER ROLE … SET default_transaction_read_only = off"
        }
        SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            "correct KEN_STORE_URL in secrets.env, or pg_hba.conf of the server"
        }
        SqlState::INVALID_CATALOG_NAME => "create the database: createdb --encoding UTF8 NAME",
        SqlState::INSUFFICIENT_PRIVILEGE => {
            "make the role the owner of the schema ken and its tables, or GRANT USAGE ON SCHEMA ken, ALL ON ALL TABLES IN SCHEMA ken \
             and ALL ON ALL SEQUENCES IN SCHEMA ken to it; to make the schema, it needs CREATE ON DATABASE"
        }
        SqlState::PROTOCOL_VIOLATION => "a pooler needs pool_mode = transaction or session; see its log",
        SqlState::LOCK_NOT_AVAILABLE => "end the transaction that holds the lock: `ken doctor` names it",
        SqlState::CANNOT_CONNECT_NOW | SqlState::ADMIN_SHUTDOWN | SqlState::CRASH_SHUTDOWN => "wait for the server",
        _ => return None,
    })
}

/// The error of a host whose activity another one has ended.
pub(super) fn lost_place(server: &str) -> Error {
    Error::unavailable(format!("{server}: this host was not seen for too long, and its work has gone to others"))
        .hint("nothing was written; this host begins again by itself")
}

fn of_server(server: &str, code: &SqlState, said: &str) -> Error {
    if let Some(hint) = remedy(code) {
        return unavailable(server, said, hint);
    }
    let class = code.code().get(..2).unwrap_or_default();
    match (code, class) {
        (&SqlState::CHARACTER_NOT_IN_REPERTOIRE, _) => {
            Error::new(Code::Invalid, "a text has the character NUL (U+0000)").hint("leave it out")
        }
        (&SqlState::DIVISION_BY_ZERO, _) => lost_place(server),
        (&SqlState::UNDEFINED_TABLE, _) => {
            let what = "the tables of ken are not there, or the role may not use the schema ken";
            unavailable(
                server,
                what,
                "GRANT USAGE ON SCHEMA ken TO the role; the store makes the tables in a database that has none",
            )
        }
        (_, "23") => Error::conflict("an id that has to be new exists already"),
        // The change was not made: a deadlock, a lock that somebody else holds, a limit on time, an end of the session.
        (_, "40" | "53" | "55" | "57" | "58" | "08" | "25") => unavailable(server, said, "see the log of the server"),
        // A value that its index cannot take, for instance.
        (_, "54") => Error::too_large(format!("{server}: {said}")),
        (_, "XX") => {
            let line = log_mark();
            tracing::error!(line, detail = said, "the database is damaged");
            Error::internal(format!("{server}: the database is damaged (log line {line})"))
                .hint("see the log of the server, then restore a backup: ken-postgres(7)")
        }
        _ => {
            let line = log_mark();
            tracing::error!(line, code = code.code(), detail = said, "a statement failed");
            Error::internal(format!("the store could not do this (log line {line})"))
        }
    }
}
