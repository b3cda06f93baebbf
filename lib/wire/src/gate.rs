//! Determines whether the change of a call has begun. The code that makes the change and the code that stops waiting
//! for it decide this together, exactly once. Therefore, if a call ends without a reply, either its change was never
//! begun, or its outcome is unknown.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use ken_types::Error;
use tokio::time::Instant;

const WAITING: u8 = 0;
const BEGUN: u8 = 1;
const GIVEN_UP: u8 = 2;

tokio::task_local! {
    static CURRENT: ChangeGate;
}

/// The gate of one call. A handler that changes state passes [`Gate::current`] to the code that makes the change. That
/// code makes the change only if [`Gate::begin`] allows it.
#[derive(Debug, Clone)]
pub struct ChangeGate {
    state: Arc<AtomicU8>,
    deadline: Option<Instant>,
}

impl ChangeGate {
    pub(crate) fn new(deadline: Instant) -> ChangeGate {
        ChangeGate { state: Arc::default(), deadline: Some(deadline) }
    }

    /// Returns the gate of the call that this task handles. Outside a call, the gate is always open.
    pub fn current() -> ChangeGate {
        CURRENT.try_with(ChangeGate::clone).unwrap_or_else(|_| ChangeGate { state: Arc::default(), deadline: None })
    }

    pub(crate) async fn scope<F: Future>(self, answer: F) -> F::Output {
        CURRENT.scope(self, answer).await
    }

    /// Whether the change may be made: its deadline has not passed, and it has not been given up. After this has
    /// returned true, a caller that does not get the reply does not know the outcome.
    pub fn begin(&self) -> bool {
        if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return !self.give_up();
        }
        self.set(BEGUN) != GIVEN_UP
    }

    /// Gives up the change. Returns true if it has not begun, and so never will.
    pub fn give_up(&self) -> bool {
        self.set(GIVEN_UP) != BEGUN
    }

    /// Returns the error of a call that ended without a reply, which says whether the outcome is unknown.
    pub(crate) fn ended(&self, error: Error) -> Error {
        if self.give_up() { error } else { error.outcome_unknown() }
    }

    /// Sets the state, unless it was set before, and returns the current state.
    fn set(&self, state: u8) -> u8 {
        let set = self.state.compare_exchange(WAITING, state, Ordering::AcqRel, Ordering::Acquire);
        set.map_or_else(|decided| decided, |_| state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_first_decides() {
        let gate = ChangeGate::current();
        assert!(gate.begin() && gate.begin() && !gate.give_up());
        let gate = ChangeGate::current();
        assert!(gate.give_up() && gate.give_up() && !gate.begin());
    }

    #[test]
    fn nothing_begins_after_the_deadline() {
        let gate = ChangeGate::new(Instant::now() - Duration::from_millis(1));
        assert!(!gate.begin() && gate.give_up());
    }

    #[tokio::test]
    async fn a_call_has_one_gate() {
        let gate = ChangeGate::new(Instant::now() + Duration::from_secs(60));
        assert!(gate.clone().scope(async { ChangeGate::current().begin() }).await);
        assert!(!gate.give_up());
    }
}
