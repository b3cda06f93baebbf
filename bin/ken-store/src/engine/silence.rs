//! Which hosts are silent: those whose rows have not changed while this host has looked at them for long enough. Only what it has seen
//! itself counts, by its own clock. The time in a row says less: it is not there before the commit that contains it ends, which can wait for a
//! standby, and a promotion can take it back. Each host needs some time after the server was away until it can show that it works, so nothing
//! that was seen before counts either.

use std::collections::HashMap;

use crate::tables::{HOST_LEASE_MS, OtherHost};

/// The longest time between two looks, in milliseconds. After a longer one, the server was away, or this host stood still, and the others may
/// have had to wait as well.
const MAX_PAUSE_MS: i64 = HOST_LEASE_MS / 2;

#[derive(Debug, Default)]
pub(crate) struct Silence {
    looked_at: i64,
    /// For each host the time in its row, and since when the row has had it.
    hosts: HashMap<String, (i64, i64)>,
}

impl Silence {
    /// Takes the rows of the others as they are now. Returns the hosts that are silent.
    pub(crate) fn look(&mut self, others: &[OtherHost], now: i64) -> Vec<OtherHost> {
        let has_paused = now - self.looked_at > MAX_PAUSE_MS;
        self.looked_at = now;
        let is_there = |host: &String| others.iter().any(|other| other.host == *host);
        self.hosts.retain(|host, _| !has_paused && is_there(host));
        others.iter().filter(|other| self.is_silent(other, now)).cloned().collect()
    }

    fn is_silent(&mut self, other: &OtherHost, now: i64) -> bool {
        let (known, since) = self.hosts.entry(other.host.clone()).or_insert((other.renewed_at, now));
        if *known != other.renewed_at {
            (*known, *since) = (other.renewed_at, now);
        }
        now - *since >= HOST_LEASE_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(renewed_at: i64) -> [OtherHost; 1] {
        [OtherHost { host: "a".into(), batch: 7, renewed_at }]
    }

    #[test]
    fn a_host_is_silent_if_its_row_has_not_changed_in_the_time_of_a_lease() {
        let mut silence = Silence::default();
        for second in 0..10 {
            assert_eq!(silence.look(&row(1), 50_000 + second * 1_000), []);
        }
        assert_eq!(silence.look(&row(1), 60_000), row(1));
        // After a promotion, a row can have an earlier time again. That is a change like any other.
        assert_eq!(silence.look(&row(-5), 61_000), []);
        assert_eq!(silence.look(&[], 62_000), []);
        assert_eq!(silence.look(&row(-5), 63_000), [], "it was not there");
    }

    #[test]
    fn what_was_seen_before_the_server_was_away_does_not_count() {
        let mut silence = Silence::default();
        assert_eq!(silence.look(&row(1), 0), []);
        assert_eq!(silence.look(&row(1), MAX_PAUSE_MS), []);
        let after = MAX_PAUSE_MS + 60_000;
        assert_eq!(silence.look(&row(1), after), []);
        assert_eq!(silence.look(&row(1), after + MAX_PAUSE_MS), []);
        assert_eq!(silence.look(&row(1), after + HOST_LEASE_MS), row(1));
    }
}
