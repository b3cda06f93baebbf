//! The answer: a reading in the documented output format.

use std::fmt::{self, Write};

use ken_tool::Answer;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::emotion::EMOTIONS;
use crate::reading::{Feeling, Reading};
use crate::risk::{Level, Risk};
use crate::span::Span;

/// A reading together with its text, from which the answer quotes words, and the danger to its writer beside it.
pub(crate) struct State<'a> {
    pub(crate) text: &'a str,
    pub(crate) reading: &'a Reading,
    pub(crate) risk: &'a Risk,
}

/// Rounds to three digits, which exceeds the precision of the model.
fn rounded(value: f32) -> f64 {
    to_parts(value, 1000.0)
}

/// Rounds to a multiple of 1 / `parts`. Never returns -0.
pub(crate) fn to_parts(value: f32, parts: f64) -> f64 {
    (f64::from(value) * parts).round() / parts + 0.0
}

pub(crate) fn name(emotion: usize) -> &'static str {
    EMOTIONS.get(emotion).map_or("neutral", |emotion| emotion.name)
}

impl Serialize for State<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let reading = self.reading;
        let mut state = serializer.serialize_struct("State", 9)?;
        state.serialize_field("emotional_state", name(reading.state()))?;
        state.serialize_field("valence", reading.valence.name())?;
        state.serialize_field("intensity", &rounded(reading.intensity()))?;
        state.serialize_field("confidence", &rounded(reading.confidence))?;
        state.serialize_field("detected_emotions", &reading.feelings)?;
        state.serialize_field("salience", &rounded(reading.salience))?;
        state.serialize_field("valence_score", &rounded(reading.valence_score))?;
        state.serialize_field("contextual_factors", &Context(self))?;
        state.serialize_field("explanation", &Explanation(self).to_string())?;
        state.end()
    }
}

impl Serialize for Feeling {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let emotion = EMOTIONS.get(self.emotion);
        let mut feeling = serializer.serialize_struct("Feeling", 6)?;
        feeling.serialize_field("emotion", name(self.emotion))?;
        feeling.serialize_field("intensity", &rounded(self.intensity))?;
        feeling.serialize_field("dimension", emotion.map_or("primary", |emotion| emotion.dimension))?;
        feeling.serialize_field("valence", emotion.map_or("neutral", |emotion| emotion.valence.name()))?;
        feeling.serialize_field("confidence", &rounded(self.confidence))?;
        feeling.serialize_field("evidence", &self.evidence)?;
        feeling.end()
    }
}

struct Context<'a>(&'a State<'a>);

impl Serialize for Context<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let State { text, reading, risk } = self.0;
        let mut context = serializer.serialize_struct("Context", 5)?;
        let seen = &reading.context;
        let temporal: Vec<String> = seen.temporal.iter().map(|span| cited(text, *span).to_lowercase()).collect();
        context.serialize_field("is_question", &seen.is_question)?;
        context.serialize_field("has_negation", &seen.has_negation)?;
        context.serialize_field("temporal_indicators", &temporal)?;
        context.serialize_field("language", reading.language)?;
        context.serialize_field("risk", risk)?;
        context.end()
    }
}

fn cited(text: &str, span: Span) -> &str {
    text.get(span.start..span.end).unwrap_or_default()
}

/// Writes a sentence that explains the state.
struct Explanation<'a>(&'a State<'a>);

impl fmt::Display for Explanation<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State { text, reading, .. } = self.0;
        to.write_str(name(reading.state()))?;
        let evidence = reading.feelings.first().map(|feeling| feeling.evidence.as_slice());
        cite(to, " from \"", text, evidence.unwrap_or_default())?;
        cite(to, "; negated: \"", text, &reading.context.negated)?;
        if reading.context.has_contrast {
            to.write_str("; what follows a contrast counts more")?;
        }
        if reading.context.is_ironic {
            to.write_str("; read as irony")?;
        }
        match reading.language {
            "en" => Ok(()),
            "und" => to.write_str("; too little of it is known English"),
            other => write!(to, "; not English but \"{other}\", so not reliable"),
        }
    }
}

