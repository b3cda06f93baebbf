//! The outcome of a run.

use std::sync::Arc;
use std::time::Duration;

use ken_types::Error;
use serde::{Serialize, Serializer};

use crate::answer::Answer;

/// The JSON object `{workflow, status, results, governance_summary, error, execution_time_ms}`. Equal workflows, data and
/// tools give equal bytes, apart from the time, which is present only if it is set.
#[derive(Debug, Serialize)]
pub struct Outcome {
    pub workflow: String,
    pub status: Status,
    pub results: Results,
    pub governance_summary: Summary,
    /// Why it failed or was aborted. The message begins with the name of the step; `at` points into the step's input.
    pub error: Option<Error>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_milliseconds")]
    pub execution_time_ms: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Every step succeeded or was skipped.
    Completed,
    /// A step failed. The results of the other steps are kept.
    Failed,
    /// The results did not agree, not even after a step ran once more, and `GOV_REQUIRE_COHERENCE` is set. The results are
    /// kept.
    Aborted,
}

impl Status {
    /// The name on the wire and in the audit log.
    pub fn name(self) -> &'static str {
        match self {
            Status::Completed => "completed",
            Status::Failed => "failed",
            Status::Aborted => "aborted",
        }
    }
}

impl Outcome {
    /// The time that the run took, in milliseconds; 0 where it is not set.
    pub fn milliseconds(&self) -> f64 {
        milliseconds(self.execution_time_ms)
    }
}

fn milliseconds(time: Option<Duration>) -> f64 {
    time.unwrap_or_default().as_micros() as f64 / 1e3
}

/// The newest result of each step, in the order of the workflow's file, as the tools wrote them.
#[derive(Debug, Default)]
pub struct Results(pub(crate) Vec<(String, Arc<Answer>)>);

impl Results {
    pub fn get(&self, id: &str) -> Option<&Answer> {
        let found = self.0.iter().find(|(known, _)| known == id);
        found.map(|(_, answer)| answer.as_ref())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Answer)> {
        self.0.iter().map(|(id, answer)| (id.as_str(), answer.as_ref()))
    }
}

impl Serialize for Results {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(id, answer)| (id, answer.as_ref())))
    }
}

/// The findings of governance.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// The quality of each step, from 0 to 1, in the order of the workflow's file. Empty when governance is off.
    #[serde(serialize_with = "by_name")]
    pub quality_scores: Vec<(String, f64)>,
    /// Whether no issue was found; also true when there was nothing to compare, or governance is off.
    pub is_coherent: bool,
    /// `None` when there was nothing to compare, or governance is off.
    pub coherence: Option<Coherence>,
    pub warnings: Vec<String>,
    pub actions: Vec<String>,
}

impl Default for Summary {
    fn default() -> Summary {
        Summary {
            quality_scores: Vec::new(),
            is_coherent: true,
            coherence: None,
            warnings: Vec::new(),
            actions: Vec::new(),
        }
    }
}

/// How well the results agree.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Coherence {
    /// The share of the checks that found nothing wrong, 0 to 1.
    pub score: f64,
    pub checks: Vec<Check>,
    pub issues: Vec<String>,
}

/// One kind of comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    pub name: &'static str,
    /// The number of statements or results that were compared.
    pub compared: usize,
    pub passed: bool,
}

fn by_name<S: Serializer>(pairs: &[(String, f64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

fn as_milliseconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(milliseconds(*time))
}
