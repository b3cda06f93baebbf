//! The events that can be computed from the state alone, and the result of a submission.

use ken_text::head;
use ken_types::Timestamp;
use ken_types::event::{
    Block, Body, CitedSource, EMPTY_ANSWER, Failure, Message, Outcome, StopReason, ToolResult, TurnResult, Usage,
    cited_numbers,
};
use ken_types::ops::documents::Used;
use ken_types::ops::store::SubmissionKind;
use serde_json::{Value, json};

use super::plan::{Plan, RULE, TASK_INTERRUPTED, TaskRef};
use super::turn::{Call, Draft, Task, Turn};
use super::{Compacting, MAX_REPEATS, MAX_TURNS, Operation, TurnState, Validation};
use crate::retry::{BUDGET, is_not_configured};

/// The name of the failure when no model can be called until somebody changes the configuration.
pub(crate) const NOT_CONFIGURED: &str = "model_not_configured";

/// The end of a submission: outcome, result and error.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settlement {
    pub(crate) outcome: Outcome,
    pub(crate) result: Option<TurnResult>,
    pub(crate) error: Option<Failure>,
    pub(crate) summary: Option<String>,
    /// The knowledge entries that the submission used, and how it used them.
    pub(crate) used: Vec<(String, Used)>,
}

impl Settlement {
    pub(crate) fn event(&self) -> Body {
        Body::SubmissionSettled { outcome: self.outcome, error: self.error.as_ref().map(|error| error.message.clone()) }
    }
}

/// The maximum size of the text of a result, in bytes. However much of it has to be escaped, it fits into one line of
/// the wire with the other fields.
const MAX_RESULT_BYTES: usize = 512 * 1024;

fn shortened(mut text: String) -> String {
    if text.len() > MAX_RESULT_BYTES {
        let kept = head(&text, MAX_RESULT_BYTES).len();
        text.truncate(kept);
        text.push_str(" […cut: more than a result may hold]");
    }
    text
}

impl TurnState {
    /// Returns outcome and result. Called when everything else is recorded.
    pub(crate) fn settlement(&self, plan: &Plan) -> Settlement {
        let error = self.error(plan);
        let outcome = match &error {
            None => Outcome::Completed,
            Some(error) if error.name == "aborted" => Outcome::Aborted,
            Some(_) => Outcome::Failed,
        };
        let has_result = error.is_none() || !self.text.is_empty();
        Settlement {
            outcome,
            result: has_result.then(|| self.result(plan)),
            summary: self.summary.clone().filter(|summary| !summary.is_empty()),
            error,
            used: Vec::new(),
        }
    }

    /// Returns why the submission did not complete, or `None` if it did. A recorded `operation` event is final.
    fn error(&self, plan: &Plan) -> Option<Failure> {
        if let Some(Operation { ended: true, error, .. }) = &self.operation {
            return error.clone();
        }
        if let Some(ending) = &plan.ending {
            return Some(ending.failure());
        }
        let is_failed = match plan.kind {
            SubmissionKind::Compact => self.compacting != Compacting::Done { failed: false },
            _ => !self.has_answer(),
        };
        if is_failed {
            return Some(self.provider_failure(plan));
        }
        let missing = self.missing(plan).filter(|_| plan.kind == SubmissionKind::Prompt && !self.calls_program())?;
        let tool = missing.value.0.join(", ");
        Some(Failure::new(
            RULE,
            &format!("The model gave an answer without the tool {tool}, which the rule {} wants.", missing.rule),
        ))
    }

    /// Returns the failure of the last model that was called. If its key is missing or refused, it is called
    /// `model_not_configured`, because only a person can fix that.
    fn provider_failure(&self, plan: &Plan) -> Failure {
        let (name, message) = match &self.failure {
            _ if self.is_looping() && self.repeats >= MAX_REPEATS => {
                ("loop", format!("The model asked {MAX_REPEATS} times in a row for the same calls."))
            }
            _ if self.is_looping() => {
                ("loop", format!("The model called tools in {MAX_TURNS} turns and gave no answer."))
            }
            None => (NOT_CONFIGURED, "No model is configured.".to_owned()),
            Some((_, failure)) if failure.name == BUDGET => (BUDGET, failure.message.clone()),
            Some((model, failure)) if model.provider.is_empty() && is_not_configured(failure) => {
                (NOT_CONFIGURED, failure.message.clone())
            }
            Some((model, failure)) => {
                let name = if is_not_configured(failure) { NOT_CONFIGURED } else { "provider" };
                let who = match model.provider.as_str() {
                    "" => "The model".to_owned(),
                    provider => format!("The model {provider}/{}", model.id),
                };
                if self.position(plan).is_silent() {
                    (EMPTY_ANSWER, format!("{who} gave an empty answer twice."))
                } else {
                    (name, format!("{who} failed: {}", failure.message))
                }
            }
        };
        Failure { name: name.to_owned(), message }
    }

