//! The operations of `ken-model`: messages in, events out.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Nothing;
use super::budget::Spent;
use crate::config::Budget;
use crate::event::{Message, ModelName, StopReason, Usage};

crate::operations! {
    /// One call to one provider. Items are the answer as it comes; `cancelled` closes the call to the provider. The caller
    /// retries and goes to the next of the list: `busy` (overload, 429) and `unavailable` (5xx, network) may pass,
    /// `too_large` is a context over the model's window, `unauthenticated` a key that is missing or refused; all others
    /// stay as they are.
    ModelGenerate, "model.generate": Generate => Generated, items Delta;
    /// A vector for each text, for search by meaning. `not_found` when no model is chosen for that. The caller does without them
    /// when it fails.
    ModelEmbed, "model.embed": Embed => Embedded;
    /// The configured models.
    ModelInfo, "model.info": Nothing => ModelState;
    /// The caps of `[model.budget]`, and what is used of them.
    ModelBudget, "model.budget": OfSession => BudgetState;
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generate {
    /// `provider/model`, one of `model.info`'s; absent: its first. `not_found` for any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The system prompt: the governing rules, and whatever else precedes the conversation.
    pub system: String,
    /// Sources found for this turn. An answer that uses a source names its id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Source>,
    /// Oldest first. The last one is to be answered.
    pub messages: Vec<Message>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
    /// What the model had already said in a call that a crash has interrupted. The answer continues from here, and the items
    /// contain only what is new.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// The purpose of the call: `agent` or `compaction`.
    pub purpose: crate::event::Purpose,
    /// The instance that the call is for; its budget is charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// `model` may be one of a provider that is set up, and not in the list: for an evaluation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unlisted: bool,
    /// Tokens that the answer may have, where that is less than what the model can give. The budget sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfSession {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BudgetState {
    pub caps: Budget,
    /// Today, `YYYY-MM-DD` in UTC.
    pub day: String,
    /// Nothing when there are no caps.
    pub spent: Spent,
}

/// A source for the answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The id of a knowledge entry, of the submission of a past exchange, or of a page within its search.
    pub id: String,
    pub kind: SourceKind,
    /// The entry's title, or the past prompt.
    pub title: String,
    /// The entry's content, or the past answer.
    pub text: String,
    /// The score of the search, 0 to 1.
    pub score: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceKind {
    Knowledge,
    /// A piece of a file of the workspace, which anybody may have written: shown as pages of the web are.
    File,
    Memory,
    /// A page of the web, which anybody may have written: providers show it to a model between random marks.
    Web,
}

/// A tool that the model may call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    /// The JSON Schema of the arguments.
    pub parameters: Value,
}

/// A piece of a model's answer, in a form common to all providers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Delta {
    /// A provider has begun to answer.
    Start {
        #[serde(default)]
        provider: String,
        #[serde(default)]
        model: String,
        #[serde(default)]
        api: String,
    },
    Text {
        delta: String,
    },
    Think {
        delta: String,
        /// A signature or sealed reasoning, to be sent back byte for byte.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opaque: Option<String>,
    },
    /// A complete call, whose arguments have been parsed.
    ToolCall {
        id: String,
        name: String,
        arguments: Value,
    },
}

/// How an answer ended. A part that replaces ken-model may leave out every field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Generated {
    #[serde(default)]
    pub model: ModelName,
    #[serde(default)]
    pub api: String,
    /// `stop` when absent.
    #[serde(default = "stop")]
    pub stop_reason: StopReason,
    #[serde(default)]
    pub usage: Usage,
}

fn stop() -> StopReason {
    StopReason::Stop
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Embed {
    /// 1 to 64.
    pub texts: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Embedded {
    /// `provider/model`. Vectors of different models are never compared.
    pub model: String,
    /// In the order of the texts.
    pub vectors: Vec<Vec<f32>>,
    #[serde(default)]
    pub usage: Usage,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelState {
    /// The configured models as `provider/model`, first choice first. If empty, no prompt can be answered.
    pub models: Vec<String>,
    /// Tokens of the first one's window, and of them the part kept for its answer.
    #[serde(default = "context_window")]
    pub context_window: u64,
    #[serde(default = "output_reserve")]
    pub output_reserve: u64,
    /// Past exchanges of a conversation that the first one makes use of, at most.
    #[serde(default = "exchanges")]
    pub exchanges: u32,
    /// Models of the list that cannot be called before somebody changes the configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unusable: Vec<Unusable>,
    /// The model that makes vectors, if one is chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embeds: Option<String>,
}

fn context_window() -> u64 {
    98_304
}

fn output_reserve() -> u64 {
    8_192
}

fn exchanges() -> u32 {
    100
}

/// A model without a key, or with one that its provider refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unusable {
    /// `provider/model`.
    pub model: String,
    pub why: String,
}
