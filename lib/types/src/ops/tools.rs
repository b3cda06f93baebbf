//! The operations of `ken-tools`: which tools there are, and calls of them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::model::ToolSpec;
use crate::Error;
use crate::event::ToolResult;

crate::operations! {
    /// The tools that an agent may call.
    ToolsList, "tools.list": ListTools => Tools;
    /// Runs one tool to its end. `not_found` for an unknown name, `invalid` for arguments that its schema refuses; whatever
    /// happens once it runs is in the reply. Cancelled or hung up on, it is killed with all that it started.
    ToolsCall, "tools.call": CallTool => Called;
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListTools {
    /// Only those that this agent may call; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Tools {
    /// By name.
    pub tools: Vec<Tool>,
    /// Files that are not tools, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
}

/// A tool, as an agent needs to know it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    #[serde(flatten)]
    pub spec: ToolSpec,
    /// Whether a call whose outcome is unknown may be made again.
    pub idempotent: bool,
    pub approval: Approval,
    /// Agents that may call it.
    pub agents: Vec<String>,
    /// The file that describes it.
    pub file: String,
}

/// Whether a person has to approve each call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Approval {
    None,
    #[default]
    Ask,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    pub file: String,
    pub error: Error,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallTool {
    pub name: String,
    /// An object.
    #[serde(default)]
    pub arguments: Value,
    /// Who calls; `forbidden` when the tool is not for this agent. Absent: an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Called {
    /// Whether the tool failed: then the result says why, for the model.
    pub is_error: bool,
    pub result: ToolResult,
    pub duration_ms: u64,
}
