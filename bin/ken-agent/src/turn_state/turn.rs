//! One model call, and the tool calls that its answer requests.

use std::collections::BTreeMap;

use ken_types::Timestamp;
use ken_types::event::{Block, Body, Message, Purpose};
use serde_json::Value;

use super::TurnState;
use super::session::SessionName;

#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) id: String,
    pub(crate) purpose: Purpose,
    pub(crate) started: Timestamp,
    pub(crate) message: MessageState,
    /// The tool calls of the message, in the order of the message.
    pub(crate) calls: Vec<Call>,
    /// Whether the model was sent a note on why its last answer is not accepted.
    pub(crate) has_note: bool,
    /// Whether `turn_messages` is recorded.
    pub(crate) summed_up: bool,
}

/// The assistant's message of a turn.
#[derive(Debug, Clone)]
pub(crate) enum MessageState {
    NotStarted,
    Open(Draft),
    Ended(Message),
}

/// A message that is being received.
#[derive(Debug, Clone, Default)]
pub(crate) struct Draft {
    pub(crate) api: String,
    pub(crate) provider: String,
    pub(crate) model: String,
    pub(crate) text: String,
    pub(crate) thoughts: Vec<String>,
    /// The thought that has begun and not ended.
    pub(crate) thinking: Option<String>,
    /// Long arguments as JSON text, by the id of their call.
    pub(crate) arguments: BTreeMap<String, String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) id: String,
    /// The id of the turn that made the call.
    pub(crate) turn: String,
    pub(crate) name: String,
    pub(crate) arguments: Value,
    pub(crate) stage: Stage,
    /// The task, if the call gives one to a worker.
    pub(crate) task: Option<Task>,
    /// For a call that a crash interrupted and that may have begun: the process of ken-tools that knows whether it did.
    pub(crate) repeated: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) agent: String,
    pub(crate) worker: Box<TurnState>,
    /// The result or the error message. `None` until the task has ended.
    pub(crate) result: Option<Result<Value, String>>,
}

