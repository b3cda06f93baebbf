//! Decides when a failed model call is repeated, and with which provider.

use ken_types::event::{EMPTY_ANSWER, Failure};
use ken_types::{Code, Error};

/// The maximum number of repeated attempts. The pause before each is twice the previous one.
const MAX_RETRIES: u32 = 3;
const FIRST_PAUSE_MS: u64 = 2_000;

/// The number of empty answers in a row after which the model is not called again.
const MAX_EMPTY_ANSWERS: u32 = 2;

/// The longest wait that a provider can request, in milliseconds. If it requests more, the next provider is called
/// instead.
pub(crate) const MAX_WAIT_MS: u64 = 60_000;

/// The provider of the list to call next, and the number of failed attempts with it. A provider that has failed
/// permanently is not called again by the same submission.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Retry {
    pub(crate) provider: usize,
    tries: u32,
    /// The number of empty answers in a row.
    empty: u32,
}

impl Retry {
    /// Records that a turn ended without a failure.
    pub(crate) fn succeed(&mut self) {
        self.tries = 0;
        self.empty = 0;
    }

    /// Whether the model had nothing to say, and again when it was called again.
    pub(crate) fn is_silent(&self) -> bool {
        self.empty >= MAX_EMPTY_ANSWERS
    }

    /// Records that a turn ended with this failure. After an empty answer, the same model is called again at once.
    pub(crate) fn fail(&mut self, failure: &Failure) {
        if failure.name == EMPTY_ANSWER {
            self.empty += 1;
        } else if is_temporary(failure) && self.tries < MAX_RETRIES {
            self.tries += 1;
        } else {
            self.provider += 1;
            self.tries = 0;
            self.empty = 0;
        }
    }

    /// Returns how long to wait before the next attempt, in milliseconds, or `None` for a first attempt.
    pub(crate) fn pause_ms(&self) -> Option<u64> {
        let doublings = self.tries.checked_sub(1)?;
        Some(FIRST_PAUSE_MS << doublings)
    }
}

/// Returns the failure of a model call as events show it, named after its code. If the provider requests too long a
/// wait, the name is `exhausted`.
pub(crate) fn failure(error: &Error) -> Failure {
    let name = match error.retry_after_ms {
        _ if error.at.as_deref() == Some("/budget") => BUDGET,
        Some(ms) if ms > MAX_WAIT_MS => EXHAUSTED,
        _ => error.code.name(),
    };
    Failure { name: name.to_owned(), message: error.to_string() }
}

const EXHAUSTED: &str = "exhausted";
/// The name of the failure when a budget is used up. The next model of the list is still called, because it may be free
/// or have no limit.
pub(crate) const BUDGET: &str = "budget";

/// Overload and network failures are temporary. A wrong key or a bad request is permanent.
fn is_temporary(failure: &Failure) -> bool {
    [Code::Busy, Code::Unavailable, Code::Deadline].iter().any(|code| code.name() == failure.name)
}

/// Whether the model refused the context because it exceeds its window.
pub(crate) fn is_overflow(failure: &Failure) -> bool {
    failure.name == Code::TooLarge.name()
}

/// Whether the model has no key, or its provider refused the key.
pub(crate) fn is_not_configured(failure: &Failure) -> bool {
    failure.name == Code::Unauthenticated.name()
}

/// Shortens a pause by up to a quarter, so that many callers do not repeat their calls at the same time. `random` is
/// any byte.
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
    fn a_model_is_silent_after_two_empty_answers_of_its_own() {
        let mut retry = Retry::default();
        let mut after = |name| {
            retry.fail(&failed(name));
            (retry.provider, retry.pause_ms(), retry.is_silent())
        };
        assert_eq!(after(EMPTY_ANSWER), (0, None, false));
        assert_eq!(after("invalid"), (1, None, false));
        assert_eq!(after(EMPTY_ANSWER), (1, None, false));
        assert_eq!(after(EMPTY_ANSWER), (1, None, true));
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
