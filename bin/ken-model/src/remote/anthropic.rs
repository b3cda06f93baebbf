//! Anthropic's messages API.

use std::collections::BTreeMap;

use ken_types::Error;
use ken_types::event::{StopReason, Usage};
use ken_types::ops::model::{Delta, Generate, ToolSpec};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::conversation::{AssistantMessage, Entry, Part, ToolAnswer, conversation};
use super::format::{Broken, Ended, HELD_BYTES, arguments, bounded, parameters, parse};
use ken_types::sse::Event;

/// The name of this format, which is `api` in messages. Signatures of thoughts are sent back only to
/// the format from which they came.
pub(super) const API: &str = "anthropic-messages";
/// Marks a thought that the provider sends encrypted. It is sent back unchanged.
const REDACTED_PREFIX: &str = "redacted:";

pub(super) fn body(model: &str, request: &Generate, max_tokens: u64) -> Value {
    let mut messages: Vec<(&str, Vec<Value>)> = Vec::new();
    let conversation = conversation(request);
    let last = conversation.entries.len().saturating_sub(1);
    for (place, entry) in conversation.entries.into_iter().enumerate() {
        let is_prompt = conversation.prompt == Some(place);
        let ends_history = conversation.prompt == Some(place + 1);
        let is_last_result = place == last && matches!(entry, Entry::Results(_));
        let (role, mut blocks) = match entry {
            Entry::User(parts) => ("user", parts.iter().filter_map(part).collect()),
            Entry::Assistant(answer) => ("assistant", assistant(&answer)),
            Entry::Results(results) => ("user", results.iter().map(result).collect::<Vec<_>>()),
        };
        // The next turn sends the same up to the prompt, and the next call of this turn the same up to the results. With
        // the system text these are four marks, which is as many as the provider takes.
        if is_prompt || ends_history || is_last_result {
            mark_for_cache(&mut blocks);
        }
        if is_prompt {
            blocks.extend(conversation.behind.clone().map(Part::Text).as_ref().and_then(part));
        }
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
        let mut system = vec![json!({"type": "text", "text": request.system})];
        mark_for_cache(&mut system);
        body["system"] = system.into();
    }
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    body
}

