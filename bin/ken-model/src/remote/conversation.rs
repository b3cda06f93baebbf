//! Converts a request to the form that every chat API accepts: the system prompt as one text, then alternating turns of
//! user and assistant, in which each tool call is followed by its result. Providers refuse any other form. If a crash
//! interrupted the history, it is completed here.
//!
//! The system prompt contains nothing but what ken and its operator have written. The sources stand behind the message that
//! they were found for. Everything before them is the same in the next turn, byte for byte, so that providers find it in their cache.

use ken_types::event::{Block, Message, Purpose};
use ken_types::ops::model::Generate;
use serde_json::Value;

use crate::sources;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Entry<'a> {
    User(Vec<Part<'a>>),
    Assistant(AssistantMessage<'a>),
    /// The results of the tool calls in the assistant's message before, in the order of the calls.
    Results(Vec<ToolAnswer<'a>>),
}

/// One part of a user's message.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Part<'a> {
    Text(String),
    /// An image in base64.
    Image {
        data: &'a str,
        mime_type: &'a str,
    },
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct AssistantMessage<'a> {
    /// The wire format in which it was received.
    pub(super) api: &'a str,
    pub(super) model: &'a str,
    /// Thoughts that have a signature, each with its signature.
    pub(super) thoughts: Vec<(&'a str, &'a str)>,
    pub(super) text: String,
    pub(super) calls: Vec<Call<'a>>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Call<'a> {
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) arguments: &'a Value,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct ToolAnswer<'a> {
    pub(super) id: &'a str,
    pub(super) text: String,
    pub(super) images: Vec<Part<'a>>,
    pub(super) is_error: bool,
}

const NO_RESULT: &str = "The result of this call is not known.";
const CONTINUE: &str = "Your answer was cut. Continue it exactly where it ends, without repeating any of it.";

const SUM_UP: &str = "Sum up this conversation, as the system message says.";

/// The messages of a request. The provider answers the last one.
pub(super) struct Conversation<'a> {
    pub(super) entries: Vec<Entry<'a>>,
    /// The index of the last message of the user. The entries before it are past turns.
    pub(super) prompt: Option<usize>,
    /// What the last message of the user ends with in this turn only.
    pub(super) behind: Option<String>,
}

pub(super) fn conversation(request: &Generate) -> Conversation<'_> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    let last = request.messages.iter().rposition(|message| matches!(message, Message::User { .. }));
    let mut prompt = None;
    for (place, message) in request.messages.iter().enumerate() {
        match message {
            Message::User { content, now, .. } => {
                let is_last = Some(place) == last;
                let now = now.as_ref().or(request.now.as_ref().filter(|_| is_last));
                prompt = is_last.then_some(entries.len());
                entries.push(Entry::User(preceded(parts(content), now.map(|now| sources::time(now)))));
            }
            Message::Signal { .. } => {
                let note = format!("Note: {}", message.text());
                entries.push(Entry::User(vec![Part::Text(note)]));
            }
            Message::Assistant { content, api, model, .. } => {
                let answer = AssistantMessage { api, model, ..answer(content, message.text()) };
                let results: Vec<ToolAnswer<'_>> = answer.calls.iter().map(missing).collect();
                if !answer.text.is_empty() || !results.is_empty() {
                    entries.push(Entry::Assistant(answer));
                }
                if !results.is_empty() {
                    entries.push(Entry::Results(results));
                }
            }
            Message::ToolResult { tool_call_id, content, is_error, .. } => {
                let mut images = parts(content);
                images.retain(|part| matches!(part, Part::Image { .. }));
                fill(&mut entries, ToolAnswer { id: tool_call_id, text: message.text(), images, is_error: *is_error });
            }
        }
    }
    if !request.prefix.is_empty() {
        entries.push(Entry::Assistant(AssistantMessage {
            text: request.prefix.trim_end().to_owned(),
            ..AssistantMessage::default()
        }));
        entries.push(Entry::User(vec![Part::Text(CONTINUE.to_owned())]));
    }
    // A compaction sums up past exchanges. A provider takes an answer at the end for the beginning of its own.
    if request.purpose != Purpose::Agent && matches!(entries.last(), Some(Entry::Assistant(_))) {
        prompt = Some(entries.len());
        entries.push(Entry::User(vec![Part::Text(SUM_UP.to_owned())]));
    }
    Conversation { entries, prompt, behind: sources::behind_message(request).filter(|_| prompt.is_some()) }
}

