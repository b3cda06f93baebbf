//! The queue of an instance, and how long a submission may take: first come, first served, one at a time.

use ken_types::event::{Failure, Outcome, TurnResult};
use ken_types::limits::{CLAIMS, SUBMISSION_MS, WAITING_PROMPTS};
use ken_types::ops::store::{Policy, State, Verdict};
use ken_types::{Error, Timestamp};
use serde_json::Value;

use crate::tables::{QueueRow, SubmissionRow};

const BUSY_RETRY_MS: u64 = 1_000;

/// What an instance has to do when something is to be queued in it. The default is an instance with nothing to do.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) running: bool,
    queued: u64,
    first_place: i64,
    last_place: i64,
}

/// Where a new submission goes in the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entrance {
    pub(crate) place: i64,
    /// It may be claimed at once.
    pub(crate) open: bool,
    /// It overtakes: what runs is aborted, and nothing else queued may be claimed before it.
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

    /// Whether one more may come in. `conflict` under policy `reject`, `busy` when the queue is full.
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

    pub(crate) fn entrance(&self, policy: Policy) -> Entrance {
        let first = policy == Policy::Interrupt;
        let overtakes = first && self.queued > 0;
        Entrance {
            place: if overtakes { self.first_place - 1 } else { self.last_place + 1 },
            open: !self.running && (first || self.queued == 0),
            first,
        }
    }
}

/// How long a submission may still run, in milliseconds: an hour from its first claim, without the time spent waiting for
/// decisions.
pub(crate) fn time_left(submission: &SubmissionRow, now: Timestamp) -> i64 {
    let now = now.millis();
    let waiting = submission.waiting_since.map_or(0, |since| now - since);
    let ran = submission.first_claim_at.map_or(0, |first| now - first) - submission.waited_ms - waiting;
    SUBMISSION_MS - ran.max(0)
}

/// How long something took, in milliseconds.
pub(crate) fn elapsed(start: Timestamp, end: Timestamp) -> u64 {
    u64::try_from(end.millis() - start.millis()).unwrap_or_default()
}

/// Why a submission shall be closed instead of continued.
pub(crate) fn verdict(submission: &SubmissionRow, now: Timestamp) -> Option<Verdict> {
    if submission.abort {
        Some(Verdict::Abort)
    } else if submission.attempt >= CLAIMS {
        Some(Verdict::RetryExhausted)
    } else if time_left(submission, now) <= 0 {
        Some(Verdict::Timeout)
    } else {
        None
    }
}

/// The submission after its approvals have changed: it waits while one of them is asked for and not decided.
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

    /// That of a turn which no holder has ended.
    pub(crate) fn by(verdict: Verdict) -> Ending<'a> {
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
