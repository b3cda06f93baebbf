//! Rules for scheduled runs: how they begin, end and are repeated.

use ken_types::event::Failure;
use ken_types::ops::schedules::{Overlap, QUEUED_RUNS, Reason, RunState, SlotOutcome};
use ken_types::ops::store::State;

/// The pauses before the second attempt, before the third, and before each later one, in milliseconds.
const PAUSES_MS: [i64; 3] = [60_000, 120_000, 300_000];
/// The names of temporary failures of model calls, in which the provider was overloaded or could not be reached.
const TRANSIENT: [&str; 5] = ["busy", "unavailable", "deadline", "exhausted", "unreachable"];

/// Returns the initial state of a run and, if it does not run, the reason. The last argument is the number of queued runs and the number of
/// active ones.
pub(crate) fn initial_state(
    outcome: SlotOutcome,
    overlap: Overlap,
    (queued, working): (u64, u64),
) -> (RunState, Option<Reason>) {
    match outcome {
        SlotOutcome::Missed(reason) => (RunState::Missed, Some(reason)),
        SlotOutcome::CatchUp => (RunState::Queued, None),
        SlotOutcome::Run if queued + working == 0 => (RunState::Queued, None),
        SlotOutcome::Run if overlap == Overlap::Queue && queued < QUEUED_RUNS => (RunState::Queued, None),
        SlotOutcome::Run => (RunState::Skipped, Some(Reason::Overlap)),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Final(RunState),
    /// The run is repeated after this many milliseconds.
    Retry(i64),
}

/// What a submission did, in addition to its outcome.
#[derive(Debug, Clone, Default)]
pub(crate) struct Activity {
    /// Whether it called a tool, which may have had a side effect.
    pub(crate) called_tools: bool,
    /// The failure of its last model call, by name.
    pub(crate) failure: Option<String>,
}

/// Returns how an attempt ended. `attempt` is its number, and `max` is the maximum number of attempts.
pub(crate) fn attempt_end(
    state: State,
    error: Option<&Failure>,
    activity: &Activity,
    (attempt, max): (u32, u32),
) -> Ended {
    let name = error.map_or("", |error| error.name.as_str());
    let is_transient = activity.failure.as_deref().is_some_and(|name| TRANSIENT.contains(&name));
    Ended::Final(match (state, name) {
        (State::Completed, _) => RunState::Ok,
        (State::Failed, "timeout") => RunState::Timeout,
        (State::Failed, "retry_exhausted" | "interrupted") => RunState::Unknown,
        (State::Failed, "provider") if is_transient && !activity.called_tools && attempt < max => {
            let pause = PAUSES_MS.get(attempt.saturating_sub(1) as usize);
            return Ended::Retry(*pause.or(PAUSES_MS.last()).unwrap_or(&0));
        }
        _ => RunState::Error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_transient_failure_without_tools_is_tried_again_and_later_each_time() {
        let provider = Failure::new("provider", "");
        let activity = |called_tools, failure: &str| Activity { called_tools, failure: Some(failure.into()) };
        let failed = |deeds: &Activity, attempt| attempt_end(State::Failed, Some(&provider), deeds, (attempt, 5));
        let error = Ended::Final(RunState::Error);
        let pauses: Vec<Ended> = (1..=5).map(|attempt| failed(&activity(false, "busy"), attempt)).collect();
        let again = Ended::Retry;
        assert_eq!(pauses, [again(60_000), again(120_000), again(300_000), again(300_000), error]);
        assert_eq!(failed(&activity(true, "busy"), 1), error);
        assert_eq!(failed(&activity(false, "invalid"), 1), error);
    }

    #[test]
    fn an_end_has_its_state() {
        for (state, name, expected) in [
            (State::Completed, "", RunState::Ok),
            (State::Aborted, "aborted", RunState::Error),
            (State::Failed, "timeout", RunState::Timeout),
            (State::Failed, "retry_exhausted", RunState::Unknown),
            (State::Failed, "defect", RunState::Error),
        ] {
            let error = Failure::new(name, "");
            let ended = attempt_end(state, Some(&error), &Activity::default(), (1, 3));
            assert_eq!(ended, Ended::Final(expected), "{name}");
        }
    }

    #[test]
    fn a_slot_waits_for_the_run_before_it_or_is_skipped() {
        let skipped = (RunState::Skipped, Some(Reason::Overlap));
        let queued = (RunState::Queued, None);
        for (overlap, active, expected) in [
            (Overlap::Skip, (0, 0), queued),
            (Overlap::Skip, (0, 1), skipped),
            (Overlap::Skip, (1, 0), skipped),
            (Overlap::Queue, (9, 1), queued),
            (Overlap::Queue, (10, 1), skipped),
        ] {
            assert_eq!(initial_state(SlotOutcome::Run, overlap, active), expected, "{overlap:?} {active:?}");
        }
        assert_eq!(initial_state(SlotOutcome::CatchUp, Overlap::Skip, (50, 1)), queued);
    }
}
