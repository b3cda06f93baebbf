//! Who watches a run.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ken_types::Error;
use serde::Serialize;

use crate::answer::Answer;

/// A future that a trait object gives back.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Is told what happens in a run, and waited for: a run goes on when its observer has written down what it was told. An
/// error of the observer ends the run with that error.
pub trait Observer: Send + Sync {
    /// A result that was written down before a crash. The run takes it and does not ask the tool again. What is supplied
    /// here is not told again.
    fn recorded(&self, _name: &StepName) -> Option<Recorded> {
        None
    }

    /// A step is about to ask its tool. Whoever finds a step begun and not ended knows that it was at work.
    fn begun<'a>(&'a self, _name: &'a StepName) -> Pending<'a, Result<(), Error>> {
        Box::pin(ready(Ok(())))
    }

    /// A step has ended.
    fn ended<'a>(&'a self, _step: &'a StepEnd<'a>) -> Pending<'a, Result<(), Error>> {
        Box::pin(ready(Ok(())))
    }

    /// Governance has something to say.
    fn event<'a>(&'a self, _event: &'a Event) -> Pending<'a, Result<(), Error>> {
        Box::pin(ready(Ok(())))
    }
}

/// An observer that does not care.
#[derive(Debug, Clone, Copy)]
pub struct Nobody;

impl Observer for Nobody {}

/// One execution of a step. The same workflow, input and results give the same names, so that a run that goes on after a
/// crash finds what it has recorded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct StepName {
    pub id: String,
    /// From 1: how often this step has run, in loops and in a second try.
    pub turn: u32,
}

/// How a step ended, as it can be recorded.
pub type Recorded = Result<Arc<Answer>, Error>;

/// What an observer is told of a step.
#[derive(Debug)]
pub struct StepEnd<'a> {
    pub name: &'a StepName,
    pub protocol: &'a str,
    /// The line that the tool was given, without its line feed.
    pub input: &'a str,
    pub result: &'a Recorded,
    pub time: Duration,
}

/// An act of governance; the names are those of the audit.
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
    /// What follows from incoherence: `retry` or `abort`.
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
    /// The name in the audit.
    pub fn name(&self) -> &'static str {
        match self {
            Event::GovernanceLowQuality { .. } => "governance_low_quality",
            Event::GovernanceIncoherenceDetected { .. } => "governance_incoherence_detected",
            Event::RecoveryDecision { .. } => "recovery_decision",
            Event::GovernanceAbort { .. } => "governance_abort",
        }
    }
}
