//! The tables of the store as verbs on rows, by noun: plain data in and out, no decisions. Each backend implements them with
//! one statement a function; everything above this module knows no SQL.
//!
//! Keys of rows (`i64`) are the backend's; ids are the contract's.

pub mod sqlite;

use ken_types::event::{Failure, Output, TurnResult};
use ken_types::id::{EventId, Origin, RunId, SessionId, SubmissionId};
use ken_types::ops::approvals::{Approval, AskedCall, Decision, ListApprovals, Request, Status};
use ken_types::ops::documents::{Document, EntryUse};
use ken_types::ops::messenger::{AllowedUser, BusyChat, Group, Pairing, UpdateRecord};
use ken_types::ops::outbox::{MessageRecord, MessageState, PutMessage, Shown};
use ken_types::ops::rules::StoredRule;
use ken_types::ops::runs::{RunRecord, RunStatus};
use ken_types::ops::schedules::{
    Delivery, Due, Fire, Progress, Reason, RunState, ScheduleRun, ScheduleSummary, Settings, Trigger,
};
use ken_types::ops::store::*;
use ken_types::ops::streams::Producer;
use ken_types::{Error, Timestamp};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// A database that has been opened and migrated.
pub trait Backend: Send {
    /// The one writer.
    fn writer(&mut self) -> Result<Box<dyn Writer>, Error>;
    /// A reader; each sees the last commit whenever it begins to read.
    fn reader(&mut self) -> Result<Box<dyn Reader>, Error>;
}

/// The connection that writes. Between [`Writer::begin`] and [`Writer::commit`] each change stands between
/// [`Writer::mark`] and either [`Writer::keep`] or [`Writer::undo`]. Nothing is durable before the commit.
pub trait Writer: Send {
    fn tables(&self) -> &dyn Tables;
    fn begin(&mut self) -> Result<(), Error>;
    fn mark(&mut self) -> Result<(), Error>;
    fn keep(&mut self) -> Result<(), Error>;
    fn undo(&mut self) -> Result<(), Error>;
    fn commit(&mut self) -> Result<(), Error>;
    /// Gives up the whole transaction; none may be open.
    fn rollback(&mut self);
    /// Whether the transaction is still open: some failures end it.
    fn is_open(&self) -> bool;
    /// Nothing has been written for a while: time to tidy up. False when it is to be called again later.
    fn rest(&mut self) -> bool;
    /// Writes something that changes nothing, in a transaction of its own, to see whether writing works.
    fn probe(&mut self) -> Result<(), Error>;
}

/// A connection that only reads.
pub trait Reader: Send {
    /// Calls `work` once, in one state of the database.
    fn read(&mut self, work: &mut dyn FnMut(&dyn Tables) -> Result<(), Error>) -> Result<(), Error>;
}

/// All tables.
pub trait Tables:
    Scopes
    + Sessions
    + Events
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
    + Budgets
{
    /// Sizes of the database, for `service.stats`.
    fn sizes(&self) -> Result<Map<String, Value>, Error>;
}

/// Scopes, each with a key.
pub trait Scopes {
    fn scope_key(&self, scope: &Scope) -> Result<Option<i64>, Error>;
    fn insert_scope(&self, scope: &Scope) -> Result<i64, Error>;
    fn scope(&self, key: i64) -> Result<Option<Scope>, Error>;
    /// The current conversation of an actor and the newest others, as far as nobody else has written in them.
    fn conversations_alone(
        &self,
        connector: &str,
        actor: &str,
        current: &str,
        most: usize,
    ) -> Result<Vec<String>, Error>;
}

/// A session. Its key is that of its stream.
#[derive(Debug, Clone)]
pub struct SessionRow {
    pub stream: i64,
    pub id: SessionId,
    pub scope: i64,
    pub origin: Origin,
    /// The first visible prompt.
    pub title: Option<String>,
    /// The explicit name.
    pub name: Option<String>,
    pub archived: bool,
}

/// Which sessions, and from where on: newest first, strictly after the position.
#[derive(Debug, Clone, Copy)]
pub struct SessionList {
    pub scope: Option<i64>,
    pub archived: bool,
    /// Also those without a title.
    pub untitled: bool,
    pub after: (i64, i64),
}

pub trait Sessions {
    fn session(&self, id: &str) -> Result<Option<SessionRow>, Error>;
    /// Sessions of this name that are not archived, the one used last first.
    fn sessions_named(&self, scope: Option<i64>, name: &str, most: usize) -> Result<Vec<SessionRow>, Error>;
    /// The session of a scope that was used last and is not archived.
    fn newest_session(&self, scope: i64) -> Result<Option<SessionRow>, Error>;
    fn insert_session(&self, session: &SessionRow, now: Timestamp) -> Result<(), Error>;
    /// Moves `updated_at` forward and takes the session out of the archive.
    fn touch_session(&self, stream: i64, now: Timestamp) -> Result<(), Error>;
    fn set_session_title(&self, stream: i64, title: &str) -> Result<(), Error>;
    fn set_session_name(&self, stream: i64, name: &str) -> Result<(), Error>;
    /// False when it was archived before.
    fn archive_session(&self, stream: i64, now: Timestamp) -> Result<bool, Error>;
    /// Calls `see` with each session and its stream until that returns false.
    fn list_sessions(&self, list: &SessionList, see: &mut dyn FnMut(i64, Session) -> bool) -> Result<(), Error>;
}

