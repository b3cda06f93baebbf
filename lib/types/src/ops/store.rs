//! The operations of `ken-store`, which holds all durable state. A reply means that the change is on disk.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::documents::Used;
use super::rules::StoredRule;
use super::streams::PublicPage;
use super::telemetry::ByWork;
use super::{Nothing, Page, fifty};
use crate::event::{Failure, Outcome, TurnResult};
use crate::fence::Outside;
use crate::id::{EventId, Origin, SessionId, SubmissionId};
use crate::{Error, Offset, Timestamp};

crate::operations! {
    /// Creates a session and its stream, with an id that the caller has created. If the id is known, the first reply is
    /// repeated.
    SessionsCreate, "sessions.create": CreateSession => OpenSession;
    /// Finds a session of the scope by its id or name. If there is none and `fresh` is set, it creates one. `forbidden`
    /// for an id of another scope, `conflict` for a name of several sessions. If an archived session is named by its
    /// id, it is restored.
    SessionsResume, "sessions.resume": ResumeSession => OpenSession;
    /// Lists sessions by `updatedAt`, newest first.
    SessionsList, "sessions.list": ListSessions => SessionPage;
    /// Returns one page of exchanges as the complete body of the HTTP response (gateway-http 5.4).
    SessionsTranscript, "sessions.transcript": ReadTranscript => Box<RawValue>;
    /// Returns the record of a session, archived or not. `forbidden` for one of another scope.
    SessionsGet, "sessions.get": OwnedSession => Session;
    /// Returns the scope of a session.
    SessionsScope, "sessions.scope": BySession => Scope;
    /// Stops the running submission, or the given one.
    SessionsCancel, "sessions.cancel": CancelSession => Cancelled;
    /// Removes a session from lists and from the search by name. `conflict` while a turn runs or is queued.
    SessionsArchive, "sessions.archive": OwnedSession => Nothing;
    /// Deletes a session for good, with everything that was said in it. A running turn is aborted. When this replies, the
    /// session and its stream are `gone`; the rest of the data is deleted soon afterwards.
    SessionsPurge, "sessions.purge": OwnedSession => Nothing;
    /// Changes the name or the memory of a session. Returns its record.
    SessionsUpdate, "sessions.update": UpdateSession => Session;
    /// Creates a session with the history of another one before a message, of which the newest exchanges are copied: at most 1,000, and 16 MiB of text. The
    /// other session stays as it is. `not_found` at `/before` if it has no such message. If the new id is known, the first
    /// reply is repeated.
    SessionsFork, "sessions.fork": ForkSession => OpenSession;

    /// Stores an incoming message or command: event, session and submission in one transaction. The event is stored
    /// even if the session is refused; see [`Accepted::refused`]. If the event id is known, the first reply is
    /// repeated.
    ChatAccept, "chat.accept": Accept => Accepted;
    /// Notes that the answer to an event was sent to its end, so that an equal event is a new one; see [`Accept::counted`].
    DoorsDelivered, "doors.delivered": DeliveredEvent => Nothing;
    /// Notes that the caller of a turn is sent, or was sent, a notice in place of its answer: the turn waits for a decision.
    DoorsNotice, "doors.notice": SentNotice => Nothing;
    /// Returns the answer of a submission to a caller who sends the whole conversation. `not_found` if there is none, or it was deleted.
    DoorsFind, "doors.find": BySubmission => FoundAnswer;
    /// Deletes such an answer: nobody finds or continues it any more. With the last answer of a session, the session is deleted for good.
    DoorsDelete, "doors.delete": BySubmission => Nothing;

    /// Admits a prompt to an instance, which need not be a session. `conflict` with policy `reject` if the instance is
    /// busy, `busy` if its queue is full.
    SubmissionsAdmit, "submissions.admit": Admit => Admitted;
    /// Returns the status of a submission. Waits at most `wait_ms` until it is settled. Does not wait while the store
    /// cannot write.
    SubmissionsWait, "submissions.wait": WaitSubmission => SubmissionStatus;
    /// Claims submissions under leases, and waits if there are none. The leases belong to the connection of this call
    /// and end with it, unless `submissions.renew` has moved them to another connection.
    SubmissionsClaim, "submissions.claim": ClaimSubmissions => Claims;
    /// Renews leases and moves them to the connection of this call. Returns the leases that were lost.
    SubmissionsRenew, "submissions.renew": RenewLeases => LostLeases;
    /// Appends events of a running submission. `conflict` if there is a newer lease; the caller must then stop. Events
    /// whose index is already stored are dropped, so a repetition writes nothing twice.
    SubmissionsAppend, "submissions.append": AppendEvents => Appended;
    /// Stores the last events, outcome and result of a submission in one transaction. If the submission is already
    /// settled, the first reply is repeated.
    SubmissionsSettle, "submissions.settle": SettleSubmission => Appended;
    /// Ends the running submission of an instance and all queued ones.
    SubmissionsAbort, "submissions.abort": OfInstance => AbortedSubmissions;
    /// Returns the newest settled exchanges of an instance before a submission, oldest first, and the summary of the
    /// exchanges before them.
    SubmissionsHistory, "submissions.history": ReadHistory => History;
    /// Returns the claim of a submission that has ended, as its first holder received it. `conflict` if it has not
    /// ended.
    SubmissionsRecord, "submissions.record": ByWork => Claim;

    /// Returns entries strictly after an offset, at most 100 and 1 MiB. Waits up to `wait_ms` while there are none.
    /// `not_found` for an unknown stream; `conflict` for a deleted one that is kept only for its forks.
    StreamsRead, "streams.read": ReadStream => StreamPage;

    /// Adds an entry. If the same entry exists, updates its `updatedAt`. The entry can be found as soon as this
    /// replies.
    KnowledgePut, "knowledge.put": PutKnowledge => KnowledgeRecord;
    KnowledgeGet, "knowledge.get": ById => KnowledgeRecord;
    KnowledgeDelete, "knowledge.delete": ById => Nothing;
    /// Lists entries, newest first. With `q`, the best match is first.
    KnowledgeList, "knowledge.list": ListKnowledge => KnowledgePage;
    /// Searches the entries that a turn of this scope may use: global entries and those of the same actor and
    /// conversation.
    KnowledgeSearch, "knowledge.search": Search => Found<KnowledgeRecord>;
    /// Starts a rebuild of the index. If one is running, returns its job.
    KnowledgeReindex, "knowledge.reindex": KeyedJob => Job;
    KnowledgeJob, "knowledge.job": ById => Job;
    /// Searches past exchanges of the same connector and actor. The search covers all conversations that the actor has
    /// alone with the agent. If others have written in this conversation, it covers only this conversation.
    MemorySearch, "memory.search": Search => Found<PastExchange>;

    /// Writes a note of an instance and replaces the one with the same name. An empty body deletes the note.
    /// `not_found` for an instance without a stream, `conflict` if there are already 64 notes of its kind.
    NotesPut, "notes.put": PutNote => Nothing;
    /// Lists the notes of one kind, ordered by name.
    NotesList, "notes.list": ListNotes => Notes;

    /// Creates or finds an idempotency key. `conflict` if it belongs to a request with another body, unless that ended
    /// as `not_reached`.
    KeysBegin, "keys.begin": BeginKey => KeyState;
    /// Records the outcome of the request with a key. A stored response is not replaced.
    KeysFinish, "keys.finish": FinishKey => Nothing;

    /// Writes something of no importance, which shows that the store can write.
    StoreProbe, "store.probe": Nothing => Nothing;
}

