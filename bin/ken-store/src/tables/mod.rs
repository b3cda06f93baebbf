//! The tables of the store as functions on rows, one trait for each noun. They take and return plain data and decide nothing. In a backend,
//! most of them run a single statement. No module above this one knows SQL.
//!
//! The backend assigns the keys of rows (`i64`). The ids in rows are those of the API.

mod columns;
pub mod postgres;
pub mod sqlite;

use ken_types::event::{Failure, Output, TurnResult};
use ken_types::fence::Outside;
use ken_types::id::{EventId, Origin, RunId, SessionId, SubmissionId};
use ken_types::ops::approvals::{
    Approval, CallWithApproval, Decision, ListAllApprovals, ListApprovals, Request, Status,
};
use ken_types::ops::documents::{Document, EntryUse};
use ken_types::ops::ids::{FoundId, IdKind};
use ken_types::ops::messenger::{AllowedUser, BusyChat, Group, Pairing, UpdateRecord};
use ken_types::ops::outbox::{MessageRecord, MessageState, PutMessage};
use ken_types::ops::rules::StoredRule;
use ken_types::ops::runs::{RunRecord, RunStatus};
use ken_types::ops::schedules::{
    Delivery, DueSchedule, Fire, Progress, Reason, RunState, ScheduleRun, ScheduleSummary, Settings, Trigger,
};
use ken_types::ops::store::*;
use ken_types::ops::streams::Producer;
use ken_types::ops::telemetry::{GroupBy, UsageGroup};
use ken_types::{Error, Timestamp};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// A database that has been opened and migrated.
pub trait Backend: Send {
    /// Returns the writer. There is only one, so this can be called only once.
    fn writer(&mut self) -> Result<Box<dyn Writer>, Error>;
    /// Returns a new reader. Each read sees the last commit.
    fn reader(&mut self) -> Result<Box<dyn Reader>, Error>;
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
    /// Writes without changing any data, in a transaction of its own, to find out whether writing works.
    fn probe(&mut self) -> Result<(), Error>;
}

/// A connection that only reads.
pub trait Reader: Send {
    /// Calls `work` once, on one consistent state of the database.
    fn read(&mut self, work: &mut dyn FnMut(&dyn Tables) -> Result<(), Error>) -> Result<(), Error>;
}

pub trait Tables:
    Scopes
    + Sessions
    + Events
    + Doors
    + Logs
    + Submissions
    + Exchanges
    + Runs
    + SystemEvents
    + Knowledge
    + DocumentTables
    + Words
    + Keys
    + PublicStreams
    + Appends
    + Blobs
    + Notes
    + GoverningRules
    + Approvals
    + Schedules
    + Counters
    + Messenger
    + Outbox
    + Telemetry
    + Ids
    + Budgets
    + Purges
    + Whole
{
    /// Returns the sizes of the database, for `service.stats`.
    fn sizes(&self) -> Result<Map<String, Value>, Error>;
}

/// The value of a column, when whole tables are copied.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Null,
    Whole(i64),
    Real(f64),
    Text(String),
    Bytes(Vec<u8>),
}

/// The database as a whole, to be copied into one of another kind. The names of tables and columns are those of the schema.
pub trait Whole {
    /// Returns the names of the columns of a table, in alphabetical order.
    fn columns(&self, table: &str) -> Result<Vec<String>, Error>;
    /// Calls `see` with each row of a table, in the order of these columns.
    fn each_row(
        &self,
        table: &str,
        columns: &[String],
        order: &str,
        see: &mut dyn FnMut(Vec<Cell>) -> Result<(), Error>,
    ) -> Result<(), Error>;
    /// Inserts rows. Their number is limited by the caller.
    fn insert_rows(&self, table: &str, columns: &[String], rows: &[Vec<Cell>]) -> Result<(), Error>;
    /// Deletes all rows of a table.
    fn clear(&self, table: &str) -> Result<(), Error>;
    /// Returns the keys of the rows of an index of words.
    fn indexed(&self, index: Index) -> Result<Vec<i64>, Error>;
    /// Makes the keys of later rows follow those that were inserted with their keys.
    fn continue_keys(&self) -> Result<(), Error>;
}

/// The stored scopes. Each has a key.
pub trait Scopes {
    fn scope_key(&self, scope: &Scope) -> Result<Option<i64>, Error>;
    fn insert_scope(&self, scope: &Scope) -> Result<i64, Error>;
    fn scope(&self, key: i64) -> Result<Option<Scope>, Error>;
    /// Returns those conversations of an actor in which nobody else has written. Only the current conversation and the actor's newest
    /// `max` are examined.
    fn private_conversations(
        &self,
        connector: &str,
        actor: &str,
        current: &str,
        max: usize,
    ) -> Result<Vec<String>, Error>;
}

/// A session. Its key is that of its stream.
#[derive(Debug, Clone)]
pub struct SessionRow {
    pub stream: i64,
    pub id: SessionId,
    pub scope: i64,
    pub origin: Origin,
    /// The automatic title, which is derived from the first visible prompt.
    pub title: Option<String>,
    /// The name that a user has given to the session.
    pub name: Option<String>,
    pub archived: bool,
    /// The trusted folder in which it works.
    pub workspace: Option<String>,
    /// What it remembers, if that was set for it.
    pub memory: Option<Memory>,
    /// The only model that answers.
    pub model: Option<String>,
}

/// The settings of a session that its turns need.
#[derive(Debug, Clone, Default)]
pub struct SessionSettings {
    pub workspace: Option<String>,
    pub model: Option<String>,
}

/// Selects a page of sessions, newest first, that begins after the position `after`.
#[derive(Debug, Clone, Copy)]
pub struct SessionList {
    pub scope: Option<i64>,
    pub archived: bool,
    /// Whether sessions without a title are included.
    pub empty: bool,
    /// Whether those of the runs of schedules are included.
    pub scheduled: bool,
    pub after: (i64, i64),
}

pub trait Sessions {
    /// Fails with `gone` if the session was deleted for good.
    fn session(&self, id: &str) -> Result<Option<SessionRow>, Error>;
    /// Returns what the turns of a session need. A stream without a session has no settings.
    fn session_settings(&self, stream: i64) -> Result<SessionSettings, Error>;
    /// Returns the sessions of this name that are not archived, the most recently used one first.
    fn sessions_named(&self, scope: Option<i64>, name: &str, max: usize) -> Result<Vec<SessionRow>, Error>;
    /// Returns the most recently used session of a scope that is not archived.
    fn newest_session(&self, scope: i64) -> Result<Option<SessionRow>, Error>;
    /// Returns the session of a stream as lists show it.
    fn session_record(&self, stream: i64) -> Result<Session, Error>;
    fn insert_session(&self, session: &SessionRow, now: Timestamp) -> Result<(), Error>;
    /// Sets `updated_at` to a later time, and takes the session out of the archive.
    fn touch_session(&self, stream: i64, now: Timestamp) -> Result<(), Error>;
    fn set_session_title(&self, stream: i64, title: &str) -> Result<(), Error>;
    fn set_session_name(&self, stream: i64, name: &str) -> Result<(), Error>;
    fn set_session_memory(&self, stream: i64, memory: Memory) -> Result<(), Error>;
    fn set_session_model(&self, stream: i64, model: Option<&str>) -> Result<(), Error>;
    /// Returns the ids of at most `max` sessions, archived or not, that were last used before a time.
    fn sessions_before(&self, before: Timestamp, max: usize) -> Result<Vec<SessionId>, Error>;
    /// Archives a session. Returns false if it was archived already.
    fn archive_session(&self, stream: i64, now: Timestamp) -> Result<bool, Error>;
    /// Calls `see` with the stream key and the record of each session, until it returns false.
    fn list_sessions(&self, list: &SessionList, see: &mut dyn FnMut(i64, Session) -> bool) -> Result<(), Error>;
    /// Like `list_sessions`, for the sessions to which these exchanges belong, those without a title too. `see` also gets the newest exchange
    /// of each.
    fn sessions_of_exchanges(
        &self,
        exchanges: &[i64],
        list: &SessionList,
        see: &mut dyn FnMut(i64, i64, Session) -> bool,
    ) -> Result<(), Error>;
}

