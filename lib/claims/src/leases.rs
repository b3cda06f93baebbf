//! The leases of a holder, each with the task that works under it.

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
    /// Adds a lease. If there is an older lease of the same submission, it is void, and its task is stopped.
    pub(crate) fn hold(&mut self, lease: Lease, abort: watch::Sender<bool>, task: AbortHandle) {
        let id = lease.submission_id.clone();
        let held = Held { lease, since: Instant::now(), abort, task };
        if let Some(older) = self.held.insert(id, held) {
            older.task.abort();
        }
    }

    /// Returns the leases that have been held for at least `age`.
    pub(crate) fn older_than(&self, age: Duration) -> Vec<Lease> {
        let older = self.held.values().filter(|held| held.since.elapsed() >= age);
        older.map(|held| held.lease.clone()).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// Removes a lease whose work has ended.
    pub(crate) fn release(&mut self, lease: &Lease) {
        if self.find(lease).is_some() {
            self.held.remove(&lease.submission_id);
        }
    }

    /// Stops the task of a lost lease. Returns false if no task was stopped. A task that is already settling its
    /// submission accepts no abort and continues: settling ends the lease, and the answer tells the task that the lease
    /// was lost.
    pub(crate) fn lose(&mut self, lease: &Lease) -> bool {
        let Some(held) = self.find(lease).filter(|held| !held.abort.is_closed()) else {
            return false;
        };
        held.task.abort();
        self.held.remove(&lease.submission_id);
        true
    }

    /// Tells the task of a lease to abort.
    pub(crate) fn abort(&self, lease: &Lease) {
        if let Some(held) = self.find(lease) {
            held.abort.send_replace(true);
        }
    }

    /// Returns the work under this lease; `None` if its submission is not held, or is held under another lease.
    fn find(&self, lease: &Lease) -> Option<&Held> {
        let held = self.held.get(&lease.submission_id)?;
        (held.lease == *lease).then_some(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ken_types::id::SubmissionId;

    fn lease(number: u64) -> Lease {
        Lease { submission_id: SubmissionId("one".into()), number }
    }

    /// Adds a lease whose task never ends by itself.
    fn hold(leases: &mut Leases, number: u64) -> (watch::Receiver<bool>, tokio::task::JoinHandle<()>) {
        let (abort, aborted) = watch::channel(false);
        let task = tokio::spawn(std::future::pending());
        leases.hold(lease(number), abort, task.abort_handle());
        (aborted, task)
    }

    #[tokio::test]
    async fn a_lost_lease_stops_its_submission_and_no_other() {
        let mut leases = Leases::default();
        let (aborted, older) = hold(&mut leases, 1);
        leases.abort(&lease(2));
        assert!(!*aborted.borrow());
        let (_aborted, newer) = hold(&mut leases, 2);
        assert!(older.await.unwrap_err().is_cancelled(), "a newer lease makes the older one void");
        assert!(!leases.lose(&lease(1)), "the older one is not held any more");
        assert!(leases.lose(&lease(2)) && newer.await.unwrap_err().is_cancelled());
        assert_eq!(leases.len(), 0);
    }

    #[tokio::test]
    async fn what_is_being_settled_is_left_to_hear_the_answer() {
        let mut leases = Leases::default();
        let (aborted, task) = hold(&mut leases, 1);
        drop(aborted);
        assert!(!leases.lose(&lease(1)));
        assert_eq!((leases.len(), task.is_finished()), (1, false));
        leases.release(&lease(1));
        assert_eq!(leases.len(), 0);
    }
}
