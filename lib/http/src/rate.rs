//! Rate limits: one token bucket per caller.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{HeaderName, HeaderValue};
use ken_types::Rate;
use parking_lot::Mutex;

use crate::places::caller_of;

/// Whose requests are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Key {
    /// All callers with the secret.
    Secret,
    /// Everybody at an address; see [`Key::of`].
    Address(IpAddr),
    /// All callers without the secret that arrived when [`MAX_KEYS`] others were being counted.
    Others,
}

impl Key {
    /// The key of a caller by its address. An IPv6 network of 64 bits is one caller, because one host may have all of it.
    pub fn of(address: IpAddr) -> Key {
        Key::Address(caller_of(address))
    }
}

/// The source of the time, which tests set.
pub type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// Counts requests by key. A bucket holds [`Rate::count`] tokens at first and gets them back evenly over [`Rate::per`].
pub struct Limiter {
    rate: Rate,
    clock: Clock,
    buckets: Mutex<Buckets>,
}

#[derive(Default)]
struct Buckets {
    by_key: HashMap<Key, Bucket>,
    last_sweep: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

/// The state of a bucket at a request, in whole numbers, as the headers have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    pub limit: u32,
    /// The number of requests that would be accepted now.
    pub remaining: u32,
    /// Seconds until the bucket is full again.
    pub reset_s: u64,
    /// If over the limit, milliseconds until the next request is accepted.
    pub retry_after_ms: Option<u64>,
}

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

impl Quota {
    /// The headers that tell a caller about it.
    pub fn headers(&self) -> [(HeaderName, HeaderValue); 3] {
        [(LIMIT, self.limit.into()), (REMAINING, self.remaining.into()), (RESET, self.reset_s.into())]
    }
}

/// Maximum number of buckets, besides that of the secret and the shared one. Full ones are removed when a new caller comes, at most once a
/// second; if there are still as many, new callers share one.
const MAX_KEYS: usize = 4_096;
const SWEEP_EVERY: Duration = Duration::from_secs(1);

impl Limiter {
    pub fn new(rate: Rate) -> Limiter {
        Limiter::with_clock(rate, Arc::new(Instant::now))
    }

    pub fn with_clock(rate: Rate, clock: Clock) -> Limiter {
        Limiter { rate, clock, buckets: Mutex::default() }
    }

    /// Takes one token, or returns when there will be one.
    pub fn take(&self, key: Key) -> Quota {
        let now = (self.clock)();
        let mut buckets = self.buckets.lock();
        let bucket = buckets.of(key, self.rate, now);
        let tokens = bucket.filled(self.rate, now);
        let taken = tokens >= 1.0;
        *bucket = Bucket { tokens: if taken { tokens - 1.0 } else { tokens }, at: now };
        self.quota(bucket.tokens, taken)
    }

    fn quota(&self, tokens: f64, taken: bool) -> Quota {
        let per_second = self.rate.per_second();
        Quota {
            limit: self.rate.count,
            remaining: tokens as u32,
            reset_s: ((f64::from(self.rate.count) - tokens) / per_second).ceil() as u64,
            retry_after_ms: (!taken).then(|| ((1.0 - tokens) / per_second * 1_000.0).ceil() as u64),
        }
    }

    #[cfg(test)]
    fn keys(&self) -> usize {
        self.buckets.lock().by_key.len()
    }
}

impl Bucket {
    fn filled(&self, rate: Rate, now: Instant) -> f64 {
        let gained = now.saturating_duration_since(self.at).as_secs_f64() * rate.per_second();
        (self.tokens + gained).min(f64::from(rate.count))
    }
}

impl Buckets {
    fn of(&mut self, key: Key, rate: Rate, now: Instant) -> &mut Bucket {
        // Strangers can fill all places. The operator is not counted together with them.
        let has_place = key == Key::Secret || self.by_key.contains_key(&key) || self.make_room(rate, now);
        let key = if has_place { key } else { Key::Others };
        self.by_key.entry(key).or_insert(Bucket { tokens: f64::from(rate.count), at: now })
    }