/// A session that is being deleted for good and whose rows are still there.
#[derive(Debug, Clone)]
pub struct PurgeRow {
    pub stream: i64,
    /// The name of the stream.
    pub name: String,
    pub purged_at: Timestamp,
}

/// A submission of a session that is being deleted.
#[derive(Debug, Clone, Copy)]
pub struct PurgedSubmission {
    pub key: i64,
    pub event: i64,
    pub is_settled: bool,
}

/// The deletion of sessions for good, in slices.
pub trait Purges {
    /// Deletes the row of the session, marks its stream as purged, and notes that everything else is to be deleted.
    fn begin_purge(&self, stream: i64, now: Timestamp) -> Result<(), Error>;
    /// Returns the oldest session whose rows are still there.
    fn next_purge(&self) -> Result<Option<PurgeRow>, Error>;
    /// Notes that the rows of a session are deleted.
    fn end_purge(&self, stream: i64) -> Result<(), Error>;
    /// Removes the copies of damaged logs, which may contain what was deleted.
    fn remove_damaged_logs(&self);
    fn submissions_to_purge(&self, stream: i64, max: usize) -> Result<Vec<PurgedSubmission>, Error>;
    /// Deletes a settled submission with its event, everything that belongs to it, and the blobs that nothing else uses.
    fn purge_submission(&self, submission: PurgedSubmission) -> Result<(), Error>;
    /// Deletes at most `max` entries of a stream. Returns how many were deleted.
    fn purge_entries(&self, stream: i64, max: usize) -> Result<usize, Error>;
    /// Returns the keys of knowledge entries that agents wrote in this session.
    fn knowledge_to_purge(&self, stream: i64, max: usize) -> Result<Vec<i64>, Error>;
    /// Deletes the notes, the history and the usage of an instance.
    fn purge_instance(&self, stream: i64, instance: &str) -> Result<(), Error>;
    /// Examines at most `max` events after a key, and deletes those without a submission, such as commands, whose answer names a session
    /// that was deleted for good. Returns the last key, or `None` at the end.
    fn purge_events(&self, after: i64, max: usize) -> Result<Option<i64>, Error>;
    /// Examines at most `max` idempotency keys after one. Removes the answers that name a session that was deleted for good, and marks
    /// these keys: see [`Keys::key`]. Returns the last key, or `None` at the end.
    fn purge_keys(&self, after: i64, max: usize) -> Result<Option<i64>, Error>;
    /// Returns whether an answer names a session that was deleted for good after a time.
    fn names_purged(&self, answer: &str, after: Timestamp) -> Result<bool, Error>;
    /// Rewrites at most about `pages` pages of the full-text indexes without the rows that were deleted. Returns whether there may be more.
    fn merge_indexes(&self, pages: i64) -> Result<bool, Error>;
    /// Overwrites the unused parts of at most `max` pages after a page. Returns the number of the last page, or `None` at the end.
    fn scrub_pages(&self, after: i64, max: usize) -> Result<Option<i64>, Error>;
}

/// An incoming event.
#[derive(Debug, Clone, Copy)]
pub struct NewEvent<'a> {
    pub id: &'a str,
    pub scope: Option<i64>,
    pub kind: &'a str,
    pub text: &'a str,
    pub received_at: Timestamp,
    pub context: Option<&'a Value>,
    pub raw: Option<&'a str>,
    pub images: &'a [Image],
    /// The answer to the event, as JSON.
    pub answer: &'a str,
}

/// The prompt of an event.
#[derive(Debug, Clone)]
pub struct PromptRow {
    pub id: EventId,
    pub text: String,
    pub received_at: Timestamp,
    pub context: Option<Value>,
    pub scope: Option<Scope>,
}