/// Something that came in.
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
    /// What was said to it, as JSON.
    pub answer: &'a str,
}

/// What was asked.
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

/// The streams of instances and runs, and their entries: JSON, numbered from 0.
pub trait Logs {
    fn log(&self, name: &str) -> Result<Option<LogRow>, Error>;
    fn log_by_key(&self, key: i64) -> Result<LogRow, Error>;
    fn insert_log(&self, name: &str, kind: LogKind, now: Timestamp) -> Result<LogRow, Error>;
    fn close_log(&self, key: i64) -> Result<(), Error>;
    /// Adds one entry; the row's count is set by [`Logs::set_log_entries`].
    fn insert_entries(&self, log: i64, first: u64, entries: &[Box<RawValue>]) -> Result<(), Error>;
    fn set_log_entries(&self, log: i64, entries: u64) -> Result<(), Error>;
    /// Calls `see` with each entry from `from` to before `to` until that returns false.
    fn entries(&self, log: i64, from: u64, to: u64, see: &mut dyn FnMut(&str) -> bool) -> Result<(), Error>;
}

/// A submission.
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
    /// Whether it may be claimed.
    pub open: bool,
    /// Entries of its stream before its first own one.
    pub recorded_from: u64,
    pub next_index: u64,
    pub lease: u64,
    pub attempt: u32,
    /// Claims that were asked for its end only.
    pub closings: u32,
    pub abort: bool,
    /// Those that it waits for.
    pub approvals: Vec<String>,
    pub first_claim_at: Option<i64>,
    pub waiting_since: Option<i64>,
    pub waited_ms: i64,
}

#[derive(Debug, Clone)]
pub struct NewSubmission<'a> {
    pub id: &'a SubmissionId,
    pub stream: i64,
    pub event: i64,
    pub kind: SubmissionKind,
    pub hidden: bool,
    pub open: bool,
    /// Its order among the queued ones of its stream.
    pub place: i64,
    pub recorded_from: u64,
    pub next_index: u64,
}

/// An open submission with all that its holder needs.
#[derive(Debug)]
pub struct OpenRow {
    pub submission: SubmissionRow,
    pub text: String,
    pub images: Vec<Image>,
    pub context: Option<Value>,
    pub scope: Option<Scope>,
    /// Of the event.
    pub message_kind: String,
}

/// The submissions of one state in a stream.
#[derive(Debug, Clone, Copy)]
pub struct QueueRow {
    pub state: State,
    pub count: u64,
    pub first_place: i64,
    pub last_place: i64,
}

/// A lease that a restarted store knows from its tables.
#[derive(Debug, Clone)]
pub struct OldLease {
    pub lease: Lease,
    pub aborting: bool,
}

pub trait Submissions {
    fn submission(&self, id: &str) -> Result<Option<SubmissionRow>, Error>;
    fn submission_by_key(&self, key: i64) -> Result<SubmissionRow, Error>;
    fn insert_submission(&self, submission: &NewSubmission<'_>) -> Result<i64, Error>;
    /// What is not settled in a stream, by state.
    fn queue(&self, stream: i64) -> Result<Vec<QueueRow>, Error>;
    fn queued(&self, stream: i64) -> Result<Vec<SubmissionRow>, Error>;
    /// The key of the first one in the queue.
    fn next_queued(&self, stream: i64) -> Result<Option<i64>, Error>;
    /// The one that runs or waits for a decision.
    fn running(&self, stream: i64) -> Result<Option<SubmissionRow>, Error>;
    /// Those that run and came in through the messaging connector.
    fn running_messages(&self) -> Result<Vec<SubmissionRow>, Error>;
    /// Nothing queued in the stream may be claimed.
    fn close_queued(&self, stream: i64) -> Result<(), Error>;
    fn set_open(&self, key: i64, open: bool) -> Result<(), Error>;
    fn set_abort(&self, key: i64) -> Result<(), Error>;
    fn set_next_index(&self, key: i64, next: u64) -> Result<(), Error>;
    /// Approvals, state and the time spent waiting.
    fn set_waiting(&self, submission: &SubmissionRow) -> Result<(), Error>;
    /// A new lease: its number, attempt and first claim go on from what is stored.
    fn take_submission(&self, submission: &SubmissionRow, closing: bool, now: Timestamp) -> Result<(), Error>;
    fn settle_submission(&self, key: i64, state: State) -> Result<(), Error>;
    /// A submission with its event, whatever its state.
    fn work(&self, id: &str) -> Result<Option<OpenRow>, Error>;
    /// Those that may be claimed, oldest first.
    fn open_submissions(&self, work: Work, most: usize) -> Result<Vec<OpenRow>, Error>;
    /// Entries of the stream before the first claimed prompt that is not settled.
    fn first_in_flight(&self, stream: i64) -> Result<Option<u64>, Error>;
    fn old_leases(&self) -> Result<Vec<OldLease>, Error>;
    /// Runs that are queued, and runs that are held.
    fn waiting_runs(&self) -> Result<u64, Error>;
    fn held_runs(&self) -> Result<u64, Error>;
    /// State and end in one read.
    fn submission_status(&self, id: &SubmissionId) -> Result<Option<SubmissionStatus>, Error>;
}

/// A settled submission.
#[derive(Debug, Clone, Copy)]
pub struct NewExchange<'a> {
    pub submission: i64,
    pub stream: i64,
    /// Its number among the prompts of its instance.
    pub turn: Option<i64>,
    /// As transcripts show it.
    pub body: Option<&'a str>,
    pub answer: &'a str,
    pub result: Option<&'a TurnResult>,
    pub error: Option<&'a Failure>,
    pub context_usage: Option<&'a Value>,
    /// Entries of the stream after its last one.
    pub ended_at: u64,
    pub settled_at: Timestamp,
}

