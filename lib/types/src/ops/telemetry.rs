//! The operations of `ken-store` on what was done: a summary of each submission and run, usage, and why a message ended as it
//! did. Summaries hold names, numbers and ids; no text of a prompt, an answer, an argument, a result or an error is in them.

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
    /// What was used, by day, model or session: of the submissions and runs that have ended, at most 10 000 and 30 days.
    TelemetryUsage, "telemetry.usage": GroupUsage => UsageGroups;
    /// What has ended and is not exported yet, in that order: at most 256.
    TelemetryEnded, "telemetry.ended": Nothing => Ended;
    /// Notes that everything up to a time is exported, or was given up.
    TelemetryExported, "telemetry.exported": Exported => Nothing;
    /// What became of a message, also of one that was refused: by the id of its event, its submission or its run.
    EventsWhy, "events.why": ByWork => Why;
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByWork {
    /// Of a submission or a run.
    pub id: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ended {
    /// `None` when nothing was ever exported: what ended before the export was configured is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    pub runs: Vec<EndedRun>,
    /// How many more are waiting.
    pub waiting: u64,
}

/// A submission or a run that has ended, and where its events are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedRun {
    pub id: String,
    pub kind: WorkKind,
    /// The agent that ran it; absent of a run of a workflow.
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
    /// How many of them could not be sent.
    #[serde(default)]
    pub lost: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListSummaries {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connector: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<WorkKind>,
    /// 1 to 100.
    #[serde(default = "fifty")]
    pub limit: u32,
    /// A cursor of an earlier page of the same list; another one is `invalid` at `?after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

fn fifty() -> u32 {
    50
}

/// The whole body of the HTTP answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SummaryPage {
    pub runs: Vec<Summary>,
    /// Events that belong to no submission and no run. There are none: each is stored with its submission.
    pub unscoped_event_count: u64,
    pub page: super::Page,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkKind {
    Prompt,
    /// A compaction that was asked for.
    Command,
    Schedule,
    Workflow,
}

impl WorkKind {
    pub fn name(self) -> &'static str {
        match self {
            WorkKind::Prompt => "prompt",
            WorkKind::Command => "command",
            WorkKind::Schedule => "schedule",
            WorkKind::Workflow => "workflow",
        }
    }

    pub fn named(name: &str) -> Option<WorkKind> {
        [
            WorkKind::Prompt,
            WorkKind::Command,
            WorkKind::Schedule,
            WorkKind::Workflow,
        ]
        .into_iter()
        .find(|kind| kind.name() == name)
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

/// What was done for one submission or run (gateway-http 11).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    pub run_id: String,
    pub kind: WorkKind,
    /// `api` for what came to `/agents` or `/workflows` without a session.
    pub connector: String,
    /// The instance; null for a workflow.
    pub session_id: Option<String>,
    pub submission_id: Option<SubmissionId>,
    pub status: WorkStatus,
    /// Of its first event.
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub duration_ms: Option<u64>,
    pub event_count: u64,
    pub delegated_to_researcher: bool,
    pub called_web_research: bool,
    pub counts: Counts,
    pub usage: Tokens,
    /// US dollars; null when no price is known.
    pub cost: Option<f64>,
    /// The last one that answered, as `provider/model`.
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

/// An event without what it says: these fields and no others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventSummary {
    pub r#type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_index: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub harness: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UsageGroups {
    /// Days newest first, models and sessions with the most tokens first.
    pub groups: Vec<UsageGroup>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageGroup {
    /// The day, the model or the session; `-` for work that no model or no session had.
    pub key: String,
    pub runs: u64,
    #[serde(flatten)]
    pub usage: Tokens,
    /// US dollars; null when no price is known of any.
    pub cost: Option<f64>,
}

/// What became of a message.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    pub id: String,
    /// `refused`, `handled` (a command that needed no turn), `queued`, `running`, `waiting`, `completed`, `failed` or `aborted`; of
    /// an update of the messaging platform that never became a message `rejected`, `ignored` or `pressed`.
    pub status: String,
    /// The cause as a sentence.
    pub cause: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission_id: Option<SubmissionId>,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Error>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// Decisions that it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<String>,
    /// What has become of the answer to a chat: `pending`, `sending`, `sent`, `failed` or `unknown`, and the error if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<String>,
    /// Outputs of its tools of which a model was shown only a part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<Output>,
}
