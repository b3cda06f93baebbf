//! The operations of `ken-scheduler` and `ken-store` on schedules. The records are those of the HTTP contract. All
//! times are epoch milliseconds.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::store::Scope;
use super::{Nothing, Page, fifty};
use crate::Error;
use crate::id::SubmissionId;

/// The agents that a schedule may name. The first one also runs all turns that were not started by a schedule.
pub const AGENTS: [&str; 2] = ["orchestrator", "coding-worker"];

/// Returns the agent that runs a turn with this context: the agent that the schedule names if a schedule started the
/// turn, the one that its caller has chosen as the model, else the first of [`AGENTS`].
pub fn target_agent(context: Option<&Value>) -> &'static str {
    let named = |place| context.and_then(|context: &Value| context.pointer(place));
    let target = named("/schedule/targetAgent").or_else(|| named("/agent"));
    let [usual, others @ ..] = AGENTS;
    let named = others.into_iter().find(|agent| target.is_some_and(|target| target == agent));
    named.unwrap_or(usual)
}

crate::operations! {
    /// Checks and stores a schedule. `conflict` if the slug is in use and `replace` is not set.
    SchedulesCreate, "schedules.create": CreateSchedule => Schedule;
    /// Changes only the given fields.
    SchedulesUpdate, "schedules.update": UpdateSchedule => Schedule;
    /// Resumes a paused schedule. Slots that passed while it was paused do not count as missed.
    SchedulesResume, "schedules.resume": OfSchedule => Schedule;
    /// Starts a run manually, even if the schedule is paused. With `wait_ms` it replies when the run has ended or this
    /// time has passed.
    SchedulesRun, "schedules.run": RunSchedule => ScheduleRun;

    /// Returns when a schedule would fire next, without storing it. `invalid` as for a schedule that is created.
    SchedulesPreview, "schedules.preview": PreviewSchedule => Preview;

    /// Reads a schedule. Both parts serve this and the next five operations; `ken-scheduler` forwards them to the store.
    SchedulesGet, "schedules.get": OfSchedule => Schedule;
    /// Lists schedules by slug, those with the same slug newest first, without their prompts, payloads and results.
    SchedulesList, "schedules.list": ListSchedules => ScheduleList;
    /// Pauses a schedule. It starts no runs until it is resumed. Running turns continue.
    SchedulesPause, "schedules.pause": OfSchedule => Schedule;
    /// Deletes a schedule. Its queued runs are skipped; a running one continues.
    SchedulesDelete, "schedules.delete": OfSchedule => Nothing;
    /// Lists the runs of a schedule, newest first, with texts cut to [`LISTED_TEXT_BYTES`].
    SchedulesRuns, "schedules.runs": ListScheduleRuns => ScheduleRunPage;
    /// Returns a run. Also works for a schedule that was deleted in the last 24 hours.
    SchedulesRunGet, "schedules.run_get": OneScheduleRun => ScheduleRun;

    /// Store only, like the rest of this list: stores a schedule with its next slot. It replaces the generation that
    /// the caller expects.
    SchedulesPut, "schedules.put": PutSchedule => Schedule;
    /// Returns a schedule with its progress.
    SchedulesState, "schedules.state": OfSchedule => ScheduleState;
    /// Records a run that was started manually. If the id is known, the first reply is repeated.
    SchedulesStart, "schedules.start": StartRun => ScheduleRun;
    /// Records the outcome of slots, each exactly once. The reply lists the runs to start now, and says when to call
    /// again.
    SchedulesAdvance, "schedules.advance": Advance => Advanced;
}

/// The maximum number of slots in a preview.
pub const PREVIEW_SLOTS: u32 = 100;
/// The maximum number of slots that the command line lists.
pub const MAX_LISTED_SLOTS: i64 = 100_000;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreviewSchedule {
    pub kind: ScheduleKind,
    pub schedule: String,
    /// The time zone, as an IANA name.
    pub tz: String,
    /// The number of slots, 1 to [`PREVIEW_SLOTS`].
    pub count: u32,
}

/// The next slots of a schedule. There are fewer than asked for if it ends before.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Preview {
    pub timezone: String,
    pub slots: Vec<PreviewedSlot>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PreviewedSlot {
    /// Epoch milliseconds.
    pub at: i64,
    /// The time in the zone, as a person reads it.
    pub local: String,
}