/// The person or program on whose behalf work is done. A session belongs to exactly one scope. Two scopes are equal
/// only if both have the same `threadId` or both have none.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scope {
    pub connector: String,
    pub actor_id: String,
    pub conversation_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
}

/// The connector of callers over HTTP, and the `actorId` and `conversationId` of those that name none.
pub const WEB: &str = "web-api";
/// The connector of programs that speak the protocol of OpenAI, and the `actorId` of those that name no user.
pub const OPENAI: &str = "openai";
/// The name of the tools of the calling program in the context of an event, and what their names begin with for a model.
pub const PROGRAM_TOOLS: &str = "programTools";
pub const PROGRAM_TOOL: &str = "client__";

impl Scope {
    /// Whether it is that of callers over HTTP that name no `actorId`. These can be different persons.
    pub fn is_anonymous(&self) -> bool {
        [WEB, OPENAI].contains(&self.connector.as_str()) && self.actor_id == self.connector
    }

    /// Returns the scope in which the exchanges of a session are remembered: that of the session, or one of its own if nobody
    /// knows who writes in it.
    pub fn of_memory(&self, session: &str) -> Scope {
        if !self.is_anonymous() {
            return self.clone();
        }
        // No caller has this connector, so nobody can name this scope.
        Scope {
            connector: "session".to_owned(),
            actor_id: session.to_owned(),
            conversation_id: session.to_owned(),
            thread_id: None,
        }
    }
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
    /// The automatic title: the first visible prompt, with white space collapsed, shortened to 80 characters.
    pub title: Option<String>,
    /// The name that a person gave it.
    pub display_name: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub archived_at: Option<Timestamp>,
    /// The trusted folder in which it works. Without one, it works in the workspace of the system.
    pub workspace: Option<String>,
    /// What it remembers, if that was set for it.
    pub memory: Option<Memory>,
    /// The only model that answers, as `provider/model`. Without it, the configured ones do in their order.
    pub model: Option<String>,
    /// Where the words of a search for text stand. Present only in the response to one.
    pub found: Option<FoundTurn>,
}