/// Returns the result that the last event of a task contains, or the message of its error.
pub(crate) fn task_end(is_error: bool, result: &Value) -> Result<Value, String> {
    match result {
        result if !is_error => Ok(result.clone()),
        Value::String(why) => Err(why.clone()),
        other => Err(other.to_string()),
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stage {
    Requested,
    Running {
        since: Timestamp,
        /// Whether a crash of the holder interrupted the call. What the call did is then unknown.
        is_interrupted: bool,
        /// The process of ken-tools that was there before the call began.
        tools: Option<String>,
    },
    Done(Message),
    /// Its `message_start` is recorded.
    MessageStarted(Message),
    MessageEnded(Message),
}

impl Turn {
    pub(super) fn new(id: String, purpose: Purpose, started: Timestamp) -> Turn {
        Turn {
            id,
            purpose,
            started,
            message: MessageState::NotStarted,
            calls: Vec::new(),
            has_note: false,
            summed_up: false,
        }
    }

    pub(super) fn resume(&mut self, may_run_again: &dyn Fn(&Call) -> bool) {
        for call in &mut self.calls {
            let is_safe = may_run_again(call);
            if let Stage::Running { is_interrupted, tools, .. } = &mut call.stage
                && !is_safe
            {
                call.repeated = tools.take();
                *is_interrupted = call.repeated.is_none();
            }
            if let Some(task) = &mut call.task {
                task.worker.resume(may_run_again);
            }
        }
    }

    /// Whether the model's message is complete and none of its calls has begun.
    pub(super) fn is_answered(&self) -> bool {
        let fresh = |call: &Call| call.stage == Stage::Requested;
        matches!(self.message, MessageState::Ended(_)) && self.calls.iter().all(fresh)
    }

    /// Applies an event between `turn_start` and `turn`. Returns the message that the event ends, if it ends one.
    pub(super) fn apply(
        &mut self,
        body: &Body,
        at: Timestamp,
        task_id: Option<&str>,
        session: &SessionName,
    ) -> Option<Message> {
        match body {
            Body::MessageStart { message } => self.start_message(message),
            Body::MessageEnd { message } => return Some(self.end_message(message)),
            Body::TurnMessages { .. } => self.summed_up = true,
            Body::ToolStart { tool_call_id, tools, .. } => {
                self.stage(tool_call_id, Stage::Running { since: at, is_interrupted: false, tools: tools.clone() });
            }
            Body::Tool { .. } => self.end_tool(body, at),
            Body::TaskStart { agent, .. } => self.start_task(task_id, agent, session),
            Body::Task { is_error, result, .. } => {
                let task = self.call_of_task(task_id).and_then(|call| call.task.as_mut());
                if let Some(task) = task {
                    task.result = Some(task_end(*is_error, result));
                }
            }
            other => {
                if let MessageState::Open(draft) = &mut self.message {
                    draft.apply(other);
                }
            }
        }
        None
    }

    fn start_message(&mut self, message: &Message) {
        match message {
            Message::Assistant { api, provider, model, .. } => {
                self.message = MessageState::Open(Draft::new(api.clone(), provider.clone(), model.clone()));
            }
            Message::ToolResult { tool_call_id, .. } => {
                self.stage(tool_call_id, Stage::MessageStarted(message.clone()));
            }
            Message::User { .. } | Message::Signal { .. } => {}
        }
    }

    fn end_message(&mut self, message: &Message) -> Message {
        let mut message = message.clone();
        match &mut message {
            Message::Assistant { content, .. } => {
                if let MessageState::Open(draft) = &self.message {
                    draft.complete(content);
                }
                self.calls = content.iter().filter_map(|block| Call::from_block(block, &self.id)).collect();
                self.message = MessageState::Ended(message.clone());
            }
            Message::ToolResult { tool_call_id, .. } => {
                let id = tool_call_id.clone();
                self.stage(&id, Stage::MessageEnded(message.clone()));
            }
            Message::User { .. } | Message::Signal { .. } => {}
        }
        message
    }

    fn end_tool(&mut self, body: &Body, at: Timestamp) {
        if let Body::Tool { tool_name, tool_call_id, is_error, result, .. } = body {
            let message = Message::ToolResult {
                tool_call_id: tool_call_id.clone(),
                tool_name: tool_name.clone(),
                content: result.content.clone(),
                details: result.details.clone(),
                is_error: *is_error,
                timestamp: at.millis(),
            };
            self.stage(tool_call_id, Stage::Done(message));
        }
    }

    fn stage(&mut self, id: &str, stage: Stage) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.id == id) {
            call.stage = stage;
        }
    }

    /// Adds a task to the call that gave it. Both have the same id.
    fn start_task(&mut self, id: Option<&str>, agent: &str, session: &SessionName) {
        if let Some(call) = self.call_of_task(id) {
            call.task = Some(Task {
                agent: agent.to_owned(),
                worker: Box::new(TurnState::of_worker(session.of_task(&call.id))),
                result: None,
            });
        }
    }

    fn call_of_task(&mut self, id: Option<&str>) -> Option<&mut Call> {
        self.calls.iter_mut().find(|call| Some(call.id.as_str()) == id)
    }

    /// Returns the results that exist so far, in the order of the calls.
    pub(super) fn results(&self) -> Vec<Message> {
        let results = self.calls.iter().filter_map(|call| match &call.stage {
            Stage::MessageEnded(message) => Some(message.clone()),
            _ => None,
        });
        results.collect()
    }
}

impl Call {
    /// Creates a call that no model has requested.
    pub(crate) fn internal(name: &str, arguments: Value) -> Call {
        Call {
            id: String::new(),
            name: name.to_owned(),
            arguments,
            stage: Stage::Requested,
            task: None,
            repeated: None,
            turn: String::new(),
        }
    }

    /// Returns a key that is unique within the submission. The id is not unique, because models choose it and can
    /// choose the same one twice.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.turn, self.id)
    }

    fn from_block(block: &Block, turn: &str) -> Option<Call> {
        match block {
            Block::ToolCall { id, name, arguments } => {
                let (id, turn) = (id.clone(), turn.to_owned());
                Some(Call { id, turn, ..Call::internal(name, arguments.clone()) })
            }
            _ => None,
        }
    }
}

impl Draft {
    pub(crate) fn new(api: String, provider: String, model: String) -> Draft {
        Draft { api, provider, model, ..Draft::default() }
    }

    /// Applies an event between `message_start` and `message_end`.
    pub(crate) fn apply(&mut self, body: &Body) {
        match body {
            Body::TextDelta { text } => self.text.push_str(text),
            Body::ThinkingStart => self.thinking = Some(String::new()),
            Body::ThinkingDelta { delta } => {
                if let Some(thought) = &mut self.thinking {
                    thought.push_str(delta);
                }
            }
            Body::ThinkingEnd { content } => {
                // As with texts, only the deltas contain all of a long thought.
                let thought = self.thinking.take().unwrap_or_else(|| content.clone());
                self.thoughts.push(thought);
            }
            Body::ToolCallDelta { tool_call_id, delta } => {
                self.arguments.entry(tool_call_id.clone()).or_default().push_str(delta);
            }
            _ => {}
        }
    }
}

impl Stage {
    pub(crate) fn since(&self) -> Option<Timestamp> {
        match self {
            Stage::Running { since, .. } => Some(*since),
            _ => None,
        }
    }
}
