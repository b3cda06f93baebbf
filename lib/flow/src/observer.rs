//! Observes the steps of a run and can replay recorded ones.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ken_types::Error;
use serde::Serialize;

use crate::answer::Answer;

/// A boxed future, for trait objects.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Receives the events of a run. The run waits until the observer has handled each event; an error of the observer ends the
/// run with that error.
pub trait Observer: Send + Sync {
    /// A result that was recorded before a crash. The run uses it instead of calling the tool, and does not report it again.
    fn recorded(&self, _name: &StepName) -> Option<Recorded> {
        None
    }

    /// A step is about to call its tool. After a crash, a step that was begun but not ended was interrupted.
    fn begun<'a>(&'a self, _name: &'a StepName) -> Pending<'a, Result<(), Error>> {
        Box::pin(ready(Ok(())))
    }

    fn ended<'a>(&'a self, _step: &'a StepEnd<'a>) -> Pending<'a, Result<(), Error>> {
        Box::pin(ready(Ok(())))
    }

    /// Governance has found something or made a decision.
    fn event<'a>(&'a self, _event: &'a Event) -> Pending<'a, Result<(), Error>> {
        Box::pin(ready(Ok(())))
    }
}

/// An observer that ignores everything.
#[derive(Debug, Clone, Copy)]
pub struct NoObserver;

impl Observer for NoObserver {}

/// Names one execution of a step. A run that is resumed with the same workflow, input and results makes the same names, and
/// thereby finds its recorded results.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct StepName {
    pub id: String,
    /// The number of this execution of the step, counted from 1 over all rounds of loops and retries.
    pub turn: u32,
}

/// The result or the error of a step, in a form that can be recorded.
pub type Recorded = Result<Arc<Answer>, Error>;

/// A step that has ended.
#[derive(Debug)]
pub struct StepEnd<'a> {
    pub name: &'a StepName,
    pub protocol: &'a str,
    /// The line that was sent to the tool, without its line feed.
    pub input: &'a str,
    pub result: &'a Recorded,
    pub time: Duration,
}

/// An event of governance. The names are those of the audit log.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    GovernanceLowQuality {
        step: String,
        quality: f64,
        min_quality: f64,
    },
    GovernanceIncoherenceDetected {
        score: f64,
        issues: Vec<String>,
    },
    /// The reaction to incoherence: `retry` or `abort`.
    RecoveryDecision {
        decision: Decision,
        reason: String,
    },
    GovernanceAbort {
        issues: Vec<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    Retry,
    Abort,
}

impl Event {
    /// The name in the audit log.
    pub fn name(&self) -> &'static str {
        match self {
            Event::GovernanceLowQuality { .. } => "governance_low_quality",
            Event::GovernanceIncoherenceDetected { .. } => "governance_incoherence_detected",
            Event::RecoveryDecision { .. } => "recovery_decision",
            Event::GovernanceAbort { .. } => "governance_abort",
        }
    }
}