    fn result(&self, plan: &Plan) -> TurnResult {
        let text = match plan.kind {
            SubmissionKind::Compact => self.compaction_result(plan),
            _ => self.text.clone(),
        };
        let cited = cited_numbers(&text);
        let given = plan.sources.iter().cloned();
        let mut sources: Vec<CitedSource> =
            given.chain(self.found_sources()).filter(|source| cited.contains(&source.number)).collect();
        sources.sort_by_key(|source| source.number);
        sources.dedup_by_key(|source| source.number);
        TurnResult {
            sources,
            text: shortened(text),
            usage: self.usage,
            model: self.model.clone().unwrap_or_else(|| plan.model(self.position(plan).model)),
            context_budget: None,
            calls: if self.calls_program() { self.program_calls() } else { Vec::new() },
            validation: self.validation.as_ref().map(|found| self.validation_report(found)),
        }
    }

    fn validation_report(&self, found: &Validation) -> Value {
        let mut report = found.report.clone();
        report["revisions"] = self.revisions.into();
        report
    }

    fn compaction_result(&self, plan: &Plan) -> String {
        let before = plan.planned().map_or(0, |planned| planned.messages);
        match (before, &self.summary) {
            (0, _) => "There is nothing to compact yet.".to_owned(),
            (_, None) => "Nothing was compacted: the summary came back empty.".to_owned(),
            (before, Some(summary)) => format!(
                "Compacted {before} messages into a summary of about {} tokens.",
                ken_types::event::estimated_tokens(summary)
            ),
        }
    }

    /// Returns the start of a message that remains empty because its call failed before the first delta.
    pub(super) fn empty_message_start(&self, plan: &Plan) -> Body {
        let model = plan.model(self.position(plan).model);
        let draft = Draft::new(model.provider.clone(), model.provider, model.id);
        Body::MessageStart { message: draft.message(Vec::new(), None, self.last_timestamp) }
    }

    pub(super) fn cut_message_end(&self, draft: &Draft, plan: &Plan) -> Body {
        let reason = if self.failing.is_some() { StopReason::Error } else { plan.cut() };
        let stop = MessageEnd { reason, usage: Usage::default(), error: self.failing.clone() };
        Body::MessageEnd { message: draft.message(draft.blocks(), Some(stop), self.last_timestamp) }
    }

    /// Returns the end of a turn whose message has ended. Returns `None` for a message of another role.
    pub(super) fn turn_ended(&self, turn: &Turn, message: &Message) -> Option<Body> {
        let Message::Assistant { content, api, provider, model, usage, stop_reason, error, .. } = message else {
            return None;
        };
        Some(Body::Turn {
            purpose: turn.purpose,
            duration_ms: since(turn.started, self.last_timestamp),
            model: model.clone(),
            provider: provider.clone(),
            api: api.clone(),
            output: content.clone(),
            usage: *usage,
            stop_reason: stop_reason.unwrap_or(StopReason::Interrupted),
            is_error: error.is_some(),
            error: error.clone(),
        })
    }

    /// Returns the end of a compaction's turn that produced no summary.
    pub(super) fn turn_without_message(&self, turn: &Turn, plan: &Plan) -> Body {
        let model = plan.model(self.position(plan).model);
        Body::Turn {
            purpose: turn.purpose,
            duration_ms: since(turn.started, self.last_timestamp),
            model: model.id,
            api: model.provider.clone(),
            provider: model.provider,
            output: Vec::new(),
            usage: Usage::default(),
            stop_reason: if self.failing.is_some() { StopReason::Error } else { plan.cut() },
            is_error: self.failing.is_some(),
            error: self.failing.clone(),
        }
    }

    pub(super) fn compaction(&self, plan: &Plan) -> Body {
        let before = plan.planned().map_or(0, |planned| planned.messages);
        let error = match &plan.ending {
            _ if self.has_answer() || before == 0 => None,
            Some(ending) => Some(ending.failure()),
            None => Some(self.provider_failure(plan)),
        };
        let started = match self.compacting {
            Compacting::Since(started) => started,
            _ => self.last_timestamp,
        };
        Body::Compaction {
            messages_before: before,
            messages_after: if error.is_some() { before } else { before.min(1) },
            duration_ms: since(started, self.last_timestamp),
            is_error: error.is_some(),
            error,
            usage: Some(self.usage),
        }
    }

