//! Converts findings to points: the cost or gain of each feature.

use crate::judge::Judgement;
use crate::rubric::{
    Bar, CONTRADICTED, Effect, FEATURES, Feature, LAWS, LINKED, Law, REASONED, UNSUPPORTED, violations_of,
};
use crate::sources::Compared;

/// The verdict, from the worst to the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Status {
    Fail,
    Conditional,
    Pass,
}

impl Status {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Status::Pass => "PASS",
            Status::Conditional => "CONDITIONAL",
            Status::Fail => "FAIL",
        }
    }
}

/// The count and points of a feature that was found.
pub(crate) struct Tally {
    pub(crate) place: usize,
    pub(crate) feature: &'static Feature,
    /// The number of findings.
    pub(crate) count: usize,
    /// Tenths; negative for a violation.
    pub(crate) points: i32,
}

pub(crate) struct Score {
    /// Tenths of a percent, in the order of the laws.
    pub(crate) laws: [i32; 5],
    pub(crate) overall: i32,
    pub(crate) status: Status,
    /// The features that were found, in the order of the rubric.
    pub(crate) tallies: Vec<Tally>,
}

impl Score {
    pub(crate) fn new(judgement: &Judgement, compared: &Compared, is_required: bool, bar: &Bar) -> Score {
        let tallies = tally(judgement);
        let mut laws = LAWS.each_ref().map(|row| row.base);
        for tally in &tallies {
            if let Some(points) = laws.get_mut(tally.feature.law as usize) {
                *points += tally.points;
            }
        }
        let laws = laws.map(|points| points.clamp(0, 1000));
        let weighted: i32 = laws.iter().zip(&LAWS).map(|(score, row)| score * row.share).sum();
        let overall = (weighted + 50) / 100;
        Score {
            status: match most(judgement, compared, is_required) {
                // What cannot be read has no points that mean anything.
                Status::Conditional if judgement.unread.is_some() => Status::Conditional,
                most => status(overall, &laws, bar).min(most),
            },
            laws,
            overall,
            tallies,
        }
    }
}

/// The best status that a text can have, whatever its points.
fn most(judgement: &Judgement, compared: &Compared, is_required: bool) -> Status {
    let contradicted = judgement.sentences_with(CONTRADICTED);
    let claims = judgement.counts.iter().filter(|counts| **counts).count();
    let unsupported = judgement.sentences_with(UNSUPPORTED);
    let is_supported = contradicted + unsupported == 0 && !compared.leaves_open() && compared.missing.is_none();
    if 3 * contradicted >= claims.max(1) || is_required && !is_supported {
        Status::Fail
    } else if !is_supported || judgement.unread.is_some() || judgement.rests_on_citations {
        Status::Conditional
    } else {
        Status::Pass
    }
}

fn status(overall: i32, laws: &[i32; 5], bar: &Bar) -> Status {
    if overall >= bar.pass && laws.iter().all(|law| *law >= bar.each_law) {
        Status::Pass
    } else if overall >= bar.conditional {
        Status::Conditional
    } else {
        Status::Fail
    }
}

fn tally(judgement: &Judgement) -> Vec<Tally> {
    let mut counts = [0; FEATURES.len()];
    for finding in &judgement.findings.list {
        if let Some(count) = counts.get_mut(finding.feature) {
            *count += 1;
        }
    }
    let found = FEATURES.iter().zip(counts).enumerate().filter(|(_, (_, count))| *count > 0);
    found
        .map(|(place, (feature, count))| Tally { place, feature, count, points: points(judgement, place, feature) })
        .collect()
}

fn points(judgement: &Judgement, place: usize, feature: &Feature) -> i32 {
    let with = judgement.findings.features.iter().filter(|set| **set & (1 << place) != 0).count() as i64;
    let (weight, cap) = (i64::from(feature.weight), i64::from(feature.cap));
    let points = match feature.effect {
        Effect::Once => cap,
        Effect::Share => {
            let all = judgement.counts.iter().filter(|counts| **counts).count() as i64;
            let share = (cap * with * weight / all.max(1)).min(cap);
            match judgement.likeness {
                Some(likeness) if place == LINKED => linked(likeness, cap),
                Some(likeness) if place == REASONED => linked(likeness, share),
                _ => share,
            }
        }
        Effect::Violation => {
            let clean = clean_of(judgement, feature.law);
            -(weight + (cap - weight) * with / (with + clean).max(1))
        }
    };
    points as i32
}

/// The part of the points for links and reasons that a text earns whose sentences can be compared. Their likeness tells more than
/// a count of those that are alike, which often is the same for a text of one subject and one of several; and a reason that is
/// found among sentences about other things ties little together.
fn linked(likeness: f32, points: i64) -> i64 {
    let share = (likeness - UNLINKED) / (LINKED_WELL - UNLINKED);
    points * (share.clamp(0.0, 1.0) * 1000.0) as i64 / 1000
}

/// The likeness of the sentences of a text from which on they are linked at all, and from which on they are linked as well as in most
/// texts of one subject.
const UNLINKED: f32 = -0.05;
const LINKED_WELL: f32 = 0.32;

/// The number of claims without a defect of the law.
fn clean_of(judgement: &Judgement, law: Law) -> i64 {
    let defects = violations_of(law);
    let claims = judgement.findings.features.iter().zip(&judgement.counts);
    claims.filter(|(set, counts)| **set & defects == 0 && **counts).count() as i64
}