/// A submission with what its summary needs beside its events.
#[derive(Debug)]
pub struct SummaryRow {
    pub submission: SubmissionRow,
    /// The name of its stream, and how many entries that has.
    pub stream: String,
    pub entries: u64,
    pub connector: Option<String>,
    /// What was stored when it ended, as JSON.
    pub body: Option<String>,
    pub settled_at: Option<Timestamp>,
}

pub trait Telemetry {
    fn insert_summary(&self, submission: i64, body: &str, now: Timestamp) -> Result<(), Error>;
    fn summary(&self, id: &str) -> Result<Option<SummaryRow>, Error>;
    /// Newest first, strictly before a key.
    fn summaries(&self, before: i64, limit: u32) -> Result<Vec<SummaryRow>, Error>;
    /// Those that ended after a time, up to another one, in that order; and how many there are.
    fn ended(&self, after: Timestamp, until: Timestamp, limit: u32) -> Result<(Vec<SummaryRow>, u64), Error>;
    /// Deletes at most `most` of those stored before a time, and of those beyond the newest `kept`; how many.
    fn prune_summaries(&self, before: Timestamp, kept: usize, most: usize) -> Result<usize, Error>;
}

/// The history of an instance.
#[derive(Debug, Clone)]
pub struct InstanceRow {
    pub turns: u64,
    pub compactions: u64,
    pub summary: Option<String>,
    /// Turns that the summary stands for.
    pub summary_after: i64,
}

pub trait Exchanges {
    fn insert_exchange(&self, exchange: &NewExchange<'_>) -> Result<(), Error>;
    fn exchange_end(&self, submission: i64) -> Result<Option<u64>, Error>;
    /// The number of the turn in its stream, if it was one.
    fn exchange_turn(&self, stream: i64, id: &SubmissionId) -> Result<Option<i64>, Error>;
    /// Prompts of a stream before a key, newest first, each with its body once it is settled.
    fn exchanges(&self, stream: i64, before: i64, limit: u32) -> Result<Vec<(i64, Option<String>)>, Error>;
    /// How much of the model's context the newest turn used that says so, as JSON.
    fn context_usage(&self, stream: i64) -> Result<Option<String>, Error>;
    fn past_exchange(&self, submission: i64) -> Result<Option<PastExchange>, Error>;
    /// Turns between two numbers, both exclusive, newest first.
    fn past_exchanges(&self, stream: i64, after: i64, before: i64, limit: u32) -> Result<Vec<PastExchange>, Error>;
    fn instance(&self, stream: i64) -> Result<Option<InstanceRow>, Error>;
    /// Counts one more; the new number.
    fn count_turn(&self, stream: i64) -> Result<i64, Error>;
    fn count_compaction(&self, stream: i64) -> Result<(), Error>;
    /// The summary stands for all turns so far.
    fn set_summary(&self, stream: i64, summary: &str) -> Result<(), Error>;
}

/// A run as its record begins.
#[derive(Debug, Clone)]
pub struct RunRow {
    pub workflow: String,
    /// JSON.
    pub payload: String,
    pub started_at: Timestamp,
}

/// Which runs, newest first, strictly before a key.
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
    /// Without payload, result and error; each with its key.
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

/// The extent of the system's stream.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemExtent {
    /// Entries before the first that is kept.
    pub first: u64,
    /// Entries in all.
    pub entries: u64,
    pub newest: Timestamp,
}

pub trait SystemEvents {
    fn system_extent(&self) -> Result<SystemExtent, Error>;
    /// `number` counts from 0.
    fn insert_system_event(&self, number: u64, at: Timestamp, event: &RawValue) -> Result<(), Error>;
    /// Calls `see` with each event from number `from` on until that returns false.
    fn system_events(&self, from: u64, see: &mut dyn FnMut(&str) -> bool) -> Result<(), Error>;
    /// Deletes some that are older, never the newest; how many.
    fn prune_system_events(&self, before: Timestamp, most: usize) -> Result<usize, Error>;
}

/// Which knowledge entries, newest first, strictly before a key.
#[derive(Debug, Clone, Copy)]
pub struct KnowledgeFilter<'a> {
    pub actor: Option<&'a str>,
    pub conversation: Option<&'a str>,
    /// Absent: all but the documents of the installation and the workspace.
    pub source: Option<&'a str>,
    pub before: i64,
    pub limit: u32,
}

/// A job over the index of knowledge that runs.
#[derive(Debug, Clone)]
pub struct JobRow {
    pub key: i64,
    pub id: String,
    /// The last entry that is done, and the last that will be.
    pub reached: i64,
    pub until: i64,
    /// The collection whose documents are read, and the last of them that is done.
    pub collection: Option<String>,
    pub place: String,
}

/// Where an entry comes from: a document, by its key, and the line there.
#[derive(Debug, Clone, Copy)]
pub struct DocumentPlace {
    pub document: i64,
    pub line: u64,
}

