//! The operations of `ken-store` on runs. A run is one execution of a workflow; its stream is `runs/<run id>`.
//!
//! A run is queued, claimed, held and aborted like a submission, under its own id: `submissions.claim` with `work` `runs`
//! hands it out, `submissions.renew` holds it, `submissions.append` adds to its stream, and `submissions.wait` waits for its
//! end. The operations that only runs have are here.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Nothing;
use super::store::Lease;
use crate::Timestamp;
use crate::event::Failure;
use crate::id::RunId;

crate::operations! {
    /// Admits a run with an id that the caller has minted. Its stream begins with `run_start`. `busy` when too many wait. A
    /// known id gets its first answer again.
    RunsAdmit, "runs.admit": AdmitRun => Nothing;
    /// Records the last event, closes the stream and writes the final record, in one transaction. `conflict` if the lease is
    /// not the newest. A run that has already ended gets its first answer again.
    RunsEnd, "runs.end": EndRun => RunRecord;
    /// Ends a run as errored, with the error `Aborted`, and tells its holder to stop.
    RunsAbort, "runs.abort": ByRun => AbortedRun;
    RunsGet, "runs.get": ByRun => RunRecord;
    /// Lists runs, newest first.
    RunsList, "runs.list": ListRuns => RunPage;
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdmitRun {
    pub run_id: RunId,
    pub workflow: String,
    /// The caller has checked it against the workflow's schema. At most 1 MiB as text.
    pub payload: Value,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndRun {
    pub lease: Lease,
    /// At most 1 MiB as text. Ignored if there is an error.
    #[serde(default)]
    pub result: Value,
    /// Blobs that the result names by their digest; they are kept as long as the run. `not_found` for one that is not there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blobs: Vec<String>,
    /// If set, the run ends as errored, else as completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByRun {
    pub run_id: RunId,
}

/// Whether there was something to abort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbortedRun {
    pub aborted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// The run is running, or waits for its turn.
    Active,
    Completed,
    Errored,
}

impl RunStatus {
    pub fn name(self) -> &'static str {
        match self {
            RunStatus::Active => "active",
            RunStatus::Completed => "completed",
            RunStatus::Errored => "errored",
        }
    }

    /// The status with this name.
    pub fn named(name: &str) -> Option<RunStatus> {
        [RunStatus::Active, RunStatus::Completed, RunStatus::Errored]
            .into_iter()
            .find(|status| status.name() == name)
    }
}

/// A run as the HTTP contract shows it; in lists without payload, result and error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRecord {
    pub run_id: RunId,
    pub workflow_name: String,
    pub status: RunStatus,
    /// When it was admitted.
    pub started_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Set for a completed run; null if it has no result.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub result: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

/// Reads a null as a value rather than as an absent field.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListRuns {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<RunStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// 1 to 1 000.
    #[serde(default = "hundred")]
    pub limit: u32,
    /// A cursor of an earlier page of the same list; another one is `invalid` at `?cursor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

fn hundred() -> u32 {
    100
}

/// The whole body of the HTTP answer. `next_cursor` only when there is more.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunPage {
    pub runs: Vec<RunRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}
