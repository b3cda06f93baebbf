//! The operations of `kend`, on `$KEN_RUN_DIR/kend.sock`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Nothing, fifty};
use crate::{Error, Timestamp};

crate::operations! {
    /// Returns the state of every part, or of one part.
    PartsStatus, "parts.status": StatusArgs => SystemStatus;
    /// Starts a part and the parts that it requires.
    PartsStart, "parts.start": ChangeArgs => PartStatus;
    /// Stops a part. With `dependents`, it first stops the parts that require it.
    PartsStop, "parts.stop": StopArgs => Changed;
    /// Stops a part and starts it again. The other parts keep running.
    PartsRestart, "parts.restart": ChangeArgs => PartStatus;
    /// Sends a signal to the process of a part, `KILL` by default.
    PartsKill, "parts.kill": KillArgs => Killed;
    /// Waits until every enabled part is ready, and returns the state of all parts.
    PartsWaitReady, "parts.wait_ready": WaitReadyArgs => SystemStatus;
    /// Returns the last lines of a part's log and, if requested, the lines that are added later.
    PartsLogs, "parts.logs": LogsArgs => Nothing, items LogLine;
    /// Reads the configuration again and applies what changed. If the configuration has errors, it applies
    /// nothing.
    KendReload, "kend.reload": Nothing => Reloaded;
    /// Returns what `ken doctor` finds. A report is kept for a minute.
    KendDoctor, "kend.doctor": Nothing => DoctorReport;
    /// Returns the configuration in force, as `ken config show` prints it: with secrets masked. Kept for a minute, or until
    /// the configuration is read again.
    KendConfig, "kend.config": Nothing => ConfigListing;
    /// Returns what a run has changed in the workspace, in the form of `ken diff --json`. `not_found` if nothing is known of it.
    KendDiff, "kend.diff": RunOfFiles => Value;
    /// Puts back what a run has changed in the workspace, as `ken undo --json`. Repeated, it finds nothing left to do.
    KendUndo, "kend.undo": RunOfFiles => Value;
    /// Replies, and then lets the programs take over that are installed now: kend's own at once, and those of the parts one after
    /// the other. `parts.wait_ready` returns when all of them have.
    KendUpgrade, "kend.upgrade": Nothing => Upgraded;
    /// Stops every part, replies, and ends kend.
    KendStop, "kend.stop": Nothing => Stopped;
}

crate::named! {
    pub enum PartState {
        /// Not running, and not meant to run.
        Stopped = "stopped",
        /// Waits to be started until the parts that it requires are ready.
        Waiting = "waiting",
        /// Ended too early, and waits to be started again.
        Backoff = "backoff",
        /// Running, but not ready yet.
        Starting = "starting",
        Ready = "ready",
        /// Running, but has been told to end.
        Stopping = "stopping",
        /// Not started any more, because it reached its `limit` of starts.
        Failed = "failed",
    }
}

/// The end of one process of a part.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Death {
    pub at: Timestamp,
    pub pid: i32,
    /// Text for people: `exit 1`, `signal SIGKILL`, `not ready within 10000 ms`, `cannot start: …`.
    pub cause: String,
    /// The exit code, if the process exited.
    pub code: Option<i32>,
    /// The number of the signal, if a signal ended the process.
    pub signal: Option<i32>,
    /// How long the process ran, in milliseconds.
    pub ran_ms: u64,
    /// Whether the process was ready at some time.
    pub ready: bool,
    /// Whether kend had told the process to end.
    #[serde(default)]
    pub requested: bool,
}

/// One row of `ken status`.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartStatus {
    pub name: String,
    pub state: PartState,
    /// Whether it starts with the system.
    pub enabled: bool,
    /// Whether it should be running now: it was enabled or started by a person, and has not been stopped since.
    pub wanted: bool,
    /// In state `waiting`: the parts that it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
    pub pid: Option<i32>,
    /// The time since its process started, in milliseconds.
    pub uptime_ms: Option<u64>,
    pub restarts: u64,
    /// In state `backoff`: the time until the next start, in milliseconds.
    pub retry_in_ms: Option<u64>,
    /// If asked for: the memory that its process uses, in bytes, and the processor time that it has used, in milliseconds. Those of
    /// the programs that it has started are not counted.
    pub memory_bytes: Option<u64>,
    pub cpu_ms: Option<u64>,
    /// The status that the part last reported (`STATUS=`).
    pub status_text: Option<String>,
    /// In state `failed`: the reason.
    pub cause: Option<String>,
    /// How its last process ended.
    pub last_exit: Option<String>,
    /// How its last 16 processes ended, oldest first.
    #[serde(default)]
    pub deaths: Vec<Death>,
}

