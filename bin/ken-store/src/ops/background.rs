//! Work that can wait: indexing, merging the indexes, and deleting what has expired or is no longer used. That is idempotency keys, system events, streams and
//! the data of deleted ones, blobs, approvals, updates and messages.

use ken_types::Error;

use crate::engine::change::{Change, Left};
use crate::ops::{
    approvals, blobs, calls, indexes, keys, messenger, outbox, public, purges, reindex, retention, schedules, sessions,
    system, telemetry,
};
use crate::tables::Tables;

/// One kind of background work: what it does, as a person reads it, and the function that does one slice of it. Each slice is a change of its
/// own, so that a kind that fails does not stop the others.
pub(crate) type Kind = (&'static str, fn(&dyn Tables, &mut Change) -> Result<Left, Error>);

/// Deleting sessions for good. A kind follows only when the one before it has nothing to do: the rows of sessions that are handed over go
/// before others are, and the pass over the whole database comes last, so that there is one for all.
pub(crate) const DELETIONS: [Kind; 3] = [
    ("deleting the rows of sessions", purges::slice),
    ("looking for what is older than [retention] allows", retention::slice),
    ("overwriting what was deleted", |tables, _| purges::pass(tables)),
];

/// All other work.
pub(crate) const OTHERS: [Kind; 15] = [
    ("indexing", |tables, change| more(reindex::slice(tables, change))),
    ("merging the indexes", |tables, change| more(indexes::slice(tables, change))),
    ("correcting when sessions were last used", |tables, change| sessions::correct_last_use(tables, change.now)),
    ("removing idempotency keys", |tables, change| more(keys::prune(tables, change.now))),
    ("removing events of the system", |tables, change| more(system::prune(tables, change.now))),
    ("removing expired streams", |tables, change| more(public::sweep(tables, change))),
    ("removing the data of deleted streams", |tables, _| more(public::clean(tables))),
    ("removing images and results that nothing uses", |tables, change| more(blobs::prune(tables, change.now))),
    ("removing schedules", |tables, change| more(schedules::prune(tables, change.now))),
    ("removing updates of the messenger", |tables, change| more(messenger::prune(tables, change.now))),
    ("removing messages", |tables, change| more(outbox::prune(tables, change.now))),
    ("removing telemetry", |tables, change| more(telemetry::prune(tables, change.now))),
    ("removing approvals", |tables, change| more(approvals::prune(tables, change.now))),
    ("removing the answers of calls", |tables, change| calls::prune(tables, change.now).map(|()| Left::Nothing)),
    ("finding out what expires next", |tables, _| Ok(tables.next_expiry()?.map_or(Left::Nothing, Left::At))),
];

fn more(has_more: Result<bool, Error>) -> Result<Left, Error> {
    Ok(if has_more? { Left::More } else { Left::Nothing })
}
