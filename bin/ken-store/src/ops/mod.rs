//! The operations, one module for each noun. They check arguments, decide what to do, and read and change rows. An operation is a type in
//! `ken_types::ops` with an implementation of [`Read`] or [`Write`] here, and a line in `src/operations.rs`.

pub(crate) mod approvals;
pub(crate) mod background;
mod blobs;
mod budget;
mod calls;
pub(crate) mod documents;
mod doors;
mod entries;
mod events;
mod exchanges;
mod governing;
mod hosts;
mod ids;
mod indexes;
mod keys;
mod kinds;
mod knowledge;
pub(crate) mod leases;
mod logs;
pub(crate) mod memory;
mod messenger;
mod notes;
pub(crate) mod outbox;
mod probe;
pub(crate) mod public;
mod purges;
mod queue;
mod reindex;
mod requests;
pub(crate) mod retention;
mod runs;
mod schedule_runs;
pub(crate) mod schedules;
mod search;
mod sessions;
pub(crate) mod streams;
pub(crate) mod submissions;
pub(crate) mod system;
mod telemetry;
mod transcripts;
mod turns;

pub use purges::delete_from_copy;

use std::collections::BTreeSet;

use ken_types::Error;
use ken_types::ops::Op;

use crate::engine::change::Change;
use crate::tables::{Cell, Index, Tables};

/// Indexes in `to` what is indexed in `from`. The rows themselves were copied.
pub(crate) fn index_again(from: &dyn Tables, to: &dyn Tables) -> Result<(), Error> {
    for entry in from.indexed(Index::Knowledge)? {
        knowledge::index(to, entry)?;
    }
    let remembered: BTreeSet<i64> = from.indexed(Index::Memory)?.into_iter().collect();
    from.each_row("exchanges", &["answer", "submission"].map(String::from), "submission", &mut |row| {
        if let [Cell::Text(answer), Cell::Whole(submission)] = row.as_slice()
            && remembered.contains(submission)
        {
            let found = to.submission_by_key(*submission)?;
            if let Some(prompt) = to.event(found.event)? {
                memory::index(to, found.key, &to.log_by_key(found.stream)?, &prompt, answer)?;
            }
        }
        Ok(())
    })
}

/// An operation that only reads. It sees one consistent state of the tables.
pub trait Read: Op {
    /// Whether the operation is run before those that do not come first. A search does not.
    const COMES_FIRST: bool = true;
    /// Whether it is also answered while this host does not work.
    const ON_STANDBY: bool = false;

    /// Checks arguments without reading the tables.
    fn check(_args: &Self::Args) -> Result<(), Error> {
        Ok(())
    }

    fn run(tables: &dyn Tables, args: &Self::Args) -> Result<Self::Reply, Error>;
}

/// An operation that changes the tables. It can run a second time from the start if its transaction is repeated.
pub trait Write: Op {
    /// Whether the operation is run before those that do not come first. Accepting work does, so that a sender waits less while the work that
    /// was accepted before is done.
    const COMES_FIRST: bool = false;

    /// Checks arguments without reading the tables.
    fn check(_args: &Self::Args) -> Result<(), Error> {
        Ok(())
    }

    fn run(tables: &dyn Tables, args: &Self::Args, change: &mut Change) -> Result<Self::Reply, Error>;
}
