//! Computes the features of a sentence for the model: eight numbers from 0 to 1 that describe how well the sources
//! support it, and one that shows whether the text copies or rewrites its sources.

use std::collections::HashMap;

use crate::index::{Index, Sentence, content_pairs, trigrams};
use crate::token::{Kind, Token};

/// The number of features of a sentence. The last [`crate::REGIME`] of them show whether the text copies or rewrites
/// its sources.
pub const FEATURES: usize = 9;

/// The names of the features in `model.txt` and in the manual, in the order of the features.
pub const NAMES: [&str; FEATURES] = [
    "trigrams", "scattered", "stray_number", "weakest_pair", "repeated", "pairs", "weight_in_trigrams", "new_words",
    "copied_runs",
];

/// A sentence of the text, and its features.
pub(crate) struct Measured<'a> {
    pub(crate) sentence: &'a Sentence,
    /// The index of the source sentence that supports it best.
    pub(crate) best: Option<usize>,
    /// The next best source sentences.
    pub(crate) others: Vec<usize>,
    pub(crate) features: [f64; FEATURES],
}

/// The maximum number of source sentences that are compared word by word with one sentence.
const CANDIDATES: usize = 8;
/// The maximum number of source sentences that are returned beside the best one.
const OTHERS: usize = 2;
/// The maximum number of words of the sentence that select those source sentences. The rarest words are used.
const CHOOSING: usize = 12;
/// The maximum number of words of a sentence that are compared. Real sentences are shorter.
const LONGEST: usize = 200;
/// The weight of a function word in `weight_in_trigrams`.
const FUNCTION_WEIGHT: f64 = 0.1;

pub(crate) fn measure<'a>(index: &'a Index<'_>) -> Vec<Measured<'a>> {
    let mut choice = HashMap::new();
    index.sentences.iter().map(|sentence| measure_sentence(index, sentence, &mut choice)).collect()
}

fn measure_sentence<'a>(index: &'a Index<'_>, sentence: &'a Sentence, choice: &mut HashMap<u32, f32>) -> Measured<'a> {
    let tokens = index.tokens_of(sentence);
    let tokens = tokens.get(..tokens.len().min(LONGEST)).unwrap_or(tokens);
    let content: Vec<u32> = tokens.iter().filter(|token| token.is_content()).map(|token| token.id).collect();
    let weight = |id: u32| f64::from(index.rarity(id));
    let all: f64 = content.iter().map(|id| weight(*id)).sum();
    let held: f64 = content.iter().filter(|id| index.has(**id)).map(|id| weight(*id)).sum();
    let missing = content.iter().filter(|id| !index.has(**id)).count();
    let present = share(content.len() - missing, content.len());

    let Passages { best, others, aligned } = best_passage(index, &content, tokens, choice);
    let runs: Vec<bool> = trigrams(tokens).map(|three| index.has_trigram(&three)).collect();
    let copied = runs.iter().filter(|run| **run).count();
    let distances: Vec<u8> = content_pairs(tokens).map(|two| index.pair(two).distance).collect();
    let adjacent = distances.iter().filter(|distance| **distance == 1).count();
    let weakest = distances.iter().map(|distance| closeness(*distance)).reduce(f64::min);
    let stray = match best {
        Some(best) => stray_number(index, tokens, best),
        None => tokens.iter().any(|token| token.kind == Kind::Number),
    };
    let features = [
        if runs.is_empty() { present } else { share(copied, runs.len()) },
        if all > 0.0 { (held - aligned) / all } else { 0.0 },
        f64::from(u8::from(stray)),
        weakest.unwrap_or(present),
        share(repeated(&content), content.len().max(1)),
        if distances.is_empty() { present } else { share(adjacent, distances.len()) },
        weight_in_runs(index, tokens, &runs),
        missing.min(5) as f64 / 5.0,
        copied_runs(index, tokens, &runs),
    ];
    Measured { sentence, best, others, features }
}

/// Returns the share of `part` in `all`; 1 if `all` is 0.
fn share(part: usize, all: usize) -> f64 {
    if all == 0 { 1.0 } else { part as f64 / all as f64 }
}

fn closeness(distance: u8) -> f64 {
    if distance == 0 { 0.0 } else { 1.0 / f64::from(distance) }
}

/// The source sentences that support a sentence best.
struct Passages {
    best: Option<usize>,
    others: Vec<usize>,
    /// The weight of the words that the best one contains in the same order.
    aligned: f64,
}