/// A document: its key, and the digest of its file.
#[derive(Debug, Clone)]
pub struct DocumentRow {
    pub key: i64,
    pub digest: String,
}

/// What the index has of an entry, and on whose behalf it may be found.
#[derive(Debug, Clone)]
pub struct KnowledgeTexts {
    pub title: String,
    pub tags: String,
    pub content: String,
    pub actor: Option<String>,
    pub conversation: Option<String>,
}

pub trait Knowledge {
    /// Inserts an entry, or moves the tags and the time of the one with this id; its key.
    fn put_knowledge(
        &self,
        id: &str,
        entry: &PutKnowledge,
        place: Option<DocumentPlace>,
        now: Timestamp,
    ) -> Result<i64, Error>;
    fn knowledge(&self, id: &str) -> Result<Option<KnowledgeRecord>, Error>;
    fn knowledge_by_key(&self, key: i64) -> Result<Option<KnowledgeRecord>, Error>;
    /// Deletes an entry; its key.
    fn delete_knowledge(&self, id: &str) -> Result<Option<i64>, Error>;
    fn delete_knowledge_by_key(&self, key: i64) -> Result<(), Error>;
    /// Gives an entry these tags; whether it had others.
    fn set_tags(&self, key: i64, tags: &[String], now: Timestamp) -> Result<bool, Error>;
    fn list_knowledge(&self, list: &KnowledgeFilter<'_>) -> Result<Vec<(i64, KnowledgeRecord)>, Error>;
    fn knowledge_texts(&self, key: i64) -> Result<Option<KnowledgeTexts>, Error>;
    /// Keys after one and up to another, with the bytes of their contents.
    fn knowledge_sizes(&self, after: i64, until: i64, most: usize) -> Result<Vec<(i64, u64)>, Error>;
    fn job(&self, id: &str) -> Result<Option<Job>, Error>;
    fn running_job(&self) -> Result<Option<JobRow>, Error>;
    /// A job over all entries that there are now.
    fn insert_job(&self, id: &str, now: Timestamp) -> Result<(), Error>;
    fn advance_job(&self, key: i64, reached: i64, done: usize) -> Result<(), Error>;
    /// Ends it: as failed if it has an error.
    fn finish_job(&self, key: i64, now: Timestamp) -> Result<(), Error>;
}

/// Documents, vectors, and the uses of entries.
pub trait DocumentTables {
    fn documents(&self, collection: &str, after: &str, most: usize) -> Result<Vec<Document>, Error>;
    fn document(&self, collection: &str, path: &str) -> Result<Option<DocumentRow>, Error>;
    /// Inserts a document, or gives the one of this path another digest; its key.
    fn put_document(&self, collection: &str, path: &str, digest: &str) -> Result<i64, Error>;
    fn delete_document(&self, key: i64) -> Result<(), Error>;
    /// Keys and ids of its entries.
    fn entries_of(&self, document: i64) -> Result<Vec<(i64, String)>, Error>;
    fn move_entry(&self, key: i64, line: u64) -> Result<(), Error>;
    /// Begins with the documents of a collection.
    fn set_job_collection(&self, key: i64, collection: Option<&str>) -> Result<(), Error>;
    /// Moves a job within its collection: how many documents are done more, and how many are left.
    fn advance_reading(&self, key: i64, place: &str, done: u64, left: u64) -> Result<(), Error>;
    fn fail_job(&self, key: i64, error: &str) -> Result<(), Error>;
    /// All entries that there are now are to be indexed as well.
    fn extend_job(&self, key: i64) -> Result<(), Error>;
    /// Entries without a vector of this model, oldest first: key, title and content.
    fn unembedded(&self, model: &str, most: usize) -> Result<Vec<(i64, String, String)>, Error>;
    fn put_vector(&self, entry: i64, model: &str, scope_word: &str, vector: &[u8]) -> Result<(), Error>;
    fn delete_vector(&self, entry: i64) -> Result<(), Error>;
    /// Calls `see` with the vectors of a model that one of the scope words may find, newest first.
    fn vectors(
        &self,
        model: &str,
        scope_words: &[String],
        most: u32,
        see: &mut dyn FnMut(i64, &[u8]),
    ) -> Result<(), Error>;
    fn add_vector_usage(&self, day: &str, model: &str, tokens: u64, cost: f64) -> Result<(), Error>;
    /// Day, model, tokens and cost.
    fn vector_usage(&self) -> Result<Vec<(String, String, u64, f64)>, Error>;
    fn insert_use(&self, entry: &str, submission: i64, how: &str) -> Result<(), Error>;
    fn uses(&self, entry: &str, most: u32) -> Result<Vec<EntryUse>, Error>;
}

/// A full-text index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Index {
    Knowledge,
    Memory,
}

/// The full-text indexes. Words are plain: lower case, letters and digits, no diacritics. A scope word marks on whose behalf a
/// row may be found.
pub trait Words {
    fn index_knowledge(&self, key: i64, scope_word: &str, texts: &KnowledgeTexts) -> Result<(), Error>;
    /// Removes the rows after one key and up to another.
    fn unindex_knowledge(&self, after: i64, until: i64) -> Result<(), Error>;
    fn index_exchange(&self, submission: i64, scope_word: &str, prompt: &str, answer: &str) -> Result<(), Error>;
    /// How many rows there are, about.
    fn index_size(&self, index: Index) -> Result<u64, Error>;
    /// For each word, given by its forms, how many of `size` rows hold one of them, about; a row that holds two may count twice.
    fn holders(&self, index: Index, words: &[&[String]], size: u64) -> Result<Vec<u64>, Error>;
    /// Keys of the rows that hold all or any of the words, each in one of its forms, for one of the scope words if some are
    /// given: the best first in knowledge, the newest first in memory.
    fn matching(
        &self,
        index: Index,
        words: &[&[String]],
        all: bool,
        scope_words: Option<&[String]>,
        most: u32,
    ) -> Result<Vec<i64>, Error>;
}

