//! What requests for chat completions and their answers have in common, whether an agent answers or a model itself.

use ken_http::Failure;
use ken_types::event::Usage;
use ken_types::{Error, Timestamp};
use serde_json::{Map, Value, json};

use super::input::{Said, message};
use super::params::{Known, Refused, is_empty, is_off, is_one, is_text, never};
use crate::body::switch;

pub(super) const KNOWN: Known = Known {
    used: "model messages stream stream_options user response_format tools tool_choice",
    ignored: "temperature top_p max_tokens max_completion_tokens presence_penalty frequency_penalty logit_bias \
        stop store metadata service_tier prediction reasoning_effort verbosity prompt_cache_key \
        prompt_cache_retention safety_identifier web_search_options parallel_tool_calls",
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

/// Returns `None` if the answer is sent as a whole. If it is streamed, returns whether the stream ends with the number of tokens used.
pub(super) fn stream(fields: &Map<String, Value>) -> Result<Option<bool>, Error> {
    let with_usage = fields.get("stream_options").and_then(|options| options.get("include_usage"));
    Ok(switch(fields, "stream")?.then(|| with_usage == Some(&Value::Bool(true))))
}

/// What an answer and each of its pieces begin with.
pub(super) struct Head {
    pub(super) id: String,
    pub(super) created: Timestamp,
    pub(super) model: String,
}

impl Head {
    fn with(&self, object: &str, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created.millis() / 1_000,
            "model": self.model,
            "choices": choices,
        })
    }

    /// Returns an answer as one document.
    pub(super) fn whole(&self, message: Value, finish_reason: &str, used: &Usage) -> Value {
        let choices = json!([{"index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason}]);
        let mut body = self.with("chat.completion", choices);
        body["usage"] = usage(used);
        body
    }

    pub(super) fn piece(&self, delta: Value, finish_reason: Option<&str>) -> String {
        let choices = json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason}]);
        frame(&self.with("chat.completion.chunk", choices))
    }

    /// Returns the pieces with which an answer ends. `used` is given if the caller wants to know it.
    pub(super) fn last_pieces(&self, finish_reason: &str, used: Option<&Usage>) -> String {
        let mut last = self.piece(json!({}), Some(finish_reason));
        if let Some(used) = used {
            let mut piece = self.with("chat.completion.chunk", json!([]));
            piece["usage"] = usage(used);
            last += &frame(&piece);
        }
        last + "data: [DONE]\n\n"
    }
}

pub(super) fn frame(piece: &Value) -> String {
    format!("data: {piece}\n\n")
}

/// Returns the tokens of all calls of the turn, as the original counts them: those that were cached are among those of the prompt.
fn usage(usage: &Usage) -> Value {
    let prompt = usage.input + usage.cache_read + usage.cache_write;
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": usage.output,
        "total_tokens": prompt + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
    })
}
