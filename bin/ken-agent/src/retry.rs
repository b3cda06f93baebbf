//! Decides when a failed model call is repeated, and with which model of the list.

use ken_types::event::{EMPTY_ANSWER, Failure};
use ken_types::ops::model::AT_PROVIDER;
use ken_types::{Code, Error};

/// The maximum number of repeated attempts. The pause before each is twice the previous one.
const MAX_RETRIES: u32 = 3;
const FIRST_PAUSE_MS: u64 = 2_000;

/// The number of empty answers in a row after which the model is not called again.
const MAX_EMPTY_ANSWERS: u32 = 2;

/// The longest wait that a provider can request, in milliseconds. If it requests more, the next provider is called
/// instead.
pub(crate) const MAX_WAIT_MS: u64 = 60_000;

/// How the model calls of a submission ended. Where that leads depends on the list of models, which is not known while the events
/// of an earlier holder are read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Retry(Vec<Ended>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Answered,
    Empty,
    /// A failure for which waiting may help.
    Temporary,
    Permanent,
}

/// The model of the list to call next, and the number of failed attempts with it. A model that has failed permanently is not
/// called again by the same submission.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) model: usize,
    tries: u32,
    /// The number of empty answers in a row.
    empty: u32,
}

impl Retry {
    pub(crate) fn succeed(&mut self) {
        // Several answers in a row say no more than one.
        if self.0.last() != Some(&Ended::Answered) {
            self.0.push(Ended::Answered);
        }
    }

    pub(crate) fn fail(&mut self, failure: &Failure) {
        self.0.push(Ended::with(failure));
    }

    /// Returns the position in a list whose language model with the index `last` is followed by none. Only with that one is it worth
    /// waiting: after any failure of another, the next is called at once. After an empty answer, the same model is called again at once.
    pub(crate) fn position(&self, last: usize) -> Position {
        self.0.iter().fold(Position::default(), |at, ended| match ended {
            Ended::Answered => Position { model: at.model, ..Position::default() },
            Ended::Empty => Position { empty: at.empty + 1, ..at },
            Ended::Temporary if at.model == last && at.tries < MAX_RETRIES => Position { tries: at.tries + 1, ..at },
            Ended::Temporary | Ended::Permanent => Position { model: at.model + 1, ..Position::default() },
        })
    }
}

impl Ended {
    fn with(failure: &Failure) -> Ended {
        match failure.name.as_str() {
            EMPTY_ANSWER => Ended::Empty,
            _ if is_temporary(failure) => Ended::Temporary,
            _ => Ended::Permanent,
        }
    }
}

impl Position {
    /// Whether the model had nothing to say, and again when it was called again.
    pub(crate) fn is_silent(&self) -> bool {
        self.empty >= MAX_EMPTY_ANSWERS
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
        _ if error.at.as_deref() == Some(AT_PROVIDER) => UNREACHABLE,
        Some(ms) if ms > MAX_WAIT_MS => EXHAUSTED,
        _ => error.code.name(),
    };
    // The place is for programs, and the name of the failure says the same.
    let error = Error { at: error.at.clone().filter(|at| at != AT_PROVIDER), ..error.clone() };
    Failure { name: name.to_owned(), message: error.to_string() }
}

const EXHAUSTED: &str = "exhausted";
/// The name of the failure when a provider is down, so that waiting a few seconds does not help.
const UNREACHABLE: &str = "unreachable";
/// The name of the failure when a budget is used up. The next model of the list is still called, because it may be free
/// or have no limit.
pub(crate) const BUDGET: &str = "budget";

/// Overload and network failures are temporary. A wrong key or a bad request is permanent.
fn is_temporary(failure: &Failure) -> bool {
    [Code::Busy, Code::Unavailable, Code::Deadline].iter().any(|code| code.name() == failure.name)
}

/// Whether a model that failed like this is not called again.
pub(crate) fn is_final(failure: &Failure) -> bool {
    Ended::with(failure) == Ended::Permanent
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

    fn position(names: &[&str], last: usize) -> (usize, Option<u64>, bool) {
        let mut retry = Retry::default();
        for name in names {
            match *name {
                "" => retry.succeed(),
                name => retry.fail(&Failure::new(name, "")),
            }
        }
        let at = retry.position(last);
        (at.model, at.pause_ms(), at.is_silent())
    }

    #[test]
    fn a_temporary_failure_of_the_last_model_is_tried_again_after_2_4_and_8_seconds() {
        let after = |count| position(&vec!["busy"; count], 0);
        assert_eq!(after(1), (0, Some(2_000), false));
        assert_eq!(after(2), (0, Some(4_000), false));
        assert_eq!(after(3), (0, Some(8_000), false));
        assert_eq!(after(4), (1, None, false));
        assert_eq!(position(&["busy", "busy", "busy", "busy", "unauthenticated"], 0), (2, None, false));
        assert_eq!(position(&["busy", "busy", "", "busy"], 0), (0, Some(2_000), false), "an answer counts");
    }

    #[test]
    fn nobody_waits_while_another_model_is_left_or_the_provider_is_down() {
        assert_eq!(position(&["busy"], 1), (1, None, false));
        assert_eq!(position(&["busy", "busy"], 1), (1, Some(2_000), false));
        assert_eq!(position(&[UNREACHABLE], 0), (1, None, false));
    }

    #[test]
    fn a_model_is_silent_after_two_empty_answers_of_its_own() {
        assert_eq!(position(&[EMPTY_ANSWER], 0), (0, None, false));
        assert_eq!(position(&[EMPTY_ANSWER, "invalid"], 0), (1, None, false));
        assert_eq!(position(&[EMPTY_ANSWER, "invalid", EMPTY_ANSWER], 0), (1, None, false));
        assert_eq!(position(&[EMPTY_ANSWER, "invalid", EMPTY_ANSWER, EMPTY_ANSWER], 0), (1, None, true));
        assert_eq!(position(&[EMPTY_ANSWER, "", EMPTY_ANSWER], 0), (0, None, false), "an answer between them counts");
    }

    #[test]
    fn a_provider_that_asks_for_a_long_wait_is_passed_over() {
        let name = |ms| failure(&Error::busy("later", ms)).name;
        assert_eq!((name(60_000).as_str(), name(60_001).as_str()), ("busy", "exhausted"));
        assert_eq!(failure(&Error::unavailable("down").at(AT_PROVIDER)).name, UNREACHABLE);
        assert_eq!(position(&["exhausted"], 0), (1, None, false));
        // The place is named, unless the name of the failure says it.
        assert_eq!(
            failure(&Error::unavailable("down").at(AT_PROVIDER)).message,
            Error::unavailable("down").to_string()
        );
        let placed = Error::invalid("/model", "no");
        assert_eq!(failure(&placed).message, placed.to_string());
        assert!(placed.to_string().contains("/model"));
    }

    #[test]
    fn a_pause_is_shortened_by_at_most_a_quarter() {
        assert_eq!((jittered(8_000, 0), jittered(8_000, 255)), (8_000, 6_000));
    }
}
