//! What requests for chat completions and their answers have in common, whether an agent answers or a model itself.

use ken_http::Failure;
use ken_types::Error;
use ken_types::event::Usage;
use serde_json::{Map, Value, json};

use super::input::{Said, message};
use super::params::{Known, Refused, is_empty, is_off, is_one, is_text, never};

pub(super) const KNOWN: Known = Known {
    used: &["model", "messages", "stream", "stream_options", "user", "response_format", "tools", "tool_choice"],
    ignored: &[
        "temperature",
        "top_p",
        "max_tokens",
        "max_completion_tokens",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
        "stop",
        "store",
        "metadata",
        "service_tier",
        "prediction",
        "reasoning_effort",
        "verbosity",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "web_search_options",
        "parallel_tool_calls",
    ],
    refused: REFUSED,
};

const REFUSED: &[Refused] = &[
    ("n", is_one, "ken gives one answer"),
    ("logprobs", is_off, "ken has no probabilities of tokens"),
    ("top_logprobs", is_off, "ken has no probabilities of tokens"),
    ("seed", never, "the answers of ken cannot be repeated by a seed"),
    ("audio", never, "ken answers with text"),
    ("modalities", is_text, "ken answers with text"),
    ("functions", is_empty, "tools are in `tools`"),
    ("function_call", is_none, "the choice is in `tool_choice`"),
];

fn is_none(value: &Value) -> bool {
    *value == "none"
}

pub(super) fn messages(fields: &Map<String, Value>) -> Result<Vec<Said>, Failure> {
    let given = fields.get("messages").and_then(Value::as_array).filter(|given| !given.is_empty());
    let given =
        given.ok_or_else(|| Error::invalid("/messages", "messages must be a list with at least one message"))?;
    let read = |(index, given): (usize, &Value)| {
        let at = format!("/messages/{index}");
        let fields = given.as_object().ok_or_else(|| Error::invalid(at.clone(), "a message is an object"))?;
        message(fields, &at)
    };
    given.iter().enumerate().map(read).collect()
}

pub(super) fn frame(piece: &Value) -> String {
    format!("data: {piece}\n\n")
}

/// Returns the tokens of all calls of the turn, as the original counts them: those that were cached are among those of the prompt.
pub(super) fn usage(usage: &Usage) -> Value {
    let prompt = usage.input + usage.cache_read + usage.cache_write;
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": usage.output,
        "total_tokens": prompt + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
    })
}
