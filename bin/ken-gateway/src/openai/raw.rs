//! A model itself as `provider/model`, where the configuration allows it: without a session, and without the tools, the memory and the
//! rules of ken. Its keys and its budget are those of ken.

use std::sync::Arc;
use std::time::Duration;

use ken_http::http::StatusCode;
use ken_http::{Failure, Frames, LongResponse, Request, Response};
use ken_types::event::{Block, Message, StopReason, Usage};
use ken_types::id::random;
use ken_types::ops::model::{Delta, Generate, Generated, ModelGenerate};
use ken_types::ops::store::PROGRAM_TOOL;
use ken_types::{Code, Error, Timestamp, hex};
use ken_wire::Items;
use serde_json::{Map, Value, json};

use super::completions::{self, Head, KNOWN, frame, messages};
use super::error::{self, unknown_model, unsupported};
use super::input::{Role, Said, agent, form};
use super::params::sort;
use super::sending::named_ignored;
use super::tools::Tools;
use crate::app::Gateway;
use crate::body::{self, pointer, text};

/// How long a model may take for an answer.
const TIMEOUT: Duration = Duration::from_secs(600);
/// What has an effect here and none on an agent.
const USED: &[&str] = &["temperature", "max_tokens", "max_completion_tokens"];

/// A request to a model itself.
pub(super) struct Asked {
    model: String,
    generate: Generate,
    stream: Option<bool>,
    ignored: Vec<String>,
}

impl Asked {
    /// Returns `None` for a request to an agent.
    pub(super) fn read(bytes: &[u8]) -> Result<Option<Asked>, Failure> {
        let mut fields = body::read::<Map<String, Value>>(bytes)?;
        let model = text(&fields, "model")?.unwrap_or_default().to_owned();
        if !model.contains('/') || agent(&model).is_some() {
            return Ok(None);
        }
        let ignored = sort(&mut fields, &KNOWN)?;
        let ignored = ignored.into_iter().filter(|name| !USED.contains(&name.as_str())).collect();
        let stream = completions::stream(&fields)?;
        let generate = generate(&model, &fields)?;
        Ok(Some(Asked { model, generate, stream, ignored }))
    }
}

fn generate(model: &str, fields: &Map<String, Value>) -> Result<Generate, Failure> {
    let given = fields.get("messages").and_then(Value::as_array).into_iter().flatten();
    let said: Vec<(Said, &Value)> = messages(fields)?.into_iter().zip(given).collect();
    let (system, said): (Vec<_>, Vec<_>) = said.into_iter().partition(|(said, _)| said.role == Role::System);
    let mut system: Vec<String> = system.into_iter().map(|(said, _)| said.text).collect();
    let mut tools = Tools::read(fields)?;
    if fields.get("tool_choice").is_some_and(|choice| choice == "required") {
        return Err(unsupported("/tool_choice".to_owned(), "the choice is none, auto or a function"));
    }
    // Once: what follows is the program's own name, which can begin in the same way.
    for tool in &mut tools.specs {
        tool.name = tool.name.replacen(PROGRAM_TOOL, "", 1);
    }
    system.extend(tools.instruction.map(|text| text.replacen(PROGRAM_TOOL, "", 1)));
    if let Some(format) = fields.get("response_format") {
        system.extend(form(format, "/json_schema/schema", "/response_format")?);
    }
    let max = |name| number(fields, name, "a whole number from 1 on", |value| value.as_u64().filter(|max| *max > 0));
    let (max_tokens, max_completion_tokens) = (max("max_tokens")?, max("max_completion_tokens")?);
    let in_range = |value: &Value| value.as_f64().filter(|value| (0.0..=2.0).contains(value));
    Ok(Generate {
        model: Some(model.to_owned()),
        system: system.join("\n\n"),
        messages: said.into_iter().map(|(said, given)| message(said, given)).collect(),
        tools: tools.specs,
        chosen: true,
        max_output: max_completion_tokens.or(max_tokens),
        temperature: number(fields, "temperature", "a number from 0 to 2", in_range)?,
        ..Generate::default()
    })
}

