//! Adds the events of a session's stream to the conversation as they arrive.

use std::time::Duration;

use ken_approval::{Request, decided};
use ken_client::chat::failure;
use ken_client::{message_text, progress_line, source_lines};
use serde_json::Value;

use super::block::{Block, Kind, State, one_line};
use super::transcript::{Exchange, Status};
use super::{Connection, Model};
use crate::message::{Call, Effect};

/// The maximum number of characters of a call's arguments that are shown beside its name.
const MAX_ARGUMENTS_CHARACTERS: usize = 60;
/// The maximum number of bytes of a tool's output that are kept.
const MAX_OUTPUT_BYTES: usize = 16 * 1024;
const RESUMED: &str = "resumed after an interruption";

impl Model {
    pub(super) fn stream(&mut self, events: &[Value]) {
        self.last_event_at = self.now;
        if matches!(self.connection, Connection::Lost(_)) {
            self.effects.push(Effect::Log("connection.back"));
        }
        self.connection = Connection::Connected;
        if !events.is_empty() {
            self.parts = None;
        }
        for event in events {
            self.event(event);
        }
    }

    fn event(&mut self, event: &Value) {
        let (kind, submission) = (text(event, "type"), text(event, "submissionId"));
        if submission.is_empty() {
            return;
        }
        // In streams of earlier versions, the approval of a worker is an event of that worker.
        let is_approval = matches!(kind, "approval_requested" | "approval_decided");
        if event.get("parentSession").is_some() && !is_approval {
            return self.worker_event(event, kind);
        }
        let now = self.now;
        let exchange = self.exchange(submission);
        match kind {
            "operation_start" | "agent_start" => {
                exchange.status = Status::Running;
                exchange.since.get_or_insert(now);
            }
            "text_delta" => open_text(exchange).push(text(event, "text")),
            "thinking_start" => _ = open_thought(exchange),
            "thinking_delta" => open_thought(exchange).push(text(event, "delta")),
            "thinking_end" => end_thinking(exchange, text(event, "content")),
            "message_end" => {
                end_message(exchange, event);
                self.model_answered(event);
            }
            "tool_start" => self.tool_started(event),
            "tool_progress" => self.detail(text(event, "toolCallId"), one_line(&progress_line(event))),
            "tool" | "task" => self.activity_ended(event, kind),
            "task_start" => {
                let mut block = Block::running(text(event, "agent"), text(event, "taskId"), now);
                block.set_text(text(event, "prompt"));
                exchange.blocks.push(block);
            }
            "approval_requested" => self.approval_requested(event),
            "approval_decided" => self.approval_decided(event),
            "turn" => self.turn_ended(event),
            "compaction_start" => exchange.blocks.push(Block::running("compact the history", "compaction", now)),
            "compaction" => self.activity_ended(event, kind),
            "log" if text(event, "level") != "info" => {
                let mut block = Block::activity(text(event, "message"), "", State::Failed);
                block.detail = text(event, "level").to_owned();
                exchange.blocks.push(block);
            }
            "submission_resumed" => {
                // The end of the interrupted message, and of its thought, comes only after this event.
                let end = before_message(exchange);
                exchange.blocks.insert(end, Block::activity(RESUMED, "", State::Done));
            }
            "operation" => exchange.blocks.extend(event.get("result").and_then(sources)),
            "submission_settled" => self.settled(event),
            _ => {}
        }
    }

    /// Returns the exchange of a submission. Creates one for a prompt that another client sent.
    fn exchange(&mut self, submission: &str) -> &mut Exchange {
        if self.in_flight.is_empty() && self.transcript.find(submission).is_none() {
            self.fetch_page(None);
        }
        self.transcript.entry(submission, self.now)
    }

