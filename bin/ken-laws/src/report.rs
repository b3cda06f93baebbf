//! The answer: scores, verdict, what is wrong, what to do, what is good, and where each of it stands.

use std::cell::Cell;
use std::fmt::{self, Write};

use ken_tool::{Answer, Output, Verdict};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::bits::Bits;
use crate::evidence::Evidence;
use crate::json::Pen;
use crate::rubric::{Effect, FEATURES, Feature, LAWS};
use crate::score::{Score, Status, Tally};

/// The verdict on one text.
pub(crate) struct Report<'a> {
    pub(crate) score: &'a Score,
    pub(crate) evidence: Evidence<'a>,
    /// Room for the answer on one line.
    pub(crate) room: &'a Cell<Vec<u8>>,
}

/// At most this many findings of a defect, and of a strength, are listed; their effects still add up to the points of the
/// feature.
pub(crate) const LISTED: usize = 100;
pub(crate) const LISTED_STRENGTHS: usize = 3;

impl<'a> Report<'a> {
    pub(crate) fn violations(&self) -> impl Iterator<Item = Line<'a>> {
        let (score, evidence) = (self.score, self.evidence);
        defects(score).map(move |tally| {
            let mut items = evidence.items.iter();
            let first = items.find(|item| item.finding.feature == tally.feature);
            Line::Violation {
                tally,
                place: first.map_or((0, 0), |item| (item.finding.start, item.finding.end)),
                text: evidence.text,
            }
        })
    }

    pub(crate) fn recommendations(&self) -> impl Iterator<Item = Line<'a>> {
        let score = self.score;
        let missing = (0..LAWS.len()).filter_map(move |law| missing(score, law));
        defects(score).map(Line::Recommendation).chain(missing)
    }

    pub(crate) fn strengths(&self) -> impl Iterator<Item = Line<'a>> {
        let strengths = self.score.tallies.iter();
        strengths
            .filter(|tally| tally.rule().effect != Effect::Violation)
            .map(Line::Strength)
    }
}

fn defects(score: &Score) -> impl Iterator<Item = &Tally> {
    let all = score.tallies.iter();
    all.filter(|tally| tally.rule().effect == Effect::Violation)
}

impl Serialize for Report<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(6))?;
        map.serialize_entry("scores", &Scores(self.score))?;
        map.serialize_entry("pass_fail_status", self.score.status.name())?;
        map.serialize_entry("violations", &Each(|| self.violations()))?;
        map.serialize_entry("recommendations", &Each(|| self.recommendations()))?;
        map.serialize_entry("strengths", &Each(|| self.strengths()))?;
        map.serialize_entry("evidence", &self.evidence)?;
        map.end()
    }
}

/// Sentences that are made only when they are shown.
struct Each<F>(F);

impl<'a, I: Iterator<Item = Line<'a>>, F: Fn() -> I> Serialize for Each<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0())
    }
}

impl Answer for Report<'_> {
    fn verdict(&self) -> Verdict {
        match self.score.status {
            Status::Fail => Verdict::Negative,
            Status::Pass | Status::Conditional => Verdict::Positive,
        }
    }

    fn summary(&self, verbose: bool, to: &mut dyn Write) -> fmt::Result {
        let score = self.score;
        writeln!(to, "Five laws validation")?;
        writeln!(to, "Overall compliance: {} %", Tenths(score.overall))?;
        writeln!(to, "Status: {}", score.status.name())?;
        for (row, points) in LAWS.iter().zip(score.laws) {
            writeln!(
                to,
                "  {}. {:<26} {:>5} %",
                row.law.number(),
                row.title,
                Tenths(points).to_string()
            )?;
        }
        section(to, "Strengths", self.strengths())?;
        section(to, "Recommendations", self.recommendations())?;
        if verbose {
            section(to, "Violations", self.violations())?;
            self.evidence.summary(to)?;
        }
        Ok(())
    }

    fn line(&self, to: &mut Output) {
        let mut room = self.room.take();
        to.bytes(Pen::write(&mut room, |pen| self.compact(pen)));
        self.room.set(room);
    }
}

fn section<'a>(to: &mut dyn Write, title: &str, lines: impl Iterator<Item = Line<'a>>) -> fmt::Result {
    for (count, line) in lines.enumerate() {
        if count == 0 {
            writeln!(to, "{title}:")?;
        }
        writeln!(to, "  - {line}")?;
    }
    Ok(())
}

