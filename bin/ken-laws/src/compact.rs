//! The answer on one line, put together from parts that are ready: it is six times its text and has to keep up with it.
//! The bytes are those of the serialisation; a test holds them so.

use crate::evidence::Piece;
use crate::json::{self, Part};
use crate::report::{Line, Report, Shown};
use crate::rubric::{Effect, FEATURES, Feature, LAWS};

impl Report<'_> {
    /// Appends the answer, without a line feed.
    pub(crate) fn compact(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(b"{\"scores\":{");
        for (part, points) in SCORES.iter().zip(self.score.laws) {
            part.write(to);
            tenths(to, points);
            to.push(b',');
        }
        to.extend_from_slice(b"\"overall_compliance\":");
        tenths(to, self.score.overall);
        to.extend_from_slice(b"},\"pass_fail_status\":\"");
        to.extend_from_slice(self.score.status.name().as_bytes());
        to.extend_from_slice(b"\",\"violations\":");
        json::list(to, self.violations(), write_line);
        to.extend_from_slice(b",\"recommendations\":");
        json::list(to, self.recommendations(), write_line);
        to.extend_from_slice(b",\"strengths\":");
        json::list(to, self.strengths(), write_line);
        to.extend_from_slice(b",\"evidence\":");
        json::list(to, self.evidence.items.iter(), |to, item| {
            if let Some(head) = HEADS.get(item.finding.feature) {
                head.write(to);
            }
            write_piece(to, &self.evidence.piece(item));
        });
        to.push(b'}');
    }
}

/// The name of each score.
static SCORES: [Part<48>; LAWS.len()] = {
    let (mut parts, mut index) = ([const { Part::new() }; LAWS.len()], 0);
    while index < LAWS.len() {
        let field = LAWS[index].field.as_bytes();
        parts[index] = Part::new().with(b"\"").with(field).with(b"\":");
        index += 1;
    }
    parts
};

/// What each piece of evidence of a feature begins with.
static HEADS: [Part<64>; FEATURES.len()] = {
    let (mut heads, mut index) = ([const { Part::new() }; FEATURES.len()], 0);
    while index < FEATURES.len() {
        let feature = &FEATURES[index];
        heads[index] = Part::new()
            .with(b"{\"law\":")
            .with(&[b'0' + feature.law.number()])
            .with(b",\"kind\":\"")
            .with(feature.kind.as_bytes())
            .with(b"\",\"start\":");
        index += 1;
    }
    heads
};

fn write_piece(to: &mut Vec<u8>, piece: &Piece<'_>) {
    json::number(to, piece.start as u64);
    to.extend_from_slice(b",\"end\":");
    json::number(to, piece.end as u64);
    to.extend_from_slice(b",\"text\":");
    json::text(to, piece.text);
    to.extend_from_slice(b",\"effect\":");
    tenths(to, piece.effect.0);
    if let Some(at) = piece.at {
        to.extend_from_slice(b",\"at\":");
        json::text(to, at);
    }
    to.push(b'}');
}

fn tenths(to: &mut Vec<u8>, value: i32) {
    if value < 0 {
        to.push(b'-');
    }
    let tenths = u64::from(value.unsigned_abs());
    json::number(to, tenths / 10);
    to.extend_from_slice(&[b'.', b'0' + (tenths % 10) as u8]);
}

/// The sentence that is said of a feature wherever it is found, up to what depends on the text: `law 1, linked: …`.
struct Saying {
    says: Part<160>,
    advice: Part<160>,
}

static SAYINGS: [Saying; FEATURES.len()] = {
    const NONE: Saying = Saying {
        says: Part::new(),
        advice: Part::new(),
    };
    let (mut sayings, mut index) = ([NONE; FEATURES.len()], 0);
    while index < FEATURES.len() {
        let feature = &FEATURES[index];
        sayings[index] = Saying {
            says: saying(feature, feature.says),
            advice: saying(feature, feature.advice),
        };
        index += 1;
    }
    sayings
};

