//! What a turn did, as a page that a person reads: its prompt, each call of a model and a tool, the approvals, the files
//! that changed, and the answer.

use std::collections::HashMap;

use ken_approval::{Request, decided};
use ken_client::{Gateway, Reader, message_text};
use ken_text::{visible, visible_line};
use ken_types::live_text::images_line;
use ken_types::ops::ids::FoundId;
use ken_types::uri::encode_segment;
use ken_types::{Code, Error, Timestamp};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::globals::Globals;
use crate::ids::{field, items};
use crate::output::{format_count, print_json, print_text};
use crate::undo;

/// The maximum number of approvals that are read one by one. Of more, the stream says enough.
const MAX_APPROVALS: usize = 100;
/// The maximum length of one argument of a call, and of an error, on the page, in characters. The remedy is at the end of an
/// error.
const MAX_SHOWN_CHARACTERS: usize = 80;
const MAX_ERROR: usize = 300;
/// The length of the beginning of an id of a commit that is shown.
const SHORT_COMMIT: usize = 10;

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Turn {
    kind: &'static str,
    id: String,
    session_id: String,
    status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    received_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    prompt: String,
    /// The number of images beside the prompt.
    images: u64,
    steps: Vec<Step>,
    answer: String,
    /// The sources that the answer names, with their numbers and scores.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sources: Vec<Value>,
    #[serde(skip_serializing_if = "Value::is_null")]
    usage: Value,
    /// The workspace or trusted folder, below which the paths are.
    #[serde(skip_serializing_if = "String::is_empty")]
    root: String,
    /// What `ken diff --json` says of it, without the diff itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    files: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refs: Vec<Value>,
    /// Why the files are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    files_error: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Step {
    /// The worker that did it; absent if the agent itself did.
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<String>,
    #[serde(flatten)]
    what: What,
}

#[derive(Debug, Serialize)]
#[serde(tag = "step", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum What {
    Model {
        model: String,
        /// With what was found in the provider's cache, which is `cached`.
        input: u64,
        cached: u64,
        output: u64,
        cost: f64,
        duration_ms: Option<u64>,
        error: Option<String>,
    },
    Tool {
        name: String,
        arguments: Value,
        duration_ms: Option<u64>,
        error: Option<String>,
    },
    Approval {
        id: String,
        summary: String,
        outcome: String,
        decided_at: String,
    },
    Check {
        verdict: String,
        violations: Vec<Value>,
        support: Option<f64>,
        scores: Value,
    },
    Note {
        text: String,
    },
}

pub(crate) fn show(globals: &Globals, gateway: &mut Gateway, found: &FoundId, as_json: bool) -> Result<(), Error> {
    let turn = read(globals, gateway, found)?;
    if as_json { print_json(&turn) } else { print_text(&page(globals, &turn)) }
}

fn read(globals: &Globals, gateway: &mut Gateway, found: &FoundId) -> Result<Turn, Error> {
    let session = found.session_id.clone().unwrap_or_default();
    let mut reading = Reading::default();
    let turn = &mut reading.turn;
    turn.kind = "turn";
    turn.id.clone_from(&found.id);
    turn.session_id.clone_from(&session);
    turn.received_at = found.at.to_string();
    turn.prompt = found.label.clone().unwrap_or_default();
    let offset = found.offset.map_or_else(|| "-1".to_owned(), |offset| offset.to_string());
    let target = format!("/agents/orchestrator/{}", encode_segment(&session));
    let mut reader = Reader::new(gateway.clone(), &target, &offset, None);
    loop {
        let page = reader.page(false)?;
        for event in page.messages()? {
            if field(&event, "submissionId") == found.id {
                reading.add(&event);
            }
        }
        if page.up_to_date || !reading.turn.status.is_empty() {
            break;
        }
    }
    reading.complete_approvals(gateway);
    let mut turn = reading.turn;
    if turn.status.is_empty() {
        let summary = gateway.get(&format!("/api/telemetry/runs/{}", encode_segment(&found.id)))?;
        field(&summary, "status").clone_into(&mut turn.status);
    }
    // The files are on this machine only if the gateway is.
    if globals.url.is_none() && turn.steps.iter().any(|step| matches!(step.what, What::Tool { .. })) {
        match undo::changes(globals, &found.id) {
            Ok(changes) => {
                field(&changes, "root").clone_into(&mut turn.root);
                turn.files = items(&changes, "files").to_vec();
                turn.refs = items(&changes, "refs").to_vec();
            }
            Err(error) if error.code == Code::NotFound => {}
            Err(error) => turn.files_error = Some(error.to_string()),
        }
    }
    Ok(turn)
}

