//! Converts the events of a submission or a run to OpenTelemetry spans, with the semantic conventions for generative AI. Content is left out unless the configuration includes it.

use ken_types::Timestamp;
use ken_types::event::{Block, NO_TOOL};
use ken_types::ops::telemetry::{EndedRun, WorkKind};
use serde::Deserialize;
use serde_json::{Value, json};

use super::otlp::{Attribute, Span};

/// The maximum number of spans of one submission or run. Further ones are left out.
const MAX_SPANS: usize = 2_000;
/// The maximum size of the text of a prompt or answer, in bytes.
const MAX_CONTENT_BYTES: usize = 16 * 1024;

const UNKNOWN: &str = "unknown";
const INTERNAL: u64 = 1;
const CLIENT: u64 = 3;

/// Collects the events of one submission or run, oldest first.
#[derive(Debug)]
pub(super) struct Spans<'a> {
    run: &'a EndedRun,
    with_content: bool,
    spans: Vec<Span>,
    started: Option<Timestamp>,
    /// The tokens of all model calls.
    input: u64,
    output: u64,
    provider: Option<String>,
    workflow: Option<String>,
    session: Option<String>,
    error: Option<String>,
}

impl Spans<'_> {
    pub(super) fn of(run: &EndedRun, with_content: bool) -> Spans<'_> {
        Spans {
            run,
            with_content,
            spans: Vec::new(),
            started: None,
            input: 0,
            output: 0,
            provider: None,
            workflow: None,
            session: None,
            error: None,
        }
    }

    pub(super) fn add(&mut self, event: &Value) {
        self.started = self.started.or_else(|| time(event));
        match text(event, "type") {
            "turn" => self.chat(event),
            "validation" => self.judge(event),
            // A task needs no span for the tool, because its worker has one.
            "tool" if text(event, "toolName") == "task" => {}
            "tool" => self.tool(event),
            "task" => self.worker(event),
            "run_start" => self.workflow = Some(text(event, "workflowName").to_owned()),
            "operation" | "run_end" if text(event, "parentSession").is_empty() => {
                let error = event.pointer("/error/name").and_then(Value::as_str);
                self.error = error.map(str::to_owned);
            }
            "submission_settled" => {
                self.session = Some(text(event, "instanceId").to_owned());
                if text(event, "outcome") != "completed" && self.error.is_none() {
                    self.error = Some(text(event, "outcome").to_owned());
                }
            }
            _ => {}
        }
    }

    /// Adds the calls of the model that judged an answer as one span.
    fn judge(&mut self, event: &Value) {
        let Some(Value::Object(judge)) = event.get("judge") else { return };
        let provider = self.provider.take();
        let mut call = event.clone();
        if let Value::Object(fields) = &mut call {
            fields.extend(judge.clone());
            fields.insert("stopReason".to_owned(), json!("stop"));
            fields.remove("error");
        }
        self.chat(&call);
        self.provider = provider.or(self.provider.take()); // the provider of the turn is that of its answer
    }

    fn chat(&mut self, event: &Value) {
        let usage = event.get("usage");
        let number = |name: &str| usage.and_then(|usage| usage.get(name)?.as_u64()).unwrap_or_default();
        let input = number("input") + number("cacheRead") + number("cacheWrite");
        let output = number("output");
        (self.input, self.output) = (self.input + input, self.output + output);
        let (model, provider) = (text(event, "model"), text(event, "provider"));
        let reason = match text(event, "stopReason") {
            "toolUse" => "tool_call",
            reason => reason,
        };
        self.provider = Some(provider.to_owned());
        let mut attributes = vec![
            Attribute::text("gen_ai.operation.name", "chat"),
            Attribute::text("gen_ai.provider.name", provider),
            Attribute::text("gen_ai.request.model", model),
            Attribute::number("gen_ai.usage.input_tokens", input),
            Attribute::number("gen_ai.usage.output_tokens", output),
            Attribute::texts("gen_ai.response.finish_reasons", &[reason]),
        ];
        let cached = [
            ("gen_ai.usage.cache_read.input_tokens", number("cacheRead")),
            ("gen_ai.usage.cache_creation.input_tokens", number("cacheWrite")),
        ];
        let cached = cached.into_iter().filter(|(_, tokens)| *tokens > 0);
        attributes.extend(cached.map(|(name, tokens)| Attribute::number(name, tokens)));
        if self.with_content {
            let messages = json!([{"role": "assistant", "parts": parts(event), "finish_reason": reason}]);
            attributes.push(Attribute::text("gen_ai.output.messages", messages.to_string()));
        }
        self.push(event, &format!("chat {model}"), CLIENT, attributes);
    }

    fn tool(&mut self, event: &Value) {
        let answer = event.pointer("/result/content/0/text").and_then(Value::as_str);
        // If the tool does not exist, the model invented its name.
        let is_made_up = answer.is_some_and(|text| text.starts_with(NO_TOOL));
        let name = if is_made_up { UNKNOWN } else { checked_name(text(event, "toolName")) };
        let mut attributes = vec![
            Attribute::text("gen_ai.operation.name", "execute_tool"),
            Attribute::text("gen_ai.tool.name", name),
            Attribute::text("gen_ai.tool.type", "function"),
            Attribute::text("gen_ai.tool.call.id", text(event, "toolCallId")),
        ];
        if let Some(result) = event.pointer("/result/content").filter(|_| self.with_content) {
            attributes.push(Attribute::text("gen_ai.tool.call.result", head(&result.to_string())));
        }
        self.push(event, &format!("execute_tool {name}"), INTERNAL, attributes);
    }

    fn worker(&mut self, event: &Value) {
        let agent = checked_name(text(event, "agent"));
        let attributes =
            vec![Attribute::text("gen_ai.operation.name", "invoke_agent"), Attribute::text("gen_ai.agent.name", agent)];
        let session = format!("task:{}:{}", text(event, "session"), text(event, "taskId"));
        let id = self.span_of(&session);
        self.push_as(event, &format!("invoke_agent {agent}"), INTERNAL, attributes, id);
    }

    fn push(&mut self, event: &Value, name: &str, kind: u64, attributes: Vec<Attribute>) {
        let index = event.get("eventIndex").and_then(Value::as_u64).unwrap_or_default();
        let id = self.span_of(&format!("event {index}"));
        self.push_as(event, name, kind, attributes, id);
    }

    fn push_as(&mut self, event: &Value, name: &str, kind: u64, mut attributes: Vec<Attribute>, id: u64) {
        let Some(end) = time(event).filter(|_| self.spans.len() < MAX_SPANS) else {
            return;
        };
        let took = event.get("durationMs").and_then(Value::as_i64).unwrap_or_default();
        let is_error = event.get("isError").and_then(Value::as_bool) == Some(true);
        if is_error {
            let error = event.pointer("/error/name").and_then(Value::as_str);
            attributes.push(Attribute::text("error.type", error.unwrap_or("tool_error")));
        }
        let parent = match text(event, "session") {
            "default" | "" => self.root(),
            session => self.span_of(session),
        };
        let start = end.plus_millis(-took);
        let name = name.to_owned();
        self.spans.push(Span {
            trace: self.trace(),
            id,
            parent: Some(parent),
            name,
            kind,
            start,
            end,
            attributes,
            is_error,
        });
    }

    fn trace(&self) -> u128 {
        u128::from(hash(1, &self.run.id)) << 64 | u128::from(hash(2, &self.run.id))
    }

    fn root(&self) -> u64 {
        self.span_of("root")
    }

    /// Returns the id of a span. It depends only on the run and the part of it, so a collector recognises a span that
    /// is sent twice.
    fn span_of(&self, part: &str) -> u64 {
        hash(3, &format!("{} {part}", self.run.id))
    }

    /// Returns all spans, the root first.
    pub(super) fn end(mut self) -> Vec<Span> {
        let (operation, subject, name) = match &self.workflow {
            Some(workflow) => ("invoke_workflow", "gen_ai.workflow.name", workflow.clone()),
            None => {
                let agent = self.run.agent.clone();
                ("invoke_agent", "gen_ai.agent.name", agent.unwrap_or_default())
            }
        };
        let mut attributes = vec![
            Attribute::text("gen_ai.operation.name", operation),
            Attribute::text(subject, &name),
            Attribute::text("ken.run.id", &self.run.id),
            Attribute::text("ken.run.kind", self.run.kind.name()),
            Attribute::number("gen_ai.usage.input_tokens", self.input),
            Attribute::number("gen_ai.usage.output_tokens", self.output),
        ];
        let session = self.session.as_deref().filter(|_| self.run.kind != WorkKind::Workflow);
        attributes.extend(session.map(|session| Attribute::text("gen_ai.conversation.id", session)));
        let provider = self.provider.as_deref();
        attributes.extend(provider.map(|provider| Attribute::text("gen_ai.provider.name", provider)));
        attributes.extend(self.error.as_ref().map(|error| Attribute::text("error.type", error)));
        let start = self.started.unwrap_or(self.run.ended_at);
        let is_error = self.error.is_some();
        let name = format!("{operation} {name}");
        let end = self.run.ended_at.max(start);
        let (trace, id) = (self.trace(), self.root());
        let root = Span { trace, id, parent: None, name, kind: INTERNAL, start, end, attributes, is_error };
        self.spans.insert(0, root);
        self.spans
    }
}

