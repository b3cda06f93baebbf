//! Measures ken-esl on comments that the model has not seen, and compares them with two
//! simple baselines.

use std::collections::HashMap;
use std::fmt;

use ken_tool::{Answer, Error};
use serde::Serialize;

use super::corpus::{Corpus, Labelled};
use super::make;
use super::rank::{self, Judged, families_f1, labels_f1, rounded};
use ken_esl::emotion::{EMOTIONS, LABELS, NEUTRAL, Valence};
use ken_esl::lexicon::Class;
use ken_esl::reading::Reading;
use ken_esl::scope::{Note, annotate, normalize_stretched};
use ken_esl::table::{SCORES, THRESHOLDS, Table};
use ken_esl::token::{Token, Tokens};
use ken_esl::window::WordSums;
use ken_esl::window::detected;

/// Macro-F1 over the 28 labels, the seven classes, and positive, negative and neutral.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Figures {
    labels_f1: f32,
    classes_f1: f32,
    polarity_f1: f32,
}

/// The figures for every comment of the training split. Each comment is judged by a model that was
/// trained without it.
#[derive(Serialize)]
pub(crate) struct CrossValidation {
    folds: usize,
    texts: usize,
    ken_esl: Figures,
    /// Baseline: a naive Bayes classifier over words.
    naive_bayes: Figures,
    /// Baseline: the emotions whose words occur in the text.
    word_list: Figures,
}

/// The labels that were detected, and their polarity.
struct Found {
    labels: u32,
    valence: Valence,
}

pub(crate) fn cross_validate(corpus: &Corpus, folds: usize) -> Result<CrossValidation, Error> {
    let mut found = AllFound::default();
    let mut truth = Vec::new();
    for fold in 0..folds {
        let (learnt, unseen) = corpus.without(fold, folds);
        let (draft, _) = make(&learnt)?;
        judge_fold(&draft.table(), &learnt, &unseen, &mut found);
        truth.extend(unseen.iter().map(|(_, labels)| labels.iter().fold(0, |set, label| set | 1 << label)));
    }
    Ok(report(folds, &found, &truth))
}

/// What ken-esl and the two baselines found in each text.
#[derive(Default)]
struct AllFound {
    ken_esl: Vec<Found>,
    naive_bayes: Vec<Found>,
    word_list: Vec<Found>,
}

fn judge_fold(table: &Table, learnt: &Corpus, unseen: &[Labelled], found: &mut AllFound) {
    let (mut words, bayes) = (WordSums::default(), Bayes::learn(learnt));
    for (text, _) in unseen {
        found.ken_esl.push(Found::read(&Reading::of(table, &mut words, text)));
        found.naive_bayes.push(Found::of_labels(bayes.labels(text)));
        found.word_list.push(Found::of_labels(named(table, text)));
    }
}

fn report(folds: usize, found: &AllFound, truth: &[u32]) -> CrossValidation {
    CrossValidation {
        folds,
        texts: truth.len(),
        ken_esl: figures(&found.ken_esl, truth),
        naive_bayes: figures(&found.naive_bayes, truth),
        word_list: figures(&found.word_list, truth),
    }
}

impl Found {
    fn read(reading: &Reading) -> Found {
        let labels = reading.feelings.iter().map(|feeling| feeling.emotion);
        Found {
            labels: labels.filter(|emotion| *emotion < LABELS).fold(0, |set, label| set | 1 << label),
            valence: reading.valence,
        }
    }

    fn of_labels(labels: u32) -> Found {
        Found { labels, valence: polarity(labels).unwrap_or(Valence::Mixed) }
    }
}

/// Returns the common polarity of all labels, or `None` if they differ or one of them fits any polarity.
fn polarity(labels: u32) -> Option<Valence> {
    let of = |label: usize| match EMOTIONS.get(label).map(|emotion| emotion.valence) {
        Some(Valence::Neutral) if label != NEUTRAL => Valence::Mixed,
        valence => valence.unwrap_or(Valence::Neutral),
    };
    let mut all = (0..LABELS).filter(|label| labels & 1 << label != 0).map(of);
    let first = all.next().filter(|first| *first != Valence::Mixed)?;
    all.all(|valence| valence == first).then_some(first)
}

