//! The operations of `ken-tools`: to list, preview and call tools.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::model::{SchemaText, ToolSpec};
use crate::Error;
use crate::event::ToolResult;
use crate::fence::Outside;

crate::operations! {
    /// Returns the tools that an agent may call.
    ToolsList, "tools.list": ListTools => Tools;
    /// Runs a tool until it ends. `not_found` for an unknown name, `invalid` for arguments that do not match its
    /// schema. If the tool itself fails, the reply says so. If the request is cancelled or its connection closed, the
    /// tool and its child processes are killed.
    ///
    /// If a call needs an approval, ken-tools uses up its `grant` at ken-approver right before the tool runs.
    /// `forbidden` without a grant; `conflict` for a grant that is not for exactly this call or was already used.
    ///
    /// A call that is `repeated` after an interruption runs only if it is certain that it has not begun; otherwise
    /// `conflict` at `/repeated`.
    ///
    /// While the call of an MCP server runs, each item says how far it has come.
    ToolsCall, "tools.call": CallTool => Called, items ToolProgress;
    /// Returns what this call would do, and whether a person has to approve it. Changes nothing. A grant for the call
    /// must have the fingerprint of the preview.
    ToolsPreview, "tools.preview": CallTool => Preview;
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListTools {
    /// Lists only the tools that this agent may call. If absent, lists all.
    pub agent: Option<String>,
    /// The list that the caller knows. If it is the current one, the reply contains no tools and no problems.
    pub unless: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Tools {
    /// The tools, ordered by name.
    pub tools: Vec<Tool>,
    /// Identifies this list. It changes with the list, and with the process of ken-tools.
    #[serde(default)]
    pub tag: String,
    /// Identifies the process of ken-tools, which remembers the calls that have begun.
    #[serde(default)]
    pub process: String,
    /// Tool files that cannot be used, and the reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
}

/// The description of a tool for an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    pub name: String,
    pub description: String,
    /// The JSON Schema of the arguments.
    pub parameters: SchemaText,
    /// Whether a call may be repeated if its outcome is unknown.
    pub idempotent: bool,
    pub approval: Approval,
    /// Agents that may call it.
    pub agents: Vec<String>,
    /// The file that describes it.
    pub file: String,
    /// The origin of outside text in its results, such as `web`, if there can be any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<String>,
    /// The settings of which it needs one, if none of them is set. Its calls fail until then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Whether a call says how far it has come while it runs, with [`ToolProgress`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reports_progress: bool,
    /// Whether the result follows from the arguments alone and a call touches nothing, so that programs outside may call it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pure: bool,
}

impl Tool {
    /// Returns what a model is told of the tool.
    pub fn spec(&self) -> ToolSpec {
        ToolSpec { name: self.name.clone(), description: self.description.clone(), parameters: self.parameters.clone() }
    }
}

/// Whether a person has to approve each call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Approval {
    None,
    #[default]
    Ask,
    /// The tool decides for each call, and its preview says what the call would do.
    Preview,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    pub file: String,
    pub error: Error,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallTool {
    pub name: String,
    /// The arguments, a JSON object.
    #[serde(default)]
    pub arguments: Value,
    /// The agent that makes the call; `forbidden` if the tool is not available to it. If absent, an operator makes the
    /// call.
    pub agent: Option<String>,
    /// Whether a person has to approve the call even if the tool itself requires no approval.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ask: bool,
    /// The submission and the session of the call, which the tool gets as `KEN_RUN` and `KEN_SESSION`.
    pub submission: Option<String>,
    pub session: Option<String>,
    /// The id of the approval that allows this call.
    pub grant: Option<String>,
    /// The origins of outside text that the caller has read, which the tool gets as `KEN_OUTSIDE`. A rule of the operator
    /// then permits the call only if it says `trusted`.
    #[serde(default, skip_serializing_if = "Outside::is_empty")]
    pub outside: Outside,
    /// The trusted folder in which the session works, which the tool gets as `KEN_FOLDER`.
    pub workspace: Option<String>,
    /// A key of the call that is unique within its submission.
    pub key: Option<String>,
    /// For a call that was interrupted: the [`process`](Tools::process) of ken-tools before its first attempt.
    pub repeated: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Called {
    /// Whether the tool failed. The result then contains the reason, for the model.
    pub is_error: bool,
    pub result: ToolResult,
    pub duration_ms: u64,
}

/// How far a call has come, as its tool reports it. Others have written the message.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolProgress {
    pub progress: f64,
    pub total: Option<f64>,
    pub message: Option<String>,
}

/// What a call of a tool would do. The tool itself says so, or else it follows from the tool's description file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    pub approval: Need,
    /// The type of the action, as `noun.verb`.
    #[serde(default)]
    pub action_type: String,
    /// One line of text for the person who decides.
    #[serde(default)]
    pub summary: String,
    /// Why the call needs an approval, or why it is denied.
    #[serde(default)]
    pub reason: Option<String>,
    #[serde(default)]
    pub risk: Risk,
    #[serde(default)]
    pub target: String,
    /// Exactly what would be done: program, directory, files.
    #[serde(default)]
    pub action: Value,
    /// A unified diff of the files that would change, or its beginning if `whole` is set.
    #[serde(default)]
    pub diff: Option<String>,
    /// The blob with the whole diff. Set by ken-tools if the diff is longer than a request can show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<Whole>,
    /// SHA-256 of everything that must stay the same between the decision and the call, in hexadecimal.
    #[serde(default)]
    pub fingerprint: String,
    /// Whether a rule of the operator lets a turn that has read outside text do this like any other turn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trusted: bool,
}

/// A text that is kept as a blob, because it is too long for a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whole {
    /// SHA-256 of the text, in hexadecimal.
    pub digest: String,
    pub bytes: u64,
}

/// Whether a call needs a person's approval. The later ones are stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    None,
    Ask,
    /// The call must not run, even with approval.
    Deny,
}

crate::named! {
    #[derive(Default)]
    pub enum Risk {
        Low = "low",
        #[default]
        Medium = "medium",
        High = "high",
    }
}