/// The newest turn of a session that contains the words of a search.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FoundTurn {
    pub submission_id: SubmissionId,
    pub at: Timestamp,
    /// A passage of its prompt or answer with at least one of the words, on one line.
    pub passage: String,
}

/// A session as the responses of `/api/chat` show it.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenSession {
    pub id: SessionId,
    /// `tui`, `web` or `connector`.
    pub surface: Origin,
    /// Whether this call, or its first attempt, created the session.
    pub created: bool,
    /// The name that a person gave it.
    pub title: Option<String>,
    pub workspace: Option<String>,
    pub model: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateSession {
    pub scope: Scope,
    pub fresh: FreshSession,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResumeSession {
    pub scope: Scope,
    pub selector: String,
    /// The session to create if the scope has no such session. If absent, the call fails with `not_found` instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fresh: Option<FreshSession>,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FreshSession {
    pub id: SessionId,
    pub origin: Origin,
    /// The trusted folder in which it works. The gateway has checked that the caller may name it.
    pub workspace: Option<String>,
    /// What it remembers; if absent, what the configuration says.
    pub memory: Option<Memory>,
    /// As in [`Session`].
    pub model: Option<String>,
}

impl FreshSession {
    pub fn new(id: SessionId, origin: Origin) -> FreshSession {
        FreshSession { id, origin, workspace: None, memory: None, model: None }
    }
}

crate::named! {
    /// Which past turns a session remembers, besides its own history.
    #[derive(Default)]
    pub enum Memory {
        /// Those of all conversations that its actor has alone with the agent.
        #[default]
        On = "on",
        /// Its own. It uses nothing that agents learned in other sessions, and gives nothing to others.
        Session = "session",
        /// None. Otherwise as [`Memory::Session`].
        Off = "off",
    }
}

/// Names a session by its id, on behalf of a scope. `not_found` if it is unknown, `forbidden` if it belongs to another
/// scope.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnedSession {
    /// If absent, the session may belong to any scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    pub id: SessionId,
}

/// The changes of a session. An absent field stays as it is.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpdateSession {
    /// If absent, the session may belong to any scope.
    pub scope: Option<Scope>,
    pub id: SessionId,
    pub display_name: Option<String>,
    pub memory: Option<Memory>,
    /// An empty text stands for the configured models.
    pub model: Option<String>,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForkSession {
    /// If absent, the session may belong to any scope.
    pub scope: Option<Scope>,
    pub id: SessionId,
    /// The first message that the new session does not have.
    pub before: SubmissionId,
    pub fork: SessionId,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListSessions {
    /// If absent, the sessions of all scopes are listed.
    pub scope: Option<Scope>,
    #[serde(default)]
    pub archived: bool,
    /// Whether to include sessions without a visible prompt and without a name. Every start of a client creates one.
    #[serde(default)]
    pub empty: bool,
    /// Whether to include those of the runs of schedules.
    #[serde(default)]
    pub scheduled: bool,
    /// Lists only sessions whose name, title or id contains each of these words, in upper or lower case.
    pub q: Option<String>,
    /// Lists only sessions with a turn whose prompt and answer together contain all of these words, in any inflection. Only the newest
    /// turns that contain them are looked at.
    pub text: Option<String>,
    #[serde(default = "fifty")]
    pub limit: u32,
    /// A cursor from an earlier page of the same list. Any other is `invalid` at `?after`.
    pub after: Option<String>,
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
    /// A cursor from this session's transcript. Any other is `invalid` at `?before`.
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

/// An incoming message or command, and how to handle it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accept {
    pub event: InboundEvent,
    pub target: Target,
    pub action: Action,
    /// Whether the id of the event is only the first part of it, and the store adds the number of equal events whose answers were
    /// sent to their end ([`DoorsDelivered`]). An event whose answer was not is found again by the same first part.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counted: bool,
}

/// The conversation that a caller continues who sends its messages each time.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Continuation {
    /// The digest of the messages before the new ones. The session is the newest one of the scope that ends with them.
    pub tip: Option<String>,
    /// The submission that is continued; `not_found` if the scope has none with this id. If it is not the newest of its session,
    /// the new session begins with a copy of what was said up to it.
    pub after: Option<SubmissionId>,
    /// The session to create if none fits.
    pub fresh: FreshSession,
    /// What was said before, for a new session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub imported: Vec<ImportedExchange>,
}

