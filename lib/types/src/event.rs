//! Events: the entries of the stream of an instance or a run (ken-stream(5)).
//!
//! An event is one flat JSON object: `v`, `type`, the fields of its type, then the envelope. Readers ignore types and
//! fields that they do not know. The recorded events of a submission also serve as its journal: after a crash, the next
//! holder reads them to find out where to continue.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fence::Outside;
use crate::id::{RunId, SubmissionId};
use crate::time::Timestamp;

/// The version that every event carries.
pub const VERSION: u8 = 1;

/// One entry of an agent's stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    pub v: u8,
    #[serde(flatten)]
    pub body: Body,
    #[serde(flatten)]
    pub place: Place,
}

impl Event {
    /// Returns the session of the agent that the event is about. This is the worker's for an approval that a worker
    /// needs.
    pub fn session(&self) -> &str {
        match &self.body {
            Body::ApprovalRequested { worker: Some(worker), .. }
            | Body::ApprovalDecided { worker: Some(worker), .. } => &worker.worker_session,
            _ => &self.place.session,
        }
    }
}

/// Which submission, session and turn an event belongs to. Fields that do not apply are absent.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// Starts at 0 for each submission and increases. Gaps are allowed.
    pub event_index: u64,
    /// Never decreases within a stream.
    pub timestamp: Timestamp,
    pub instance_id: String,
    pub submission_id: SubmissionId,
    /// Equal to the submission's id; see [`is_dispatched`].
    pub dispatch_id: Option<SubmissionId>,
    /// `default` for the root; `task:<parent session>:<taskId>` for a worker.
    pub session: String,
    pub harness: String,
    pub operation_id: Option<String>,
    pub turn_id: Option<String>,
    pub task_id: Option<String>,
    /// Only on events of a worker. Clients that show the root session skip these events.
    pub parent_session: Option<String>,
}

/// Whether the events of a turn have a `dispatchId`. Those of scheduled and messenger turns do, because no caller waits
/// for these turns.
pub fn is_dispatched(connector: Option<&str>, instance: &str) -> bool {
    connector == Some("messenger") || instance.starts_with("schedule:")
}

/// One entry of a run's stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunEvent {
    pub v: u8,
    #[serde(flatten)]
    pub body: Body,
    /// Starts at 0 for each run and increases.
    pub event_index: u64,
    /// Never decreases within a stream.
    pub timestamp: Timestamp,
    pub run_id: RunId,
    pub session: String,
    pub harness: String,
}

impl RunEvent {
    /// Creates an event of the run itself, not of a session within it.
    pub fn new(body: Body, event_index: u64, timestamp: Timestamp, run_id: RunId) -> RunEvent {
        RunEvent {
            v: VERSION,
            body,
            event_index,
            timestamp,
            run_id,
            session: "default".into(),
            harness: "default".into(),
        }
    }
}

