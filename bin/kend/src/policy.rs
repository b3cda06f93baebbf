//! Decides when a part is started again. The functions are pure; the current time is an argument.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ken_types::config::Limit;

/// A part that was ready for at least this long when it died is restarted at once. One that was ready for less is
/// restarted after a delay.
const IMMEDIATE_RESTART_AFTER: Duration = Duration::from_secs(1);
const FIRST_DELAY: Duration = Duration::from_millis(250);
const MAX_DELAY: Duration = Duration::from_secs(30);
/// After this long in state ready, or after the last delay if that is longer, the next delay is the shortest one again.
const RESET_AFTER: Duration = Duration::from_secs(10);

/// Decides when one part is started next, from its previous starts and deaths.
#[derive(Debug, Clone, Default)]
pub(crate) struct Policy {
    delay: Duration,
    starts: VecDeque<Instant>,
}

/// What to do with a part that has died.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    Now,
    After(Duration),
    GiveUp(String),
}

impl Policy {
    /// Records a start. This is called at each start, because `limit` counts them.
    pub(crate) fn record_start(&mut self, now: Instant, limit: Limit) {
        self.starts.push_back(now);
        while self.starts.len() > limit.n as usize {
            self.starts.pop_front();
        }
    }

    /// Returns the last delay and the times of the starts, in milliseconds before now.
    pub(crate) fn pack(&self, now: Instant) -> (u64, Vec<u64>) {
        let ago = self.starts.iter().map(|start| now.duration_since(*start).as_millis() as u64);
        (self.delay.as_millis() as u64, ago.collect())
    }

    pub(crate) fn unpack(delay_ms: u64, starts_ms_ago: &[u64], now: Instant) -> Policy {
        let starts = starts_ms_ago.iter().filter_map(|ago| now.checked_sub(Duration::from_millis(*ago)));
        Policy { delay: Duration::from_millis(delay_ms), starts: starts.collect() }
    }

    /// Forgets the previous starts and deaths, because a person has intervened.
    pub(crate) fn reset(&mut self) {
        *self = Policy::default();
    }

    /// Returns what to do after a death. `ready` is how long the part was ready, `None` if it never was. `spread`, from
    /// 0 to 1, varies the delay so that parts that died together do not start together.
    pub(crate) fn next_after_death(
        &mut self,
        now: Instant,
        ready: Option<Duration>,
        limit: Limit,
        spread: f64,
    ) -> Next {
        if let Some(cause) = self.exhausted(now, limit) {
            return Next::GiveUp(cause);
        }
        let ready = ready.unwrap_or_default();
        if ready >= self.delay.max(RESET_AFTER) {
            self.delay = Duration::ZERO;
        }
        if ready >= IMMEDIATE_RESTART_AFTER {
            return Next::Now;
        }
        self.delay = (self.delay * 2).clamp(FIRST_DELAY, MAX_DELAY);
        Next::After(self.delay.mul_f64(1.0 + spread.clamp(0.0, 1.0) / 10.0))
    }

    fn exhausted(&self, now: Instant, limit: Limit) -> Option<String> {
        let oldest = *self.starts.front()?;
        let within = Duration::from_millis(limit.within_ms);
        let full = limit.n > 0 && self.starts.len() >= limit.n as usize;
        (full && now.duration_since(oldest) <= within)
            .then(|| format!("{} starts within {} ms, the limit of its entry", limit.n, limit.within_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: Limit = Limit { n: 0, within_ms: 0 };

    /// Returns how often a part is started in 60 s if each process lives for `life` and is ready for `ready` of that
    /// time.
    fn starts_in_a_minute(life: Duration, ready: Option<Duration>) -> usize {
        let begin = Instant::now();
        let (mut now, mut policy, mut starts) = (begin, Policy::default(), 0);
        while now.duration_since(begin) < Duration::from_secs(60) {
            policy.record_start(now, NEVER);
            starts += 1;
            now += life;
            match policy.next_after_death(now, ready, NEVER, 0.0) {
                Next::After(delay) => now += delay,
                next => assert_eq!(next, Next::Now),
            }
        }
        starts
    }

    #[test]
    fn a_crash_loop_has_at_most_twelve_starts_in_its_first_minute() {
        for ms in [0, 1, 10, 250, 900] {
            let life = Duration::from_millis(ms);
            assert!(starts_in_a_minute(life, None) <= 12);
            assert!(starts_in_a_minute(life, Some(life)) <= 12);
        }
        assert_eq!(starts_in_a_minute(Duration::ZERO, None), 8);
    }

    #[test]
    fn an_accident_is_repaired_at_once_and_the_delay_grows_then_resets() {
        let now = Instant::now();
        let mut policy = Policy::default();
        let died = |policy: &mut Policy, ms| policy.next_after_death(now, Some(Duration::from_millis(ms)), NEVER, 0.0);
        let after = |ms| Next::After(Duration::from_millis(ms));
        assert_eq!(died(&mut policy, 1000), Next::Now);
        assert_eq!(died(&mut policy, 999), after(250));
        assert_eq!(died(&mut policy, 0), after(500));
        assert_eq!(died(&mut policy, 2000), Next::Now);
        assert_eq!(died(&mut policy, 0), after(1000), "two calm seconds do not reset it");
        assert_eq!(died(&mut policy, 10_000), Next::Now);
        assert_eq!(died(&mut policy, 0), after(250), "ten do");
        for _ in 0..10 {
            died(&mut policy, 0);
        }
        assert_eq!(died(&mut policy, 0), after(30_000));
        assert_eq!(died(&mut policy, 29_999), Next::Now);
        assert_eq!(died(&mut policy, 0), after(30_000), "calm for less than the last delay");
    }

    #[test]
    fn the_spread_stays_within_a_tenth() {
        let now = Instant::now();
        let next = Policy::default().next_after_death(now, None, NEVER, 1.0);
        assert_eq!(next, Next::After(Duration::from_millis(275)));
    }

    #[test]
    fn gives_up_only_when_asked() {
        let limit = Limit { n: 3, within_ms: 1000 };
        let begin = Instant::now();
        let mut policy = Policy::default();
        for _ in 0..2 {
            policy.record_start(begin, limit);
            assert!(!matches!(policy.next_after_death(begin, None, limit, 0.0), Next::GiveUp(_)));
        }
        policy.record_start(begin, limit);
        let mut late = policy.clone();
        let last = begin + Duration::from_millis(1000);
        assert!(matches!(policy.next_after_death(last, None, limit, 0.0), Next::GiveUp(_)));
        assert!(matches!(policy.next_after_death(begin, None, limit, 0.0), Next::GiveUp(_)));
        let later = begin + Duration::from_millis(1001);
        assert!(!matches!(late.next_after_death(later, None, limit, 0.0), Next::GiveUp(_)));
    }
}
