//! The operations of `ken-model`, which receives messages and returns events.

use std::fmt;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::Nothing;
use super::budget::Spent;
use crate::Timestamp;
use crate::config::Budget;
use crate::event::{Block, Message, ModelName, StopReason, Usage};

crate::operations! {
    /// Makes one call to one provider. Items are the pieces of the answer as they arrive. Cancelling the request closes
    /// the connection to the provider. The caller is responsible for retries and for trying the next model of the list.
    /// `busy` (overload, 429) and `unavailable` (5xx, network) are temporary. `too_large` means that the request
    /// exceeds the model's context window, `unauthenticated` that the key is missing or refused. Other errors are
    /// permanent.
    ModelGenerate, "model.generate": Generate => Generated, items Delta;
    /// Returns a vector for each text, for search by meaning. `not_found` if no model is configured for it. If it
    /// fails, callers continue without vectors.
    ModelEmbed, "model.embed": Embed => Embedded;
    /// Returns the configured models.
    ModelInfo, "model.info": Nothing => ModelState;
    /// Returns which providers and models have failed, and when they are called again.
    ModelHealth, "model.health": Nothing => Health;
    /// Returns the limits of `[model.budget]`, and how much of them is used.
    ModelBudget, "model.budget": OfSession => BudgetState;
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generate {
    /// A `provider/model` that `model.info` lists; `not_found` for any other. If absent, the first of the list.
    pub model: Option<String>,
    /// The system prompt: the governing rules, and any other text that precedes the conversation.
    pub system: String,
    /// Sources found for this turn. A model is shown them behind the last message of the user, each between marks. An answer
    /// that uses a source contains its id. They are sent with this turn only: everything before them is sent again, byte for
    /// byte, in the next turn, and a provider finds it in its cache.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Source>,
    /// What ken says about this turn only, for instance that a schedule started it. It stands before the sources.
    pub aside: Option<String>,
    /// The date and time of the last message of the user, with weekday and zone, as a model is told them.
    pub now: Option<String>,
    /// What stands for the part of the conversation that is no longer sent, before `exchanges`.
    pub earlier: Option<String>,
    /// Past exchanges of the conversation, oldest first. They come before `messages`. An exchange is shorter than the
    /// two messages that it replaces, which matters because most of a request may be past exchanges.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exchanges: Vec<Exchange>,
    /// The messages, oldest first. The model answers the last one.
    pub messages: Vec<Message>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
    /// The beginning of the answer, from a call that a crash interrupted. The model continues from here, and the items
    /// contain only what is new.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// The purpose of the call: `agent` or `compaction`.
    pub purpose: crate::event::Purpose,
    /// The instance that the call is for. The call counts against its budget.
    pub session: Option<String>,
    /// Whether `model` may be any model of a configured provider, even if the list does not contain it. Used by
    /// evaluations.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unlisted: bool,
    /// Whether no other model is called if this one fails, because a person has chosen it. It is then called even if its
    /// provider has just failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub chosen: bool,
    /// The maximum number of tokens of the answer, if the budget allows fewer than the model does.
    pub max_output: Option<u64>,
    /// The sampling temperature; 0 makes answers as repeatable as the model can. If absent, the provider's default holds.
    pub temperature: Option<f64>,
    /// The mark of the lines around the sources ([`crate::fence`]). If absent, ken-model makes a new one for each call.
    pub mark: Option<String>,
}

/// The hint for a user whose configured models cannot be called.
pub const NO_MODEL_HINT: &str =
    "set the key in secrets.env, or KEN_MODEL or [model] use in ken.toml; `rules` needs no model";

impl Generate {
    /// Returns the request with the earlier part of the conversation as messages.
    pub fn with_past_messages(mut self) -> Generate {
        let earlier = self.earlier.take();
        let earlier = earlier.map(|text| Message::Signal { content: vec![Block::text(text)], timestamp: 0 });
        let exchanges = std::mem::take(&mut self.exchanges);
        self.messages.splice(0..0, earlier.into_iter().chain(exchanges.into_iter().flat_map(Exchange::messages)));
        self
    }
}

/// A past prompt and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    pub prompt: String,
    pub answer: String,
    /// The time, in epoch milliseconds.
    #[serde(default)]
    pub timestamp: i64,
    /// [`Generate::now`] of the turn, so that its message is the same as it was then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
}

impl Exchange {
    /// Returns the exchange as messages. The model that answered is unknown.
    pub fn messages(self) -> [Message; 2] {
        let timestamp = self.timestamp;
        let prompt = Message::User { content: vec![Block::text(self.prompt)], timestamp, now: self.now };
        let answer = Message::Assistant {
            content: vec![Block::text(self.answer)],
            api: String::new(),
            provider: String::new(),
            model: String::new(),
            usage: Usage::default(),
            stop_reason: Some(StopReason::Stop),
            error: None,
            timestamp,
        };
        [prompt, answer]
    }
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
    /// The current day, `YYYY-MM-DD` in UTC.
    pub day: String,
    /// The use so far. Zero if there are no limits.
    pub spent: Spent,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The id of a knowledge entry, of the submission of a past exchange, or of a page in the search that found it.
    pub id: String,
    pub kind: SourceKind,
    /// The entry's title, or the past prompt.
    pub title: String,
    /// The entry's content, or the past answer.
    pub text: String,
    /// The score of the search, 0 to 1.
    pub score: f64,
    /// Where the text comes from, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub origin: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceKind {
    Knowledge,
    /// A piece of a file in the workspace.
    File,
    Memory,
    /// A web page.
    Web,
    /// A text that belongs to the message rather than to its topic: the summary of the conversation before it, or the
    /// data of a schedule. No answer quotes it.
    Context,
}

/// A tool that the model may call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    /// The JSON Schema of the arguments.
    pub parameters: SchemaText,
}

