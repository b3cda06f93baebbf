//! The holders of submissions. The tables store the numbers of leases, but the holders are only known here: a lease ends when the
//! connection of its holder ends, and all connections end with the process.

use std::collections::HashMap;

use ken_types::id::SubmissionId;
use ken_types::limits::LEASE_MS;
use ken_types::ops::store::{Claim, EndReason, Lease};

use crate::ConnectionId;
use crate::tables::OldLease;

/// How long a holder has to renew its lease after a restart of the store, in milliseconds.
const RESTART_GRACE_MS: i64 = 500;
/// How long a holder has to renew its lease when changes can be stored again. It tries at least once a second meanwhile.
const FAILURE_GRACE_MS: i64 = 5_000;
/// A lease that was not renewed is checked as soon as its time is up. If that happens later than this, in milliseconds, this process stood
/// still.
const STOOD_STILL_MS: i64 = 2_000;
/// How long a holder has to end a submission after it was asked to abort it, in milliseconds. After that, another holder can claim the
/// submission.
const ABORT_TIMEOUT_MS: i64 = 10_000;
/// How long a holder has to end a submission that has used up its time, in milliseconds.
const CLOSE_TIMEOUT_MS: i64 = 30_000;

#[derive(Debug, Default)]
pub(crate) struct Leases {
    held: HashMap<SubmissionId, HeldLease>,
}

#[derive(Debug)]
struct HeldLease {
    number: u64,
    /// The connection of the holder; `None` after a restart of the store, until the holder has renewed the lease.
    connection: Option<ConnectionId>,
    /// The time at which the lease is lost if the holder does not renew it.
    silent_at: i64,
    abort: Abort,
    /// The time at which to check whether the submission has used up its time.
    time_up_at: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Abort {
    No,
    Requested,
    /// The holder was asked to abort, and must end the submission by this time.
    Sent(i64),
}

impl HeldLease {
    fn due_at(&self) -> i64 {
        let abort_at = match self.abort {
            Abort::Sent(by) => by,
            _ => i64::MAX,
        };
        self.silent_at.min(abort_at).min(self.time_up_at)
    }
}

/// The reason why a lease must be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckReason {
    /// The holder has not renewed the lease, or has not aborted in time.
    Lost,
    /// The submission may have used up its time.
    TimeUp,
}

impl Leases {
    /// Adds a lease of the tables, unless it is known here.
    pub(crate) fn restore(&mut self, old: OldLease, now: i64) {
        if self.held.get(&old.lease.submission_id).is_some_and(|held| held.number == old.lease.number) {
            return;
        }
        let abort = if old.aborting { Abort::Requested } else { Abort::No };
        let held = HeldLease {
            number: old.lease.number,
            // The connections ended with the last store. A holder that is alive renews its lease on a new one.
            connection: None,
            silent_at: now + RESTART_GRACE_MS,
            abort,
            time_up_at: i64::MAX,
        };
        self.held.insert(old.lease.submission_id, held);
    }

    pub(crate) fn add_claimed(&mut self, claim: &Claim, connection: ConnectionId, now: i64) {
        // A claim with a verdict is made only to end the submission as the verdict says. It has a time limit of its own.
        let closing = claim.verdict.is_some();
        let abort = match claim.verdict {
            Some(EndReason::Abort) => Abort::Sent(now + ABORT_TIMEOUT_MS),
            _ => Abort::No,
        };
        let time = if closing { CLOSE_TIMEOUT_MS } else { claim.time_left_ms + CLOSE_TIMEOUT_MS };
        let held = HeldLease {
            number: claim.lease.number,
            connection: Some(connection),
            silent_at: now + LEASE_MS,
            abort,
            time_up_at: now + time,
        };
        self.held.insert(claim.lease.submission_id.clone(), held);
    }

