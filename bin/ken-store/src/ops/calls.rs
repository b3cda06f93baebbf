//! Calls that take effect only once even if they are repeated. A caller has at most one open call in each of its slots, so only the last
//! answer of each slot has to be stored.

use ken_types::limits::KEY_MS;
use ken_types::ops::streams::CallMark;
use ken_types::{Error, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::rules::record;
use crate::tables::Tables;

/// Returns the stored answer if the call is a repeat; `None` if it is new. Fails with `conflict` if a later call of the slot has taken
/// effect.
pub(super) fn stored_answer<T: DeserializeOwned>(
    tables: &dyn Tables,
    call: Option<&CallMark>,
) -> Result<Option<T>, Error> {
    let Some(call) = call else { return Ok(None) };
    match tables.call(&call.slot)? {
        Some((number, answer)) if number == call.number => record::read(&answer).map(Some),
        // The caller no longer waits for this call and has made a later one.
        Some((number, _)) if number > call.number => {
            let message = format!("a later call of the slot {} was done", call.slot);
            Err(Error::conflict(message))
        }
        _ => Ok(None),
    }
}

/// Stores the answer of a call that changed something.
pub(super) fn keep(
    tables: &dyn Tables,
    call: Option<&CallMark>,
    answer: &impl Serialize,
    now: Timestamp,
) -> Result<(), Error> {
    match call {
        Some(call) => tables.put_call(&call.slot, call.number, &record::write(answer)?, now),
        None => Ok(()),
    }
}

/// Deletes the slots in which no call was made for a day.
pub(super) fn prune(tables: &dyn Tables, now: Timestamp) -> Result<(), Error> {
    tables.prune_calls(now.plus_millis(-KEY_MS))
}
