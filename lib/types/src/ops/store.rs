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
    /// A session with the id that the caller minted; its stream exists from here on. A known id answers as before.
    SessionsCreate, "sessions.create": CreateSession => OpenSession;
    /// An owned id or name; with `fresh`, a new session when nothing owned matches. `forbidden` for an id of another
    /// scope, `conflict` for a name that two sessions have. Brings an archived session back when named by id.
    SessionsResume, "sessions.resume": ResumeSession => OpenSession;
    /// Newest `updatedAt` first.
    SessionsList, "sessions.list": ListSessions => SessionPage;
    /// One page of exchanges: the whole body of the HTTP answer (gateway-http 5.4), ready to be sent.
    SessionsTranscript, "sessions.transcript": ReadTranscript => Box<RawValue>;
    /// On whose behalf a session is.
    SessionsScope, "sessions.scope": BySession => Scope;
    /// Stops the running submission, or the named one.
    SessionsCancel, "sessions.cancel": CancelSession => Cancelled;
    /// Takes a session out of lists and names; `conflict` while a turn runs or waits.
    SessionsArchive, "sessions.archive": OwnedSession => Nothing;

    /// A message or command that came in: event, session and submission in one transaction. The event is stored even
    /// when the session is refused; see [`Accepted::refused`]. A known event id answers as before.
    ChatAccept, "chat.accept": Accept => Accepted;

    /// A prompt straight to an instance, session or not. `conflict` under policy `reject`, `busy` when full.
    SubmissionsAdmit, "submissions.admit": Admit => Admitted;
    /// Waits until the submission is settled or waits for a decision, at most `wait_ms`; answers its status. Answers at once
    /// while the store cannot write.
    SubmissionsWait, "submissions.wait": WaitSubmission => SubmissionStatus;
    /// Work for a holder. Leases belong to the connection that this is called on: when it ends, so do they, unless
    /// `submissions.renew` on another connection has taken them along. Waits until there is something to say.
    SubmissionsClaim, "submissions.claim": ClaimSubmissions => Claims;
    /// Says that the holder lives, on the connection where it now is. Tells which leases it has lost.
    SubmissionsRenew, "submissions.renew": RenewLeases => LostLeases;
    /// Events of a running submission, in order. `conflict` when the lease is not the newest: the caller must stop.
    /// Events whose index is already there are dropped, so a repeat writes nothing twice.
    SubmissionsAppend, "submissions.append": AppendEvents => Appended;
    /// The last events, outcome and result, in one transaction. A submission that is settled answers as before.
    SubmissionsSettle, "submissions.settle": SettleSubmission => Appended;
    /// Ends the running and all waiting submissions of an instance.
    SubmissionsAbort, "submissions.abort": OfInstance => AbortedSubmissions;
    /// The newest settled exchanges of an instance before a submission, oldest first, and what was compacted before.
    SubmissionsHistory, "submissions.history": ReadHistory => History;
    /// A submission that has ended, as its first holder was given it. `conflict` for one that has not.
    SubmissionsRecord, "submissions.record": ByWork => Claim;

    /// Entries strictly after an offset, at most 100 and 1 MiB; waits up to `wait_ms` while there are none.
    /// `not_found` for a stream that is not there; `conflict` for one that is kept only for the sake of its forks.
    StreamsRead, "streams.read": ReadStream => StreamPage;

    /// Adds an entry, or moves the `updatedAt` of the same entry. Searchable when this answers.
    KnowledgePut, "knowledge.put": PutKnowledge => KnowledgeRecord;
    KnowledgeGet, "knowledge.get": ById => KnowledgeRecord;
    KnowledgeDelete, "knowledge.delete": ById => Nothing;
    /// Newest first; with `q` best match first.
    KnowledgeList, "knowledge.list": ListKnowledge => KnowledgePage;
    /// What a turn of this scope may know, best first: global entries and those of the same actor and conversation.
    KnowledgeSearch, "knowledge.search": Search => Found<KnowledgeRecord>;
    /// Starts building the index anew, or names the job that does so already.
    KnowledgeReindex, "knowledge.reindex": KeyedJob => Job;
    KnowledgeJob, "knowledge.job": ById => Job;
    /// Past exchanges of the same connector and actor, best first: those of all conversations that the actor has with the agent
    /// alone, or, where others have written too, of that conversation only.
    MemorySearch, "memory.search": Search => Found<PastExchange>;

    /// Writes a note of an instance, in place of the one of the same name; an empty one is deleted. `not_found` for an
    /// instance that has no stream, `conflict` when there are 64 of its kind already.
    NotesPut, "notes.put": PutNote => Nothing;
    /// The notes of one kind, by name.
    NotesList, "notes.list": ListNotes => Notes;

    /// Opens or finds an idempotency key. `conflict` when it stands for another body, unless it ended as `not_reached`.
    KeysBegin, "keys.begin": BeginKey => KeyState;
    /// Says what came of the request that a key stands for. The first answer that is kept stays.
    KeysFinish, "keys.finish": FinishKey => Nothing;
}