impl Tally {
    pub(crate) fn rule(&self) -> &'static Feature {
        FEATURES.get(self.feature).unwrap_or(&FEATURES[0])
    }
}

// Sentences about features

/// A sentence about a feature.
pub(crate) enum Line<'a> {
    Violation {
        tally: &'a Tally,
        place: (usize, usize),
        text: &'a str,
    },
    Recommendation(&'a Tally),
    /// The strengths of a law that the text does not show.
    Missing {
        law: usize,
        features: u64,
    },
    Strength(&'a Tally),
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Violation { tally, place, text } => write_violation(f, tally, *place, text),
            Line::Recommendation(tally) => write_rule(f, tally, tally.rule().advice),
            Line::Missing { law, features } => write_missing(f, *law, *features),
            Line::Strength(tally) => write_strength(f, tally),
        }
    }
}

fn write_rule(f: &mut fmt::Formatter<'_>, tally: &Tally, says: &str) -> fmt::Result {
    let feature = tally.rule();
    f.write_str(LAW_NAMES.get(feature.law as usize).unwrap_or(&""))?;
    f.write_str(", ")?;
    f.write_str(feature.kind)?;
    f.write_str(": ")?;
    f.write_str(says)
}

const LAW_NAMES: [&str; 5] = ["law 1", "law 2", "law 3", "law 4", "law 5"];

fn write_violation(
    f: &mut fmt::Formatter<'_>,
    tally: &Tally,
    (start, end): (usize, usize),
    text: &str,
) -> fmt::Result {
    write_rule(f, tally, tally.rule().says)?;
    let shown = text.get(start..end).unwrap_or_default();
    write!(f, ", at bytes {start} to {end}: \"{}\"", Shown(shown))?;
    match tally.count {
        0 | 1 => Ok(()),
        count => write!(f, ", and {} more", count - 1),
    }
}

fn write_strength(f: &mut fmt::Formatter<'_>, tally: &Tally) -> fmt::Result {
    write_rule(f, tally, tally.rule().says)?;
    match tally.rule().effect {
        Effect::Once => Ok(()),
        _ => write!(f, " ({})", tally.count),
    }
}

fn write_missing(f: &mut fmt::Formatter<'_>, law: usize, features: u64) -> fmt::Result {
    f.write_str(LAW_NAMES.get(law).unwrap_or(&""))?;
    let kinds = Bits(features).filter_map(|index| FEATURES.get(index));
    for (count, feature) in kinds.enumerate() {
        f.write_str(if count == 0 { ": not shown: " } else { ", " })?;
        f.write_str(feature.kind)?;
    }
    Ok(())
}

/// What a law below the bar of the strict verdict would gain by.
fn missing(score: &Score, law: usize) -> Option<Line<'static>> {
    const HIGH: i32 = 850;
    let features = STRENGTHS.get(law).copied().unwrap_or(0) & !score.found;
    let low = score.laws.get(law).is_some_and(|points| *points < HIGH);
    (low && features != 0).then_some(Line::Missing { law, features })
}

/// The bits of each law's strengths.
const STRENGTHS: [u64; LAWS.len()] = {
    let (mut index, mut sets) = (0, [0; LAWS.len()]);
    while index < FEATURES.len() {
        if !matches!(FEATURES[index].effect, Effect::Violation) {
            sets[FEATURES[index].law as usize] |= 1 << index;
        }
        index += 1;
    }
    sets
};

/// A place of the text for a line of prose: no line feeds, not long.
pub(crate) struct Shown<'a>(pub(crate) &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (count, char) in self.0.chars().enumerate() {
            match char {
                _ if count == 80 => return f.write_str("…"),
                '\n' | '\r' | '\t' => f.write_char(' ')?,
                char => f.write_char(char)?,
            }
        }
        Ok(())
    }
}

// Numbers

/// Tenths as a number with one decimal.
pub(crate) struct Tenths(pub(crate) i32);

impl fmt::Display for Tenths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(f, "{sign}{}.{}", self.0.abs() / 10, self.0.abs() % 10)
    }
}

impl Serialize for Tenths {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.0) / 10.0)
    }
}

struct Scores<'a>(&'a Score);

impl Serialize for Scores<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(6))?;
        for (row, points) in LAWS.iter().zip(self.0.laws) {
            map.serialize_entry(row.field, &Tenths(points))?;
        }
        map.serialize_entry("overall_compliance", &Tenths(self.0.overall))?;
        map.end()
    }
}
