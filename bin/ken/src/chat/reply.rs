//! The reply to a prompt, and how it is printed: as it arrives, as events, or when it is complete.

use ken_client::chat::Accepted;
use ken_client::{LiveText, message_text};
use ken_types::Error;
use serde::Serialize;
use serde_json::{Value, json};

use super::Chat;
use crate::output::{print_json, print_line, print_text};

/// A reply, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct Reply {
    /// The text of the agent's last message, or what a slash command says.
    pub(super) text: Option<String>,
    /// The model that answered, as `{provider, id}`.
    model: Option<Value>,
    usage: Option<Value>,
    /// The sources that the text names.
    sources: Option<Value>,
    pub(super) session: Option<String>,
    /// `None` for a slash command, which is answered at once and starts no turn.
    pub(super) submission: Option<String>,
}

impl Reply {
    pub(super) fn of(accepted: &Accepted) -> Reply {
        let submission = accepted.turn().map(|turn| turn.submission);
        let text = if submission.is_some() { Some(String::new()) } else { accepted.result() };
        Reply { text, session: accepted.session(), submission, ..Reply::default() }
    }

    pub(super) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    /// Takes what an event of the agent itself adds to it.
    pub(super) fn add(&mut self, event: &Value) {
        let field = |name: &str| event.get(name).cloned().unwrap_or_default();
        match event.get("type").and_then(Value::as_str).unwrap_or_default() {
            "turn" => self.model = Some(json!({"provider": field("provider"), "id": field("model")})),
            // The last message of the turn wins.
            "message_end" if event.pointer("/message/role").and_then(Value::as_str) == Some("assistant") => {
                self.text = Some(message_text(event).to_owned());
            }
            "operation" => {
                self.usage = event.get("usage").cloned();
                self.sources = event.pointer("/result/sources").cloned();
            }
            _ => {}
        }
    }

    /// Returns the JSON object of `--json` with this answer. The model and the usage are null for a slash command.
    pub(super) fn record<A: Serialize>(&self, answer: A) -> Record<'_, A> {
        Record {
            answer,
            model: self.model.as_ref(),
            session_id: self.session.as_deref(),
            sources: self.sources.clone().unwrap_or_else(|| json!([])),
            submission_id: self.submission.as_deref(),
            usage: self.usage.as_ref(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record<'a, A> {
    answer: A,
    model: Option<&'a Value>,
    session_id: Option<&'a str>,
    sources: Value,
    submission_id: Option<&'a str>,
    usage: Option<&'a Value>,
}

pub(super) enum Presenter {
    /// The text as it arrives.
    Live(LiveText),
    /// Every event, one JSON object per line.
    Events,
    /// All of it at the end: the text, or a record.
    AtEnd { as_json: bool },
}

impl Presenter {
    pub(super) fn of(chat: &Chat) -> Presenter {
        if chat.events {
            Presenter::Events
        } else if chat.json || chat.no_stream || chat.schema.is_some() {
            Presenter::AtEnd { as_json: chat.json }
        } else {
            Presenter::Live(LiveText::default())
        }
    }

    pub(super) fn event(&mut self, event: &Value) -> Result<(), Error> {
        match self {
            Presenter::Live(live) => print_text(&live.add(event)),
            Presenter::Events => print_json(event),
            Presenter::AtEnd { .. } => Ok(()),
        }
    }

    /// Ends the line of the text, so that something else can be printed.
    pub(super) fn end_line(&mut self) -> Result<(), Error> {
        match self {
            Presenter::Live(live) => print_text(live.end_line()),
            Presenter::Events | Presenter::AtEnd { .. } => Ok(()),
        }
    }

    /// Whether a line of the text is only partly printed.
    pub(super) fn is_in_line(&self) -> bool {
        matches!(self, Presenter::Live(live) if live.is_in_line())
    }

    /// Whether nothing is printed before the end.
    pub(super) fn is_silent(&self) -> bool {
        matches!(self, Presenter::AtEnd { .. })
    }

    /// Prints what the events have not shown: the whole reply, or that of a slash command, which has no events.
    pub(super) fn finish(&self, reply: &Reply) -> Result<(), Error> {
        match self {
            Presenter::Live(_) | Presenter::Events if reply.submission.is_some() => Ok(()),
            Presenter::AtEnd { as_json: true } | Presenter::Events => print_json(&reply.record(&reply.text)),
            _ => print_line(reply.text()),
        }
    }
}