/// The types of events and their fields. `operationId`, `turnId` and `taskId` are in [`Place`], which every event has.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Body {
    OperationStart {
        operation_kind: OperationKind,
    },
    AgentStart,
    TurnStart {
        purpose: Purpose,
        /// The origins of outside text that the request contains.
        #[serde(default, skip_serializing_if = "Outside::is_empty")]
        outside: Outside,
    },
    MessageStart {
        message: Message,
    },
    TextDelta {
        text: String,
    },
    ThinkingStart,
    ThinkingDelta {
        delta: String,
    },
    ThinkingEnd {
        content: String,
    },
    /// The complete message. In an assistant's message, the thoughts stand before the text, which is one block. Streams of earlier
    /// versions have them behind it.
    MessageEnd {
        message: Message,
    },
    /// The next piece of the arguments of a call, as JSON text. Only answers with long arguments have these events, right
    /// before `message_end`, because that event may contain such arguments only in part.
    ToolCallDelta {
        tool_call_id: String,
        delta: String,
    },
    ToolStart {
        tool_name: String,
        tool_call_id: String,
        args: Value,
        /// The process of ken-tools that was there at this time ([`Tools::process`](crate::ops::tools::Tools::process)).
        tools: Option<String>,
    },
    /// How far a running call has come, as its tool reports it.
    ToolProgress {
        tool_name: String,
        tool_call_id: String,
        progress: f64,
        total: Option<f64>,
        message: Option<String>,
    },
    Tool {
        tool_name: String,
        tool_call_id: String,
        is_error: bool,
        result: ToolResult,
        duration_ms: u64,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        interrupted: bool,
    },
    TaskStart {
        agent: String,
        task_name: String,
        prompt: String,
        cwd: Option<String>,
    },
    Task {
        agent: String,
        task_name: String,
        is_error: bool,
        result: Value,
        duration_ms: u64,
    },
    /// A person decides for the whole submission, so this is an event of the agent itself, even if a worker needs the
    /// approval: it has no `parentSession`, by which clients skip the events of workers. Streams of earlier versions
    /// have an event of the worker instead.
    ApprovalRequested {
        request_id: String,
        action_type: String,
        risk: String,
        expires_at: Timestamp,
        #[serde(flatten)]
        worker: Option<AskingWorker>,
    },
    ApprovalDecided {
        request_id: String,
        status: String,
        /// The name of the person who decided, as that person gave it. Absent if nobody decided.
        decided_by: Option<String>,
        #[serde(flatten)]
        worker: Option<AskingWorker>,
    },
    TurnMessages {
        purpose: Purpose,
        message: Message,
        tool_results: Vec<Message>,
    },
    Turn {
        purpose: Purpose,
        duration_ms: u64,
        model: String,
        provider: String,
        api: String,
        #[serde(with = "output")]
        output: Vec<Block>,
        usage: Usage,
        stop_reason: StopReason,
        is_error: bool,
        error: Option<Failure>,
    },
    /// An answer was checked, because a governing rule requires it or because the turn had sources.
    Validation {
        verdict: Judgement,
        /// The problems that the model must correct.
        violations: Vec<String>,
        /// The score for each law, in percent; null unless a rule requires scores.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        scores: Value,
        /// How well the sources support the answer, 0 to 1. Absent if there are no sources.
        support: Option<f64>,
        /// The model that judged the answer sentence by sentence; absent if none did.
        judge: Option<Box<JudgeUse>>,
        /// The first sentences of the answer, if it has sources.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sentences: Vec<SupportedSentence>,
    },
    CompactionStart {
        reason: String,
        estimated_tokens: u64,
    },
    Compaction {
        messages_before: u64,
        messages_after: u64,
        duration_ms: u64,
        is_error: bool,
        error: Option<Failure>,
        usage: Option<Usage>,
    },
    AgentEnd {
        messages: Vec<Message>,
    },
    Operation {
        operation_kind: OperationKind,
        duration_ms: u64,
        is_error: bool,
        result: Option<Value>,
        usage: Option<Usage>,
        error: Option<Failure>,
    },
    Log {
        level: String,
        message: String,
        attributes: Option<Value>,
    },
    Idle,
    /// The first event of a run. If the payload is too long for an event, a note replaces it; the run's record has the
    /// whole payload.
    RunStart {
        workflow_name: String,
        started_at: Timestamp,
        payload: Value,
    },
    /// The run continues after its last recorded step, because its holder was lost.
    RunResume {
        workflow_name: String,
        started_at: Timestamp,
        payload: Value,
    },
    /// The last event of a run. `result` is null if there is an error.
    RunEnd {
        result: Value,
        is_error: bool,
        error: Option<Failure>,
        duration_ms: u64,
    },
    SubmissionResumed {
        attempt: u32,
    },
    /// The last event of its submission.
    SubmissionSettled {
        outcome: Outcome,
        error: Option<String>,
    },
}

/// The worker whose call needs an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AskingWorker {
    pub agent: String,
    /// The session of the worker, as in [`Place::session`] of its own events.
    pub worker_session: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OperationKind {
    Prompt,
    Skill,
    Task,
    Shell,
    Compact,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    #[default]
    Agent,
    Compaction,
    CompactionPrefix,
}

/// How a submission ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Completed,
    Failed,
    Aborted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StopReason {
    Stop,
    Length,
    ToolUse,
    Error,
    Aborted,
    Interrupted,
}

impl StopReason {
    /// Whether a message of the root assistant with this stop reason contains the final text of its turn.
    pub fn is_final(self) -> bool {
        matches!(self, StopReason::Stop | StopReason::Length)
    }