pub trait Events {
    fn event_answer(&self, id: &str) -> Result<Option<String>, Error>;
    fn insert_event(&self, event: &NewEvent<'_>) -> Result<i64, Error>;
    fn event(&self, key: i64) -> Result<Option<PromptRow>, Error>;
}

/// What is stored of callers who send the whole conversation with each message.
pub trait Doors {
    /// Returns the newest event whose id is this text, a colon and a number, and whether its answer was sent to its end.
    fn newest_equal(&self, first_part: &str) -> Result<Option<(String, bool)>, Error>;
    fn set_delivered(&self, id: &str) -> Result<(), Error>;
    /// Notes that a notice was sent in place of the answer to an event.
    fn set_event_noticed(&self, event: i64) -> Result<(), Error>;
    /// Notes that the answer to an event is sent now, if a notice was sent before. Returns whether one was.
    fn take_event_noticed(&self, event: i64) -> Result<bool, Error>;
    /// Notes that nobody may read the answer to an event any more.
    fn set_event_deleted(&self, event: i64) -> Result<(), Error>;
    fn is_event_deleted(&self, event: i64) -> Result<bool, Error>;
    /// Returns whether a stream has a prompt of which the answer is not deleted. Those that a session began with do not count.
    fn has_other_prompts(&self, stream: i64) -> Result<bool, Error>;
    /// Returns the most recently used session of a scope that ends with the messages of this digest.
    fn session_with_tip(&self, scope: i64, digest: &str) -> Result<Option<SessionRow>, Error>;
    fn add_tip(&self, stream: i64, digest: &str) -> Result<(), Error>;
    fn forget_tips(&self, stream: i64) -> Result<(), Error>;
}

/// A stream of an instance or a run.
#[derive(Debug, Clone)]
pub struct LogRow {
    pub key: i64,
    pub name: String,
    pub entries: u64,
    pub closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogKind {
    Agent,
    Run,
}

/// The streams of instances and runs. Their entries are JSON, numbered from 0.
pub trait Logs {
    /// Fails with `gone` if the stream is that of a session that was deleted for good.
    fn log(&self, name: &str) -> Result<Option<LogRow>, Error>;
    fn log_by_key(&self, key: i64) -> Result<LogRow, Error>;
    fn insert_log(&self, name: &str, kind: LogKind, now: Timestamp) -> Result<LogRow, Error>;
    fn close_log(&self, key: i64) -> Result<(), Error>;
    /// Adds entries, the first of which has the number `first`. Does not change the number of entries in the row of the stream; see
    /// [`Logs::set_log_entries`].
    fn insert_entries(&self, log: i64, first: u64, entries: &[Box<RawValue>]) -> Result<(), Error>;
    fn set_log_entries(&self, log: i64, entries: u64) -> Result<(), Error>;
    /// Calls `see` with each entry from `from` (inclusive) to `to` (exclusive), until it returns false.
    fn entries(&self, log: i64, from: u64, to: u64, see: &mut dyn FnMut(&str) -> bool) -> Result<(), Error>;
}

#[derive(Debug, Clone)]
pub struct SubmissionRow {
    pub key: i64,
    pub id: SubmissionId,
    pub stream: i64,
    pub event: i64,
    pub kind: SubmissionKind,
    /// An internal prompt, which transcripts and titles leave out.
    pub hidden: bool,
    pub state: State,
    /// Whether the submission can be claimed.
    pub open: bool,
    /// The number of entries in the stream before the first entry of this submission.
    pub recorded_from: u64,
    pub next_index: u64,
    pub lease: u64,
    pub attempt: u32,
    /// The number of claims that were only made to end the submission.
    pub closings: u32,
    pub abort: bool,
    /// The ids of the approvals that the submission waits for.
    pub approvals: Vec<String>,
    pub first_claim_at: Option<i64>,
    pub waiting_since: Option<i64>,
    pub waited_ms: i64,
    /// The origins of outside text that the submission has read.
    pub outside: Outside,
}

#[derive(Debug, Clone)]
pub struct NewSubmission<'a> {
    pub id: &'a SubmissionId,
    pub stream: i64,
    pub event: i64,
    pub kind: SubmissionKind,
    pub hidden: bool,
    pub open: bool,
    /// The position among the queued submissions of the stream.
    pub place: i64,
    pub recorded_from: u64,
    pub next_index: u64,
    /// The origins of outside text in the prompt itself.
    pub outside: &'a Outside,
}

/// A submission with everything that its holder needs.
#[derive(Debug)]
pub struct OpenRow {
    pub submission: SubmissionRow,
    pub text: String,
    pub images: Vec<Image>,
    pub context: Option<Value>,
    pub scope: Option<Scope>,
    /// The kind of the event.
    pub message_kind: String,
    pub received_at: Timestamp,
}

/// The unsettled submissions of a stream in one state.
#[derive(Debug, Clone, Copy)]
pub struct QueueRow {
    pub state: State,
    pub count: u64,
    pub first_place: i64,
    pub last_place: i64,
}

/// A lease read from the tables after a restart of the store.
#[derive(Debug, Clone)]
pub struct OldLease {
    pub lease: Lease,
    pub aborting: bool,
}

pub trait Submissions {
    fn submission(&self, id: &str) -> Result<Option<SubmissionRow>, Error>;
    fn submission_by_key(&self, key: i64) -> Result<SubmissionRow, Error>;
    fn insert_submission(&self, submission: &NewSubmission<'_>) -> Result<i64, Error>;
    /// Returns the unsettled submissions of a stream, counted by state.
    fn queue(&self, stream: i64) -> Result<Vec<QueueRow>, Error>;
    fn queued(&self, stream: i64) -> Result<Vec<SubmissionRow>, Error>;
    /// Returns the key of the first submission in the queue.
    fn next_queued(&self, stream: i64) -> Result<Option<i64>, Error>;
    /// Returns the submission of the stream that runs or waits for a decision.
    fn running(&self, stream: i64) -> Result<Option<SubmissionRow>, Error>;
    /// Makes all queued submissions of the stream unavailable for claims.
    fn close_queued(&self, stream: i64) -> Result<(), Error>;
    fn set_open(&self, key: i64, open: bool) -> Result<(), Error>;
    fn set_abort(&self, key: i64) -> Result<(), Error>;
    fn set_next_index(&self, key: i64, next: u64) -> Result<(), Error>;
    fn set_outside(&self, key: i64, outside: &Outside) -> Result<(), Error>;
    /// Returns the origins of outside text that any submission of the stream has read.
    fn outside_of_stream(&self, stream: i64) -> Result<Outside, Error>;
    /// Stores the approvals, the state and the time spent waiting.
    fn set_waiting(&self, submission: &SubmissionRow) -> Result<(), Error>;
    /// Records a new lease: increments the lease number and the attempt, and stores the time of the first claim.
    fn take_submission(&self, submission: &SubmissionRow, closing: bool, now: Timestamp) -> Result<(), Error>;
    fn settle_submission(&self, key: i64, state: State) -> Result<(), Error>;
    /// Returns a submission with its event, in any state.
    fn work(&self, id: &str) -> Result<Option<OpenRow>, Error>;
    /// Returns at most `max` submissions that can be claimed, oldest first.
    fn open_submissions(&self, work: Work, max: usize) -> Result<Vec<OpenRow>, Error>;
    /// Returns the number of entries in the stream before the first claimed prompt that is not settled.
    fn first_in_flight(&self, stream: i64) -> Result<Option<u64>, Error>;
    fn old_leases(&self) -> Result<Vec<OldLease>, Error>;
    /// Returns the number of queued runs.
    fn waiting_runs(&self) -> Result<u64, Error>;
    fn held_runs(&self) -> Result<u64, Error>;
    /// Returns the state and the outcome of a submission with a single query.
    fn submission_status(&self, id: &SubmissionId) -> Result<Option<SubmissionStatus>, Error>;
}

/// What is stored when a submission ends.
#[derive(Debug, Clone, Copy)]
pub struct NewExchange<'a> {
    pub submission: i64,
    pub stream: i64,
    /// The number of the turn among the prompts of the instance.
    pub turn: Option<i64>,
    /// The exchange as transcripts show it, as JSON.
    pub body: Option<&'a str>,
    pub answer: &'a str,
    pub result: Option<&'a TurnResult>,
    pub error: Option<&'a Failure>,
    pub context_usage: Option<&'a Value>,
    /// The number of entries in the stream up to and including the last entry of the submission.
    pub ended_at: u64,
    pub settled_at: Timestamp,
}

/// A submission with the data that its summary needs in addition to its events.
#[derive(Debug)]
pub struct SummaryRow {
    pub submission: SubmissionRow,
    /// The name of the stream. `entries` is the number of its entries.
    pub stream: String,
    pub entries: u64,
    pub connector: Option<String>,
    /// The summary that was stored when the submission ended, as JSON.
    pub body: Option<String>,
    pub settled_at: Option<Timestamp>,
}

/// Things by their ids. `see` is called with each, until it returns false.
pub trait Ids {
    /// Returns the thing with this id.
    fn with_id(&self, kind: IdKind, id: &str) -> Result<Option<FoundId>, Error>;
    /// Those whose ids contain a word, and sessions of this name, newest first.
    fn containing(&self, kind: IdKind, word: &str, see: &mut dyn FnMut(FoundId) -> bool) -> Result<(), Error>;
    /// All that people know of, newest first.
    fn newest(&self, kind: IdKind, see: &mut dyn FnMut(FoundId) -> bool) -> Result<(), Error>;
}

pub trait Telemetry {
    fn insert_summary(&self, submission: i64, body: &str, now: Timestamp) -> Result<(), Error>;
    fn summary(&self, id: &str) -> Result<Option<SummaryRow>, Error>;
    /// Returns at most `limit` summaries, newest first, of submissions before a key.
    fn summaries(&self, before: i64, limit: u32) -> Result<Vec<SummaryRow>, Error>;
    /// Returns the submissions that ended after the time `after` and not after `until`, in the order of their end. At most `limit` are
    /// returned, together with the number of all of them.
    fn ended(&self, after: Timestamp, until: Timestamp, limit: u32) -> Result<(Vec<SummaryRow>, u64), Error>;
    /// Returns at most `max` submissions that have failed after a time, the one that ended last first.
    fn failed_after(&self, after: Timestamp, max: u32) -> Result<Vec<SummaryRow>, Error>;
    /// Returns what the submissions with summaries have used, of all of them or those of one session. The keys of sessions are
    /// those of their streams; that of work without a session is `-`.
    fn usage(&self, by: GroupBy, session: Option<i64>) -> Result<Vec<UsageGroup>, Error>;
    /// Deletes at most `max` summaries that are older than a time or not among the newest `kept`. Returns how many were deleted.
    fn prune_summaries(&self, before: Timestamp, kept: usize, max: usize) -> Result<usize, Error>;
}

/// The history counters and the summary of an instance.
#[derive(Debug, Clone)]
pub struct InstanceRow {
    pub turns: u64,
    pub compactions: u64,
    pub summary: Option<String>,
    /// The number of the last turn that the summary covers.
    pub summary_after: i64,
}

pub trait Exchanges {
    fn insert_exchange(&self, exchange: &NewExchange<'_>) -> Result<(), Error>;
    fn exchange_end(&self, submission: i64) -> Result<Option<u64>, Error>;
    /// Returns the number of a turn; `None` if the stream has no settled prompt with this id.
    fn exchange_turn(&self, stream: i64, id: &SubmissionId) -> Result<Option<i64>, Error>;
    /// Returns the prompts of a stream before a key, newest first. Settled ones have a body.
    fn exchanges(&self, stream: i64, before: i64, limit: u32) -> Result<Vec<(i64, Option<String>)>, Error>;
    /// Returns the key of the newest prompt of a stream, in any state.
    fn newest_prompt(&self, stream: i64) -> Result<Option<i64>, Error>;
    /// Returns the context usage that the newest turn has reported, as JSON. Turns that reported none are skipped.
    fn context_usage(&self, stream: i64) -> Result<Option<String>, Error>;
    /// Returns an exchange, unless its session is archived or is being deleted.
    fn past_exchange(&self, submission: i64) -> Result<Option<PastExchange>, Error>;
    fn exchange(&self, submission: i64) -> Result<PastExchange, Error>;
    /// Returns the turns between two numbers, both exclusive, newest first.
    fn past_exchanges(&self, stream: i64, after: i64, before: i64, limit: u32) -> Result<Vec<PastExchange>, Error>;
    /// Copies the newest settled prompts of a stream before the submission `before` to another stream, with their exchanges, at most so
    /// many and so many bytes of text; and the summary if it covers nothing later. The function makes the ids of the copies.
    fn copy_exchanges(
        &self,
        from: i64,
        to: i64,
        before: i64,
        max: (u32, u64),
        ids: &mut dyn FnMut() -> (String, SubmissionId),
    ) -> Result<(), Error>;
    fn instance(&self, stream: i64) -> Result<Option<InstanceRow>, Error>;
    /// Increments the number of turns, and returns the new number.
    fn count_turn(&self, stream: i64) -> Result<i64, Error>;
    fn count_compaction(&self, stream: i64) -> Result<(), Error>;
    /// Stores a summary that covers all turns so far.
    fn set_summary(&self, stream: i64, summary: &str) -> Result<(), Error>;
}

/// The part of the record of a run that is known when the run is accepted.
#[derive(Debug, Clone)]
pub struct RunRow {
    pub workflow: String,
    /// The payload as JSON.
    pub payload: String,
    pub started_at: Timestamp,
}

/// Selects a page of runs, newest first, before a key.
#[derive(Debug, Clone, Copy)]
pub struct RunList<'a> {
    pub status: Option<RunStatus>,
    pub workflow: Option<&'a str>,
    pub before: i64,
    pub limit: u32,
}

pub trait Runs {
    fn insert_run(&self, submission: i64, workflow: &str, now: Timestamp) -> Result<(), Error>;
    fn run(&self, submission: i64) -> Result<RunRow, Error>;
    fn run_record(&self, id: &RunId) -> Result<Option<RunRecord>, Error>;
    /// Returns the runs with their keys. Payload, result and error are left out.
    fn list_runs(&self, list: &RunList<'_>) -> Result<Vec<(i64, RunRecord)>, Error>;
    fn end_run(
        &self,
        submission: i64,
        status: RunStatus,
        now: Timestamp,
        result: Option<&Value>,
        error: Option<&Failure>,
    ) -> Result<(), Error>;
}

/// The range of entries in the system's stream.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemExtent {
    /// The number of the first entry that is still stored.
    pub first: u64,
    /// The number of entries that have ever been written.
    pub entries: u64,
    pub newest: Timestamp,
}

pub trait SystemEvents {
    fn system_extent(&self) -> Result<SystemExtent, Error>;
    /// Stores an event under a number, counted from 0.
    fn insert_system_event(&self, number: u64, at: Timestamp, event: &RawValue) -> Result<(), Error>;
    /// Calls `see` with each event from number `from`, until it returns false.
    fn system_events(&self, from: u64, see: &mut dyn FnMut(&str) -> bool) -> Result<(), Error>;
    /// Deletes at most `max` events that are older than a time, but never the newest event. Returns how many were deleted.
    fn prune_system_events(&self, before: Timestamp, max: usize) -> Result<usize, Error>;
}

/// Selects a page of knowledge entries, newest first, before a key.
#[derive(Debug, Clone, Copy)]
pub struct KnowledgeFilter<'a> {
    pub actor: Option<&'a str>,
    pub conversation: Option<&'a str>,
    /// The source of the entries. `None` means all sources except the documents of the installation and of the workspace.
    pub source: Option<&'a str>,
    pub before: i64,
    pub limit: u32,
}

