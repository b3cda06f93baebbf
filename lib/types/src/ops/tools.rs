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
    ///
    /// A call that needs an approval takes its `grant` from ken-approver right before it runs: `forbidden` without one,
    /// `conflict` for one that is not for exactly this call, or was used.
    ToolsCall, "tools.call": CallTool => Called;
    /// What this call would do, and whether a person has to approve it. Changes nothing. The fingerprint is the one that a
    /// grant for the call has to have.
    ToolsPreview, "tools.preview": CallTool => Preview;
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
    /// The tool says of each call what it would do, and whether that has to be approved.
    Preview,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    pub file: String,
    pub error: Error,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallTool {
    pub name: String,
    /// An object.
    #[serde(default)]
    pub arguments: Value,
    /// Who calls; `forbidden` when the tool is not for this agent. Absent: an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// A person has to approve it, also where the tool asks for nobody.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ask: bool,
    /// The submission and the session that it belongs to. The tool finds them in `KEN_RUN` and `KEN_SESSION`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The id of the approval that allows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Called {
    /// Whether the tool failed: then the result says why, for the model.
    pub is_error: bool,
    pub result: ToolResult,
    pub duration_ms: u64,
}

/// What a call of a tool would do, as the tool says it or, where it does not, as its description does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    pub approval: Need,
    /// `noun.verb`.
    #[serde(default)]
    pub action_type: String,
    /// One line for the person who decides.
    #[serde(default)]
    pub summary: String,
    /// Why; with `deny`, why not.
    #[serde(default)]
    pub reason: Option<String>,
    #[serde(default)]
    pub risk: Risk,
    #[serde(default)]
    pub target: String,
    /// Exactly what would be done: program, directory, files.
    #[serde(default)]
    pub action: Value,
    /// A unified diff of the files that would change.
    #[serde(default)]
    pub diff: Option<String>,
    /// SHA-256 in hex over all that must not change between the decision and the call.
    #[serde(default)]
    pub fingerprint: String,
}

/// Whether a call needs a person's approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    None,
    Ask,
    /// It must not run, whoever approves.
    Deny,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    Low,
    #[default]
    Medium,
    High,
}

impl Risk {
    pub fn name(self) -> &'static str {
        match self {
            Risk::Low => "low",
            Risk::Medium => "medium",
            Risk::High => "high",
        }
    }
}
