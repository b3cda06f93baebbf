//! One model call, and the tools that its answer asks for.

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
    /// The tool calls of the message, in its order.
    pub(crate) calls: Vec<Call>,
    /// Whether the model was told what stands against its last answer.
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
    /// The thought that is open.
    pub(crate) thinking: Option<String>,
}

/// One tool call on its way.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) id: String,
    /// The id of its turn.
    pub(crate) turn: String,
    pub(crate) name: String,
    pub(crate) arguments: Value,
    pub(crate) stage: Stage,
    /// The task that it gave to a worker.
    pub(crate) task: Option<Task>,
}

/// A task that a worker has.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) agent: String,
    /// How far the worker has come.
    pub(crate) worker: Box<TurnState>,
    /// What came of it, once it has ended.
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
    Asked,
    Running {
        since: Timestamp,
        /// Cut by the crash of its holder: what it did is unknown.
        cut: bool,
    },
    Done(Message),
    /// Its `message_start` is recorded.
    Announced(Message),
    Told(Message),
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
            let is_cut = !may_run_again(call);
            if let Stage::Running { cut, .. } = &mut call.stage {
                *cut = is_cut;
            }
            if let Some(task) = &mut call.task {
                task.worker.resume(may_run_again);
            }
        }
    }

    /// Whether the model's message is whole and none of its calls has begun.
    pub(super) fn is_answered(&self) -> bool {
        let fresh = |call: &Call| call.stage == Stage::Asked;
        matches!(self.message, MessageState::Ended(_)) && self.calls.iter().all(fresh)
    }

    /// Applies an event between `turn_start` and `turn`; returns the message that it ends, if it ends one.
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
            Body::ToolStart { tool_call_id, .. } => self.stage(tool_call_id, Stage::Running { since: at, cut: false }),
            Body::Tool { .. } => self.end_tool(body, at),
            Body::TaskStart { agent, .. } => self.start_task(task_id, agent, session),
            Body::Task { is_error, result, .. } => {
                let task = self.call_of_task(task_id).and_then(|call| call.task.as_mut());
                if let Some(task) = task {
                    task.result = Some(task_end(*is_error, result));
                }
            }
            said => {
                if let MessageState::Open(draft) = &mut self.message {
                    draft.apply(said);
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
                self.stage(tool_call_id, Stage::Announced(message.clone()));
            }
            Message::User { .. } | Message::Signal { .. } => {}
        }
    }

    fn end_message(&mut self, message: &Message) -> Message {
        let mut message = message.clone();
        match &mut message {
            Message::Assistant { content, .. } => {
                // A long text is cut in `message_end` and whole in its deltas.
                if let (MessageState::Open(draft), Some(Block::Text { text })) = (&self.message, content.first_mut()) {
                    text.clone_from(&draft.text);
                }
                self.calls = content.iter().filter_map(|block| Call::from_block(block, &self.id)).collect();
                self.message = MessageState::Ended(message.clone());
            }
            Message::ToolResult { tool_call_id, .. } => {
                let id = tool_call_id.clone();
                self.stage(&id, Stage::Told(message.clone()));
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

    /// A task has the id of the call that gave it.
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

    /// The results that there are, in the order of the calls.
    pub(super) fn results(&self) -> Vec<Message> {
        let results = self.calls.iter().filter_map(|call| match &call.stage {
            Stage::Told(message) => Some(message.clone()),
            _ => None,
        });
        results.collect()
    }
}

impl Call {
    /// A call that no model has asked for.
    pub(crate) fn internal(name: &str, arguments: Value) -> Call {
        Call {
            id: String::new(),
            name: name.to_owned(),
            arguments,
            stage: Stage::Asked,
            task: None,
            turn: String::new(),
        }
    }

    /// Names the call among all of its submission. The id alone does not: models choose it, and may choose it twice.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.turn, self.id)
    }

    fn from_block(block: &Block, turn: &str) -> Option<Call> {
        match block {
            Block::ToolCall { id, name, arguments } => Some(Call {
                id: id.clone(),
                turn: turn.to_owned(),
                name: name.clone(),
                arguments: arguments.clone(),
                stage: Stage::Asked,
                task: None,
            }),
            _ => None,
        }
    }
}

impl Draft {
    pub(crate) fn new(api: String, provider: String, model: String) -> Draft {
        Draft { api, provider, model, ..Draft::default() }
    }

    fn apply(&mut self, body: &Body) {
        match body {
            Body::TextDelta { text } => self.text.push_str(text),
            Body::ThinkingStart => self.thinking = Some(String::new()),
            Body::ThinkingDelta { delta } => {
                if let Some(thought) = &mut self.thinking {
                    thought.push_str(delta);
                }
            }
            Body::ThinkingEnd { content } => {
                // As with texts: the deltas hold all of it.
                let thought = self.thinking.take().unwrap_or_else(|| content.clone());
                self.thoughts.push(thought);
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
