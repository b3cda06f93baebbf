//! Who holds which submission. The numbers of leases are stored; their holders are known here only, because a lease ends
//! with its connection, and connections end with the process.

use std::collections::HashMap;

use ken_types::id::SubmissionId;
use ken_types::limits::LEASE_MS;
use ken_types::ops::store::{Claim, Lease, Verdict};

use crate::ConnectionId;
use crate::tables::OldLease;

/// How long holders may take to come back after a restart of the store.
const GRACE_MS: i64 = 500;
/// How long a holder has to end what it was told to abort, before another is asked.
const ABORT_MS: i64 = 10_000;
/// How long after the time of a submission its holder has to close it.
const CLOSE_MS: i64 = 30_000;

/// All leases that are held.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    held: HashMap<SubmissionId, HeldLease>,
}

#[derive(Debug)]
struct HeldLease {
    number: u64,
    /// `None` after a restart of the store, until the holder has come back.
    connection: Option<ConnectionId>,
    /// When the holder loses it unless it renews before.
    silent_at: i64,
    abort: Abort,
    /// When its submission has no time left.
    time_up_at: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Abort {
    No,
    Wanted,
    /// Told, with the time by which it has to be done.
    Told(i64),
}

impl HeldLease {
    fn due_at(&self) -> i64 {
        let abort_at = match self.abort {
            Abort::Told(by) => by,
            _ => i64::MAX,
        };
        self.silent_at.min(abort_at).min(self.time_up_at)
    }
}

/// Why a lease is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Its holder is silent, or did not abort in time.
    Lost,
    /// Its submission may have run for too long.
    TimeUp,
}

impl Leases {
    pub(crate) fn restore(&mut self, old: OldLease, now: i64) {
        let abort = if old.aborting { Abort::Wanted } else { Abort::No };
        let held = HeldLease {
            number: old.lease.number,
            connection: None,
            silent_at: now + GRACE_MS,
            abort,
            time_up_at: i64::MAX,
        };
        self.held.insert(old.lease.submission_id, held);
    }

    pub(crate) fn claimed(&mut self, claim: &Claim, connection: ConnectionId, now: i64) {
        // The verdict of a closing claim tells its holder what to do, and it has a time limit of its own.
        let closing = claim.verdict.is_some();
        let abort = match claim.verdict {
            Some(Verdict::Abort) => Abort::Told(now + ABORT_MS),
            _ => Abort::No,
        };
        let time = if closing { CLOSE_MS } else { claim.time_left_ms + CLOSE_MS };
        let held = HeldLease {
            number: claim.lease.number,
            connection: Some(connection),
            silent_at: now + LEASE_MS,
            abort,
            time_up_at: now + time,
        };
        self.held.insert(claim.lease.submission_id.clone(), held);
    }

    /// The holder lives on this connection; it may have let go before.
    pub(crate) fn renewed(&mut self, lease: Lease, connection: ConnectionId, now: i64) {
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
            held.time_up_at = now; // so that the tables are asked at once
        }
    }

    pub(crate) fn over(&mut self, lease: &Lease) {
        let same = |held: &HeldLease| held.number <= lease.number;
        if self.held.get(&lease.submission_id).is_some_and(same) {
            self.held.remove(&lease.submission_id);
        }
    }

    /// Its connection has ended, and that could not be stored: it is released at the next look.
    pub(crate) fn let_go(&mut self, lease: &Lease) {
        if let Some(held) = self.held.get_mut(&lease.submission_id)
            && held.number == lease.number
        {
            held.connection = None;
            held.silent_at = 0;
        }
    }

    /// As [`Leases::let_go`], for all leases of a connection.
    pub(crate) fn let_go_of(&mut self, connection: ConnectionId) {
        for lease in self.of(connection) {
            self.let_go(&lease);
        }
    }

    /// Aborts that did not reach their holder are told again.
    pub(crate) fn untell(&mut self, aborts: &[Lease]) {
        for lease in aborts {
            if let Some(held) = self.held.get_mut(&lease.submission_id)
                && held.number == lease.number
            {
                held.abort = Abort::Wanted;
            }
        }
    }

    pub(crate) fn want_abort(&mut self, submission: &SubmissionId) {
        if let Some(held) = self.held.get_mut(submission)
            && held.abort == Abort::No
        {
            held.abort = Abort::Wanted;
        }
    }

    /// The aborts that this connection has not been told yet. From now on they count as told.
    pub(crate) fn tell_aborts(&mut self, connection: ConnectionId, now: i64) -> Vec<Lease> {
        let mut aborts = Vec::new();
        for (submission, held) in &mut self.held {
            if held.abort == Abort::Wanted && held.connection == Some(connection) {
                held.abort = Abort::Told(now + ABORT_MS);
                aborts.push(lease(submission, held));
            }
        }
        aborts
    }

    /// The leases of a connection.
    pub(crate) fn of(&self, connection: ConnectionId) -> Vec<Lease> {
        let own = self.held.iter().filter(|(_, held)| held.connection == Some(connection));
        own.map(|(submission, held)| lease(submission, held)).collect()
    }

    pub(crate) fn next_due(&self) -> Option<i64> {
        self.held.values().map(HeldLease::due_at).min()
    }

    pub(crate) fn due(&self, now: i64) -> Vec<(Lease, Due)> {
        let due = self.held.iter().filter(|(_, held)| held.due_at() <= now);
        due.map(|(submission, held)| {
            let why = if held.due_at() < held.time_up_at { Due::Lost } else { Due::TimeUp };
            (lease(submission, held), why)
        })
        .collect()
    }

    pub(crate) fn set_time_left(&mut self, lease: &Lease, ms: i64, now: i64) {
        if let Some(held) = self.held.get_mut(&lease.submission_id) {
            held.time_up_at = now + ms + CLOSE_MS;
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

    #[test]
    fn a_lease_that_ended_leaves_a_newer_one_held() {
        let mut leases = Leases::default();
        leases.renewed(lease_of(2), 7, 0);
        leases.over(&lease_of(1));
        assert_eq!(leases.of(7), [lease_of(2)]);
        leases.let_go(&lease_of(1));
        leases.untell(&[lease_of(1)]);
        assert_eq!(leases.of(7), [lease_of(2)]);
        leases.over(&lease_of(2));
        assert_eq!(leases.len(), 0);
    }
}
