//! The answer: scores, verdict, what is wrong, what to do, what is good, and where each of it stands.

use std::fmt::{self, Write};

use ken_tool::{Answer, Verdict};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};

use crate::input::Subject;
use crate::judge::{Finding, Findings};
use crate::rubric::{Effect, FEATURES, Feature, LAWS};
use crate::score::{Score, Status, Tally};

/// The verdict on one text.
#[derive(Serialize)]
pub(crate) struct Report<'a> {
    scores: Scores<'a>,
    #[serde(serialize_with = "status_name")]
    pass_fail_status: Status,
    violations: Lines<'a>,
    recommendations: Lines<'a>,
    strengths: Lines<'a>,
    evidence: Evidence<'a>,
}

/// At most this many findings of a defect, and of a strength, are listed; their effects still add up to the points of the
/// feature.
pub(crate) const LISTED: usize = 100;
pub(crate) const LISTED_STRENGTHS: usize = 3;

impl<'a> Report<'a> {
    pub(crate) fn new(
        text: &'a str,
        findings: &'a Findings,
        score: &'a Score,
        subject: Option<&'a Subject>,
    ) -> Report<'a> {
        let evidence = Evidence {
            text,
            subject,
            items: Item::list(findings, score),
        };
        let mut report = Report {
            scores: Scores(score),
            pass_fail_status: score.status,
            violations: Lines::default(),
            recommendations: Lines::default(),
            strengths: Lines::default(),
            evidence,
        };
        for tally in &score.tallies {
            report.explain(tally);
        }
        report
            .recommendations
            .0
            .extend((0..LAWS.len()).filter_map(|law| missing(score, law)));
        report
    }

    fn explain(&mut self, tally: &'a Tally) {
        if tally.rule().effect != Effect::Violation {
            return self.strengths.0.push(Line::Strength(tally));
        }
        let first = self
            .evidence
            .items
            .iter()
            .find(|item| item.finding.feature == tally.feature);
        let place = first.map_or((0, 0), |item| (item.finding.start, item.finding.end));
        self.violations.0.push(Line::Violation {
            tally,
            place,
            text: self.evidence.text,
        });
        self.recommendations.0.push(Line::Recommendation(tally));
    }
}

impl Answer for Report<'_> {
    fn verdict(&self) -> Verdict {
        match self.pass_fail_status {
            Status::Fail => Verdict::Negative,
            Status::Pass | Status::Conditional => Verdict::Positive,
        }
    }

    fn summary(&self, verbose: bool, to: &mut dyn Write) -> fmt::Result {
        let score = self.scores.0;
        writeln!(to, "Five laws validation")?;
        writeln!(to, "Overall compliance: {} %", Tenths(score.overall))?;
        writeln!(to, "Status: {}", self.pass_fail_status.name())?;
        for (row, points) in LAWS.iter().zip(score.laws) {
            writeln!(
                to,
                "  {}. {:<26} {:>5} %",
                row.law.number(),
                row.title,
                Tenths(points).to_string()
            )?;
        }
        section(to, "Strengths", &self.strengths)?;
        section(to, "Recommendations", &self.recommendations)?;
        if verbose {
            section(to, "Violations", &self.violations)?;
            self.evidence.summary(to)?;
        }
        Ok(())
    }
}

fn section(to: &mut dyn Write, title: &str, lines: &Lines<'_>) -> fmt::Result {
    if lines.0.is_empty() {
        return Ok(());
    }
    writeln!(to, "{title}:")?;
    lines.0.iter().try_for_each(|line| writeln!(to, "  - {line}"))
}

impl Tally {
    fn rule(&self) -> &'static Feature {
        FEATURES.get(self.feature).unwrap_or(&FEATURES[0])
    }
}

// Sentences about features

/// Sentences that are written only when they are shown.
#[derive(Default)]
struct Lines<'a>(Vec<Line<'a>>);

enum Line<'a> {
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

impl Serialize for Lines<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.0)
    }
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
    let kinds = FEATURES
        .iter()
        .enumerate()
        .filter(|(index, _)| features & (1 << index) != 0);
    for (count, (_, feature)) in kinds.enumerate() {
        f.write_str(if count == 0 { ": not shown: " } else { ", " })?;
        f.write_str(feature.kind)?;
    }
    Ok(())
}

