//! A change to the tables, and its effects. The effects are reported when the change is durable.

use std::sync::Arc;

use ken_types::Timestamp;
use ken_types::id::SubmissionId;
use ken_types::ops::store::{Lease, SubmissionStatus, Work};
use ken_types::ops::streams::Payload;
use serde::Serialize;

use crate::ConnectionId;

/// A change: its time, and the effects that it has had so far.
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

    /// Adds an event to the system's stream. `kind` is its type. `fields` are its other fields, which are serialised as a JSON object. If that
    /// fails, which is a defect, the transaction fails when the event is written.
    pub(crate) fn publish(&mut self, kind: &'static str, fields: impl Serialize) {
        let fields = serde_json::to_string(&fields).unwrap_or_default();
        self.push(Effect::Published(kind, fields));
    }
}

/// An effect of a change. After the commit it is reported to the calls that wait for it and to the lease table.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Entries were added to a stream.
    Appended(Arc<NewEntries>),
    /// A submission was accepted.
    Queued(SubmissionId),
    /// A submission was settled, or it began or stopped waiting for a decision.
    Status(Arc<SubmissionStatus>),
    /// The request for an approval with this id was made, or it has ended.
    Approval(String),
    /// There is work of this kind that can be claimed.
    Claimable(Work),
    /// An event of the system's stream: its type, and its other fields as a JSON object. It is written before the commit.
    Published(&'static str, String),
    /// The submission must be aborted by its holder.
    AbortRequested(SubmissionId),
    /// The holder has renewed the lease on this connection.
    Renewed { lease: Lease, connection: ConnectionId },
    /// The lease has ended.
    LeaseEnded(Lease),
    /// A run of a schedule may have to be admitted, or its submission has begun or ended.
    ScheduleRuns,
    /// There is background work that can be done now.
    Background,
    /// There is background work to do at this time.
    Expires(Timestamp),
    /// A stream was closed or deleted.
    Changed(String),
    /// A message of the outbox can be sent.
    Outgoing,
    /// There are documents to read, or entries without a vector.
    Documents,
}

/// Entries that were added to a stream which had `first` entries before.
#[derive(Debug)]
pub struct NewEntries {
    pub stream: String,
    pub first: u64,
    pub payload: Payload,
}

/// Whether background work remains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    Nothing,
    More,
    /// There is nothing to do before this time.
    At(Timestamp),
}