/// The current configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigStatus {
    /// The path of the file. Absent if there is no file and only the built-in defaults apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Whether the file has no errors. If it has some, the last valid configuration stays in force.
    pub good: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
}

/// A TCP address of a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// The section or part to which the address belongs, for instance `gateway`.
    pub name: String,
    pub url: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemStatus {
    /// The process id of kend.
    pub pid: i32,
    pub version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<String>,
    pub listeners: Vec<Listener>,
    pub config: ConfigStatus,
    pub parts: Vec<PartStatus>,
    /// Whether kend has been told to end, and stops all parts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopping: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upgraded {
    /// The version of the kend that takes over.
    pub version: String,
    /// The parts whose programs have been replaced, in the order in which they start anew.
    pub parts: Vec<String>,
}

/// What is wrong, from the gravest on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorReport {
    pub at: Timestamp,
    pub findings: Vec<Finding>,
}

/// One problem, as `ken doctor --json` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub id: String,
    /// `error`, `warning` or `note`.
    pub severity: String,
    #[serde(rename = "where")]
    pub place: String,
    pub why: String,
    pub fix: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConfigListing {
    pub at: Timestamp,
    pub settings: Vec<Setting>,
}

/// A setting in force, as `ken config show --json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// `section.key`
    pub key: String,
    pub value: Value,
    /// `default`, or file and line.
    pub from: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunOfFiles {
    /// The id of the turn or run, its beginning or end, or `last`.
    pub run: String,
}

/// One part, or all parts if no name is given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatusArgs {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether to say how much memory and processor time each part uses. Most callers only want an address or a state.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub usage: bool,
}

/// What `parts.start`, `parts.stop` and `parts.restart` wait for before they reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitFor {
    Ready,
    Stopped,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeArgs {
    pub name: String,
    /// If absent, the reply does not wait.
    pub wait: Option<WaitFor>,
    /// How long to wait, in milliseconds. If absent, until the deadline of the call.
    pub timeout_ms: Option<u64>,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopArgs {
    pub name: String,
    /// Whether the parts that require this one are stopped before it.
    #[serde(default)]
    pub dependents: bool,
    /// If absent, the reply does not wait.
    pub wait: Option<WaitFor>,
    /// How long to wait, in milliseconds. If absent, until the deadline of the call.
    pub timeout_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    #[serde(flatten)]
    pub part: PartStatus,
    /// The other parts that were stopped, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KillArgs {
    pub name: String,
    /// The name of a signal, with or without `SIG`, or its number. `KILL` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
}

/// The signal, and the process that it was sent to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Killed {
    pub name: String,
    pub pid: i32,
    /// For instance `SIGKILL`.
    pub signal: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitReadyArgs {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogsArgs {
    /// A part, or `kend` itself.
    pub name: String,
    /// The number of lines from the end, at most 10 000.
    #[serde(default = "fifty")]
    pub lines: u32,
    /// Whether to continue with new lines until the call is cancelled. Such a call has no deadline.
    #[serde(default)]
    pub follow: bool,
}

/// One line of a part's log, as the part wrote it. Bytes that are not UTF-8 are replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    pub line: String,
}

/// The names of the parts, by what a reload did with them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    pub added: Vec<String>,
    pub removed: Vec<String>,
    pub restarted: Vec<String>,
    /// Those that `enabled` has started and stopped.
    #[serde(default)]
    pub started: Vec<String>,
    #[serde(default)]
    pub stopped: Vec<String>,
    pub unchanged: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// The parts that did not end by themselves and were killed.
    pub killed: Vec<String>,
}

/// Returns the error for a system that is stopping, in which no part can be started any more.
pub fn system_stopping() -> Error {
    Error::unavailable("the system is stopping").hint("start it again with `ken up`")
}

pub fn unknown_part(name: &str) -> Error {
    Error::not_found(format!("there is no part named `{name}`")).hint("`ken status` lists the parts")
}
