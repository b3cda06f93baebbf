//! The system's stream, which tells consoles what has changed. It contains ids and states, but no texts. The events of a batch are written
//! at its end, in the same transaction.

use std::sync::Arc;

use ken_types::event::VERSION;
use ken_types::limits::SYSTEM_EVENTS_MS;
use ken_types::ops::store::{ReadStream, StreamPage};
use ken_types::ops::streams::Payload;
use ken_types::{Error, Offset, Timestamp};
use serde_json::value::RawValue;

use crate::engine::change::{Change, Effect, NewEntries};
use crate::rules::page::PageBuilder;
use crate::rules::record;
use crate::rules::stream_names::SYSTEM;
use crate::tables::Tables;

/// The maximum number of events that one slice of background work deletes.
const SLICE: usize = 1_000;

/// Writes the events of a change to the system's stream, in order.
pub(crate) fn record(tables: &dyn Tables, change: &mut Change) -> Result<(), Error> {
    let is_published = |effect: &mut Effect| matches!(effect, Effect::Published(..));
    let events: Vec<Effect> = change.effects.extract_if(.., is_published).collect();
    if events.is_empty() {
        return Ok(());
    }
    let extent = tables.system_extent()?;
    let at = extent.newest.max(change.now);
    let mut entries = Vec::with_capacity(events.len());
    for (number, effect) in (extent.entries..).zip(events) {
        if let Effect::Published(kind, fields) = effect {
            let event = event(kind, &fields, number, at)?;
            tables.insert_system_event(number, at, &event)?;
            entries.push(event);
        }
    }
    change.push(Effect::Appended(Arc::new(NewEntries {
        stream: SYSTEM.to_owned(),
        first: extent.entries,
        payload: Payload::Messages(entries),
    })));
    Ok(())
}

/// Returns the text of an event. `fields` is a JSON object; anything else is a defect.
fn event(kind: &str, fields: &str, index: u64, at: Timestamp) -> Result<Box<RawValue>, Error> {
    let inner = fields.strip_prefix('{').and_then(|fields| fields.strip_suffix('}'));
    let fields =
        inner.ok_or_else(|| Error::internal(format!("the fields of an event {kind} are not a JSON object")))?;
    let comma = if fields.is_empty() { "" } else { "," };
    let event =
        format!("{{\"v\":{VERSION},\"type\":\"{kind}\",{fields}{comma}\"eventIndex\":{index},\"timestamp\":\"{at}\"}}");
    RawValue::from_string(event).map_err(record::defect)
}

/// Returns a page of the system's stream. Fails with `not_found` at `/offset` if the offset is before the oldest event that is still
/// stored.
pub(crate) fn read(tables: &dyn Tables, args: &ReadStream) -> Result<StreamPage, Error> {
    let extent = tables.system_extent()?;
    let mut start = args.offset.before(extent.entries);
    if args.offset == Offset::Start {
        let tail = extent.entries.saturating_sub(args.tail.unwrap_or(u64::MAX));
        start = tail.max(extent.first);
    }
    if start < extent.first {
        let oldest = Offset::After(extent.first);
        return Err(Error::not_found(format!("nothing is kept from before {oldest}")).at("/offset"));
    }
    let mut page = PageBuilder::new(args, false);
    tables.system_events(start, &mut |event| page.take(event.as_bytes()))?;
    let next = start + page.count;
    Ok(StreamPage { start, next, end: extent.entries, entries: page.end()?.0, ..StreamPage::default() })
}

/// Deletes some of the events that are old enough. Returns true if there may be more.
pub(crate) fn prune(tables: &dyn Tables, now: Timestamp) -> Result<bool, Error> {
    let oldest = now.plus_millis(-SYSTEM_EVENTS_MS);
    Ok(tables.prune_system_events(oldest, SLICE)? == SLICE)
}
