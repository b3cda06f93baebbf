//! An exchange as a transcript shows it, computed from the events of its submission. Settled exchanges are stored in this form; running
//! ones are computed in the same way when they are read.

use std::borrow::Cow;

use ken_types::event::{CitedSource, Failure, Output, SupportedSentence};
use ken_types::id::SubmissionId;
use ken_types::ops::approvals::{Approval, Decision};
use ken_types::ops::store::State;
use ken_types::{Error, Timestamp};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::rules::check::event_type;
use crate::rules::title::shorten;

const NAME_CHARACTERS: usize = 120;
const PREVIEW_CHARACTERS: usize = 500;

/// A prompt, the activities that followed, and the answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Exchange {
    id: SubmissionId,
    submission_id: SubmissionId,
    #[serde(serialize_with = "status")]
    pub status: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<Prompt>,
    activities: Vec<Activity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assistant: Option<Assistant>,
    /// Why the turn failed. Only with the status `failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ExchangeError>,
}

/// The failure of a turn, as the stream and the reply to a caller that waited show it.
#[derive(Debug, Serialize)]
pub struct ExchangeError {
    code: &'static str,
    message: String,
}

impl From<&Failure> for ExchangeError {
    fn from(failure: &Failure) -> ExchangeError {
        ExchangeError { code: failure.code_of_turn(), message: failure.message.clone() }
    }
}

fn status<S: Serializer>(state: &State, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match state {
        State::Queued | State::Running | State::Waiting => "running",
        State::Completed => "completed",
        State::Failed => "failed",
        State::Aborted => "cancelled",
    })
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Prompt {
    id: String,
    text: String,
    received_at: Timestamp,
    visibility: &'static str,
    /// The number of images beside the text.
    #[serde(skip_serializing_if = "is_zero")]
    images: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Prompt {
    pub fn visible(id: String, text: String, received_at: Timestamp) -> Prompt {
        Prompt { id, text, received_at, visibility: "user", images: 0 }
    }
}

/// The last message of the orchestrator that contains text.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Assistant {
    id: String,
    pub text: String,
    completed_at: Timestamp,
    /// The sources that the text names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sources: Vec<CitedSource>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sentences: Vec<SupportedSentence>,
}

/// What the event of an operation says of its result.
#[derive(Deserialize)]
struct ResultFields {
    #[serde(default)]
    sources: Vec<CitedSource>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Operation,
    Thinking,
    Tool,
    Task,
    Log,
    Approval,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Operation => "operation",
            Kind::Thinking => "thinking",
            Kind::Tool => "tool",
            Kind::Task => "task",
            Kind::Log => "log",
            Kind::Approval => "approval",
        }
    }

    /// Returns the error that is shown for a failed activity. It contains nothing that the activity has read or written.
    fn failure(self) -> &'static str {
        match self {
            Kind::Operation => "The operation failed.",
            Kind::Thinking => "The thinking was cut short.",
            Kind::Tool => "The tool failed.",
            Kind::Task => "The task failed.",
            Kind::Log => "An error was logged.",
            Kind::Approval => "The action was not approved.",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Progress {
    Running,
    Completed,
    Failed,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Activity {
    id: String,
    kind: Kind,
    name: String,
    status: Progress,
    started_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    preview: Option<String>,
    /// The complete output of a tool, if the model has seen only part of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Output>,
    /// How a request ended, and who decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<RequestEnd>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'static str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RequestEnd {
    request_id: String,
    status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<Decision>,
}

impl Activity {
    fn end(&mut self, at: Timestamp, duration: Option<u64>, failed: bool) {
        let since = u64::try_from(at.millis() - self.started_at.millis()).unwrap_or_default();
        self.completed_at = Some(at);
        self.duration_ms = Some(duration.unwrap_or(since));
        self.status = if failed { Progress::Failed } else { Progress::Completed };
        self.error = failed.then(|| self.kind.failure());
    }
}

impl Exchange {
    /// Says of each request for an approval what was asked and who decided. `find` returns its record. The stream holds only
    /// the kind of the action and the name that the person gave.
    pub fn complete_approvals(&mut self, find: impl Fn(&str) -> Result<Option<Approval>, Error>) -> Result<(), Error> {
        for activity in &mut self.activities {
            if let Some(request) = &mut activity.approval
                && let Some(record) = find(&request.request_id)?
            {
                activity.name = shorten(&record.description, NAME_CHARACTERS);
                request.decision = record.decision;
            }
        }
        Ok(())
    }

    /// Removes the activities that are still running, because the stream shows them to a reader.
    pub fn drop_running(&mut self) {
        self.activities.retain(|activity| activity.status != Progress::Running);
    }

    /// Marks the activities that were still running when the submission ended as failed.
    pub fn close(&mut self) {
        for activity in &mut self.activities {
            if activity.status == Progress::Running {
                activity.status = Progress::Failed;
                activity.error = Some(activity.kind.failure());
                activity.approval.iter_mut().for_each(|request| "cancelled".clone_into(&mut request.status));
            }
        }
    }
}

/// Builds an exchange from events, one at a time.
#[derive(Debug)]
pub struct Fold {
    id: SubmissionId,
    activities: Vec<Activity>,
    assistant: Option<Assistant>,
    /// The number of images of the prompt.
    images: usize,
}

/// The fields of an event that the fold uses.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EventFields<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    event_index: u64,
    timestamp: Timestamp,
    #[serde(borrow)]
    submission_id: Cow<'a, str>,
    #[serde(borrow)]
    parent_session: Option<Cow<'a, str>>,
    #[serde(borrow)]
    operation_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    operation_kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    tool_call_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    tool_name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    task_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    agent: Option<Cow<'a, str>>,
    #[serde(borrow)]
    content: Option<Cow<'a, str>>,
    #[serde(borrow)]
    request_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    action_type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    status: Option<Cow<'a, str>>,
    #[serde(borrow)]
    level: Option<Cow<'a, str>>,
    #[serde(default)]
    message: MessageField<'a>,
    #[serde(default)]
    is_error: bool,
    duration_ms: Option<u64>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    /// Of a validation.
    #[serde(default)]
    sentences: Vec<SupportedSentence>,
}

impl EventFields<'_> {
    /// Returns the complete output to which the result of a tool refers.
    fn output(&self) -> Option<Output> {
        #[derive(Deserialize)]
        struct Named {
            output: Option<Output>,
        }
        let named: Named = serde_json::from_str(self.result?.get()).ok()?;
        named.output
    }

    /// Returns the result of a task: what the worker answered.
    fn text_of_result(&self) -> Option<Cow<'_, str>> {
        let result = self.result?.get();
        Some(serde_json::from_str::<String>(result).map_or(Cow::Borrowed(result), Cow::Owned))
    }
}

