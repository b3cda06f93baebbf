//! The tables of the store as functions on rows, one file for each noun. They take and return plain data and decide nothing. Most of them run
//! a single statement, which both databases understand; a backend has only what it says differently. No module above this one knows SQL.
//!
//! The backend assigns the keys of rows (`i64`). The ids in rows are those of the API.

mod approvals;
mod blobs;
mod budgets;
mod columns;
mod documents;
mod doors;
mod exchanges;
mod governing;
mod hosts;
mod ids;
mod keys;
mod knowledge;
mod logs;
mod messenger;
mod notes;
mod outbox;
pub mod postgres;
mod public;
mod purges;
mod schedules;
mod sessions;
mod sql;
pub mod sqlite;
mod submissions;
mod whole;

use ken_types::{Error, Timestamp};
use serde_json::value::RawValue;

use sql::Sql;

pub use approvals::*;
pub use blobs::*;
pub use budgets::*;
pub use documents::*;
pub use exchanges::*;
pub use hosts::*;
pub use keys::*;
pub use knowledge::*;
pub use logs::*;
pub use messenger::*;
pub use outbox::*;
pub use public::*;
pub use purges::*;
pub use schedules::*;
pub use sessions::*;
pub use submissions::*;
pub use whole::*;

/// A database that has been opened and migrated.
pub trait Backend: Send {
    /// Returns the writer. There is only one, so this can be called only once.
    fn writer(&mut self) -> Result<Box<dyn Writer>, Error>;
    /// Returns a new reader. Each read sees the last commit.
    fn reader(&mut self) -> Result<Box<dyn Reader>, Error>;
    /// Has `hear` called with what other hosts tell of their changes. Called before [`Backend::writer`]. Returns whether anything can be heard.
    fn listen(&mut self, _hear: Hear) -> Result<bool, Error> {
        Ok(false)
    }
}

/// Takes a notice, in little time.
pub type Hear = Box<dyn Fn(Notice) + Send + Sync>;

/// What another host tells of its transactions `first` to `batch`.
#[derive(Debug)]
pub struct Notice {
    pub host: String,
    pub first: i64,
    pub batch: i64,
    /// What has changed, as the engine marks it; `None` for everything.
    pub marks: Option<Vec<u64>>,
}

/// Who has changed the tables before a transaction, as far as the writer knows. What the engine remembers of the tables depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// This writer was the last to change them, or nobody has.
    AfterOwn,
    /// It is not known whether this writer's last transaction was committed.
    AfterUnknown,
    /// Other writers, or an earlier process, may have changed them.
    AfterOthers,
}

/// What a host sees of the others.
#[derive(Debug)]
pub struct Tended {
    pub has_duties: bool,
    /// Whether no host has the duties.
    pub are_duties_free: bool,
    /// The other hosts that work.
    pub others: Vec<OtherHost>,
}

/// The connection that writes. A transaction lasts from [`Writer::begin`] to [`Writer::commit`], and nothing is durable before that. Each
/// change in it begins with [`Writer::savepoint`] and ends with [`Writer::release`] or [`Writer::rollback_to_savepoint`].
pub trait Writer: Send {
    fn tables(&self) -> &dyn Tables;
    /// Returns whether the database is on a server. Then calls can wait for a network, so that only the thread of the writer may make them,
    /// and each transaction says whether others have written.
    fn is_remote(&self) -> bool {
        false
    }
    fn begin(&mut self) -> Result<Begun, Error>;
    fn savepoint(&mut self) -> Result<(), Error>;
    /// Fails if a statement of the change was only sent now and was refused.
    fn release(&mut self) -> Result<(), Error>;
    fn rollback_to_savepoint(&mut self) -> Result<(), Error>;
    /// If it fails, nothing was committed, unless the outcome in the error is unknown.
    fn commit(&mut self) -> Result<(), Error>;
    /// Rolls back the whole transaction, if one is open.
    fn rollback(&mut self);
    /// Returns whether the transaction is still open. The database may have ended it after a failure.
    fn is_open(&self) -> bool;
    /// Tidies up. Called when nothing has been written for a while. Returns false if it has to be called again later.
    fn run_idle(&mut self) -> Result<bool, Error>;
    /// Shows the other hosts that this one works, and looks at them. Called each second for a database on a server. `None` while this host
    /// does not work.
    fn tend(&mut self) -> Result<Option<Tended>, Error> {
        Ok(None)
    }
    /// Shows the other hosts that this one does not work any more.
    fn leave(&mut self) {}
    /// Shows that this host stops. What its agents hold stays theirs for the time of a lease, because the store may only start anew.
    fn pause(&mut self) {}
    /// Tells other hosts what the last transaction has changed.
    fn announce(&mut self, _marks: Vec<u64>) {}
    /// Writes without changing any data, in a transaction of its own, to find out whether writing works.
    fn probe(&mut self) -> Result<(), Error>;
}

/// A connection that only reads.
pub trait Reader: Send {
    /// Connects, if this needs a connection and has none.
    fn connect(&mut self) -> Result<(), Error> {
        Ok(())
    }
    /// Calls `work` once, on one consistent state of the database. With `on_standby`, also while this host does not work.
    fn read(&mut self, on_standby: bool, work: &mut dyn FnMut(&dyn Tables) -> Result<(), Error>) -> Result<(), Error>;
}

/// The tables. What needs a single statement, which both databases understand, is in the files of the nouns; here and in the traits it is made of
/// is what each database does in its own way.
pub trait Tables: Sql + Words + Purges + Whole + HostTable {
    /// Reads the newest `max` vectors of a model, newest first. Calls `see` with those whose entry has one of the scope words.
    fn vectors(
        &self,
        model: &str,
        scope_words: &[String],
        max: u32,
        see: &mut dyn FnMut(i64, &[u8]),
    ) -> Result<(), Error>;
    /// Adds entries to the stream of an instance or a run, the first of which has the number `first`. Does not change the number of entries in
    /// the row of the stream; see `set_log_entries`.
    fn insert_entries(&self, log: i64, first: u64, entries: &[Box<RawValue>]) -> Result<(), Error>;
    /// Adds an entry to a stream below `streams/`.
    fn insert_append(&self, stream: i64, number: u64, body: &[u8]) -> Result<(), Error>;
    /// Deletes at most `max` summaries that are older than a time or not among the newest `kept`. Returns how many were deleted.
    fn prune_summaries(&self, before: Timestamp, kept: usize, max: usize) -> Result<usize, Error>;
}