/// Has the provider keep everything up to the last of these blocks, for a few minutes, and look for what it has kept of
/// earlier requests. It refuses the mark at a thought.
fn mark_for_cache(blocks: &mut [Value]) {
    let is_thought = |block: &Value| matches!(block["type"].as_str(), Some("thinking" | "redacted_thinking"));
    if let Some(block) = blocks.last_mut().filter(|block| !is_thought(block)) {
        block["cache_control"] = json!({"type": "ephemeral"});
    }
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
fn assistant(answer: &AssistantMessage<'_>) -> Vec<Value> {
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
    let content = match result.images.as_slice() {
        [] => json!(result.text),
        images => std::iter::once(&Part::Text(result.text.clone())).chain(images).filter_map(part).collect(),
    };
    json!({"type": "tool_result", "tool_use_id": result.id, "content": content, "is_error": result.is_error})
}

fn tool(tool: &ToolSpec) -> Value {
    json!({"name": tool.name, "description": tool.description, "input_schema": parameters(&tool.parameters)})
}

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

/// One event. Its fields depend on its kind. It is no enum, because serde copies the fields of a tagged enum before it
/// reads them, and the text of a call's input would be lost.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    index: u64,
    message: Option<Started>,
    content_block: Option<Block>,
    delta: Option<Piece>,
    usage: Option<Tokens>,
    error: Option<Value>,
    /// The whole answer, from a server that does not stream it.
    content: Option<Vec<Block>>,
    stop_reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Started {
    usage: Option<Tokens>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    id: Option<String>,
    name: Option<String>,
    input: Option<Box<RawValue>>,
    thinking: Option<String>,
    signature: Option<String>,
    data: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Piece {
    text: Option<String>,
    partial_json: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
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
        let line: Line = parse(&event.data)?;
        if let Some(error) = line.error.filter(|error| !error.is_null()) {
            return Err(Broken::Reported(error));
        }
        self.usage.update(line.message.and_then(|message| message.usage));
        self.usage.update(line.usage);
        let piece = line.delta.unwrap_or_default();
        if let Some(reason) = piece.stop_reason.as_ref().or(line.stop_reason.as_ref()) {
            self.stop = Some(stop(reason)?);
        }
        let mut deltas = Vec::new();
        match line.kind.as_str() {
            "content_block_start" => deltas.extend(self.start(line.index, line.content_block.unwrap_or_default())),
            "content_block_delta" => deltas.extend(self.add(line.index, piece)),
            "content_block_stop" => deltas.extend(self.stop_block(line.index)),
            "message_stop" => self.done = true,
            "message" => {
                self.done = true;
                for (index, block) in (0..).zip(line.content.unwrap_or_default()) {
                    deltas.extend(self.start(index, block));
                    deltas.extend(self.stop_block(index));
                }
            }
            _ => {}
        }
        Ok(deltas)
    }

    fn start(&mut self, index: u64, block: Block) -> Option<Delta> {
        match block.kind.as_str() {
            "text" => return text(block.text),
            "tool_use" => {
                // The input arrives in pieces. Some servers send it completely at the start.
                let input = block.input.filter(|input| !["{}", "null"].contains(&input.get()));
                let input = input.map(|input| input.get().to_owned()).unwrap_or_default();
                let (id, name) = (block.id.unwrap_or_default(), block.name.unwrap_or_default());
                self.open.insert(index, Open::Tool { id, name, input });
            }
            "thinking" => {
                self.open.insert(index, Open::Thought { signature: block.signature.unwrap_or_default() });
                return think(block.thinking);
            }
            "redacted_thinking" => return seal(format!("{REDACTED_PREFIX}{}", block.data.unwrap_or_default())),
            _ => {}
        }
        None
    }

    fn add(&mut self, index: u64, piece: Piece) -> Option<Delta> {
        match self.open.get_mut(&index) {
            Some(Open::Tool { input, .. }) => input.push_str(&piece.partial_json.unwrap_or_default()),
            Some(Open::Thought { signature }) => signature.push_str(&piece.signature.unwrap_or_default()),
            None => {}
        }
        text(piece.text).or_else(|| think(piece.thinking))
    }

    fn stop_block(&mut self, index: u64) -> Option<Delta> {
        match self.open.remove(&index)? {
            Open::Tool { id, name, input } => Some(Delta::ToolCall { id, name, arguments: arguments(&input) }),
            Open::Thought { signature } if signature.is_empty() => None,
            Open::Thought { signature } => seal(signature),
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
        let ended = Ended { stop_reason: self.stop.unwrap_or(StopReason::Stop), usage: self.usage.usage() };
        self.done.then_some((Vec::new(), ended))
    }
}

fn text(delta: Option<String>) -> Option<Delta> {
    let delta = delta.filter(|delta| !delta.is_empty())?;
    Some(Delta::Text { delta })
}

fn think(delta: Option<String>) -> Option<Delta> {
    let delta = delta.filter(|delta| !delta.is_empty())?;
    Some(Delta::Think { delta, opaque: None })
}

/// Returns the signature of the thought before.
fn seal(signature: String) -> Option<Delta> {
    Some(Delta::Think { delta: String::new(), opaque: Some(signature) })
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
    fn update(&mut self, newer: Option<Tokens>) {
        let newer = newer.unwrap_or_default();
        let take = |old: &mut Option<u64>, new: Option<u64>| *old = new.or(*old);
        take(&mut self.input_tokens, newer.input_tokens);
        take(&mut self.output_tokens, newer.output_tokens);
        take(&mut self.cache_read_input_tokens, newer.cache_read_input_tokens);
        take(&mut self.cache_creation_input_tokens, newer.cache_creation_input_tokens);
    }

    /// Returns `None` if the server did not count tokens.
    fn usage(self) -> Option<Usage> {
        self.input_tokens.or(self.output_tokens)?;
        let usage = Usage {
            input: bounded(self.input_tokens),
            output: bounded(self.output_tokens),
            cache_read: bounded(self.cache_read_input_tokens),
            cache_write: bounded(self.cache_creation_input_tokens),
            ..Usage::default()
        };
        Some(Usage { total_tokens: usage.input + usage.output + usage.cache_read + usage.cache_write, ..usage })
    }
}
