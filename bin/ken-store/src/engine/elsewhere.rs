//! What is known here of the transactions of other hosts: those of which they have told, and those that were seen when their rows were looked
//! at. From the difference follows whether a notice was lost.

use std::collections::HashMap;

use crate::tables::OtherHost;

#[derive(Debug, Default)]
pub(crate) struct Elsewhere {
    hosts: HashMap<String, Known>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    /// All transactions until this one are known here.
    heard: i64,
    /// The last one when the rows were looked at.
    seen: i64,
}

/// What a look at the rows has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Seen {
    Nothing,
    /// There were transactions. Notices of them have come or may still come.
    Some,
    /// There was one of which no notice has come.
    Missed,
}

impl Elsewhere {
    /// Notes that a host has told of some transactions. Returns whether the notice of one before was lost.
    pub(crate) fn hear(&mut self, host: &str, first: i64, last: i64) -> bool {
        let Some(known) = self.hosts.get_mut(host) else {
            self.hosts.insert(host.to_owned(), Known { heard: last, seen: last });
            return true;
        };
        let is_missed = first > known.heard + 1;
        known.heard = last;
        is_missed
    }

    /// Compares the last transactions of the other hosts with what is known. With `is_patient`, the notice of a transaction has time until the
    /// next look.
    pub(crate) fn look(&mut self, others: &[OtherHost], is_patient: bool) -> Seen {
        self.hosts.retain(|host, _| others.iter().any(|other| other.host == *host));
        let seen = others.iter().map(|other| self.look_at(&other.host, other.batch, is_patient));
        seen.max().unwrap_or(Seen::Nothing)
    }

    fn look_at(&mut self, host: &str, batch: i64, is_patient: bool) -> Seen {
        // A host that was removed begins with low numbers again.
        let Some(known) = self.hosts.get_mut(host).filter(|known| known.seen <= batch) else {
            self.hosts.insert(host.to_owned(), Known { heard: batch, seen: batch });
            return Seen::Missed;
        };
        let expected = if is_patient { known.seen } else { batch };
        let is_missed = expected > known.heard;
        let is_new = batch != known.seen;
        known.heard = known.heard.max(expected);
        known.seen = batch;
        match (is_missed, is_new) {
            (true, _) => Seen::Missed,
            (_, true) => Seen::Some,
            _ => Seen::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_notice_is_found_by_the_next_one_or_by_the_second_look() {
        let mut known = Elsewhere::default();
        let look = |known: &mut Elsewhere, batch: i64, is_patient| {
            known.look(&[OtherHost { host: "a".to_owned(), batch, renewed_at: 0 }], is_patient)
        };
        assert_eq!(look(&mut known, 5, true), Seen::Missed, "a new host");
        assert_eq!(look(&mut known, 5, true), Seen::Nothing);
        assert!(!known.hear("a", 6, 8));
        assert_eq!(look(&mut known, 8, true), Seen::Some);
        // The notice of 9 was lost.
        assert!(known.hear("a", 10, 10));
        assert_eq!(look(&mut known, 12, true), Seen::Some);
        assert_eq!(look(&mut known, 12, true), Seen::Missed);
        assert_eq!(look(&mut known, 12, true), Seen::Nothing);
        // Without notices each look finds all.
        assert_eq!(look(&mut known, 13, false), Seen::Missed);
        assert_eq!(look(&mut known, 13, false), Seen::Nothing);
        // It was removed, and begins again.
        assert_eq!(look(&mut known, 2, true), Seen::Missed);
        assert!(!known.hear("a", 3, 3));
        assert_eq!(known.look(&[], true), Seen::Nothing);
        assert!(known.hear("a", 4, 4), "it is a new host");
    }
}