/// A JSON Schema that is stored as text. Every turn copies and sends the schemas of all its tools, but only the request
/// format of a provider needs the parsed value.
#[derive(Clone)]
pub struct SchemaText(Arc<RawValue>);

impl SchemaText {
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// Returns the parsed schema, or null if it contains a number that is too large or is nested too deeply to be
    /// parsed.
    pub fn value(&self) -> Value {
        serde_json::from_str(self.text()).unwrap_or_default()
    }
}

impl From<&Value> for SchemaText {
    fn from(value: &Value) -> SchemaText {
        let text = RawValue::from_string(value.to_string());
        SchemaText(Arc::from(text.unwrap_or_else(|_| RawValue::NULL.to_owned())))
    }
}

impl Serialize for SchemaText {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl<'de> Deserialize<'de> for SchemaText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<SchemaText, D::Error> {
        let text = Box::<RawValue>::deserialize(from)?;
        // On the wire, a request must be a single line.
        if text.get().contains(['\n', '\r']) {
            let value: Value = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
            return Ok(SchemaText::from(&value));
        }
        Ok(SchemaText(Arc::from(text)))
    }
}

impl PartialEq for SchemaText {
    fn eq(&self, other: &SchemaText) -> bool {
        self.text() == other.text()
    }
}

impl fmt::Debug for SchemaText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// A piece of a model's answer, in the format that is common to all providers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Delta {
    /// The provider has begun to answer.
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
        /// A signature or encrypted reasoning, which has to be sent back to the provider byte for byte.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opaque: Option<String>,
    },
    /// A complete tool call with parsed arguments.
    ToolCall {
        id: String,
        name: String,
        arguments: Value,
    },
}

/// How an answer ended. Another implementation of ken-model may omit every field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Generated {
    #[serde(default)]
    pub model: ModelName,
    #[serde(default)]
    pub api: String,
    /// `stop` if absent.
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
    /// 1 to 64 texts.
    pub texts: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Embedded {
    /// The model, as `provider/model`. Vectors of different models are never compared.
    pub model: String,
    /// The vectors, in the order of the texts.
    pub vectors: Vec<Vec<f32>>,
    #[serde(default)]
    pub usage: Usage,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelState {
    /// The configured models as `provider/model`, in order of preference. If empty, no prompt can be answered.
    pub models: Vec<String>,
    /// The context window of the first model, and the part of it that is reserved for the answer, in tokens.
    #[serde(default = "context_window")]
    pub context_window: u64,
    #[serde(default = "output_reserve")]
    pub output_reserve: u64,
    /// The maximum number of past exchanges of a conversation that the first model uses; 0 if there is no model.
    #[serde(default = "exchanges")]
    pub exchanges: u32,
    /// Models of the list that cannot be called until the configuration changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unusable: Vec<Unusable>,
    /// The model that computes vectors, if one is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embeds: Option<String>,
    /// Models of `[model.provider.NAME]` that are not in the list, but can be chosen by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
}

impl ModelState {
    /// Whether a prompt or a session can choose this model.
    pub fn has(&self, model: &str) -> bool {
        self.choices().any(|known| known == model)
    }

    /// Returns the reason why no model of the list can be called, if none can.
    pub fn why_none(&self) -> Option<String> {
        let why: Vec<String> = self.unusable.iter().map(|one| format!("{}: {}", one.model, one.why)).collect();
        match (self.models.as_slice(), why.as_slice()) {
            ([_, ..], _) => None,
            ([], []) => Some("no model is configured".to_owned()),
            ([], _) => Some(format!("no model is configured: {}", why.join("; "))),
        }
    }

    /// Returns all models that a prompt or a session can choose, those of the list first.
    pub fn choices(&self) -> impl Iterator<Item = &str> {
        self.models.iter().chain(&self.others).map(String::as_str)
    }
}

/// What ken-model has seen of the providers since its start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// The providers, and single models of them, that were called. A name is `PROVIDER` or `PROVIDER/MODEL`.
    #[serde(default)]
    pub providers: Vec<ProviderHealth>,
    /// The models of the list that are called. If it is empty or has `rules` alone, no language model answers just now.
    #[serde(default)]
    pub called: Vec<String>,
    /// Why the budget covers no call of a model, if it refused the last one of that model today.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_budget: Option<String>,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProviderHealth {
    pub name: String,
    pub last_success: Option<Timestamp>,
    pub last_failure: Option<Timestamp>,
    /// Why the last call failed.
    pub cause: Option<String>,
    /// Since when it is not called, apart from one attempt now and then. `None` while it is called.
    pub down_since: Option<Timestamp>,
    /// When it is tried again at the earliest.
    pub next_attempt: Option<Timestamp>,
}

impl Health {
    /// Returns each provider or model that is down.
    pub fn down(&self) -> impl Iterator<Item = Down> {
        self.providers.iter().filter_map(|one| {
            let why = format!("{}: {}", one.name, one.cause.as_deref().unwrap_or("it failed"));
            Some(Down { part: "model".to_owned(), why, since: one.down_since? })
        })
    }
}

/// A provider or a model that is down, as `/ready` names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Down {
    pub part: String,
    /// The provider and the cause.
    pub why: String,
    pub since: Timestamp,
}

impl fmt::Display for Down {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} (since {})", self.why, self.since)
    }
}

/// The place in errors of a model call whose provider is down, so that no wait helps.
pub const AT_PROVIDER: &str = "/provider";

fn context_window() -> u64 {
    98_304
}

fn output_reserve() -> u64 {
    8_192
}

fn exchanges() -> u32 {
    100
}

/// A model whose key is missing or was refused by its provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unusable {
    /// The model, as `provider/model`.
    pub model: String,
    pub why: String,
}
