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
}

/// The place of the error when no search service is set up.
pub const SEARCH: &str = "/search";

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