/// The maximum number of schedules in a store.
pub const SCHEDULES: u64 = 10_000;
pub const SLUG_CHARACTERS: usize = 64;
/// The maximum size of a prompt, and of a payload as JSON text.
pub const SCHEDULE_PROMPT_BYTES: usize = 64 * 1024;
pub const SCHEDULE_PAYLOAD_BYTES: usize = 64 * 1024;
/// The maximum number of active runs of all schedules together.
pub const SCHEDULE_RUNS: u64 = 8;
/// The number of ended runs that are kept for each schedule, which is also the maximum page of runs.
pub const KEPT_RUNS: usize = 200;
pub const PAGE_SCHEDULE_RUNS: u32 = 500;
/// The maximum number of queued runs of a schedule with `overlap: queue`.
pub const QUEUED_RUNS: u64 = 10;
/// The maximum number of missed slots that a schedule with `missed: all` runs later.
pub const MAX_CAUGHT_UP: usize = 100;
/// The maximum size of a result in a list, and in the record of a run, in bytes. The transcript contains the whole
/// text.
pub const LISTED_TEXT_BYTES: usize = 2 * 1024;
pub const RESULT_TEXT_BYTES: usize = 256 * 1024;
/// How long the runs of a deleted schedule can still be read, in milliseconds.
pub const DELETED_MS: i64 = 24 * 3_600_000;
/// How long a schedule that has ended can still be read, with its runs, in milliseconds.
pub const ENDED_MS: i64 = 30 * 24 * 3_600_000;