/// Returns a parameter that is a number of this kind; `None` if it is absent.
fn number<T>(
    fields: &Map<String, Value>,
    name: &str,
    kind: &str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Option<T>, Error> {
    let wrong = || Error::invalid(pointer(name), format!("{name} is not {kind}"));
    fields.get(name).map(|value| read(value).ok_or_else(wrong)).transpose()
}

/// `given` is the message as the caller wrote it.
fn message(said: Said, given: &Value) -> Message {
    let images = said.images.into_iter().map(|image| Block::Image { data: image.data, mime_type: image.mime_type });
    let text = Some(said.text).filter(|text| !text.is_empty()).map(Block::text);
    let mut content: Vec<Block> = text.into_iter().chain(images).collect();
    let timestamp = Timestamp::now().millis();
    match said.role {
        Role::Assistant => {
            content.extend(calls(given));
            Message::Assistant {
                content,
                api: String::new(),
                provider: String::new(),
                model: String::new(),
                usage: Usage::default(),
                stop_reason: None,
                error: None,
                timestamp,
            }
        }
        Role::Tool => Message::ToolResult {
            tool_call_id: said.calls.into_iter().next().unwrap_or_default(),
            tool_name: String::new(),
            content,
            details: Value::Null,
            is_error: false,
            timestamp,
        },
        Role::User | Role::System => Message::User { content, timestamp, now: None },
    }
}

/// Returns the calls of an answer. Arguments that are no JSON are passed on as a text.
fn calls(given: &Value) -> Vec<Block> {
    let calls = given.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
    let call = |call: &Value| {
        let text = |pointer: &str| call.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let arguments = text("/function/arguments");
        let arguments = serde_json::from_str(&arguments).unwrap_or_else(|_| arguments.into());
        Block::ToolCall { id: text("/id"), name: text("/function/name"), arguments }
    };
    calls.map(call).collect()
}

/// Answers a request to a model itself.
pub(super) async fn complete(gateway: Arc<Gateway>, request: &Request, asked: Asked) -> Result<Response, Failure> {
    let held = request.hold()?;
    let Asked { model, generate, stream, ignored } = asked;
    let mut items =
        gateway.model.0.stream::<ModelGenerate>(&generate, TIMEOUT).await.map_err(|error| failed(error, &model))?;
    // A model that refuses is an error with a status, so an answer begins with the first piece.
    let first = match items.next().await {
        Some(first) => Some(first.map_err(|error| failed(error, &model))?),
        None => None,
    };
    let head = Head { id: format!("chatcmpl-{}", hex::encode(&random::<16>()?)), created: Timestamp::now(), model };
    let response = match stream {
        Some(with_usage) => Response::events(move |frames| streamed(frames, head, first, items, with_usage, held)),
        None => Response::json(200, &whole(&head, first, items).await?)?,
    };
    named_ignored(response, ignored, false)
}

/// The failure of a model. Its key is ken's, so that a refused one is no fault of the caller.
fn failed(error: Error, model: &str) -> Failure {
    match error.code {
        Code::NotFound => unknown_model(model),
        Code::TooLarge => Failure::from(Error::invalid("/messages", error.message)).code("context_length_exceeded"),
        Code::Busy | Code::Unavailable | Code::Deadline => error.into(),
        _ => Failure::new(StatusCode::INTERNAL_SERVER_ERROR, Code::Internal, error.message).code("model_failed"),
    }
}

fn finish_reason(reason: StopReason) -> &'static str {
    match reason {
        StopReason::ToolUse => "tool_calls",
        StopReason::Length => "length",
        _ => "stop",
    }
}

fn call(index: usize, id: &str, name: &str, arguments: &Value) -> Value {
    let function = json!({"name": name, "arguments": arguments.to_string()});
    json!({"index": index, "id": id, "type": "function", "function": function})
}

async fn whole(head: &Head, mut next: Option<Delta>, mut items: Items<ModelGenerate>) -> Result<Value, Failure> {
    let (mut text, mut calls) = (String::new(), Vec::new());
    while let Some(delta) = next {
        match delta {
            Delta::Text { delta } => text += &delta,
            Delta::ToolCall { id, name, arguments } => calls.push(call(calls.len(), &id, &name, &arguments)),
            Delta::Start { .. } | Delta::Think { .. } => {}
        }
        next = items.next().await.transpose().map_err(|error| failed(error, &head.model))?;
    }
    let made: Generated = items.reply().await.map_err(|error| failed(error, &head.model))?;
    let mut message = json!({"role": "assistant", "content": text, "refusal": null});
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    Ok(head.whole(message, finish_reason(made.stop_reason), &made.usage))
}

async fn streamed(
    mut frames: Frames,
    head: Head,
    mut next: Option<Delta>,
    mut items: Items<ModelGenerate>,
    with_usage: bool,
    _held: LongResponse,
) {
    frames.send(head.piece(json!({"role": "assistant", "content": ""}), None)).await;
    let mut calls = 0;
    let end = loop {
        let piece = match next {
            Some(Delta::Text { delta }) => head.piece(json!({"content": delta}), None),
            Some(Delta::ToolCall { id, name, arguments }) => {
                calls += 1;
                head.piece(json!({"tool_calls": [call(calls - 1, &id, &name, &arguments)]}), None)
            }
            _ => String::new(),
        };
        frames.send(piece).await;
        next = match items.next().await {
            Some(Ok(delta)) => Some(delta),
            Some(Err(error)) => break Err(error),
            None => break items.reply().await,
        };
    };
    let last = match end {
        Ok(made) => head.last_pieces(finish_reason(made.stop_reason), with_usage.then_some(&made.usage)),
        // The stream has begun, so its status is sent.
        Err(error) => frame(&error::body(&failed(error, &head.model))),
    };
    frames.send(last).await;
}
