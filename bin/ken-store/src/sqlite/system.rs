//! The system's own stream: what has changed, for consoles. Ids and states only, never a text. What happened in a batch
//! is written at its end, in the same transaction.

use std::sync::Arc;

use ken_types::limits::{PAGE_BYTES, PAGE_EVENTS, SYSTEM_EVENTS_MS};
use ken_types::ops::store::{ReadStream, StreamPage};
use ken_types::ops::streams::Payload;
use ken_types::{Error, Offset, Timestamp};
use rusqlite::{Connection, params};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::fault::Done;
use super::{count, first, rows, run};
use crate::backend::{Change, Effect, NewEntries};

/// The name of the stream.
pub(super) const SYSTEM: &str = "system";
/// Events that one slice of background work forgets.
const SLICE: usize = 1_000;

/// Something to be told once the change stands. `fields` is an object.
pub(super) fn happened(change: &mut Change, kind: &'static str, fields: Value) {
    change.effects.push(Effect::Happened(kind, fields));
}

/// Where the stream stands: entries before the first that is kept, entries in all, and the time of the newest.
struct Extent {
    first: u64,
    entries: u64,
    newest: Timestamp,
}

fn extent(connection: &Connection) -> Done<Extent> {
    // Two looks at the ends of the tree; one query for both would read all of it.
    let oldest = "SELECT number FROM happenings ORDER BY number LIMIT 1";
    let newest = "SELECT number, at FROM happenings ORDER BY number DESC LIMIT 1";
    let oldest = first(connection, oldest, [], |row| count(row, "number"))?;
    let newest = first(connection, newest, [], |row| {
        Ok((count(row, "number")?, super::time(row, "at")?))
    })?;
    let (entries, newest) = newest.unwrap_or_default();
    Ok(Extent {
        first: oldest.unwrap_or(1).saturating_sub(1),
        entries,
        newest,
    })
}

/// Writes what has happened, in order.
pub(super) fn record(connection: &Connection, change: &mut Change) -> Done<()> {
    let is_told = |effect: &mut Effect| matches!(effect, Effect::Happened(..));
    let told: Vec<Effect> = change.effects.extract_if(.., is_told).collect();
    if told.is_empty() {
        return Ok(());
    }
    let extent = extent(connection)?;
    let at = extent.newest.max(change.now);
    let mut insert =
        connection.prepare_cached("INSERT INTO happenings (number, at, body) VALUES (?1, ?2, ?3)")?;
    let mut entries = Vec::with_capacity(told.len());
    for (index, effect) in (extent.entries..).zip(told) {
        if let Effect::Happened(kind, fields) = effect {
            let event = event(kind, fields, index, at)?;
            insert.execute(params![(index + 1).cast_signed(), at.millis(), event.get()])?;
            entries.push(event);
        }
    }
    change.effects.push(Effect::Appended(Arc::new(NewEntries {
        stream: SYSTEM.to_owned(),
        first: extent.entries,
        payload: Payload::Messages(entries),
    })));
    Ok(())
}

fn event(kind: &str, fields: Value, index: u64, at: Timestamp) -> Done<Box<RawValue>> {
    #[derive(serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Event<'a> {
        v: u8,
        r#type: &'a str,
        #[serde(flatten)]
        fields: Map<String, Value>,
        event_index: u64,
        timestamp: Timestamp,
    }
    let fields = match fields {
        Value::Object(fields) => fields,
        other => Map::from_iter([("detail".to_owned(), other)]),
    };
    let event = Event {
        v: ken_types::event::VERSION,
        r#type: kind,
        fields,
        event_index: index,
        timestamp: at,
    };
    Ok(serde_json::value::to_raw_value(&event)?)
}

/// As `streams::read`; an offset older than what is kept is `not_found` at `/offset`.
pub(super) fn read(connection: &Connection, args: &ReadStream) -> Done<StreamPage> {
    let extent = extent(connection)?;
    let mut start = args.offset.before(extent.entries);
    if args.offset == Offset::Start {
        let tail = extent.entries.saturating_sub(args.tail.unwrap_or(u64::MAX));
        start = tail.max(extent.first);
    }
    if start < extent.first {
        let oldest = Offset::After(extent.first);
        return Err(Error::not_found(format!("nothing is kept from before {oldest}"))
            .at("/offset")
            .into());
    }
    let entries = page(connection, start, args)?;
    Ok(StreamPage {
        start,
        next: start + entries.len() as u64,
        end: extent.entries,
        entries,
        ..StreamPage::default()
    })
}

fn page(connection: &Connection, after: u64, args: &ReadStream) -> Done<Vec<Box<RawValue>>> {
    let limit = args.limit.min(PAGE_EVENTS);
    let max_bytes = PAGE_BYTES.min(args.max_bytes as usize);
    let sql = "SELECT body FROM happenings WHERE number > ?1 ORDER BY number LIMIT ?2";
    let mut select = connection.prepare_cached(sql)?;
    let mut found = select.query(params![after.cast_signed(), limit])?;
    let (mut entries, mut bytes) = (Vec::new(), 0);
    while let Some(row) = found.next()? {
        let body: String = row.get(0)?;
        bytes += body.len();
        if !entries.is_empty() && bytes > max_bytes {
            break;
        }
        entries.push(RawValue::from_string(body)?);
    }
    Ok(entries)
}

/// Forgets some of the events that are too old, never the newest. True when there may be more.
pub(super) fn prune(connection: &Connection, now: Timestamp) -> Done<bool> {
    let sql = "DELETE FROM happenings WHERE number IN (
                 SELECT number FROM happenings WHERE number < (SELECT max(number) FROM happenings) ORDER BY number LIMIT ?2
               ) AND at < ?1";
    let oldest = now.plus_millis(-SYSTEM_EVENTS_MS).millis();
    Ok(run(connection, sql, params![oldest, rows(SLICE)])? == SLICE)
}
