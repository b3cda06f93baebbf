use ken_tool::Error;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A draft, and what ken-laws says about it.
#[derive(Serialize)]
pub(crate) struct Attempt {
    pub(crate) response: String,
    #[serde(flatten)]
    pub(crate) judgement: Judgement,
}

/// The fields of an answer of ken-laws that this program uses.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Judgement {
    /// The JSON text as ken-laws wrote it, with the same order of keys.
    pub(crate) scores: Box<RawValue>,
    pub(crate) pass_fail_status: Status,
    pub(crate) violations: Vec<String>,
    pub(crate) recommendations: Vec<String>,
}

/// The verdict on a draft, ordered from worst to best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Status {
    Fail,
    Conditional,
    Pass,
}

impl Status {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Status::Fail => "FAIL",
            Status::Conditional => "CONDITIONAL",
            Status::Pass => "PASS",
        }
    }
}

impl Judgement {
    pub(crate) fn read(answer: &str) -> Result<Judgement, Error> {
        serde_json::from_str(answer)
            .map_err(|error| Error::internal(format!("cannot read the answer of ken-laws: {error}")))
    }

    /// Returns the overall score in percent.
    pub(crate) fn overall(&self) -> f64 {
        #[derive(Deserialize)]
        struct Scores {
            overall_compliance: f64,
        }
        serde_json::from_str(self.scores.get()).map_or(0.0, |scores: Scores| scores.overall_compliance)
    }
}
