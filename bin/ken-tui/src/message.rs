//! Messages from outside the state, and actions to carry out there.

use std::time::Duration;

use ken_client::approvals::Decision;
use ken_client::chat::{Image, Session};
use ken_types::Error;
use serde_json::Value;

use crate::input::Event;

/// Something that happened.
#[derive(Debug)]
pub(crate) enum Message {
    Terminal(Event),
    /// The wheel of the mouse, in lines; down is positive.
    Wheel(i64),
    Resized,
    /// A row of the start-up report.
    Preflight(String),
    Opened(Result<Session, Error>),
    /// Events of a session's stream. After a change of the session those of the old one have an older epoch.
    Stream {
        epoch: u64,
        events: Vec<Value>,
    },
    StreamEnded {
        epoch: u64,
        error: Error,
    },
    Page {
        epoch: u64,
        older: bool,
        page: Result<Value, Error>,
    },
    /// A prompt or a command was accepted, or was refused for good.
    Sent {
        id: u64,
        answer: Result<Value, Error>,
    },
    /// A request is being repeated.
    Trouble(String),
    Sessions(Result<Value, Error>),
    Approvals(Vec<Value>),
    Approval(Value),
    Decided {
        request: String,
        answer: Result<Value, Error>,
    },
    /// The parts that are not ready; empty when all are.
    Parts(Vec<String>),
    Failed {
        what: &'static str,
        error: Error,
    },
    Edited(Option<String>),
    /// A file that goes with the next prompt.
    Attached(Result<Attachment, Error>),
    History(Vec<String>),
    /// Colours of code that was shown without them are ready.
    Coloured,
    Tick,
}

/// The session to open at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Selector {
    Fresh,
    Named(String),
    Last,
}

/// A file that goes with a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attachment {
    pub(crate) name: String,
    pub(crate) content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// Becomes part of the prompt's text.
    Text(String),
    Image(Image),
}

/// A prompt on its way to the gateway.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    /// The client's own number for it.
    pub(crate) id: u64,
    pub(crate) key: String,
    pub(crate) session: String,
    pub(crate) text: String,
    pub(crate) images: Vec<Image>,
    pub(crate) workflow: Option<String>,
}

#[derive(Debug)]
pub(crate) enum Effect {
    Open(Selector),
    Attach {
        epoch: u64,
        session: String,
        offset: String,
    },
    Page {
        epoch: u64,
        session: String,
        before: Option<String>,
    },
    Send(Box<Outgoing>),
    Cancel {
        session: String,
    },
    Sessions {
        after: Option<String>,
    },
    Approvals,
    Approval {
        request: String,
    },
    Decide {
        request: String,
        decision: Decision,
    },
    Parts,
    /// Puts a text on the clipboard of the terminal.
    Copy(String),
    /// Notifies a person whose attention is elsewhere.
    Notify(&'static str),
    /// Opens the editor of the environment on a text.
    Edit(String),
    /// Reads a file to attach.
    ReadFile(String),
    LoadHistory,
    Remember(String),
    Suspend,
    /// Paints every cell anew.
    Repaint,
    Log(&'static str),
    Quit(u8),
}

/// How long a turn may be silent before the client asks which part is missing.
pub(crate) const SILENCE: Duration = Duration::from_secs(2);
