//! The operations of `ken-store` on runs. A run is one execution of a workflow. Its stream is `runs/<run id>`.
//!
//! A run is queued, claimed, held and aborted like a submission, under its own id. `submissions.claim` with `work`
//! `runs` claims it, `submissions.renew` renews its lease, `submissions.append` adds to its stream, and
//! `submissions.wait` waits for its end. This module has the operations that only runs have.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Nothing;
use super::store::Lease;
use crate::Timestamp;
use crate::event::Failure;
use crate::id::RunId;

crate::operations! {
    /// Admits a run with an id that the caller has created. Its stream begins with `run_start`. `busy` if too many runs
    /// wait. If the id is known, the first reply is repeated.
    RunsAdmit, "runs.admit": AdmitRun => Nothing;
    /// Records the last event, closes the stream and writes the final record, in one transaction. `conflict` if there
    /// is a newer lease. If the run has already ended, the first reply is repeated.
    RunsEnd, "runs.end": EndRun => RunRecord;
    /// Ends a run as errored, with the error `Aborted`, and notifies its holder.
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
    /// The payload, which the caller has checked against the workflow's schema. At most 1 MiB as JSON text.
    pub payload: Value,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndRun {
    pub lease: Lease,
    /// The result, at most 1 MiB as JSON text. Ignored if there is an error.
    #[serde(default)]
    pub result: Value,
    /// The digests of blobs that the result names. They are kept as long as the run. `not_found` for an unknown one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blobs: Vec<String>,
    /// If set, the run ends as errored, otherwise as completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByRun {
    pub run_id: RunId,
}

/// Whether the call ended the run. False if it had ended before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbortedRun {
    pub aborted: bool,
}

crate::named! {
    pub enum RunStatus {
        /// The run is running or queued.
        Active = "active",
        Completed = "completed",
        Errored = "errored",
    }
}

/// A run as the HTTP contract shows it. In lists it has no payload, result and error.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRecord {
    pub run_id: RunId,
    pub workflow_name: String,
    pub status: RunStatus,
    /// The time at which it was admitted.
    pub started_at: Timestamp,
    pub payload: Option<Value>,
    pub ended_at: Option<Timestamp>,
    pub is_error: Option<bool>,
    pub duration_ms: Option<u64>,
    /// Set for a completed run. Null if the run has no result.
    #[serde(default, deserialize_with = "present")]
    pub result: Option<Value>,
    pub error: Option<Failure>,
}

/// Reads null as a value, not as an absent field.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListRuns {
    pub status: Option<RunStatus>,
    pub workflow: Option<String>,
    /// The maximum number of runs, 1 to 1 000.
    #[serde(default = "hundred")]
    pub limit: u32,
    /// A cursor from an earlier page of the same list. Any other is `invalid` at `?cursor`.
    pub cursor: Option<String>,
}

fn hundred() -> u32 {
    100
}

/// The body of the HTTP response. `next_cursor` is absent on the last page.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunPage {
    pub runs: Vec<RunRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}