/// The error for a change of a schedule that has ended.
pub fn has_ended(slug: &str) -> Error {
    Error::conflict(format!("the schedule {slug:?} has ended")).hint("make a new one; it can have the same name")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleKind {
    Cron,
    Every,
    At,
}

/// What happens to slots that the scheduler handles after the grace period.
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

/// Where the result of a run is sent.
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

/// When a schedule fires and what it runs, as its owner set it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    pub kind: ScheduleKind,
    /// A cron expression, an interval such as `90m`, or an instant.
    pub schedule: String,
    /// The IANA name of a time zone.
    pub timezone: String,
    pub target_agent: String,
    pub max_attempts: u32,
    pub delete_after_run: bool,
    pub missed: Missed,
    /// How late a slot can fire without counting as missed, in milliseconds.
    pub grace_ms: i64,
    pub overlap: Overlap,
    pub timeout_ms: i64,
    pub jitter_ms: i64,
    pub deliver_to: Option<DeliverTo>,
    /// The number of consecutive failed runs after which the schedule is paused. If absent, it is never paused.
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
    /// The owner: `admin`, or connector, actor and conversation of the session whose agent created the schedule.
    pub owner_scope: String,
    /// Whether `overlap` is `skip`.
    pub protect: bool,
    pub last_fired_at: Option<i64>,
    pub next_fire_at: Option<i64>,
    pub last_run_status: Option<RunState>,
    /// When it ended, because of `delete_after_run`. It does not change any more.
    pub ended_at: Option<i64>,
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
    /// What became of the result of the last run; absent if none has ended that was neither skipped nor missed.
    pub last_delivery: Option<Delivery>,
    pub ended_at: Option<i64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScheduleList {
    pub schedules: Vec<ScheduleSummary>,
}

crate::named! {
    pub enum RunState {
        /// Waits to be started, or for its next attempt.
        Queued = "queued",
        /// Its submission is queued for the agent.
        Admitted = "admitted",
        Running = "running",
        Ok = "ok",
        Error = "error",
        Timeout = "timeout",
        Skipped = "skipped",
        Missed = "missed",
        /// A crash interrupted it, and it is not safe to repeat.
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

crate::named! {
    /// What became of the result of a run that is sent somewhere.
    pub enum Delivery {
        None = "none",
        Pending = "pending",
        Sent = "sent",
        Failed = "failed",
        Unknown = "unknown",
    }
}

/// A run of a schedule as the HTTP contract shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleRun {
    pub run_id: String,
    pub schedule_id: String,
    pub slug: String,
    /// Absent for a run that was started manually.
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
    /// Why the run failed, or why its result could not be delivered, for people.
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
    /// The name of `tz` in the record. If both are given, they must be equal.
    pub timezone: Option<String>,
    pub prompt: Option<String>,
    pub target_agent: Option<String>,
    /// `Some(None)` removes the payload.
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
    /// `Some(None)` removes the target.
    #[serde(default, deserialize_with = "nullable")]
    pub deliver_to: Option<Option<DeliverTo>>,
    /// `Some(None)` removes the limit.
    #[serde(default, deserialize_with = "nullable")]
    pub disable_after_failures: Option<Option<u32>>,
}

/// Reads null as `Some(None)`, which differs from an absent field.
fn nullable<'de, D, T>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Some)
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateSchedule {
    /// A ULID, the id of the schedule if this call creates it.
    pub id: String,
    pub slug: String,
    /// The owner. If absent, the operator owns the schedule.
    pub owner: Option<Scope>,
    #[serde(default)]
    pub replace: bool,
    pub fields: Fields,
    /// The submission whose agent creates the schedule. Its runs begin with the origins of outside text of that turn,
    /// because their prompt may come from there.
    pub turn: Option<SubmissionId>,
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
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfSchedule {
    pub slug: String,
    /// Of several schedules with this slug, of which all but one have ended, the one with this id. If absent, the newest.
    pub id: Option<String>,
    pub owner: Option<Scope>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListSchedules {
    /// The owner whose schedules are listed. If absent, those of all owners are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Scope>,
    /// Whether to include schedules that have ended.
    #[serde(default)]
    pub all: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSchedule {
    pub slug: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Scope>,
    /// The id of the run, a ULID.
    pub run_id: String,
    #[serde(default)]
    pub wait_ms: u64,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListScheduleRuns {
    /// If absent, the runs of all schedules are listed.
    pub slug: Option<String>,
    /// As in [`OfSchedule`].
    pub id: Option<String>,
    #[serde(default = "fifty")]
    pub limit: u32,
    pub after: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneScheduleRun {
    pub slug: String,
    pub run_id: String,
}

/// A future slot: its nominal time, and the time at which it fires, which can be later because of jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NextSlot {
    pub slot: i64,
    pub fire: i64,
}

/// How far the slots of a schedule have been handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// The time from which intervals are counted.
    pub anchor: i64,
    /// Every slot up to this time has a record, or passed while the schedule was paused.
    pub mark: i64,
    /// Absent for a schedule that is paused or has no more slots.
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
    /// Whether the connector's settings admit the conversation of `deliverTo`. If not, the stored policy must admit it.
    #[serde(default)]
    pub chat_is_configured: bool,
    /// The generation that this one replaces. `conflict` if the stored generation differs. If absent, there must be no
    /// schedule with this slug.
    pub expect: Option<u64>,
    /// As in [`CreateSchedule`].
    pub turn: Option<SubmissionId>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScheduleState {
    pub schedule: Schedule,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Scope>,
    /// A number that increases with each change of the schedule.
    pub generation: u64,
    pub progress: Progress,
    /// The newest slot that has a record.
    #[serde(default)]
    pub last_slot: Option<i64>,
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
    /// Ids of runs that have exceeded their time limit.
    #[serde(default)]
    pub timed_out: Vec<String>,
    /// The reply lists the schedules that fire up to this time, which can be in the future. If absent, it lists none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_until: Option<i64>,
    /// Whether the reply lists the schedules whose mark is after `now`, because the clock may have been set back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clock_set_back: bool,
}

/// The outcome of the slots of a schedule up to `progress.mark`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fire {
    pub id: String,
    pub generation: u64,
    /// The mark from which this call continues. If the stored mark differs, another scheduler has already handled these
    /// slots, and nothing is changed.
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
    /// The id of the run if the slot runs, a ULID.
    pub run_id: String,
    pub fate: SlotOutcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotOutcome {
    /// The slot runs, unless `overlap` prevents it.
    Run,
    /// The slot was missed, and runs later whatever `overlap` is.
    CatchUp,
    Missed(Reason),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Advanced {
    /// The schedules that fire up to [`Advance::due_until`], in the order in which they fire; at most 2,000.
    pub due: Vec<DueSchedule>,
    /// Those whose mark is after the current time, if they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ahead: Vec<AheadSchedule>,
    /// The time at which the next slot fires.
    pub next_fire: Option<i64>,
    /// The time until a failed run may be started again, in milliseconds.
    pub retry_in_ms: Option<i64>,
    /// The active runs.
    pub running: Vec<Running>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DueSchedule {
    pub id: String,
    pub generation: u64,
    pub settings: Settings,
    pub progress: Progress,
}

/// A schedule whose mark is in the future.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AheadSchedule {
    pub schedule: DueSchedule,
    /// The newest slot that has a record.
    pub last_slot: Option<i64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Running {
    pub run_id: String,
    pub attempt: u32,
    /// How long the run may still continue, in milliseconds.
    pub left_ms: i64,
}
