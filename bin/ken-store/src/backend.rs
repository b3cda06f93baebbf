//! What the store asks of a database, in its own terms. SQL and its dialects stay behind these traits.

use std::sync::Arc;

use ken_types::id::SubmissionId;
use ken_types::ops::Nothing;
use ken_types::ops::runs::*;
use ken_types::ops::store::*;
use ken_types::ops::streams::{AppendStream, Appending, CreateStream, Creation, DeleteStream, Payload};
use ken_types::{Error, Timestamp};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::ConnectionId;

/// A database that has been opened and migrated.
pub trait Backend: Send {
    /// The one writer.
    fn writer(&mut self) -> Result<Box<dyn Writes>, Error>;
    /// A reader; each sees the last commit whenever it begins to read.
    fn reader(&mut self) -> Result<Box<dyn Reads>, Error>;
}

/// One change as it is being made: its time, and what is to be told once it is durable.
#[derive(Debug, Default)]
pub struct Change {
    pub now: Timestamp,
    pub effects: Vec<Effect>,
}

/// What waiters and the lease table learn after the commit.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Entries were added to a stream, the first of them after `first` others.
    Appended(Arc<NewEntries>),
    /// A submission was settled, or began or ceased to wait for a decision.
    Stands(Arc<Standing>),
    /// There is work that may be claimed.
    Opened(Work),
    /// Something for the system's stream: its type and its fields. Written before the commit ([`Writes::record`]).
    Happened(&'static str, Value),
    /// The holder shall end this submission as aborted.
    AbortWanted(SubmissionId),
    /// The holder lives, on this connection.
    Renewed { lease: Lease, connection: ConnectionId },
    /// Nobody holds this lease any more.
    LeaseOver(Lease),
    /// There is background work ([`Writes::background`]).
    Background,
    /// There will be background work then.
    Expires(Timestamp),
    /// A stream was closed or deleted.
    Changed(String),
}

/// Entries as they were added to a stream.
#[derive(Debug)]
pub struct NewEntries {
    pub stream: String,
    pub first: u64,
    pub payload: Payload,
}

/// What background work is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    Nothing,
    More,
    /// Not before then.
    At(Timestamp),
}

/// A lease that a restarted store knows from its database; nobody has come for it yet.
#[derive(Debug, Clone)]
pub struct OldLease {
    pub lease: Lease,
    pub aborting: bool,
}

/// The changes. Between [`Writes::begin`] and [`Writes::commit`] each change stands between [`Writes::mark`] and
/// either [`Writes::keep`] or [`Writes::undo`]. Nothing is durable, and nothing may be told, before the commit.
pub trait Writes: Send {
    fn begin(&mut self) -> Result<(), Error>;
    fn mark(&mut self) -> Result<(), Error>;
    fn keep(&mut self) -> Result<(), Error>;
    fn undo(&mut self) -> Result<(), Error>;
    fn commit(&mut self) -> Result<(), Error>;
    /// Gives up the whole transaction; none may be open.
    fn rollback(&mut self);
    /// Whether the transaction still stands: some failures end it.
    fn is_open(&self) -> bool;
    /// Nothing has been written for a while: time to tidy up. False when it is to be called again later.
    fn rest(&mut self) -> bool;
    /// Writes something that changes nothing, in a transaction of its own, to see whether writing works.
    fn probe(&mut self) -> Result<(), Error>;

    fn create_session(&mut self, args: &CreateSession, change: &mut Change) -> Result<OpenSession, Error>;
    fn resume_session(&mut self, args: &ResumeSession, change: &mut Change) -> Result<OpenSession, Error>;
    fn cancel_session(&mut self, args: &CancelSession, change: &mut Change) -> Result<Cancelled, Error>;
    fn archive_session(&mut self, args: &OwnedSession, change: &mut Change) -> Result<(), Error>;

