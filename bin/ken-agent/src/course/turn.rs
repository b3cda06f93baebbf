//! One call of the model and the tools that it asks for.

use ken_types::Timestamp;
use ken_types::event::{Block, Body, Message, Purpose};
use serde_json::Value;

#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) id: String,
    pub(crate) purpose: Purpose,
    pub(crate) started: Timestamp,
    pub(crate) speech: Speech,
    /// What the message asks for, in its order.
    pub(crate) calls: Vec<Call>,
    /// Whether `turn_messages` is recorded.
    pub(crate) summed_up: bool,
}

/// What the assistant says in a turn.
#[derive(Debug, Clone)]
pub(crate) enum Speech {
    /// Nothing yet.
    Ahead,
    Open(Draft),
    Ended(Message),
}

/// A message being said.
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
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: Value,
    pub(crate) stage: Stage,
    /// When its worker was given the task, while that is open.
    pub(crate) task: Option<(String, Timestamp)>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stage {
    Asked,
    Running {
        since: Timestamp,
        /// By the crash of its holder: what it did is unknown.
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
            speech: Speech::Ahead,
            calls: Vec::new(),
            summed_up: false,
        }
    }

    pub(super) fn resume(&mut self, may_run_again: impl Fn(&str) -> bool) {
        for call in &mut self.calls {
            if let Stage::Running { cut, .. } = &mut call.stage {
                *cut = !may_run_again(&call.name);
            }
        }
    }

    /// An event between `turn_start` and `turn`; gives back a message that it has ended.
    pub(super) fn apply(&mut self, body: &Body, at: Timestamp, task_id: Option<&str>) -> Option<Message> {
        match body {
            Body::MessageStart { message } => self.start_message(message),
            Body::MessageEnd { message } => return Some(self.end_message(message)),
            Body::TurnMessages { .. } => self.summed_up = true,
            Body::ToolStart { tool_call_id, .. } => self.stage(
                tool_call_id,
                Stage::Running {
                    since: at,
                    cut: false,
                },
            ),
            Body::Tool { .. } => self.end_tool(body, at),
            Body::TaskStart { agent, .. } => self.task(task_id, Some((agent.clone(), at))),
            Body::Task { .. } => self.task(task_id, None),
            said => {
                if let Speech::Open(draft) = &mut self.speech {
                    draft.apply(said);
                }
            }
        }
        None
    }

    fn start_message(&mut self, message: &Message) {
        match message {
            Message::Assistant {
                api, provider, model, ..
            } => {
                self.speech = Speech::Open(Draft::new(api.clone(), provider.clone(), model.clone()));
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
                if let (Speech::Open(draft), Some(Block::Text { text })) = (&self.speech, content.first_mut())
                {
                    text.clone_from(&draft.text);
                }
                self.calls = content.iter().filter_map(Call::of).collect();
                self.speech = Speech::Ended(message.clone());
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
        if let Body::Tool {
            tool_name,
            tool_call_id,
            is_error,
            result,
            ..
        } = body
        {
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
    fn task(&mut self, id: Option<&str>, task: Option<(String, Timestamp)>) {
        if let Some(call) = self.calls.iter_mut().find(|call| Some(call.id.as_str()) == id) {
            call.task = task;
        }
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
    fn of(block: &Block) -> Option<Call> {
        match block {
            Block::ToolCall { id, name, arguments } => Some(Call {
                id: id.clone(),
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
        Draft {
            api,
            provider,
            model,
            ..Draft::default()
        }
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