/// An idempotency key.
#[derive(Debug, Clone)]
pub struct KeyRow {
    /// Digest of the request's body.
    pub body: String,
    /// Its last request did not reach the store, so another body may take it over.
    pub is_free: bool,
    pub state: KeyState,
}

pub trait Keys {
    /// A key that is not older than `oldest`.
    fn key(&self, key: &str, oldest: Timestamp) -> Result<Option<KeyRow>, Error>;
    fn put_key(&self, key: &BeginKey) -> Result<(), Error>;
    /// Marks a key without an answer as free, or as taken.
    fn set_key_free(&self, key: &str, is_free: bool) -> Result<(), Error>;
    /// Keeps an answer, unless there is one.
    fn answer_key(&self, key: &str, answer: &KeptAnswer) -> Result<(), Error>;
    /// Forgets a key without an answer.
    fn forget_key(&self, key: &str) -> Result<(), Error>;
    /// Deletes some that are older; how many.
    fn prune_keys(&self, oldest: Timestamp, most: usize) -> Result<usize, Error>;
    /// The last call of a slot: number and answer.
    fn call(&self, slot: &str) -> Result<Option<(u64, String)>, Error>;
    fn put_call(&self, slot: &str, number: u64, answer: &str, now: Timestamp) -> Result<(), Error>;
    fn prune_calls(&self, oldest: Timestamp) -> Result<(), Error>;
}

/// A stream below `streams/`. Its entries before `base` are those of its source.
#[derive(Debug, Clone)]
pub struct PublicRow {
    pub key: i64,
    pub name: String,
    pub content_type: String,
    pub entries: u64,
    pub closed: bool,
    /// In seconds.
    pub ttl: Option<i64>,
    pub expires_at: Option<Timestamp>,
    pub last_seq: Option<String>,
    pub source: Option<i64>,
    pub base: u64,
    /// The fork as it was asked for, as JSON.
    pub asked: Option<String>,
    /// Streams that refer to this one.
    pub forks: u64,
    /// Deleted, and kept for its forks.
    pub gone: bool,
}

pub trait PublicStreams {
    fn public(&self, name: &str) -> Result<Option<PublicRow>, Error>;
    fn public_by_key(&self, key: i64) -> Result<PublicRow, Error>;
    /// Those whose names begin so and whose keys are lower, by falling key; none that is kept for its forks only.
    fn list_public(&self, prefix: &str, before: i64, limit: u32) -> Result<Vec<PublicRow>, Error>;
    /// Its key. Entries are set by [`PublicStreams::update_public`].
    fn insert_public(&self, stream: &PublicRow) -> Result<i64, Error>;
    /// Entries, closed, last sequence and end.
    fn update_public(&self, stream: &PublicRow) -> Result<(), Error>;
    fn count_fork(&self, key: i64, by: i64) -> Result<(), Error>;
    fn set_public_gone(&self, key: i64) -> Result<(), Error>;
    /// Takes its name away, so that it is cleaned up; its source.
    fn unname_public(&self, key: i64) -> Result<Option<i64>, Error>;
    fn expired(&self, now: Timestamp, most: usize) -> Result<Vec<i64>, Error>;
    fn next_expiry(&self) -> Result<Option<Timestamp>, Error>;
    /// One that has lost its name.
    fn nameless(&self) -> Result<Option<i64>, Error>;
    fn delete_public(&self, key: i64) -> Result<(), Error>;
    /// What is known of a producer, under the same id.
    fn producer(&self, stream: i64, id: &str) -> Result<Option<Producer>, Error>;
    fn put_producer(&self, stream: i64, producer: &Producer) -> Result<(), Error>;
    /// Deletes some producers of a stream; how many.
    fn delete_producers(&self, stream: i64, most: usize) -> Result<usize, Error>;
}

/// The entries of streams below `streams/`: bytes, numbered from 0.
pub trait Appends {
    fn insert_append(&self, stream: i64, number: u64, body: &[u8]) -> Result<(), Error>;
    /// Calls `see` with each entry from `from` to before `to` until that returns false. False when it did.
    fn appends(&self, stream: i64, from: u64, to: u64, see: &mut dyn FnMut(&[u8]) -> bool) -> Result<bool, Error>;
    /// Numbers and bytes of the first entries that are left.
    fn append_sizes(&self, stream: i64, most: usize) -> Result<Vec<(u64, u64)>, Error>;
    /// Deletes all up to this number.
    fn delete_appends(&self, stream: i64, last: u64) -> Result<(), Error>;
}

/// A blob without its bytes.
#[derive(Debug, Clone, Copy)]
pub struct BlobRow {
    pub key: i64,
    /// Bytes in all, and bytes that are there.
    pub length: u64,
    pub stored: u64,
}

