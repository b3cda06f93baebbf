//! The operations of `ken-store`, which holds all durable state. An answer means that the change is on disk.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::documents::Used;
use super::rules::StoredRule;
use super::streams::PublicPage;
use super::telemetry::ByWork;
use super::{Nothing, Page};
use crate::event::{Failure, Outcome, TurnResult};
use crate::id::{EventId, Origin, SessionId, SubmissionId};
use crate::{Error, Offset, Timestamp};

crate::operations! {
    /// Creates a session, and its stream, with an id that the caller has minted. A known id gets its first answer again.
    SessionsCreate, "sessions.create": CreateSession => OpenSession;
    /// Finds a session of the scope by its id or name; if there is none and `fresh` is set, creates one. `forbidden` for an id of
    /// another scope, `conflict` for a name that two sessions have. An archived session that is named by its id is restored.
    SessionsResume, "sessions.resume": ResumeSession => OpenSession;
    /// Lists sessions, the newest `updatedAt` first.
    SessionsList, "sessions.list": ListSessions => SessionPage;
    /// One page of exchanges: the whole body of the HTTP answer (gateway-http 5.4), ready to be sent.
    SessionsTranscript, "sessions.transcript": ReadTranscript => Box<RawValue>;
    /// The scope of a session.
    SessionsScope, "sessions.scope": BySession => Scope;
    /// Stops the running submission, or the named one.
    SessionsCancel, "sessions.cancel": CancelSession => Cancelled;
    /// Removes a session from lists and from the search by name; `conflict` while a turn runs or waits.
    SessionsArchive, "sessions.archive": OwnedSession => Nothing;

    /// Stores an incoming message or command: event, session and submission in one transaction. The event is stored even if the
    /// session is refused; see [`Accepted::refused`]. A known event id gets its first answer again.
    ChatAccept, "chat.accept": Accept => Accepted;

    /// Admits a prompt to an instance, which need not be a session. `conflict` under policy `reject`, `busy` if its queue is full.
    SubmissionsAdmit, "submissions.admit": Admit => Admitted;
    /// The status of a submission. Waits at most `wait_ms` until it is settled; does not wait while the store cannot write.
    SubmissionsWait, "submissions.wait": WaitSubmission => SubmissionStatus;
    /// Claims work under leases, and waits for some. Leases belong to the connection of this call and end with it, unless
    /// `submissions.renew` has moved them to another connection.
    SubmissionsClaim, "submissions.claim": ClaimSubmissions => Claims;
    /// Renews leases and moves them to the connection of this call. The reply names those that were lost.
    SubmissionsRenew, "submissions.renew": RenewLeases => LostLeases;
    /// Appends events of a running submission. `conflict` if the lease is not the newest: the caller must stop. Events whose index
    /// is already stored are dropped, so a repetition writes nothing twice.
    SubmissionsAppend, "submissions.append": AppendEvents => Appended;
    /// Stores the last events, outcome and result of a submission in one transaction. If it is settled already, the first answer is
    /// repeated.
    SubmissionsSettle, "submissions.settle": SettleSubmission => Appended;
    /// Ends the running and all waiting submissions of an instance.
    SubmissionsAbort, "submissions.abort": OfInstance => AbortedSubmissions;
    /// The newest settled exchanges of an instance before a submission, oldest first, and the summary of those before them.
    SubmissionsHistory, "submissions.history": ReadHistory => History;
    /// The claim of a submission that has ended, as its first holder got it. `conflict` for one that has not ended.
    SubmissionsRecord, "submissions.record": ByWork => Claim;

    /// Reads entries strictly after an offset, at most 100 and 1 MiB; waits up to `wait_ms` while there are none. `not_found` for an
    /// unknown stream; `conflict` for a deleted one that is kept only for its forks.
    StreamsRead, "streams.read": ReadStream => StreamPage;

    /// Adds an entry, or updates the `updatedAt` of the same entry. It can be found as soon as this replies.
    KnowledgePut, "knowledge.put": PutKnowledge => KnowledgeRecord;
    KnowledgeGet, "knowledge.get": ById => KnowledgeRecord;
    KnowledgeDelete, "knowledge.delete": ById => Nothing;
    /// Lists entries, newest first; with `q`, best match first.
    KnowledgeList, "knowledge.list": ListKnowledge => KnowledgePage;
    /// Searches the entries that a turn of this scope may use: global ones and those of the same actor and conversation.
    KnowledgeSearch, "knowledge.search": Search => Found<KnowledgeRecord>;
    /// Starts to rebuild the index, or returns the job that is doing so.
    KnowledgeReindex, "knowledge.reindex": KeyedJob => Job;
    KnowledgeJob, "knowledge.job": ById => Job;
    /// Searches past exchanges of the same connector and actor: in all conversations that the actor has alone with the agent, or, if
    /// others have written in this conversation too, in it only.
    MemorySearch, "memory.search": Search => Found<PastExchange>;

    /// Writes a note of an instance and replaces the one of the same name; an empty note is deleted. `not_found` for an instance
    /// without a stream, `conflict` if there are 64 notes of its kind already.
    NotesPut, "notes.put": PutNote => Nothing;
    /// Lists the notes of one kind, by name.
    NotesList, "notes.list": ListNotes => Notes;

    /// Opens or finds an idempotency key. `conflict` if it belongs to another body, unless it ended as `not_reached`.
    KeysBegin, "keys.begin": BeginKey => KeyState;
    /// Records the outcome of the request with a key. The first stored answer stays.
    KeysFinish, "keys.finish": FinishKey => Nothing;
}

