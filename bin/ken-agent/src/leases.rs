//! The submissions that this agent holds, and what can be told to each.

use std::collections::HashMap;
use std::time::Duration;

use ken_types::id::SubmissionId;
use ken_types::ops::store::Lease;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

#[derive(Debug, Default)]
pub(crate) struct Leases {
    held: HashMap<SubmissionId, Held>,
}

#[derive(Debug)]
struct Held {
    lease: Lease,
    since: Instant,
    abort: watch::Sender<bool>,
    task: AbortHandle,
}

impl Leases {
    /// Holds one more. An older lease of the same submission is void: what still works under it stops at once.
    pub(crate) fn hold(&mut self, lease: Lease, abort: watch::Sender<bool>, task: AbortHandle) {
        let id = lease.submission_id.clone();
        let held = Held {
            lease,
            since: Instant::now(),
            abort,
            task,
        };
        if let Some(older) = self.held.insert(id, held) {
            older.task.abort();
        }
    }

    /// Those that are held for so long at least.
    pub(crate) fn older_than(&self, age: Duration) -> Vec<Lease> {
        let older = self.held.values().filter(|held| held.since.elapsed() >= age);
        older.map(|held| held.lease.clone()).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// It has come to its end.
    pub(crate) fn release(&mut self, lease: &Lease) {
        if self.is_held(lease) {
            self.held.remove(&lease.submission_id);
        }
    }

    /// It is somebody else's now: nothing more may be written.
    pub(crate) fn lose(&mut self, lease: &Lease) {
        if self.is_held(lease)
            && let Some(held) = self.held.remove(&lease.submission_id)
        {
            held.task.abort();
        }
    }

    /// It shall end as aborted.
    pub(crate) fn abort(&self, lease: &Lease) {
        if let Some(held) = self
            .held
            .get(&lease.submission_id)
            .filter(|held| held.lease == *lease)
        {
            held.abort.send_replace(true);
        }
    }

    fn is_held(&self, lease: &Lease) -> bool {
        self.held
            .get(&lease.submission_id)
            .is_some_and(|held| held.lease == *lease)
    }
}