    /// Whether the message was cut off before the model finished it. Such a message is not sent to the model again.
    pub fn is_incomplete(self) -> bool {
        matches!(self, StopReason::Error | StopReason::Aborted | StopReason::Interrupted)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Judgement {
    Pass,
    Fail,
}

/// An error of an event: a stable name for programs, and a message for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub name: String,
    pub message: String,
}

/// The name of the failure of a turn whose model has ended its answer without a text, and again when it was asked again.
pub const EMPTY_ANSWER: &str = "empty_answer";

impl Failure {
    pub fn new(name: &str, message: &str) -> Failure {
        Failure { name: name.to_owned(), message: message.to_owned() }
    }

    /// Returns the code by which replies and transcripts name the failure of a turn (ken-gateway(8)).
    pub fn code_of_turn(&self) -> &'static str {
        match self.name.as_str() {
            "timeout" => "deadline",
            "provider" | "model_not_configured" | "budget" => "model_failed",
            EMPTY_ANSWER => EMPTY_ANSWER,
            _ => "internal",
        }
    }
}

/// The first words of the result of a call to a tool that does not exist. The name of the tool follows.
pub const NO_TOOL: &str = "There is no tool `";

/// The result of a tool: text for the model, details for programs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    pub content: Vec<Block>,
    #[serde(default)]
    pub details: Value,
    /// Where the whole text is stored, if the content shows only its beginning and end; else the first image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Output>,
    /// The origins of outside text in the content.
    #[serde(default, skip_serializing_if = "Outside::is_empty")]
    pub outside: Outside,
}

impl ToolResult {
    /// Creates a result with this text and no details.
    pub fn of_text(text: impl Into<String>) -> ToolResult {
        ToolResult { content: vec![Block::text(text)], ..ToolResult::default() }
    }

    /// Returns the text of all its text blocks, joined.
    pub fn text(&self) -> String {
        joined(&self.content)
    }
}

/// A text that is stored as a blob in the store, or an image of which the content shows nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// SHA-256 of the text, in hexadecimal.
    pub blob: String,
    pub bytes: u64,
}

impl Output {
    /// Returns the name by which a model reads the text: the first 16 digits of the digest.
    pub fn id(&self) -> &str {
        self.blob.get(..OUTPUT_ID).unwrap_or(&self.blob)
    }
}

/// The name of the tool that reads an output.
pub const READ_OUTPUT: &str = "read_output";

/// The number of digits in the name of an output.
pub const OUTPUT_ID: usize = 16;

/// One message between the agent and a model.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Message {
    User {
        content: Vec<Block>,
        /// Epoch milliseconds, as in all messages.
        timestamp: i64,
        /// The date and time that a model is told with the message.
        now: Option<String>,
    },
    Assistant {
        content: Vec<Block>,
        api: String,
        provider: String,
        model: String,
        usage: Usage,
        stop_reason: Option<StopReason>,
        /// The reason of the failure. Only with the stop reason `error`.
        error: Option<Failure>,
        timestamp: i64,
    },
    ToolResult {
        tool_call_id: String,
        tool_name: String,
        content: Vec<Block>,
        #[serde(default)]
        details: Value,
        is_error: bool,
        timestamp: i64,
    },
    /// Input from a schedule, or a note about a recovery.
    Signal { content: Vec<Block>, timestamp: i64 },
}

impl Message {
    pub fn content(&self) -> &[Block] {
        match self {
            Message::User { content, .. }
            | Message::Assistant { content, .. }
            | Message::ToolResult { content, .. }
            | Message::Signal { content, .. } => content,
        }
    }

    /// Returns the text of all its text blocks, joined.
    pub fn text(&self) -> String {
        joined(self.content())
    }
}

