//! The engine `script`, for tests. It replays the file that `KEN_SCRIPT` names, in the format of ken-model(8).
//!
//! It keeps no state. The line to replay depends only on the request, so a ken-model that was killed gives the same
//! answer again. The file is read at every call, so a test can change it between two calls.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ken_types::event::{Message, ModelName, Purpose, StopReason, Usage, estimated_tokens};
use ken_types::ops::model::{Delta, Generate};
use ken_types::{Code, Error};
use serde::Deserialize;
use serde_json::Value;

use crate::provider::{Completion, DeltaSink, Pending, Provider};
use crate::question;
use crate::remote;
use crate::usage::estimate;

#[derive(Debug)]
pub(crate) struct Script {
    name: ModelName,
    file: PathBuf,
}

impl Script {
    /// Reads the script. Fails if the file cannot be read or has a wrong line, so that a bad script is noticed at
    /// start-up.
    pub(crate) fn open(model: &str, file: PathBuf) -> Result<Script, Error> {
        read(&file)?;
        let name = ModelName { provider: "script".into(), id: model.into() };
        Ok(Script { name, file })
    }

    async fn replay(&self, request: &Generate, sink: &dyn DeltaSink) -> Result<Completion, Error> {
        let facts = RequestFacts::of(request, &self.name.id);
        let line = read(&self.file)?.into_iter().find(|line| line.matches(&facts));
        let line = line.ok_or_else(|| {
            let message = format!("no line of {} fits this request", self.file.display());
            Error::invalid("KEN_SCRIPT", message)
        })?;
        let mut stage = Replay { sink, to_skip: &request.prefix, calls: facts.after_tools, output: 0, stop: None };
        for step in line.events {
            stage.play(step).await?;
        }
        let usage = line.usage.unwrap_or_else(|| estimate(request, stage.output));
        Ok(Completion { stop_reason: stage.stop.unwrap_or(StopReason::Stop), usage })
    }
}

impl Provider for Script {
    fn api(&self) -> &'static str {
        "script"
    }

    fn name(&self) -> &ModelName {
        &self.name
    }

    fn answer<'a>(&'a self, request: &'a Generate, sink: &'a dyn DeltaSink) -> Pending<'a, Result<Completion, Error>> {
        Box::pin(self.replay(request, sink))
    }
}

/// The properties of a request to which a line can be limited.
struct RequestFacts<'a> {
    text: String,
    purpose: Purpose,
    model: &'a str,
    after_tools: usize,
}

impl<'a> RequestFacts<'a> {
    fn of(request: &Generate, model: &'a str) -> RequestFacts<'a> {
        let from_user = |message: &&Message| matches!(message, Message::User { .. } | Message::Signal { .. });
        let since = request.messages.iter().rev().take_while(|message| !from_user(message));
        let results = since.filter(|message| matches!(message, Message::ToolResult { .. }));
        RequestFacts { text: question::last(request), purpose: request.purpose, model, after_tools: results.count() }
    }
}

/// One line of the file: the requests that it matches, and its answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default)]
    when: Option<String>,
    #[serde(default)]
    purpose: Option<Purpose>,
    #[serde(default)]
    after_tools: Option<usize>,
    #[serde(default)]
    model: Option<String>,
    events: Vec<Step>,
    #[serde(default)]
    usage: Option<Usage>,
}

impl Line {
    fn matches(&self, facts: &RequestFacts<'_>) -> bool {
        let when = self.when.as_deref();
        when.is_none_or(|part| facts.text.contains(part))
            && self.purpose.is_none_or(|purpose| purpose == facts.purpose)
            && self.after_tools.is_none_or(|count| count == facts.after_tools)
            && self.model.as_ref().is_none_or(|model| model == facts.model)
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Step {
    Text(String),
    Think(String),
    SleepMs(u64),
    Tool {
        name: String,
        #[serde(default)]
        arguments: Value,
        #[serde(default)]
        id: Option<String>,
    },
    Error {
        class: Class,
        message: String,
    },
    Stop(ScriptedStop),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ScriptedStop {
    Stop,
    Length,
}

/// The classes of provider errors, named as in ken-model(8).
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Class {
    Overloaded,
    Network,
    Auth,
    Invalid,
    ContextOverflow,
    Internal,
}

impl Class {
    fn code(self) -> Code {
        match self {
            Class::Overloaded => Code::Busy,
            Class::Network => Code::Unavailable,
            Class::Auth => Code::Unauthenticated,
            Class::Invalid => Code::Invalid,
            Class::ContextOverflow => Code::TooLarge,
            Class::Internal => Code::Internal,
        }
    }
}

struct Replay<'a> {
    sink: &'a dyn DeltaSink,
    /// The text that was already sent before a crash. It is not sent again, and its pauses are left out.
    to_skip: &'a str,
    calls: usize,
    output: u64,
    stop: Option<StopReason>,
}

impl Replay<'_> {
    async fn play(&mut self, step: Step) -> Result<(), Error> {
        match step {
            Step::Text(text) => self.send_text(&text).await,
            Step::Think(delta) if self.to_skip.is_empty() => {
                self.output += estimated_tokens(&delta);
                self.sink.send(Delta::Think { delta, opaque: None }).await
            }
            Step::SleepMs(ms) if self.to_skip.is_empty() => {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                Ok(())
            }
            Step::Think(_) | Step::SleepMs(_) => Ok(()),
            Step::Tool { name, arguments, id } => self.call(name, arguments, id).await,
            Step::Error { class, message } => Err(Error::new(class.code(), message)),
            Step::Stop(stop) => {
                self.stop = Some(match stop {
                    ScriptedStop::Stop => StopReason::Stop,
                    ScriptedStop::Length => StopReason::Length,
                });
                Ok(())
            }
        }
    }

    async fn send_text(&mut self, text: &str) -> Result<(), Error> {
        let pairs = text.bytes().zip(self.to_skip.bytes());
        let common = pairs.take_while(|(a, b)| a == b).count();
        let skipped = ken_text::head(text, common).len();
        self.to_skip = self.to_skip.get(skipped..).unwrap_or_default();
        let delta = text.get(skipped..).unwrap_or_default().to_owned();
        self.output += estimated_tokens(&delta);
        if delta.is_empty() { Ok(()) } else { self.sink.send(Delta::Text { delta }).await }
    }

    async fn call(&mut self, name: String, arguments: Value, id: Option<String>) -> Result<(), Error> {
        self.calls += 1;
        let id = id.unwrap_or_else(|| format!("call_{}", self.calls));
        self.stop = Some(StopReason::ToolUse);
        let arguments = remote::arguments(&arguments.to_string());
        self.sink.send(Delta::ToolCall { id, name, arguments }).await
    }
}

fn read(file: &Path) -> Result<Vec<Line>, Error> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        let message = format!("the script {} cannot be read: {error}", file.display());
        Error::invalid("KEN_SCRIPT", message)
    })?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parsed = lines.map(|(index, line)| {
        serde_json::from_str(line).map_err(|error| {
            let message = format!("{}:{}: {error}", file.display(), index + 1);
            Error::invalid("KEN_SCRIPT", message).hint("ken-model(8), SCRIPT, has the format")
        })
    });
    parsed.collect()
}
