//! Shortens long values for readers who cannot be given all of them. What was done is never done with a shortened value.

use ken_text::head;
use ken_types::event::{Block, Message};
use serde_json::{Value, json};

/// Texts of this size, in bytes, and arguments of this size as JSON are not shortened further.
pub(crate) const SHORT: usize = 1_024;

/// Cuts every text within a value to at most `most` bytes, followed by the note.
pub(crate) fn shorten_texts(value: &mut Value, most: usize, note: &str) {
    if let Value::Object(fields) = value
        && let Some(opaque) = fields.get_mut("opaque")
        && opaque.as_str().is_some_and(|seal| seal.len() > most)
    {
        // A part of a signature is not valid. Without one, the thought is not sent back to the provider.
        *opaque = Value::Null;
    }
    match value {
        Value::String(text) if text.len() > most => *text = cut_text(text, most, note),
        Value::Array(items) => items.iter_mut().for_each(|inner| shorten_texts(inner, most, note)),
        Value::Object(fields) => fields.values_mut().for_each(|inner| shorten_texts(inner, most, note)),
        _ => {}
    }
}

fn cut_text(text: &str, most: usize, note: &str) -> String {
    format!("{}{note}", head(text, most))
}

/// Shortens the arguments of a call: their texts, and if that is not enough, to the beginning of their JSON text.
pub(crate) fn shorten_arguments(arguments: &mut Value, note: &str) {
    shorten_texts(arguments, SHORT, note);
    let text = arguments.to_string();
    // An event has to hold the arguments of all calls of an answer, of which ken-model passes on 128.
    if text.len() > SHORT + SHORT / 2 {
        *arguments = json!({ "cut": cut_text(&text, SHORT / 2, note) });
    }
}

/// Shortens the arguments of the oldest calls until the messages have at most `most` bytes as JSON, or no call is left.
pub(crate) fn shorten_calls(messages: &mut [Message], most: usize, note: &str) {
    let mut bytes = serde_json::to_string(messages).map_or(0, |text| text.len());
    let blocks = messages.iter_mut().flat_map(|message| match message {
        Message::Assistant { content, .. } => content.as_mut_slice(),
        _ => Default::default(),
    });
    for block in blocks {
        if bytes <= most {
            return;
        }
        if let Block::ToolCall { arguments, .. } = block {
            let before = arguments.to_string().len();
            shorten_arguments(arguments, note);
            bytes -= before.saturating_sub(arguments.to_string().len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_arguments() {
        let shortened = |mut arguments: Value| {
            shorten_arguments(&mut arguments, "…");
            arguments
        };
        let text = |length: usize| json!({"first": "", "text": "x".repeat(length)});
        assert_eq!(shortened(text(SHORT)), text(SHORT));
        assert_eq!(shortened(text(SHORT + 1))["text"], format!("{}…", "x".repeat(SHORT)));
        // Two texts, and the marks of JSON around them.
        let texts = |length: usize| json!({"a": "x".repeat(SHORT), "b": "x".repeat(length)});
        let room = SHORT + SHORT / 2 - texts(0).to_string().len();
        assert_eq!(shortened(texts(room)), texts(room));
        assert_eq!(shortened(texts(room + 1)).as_object().unwrap().keys().collect::<Vec<_>>(), ["cut"]);
        // A signature is whole or absent.
        assert_eq!(shortened(json!({"opaque": "x".repeat(SHORT)}))["opaque"], "x".repeat(SHORT));
        assert_eq!(shortened(json!({"opaque": "x".repeat(SHORT + 1)}))["opaque"], Value::Null);
    }

    #[test]
    fn only_as_many_calls_as_needed_are_shortened_the_oldest_first() {
        let call = |id: &str| json!({"type": "toolCall", "id": id, "name": "write", "arguments": {"text": "x".repeat(4 * SHORT)}});
        let assistant = json!({"role": "assistant", "content": [call("a"), call("b"), call("c")], "api": "", "provider": "",
            "model": "", "usage": {}, "stopReason": null, "error": null, "timestamp": 0});
        let mut messages: Vec<Message> = serde_json::from_value(json!([assistant])).unwrap();
        let whole = serde_json::to_string(&messages).unwrap().len();
        shorten_calls(&mut messages, whole - SHORT, "…");
        let Message::Assistant { content, .. } = &messages[0] else { panic!("{messages:?}") };
        let lengths: Vec<usize> = content
            .iter()
            .map(|block| match block {
                Block::ToolCall { arguments, .. } => arguments["text"].as_str().unwrap().chars().count(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(lengths, [SHORT + 1, 4 * SHORT, 4 * SHORT]);
    }
}