/// The `message` of an event. It is a text in logs and an object in other events.
#[derive(Default, Deserialize)]
#[serde(untagged)]
enum MessageField<'a> {
    Text(#[serde(borrow)] Cow<'a, str>),
    Message(#[serde(borrow)] Message<'a>),
    #[default]
    Nothing,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(borrow, default)]
    content: Vec<Block<'a>>,
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    text: Cow<'a, str>,
}

/// The tool that delegates work to a worker. Transcripts show the worker's task in place of the call.
const DELEGATION: &str = "task";

/// Returns whether events of this kind are used. Most are not, and they are skipped without parsing them.
fn is_used(event: &str) -> bool {
    let kind = event_type(event);
    matches!(
        kind,
        "operation_start"
            | "operation"
            | "thinking_start"
            | "thinking_end"
            | "tool_start"
            | "tool"
            | "task_start"
            | "task"
            | "log"
            | "approval_requested"
            | "approval_decided"
            | "message_end"
            | "validation"
    )
}

impl Fold {
    pub fn of(id: SubmissionId) -> Fold {
        Fold { id, activities: Vec::new(), assistant: None, images: 0 }
    }

    /// The exchange of an answer that has no events.
    pub fn of_answer(id: SubmissionId, text: &str, completed_at: Timestamp) -> Fold {
        let message = format!("{id}:message:0");
        let assistant =
            Assistant { id: message, text: text.to_owned(), completed_at, sources: Vec::new(), sentences: Vec::new() };
        Fold { assistant: Some(assistant), ..Fold::of(id) }
    }