/// A running indexing job.
#[derive(Debug, Clone)]
pub struct JobRow {
    pub key: i64,
    pub id: String,
    /// The key of the last entry that has been indexed. The job ends at the key `until`.
    pub reached: i64,
    pub until: i64,
    /// The collection whose documents are being read. `place` is the path of the last document that has been read.
    pub collection: Option<String>,
    pub place: String,
}

/// The place of an entry in a document: the key of the document and the line.
#[derive(Debug, Clone, Copy)]
pub struct DocumentPlace {
    pub document: i64,
    pub line: u64,
}

/// A document: its key and the digest of its file.
#[derive(Debug, Clone)]
pub struct DocumentRow {
    pub key: i64,
    pub digest: String,
}

/// The texts of an entry that are indexed, and the actor and conversation to which it is restricted.
#[derive(Debug, Clone)]
pub struct KnowledgeTexts {
    pub title: String,
    pub tags: String,
    pub content: String,
    pub actor: Option<String>,
    pub conversation: Option<String>,
}

pub trait Knowledge {
    /// Inserts an entry. If there is one with this id, updates its tags and its time. Returns the key of the entry. `stream` is that of the
    /// session in which an agent writes it.
    fn put_knowledge(
        &self,
        id: &str,
        entry: &PutKnowledge,
        outside: &Outside,
        place: Option<DocumentPlace>,
        stream: Option<i64>,
        now: Timestamp,
    ) -> Result<i64, Error>;
    fn knowledge(&self, id: &str) -> Result<Option<KnowledgeRecord>, Error>;
    fn knowledge_by_key(&self, key: i64) -> Result<Option<KnowledgeRecord>, Error>;
    /// Deletes an entry and returns its key.
    fn delete_knowledge(&self, id: &str) -> Result<Option<i64>, Error>;
    fn delete_knowledge_by_key(&self, key: i64) -> Result<(), Error>;
    /// Sets the tags of an entry. Returns whether they were different before.
    fn set_tags(&self, key: i64, tags: &[String], now: Timestamp) -> Result<bool, Error>;
    fn list_knowledge(&self, list: &KnowledgeFilter<'_>) -> Result<Vec<(i64, KnowledgeRecord)>, Error>;
    fn knowledge_texts(&self, key: i64) -> Result<Option<KnowledgeTexts>, Error>;
    /// Returns the keys of entries after `after`, up to and including `until`, and the length of the content of each in characters.
    fn knowledge_sizes(&self, after: i64, until: i64, max: usize) -> Result<Vec<(i64, u64)>, Error>;
    fn job(&self, id: &str) -> Result<Option<Job>, Error>;
    fn running_job(&self) -> Result<Option<JobRow>, Error>;
    /// Inserts a job that covers all entries that exist now.
    fn insert_job(&self, id: &str, now: Timestamp) -> Result<(), Error>;
    fn advance_job(&self, key: i64, reached: i64, done: usize) -> Result<(), Error>;
    /// Ends the job. It has failed if it has an error.
    fn finish_job(&self, key: i64, now: Timestamp) -> Result<(), Error>;
}

/// Documents, the vectors of entries, and the turns that used an entry.
pub trait DocumentTables {
    fn documents(&self, collection: &str, after: &str, max: usize) -> Result<Vec<Document>, Error>;
    fn document(&self, collection: &str, path: &str) -> Result<Option<DocumentRow>, Error>;
    /// Inserts a document. If there is one with this path, sets its digest. Returns its key.
    fn put_document(&self, collection: &str, path: &str, digest: &str) -> Result<i64, Error>;
    fn delete_document(&self, key: i64) -> Result<(), Error>;
    /// Returns the keys and ids of the entries of a document.
    fn entries_of(&self, document: i64) -> Result<Vec<(i64, String)>, Error>;
    fn move_entry(&self, key: i64, line: u64) -> Result<(), Error>;
    /// Moves a job to the beginning of a collection; `None` means that all documents have been read.
    fn set_job_collection(&self, key: i64, collection: Option<&str>) -> Result<(), Error>;
    /// Moves a job within its collection. `done` is the number of further documents that have been read, and `left` is the number that
    /// remain.
    fn advance_reading(&self, key: i64, place: &str, done: u64, left: u64) -> Result<(), Error>;
    fn fail_job(&self, key: i64, error: &str) -> Result<(), Error>;
    /// Makes the job also cover all entries that have been added since it began.
    fn extend_job(&self, key: i64) -> Result<(), Error>;
    /// Returns entries without a vector of this model, oldest first: their key, their title and the beginning of their content.
    fn unembedded(&self, model: &str, max: usize) -> Result<Vec<(i64, String, String)>, Error>;
    fn put_vector(&self, entry: i64, model: &str, scope_word: &str, vector: &[u8]) -> Result<(), Error>;
    fn delete_vector(&self, entry: i64) -> Result<(), Error>;
    /// Reads the newest `max` vectors of a model, newest first. Calls `see` with those whose entry has one of the scope words.
    fn vectors(
        &self,
        model: &str,
        scope_words: &[String],
        max: u32,
        see: &mut dyn FnMut(i64, &[u8]),
    ) -> Result<(), Error>;
    fn add_vector_usage(&self, day: &str, model: &str, tokens: u64, cost: f64) -> Result<(), Error>;
    /// Returns the usage of vectors: day, model, tokens and cost in US dollars.
    fn vector_usage(&self) -> Result<Vec<(String, String, u64, f64)>, Error>;
    fn insert_use(&self, entry: &str, submission: i64, how: &str) -> Result<(), Error>;
    fn uses(&self, entry: &str, max: u32) -> Result<Vec<EntryUse>, Error>;
}

/// A full-text index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Index {
    Knowledge,
    Memory,
}