/// Bytes by their digest.
pub trait Blobs {
    fn blob(&self, digest: &str) -> Result<Option<BlobRow>, Error>;
    fn insert_blob(&self, digest: &str, length: u64, now: Timestamp) -> Result<BlobRow, Error>;
    /// A piece that begins at byte `offset`.
    fn insert_piece(&self, blob: i64, offset: u64, bytes: &[u8], now: Timestamp) -> Result<(), Error>;
    /// Calls `see` with the offset and bytes of each piece that ends after `from`, in order, until that returns false.
    fn pieces(&self, blob: i64, from: u64, see: &mut dyn FnMut(u64, &[u8]) -> bool) -> Result<(), Error>;
    fn touch_blob(&self, blob: i64, now: Timestamp) -> Result<(), Error>;
    /// Deletes the pieces, to begin anew.
    fn clear_blob(&self, blob: i64) -> Result<(), Error>;
    /// Notes that an event names a blob.
    fn refer_to_blob(&self, digest: &str, event: i64) -> Result<(), Error>;
    /// Some that no event names and nobody has touched since.
    /// Notes that an event of a submission names the output of a tool.
    fn refer_to_output(&self, digest: &str, submission: i64) -> Result<(), Error>;
    /// A blob that is an output of the stream's submissions, by the first digits of its digest.
    fn output(&self, stream: &str, id: &str) -> Result<Option<BlobRow>, Error>;
    fn outputs_of(&self, submission: i64) -> Result<Vec<Output>, Error>;
    fn unused_blobs(&self, before: Timestamp, most: usize) -> Result<Vec<i64>, Error>;
    fn delete_blob(&self, blob: i64) -> Result<(), Error>;
    /// Bytes of all blobs.
    fn blob_bytes(&self) -> Result<u64, Error>;
}

/// What model calls have used, by scope: a day or a session.
pub trait Budgets {
    /// All that counts against the caps of a scope, reservations included.
    fn budget(&self, scope: &str) -> Result<Amount, Error>;
    fn add_to_budget(&self, scope: &str, amount: Amount, now: Timestamp) -> Result<(), Error>;
    fn reservation(&self, id: &str) -> Result<Option<ReservationRow>, Error>;
    fn insert_reservation(&self, row: &ReservationRow, now: Timestamp) -> Result<(), Error>;
    fn delete_reservation(&self, id: &str) -> Result<(), Error>;
    /// The sum of the reservations of a scope that were made after a time.
    fn reserved(&self, scope: &str, after: Timestamp) -> Result<Amount, Error>;
    fn prune_reservations(&self, before: Timestamp) -> Result<(), Error>;
    fn prune_budgets(&self, before: Timestamp) -> Result<(), Error>;
}

/// Tokens, and what they cost in billionths of a US dollar. Negative where a reservation was too high.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    pub tokens: i64,
    pub cost: i64,
}

/// What a call may use at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservationRow {
    pub id: String,
    pub day: String,
    pub session: Option<String>,
    pub amount: Amount,
    /// Of the tokens, those of the answer.
    pub output_tokens: i64,
}

/// Notes of instances, by kind and name.
pub trait Notes {
    fn put_note(&self, stream: i64, note: &PutNote, now: Timestamp) -> Result<(), Error>;
    fn delete_note(&self, stream: i64, kind: NoteKind, name: &str) -> Result<(), Error>;
    fn notes(&self, stream: i64, kind: NoteKind) -> Result<Vec<Note>, Error>;
}

/// A request for an approval.
#[derive(Debug, Clone)]
pub struct ApprovalRow {
    pub key: i64,
    /// The submission's key, and the instance that it is of.
    pub submission: i64,
    pub session: String,
    pub call_id: String,
    pub task_id: Option<String>,
    pub record: Approval,
    /// Of the caller that has decided, and of the call that has used the grant.
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
    pub request: &'a Request,
    pub status: Status,
    pub decision: Option<&'a Decision>,
    pub now: Timestamp,
}

/// A call of a submission, and what a request about it is for.
#[derive(Debug, Clone, Copy)]
pub struct AboutCall<'a> {
    pub submission: i64,
    pub call_id: &'a str,
    pub task_id: Option<&'a str>,
    pub fingerprint: &'a str,
}

