//! Converts findings to points: the cost or gain of each feature.

use crate::judge::Judgement;
use crate::rubric::{Bar, Effect, FEATURES, Feature, LAWS, Law, violations_of};

/// The verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Pass,
    Conditional,
    Fail,
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
    /// `sources_read` is false if the text has sources that it could not be compared with.
    pub(crate) fn new(judgement: &Judgement, sources_read: bool, bar: &Bar) -> Score {
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
            status: match status(overall, &laws, bar) {
                _ if judgement.unread.is_some() => Status::Conditional,
                Status::Pass if judgement.rests_on_citations || !sources_read => Status::Conditional,
                status => status,
            },
            laws,
            overall,
            tallies,
        }
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
            (cap * with * weight / all.max(1)).min(cap)
        }
        Effect::Violation => {
            let clean = clean_of(judgement, feature.law);
            -(weight + (cap - weight) * with / (with + clean).max(1))
        }
    };
    points as i32
}

/// The number of claims without a defect of the law.
fn clean_of(judgement: &Judgement, law: Law) -> i64 {
    let defects = violations_of(law);
    let claims = judgement.findings.features.iter().zip(&judgement.counts);
    claims.filter(|(set, counts)| **set & defects == 0 && **counts).count() as i64
}
