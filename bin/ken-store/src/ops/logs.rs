//! The streams of instances and runs. Entries, which are events, are only ever added to them.

use std::sync::Arc;

use ken_types::id::RunId;
use ken_types::ops::streams::Payload;
use ken_types::{Error, Offset, Timestamp};
use serde_json::value::RawValue;

use crate::engine::change::{Change, Effect, NewEntries};
use crate::rules::stream_names::{self, MAX_ENTRIES};
use crate::tables::{LogKind, LogRow, Tables};

impl LogRow {
    pub(super) fn end(&self) -> Offset {
        Offset::end(self.entries)
    }

    /// Returns the instance or the id of the run to which the stream belongs.
    pub(super) fn instance(&self) -> &str {
        stream_names::instance(&self.name)
    }
}

/// Returns the stream of an instance. It is created if it does not exist.
pub(super) fn of_instance(tables: &dyn Tables, instance: &str, now: Timestamp) -> Result<LogRow, Error> {
    let name = stream_names::of_instance(instance);
    match tables.log(&name)? {
        Some(found) => Ok(found),
        None => tables.insert_log(&name, LogKind::Agent, now),
    }
}

pub(super) fn of_run(tables: &dyn Tables, id: &RunId, now: Timestamp) -> Result<LogRow, Error> {
    tables.insert_log(&stream_names::of_run(id.as_str()), LogKind::Run, now)
}

/// Appends entries to a stream. Fails with `too_large` if the stream is full.
pub(super) fn append(
    tables: &dyn Tables,
    log: &mut LogRow,
    entries: &[Box<RawValue>],
    change: &mut Change,
) -> Result<(), Error> {
    if entries.is_empty() {
        return Ok(());
    }
    let end = log.entries + entries.len() as u64;
    if end >= MAX_ENTRIES {
        return Err(Error::too_large(format!("the stream {} is full", log.name)));
    }
    tables.insert_entries(log.key, log.entries, entries)?;
    tables.set_log_entries(log.key, end)?;
    change.push(Effect::Appended(Arc::new(NewEntries {
        stream: log.name.clone(),
        first: log.entries,
        payload: Payload::Messages(entries.to_vec()),
    })));
    log.entries = end;
    Ok(())
}

/// Returns the timestamp of the newest event.
pub(super) fn last_timestamp(tables: &dyn Tables, log: &LogRow) -> Result<Option<Timestamp>, Error> {
    #[derive(serde::Deserialize)]
    struct Stamped {
        timestamp: Timestamp,
    }
    let mut last = None;
    tables.entries(log.key, log.entries.saturating_sub(1), log.entries, &mut |event| {
        last = serde_json::from_str(event).ok();
        true
    })?;
    Ok(last.map(|Stamped { timestamp }| timestamp))
}

/// Returns the timestamp for an event that the store adds: `now`, but not before the newest event.
pub(super) fn next_timestamp(tables: &dyn Tables, log: &LogRow, now: Timestamp) -> Result<Timestamp, Error> {
    Ok(last_timestamp(tables, log)?.map_or(now, |last| last.max(now)))
}