    fn accept(&mut self, args: &Accept, change: &mut Change) -> Result<Accepted, Error>;
    fn admit(&mut self, args: &Admit, change: &mut Change) -> Result<Admission, Error>;
    /// Hands out work, oldest first. The leases count from the commit on.
    fn claim(&mut self, work: Work, most: u32, change: &mut Change) -> Result<Vec<Claim>, Error>;
    /// Which of these leases are still the newest; those are held again if they had been let go.
    fn renew(
        &mut self,
        leases: &[Lease],
        connection: ConnectionId,
        change: &mut Change,
    ) -> Result<Vec<Lease>, Error>;
    /// Lets go of a lease: its submission may be claimed anew. An older lease is no error.
    fn release(&mut self, lease: &Lease, change: &mut Change) -> Result<(), Error>;
    /// How long the submission of a lease may still run; `None` when it is not held under this lease any more.
    fn time_left(&mut self, lease: &Lease, now: Timestamp) -> Result<Option<i64>, Error>;
    fn append(&mut self, args: &AppendEvents, change: &mut Change) -> Result<Appended, Error>;
    fn settle(&mut self, args: &SettleSubmission, change: &mut Change) -> Result<Appended, Error>;
    fn abort(&mut self, args: &OfInstance, change: &mut Change) -> Result<AbortedSubmissions, Error>;
    fn admit_run(&mut self, args: &AdmitRun, change: &mut Change) -> Result<(), Error>;
    fn end_run(&mut self, args: &EndRun, change: &mut Change) -> Result<RunRecord, Error>;
    fn abort_run(&mut self, args: &ByRun, change: &mut Change) -> Result<AbortedRun, Error>;
    /// Writes what has happened in the transaction to the system's stream.
    fn record(&mut self, change: &mut Change) -> Result<(), Error>;
    /// Leases that were held when the store ended last.
    fn old_leases(&mut self) -> Result<Vec<OldLease>, Error>;

    fn put_knowledge(&mut self, args: &PutKnowledge, change: &mut Change) -> Result<KnowledgeRecord, Error>;
    fn delete_knowledge(&mut self, args: &ById, change: &mut Change) -> Result<(), Error>;
    fn reindex(&mut self, args: &KeyedJob, change: &mut Change) -> Result<Job, Error>;

    fn begin_key(&mut self, args: &BeginKey, now: Timestamp) -> Result<KeyState, Error>;
    fn finish_key(&mut self, args: &FinishKey) -> Result<(), Error>;

    fn create_stream(&mut self, args: &CreateStream, change: &mut Change) -> Result<Creation, Error>;
    fn append_stream(&mut self, args: AppendStream, change: &mut Change) -> Result<Appending, Error>;
    fn delete_stream(&mut self, args: &DeleteStream, change: &mut Change) -> Result<Nothing, Error>;
    /// The time to live of a stream below `streams/` starts again.
    fn touch_stream(&mut self, id: u64, change: &mut Change) -> Result<(), Error>;

    /// One slice of what can wait: a piece of the index, keys and system events that are too old, streams whose
    /// time is over and what deleted ones have left.
    fn background(&mut self, change: &mut Change) -> Result<Left, Error>;
}

/// The reads. Each sees one state of the database.
pub trait Reads: Send {
    fn list_sessions(&mut self, args: &ListSessions) -> Result<SessionPage, Error>;
    fn transcript(&mut self, args: &ReadTranscript) -> Result<Box<RawValue>, Error>;
    fn standing(&mut self, id: &SubmissionId) -> Result<Standing, Error>;
    fn history(&mut self, args: &ReadHistory) -> Result<History, Error>;
    fn get_run(&mut self, args: &ByRun) -> Result<RunRecord, Error>;
    fn list_runs(&mut self, args: &ListRuns) -> Result<RunPage, Error>;
    fn read_stream(&mut self, args: &ReadStream, now: Timestamp) -> Result<StreamPage, Error>;
    fn get_knowledge(&mut self, args: &ById) -> Result<KnowledgeRecord, Error>;
    fn list_knowledge(&mut self, args: &ListKnowledge) -> Result<KnowledgePage, Error>;
    fn search_knowledge(&mut self, args: &Search) -> Result<Found<KnowledgeRecord>, Error>;
    fn knowledge_job(&mut self, args: &ById) -> Result<Job, Error>;
    fn search_memory(&mut self, args: &Search) -> Result<Found<PastExchange>, Error>;
    /// Sizes of the database, for `service.stats`.
    fn sizes(&mut self) -> Result<Map<String, Value>, Error>;
}
