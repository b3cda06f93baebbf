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
    /// Admits a run with an id that the caller has minted. Its stream begins with `run_start`. `busy` if too many runs wait. A
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
    /// The digests of blobs that the result names; they are kept as long as the run. `not_found` for an unknown one.
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

/// Whether the run had not ended yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbortedRun {
    pub aborted: bool,
}

crate::named! {
    pub enum RunStatus {
        /// The run is running, or waits for its turn.
        Active = "active",
        Completed = "completed",
        Errored = "errored",
    }
}

/// A run as the HTTP contract shows it; in lists without payload, result and error.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRecord {
    pub run_id: RunId,
    pub workflow_name: String,
    pub status: RunStatus,
    /// When it was admitted.
    pub started_at: Timestamp,
    pub payload: Option<Value>,
    pub ended_at: Option<Timestamp>,
    pub is_error: Option<bool>,
    pub duration_ms: Option<u64>,
    /// Set for a completed run; null if it has no result.
    #[serde(default, deserialize_with = "present")]
    pub result: Option<Value>,
    pub error: Option<Failure>,
}

/// Reads a null as a value rather than as an absent field.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListRuns {
    pub status: Option<RunStatus>,
    pub workflow: Option<String>,
    /// 1 to 1 000.
    #[serde(default = "hundred")]
    pub limit: u32,
    /// A cursor of an earlier page of the same list; another one is `invalid` at `?cursor`.
    pub cursor: Option<String>,
}

fn hundred() -> u32 {
    100
}

/// The body of the HTTP answer. `next_cursor` is absent on the last page.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunPage {
    pub runs: Vec<RunRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}