    /// Shows beside a task what its worker is doing at the moment. Other events of a worker are not shown.
    fn worker_event(&mut self, event: &Value, kind: &str) {
        if !matches!(kind, "tool_start" | "tool_progress" | "turn_start" | "task_start") {
            return;
        }
        // The session of a worker is `task:<parent session>:<taskId>`.
        let task = text(event, "session").rsplit(':').next().unwrap_or_default();
        let doing = match kind {
            "tool_start" => one_line(text(event, "toolName")),
            "tool_progress" => one_line(&progress_line(event)),
            "task_start" => one_line(text(event, "agent")),
            _ => "thinks".to_owned(),
        };
        self.detail(task, doing);
    }

    fn detail(&mut self, block: &str, detail: String) {
        if let Some(block) = self.transcript.block_mut(block) {
            block.detail = detail;
            block.forget_lines();
        }
    }

    fn tool_started(&mut self, event: &Value) {
        let name = text(event, "toolName");
        if let Some(plan) = event.get("args").and_then(|arguments| plan(name, arguments)) {
            self.plan = plan;
        }
        if name == "task" {
            // The task that this call starts is shown by its own events.
            return;
        }
        let mut block = Block::running(name, text(event, "toolCallId"), self.now);
        block.detail = event.get("args").map(arguments).unwrap_or_default();
        self.exchange(text(event, "submissionId")).blocks.push(block);
    }

    fn activity_ended(&mut self, event: &Value, kind: &str) {
        // The call of a task ends with what its agent is shown: the result between marks. The task has ended before it.
        if kind == "tool" && text(event, "toolName") == "task" {
            return;
        }
        let id = match kind {
            "tool" => text(event, "toolCallId"),
            "task" => text(event, "taskId"),
            _ => "compaction",
        };
        let failed = event.get("isError") == Some(&Value::Bool(true));
        let interrupted = event.get("interrupted") == Some(&Value::Bool(true));
        let output = event.get("result").map(output).unwrap_or_default();
        let Some(block) = self.transcript.block_mut(id) else {
            return;
        };
        if kind != "compaction" {
            block.set_text(ken_text::head(&output, MAX_OUTPUT_BYTES));
        }
        if kind == "task" {
            block.detail.clear();
        }
        if interrupted {
            block.detail = "interrupted".to_owned();
        }
        block.duration = duration(event);
        block.settle(if failed { State::Failed } else { State::Done });
        if kind == "compaction" {
            // Without the id, the next compaction gets its own row.
            block.id.clear();
        }
    }

    fn approval_requested(&mut self, event: &Value) {
        let request = text(event, "requestId").to_owned();
        if self.transcript.block_mut(&request).is_some() {
            return;
        }
        let name = format!("approval: {}", ken_text::visible_line(text(event, "actionType")));
        let mut block = Block::activity(&name, &request, State::Waiting);
        block.detail = format!("{} risk · F2 decides", text(event, "risk"));
        self.exchange(text(event, "submissionId")).blocks.push(block);
        // F2 finds it as soon as its row is there.
        Request::of_event(event).into_iter().for_each(|request| self.store_request(request));
        self.effects.push(Effect::Call(Call::Approval { request }));
        self.notify("ken: a decision is needed");
    }

    fn approval_decided(&mut self, event: &Value) {
        let (request, status) = (text(event, "requestId"), text(event, "status"));
        let outcome = decided(status, text(event, "decidedBy"));
        self.approvals.retain(|known| known.id != request);
        if let super::Overlay::Approval(dialog) = &mut self.overlay
            && dialog.request.id == request
        {
            dialog.outcome = Some(outcome.clone());
        }
        if let Some(block) = self.transcript.block_mut(request) {
            block.detail = outcome;
            block.settle(if status == "approved" { State::Done } else { State::Failed });
            // The record also says who that is as ken knows it.
            self.effects.push(Effect::Call(Call::Approval { request: request.to_owned() }));
        }
    }

    /// Shows which model has answered. The event `turn` comes only after the tools that it has called, and also for a model
    /// that has failed.
    fn model_answered(&mut self, event: &Value) {
        let (provider, model) = (text_at(event, "/message/provider"), text_at(event, "/message/model"));
        if !model.is_empty() {
            self.usage.model = one_line(&format!("{provider}/{model}"));
        }
    }

