//! One change to the tables, and its effects, which are reported once it is durable.

use std::sync::Arc;

use ken_types::Timestamp;
use ken_types::id::SubmissionId;
use ken_types::ops::store::{Lease, SubmissionStatus, Work};
use ken_types::ops::streams::Payload;
use serde_json::Value;

use crate::ConnectionId;

/// The time of a change and the effects that it has had so far.
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

    /// Adds an event for the system's stream: its type and its fields, which are a JSON object.
    pub(crate) fn tell(&mut self, kind: &'static str, fields: Value) {
        self.push(Effect::Happened(kind, fields));
    }
}

/// What the waiters and the lease table are told after the commit.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Entries were added to a stream.
    Appended(Arc<NewEntries>),
    /// A submission was settled, or it began or stopped waiting for a decision.
    Status(Arc<SubmissionStatus>),
    /// The request for an approval with this id was made or has ended.
    Approval(String),
    /// There is work that may be claimed.
    Opened(Work),
    /// An event for the system's stream. It is written before the commit.
    Happened(&'static str, Value),
    /// The holder has to end this submission as aborted.
    AbortWanted(SubmissionId),
    /// The holder has renewed the lease on this connection.
    Renewed { lease: Lease, connection: ConnectionId },
    /// The lease has ended.
    LeaseOver(Lease),
    /// There is background work.
    Background,
    /// There will be background work at this time.
    Expires(Timestamp),
    /// A stream was closed or deleted.
    Changed(String),
    /// A message of the outbox may be sent.
    Outgoing,
    /// Documents have to be read, or entries have no vector yet.
    Documents,
}

/// Entries that were added to a stream after its first `first` entries.
#[derive(Debug)]
pub struct NewEntries {
    pub stream: String,
    pub first: u64,
    pub payload: Payload,
}

/// The background work that remains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    Nothing,
    More,
    /// There is nothing to do before this time.
    At(Timestamp),
}
