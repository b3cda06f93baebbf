//! Rate limits: how many requests a caller can send to each group of routes, and a quota of each key for all routes
//! together.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use ken_http::http::header::{HeaderMap, HeaderName, HeaderValue};
use ken_http::{Clock, Failure, Quota, Rate};
use ken_types::Error;

use crate::settings::Settings;
use crate::window::Window;

/// The caller for whom a request is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Payer {
    Key([u8; 32]),
    /// The address of a caller without a key, or its network; see [`ken_http::caller_of`].
    Address(IpAddr),
}

/// A group of routes with a common limit. Its name is used in metrics.
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
    groups: [Option<Window<Payer>>; 5],
}

impl Limits {
    pub(crate) fn new(settings: &Settings) -> Limits {
        Limits::with_clock(settings, Arc::new(Instant::now))
    }

    fn with_clock(settings: &Settings, clock: Clock) -> Limits {
        let window = |rate: Option<Rate>| rate.map(|rate| Window::new(rate, clock.clone()));
        let rates = &settings.rates;
        Limits {
            quota: window(settings.quota),
            groups: [
                window(rates.execute),
                window(rates.protocols),
                window(rates.templates),
                window(rates.session),
                window(rates.metrics),
            ],
        }
    }

    /// Counts a request in its group and in the quota of its key. A refused request is counted in neither. The headers
    /// are those of the limit with fewer requests left.
    pub(crate) fn take(&self, group: Group, payer: Payer) -> Result<Allowance, Refusal> {
        let quota = self.quota.as_ref().filter(|_| matches!(payer, Payer::Key(_)));
        let both = [(self.groups.get(group as usize).and_then(Option::as_ref), group.name()), (quota, "quota")];
        for (window, name) in both {
            let found = window.map(|window| window.peek(payer));
            if let Some(quota) = found.filter(|quota| quota.retry_after_ms.is_some()) {
                return Err(Refusal { quota, name });
            }
        }
        let taken = both.iter().filter_map(|(window, _)| Some(window.as_ref()?.take(payer)));
        Ok(Allowance(taken.min_by_key(|quota| (quota.remaining, quota.limit))))
    }
}

impl Group {
    fn name(self) -> &'static str {
        match self {
            Group::Execute => "execute",
            Group::Protocols => "protocols",
            Group::Templates => "templates",
            Group::Session => "session",
            Group::Metrics => "metrics",
            Group::Admin => "admin",
        }
    }
}

/// The quota for the headers of a request that was counted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Allowance(Option<Quota>);

/// The limit that refused a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refusal {
    quota: Quota,
    pub(crate) name: &'static str,
}

impl Allowance {
    /// Returns the `X-RateLimit-*` headers, or none if there is no limit.
    pub(crate) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(quota) = &self.0 {
            for (name, value) in [
                ("x-ratelimit-limit", u64::from(quota.limit)),
                ("x-ratelimit-remaining", u64::from(quota.remaining)),
                ("x-ratelimit-reset", quota.reset_s),
            ] {
                headers.insert(HeaderName::from_static(name), HeaderValue::from(value));
            }
        }
        headers
    }
}

impl Refusal {
    pub(crate) fn into_failure(self) -> Failure {
        let what = match self.name {
            "quota" => "the quota of this key",
            _ => "the rate limit of this route",
        };
        let message = format!("{what} is reached: {} requests", self.quota.limit);
        let failure = Failure::from(Error::busy(message, self.quota.retry_after_ms.unwrap_or(1)));
        let headers = Allowance(Some(self.quota)).headers();
        headers.iter().fold(failure, |failure, (name, value)| failure.header(name.clone(), value.clone()))
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
        let shown = |allowance: Allowance| allowance.headers()["x-ratelimit-remaining"].to_str().unwrap().to_owned();
        assert_eq!(shown(limits.take(Group::Execute, ANNA).unwrap()), "1");
        assert_eq!(shown(limits.take(Group::Execute, ANNA).unwrap()), "0");
        // The group's limit refuses the request, so the quota does not change.
        assert_eq!(limits.take(Group::Execute, ANNA).unwrap_err().name, "execute");
        assert_eq!(shown(limits.take(Group::Session, ANNA).unwrap()), "0");
        assert_eq!(limits.take(Group::Admin, ANNA).unwrap_err().name, "quota");
        assert!(limits.take(Group::Execute, BERT).is_ok());
        let failure = limits.take(Group::Execute, ANNA).unwrap_err().into_failure();
        assert_eq!(failure.status_code(), 429);
    }

    #[test]
    fn without_limits_nothing_is_counted_or_reported() {
        let limits = limits(&[("RATE_LIMIT_EXECUTE", "0")]);
        for _ in 0..1_000 {
            assert!(limits.take(Group::Execute, ANNA).unwrap().headers().is_empty());
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
