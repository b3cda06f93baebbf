//! The evidence: each finding that is listed, with its share of what its feature costs or gains.

use std::fmt::{self, Write};

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

use crate::input::Subject;
use crate::judge::{Finding, Findings};
use crate::report::{LISTED, LISTED_STRENGTHS, Shown, Tenths};
use crate::rubric::{Effect, FEATURES};
use crate::score::Score;

/// A finding with its share of the feature's points.
pub(crate) struct Item {
    pub(crate) finding: Finding,
    pub(crate) effect: i32,
}

impl Item {
    /// The findings that are listed, in the order of the text, into `items`.
    pub(crate) fn list(findings: &Findings, score: &Score, items: &mut Vec<Item>) {
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
        items.clear();
        items.extend(listed);
        items.sort_unstable_by_key(|item| (item.finding.start, item.finding.end, item.finding.feature));
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
        let part = match self.left {
            1 => self.points,
            left => (self.points.abs() + left - 1) / left * self.points.signum(),
        };
        self.points -= part;
        self.left -= 1;
        Some(part)
    }
}

/// What the points of a text were given and taken for.
#[derive(Clone, Copy)]
pub(crate) struct Evidence<'a> {
    pub(crate) text: &'a str,
    pub(crate) subject: Option<&'a Subject>,
    pub(crate) items: &'a [Item],
}

/// One piece of evidence, in the order of the contract; `at` only for a document.
#[derive(Serialize)]
pub(crate) struct Piece<'a> {
    law: u8,
    kind: &'static str,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) text: &'a str,
    pub(crate) effect: Tenths,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<&'a str>,
}

impl Evidence<'_> {
    pub(crate) fn piece(&self, item: &Item) -> Piece<'_> {
        let finding = item.finding;
        let feature = FEATURES.get(finding.feature).unwrap_or(&FEATURES[0]);
        let (at, offset) = self.part_at(finding.start);
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

    /// The part of a document that a byte belongs to, and where that part starts.
    pub(crate) fn part_at(&self, byte: usize) -> (Option<&str>, usize) {
        let part = self.subject.and_then(|subject| subject.part_at(byte));
        part.map_or((None, 0), |(pointer, start)| (Some(pointer), start))
    }

    pub(crate) fn summary(&self, to: &mut dyn Write) -> fmt::Result {
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
        for item in self.items {
            list.serialize_element(&self.piece(item))?;
        }
        list.end()
    }
}