    fn turn_ended(&mut self, event: &Value) {
        let number = |pointer: &str| event.pointer(pointer).and_then(Value::as_u64);
        let usage = &mut self.usage;
        usage.turns += 1;
        // What the provider had already read is input, too.
        let input = ["/usage/input", "/usage/cacheRead", "/usage/cacheWrite"];
        usage.input += input.iter().filter_map(|pointer| number(pointer)).sum::<u64>();
        usage.output += number("/usage/output").unwrap_or(0);
        if text(event, "purpose") == "agent" {
            let total = number("/usage/totalTokens").filter(|total| *total > 0);
            usage.context = total.or(usage.context);
        }
        let cost = event.pointer("/usage/cost/total").and_then(Value::as_f64);
        if let Some(cost) = cost.filter(|cost| *cost > 0.0) {
            usage.cost = Some(usage.cost.unwrap_or(0.0) + cost);
        }
    }

    fn settled(&mut self, event: &Value) {
        let exchange = self.exchange(text(event, "submissionId"));
        let (status, state) = match text(event, "outcome") {
            "completed" => (Status::Completed, State::Done),
            "aborted" => (Status::Cancelled, State::Failed),
            _ => (Status::Failed, State::Failed),
        };
        exchange.status = status;
        for block in &mut exchange.blocks {
            if !block.is_settled() || matches!(block.state, State::Running | State::Waiting) {
                block.settle(state);
            }
        }
        exchange.blocks.extend(why_incomplete(status, event));
        if std::mem::take(&mut self.cancelling) {
            // The notice "cancelling" no longer applies.
            self.notice = self.armed.then(|| "Ctrl+C again leaves".to_owned());
        }
        self.effects.push(Effect::Log("turn.settled"));
        if !self.is_busy() {
            self.notify("ken: the answer is there");
            // A provider that failed in this turn, or answers again, is named in the status row.
            self.effects.push(Effect::Call(Call::Parts));
        }
        self.send_queued();
    }

    /// Notifies the person if the terminal is not in focus.
    pub(super) fn notify(&mut self, what: &'static str) {
        if !self.focused {
            self.effects.push(Effect::Notify(what));
        }
    }
}

/// Returns the steps of a plan in the arguments of a planning tool. Such tools have different names, so they are
/// recognised by a word in the name.
fn plan(tool: &str, arguments: &Value) -> Option<Vec<(bool, String)>> {
    let is_plan = ["todo", "plan", "checklist"].iter().any(|word| tool.contains(word));
    let lists = arguments.as_object().filter(|_| is_plan)?;
    let steps = lists.values().find_map(Value::as_array)?;
    Some(steps.iter().map(step).collect())
}

/// Returns whether a step of a plan is done, and its text.
fn step(item: &Value) -> (bool, String) {
    let names = ["text", "content", "step", "title", "task", "description"];
    let given = names.iter().find_map(|name| item.get(name)?.as_str());
    let name = one_line(given.or(item.as_str()).unwrap_or_default());
    let is_done = ["done", "completed"].iter().any(|name| item.get(name) == Some(&Value::Bool(true)));
    match text(item, "status") {
        "done" | "completed" => (true, name),
        "doing" | "in_progress" => (false, format!("{name} (now)")),
        _ => (is_done, name),
    }
}

/// Returns what is said below a turn that did not complete.
pub(super) fn why_incomplete(status: Status, record: &Value) -> Option<Block> {
    match status {
        Status::Cancelled => Some(Block::new(Kind::Note, "(cancelled)")),
        Status::Failed => Some(Block::new(Kind::Problem, failure(record))),
        _ => None,
    }
}

/// Returns the sources that an answer names.
pub(super) fn sources(result: &Value) -> Option<Block> {
    let lines = source_lines(result);
    (!lines.is_empty()).then(|| Block::new(Kind::Note, &lines))
}

/// Returns the growing answer at the end of an exchange. Adds one if the last block is another one.
fn open_text(exchange: &mut Exchange) -> &mut Block {
    let end = before_answer(exchange);
    growing_at(exchange, end, Kind::Answer)
}

