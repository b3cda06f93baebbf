//! Writes the steps of a deduction. A long proof is the largest part of an answer, so the JSON of each step is written
//! as one text, which is faster than serialising its fields.

use std::fmt;
use std::ops::Range;

use ken_logic::{Closure, Inference, Literal, Step, Theory};
use ken_tool::{Error, Raw};
use ken_types::json::{escape, plain};
use serde::{Serialize, Serializer, ser::SerializeSeq};

use crate::answer::{Confidences, Texts};
use crate::numbers::rounded;

/// The steps of a closure, to be written as text.
pub(crate) struct Chain<'c, 'a> {
    theory: &'c Theory<'a>,
    closure: &'c Closure,
    confidence: &'c Confidence,
    /// Whether no text needs JSON escapes.
    is_plain: bool,
}

impl<'c, 'a> Chain<'c, 'a> {
    pub(crate) fn of(theory: &'c Theory<'a>, closure: &'c Closure, confidence: &'c Confidence) -> Chain<'c, 'a> {
        Chain { theory, closure, confidence, is_plain: theory.all_words().all(is_plain) }
    }

    fn confidence(&self, step: &Step) -> f64 {
        self.confidence.at(step).map_or(1.0, |known| known.0)
    }

    fn confidence_text(&self, step: &Step) -> &str {
        self.confidence.at(step).map_or("", |known| &known.1)
    }

    /// Writes a step as JSON. The statements in its explanation are copied from its fields, which are written before.
    fn write(&self, step: &Step, to: &mut String) {
        let mut digits = itoa::Buffer::new();
        let rule = digits.format(step.rule);
        let premises = self.closure.premises(step);
        to.push_str("{\"type\":\"");
        to.push_str(step.inference.name());
        to.push_str("\",\"rule\":");
        to.push_str(rule);
        to.push_str(",\"premises\":[");
        let mut last_premise = 0..0;
        for (place, &premise) in premises.iter().enumerate() {
            to.push_str(if place == 0 { "\"" } else { ",\"" });
            last_premise = self.word(premise, to);
            to.push('"');
        }
        to.push_str("],\"conclusion\":\"");
        let conclusion = self.word(step.conclusion, to);
        to.push_str("\",\"confidence\":");
        to.push_str(self.confidence_text(step));
        to.push_str(",\"explanation\":\"");
        self.explain(step, rule, |piece| match piece {
            Piece::Text(text) => to.push_str(text),
            Piece::Words(literal) if literal == step.conclusion => to.extend_from_within(conclusion.clone()),
            Piece::Words(literal) if premises.last() == Some(&literal) => {
                to.extend_from_within(last_premise.clone());
            }
            Piece::Words(literal) => {
                self.word(literal, to);
            }
        });
        to.push_str("\"}");
    }

    fn explain(&self, step: &Step, rule: &str, mut say: impl FnMut(Piece<'_>)) {
        say(Piece::Words(step.conclusion));
        let premises = self.closure.premises(step);
        let (because, rest) = match (step.inference, premises.split_first()) {
            (Inference::ModusTollens, Some((&refuting, rest))) => {
                // The document may contain no wording of the refuted statement, but it contains one of this statement.
                say(Piece::Text(": else "));
                say(Piece::Words(refuting));
                say(Piece::Text(" could not hold"));
                (", given ", rest)
            }
            (Inference::Axiom, _) => (": an axiom", premises),
            _ => (" because ", premises),
        };
        for (place, &premise) in rest.iter().enumerate() {
            say(Piece::Text(if place == 0 { because } else { " and " }));
            say(Piece::Words(premise));
        }
        if step.inference == Inference::Axiom {
            say(Piece::Text(because));
        }
        say(Piece::Text(" (rule "));
        say(Piece::Text(rule));
        say(Piece::Text(")"));
    }

    /// Appends a literal as part of a JSON string. Returns its range in `to`.
    fn word(&self, literal: Literal, to: &mut String) -> Range<usize> {
        let (start, (not, words)) = (to.len(), self.theory.words(literal));
        to.push_str(not);
        if self.is_plain {
            to.push_str(words);
        } else {
            escape(words, |bytes| to.push_str(&String::from_utf8_lossy(bytes)));
        }
        start..to.len()
    }
}

/// A part of an explanation.
enum Piece<'p> {
    Text(&'p str),
    Words(Literal),
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
            self.explain(step, &step.rule.to_string(), |piece| match piece {
                Piece::Text(text) => explanation.push_str(text),
                Piece::Words(literal) => explanation.push_str(&self.theory.wording(literal)),
            });
            text(&explanation)
        })
    }
}

fn is_plain(text: &str) -> bool {
    plain(text.as_bytes()) == text.len()
}

pub(crate) struct Scores<'c, 'a>(pub(crate) &'c Chain<'c, 'a>);

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

/// The confidence at each depth: `decay` to the power of the depth. It is computed by repeated multiplication, which
/// gives the same bits on every machine. Each value is formatted only once, because a long chain has hundreds of
/// thousands of steps but few different confidences.
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

    /// Returns the confidence of a step. Without decay there is only one value.
    fn at(&self, step: &Step) -> Option<&(f64, String)> {
        self.by_depth.get(step.depth as usize).or(self.by_depth.last())
    }
}