/// A message and its answer, as a caller has given them. They are part of the conversation, but no session remembers them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportedExchange {
    pub prompt: String,
    pub answer: String,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SentNotice {
    pub submission_id: SubmissionId,
    /// The digest with which the conversation ends after the notice. If absent, the notice was sent to its end, and the next prompt of
    /// the session owes the answer.
    pub tip: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BySubmission {
    pub submission_id: SubmissionId,
}

/// An answer of a caller who sends the whole conversation, and where its events are.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FoundAnswer {
    pub event_id: EventId,
    pub received_at: Timestamp,
    pub scope: Scope,
    pub session_id: SessionId,
    pub admission: Admission,
    pub context: Option<Value>,
}

/// The results of the calls with which a turn ended, in the context of the event that goes on with them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    /// The submission of that turn.
    pub of: SubmissionId,
    pub results: Vec<ProgramResult>,
}

impl Answered {
    /// Its name in the context.
    pub const NAME: &str = "answered";
}

/// The result of a call of a tool of the calling program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramResult {
    pub id: String,
    pub text: String,
}

/// The answer to an event, sent to its end.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeliveredEvent {
    pub id: EventId,
}

/// The record of an incoming message. All fields except the text can be trusted.
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
    /// `actorDisplayName`, `clientId`, `projectId`, `workflow`, `task`, `model`, `forwarded` and `quoted` ([`Quoted`]), if given. The `workflow`
    /// `tui.startup-preflight` marks an internal prompt, which transcripts and titles leave out.
    pub context: Option<Value>,
    /// Data of the connector that is stored with the event. It is JSON in a string, so that it can be nested as deeply
    /// as a request body and still fit into a line of the wire.
    pub raw: Option<String>,
    /// The images beside the text. Only the turn of this message is shown them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
}

/// The session of an incoming message.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// No session, for `/help` and unknown commands.
    None,
    Fresh(FreshSession),
    /// A new session that works in the same folder as the session with this id or name, if the scope has that.
    Beside(FreshSession, String),
    /// The session of the scope with this id, or else with exactly this name. The errors are those of
    /// `sessions.resume`.
    Selector(String),
    /// Like `Selector`, but an unknown session is created with exactly this id, because web clients can choose the ids
    /// of their sessions.
    SelectorOrNew(FreshSession),
    /// The newest session of the scope that is not archived. If there is none, the given new session. Used by the
    /// messenger.
    Active(FreshSession),
    /// The session that the messages of the caller continue, or a new one that begins with them.
    Continued(Continuation),
}

/// How to handle an incoming message in its session.
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
    /// Have one model answer in the session; with an empty name, the configured ones in their order.
    Model {
        name: String,
    },
    /// Compact the history when the queued work before it has ended.
    Compact {
        submission_id: SubmissionId,
    },
}

/// What happens to a prompt while another turn runs or is queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    #[default]
    Queue,
    /// The prompt is refused with `conflict`.
    Reject,
    /// The prompt aborts the running turn and runs next. The other queued turns keep their order.
    Interrupt,
}

