//! Streams: append-only logs. An entry's key is its stream and its number, so a page costs its own length.

use std::sync::Arc;

use ken_types::id::RunId;
use ken_types::limits::PAGE_BYTES;
use ken_types::ops::store::{ReadStream, StreamPage};
use ken_types::ops::streams::{Payload, PublicPage};
use ken_types::{Error, Octets, Offset, Timestamp};
use rusqlite::{Connection, params};
use serde_json::value::RawValue;

use super::fault::{Done, Fault};
use super::public::{self, PUBLIC, Public};
use super::{count, first, forks, run};
use crate::backend::{Change, Effect, NewEntries};

/// What stands before an instance in the name of its stream.
pub(super) const AGENT: &str = "agents/orchestrator/";
/// A stream holds fewer entries than this, and there are fewer streams than half of it.
pub(super) const MOST: u64 = (1 << 32) - 1;
/// The entries from one place to before another: JSON of agents and runs, bytes of the streams below `streams/`.
const ENTRIES: &str = "SELECT body FROM entries WHERE place >= ?1 AND place < ?2 ORDER BY place";
pub(super) const APPENDS: &str = "SELECT body FROM places CROSS JOIN appends USING (append)
                                  WHERE place >= ?1 AND place < ?2 ORDER BY place";

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
    create(connection, name, "agent", now)
}

/// The stream of a run, which is new.
pub(super) fn of_run(connection: &Connection, id: &RunId, now: Timestamp) -> Done<Stream> {
    let name = [super::runs::RUN, id.as_str()].concat();
    create(connection, name, "run", now)
}

fn create(connection: &Connection, name: String, kind: &str, now: Timestamp) -> Done<Stream> {
    let sql =
        "INSERT INTO streams (name, kind, content_type, created_at) VALUES (?1, ?2, 'application/json', ?3)";
    run(connection, sql, params![name, kind, now.millis()])?;
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
pub(super) fn place(stream: i64, number: u64) -> i64 {
    (stream << 32) | number.min(MOST).cast_signed()
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
        payload: Payload::Messages(entries.to_vec()),
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
    scan_table(connection, ENTRIES, stream, from, to, &mut |body| {
        see(text(body)?)
    })
    .map(drop)
}

fn text(body: &[u8]) -> Done<&str> {
    std::str::from_utf8(body).map_err(|error| Fault::Sql(rusqlite::Error::Utf8Error(0, error)))
}

/// As [`scan`], over either kind of entries. False when `see` had enough.
pub(super) fn scan_table(
    connection: &Connection,
    sql: &str,
    stream: i64,
    from: u64,
    to: u64,
    see: &mut impl FnMut(&[u8]) -> Done<bool>,
) -> Done<bool> {
    let mut select = connection.prepare_cached(sql)?;
    let mut rows = select.query([place(stream, from), place(stream, to)])?;
    while let Some(row) = rows.next()? {
        let body = row.get_ref(0)?.as_bytes().map_err(rusqlite::Error::from)?;
        if !see(body)? {
            return Ok(false);
        }
    }
    Ok(true)
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

/// A page of whichever kind of stream.
pub(super) fn read(connection: &Connection, args: &ReadStream, now: Timestamp) -> Done<StreamPage> {
    match args.stream.starts_with(PUBLIC) {
        true => read_public(connection, args, now),
        false => read_events(connection, args),
    }
}

fn missing(args: &ReadStream) -> Error {
    Error::not_found(format!("there is no stream {}", args.stream)).at("/stream")
}

fn read_events(connection: &Connection, args: &ReadStream) -> Done<StreamPage> {
    let stream = find(connection, &args.stream)?.ok_or_else(|| missing(args))?;
    let start = begin(args, stream.entries);
    let mut page = Gathered::new(args);
    if start < stream.entries {
        scan_table(
            connection,
            ENTRIES,
            stream.id,
            start,
            stream.entries,
            &mut |body| page.take(body),
        )?;
    }
    Ok(StreamPage {
        start,
        next: start + page.count,
        end: stream.entries,
        closed: stream.closed,
        entries: page.entries,
        id: stream.id.cast_unsigned(),
        public: None,
    })
}

fn read_public(connection: &Connection, args: &ReadStream, now: Timestamp) -> Done<StreamPage> {
    let stream = public::live(connection, &args.stream, now)?;
    if args.id.is_some_and(|id| id != stream.id.cast_unsigned()) {
        return Err(missing(args).into());
    }
    let start = begin(args, stream.entries);
    let mut page = Gathered::new(args);
    page.joined = (!stream.is_json()).then(Vec::new);
    forks::scan(connection, &stream, start, stream.entries, |body| page.take(body))?;
    Ok(page.of(&stream, start))
}

/// Where a page begins.
fn begin(args: &ReadStream, entries: u64) -> u64 {
    match (args.tail, args.offset) {
        (Some(tail), Offset::Start) => entries.saturating_sub(tail),
        _ => args.offset.before(entries),
    }
}

/// A page as it fills: entries, or their bytes joined.
struct Gathered {
    limit: u64,
    max_bytes: usize,
    count: u64,
    bytes: usize,
    entries: Vec<Box<RawValue>>,
    joined: Option<Vec<u8>>,
}

impl Gathered {
    fn new(args: &ReadStream) -> Gathered {
        Gathered {
            limit: args.limit.into(),
            max_bytes: PAGE_BYTES.min(args.max_bytes as usize),
            count: 0,
            bytes: 0,
            entries: Vec::new(),
            joined: None,
        }
    }

    /// Whether there is room for another one.
    fn take(&mut self, body: &[u8]) -> Done<bool> {
        self.bytes += body.len();
        if self.count > 0 && self.bytes > self.max_bytes {
            return Ok(false);
        }
        match &mut self.joined {
            Some(joined) => joined.extend_from_slice(body),
            None => self.entries.push(RawValue::from_string(text(body)?.to_owned())?),
        }
        self.count += 1;
        Ok(self.count < self.limit)
    }

    fn of(self, stream: &Public, start: u64) -> StreamPage {
        StreamPage {
            start,
            next: start + self.count,
            end: stream.entries,
            closed: stream.closed,
            entries: self.entries,
            id: stream.id.cast_unsigned(),
            public: Some(PublicPage {
                content_type: stream.content_type.clone(),
                lifetime: stream.lifetime(),
                bytes: self.joined.map(Octets),
            }),
        }
    }
}
