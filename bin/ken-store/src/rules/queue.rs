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

/// How a submission ends.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ending<'a> {
    pub(crate) outcome: Option<Outcome>,
    pub(crate) result: Option<&'a TurnResult>,
    pub(crate) error: Option<Failure>,
    pub(crate) context_usage: Option<&'a Value>,
    pub(crate) summary: Option<&'a str>,
}

impl<'a> Ending<'a> {
    pub(crate) fn of(outcome: Outcome) -> Ending<'a> {
        Ending { outcome: Some(outcome), ..Ending::default() }
    }

    /// Returns the ending of a turn that the store ends because no holder has.
    pub(crate) fn by(verdict: EndReason) -> Ending<'a> {
        Ending { error: Some(verdict.of_turn()), ..Ending::of(verdict.outcome()) }
    }

    pub(crate) fn outcome(&self) -> Outcome {
        self.outcome.unwrap_or(Outcome::Failed)
    }

    pub(crate) fn state(&self) -> State {
        match self.outcome() {
            Outcome::Completed => State::Completed,
            Outcome::Failed => State::Failed,
            Outcome::Aborted => State::Aborted,
        }
    }
}
