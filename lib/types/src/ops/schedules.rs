//! The operations on schedules, of `ken-scheduler` and of `ken-store`. The records are those of the HTTP contract. All times are
//! epoch milliseconds.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Nothing;
use super::Page;
use super::store::Scope;
use crate::id::SubmissionId;

/// The agents that a schedule may name. The first one also runs all turns that no schedule started.
pub const AGENTS: [&str; 2] = ["orchestrator", "coding-worker"];

/// The agent that runs a turn with this context: the one that its schedule names, if a schedule started it.
pub fn target_agent(context: Option<&Value>) -> &'static str {
    let target = context.and_then(|context| context.pointer("/schedule/targetAgent"));
    let [usual, others @ ..] = AGENTS;
    let named = others.into_iter().find(|agent| target.is_some_and(|target| target == agent));
    named.unwrap_or(usual)
}

crate::operations! {
    /// Checks and stores a schedule. `conflict` if the slug is taken and `replace` is not set.
    SchedulesCreate, "schedules.create": CreateSchedule => Schedule;
    /// Changes the given fields only.
    SchedulesUpdate, "schedules.update": UpdateSchedule => Schedule;
    /// Resumes a paused schedule. Slots that passed while it was paused do not count as missed.
    SchedulesResume, "schedules.resume": OfSchedule => Schedule;
    /// Starts a run by hand, also of a paused schedule. With `wait_ms` it replies when the run has ended or the time is over.
    SchedulesRun, "schedules.run": RunSchedule => ScheduleRun;

    /// Reads a schedule. Both parts serve this and the next five operations; `ken-scheduler` forwards them to the store.
    SchedulesGet, "schedules.get": OfSchedule => Schedule;
    /// Lists schedules by slug, without their texts.
    SchedulesList, "schedules.list": ListSchedules => ScheduleList;
    /// Pauses a schedule: it does not fire until it is resumed. Running turns continue.
    SchedulesPause, "schedules.pause": OfSchedule => Schedule;
    /// Deletes a schedule. Waiting runs are skipped; a running one continues.
    SchedulesDelete, "schedules.delete": OfSchedule => Nothing;
    /// Lists the runs of a schedule, newest first, with texts cut to [`LISTED_TEXT_BYTES`].
    SchedulesRuns, "schedules.runs": ListScheduleRuns => ScheduleRunPage;
    /// Reads a run, also of a schedule that was deleted in the last 24 hours.
    SchedulesRunGet, "schedules.run_get": OneScheduleRun => ScheduleRun;

    /// Store only, like the rest of this list: stores a schedule with its next slot, and replaces its expected generation.
    SchedulesPut, "schedules.put": PutSchedule => Schedule;
    /// Reads a schedule with its progress.
    SchedulesState, "schedules.state": OfSchedule => ScheduleState;
    /// Records a run that was started by hand. A known id gets its first answer again.
    SchedulesStart, "schedules.start": StartRun => ScheduleRun;
    /// Records the outcome of slots, each exactly once. The reply says what is due now, and when to call again.
    SchedulesAdvance, "schedules.advance": Advance => Advanced;
}

/// The most schedules of a store.
pub const SCHEDULES: u64 = 10_000;
pub const SLUG_CHARACTERS: usize = 64;
/// The longest prompt, and the longest payload as JSON text.
pub const SCHEDULE_PROMPT_BYTES: usize = 64 * 1024;
pub const SCHEDULE_PAYLOAD_BYTES: usize = 64 * 1024;
/// The maximum number of active runs of all schedules together.
pub const SCHEDULE_RUNS: u64 = 8;
/// The number of ended runs that are kept for each schedule, and the longest page of runs.
pub const KEPT_RUNS: usize = 200;
pub const PAGE_SCHEDULE_RUNS: u32 = 500;
/// The maximum number of runs of a schedule that wait under `overlap: queue`.
pub const QUEUED_RUNS: u64 = 10;
/// The maximum number of missed slots that `missed: all` runs.
pub const CAUGHT_UP: usize = 100;
/// How much of a result a list shows, and how much a run keeps, in bytes. The transcript has the whole text.
pub const LISTED_TEXT_BYTES: usize = 2 * 1024;
pub const RESULT_TEXT_BYTES: usize = 256 * 1024;
/// How long the runs of a deleted schedule can be read, in milliseconds.
pub const DELETED_MS: i64 = 24 * 3_600_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleKind {
    Cron,
    Every,
    At,
}

/// What happens to slots that are found later than the grace period allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Missed {
    Skip,
    Last,
    All,
}

