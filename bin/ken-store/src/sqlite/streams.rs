//! Streams: append-only logs. An entry's key is its stream and its number, so a page costs its own length.

use std::sync::Arc;

use ken_types::id::RunId;
use ken_types::limits::{PAGE_BYTES, PAGE_EVENTS};
use ken_types::ops::store::{ReadStream, StreamPage};
use ken_types::{Error, Offset, Timestamp};
use rusqlite::{Connection, params};
use serde_json::value::RawValue;

use super::fault::{Done, Fault};
use super::{count, first, run};
use crate::backend::{Change, Effect, NewEntries};

/// What stands before an instance in the name of its stream.
pub(super) const AGENT: &str = "agents/orchestrator/";
/// A stream holds fewer entries than this, and there are fewer streams than half of it.
const MOST: u64 = 1 << 32;

/// A stream as it stands in this transaction.
#[derive(Debug, Clone)]
pub(super) struct Stream {
    pub(super) id: i64,
    pub(super) name: String,
    pub(super) entries: u64,
    pub(super) closed: bool,
}

impl Stream {
    pub(super) fn end(&self) -> Offset {
        Offset::end(self.entries)
    }

    /// The instance, or the run, whose stream it is.
    pub(super) fn instance(&self) -> &str {
        let instance = self.name.strip_prefix(AGENT);
        instance
            .or_else(|| self.name.strip_prefix(super::runs::RUN))
            .unwrap_or(&self.name)
    }
}

fn read_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Stream> {
    Ok(Stream {
        id: row.get("stream")?,
        name: row.get("name")?,
        entries: count(row, "entries")?,
        closed: row.get("closed")?,
    })
}

pub(super) fn find(connection: &Connection, name: &str) -> Done<Option<Stream>> {
    let sql = "SELECT stream, name, entries, closed FROM streams WHERE name = ?1";
    Ok(first(connection, sql, [name], read_row)?)
}

pub(super) fn by_id(connection: &Connection, id: i64) -> Done<Stream> {
    let sql = "SELECT stream, name, entries, closed FROM streams WHERE stream = ?1";
    first(connection, sql, [id], read_row)?.ok_or(Fault::Sql(rusqlite::Error::QueryReturnedNoRows))
}

/// The stream of an instance, made if it is not there.
pub(super) fn of_instance(connection: &Connection, instance: &str, now: Timestamp) -> Done<Stream> {
    let name = [AGENT, instance].concat();
    if let Some(found) = find(connection, &name)? {
        return Ok(found);
    }
    let sql = "INSERT INTO streams (name, kind, content_type, created_at) VALUES (?1, 'agent', 'application/json', ?2)";
    run(connection, sql, params![name, now.millis()])?;
    Ok(Stream {
        id: connection.last_insert_rowid(),
        name,
        entries: 0,
        closed: false,
    })
}

/// The stream of a run, which is new.
pub(super) fn of_run(connection: &Connection, id: &RunId, now: Timestamp) -> Done<Stream> {
    let name = [super::runs::RUN, id.as_str()].concat();
    let sql = "INSERT INTO streams (name, kind, content_type, created_at) VALUES (?1, 'run', 'application/json', ?2)";
    run(connection, sql, params![name, now.millis()])?;
    Ok(Stream {
        id: connection.last_insert_rowid(),
        name,
        entries: 0,
        closed: false,
    })
}

/// Nothing more is added. The change tells its waiters by the last entry that it adds.
pub(super) fn close(connection: &Connection, stream: &mut Stream) -> Done<()> {
    run(
        connection,
        "UPDATE streams SET closed = 1 WHERE stream = ?1",
        [stream.id],
    )?;
    stream.closed = true;
    Ok(())
}

/// The key of an entry.
fn place(stream: i64, number: u64) -> i64 {
    (stream << 32) | number.min(MOST - 1).cast_signed()
}

/// Adds entries at the end.
pub(super) fn append(
    connection: &Connection,
    stream: &mut Stream,
    entries: &[Box<RawValue>],
    change: &mut Change,
) -> Done<()> {
    if entries.is_empty() {
        return Ok(());
    }
    let end = stream.entries + entries.len() as u64;
    if end >= MOST {
        return Err(Error::too_large(format!("the stream {} is full", stream.name)).into());
    }
    let mut insert = connection.prepare_cached("INSERT INTO entries (place, body) VALUES (?1, ?2)")?;
    for (number, entry) in (stream.entries..).zip(entries) {
        insert.execute(params![place(stream.id, number), entry.get()])?;
    }
    run(
        connection,
        "UPDATE streams SET entries = ?2 WHERE stream = ?1",
        params![stream.id, end.cast_signed()],
    )?;
    change.effects.push(Effect::Appended(Arc::new(NewEntries {
        stream: stream.name.clone(),
        first: stream.entries,
        entries: entries.to_vec(),
    })));
    stream.entries = end;
    Ok(())
}

/// Calls `see` with each entry from `from` to before `to`, until it says that it has enough.
pub(super) fn scan(
    connection: &Connection,
    stream: i64,
    from: u64,
    to: u64,
    mut see: impl FnMut(&str) -> Done<bool>,
) -> Done<()> {
    let sql = "SELECT body FROM entries WHERE place >= ?1 AND place < ?2 ORDER BY place";
    let mut select = connection.prepare_cached(sql)?;
    let mut rows = select.query([place(stream, from), place(stream, to)])?;
    while let Some(row) = rows.next()? {
        let body = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
        if !see(body)? {
            break;
        }
    }
    Ok(())
}

/// The last entry, if there is one.
pub(super) fn last(connection: &Connection, stream: &Stream) -> Done<Option<String>> {
    let Some(number) = stream.entries.checked_sub(1) else {
        return Ok(None);
    };
    let sql = "SELECT body FROM entries WHERE place = ?1";
    Ok(first(connection, sql, [place(stream.id, number)], |row| {
        row.get(0)
    })?)
}

pub(super) fn read(connection: &Connection, args: &ReadStream) -> Done<StreamPage> {
    let stream = find(connection, &args.stream)?
        .ok_or_else(|| Error::not_found(format!("there is no stream {}", args.stream)).at("/stream"))?;
    let mut start = args.offset.before(stream.entries);
    if let (Some(tail), Offset::Start) = (args.tail, args.offset) {
        start = stream.entries.saturating_sub(tail);
    }
    let limit = args.limit.min(PAGE_EVENTS) as usize;
    let mut entries: Vec<Box<RawValue>> = Vec::new();
    let mut bytes = 0;
    if start < stream.entries {
        scan(connection, stream.id, start, stream.entries, |body| {
            bytes += body.len();
            let fits = entries.is_empty() || bytes <= PAGE_BYTES;
            if fits {
                entries.push(RawValue::from_string(body.to_owned())?);
            }
            Ok(fits && entries.len() < limit)
        })?;
    }
    let next = start + entries.len() as u64;
    Ok(StreamPage {
        start,
        next,
        end: stream.entries,
        closed: stream.closed,
        entries,
    })
}
