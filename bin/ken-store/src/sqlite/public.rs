//! The streams below `streams/`: how they come, live and go.
//!
//! A fork refers to its source and counts there; below its `base` its entries are the source's. What is deleted while
//! forks live is `gone`: it keeps its name and its entries until the last of them has left. What is deleted for good
//! loses its name at once, and its entries later, a slice at a time.

use ken_types::ops::Nothing;
use ken_types::ops::streams::{
    CreateStream, Creation, DeleteStream, Fork, Lifetime, Made, Payload, is_json, media_type, messages,
};
use ken_types::{Error, Octets, Timestamp};
use rusqlite::{Connection, Row, params};

use super::fault::{Done, Fault};
use super::{all, appends, calls, count, first, forks, rows, run};
use crate::backend::{Change, Effect};

/// What stands before a path in the name of its stream.
pub(super) const PUBLIC: &str = "streams/";
const BYTES: &str = "application/octet-stream";
/// Streams whose time is over that one change, or one slice of background work, takes away.
const SWEEP: usize = 64;
/// Entries, bytes and producers that one slice deletes.
const SLICE: usize = 500;
const SLICE_BYTES: i64 = 1024 * 1024;

/// A stream as it stands in this transaction.
#[derive(Debug, Clone)]
pub(super) struct Public {
    pub(super) id: i64,
    pub(super) name: String,
    pub(super) content_type: String,
    pub(super) entries: u64,
    pub(super) closed: bool,
    /// In seconds.
    pub(super) ttl: Option<i64>,
    pub(super) expires_at: Option<i64>,
    pub(super) last_seq: Option<String>,
    pub(super) source: Option<i64>,
    pub(super) base: u64,
    /// The fork as it was asked for.
    asked: Option<String>,
    forks: u64,
    gone: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Live,
    /// Deleted or over, and kept for its forks.
    Gone,
    /// Its time is over; nobody has taken it away yet.
    Over,
}

impl Public {
    pub(super) fn is_json(&self) -> bool {
        is_json(&self.content_type)
    }

    pub(super) fn lifetime(&self) -> Option<Lifetime> {
        match (self.ttl, self.expires_at) {
            (Some(seconds), _) => Some(Lifetime::Ttl(seconds.cast_unsigned())),
            (None, Some(at)) => Some(Lifetime::ExpiresAt(Timestamp::from_millis(at))),
            (None, None) => None,
        }
    }

    /// When it ends if it is used now.
    pub(super) fn next_expiry(&self, now: Timestamp) -> Option<i64> {
        match self.ttl {
            Some(seconds) => Some(now.millis().saturating_add(seconds.saturating_mul(1_000))),
            None => self.expires_at,
        }
    }

    fn state(&self, now: Timestamp) -> State {
        let over = self.expires_at.is_some_and(|at| at <= now.millis());
        match (self.gone, over) {
            (true, _) => State::Gone,
            (false, true) if self.forks > 0 => State::Gone,
            (false, true) => State::Over,
            (false, false) => State::Live,
        }
    }

    fn made(&self) -> Made {
        Made {
            content_type: self.content_type.clone(),
            end: self.entries,
            closed: self.closed,
        }
    }
}

fn read_row(row: &Row<'_>) -> rusqlite::Result<Public> {
    Ok(Public {
        id: row.get("stream")?,
        name: row.get::<_, Option<String>>("name")?.unwrap_or_default(),
        content_type: row.get("content_type")?,
        entries: count(row, "entries")?,
        closed: row.get("closed")?,
        ttl: row.get("ttl")?,
        expires_at: row.get("expires_at")?,
        last_seq: row.get("last_seq")?,
        source: row.get("source")?,
        base: count(row, "base")?,
        asked: row.get("asked")?,
        forks: count(row, "forks")?,
        gone: row.get("gone")?,
    })
}

fn find(connection: &Connection, name: &str) -> Done<Option<Public>> {
    Ok(first(
        connection,
        "SELECT * FROM public_streams WHERE name = ?1",
        [name],
        read_row,
    )?)
}

pub(super) fn by_id(connection: &Connection, id: i64) -> Done<Public> {
    let found = first(
        connection,
        "SELECT * FROM public_streams WHERE stream = ?1",
        [id],
        read_row,
    )?;
    found.ok_or(Fault::Sql(rusqlite::Error::QueryReturnedNoRows))
}

/// The stream of this name, if it may be used.
pub(super) fn live(connection: &Connection, name: &str, now: Timestamp) -> Done<Public> {
    let found = find(connection, name)?;
    let state = found.as_ref().map(|stream| stream.state(now));
    match (found, state) {
        (Some(stream), Some(State::Live)) => Ok(stream),
        (Some(_), Some(State::Gone)) => Err(Error::conflict(format!(
            "{name} was deleted and is kept for its forks"
        ))
        .at("/stream")
        .into()),
        _ => Err(Error::not_found(format!("there is no stream {name}"))
            .at("/stream")
            .into()),
    }
}