/// Returns the text of the text blocks, joined.
pub fn joined(blocks: &[Block]) -> String {
    let texts = blocks.iter().filter_map(|block| match block {
        Block::Text { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// One part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Block {
    Text {
        text: String,
    },
    Thinking {
        thinking: String,
        /// A provider's signature or encrypted reasoning. It has to be sent back to the provider byte for byte.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opaque: Option<String>,
    },
    ToolCall {
        id: String,
        name: String,
        arguments: Value,
    },
    /// An image in base64. On a stream, a note replaces the data.
    Image {
        data: String,
        mime_type: String,
    },
}

impl Block {
    pub fn text(text: impl Into<String>) -> Block {
        Block::Text { text: text.into() }
    }
}

/// Token counts and their cost. An absent count means 0; the cost is 0 if no price is known.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    pub total_tokens: u64,
    pub cost: Cost,
}

/// The use of the model that judged the sentences of an answer.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JudgeUse {
    pub provider: String,
    pub model: String,
    /// The number of sentences of the answer, and of those that were judged.
    pub sentences: u64,
    pub judged: u64,
    pub calls: u32,
    pub usage: Usage,
    pub duration_ms: u64,
    /// Why the judge could not be asked about everything.
    pub error: Option<String>,
}

/// Estimates the number of tokens of a text without a tokenizer: a quarter of its bytes in UTF-8, rounded up. Byte-pair
/// vocabularies have about four bytes per token in English; for other scripts the estimate is too high.
pub fn estimated_tokens(text: &str) -> u64 {
    text.len().div_ceil(4) as u64
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        self.input += other.input;
        self.output += other.output;
        self.cache_read += other.cache_read;
        self.cache_write += other.cache_write;
        self.total_tokens += other.total_tokens;
        self.cost.input += other.cost.input;
        self.cost.output += other.cost.output;
        self.cost.cache_read += other.cost.cache_read;
        self.cost.cache_write += other.cost.cache_write;
        self.cost.total += other.cost.total;
    }
}

/// Costs in US dollars. Zero is written as `0`, not as `0.0`.
#[serde_with::apply(f64 => #[serde(serialize_with = "plain_number")])]
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cost {
    pub input: f64,
    pub output: f64,
    pub cache_read: f64,
    pub cache_write: f64,
    pub total: f64,
}

fn plain_number<S: serde::Serializer>(amount: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if *amount == 0.0 { serializer.serialize_u8(0) } else { serializer.serialize_f64(*amount) }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelName {
    pub provider: String,
    pub id: String,
}

/// How the sources support a sentence of an answer.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SupportedSentence {
    /// Where it begins and ends in the answer, in bytes.
    pub start: usize,
    pub end: usize,
    /// An estimate of how many readers would say that the sources support it, 0 (none) to 1 (all).
    pub support: f64,
    /// Whether a source says something else about the same thing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub contradicted: bool,
    /// The source that says it best, as the answer names it: `[1]`; and the beginning of its sentence.
    pub source: Option<String>,
    pub passage: Option<String>,
}

/// The result of a prompt: the final text, the usage of all its turns, and the model of the last one.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnResult {
    pub text: String,
    pub usage: Usage,
    pub model: ModelName,
    /// The budget of the context. Only in the result of `/compact`.
    pub context_budget: Option<Value>,
    /// The result of checking the text, if it was checked: `verdict`, `violations`, `scores`, `support`, and
    /// `revisions`, the number of times that the model was told to write it again.
    pub validation: Option<Value>,
    /// The sources that the text names by their numbers, in the order of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<CitedSource>,
    /// The calls of tools of the user's program with which the turn ended. The program answers them with its next message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ProgramCall>,
}

/// A call of a tool of the program through which the user writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProgramCall {
    pub id: String,
    /// Its name as the program knows it.
    pub name: String,
    pub arguments: Value,
}

/// A source of an answer, which names it as `[number]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CitedSource {
    /// Unique within the turn.
    pub number: u32,
    /// The id of a knowledge entry, or of the submission of a past exchange.
    pub id: String,
    pub title: String,
    /// The score of the search, 0 to 1.
    pub score: f64,
}

/// As much of the id of a knowledge entry identifies it in one system: `kb-` and 12 of its 32 digits.
pub const ENTRY_ID_CHARACTERS: usize = 15;

impl CitedSource {
    /// Returns the source as a person reads it below an answer: `[1] The router (kb-876f7403acc1)`. Of the id of an entry as
    /// much is shown as the commands need.
    pub fn line(&self) -> String {
        let id = if self.id.starts_with("kb-") { self.id.get(..ENTRY_ID_CHARACTERS) } else { None };
        let title = self.title.split_whitespace().collect::<Vec<_>>().join(" ");
        format!("[{}] {title} ({})", self.number, id.unwrap_or(&self.id))
    }

    /// Returns the lines that stand below an answer, or an empty text if it has no sources.
    pub fn lines(sources: &[CitedSource]) -> String {
        let lines: Vec<String> = sources.iter().map(CitedSource::line).collect();
        lines.join("\n")
    }
}