fn figures(found: &[Found], truth: &[u32]) -> Figures {
    let judged: Vec<Judged> = found.iter().zip(truth).map(|(found, truth)| (found.labels, *truth)).collect();
    let bit = |valence| match valence {
        Valence::Positive => 1,
        Valence::Negative => 2,
        Valence::Neutral => 4,
        Valence::Mixed => 8,
    };
    let pairs = found.iter().zip(truth);
    let one_sided = pairs.filter_map(|(found, truth)| Some((bit(found.valence), bit(polarity(*truth)?))));
    let one_sided: Vec<Judged> = one_sided.collect();
    let polarity = [1, 2, 4].map(|class| rank::f1(&one_sided, class)).iter().sum::<f32>() / 3.0;
    Figures {
        labels_f1: rounded(labels_f1(&judged)),
        classes_f1: rounded(families_f1(&judged)),
        polarity_f1: rounded(polarity),
    }
}

/// Returns the labels whose words occur in the text without a negation, or neutral if there are none.
fn named(table: &Table, text: &str) -> u32 {
    let mut tokens: Vec<Token> = Tokens::new(text).collect();
    tokens.iter_mut().for_each(|token| normalize_stretched(table, token));
    let mut notes = Vec::new();
    annotate(table, &tokens, &mut notes);
    let plain = notes.iter().filter(|note| !note.is_negated).filter_map(Note::class);
    let labels = plain.fold(0, |set, class| match class {
        Class::Emotion(label) if label < LABELS => set | 1 << label,
        _ => set,
    });
    if labels == 0 { 1 << NEUTRAL } else { labels }
}

/// A naive Bayes classifier over the words of a text, with a yes or no for each label.
struct Bayes {
    /// For each word: the number of texts of each label in which it occurs, and the number of all texts
    /// in which it occurs.
    words: HashMap<Vec<u8>, ([u32; LABELS], u32)>,
    texts: ([u32; LABELS], u32),
    thresholds: [f32; THRESHOLDS],
}

impl Bayes {
    fn learn(corpus: &Corpus) -> Bayes {
        let mut bayes = Bayes { words: HashMap::new(), texts: ([0; LABELS], 0), thresholds: [0.0; THRESHOLDS] };
        for (text, labels) in corpus.labelled() {
            let count = |(of_label, all): &mut ([u32; LABELS], u32)| {
                for label in labels {
                    of_label[*label] += 1;
                }
                *all += 1;
            };
            count(&mut bayes.texts);
            forms(text).into_iter().for_each(|form| count(bayes.words.entry(form).or_default()));
        }
        let dev = corpus.dev_samples(|_| Vec::new());
        let scores: Vec<_> = corpus.dev_texts().map(|text| bayes.scores(text)).collect();
        (bayes.thresholds, _) = rank::choose(&scores, &dev);
        bayes
    }

    fn scores(&self, text: &str) -> [f32; SCORES] {
        let mut scores = [0.0; SCORES];
        let share = |count: u32, all: u32| (count as f32 + 1.0) / (all as f32 + 2.0);
        let (of_label, all) = &self.texts;
        let odds = |label: usize, (of, every): &([u32; LABELS], u32)| {
            (share(of[label], of_label[label]) / share(every - of[label], all - of_label[label])).ln()
        };
        let words = forms(text);
        for (label, score) in scores.iter_mut().enumerate().take(LABELS) {
            let known = words.iter().filter_map(|word| self.words.get(word));
            *score = (share(of_label[label], *all) / share(all - of_label[label], *all)).ln()
                + known.map(|counts| odds(label, counts)).sum::<f32>();
        }
        scores
    }

    fn labels(&self, text: &str) -> u32 {
        detected(&self.scores(text), |label| self.thresholds[label])
    }
}

/// Returns the words and marks of a text, without duplicates.
fn forms(text: &str) -> Vec<Vec<u8>> {
    let mut forms: Vec<Vec<u8>> = Tokens::new(text).map(|token| token.form().to_vec()).collect();
    forms.sort_unstable();
    forms.dedup();
    forms
}

impl Answer for CrossValidation {
    fn summary(&self, _verbose: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        writeln!(to, "{} texts in {} folds; macro-F1 of 28 labels, 7 classes, polarity", self.texts, self.folds)?;
        let rows = [("ken-esl", self.ken_esl), ("naive Bayes", self.naive_bayes), ("word list", self.word_list)];
        rows.into_iter().try_for_each(|(name, Figures { labels_f1, classes_f1, polarity_f1 })| {
            writeln!(to, "  {name:<12} {labels_f1:.4} {classes_f1:.4} {polarity_f1:.4}")
        })
    }
}
