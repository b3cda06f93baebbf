//! Work that can wait: indexing, merging the indexes, and deleting what has expired or is no longer used. That is idempotency keys, system events, streams and
//! the data of deleted ones, blobs, approvals, updates and messages.

use ken_types::Error;

use crate::engine::change::{Change, Left};
use crate::ops::{
    approvals, blobs, calls, indexes, keys, messenger, outbox, public, purges, reindex, retention, schedules, system,
    telemetry,
};
use crate::tables::Tables;

/// Does one slice of deleting sessions for good. The rows of those that are handed over go before others are, and the pass over the whole
/// database comes last, so that there is one for all.
pub(crate) fn delete(tables: &dyn Tables, change: &mut Change) -> Result<Left, Error> {
    if let Some(left) = purges::slice(tables, change)? {
        return Ok(left);
    }
    if retention::slice(tables, change)? {
        return Ok(Left::More);
    }
    purges::pass(tables)
}

/// Does one slice of all other work. Returns whether there is more to do.
pub(crate) fn slice(tables: &dyn Tables, change: &mut Change) -> Result<Left, Error> {
    let slices = [
        reindex::slice(tables, change)?,
        indexes::slice(tables, change)?,
        keys::prune(tables, change.now)?,
        system::prune(tables, change.now)?,
        public::sweep(tables, change)?,
        public::clean(tables)?,
        blobs::prune(tables, change.now)?,
        schedules::prune(tables, change.now)?,
        messenger::prune(tables, change.now)?,
        outbox::prune(tables, change.now)?,
        telemetry::prune(tables, change.now)?,
        approvals::prune(tables, change.now)?,
    ];
    if slices.contains(&true) {
        return Ok(Left::More);
    }
    calls::prune(tables, change.now)?;
    Ok(tables.next_expiry()?.map_or(Left::Nothing, Left::At))
}