/// The outcome of an incoming message: either `refused` or the session and the submission.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Accepted {
    pub event_id: EventId,
    pub received_at: Timestamp,
    /// `forbidden`, `not_found`, `conflict` (an ambiguous name, or policy `reject` on a busy session) or `busy`. If
    /// set, only the event was stored.
    pub refused: Option<Error>,
    pub session: Option<OpenSession>,
    /// The end of the session's stream before the events of this message.
    pub offset: Option<Offset>,
    /// The submission, if the message started a turn or a compaction.
    pub submission: Option<Admission>,
    /// The turns of which the caller was sent a notice in place of the answer. Their answers stand before that to this message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owed: Vec<SubmissionId>,
}

/// An admitted submission, and the end of its stream before the submission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    pub submission_id: SubmissionId,
    pub offset: Offset,
}

/// The outcome of `submissions.admit`. If the id is known, the first outcome is repeated.
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
    /// The MCP server that has written a part of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp_server: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Image {
    /// Always `image`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The data of the image in base64.
    pub data: String,
    pub mime_type: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitSubmission {
    pub submission_id: SubmissionId,
    #[serde(default)]
    pub wait_ms: u64,
    /// Whether to reply also when the submission starts to wait for a decision.
    #[serde(default)]
    pub or_waiting: bool,
}

