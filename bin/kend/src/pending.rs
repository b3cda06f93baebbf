//! What an open request waits for. This is checked after each event, not at intervals.

use crate::cursor::Cursor;
use crate::reports::Kind;

pub(crate) enum Pending {
    AllReady,
    Ready {
        name: String,
        /// Only a process started after this many starts counts.
        after: u64,
    },
    Stopped {
        name: String,
        /// The other parts that are stopped with it.
        also: Vec<String>,
    },
    /// All parts have stopped.
    Down,
    Logs {
        name: String,
        lines: u32,
        /// What had been accepted when the request came. It is waited for, because it may not be in the file yet.
        until: u64,
        /// `None` until then.
        cursor: Option<Cursor>,
        follow: bool,
    },
    Command {
        number: u64,
        kind: Kind,
    },
}

impl Pending {
    /// Whether the timeout of the request ends it.
    pub(crate) fn has_deadline(&self) -> bool {
        !matches!(self, Pending::Down | Pending::Logs { .. })
    }
}
