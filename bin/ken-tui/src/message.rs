//! Messages that change the state, and effects that the state requests. The state itself does no I/O.

use std::path::PathBuf;
use std::time::Duration;

use ken_approval::Request;
use ken_client::approvals::Decision;
use ken_client::chat::{Image, Prompt, Session};
use ken_types::Error;
use serde_json::Value;

use crate::input::Event;

/// A row of the start-up report.
#[derive(Debug)]
pub(crate) struct Preflight {
    pub(crate) text: String,
    pub(crate) is_problem: bool,
}

impl Preflight {
    pub(crate) fn fact(text: impl Into<String>) -> Preflight {
        Preflight { text: text.into(), is_problem: false }
    }

    pub(crate) fn problem(text: impl Into<String>) -> Preflight {
        Preflight { text: text.into(), is_problem: true }
    }
}

/// What `/ready` reports.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    /// The parts that are not ready; empty when all are.
    pub(crate) waiting: Vec<String>,
    /// The providers that are down while another model answers, each with its cause and since when.
    pub(crate) degraded: Vec<String>,
}

/// An event that changes the state.
#[derive(Debug)]
pub(crate) enum Message {
    Terminal(Event),
    /// The mouse wheel, in lines; positive is down.
    Wheel(i64),
    Resized,
    /// A row of the start-up report.
    Preflight(Preflight),
    Opened(Result<Session, Error>),
    /// Events of a session's stream. The epoch increases with each change of session, so late events of an earlier
    /// session can be recognised.
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
    /// A prompt or a command was accepted, or was refused permanently.
    Sent {
        id: u64,
        answer: Result<Value, Error>,
    },
    /// A request is being repeated.
    Trouble(String),
    Sessions(Result<Value, Error>),
    Approvals(Vec<Value>),
    /// A request with all of its diff.
    Approval(Box<Request>),
    Decided {
        request: String,
        answer: Result<Value, Error>,
    },
    Readiness(Readiness),
    Failed {
        what: &'static str,
        error: Error,
    },
    Edited(Option<String>),
    /// A file to send with the next prompt.
    Attached(Result<Attachment, Error>),
    History(Vec<String>),
    /// The files of the folder, relative to it. `cut` says that there are more.
    Files {
        paths: Vec<String>,
        cut: bool,
    },
    /// Colours of code that is shown without them are ready.
    Coloured,
    Tick,
}

/// The session to open when the client starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Selector {
    /// A new one, in this trusted folder or else in the workspace of the system.
    Fresh(Option<PathBuf>),
    Named(String),
    Last,
}

/// A file that is sent with a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attachment {
    pub(crate) name: String,
    pub(crate) content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// A text that becomes part of the prompt.
    Text(String),
    Image(Image),
}

/// A call of the gateway whose answer becomes a [`Message`].
#[derive(Debug)]
pub(crate) enum Call {
    Page {
        epoch: u64,
        session: String,
        before: Option<String>,
    },
    Send {
        /// The number that the client uses for it.
        id: u64,
        prompt: Box<Prompt>,
    },
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
}

#[derive(Debug)]
pub(crate) enum Effect {
    Open(Selector),
    Attach {
        epoch: u64,
        session: String,
        offset: String,
    },
    /// Calls the gateway.
    Call(Call),
    /// Copies a text to the terminal's clipboard.
    Copy(String),
    /// Notifies the person when the terminal is not in focus.
    Notify(&'static str),
    /// Opens the editor (VISUAL or EDITOR) with a text.
    Edit(String),
    ReadFile(String),
    /// Lists the files of the current folder.
    ListFiles,
    LoadHistory,
    /// Adds a text to the history.
    Remember {
        text: String,
        session: String,
    },
    /// Removes the texts of a session from the history.
    Forget {
        session: String,
    },
    /// Removes the texts of all sessions from the history that were deleted for good, by whomever.
    ForgetDeleted,
    Suspend,
    /// Paints every cell again.
    Repaint,
    Log(&'static str),
    Quit(u8),
}

/// How long a turn can be without events before the client asks which parts are not ready.
pub(crate) const SILENCE_TIMEOUT: Duration = Duration::from_secs(2);
