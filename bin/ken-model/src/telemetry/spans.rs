//! Converts the events of a submission or a run to OpenTelemetry spans, in the JSON form of OTLP and with the semantic
//! conventions for generative AI. Content is left out unless the configuration includes it.

use ken_types::Timestamp;
use ken_types::event::{Block, NO_TOOL};
use ken_types::ops::telemetry::{EndedRun, WorkKind};
use serde::Deserialize;
use serde_json::{Value, json};

/// The maximum number of spans of one submission or run. Further ones are left out.
const SPANS: usize = 2_000;
/// The maximum size of the text of a prompt or answer, in bytes.
const CONTENT: usize = 16 * 1024;

const UNKNOWN: &str = "unknown";
const INTERNAL: u8 = 1;
const CLIENT: u8 = 3;
const FAILED: u8 = 2;

/// Collects the events of one submission or run, oldest first.
#[derive(Debug)]
pub(super) struct Spans<'a> {
    run: &'a EndedRun,
    with_content: bool,
    spans: Vec<Value>,
    started: Option<Timestamp>,
    /// The tokens of all model calls.
    input: u64,
    output: u64,
    provider: Option<String>,
    workflow: Option<String>,
    session: Option<String>,
    /// The name of the error.
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
            string("gen_ai.operation.name", "chat"),
            string("gen_ai.provider.name", provider),
            string("gen_ai.request.model", model),
            number_of("gen_ai.usage.input_tokens", input),
            number_of("gen_ai.usage.output_tokens", output),
            json!({"key": "gen_ai.response.finish_reasons", "value": {"arrayValue": {"values": [
                {"stringValue": reason}]}}}),
        ];
        if self.with_content {
            let messages = json!([{"role": "assistant", "parts": parts(event), "finish_reason": reason}]);
            attributes.push(string("gen_ai.output.messages", &messages.to_string()));
        }
        self.push(event, &format!("chat {model}"), CLIENT, attributes);
    }

    fn tool(&mut self, event: &Value) {
        let answer = event.pointer("/result/content/0/text").and_then(Value::as_str);
        // If the tool does not exist, the model invented its name.
        let is_made_up = answer.is_some_and(|text| text.starts_with(NO_TOOL));
        let name = match is_made_up {
            true => UNKNOWN,
            false => checked_name(text(event, "toolName")),
        };
        let mut attributes = vec![
            string("gen_ai.operation.name", "execute_tool"),
            string("gen_ai.tool.name", name),
            string("gen_ai.tool.type", "function"),
            string("gen_ai.tool.call.id", text(event, "toolCallId")),
        ];
        if let Some(result) = event.pointer("/result/content").filter(|_| self.with_content) {
            attributes.push(string("gen_ai.tool.call.result", head(&result.to_string())));
        }
        self.push(event, &format!("execute_tool {name}"), INTERNAL, attributes);
    }

    fn worker(&mut self, event: &Value) {
        let agent = checked_name(text(event, "agent"));
        let attributes = vec![string("gen_ai.operation.name", "invoke_agent"), string("gen_ai.agent.name", agent)];
        let session = format!("task:{}:{}", text(event, "session"), text(event, "taskId"));
        let id = self.span_of(&session);
        self.push_as(event, &format!("invoke_agent {agent}"), INTERNAL, attributes, id);
    }

    fn push(&mut self, event: &Value, name: &str, kind: u8, attributes: Vec<Value>) {
        let index = event.get("eventIndex").and_then(Value::as_u64).unwrap_or_default();
        let id = self.span_of(&format!("event {index}"));
        self.push_as(event, name, kind, attributes, id);
    }

    fn push_as(&mut self, event: &Value, name: &str, kind: u8, mut attributes: Vec<Value>, id: String) {
        let Some(end) = time(event).filter(|_| self.spans.len() < SPANS) else {
            return;
        };
        let took = event.get("durationMs").and_then(Value::as_i64).unwrap_or_default();
        let is_error = event.get("isError").and_then(Value::as_bool) == Some(true);
        if is_error {
            let error = event.pointer("/error/name").and_then(Value::as_str);
            attributes.push(string("error.type", error.unwrap_or("tool_error")));
        }
        let parent = match text(event, "session") {
            "default" | "" => self.root(),
            session => self.span_of(session),
        };
        let mut span = self.span(name, kind, id, end.plus_millis(-took), end, attributes, is_error);
        span["parentSpanId"] = json!(parent);
        self.spans.push(span);
    }

    #[allow(clippy::too_many_arguments)] // one argument for each field of a span
    fn span(
        &self,
        name: &str,
        kind: u8,
        id: String,
        start: Timestamp,
        end: Timestamp,
        attributes: Vec<Value>,
        is_error: bool,
    ) -> Value {
        let nanos = |at: Timestamp| format!("{}000000", at.millis());
        json!({
            "traceId": format!("{:016x}{:016x}", hash(1, &self.run.id), hash(2, &self.run.id)),
            "spanId": id,
            "name": name,
            "kind": kind,
            "startTimeUnixNano": nanos(start),
            "endTimeUnixNano": nanos(end),
            "attributes": attributes,
            "status": if is_error { json!({"code": FAILED}) } else { json!({}) },
        })
    }

    fn root(&self) -> String {
        self.span_of("root")
    }

    /// Returns the id of a span. It depends only on the run and the part of it, so a collector recognises a span that
    /// is sent twice.
    fn span_of(&self, part: &str) -> String {
        format!("{:016x}", hash(3, &format!("{} {part}", self.run.id)))
    }

    /// Returns all spans, the root first.
    pub(super) fn end(mut self) -> Vec<Value> {
        let (operation, subject, name) = match &self.workflow {
            Some(workflow) => ("invoke_workflow", "gen_ai.workflow.name", workflow.clone()),
            None => {
                let agent = self.run.agent.clone();
                ("invoke_agent", "gen_ai.agent.name", agent.unwrap_or_default())
            }
        };
        let mut attributes = vec![
            string("gen_ai.operation.name", operation),
            string(subject, &name),
            string("ken.run.id", &self.run.id),
            string("ken.run.kind", self.run.kind.name()),
            number_of("gen_ai.usage.input_tokens", self.input),
            number_of("gen_ai.usage.output_tokens", self.output),
        ];
        let session = self.session.as_deref().filter(|_| self.run.kind != WorkKind::Workflow);
        attributes.extend(session.map(|session| string("gen_ai.conversation.id", session)));
        let provider = self.provider.as_deref();
        attributes.extend(provider.map(|provider| string("gen_ai.provider.name", provider)));
        attributes.extend(self.error.as_ref().map(|error| string("error.type", error)));
        let start = self.started.unwrap_or(self.run.ended_at);
        let is_error = self.error.is_some();
        let name = format!("{operation} {name}");
        let id = self.root();
        let end = self.run.ended_at.max(start);
        let root = self.span(&name, INTERNAL, id, start, end, attributes, is_error);
        self.spans.insert(0, root);
        self.spans
    }
}

