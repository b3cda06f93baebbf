//! The common parts of both formats: how an answer ends or fails, and the JSON of tools.

use ken_types::Error;
use ken_types::event::{StopReason, Usage};
use ken_types::ops::model::SchemaText;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// How an answer ended. Usage is absent if the provider did not report it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ended {
    pub(super) stop_reason: StopReason,
    pub(super) usage: Option<Usage>,
}

/// Why a stream cannot be read further.
#[derive(Debug)]
pub(super) enum Broken {
    /// The provider sent an error event.
    Reported(Value),
    Failed(Error),
}

impl From<Error> for Broken {
    fn from(error: Error) -> Broken {
        Broken::Failed(error)
    }
}

pub(super) fn parse<T: DeserializeOwned>(data: &str) -> Result<T, Broken> {
    serde_json::from_str(data).map_err(|error| {
        let message = format!("the provider's stream holds an event that is not understood: {error}");
        Broken::Failed(Error::unavailable(message))
    })
}

/// Parses the arguments of a call. An empty text becomes an empty object. A text that is not JSON is kept as text, and
/// no tool is run with it.
pub(super) fn arguments(text: &str) -> Value {
    match text.trim() {
        "" => json!({}),
        text => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())),
    }
}

/// The maximum number of tokens that is accepted for a call. A faulty server may report more, and sums of such numbers
/// could overflow.
const MAX_TOKENS: u64 = 1_000_000_000;

/// Returns the number of tokens that a provider reports, at most [`MAX_TOKENS`]. Returns 0 if it reports none.
pub(super) fn bounded(tokens: Option<u64>) -> u64 {
    tokens.unwrap_or_default().min(MAX_TOKENS)
}

/// Returns the schema of a tool. If it is absent, the tool takes an object.
pub(super) fn parameters(schema: &SchemaText) -> Value {
    match schema.value() {
        Value::Object(schema) => Value::Object(schema),
        _ => json!({"type": "object", "properties": {}}),
    }
}
