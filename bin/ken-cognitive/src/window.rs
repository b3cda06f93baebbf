//! A rate limit with fixed windows: N requests within a period that begins with the caller's first request.
//!
//! The gateway's token bucket allows nearly twice that number within the first period. This limit is exact, because it
//! protects the tools.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Instant;

use ken_http::{Clock, Quota, Rate};
use parking_lot::Mutex;

/// The counts of one limit by caller.
pub(crate) struct Window<K> {
    rate: Rate,
    clock: Clock,
    counts: Mutex<HashMap<K, Count>>,
}

#[derive(Debug, Clone, Copy)]
struct Count {
    began: Instant,
    taken: u32,
}

/// The maximum number of callers. Beyond it, callers whose period is over are removed, or else the one with the oldest
/// period.
const MAX_CALLERS: usize = 4_096;

impl<K: Copy + Eq + Hash> Window<K> {
    pub(crate) fn new(rate: Rate, clock: Clock) -> Window<K> {
        Window { rate, clock, counts: Mutex::default() }
    }

    /// Returns the quota without counting a request.
    pub(crate) fn peek(&self, caller: K) -> Quota {
        self.find(caller, false)
    }

    /// Counts a request if the limit allows it. Returns the quota.
    pub(crate) fn take(&self, caller: K) -> Quota {
        self.find(caller, true)
    }

    fn find(&self, caller: K, takes: bool) -> Quota {
        let now = (self.clock)();
        let mut counts = self.counts.lock();
        let fresh = Count { began: now, taken: 0 };
        let known = counts.get(&caller).copied().filter(|count| !self.is_over(count, now));
        let mut count = known.unwrap_or(fresh);
        let has_room = count.taken < self.rate.count;
        if takes && has_room {
            count.taken += 1;
            self.make_room(&mut counts, &caller, now);
            counts.insert(caller, count);
        }
        self.quota(&count, has_room, now)
    }

    fn quota(&self, count: &Count, has_room: bool, now: Instant) -> Quota {
        let left = (count.began + self.rate.per).saturating_duration_since(now);
        // The time is rounded up to whole milliseconds.
        let left_ms = u64::try_from(left.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX);
        Quota {
            limit: self.rate.count,
            remaining: self.rate.count - count.taken,
            reset_s: left_ms.div_ceil(1_000),
            retry_after_ms: (!has_room).then_some(left_ms.max(1)),
        }
    }

    fn is_over(&self, count: &Count, now: Instant) -> bool {
        now.saturating_duration_since(count.began) >= self.rate.per
    }

    fn make_room(&self, counts: &mut HashMap<K, Count>, caller: &K, now: Instant) {
        if counts.len() < MAX_CALLERS || counts.contains_key(caller) {
            return;
        }
        counts.retain(|_, count| !self.is_over(count, now));
        if counts.len() >= MAX_CALLERS {
            let oldest = counts.iter().min_by_key(|(_, count)| count.began);
            if let Some(oldest) = oldest.map(|(caller, _)| *caller) {
                counts.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    /// Returns a window and the time of its clock, which the test sets.
    fn window(rate: &str) -> (Window<u32>, Arc<Mutex<Duration>>) {
        let hand = Arc::new(Mutex::new(Duration::ZERO));
        let (start, turned) = (Instant::now(), hand.clone());
        let clock: Clock = Arc::new(move || start + *turned.lock());
        (Window::new(rate.parse().unwrap(), clock), hand)
    }

    #[test]
    fn the_limit_is_reached_exactly_and_ends_exactly() {
        for (rate, span) in [("3/second", 1_000), ("3/minute", 60_000), ("3/hour", 3_600_000), ("3/day", 86_400_000)] {
            let (window, hand) = window(rate);
            for left in (0..3).rev() {
                let quota = window.take(1);
                assert_eq!((quota.remaining, quota.retry_after_ms), (left, None));
            }
            // The quota applies until the last moment of the period.
            for passed in [0, 1, span / 2, span - 1] {
                *hand.lock() = Duration::from_millis(passed);
                let over = window.take(1);
                assert_eq!((over.limit, over.remaining), (3, 0));
                assert_eq!(over.retry_after_ms, Some(span - passed), "{rate}");
                assert_eq!(over.reset_s, (span - passed).div_ceil(1_000));
            }
            *hand.lock() = Duration::from_millis(span);
            assert_eq!(window.take(1).remaining, 2);
        }
    }

    #[test]
    fn checks_and_refused_requests_are_not_counted() {
        let (window, hand) = window("1/minute");
        assert_eq!(window.peek(1).remaining, 1);
        assert_eq!(window.take(1).retry_after_ms, None);
        for _ in 0..5 {
            assert!(window.take(1).retry_after_ms.is_some());
        }
        assert_eq!(window.peek(2).remaining, 1);
        *hand.lock() = Duration::from_secs(60);
        assert_eq!(window.take(1).retry_after_ms, None);
    }

    /// At the limit, only a caller without a counter makes room, and takes the place of one other.
    #[test]
    fn a_caller_that_is_known_displaces_nobody() {
        let (window, hand) = window("9/minute");
        let seconds = |seconds| *hand.lock() = Duration::from_secs(seconds);
        let (last, new) = (MAX_CALLERS as u32 - 1, MAX_CALLERS as u32);
        let remaining = |callers: [u32; 3]| callers.map(|caller| window.peek(caller).remaining);
        for caller in 0..=last {
            seconds(u64::from(caller.min(2)));
            window.take(caller);
        }
        window.take(last);
        assert_eq!(remaining([0, 1, last]), [8, 8, 7]);
        window.take(new);
        assert_eq!(remaining([0, 1, new]), [9, 8, 8], "the oldest counter is gone");
        assert_eq!(window.counts.lock().len(), MAX_CALLERS);
        // If the periods of some are over, nobody else has to go.
        seconds(61);
        window.take(new + 1);
        assert_eq!(remaining([1, 2, new + 1]), [9, 8, 8]);
        assert_eq!(window.counts.lock().len(), MAX_CALLERS);
    }

    #[test]
    fn the_number_of_counters_is_bounded() {
        let (window, _) = window("1/minute");
        for caller in 0..10_000 {
            assert_eq!(window.take(caller).retry_after_ms, None);
        }
        assert!(window.counts.lock().len() <= MAX_CALLERS);
        assert!(window.take(9_999).retry_after_ms.is_some());
    }
}