/// Returns the body of a request with these spans.
pub(super) fn request(spans: &[Value]) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    json!({"resourceSpans": [{
        "resource": {"attributes": [string("service.name", "ken"), string("service.version", version)]},
        "scopeSpans": [{"scope": {"name": "ken", "version": version}, "spans": spans}],
    }]})
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
                text if text.len() > CONTENT => json!(head(&text)),
                _ => arguments.clone(),
            };
            Some(json!({"type": "tool_call", "id": id, "name": name, "arguments": arguments}))
        }
        Block::Image { .. } => None,
    });
    parts.collect()
}

fn head(text: &str) -> &str {
    ken_text::head(text, CONTENT)
}

fn text<'a>(event: &'a Value, name: &str) -> &'a str {
    event.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn time(event: &Value) -> Option<Timestamp> {
    serde_json::from_value(event.get("timestamp")?.clone()).ok()
}

fn string(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

/// Returns an attribute with a number, which is a string in the JSON form of OTLP.
fn number_of(key: &str, value: u64) -> Value {
    json!({"key": key, "value": {"intValue": value.to_string()}})
}

/// Returns the name if it has the form of a name. A name that a model invented could contain text of the conversation.
fn checked_name(name: &str) -> &str {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    match (1..=64).contains(&name.len()) && name.bytes().all(is_part) {
        true => name,
        false => UNKNOWN,
    }
}

/// 64-bit FNV-1a, never 0. The seed is hashed first.
fn hash(seed: u8, text: &str) -> u64 {
    let bytes = std::iter::once(seed).chain(text.bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    hash.max(1)
}
