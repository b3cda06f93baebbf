//! The findings of a text, and their places.

use crate::claim::Claim;
use crate::rubric::{CONTEXT_CONFLICT, Effect, FEATURES, Law, Set, violations_of};
use crate::scan::Sentence;
use crate::token::{Token, at};

/// A feature that was found at a place.
#[derive(Clone, Copy)]
pub(crate) struct Finding {
    /// Its index in [`FEATURES`].
    pub(crate) feature: usize,
    pub(crate) sentence: usize,
    /// Byte offsets in the text.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// All findings of a text.
pub(crate) struct Findings {
    pub(crate) list: Vec<Finding>,
    /// The features of each sentence.
    pub(crate) features: Vec<Set>,
}

/// A sentence as the rules see it.
pub(crate) struct View<'a> {
    pub(crate) tokens: &'a [Token],
    pub(crate) sentence: &'a Sentence,
    pub(crate) claim: &'a Claim,
    pub(crate) index: usize,
}

/// Where something is stated, for rules that compare two places.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    Text(Finding),
    Context,
}

impl Findings {
    pub(crate) fn new(sentences: usize) -> Findings {
        Findings { list: Vec::with_capacity(4 * sentences), features: vec![0; sentences] }
    }

    pub(crate) fn add(&mut self, finding: Finding) {
        if let Some(features) = self.features.get_mut(finding.sentence) {
            *features |= 1 << finding.feature;
        }
        self.list.push(finding);
    }

    pub(crate) fn remove(&mut self, sentence: usize, feature: usize) {
        if let Some(features) = self.features.get_mut(sentence).filter(|features| **features & (1 << feature) != 0) {
            *features &= !(1 << feature);
            self.list.retain(|finding| finding.sentence != sentence || finding.feature != feature);
        }
    }

    pub(crate) fn has(&self, sentence: usize, feature: usize) -> bool {
        self.features_of(sentence) & (1 << feature) != 0
    }

    /// Whether the sentence has a defect of the law.
    pub(crate) fn is_defective(&self, sentence: usize, law: Law) -> bool {
        self.features_of(sentence) & violations_of(law) != 0
    }

    fn features_of(&self, sentence: usize) -> Set {
        self.features.get(sentence).copied().unwrap_or(0)
    }

    /// Removes strengths from sentences that have a defect of the same law.
    pub(crate) fn drop_undeserved(&mut self) {
        let features = &mut self.features;
        self.list.retain(|finding| {
            let (Some(feature), Some(set)) = (FEATURES.get(finding.feature), features.get_mut(finding.sentence)) else {
                return false;
            };
            let undeserved = feature.effect != Effect::Violation && *set & violations_of(feature.law) != 0;
            if undeserved {
                *set &= !(1 << finding.feature);
            }
            !undeserved
        });
    }

    /// Adds both sides of a conflict within the text, or one side of a conflict with the context.
    pub(crate) fn add_conflict(&mut self, earlier: Place, now: Finding, within_text: usize) {
        match earlier {
            Place::Text(earlier) => {
                if !self.has(earlier.sentence, within_text) {
                    self.add(Finding { feature: within_text, ..earlier });
                }
                self.add(Finding { feature: within_text, ..now });
            }
            Place::Context => self.add(Finding { feature: CONTEXT_CONFLICT, ..now }),
        }
    }
}

impl View<'_> {
    /// A finding over the words from `first` to `last`.
    pub(crate) fn finding(&self, feature: usize, first: usize, last: usize) -> Finding {
        Finding { feature, sentence: self.index, start: at(self.tokens, first).start, end: at(self.tokens, last).end }
    }

    /// A finding over the whole sentence.
    pub(crate) fn whole(&self, feature: usize) -> Finding {
        Finding { feature, sentence: self.index, start: self.sentence.start, end: self.sentence.end }
    }
}