/// On whose behalf: a session belongs to exactly one scope. An absent `threadId` equals only an absent one.
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    pub session_id: SessionId,
    pub origin: Origin,
    pub connector: String,
    pub actor_id: String,
    pub conversation_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// Automatic: the first visible prompt, blanks collapsed, cut to 80 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The explicit name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived_at: Option<Timestamp>,
}

/// A session as the answers of `/api/chat` show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenSession {
    pub id: SessionId,
    /// `tui`, `web` or `connector`.
    pub surface: Origin,
    /// This call (or the first try of it) made the session.
    pub created: bool,
    /// The explicit name only.
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
    /// Made when nothing owned matches; without it that is `not_found`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fresh: Option<FreshSession>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FreshSession {
    pub id: SessionId,
    pub origin: Origin,
}

/// An operation on one session by its id, on behalf of a scope: `not_found` unknown, `forbidden` of another scope.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnedSession {
    /// Absent: whosever session it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    pub id: SessionId,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListSessions {
    /// Absent: every session, for consoles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    #[serde(default)]
    pub archived: bool,
    /// Also sessions that never had a prompt, as every start of a client leaves one.
    #[serde(default)]
    pub empty: bool,
    /// Only sessions whose name, title or id holds each of these words, in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub q: Option<String>,
    #[serde(default = "fifty")]
    pub limit: u32,
    /// A cursor of an earlier page of the same list; another one is `invalid` at `?after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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

/// What was stopped; nothing when nothing ran.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cancelled {
    pub submission_id: Option<SubmissionId>,
}

/// A message or command that came in, with what to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accept {
    pub event: InboundEvent,
    pub target: Target,
    pub action: Action,
}

/// The trusted record of what came in.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InboundEvent {
    pub id: EventId,
    pub scope: Scope,
    /// `chat.message` or `session-command`.
    pub kind: String,
    pub text: String,
    pub received_at: Timestamp,
    /// `actorDisplayName`, `clientId`, `projectId`, `workflow`, `task`, `model`, as far as given. A `workflow` of
    /// `tui.startup-preflight` marks an internal prompt, which transcripts and titles leave out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Value>,
    /// Whatever the connector wants kept beside it: JSON, but as text, so that it may be as deep as a body may be and
    /// still fit into a line of the wire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
}

/// Which session.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// None: `/help` and what is not known.
    None,
    /// A new one.
    Fresh(FreshSession),
    /// An owned id, then an exact owned name: `not_found`, `forbidden`, `conflict`. An archived one named by id comes
    /// back.
    Selector(String),
    /// As `Selector`, but an unknown one is created with exactly this id (web callers may name their own).
    SelectorOrNew(FreshSession),
    /// The newest session of the scope that is not archived, else the fresh one (messenger).
    Active(FreshSession),
}

/// What to do in the session.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Nothing but to store the event and find the session.
    Find,
    Prompt {
        submission_id: SubmissionId,
        policy: Policy,
    },
    /// Give the explicit name.
    Name { name: String },
    /// Compact the history, in queue order.
    Compact { submission_id: SubmissionId },
}

/// What a prompt does while a turn runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Waits its turn.
    #[default]
    Queue,
    /// `conflict` when anything runs or waits.
    Reject,
    /// Aborts the running one and runs next; the others keep their order.
    Interrupt,
}

/// What became of an accepted event. Either `refused` or what was done.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Accepted {
    pub event_id: EventId,
    pub received_at: Timestamp,
    /// `forbidden`, `not_found`, `conflict` (an ambiguous name, or policy `reject` on a busy session) or `busy`. The
    /// event is stored all the same; nothing else is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Error>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<OpenSession>,
    /// The end of the session's stream before anything that this event makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<Offset>,
    /// Of a prompt or a compaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission: Option<Admission>,
}

