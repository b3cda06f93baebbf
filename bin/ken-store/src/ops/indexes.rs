//! Merging the full-text indexes. Each exchange adds a segment to an index, and a search looks into every segment. SQLite merges the small
//! ones as they are written, and leaves some twenty after a year; so once a day all become one, in slices.

use ken_types::{Error, Timestamp};
use serde::{Deserialize, Serialize};

use crate::engine::change::Change;
use crate::rules::record;
use crate::tables::{Merge, Tables};

/// The number of pages that one slice rewrites.
pub(super) const PAGES: i64 = 64;
/// The time between the beginnings of two rounds in milliseconds.
const ROUND_MS: i64 = 24 * 3_600_000;
/// The name under which the round is stored.
const ROUND: &str = "indexes.round";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Round {
    begun_at: Timestamp,
    is_over: bool,
}

/// Does one slice of a round. Returns whether there is more.
pub(super) fn slice(tables: &dyn Tables, change: &Change) -> Result<bool, Error> {
    let last: Option<Round> = tables.stored_value(ROUND)?.map(|round| record::read(&round)).transpose()?;
    let (begun_at, merge) = match last {
        Some(round) if !round.is_over => (round.begun_at, Merge::Continue),
        Some(round) if change.now < round.begun_at.plus_millis(ROUND_MS) => return Ok(false),
        _ => (change.now, Merge::Begin),
    };
    let has_more = tables.merge_indexes(PAGES, merge)?;
    let round = Round { begun_at, is_over: !has_more };
    if last != Some(round) {
        tables.set_stored_value(ROUND, &record::write(&round)?)?;
    }
    Ok(has_more)
}
