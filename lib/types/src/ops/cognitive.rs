//! The operations of `ken-cognitive`, which runs workflows.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Nothing;

crate::operations! {
    /// Returns the public workflows.
    WorkflowsList, "workflows.list": Nothing => Workflows;
    /// Checks a payload against a workflow's schema. `not_found` if there is no such public workflow. `invalid` if the
    /// payload does not fit; `at` names the field. `unavailable` at [`SEARCH`] if the workflow searches the web and no search
    /// service is set up.
    WorkflowsCheck, "workflows.check": CheckWorkflow => Nothing;
    /// Checks the whole audit log, as `ken audit verify` does.
    AuditVerify, "audit.verify": Nothing => AuditState;
}

/// The place of the error when no search service is set up.
pub const SEARCH: &str = "/search";

/// Whether the chain of the audit log holds.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditState {
    pub good: bool,
    /// The number of records, and the numbers of the first and the last one. Absent if the log is not good.
    pub records: Option<u64>,
    pub first: Option<u64>,
    pub last: Option<u64>,
    /// The hash of the last record. Kept elsewhere, it shows later that nothing was cut off.
    pub last_hash: Option<String>,
    /// The first bad record, and what is wrong with it.
    pub fault: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Workflows {
    pub workflows: Vec<Workflow>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workflow {
    pub name: String,
    pub description: String,
    /// The JSON schema of the workflow's payload.
    pub input: Value,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckWorkflow {
    pub name: String,
    pub payload: Value,
}
