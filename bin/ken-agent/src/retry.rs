//! When a failed model call is made again, and by which provider.

use ken_types::event::Failure;
use ken_types::{Code, Error};

/// Tries after the first one, each after twice the pause of the one before.
const TRIES: u32 = 3;
const FIRST_PAUSE_MS: u64 = 2_000;

/// Where in the list of providers and tries a submission stands. A provider that has failed for good is not asked again
/// by the same submission.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Retry {
    pub(crate) provider: usize,
    tries: u32,
}

impl Retry {
    /// A turn has ended, with this failure if it failed.
    pub(crate) fn count(&mut self, failure: Option<&Failure>) {
        match failure {
            None => self.tries = 0,
            Some(failure) if may_pass(failure) && self.tries < TRIES => self.tries += 1,
            Some(_) => {
                self.provider += 1;
                self.tries = 0;
            }
        }
    }

    /// What to wait before the next try.
    pub(crate) fn pause_ms(&self) -> Option<u64> {
        let doublings = self.tries.checked_sub(1)?;
        Some(FIRST_PAUSE_MS << doublings)
    }
}

/// The failure of a model call as events show it: named by its code.
pub(crate) fn failure(error: &Error) -> Failure {
    Failure {
        name: error.code.name().to_owned(),
        message: error.to_string(),
    }
}

/// Overload and the network pass; a wrong key or a bad request stays.
fn may_pass(failure: &Failure) -> bool {
    [Code::Busy, Code::Unavailable, Code::Deadline]
        .iter()
        .any(|code| code.name() == failure.name)
}

/// Less up to a quarter, so that many callers do not come back at once. `random` is any byte.
pub(crate) fn jittered(pause_ms: u64, random: u8) -> u64 {
    pause_ms - pause_ms * u64::from(random) / (4 * u64::from(u8::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(name: &str) -> Failure {
        Failure {
            name: name.into(),
            message: String::new(),
        }
    }

    #[test]
    fn what_may_pass_is_tried_after_2_4_and_8_seconds_then_the_next_provider() {
        let mut retry = Retry::default();
        let mut seen = Vec::new();
        for _ in 0..4 {
            retry.count(Some(&failed("busy")));
            seen.push((retry.provider, retry.pause_ms()));
        }
        assert_eq!(
            seen,
            [(0, Some(2_000)), (0, Some(4_000)), (0, Some(8_000)), (1, None)]
        );
        retry.count(Some(&failed("unauthenticated")));
        assert_eq!((retry.provider, retry.pause_ms()), (2, None));
    }

    #[test]
    fn a_pause_is_shortened_by_at_most_a_quarter() {
        assert_eq!((jittered(8_000, 0), jittered(8_000, 255)), (8_000, 6_000));
    }
}
