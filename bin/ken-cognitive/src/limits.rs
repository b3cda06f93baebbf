//! Rate limits: how many requests a caller can send to each group of routes, and a quota of each key for all routes
//! together.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use ken_http::{Clock, Failure, Quota};
use ken_types::Error;

use crate::settings::{GROUPS, Settings};
use crate::window::Window;

/// The caller for whom a request is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Payer {
    Key([u8; 32]),
    /// The address of a caller without a key, or its network; see [`ken_http::caller_of`].
    Address(IpAddr),
}

/// A group of routes with a common limit, in the order of [`GROUPS`]. `Admin` comes last, because it has no limit of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    Execute,
    Protocols,
    Templates,
    Session,
    Metrics,
    /// Administration routes, which have no limit besides the key's quota.
    Admin,
}

pub(crate) struct Limits {
    quota: Option<Window<Payer>>,
    groups: Vec<Option<Window<Payer>>>,
}

impl Limits {
    pub(crate) fn new(settings: &Settings) -> Limits {
        Limits::with_clock(settings, Arc::new(Instant::now))
    }

    fn with_clock(settings: &Settings, clock: Clock) -> Limits {
        let window = |rate: &Option<_>| rate.map(|rate| Window::new(rate, clock.clone()));
        Limits { quota: window(&settings.quota), groups: settings.rates.iter().map(window).collect() }
    }

    /// Counts a request in its group and in the quota of its key. A refused request is counted in neither. Returns the limit
    /// with fewer requests left, if there is one.
    pub(crate) fn take(&self, group: Group, payer: Payer) -> Result<Option<Quota>, Refusal> {
        let quota = self.quota.as_ref().filter(|_| matches!(payer, Payer::Key(_)));
        let name = GROUPS.get(group as usize).map_or("admin", |(name, ..)| *name);
        let both = [(self.groups.get(group as usize).and_then(Option::as_ref), name), (quota, "quota")];
        for (window, name) in both {
            let found = window.map(|window| window.peek(payer));
            if let Some(quota) = found.filter(|quota| quota.retry_after_ms.is_some()) {
                return Err(Refusal { quota, name });
            }
        }
        let taken = both.iter().filter_map(|(window, _)| Some(window.as_ref()?.take(payer)));
        Ok(taken.min_by_key(|quota| (quota.remaining, quota.limit)))
    }
}

/// The limit that refused a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refusal {
    quota: Quota,
    pub(crate) name: &'static str,
}

impl Refusal {
    pub(crate) fn into_failure(self) -> Failure {
        let what = match self.name {
            "quota" => "the quota of this key",
            _ => "the rate limit of this route",
        };
        let message = format!("{what} is reached: {} requests", self.quota.limit);
        let failure = Failure::from(Error::busy(message, self.quota.retry_after_ms.unwrap_or(1)));
        self.quota.headers().into_iter().fold(failure, |failure, (name, value)| failure.header(name, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(pairs: &[(&str, &str)]) -> Limits {
        let settings = Settings::read(|name| {
            let found = pairs.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        let now = Instant::now();
        Limits::with_clock(&settings.unwrap(), Arc::new(move || now))
    }

    const ANNA: Payer = Payer::Key([1; 32]);
    const BERT: Payer = Payer::Key([2; 32]);

    #[test]
    fn a_request_counts_for_group_and_quota_or_for_neither() {
        let limits = limits(&[("API_KEY_QUOTA_PER_MINUTE", "3"), ("RATE_LIMIT_EXECUTE", "2/second")]);
        let remaining = |group| limits.take(group, ANNA).unwrap().unwrap().remaining;
        assert_eq!([remaining(Group::Execute), remaining(Group::Execute)], [1, 0]);
        // The group's limit refuses the request, so the quota does not change.
        assert_eq!(limits.take(Group::Execute, ANNA).unwrap_err().name, "execute");
        assert_eq!(remaining(Group::Session), 0);
        assert_eq!(limits.take(Group::Admin, ANNA).unwrap_err().name, "quota");
        assert!(limits.take(Group::Execute, BERT).is_ok());
        let failure = limits.take(Group::Execute, ANNA).unwrap_err().into_failure();
        assert_eq!(failure.status_code(), 429);
    }

    #[test]
    fn without_limits_nothing_is_counted_or_reported() {
        let limits = limits(&[("RATE_LIMIT_EXECUTE", "0")]);
        for _ in 0..1_000 {
            assert!(limits.take(Group::Execute, ANNA).unwrap().is_none());
        }
    }

    #[test]
    fn a_quota_belongs_to_a_key() {
        let limits = limits(&[("API_KEY_QUOTA_PER_MINUTE", "1")]);
        let nobody = Payer::Address(IpAddr::from([127, 0, 0, 1]));
        for _ in 0..3 {
            assert!(limits.take(Group::Metrics, nobody).is_ok());
        }
    }
}
