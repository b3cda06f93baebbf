//! Rules for the queue of an instance, which runs one submission at a time, and for the time limit of submissions.

use ken_types::event::{Failure, Outcome, TurnResult};
use ken_types::limits::{CLAIMS, SUBMISSION_MS, WAITING_PROMPTS};
use ken_types::ops::store::{EndReason, Policy, State};
use ken_types::{Error, Timestamp};
use serde_json::Value;

use crate::tables::{QueueRow, SubmissionRow};

const BUSY_RETRY_MS: u64 = 1_000;

/// The work of an instance. The default is an instance without work.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) running: bool,
    queued: u64,
    first_place: i64,
    last_place: i64,
}

/// The position that a new submission gets in the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueuePosition {
    pub(crate) place: i64,
    /// Whether the submission can be claimed at once.
    pub(crate) open: bool,
    /// Whether the submission is placed before all others: the running one is aborted, and no other queued one can be claimed before it.
    pub(crate) first: bool,
}

impl Queue {
    pub(crate) fn of(rows: &[QueueRow]) -> Queue {
        let mut queue = Queue::default();
        for row in rows {
            queue.last_place = queue.last_place.max(row.last_place);
            if row.state == State::Queued {
                queue.queued = row.count;
                queue.first_place = row.first_place;
            } else {
                queue.running = true;
            }
        }
        queue
    }

    /// Checks that another submission can be queued. Fails with `conflict` if the queue is not empty and the policy is `reject`, and with
    /// `busy` if the queue is full.
    pub(crate) fn check(&self, policy: Policy) -> Result<(), Error> {
        if policy == Policy::Reject && (self.running || self.queued > 0) {
            return Err(Error::conflict("a turn runs or waits in this session"));
        }
        if self.queued >= WAITING_PROMPTS {
            let message = format!("{WAITING_PROMPTS} prompts wait in this session");
            return Err(Error::busy(message, BUSY_RETRY_MS));
        }
        Ok(())
    }

    pub(crate) fn position(&self, policy: Policy) -> QueuePosition {
        let first = policy == Policy::Interrupt;
        let overtakes = first && self.queued > 0;
        QueuePosition {
            place: if overtakes { self.first_place - 1 } else { self.last_place + 1 },
            open: !self.running && (first || self.queued == 0),
            first,
        }
    }
}

/// Returns how long a submission can still run, in milliseconds. The time limit counts from its first claim. Time spent waiting for
/// decisions does not count.
pub(crate) fn time_left(submission: &SubmissionRow, now: Timestamp) -> i64 {
    let now = now.millis();
    let waiting = submission.waiting_since.map_or(0, |since| now - since);
    let ran = submission.first_claim_at.map_or(0, |first| now - first) - submission.waited_ms - waiting;
    SUBMISSION_MS - ran.max(0)
}

/// Returns a duration in milliseconds; 0 if the end is before the start.
pub(crate) fn elapsed(start: Timestamp, end: Timestamp) -> u64 {
    u64::try_from(end.millis() - start.millis()).unwrap_or_default()
}

/// Returns the reason why a submission must be ended and not continued; `None` if it can continue.
pub(crate) fn verdict(submission: &SubmissionRow, now: Timestamp) -> Option<EndReason> {
    if submission.abort {
        Some(EndReason::Abort)
    } else if submission.attempt >= CLAIMS {
        Some(EndReason::RetryExhausted)
    } else if time_left(submission, now) <= 0 {
        Some(EndReason::Timeout)
    } else {
        None
    }
}

/// Returns the submission with a new list of approvals. It waits as long as one of them is undecided.
pub(crate) fn with_approvals(submission: &SubmissionRow, approvals: Vec<String>, now: Timestamp) -> SubmissionRow {
    let mut next = submission.clone();
    if approvals.is_empty() {
        next.state = State::Running;
        next.waited_ms += next.waiting_since.take().map_or(0, |since| now.millis() - since);
    } else {
        next.state = State::Waiting;
        next.waiting_since = next.waiting_since.or(Some(now.millis()));
    }
    next.approvals = approvals;
    next
}

#[derive(Debug, Clone)]
pub(crate) struct Ending<'a> {
    pub(crate) outcome: Outcome,
    pub(crate) result: Option<&'a TurnResult>,
    pub(crate) error: Option<Failure>,
    pub(crate) context_usage: Option<&'a Value>,
    pub(crate) summary: Option<&'a str>,
}

impl<'a> Ending<'a> {
    pub(crate) fn of(outcome: Outcome) -> Ending<'a> {
        Ending { outcome, result: None, error: None, context_usage: None, summary: None }
    }

    /// Returns the ending of a turn that the store ends because no holder has.
    pub(crate) fn by(verdict: EndReason) -> Ending<'a> {
        Ending { error: Some(verdict.of_turn()), ..Ending::of(verdict.outcome()) }
    }

    pub(crate) fn state(&self) -> State {
        match self.outcome {
            Outcome::Completed => State::Completed,
            Outcome::Failed => State::Failed,
            Outcome::Aborted => State::Aborted,
        }
    }
}

