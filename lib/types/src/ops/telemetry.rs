//! The operations of `ken-store` on telemetry: a summary of each submission and run, usage, and why a message ended as it did.
//! Summaries hold names, numbers and ids, and no text of a prompt, an answer, an argument, a result or an error.

use serde::{Deserialize, Serialize};

use super::Nothing;
use crate::event::{Failure, Output};
use crate::id::SubmissionId;
use crate::{Error, Offset, Timestamp};

crate::operations! {
    /// Summaries, newest first.
    TelemetryList, "telemetry.list": ListSummaries => SummaryPage;
    /// The summary of a submission or a run.
    TelemetryGet, "telemetry.get": ByWork => Summary;
    /// Usage by day, model or session, of submissions and runs that have ended: at most 10,000, of the last 30 days.
    TelemetryUsage, "telemetry.usage": GroupUsage => UsageGroups;
    /// The submissions and runs that have ended and are not exported yet, in the order in which they ended; at most 256.
    TelemetryEnded, "telemetry.ended": Nothing => Ended;
    /// Records that everything up to a time was exported, or could not be sent.
    TelemetryExported, "telemetry.exported": Exported => Nothing;
    /// What happened to a message, also to a refused one: by the id of its event, its submission or its run.
    EventsWhy, "events.why": ByWork => Why;
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByWork {
    /// The id of a submission or a run; for `events.why` also of an event or a run of a schedule.
    pub id: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ended {
    /// The time up to which everything was exported. `None` if nothing ever was: work that ended before the export was configured
    /// is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    pub runs: Vec<EndedRun>,
    /// The number of those that are not listed here.
    pub waiting: u64,
}

/// A submission or a run that has ended, and the position of its events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedRun {
    pub id: String,
    pub kind: WorkKind,
    /// The agent that ran it; absent for a run of a workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    pub stream: String,
    pub recorded_from: Offset,
    pub ended_at: Timestamp,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exported {
    pub until: Timestamp,
    /// The number of those that could not be sent.
    #[serde(default)]
    pub lost: u64,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListSummaries {
    pub connector: Option<String>,
    pub kind: Option<WorkKind>,
    /// 1 to 100.
    #[serde(default = "fifty")]
    pub limit: u32,
    /// A cursor of an earlier page of the same list; another one is `invalid` at `?after`.
    pub after: Option<String>,
}

fn fifty() -> u32 {
    50
}

/// The body of the HTTP answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SummaryPage {
    pub runs: Vec<Summary>,
    /// The number of events that belong to no submission and no run: always 0, because each is stored with its submission.
    pub unscoped_event_count: u64,
    pub page: super::Page,
}

crate::named! {
    pub enum WorkKind {
        Prompt = "prompt",
        /// A compaction that a user asked for.
        Command = "command",
        Schedule = "schedule",
        Workflow = "workflow",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkStatus {
    Queued,
    /// Also while it waits for a decision.
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
    /// `api` for requests to `/agents` or `/workflows` without a session.
    pub connector: String,
    /// The instance; null for a workflow.
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
    /// US dollars; null if no price is known.
    pub cost: Option<f64>,
    /// The last model that answered, as `provider/model`.
    pub model: Option<String>,
    pub task_starts: Vec<EventSummary>,
    pub tool_calls: Vec<EventSummary>,
    pub operations: Vec<EventSummary>,
    pub errors: Vec<EventSummary>,
    /// At most 500.
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
    pub input: u64,
    pub output: u64,
    pub total_tokens: u64,
}

impl std::ops::AddAssign for Tokens {
    fn add_assign(&mut self, other: Tokens) {
        self.input += other.input;
        self.output += other.output;
        self.total_tokens += other.total_tokens;
    }
}

/// An event without its content: these fields and no others.
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
    /// In UTC.
    Day,
    Model,
    Session,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupUsage {
    pub by: GroupBy,
    /// Only the work of this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UsageGroups {
    /// Days newest first, models and sessions with the most tokens first.
    pub groups: Vec<UsageGroup>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageGroup {
    /// The day, the model or the session; `-` for work without a model or a session.
    pub key: String,
    pub runs: u64,
    #[serde(flatten)]
    pub usage: Tokens,
    /// US dollars; null if no price is known.
    pub cost: Option<f64>,
}

/// What happened to a message.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    pub id: String,
    /// `refused`, `handled` (a command that needed no turn), `queued`, `running`, `waiting`, `completed`, `failed` or `aborted`; of
    /// an update of the messaging platform that never became a message `rejected`, `ignored` or `pressed`; of a run of a schedule its
    /// own status.
    pub status: String,
    /// The cause, as a sentence.
    pub cause: String,
    pub received_at: Option<Timestamp>,
    pub session_id: Option<String>,
    pub submission_id: Option<SubmissionId>,
    /// Why it was refused.
    pub refused: Option<Error>,
    /// Why it failed.
    pub error: Option<Failure>,
    /// The ids of the approvals that it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<String>,
    /// The state of the answer to a chat: `pending`, `sending`, `sent`, `failed` or `unknown`, followed by the error, if any.
    pub delivery: Option<String>,
    /// Outputs of its tools of which the model was shown only a part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<Output>,
}