/// What happens to a slot while a run of its schedule is active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    Skip,
    Queue,
}

/// Where the result of a run goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "deliverTo is {\"session\":ID} or {\"connector\":\"messenger\",\"chatId\":ID}")]
pub enum DeliverTo {
    Session(ToSession),
    Chat(ToChat),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToSession {
    pub session: String,
}

/// A conversation of the messenger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToChat {
    pub connector: String,
    pub chat_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
}

/// When and how a schedule fires, as its owner set it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    pub kind: ScheduleKind,
    /// A cron expression, an interval such as `90m`, or an instant.
    pub schedule: String,
    /// An IANA name.
    pub timezone: String,
    pub target_agent: String,
    pub max_attempts: u32,
    pub delete_after_run: bool,
    pub missed: Missed,
    /// How late a slot may fire without counting as missed, in milliseconds.
    pub grace_ms: i64,
    pub overlap: Overlap,
    pub timeout_ms: i64,
    pub jitter_ms: i64,
    pub deliver_to: Option<DeliverTo>,
    /// The number of failed runs in a row after which the schedule is paused; if absent, it never is.
    pub disable_after_failures: Option<u32>,
}

/// A schedule as the HTTP contract shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Schedule {
    pub id: String,
    pub slug: String,
    #[serde(flatten)]
    pub settings: Settings,
    pub prompt: String,
    pub payload: Option<Value>,
    pub enabled: bool,
    /// `admin`, or connector, actor and conversation of the session whose agent created it.
    pub owner_scope: String,
    /// Whether `overlap` is `skip`.
    pub protect: bool,
    pub last_fired_at: Option<i64>,
    pub next_fire_at: Option<i64>,
    pub last_run_status: Option<RunState>,
    pub created_at: i64,
    pub updated_at: i64,
}

/// A schedule as lists show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleSummary {
    pub id: String,
    pub slug: String,
    pub kind: ScheduleKind,
    pub schedule: String,
    pub timezone: String,
    pub target_agent: String,
    pub enabled: bool,
    pub next_fire_at: Option<i64>,
    pub last_fired_at: Option<i64>,
    pub last_run_status: Option<RunState>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScheduleList {
    pub schedules: Vec<ScheduleSummary>,
}

crate::named! {
    /// The state of a run of a schedule.
    pub enum RunState {
        /// It waits to be started, or for its next attempt.
        Queued = "queued",
        /// Its submission waits for the agent.
        Admitted = "admitted",
        Running = "running",
        Ok = "ok",
        Error = "error",
        Timeout = "timeout",
        Skipped = "skipped",
        Missed = "missed",
        /// Interrupted by a crash, and not safe to repeat.
        Unknown = "unknown",
    }
}

