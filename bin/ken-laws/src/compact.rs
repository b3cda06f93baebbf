//! The answer on one line, put together from parts that are ready: it is six times its text and has to keep up with it.
//! The bytes are those of the serialisation; a test holds them so.

use crate::bits::Bits;
use crate::evidence::{Evidence, Item};
use crate::json::{self, Pen};
use crate::judge::Finding;
use crate::part::Part;
use crate::report::{Line, Report, Shown};
use crate::rubric::{Effect, FEATURES, Feature, LAWS};

impl Report<'_> {
    /// Writes the answer, without a line feed.
    pub(crate) fn compact(&self, to: &mut Pen<'_>) {
        for (part, points) in SCORES.iter().zip(self.score.laws) {
            to.part(part);
            to.tenths(points);
        }
        to.all(b",\"overall_compliance\":");
        to.tenths(self.score.overall);
        to.all(b"},\"pass_fail_status\":\"");
        to.bytes(self.score.status.name().as_bytes());
        to.all(b"\",\"violations\":");
        to.list(self.violations(), write_line);
        to.all(b",\"recommendations\":");
        to.list(self.recommendations(), write_line);
        to.all(b",\"strengths\":");
        to.list(self.strengths(), write_line);
        to.all(b",\"evidence\":");
        let is_plain = json::is_plain(self.evidence.text);
        to.list(self.evidence.items.iter(), |to, item| {
            write_item(to, &self.evidence, item, is_plain);
        });
        to.all(b"}");
    }
}

/// The name of each score, and what stands before it.
static SCORES: [Part<48>; LAWS.len()] = {
    let (mut parts, mut index) = ([const { Part::new() }; LAWS.len()], 0);
    while index < LAWS.len() {
        let before: &[u8] = if index == 0 { b"{\"scores\":{\"" } else { b",\"" };
        let field = LAWS[index].field.as_bytes();
        parts[index] = Part::new().with(before).with(field).with(b"\":");
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

/// One piece of evidence; `is_plain` tells of the whole text.
#[inline(always)]
fn write_item(to: &mut Pen<'_>, evidence: &Evidence<'_>, item: &Item, is_plain: bool) {
    let Finding {
        feature, start, end, ..
    } = item.finding;
    let (at, offset) = evidence.part_at(start);
    HEADS.get(feature).inspect(|head| to.part(head));
    to.number(start - offset);
    to.all(b",\"end\":");
    to.number(end - offset);
    to.all(b",\"text\":\"");
    if is_plain {
        to.plain(evidence.text, start..end);
    } else {
        to.escaped(evidence.text.get(start..end).unwrap_or_default());
    }
    to.all(b"\",\"effect\":");
    to.tenths(item.effect);
    if let Some(at) = at {
        to.all(b",\"at\":\"");
        to.escaped(at);
        to.all(b"\"");
    }
    to.all(b"}");
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

fn write_line(to: &mut Pen<'_>, line: Line<'_>) {
    let saying = |feature: usize| SAYINGS.get(feature);
    match line {
        Line::Missing { law, features } => write_missing(to, law, features),
        Line::Recommendation(tally) => {
            saying(tally.feature).inspect(|saying| to.part(&saying.advice));
        }
        Line::Strength(tally) => {
            saying(tally.feature).inspect(|saying| to.part(&saying.says));
            if tally.rule().effect != Effect::Once {
                to.all(b" (");
                to.number(tally.count);
                to.all(b")");
            }
        }
        Line::Violation {
            tally,
            place: (start, end),
            text,
        } => {
            saying(tally.feature).inspect(|saying| to.part(&saying.says));
            let shown = text.get(start..end).unwrap_or_default();
            write_place(to, start, end, shown);
            if tally.count > 1 {
                to.all(b", and ");
                to.number(tally.count - 1);
                to.all(b" more");
            }
        }
    }
    to.all(b"\"");
}

fn write_place(to: &mut Pen<'_>, start: usize, end: usize, shown: &str) {
    to.all(b", at bytes ");
    to.number(start);
    to.all(b" to ");
    to.number(end);
    to.all(b": \\\"");
    to.escaped(&Shown(shown).to_string());
    to.all(b"\\\"");
}

fn write_missing(to: &mut Pen<'_>, law: usize, features: u64) {
    to.all(b"\"law ");
    to.number(law + 1);
    for (count, feature) in Bits(features).enumerate() {
        if count == 0 {
            to.all(b": not shown: ");
        } else {
            to.all(b", ");
        }
        KINDS.get(feature).inspect(|kind| to.part(kind));
    }
}

/// The name of each feature.
static KINDS: [Part<32>; FEATURES.len()] = {
    let (mut kinds, mut index) = ([const { Part::new() }; FEATURES.len()], 0);
    while index < FEATURES.len() {
        kinds[index] = Part::new().with(FEATURES[index].kind.as_bytes());
        index += 1;
    }
    kinds
};

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::context::Context;
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
            let mut room = Vec::new();
            let line = Pen::write(&mut room, |pen| report.compact(pen));
            let expected = serde_json::to_string(&report).unwrap();
            assert_eq!(str::from_utf8(line).unwrap(), expected);
        }
    }

    /// The tables are written as they stand.
    #[test]
    fn nothing_in_the_tables_needs_escaping() {
        for feature in FEATURES {
            for text in [feature.kind, feature.says, feature.advice] {
                assert!(json::is_plain(text), "{text}");
            }
        }
    }
}