/// Returns the numbers that a text names in brackets, as `[1]` or `[1, 2]`. A text that is JSON names none, because its brackets
/// are lists.
pub fn cited_numbers(text: &str) -> BTreeSet<u32> {
    if serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() {
        return BTreeSet::new();
    }
    let groups = text.split('[').skip(1).filter_map(|rest| rest.split_once(']'));
    let numbers = groups.filter_map(|(group, _)| group.split(',').map(|number| number.trim().parse().ok()).collect());
    numbers.flat_map(|group: Vec<u32>| group).collect()
}

/// Reads and writes the `output` of a turn, a message: `{"role":"assistant","content":[…]}`. Streams of earlier
/// versions contain only its content.
mod output {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Block;

    #[derive(Serialize)]
    struct Message<'a> {
        role: &'static str,
        content: &'a [Block],
    }

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Read {
        Content(Vec<Block>),
        Message { content: Vec<Block> },
    }

    pub(super) fn serialize<S: Serializer>(content: &[Block], serializer: S) -> Result<S::Ok, S::Error> {
        let role = "assistant";
        Message { role, content }.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Block>, D::Error> {
        Ok(match Read::deserialize(deserializer)? {
            Read::Content(content) | Read::Message { content } => content,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_named_by_numbers_in_brackets() {
        let cited = |text: &str| cited_numbers(text).into_iter().collect::<Vec<u32>>();
        assert_eq!(cited("It closes at six [2], on Sundays at two [1, 3][12]."), [1, 2, 3, 12]);
        for none in ["", "[kb-1]", "[a, 1]", "[]", "[1", "{\"ports\": [1]}", "[1, 2]", "[-1] [1.5]"] {
            assert!(cited(none).is_empty(), "{none}");
        }
    }

    #[test]
    fn turns_that_nobody_waits_for_are_dispatched() {
        for (connector, instance, dispatched) in [
            (Some("messenger"), "connector-1", true),
            (None, "schedule:01K2:01K3", true),
            (Some("tui"), "schedule:01K2:01K3", true),
            (Some("tui"), "tui-1", false),
            (None, "mine", false),
        ] {
            assert_eq!(is_dispatched(connector, instance), dispatched, "{connector:?} {instance}");
        }
    }

    #[test]
    fn an_event_is_flat_and_begins_with_version_and_type() {
        let event = Event {
            v: VERSION,
            body: Body::TextDelta { text: "hi".into() },
            place: Place {
                event_index: 4,
                timestamp: Timestamp::from_millis(0),
                instance_id: "i".into(),
                submission_id: SubmissionId("s".into()),
                dispatch_id: None,
                session: "default".into(),
                harness: "default".into(),
                operation_id: None,
                turn_id: Some("turn_1".into()),
                task_id: None,
                parent_session: None,
            },
        };
        let text = serde_json::to_string(&event).unwrap();
        let wanted = r#"{"v":1,"type":"text_delta","text":"hi","eventIndex":4,"timestamp":"1970-01-01T00:00:00.000Z","instanceId":"i","submissionId":"s","session":"default","harness":"default","turnId":"turn_1"}"#;
        assert_eq!(text, wanted);
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
    }

    #[test]
    fn an_approval_of_a_worker_names_it_in_the_same_flat_object() {
        let worker = AskingWorker { agent: "coding-worker".into(), worker_session: "task:default:c1".into() };
        for (worker, wanted) in [
            (Some(worker), r#","agent":"coding-worker","workerSession":"task:default:c1"}"#),
            (None, r#"{"type":"approval_decided","requestId":"apr_1","status":"expired"}"#),
        ] {
            let body = Body::ApprovalDecided {
                request_id: "apr_1".into(),
                status: "expired".into(),
                decided_by: None,
                worker,
            };
            let text = serde_json::to_string(&body).unwrap();
            assert!(text.ends_with(wanted), "{text}");
            assert_eq!(serde_json::from_str::<Body>(&text).unwrap(), body);
        }
    }

    #[test]
    fn usage_without_a_price_costs_plain_zero() {
        let text = serde_json::to_string(&Usage::default()).unwrap();
        let wanted = r#"{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}}"#;
        assert_eq!(text, wanted);
    }

    #[test]
    fn a_message_is_tagged_by_its_role() {
        let message = Message::ToolResult {
            tool_call_id: "c".into(),
            tool_name: "t".into(),
            content: vec![Block::text("ok")],
            details: Value::Null,
            is_error: false,
            timestamp: 1,
        };
        let text = serde_json::to_string(&message).unwrap();
        assert!(text.starts_with(r#"{"role":"toolResult","toolCallId":"c""#), "{text}");
    }
}