/// A turn that is read event by event.
#[derive(Default)]
struct Reading {
    turn: Turn,
    /// The workers by the id of their task.
    workers: HashMap<String, String>,
    /// When each call of a model began, and where its step is.
    calls: HashMap<String, (Option<Timestamp>, Option<usize>)>,
    /// Where the step of each call of a tool is, by worker session and id.
    tools: HashMap<(String, String), usize>,
    approvals: HashMap<String, usize>,
}

impl Reading {
    fn add(&mut self, event: &Value) {
        let at: Option<Timestamp> = field(event, "timestamp").parse().ok();
        let is_root = event.get("parentSession").is_none();
        let call = field(event, "turnId").to_owned();
        let tool = || (field(event, "session").to_owned(), field(event, "toolCallId").to_owned());
        match field(event, "type") {
            "task_start" => {
                self.workers.insert(field(event, "taskId").to_owned(), field(event, "agent").to_owned());
            }
            "turn_start" => {
                self.calls.insert(call, (at, None));
            }
            "message_end" => self.add_message(event, at, is_root),
            "turn" => self.end_call(event, &call),
            "tool_start" => {
                let arguments = event.get("args").cloned().unwrap_or_default();
                let name = field(event, "toolName").to_owned();
                let at = self.push(event, What::Tool { name, arguments, duration_ms: None, error: None });
                self.tools.insert(tool(), at);
            }
            "tool" => {
                let at = self.tools.get(&tool()).and_then(|at| self.turn.steps.get_mut(*at));
                if let Some(Step { what: What::Tool { duration_ms, error, .. }, .. }) = at {
                    *duration_ms = event.get("durationMs").and_then(Value::as_u64);
                    *error = (event.get("isError") == Some(&Value::Bool(true))).then(|| result_text(event));
                }
            }
            "approval_requested" => {
                let id = field(event, "requestId").to_owned();
                let summary = field(event, "actionType").to_owned();
                let outcome = "waits for a decision".to_owned();
                let what = What::Approval { id: id.clone(), summary, outcome, decided_at: String::new() };
                let at = self.push(event, what);
                self.approvals.insert(id, at);
            }
            "approval_decided" => {
                let at = self.approvals.get(field(event, "requestId"));
                let step = at.and_then(|at| self.turn.steps.get_mut(*at));
                if let Some(Step { what: What::Approval { outcome, decided_at, .. }, .. }) = step {
                    *outcome = decided(field(event, "status"), field(event, "decidedBy"));
                    field(event, "timestamp").clone_into(decided_at);
                }
            }
            "validation" => {
                self.push(
                    event,
                    What::Check {
                        verdict: field(event, "verdict").to_owned(),
                        violations: items(event, "violations").to_vec(),
                        support: event.get("support").and_then(Value::as_f64),
                        scores: event.get("scores").cloned().unwrap_or_default(),
                    },
                );
            }
            "log" => self.note(event, field(event, "message").to_owned()),
            "compaction" => {
                let number = |name: &str| event.get(name).and_then(Value::as_u64).unwrap_or_default();
                let (before, after) = (number("messagesBefore"), number("messagesAfter"));
                self.note(event, format!("the history was shortened from {before} messages to {after}"));
            }
            "submission_resumed" => {
                let attempt = event.get("attempt").and_then(Value::as_u64).unwrap_or_default();
                self.note(event, format!("continued after an interruption (attempt {attempt})"));
            }
            "operation" if is_root => {
                let result = event.get("result").unwrap_or(&Value::Null);
                if !field(result, "text").is_empty() {
                    field(result, "text").clone_into(&mut self.turn.answer);
                }
                self.turn.sources = items(result, "sources").to_vec();
                self.turn.usage = event.get("usage").cloned().unwrap_or_default();
                self.turn.duration_ms = event.get("durationMs").and_then(Value::as_u64);
            }
            "submission_settled" => {
                field(event, "outcome").clone_into(&mut self.turn.status);
                self.turn.error = event.get("error").and_then(Value::as_str).map(str::to_owned);
            }
            _ => {}
        }
    }

