//! From findings to points: each feature's cost or gain, spread over the findings that caused it.

use crate::bits::Bits;
use crate::judge::Judge;
use crate::rubric::{Bar, Effect, FEATURES, Feature, LAWS, Law, violations_of};

/// The verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Status {
    #[default]
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

/// One feature as it was found.
pub(crate) struct Tally {
    pub(crate) feature: usize,
    /// Findings.
    pub(crate) count: usize,
    /// Tenths; negative for a violation.
    pub(crate) points: i32,
}

/// Refilled for each text.
#[derive(Default)]
pub(crate) struct Score {
    /// Tenths of a percent, in the order of the laws.
    pub(crate) laws: [i32; 5],
    pub(crate) overall: i32,
    pub(crate) status: Status,
    /// The features found, in the order of the rubric, and their set.
    pub(crate) tallies: Vec<Tally>,
    pub(crate) found: u64,
}

impl Score {
    pub(crate) fn fill(&mut self, judge: &Judge, bar: &Bar) {
        self.tally(judge);
        self.laws = LAWS.each_ref().map(|row| row.base);
        for tally in &self.tallies {
            let law = FEATURES.get(tally.feature).map(|feature| feature.law as usize);
            if let Some(points) = law.and_then(|law| self.laws.get_mut(law)) {
                *points += tally.points;
            }
        }
        self.laws = self.laws.map(|points| points.clamp(0, 1000));
        let shares = self.laws.iter().zip(&LAWS);
        let weighted: i32 = shares.map(|(score, row)| score * row.share as i32).sum();
        self.overall = (weighted + 50) / 100;
        self.status = status(self.overall, &self.laws, bar);
    }

    fn tally(&mut self, judge: &Judge) {
        let mut counts = [0; FEATURES.len()];
        self.found = 0;
        for finding in &judge.findings.list {
            if let Some(count) = counts.get_mut(finding.feature) {
                *count += 1;
            }
            self.found |= 1 << finding.feature;
        }
        let claims = Claims::of(judge);
        self.tallies.clear();
        self.tallies.extend(Bits(self.found).filter_map(|feature| {
            Some(Tally {
                feature,
                count: *counts.get(feature)?,
                points: claims.points(feature, FEATURES.get(feature)?),
            })
        }));
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

/// The claims of a text, and how many there are.
struct Claims<'a> {
    judge: &'a Judge,
    all: i64,
}

impl Claims<'_> {
    fn of(judge: &Judge) -> Claims<'_> {
        let judged = judge.claims.iter().map(|claim| i64::from(judge.counts(claim)));
        Claims {
            judge,
            all: judged.sum(),
        }
    }

    fn points(&self, index: usize, feature: &Feature) -> i32 {
        match feature.effect {
            Effect::Once => feature.cap,
            Effect::Share => share(feature, self.with(index), self.all),
            Effect::Violation => -cost(feature, self.with(index), self.clean_of(feature.law)),
        }
    }

    /// How many have a feature.
    fn with(&self, index: usize) -> i64 {
        let features = self.judge.findings.features.iter();
        features.map(|features| (features >> index & 1) as i64).sum()
    }

    /// How many are free of a law's defects.
    fn clean_of(&self, law: Law) -> i64 {
        let features = self.judge.findings.features.iter();
        let clean = features
            .zip(&self.judge.claims)
            .filter(|(features, claim)| *features & violations_of(law) == 0 && self.judge.counts(claim));
        clean.count() as i64
    }
}

fn share(feature: &Feature, with: i64, all: i64) -> i32 {
    let cap = i64::from(feature.cap);
    (cap * with * i64::from(feature.weight) / all.max(1)).min(cap) as i32
}

fn cost(feature: &Feature, with: i64, clean: i64) -> i32 {
    let (weight, cap) = (i64::from(feature.weight), i64::from(feature.cap));
    (weight + (cap - weight) * with / (with + clean).max(1)) as i32
}