/// The full-text indexes. They contain the stems of words (`rules::terms`) and, for each row, a scope word that says who can find the row.
pub trait Words {
    fn index_knowledge(&self, key: i64, scope_word: &str, texts: &KnowledgeTexts) -> Result<(), Error>;
    /// Removes the rows with keys after `after`, up to and including `until`.
    fn unindex_knowledge(&self, after: i64, until: i64) -> Result<(), Error>;
    fn index_exchange(&self, submission: i64, scope_word: &str, prompt: &str, answer: &str) -> Result<(), Error>;
    /// Returns the approximate number of rows.
    fn index_size(&self, index: Index) -> Result<u64, Error>;
    /// Returns for each word the approximate number of rows that contain it. A word is given by its stems; a row that contains two of them
    /// may be counted twice. `size` is the number of rows in the index.
    fn document_frequencies(&self, index: Index, words: &[&[String]], size: u64) -> Result<Vec<u64>, Error>;
    /// Returns the keys of the rows that contain all of the words, or any of them. A word is given by its stems, one of which must be in
    /// the row. If scope words are given, the row must have one of them. The order is best first in knowledge, and newest first in memory;
    /// with scope words it is newest first in knowledge too, unless there are more rows than `max`: then the best of them are returned.
    fn matching(
        &self,
        index: Index,
        words: &[&[String]],
        all: bool,
        scope_words: Option<&[String]>,
        max: u32,
    ) -> Result<Vec<i64>, Error>;
}

/// An idempotency key.
#[derive(Debug, Clone)]
pub struct KeyRow {
    /// The digest of the request's body.
    pub body: String,
    /// Whether the last request with this key has not reached the store. A request with another body can then use the key.
    pub is_free: bool,
    pub state: KeyState,
}

pub trait Keys {
    /// Returns a key, unless it is older than `oldest`. Fails with `gone` if its answer was about a session that was deleted for good.
    fn key(&self, key: &str, oldest: Timestamp) -> Result<Option<KeyRow>, Error>;
    fn put_key(&self, key: &BeginKey) -> Result<(), Error>;
    /// Marks a key without an answer as free or as in use.
    fn set_key_free(&self, key: &str, is_free: bool) -> Result<(), Error>;
    /// Marks a key without an answer as one whose answer was about a session that was deleted for good.
    fn purge_key(&self, key: &str) -> Result<(), Error>;
    /// Stores the answer of a key, unless it has one.
    fn answer_key(&self, key: &str, answer: &KeptAnswer) -> Result<(), Error>;
    /// Deletes a key, unless it has an answer.
    fn forget_key(&self, key: &str) -> Result<(), Error>;
    /// Deletes at most `max` keys that are older than `oldest`. Returns how many were deleted.
    fn prune_keys(&self, oldest: Timestamp, max: usize) -> Result<usize, Error>;
    /// Returns the number and the answer of the last call of a slot.
    fn call(&self, slot: &str) -> Result<Option<(u64, String)>, Error>;
    fn put_call(&self, slot: &str, number: u64, answer: &str, now: Timestamp) -> Result<(), Error>;
    fn prune_calls(&self, oldest: Timestamp) -> Result<(), Error>;
}

/// A stream below `streams/`. If it is a fork, the entries before `base` are stored with its source.
#[derive(Debug, Clone)]
pub struct PublicRow {
    pub key: i64,
    pub name: String,
    pub content_type: String,
    pub entries: u64,
    pub closed: bool,
    /// The time to live in seconds.
    pub ttl: Option<i64>,
    pub expires_at: Option<Timestamp>,
    pub last_seq: Option<String>,
    pub source: Option<i64>,
    pub base: u64,
    /// The request to create the fork, as JSON.
    pub fork_description: Option<String>,
    /// The number of forks of this stream.
    pub forks: u64,
    /// Whether the stream is deleted, but kept because it has forks.
    pub gone: bool,
}

