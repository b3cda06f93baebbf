//! The streams of instances and runs, and the system's stream.

use ken_types::{Error, Timestamp};
use serde_json::value::RawValue;

use super::{Database, Row, count, each_text, first, insert, params, place, rows, run, time, unique};
use crate::rules::stream_names;
use crate::tables::{LogKind, LogRow, Logs, SystemEvents, SystemExtent};

fn log(row: &Row) -> Result<LogRow, Error> {
    Ok(LogRow {
        key: row.get("stream")?,
        name: row.get("name")?,
        entries: count(row, "entries")?,
        closed: row.get("closed")?,
    })
}

/// The error for a stream of a session that was deleted for good.
pub(super) fn purged(stream: &str) -> Error {
    Error::gone(format!("the session {} was deleted for good", stream_names::instance(stream)))
}

impl Logs for Database {
    fn log(&self, name: &str) -> Result<Option<LogRow>, Error> {
        let sql = "SELECT stream, name, entries, closed, purged_at FROM streams WHERE name = $1";
        let found = first(self, sql, params![name], |row| Ok((log(row)?, row.get::<Option<i64>>("purged_at")?)))?;
        match found {
            Some((_, Some(_))) => Err(purged(name)),
            found => Ok(found.map(|(log, _)| log)),
        }
    }

    fn log_by_key(&self, key: i64) -> Result<LogRow, Error> {
        let sql = "SELECT stream, name, entries, closed FROM streams WHERE stream = $1";
        unique(self, sql, params![key], log)
    }

    fn insert_log(&self, name: &str, kind: LogKind, now: Timestamp) -> Result<LogRow, Error> {
        let sql = "INSERT INTO streams (name, kind, content_type, created_at) VALUES ($1, $2, 'application/json', $3)
                   RETURNING stream";
        let kind = match kind {
            LogKind::Agent => "agent",
            LogKind::Run => "run",
        };
        let key = insert(self, sql, params![name, kind, now.millis()])?;
        Ok(LogRow { key, name: name.to_owned(), entries: 0, closed: false })
    }

    fn close_log(&self, key: i64) -> Result<(), Error> {
        run(self, "UPDATE streams SET closed = 1 WHERE stream = $1", params![key]).map(drop)
    }

    fn insert_entries(&self, log: i64, first: u64, entries: &[Box<RawValue>]) -> Result<(), Error> {
        // One statement for all of them, because each statement is a round trip.
        let sql = "INSERT INTO entries (place, body) SELECT $1 + number - 1, body
                   FROM unnest($2::text[]) WITH ORDINALITY AS new (body, number)";
        let bodies: Vec<String> = entries.iter().map(|entry| entry.get().to_owned()).collect();
        run(self, sql, params![place(log, first), bodies]).map(drop)
    }

    fn set_log_entries(&self, log: i64, entries: u64) -> Result<(), Error> {
        let sql = "UPDATE streams SET entries = $2 WHERE stream = $1";
        run(self, sql, params![log, entries.cast_signed()]).map(drop)
    }

    fn entries(&self, log: i64, from: u64, to: u64, see: &mut dyn FnMut(&str) -> bool) -> Result<(), Error> {
        let sql = "SELECT body FROM entries WHERE place >= $1 AND place < $2 ORDER BY place";
        each_text(self, sql, params![place(log, from), place(log, to)], see)
    }
}

impl SystemEvents for Database {
    fn system_extent(&self) -> Result<SystemExtent, Error> {
        // Two queries read only the two ends of the table. A single one would read all of it.
        let oldest = "SELECT number FROM system_events ORDER BY number LIMIT 1";
        let newest = "SELECT number, at FROM system_events ORDER BY number DESC LIMIT 1";
        let oldest = first(self, oldest, params![], |row| count(row, "number"))?;
        let newest = first(self, newest, params![], |row| Ok((count(row, "number")?, time(row, "at")?)))?;
        let (entries, newest) = newest.unwrap_or_default();
        Ok(SystemExtent { first: oldest.unwrap_or(1).saturating_sub(1), entries, newest })
    }

    fn insert_system_event(&self, number: u64, at: Timestamp, event: &RawValue) -> Result<(), Error> {
        let sql = "INSERT INTO system_events (number, at, body) VALUES ($1, $2, $3)";
        let values = params![(number + 1).cast_signed(), at.millis(), event.get()];
        run(self, sql, values).map(drop)
    }

    fn system_events(&self, from: u64, see: &mut dyn FnMut(&str) -> bool) -> Result<(), Error> {
        let sql = "SELECT body FROM system_events WHERE number > $1 ORDER BY number";
        each_text(self, sql, params![from.cast_signed()], see)
    }

    fn prune_system_events(&self, before: Timestamp, max: usize) -> Result<usize, Error> {
        let sql = "DELETE FROM system_events WHERE number IN (
                     SELECT number FROM system_events WHERE number < (SELECT max(number) FROM system_events)
                     ORDER BY number LIMIT $2
                   ) AND at < $1";
        run(self, sql, params![before.millis(), rows(max)])
    }
}