/// What a law below the bar of the strict verdict would gain by.
fn missing(score: &Score, law: usize) -> Option<Line<'static>> {
    const HIGH: i32 = 850;
    let mut features = strengths_of(law);
    for tally in &score.tallies {
        features &= !(1 << tally.feature);
    }
    let low = score.laws.get(law).is_some_and(|points| *points < HIGH);
    (low && features != 0).then_some(Line::Missing { law, features })
}

/// The bits of a law's strengths.
fn strengths_of(law: usize) -> u64 {
    let strengths = FEATURES
        .iter()
        .enumerate()
        .filter(|(_, feature)| feature.law as usize == law && feature.effect != Effect::Violation);
    strengths.fold(0, |set, (index, _)| set | 1 << index)
}

/// A place of the text for a line of prose: no line feeds, not long.
struct Shown<'a>(&'a str);

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
struct Tenths(i32);

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

fn status_name<S: Serializer>(status: &Status, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(status.name())
}

// Evidence

/// A finding with its share of the feature's points.
struct Item {
    finding: Finding,
    effect: i32,
}

impl Item {
    /// The findings that are listed, in the order of the text.
    fn list(findings: &Findings, score: &Score) -> Vec<Item> {
        let mut shares = [const { Spread { left: 0, points: 0 } }; FEATURES.len()];
        for tally in &score.tallies {
            if let Some(share) = shares.get_mut(tally.feature) {
                let most = match tally.rule().effect {
                    Effect::Violation => LISTED,
                    Effect::Share => LISTED_STRENGTHS,
                    Effect::Once => 1,
                };
                *share = Spread {
                    left: tally.count.min(most) as i32,
                    points: tally.points,
                };
            }
        }
        let listed = findings.list.iter().filter_map(|finding| {
            let effect = shares.get_mut(finding.feature)?.next()?;
            Some(Item {
                finding: *finding,
                effect,
            })
        });
        let mut items: Vec<Item> = listed.collect();
        items.sort_unstable_by_key(|item| (item.finding.start, item.finding.end, item.finding.feature));
        items
    }
}

/// Points that are dealt out evenly; what does not divide goes to the first.
struct Spread {
    left: i32,
    points: i32,
}

impl Spread {
    fn next(&mut self) -> Option<i32> {
        if self.left == 0 {
            return None;
        }
        let part = (self.points.abs() + self.left - 1) / self.left * self.points.signum();
        self.points -= part;
        self.left -= 1;
        Some(part)
    }
}

struct Evidence<'a> {
    text: &'a str,
    subject: Option<&'a Subject>,
    items: Vec<Item>,
}

/// One piece of evidence, in the order of the contract; `at` only for a document.
#[derive(Serialize)]
struct Piece<'a> {
    law: u8,
    kind: &'static str,
    start: usize,
    end: usize,
    text: &'a str,
    effect: Tenths,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<&'a str>,
}

impl Evidence<'_> {
    fn piece(&self, item: &Item) -> Piece<'_> {
        let finding = item.finding;
        let feature = FEATURES.get(finding.feature).unwrap_or(&FEATURES[0]);
        let (at, offset) = self
            .subject
            .and_then(|subject| subject.part_at(finding.start))
            .unzip();
        let offset = offset.unwrap_or(0);
        Piece {
            law: feature.law.number(),
            kind: feature.kind,
            start: finding.start - offset,
            end: finding.end - offset,
            text: self.text.get(finding.start..finding.end).unwrap_or_default(),
            effect: Tenths(item.effect),
            at,
        }
    }

    fn summary(&self, to: &mut dyn Write) -> fmt::Result {
        if !self.items.is_empty() {
            writeln!(to, "Evidence:")?;
        }
        for piece in self.items.iter().map(|item| self.piece(item)) {
            writeln!(
                to,
                "  {:>6}  law {}, {}, {}..{}: {}",
                piece.effect.to_string(),
                piece.law,
                piece.kind,
                piece.start,
                piece.end,
                Shown(piece.text)
            )?;
        }
        Ok(())
    }
}

impl Serialize for Evidence<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.items.len()))?;
        for item in &self.items {
            list.serialize_element(&self.piece(item))?;
        }
        list.end()
    }
}
