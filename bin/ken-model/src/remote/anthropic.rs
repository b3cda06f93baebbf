//! Anthropic's messages API.

use std::collections::BTreeMap;

use ken_types::Error;
use ken_types::event::{StopReason, Usage};
use ken_types::ops::model::{Delta, Generate, ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use super::conversation::{Answer, Entry, Part, ToolAnswer, entries};
use super::format::{Broken, Ended, HELD_BYTES, arguments, bounded, parameters, parse};
use ken_types::sse::Event;

/// The name of this format, which is `api` in messages. Signatures of thoughts are sent back only to
/// the format from which they came.
pub(super) const API: &str = "anthropic-messages";
/// Marks a thought that the provider sends encrypted. It is sent back unchanged.
const REDACTED_PREFIX: &str = "redacted:";

/// Returns the body of a request.
pub(super) fn body(model: &str, request: &Generate, max_tokens: u64) -> Value {
    let mut messages: Vec<(&str, Vec<Value>)> = Vec::new();
    for entry in entries(request) {
        let (role, blocks) = match entry {
            Entry::User(parts) => ("user", parts.iter().filter_map(part).collect()),
            Entry::Assistant(answer) => ("assistant", assistant(&answer)),
            Entry::Results(results) => ("user", results.iter().map(result).collect::<Vec<_>>()),
        };
        // Consecutive messages of one role are joined, because roles have to alternate.
        match messages.last_mut() {
            Some((last, content)) if *last == role => content.extend(blocks),
            _ => messages.push((role, blocks)),
        }
    }
    messages.retain(|(_, content)| !content.is_empty());
    let messages: Vec<Value> =
        messages.into_iter().map(|(role, content)| json!({"role": role, "content": content})).collect();
    let mut body = json!({"model": model, "max_tokens": max_tokens, "messages": messages, "stream": true});
    if !request.system.trim().is_empty() {
        body["system"] = json!(request.system);
    }
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    body
}

/// Returns a block of a message, or `None` for a blank text, which the provider refuses.
fn part(part: &Part<'_>) -> Option<Value> {
    match part {
        Part::Text(text) if text.trim().is_empty() => None,
        Part::Text(text) => Some(json!({"type": "text", "text": text})),
        Part::Image { data, mime_type } => {
            let source = json!({"type": "base64", "media_type": mime_type, "data": data});
            Some(json!({"type": "image", "source": source}))
        }
    }
}

/// Returns the thoughts in their order, then the text, then the tool calls.
fn assistant(answer: &Answer<'_>) -> Vec<Value> {
    let own = answer.thoughts.iter().filter(|_| answer.api == API);
    let mut blocks: Vec<Value> = own
        .map(|(thinking, opaque)| match opaque.strip_prefix(REDACTED_PREFIX) {
            Some(data) => json!({"type": "redacted_thinking", "data": data}),
            None => json!({"type": "thinking", "thinking": thinking, "signature": opaque}),
        })
        .collect();
    blocks.extend(part(&Part::Text(answer.text.clone())));
    for call in &answer.calls {
        let input = Some(call.arguments.clone()).filter(Value::is_object).unwrap_or_else(|| json!({}));
        blocks.push(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input}));
    }
    blocks
}

fn result(result: &ToolAnswer<'_>) -> Value {
    json!({"type": "tool_result", "tool_use_id": result.id, "content": result.text, "is_error": result.is_error})
}

fn tool(tool: &ToolSpec) -> Value {
    json!({"name": tool.name, "description": tool.description, "input_schema": parameters(&tool.parameters)})
}

/// The state of a stream of events.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// Open blocks that become a delta only when they are complete.
    open: BTreeMap<u64, Open>,
    usage: Tokens,
    stop: Option<StopReason>,
    done: bool,
}