    fn push(&mut self, event: &Value, what: What) -> usize {
        // The event of an approval is one of the agent itself, even if a worker asks.
        let is_worker = event.get("parentSession").is_some() || event.get("workerSession").is_some();
        let worker = self.workers.get(field(event, "taskId")).filter(|_| is_worker);
        self.turn.steps.push(Step { worker: worker.cloned(), what });
        self.turn.steps.len() - 1
    }

    fn note(&mut self, event: &Value, text: String) {
        self.push(event, What::Note { text });
    }

    fn add_message(&mut self, event: &Value, at: Option<Timestamp>, is_root: bool) {
        let message = event.get("message").unwrap_or(&Value::Null);
        match field(message, "role") {
            "user" if is_root => {
                message_text(event).clone_into(&mut self.turn.prompt);
                let images = items(message, "content").iter().filter(|block| field(block, "type") == "image");
                self.turn.images = images.count() as u64;
            }
            "assistant" => {
                if is_root && !message_text(event).is_empty() {
                    message_text(event).clone_into(&mut self.turn.answer);
                }
                let model = format!("{}/{}", field(message, "provider"), field(message, "model"));
                let usage = message.get("usage").unwrap_or(&Value::Null);
                let call = field(event, "turnId").to_owned();
                let began = self.calls.get(&call).and_then(|(began, _)| *began);
                // The event `turn` comes after the tools that the model has called, and counts their time.
                let duration_ms = began.zip(at).map(|(began, at)| at.millis().abs_diff(began.millis()));
                let step = self.push(event, model_call(model, usage, duration_ms, None));
                self.calls.insert(call, (began, Some(step)));
            }
            _ => {}
        }
    }

    /// Adds the failure of a model call, or the whole call if it has failed without a message.
    fn end_call(&mut self, event: &Value, call: &str) {
        let failure = event.get("error").filter(|error| !error.is_null());
        let failure = failure.map(|error| format!("{}: {}", field(error, "name"), field(error, "message")));
        let step = self.calls.get(call).and_then(|(_, step)| *step);
        match step.and_then(|step| self.turn.steps.get_mut(step)) {
            Some(Step { what: What::Model { error, .. }, .. }) => *error = failure,
            _ => {
                let model = format!("{}/{}", field(event, "provider"), field(event, "model"));
                let usage = event.get("usage").unwrap_or(&Value::Null);
                let took = event.get("durationMs").and_then(Value::as_u64);
                self.push(event, model_call(model, usage, took, failure));
            }
        }
    }

    /// Reads what was to be approved, and who decided. The stream holds only the name that this person gave.
    fn complete_approvals(&mut self, gateway: &mut Gateway) {
        for (id, step) in self.approvals.iter().take(MAX_APPROVALS) {
            let step = self.turn.steps.get_mut(*step);
            // Requests are removed some time after their end.
            let (Ok(record), Some(Step { what: What::Approval { summary, outcome, decided_at, .. }, .. })) =
                (gateway.approval(id), step)
            else {
                continue;
            };
            let Some(request) = Request::of(&record) else {
                continue;
            };
            *summary = request.summary;
            if let Some(known) = request.outcome {
                *outcome = known;
            }
            let known = record.pointer("/decision/decidedAt").and_then(Value::as_str);
            known.unwrap_or_default().clone_into(decided_at);
        }
    }
}