    /// Processes the next event of the stream. Events of other submissions and of workers are skipped.
    pub fn add_event(&mut self, event: &str) {
        if !is_used(event) {
            return;
        }
        // An event that cannot be read is left out.
        let Ok(seen) = serde_json::from_str::<EventFields<'_>>(event) else {
            return;
        };
        if seen.submission_id == self.id.0 && seen.parent_session.is_none() {
            self.take(seen);
        }
    }

    fn take(&mut self, seen: EventFields<'_>) {
        let delegation = seen.tool_name.as_deref() == Some(DELEGATION);
        match seen.kind.as_ref() {
            "operation_start" if seen.operation_kind.as_deref() == Some("prompt") => {}
            "operation" if seen.operation_kind.as_deref() == Some("prompt") => {
                let result = seen.result.and_then(|result| serde_json::from_str::<ResultFields>(result.get()).ok());
                if let (Some(assistant), Some(result)) = (&mut self.assistant, result) {
                    assistant.sources = result.sources;
                }
            }
            "validation" => {
                if let Some(assistant) = &mut self.assistant {
                    assistant.sentences = seen.sentences;
                }
            }
            "operation_start" => {
                self.start(Kind::Operation, seen.operation_id.as_deref(), seen.operation_kind.as_deref(), &seen);
            }
            "operation" => self.end(Kind::Operation, seen.operation_id.as_deref(), &seen, seen.is_error),
            "tool_start" | "tool" if delegation => {}
            "tool_start" => self.start(Kind::Tool, seen.tool_call_id.as_deref(), seen.tool_name.as_deref(), &seen),
            "tool" => self.end(Kind::Tool, seen.tool_call_id.as_deref(), &seen, seen.is_error),
            "task_start" => self.start(Kind::Task, seen.task_id.as_deref(), seen.agent.as_deref(), &seen),
            "task" => self.end(Kind::Task, seen.task_id.as_deref(), &seen, seen.is_error),
            "thinking_start" => {
                self.start(Kind::Thinking, Some(&seen.event_index.to_string()), Some("thinking"), &seen)
            }
            "thinking_end" => self.end_thinking(&seen),
            "log" => self.log(&seen),
            "approval_requested" => self.requested(&seen),
            "approval_decided" => self.decided(&seen),
            _ => self.answer(seen),
        }
    }

    fn key(&self, kind: Kind, part: &str) -> String {
        format!("{}:{}:{part}", self.id, kind.name())
    }

    fn start(&mut self, kind: Kind, part: Option<&str>, name: Option<&str>, seen: &EventFields<'_>) {
        self.activities.push(Activity {
            id: self.key(kind, part.unwrap_or_default()),
            kind,
            name: shorten(name.unwrap_or_default(), NAME_CHARACTERS),
            status: Progress::Running,
            started_at: seen.timestamp,
            completed_at: None,
            duration_ms: None,
            preview: None,
            output: None,
            approval: None,
            error: None,
        });
    }

    fn end(&mut self, kind: Kind, part: Option<&str>, seen: &EventFields<'_>, failed: bool) {
        let id = self.key(kind, part.unwrap_or_default());
        if let Some(activity) = self.activities.iter_mut().rfind(|activity| activity.id == id) {
            activity.end(seen.timestamp, seen.duration_ms, failed);
            activity.output = seen.output();
            if kind == Kind::Task {
                activity.preview = seen.text_of_result().map(|text| shorten(&text, PREVIEW_CHARACTERS));
            }
        }
    }

    fn requested(&mut self, seen: &EventFields<'_>) {
        let request_id = seen.request_id.as_deref().unwrap_or_default();
        self.start(Kind::Approval, Some(request_id), seen.action_type.as_deref(), seen);
        if let Some(activity) = self.activities.last_mut() {
            let (request_id, status) = (request_id.to_owned(), "pending".to_owned());
            activity.approval = Some(RequestEnd { request_id, status, decision: None });
        }
    }

    fn decided(&mut self, seen: &EventFields<'_>) {
        let status = seen.status.as_deref().unwrap_or_default();
        self.end(Kind::Approval, seen.request_id.as_deref(), seen, status != "approved");
        let requests = self.activities.iter_mut().filter_map(|activity| activity.approval.as_mut());
        let is_meant = |request: &&mut RequestEnd| Some(request.request_id.as_str()) == seen.request_id.as_deref();
        requests.filter(is_meant).for_each(|request| status.clone_into(&mut request.status));
    }

    fn end_thinking(&mut self, seen: &EventFields<'_>) {
        let open = |activity: &&mut Activity| activity.kind == Kind::Thinking && activity.status == Progress::Running;
        if let Some(activity) = self.activities.iter_mut().rfind(open) {
            activity.end(seen.timestamp, seen.duration_ms, false);
            let content = seen.content.as_deref().unwrap_or_default();
            activity.preview = Some(shorten(content, PREVIEW_CHARACTERS));
        }
    }

    fn log(&mut self, seen: &EventFields<'_>) {
        let level = seen.level.as_deref();
        self.start(Kind::Log, Some(&seen.event_index.to_string()), level, seen);
        let Some(activity) = self.activities.last_mut() else {
            return;
        };
        activity.end(seen.timestamp, Some(0), level == Some("error"));
        if let MessageField::Text(text) = &seen.message {
            activity.preview = Some(shorten(text, PREVIEW_CHARACTERS));
        }
    }

    /// Replaces the answer by this message, unless the message is empty.
    fn answer(&mut self, seen: EventFields<'_>) {
        let MessageField::Message(message) = seen.message else {
            return;
        };
        if message.role == "user" {
            self.images = message.content.iter().filter(|block| block.kind == "image").count();
        }
        let texts = message.content.iter().filter(|block| block.kind == "text");
        let text: String = texts.map(|block| block.text.as_ref()).collect();
        if message.role == "assistant" && !text.trim().is_empty() {
            self.assistant = Some(Assistant {
                id: format!("{}:message:{}", self.id, seen.event_index),
                text,
                completed_at: seen.timestamp,
                sources: Vec::new(),
                sentences: Vec::new(),
            });
        }
    }

    pub fn exchange(self, status: State, prompt: Option<Prompt>) -> Exchange {
        Exchange {
            id: self.id.clone(),
            submission_id: self.id,
            status,
            prompt: prompt.map(|prompt| Prompt { images: self.images, ..prompt }),
            activities: self.activities,
            assistant: self.assistant,
            error: None,
        }
    }
}
