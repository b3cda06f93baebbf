//! The operations of `ken-store` on telemetry: a summary of each submission and run, usage, and the reason why a
//! message ended as it did. Summaries contain names, numbers and ids, but no text of a prompt, an answer, an argument,
//! a result or an error.

use serde::{Deserialize, Serialize};

use super::{Nothing, Page, fifty};
use crate::event::{Failure, Output};
use crate::id::SubmissionId;
use crate::{Error, Offset, Timestamp};

crate::operations! {
    /// Returns summaries, newest first.
    TelemetryList, "telemetry.list": ListSummaries => SummaryPage;
    /// Returns the summary of a submission or a run.
    TelemetryGet, "telemetry.get": ByWork => Summary;
    /// Returns the submissions and runs that have failed since a time, newest first, at most 50.
    TelemetryFailed, "telemetry.failed": FailedSince => FailedWorks;
    /// Returns usage by day, model or session, of submissions and runs that have ended: at most 10,000 of them, from
    /// the last 30 days.
    TelemetryUsage, "telemetry.usage": GroupUsage => UsageGroups;
    /// Returns the submissions and runs that have ended and are not exported yet, ordered by their end; at most 256.
    TelemetryEnded, "telemetry.ended": Nothing => Ended;
    /// Records that everything up to a time has been exported, or could not be sent.
    TelemetryExported, "telemetry.exported": Exported => Nothing;
    /// Returns what happened to a message, even if it was refused. The id is that of its event, submission or run.
    EventsWhy, "events.why": ByWork => Why;
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByWork {
    /// The id of a submission or a run. `events.why` also accepts the id of an event or of a run of a schedule.
    pub id: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ended {
    /// Everything up to this time has been exported. `None` if nothing has: work that ended before the export was
    /// configured is not exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    pub runs: Vec<EndedRun>,
    /// The number of ended submissions and runs that are not listed here.
    pub waiting: u64,
}

/// A submission or a run that has ended, and the position of its events.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedRun {
    pub id: String,
    pub kind: WorkKind,
    /// The agent that ran the submission. Absent for a run of a workflow.
    pub agent: Option<String>,
    pub stream: String,
    pub recorded_from: Offset,
    pub ended_at: Timestamp,
    /// The host that worked on it last, if several share a database.
    pub host: Option<RunHost>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RunHost {
    pub id: String,
    /// The name of the machine, if the host was not removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exported {
    pub until: Timestamp,
    /// The number of submissions and runs that could not be sent.
    #[serde(default)]
    pub lost: u64,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListSummaries {
    pub connector: Option<String>,
    pub kind: Option<WorkKind>,
    /// The maximum number of summaries, 1 to 100.
    #[serde(default = "fifty")]
    pub limit: u32,
    /// A cursor from an earlier page of the same list. Any other is `invalid` at `?after`.
    pub after: Option<String>,
}

/// The body of the HTTP response.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SummaryPage {
    pub runs: Vec<Summary>,
    /// The number of events that belong to no submission and no run. It is always 0, because each event is stored with
    /// its submission.
    pub unscoped_event_count: u64,
    pub page: Page,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailedSince {
    pub since: Timestamp,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FailedWorks {
    pub failed: Vec<FailedWork>,
}

/// A submission or run that has failed.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedWork {
    pub id: String,
    pub kind: WorkKind,
    /// Absent for a run of a workflow.
    pub session_id: Option<String>,
    /// Of a run of a workflow.
    pub workflow_name: Option<String>,
    pub ended_at: Timestamp,
    /// The reason, as a sentence.
    pub cause: String,
}

crate::named! {
    pub enum WorkKind {
        Prompt = "prompt",
        /// A compaction that a user requested.
        Command = "command",
        Schedule = "schedule",
        Workflow = "workflow",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkStatus {
    Queued,
    /// Running, or waiting for a decision.
    Running,
    Completed,
    Failed,
    Aborted,
}

/// The summary of one submission or run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    pub run_id: String,
    pub kind: WorkKind,
    /// The connector. `api` for requests to `/agents` or `/workflows` without a session.
    pub connector: String,
    /// The instance. Null for a workflow.
    pub session_id: Option<String>,
    pub submission_id: Option<SubmissionId>,
    pub status: WorkStatus,
    /// The time of its first event.
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub duration_ms: Option<u64>,
    pub event_count: u64,
    pub delegated_to_researcher: bool,
    pub called_web_research: bool,
    pub counts: Counts,
    pub usage: Tokens,
    /// The cost in US dollars. Null if no price is known.
    pub cost: Option<f64>,
    /// The last model that answered, as `provider/model`.
    pub model: Option<String>,
    pub task_starts: Vec<EventSummary>,
    pub tool_calls: Vec<EventSummary>,
    pub operations: Vec<EventSummary>,
    pub errors: Vec<EventSummary>,
    /// At most 500 events.
    pub events: Vec<EventSummary>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub events_truncated: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    pub turns: u64,
    pub tool_calls: u64,
    pub tasks: u64,
    pub errors: u64,
    pub approvals: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Tokens {
    /// The input that the provider had not read before.
    pub input: u64,
    pub output: u64,
    /// The input that was found in the provider's cache, and that was written to it.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_read: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write: u64,
    pub total_tokens: u64,
}

fn is_zero(tokens: &u64) -> bool {
    *tokens == 0
}

impl std::ops::AddAssign for Tokens {
    fn add_assign(&mut self, other: Tokens) {
        self.input += other.input;
        self.output += other.output;
        self.cache_read += other.cache_read;
        self.cache_write += other.cache_write;
        self.total_tokens += other.total_tokens;
    }
}

/// An event without its content. It has only these fields.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventSummary {
    pub r#type: String,
    pub timestamp: Option<Timestamp>,
    pub event_index: Option<u64>,
    pub run_id: Option<String>,
    pub harness: Option<String>,
    pub session: Option<String>,
    pub parent_session: Option<String>,
    pub task_id: Option<String>,
    pub operation_id: Option<String>,
    pub turn_id: Option<String>,
    pub agent: Option<String>,
    pub tool_name: Option<String>,
    pub operation_kind: Option<String>,
    pub duration_ms: Option<u64>,
    pub is_error: Option<bool>,
    pub usage: Option<Tokens>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GroupBy {
    /// By day in UTC.
    Day,
    Model,
    Session,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupUsage {
    pub by: GroupBy,
    /// Counts only the work of this session.
    pub session: Option<String>,
    /// The maximum number of groups to return.
    pub limit: Option<usize>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UsageGroups {
    /// The groups. Days are sorted from the newest, models and sessions by their tokens, highest first.
    pub groups: Vec<UsageGroup>,
    /// The sum of the groups beyond the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<OtherGroups>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OtherGroups {
    pub groups: u64,
    pub runs: u64,
    #[serde(flatten)]
    pub usage: Tokens,
    pub cost: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageGroup {
    /// The day, the model or the session. `-` for work without a model or session.
    pub key: String,
    pub runs: u64,
    #[serde(flatten)]
    pub usage: Tokens,
    /// The cost in US dollars. Null if no price is known.
    pub cost: Option<f64>,
    /// How long a turn has taken on average, in milliseconds. Null for workflows alone, which wait for other things than models.
    pub mean_ms: Option<u64>,
}

/// What happened to a message.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    pub id: String,
    /// `refused`, `handled` (a command that needed no turn), `queued`, `running`, `waiting`, `completed`, `failed` or
    /// `aborted`. For an update of the messaging platform that did not become a message: `rejected`, `ignored` or
    /// `pressed`. For a run of a schedule: the status of the run.
    pub status: String,
    /// The reason for the status, as a sentence.
    pub cause: String,
    pub received_at: Option<Timestamp>,
    pub session_id: Option<String>,
    pub submission_id: Option<SubmissionId>,
    /// Why the message was refused.
    pub refused: Option<Error>,
    /// Why the turn or run failed.
    pub error: Option<Failure>,
    /// The ids of the approvals that it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<String>,
    /// How many processes have worked on it. Absent if none has yet.
    pub attempts: Option<u32>,
    /// The name of the host that has worked on it last, or its id if it was removed. Absent if that is the host that answers.
    pub host: Option<String>,
    /// The model calls that failed, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailedCall>,
    /// The tool calls that failed, in order, those of workers included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_failures: Vec<FailedTool>,
    /// Answers that had to be written again, or could not be checked: what a governing rule or a source had against
    /// them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<String>,
    /// The delivery state of the answer to a chat, or of the result of a run of a schedule: `pending`, `sending`, `sent`, `failed` or
    /// `unknown`, followed by the error, if any.
    pub delivery: Option<String>,
    /// Outputs of tools that were shown to the model only in part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<Output>,
}

/// A model call that failed, and the model that was called after it.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedCall {
    /// `provider/model`.
    pub model: String,
    /// Why it failed.
    pub error: String,
    /// `provider/model` of the next call: the same model for another attempt, another one for a fall-back. Absent if no
    /// model was called after it.
    pub next: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedTool {
    pub tool: String,
    /// Why it failed, in at most 300 characters.
    pub error: String,
}
