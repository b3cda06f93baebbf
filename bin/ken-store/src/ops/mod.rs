//! The operations, by noun: what each checks, decides and changes, over row verbs and rules. An operation is a type in
//! `ken_types::ops` and an implementation of [`Read`] or [`Write`] here, listed by its noun's `add`.

pub(crate) mod background;
mod blobs;
mod calls;
mod entries;
mod events;
mod keys;
mod kinds;
mod knowledge;
pub(crate) mod leases;
mod logs;
mod memory;
pub(crate) mod public;
mod queue;
mod reindex;
mod runs;
mod search;
mod sessions;
pub(crate) mod streams;
pub(crate) mod submissions;
pub(crate) mod system;
mod transcripts;
mod turns;

/// Without a connection, for benches.
pub use leases::claim;

use std::sync::Arc;

use ken_types::Error;
use ken_types::ops::Op;
use ken_wire::{Daemon, Table};

use crate::engine::change::Change;
use crate::store::Store;
use crate::tables::Tables;

/// An operation that reads, in one state of the tables.
pub trait Read: Op {
    /// What can be refused without a look at the tables.
    fn check(_args: &Self::Args) -> Result<(), Error> {
        Ok(())
    }

    fn run(tables: &dyn Tables, args: &Self::Args) -> Result<Self::Reply, Error>;
}

/// An operation that changes something. It may run again from the start when its transaction has to.
pub trait Write: Op {
    /// What can be refused without a look at the tables.
    fn check(_args: &Self::Args) -> Result<(), Error> {
        Ok(())
    }

    fn run(tables: &dyn Tables, args: &Self::Args, change: &mut Change) -> Result<Self::Reply, Error>;
}

/// The operations of a daemon that holds a store.
pub struct Operations<S>(Table<S>);

impl<S: Daemon + AsRef<Store>> Operations<S> {
    fn read<O: Read>(self) -> Operations<S>
    where
        O::Args: Sync,
    {
        Operations(
            self.0
                .op::<O, _, _>(|part: Arc<S>, _, args| async move { (*part).as_ref().read::<O>(args).await }),
        )
    }

    fn write<O: Write>(self) -> Operations<S>
    where
        O::Args: Sync,
    {
        Operations(
            self.0.op::<O, _, _>(
                |part: Arc<S>, _, args| async move { (*part).as_ref().write::<O>(args).await },
            ),
        )
    }
}

/// Adds every operation of every noun.
pub fn add_all<S: Daemon + AsRef<Store>>(table: Table<S>) -> Table<S> {
    let nouns = [
        sessions::add,
        events::add,
        submissions::add,
        runs::add,
        public::add,
        knowledge::add,
        keys::add,
        blobs::add,
    ];
    nouns
        .into_iter()
        .fold(Operations(table), |operations, add| add(operations))
        .0
}
