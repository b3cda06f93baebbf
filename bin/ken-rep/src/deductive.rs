//! What follows for certain.

use std::borrow::Cow;
use std::fmt;

use ken_logic::{Closure, Contradiction, Inference, Literal, Theory};
use ken_tool::{Error, Reply, Sent};
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use crate::answer::{Confidences, Found, Issue, NoMore, Proof, Texts};
use crate::document::{Document, Kind};
use crate::numbers::{counted, rounded};

/// The most places that the proofs of all contradictions may name together. A contradiction makes nearly everything
/// contradictory, and proofs of the later ones hold those of the earlier.
const MOST_PROOF_STEPS: usize = 100_000;

pub(crate) fn answer(document: &Document<'_>, reply: Reply<'_>) -> Result<Sent, Error> {
    let mut theory = Theory::with_capacity(document.rules.len());
    let given = document.facts_in(&mut theory)?;
    document.rules.add_to(&mut theory)?;
    let closure = theory
        .derive(&given)
        .map_err(|limit| Error::too_large(limit.to_string()).at("/rules"))?;
    let confidence = Confidence::of(&closure, document.decay)?;
    let chain = Chain {
        theory: &theory,
        closure: &closure,
        confidence: &confidence,
    };
    let issues = contradictions(&theory, &closure, &given);
    let found = Found {
        conclusions: &Conclusions(&chain),
        confidence: Scores(&chain),
        chain: &chain,
        explanation: explanation(document, &closure, issues.len()),
        issues,
        more: NoMore {},
    };
    Ok(reply.send(&found.answer(Kind::Deductive, &document.facts, document)))
}

/// `decay` to the power of the depth, by multiplying, which is the same on every machine. Each is a number and its text, made
/// once: a long chain has hundreds of thousands of steps, and mostly one confidence.
struct Confidence {
    by_depth: Vec<(f64, Box<RawValue>)>,
}

impl Confidence {
    fn of(closure: &Closure, decay: f64) -> Result<Confidence, Error> {
        let deepest = closure.steps.iter().map(|step| step.depth).max().unwrap_or(0);
        let mut confidence = 1.0;
        let mut by_depth = Vec::new();
        for _ in 0..=if decay == 1.0 { 0 } else { deepest } {
            let number: f64 = rounded(confidence);
            let text = to_raw_value(&number).map_err(|error| Error::internal(error.to_string()))?;
            by_depth.push((number, text));
            confidence *= decay;
        }
        Ok(Confidence { by_depth })
    }

    /// Without decay there is but one.
    fn at(&self, depth: u32) -> Option<&(f64, Box<RawValue>)> {
        self.by_depth.get(depth as usize).or(self.by_depth.last())
    }
}

fn explanation(document: &Document<'_>, closure: &Closure, contradictions: usize) -> String {
    let deepest = closure.steps.iter().map(|step| step.depth).max().unwrap_or(0);
    let (facts, rules) = (
        counted(document.facts.len(), "fact"),
        counted(document.rules.len(), "rule"),
    );
    let follows = match closure.steps.len() {
        0 => format!("nothing new follows from {facts} and {rules}"),
        1 => format!(
            "1 statement follows from {facts} and {rules}, in {}",
            counted(deepest as usize, "step")
        ),
        more => format!(
            "{more} statements follow from {facts} and {rules}, in at most {}",
            counted(deepest as usize, "step")
        ),
    };
    match contradictions {
        0 => follows,
        _ => format!("{follows}; {}", counted(contradictions, "contradiction")),
    }
}

/// The steps of the closure, in words.
struct Chain<'c, 'a> {
    theory: &'c Theory<'a>,
    closure: &'c Closure,
    confidence: &'c Confidence,
}

impl Chain<'_, '_> {
    fn confidence(&self, step: &ken_logic::Step) -> f64 {
        self.confidence.at(step.depth).map_or(1.0, |known| known.0)
    }

    fn confidence_text(&self, step: &ken_logic::Step) -> Option<&RawValue> {
        self.confidence.at(step.depth).map(|known| known.1.as_ref())
    }

    fn wording(&self, literal: Literal) -> Cow<'_, str> {
        self.theory.wording(literal)
    }

    fn explain(&self, step: &ken_logic::Step, to: &mut String) {
        to.clear();
        to.push_str(&self.wording(step.conclusion));
        let premises = self.closure.premises(step);
        let (because, rest) = match (step.inference, premises.split_first()) {
            (Inference::ModusTollens, Some((&refuting, rest))) => {
                self.refute(refuting, to);
                (", given ", rest)
            }
            (Inference::Axiom, _) => (": an axiom", premises),
            _ => (" because ", premises),
        };
        for (place, &premise) in rest.iter().enumerate() {
            to.push_str(if place == 0 { because } else { " and " });
            to.push_str(&self.wording(premise));
        }
        if step.inference == Inference::Axiom {
            to.push_str(because);
        }
        to.push_str(" (rule ");
        push_number(step.rule, to);
        to.push(')');
    }

    fn refute(&self, refuting: Literal, to: &mut String) {
        to.push_str(": else ");
        to.push_str(&self.wording(refuting.negation()));
        to.push_str(" would hold, but ");
        to.push_str(&self.wording(refuting));
    }
}