/// On whose behalf work is done: a session belongs to exactly one scope. An absent `threadId` equals only an absent one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scope {
    pub connector: String,
    pub actor_id: String,
    pub conversation_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BySession {
    pub session_id: String,
}

/// A session as lists show it.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    pub session_id: SessionId,
    pub origin: Origin,
    pub connector: String,
    pub actor_id: String,
    pub conversation_id: String,
    pub thread_id: Option<String>,
    /// The automatic title: the first visible prompt, with blanks collapsed, cut to 80 characters.
    pub title: Option<String>,
    /// The name that a person gave it.
    pub display_name: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub archived_at: Option<Timestamp>,
}

/// A session as the answers of `/api/chat` show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenSession {
    pub id: SessionId,
    /// `tui`, `web` or `connector`.
    pub surface: Origin,
    /// Whether this call, or its first attempt, created the session.
    pub created: bool,
    /// The name that a person gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateSession {
    pub scope: Scope,
    pub id: SessionId,
    pub origin: Origin,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResumeSession {
    pub scope: Scope,
    pub selector: String,
    /// Created if the scope has no such session; if absent, that is `not_found`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fresh: Option<FreshSession>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FreshSession {
    pub id: SessionId,
    pub origin: Origin,
}

/// Names a session by its id, on behalf of a scope: `not_found` if it is unknown, `forbidden` if it belongs to another scope.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnedSession {
    /// If absent, the session may belong to any scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    pub id: SessionId,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListSessions {
    /// If absent, the sessions of all scopes are listed.
    pub scope: Option<Scope>,
    #[serde(default)]
    pub archived: bool,
    /// Also sessions that never had a prompt; every start of a client leaves one.
    #[serde(default)]
    pub empty: bool,
    /// Only sessions whose name, title or id holds each of these words, in any case.
    pub q: Option<String>,
    #[serde(default = "fifty")]
    pub limit: u32,
    /// A cursor of an earlier page of the same list; another one is `invalid` at `?after`.
    pub after: Option<String>,
}

fn fifty() -> u32 {
    50
}

fn twenty() -> u32 {
    20
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionPage {
    pub sessions: Vec<Session>,
    pub page: Page,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadTranscript {
    pub scope: Scope,
    pub id: SessionId,
    #[serde(default = "fifty")]
    pub limit: u32,
    /// A cursor of this session's transcript; another one is `invalid` at `?before`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelSession {
    pub scope: Scope,
    pub id: SessionId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission_id: Option<SubmissionId>,
}

/// The submission that was stopped, if one was running.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cancelled {
    pub submission_id: Option<SubmissionId>,
}

/// An incoming message or command, and what to do with it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accept {
    pub event: InboundEvent,
    pub target: Target,
    pub action: Action,
}

