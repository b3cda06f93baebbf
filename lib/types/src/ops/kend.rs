//! The operations of `kend`, on `$KEN_RUN_DIR/kend.sock`.

use serde::{Deserialize, Serialize};

use super::Nothing;
use crate::{Error, Timestamp};

crate::operations! {
    /// What every part is doing, or one of them.
    PartsStatus, "parts.status": StatusArgs => SystemStatus;
    /// Starts a part and what it requires.
    PartsStart, "parts.start": ChangeArgs => PartStatus;
    /// Stops a part, and with `dependents` what requires it first.
    PartsStop, "parts.stop": StopArgs => Changed;
    /// Stops a part and starts it again; the other parts keep running.
    PartsRestart, "parts.restart": ChangeArgs => PartStatus;
    /// Sends a signal to the process of a part, `KILL` by default.
    PartsKill, "parts.kill": KillArgs => Killed;
    /// Answers when every wanted part is ready.
    PartsWaitReady, "parts.wait_ready": WaitReadyArgs => SystemStatus;
    /// The last lines of a part's log, and what follows.
    PartsLogs, "parts.logs": LogsArgs => Nothing, items LogLine;
    /// Reads the configuration again and applies the difference, or nothing.
    KendReload, "kend.reload": Nothing => Reloaded;
    /// Stops every part, answers, and ends kend.
    KendStop, "kend.stop": Nothing => Stopped;
}

/// What a part is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartState {
    /// Not running and not wanted.
    Stopped,
    /// Wanted, but a part that it requires is not ready yet.
    Waiting,
    /// Died too early; the next start is due later.
    Backoff,
    /// Running, not ready yet.
    Starting,
    Ready,
    /// Has been told to end.
    Stopping,
    /// Given up on, by its `limit`.
    Failed,
}

impl PartState {
    /// The name on the wire and in `ken status`.
    pub fn name(self) -> &'static str {
        match self {
            PartState::Stopped => "stopped",
            PartState::Waiting => "waiting",
            PartState::Backoff => "backoff",
            PartState::Starting => "starting",
            PartState::Ready => "ready",
            PartState::Stopping => "stopping",
            PartState::Failed => "failed",
        }
    }
}

/// The end of one process of a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Death {
    pub at: Timestamp,
    pub pid: i32,
    /// For people: `exit 1`, `signal SIGKILL`, `not ready within 10000 ms`, `cannot start: …`.
    pub cause: String,
    /// The exit code, when it exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// The signal's number, when one ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// How long it ran, in milliseconds.
    pub ran_ms: u64,
    /// Whether it had been ready.
    pub ready: bool,
    /// Whether kend had asked it to end.
    pub asked: bool,
}

/// One row of `ken status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartStatus {
    pub name: String,
    pub state: PartState,
    /// Whether its entry starts it with the system.
    pub enabled: bool,
    /// Whether it should be running now: enabled or started by a person, and not stopped since.
    pub wanted: bool,
    /// The parts that have to be ready before it starts, in state `waiting`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Since its process started, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime_ms: Option<u64>,
    /// Starts after the first one.
    pub restarts: u64,
    /// Until the next start, in milliseconds, in state `backoff`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u64>,
    /// What the part last said about itself (`STATUS=`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub says: Option<String>,
    /// Why it was given up on, in state `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The cause of the last death.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_exit: Option<String>,
    /// The last 16 deaths, oldest first.
    #[serde(default)]
    pub deaths: Vec<Death>,
}

/// The configuration that is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigStatus {
    /// The file, if there is one; otherwise the built-in defaults alone are in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// False when the file has changed for the worse since: the last good configuration stays in force.
    pub good: bool,
    /// What is wrong with the file now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
}

/// Where a part is reached over TCP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// The section or part that names it, `gateway` for instance.
    pub name: String,
    pub url: String,
}

/// Reply of `parts.status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemStatus {
    /// kend's own.
    pub pid: i32,
    pub version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<String>,
    pub listeners: Vec<Listener>,
    pub config: ConfigStatus,
    pub parts: Vec<PartStatus>,
}

/// Arguments of `parts.status`: one part, or all without a name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatusArgs {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// What `parts.start`, `parts.stop` and `parts.restart` wait for before they answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitFor {
    Ready,
    Stopped,
}

/// Arguments of `parts.start` and `parts.restart`. The reply is a `PartStatus`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeArgs {
    pub name: String,
    /// Without it the answer comes at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<WaitFor>,
    /// How long to wait, in milliseconds; the call's own deadline if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// Arguments of `parts.stop`. The reply is a `Changed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopArgs {
    pub name: String,
    /// Also stops the parts that require it, before it.
    #[serde(default)]
    pub dependents: bool,
    /// Without it the answer comes at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<WaitFor>,
    /// How long to wait, in milliseconds; the call's own deadline if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// Reply of `parts.stop`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    #[serde(flatten)]
    pub part: PartStatus,
    /// The other parts that were stopped with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
}

/// Arguments of `parts.kill`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KillArgs {
    pub name: String,
    /// A name, with or without `SIG`, or a number; `KILL` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
}

/// Reply of `parts.kill`: what was sent to which process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Killed {
    pub name: String,
    pub pid: i32,
    /// `SIGKILL`, for instance.
    pub signal: String,
}

/// Arguments of `parts.wait_ready`: until every wanted part is ready. The reply is a `SystemStatus`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitReadyArgs {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// Arguments of `parts.logs`. The items are `LogLine`s.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogsArgs {
    /// A part, or `kend` itself.
    pub name: String,
    /// How many of the last lines, at most 10 000.
    #[serde(default = "default_lines")]
    pub lines: u32,
    /// Go on with what comes, until cancelled. Such a call has no deadline.
    #[serde(default)]
    pub follow: bool,
}

fn default_lines() -> u32 {
    50
}

/// One line of a part's log, as the part wrote it (bytes that are not UTF-8 are replaced).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    pub line: String,
}

/// Reply of `kend.reload`: what it did to the parts, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    pub added: Vec<String>,
    pub removed: Vec<String>,
    pub restarted: Vec<String>,
    pub unchanged: Vec<String>,
}

/// Reply of `kend.stop`, sent when every part has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// Parts that did not end by themselves and were killed.
    pub killed: Vec<String>,
}

/// A status row cannot be had: the part's name is unknown.
pub fn unknown_part(name: &str) -> Error {
    Error::not_found(format!("there is no part named `{name}`")).hint("`ken status` lists the parts")
}
