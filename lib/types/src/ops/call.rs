//! A model call as a person or a script writes it, and the complete answer. The call has the arguments of
//! `model.generate`, many of which are optional here. See ken-model(8).

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::model::Generate;
use crate::event::{Block, ModelName, StopReason, Usage};
use crate::{Error, json};

/// Parses a JSON object as a request, and any other text as a user's message. Fails with `invalid`, which names the
/// wrong field. JSON may be nested `max_depth` levels deep.
pub fn read(input: &str, max_depth: usize) -> Result<Generate, Error> {
    let mut request = if input.trim_start().starts_with('{') {
        json::parse(input.as_bytes(), max_depth)?
    } else {
        json!({"messages": [{"role": "user", "content": input.trim_end_matches(['\n', '\r'])}]})
    };
    if let Value::Object(fields) = &mut request {
        complete(fields);
    }
    let request: Generate = json::from_value(request)?;
    if request.messages.is_empty() {
        Err(Error::invalid("/messages", "there is no message to answer"))
    } else {
        Ok(request.with_past_messages())
    }
}

fn complete(request: &mut Map<String, Value>) {
    default(request, "system", "");
    default(request, "purpose", "agent");
    let messages = request.get_mut("messages").and_then(Value::as_array_mut);
    for message in messages.into_iter().flatten() {
        if let Value::Object(fields) = message {
            complete_message(fields);
        }
    }
}

/// Turns content that is plain text into one text block, and sets defaults for fields that no provider needs, such as
/// the time.
fn complete_message(message: &mut Map<String, Value>) {
    if let Some(Value::String(text)) = message.get_mut("content") {
        let text = std::mem::take(text);
        message.insert("content".into(), json!([{"type": "text", "text": text}]));
    }
    default(message, "timestamp", 0);
    match message.get("role").and_then(Value::as_str) {
        Some("assistant") => {
            for field in ["api", "provider", "model"] {
                default(message, field, "");
            }
            default(message, "usage", json!(Usage::default()));
        }
        Some("toolResult") => default(message, "isError", false),
        _ => {}
    }
}

fn default(fields: &mut Map<String, Value>, name: &str, value: impl Into<Value>) {
    fields.entry(name).or_insert_with(|| value.into());
}

/// The answer of a model, with the field names of the gateway's `200` answers.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answered {
    pub text: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<Block>,
    pub usage: Usage,
    pub model: ModelName,
    pub stop_reason: StopReason,
    /// The models that were called before, and why each failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<Failed>,
}

/// A model of the fail-over list that failed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Failed {
    /// The model, as `provider/model`.
    pub model: String,
    pub error: Error,
}

impl Failed {
    /// Returns the last failure with the messages of all of them, or `unavailable` if no model was called.
    pub fn all(failed: Vec<Failed>) -> Error {
        let words: Vec<String> = failed
            .iter()
            .map(|failed| {
                if failed.error.message.starts_with(&failed.model) {
                    failed.error.message.clone()
                } else {
                    format!("{}: {}", failed.model, failed.error.message)
                }
            })
            .collect();
        match failed.into_iter().last() {
            Some(Failed { error, .. }) => Error { message: words.join("; "), ..error },
            None => Error::unavailable("no model is configured"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Message, Purpose};

    #[test]
    fn absent_fields_get_their_defaults() {
        let short = r#"{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},
            {"role":"toolResult","toolCallId":"c","toolName":"t","content":"d"}]}"#;
        let request = read(short, 64).unwrap();
        assert_eq!(request.purpose, Purpose::Agent);
        let texts: Vec<String> = request.messages.iter().map(Message::text).collect();
        assert_eq!(texts, ["a", "b", "d"]);
        let longer = r#"{"exchanges":[{"prompt":"x","answer":"y"}],"messages":[{"role":"user","content":"a"}]}"#;
        let texts: Vec<String> = read(longer, 64).unwrap().messages.iter().map(Message::text).collect();
        assert_eq!(texts, ["x", "y", "a"]);
    }

    #[test]
    fn plain_text_is_what_the_user_says() {
        let request = read("Who are you?\n", 64).unwrap();
        assert_eq!(request.messages.first().map(Message::text).as_deref(), Some("Who are you?"));
    }

    #[test]
    fn errors_name_the_wrong_field() {
        for (input, at) in [
            (r#"{"messages":[]}"#, "/messages"),
            (r#"{"messages":[{"role":"user","content":7}]}"#, "/messages/0"),
            (r#"{"messages":[],"temprature":1}"#, "/temprature"),
            (r#"{"#, ""),
        ] {
            let error = read(input, 64).unwrap_err();
            assert!(error.at.as_deref().unwrap_or_default().starts_with(at), "{input}: {error:?}");
        }
    }
}