pub trait PublicStreams {
    fn public(&self, name: &str) -> Result<Option<PublicRow>, Error>;
    fn public_by_key(&self, key: i64) -> Result<PublicRow, Error>;
    /// Returns the streams whose names begin with `prefix` and whose keys are less than `before`, in descending order of keys. Streams that
    /// are only kept for their forks are left out.
    fn list_public(&self, prefix: &str, before: i64, limit: u32) -> Result<Vec<PublicRow>, Error>;
    /// Inserts a stream and returns its key. The number of entries is set later with [`PublicStreams::update_public`].
    fn insert_public(&self, stream: &PublicRow) -> Result<i64, Error>;
    /// Stores the number of entries, whether the stream is closed, its last sequence, and when it expires.
    fn update_public(&self, stream: &PublicRow) -> Result<(), Error>;
    fn count_fork(&self, key: i64, by: i64) -> Result<(), Error>;
    fn set_public_gone(&self, key: i64) -> Result<(), Error>;
    /// Removes the name of a stream. Its data is then deleted by background work. Returns the key of its source.
    fn unname_public(&self, key: i64) -> Result<Option<i64>, Error>;
    fn expired(&self, now: Timestamp, max: usize) -> Result<Vec<i64>, Error>;
    fn next_expiry(&self) -> Result<Option<Timestamp>, Error>;
    /// Returns the key of a stream without a name, whose data is to be deleted.
    fn unnamed_public(&self) -> Result<Option<i64>, Error>;
    fn delete_public(&self, key: i64) -> Result<(), Error>;
    /// Returns the stored epoch and sequence number of a producer.
    fn producer(&self, stream: i64, id: &str) -> Result<Option<Producer>, Error>;
    fn put_producer(&self, stream: i64, producer: &Producer) -> Result<(), Error>;
    /// Deletes at most `max` producers of a stream. Returns how many were deleted.
    fn delete_producers(&self, stream: i64, max: usize) -> Result<usize, Error>;
}

/// The entries of streams below `streams/`: bytes, numbered from 0.
pub trait Appends {
    fn insert_append(&self, stream: i64, number: u64, body: &[u8]) -> Result<(), Error>;
    /// Calls `see` with each entry from `from` (inclusive) to `to` (exclusive), until it returns false. Returns false if it did.
    fn appends(&self, stream: i64, from: u64, to: u64, see: &mut dyn FnMut(&[u8]) -> bool) -> Result<bool, Error>;
    /// Returns the numbers of the first entries that are still stored, with their sizes in bytes.
    fn append_sizes(&self, stream: i64, max: usize) -> Result<Vec<(u64, u64)>, Error>;
    /// Deletes the entries up to and including `last`.
    fn delete_appends(&self, stream: i64, last: u64) -> Result<(), Error>;
}

/// A blob without its bytes.
#[derive(Debug, Clone, Copy)]
pub struct BlobRow {
    pub key: i64,
    /// The length in bytes. `stored` is the number of bytes received so far.
    pub length: u64,
    pub stored: u64,
}

/// Blobs: bytes that are identified by their SHA-256.
pub trait Blobs {
    fn blob(&self, digest: &str) -> Result<Option<BlobRow>, Error>;
    fn insert_blob(&self, digest: &str, length: u64, now: Timestamp) -> Result<BlobRow, Error>;
    /// Stores a piece that begins at byte `offset`.
    fn insert_piece(&self, blob: i64, offset: u64, bytes: &[u8], now: Timestamp) -> Result<(), Error>;
    /// Calls `see` with the offset and the bytes of each piece that ends after byte `from`, in order, until it returns false.
    fn pieces(&self, blob: i64, from: u64, see: &mut dyn FnMut(u64, &[u8]) -> bool) -> Result<(), Error>;
    fn touch_blob(&self, blob: i64, now: Timestamp) -> Result<(), Error>;
    /// Deletes the pieces of a blob, so that it can be sent again from the beginning.
    fn clear_blob(&self, blob: i64) -> Result<(), Error>;
    /// Records that an event refers to a blob.
    fn refer_to_blob(&self, digest: &str, event: i64) -> Result<(), Error>;
    /// Records that an event of a submission refers to the output of a tool.
    fn refer_to_output(&self, digest: &str, submission: i64) -> Result<(), Error>;
    /// Returns a blob that is an output of a submission of the stream. `id` consists of the first digits of its digest.
    fn output(&self, stream: &str, id: &str) -> Result<Option<BlobRow>, Error>;
    fn outputs_of(&self, submission: i64) -> Result<Vec<Output>, Error>;
    /// Returns an image of a prompt of the stream. The first has the number 0.
    fn image(&self, stream: &str, submission: &SubmissionId, number: u32) -> Result<Option<Image>, Error>;
    fn unused_blobs(&self, before: Timestamp, max: usize) -> Result<Vec<i64>, Error>;
    fn delete_blob(&self, blob: i64) -> Result<(), Error>;
    /// Returns the total length of all blobs in bytes.
    fn blob_bytes(&self) -> Result<u64, Error>;
}

/// The usage of model calls in a scope, which is a day or a session.
pub trait Budgets {
    /// Returns everything that counts against the limits of a scope, including reservations.
    fn budget(&self, scope: &str) -> Result<Amount, Error>;
    fn add_to_budget(&self, scope: &str, amount: Amount, now: Timestamp) -> Result<(), Error>;
    fn reservation(&self, id: &str) -> Result<Option<ReservationRow>, Error>;
    fn insert_reservation(&self, row: &ReservationRow, now: Timestamp) -> Result<(), Error>;
    fn delete_reservation(&self, id: &str) -> Result<(), Error>;
    /// Returns the sum of the reservations of a scope that were made after a time.
    fn reserved(&self, scope: &str, after: Timestamp) -> Result<Amount, Error>;
    fn prune_reservations(&self, before: Timestamp) -> Result<(), Error>;
    fn prune_budgets(&self, before: Timestamp) -> Result<(), Error>;
}

/// A number of tokens, and a cost in billionths of a US dollar. It is negative if it corrects a reservation that was too high.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    pub tokens: i64,
    pub cost: i64,
}

/// The reservation for a model call: the maximum that the call can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservationRow {
    pub id: String,
    pub day: String,
    pub session: Option<String>,
    pub amount: Amount,
    /// The part of the tokens that is reserved for the answer.
    pub output_tokens: i64,
}

/// The notes of instances, by kind and name.
pub trait Notes {
    fn put_note(&self, stream: i64, note: &PutNote, outside: &Outside, now: Timestamp) -> Result<(), Error>;
    fn delete_note(&self, stream: i64, kind: NoteKind, name: &str) -> Result<(), Error>;
    fn notes(&self, stream: i64, kind: NoteKind) -> Result<Vec<Note>, Error>;
}

#[derive(Debug, Clone)]
pub struct ApprovalRow {
    pub key: i64,
    /// The key of the submission. `session` is the instance to which it belongs.
    pub submission: i64,
    pub session: String,
    pub record: Approval,
    /// The idempotency key of the decision. `use_key` is that of the call that has used the grant.
    pub decide_key: Option<String>,
    pub use_key: Option<String>,
}

#[derive(Debug)]
pub struct NewApproval<'a> {
    pub submission: i64,
    pub session: &'a str,
    pub call_id: &'a str,
    pub task_id: Option<&'a str>,
    pub scope: Option<i64>,
    /// The digest of the blob with its whole diff.
    pub whole: Option<&'a str>,
    pub request: &'a Request,
    pub status: Status,
    pub decision: Option<&'a Decision>,
    pub now: Timestamp,
}

/// A call of a submission, and the fingerprint of a request about it.
#[derive(Debug, Clone, Copy)]
pub struct AboutCall<'a> {
    pub submission: i64,
    pub call_id: &'a str,
    pub task_id: Option<&'a str>,
    pub fingerprint: &'a str,
}