crate::named! {
    pub enum State {
        Queued = "queued",
        Running = "running",
        /// It waits for a decision on an approval.
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

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SubmissionStatus {
    pub submission_id: SubmissionId,
    pub state: State,
    /// The result. An aborted turn can have a partial one.
    pub result: Option<TurnResult>,
    /// `provider`, `defect`, `timeout`, `retry_exhausted`, `interrupted` or `aborted`.
    pub error: Option<Failure>,
    pub context_usage: Option<Value>,
    /// The ids of the approvals that it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<String>,
    /// Set if no progress is possible at the moment because the store cannot write. Contains the reason.
    pub stalled: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimSubmissions {
    /// The program and process id of the holder, for people.
    pub holder: String,
    #[serde(default)]
    pub work: Work,
    /// The maximum number of submissions to claim, 0 to 64. With 0, the call only returns aborts.
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
    /// Leases of this connection whose submissions must be ended as aborted. Each is returned once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aborts: Vec<Lease>,
}

/// The right to write for one submission. A lease becomes invalid when there is one with a higher number.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    pub submission_id: SubmissionId,
    pub number: u64,
}

/// One submission to start or to continue.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Claim {
    pub lease: Lease,
    /// The number of this claim, starting at 1.
    pub attempt: u32,
    pub kind: SubmissionKind,
    /// The instance. For a run, the id of the run.
    pub instance: String,
    /// The name of the workflow. Set only for a run.
    pub workflow: Option<String>,
    pub stream: String,
    pub text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// Absent for an instance without an actor, which can use global entries only.
    pub scope: Option<Scope>,
    pub context: Option<Value>,
    /// The kind of the stored event: `chat.message`, `agent.prompt`, …
    #[serde(default)]
    pub message_kind: String,
    /// The index of the next event: 0 for the first attempt. Later attempts continue after the recorded events.
    pub next_event_index: u64,
    /// The offset before the first recorded event of the submission. A later attempt reads from here to find out where
    /// to continue.
    pub recorded_from: Offset,
    /// The timestamp of the newest event in the stream. Later events must not have an earlier one.
    pub last_timestamp: Option<Timestamp>,
    /// The time of the first claim. Equal for every later claim of the submission.
    pub started_at: Option<Timestamp>,
    /// The time at which its message was received.
    pub received_at: Option<Timestamp>,
    /// How long the submission may still run, in milliseconds.
    pub time_left_ms: i64,
    /// If set, the submission must be ended for this reason and not be continued.
    pub verdict: Option<EndReason>,
    /// The mark of the lines around outside text in this submission's prompts ([`crate::fence`]): a digest of its id and of
    /// a key that only the store has. Equal for every claim of the submission.
    #[serde(default)]
    pub mark: String,
    /// The origins of outside text that the submission has read so far.
    #[serde(default, skip_serializing_if = "Outside::is_empty")]
    pub outside: Outside,
    /// The trusted folder in which its session works.
    pub workspace: Option<String>,
    /// The only model that answers in its session, if the prompt names none.
    pub model: Option<String>,
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
pub enum EndReason {
    Abort,
    RetryExhausted,
    Timeout,
}

impl EndReason {
    pub fn outcome(self) -> Outcome {
        match self {
            EndReason::Abort => Outcome::Aborted,
            EndReason::RetryExhausted | EndReason::Timeout => Outcome::Failed,
        }
    }

    /// Returns the error of a turn that ends for this reason.
    pub fn of_turn(self) -> Failure {
        let (name, message) = match self {
            EndReason::Abort => ("aborted", "The turn was aborted."),
            EndReason::RetryExhausted => ("retry_exhausted", "The turn was started 10 times and did not end."),
            EndReason::Timeout => ("timeout", "The turn passed its time limit of one hour."),
        };
        Failure::new(name, message)
    }

    /// Returns the error of a run that ends for this reason.
    pub fn of_run(self) -> Failure {
        let (name, message) = match self {
            EndReason::Abort => ("Aborted", "The run was aborted."),
            EndReason::RetryExhausted => ("RetryExhausted", "The run was started 10 times and did not end."),
            EndReason::Timeout => ("Timeout", "The run passed its time limit of one hour."),
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
    /// The index of the first event. The other events follow without gaps.
    pub first_index: u64,
    /// Complete events of at most 256 KiB each, which begin with `{"v":1,"type":…`.
    pub events: Vec<Box<RawValue>>,
}

/// The end of the stream after the call.
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
    /// For a compaction: the summary that replaces all exchanges before this submission.
    pub summary: Option<String>,
    /// The ids of the knowledge entries that the turn used, and how it used them.
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

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadHistory {
    pub instance: String,
    pub before: SubmissionId,
    #[serde(default = "fifty")]
    pub limit: u32,
    /// The newest exchange that the caller already has. Only later ones are returned, unless there was a compaction
    /// after it.
    pub after: Option<SubmissionId>,
    /// A search of knowledge and memory that is done in the same call.
    pub search: Option<Search>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct History {
    /// The summary of the newest compaction. The exchanges are those after the compaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    pub exchanges: Vec<PastExchange>,
    /// Whether `exchanges` are only those after [`ReadHistory::after`]. If false, they replace all exchanges that the
    /// caller has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continues: bool,
    /// The number of all settled exchanges of the instance, and the number of its compactions.
    pub turns: u64,
    pub compactions: u64,
    /// The results of the search, if one was requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<Match<KnowledgeRecord>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remembered: Vec<Match<PastExchange>>,
    /// The governing rules of users that are switched on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<StoredRule>,
    /// The origins of outside text that any submission of the instance has read, and so of the exchanges and the summary.
    #[serde(default, skip_serializing_if = "Outside::is_empty")]
    pub outside: Outside,
}

/// The text that a message replies to.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quoted {
    pub text: String,
    /// Who wrote it, if neither the sender of the message nor the agent has.
    pub author: Option<String>,
}

/// A prompt and its answer.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PastExchange {
    /// The id of its submission.
    pub id: SubmissionId,
    pub instance: String,
    pub prompt: String,
    pub answer: String,
    /// The time at which the prompt was received.
    pub at: Timestamp,
    /// The mark of its submission ([`Claim::mark`]), if its prompt was sent with marks.
    pub mark: Option<String>,
    /// Who wrote the prompt, if the user has only forwarded it.
    pub forwarded: Option<String>,
    /// The text that the prompt replied to.
    pub quoted: Option<Quoted>,
    /// The origins of outside text that the submission has read.
    #[serde(default, skip_serializing_if = "Outside::is_empty")]
    pub outside: Outside,
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
    /// The maximum size of the entries in bytes, up to 1 MiB. A larger entry is returned as the only one.
    #[serde(default = "page_bytes")]
    pub max_bytes: u32,
    /// Starts this many entries before the end. Allowed only with offset `-1`.
    pub tail: Option<u64>,
    /// How long to wait for the first entry, in milliseconds, at most 600,000.
    #[serde(default)]
    pub wait_ms: u64,
    /// With `wait_ms`: how long to wait for more entries after the first, in milliseconds.
    #[serde(default)]
    pub gather_ms: u64,
    /// Reads only the stream with this id ([`StreamPage::id`]), not a later stream with the same name.
    pub id: Option<u64>,
    /// Whether the read restarts the stream's time to live.
    #[serde(default)]
    pub touch: bool,
}

impl Default for ReadStream {
    /// Returns a read from the start without waiting. The caller sets the name of the stream.
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

/// Entries of a stream, and the state of the stream at the same time.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StreamPage {
    /// The number of entries in the stream before the first of `entries`.
    pub start: u64,
    /// The number of entries in the stream before the position from which the next read continues.
    pub next: u64,
    /// The number of entries in the stream.
    pub end: u64,
    pub closed: bool,
    pub entries: Vec<Box<RawValue>>,
    /// The id of the stream. No other stream of its kind gets the same id.
    #[serde(default)]
    pub id: u64,
    /// Set only for a stream below `streams/`.
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
    /// The origin: `api`, `agent`, or for a document `import`, `share` or `workspace`.
    pub source: String,
    pub created_by: String,
    /// The submission whose agent writes the entry. The entry gets its origins of outside text.
    pub turn: Option<SubmissionId>,
}

/// A knowledge entry as the HTTP contract shows it.
#[serde_with::skip_serializing_none]
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
    /// Who can find the entry: `global`, `actor` or `conversation`.
    pub scope: String,
    pub tags: Vec<String>,
    /// For a piece of a document: `path`, `line`, and `folder` if it was imported.
    pub metadata: Value,
    pub created_by: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// 0 to 1. Present only in the response to a query.
    pub score: Option<f64>,
    /// The origins of outside text that the turn of the agent had read that wrote the entry.
    #[serde(default, skip_serializing_if = "Outside::is_empty")]
    pub outside: Outside,
    /// The session in which an agent wrote the entry, and the turn.
    pub session_id: Option<String>,
    pub submission_id: Option<SubmissionId>,
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
    /// `api`, `agent`, `import`, `share` or `workspace`. If absent, the list contains all origins if `q` is set, and
    /// otherwise all but `share` and `workspace`, whose files nobody added explicitly.
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
    /// The words to search for. Stop words are dropped, and at most eight terms are used.
    pub query: String,
    /// If absent, the search finds only global entries and no past exchanges.
    pub scope: Option<Scope>,
    #[serde(default = "five")]
    pub limit: u32,
    /// The query as a vector. If set, knowledge is also ranked by it.
    pub vector: Option<QueryVector>,
    /// The instance that searches. Its memory limits what is found.
    pub session: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueryVector {
    /// The model that computed the vector. Only vectors of the same model are compared.
    pub model: String,
    pub values: Vec<f32>,
}

fn five() -> u32 {
    5
}

/// The results, the best match first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Found<T> {
    pub found: Vec<Match<T>>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Match<T> {
    /// 0 to 1: the share of the query's terms that the entry contains. Rare terms have a higher weight.
    pub score: f64,
    pub entry: T,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyedJob {
    /// A ULID, the id of the job if this call starts one.
    pub id: String,
    /// Whether to read the documents of the installation and the workspace again first.
    #[serde(default)]
    pub documents: bool,
}

/// A job of the knowledge index.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    pub job_id: String,
    /// The state of the job: `queued`, `running`, `ok` or `error`.
    pub status: String,
    pub done: u64,
    pub total: u64,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub error: Option<String>,
}

/// A note that an agent keeps for an instance.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutNote {
    pub instance: String,
    pub kind: NoteKind,
    /// 1 to 120 characters without control characters.
    pub name: String,
    /// At most 64 KiB. For a checklist, its items as JSON.
    pub body: String,
    /// The submission whose agent writes the note. The note gets its origins of outside text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<SubmissionId>,
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
    #[serde(default, skip_serializing_if = "Outside::is_empty")]
    pub outside: Outside,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BeginKey {
    /// SHA-256 of caller, method, path and `Idempotency-Key`, in hexadecimal.
    pub key: String,
    /// SHA-256 of the body, in hexadecimal.
    pub body: String,
    /// The seed to store if the key is new: 32 hexadecimal digits.
    pub seed: String,
    pub at: Timestamp,
}

/// The state of a key. If there is no stored response, the caller does the work (again), with ids that it creates from
/// seed and time.
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
    /// Names and values of the headers that belong to this response only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FinishKey {
    pub key: String,
    pub end: KeyEnd,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyEnd {
    /// With a response, which every repetition gets.
    Answered(KeptAnswer),
    /// The store refused the work. The next request with the key counts as a new one.
    Refused,
    /// This attempt did not reach the store, but an earlier one with the same key may have reached it. A repetition
    /// with the same body uses the same seed. A request with another body counts as a new one.
    NotReached,
}