/// Returns the answer of a model in the form of `gen_ai.output.messages`:
/// <https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-output-messages.json>.
fn parts(event: &Value) -> Vec<Value> {
    let content = event.pointer("/output/content").unwrap_or(&Value::Null);
    let blocks = Vec::<Block>::deserialize(content).unwrap_or_default();
    let parts = blocks.iter().filter_map(|block| match block {
        Block::Text { text } if text.is_empty() => None,
        Block::Text { text } => Some(json!({"type": "text", "content": head(text)})),
        Block::Thinking { thinking, .. } => Some(json!({"type": "reasoning", "content": head(thinking)})),
        Block::ToolCall { id, name, arguments } => {
            let arguments = match arguments.to_string() {
                text if text.len() > MAX_CONTENT_BYTES => json!(head(&text)),
                _ => arguments.clone(),
            };
            Some(json!({"type": "tool_call", "id": id, "name": name, "arguments": arguments}))
        }
        Block::Image { .. } => None,
    });
    parts.collect()
}

fn head(text: &str) -> &str {
    ken_text::head(text, MAX_CONTENT_BYTES)
}

fn text<'a>(event: &'a Value, name: &str) -> &'a str {
    event.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn time(event: &Value) -> Option<Timestamp> {
    serde_json::from_value(event.get("timestamp")?.clone()).ok()
}

/// Returns the name if it has the form of a name. A name that a model invented could contain text of the conversation.
fn checked_name(name: &str) -> &str {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    if (1..=64).contains(&name.len()) && name.bytes().all(is_part) { name } else { UNKNOWN }
}

/// 64-bit FNV-1a, never 0. The seed is hashed first.
fn hash(seed: u8, text: &str) -> u64 {
    let bytes = std::iter::once(seed).chain(text.bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    hash.max(1)
}
