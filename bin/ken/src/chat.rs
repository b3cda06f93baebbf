//! `ken chat`: one turn, printed as it is said.

use std::io::{IsTerminal, Read};
use std::process::ExitCode;

use ken_types::limits::PROMPT_BYTES;
use ken_types::places::Places;
use ken_types::{Code, Error, json};
use serde_json::{Value, json};

use crate::cli::Chat;
use crate::gateway::Gateway;
use crate::output::{Outcome, put, remark, say, say_json};

/// The identity of a person at this machine's terminal, which `ken` and the terminal client share.
const IDENTITY: &str = "local-tui";

pub(crate) fn run(places: &Places, chat: &Chat) -> Outcome {
    let text = text(chat)?;
    let gateway = Gateway::find(places)?;
    let session = session(&gateway, chat)?;
    let mut body = identity();
    insert(&mut body, "session", session.as_str());
    insert(&mut body, "text", &text);
    let accepted = gateway.post("/api/chat/events", &body)?;
    match accepted.get("submissionId").and_then(Value::as_str) {
        Some(submission) => follow(&gateway, &accepted, submission, chat.events)?,
        // A command is done at once and has no turn.
        None => say(&field(&accepted, "/result/text"))?,
    }
    if chat.session.is_none() && std::io::stderr().is_terminal() {
        remark(&format!("to go on: ken chat --session {session} TEXT"));
    }
    Ok(ExitCode::SUCCESS)
}

/// The words of the command line, or standard input when there are none.
fn text(chat: &Chat) -> Result<String, Error> {
    if chat.text.iter().any(|word| word != "-") {
        return Ok(chat.text.join(" "));
    }
    let input = std::io::stdin();
    if input.is_terminal() {
        return Err(
            Error::invalid("TEXT", "nothing to say").hint("ken chat TEXT, or a text on standard input")
        );
    }
    let mut text = String::new();
    let read = input.take(PROMPT_BYTES as u64 + 1).read_to_string(&mut text);
    read.map_err(|error| Error::invalid("-", format!("standard input: {error}")))?;
    Ok(text)
}

fn identity() -> Value {
    json!({"connector": "tui", "actorId": IDENTITY, "conversationId": IDENTITY})
}

fn insert(body: &mut Value, name: &str, value: &str) {
    if let Value::Object(fields) = body {
        fields.insert(name.to_owned(), value.into());
    }
}

/// The session that was asked for, else a fresh one.
fn session(gateway: &Gateway, chat: &Chat) -> Result<String, Error> {
    match &chat.session {
        Some(selector) => Ok(selector.clone()),
        None => Ok(field(
            &gateway.post("/api/chat/sessions", &identity())?,
            "/session/id",
        )),
    }
}

fn field(value: &Value, pointer: &str) -> String {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

/// Reads the turn's events from before its first to its last. A connection that breaks is taken up where it ended.
fn follow(gateway: &Gateway, accepted: &Value, submission: &str, raw: bool) -> Result<(), Error> {
    let url = field(accepted, "/streamUrl");
    let mut turn = Turn {
        submission,
        raw,
        offset: field(accepted, "/offset"),
        said: false,
    };
    for _ in 0..RECONNECTS {
        let lines = gateway.lines(&format!("{url}?offset={}&live=sse", turn.offset))?;
        if turn.read(lines)? {
            return Ok(());
        }
    }
    Err(Error::unavailable(format!(
        "the stream {url} breaks off again and again"
    )))
}

const RECONNECTS: u32 = 100;

/// What is shown of one submission.
struct Turn<'a> {
    submission: &'a str,
    raw: bool,
    offset: String,
    said: bool,
}

impl Turn<'_> {
    /// Reads frames until the turn is settled (true) or the connection ends (false).
    fn read(&mut self, lines: impl Iterator<Item = std::io::Result<String>>) -> Result<bool, Error> {
        let mut settled = false;
        for line in lines {
            let Ok(line) = line else { return Ok(settled) };
            let Some(data) = line.strip_prefix("data:") else {
                continue;
            };
            match json::parse(data.as_bytes(), json::MAX_DEPTH + 2)? {
                Value::Array(events) => {
                    for event in events {
                        settled |= self.show(&event)?;
                    }
                }
                control => self.offset = field(&control, "/streamNextOffset"),
            }
            if settled {
                return Ok(true);
            }
        }
        Ok(settled)
    }

    /// Shows an event of this submission; true for its last.
    fn show(&mut self, event: &Value) -> Result<bool, Error> {
        if event.get("submissionId").is_none_or(|id| id != self.submission) {
            return Ok(false);
        }
        if self.raw {
            say_json(event)?;
        }
        match field(event, "/type").as_str() {
            "text_delta" if !self.raw && event.get("parentSession").is_none() => {
                self.said = true;
                put(&field(event, "/text")).map(|()| false)
            }
            "tool_start" if std::io::stderr().is_terminal() => {
                remark(&format!("[{}]", field(event, "/toolName")));
                Ok(false)
            }
            "submission_settled" => self.settle(event).map(|()| true),
            _ => Ok(false),
        }
    }

    fn settle(&self, event: &Value) -> Result<(), Error> {
        if self.said {
            put("\n")?;
        }
        let why = || {
            event
                .get("error")
                .and_then(Value::as_str)
                .unwrap_or("the turn failed")
                .to_owned()
        };
        match field(event, "/outcome").as_str() {
            "completed" => Ok(()),
            "aborted" => Err(Error::cancelled("the turn was cancelled")),
            _ => Err(Error::new(Code::Unavailable, why())),
        }
    }
}