const fn saying(feature: &Feature, text: &str) -> Part<160> {
    Part::new()
        .with(b"\"law ")
        .with(&[b'0' + feature.law.number()])
        .with(b", ")
        .with(feature.kind.as_bytes())
        .with(b": ")
        .with(text.as_bytes())
}

fn write_line(to: &mut Vec<u8>, line: Line<'_>) {
    let saying = |feature: usize| SAYINGS.get(feature);
    match line {
        Line::Missing { law, features } => write_missing(to, law, features),
        Line::Recommendation(tally) => {
            saying(tally.feature).inspect(|saying| saying.advice.write(to));
        }
        Line::Strength(tally) => {
            saying(tally.feature).inspect(|saying| saying.says.write(to));
            if tally.rule().effect != Effect::Once {
                to.extend_from_slice(b" (");
                json::number(to, tally.count as u64);
                to.push(b')');
            }
        }
        Line::Violation {
            tally,
            place: (start, end),
            text,
        } => {
            saying(tally.feature).inspect(|saying| saying.says.write(to));
            let shown = text.get(start..end).unwrap_or_default();
            write_place(to, start, end, shown);
            if tally.count > 1 {
                to.extend_from_slice(b", and ");
                json::number(to, tally.count as u64 - 1);
                to.extend_from_slice(b" more");
            }
        }
    }
    to.push(b'"');
}

fn write_place(to: &mut Vec<u8>, start: usize, end: usize, shown: &str) {
    to.extend_from_slice(b", at bytes ");
    json::number(to, start as u64);
    to.extend_from_slice(b" to ");
    json::number(to, end as u64);
    to.extend_from_slice(b": \\\"");
    json::escaped(to, &Shown(shown).to_string());
    to.extend_from_slice(b"\\\"");
}

fn write_missing(to: &mut Vec<u8>, law: usize, features: u64) {
    to.extend_from_slice(b"\"law ");
    json::number(to, law as u64 + 1);
    let kinds = FEATURES
        .iter()
        .enumerate()
        .filter(|(index, _)| features & (1 << index) != 0);
    for (count, (_, feature)) in kinds.enumerate() {
        to.extend_from_slice(if count == 0 { b": not shown: " } else { b", " });
        to.extend_from_slice(feature.kind.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::context::Context;
    use crate::evidence::{Evidence, Item};
    use crate::judge::Judge;
    use crate::rubric::BARS;
    use crate::score::Score;

    const TEXTS: &[&str] = &[
        "",
        "The pump was replaced on 4 March 2024 because its bearing had worn through.",
        "Trust me.\tThere is \u{1}no need\n\nto \u{7f}test \"it\" \\ ü.\n\n- Trust me. It works! It always works.",
        "The end end result is very very really good. The load is 4 kN. The load is 5 kN. Studies show it.",
    ];

    #[test]
    fn a_line_has_the_bytes_of_the_serialisation() {
        let (mut judge, mut score, mut items) = (Judge::default(), Score::default(), Vec::new());
        for text in TEXTS {
            judge.examine(text, &Context::default());
            score.fill(&judge, &BARS[1]);
            Item::list(&judge.findings, &score, &mut items);
            let report = Report {
                score: &score,
                evidence: Evidence {
                    text,
                    subject: None,
                    items: &items,
                },
                room: &Cell::default(),
            };
            let mut line = Vec::new();
            report.compact(&mut line);
            let expected = serde_json::to_string(&report).unwrap();
            assert_eq!(String::from_utf8(line).unwrap(), expected);
        }
    }

    /// The tables are written as they stand.
    #[test]
    fn nothing_in_the_tables_needs_escaping() {
        for feature in FEATURES {
            let mut escaped = Vec::new();
            for text in [feature.kind, feature.says, feature.advice] {
                escaped.clear();
                json::escaped(&mut escaped, text);
                assert_eq!(escaped, text.as_bytes());
            }
        }
    }
}
