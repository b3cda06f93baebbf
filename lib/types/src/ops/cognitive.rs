//! The operations of `ken-cognitive`, which runs workflows.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Nothing;

crate::operations! {
    /// The workflows that may be started from outside.
    WorkflowsList, "workflows.list": Nothing => Workflows;
    /// Whether a workflow would take this payload: `not_found` for one that may not be started from outside, `invalid`
    /// with the field at `at` for a payload that does not fit its schema.
    WorkflowsCheck, "workflows.check": CheckWorkflow => Nothing;
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Workflows {
    pub workflows: Vec<Workflow>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workflow {
    pub name: String,
    pub description: String,
    /// What a payload has to be, as JSON schema.
    pub input: Value,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckWorkflow {
    pub name: String,
    pub payload: Value,
}