    /// Removes full buckets, which are the same as new ones, and returns whether there is room for another one. It checks all
    /// buckets, so it removes at most once a second.
    fn make_room(&mut self, rate: Rate, now: Instant) -> bool {
        let is_due = self.last_sweep.is_none_or(|swept| now.saturating_duration_since(swept) >= SWEEP_EVERY);
        if is_due {
            self.last_sweep = Some(now);
            let full = f64::from(rate.count);
            self.by_key.retain(|_, bucket| bucket.filled(rate, now) < full);
        }
        self.by_key.len() < MAX_KEYS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    /// A limiter and its clock, which the test sets.
    fn limiter(rate: &str) -> (Limiter, Arc<Mutex<Duration>>) {
        let hand = Arc::new(Mutex::new(Duration::ZERO));
        let (start, turned) = (Instant::now(), hand.clone());
        let clock: Clock = Arc::new(move || start + *turned.lock());
        (Limiter::with_clock(rate.parse().unwrap(), clock), hand)
    }

    #[test]
    fn a_bucket_empties_and_fills_evenly() {
        let (limiter, hand) = limiter("6/minute");
        for left in (0..6).rev() {
            let quota = limiter.take(Key::Secret);
            assert_eq!((quota.remaining, quota.retry_after_ms), (left, None));
        }
        let over = limiter.take(Key::Secret);
        assert_eq!((over.limit, over.remaining, over.reset_s, over.retry_after_ms), (6, 0, 60, Some(10_000)));
        *hand.lock() += Duration::from_millis(9_999);
        assert_eq!(limiter.take(Key::Secret).retry_after_ms, Some(1));
        *hand.lock() += Duration::from_millis(2);
        assert_eq!(limiter.take(Key::Secret).retry_after_ms, None);
        *hand.lock() += Duration::from_secs(600);
        assert_eq!(limiter.take(Key::Secret).remaining, 5);
    }

    /// A host may have all addresses of its network, and take another one for each request.
    #[test]
    fn the_addresses_of_an_ipv6_network_are_one_caller() {
        let (limiter, _) = limiter("2/minute");
        let take = |address: &str| limiter.take(Key::of(address.parse().unwrap())).retry_after_ms.is_none();
        assert!(take("2001:db8::1") && take("2001:db8::2") && !take("2001:db8::ffff:3"));
        assert!(take("2001:db8:0:1::1") && take("10.0.0.1") && take("10.0.0.2"));
    }

    #[test]
    fn callers_do_not_share_until_there_are_too_many() {
        let (limiter, hand) = limiter("1/minute");
        let key = |n: u32| Key::Address(IpAddr::V4(Ipv4Addr::from_bits(n)));
        for n in 0..MAX_KEYS as u32 {
            assert_eq!(limiter.take(key(n)).retry_after_ms, None);
        }
        assert_eq!(limiter.take(key(90_000)).retry_after_ms, None, "the first of the others");
        for n in 90_001..100_000 {
            assert!(limiter.take(key(n)).retry_after_ms.is_some());
        }
        assert_eq!(limiter.keys(), MAX_KEYS + 1);
        assert!(limiter.take(key(0)).retry_after_ms.is_some(), "one that is known keeps its own");
        *hand.lock() += Duration::from_secs(61);
        assert_eq!(limiter.take(key(100_000)).retry_after_ms, None);
        assert_eq!(limiter.keys(), 1);
    }

    #[test]
    fn a_known_caller_keeps_its_own_bucket_when_the_others_have_used_up_theirs() {
        let (limiter, _) = limiter("2/minute");
        let take = |n: u32| limiter.take(Key::Address(IpAddr::V4(Ipv4Addr::from_bits(n)))).retry_after_ms.is_none();
        assert!((0..MAX_KEYS as u32).all(take));
        assert!(take(90_000) && take(90_001) && !take(90_002));
        assert!(take(0) && !take(0));
        // Nor has the operator to share with them, also if nothing was asked with the secret before.
        let with_secret = || limiter.take(Key::Secret).retry_after_ms.is_none();
        assert!(with_secret() && with_secret() && !with_secret());
    }

    #[test]
    fn room_is_made_at_most_once_a_second() {
        let (limiter, hand) = limiter("100/second");
        let take = |n: u32| limiter.take(Key::Address(IpAddr::V4(Ipv4Addr::from_bits(n))));
        let turn_to = |ms| *hand.lock() = Duration::from_millis(ms);
        for n in 0..=MAX_KEYS as u32 {
            take(n);
        }
        // All buckets are full again after ten milliseconds, and only that of the others is used in the meantime.
        for (ms, keys) in [(999, MAX_KEYS + 1), (1_000, 2), (1_001, 3)] {
            turn_to(ms);
            take(100_000 + ms as u32);
            assert_eq!(limiter.keys(), keys, "{ms}");
        }
    }
}