/// Decimal digits without the machinery of formatting, which is half the time of a long chain.
fn push_number(mut number: u32, to: &mut String) {
    let mut digits = [b'0'; 10];
    let mut start = digits.len();
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        start -= 1;
        if number == 0 {
            break;
        }
    }
    let digits = digits.get(start..).and_then(|digits| str::from_utf8(digits).ok());
    to.push_str(digits.unwrap_or_default());
}

#[derive(Serialize)]
struct StepInWords<'c> {
    #[serde(rename = "type")]
    kind: &'static str,
    rule: u32,
    premises: Premises<'c>,
    conclusion: Cow<'c, str>,
    confidence: Option<&'c RawValue>,
    explanation: &'c str,
}

impl Serialize for Chain<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.closure.steps.len()))?;
        let mut explanation = String::new();
        for step in &self.closure.steps {
            self.explain(step, &mut explanation);
            list.serialize_element(&StepInWords {
                kind: name(step.inference),
                rule: step.rule,
                premises: Premises(self.theory, self.closure.premises(step)),
                conclusion: self.wording(step.conclusion),
                confidence: self.confidence_text(step),
                explanation: &explanation,
            })?;
        }
        list.end()
    }
}

impl Texts for Chain<'_, '_> {
    fn each(&self, text: &mut dyn FnMut(&str) -> fmt::Result) -> fmt::Result {
        let mut explanation = String::new();
        self.closure.steps.iter().try_for_each(|step| {
            self.explain(step, &mut explanation);
            text(&explanation)
        })
    }
}

fn name(inference: Inference) -> &'static str {
    match inference {
        Inference::Axiom => "axiom",
        Inference::ModusPonens => "modus_ponens",
        Inference::ModusTollens => "modus_tollens",
    }
}

struct Premises<'c>(&'c Theory<'c>, &'c [Literal]);

impl Serialize for Premises<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.1.iter().map(|&literal| self.0.wording(literal)))
    }
}

struct Scores<'c, 'a>(&'c Chain<'c, 'a>);

impl Serialize for Scores<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(
            self.0
                .closure
                .steps
                .iter()
                .map(|step| self.0.confidence_text(step)),
        )
    }
}

impl Confidences for Scores<'_, '_> {
    fn values(&self) -> impl Iterator<Item = f64> {
        self.0.closure.steps.iter().map(|step| self.0.confidence(step))
    }
}

struct Conclusions<'c, 'a>(&'c Chain<'c, 'a>);

impl Serialize for Conclusions<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(
            self.0
                .closure
                .steps
                .iter()
                .map(|step| self.0.wording(step.conclusion)),
        )
    }
}

impl Texts for Conclusions<'_, '_> {
    fn each(&self, text: &mut dyn FnMut(&str) -> fmt::Result) -> fmt::Result {
        self.0
            .closure
            .steps
            .iter()
            .try_for_each(|step| text(&self.0.wording(step.conclusion)))
    }
}

/// Every contradiction, with both proofs.
fn contradictions(theory: &Theory<'_>, closure: &Closure, given: &[Literal]) -> Vec<Issue> {
    let mut left = MOST_PROOF_STEPS;
    let found = closure.contradictions();
    found
        .iter()
        .map(|contradiction| issue(theory, closure, given, contradiction, &mut left))
        .collect()
}

fn issue(
    theory: &Theory<'_>,
    closure: &Closure,
    given: &[Literal],
    contradiction: &Contradiction,
    left: &mut usize,
) -> Issue {
    let Contradiction {
        first,
        second,
        is_root,
    } = *contradiction;
    let reason = |literal: Literal| match closure.step_of(literal).and_then(|step| closure.steps.get(step)) {
        Some(step) => format!("follows by rule {}", step.rule),
        None => "is a fact".to_owned(),
    };
    let (one, other) = (theory.wording(first), theory.wording(second));
    let (why_one, why_other) = (reason(first), reason(second));
    let rest = if is_root {
        ""
    } else {
        "; this follows from an earlier contradiction"
    };
    Issue {
        kind: "contradiction",
        severity: "error",
        at: place(closure, given, second).unwrap_or_default(),
        message: format!("\"{one}\" {why_one}, and \"{other}\" {why_other}{rest}"),
        proofs: [first, second]
            .map(|literal| proof(theory, closure, literal, left))
            .into(),
    }
}

fn place(closure: &Closure, given: &[Literal], literal: Literal) -> Option<String> {
    match closure.step_of(literal) {
        Some(step) => Some(format!("/rules/{}", closure.steps.get(step)?.rule)),
        None => Some(format!(
            "/facts/{}",
            given.iter().position(|&fact| fact == literal)?
        )),
    }
}

fn proof(theory: &Theory<'_>, closure: &Closure, literal: Literal, left: &mut usize) -> Proof {
    let statement = theory.wording(literal).into_owned();
    match closure.proof(literal, *left) {
        Some(steps) => {
            *left -= steps.len();
            Proof {
                statement,
                steps,
                shortened: false,
            }
        }
        None => shortened(closure, literal, statement, left),
    }
}

fn shortened(closure: &Closure, literal: Literal, statement: String, left: &mut usize) -> Proof {
    // Finding out that it is too long took as long as what is left: a few times of that must be the end of it.
    *left /= 2;
    Proof {
        statement,
        steps: closure.step_of(literal).into_iter().collect(),
        shortened: true,
    }
}