pub(super) fn create(connection: &Connection, args: &CreateStream, change: &mut Change) -> Done<Creation> {
    if let Some(answer) = calls::known(connection, args.call.as_ref())? {
        return Ok(answer);
    }
    // First, so that a name and a source are free from the moment on that their time is over.
    sweep(connection, change)?;
    if let Some(there) = find(connection, &args.stream)? {
        match there.state(change.now) {
            State::Live => return Ok(compare(&there, args)),
            State::Gone => {
                return Ok(Creation::Exists(format!(
                    "{} was deleted and is kept for its forks",
                    args.stream
                )));
            }
            State::Over => remove(connection, &there, change)?,
        }
    }
    let made = match &args.fork {
        None => insert(connection, &plain(args, change.now), args, None)?,
        Some(fork) => match find(connection, &fork.from)? {
            Some(source) if source.state(change.now) == State::Live => {
                match of_source(connection, &source, fork, args, change.now)? {
                    Ok(stream) => stream,
                    Err(differs) => return Ok(Creation::Exists(differs)),
                }
            }
            Some(source) if source.state(change.now) == State::Gone => {
                return Ok(Creation::Exists(format!(
                    "{} was deleted and is kept for its forks",
                    fork.from
                )));
            }
            _ => {
                return Err(Error::not_found(format!("there is no stream {}", fork.from))
                    .at("/fork/from")
                    .into());
            }
        },
    };
    let answer = Creation::Made(made.made());
    expect_end(&made, change);
    calls::keep(connection, args.call.as_ref(), &answer, change.now)?;
    Ok(answer)
}

/// Whether what is there is what is asked for.
fn compare(there: &Public, args: &CreateStream) -> Creation {
    let given = args.content_type.as_deref();
    // A fork that names no type or lifetime takes its source's, whatever those are.
    let type_differs = match (&args.fork, given) {
        (Some(_), None) => false,
        _ => media_type(given.unwrap_or(BYTES)) != media_type(&there.content_type),
    };
    let lifetime_differs = match (&args.fork, args.lifetime) {
        (Some(_), None) => false,
        (_, lifetime) => lifetime != there.lifetime(),
    };
    let differs = [
        (type_differs, "content type"),
        (lifetime_differs, "lifetime"),
        (args.closed != there.closed, "closure"),
        (asked(args.fork.as_ref()) != there.asked, "fork source"),
    ];
    match differs.iter().find(|(differs, _)| *differs) {
        Some((_, what)) => Creation::Exists(format!("{} is there with another {what}", there.name)),
        None => Creation::Known(there.made()),
    }
}

fn asked(fork: Option<&Fork>) -> Option<String> {
    fork.and_then(|fork| serde_json::to_string(fork).ok())
}

/// A stream that is not stored yet.
fn plain(args: &CreateStream, now: Timestamp) -> Public {
    let content_type = args.content_type.clone().unwrap_or_else(|| BYTES.to_owned());
    let mut stream = Public {
        id: 0,
        name: args.stream.clone(),
        content_type,
        entries: 0,
        closed: args.closed,
        ttl: None,
        expires_at: None,
        last_seq: None,
        source: None,
        base: 0,
        asked: asked(args.fork.as_ref()),
        forks: 0,
        gone: false,
    };
    stream.live_for(args.lifetime, now);
    stream
}

impl Public {
    fn live_for(&mut self, lifetime: Option<Lifetime>, now: Timestamp) {
        match lifetime {
            Some(Lifetime::Ttl(seconds)) => self.ttl = Some(i64::try_from(seconds).unwrap_or(i64::MAX)),
            Some(Lifetime::ExpiresAt(at)) => self.expires_at = Some(at.millis()),
            None => {}
        }
        self.expires_at = self.next_expiry(now);
    }
}

/// A fork, or why there cannot be one.
fn of_source(
    connection: &Connection,
    source: &Public,
    fork: &Fork,
    args: &CreateStream,
    now: Timestamp,
) -> Done<Result<Public, String>> {
    let content_type = args.content_type.as_deref().unwrap_or(&source.content_type);
    if media_type(content_type) != media_type(&source.content_type) {
        return Ok(Err(format!("{} is of another content type", source.name)));
    }
    let begin = forks::begin(connection, source, fork)?;
    let mut stream = Public {
        content_type: content_type.to_owned(),
        entries: begin.base,
        base: begin.base,
        source: Some(source.id),
        ttl: None,
        expires_at: None,
        ..plain(args, now)
    };
    stream.live_for(args.lifetime.or_else(|| source.lifetime()), now);
    run(
        connection,
        "UPDATE public_streams SET forks = forks + 1 WHERE stream = ?1",
        [source.id],
    )?;
    Ok(Ok(insert(connection, &stream, args, begin.part)?))
}