/// The record of an incoming message. Its fields can be trusted, except the text.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InboundEvent {
    pub id: EventId,
    pub scope: Scope,
    /// `chat.message` or `session-command`.
    pub kind: String,
    pub text: String,
    pub received_at: Timestamp,
    /// `actorDisplayName`, `clientId`, `projectId`, `workflow`, `task` and `model`, if given. The `workflow`
    /// `tui.startup-preflight` marks an internal prompt, which transcripts and titles leave out.
    pub context: Option<Value>,
    /// Data of the connector that is stored with the event: JSON as text, so that it may nest as deep as a request body and still
    /// fits into a line of the wire.
    pub raw: Option<String>,
}

/// The session of an incoming message.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// None, for `/help` and unknown commands.
    None,
    /// A new session.
    Fresh(FreshSession),
    /// The session of the scope with this id, else with exactly this name; the errors are those of `sessions.resume`.
    Selector(String),
    /// Like `Selector`, but an unknown session is created with exactly this id: web clients may choose their own.
    SelectorOrNew(FreshSession),
    /// The newest session of the scope that is not archived, else this new one; for the messenger.
    Active(FreshSession),
}

/// What to do with an incoming message in its session.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Only store the event and find the session.
    Find,
    Prompt {
        submission_id: SubmissionId,
        policy: Policy,
    },
    /// Give the session a name.
    Name {
        name: String,
    },
    /// Compact the history, in queue order.
    Compact {
        submission_id: SubmissionId,
    },
}

/// What happens to a prompt while another turn runs or waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// It waits for its turn.
    #[default]
    Queue,
    /// It is refused with `conflict`.
    Reject,
    /// It aborts the running turn and runs next; the others keep their order.
    Interrupt,
}

/// The outcome of an incoming message: either `refused` or the session and the submission.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Accepted {
    pub event_id: EventId,
    pub received_at: Timestamp,
    /// `forbidden`, `not_found`, `conflict` (an ambiguous name, or policy `reject` on a busy session) or `busy`. Only the event was
    /// stored.
    pub refused: Option<Error>,
    pub session: Option<OpenSession>,
    /// The end of the session's stream before the events of this message.
    pub offset: Option<Offset>,
    /// The submission of a prompt or a compaction.
    pub submission: Option<Admission>,
}

/// An admitted submission, and the end of its stream before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    pub submission_id: SubmissionId,
    pub offset: Offset,
}

