//! Pearson's r over documents, between the score of a summary and the share of its sentences that a majority supports.

use std::collections::HashSet;

use ken_support::{CONTRADICTED, FEATURES};
use ken_text::words;
use serde::Serialize;

use super::data::{Corpus, Document};
use super::fit::fit;

/// The figures of one corpus.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) corpus: &'static str,
    pub(crate) documents: usize,
    /// The correlation of the model. Each document is scored by a model that was fitted without it.
    pub(crate) unseen: f64,
    /// The smallest and the largest value of `unseen` over all repetitions.
    pub(crate) unseen_range: [f64; 2],
    /// The correlation of the share of the summary's words that its source contains.
    pub(crate) word_overlap: f64,
    /// The correlation of the share of the summary's sequences of three words that its source contains.
    pub(crate) trigram_overlap: f64,
}

const FOLDS: usize = 10;
/// The number of repetitions of the cross-validation. Each one divides the documents into different folds.
const REPETITIONS: u64 = 10;

pub(crate) fn cross_validate(corpora: &[Corpus]) -> Vec<Row> {
    let mut found: Vec<Vec<f64>> = corpora.iter().map(|_| Vec::new()).collect();
    for repetition in 0..REPETITIONS {
        let folds: Vec<Vec<usize>> = corpora.iter().map(|corpus| folds(corpus, repetition)).collect();
        let mut scores: Vec<Vec<f64>> = corpora.iter().map(|corpus| vec![0.0; corpus.documents.len()]).collect();
        for fold in 0..FOLDS {
            let seen: Vec<&Document> = corpora
                .iter()
                .zip(&folds)
                .flat_map(|(corpus, folds)| corpus.documents.iter().zip(folds))
                .filter(|(_, of)| **of != fold)
                .map(|(document, _)| document)
                .collect();
            let model = fit(&seen);
            for ((corpus, folds), scores) in corpora.iter().zip(&folds).zip(&mut scores) {
                let unseen = corpus.documents.iter().zip(folds).zip(scores);
                for ((document, _), score) in unseen.filter(|((_, of), _)| **of == fold) {
                    let features: Vec<[f64; FEATURES]> = document.sentences.iter().map(|each| each.features).collect();
                    let scores = model.scores(&features).into_iter().zip(&document.sentences);
                    let capped =
                        scores.map(|(score, each)| if each.contradicted { score.min(CONTRADICTED) } else { score });
                    *score = mean(&capped.collect::<Vec<_>>());
                }
            }
        }
        for ((corpus, scores), found) in corpora.iter().zip(&scores).zip(&mut found) {
            found.push(correlation(scores, &judgements(corpus)));
        }
    }
    corpora.iter().zip(found).map(|(corpus, found)| row(corpus, &found)).collect()
}

fn row(corpus: &Corpus, found: &[f64]) -> Row {
    let judgements = judgements(corpus);
    let overlap = |size| {
        let shares: Vec<f64> = corpus.documents.iter().map(|document| overlap(document, size)).collect();
        thousandths(correlation(&shares, &judgements))
    };
    Row {
        corpus: corpus.name,
        documents: corpus.documents.len(),
        unseen: thousandths(mean(found)),
        unseen_range: [found.iter().copied().fold(1.0, f64::min), found.iter().copied().fold(-1.0, f64::max)]
            .map(thousandths),
        word_overlap: overlap(1),
        trigram_overlap: overlap(3),
    }
}

/// The fold of each document; folds have equal sizes, and the seed determines the order.
fn folds(corpus: &Corpus, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..corpus.documents.len()).collect();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for last in (1..order.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        order.swap(last, (state % (last as u64 + 1)) as usize);
    }
    let mut folds = vec![0; order.len()];
    for (place, document) in order.into_iter().enumerate() {
        folds[document] = place % FOLDS;
    }
    folds
}

fn judgements(corpus: &Corpus) -> Vec<f64> {
    let share = |document: &Document| {
        let verdicts: Vec<f64> =
            document.sentences.iter().map(|each| f64::from(u8::from(each.supported > 0.5))).collect();
        mean(&verdicts)
    };
    corpus.documents.iter().map(share).collect()
}

fn overlap(document: &Document, size: usize) -> f64 {
    let [text, source] = [&document.text, &document.source]
        .map(|text| words(text).map(|word| word.text.to_lowercase()).collect::<Vec<String>>());
    let known: HashSet<&[String]> = source.windows(size).collect();
    let shares: Vec<f64> = text.windows(size).map(|run| f64::from(u8::from(known.contains(run)))).collect();
    mean(&shares)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let (mean_a, mean_b) = (mean(a), mean(b));
    let moment = |x: &[f64], mean_x: f64, y: &[f64], mean_y: f64| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - mean_x) * (y - mean_y)).sum()
    };
    let deviations = moment(a, mean_a, a, mean_a) * moment(b, mean_b, b, mean_b);
    if deviations > 0.0 { moment(a, mean_a, b, mean_b) / deviations.sqrt() } else { 0.0 }
}

fn thousandths(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
