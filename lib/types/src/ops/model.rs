//! The operations of `ken-model`: messages in, events out.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Nothing;
use crate::event::{Message, ModelName, StopReason, Usage};

crate::operations! {
    /// One call to one provider. Items are what the model says as it says it; `cancelled` closes the call to the
    /// provider. The caller repeats it, and goes to the next of the list: `busy` (overload, 429) and `unavailable` (5xx,
    /// network) may pass, `too_large` is a context over the model's window, all others stay as they are.
    ModelGenerate, "model.generate": Generate => Generated, items Delta;
    /// The configured models.
    ModelInfo, "model.info": Nothing => ModelState;
}

#[derive(Debug, Clone, Serialize, Deserialize)]
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
}

/// A source for the answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The id of a knowledge entry, or of the submission of a past exchange.
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
    Memory,
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
        provider: String,
        model: String,
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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Generated {
    pub model: ModelName,
    pub api: String,
    pub stop_reason: StopReason,
    pub usage: Usage,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelState {
    /// The configured models as `provider/model`, first choice first. If empty, no prompt can be answered.
    pub models: Vec<String>,
    /// The window of the first model in tokens, and how many of them are reserved for its answer.
    pub context_window: u64,
    pub output_reserve: u64,
    /// The largest number of past exchanges that the first model uses.
    pub exchanges: u32,
}