    /// Records that the holder has renewed the lease on this connection. The lease is added again if it had been released.
    pub(crate) fn add_renewed(&mut self, lease: Lease, connection: ConnectionId, now: i64) {
        let held = self.held.entry(lease.submission_id).or_insert(HeldLease {
            number: lease.number,
            connection: None,
            silent_at: 0,
            abort: Abort::No,
            time_up_at: i64::MAX,
        });
        held.number = lease.number;
        held.connection = Some(connection);
        held.silent_at = now + LEASE_MS;
        if held.time_up_at == i64::MAX {
            held.time_up_at = now; // so that the remaining time is read from the tables at once
        }
    }

    pub(crate) fn remove(&mut self, lease: &Lease) {
        // A later number is a later claim of the same submission, which the end of this one does not concern.
        let same = |held: &HeldLease| held.number <= lease.number;
        if self.held.get(&lease.submission_id).is_some_and(same) {
            self.held.remove(&lease.submission_id);
        }
    }

    /// Makes the lease count as lost at the next check. Used if its connection has ended but the release could not be stored.
    pub(crate) fn mark_lost(&mut self, lease: &Lease) {
        if let Some(held) = self.held.get_mut(&lease.submission_id)
            && held.number == lease.number
        {
            held.connection = None;
            held.silent_at = 0;
        }
    }

    /// Whether this process has stood still, as all processes of a paused container do. What the holders have sent has then not been read yet.
    pub(crate) fn has_stood_still(&self, now: i64) -> bool {
        // 0 is the time of leases that are known to be lost.
        self.held.values().any(|held| held.silent_at > 0 && held.silent_at + STOOD_STILL_MS < now)
    }

    /// Gives all holders some time. Called after nothing could be stored for a while, and so no lease renewed and no submission ended. What
    /// they hold would otherwise begin again, perhaps on another host.
    pub(crate) fn spare(&mut self, now: i64) {
        let by = now + FAILURE_GRACE_MS;
        for held in self.held.values_mut() {
            held.silent_at = held.silent_at.max(by);
            if let Abort::Sent(at) = &mut held.abort {
                *at = by.max(*at);
            }
        }
    }

    /// Calls [`Leases::mark_lost`] for all leases of a connection.
    pub(crate) fn mark_all_lost(&mut self, connection: ConnectionId) {
        for lease in self.of(connection) {
            self.mark_lost(&lease);
        }
    }

    /// Marks requests to abort that did not reach their holder, so that they are sent again.
    pub(crate) fn mark_aborts_unsent(&mut self, aborts: &[Lease]) {
        for lease in aborts {
            if let Some(held) = self.held.get_mut(&lease.submission_id)
                && held.number == lease.number
            {
                held.abort = Abort::Requested;
            }
        }
    }

    pub(crate) fn request_abort(&mut self, submission: &SubmissionId) {
        if let Some(held) = self.held.get_mut(submission)
            && held.abort == Abort::No
        {
            held.abort = Abort::Requested;
        }
    }

    /// Returns the leases on this connection that must be aborted and whose holder does not know it yet. Marks them as sent.
    pub(crate) fn take_aborts(&mut self, connection: ConnectionId, now: i64) -> Vec<Lease> {
        let mut aborts = Vec::new();
        for (submission, held) in &mut self.held {
            if held.abort == Abort::Requested && held.connection == Some(connection) {
                held.abort = Abort::Sent(now + ABORT_TIMEOUT_MS);
                aborts.push(lease(submission, held));
            }
        }
        aborts
    }

    pub(crate) fn holds(&self, submission: &SubmissionId) -> bool {
        self.held.contains_key(submission)
    }

    pub(crate) fn of(&self, connection: ConnectionId) -> Vec<Lease> {
        let own = self.held.iter().filter(|(_, held)| held.connection == Some(connection));
        own.map(|(submission, held)| lease(submission, held)).collect()
    }

    pub(crate) fn next_due(&self) -> Option<i64> {
        self.held.values().map(HeldLease::due_at).min()
    }

