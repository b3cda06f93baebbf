//! Chooses thresholds on the dev texts, and measures the table there.

use serde::Serialize;

use super::sample::Sample;
use ken_esl::emotion::{EMOTIONS, FAMILIES, LABELS, NEUTRAL};
use ken_esl::table::{NEGATIVE, POSITIVE, SCORES, THRESHOLDS};
use ken_esl::window::detected;

type Scores = [f32; SCORES];
type Thresholds = [f32; THRESHOLDS];

#[derive(Debug, Serialize)]
pub(crate) struct DevScores {
    /// Macro-F1 over the 28 labels.
    pub(crate) labels_f1: f32,
    /// Macro-F1 over the seven classes; a class is detected if one of its labels is.
    pub(crate) families_f1: f32,
    /// The same two figures if each half of dev is judged with the thresholds of the other half.
    labels_f1_crossed: f32,
    families_f1_crossed: f32,
    /// Accuracy over the texts that are only positive, only negative or only neutral.
    polarity_accuracy: f32,
    polarity_f1: f32,
}

pub(crate) fn choose(scores: &[Scores], samples: &[Sample]) -> (Thresholds, DevScores) {
    let all: Vec<(&Scores, &Sample)> = scores.iter().zip(samples).collect();
    let halves = [0, 1].map(|odd| all.iter().skip(odd).step_by(2).copied().collect::<Vec<_>>());
    let thresholds = best(&all);
    let crossed_thresholds = [best(&halves[1]), best(&halves[0])];
    let judged: Vec<_> = all.iter().map(|pair| judge(pair, &thresholds)).collect();
    let crossed = all.iter().enumerate();
    let crossed: Vec<_> = crossed.map(|(at, pair)| judge(pair, &crossed_thresholds[at % 2])).collect();
    let (polarity_accuracy, polarity_f1) = polarity(&all, thresholds[LABELS], thresholds[LABELS + 1]);
    let report = DevScores {
        labels_f1: rounded(labels_f1(&judged)),
        families_f1: rounded(families_f1(&judged)),
        labels_f1_crossed: rounded(labels_f1(&crossed)),
        families_f1_crossed: rounded(families_f1(&crossed)),
        polarity_accuracy: rounded(polarity_accuracy),
        polarity_f1: rounded(polarity_f1),
    };
    (thresholds, report)
}

pub(crate) fn rounded(score: f32) -> f32 {
    (score * 10_000.0).round() / 10_000.0
}

/// The detected and the true labels, one bit each.
pub(crate) type Judged = (u32, u32);

fn judge((scores, sample): &(&Scores, &Sample), thresholds: &Thresholds) -> Judged {
    let truth = (0..LABELS).filter(|label| sample.has(*label)).fold(0, |set, label| set | 1 << label);
    (detected(*scores, |label| thresholds[label]), truth)
}

pub(crate) fn labels_f1(judged: &[Judged]) -> f32 {
    (0..LABELS).map(|label| f1(judged, 1 << label)).sum::<f32>() / LABELS as f32
}

pub(crate) fn families_f1(judged: &[Judged]) -> f32 {
    let of_family = |family: usize| {
        let members = EMOTIONS.iter().take(LABELS).enumerate();
        let members = members.filter(|(_, emotion)| emotion.family as usize == family);
        members.fold(0, |set, (label, _)| set | 1 << label)
    };
    (0..FAMILIES).map(|family| f1(judged, of_family(family))).sum::<f32>() / FAMILIES as f32
}

pub(crate) fn f1(judged: &[Judged], members: u32) -> f32 {
    let (mut both, mut either) = (0, 0);
    for (detected, truth) in judged {
        let (detected, truth) = (detected & members != 0, truth & members != 0);
        both += u32::from(detected && truth) * 2;
        either += u32::from(detected) + u32::from(truth);
    }
    if either == 0 { 0.0 } else { both as f32 / either as f32 }
}