#[derive(Debug)]
enum Open {
    Tool { id: String, name: String, input: String },
    Thought { signature: String },
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line {
    MessageStart {
        message: Started,
    },
    ContentBlockStart {
        index: u64,
        content_block: Block,
    },
    ContentBlockDelta {
        index: u64,
        delta: Piece,
    },
    ContentBlockStop {
        index: u64,
    },
    MessageDelta {
        delta: Stop,
        #[serde(default)]
        usage: Tokens,
    },
    MessageStop,
    /// The whole answer, from a server that does not stream it.
    Message {
        content: Vec<Block>,
        stop_reason: Option<String>,
        #[serde(default)]
        usage: Tokens,
    },
    Error {
        error: Value,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
struct Started {
    #[serde(default)]
    usage: Tokens,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    Text {
        #[serde(default)]
        text: String,
    },
    ToolUse {
        id: String,
        name: String,
        #[serde(default)]
        input: Value,
    },
    Thinking {
        #[serde(default)]
        thinking: String,
        #[serde(default)]
        signature: String,
    },
    RedactedThinking {
        data: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Piece {
    TextDelta {
        text: String,
    },
    InputJsonDelta {
        partial_json: String,
    },
    ThinkingDelta {
        thinking: String,
    },
    SignatureDelta {
        signature: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Default, Deserialize)]
struct Stop {
    stop_reason: Option<String>,
}

/// Token counts. An absent count does not change the earlier one, because the last event repeats
/// only some of them.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
struct Tokens {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
}

impl Events {
    /// Takes one event. Returns the deltas that it completes, or the error that the provider sent.
    pub(super) fn take(&mut self, event: &Event) -> Result<Vec<Delta>, Broken> {
        match parse(&event.data)? {
            Line::MessageStart { message } => self.usage.update(message.usage),
            Line::ContentBlockStart { index, content_block } => return Ok(self.start(index, content_block)),
            Line::ContentBlockDelta { index, delta } => return Ok(self.add(index, delta)),
            Line::ContentBlockStop { index } => return Ok(self.stop_block(index)),
            Line::MessageDelta { delta, usage } => {
                self.usage.update(usage);
                if let Some(reason) = delta.stop_reason {
                    self.stop = Some(stop(&reason)?);
                }
            }
            Line::MessageStop => self.done = true,
            Line::Message { content, stop_reason, usage } => {
                self.usage.update(usage);
                self.stop = stop_reason.as_deref().map(stop).transpose()?;
                self.done = true;
                let mut deltas = Vec::new();
                for (index, block) in (0..).zip(content) {
                    deltas.extend(self.start(index, block));
                    deltas.extend(self.stop_block(index));
                }
                return Ok(deltas);
            }
            Line::Error { error } => return Err(Broken::Reported(error)),
            Line::Other => {}
        }
        Ok(Vec::new())
    }

    fn start(&mut self, index: u64, block: Block) -> Vec<Delta> {
        match block {
            Block::Text { text } if !text.is_empty() => return vec![Delta::Text { delta: text }],
            Block::ToolUse { id, name, input } => {
                // The input arrives in pieces. Some servers send it completely at the start.
                let whole = input.as_object().is_some_and(|input| !input.is_empty());
                let input = if whole { input.to_string() } else { String::new() };
                self.open.insert(index, Open::Tool { id, name, input });
            }
            Block::Thinking { thinking, signature } => {
                self.open.insert(index, Open::Thought { signature });
                if !thinking.is_empty() {
                    return vec![think(thinking, None)];
                }
            }
            Block::RedactedThinking { data } => {
                return vec![think(String::new(), Some(format!("{REDACTED_PREFIX}{data}")))];
            }
            Block::Text { .. } | Block::Other => {}
        }
        Vec::new()
    }

    fn add(&mut self, index: u64, piece: Piece) -> Vec<Delta> {
        match (piece, self.open.get_mut(&index)) {
            (Piece::TextDelta { text }, _) if !text.is_empty() => vec![Delta::Text { delta: text }],
            (Piece::ThinkingDelta { thinking }, _) if !thinking.is_empty() => vec![think(thinking, None)],
            (Piece::InputJsonDelta { partial_json }, Some(Open::Tool { input, .. })) => {
                input.push_str(&partial_json);
                Vec::new()
            }
            (Piece::SignatureDelta { signature }, Some(Open::Thought { signature: all })) => {
                all.push_str(&signature);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn stop_block(&mut self, index: u64) -> Vec<Delta> {
        match self.open.remove(&index) {
            Some(Open::Tool { id, name, input }) => {
                let arguments = arguments(&input);
                vec![Delta::ToolCall { id, name, arguments }]
            }
            Some(Open::Thought { signature }) if !signature.is_empty() => {
                vec![think(String::new(), Some(signature))]
            }
            _ => Vec::new(),
        }
    }

    pub(super) fn held_bytes(&self) -> usize {
        let bytes = |open: &Open| match open {
            Open::Tool { id, name, input } => HELD_BYTES + id.len() + name.len() + input.len(),
            Open::Thought { signature } => HELD_BYTES + signature.len(),
        };
        self.open.values().map(bytes).sum()
    }

    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// Called at the end of the stream. Returns how the answer ended, without further deltas, or
    /// `None` if the answer is incomplete.
    pub(super) fn end(self) -> Option<(Vec<Delta>, Ended)> {
        let ended = Ended { stop_reason: self.stop.unwrap_or(StopReason::Stop), usage: Some(self.usage.usage()) };
        self.done.then_some((Vec::new(), ended))
    }
}

fn think(delta: String, opaque: Option<String>) -> Delta {
    Delta::Think { delta, opaque }
}

fn stop(reason: &str) -> Result<StopReason, Broken> {
    match reason {
        "max_tokens" | "model_context_window_exceeded" => Ok(StopReason::Length),
        "tool_use" => Ok(StopReason::ToolUse),
        "refusal" => {
            let error = Error::forbidden("the provider refused to answer this");
            Err(Broken::Failed(error))
        }
        _ => Ok(StopReason::Stop),
    }
}

impl Tokens {
    fn update(&mut self, newer: Tokens) {
        let take = |old: &mut Option<u64>, new: Option<u64>| *old = new.or(*old);
        take(&mut self.input_tokens, newer.input_tokens);
        take(&mut self.output_tokens, newer.output_tokens);
        take(&mut self.cache_read_input_tokens, newer.cache_read_input_tokens);
        take(&mut self.cache_creation_input_tokens, newer.cache_creation_input_tokens);
    }

    fn usage(self) -> Usage {
        let usage = Usage {
            input: bounded(self.input_tokens),
            output: bounded(self.output_tokens),
            cache_read: bounded(self.cache_read_input_tokens),
            cache_write: bounded(self.cache_creation_input_tokens),
            ..Usage::default()
        };
        Usage { total_tokens: usage.input + usage.output + usage.cache_read + usage.cache_write, ..usage }
    }
}