/// The outcome of `submissions.admit`. A known id gets its first answer again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Admitted {
    Accepted(Admission),
    /// `conflict` under policy `reject`, or `busy`.
    Refused {
        refused: Error,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Admit {
    /// The instance of the orchestrator: 1 to 1,024 bytes. If it is the id of a session, the prompt belongs to that session.
    pub instance: String,
    pub submission_id: SubmissionId,
    pub message: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// Digests of blobs that this prompt names; they are kept as long as the prompt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blobs: Vec<String>,
    #[serde(default)]
    pub policy: Policy,
    /// The only model that may answer, as `provider/model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Image {
    /// `image`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Base64.
    pub data: String,
    pub mime_type: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitSubmission {
    pub submission_id: SubmissionId,
    #[serde(default)]
    pub wait_ms: u64,
    /// Also reply when the submission starts to wait for a decision.
    #[serde(default)]
    pub or_waiting: bool,
}

crate::named! {
    /// The state of a submission.
    pub enum State {
        Queued = "queued",
        Running = "running",
        /// It waits for a decision.
        Waiting = "waiting",
        Completed = "completed",
        Failed = "failed",
        Aborted = "aborted",
    }
}

impl State {
    pub fn is_settled(self) -> bool {
        matches!(self, State::Completed | State::Failed | State::Aborted)
    }
}

/// The status of a submission.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SubmissionStatus {
    pub submission_id: SubmissionId,
    pub state: State,
    /// The result, also the partial one of an aborted turn.
    pub result: Option<TurnResult>,
    /// `provider`, `defect`, `timeout`, `retry_exhausted`, `interrupted` or `aborted`.
    pub error: Option<Failure>,
    pub context_usage: Option<Value>,
    /// The ids of the approvals that it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<String>,
    /// Why nothing progresses at the moment: the store cannot write, and this is the reason.
    pub stalled: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimSubmissions {
    /// The program and the process id of the holder, for people.
    pub holder: String,
    #[serde(default)]
    pub work: Work,
    /// The most submissions to claim, 0 to 64; with 0 only aborts are delivered.
    pub max: u32,
    #[serde(default)]
    pub wait_ms: u64,
}

/// The kinds of work that a holder can claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// Prompts and compactions of the orchestrator.
    #[default]
    Turns,
    /// Workflows. A run is a submission with the run's id, whose text is its payload as JSON.
    Runs,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Claims {
    pub claims: Vec<Claim>,
    /// Leases of this connection whose submissions are to be ended as aborted, each delivered once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aborts: Vec<Lease>,
}

/// The right to write for one submission. A lease is void as soon as there is one with a higher number.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    pub submission_id: SubmissionId,
    pub number: u64,
}

/// One submission to do or to continue.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Claim {
    pub lease: Lease,
    /// The number of the claim, from 1.
    pub attempt: u32,
    pub kind: SubmissionKind,
    /// For a run, its id.
    pub instance: String,
    /// For a run only.
    pub workflow: Option<String>,
    /// The name of its stream.
    pub stream: String,
    pub text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// Absent for an instance without an actor, which finds global entries only.
    pub scope: Option<Scope>,
    pub context: Option<Value>,
    /// The kind of the stored event: `chat.message`, `agent.prompt`, …
    #[serde(default)]
    pub message_kind: String,
    /// The index of its next event: 0 on the first attempt; later attempts continue after the recorded events.
    pub next_event_index: u64,
    /// The offset before its first recorded event. A later attempt reads from here to find out where to continue.
    pub recorded_from: Offset,
    /// The timestamp of the newest event in the stream; later events must not be earlier.
    pub last_timestamp: Option<Timestamp>,
    /// How long it may still run, in milliseconds.
    pub time_left_ms: i64,
    /// If set, the submission must be ended for this reason instead of continued.
    pub verdict: Option<Verdict>,
}

