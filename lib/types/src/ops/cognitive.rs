//! The operations of `ken-cognitive`, which runs workflows.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Nothing;

crate::operations! {
    /// The public workflows.
    WorkflowsList, "workflows.list": Nothing => Workflows;
    /// Checks a payload against a workflow's schema: `not_found` if there is no such public workflow, `invalid` with the field
    /// in `at` if the payload does not fit.
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
    /// The JSON schema of its payload.
    pub input: Value,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckWorkflow {
    pub name: String,
    pub payload: Value,
}