fn model_call(model: String, usage: &Value, duration_ms: Option<u64>, error: Option<String>) -> What {
    let number = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or_default();
    What::Model {
        model,
        // What a provider had already read is input, too.
        input: number("input") + number("cacheRead") + number("cacheWrite"),
        cached: number("cacheRead"),
        output: number("output"),
        cost: usage.pointer("/cost/total").and_then(Value::as_f64).unwrap_or_default(),
        duration_ms,
        error,
    }
}

fn result_text(event: &Value) -> String {
    let result = event.get("result").unwrap_or(&Value::Null);
    let texts = items(result, "content").iter().map(|block| field(block, "text"));
    texts.collect::<Vec<_>>().join(" ")
}

fn page(globals: &Globals, turn: &Turn) -> String {
    let took = turn.duration_ms.map_or_else(String::new, |ms| format!(" in {}", time(ms)));
    let mut text = format!("turn      {}\nsession   {}\n", visible_line(&turn.id), visible_line(&turn.session_id));
    text += &format!("received  {}\nstatus    {}{took}\n", turn.received_at, visible_line(&turn.status));
    if let Some(error) = &turn.error {
        text += &format!("error     {}\n", visible_line(error));
    }
    text += "\n";
    for line in visible(&turn.prompt).lines().chain(images_line(turn.images).lines()) {
        text += &format!("> {line}\n");
    }
    if !turn.steps.is_empty() {
        text += "\n";
    }
    let mut worker = None;
    for step in &turn.steps {
        if step.worker != worker {
            if let Some(name) = &step.worker {
                text += &format!("  {}:\n", visible_line(name));
            }
            worker.clone_from(&step.worker);
        }
        let indent = if worker.is_some() { "    " } else { "  " };
        for line in lines(&step.what) {
            text += &format!("{indent}{line}\n");
        }
    }
    if !turn.answer.is_empty() {
        text += &format!("\n{}\n", visible(turn.answer.trim_end()));
    }
    if !turn.sources.is_empty() {
        text += "\nsources\n";
        for source in &turn.sources {
            text += &format!("  {}\n", source_line(source));
        }
    }
    text += &changed(globals, turn);
    text += &format!("\nused      {}\n", used(turn));
    text
}

/// Returns a source as one line: its number, title, id and score.
pub(crate) fn source_line(source: &Value) -> String {
    let number = source.get("number").and_then(Value::as_u64).unwrap_or_default();
    let score = source.get("score").and_then(Value::as_f64).map_or_else(String::new, |score| format!("  {score:.2}"));
    format!("[{number}] {}  {}{score}", visible_line(field(source, "title")), visible_line(field(source, "id")))
}

fn lines(what: &What) -> Vec<String> {
    match what {
        What::Model { model, input, cached, output, cost, duration_ms, error } => {
            let cost = if *cost > 0.0 { format!(", ${cost:.4}") } else { String::new() };
            let took = duration_ms.map_or_else(String::new, |ms| format!(", {}", time(ms)));
            let tokens = tokens(*input, *cached, *output);
            let line = format!("model     {}  {tokens}{cost}{took}", visible_line(model));
            with_error(line, error.as_ref())
        }
        What::Tool { name, arguments, duration_ms, error } => {
            let took = duration_ms.map_or_else(|| "  (not ended)".to_owned(), |ms| format!("  {}", time(ms)));
            with_error(format!("tool      {}{}{took}", visible_line(name), arguments_line(arguments)), error.as_ref())
        }
        What::Approval { id, summary, outcome, decided_at } => {
            let at = if decided_at.is_empty() { String::new() } else { format!(", at {decided_at}") };
            let (id, summary) = (visible_line(id), visible_line(summary));
            vec![format!("approval  {id}  {summary}: {}{}", visible_line(outcome), visible_line(&at))]
        }
        What::Check { verdict, violations, support, scores } => {
            let support =
                support.map_or_else(String::new, |share| format!(", its sources support {:.0} %", share * 100.0));
            let scores = scores.as_object().map_or_else(String::new, scores_line);
            let mut lines = vec![format!("check     {}{support}{scores}", visible_line(verdict))];
            lines.extend(violations.iter().filter_map(Value::as_str).map(|why| format!("          {}", short(why))));
            lines
        }
        What::Note { text } => vec![format!("note      {}", short(text))],
    }
}

