//! One change on its way into the tables, and what is told once it is durable.

use std::sync::Arc;

use ken_types::Timestamp;
use ken_types::id::SubmissionId;
use ken_types::ops::store::{Lease, SubmissionStatus, Work};
use ken_types::ops::streams::Payload;
use serde_json::Value;

use crate::ConnectionId;

/// The time of a change, and its effects so far.
#[derive(Debug, Default)]
pub struct Change {
    pub now: Timestamp,
    pub effects: Vec<Effect>,
}

impl Change {
    pub(crate) fn at(now: Timestamp) -> Change {
        Change { now, effects: Vec::new() }
    }

    pub(crate) fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Something for the system's stream: its type and its fields, an object.
    pub(crate) fn tell(&mut self, kind: &'static str, fields: Value) {
        self.push(Effect::Happened(kind, fields));
    }
}

/// What waiters and the lease table learn after the commit.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Entries were added to a stream.
    Appended(Arc<NewEntries>),
    /// A submission was settled, or began or ceased to wait for a decision.
    Status(Arc<SubmissionStatus>),
    /// A request for an approval was made or has ended.
    Approval(String),
    /// There is work that may be claimed.
    Opened(Work),
    /// Something for the system's stream. Written before the commit.
    Happened(&'static str, Value),
    /// The holder shall end this submission as aborted.
    AbortWanted(SubmissionId),
    /// The holder lives, on this connection.
    Renewed { lease: Lease, connection: ConnectionId },
    /// Nobody holds this lease any more.
    LeaseOver(Lease),
    /// There is background work.
    Background,
    /// There will be background work then.
    Expires(Timestamp),
    /// A stream was closed or deleted.
    Changed(String),
    /// A message of the outbox may be sent.
    Outgoing,
    /// Documents are to be read, or entries have no vector yet.
    Documents,
}

/// Entries as they were added to a stream, the first of them after `first` others.
#[derive(Debug)]
pub struct NewEntries {
    pub stream: String,
    pub first: u64,
    pub payload: Payload,
}

/// What background work is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    Nothing,
    More,
    /// Not before then.
    At(Timestamp),
}