    pub(crate) fn due(&self, now: i64) -> Vec<(Lease, CheckReason)> {
        let due = self.held.iter().filter(|(_, held)| held.due_at() <= now);
        due.map(|(submission, held)| {
            let why = if held.due_at() < held.time_up_at { CheckReason::Lost } else { CheckReason::TimeUp };
            (lease(submission, held), why)
        })
        .collect()
    }

    pub(crate) fn set_time_left(&mut self, lease: &Lease, ms: i64, now: i64) {
        if let Some(held) = self.held.get_mut(&lease.submission_id) {
            held.time_up_at = now + ms + CLOSE_TIMEOUT_MS;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }
}

fn lease(submission: &SubmissionId, held: &HeldLease) -> Lease {
    Lease { submission_id: submission.clone(), number: held.number }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease_of(number: u64) -> Lease {
        Lease { submission_id: SubmissionId("one".into()), number }
    }

    fn claim(id: &str, time_left_ms: i64, verdict: Option<EndReason>) -> Claim {
        let claim = serde_json::json!({
            "lease": {"submission_id": id, "number": 1}, "attempt": 1, "kind": "prompt", "instance": "i", "stream": "s", "text": "",
            "next_event_index": 0, "recorded_from": "-1", "time_left_ms": time_left_ms, "verdict": verdict,
        });
        serde_json::from_value(claim).unwrap()
    }

    fn id(id: &str) -> SubmissionId {
        SubmissionId(id.into())
    }

    /// The clock is stepped over each of the times at which something happens to a lease.
    #[test]
    fn a_lease_is_lost_in_silence_or_after_an_abort_and_checked_when_its_time_is_up() {
        use CheckReason::{Lost, TimeUp};
        let short = LEASE_MS - CLOSE_TIMEOUT_MS - 1;
        for (time_left, verdict, at, why) in [
            (3_600_000, None, LEASE_MS, Lost),
            (short, None, LEASE_MS - 1, TimeUp),
            // At the same time, the time of the submission counts.
            (short + 1, None, LEASE_MS, TimeUp),
            (3_600_000, Some(EndReason::Abort), ABORT_TIMEOUT_MS.min(LEASE_MS), Lost),
            (
                0,
                Some(EndReason::Timeout),
                CLOSE_TIMEOUT_MS.min(LEASE_MS),
                if CLOSE_TIMEOUT_MS <= LEASE_MS { TimeUp } else { Lost },
            ),
        ] {
            let mut leases = Leases::default();
            leases.add_claimed(&claim("one", time_left, verdict), 7, 100);
            assert_eq!(leases.next_due(), Some(100 + at), "{time_left} {verdict:?}");
            assert!(leases.due(100 + at - 1).is_empty(), "{time_left} {verdict:?}");
            assert_eq!(leases.due(100 + at), [(lease_of(1), why)], "{time_left} {verdict:?}");
        }
    }

    #[test]
    fn a_renewed_lease_waits_again_and_its_time_is_read_once() {
        let mut leases = Leases::default();
        leases.restore(OldLease { lease: lease_of(1), aborting: false }, 0);
        assert_eq!(leases.next_due(), Some(RESTART_GRACE_MS));
        assert!(leases.of(7).is_empty());
        leases.add_renewed(lease_of(1), 7, 100);
        // The time that is left is not known after a restart.
        assert_eq!((leases.next_due(), leases.of(7)), (Some(100), vec![lease_of(1)]));
        leases.set_time_left(&lease_of(1), 3_600_000, 100);
        assert_eq!(leases.next_due(), Some(100 + LEASE_MS));
        leases.add_renewed(lease_of(1), 7, 200);
        assert_eq!(leases.next_due(), Some(200 + LEASE_MS));
        leases.set_time_left(&lease_of(1), 0, 200);
        assert_eq!(leases.next_due(), Some(200 + LEASE_MS.min(CLOSE_TIMEOUT_MS)));
    }

    #[test]
    fn a_holder_has_some_time_after_nothing_could_be_stored() {
        let mut leases = Leases::default();
        for name in ["one", "two"] {
            leases.add_claimed(&claim(name, 3_600_000, None), 7, 0);
        }
        leases.request_abort(&id("two"));
        assert_eq!(leases.take_aborts(7, 0).len(), 1);
        leases.mark_lost(&lease_of(1));
        let after = LEASE_MS + 60_000;
        leases.spare(after);
        assert!(leases.due(after + FAILURE_GRACE_MS - 1).is_empty());
        assert_eq!(leases.due(after + FAILURE_GRACE_MS).len(), 2);
        // It takes no time away.
        leases.add_renewed(lease_of(1), 8, after);
        leases.spare(after);
        leases.set_time_left(&lease_of(1), 3_600_000, after);
        assert_eq!(leases.due(after + LEASE_MS - 1).len(), 1, "the abort");
    }

    #[test]
    fn a_lease_that_is_looked_at_far_too_late_shows_that_this_process_stood_still() {
        let mut leases = Leases::default();
        assert!(!leases.has_stood_still(i64::MAX));
        leases.add_claimed(&claim("one", 3_600_000, None), 7, 0);
        for (now, stood_still) in
            [(LEASE_MS, false), (LEASE_MS + STOOD_STILL_MS, false), (LEASE_MS + STOOD_STILL_MS + 1, true)]
        {
            assert_eq!(leases.has_stood_still(now), stood_still, "{now}");
        }
        leases.mark_lost(&lease_of(1));
        assert!(!leases.has_stood_still(10 * LEASE_MS), "it is known to be lost");
    }

    #[test]
    fn an_abort_is_sent_once_to_its_holder_and_again_if_it_was_not_delivered() {
        let mut leases = Leases::default();
        for (name, connection) in [("one", 7), ("two", 8)] {
            leases.add_claimed(&claim(name, 3_600_000, None), connection, 0);
        }
        leases.request_abort(&id("one"));
        leases.request_abort(&id("three"));
        assert!(leases.take_aborts(8, 0).is_empty());
        assert_eq!(leases.take_aborts(7, 0), [lease_of(1)]);
        assert!(leases.take_aborts(7, 0).is_empty());
        // A request that is repeated changes nothing.
        leases.request_abort(&id("one"));
        assert!(leases.take_aborts(7, 5).is_empty());
        assert_eq!(leases.next_due(), Some(ABORT_TIMEOUT_MS.min(LEASE_MS)));
        leases.mark_aborts_unsent(&[lease_of(2)]);
        assert!(leases.take_aborts(7, 5).is_empty(), "of another claim");
        leases.mark_aborts_unsent(&[lease_of(1)]);
        assert_eq!(leases.take_aborts(7, 5), [lease_of(1)]);
        // The end of a connection ends its own leases.
        leases.mark_all_lost(8);
        assert_eq!(leases.due(0).into_iter().map(|(lease, _)| lease.submission_id).collect::<Vec<_>>(), [id("two")]);
        assert_eq!((leases.of(8), leases.of(7)), (vec![], vec![lease_of(1)]));
    }

    #[test]
    fn a_lease_that_ended_leaves_a_newer_one_held() {
        let mut leases = Leases::default();
        leases.add_renewed(lease_of(2), 7, 0);
        leases.remove(&lease_of(1));
        assert_eq!(leases.of(7), [lease_of(2)]);
        leases.mark_lost(&lease_of(1));
        leases.mark_aborts_unsent(&[lease_of(1)]);
        assert_eq!(leases.of(7), [lease_of(2)]);
        assert!(leases.take_aborts(7, 0).is_empty());
        leases.remove(&lease_of(2));
        assert_eq!(leases.len(), 0);
    }
}
