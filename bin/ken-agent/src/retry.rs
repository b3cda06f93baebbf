//! When a failed model call is made again, and by which provider.

use ken_types::event::Failure;
use ken_types::{Code, Error};

/// Tries after the first one, each after twice the pause of the one before.
const TRIES: u32 = 3;
const FIRST_PAUSE_MS: u64 = 2_000;

/// The longest wait that a provider can ask for; one that asks for more is passed over.
pub(crate) const LONGEST_WAIT_MS: u64 = 60_000;

/// The provider of the list that is called next, and the tries that it has had. A provider that has failed for good is
/// not called again by the same submission.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Retry {
    pub(crate) provider: usize,
    tries: u32,
}

impl Retry {
    /// A turn has ended without a failure.
    pub(crate) fn succeed(&mut self) {
        self.tries = 0;
    }

    /// A turn has ended with this failure.
    pub(crate) fn fail(&mut self, failure: &Failure) {
        if is_temporary(failure) && self.tries < TRIES {
            self.tries += 1;
        } else {
            self.provider += 1;
            self.tries = 0;
        }
    }

    /// How long to wait before the next try, in milliseconds; `None` for a first try.
    pub(crate) fn pause_ms(&self) -> Option<u64> {
        let doublings = self.tries.checked_sub(1)?;
        Some(FIRST_PAUSE_MS << doublings)
    }
}

/// The failure of a model call as events show it, named by its code. A provider that asks for a long wait is `exhausted`.
pub(crate) fn failure(error: &Error) -> Failure {
    let name = match error.retry_after_ms {
        _ if error.at.as_deref() == Some("/budget") => BUDGET,
        Some(ms) if ms > LONGEST_WAIT_MS => EXHAUSTED,
        _ => error.code.name(),
    };
    Failure { name: name.to_owned(), message: error.to_string() }
}

const EXHAUSTED: &str = "exhausted";
/// The name of the failure when a budget is spent. The next model of the list may cost nothing, or be under no cap.
pub(crate) const BUDGET: &str = "budget";

/// Overload and network failures pass; a wrong key or a bad request stays.
fn is_temporary(failure: &Failure) -> bool {
    [Code::Busy, Code::Unavailable, Code::Deadline].iter().any(|code| code.name() == failure.name)
}

/// Whether the model refused the context as longer than its window.
pub(crate) fn is_overflow(failure: &Failure) -> bool {
    failure.name == Code::TooLarge.name()
}

/// Whether the model has no key, or its provider refused the key.
pub(crate) fn is_not_configured(failure: &Failure) -> bool {
    failure.name == Code::Unauthenticated.name()
}

/// A pause less up to a quarter of it, so that many callers do not come back at once. `random` is any byte.
pub(crate) fn jittered(pause_ms: u64, random: u8) -> u64 {
    pause_ms - pause_ms * u64::from(random) / (4 * u64::from(u8::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(name: &str) -> Failure {
        Failure { name: name.into(), message: String::new() }
    }

    #[test]
    fn a_temporary_failure_is_tried_again_after_2_4_and_8_seconds_then_the_next_provider_is_called() {
        let mut retry = Retry::default();
        let mut seen = Vec::new();
        for _ in 0..4 {
            retry.fail(&failed("busy"));
            seen.push((retry.provider, retry.pause_ms()));
        }
        assert_eq!(seen, [(0, Some(2_000)), (0, Some(4_000)), (0, Some(8_000)), (1, None)]);
        retry.fail(&failed("unauthenticated"));
        assert_eq!((retry.provider, retry.pause_ms()), (2, None));
    }

    #[test]
    fn a_provider_that_asks_for_a_long_wait_is_passed_over() {
        let name = |ms| failure(&Error::busy("later", ms)).name;
        assert_eq!((name(60_000).as_str(), name(60_001).as_str()), ("busy", "exhausted"));
        let mut retry = Retry::default();
        retry.fail(&failed("exhausted"));
        assert_eq!((retry.provider, retry.pause_ms()), (1, None));
    }

    #[test]
    fn a_pause_is_shortened_by_at_most_a_quarter() {
        assert_eq!((jittered(8_000, 0), jittered(8_000, 255)), (8_000, 6_000));
    }
}