pub trait Approvals {
    fn insert_approval(&self, approval: &NewApproval<'_>) -> Result<(), Error>;
    fn approval(&self, id: &str) -> Result<Option<ApprovalRow>, Error>;
    /// Returns the requests about a call, and those requests of the same submission that were denied for the same fingerprint. Newest
    /// first.
    fn approvals_about(&self, call: &AboutCall<'_>) -> Result<Vec<ApprovalRow>, Error>;
    /// Returns the calls of a submission for which an approval was requested.
    fn calls_with_approval(&self, submission: i64) -> Result<Vec<CallWithApproval>, Error>;
    /// Returns the id of a request that was approved for the whole session and has this fingerprint.
    fn session_grant(&self, session: &str, fingerprint: &str) -> Result<Option<String>, Error>;
    /// Returns at most `max` requests, oldest first. Once their sizes add up to `bytes`, further ones are returned without action and
    /// diff, and marked as `cut`.
    fn pending_approvals(&self, list: &ListApprovals, max: usize, bytes: usize) -> Result<Vec<Approval>, Error>;
    /// Returns requests with lower keys than `before`, newest first, that match the status and the session of a list.
    /// From the one on with which they exceed `bytes`, they have no action and no diff.
    fn approvals_before(
        &self,
        before: Option<i64>,
        list: &ListAllApprovals,
        max: usize,
        bytes: usize,
    ) -> Result<Vec<Approval>, Error>;
    fn pending_approvals_of(&self, submission: i64) -> Result<Vec<ApprovalRow>, Error>;
    fn count_pending_approvals(&self) -> Result<u64, Error>;
    fn end_approval(
        &self,
        key: i64,
        status: Status,
        decision: Option<(&Decision, Option<&str>)>,
        now: Timestamp,
    ) -> Result<(), Error>;
    fn use_approval(&self, key: i64, use_key: &str, now: Timestamp) -> Result<(), Error>;
    /// Returns the pending requests that have expired.
    fn due_approvals(&self, now: Timestamp, max: usize) -> Result<Vec<ApprovalRow>, Error>;
    fn next_due_approval(&self) -> Result<Option<Timestamp>, Error>;
    /// Deletes at most `max` requests that ended before a time and whose submissions are settled. Returns how many were deleted.
    fn prune_approvals(&self, before: Timestamp, max: usize) -> Result<usize, Error>;
}

/// The number of queued runs of a schedule, and the number of its admitted or running ones.
pub type ActiveRuns = (u64, u64);

#[derive(Debug, Clone)]
pub struct ScheduleRow {
    pub key: i64,
    pub id: String,
    pub slug: String,
    /// The scope of the session in which an agent created the schedule; `None` for a schedule of the operator.
    pub owner: Option<i64>,
    pub generation: u64,
    pub settings: Settings,
    pub prompt: String,
    pub payload: Option<Value>,
    pub enabled: bool,
    pub progress: Progress,
    pub last_fired: Option<i64>,
    pub last_status: Option<RunState>,
    /// The number of consecutive failed runs.
    pub failures: u32,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// When it ended. Another schedule may have its slug since then.
    pub ended_at: Option<Timestamp>,
    pub deleted: bool,
    /// The origins of outside text that the turn of the agent had read that created the schedule.
    pub outside: Outside,
}

/// A schedule whose progress has been updated.
#[derive(Debug)]
pub struct FiredRow {
    pub key: i64,
    pub slug: String,
}

/// The record with which a scheduled run begins.
#[derive(Debug, Clone)]
pub struct NewScheduleRun<'a> {
    pub id: &'a str,
    pub schedule: i64,
    pub generation: u64,
    pub slot_at: Option<i64>,
    pub status: RunState,
    pub timeout_ms: i64,
    pub reason: Option<Reason>,
    pub finished_at: Option<i64>,
}

#[derive(Debug, Clone)]
pub struct ScheduleRunRow {
    pub key: i64,
    pub id: String,
    pub schedule: i64,
    pub schedule_id: String,
    pub slug: String,
    pub generation: u64,
    pub slot_at: Option<i64>,
    pub trigger: Trigger,
    pub status: RunState,
    pub attempt: u32,
    /// The time before which the run is not admitted, in milliseconds since the epoch.
    pub not_before: i64,
    /// The time limit of the run after it is admitted, in milliseconds.
    pub timeout_ms: i64,
    pub submission: Option<SubmissionId>,
    pub result_text: Option<String>,
    pub error: Option<String>,
    pub reason: Option<Reason>,
    pub delivery: Delivery,
    pub started_at: Option<i64>,
    pub admitted_at: Option<i64>,
    pub finished_at: Option<i64>,
}

impl ScheduleRunRow {
    pub fn instance(&self) -> String {
        format!("schedule:{}:{}", self.schedule_id, self.id)
    }