    pub(super) fn operation_ended(&self, operation: &Operation, plan: &Plan) -> Body {
        let error = self.error(plan);
        let result = self.result(plan);
        Body::Operation {
            operation_kind: operation.kind,
            duration_ms: since(operation.started, self.last_timestamp),
            is_error: error.is_some(),
            result: error.is_none().then(|| recorded(result)),
            usage: Some(self.usage),
            error,
        }
    }
}

/// Returns what the event of an operation holds of its result.
fn recorded(result: TurnResult) -> Value {
    let mut recorded = json!({ "text": result.text, "model": result.model });
    if !result.sources.is_empty() {
        recorded["sources"] = json!(result.sources);
    }
    recorded
}

#[derive(Debug, Clone)]
pub(crate) struct MessageEnd {
    pub(crate) reason: StopReason,
    pub(crate) usage: Usage,
    pub(crate) error: Option<Failure>,
}

impl Draft {
    /// Replaces what `message_end` contains only in part, because an event is limited: text, thoughts and arguments. The
    /// deltas before it contain all of them.
    pub(crate) fn complete(&self, content: &mut [Block]) {
        let mut texts = content.iter_mut().filter_map(|block| match block {
            Block::Text { text } => Some(text),
            _ => None,
        });
        if let Some(text) = texts.next() {
            text.clone_from(&self.text);
        }
        let thoughts = content.iter_mut().filter_map(|block| match block {
            Block::Thinking { thinking, .. } => Some(thinking),
            _ => None,
        });
        for (thinking, whole) in thoughts.zip(&self.thoughts) {
            thinking.clone_from(whole);
        }
        for block in content {
            if let Block::ToolCall { id, arguments, .. } = block
                && let Some(whole) = self.arguments.get(id)
            {
                *arguments = serde_json::from_str(whole).unwrap_or_else(|_| whole.as_str().into());
            }
        }
    }

    /// Returns the thoughts, then the whole text as one block.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let thoughts = self.thoughts.iter().map(|thought| Block::Thinking { thinking: thought.clone(), opaque: None });
        thoughts.chain([Block::text(&self.text)]).collect()
    }

    pub(crate) fn message(&self, content: Vec<Block>, stop: Option<MessageEnd>, at: Timestamp) -> Message {
        let (stop_reason, usage, error) = match stop {
            Some(stop) => (Some(stop.reason), stop.usage, stop.error),
            None => (None, Usage::default(), None),
        };
        Message::Assistant {
            content,
            api: self.api.clone(),
            provider: self.provider.clone(),
            model: self.model.clone(),
            usage,
            stop_reason,
            error,
            timestamp: at.millis(),
        }
    }
}

pub(super) fn turn_messages(turn: &Turn, message: &Message) -> Body {
    Body::TurnMessages { purpose: turn.purpose, message: message.clone(), tool_results: turn.results() }
}

pub(super) fn tool_start(call: &Call) -> Body {
    let (tool_name, tool_call_id) = (call.name.clone(), call.id.clone());
    Body::ToolStart { tool_name, tool_call_id, args: call.arguments.clone(), tools: None }
}

/// Returns the end of a task that cannot be finished.
pub(super) fn interrupted_task(call: &Call, task: &Task) -> (Body, TaskRef) {
    let body = Body::Task {
        agent: task.agent.clone(),
        task_name: task.agent.clone(),
        is_error: true,
        result: TASK_INTERRUPTED.into(),
        duration_ms: 0,
    };
    (body, TaskRef::of(&call.id))
}

/// Returns the end of an approval request that was not decided before its turn ended.
pub(super) fn approval_cancelled(request_id: &str) -> Body {
    Body::ApprovalDecided {
        request_id: request_id.to_owned(),
        status: "cancelled".to_owned(),
        decided_by: None,
        worker: None,
    }
}

/// Returns the end of a call that cannot be finished.
pub(super) fn interrupted(call: &Call) -> Body {
    let text = "The tool was interrupted. Whether it took effect is unknown.";
    Body::Tool {
        tool_name: call.name.clone(),
        tool_call_id: call.id.clone(),
        is_error: true,
        result: ToolResult::of_text(text),
        duration_ms: 0,
        interrupted: true,
    }
}

/// Returns the time between the two in milliseconds, never negative.
pub(crate) fn since(start: Timestamp, end: Timestamp) -> u64 {
    u64::try_from(end.millis() - start.millis()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_result() {
        let whole = "x".repeat(MAX_RESULT_BYTES);
        assert_eq!(shortened(whole.clone()), whole);
        assert!(shortened(format!("{whole}x")).starts_with(&format!("{whole} […cut: ")));
    }
}