fn with_error(line: String, error: Option<&String>) -> Vec<String> {
    let error = error.map(|error| format!("          failed: {}", shortened(error, MAX_ERROR)));
    std::iter::once(line).chain(error).collect()
}

fn scores_line(scores: &Map<String, Value>) -> String {
    scores.iter().map(|(law, score)| format!(", {} {score}", visible_line(law))).collect()
}

/// Returns the arguments of a call in one line: ` name=value name="several words"`.
fn arguments_line(arguments: &Value) -> String {
    let Some(arguments) = arguments.as_object() else {
        return format!(" {}", short(&arguments.to_string()));
    };
    let value = |value: &Value| match value.as_str() {
        Some(word) if !word.is_empty() && !word.contains(char::is_whitespace) && !word.contains('"') => short(word),
        _ => short(&value.to_string()),
    };
    arguments.iter().map(|(name, argument)| format!(" {}={}", visible_line(name), value(argument))).collect()
}

fn short(text: &str) -> String {
    shortened(text, MAX_SHOWN_CHARACTERS)
}

fn shortened(text: &str, max: usize) -> String {
    let line = visible_line(text);
    match line.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

/// Returns the files and refs that the turn changed, and how they are shown and put back.
fn changed(globals: &Globals, turn: &Turn) -> String {
    let mut text = String::new();
    for file in &turn.files {
        let number = |name: &str| file.get(name).and_then(Value::as_u64);
        let lines = number("added").zip(number("removed")).map(|(added, removed)| format!("  +{added} -{removed}"));
        let since = if file.get("current") == Some(&Value::Bool(false)) { ", changed since" } else { "" };
        let (path, action) = (visible_line(field(file, "path")), visible_line(field(file, "action")));
        text += &format!("  {path}{}  ({action}{since})\n", lines.unwrap_or_default());
    }
    for change in &turn.refs {
        let [before, after] = ["before", "after"].map(|name| match field(change, name) {
            "" => "none".to_owned(),
            commit => visible_line(commit).chars().take(SHORT_COMMIT).collect(),
        });
        // The path of a trusted folder that is a repository itself is empty.
        let repo = Some(field(change, "repo")).filter(|repo| !repo.is_empty()).unwrap_or(&turn.root);
        let (repo, name) = (visible_line(repo), visible_line(field(change, "name")));
        text += &format!("  {name} of {repo}: {before} to {after}\n");
    }
    if !text.is_empty() {
        let (ken, id) = (globals.command(), &turn.id);
        text = format!("\nchanged\n{text}  `{ken} diff {id}` shows it, `{ken} undo {id}` undoes it\n");
    }
    if let Some(error) = &turn.files_error {
        text += &format!("\nchanged   not known: {}\n", visible_line(error));
    }
    text
}

fn used(turn: &Turn) -> String {
    let mut calls = (0, 0);
    let (mut input, mut cached, mut output, mut cost) = (0, 0, 0, 0.0);
    for step in &turn.steps {
        match &step.what {
            What::Model { input: read, cached: kept, output: written, cost: price, .. } => {
                calls.0 += 1;
                input += read;
                cached += kept;
                output += written;
                cost += price;
            }
            What::Tool { .. } => calls.1 += 1,
            _ => {}
        }
    }
    let cost = if cost > 0.0 { format!(", ${cost:.4}") } else { String::new() };
    let models = format_count(calls.0, "model call", "model calls");
    let tools = format_count(calls.1, "tool call", "tool calls");
    format!("{models}, {tools}, {}{cost}", tokens(input, cached, output))
}

fn tokens(input: u64, cached: u64, output: u64) -> String {
    let cached = if cached > 0 { format!(" ({cached} cached)") } else { String::new() };
    format!("{input} tokens in{cached}, {output} out")
}

fn time(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        _ => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_stand_in_one_line_that_shows_everything() {
        let arguments = json!({"cmd": ["a", "b"], "path": "x.sh", "text": "two words\n\u{202e}\u{1b}[2J", "empty": ""});
        let line = arguments_line(&arguments);
        assert_eq!(line, r#" cmd=["a","b"] empty="" path=x.sh text="two words\n<U+202E>\u001b[2J""#);
        assert_eq!(short(&"é".repeat(81)), format!("{}…", "é".repeat(80)));
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        for (ms, text) in [(0, "0 ms"), (999, "999 ms"), (4_679, "4.6 s"), (61_000, "1 min 1 s")] {
            assert_eq!(time(ms), text);
        }
    }

    #[test]
    fn only_lines_that_are_the_turns_own_are_counted() {
        let turn = Turn {
            id: "t".to_owned(),
            root: "/home/me/site".to_owned(),
            files: vec![
                json!({"path": "a", "action": "changed", "added": 2, "removed": 1, "current": true}),
                json!({"path": "b", "action": "changed", "added": null, "removed": null, "current": false}),
                json!({"path": "c", "action": "removed", "added": 0, "removed": 3, "current": false}),
            ],
            refs: vec![
                json!({"repo": "", "name": "refs/heads/main", "before": null, "after": "0123456789abcdef"}),
                json!({"repo": "sub", "name": "refs/heads/main", "before": "0123456789abcdef", "after": null}),
            ],
            ..Turn::default()
        };
        let globals = Globals { home: None, url: None, secret_file: None, raw: false };
        assert_eq!(
            changed(&globals, &turn),
            "\nchanged\n  a  +2 -1  (changed)\n  b  (changed, changed since)\n  c  +0 -3  (removed, changed since)\n  \
             refs/heads/main of /home/me/site: none to 0123456789\n  refs/heads/main of sub: 0123456789 to none\n  \
             `ken diff t` shows it, `ken undo t` undoes it\n"
        );
    }

    #[test]
    fn a_failed_model_call_is_one_step_with_its_error() {
        let mut reading = Reading::default();
        for event in [
            json!({"type": "turn_start", "turnId": "t1", "timestamp": "2027-02-03T04:05:06.000Z"}),
            json!({"type": "turn", "turnId": "t1", "provider": "p", "model": "m", "durationMs": 7,
                "isError": true, "error": {"name": "busy", "message": "later"}}),
            json!({"type": "turn_start", "turnId": "t2", "timestamp": "2027-02-03T04:05:07.000Z"}),
            json!({"type": "message_end", "turnId": "t2", "timestamp": "2027-02-03T04:05:07.250Z", "message": {
                "role": "assistant", "provider": "p", "model": "n", "content": [{"type": "text", "text": "Hi."}],
                "usage": {"input": 5, "cacheRead": 2, "output": 1, "cost": {"total": 0.5}}}}),
            json!({"type": "turn", "turnId": "t2", "provider": "p", "model": "n", "durationMs": 9000}),
            json!({"type": "submission_settled", "outcome": "completed"}),
        ] {
            reading.add(&event);
        }
        let shown: Vec<String> = reading.turn.steps.iter().flat_map(|step| lines(&step.what)).collect();
        assert_eq!(
            shown,
            [
                "model     p/m  0 tokens in, 0 out, 7 ms",
                "          failed: busy: later",
                "model     p/n  7 tokens in (2 cached), 1 out, $0.5000, 250 ms",
            ]
        );
        assert_eq!((reading.turn.status.as_str(), reading.turn.answer.as_str()), ("completed", "Hi."));
        assert_eq!(used(&reading.turn), "2 model calls, 0 tool calls, 7 tokens in (2 cached), 1 out, $0.5000");
    }
}