/// Requests for approvals.
pub trait Approvals {
    fn insert_approval(&self, approval: &NewApproval<'_>) -> Result<(), Error>;
    fn approval(&self, id: &str) -> Result<Option<ApprovalRow>, Error>;
    /// Those about a call, and those of its submission that were denied for the same fingerprint; newest first.
    fn approvals_about(&self, call: &AboutCall<'_>) -> Result<Vec<ApprovalRow>, Error>;
    /// The calls of a submission that were asked about.
    fn asked_calls(&self, submission: i64) -> Result<Vec<AskedCall>, Error>;
    /// One that was approved for the whole session.
    fn session_grant(&self, session: &str, fingerprint: &str) -> Result<Option<String>, Error>;
    /// Oldest first. After so many bytes of requests the others come without action and diff, and say `cut`.
    fn pending_approvals(&self, list: &ListApprovals, most: usize, bytes: usize) -> Result<Vec<Approval>, Error>;
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
    /// Pending ones whose time is over.
    fn due_approvals(&self, now: Timestamp, most: usize) -> Result<Vec<ApprovalRow>, Error>;
    fn next_due_approval(&self) -> Result<Option<Timestamp>, Error>;
    /// Deletes ended ones of settled submissions, `most` of them.
    fn prune_approvals(&self, before: Timestamp, most: usize) -> Result<usize, Error>;
}

/// How many runs of a schedule wait, and how many are worked on.
pub type ActiveRuns = (u64, u64);

/// A schedule.
#[derive(Debug, Clone)]
pub struct ScheduleRow {
    pub key: i64,
    pub id: String,
    pub slug: String,
    /// The scope of the session whose agent made it; the operator's have none.
    pub owner: Option<i64>,
    pub generation: u64,
    pub settings: Settings,
    pub prompt: String,
    pub payload: Option<Value>,
    pub enabled: bool,
    pub progress: Progress,
    pub last_fired: Option<i64>,
    pub last_status: Option<RunState>,
    /// Failed runs in a row.
    pub failures: u32,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub deleted: bool,
}

/// A schedule that was taken on.
#[derive(Debug)]
pub struct FiredRow {
    pub key: i64,
    pub slug: String,
}

/// The record of a run as it begins.
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

/// A run of a schedule.
#[derive(Debug, Clone)]
pub struct ScheduleRunRow {
    pub key: i64,
    pub id: String,
    pub schedule: i64,
    pub schedule_id: String,
    pub generation: u64,
    pub slot_at: Option<i64>,
    pub trigger: Trigger,
    pub status: RunState,
    pub attempt: u32,
    /// It is not admitted earlier.
    pub not_before: i64,
    /// How long it may take from its admission on.
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

    /// As the contract shows it.
    pub fn shown(self) -> ScheduleRun {
        let instance = self.instance();
        ScheduleRun {
            instance_id: instance.clone(),
            session_id: instance,
            run_id: self.id,
            schedule_id: self.schedule_id,
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

/// Schedules and their runs.
pub trait Schedules {
    /// One that is not deleted.
    fn schedule_by_slug(&self, slug: &str) -> Result<Option<ScheduleRow>, Error>;
    fn schedule_by_key(&self, key: i64) -> Result<ScheduleRow, Error>;
    fn count_schedules(&self) -> Result<u64, Error>;
    fn insert_schedule(&self, schedule: &ScheduleRow) -> Result<i64, Error>;
    /// Everything but the key, the id and the time of creation.
    fn update_schedule(&self, schedule: &ScheduleRow) -> Result<(), Error>;
    /// Takes a schedule on from the mark and the generation that are named, and notes when it fired if it does; none when it has
    /// others, is paused or was deleted.
    fn advance_schedule(&self, fire: &Fire, fired: Option<i64>) -> Result<Option<FiredRow>, Error>;
    /// By slug.
    fn list_schedules(&self, owner: Option<i64>) -> Result<Vec<ScheduleSummary>, Error>;
    /// Its slug is free from here on.
    fn mark_schedule_deleted(&self, key: i64, now: Timestamp) -> Result<(), Error>;
    /// Deletes some schedules with their runs that were marked before; how many.
    fn drop_schedules(&self, before: Timestamp, most: usize) -> Result<usize, Error>;
    /// Those whose next slot has come, the first to fire first.
    fn due_schedules(&self, now: i64, most: usize) -> Result<Vec<Due>, Error>;
    fn next_fire(&self) -> Result<Option<i64>, Error>;
    /// False when the slot has its record already.
    fn insert_schedule_run(&self, run: &NewScheduleRun<'_>) -> Result<bool, Error>;
    fn schedule_run(&self, id: &str) -> Result<Option<ScheduleRunRow>, Error>;
    /// The slug is that of its schedule, deleted or not.
    fn schedule_run_of_slug(&self, slug: &str, id: &str) -> Result<Option<ScheduleRun>, Error>;
    fn schedule_run_of_submission(&self, id: &str) -> Result<Option<ScheduleRunRow>, Error>;
    /// What changes while it runs.
    fn update_schedule_run(&self, run: &ScheduleRunRow) -> Result<(), Error>;
    /// By the id of the schedule; without those that have none.
    fn active_schedule_runs(&self) -> Result<Vec<(String, ActiveRuns)>, Error>;
    fn queued_schedule_runs(&self, schedule: i64) -> Result<Vec<ScheduleRunRow>, Error>;
    /// Runs of all schedules that are worked on.
    fn working_schedule_runs(&self) -> Result<Vec<ScheduleRunRow>, Error>;
    fn count_working_schedule_runs(&self) -> Result<u64, Error>;
    /// The oldest that waits, may be admitted now, and whose schedule has no other that is worked on.
    fn next_schedule_run(&self, now: i64) -> Result<Option<ScheduleRunRow>, Error>;
    /// When the next run may be tried again that may not be now.
    fn next_schedule_retry(&self, now: i64) -> Result<Option<i64>, Error>;
    /// Newest first, strictly before a key; each with its key, its text cut to so many characters.
    fn list_schedule_runs(
        &self,
        schedule: i64,
        before: i64,
        limit: u32,
        text: usize,
    ) -> Result<Vec<(i64, ScheduleRun)>, Error>;
    /// Deletes the oldest terminal runs of a schedule but so many.
    fn prune_schedule_runs(&self, schedule: i64, keep: usize) -> Result<(), Error>;
}

/// Numbers that only grow, and single values, by name.
pub trait Counters {
    fn count_up(&self, name: &str) -> Result<(), Error>;
    /// Those whose names begin so, without that beginning.
    fn counters(&self, prefix: &str) -> Result<Vec<(String, u64)>, Error>;
    fn fact(&self, name: &str) -> Result<Option<String>, Error>;
    fn set_fact(&self, name: &str, value: &str) -> Result<(), Error>;
}

/// An update of the messaging platform.
#[derive(Debug, Clone, Copy)]
pub struct NewUpdate<'a> {
    pub id: i64,
    pub kind: &'a str,
    pub sender: Option<&'a str>,
    pub chat: Option<&'a str>,
    pub verdict: &'a str,
    pub reason: Option<&'a str>,
    /// The code that its sender was told.
    pub code: Option<&'a str>,
}

/// A code and what became of it: `pending`, `approved` or `denied`.
#[derive(Debug, Clone)]
pub struct PairingRow {
    pub pairing: Pairing,
    pub state: String,
}

/// What the messaging connector keeps.
pub trait Messenger {
    /// The code that goes with an update, if the update is known.
    fn update(&self, id: i64) -> Result<Option<Option<String>>, Error>;
    fn update_record(&self, id: i64) -> Result<Option<UpdateRecord>, Error>;
    fn insert_update(&self, update: &NewUpdate<'_>, now: Timestamp) -> Result<(), Error>;
    /// Newest first.
    fn updates(&self, unanswered: bool, limit: u32) -> Result<Vec<UpdateRecord>, Error>;
    /// Deletes some that are older; how many.
    fn prune_updates(&self, before: Timestamp, most: usize) -> Result<usize, Error>;
    fn allowed_user(&self, user: &str) -> Result<Option<AllowedUser>, Error>;
    /// In the order in which they were added.
    fn allowed_users(&self) -> Result<Vec<AllowedUser>, Error>;
    fn put_allowed_user(&self, user: &str, chat: &str, now: Timestamp) -> Result<(), Error>;
    fn delete_allowed_user(&self, user: &str) -> Result<(), Error>;
    fn group(&self, id: &str) -> Result<Option<Group>, Error>;
    fn groups(&self) -> Result<Vec<Group>, Error>;
    fn put_group(&self, group: &Group) -> Result<(), Error>;
    /// False when there was none.
    fn delete_group(&self, id: &str) -> Result<bool, Error>;
    fn pairing(&self, code: &str) -> Result<Option<PairingRow>, Error>;
    /// Those that are not decided and valid beyond a time, oldest first.
    fn pending_pairings(&self, beyond: Timestamp) -> Result<Vec<Pairing>, Error>;
    fn pairings_since(&self, then: Timestamp) -> Result<u64, Error>;
    fn insert_pairing(&self, pairing: &Pairing) -> Result<(), Error>;
    fn count_pairing_reply(&self, code: &str) -> Result<(), Error>;
    fn set_pairing_state(&self, code: &str, state: &str) -> Result<(), Error>;
    /// Chats of updates whose turn is in this state.
    fn busy_chats(&self, state: State) -> Result<Vec<BusyChat>, Error>;
}

/// A message of the outbox.
#[derive(Debug, Clone)]
pub struct MessageRow {
    pub id: i64,
    pub message: PutMessage,
    pub state: MessageState,
    /// The next piece.
    pub piece: u32,
    /// Whether the end of an earlier piece is not known.
    pub doubtful: bool,
    pub tries: u32,
    pub due_at: Timestamp,
    pub created_at: Timestamp,
    /// The platform's id of the last piece.
    pub message_id: Option<String>,
    pub error: Option<String>,
    /// Set for a message that is or was a draft.
    pub shown: Option<Shown>,
}

impl MessageRow {
    /// Whether something of it is left to be sent.
    pub fn is_live(&self) -> bool {
        matches!(self.state, MessageState::Pending | MessageState::Sending)
    }
}

/// Messages on their way to a chat.
pub trait Outbox {
    fn message(&self, id: i64) -> Result<Option<MessageRow>, Error>;
    fn message_by_key(&self, key: &str) -> Result<Option<MessageRow>, Error>;
    fn insert_message(&self, message: &PutMessage, now: Timestamp) -> Result<i64, Error>;
    /// The oldest live message of each chat, and when it is due.
    fn heads(&self, connector: &str) -> Result<Vec<(i64, Timestamp)>, Error>;
    /// Everything but the message itself.
    fn update_message(&self, row: &MessageRow) -> Result<(), Error>;
    /// The message itself, and since when it is to be sent.
    fn rewrite_message(&self, id: i64, message: &PutMessage, created_at: Timestamp) -> Result<(), Error>;
    /// Newest first.
    fn list_messages(&self, connector: &str, limit: u32) -> Result<Vec<MessageRecord>, Error>;
    fn live_messages(&self, connector: &str) -> Result<u64, Error>;
    /// Deletes some that are finished and older; how many.
    fn prune_messages(&self, before: Timestamp, most: usize) -> Result<usize, Error>;
}

/// Governing rules of users, by name. A rule is JSON.
pub trait GoverningRules {
    fn put_rule(&self, name: &str, rule: &Value, now: Timestamp) -> Result<(), Error>;
    /// All, by name, or only those that are switched on.
    fn governing_rules(&self, only_enabled: bool) -> Result<Vec<StoredRule>, Error>;
    /// False for an unknown name.
    fn switch_rule(&self, name: &str, enabled: bool, now: Timestamp) -> Result<bool, Error>;
    fn delete_rule(&self, name: &str) -> Result<bool, Error>;
}