/// A submission that will be done, and where its stream ended before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    pub submission_id: SubmissionId,
    pub offset: Offset,
}

/// What became of a prompt to an instance. A known id answers as before.
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
    /// The instance of the orchestrator: 1 to 1 024 bytes. A session's id makes it a prompt of that session.
    pub instance: String,
    pub submission_id: SubmissionId,
    pub message: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// Digests of blobs that this prompt names: they are kept as long as it is.
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
    /// Answer as well when the submission starts to wait for a decision.
    #[serde(default)]
    pub or_waiting: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Queued,
    Running,
    /// For a decision.
    Waiting,
    Completed,
    Failed,
    Aborted,
}

impl State {
    pub fn is_settled(self) -> bool {
        matches!(self, State::Completed | State::Failed | State::Aborted)
    }
}

/// The status of a submission.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SubmissionStatus {
    pub submission_id: SubmissionId,
    pub state: State,
    /// The result, also the partial one of an aborted turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<TurnResult>,
    /// `provider`, `defect`, `timeout`, `retry_exhausted`, `interrupted` or `aborted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_usage: Option<Value>,
    /// Approvals that it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<String>,
    /// Why nothing progresses at the moment: the store cannot write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimSubmissions {
    /// Who claims, for people: program and process id.
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

/// The right to write for one submission. A newer number makes an older one void.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    pub submission_id: SubmissionId,
    pub number: u64,
}

/// One submission to do or to continue.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Claim {
    pub lease: Lease,
    /// 1 for the first claim.
    pub attempt: u32,
    pub kind: SubmissionKind,
    /// Of a run: its id.
    pub instance: String,
    /// Of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// Name of its stream.
    pub stream: String,
    pub text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// On whose behalf; absent for an instance without an actor, which may find global entries only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Value>,
    /// Of the stored event: `chat.message`, `agent.prompt`, …
    #[serde(default)]
    pub message_kind: String,
    /// Index of its next event. Always 0 on the first attempt; later attempts continue after what was recorded.
    pub next_event_index: u64,
    /// Offset before its first recorded event; read from here to find where it stood.
    pub recorded_from: Offset,
    /// Of the newest event in the stream; later events must not be earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_timestamp: Option<Timestamp>,
    /// How long it may still run, in milliseconds.
    pub time_left_ms: i64,
    /// It must be closed instead of continued, for this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubmissionKind {
    Prompt,
    Compact,
    /// A run of a workflow.
    Workflow,
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

    /// The error of a turn that ended so.
    pub fn of_turn(self) -> Failure {
        let (name, message) = match self {
            Verdict::Abort => ("aborted", "The turn was aborted."),
            Verdict::RetryExhausted => (
                "retry_exhausted",
                "The turn was started 10 times and did not end.",
            ),
            Verdict::Timeout => ("timeout", "The turn passed its time limit of one hour."),
        };
        Failure::new(name, message)
    }

    /// The error of a run that ended so.
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
    /// Index of the first of `events`; they count on from it without a gap.
    pub first_index: u64,
    /// Whole events, each at most 256 KiB, beginning with `{"v":1,"type":…`.
    pub events: Vec<Box<RawValue>>,
}