impl RunState {
    pub fn is_terminal(self) -> bool {
        !matches!(self, RunState::Queued | RunState::Admitted | RunState::Running)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trigger {
    Slot,
    Manual,
}

/// Why a slot did not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reason {
    Overlap,
    /// The scheduler was not running.
    Down,
    /// The scheduler was running but late: the machine slept, or its clock was changed.
    Late,
    Deleted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Delivery {
    None,
    Pending,
    Sent,
    Failed,
    Unknown,
}

/// A run of a schedule as the HTTP contract shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleRun {
    pub run_id: String,
    pub schedule_id: String,
    /// Absent for a run by hand.
    pub slot_at: Option<i64>,
    pub trigger: Trigger,
    pub status: RunState,
    /// The number of the attempt; 0 until the run is admitted.
    pub attempt: u32,
    pub instance_id: String,
    pub session_id: String,
    pub submission_id: Option<SubmissionId>,
    pub dispatch_id: Option<SubmissionId>,
    pub result_text: Option<String>,
    /// What went wrong, for people.
    pub error: Option<String>,
    pub reason: Option<Reason>,
    pub delivery: Delivery,
    pub started_at: Option<i64>,
    pub admitted_at: Option<i64>,
    pub finished_at: Option<i64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScheduleRunPage {
    pub runs: Vec<ScheduleRun>,
    pub page: Page,
}

/// The fields of a schedule that a caller sets. An absent field has its default, or keeps its value in an update.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fields {
    pub kind: Option<ScheduleKind>,
    pub schedule: Option<String>,
    pub tz: Option<String>,
    pub prompt: Option<String>,
    pub target_agent: Option<String>,
    /// `Some(None)` removes it.
    #[serde(default, deserialize_with = "nullable")]
    pub payload: Option<Option<Value>>,
    pub enabled: Option<bool>,
    pub max_attempts: Option<u32>,
    pub delete_after_run: Option<bool>,
    pub missed: Option<Missed>,
    pub grace_ms: Option<i64>,
    pub overlap: Option<Overlap>,
    pub timeout_ms: Option<i64>,
    pub jitter_ms: Option<i64>,
    /// `Some(None)` removes it.
    #[serde(default, deserialize_with = "nullable")]
    pub deliver_to: Option<Option<DeliverTo>>,
    /// `Some(None)` removes it.
    #[serde(default, deserialize_with = "nullable")]
    pub disable_after_failures: Option<Option<u32>>,
}

/// Distinguishes `null` from an absent field.
fn nullable<'de, D, T>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Some)
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateSchedule {
    /// A ULID: the id of the schedule if this call creates one.
    pub id: String,
    pub slug: String,
    /// If absent, the operator owns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Scope>,
    #[serde(default)]
    pub replace: bool,
    pub fields: Fields,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpdateSchedule {
    pub slug: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Scope>,
    pub fields: Fields,
}

/// Names a schedule by its slug. If `owner` is set, schedules of other owners are not found.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfSchedule {
    pub slug: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Scope>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListSchedules {
    /// If absent, all schedules are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Scope>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSchedule {
    pub slug: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Scope>,
    /// A ULID: the id of the run.
    pub run_id: String,
    #[serde(default)]
    pub wait_ms: u64,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListScheduleRuns {
    pub slug: String,
    pub owner: Option<Scope>,
    #[serde(default = "fifty")]
    pub limit: u32,
    pub after: Option<String>,
}

fn fifty() -> u32 {
    50
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneScheduleRun {
    pub slug: String,
    pub run_id: String,
}

/// A future slot: its instant, and when it fires, which may be later because of jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NextSlot {
    pub slot: i64,
    pub fire: i64,
}

/// How far a schedule has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// The instant from which intervals count.
    pub anchor: i64,
    /// Every slot up to this instant has its record, or passed while the schedule was paused.
    pub mark: i64,
    /// Absent for a paused schedule, and for one that does not fire any more.
    pub next: Option<NextSlot>,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutSchedule {
    pub id: String,
    pub slug: String,
    pub owner: Option<Scope>,
    pub settings: Settings,
    pub prompt: String,
    pub payload: Option<Value>,
    pub enabled: bool,
    pub progress: Progress,
    /// Whether the settings of the connector admit the conversation of `deliverTo`. If not, the stored policy must admit it.
    #[serde(default)]
    pub chat_is_configured: bool,
    /// The generation that this replaces; `conflict` if the stored one is another. If absent, the slug must be free.
    pub expect: Option<u64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScheduleState {
    pub schedule: Schedule,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Scope>,
    /// The number of changes of the schedule.
    pub generation: u64,
    pub progress: Progress,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartRun {
    pub slug: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Scope>,
    pub run_id: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Advance {
    /// The current time of the scheduler.
    pub now: i64,
    #[serde(default)]
    pub fires: Vec<Fire>,
    /// Runs whose time is over.
    #[serde(default)]
    pub timed_out: Vec<String>,
    /// The reply lists the schedules that fire up to this time, which may be in the future; if absent, none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_until: Option<i64>,
}

/// The outcome of the slots of a schedule up to `progress.mark`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fire {
    pub id: String,
    pub generation: u64,
    /// The mark that this continues from. If the stored mark differs, another scheduler was faster, and nothing is changed.
    pub mark: i64,
    pub slots: Vec<Slot>,
    pub progress: Progress,
    /// The settings of this generation that the records of its slots need.
    pub overlap: Overlap,
    pub timeout_ms: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slot {
    pub at: i64,
    /// A ULID.
    pub run_id: String,
    pub fate: Fate,
}

/// The decision on a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It runs, unless `overlap` forbids it.
    Run,
    /// It was missed, and runs when its turn comes, whatever `overlap` is.
    CatchUp,
    Missed(Reason),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Advanced {
    /// The schedules that fire up to [`Advance::due_until`], in the order in which they fire; at most 2,000.
    pub due: Vec<Due>,
    /// When the next slot fires.
    pub next_fire: Option<i64>,
    /// The time until a failed run may be tried again.
    pub retry_in_ms: Option<i64>,
    /// The active runs.
    pub running: Vec<Running>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Due {
    pub id: String,
    pub generation: u64,
    pub settings: Settings,
    pub progress: Progress,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Running {
    pub run_id: String,
    pub attempt: u32,
    /// How long it may still run.
    pub left_ms: i64,
}