    /// Returns the run in the form in which the API shows it.
    pub fn into_schedule_run(self) -> ScheduleRun {
        let instance = self.instance();
        ScheduleRun {
            instance_id: instance.clone(),
            session_id: instance,
            run_id: self.id,
            schedule_id: self.schedule_id,
            slug: self.slug,
            slot_at: self.slot_at,
            trigger: self.trigger,
            status: self.status,
            attempt: self.attempt,
            dispatch_id: self.submission.clone(),
            submission_id: self.submission,
            result_text: self.result_text,
            error: self.error,
            reason: self.reason,
            delivery: self.delivery,
            started_at: self.started_at,
            admitted_at: self.admitted_at,
            finished_at: self.finished_at,
        }
    }
}

pub trait Schedules {
    /// Returns the newest schedule with this slug and, if it is given, this id, that is not deleted. At most the newest has not ended.
    fn schedule_by_slug(&self, slug: &str, id: Option<&str>) -> Result<Option<ScheduleRow>, Error>;
    fn schedule_by_key(&self, key: i64) -> Result<ScheduleRow, Error>;
    /// Returns the number of schedules that have neither ended nor been deleted.
    fn count_schedules(&self) -> Result<u64, Error>;
    fn insert_schedule(&self, schedule: &ScheduleRow) -> Result<i64, Error>;
    /// Stores all fields of a schedule except its key, its id and the time of its creation.
    fn update_schedule(&self, schedule: &ScheduleRow) -> Result<(), Error>;
    /// Updates the progress of a schedule, and stores when it fired if it did. Returns `None`, and changes nothing, if the mark or the
    /// generation of the schedule differs from that in `fire`, or if it is paused or deleted.
    fn advance_schedule(&self, fire: &Fire, fired: Option<i64>) -> Result<Option<FiredRow>, Error>;
    /// Returns the schedules in the order of their slugs, those with the same slug newest first. `ended` includes those that have ended.
    fn list_schedules(&self, owner: Option<i64>, ended: bool) -> Result<Vec<ScheduleSummary>, Error>;
    /// Marks a schedule as deleted. A new schedule can then have its slug.
    fn mark_schedule_deleted(&self, key: i64, now: Timestamp) -> Result<(), Error>;
    /// Removes at most `max` schedules that were marked as deleted before one time or ended before another, with their runs. Returns how
    /// many were removed.
    fn drop_schedules(&self, deleted: Timestamp, ended: Timestamp, max: usize) -> Result<usize, Error>;
    /// Returns the schedules that are due, in the order in which they fire.
    fn due_schedules(&self, now: i64, max: usize) -> Result<Vec<DueSchedule>, Error>;
    fn next_fire(&self) -> Result<Option<i64>, Error>;
    /// Inserts a run. Returns false if its slot already has a record.
    fn insert_schedule_run(&self, run: &NewScheduleRun<'_>) -> Result<bool, Error>;
    fn schedule_run(&self, id: &str) -> Result<Option<ScheduleRunRow>, Error>;
    /// Returns a run of a schedule with this slug, even if the schedule is deleted.
    fn schedule_run_of_slug(&self, slug: &str, id: &str) -> Result<Option<ScheduleRun>, Error>;
    /// Stores the fields of a run that change while it is active.
    fn update_schedule_run(&self, run: &ScheduleRunRow) -> Result<(), Error>;
    /// Returns the number of active runs of each schedule that has any, by the id of the schedule.
    fn active_schedule_runs(&self) -> Result<Vec<(String, ActiveRuns)>, Error>;
    fn queued_schedule_runs(&self, schedule: i64) -> Result<Vec<ScheduleRunRow>, Error>;
    /// Returns the admitted and the running runs of all schedules.
    fn working_schedule_runs(&self) -> Result<Vec<ScheduleRunRow>, Error>;
    /// Returns how many queued runs were started by hand.
    fn count_waiting_manual_runs(&self) -> Result<u64, Error>;
    /// Returns the oldest queued run that can be admitted now. Schedules that already have an admitted or running one are left out.
    fn next_schedule_run(&self, now: i64) -> Result<Option<ScheduleRunRow>, Error>;
    /// Returns the earliest time at which a run that waits for its next attempt can be admitted.
    fn next_schedule_retry(&self, now: i64) -> Result<Option<i64>, Error>;
    /// Returns the runs of one schedule or of all before a key, newest first, each with its key. The text of a result is
    /// cut to `text` bytes.
    fn list_schedule_runs(
        &self,
        schedule: Option<i64>,
        before: i64,
        limit: u32,
        text: usize,
    ) -> Result<Vec<(i64, ScheduleRun)>, Error>;
    /// Returns at most `max` runs that have finished before a time.
    fn schedule_runs_before(&self, before: Timestamp, max: usize) -> Result<Vec<ScheduleRunRow>, Error>;
    fn delete_schedule_run(&self, key: i64) -> Result<(), Error>;
    /// Deletes the finished runs of a schedule, except the newest `keep`.
    fn prune_schedule_runs(&self, schedule: i64, keep: usize) -> Result<(), Error>;
}

/// Counters, which never decrease, and single values. Both have names.
pub trait Counters {
    fn count_up(&self, name: &str) -> Result<(), Error>;
    /// Returns the counters whose names begin with `prefix`, without the prefix.
    fn counters(&self, prefix: &str) -> Result<Vec<(String, u64)>, Error>;
    fn stored_value(&self, name: &str) -> Result<Option<String>, Error>;
    fn set_stored_value(&self, name: &str, value: &str) -> Result<(), Error>;
    fn remove_stored_value(&self, name: &str) -> Result<(), Error>;
}

#[derive(Debug, Clone, Copy)]
pub struct NewUpdate<'a> {
    pub id: i64,
    pub kind: &'a str,
    pub sender: Option<&'a str>,
    pub chat: Option<&'a str>,
    pub verdict: &'a str,
    pub reason: Option<&'a str>,
    /// The pairing code that the sender got.
    pub code: Option<&'a str>,
}

/// A pairing code and its state: `pending`, `approved` or `denied`.
#[derive(Debug, Clone)]
pub struct PairingRow {
    pub pairing: Pairing,
    pub state: String,
}

pub trait Messenger {
    /// Returns the pairing code that belongs to an update, if there is one. The outer `None` means that the update is unknown.
    fn update(&self, id: i64) -> Result<Option<Option<String>>, Error>;
    fn update_record(&self, id: i64) -> Result<Option<UpdateRecord>, Error>;
    fn insert_update(&self, update: &NewUpdate<'_>, now: Timestamp) -> Result<(), Error>;
    /// Returns updates, newest first.
    fn updates(&self, unanswered: bool, limit: u32) -> Result<Vec<UpdateRecord>, Error>;
    /// Deletes at most `max` updates that are older than a time. Returns how many were deleted.
    fn prune_updates(&self, before: Timestamp, max: usize) -> Result<usize, Error>;
    fn allowed_user(&self, user: &str) -> Result<Option<AllowedUser>, Error>;
    /// Returns the users in the order in which they were added.
    fn allowed_users(&self) -> Result<Vec<AllowedUser>, Error>;
    fn put_allowed_user(&self, user: &str, chat: &str, now: Timestamp) -> Result<(), Error>;
    fn delete_allowed_user(&self, user: &str) -> Result<(), Error>;
    fn group(&self, id: &str) -> Result<Option<Group>, Error>;
    fn groups(&self) -> Result<Vec<Group>, Error>;
    fn put_group(&self, group: &Group) -> Result<(), Error>;
    /// Deletes a group. Returns false if there was none with this id.
    fn delete_group(&self, id: &str) -> Result<bool, Error>;
    fn pairing(&self, code: &str) -> Result<Option<PairingRow>, Error>;
    /// Returns the undecided codes that are still valid at the time `beyond`, oldest first.
    fn pending_pairings(&self, beyond: Timestamp) -> Result<Vec<Pairing>, Error>;
    fn pairings_since(&self, then: Timestamp) -> Result<u64, Error>;
    fn insert_pairing(&self, pairing: &Pairing) -> Result<(), Error>;
    fn count_pairing_reply(&self, code: &str) -> Result<(), Error>;
    fn set_pairing_state(&self, code: &str, state: &str) -> Result<(), Error>;
    /// Returns the chats that have sent a prompt whose turn is in this state.
    fn busy_chats(&self, state: State) -> Result<Vec<BusyChat>, Error>;
}

#[derive(Debug, Clone)]
pub struct MessageRow {
    pub id: i64,
    pub message: PutMessage,
    pub state: MessageState,
    /// The number of the piece that is sent next.
    pub piece: u32,
    /// Whether it is unknown if an earlier piece was sent.
    pub doubtful: bool,
    pub tries: u32,
    /// The time from which it can be sent; for a finished message, the time when it was finished.
    pub due_at: Timestamp,
    pub created_at: Timestamp,
    /// The id that the platform gave to the last piece.
    pub message_id: Option<String>,
    pub error: Option<String>,
}

impl MessageRow {
    /// Returns whether a part of the message still has to be sent.
    pub fn is_live(&self) -> bool {
        matches!(self.state, MessageState::Pending | MessageState::Sending)
    }
}

pub trait Outbox {
    fn message(&self, id: i64) -> Result<Option<MessageRow>, Error>;
    fn message_by_key(&self, key: &str) -> Result<Option<MessageRow>, Error>;
    fn insert_message(&self, message: &PutMessage, now: Timestamp) -> Result<i64, Error>;
    /// Returns the oldest unfinished message of each chat, and the time from which it can be sent.
    fn next_messages(&self, connector: &str) -> Result<Vec<(i64, Timestamp)>, Error>;
    /// Stores all fields of the row except the message itself.
    fn update_message(&self, row: &MessageRow) -> Result<(), Error>;
    /// Returns messages, newest first.
    fn list_messages(&self, connector: &str, limit: u32) -> Result<Vec<MessageRecord>, Error>;
    fn live_messages(&self, connector: &str) -> Result<u64, Error>;
    /// Deletes at most `max` messages that were finished before a time. Returns how many were deleted.
    fn prune_messages(&self, before: Timestamp, max: usize) -> Result<usize, Error>;
}

/// The governing rules that users have written, by name. A rule is stored as JSON.
pub trait GoverningRules {
    fn put_rule(&self, name: &str, rule: &Value, now: Timestamp) -> Result<(), Error>;
    /// Returns all rules, or only the enabled ones, in the order of their names.
    fn governing_rules(&self, only_enabled: bool) -> Result<Vec<StoredRule>, Error>;
    /// Enables or disables a rule. Returns false if there is none with this name.
    fn switch_rule(&self, name: &str, enabled: bool, now: Timestamp) -> Result<bool, Error>;
    fn delete_rule(&self, name: &str) -> Result<bool, Error>;
}