/// Puts the time before the first text, in the same part, because some servers accept only a single text.
fn preceded(mut parts: Vec<Part<'_>>, before: Option<String>) -> Vec<Part<'_>> {
    let Some(before) = before else {
        return parts;
    };
    match parts.first_mut() {
        Some(Part::Text(text)) => *text = format!("{before}\n\n{text}"),
        _ => parts.insert(0, Part::Text(before)),
    }
    parts
}

fn parts(content: &[Block]) -> Vec<Part<'_>> {
    let parts = content.iter().filter_map(|block| match block {
        Block::Text { text } => Some(Part::Text(text.clone())),
        Block::Image { data, mime_type } => Some(Part::Image { data, mime_type }),
        Block::Thinking { .. } | Block::ToolCall { .. } => None,
    });
    parts.collect()
}

fn answer(content: &[Block], text: String) -> AssistantMessage<'_> {
    let mut answer = AssistantMessage { text, ..AssistantMessage::default() };
    for block in content {
        match block {
            Block::Thinking { thinking, opaque: Some(opaque) } => answer.thoughts.push((thinking, opaque)),
            Block::ToolCall { id, name, arguments } => answer.calls.push(Call { id, name, arguments }),
            _ => {}
        }
    }
    answer
}

fn missing<'a>(call: &Call<'a>) -> ToolAnswer<'a> {
    ToolAnswer { id: call.id, text: NO_RESULT.to_owned(), images: Vec::new(), is_error: true }
}

/// Puts a result at the place of its call. A result without a call is dropped.
fn fill<'a>(entries: &mut [Entry<'a>], answer: ToolAnswer<'a>) {
    let Some(Entry::Results(results)) = entries.last_mut() else {
        return;
    };
    if let Some(result) = results.iter_mut().find(|result| result.id == answer.id) {
        *result = answer;
    }
}

/// What a model that sees no images is told of one.
const NOT_SHOWN: &str = "[The image is not shown, because models.toml does not say that this model sees images.]";

/// Returns the request without the images in the results of tools, or `None` if it has none. Unlike an image that a user attaches,
/// such an image is nobody's wish, and a provider refuses the whole request if its model sees none.
pub(super) fn without_images_of_tools(request: &Generate) -> Option<Generate> {
    let is_image = |block: &Block| matches!(block, Block::Image { .. });
    let has_image =
        |message: &Message| matches!(message, Message::ToolResult { content, .. } if content.iter().any(is_image));
    if !request.messages.iter().any(has_image) {
        return None;
    }
    let mut request = request.clone();
    for message in &mut request.messages {
        if let Message::ToolResult { content, .. } = message {
            for block in content.iter_mut().filter(|block| is_image(block)) {
                *block = Block::text(format!("\n{NOT_SHOWN}"));
            }
        }
    }
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(messages: Value) -> Generate {
        serde_json::from_value(json!({"system": "Rules.", "purpose": Purpose::Agent, "messages": messages})).unwrap()
    }

    fn assistant(content: Value) -> Value {
        let usage = serde_json::to_value(ken_types::event::Usage::default()).unwrap();
        json!({"role": "assistant", "content": content, "api": "x", "provider": "x", "model": "m", "usage": usage,
            "timestamp": 0})
    }

    fn result(id: &str) -> Value {
        json!({"role": "toolResult", "toolCallId": id, "toolName": "t", "isError": false, "timestamp": 0,
            "content": [{"type": "text", "text": format!("did {id}")}]})
    }

    #[test]
    fn every_call_has_one_result_and_orphans_are_dropped() {
        let user = json!({"role": "user", "content": [{"type": "text", "text": "go"}], "timestamp": 0});
        let calls = assistant(json!([
            {"type": "text", "text": ""},
            {"type": "toolCall", "id": "a", "name": "t", "arguments": {}},
            {"type": "toolCall", "id": "b", "name": "t", "arguments": {}},
        ]));
        let request = request(json!([result("z"), user, calls, result("b"), result("y"), user, result("a")]));
        let entries = conversation(&request).entries;
        let shown: Vec<String> = entries
            .iter()
            .map(|entry| match entry {
                Entry::User(_) => "user".to_owned(),
                Entry::Assistant(answer) => format!("assistant {}", answer.calls.len()),
                Entry::Results(results) => {
                    results.iter().map(|result| format!("{}:{} ", result.id, result.text)).collect()
                }
            })
            .collect();
        assert_eq!(shown, ["user", "assistant 2", &format!("a:{NO_RESULT} b:did b "), "user"]);
    }

    #[test]
    fn a_cut_answer_is_asked_for_its_rest() {
        let user = json!({"role": "user", "content": [{"type": "text", "text": "go"}], "timestamp": 0});
        let mut request = request(json!([user]));
        request.prefix = "Half of ".into();
        let entries = conversation(&request).entries;
        assert!(matches!(&entries[1], Entry::Assistant(answer) if answer.text == "Half of"));
        assert_eq!(entries[2], Entry::User(vec![Part::Text(CONTINUE.into())]));
    }
}
