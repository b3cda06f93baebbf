//! OpenAI's chat completions API, which many others implement: Ollama, vLLM, llama.cpp, LM Studio, OpenRouter.

use ken_types::Error;
use ken_types::event::{StopReason, Usage};
use ken_types::ops::model::{Delta, Generate, ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use super::conversation::{Answer, Entry, Part, ToolAnswer, entries};
use super::format::{Broken, Ended, HELD_BYTES, arguments, bounded, is_complete, parameters, parse};
use ken_types::sse::Event;

/// Returns the body of a request.
pub(super) fn body(model: &str, request: &Generate) -> Value {
    let mut messages = vec![json!({"role": "system", "content": request.system})];
    for entry in entries(request) {
        match entry {
            Entry::User(parts) => messages.push(json!({"role": "user", "content": user(&parts)})),
            Entry::Assistant(answer) => messages.push(assistant(&answer)),
            Entry::Results(results) => messages.extend(results.iter().map(result)),
        }
    }
    let mut body = json!({
        "model": model,
        "messages": messages,
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    body
}

/// Returns the content of a user's message. A single text is sent as a string, because some servers accept no other
/// form.
fn user(parts: &[Part<'_>]) -> Value {
    if let [Part::Text(text)] = parts {
        return json!(text);
    }
    let part = |part: &Part<'_>| match part {
        Part::Text(text) => json!({"type": "text", "text": text}),
        Part::Image { data, mime_type } => {
            json!({"type": "image_url", "image_url": {"url": format!("data:{mime_type};base64,{data}")}})
        }
    };
    parts.iter().map(part).collect()
}

fn assistant(answer: &Answer<'_>) -> Value {
    let mut message = json!({"role": "assistant", "content": answer.text});
    if !answer.calls.is_empty() {
        let call = |call: &super::conversation::Call<'_>| {
            let function = json!({"name": call.name, "arguments": call.arguments.to_string()});
            json!({"id": call.id, "type": "function", "function": function})
        };
        message["tool_calls"] = answer.calls.iter().map(call).collect();
    }
    message
}

fn result(result: &ToolAnswer<'_>) -> Value {
    let text = match result.is_error {
        true => format!("Error: {}", result.text),
        false => result.text.clone(),
    };
    json!({"role": "tool", "tool_call_id": result.id, "content": text})
}

fn tool(tool: &ToolSpec) -> Value {
    let function = json!({
        "name": tool.name,
        "description": tool.description,
        "parameters": parameters(&tool.parameters),
    });
    json!({"type": "function", "function": function})
}

/// The state of a stream of chunks.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    /// Tool calls in the order of their first pieces. Pieces of several calls may interleave, and indices may have gaps.
    calls: Vec<Call>,
    stop: Option<StopReason>,
    usage: Option<Usage>,
    done: bool,
}

#[derive(Debug, Default)]
struct Call {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl Call {
    /// Whether a piece with the same index, or none, continues this call. Some servers give all calls the index 0; the
    /// calls then differ in their ids, or one begins when the arguments of the last are complete.
    fn is_continued_by(&self, piece: &CallPiece) -> bool {
        let id = piece.id.as_deref().unwrap_or_default();
        let is_same = id.is_empty() || self.id.is_empty() || self.id == id;
        let begins_anew = || piece.has_name() && piece.has_arguments() && is_complete(&self.arguments);
        is_same && !begins_anew()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Chunk {
    choices: Option<Vec<Choice>>,
    usage: Option<Tokens>,
    error: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Choice {
    delta: Option<Piece>,
    /// The whole answer, from a server that does not stream it.
    message: Option<Piece>,
    finish_reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Piece {
    content: Option<String>,
    /// The thoughts of the model. DeepSeek and vLLM use the first field, OpenRouter the second.
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    tool_calls: Option<Vec<CallPiece>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CallPiece {
    index: Option<u64>,
    id: Option<String>,
    function: FunctionPiece,
}

impl CallPiece {
    fn has_name(&self) -> bool {
        self.function.name.as_ref().is_some_and(|name| !name.is_empty())
    }

    fn has_arguments(&self) -> bool {
        match &self.function.arguments {
            Some(Value::String(text)) => !text.is_empty(),
            other => other.as_ref().is_some_and(|whole| !whole.is_null()),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FunctionPiece {
    name: Option<String>,
    /// A string. Some servers send the object itself.
    arguments: Option<Value>,
}

/// A server that does not count tokens sends null. Any other value that is not a number of tokens is treated like
/// null.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Tokens {
    prompt_tokens: Value,
    completion_tokens: Value,
    prompt_tokens_details: Option<Cached>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cached {
    cached_tokens: Value,
}

impl Chunks {
    /// Takes one event. Returns the deltas that it completes, or the error that the provider sent.
    pub(super) fn take(&mut self, event: &Event) -> Result<Vec<Delta>, Broken> {
        if event.data.trim() == "[DONE]" {
            self.done = true;
            return Ok(Vec::new());
        }
        let chunk: Chunk = parse(&event.data)?;
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(Broken::Reported(error));
        }
        if let Some(tokens) = chunk.usage {
            self.usage = usage(&tokens).or(self.usage);
        }
        let mut deltas = Vec::new();
        for choice in chunk.choices.into_iter().flatten() {
            if let Some(piece) = choice.delta.or(choice.message) {
                self.take_piece(piece, &mut deltas);
            }
            if let Some(reason) = choice.finish_reason {
                self.stop = Some(stop(&reason)?);
            }
        }
        Ok(deltas)
    }

    fn take_piece(&mut self, piece: Piece, deltas: &mut Vec<Delta>) {
        let thought = piece.reasoning_content.or(piece.reasoning);
        if let Some(delta) = thought.filter(|text| !text.is_empty()) {
            deltas.push(Delta::Think { delta, opaque: None });
        }
        if let Some(delta) = piece.content.filter(|text| !text.is_empty()) {
            deltas.push(Delta::Text { delta });
        }
        for piece in piece.tool_calls.into_iter().flatten() {
            self.take_call(piece);
        }
    }

    fn take_call(&mut self, piece: CallPiece) {
        // Of calls with the same index, only the newest can go on.
        let known = self.calls.iter().rposition(|call| piece.index.is_none() || call.index == piece.index);
        let known = known.filter(|at| self.calls.get(*at).is_some_and(|call| call.is_continued_by(&piece)));
        let at = known.unwrap_or_else(|| {
            self.calls.push(Call { index: piece.index, ..Call::default() });
            self.calls.len() - 1
        });
        let Some(call) = self.calls.get_mut(at) else { return };
        if let Some(id) = piece.id.filter(|id| !id.is_empty()) {
            call.id = id;
        }
        // Some servers repeat the name in each piece.
        if let Some(name) = piece.function.name.filter(|_| call.name.is_empty()) {
            call.name = name;
        }
        match piece.function.arguments {
            Some(Value::String(text)) => call.arguments.push_str(&text),
            Some(Value::Null) | None => {}
            Some(whole) => call.arguments = whole.to_string(),
        }
    }

    pub(super) fn held_bytes(&self) -> usize {
        let bytes = |call: &Call| HELD_BYTES + call.id.len() + call.name.len() + call.arguments.len();
        self.calls.iter().map(bytes).sum()
    }

    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// Called at the end of the stream. Returns the tool calls and how the answer ended, or `None` if the answer is
    /// incomplete.
    pub(super) fn end(self) -> Option<(Vec<Delta>, Ended)> {
        if !self.done && self.stop.is_none() {
            return None;
        }
        let calls = (0..).zip(self.calls).map(|(position, call)| Delta::ToolCall {
            id: match call.id.is_empty() {
                true => format!("call_{}", call.index.unwrap_or(position)),
                false => call.id,
            },
            name: call.name,
            arguments: arguments(&call.arguments),
        });
        let ended = Ended { stop_reason: self.stop.unwrap_or(StopReason::Stop), usage: self.usage };
        Some((calls.collect(), ended))
    }
}

fn stop(reason: &str) -> Result<StopReason, Broken> {
    match reason {
        "length" => Ok(StopReason::Length),
        "tool_calls" | "function_call" => Ok(StopReason::ToolUse),
        "content_filter" => {
            let message = "the provider's content filter stopped the answer";
            Err(Broken::Failed(Error::forbidden(message)))
        }
        _ => Ok(StopReason::Stop),
    }
}

/// Returns the usage in ken's form, in which cached tokens are not part of the input. Returns `None` if the server did
/// not count the prompt.
fn usage(tokens: &Tokens) -> Option<Usage> {
    let details = tokens.prompt_tokens_details.as_ref();
    let cached = bounded(details.and_then(|details| details.cached_tokens.as_u64()));
    let (prompt, output) = (bounded(Some(tokens.prompt_tokens.as_u64()?)), bounded(tokens.completion_tokens.as_u64()));
    Some(Usage {
        input: prompt.saturating_sub(cached),
        output,
        cache_read: cached,
        total_tokens: prompt + output,
        ..Usage::default()
    })
}