/// The end of the stream.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Appended {
    pub offset: Offset,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettleSubmission {
    pub lease: Lease,
    pub first_index: u64,
    pub events: Vec<Box<RawValue>>,
    pub outcome: Outcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<TurnResult>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_usage: Option<Value>,
    /// Of a compaction: the summary that replaces all exchanges before this submission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Ids of the knowledge entries that it used, and how.
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
    /// What knowledge and memory hold about this is read with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<Search>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct History {
    /// Of the newest compaction; the exchanges are those after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    pub exchanges: Vec<PastExchange>,
    /// All settled exchanges of the instance, and its compactions.
    pub turns: u64,
    pub compactions: u64,
    /// Of the search, if one was asked for.
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

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadStream {
    /// Its name: `agents/orchestrator/<instance>`, `runs/<run>`, `streams/<path>`.
    pub stream: String,
    #[serde(default = "start")]
    pub offset: Offset,
    /// At most so many entries; 100 unless given.
    #[serde(default = "page_events")]
    pub limit: u32,
    /// At most so many bytes of entries, at most 1 MiB, but always one entry.
    #[serde(default = "page_bytes")]
    pub max_bytes: u32,
    /// At most the last so many entries; only with offset `-1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<u64>,
    /// How long to wait for the first entry, at most 600 000.
    #[serde(default)]
    pub wait_ms: u64,
    /// With `wait_ms`: how long to gather more from the first entry on.
    #[serde(default)]
    pub gather_ms: u64,
    /// Only this stream ([`StreamPage::id`]), not a later one of the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// Its time to live starts again.
    #[serde(default)]
    pub touch: bool,
}

impl Default for ReadStream {
    /// All of a stream that has no name yet, page by page, without waiting.
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

/// Some entries of a stream and its state in the same read.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StreamPage {
    /// Entries before the first of `entries`.
    pub start: u64,
    /// Entries before the place to read on.
    pub next: u64,
    /// Entries in the stream.
    pub end: u64,
    pub closed: bool,
    pub entries: Vec<Box<RawValue>>,
    /// Unique among all streams of its kind that ever were.
    #[serde(default)]
    pub id: u64,
    /// Of a stream below `streams/` only.
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

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PutKnowledge {
    pub title: String,
    pub content: String,
    #[serde(default)]
    pub tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
    /// `api`, `agent`, or where a document is from: `import`, `share` or `workspace`.
    pub source: String,
    pub created_by: String,
}

/// A knowledge entry as the HTTP contract shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KnowledgeRecord {
    /// `kb-` and 32 hex: a digest of actor, conversation, title and content.
    pub id: String,
    pub title: String,
    pub content: String,
    pub source: String,
    pub actor_id: String,
    pub conversation_id: String,
    /// `global`, `actor` or `conversation`.
    pub scope: String,
    pub tags: Vec<String>,
    /// Of a piece of a document: `path`, `line`, and `folder` when it was imported.
    pub metadata: Value,
    pub created_by: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// 0 to 1, in the answer to a query only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ById {
    pub id: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListKnowledge {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub q: Option<String>,
    #[serde(default = "twenty")]
    pub limit: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
    /// `api`, `agent`, `import`, `share` or `workspace`. Absent: all but the last two, which are files that nobody has added;
    /// with `q`, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KnowledgePage {
    pub records: Vec<KnowledgeRecord>,
    pub page: Page,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Search {
    /// Words; stop words are dropped and at most eight terms count.
    pub query: String,
    /// Absent: global entries only, and no past exchanges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    #[serde(default = "five")]
    pub limit: u32,
    /// The query as a vector: knowledge is ranked by it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vector: Option<QueryVector>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueryVector {
    /// Compared with vectors of this model only.
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
    /// 0 to 1: which part of the query's terms, weighted by how rare they are, the entry holds.
    pub score: f64,
    pub entry: T,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyedJob {
    /// A ULID: the id of the job, if this call starts one.
    pub id: String,
    /// Reads the documents of the installation and of the workspace anew first.
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

/// What an agent writes down for itself while it works for an instance.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutNote {
    pub instance: String,
    pub kind: NoteKind,
    /// 1 to 120 characters, none of them control characters.
    pub name: String,
    /// At most 64 KiB. Of a checklist: its items as JSON.
    pub body: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoteKind {
    Note,
    Checklist,
}

impl NoteKind {
    pub fn name(self) -> &'static str {
        match self {
            NoteKind::Note => "note",
            NoteKind::Checklist => "checklist",
        }
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
    /// SHA-256 in hex of caller, method, path and key.
    pub key: String,
    /// SHA-256 in hex of the body.
    pub body: String,
    /// 32 hex: becomes the seed if the key is new.
    pub seed: String,
    pub at: Timestamp,
}

/// What is known of a key. Without an answer the work is to be done (again) with ids minted from seed and time.
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
    /// Those that this answer has of its own: names and values.
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
    /// With an answer that every repeat gets.
    Answered(KeptAnswer),
    /// The store has refused it: the next request is a new one.
    Refused,
    /// This try has not reached the store, but an earlier one under the same key may have: a repeat keeps the seed, and
    /// only another body makes the key a new one.
    NotReached,
}
