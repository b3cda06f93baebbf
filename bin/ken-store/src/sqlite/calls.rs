//! Calls that are done once although they may come twice. A caller has at most one call open in each of its slots, so
//! the last answer of a slot is all that anyone can ask for again.

use ken_types::limits::KEY_MS;
use ken_types::ops::streams::CallMark;
use ken_types::{Error, Timestamp};
use rusqlite::{Connection, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::fault::Done;
use super::{first, run};

/// The answer of a call that was done before.
pub(super) fn known<T: DeserializeOwned>(
    connection: &Connection,
    call: Option<&CallMark>,
) -> Done<Option<T>> {
    let Some(call) = call else { return Ok(None) };
    let sql = "SELECT number, answer FROM calls WHERE slot = ?1";
    let last = first(connection, sql, [&call.slot], |row| {
        Ok((
            row.get::<_, i64>("number")?.cast_unsigned(),
            row.get::<_, String>("answer")?,
        ))
    })?;
    match last {
        Some((number, answer)) if number == call.number => Ok(Some(serde_json::from_str(&answer)?)),
        // Its caller has given it up and gone on.
        Some((number, _)) if number > call.number => {
            Err(Error::conflict(format!("a later call of the slot {} was done", call.slot)).into())
        }
        _ => Ok(None),
    }
}

/// Keeps the answer of a call that changed something.
pub(super) fn keep(
    connection: &Connection,
    call: Option<&CallMark>,
    answer: &impl Serialize,
    now: Timestamp,
) -> Done<()> {
    let Some(call) = call else { return Ok(()) };
    let sql = "INSERT INTO calls (slot, number, answer, at) VALUES (?1, ?2, ?3, ?4)
               ON CONFLICT DO UPDATE SET number = excluded.number, answer = excluded.answer, at = excluded.at";
    let answer = serde_json::to_string(answer)?;
    run(
        connection,
        sql,
        params![call.slot, call.number.cast_signed(), answer, now.millis()],
    )?;
    Ok(())
}

/// Forgets the slots of callers that have been silent for a day.
pub(super) fn prune(connection: &Connection, now: Timestamp) -> Done<()> {
    run(
        connection,
        "DELETE FROM calls WHERE at < ?1",
        [now.plus_millis(-KEY_MS).millis()],
    )?;
    Ok(())
}
