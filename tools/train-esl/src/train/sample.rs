//! A training text in the form that the network uses.

use ken_esl::emotion::{EMOTIONS, LABELS, Valence};
use ken_esl::table::{NEGATIVE, POLARITY, POSITIVE, SCORES};

/// The unit of polarity in training, on the scale from -4 to 4.
pub(crate) const POLARITY_UNIT: f32 = 2.0;

/// The weight of the teachers relative to that of people.
const TEACHERS_SHARE: f32 = 0.5;

#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) rows: Vec<u32>,
    pub(crate) targets: [f32; SCORES],
    /// The weight of an error in each target. 0 if the target is unknown.
    pub(crate) weights: [f32; SCORES],
}

impl Sample {
    /// Creates a sample from a text with emotion labels. Its polarity is estimated from the labels
    /// and has a low weight.
    pub(crate) fn labelled(rows: Vec<u32>, labels: &[usize]) -> Sample {
        let mut targets = [0.0; SCORES];
        let emotions = || labels.iter().filter_map(|label| EMOTIONS.get(*label).map(|emotion| (*label, emotion)));
        for (label, emotion) in emotions() {
            targets[label] = 1.0;
            targets[LABELS + emotion.family as usize] = 1.0;
            targets[POSITIVE] = f32::max(targets[POSITIVE], f32::from(emotion.valence == Valence::Positive));
            targets[NEGATIVE] = f32::max(targets[NEGATIVE], f32::from(emotion.valence == Valence::Negative));
        }
        let sum: f32 = emotions().map(|(_, emotion)| emotion.polarity).sum();
        targets[POLARITY] = sum / labels.len().max(1) as f32 / POLARITY_UNIT;
        let mut weights = [0.3; SCORES];
        weights.iter_mut().take(LABELS).for_each(|weight| *weight = 1.0);
        Sample { rows, targets, weights }
    }

    /// Creates a sample from a text that has only a polarity from -4 to 4, as rated by people.
    pub(crate) fn rated(rows: Vec<u32>, polarity: f32) -> Sample {
        let mut targets = [0.0; SCORES];
        let mut weights = [0.0; SCORES];
        targets[POLARITY] = polarity / POLARITY_UNIT;
        weights[POLARITY] = 1.0;
        Sample { rows, targets, weights }
    }

    pub(crate) fn has(&self, target: usize) -> bool {
        self.targets.get(target).is_some_and(|target| *target > 0.5)
    }

    /// Moves the known targets towards an opinion.
    pub(crate) fn soften(&mut self, opinion: &[f32; SCORES]) {
        for (target, opinion) in self.targets.iter_mut().zip(opinion) {
            *target += TEACHERS_SHARE * (opinion - *target);
        }
    }
}
