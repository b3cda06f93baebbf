//! `ken-agent --replay`: runs a turn that has ended through the turn loop again. The answers of models and the results
//! of tools are taken from its record, and every step is compared with it. No socket is opened. With `--model`, another
//! model is really called, and its turn is compared with the recorded one. The results of its tool calls are taken from
//! the record, and no tool is executed.

mod compare;
mod evaluate;
mod journal;
mod ports;
mod tape;

#[cfg(test)]
pub(crate) use compare::difference;

use std::io::{Read, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use ken_types::error::wants_json_errors;
use ken_types::event::{Block, Body, Event, Judgement, Message, Outcome, StopReason};
use ken_types::ops::agent::Record;
use ken_types::ops::model::ModelState;
use ken_types::{Code, Error};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::runtime::Builder;

use crate::Flags;
use crate::background::Background;
use crate::ports::{Caller, Ports};
use crate::recorded::Continued;
use crate::share::Share;

/// The maximum size of a record or case, in bytes.
const MAX_CASE_BYTES: u64 = 256 * 1024 * 1024;

/// The document on standard input.
#[derive(Debug, Deserialize)]
pub(crate) struct Case {
    pub(crate) record: Record,
    pub(crate) events: Vec<Event>,
}

/// The parts of a turn in which two models can be compared.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Outline {
    pub(crate) outcome: Option<Outcome>,
    /// The verdict on the answer, if it was validated.
    pub(crate) verdict: Option<Judgement>,
    pub(crate) answer: String,
    /// The orchestrator's calls in order, each with name and arguments.
    pub(crate) tool_calls: Vec<Value>,
}

impl Outline {
    pub(crate) fn of<'a>(events: impl Iterator<Item = &'a Body>) -> Outline {
        let mut outline = Outline { outcome: None, verdict: None, answer: String::new(), tool_calls: Vec::new() };
        for body in events {
            match body {
                Body::MessageEnd { message: message @ Message::Assistant { content, stop_reason, .. } }
                    if !stop_reason.is_some_and(StopReason::is_incomplete) =>
                {
                    outline.answer = message.text();
                    outline.tool_calls.extend(content.iter().filter_map(call));
                }
                Body::Validation { verdict, .. } => outline.verdict = Some(*verdict),
                Body::SubmissionSettled { outcome, .. } => outline.outcome = Some(*outcome),
                _ => {}
            }
        }
        outline
    }
}

fn call(block: &Block) -> Option<Value> {
    match block {
        Block::ToolCall { name, arguments, .. } => Some(json!({"name": name, "arguments": arguments})),
        _ => None,
    }
}

pub(crate) fn is_requested() -> bool {
    std::env::args_os().skip(1).any(|word| word == "--replay")
}

pub(crate) fn run() -> ExitCode {
    let words = match Flags::try_parse() {
        Ok(words) => words,
        Err(shown) => {
            _ = shown.print();
            return if shown.use_stderr() { ExitCode::from(Code::Invalid.exit_status()) } else { ExitCode::SUCCESS };
        }
    };
    match replay(&words) {
        Ok(same) => ExitCode::from(u8::from(!same)),
        Err(error) => {
            let text =
                if wants_json_errors() { json!({ "error": error }).to_string() } else { format!("ken-agent: {error}") };
            _ = writeln!(std::io::stderr(), "{text}");
            ExitCode::from(error.code.exit_status())
        }
    }
}

/// Replays the case on standard input. Returns whether nothing differs.
fn replay(words: &Flags) -> Result<bool, Error> {
    let mut text = String::new();
    let mut input = std::io::stdin().lock().take(MAX_CASE_BYTES + 1);
    input.read_to_string(&mut text).map_err(|error| Error::invalid("", format!("standard input: {error}")))?;
    if text.len() as u64 > MAX_CASE_BYTES {
        return Err(Error::too_large(format!("a record has at most {MAX_CASE_BYTES} bytes")));
    }
    let mut case: Case = serde_json::from_str(&text)
        .map_err(|error| Error::invalid("", format!("standard input is not a record of a turn: {error}")))?;
    // A turn begins with the start of its operation.
    if let Some(Body::MessageStart { .. }) = case.events.first().map(|event| &event.body) {
        let why = "no model has made this turn: it is the result of a schedule that was delivered to the session";
        return Err(Error::invalid("", why).hint("`ken schedule runs` names the turns of its runs"));
    }
    for event in &mut case.events {
        // A replay runs no tools, so no process of ken-tools can be asked.
        if let Body::ToolStart { tools, .. } = &mut event.body {
            *tools = None;
        }
    }
    let share = Arc::new(Share::installed()?);
    let mut runtime = Builder::new_current_thread();
    runtime.enable_time();
    let failed = |error: std::io::Error| Error::internal(format!("no runtime: {error}"));
    match (&words.model, &words.model_socket) {
        (Some(model), Some(socket)) => {
            let runtime = runtime.enable_io().build().map_err(failed)?;
            runtime.block_on(evaluate::run(case, share, model, socket))
        }
        // This runtime has no I/O, so it cannot open a socket.
        _ => runtime.build().map_err(failed)?.block_on(compare::run(case, share)),
    }
}

/// The maximum duration of an evaluated turn.
const MAX_TURN_TIME: Duration = Duration::from_secs(600);

impl Case {
    /// Returns the background of the recorded turn. A replay has no store.
    async fn background(&self, ports: &Ports, caller: &Caller, state: &ModelState) -> Result<Background, Error> {
        let history = self.record.history.clone();
        Background::of(ports, caller, state.exchanges, history.into(), Continued::default()).await
    }

    /// Returns the state of a model that has the context window of the record.
    fn model_state(&self, models: Vec<String>) -> ModelState {
        ModelState {
            models,
            context_window: self.record.context_window,
            output_reserve: self.record.output_reserve,
            exchanges: 100,
            unusable: Vec::new(),
            embeds: None,
            others: Vec::new(),
        }
    }
}
