//! The steps of a deduction, in words. A long proof is most of an answer and far more than what was asked, so its JSON is
//! put together here, a step at a time, rather than a field at a time.

use std::fmt;

use ken_logic::{Closure, Inference, Literal, Step, Theory};
use ken_tool::{Error, Raw};
use ken_types::json::{escape, plain};
use serde::{Serialize, Serializer, ser::SerializeSeq};

use crate::answer::{Confidences, Texts};
use crate::numbers::rounded;

/// The steps of the closure, in words.
pub(crate) struct Chain<'c, 'a> {
    theory: &'c Theory<'a>,
    closure: &'c Closure,
    confidence: &'c Confidence,
    /// Whether all words stand in JSON as they are.
    is_plain: bool,
}

impl<'c, 'a> Chain<'c, 'a> {
    pub(crate) fn of(
        theory: &'c Theory<'a>,
        closure: &'c Closure,
        confidence: &'c Confidence,
    ) -> Chain<'c, 'a> {
        Chain {
            theory,
            closure,
            confidence,
            is_plain: theory.all_words().all(is_plain),
        }
    }

    fn confidence(&self, step: &Step) -> f64 {
        self.confidence.at(step).map_or(1.0, |known| known.0)
    }

    fn confidence_text(&self, step: &Step) -> &str {
        self.confidence.at(step).map_or("", |known| &known.1)
    }

    /// A step as JSON.
    fn write(&self, step: &Step, to: &mut String) {
        let push = |to: &mut String, words: &str| match self.is_plain {
            true => to.push_str(words),
            false => push_escaped(to, words),
        };
        let mut room = [0; 10];
        let rule = digits(step.rule, &mut room);
        to.push_str("{\"type\":\"");
        to.push_str(name(step.inference));
        to.push_str("\",\"rule\":");
        to.push_str(rule);
        to.push_str(",\"premises\":[");
        for (place, &premise) in self.closure.premises(step).iter().enumerate() {
            to.push_str(if place == 0 { "\"" } else { ",\"" });
            self.word(premise, to, push);
            to.push('"');
        }
        to.push_str("],\"conclusion\":\"");
        self.word(step.conclusion, to, push);
        to.push_str("\",\"confidence\":");
        to.push_str(self.confidence_text(step));
        to.push_str(",\"explanation\":\"");
        self.explain(step, rule, to, push);
        to.push_str("\"}");
    }

    fn explain(&self, step: &Step, rule: &str, to: &mut String, push: impl Fn(&mut String, &str)) {
        self.word(step.conclusion, to, &push);
        let premises = self.closure.premises(step);
        let (because, rest) = match (step.inference, premises.split_first()) {
            (Inference::ModusTollens, Some((&refuting, rest))) => {
                self.refute(refuting, to, &push);
                (", given ", rest)
            }
            (Inference::Axiom, _) => (": an axiom", premises),
            _ => (" because ", premises),
        };
        for (place, &premise) in rest.iter().enumerate() {
            to.push_str(if place == 0 { because } else { " and " });
            self.word(premise, to, &push);
        }
        if step.inference == Inference::Axiom {
            to.push_str(because);
        }
        to.push_str(" (rule ");
        to.push_str(rule);
        to.push(')');
    }

    fn refute(&self, refuting: Literal, to: &mut String, push: impl Fn(&mut String, &str)) {
        to.push_str(": else ");
        self.word(refuting.negation(), to, &push);
        to.push_str(" would hold, but ");
        self.word(refuting, to, &push);
    }

    fn word(&self, literal: Literal, to: &mut String, push: impl Fn(&mut String, &str)) {
        let (not, words) = self.theory.words(literal);
        to.push_str(not);
        push(to, words);
    }
}

impl Serialize for Chain<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.closure.steps.len()))?;
        let mut text = String::new();
        for step in &self.closure.steps {
            text.clear();
            self.write(step, &mut text);
            list.serialize_element(&Raw(&text))?;
        }
        list.end()
    }
}

impl Texts for Chain<'_, '_> {
    fn each(&self, text: &mut dyn FnMut(&str) -> fmt::Result) -> fmt::Result {
        let mut explanation = String::new();
        self.closure.steps.iter().try_for_each(|step| {
            explanation.clear();
            self.explain(step, &step.rule.to_string(), &mut explanation, String::push_str);
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

/// Decimal digits without the machinery of formatting.
fn digits(mut number: u32, room: &mut [u8; 10]) -> &str {
    let mut start = room.len();
    for digit in room.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        start -= 1;
        if number == 0 {
            break;
        }
    }
    let digits = room.get(start..).and_then(|digits| str::from_utf8(digits).ok());
    digits.unwrap_or_default()
}

fn push_escaped(to: &mut String, text: &str) {
    escape(text, |bytes| to.push_str(&String::from_utf8_lossy(bytes)));
}

fn is_plain(text: &str) -> bool {
    plain(text.as_bytes()) == text.len()
}

pub(crate) struct Scores<'c, 'a>(pub(crate) &'c Chain<'c, 'a>);

impl Serialize for Scores<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let steps = self.0.closure.steps.iter();
        serializer.collect_seq(steps.map(|step| Raw(self.0.confidence_text(step))))
    }
}

impl Confidences for Scores<'_, '_> {
    fn values(&self) -> impl Iterator<Item = f64> {
        self.0.closure.steps.iter().map(|step| self.0.confidence(step))
    }
}

pub(crate) struct Conclusions<'c, 'a>(pub(crate) &'c Chain<'c, 'a>);

impl Serialize for Conclusions<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let steps = self.0.closure.steps.iter();
        serializer.collect_seq(steps.map(|step| self.0.theory.wording(step.conclusion)))
    }
}

impl Texts for Conclusions<'_, '_> {
    fn each(&self, text: &mut dyn FnMut(&str) -> fmt::Result) -> fmt::Result {
        let mut steps = self.0.closure.steps.iter();
        steps.try_for_each(|step| text(&self.0.theory.wording(step.conclusion)))
    }
}

/// `decay` to the power of the depth, by multiplying, which is the same on every machine. Each is a number and its text, made
/// once: a long chain has hundreds of thousands of steps, and mostly one confidence.
pub(crate) struct Confidence {
    by_depth: Vec<(f64, String)>,
}

impl Confidence {
    pub(crate) fn of(closure: &Closure, decay: f64) -> Result<Confidence, Error> {
        let deepest = closure.steps.iter().map(|step| step.depth).max().unwrap_or(0);
        let mut confidence = 1.0;
        let mut by_depth = Vec::new();
        for _ in 0..=if decay == 1.0 { 0 } else { deepest } {
            let number: f64 = rounded(confidence);
            let text = serde_json::to_string(&number).map_err(|error| Error::internal(error.to_string()))?;
            by_depth.push((number, text));
            confidence *= decay;
        }
        Ok(Confidence { by_depth })
    }

    /// Without decay there is but one.
    fn at(&self, step: &Step) -> Option<&(f64, String)> {
        self.by_depth.get(step.depth as usize).or(self.by_depth.last())
    }
}
