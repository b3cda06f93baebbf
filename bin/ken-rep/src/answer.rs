use std::borrow::Cow;
use std::fmt::{self, Write};

use serde::ser::{Error as _, SerializeMap};
use serde::{Serialize, Serializer};

use crate::document::{Document, Kind};
use crate::numbers::rounded;
use crate::rules::Rules;

/// The answer of any type of reasoning, with its fields in the order of the contract. `more` contains the additional
/// fields of one type.
#[derive(Serialize)]
#[serde(bound = "C: Serialize + Texts, N: Confidences, S: Serialize, M: Serialize")]
pub(crate) struct Answer<'a, C, N, S, M> {
    reasoning_type: &'static str,
    conclusions: &'a C,
    confidence_scores: ByConclusion<'a, C, N>,
    reasoning_chain: &'a S,
    explanation: String,
    validation: Validation,
    facts: &'a [Cow<'a, str>],
    rules: &'a Rules<'a>,
    #[serde(flatten)]
    more: M,
}

/// The confidences as a JSON object from conclusion to confidence, in the order of the conclusions.
struct ByConclusion<'a, C, N> {
    conclusions: &'a C,
    confidence: N,
}

impl<C: Texts, N: Confidences> Serialize for ByConclusion<'_, C, N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let mut values = self.confidence.values();
        let mut failure = None;
        let written = self.conclusions.each(&mut |conclusion| {
            let entry = map.serialize_entry(conclusion, &values.next());
            entry.map_err(|error| {
                failure = Some(error);
                fmt::Error
            })
        });
        match (written, failure) {
            (Ok(()), _) => map.end(),
            (Err(error), failure) => Err(failure.unwrap_or_else(|| S::Error::custom(error))),
        }
    }
}

/// For types of reasoning without additional fields.
#[derive(Serialize)]
pub(crate) struct NoExtraFields {}

#[derive(Serialize)]
pub(crate) struct Validation {
    is_valid: bool,
    issues: Vec<Issue>,
    confidence_score: f64,
}

#[derive(Serialize)]
pub(crate) struct Issue {
    pub(crate) kind: &'static str,
    pub(crate) severity: &'static str,
    /// A JSON pointer to the place in the document.
    pub(crate) at: String,
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) proofs: Vec<Proof>,
}

/// The proof of one of the two statements of a contradiction.
#[derive(Serialize)]
pub(crate) struct Proof {
    pub(crate) statement: String,
    /// Indices of steps in the reasoning chain. The last of them derives the statement. Empty for a fact.
    pub(crate) steps: Vec<usize>,
    /// Whether the proof was too long, so that only its last step is included.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) shortened: bool,
}

/// A step of the reasoning chain.
#[derive(Serialize)]
pub(crate) struct Step {
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) rule: Option<u32>,
    pub(crate) premises: Vec<String>,
    pub(crate) conclusion: String,
    pub(crate) confidence: f64,
    pub(crate) explanation: String,
}

/// A list of texts that are produced one at a time.
pub(crate) trait Texts {
    fn each(&self, text: &mut dyn FnMut(&str) -> fmt::Result) -> fmt::Result;
}

/// The confidence of each conclusion.
pub(crate) trait Confidences {
    fn values(&self) -> impl Iterator<Item = f64>;
}

impl Confidences for Vec<f64> {
    fn values(&self) -> impl Iterator<Item = f64> {
        self.iter().copied()
    }
}

impl Texts for Vec<String> {
    fn each(&self, text: &mut dyn FnMut(&str) -> fmt::Result) -> fmt::Result {
        self.iter().try_for_each(|item| text(item))
    }
}

impl Texts for Vec<Step> {
    fn each(&self, text: &mut dyn FnMut(&str) -> fmt::Result) -> fmt::Result {
        self.iter().try_for_each(|step| text(&step.explanation))
    }
}

/// The findings of one type of reasoning.
pub(crate) struct Found<'a, C, N, S, M> {
    pub(crate) conclusions: &'a C,
    pub(crate) confidence: N,
    pub(crate) chain: &'a S,
    pub(crate) explanation: String,
    pub(crate) issues: Vec<Issue>,
    pub(crate) more: M,
}

impl<'a, C, N: Confidences, S, M> Found<'a, C, N, S, M> {
    /// Builds the answer. `facts` are the facts from which the findings follow.
    pub(crate) fn answer(
        self,
        kind: Kind,
        facts: &'a [Cow<'a, str>],
        document: &'a Document<'a>,
    ) -> Answer<'a, C, N, S, M> {
        Answer {
            reasoning_type: kind.name(),
            conclusions: self.conclusions,
            validation: Validation::of(self.issues, &self.confidence),
            confidence_scores: ByConclusion { conclusions: self.conclusions, confidence: self.confidence },
            reasoning_chain: self.chain,
            explanation: self.explanation,
            facts,
            rules: &document.rules,
            more: self.more,
        }
    }
}

impl Validation {
    /// Validates a result. It is valid if no issue is an error. Its confidence is that of its weakest conclusion, or 0
    /// if it is not valid.
    fn of(issues: Vec<Issue>, confidence: &impl Confidences) -> Validation {
        let is_valid = !issues.iter().any(|issue| issue.severity == "error");
        let weakest = confidence.values().fold(1.0, f64::min);
        let confidence_score = if is_valid { rounded(weakest) } else { 0.0 };
        Validation { is_valid, issues, confidence_score }
    }
}

impl<C, N, S, M> ken_tool::Answer for Answer<'_, C, N, S, M>
where
    C: Serialize + Texts,
    N: Confidences,
    S: Serialize + Texts,
    M: Serialize,
{
    fn summary(&self, verbose: bool, to: &mut dyn Write) -> fmt::Result {
        writeln!(to, "{} reasoning: {}", self.reasoning_type, self.explanation)?;
        let mut scores = self.confidence_scores.confidence.values();
        self.conclusions.each(&mut |text| {
            let score = scores.next().unwrap_or_default();
            writeln!(to, "  {text} ({score:.2})")
        })?;
        if verbose {
            writeln!(to, "because:")?;
            self.reasoning_chain.each(&mut |text| writeln!(to, "  {text}"))?;
        }
        for issue in &self.validation.issues {
            writeln!(to, "{}: {} (at {})", issue.severity, issue.message, issue.at)?;
        }
        Ok(())
    }
}