#[cfg(test)]
mod tests {
    use ken_types::fence::Outside;
    use ken_types::id::SubmissionId;
    use ken_types::ops::store::SubmissionKind;

    use super::*;

    const HOUR: i64 = 3_600_000;

    fn submission(abort: bool, attempt: u32, first_claim_at: Option<i64>) -> SubmissionRow {
        SubmissionRow {
            key: 1,
            id: SubmissionId("s".into()),
            stream: 1,
            event: 1,
            kind: SubmissionKind::Prompt,
            hidden: false,
            state: State::Running,
            open: false,
            recorded_from: 0,
            next_index: 0,
            lease: 1,
            attempt,
            closings: 0,
            abort,
            approvals: Vec::new(),
            first_claim_at,
            waiting_since: None,
            waited_ms: 0,
            outside: Outside::new(),
        }
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    /// An abort goes before everything else, and the number of claims before the time.
    #[test]
    fn why_a_submission_ends() {
        for abort in [false, true] {
            for (attempt, is_exhausted) in [(1, false), (CLAIMS - 1, false), (CLAIMS, true), (CLAIMS + 1, true)] {
                for (first, is_late) in
                    [(None, false), (Some(HOUR), false), (Some(1), false), (Some(0), true), (Some(-1), true)]
                {
                    let expected = match (abort, is_exhausted, is_late) {
                        (true, ..) => Some(EndReason::Abort),
                        (_, true, _) => Some(EndReason::RetryExhausted),
                        (_, _, true) => Some(EndReason::Timeout),
                        _ => None,
                    };
                    let found = verdict(&submission(abort, attempt, first), at(SUBMISSION_MS));
                    assert_eq!(found, expected, "{abort} {attempt} {first:?}");
                }
            }
        }
    }

    /// The clock of a submission stands while it waits for decisions, however many overlap.
    #[test]
    fn waiting_is_no_running_time() {
        let mut row = submission(false, 1, Some(0));
        let list = |count: usize| vec!["apr".to_owned(); count];
        for (now, approvals, state, left) in [
            (10, 1, State::Waiting, SUBMISSION_MS - 10),
            (20, 2, State::Waiting, SUBMISSION_MS - 10),
            (HOUR, 1, State::Waiting, SUBMISSION_MS - 10),
            (2 * HOUR, 0, State::Running, SUBMISSION_MS - 10),
            (2 * HOUR, 1, State::Waiting, SUBMISSION_MS - 10),
            (3 * HOUR, 0, State::Running, SUBMISSION_MS - 10),
            (3 * HOUR, 0, State::Running, SUBMISSION_MS - 10),
        ] {
            row = with_approvals(&row, list(approvals), at(now));
            assert_eq!((row.state, time_left(&row, at(now))), (state, left), "{now}");
        }
        assert_eq!(time_left(&row, at(3 * HOUR + 5)), SUBMISSION_MS - 15);
        // A clock that was set back gives no time.
        assert_eq!(time_left(&row, at(-HOUR)), SUBMISSION_MS);
    }

    /// All policies at all queues, against what the words say.
    #[test]
    fn where_a_submission_stands_in_the_queue() {
        let row = |state, count, first_place, last_place| QueueRow { state, count, first_place, last_place };
        for running in [false, true] {
            for queued in [0, 1, WAITING_PROMPTS - 1, WAITING_PROMPTS] {
                // The running one stood at 4, and the queued ones stand from 5 or, after an interruption, from 3 on.
                for first in [3, 5] {
                    let mut rows = Vec::new();
                    rows.extend((queued > 0).then(|| row(State::Queued, queued, first, 9)));
                    rows.extend(running.then(|| row(State::Running, 1, 4, 4)));
                    for rows in [rows.clone(), rows.into_iter().rev().collect()] {
                        let queue = Queue::of(&rows);
                        for policy in [Policy::Queue, Policy::Reject, Policy::Interrupt] {
                            let is_idle = !running && queued == 0;
                            let code = match policy {
                                Policy::Reject if !is_idle => Some(ken_types::Code::Conflict),
                                _ if queued == WAITING_PROMPTS => Some(ken_types::Code::Busy),
                                _ => None,
                            };
                            let about = format!("{running} {queued} {first} {policy:?}");
                            assert_eq!(queue.check(policy).err().map(|error| error.code), code, "{about}");
                            let position = queue.position(policy);
                            let interrupts = policy == Policy::Interrupt;
                            let last = if queued > 0 { 9 } else { 4 * i64::from(running) };
                            let place = if interrupts && queued > 0 { first - 1 } else { last + 1 };
                            let is_open = !running && (interrupts || queued == 0);
                            let found = (position.place, position.open, position.first);
                            assert_eq!(found, (place, is_open, interrupts), "{about}");
                        }
                    }
                }
            }
        }
    }
}