crate::named! {
    pub enum SubmissionKind {
        Prompt = "prompt",
        Compact = "compact",
        /// A run of a workflow.
        Workflow = "workflow",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Abort,
    RetryExhausted,
    Timeout,
}

impl Verdict {
    pub fn outcome(self) -> Outcome {
        match self {
            Verdict::Abort => Outcome::Aborted,
            Verdict::RetryExhausted | Verdict::Timeout => Outcome::Failed,
        }
    }

    /// The error of a turn with this verdict.
    pub fn of_turn(self) -> Failure {
        let (name, message) = match self {
            Verdict::Abort => ("aborted", "The turn was aborted."),
            Verdict::RetryExhausted => ("retry_exhausted", "The turn was started 10 times and did not end."),
            Verdict::Timeout => ("timeout", "The turn passed its time limit of one hour."),
        };
        Failure::new(name, message)
    }

    /// The error of a run with this verdict.
    pub fn of_run(self) -> Failure {
        let (name, message) = match self {
            Verdict::Abort => ("Aborted", "The run was aborted."),
            Verdict::RetryExhausted => ("RetryExhausted", "The run was started 10 times and did not end."),
            Verdict::Timeout => ("Timeout", "The run passed its time limit of one hour."),
        };
        Failure::new(name, message)
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenewLeases {
    pub holder: String,
    pub leases: Vec<Lease>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LostLeases {
    pub lost: Vec<Lease>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppendEvents {
    pub lease: Lease,
    /// The index of the first event; the others follow without a gap.
    pub first_index: u64,
    /// Whole events, each at most 256 KiB, beginning with `{"v":1,"type":…`.
    pub events: Vec<Box<RawValue>>,
}

/// The end of the stream.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Appended {
    pub offset: Offset,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettleSubmission {
    pub lease: Lease,
    pub first_index: u64,
    pub events: Vec<Box<RawValue>>,
    pub outcome: Outcome,
    pub result: Option<TurnResult>,
    pub error: Option<Failure>,
    pub context_usage: Option<Value>,
    /// For a compaction, the summary that replaces all exchanges before this submission.
    pub summary: Option<String>,
    /// The ids of the knowledge entries that it used, and how it used them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub used: Vec<(String, Used)>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfInstance {
    pub instance: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AbortedSubmissions {
    pub submission_ids: Vec<SubmissionId>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadHistory {
    pub instance: String,
    pub before: SubmissionId,
    #[serde(default = "fifty")]
    pub limit: u32,
    /// The newest exchange that the caller already has. Only later ones are returned, unless a compaction has replaced it since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<SubmissionId>,
    /// A search of knowledge and memory that is made in the same read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<Search>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct History {
    /// The summary of the newest compaction; the exchanges are those after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    pub exchanges: Vec<PastExchange>,
    /// Whether `exchanges` are only those after [`ReadHistory::after`]. If not, they replace what the caller has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continues: bool,
    /// The number of all settled exchanges of the instance, and of its compactions.
    pub turns: u64,
    pub compactions: u64,
    /// The results of the search, if there was one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<Match<KnowledgeRecord>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remembered: Vec<Match<PastExchange>>,
    /// The governing rules of users that are switched on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<StoredRule>,
}

/// A prompt and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PastExchange {
    /// The submission's id.
    pub id: SubmissionId,
    pub instance: String,
    pub prompt: String,
    pub answer: String,
    pub at: Timestamp,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadStream {
    /// The name of the stream: `agents/orchestrator/<instance>`, `runs/<run>`, `streams/<path>`.
    pub stream: String,
    #[serde(default = "start")]
    pub offset: Offset,
    /// The maximum number of entries; 100 by default.
    #[serde(default = "page_events")]
    pub limit: u32,
    /// The maximum size of the entries in bytes, up to 1 MiB. A larger entry is returned alone.
    #[serde(default = "page_bytes")]
    pub max_bytes: u32,
    /// Start this many entries before the end; only with offset `-1`.
    pub tail: Option<u64>,
    /// How long to wait for the first entry, at most 600,000.
    #[serde(default)]
    pub wait_ms: u64,
    /// With `wait_ms`: how long to wait for more after the first entry.
    #[serde(default)]
    pub gather_ms: u64,
    /// Only this stream ([`StreamPage::id`]), not a later one of the same name.
    pub id: Option<u64>,
    /// Whether the read restarts the stream's time to live.
    #[serde(default)]
    pub touch: bool,
}

impl Default for ReadStream {
    /// A read from the start without waiting. The caller sets the name of the stream.
    fn default() -> ReadStream {
        ReadStream {
            stream: String::new(),
            offset: Offset::Start,
            limit: page_events(),
            max_bytes: page_bytes(),
            tail: None,
            wait_ms: 0,
            gather_ms: 0,
            id: None,
            touch: false,
        }
    }
}

fn start() -> Offset {
    Offset::Start
}

fn page_events() -> u32 {
    crate::limits::PAGE_EVENTS
}

fn page_bytes() -> u32 {
    u32::try_from(crate::limits::PAGE_BYTES).unwrap_or(u32::MAX)
}

/// Entries of a stream, and its state at the same instant.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StreamPage {
    /// The number of entries before the first of `entries`.
    pub start: u64,
    /// The number of entries before the position to continue from.
    pub next: u64,
    /// The number of entries in the stream.
    pub end: u64,
    pub closed: bool,
    pub entries: Vec<Box<RawValue>>,
    /// The id of the stream, which no other stream of its kind ever has.
    #[serde(default)]
    pub id: u64,
    /// For a stream below `streams/` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public: Option<PublicPage>,
}

impl StreamPage {
    pub fn is_empty(&self) -> bool {
        self.next == self.start
    }

    /// Whether the page reaches the end of the stream.
    pub fn at_end(&self) -> bool {
        self.next == self.end
    }
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PutKnowledge {
    pub title: String,
    pub content: String,
    #[serde(default)]
    pub tags: Vec<String>,
    pub actor_id: Option<String>,
    pub conversation_id: Option<String>,
    /// `api`, `agent`, or the origin of a document: `import`, `share` or `workspace`.
    pub source: String,
    pub created_by: String,
}

/// A knowledge entry as the HTTP contract shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KnowledgeRecord {
    /// `kb-` and 32 hexadecimal digits: a digest of actor, conversation, title and content.
    pub id: String,
    pub title: String,
    pub content: String,
    pub source: String,
    pub actor_id: String,
    pub conversation_id: String,
    /// `global`, `actor` or `conversation`.
    pub scope: String,
    pub tags: Vec<String>,
    /// For a piece of a document: `path`, `line`, and `folder` if it was imported.
    pub metadata: Value,
    pub created_by: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// 0 to 1; only in the answer to a query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ById {
    pub id: String,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListKnowledge {
    pub q: Option<String>,
    #[serde(default = "twenty")]
    pub limit: u32,
    pub after: Option<String>,
    pub actor_id: Option<String>,
    pub conversation_id: Option<String>,
    /// `api`, `agent`, `import`, `share` or `workspace`. If absent: with `q` all, else all but the last two, which are files that
    /// nobody has added.
    pub source: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KnowledgePage {
    pub records: Vec<KnowledgeRecord>,
    pub page: Page,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Search {
    /// Words; stop words are dropped and at most eight terms count.
    pub query: String,
    /// If absent, only global entries and no past exchanges are found.
    pub scope: Option<Scope>,
    #[serde(default = "five")]
    pub limit: u32,
    /// The query as a vector, by which knowledge is ranked too.
    pub vector: Option<QueryVector>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueryVector {
    /// The model that made it. It is compared with vectors of the same model only.
    pub model: String,
    pub values: Vec<f32>,
}

fn five() -> u32 {
    5
}

/// Best first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Found<T> {
    pub found: Vec<Match<T>>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Match<T> {
    /// 0 to 1: the share of the query's terms that the entry holds, weighted by how rare they are.
    pub score: f64,
    pub entry: T,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyedJob {
    /// A ULID: the id of the job if this call starts one.
    pub id: String,
    /// Whether the documents of the installation and of the workspace are read again first.
    #[serde(default)]
    pub documents: bool,
}

/// A job of the knowledge index.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    pub job_id: String,
    /// `queued`, `running`, `ok` or `error`.
    pub status: String,
    pub done: u64,
    pub total: u64,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub error: Option<String>,
}

/// A note that an agent keeps while it works for an instance.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutNote {
    pub instance: String,
    pub kind: NoteKind,
    /// 1 to 120 characters, none of them control characters.
    pub name: String,
    /// At most 64 KiB. For a checklist, its items as JSON.
    pub body: String,
}

crate::named! {
    pub enum NoteKind {
        Note = "note",
        Checklist = "checklist",
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListNotes {
    pub instance: String,
    pub kind: NoteKind,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Notes {
    pub notes: Vec<Note>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Note {
    pub name: String,
    pub body: String,
    pub updated_at: Timestamp,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BeginKey {
    /// SHA-256 of caller, method, path and key, in hexadecimal.
    pub key: String,
    /// SHA-256 of the body, in hexadecimal.
    pub body: String,
    /// 32 hexadecimal digits: the seed if the key is new.
    pub seed: String,
    pub at: Timestamp,
}

/// The state of a key. Without an answer, the caller does the work (again), with ids that it mints from seed and time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeyState {
    pub seed: String,
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<KeptAnswer>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptAnswer {
    pub status: u16,
    pub body: String,
    /// Names and values of the headers that are specific to this answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FinishKey {
    pub key: String,
    pub end: KeyEnd,
}

/// How the work under a key ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyEnd {
    /// With an answer, which every repetition gets.
    Answered(KeptAnswer),
    /// The store refused it. The next request with the key is a new one.
    Refused,
    /// This attempt did not reach the store, but an earlier one with the same key may have: a repetition keeps the seed, and only
    /// another body makes the key a new one.
    NotReached,
}
