//! The operations, one module for each noun. They check arguments, decide what to do, and read and change rows. An operation is a type in
//! `ken_types::ops` with an implementation of [`Read`] or [`Write`] here. The function `add` of its module adds it to the table of
//! operations.

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
pub(crate) mod schedules;
mod search;
mod sessions;
pub(crate) mod streams;
pub(crate) mod submissions;
pub(crate) mod system;
mod telemetry;
mod transcripts;
mod turns;

/// Claims without a connection, for benchmarks.
pub use leases::claim;

use std::collections::BTreeSet;
use std::sync::Arc;

use ken_types::Error;
use ken_types::ops::Op;
use ken_types::ops::approvals::{Approval, GetApproval, ListApprovals, PendingApprovals};
use ken_types::ops::documents::{DocumentWork, FindWork};
use ken_types::ops::outbox::{DueList, DueMessages};
use ken_types::ops::store::{
    ClaimSubmissions, Claims, LostLeases, ReadStream, RenewLeases, StreamPage, SubmissionStatus, WaitSubmission,
};
use ken_wire::{Daemon, Table};

use crate::ConnectionId;
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

/// A daemon that can run the operations. These methods are operations that wait.
pub trait Host: Daemon {
    fn read<O: Read>(&self, args: O::Args) -> impl Future<Output = Result<O::Reply, Error>> + Send;
    fn write<O: Write>(&self, args: O::Args) -> impl Future<Output = Result<O::Reply, Error>> + Send;
    /// Claims work for the holder of a connection. Waits until there is some.
    fn claim(
        &self,
        connection: ConnectionId,
        args: ClaimSubmissions,
    ) -> impl Future<Output = Result<Claims, Error>> + Send;
    fn renew(
        &self,
        connection: ConnectionId,
        args: RenewLeases,
    ) -> impl Future<Output = Result<LostLeases, Error>> + Send;
    /// Waits until a submission is settled or cannot make progress.
    fn wait(&self, args: WaitSubmission) -> impl Future<Output = Result<SubmissionStatus, Error>> + Send;
    /// Returns a request for an approval. Waits while it is pending.
    fn approval(&self, args: GetApproval) -> impl Future<Output = Result<Approval, Error>> + Send;
    /// Returns the pending requests. Waits until there are some or, if the caller names the list that it knows, until the list is
    /// different.
    fn pending_approvals(&self, args: ListApprovals) -> impl Future<Output = Result<PendingApprovals, Error>> + Send;
    /// Returns messages that can be sent now. Waits until there is one.
    fn due(&self, args: DueMessages) -> impl Future<Output = Result<DueList, Error>> + Send;
    /// Returns documents to read and entries without vectors. Waits until there are some.
    fn document_work(&self, args: FindWork) -> impl Future<Output = Result<DocumentWork, Error>> + Send;
    /// Returns a page of a stream. If it is empty, waits for the first entry.
    fn read_stream(&self, args: ReadStream) -> impl Future<Output = Result<StreamPage, Error>> + Send;
}

/// The table of operations of a host, to which operations are added.
pub struct Operations<H>(Table<H>);

impl<H: Host> Operations<H> {
    fn read<O: Read>(self) -> Operations<H> {
        Operations(self.0.op::<O, _, _>(|host: Arc<H>, _, args| async move { host.read::<O>(args).await }))
    }

    fn write<O: Write>(self) -> Operations<H> {
        Operations(self.0.op::<O, _, _>(|host: Arc<H>, _, args| async move { host.write::<O>(args).await }))
    }
}

/// Adds the operations of all nouns.
pub fn add_all<H: Host>(table: Table<H>) -> Table<H> {
    let nouns = [
        sessions::add,
        purges::add,
        events::add,
        doors::add,
        submissions::add,
        runs::add,
        public::add,
        knowledge::add,
        documents::add,
        keys::add,
        probe::add,
        blobs::add,
        telemetry::add,
        ids::add,
        notes::add,
        governing::add,
        hosts::add,
        budget::add,
        approvals::add,
        requests::add,
        schedules::add,
        messenger::add,
        outbox::add,
    ];
    nouns.into_iter().fold(Operations(table), |operations, add| add(operations)).0
}