/// Returns the place before the growing answer at the end of an exchange, or the end if there is none.
fn before_answer(exchange: &Exchange) -> usize {
    exchange.blocks.len() - usize::from(is_growing(exchange.blocks.last(), Kind::Answer))
}

/// The same, before the growing thought that belongs to that answer.
fn before_message(exchange: &Exchange) -> usize {
    let end = before_answer(exchange);
    let before = end.checked_sub(1).and_then(|before| exchange.blocks.get(before));
    end - usize::from(is_growing(before, Kind::Thinking))
}

/// Returns the growing thought at the end of an exchange. Adds one if there is none, before the text of the same message: a
/// thought stands before it, also if the model has thought again in the middle of its answer.
fn open_thought(exchange: &mut Exchange) -> &mut Block {
    let start = before_message(exchange);
    growing_at(exchange, start, Kind::Thinking)
}

fn is_growing(block: Option<&Block>, kind: Kind) -> bool {
    block.is_some_and(|block| block.kind == kind && !block.is_settled())
}

/// Returns the growing block of this kind at a place. Adds one if another block is there, or none.
fn growing_at(exchange: &mut Exchange, at: usize, kind: Kind) -> &mut Block {
    if !is_growing(exchange.blocks.get(at), kind) {
        exchange.blocks.insert(at, Block::growing(kind));
    }
    // There is a block, because one was added if needed.
    &mut exchange.blocks.as_mut_slice()[at]
}

fn end_thinking(exchange: &mut Exchange, content: &str) {
    let block = open_thought(exchange);
    if !content.is_empty() {
        block.set_text(content);
    }
    block.settle(State::Done);
    drop_beginning(exchange, Kind::Thinking);
}

/// Replaces the streamed pieces of a message with the recorded message.
fn end_message(exchange: &mut Exchange, event: &Value) {
    let whole = message_text(event);
    if text_at(event, "/message/role") != "assistant" || whole.is_empty() {
        return;
    }
    let block = open_text(exchange);
    block.set_text(whole);
    block.settle(State::Done);
    drop_beginning(exchange, Kind::Answer);
}

/// After an interruption, a message begins with the text that was streamed before, and a model that thinks again often with the
/// same thought. The earlier block is removed so that the text appears once.
fn drop_beginning(exchange: &mut Exchange, kind: Kind) {
    let mut blocks = exchange.blocks.iter().enumerate().rev().filter(|(_, block)| block.kind == kind);
    let (Some((end, last)), Some((index, earlier))) = (blocks.next(), blocks.next()) else {
        return;
    };
    // Two equal texts are shown, but not one directly after the other: nothing was left to say after the interruption.
    let mut between = exchange.blocks.iter().take(end).skip(index + 1);
    let is_next = between.all(|block| block.name == RESUMED);
    if last.text().starts_with(earlier.text()) && (last.text() != earlier.text() || is_next) {
        exchange.blocks.remove(index);
    }
}

/// Returns the arguments of a call as a short text.
fn arguments(arguments: &Value) -> String {
    let Some(fields) = arguments.as_object() else {
        return String::new();
    };
    let value = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let all: Vec<String> = fields.values().map(value).collect();
    let text = one_line(&all.join(" "));
    if text.chars().count() > MAX_ARGUMENTS_CHARACTERS {
        text.chars().take(MAX_ARGUMENTS_CHARACTERS - 1).chain(['…']).collect()
    } else {
        text
    }
}

/// Returns the text of a tool's result.
fn output(result: &Value) -> String {
    if let Some(text) = result.as_str() {
        return text.to_owned();
    }
    let content = result.get("content").unwrap_or(result);
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter_map(|block| block.get("text")?.as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// Returns the duration in the field `durationMs`, if it is present.
pub(super) fn duration(value: &Value) -> Option<Duration> {
    value.get("durationMs").and_then(Value::as_u64).map(Duration::from_millis)
}

/// Returns the string in a field, or an empty one if there is none.
pub(crate) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the string at a JSON pointer, or an empty one if there is none.
pub(crate) fn text_at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
