//! The common parts of both formats: how an answer ends or fails, and the JSON of tools.

use ken_types::Error;
use ken_types::event::{StopReason, Usage};
use ken_types::json::{parse_arguments, whole_characters};
use ken_types::limits::ARGUMENTS_DEPTH;
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

/// Parses the object that an event holds. Half a surrogate pair becomes U+FFFD, as bytes that are not UTF-8 do.
pub(super) fn parse<T: DeserializeOwned>(data: &str) -> Result<T, Broken> {
    let wrong = |why: String| {
        let message = format!("the provider's stream holds an event that is not understood: {why}");
        Broken::Failed(Error::unavailable(message))
    };
    // serde would take the items of a list for the fields of an object.
    if !data.trim_start().starts_with('{') {
        return Err(wrong("it is not a JSON object".to_owned()));
    }
    let parsed = serde_json::from_str(data).or_else(|_| serde_json::from_str(&whole_characters(data)));
    parsed.map_err(|error| wrong(error.to_string()))
}

/// The number of bytes that an empty call or block counts against the limit of an answer, because it takes memory too.
pub(super) const HELD_BYTES: usize = 256;

/// Parses the arguments of a call. An empty text becomes an empty object. A text that is not JSON, repeats a key, holds
/// NUL or a whole number beyond 64 bits or is nested too deeply is kept as text: no tool is run with it, and the model is
/// told why. NUL is never replaced here, because the tool would then do something else.
pub(crate) fn arguments(text: &str) -> Value {
    match text.trim() {
        "" => json!({}),
        text => parse_arguments(text.as_bytes(), ARGUMENTS_DEPTH)
            .unwrap_or_else(|_| Value::String(text.replace('\0', "\\u0000"))),
    }
}

/// Whether the arguments that have arrived are a complete object, so that nothing can follow.
pub(super) fn is_complete(arguments: &str) -> bool {
    arguments.trim_end().ends_with('}') && serde_json::from_str::<serde::de::IgnoredAny>(arguments).is_ok()
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
