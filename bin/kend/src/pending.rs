//! What an open request waits for. Looked at whenever something has happened, never by the clock.

use crate::cursor::Cursor;

pub(crate) enum Pending {
    AllReady,
    Ready {
        name: String,
        /// Only a process after this many starts counts.
        after: u64,
    },
    Stopped {
        name: String,
        /// The parts that are stopped with it.
        also: Vec<String>,
    },
    /// kend itself has stopped.
    Down,
    Logs {
        name: String,
        cursor: Cursor,
        follow: bool,
    },
}

impl Pending {
    /// Whether the deadline of the request ends it.
    pub(crate) fn has_deadline(&self) -> bool {
        !matches!(self, Pending::Down | Pending::Logs { .. })
    }
}