/// Stores a new stream and its first appends.
fn insert(
    connection: &Connection,
    stream: &Public,
    args: &CreateStream,
    part: Option<Vec<u8>>,
) -> Done<Public> {
    let sql = "INSERT INTO public_streams (name, content_type, closed, ttl, expires_at, source, base, asked)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let values = params![
        stream.name,
        stream.content_type,
        stream.closed,
        stream.ttl,
        stream.expires_at,
        stream.source,
        stream.base.cast_signed(),
        stream.asked
    ];
    run(connection, sql, values)?;
    let mut stream = Public {
        id: connection.last_insert_rowid(),
        ..stream.clone()
    };
    if let Some(part) = part {
        appends::insert(connection, &mut stream, &Payload::Bytes(Octets(part)))?;
    }
    if let Some(body) = args.body.as_ref().filter(|body| !body.0.is_empty()) {
        let payload = match stream.is_json() {
            true => Payload::Messages(messages(&body.0)?),
            false => Payload::Bytes(body.clone()),
        };
        appends::insert(connection, &mut stream, &payload)?;
    }
    appends::update(connection, &stream)?;
    Ok(stream)
}

/// Tells the writer when there will be something to take away.
pub(super) fn expect_end(stream: &Public, change: &mut Change) {
    if let Some(at) = stream.expires_at {
        change.effects.push(Effect::Expires(Timestamp::from_millis(at)));
    }
}

/// Its time to live starts again, unless it is over.
pub(super) fn touch(connection: &Connection, id: i64, change: &mut Change) -> Done<()> {
    let stream = by_id(connection, id)?;
    if stream.state(change.now) == State::Live && stream.ttl.is_some() {
        let touched = Public {
            expires_at: stream.next_expiry(change.now),
            ..stream
        };
        appends::update(connection, &touched)?;
        expect_end(&touched, change);
    }
    Ok(())
}

pub(super) fn delete(connection: &Connection, args: &DeleteStream, change: &mut Change) -> Done<Nothing> {
    if let Some(answer) = calls::known(connection, args.call.as_ref())? {
        return Ok(answer);
    }
    sweep(connection, change)?;
    let stream = live(connection, &args.stream, change.now)?;
    remove(connection, &stream, change)?;
    calls::keep(connection, args.call.as_ref(), &Nothing {}, change.now)?;
    Ok(Nothing {})
}

fn remove(connection: &Connection, stream: &Public, change: &mut Change) -> Done<()> {
    change.effects.push(Effect::Changed(stream.name.clone()));
    if stream.forks > 0 {
        let sql = "UPDATE public_streams SET gone = 1, expires_at = NULL WHERE stream = ?1";
        run(connection, sql, [stream.id])?;
        return Ok(());
    }
    change.effects.push(Effect::Background);
    let mut leaving = Some(stream.id);
    // A source that was kept for this fork alone goes with it, and so on.
    while let Some(id) = leaving.take() {
        let sql =
            "UPDATE public_streams SET name = NULL, expires_at = NULL WHERE stream = ?1 RETURNING source";
        let Some(Some(source)) = first(connection, sql, [id], |row| row.get::<_, Option<i64>>("source"))?
        else {
            break;
        };
        run(
            connection,
            "UPDATE public_streams SET forks = forks - 1 WHERE stream = ?1",
            [source],
        )?;
        leaving = Some(by_id(connection, source)?)
            .filter(|source| source.gone && source.forks == 0)
            .map(|source| source.id);
    }
    Ok(())
}

/// Takes streams away whose time is over. True when there may be more.
pub(super) fn sweep(connection: &Connection, change: &mut Change) -> Done<bool> {
    let sql = "SELECT * FROM public_streams WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2";
    let over = all(
        connection,
        sql,
        params![change.now.millis(), rows(SWEEP)],
        read_row,
    )?;
    for stream in &over {
        // As it stands now: the one before may have been its last fork.
        remove(connection, &by_id(connection, stream.id)?, change)?;
    }
    Ok(over.len() == SWEEP)
}

/// When the next stream ends.
pub(super) fn next_end(connection: &Connection) -> Done<Option<Timestamp>> {
    let sql =
        "SELECT expires_at FROM public_streams WHERE expires_at IS NOT NULL ORDER BY expires_at LIMIT 1";
    Ok(first(connection, sql, [], |row| row.get(0))?.map(Timestamp::from_millis))
}

/// Deletes a slice of what streams have left behind. True when there may be more.
pub(super) fn clean(connection: &Connection) -> Done<bool> {
    let sql = "SELECT stream FROM public_streams WHERE name IS NULL LIMIT 1";
    let Some(id) = first(connection, sql, [], |row| row.get::<_, i64>(0))? else {
        return Ok(false);
    };
    if appends::delete_slice(connection, id, SLICE, SLICE_BYTES)? {
        return Ok(true);
    }
    let sql = "DELETE FROM producers WHERE (stream, id) IN (SELECT stream, id FROM producers WHERE stream = ?1 LIMIT ?2)";
    if run(connection, sql, params![id, rows(SLICE)])? < SLICE {
        run(connection, "DELETE FROM public_streams WHERE stream = ?1", [id])?;
    }
    Ok(true)
}