/// Returns the source sentences that contain most of the content words in the same order.
fn best_passage(index: &Index<'_>, content: &[u32], tokens: &[Token], choice: &mut HashMap<u32, f32>) -> Passages {
    choice.clear();
    let mut rarest: Vec<u32> = content.to_vec();
    rarest.sort_unstable_by(|a, b| {
        let by_count = index.postings_of(*a).len().cmp(&index.postings_of(*b).len());
        by_count.then(index.rarity(*b).total_cmp(&index.rarity(*a))).then(a.cmp(b))
    });
    rarest.dedup();
    let choosing = rarest.iter().filter(|id| index.has(**id)).take(CHOOSING);
    for id in choosing {
        for sentence in index.postings_of(*id) {
            *choice.entry(*sentence).or_default() += index.rarity(*id);
        }
    }
    for pair in content_pairs(tokens).map(|two| index.pair(two)).filter(|pair| pair.distance > 0) {
        *choice.entry(pair.sentence).or_default() += 0.1;
    }
    let mut candidates: Vec<(u32, f32)> = choice.iter().map(|(sentence, weight)| (*sentence, *weight)).collect();
    candidates.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    candidates.truncate(CANDIDATES);
    let aligned = |(sentence, _): (u32, f32)| {
        let sentence = sentence as usize;
        (sentence, common_subsequence(index, content, index.known_of(sentence)))
    };
    let mut ranked: Vec<(usize, f64)> = candidates.into_iter().map(aligned).collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1)); // stable: of equal ones, the better candidate comes first
    let others = ranked.iter().skip(1).take(OTHERS).map(|(sentence, _)| *sentence).collect();
    let best = ranked.first();
    Passages { best: best.map(|best| best.0), others, aligned: best.map_or(0.0, |best| best.1) }
}

/// Returns the weight of the heaviest common subsequence of two lists of words.
fn common_subsequence(index: &Index<'_>, a: &[u32], b: &[u32]) -> f64 {
    let b = b.get(..b.len().min(LONGEST)).unwrap_or(b);
    let mut row = vec![0.0; b.len() + 1];
    for id in a {
        let weight = f64::from(index.rarity(*id));
        let mut diagonal = 0.0;
        let mut left = 0.0;
        for (cell, other) in row.iter_mut().skip(1).zip(b) {
            let above = *cell;
            *cell = if id == other { diagonal + weight } else { f64::max(above, left) };
            diagonal = above;
            left = *cell;
        }
    }
    row.last().copied().unwrap_or(0.0)
}

/// Returns whether the sentence has a number that the passage lacks.
fn stray_number(index: &Index<'_>, tokens: &[Token], best: usize) -> bool {
    let known = index.known_of(best);
    tokens.iter().any(|token| token.kind == Kind::Number && !known.contains(&token.id))
}

/// Returns how many content words repeat an earlier one of the sentence.
fn repeated(content: &[u32]) -> usize {
    let mut sorted = content.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    content.len() - sorted.len()
}

/// Returns the share of the sentence's weight whose words are in trigrams that occur in a source.
fn weight_in_runs(index: &Index<'_>, tokens: &[Token], runs: &[bool]) -> f64 {
    let (mut covered, mut all) = (0.0, 0.0);
    for (at, token) in tokens.iter().enumerate() {
        let weight = match token.kind {
            Kind::Function => FUNCTION_WEIGHT,
            _ => f64::from(index.rarity(token.id)),
        };
        let around = runs.get(at.saturating_sub(2)..runs.len().min(at + 1)).unwrap_or_default();
        all += weight;
        if around.contains(&true) {
            covered += weight;
        }
    }
    if all > 0.0 { covered / all } else { 0.0 }
}

/// Returns the sum of the squared lengths of the sequences of words that occur in a source, divided by the squared
/// length of the sentence. It is 1 for a sentence that is copied as a whole.
fn copied_runs(index: &Index<'_>, tokens: &[Token], runs: &[bool]) -> f64 {
    let (mut at, mut sum) = (0, 0);
    while at < tokens.len() {
        let trigrams = runs.iter().skip(at).take_while(|run| **run).count();
        let alone = tokens.get(at).is_some_and(|token| index.has(token.id));
        let length = if trigrams > 0 { trigrams + 2 } else { usize::from(alone) };
        sum += length * length;
        at += length.max(1);
    }
    sum as f64 / (tokens.len() * tokens.len()).max(1) as f64
}