/// Chooses the best threshold of each label on its own, then improves each one given the others, for the sum of both
/// figures.
fn best(pairs: &[(&Scores, &Sample)]) -> Thresholds {
    let mut thresholds = [0.0; THRESHOLDS];
    for (label, threshold) in thresholds.iter_mut().enumerate().take(LABELS) {
        *threshold = best_alone(pairs, label);
    }
    for _ in 0..2 {
        for label in 0..LABELS {
            thresholds[label] = best_together(pairs, &thresholds, label);
        }
    }
    let (positive, negative) = best_polarity(pairs);
    thresholds[LABELS] = positive;
    thresholds[LABELS + 1] = negative;
    thresholds
}

/// Returns candidates for a label's threshold. With these, the label is detected at least half as often and at most
/// twice as often as it is true.
fn candidates(pairs: &[(&Scores, &Sample)], label: usize) -> Vec<f32> {
    let mut scores: Vec<f32> = pairs.iter().map(|(scores, _)| scores[label]).collect();
    scores.sort_by(|a, b| b.total_cmp(a));
    let truths = pairs.iter().filter(|(_, sample)| sample.has(label)).count().max(4);
    let parts = (0..49).map(|part| truths as f32 * 0.5 * ken_esl::math::exp(part as f32 / 48.0 * 1.386));
    let places = parts.map(|place| (place as usize).min(scores.len().saturating_sub(2)));
    places.filter_map(|place| Some((scores.get(place)? + scores.get(place + 1)?) / 2.0)).collect()
}

fn best_alone(pairs: &[(&Scores, &Sample)], label: usize) -> f32 {
    let value = |threshold: f32| {
        let judged: Vec<Judged> = pairs
            .iter()
            .map(|(scores, sample)| (u32::from(scores[label] >= threshold), u32::from(sample.has(label))))
            .collect();
        f1(&judged, 1)
    };
    highest(candidates(pairs, label), value)
}

fn best_together(pairs: &[(&Scores, &Sample)], thresholds: &Thresholds, label: usize) -> f32 {
    let value = |threshold: f32| {
        let mut thresholds = *thresholds;
        thresholds[label] = threshold;
        let judged: Vec<Judged> = pairs.iter().map(|pair| judge(pair, &thresholds)).collect();
        labels_f1(&judged) + families_f1(&judged)
    };
    highest(candidates(pairs, label), value)
}

fn highest(candidates: Vec<f32>, value: impl Fn(f32) -> f32) -> f32 {
    let rated = candidates.into_iter().map(|candidate| (value(candidate), candidate));
    rated.max_by(|a, b| a.0.total_cmp(&b.0)).map_or(0.0, |best| best.1)
}

fn best_polarity(pairs: &[(&Scores, &Sample)]) -> (f32, f32) {
    let grid = || (-12..8).map(|step| step as f32 * 0.2);
    let all = grid().flat_map(|positive| grid().map(move |negative| (positive, negative)));
    let value = |(positive, negative): &(f32, f32)| {
        let (accuracy, f1) = polarity(pairs, *positive, *negative);
        accuracy + f1
    };
    all.max_by(|a, b| value(a).total_cmp(&value(b))).unwrap_or((0.0, 0.0))
}

/// Returns accuracy and macro-F1 of positive, negative and neutral.
fn polarity(pairs: &[(&Scores, &Sample)], positive: f32, negative: f32) -> (f32, f32) {
    let mut judged = Vec::with_capacity(pairs.len());
    for (scores, sample) in pairs {
        let truth = match (sample.has(POSITIVE), sample.has(NEGATIVE), sample.has(NEUTRAL)) {
            (true, false, false) => 1,
            (false, true, false) => 2,
            (false, false, true) => 4,
            _ => continue,
        };
        let (above, below) = (scores[POSITIVE] - positive, scores[NEGATIVE] - negative);
        let guess = if above.max(below) < 0.0 {
            4
        } else if above > below {
            1
        } else {
            2
        };
        judged.push((guess, truth));
    }
    let right = judged.iter().filter(|(guess, truth)| guess == truth).count();
    let mean = [1, 2, 4].map(|class| f1(&judged, class)).iter().sum::<f32>() / 3.0;
    (right as f32 / judged.len().max(1) as f32, mean)
}