/// Writes a lead, then the words of some spans in quotation marks. Writes nothing if there are no
/// spans.
fn cite(to: &mut fmt::Formatter<'_>, lead: &str, text: &str, spans: &[Span]) -> fmt::Result {
    for (number, span) in spans.iter().enumerate() {
        to.write_str(if number == 0 { lead } else { ", \"" })?;
        quote(to, cited(text, *span))?;
    }
    Ok(())
}

/// Maximum length of a quotation in characters. Longer words and runs of emoji are cut.
const MAX_QUOTED: usize = 40;

/// Writes words within quotation marks that the caller has opened.
pub(crate) fn quote(to: &mut dyn Write, words: &str) -> fmt::Result {
    // Nearly all words are short enough even if their bytes are counted.
    let cut = (words.len() > MAX_QUOTED)
        .then(|| words.char_indices().nth(MAX_QUOTED))
        .flatten()
        .and_then(|(end, _)| words.get(..end));
    to.write_str(cut.unwrap_or(words))?;
    to.write_str(if cut.is_some() { "\u{2026}\"" } else { "\"" })
}

impl Answer for State<'_> {
    fn summary(&self, verbose: bool, to: &mut dyn Write) -> fmt::Result {
        let State { reading, risk, .. } = self;
        if risk.level >= Level::Elevated {
            writeln!(
                to,
                "This may be about harming oneself ({}, score {:.2}; a hint, not a judgement): please read it first.",
                format!("{:?}", risk.level).to_lowercase(),
                risk.score
            )?;
        }
        writeln!(
            to,
            "{}, {} ({:+.2}), intensity {:.2}, confidence {:.2}",
            name(reading.state()),
            reading.valence.name(),
            to_parts(reading.valence_score, 100.0),
            reading.intensity(),
            reading.confidence
        )?;
        for feeling in reading.feelings.iter().take(if verbose { usize::MAX } else { 3 }) {
            write!(to, "  {} {:.2}", name(feeling.emotion), feeling.intensity)?;
            for span in &feeling.evidence {
                to.write_str(" \"")?;
                quote(to, cited(self.text, *span))?;
            }
            writeln!(to)?;
        }
        if verbose {
            writeln!(to, "  {}", Explanation(self))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::table::Table;
    use crate::window::WordSums;

    /// The messages on which the model of danger was trained.
    const MESSAGES: &str = include_str!("../../../tools/train-esl/data/risk.tsv");

    fn answers(text: &str, risk: &Risk) -> (Value, String) {
        let reading = &Reading::of(&Table::shipped(), &mut WordSums::default(), text);
        let state = State { text, reading, risk };
        let mut summary = String::new();
        state.summary(true, &mut summary).unwrap();
        (serde_json::to_value(&state).unwrap(), summary)
    }

    proptest! {
        /// The answer is what it would be without the danger, apart from its own field and its line of the summary.
        #[test]
        fn danger_changes_nothing_else(picks in prop::collection::vec(0usize..4000, 0..4), rest in ".{0,40}") {
            let message = |pick: usize| MESSAGES.lines().nth(pick).and_then(|line| line.split('\t').nth(2));
            let mut text: String = picks.into_iter().filter_map(message).collect::<Vec<_>>().join(" ");
            text.push_str(&rest);
            let risk = Risk::of(&text);
            let (mut with, summary_with) = answers(&text, &risk);
            let (mut without, summary_without) = answers(&text, &Risk::default());
            for answer in [&mut with, &mut without] {
                let context = answer["contextual_factors"].as_object_mut().unwrap();
                prop_assert!(context.remove("risk").is_some());
            }
            prop_assert_eq!(with, without);
            let lines = usize::from(risk.level >= Level::Elevated);
            prop_assert_eq!(summary_with.lines().skip(lines).collect::<Vec<_>>(), summary_without.lines().collect::<Vec<_>>());
        }
    }
}
