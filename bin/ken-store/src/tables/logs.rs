//! The streams of instances and runs, and the system's stream.

use ken_types::{Error, Timestamp};
use serde_json::value::RawValue;

use super::Tables;
use super::columns::place;
use super::sql::{Row, each_text, first, params, unique};
use crate::rules::stream_names;

/// A stream of an instance or a run.
#[derive(Debug, Clone)]
pub struct LogRow {
    pub key: i64,
    pub name: String,
    pub entries: u64,
    pub closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogKind {
    Agent,
    Run,
}

/// The streams of instances and runs. Their entries are JSON, numbered from 0.
impl dyn Tables + '_ {
    /// Fails with `gone` if the stream is that of a session that was deleted for good.
    pub fn log(&self, name: &str) -> Result<Option<LogRow>, Error> {
        let sql = "SELECT stream, name, entries, closed, purged_at FROM streams WHERE name = ?1";
        let found = first(self, sql, params![name], |row| Ok((log(row)?, row.get::<Option<i64>>("purged_at")?)))?;
        match found {
            Some((_, Some(_))) => Err(purged(name)),
            found => Ok(found.map(|(log, _)| log)),
        }
    }

    pub fn log_by_key(&self, key: i64) -> Result<LogRow, Error> {
        let sql = "SELECT stream, name, entries, closed FROM streams WHERE stream = ?1";
        unique(self, sql, params![key], log)
    }

    pub fn insert_log(&self, name: &str, kind: LogKind, now: Timestamp) -> Result<LogRow, Error> {
        let sql = "INSERT INTO streams (name, kind, content_type, created_at) VALUES (?1, ?2, 'application/json', ?3)";
        let kind = match kind {
            LogKind::Agent => "agent",
            LogKind::Run => "run",
        };
        let key = self.insert(sql, "stream", params![name, kind, now])?;
        Ok(LogRow { key, name: name.to_owned(), entries: 0, closed: false })
    }

    pub fn close_log(&self, key: i64) -> Result<(), Error> {
        self.execute("UPDATE streams SET closed = 1 WHERE stream = ?1", params![key])
    }

    pub fn set_log_entries(&self, log: i64, entries: u64) -> Result<(), Error> {
        let sql = "UPDATE streams SET entries = ?2 WHERE stream = ?1";
        self.execute(sql, params![log, entries])
    }

    /// Calls `see` with each entry from `from` (inclusive) to `to` (exclusive), until it returns false.
    pub fn entries(&self, log: i64, from: u64, to: u64, see: &mut dyn FnMut(&str) -> bool) -> Result<(), Error> {
        let sql = "SELECT body FROM entries WHERE place >= ?1 AND place < ?2 ORDER BY place";
        each_text(self, sql, params![place(log, from), place(log, to)], see)
    }
}

/// The range of entries in the system's stream.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemExtent {
    /// The number of the first entry that is still stored.
    pub first: u64,
    /// The number of entries that have ever been written.
    pub entries: u64,
    pub newest: Timestamp,
}

impl dyn Tables + '_ {
    pub fn system_extent(&self) -> Result<SystemExtent, Error> {
        // The two queries read only the two ends of the table. One with min() and max() would read all of it.
        let sql = "SELECT (SELECT number FROM system_events ORDER BY number LIMIT 1) AS oldest, number, at
                   FROM system_events ORDER BY number DESC LIMIT 1";
        let extent = first(self, sql, params![], |row| {
            let first = row.get::<u64>("oldest")?.saturating_sub(1);
            Ok(SystemExtent { first, entries: row.get("number")?, newest: row.get("at")? })
        })?;
        Ok(extent.unwrap_or_default())
    }

    /// Stores an event under a number, counted from 0.
    pub fn insert_system_event(&self, number: u64, at: Timestamp, event: &RawValue) -> Result<(), Error> {
        let sql = "INSERT INTO system_events (number, at, body) VALUES (?1, ?2, ?3)";
        let values = params![number + 1, at, event.get()];
        self.execute(sql, values)
    }

    /// Calls `see` with each event from number `from`, until it returns false.
    pub fn system_events(&self, from: u64, see: &mut dyn FnMut(&str) -> bool) -> Result<(), Error> {
        let sql = "SELECT body FROM system_events WHERE number > ?1 ORDER BY number";
        each_text(self, sql, params![from], see)
    }

    /// Deletes at most `max` events that are older than a time, but never the newest event. Returns how many were deleted.
    pub fn prune_system_events(&self, before: Timestamp, max: usize) -> Result<usize, Error> {
        let sql = "DELETE FROM system_events WHERE number IN (
                     SELECT number FROM system_events WHERE number < (SELECT max(number) FROM system_events)
                     ORDER BY number LIMIT ?2
                   ) AND at < ?1";
        self.changed_rows(sql, params![before, max])
    }
}

pub(super) fn log(row: &dyn Row) -> Result<LogRow, Error> {
    Ok(LogRow {
        key: row.get("stream")?,
        name: row.get("name")?,
        entries: row.get("entries")?,
        closed: row.get("closed")?,
    })
}

/// The error for a stream of a session that was deleted for good.
pub(super) fn purged(stream: &str) -> Error {
    Error::gone(format!("the session {} was deleted for good", stream_names::instance(stream)))
}
