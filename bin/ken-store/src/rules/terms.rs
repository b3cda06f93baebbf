//! The words of a question, and which of them a text contains. A word is a sequence of letters and digits, in lower case and without
//! diacritics. The index contains the stems of words, so one lookup finds all inflections of a word.

use std::collections::HashMap;

use ken_text::{index_stems, is_filler, is_particle, push_index_stem};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// The maximum number of words of a question that are searched for.
pub(crate) const MAX_TERMS: usize = 8;
/// The maximum number of words of a question for which a weight is computed.
const MAX_WEIGHED: usize = 24;

/// The distinct words of a question, in order.
#[derive(Debug)]
pub(crate) struct Query {
    terms: Vec<Term>,
    /// For each stem, the index of the term to which it belongs.
    by_stem: HashMap<String, usize>,
}

/// A word of a question.
#[derive(Debug)]
pub(crate) struct Term {
    /// The stems that an index may contain for this word. Its own stem is the first.
    pub(crate) stems: Vec<String>,
}

impl Query {
    /// Splits a question into words and leaves out its stop words. If there are no other words, the result is empty.
    pub(crate) fn of(text: &str) -> Query {
        Query::read(text, |word| !is_filler(word))
    }

    /// Splits a query as [`Query::of`] does. If it consists only of stop words, these are kept.
    pub(crate) fn of_list(text: &str) -> Query {
        let query = Query::of(text);
        if query.terms.is_empty() {
            return Query::read(text, |_| true);
        }
        query
    }

    fn read(text: &str, keep: impl Fn(&str) -> bool) -> Query {
        let mut query = Query { terms: Vec::new(), by_stem: HashMap::new() };
        let mut last: Option<String> = None;
        each_word(text, |word| {
            if let Some(before) = last.take().filter(|before| keep(before)) {
                query.add(&before, Some(word).filter(|word| is_particle(word)));
            }
            last = Some(word.to_owned());
            query.terms.len() < MAX_WEIGHED
        });
        if let Some(word) = last.filter(|word| keep(word) && query.terms.len() < MAX_WEIGHED) {
            query.add(&word, None);
        }
        query
    }

    /// Adds a word, unless another word has the same stem.
    fn add(&mut self, word: &str, particle: Option<&str>) {
        let stems = index_stems(word, particle);
        if stems.first().is_some_and(|own| self.by_stem.contains_key(own)) {
            return;
        }
        for stem in &stems {
            self.by_stem.entry(stem.clone()).or_insert(self.terms.len());
        }
        self.terms.push(Term { stems });
    }

    pub(crate) fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// Returns for each term whether one of the texts contains it.
    pub(crate) fn matches_in<const N: usize>(&self, texts: [&str; N]) -> Vec<bool> {
        let mut held = vec![false; self.terms.len()];
        let mut stem = String::new();
        for text in texts {
            each_word(text, |word| {
                stem.clear();
                push_index_stem(word, &mut stem);
                if let Some(at) = self.by_stem.get(&stem) {
                    _ = held.get_mut(*at).map(|held| *held = true);
                }
                true
            });
        }
        held
    }
}

/// Returns the text as the index contains it: the stems of its words, separated by spaces.
pub(crate) fn indexed(text: &str) -> String {
    let mut stems = String::with_capacity(text.len());
    each_word(text, |word| {
        push_index_stem(word, &mut stems);
        stems.push(' ');
        true
    });
    stems
}

/// Calls `see` with each word until it returns false.
fn each_word(text: &str, mut see: impl FnMut(&str) -> bool) {
    let mut word = String::new();
    for letter in text.chars() {
        if letter.is_ascii_alphanumeric() {
            word.push(letter.to_ascii_lowercase());
        } else if !letter.is_ascii() && (letter.is_alphanumeric() || is_combining_mark(letter)) {
            let plain = letter.nfd().filter(|part| !is_combining_mark(*part));
            word.extend(plain.flat_map(char::to_lowercase));
        } else if !word.is_empty() {
            if !see(&word) {
                return;
            }
            word.clear();
        }
    }
    if !word.is_empty() {
        see(&word);
    }
}

/// The weights of the words of a question: a word that fewer entries contain weighs more.
#[derive(Debug)]
pub(crate) struct Weights {
    holders: Vec<u64>,
    weights: Vec<f64>,
}

impl Weights {
    /// Computes the weights of words. `holders` contains, for each word, how many of the `entries` entries contain it.
    pub(crate) fn new(entries: u64, holders: Vec<u64>) -> Weights {
        // A word that no entry contains weighs a little more than one that a single entry contains.
        let weight = |held: &u64| (1.0 + entries as f64 / (*held as f64).max(0.5)).ln();
        let weights = holders.iter().map(weight).collect();
        Weights { holders, weights }
    }

    pub(crate) fn document_frequencies(&self) -> &[u64] {
        &self.holders
    }

    /// Returns the score of a text: the weight of the words that it contains, as a share of the weight of all words, from 0 to 1.
    pub(crate) fn score(&self, held: &[bool]) -> f64 {
        let all: f64 = self.weights.iter().sum();
        let there: f64 = self.weights.iter().zip(held).filter(|(_, held)| **held).map(|(weight, _)| weight).sum();
        if all > 0.0 { there / all } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(query: &Query) -> Vec<&str> {
        query.terms().iter().map(|term| term.stems[0].as_str()).collect()
    }

    #[test]
    fn words_are_plain_distinct_and_without_those_that_only_ask() {
        assert_eq!(words(&Query::of("What's the Café's WiFi-password? café")), ["caf", "wifi", "password"]);
        assert_eq!(words(&Query::of("who are you?")), [""; 0]);
        assert_eq!(words(&Query::of_list("who are")), ["who", "be"]);
        assert_eq!(words(&Query::of("e\u{301}te\u{301} ŁÓDŹ 42")), ["ete", "łodz", "42"]);
    }

    #[test]
    fn inflections_of_a_word_are_one_term() {
        let query = Query::of("When is web23 backed up, and who owns the owner?");
        assert_eq!(words(&query), ["web23", "back", "own"]);
        assert_eq!(query.matches_in(["web23: nightly backup"]), [true, true, false]);
        assert_eq!(query.matches_in(["owned by team-3"]), [false, false, true]);
    }

    #[test]
    fn the_score_is_the_weighted_part_that_is_held() {
        let query = Query::of("rare common");
        let weights = Weights::new(1_000, vec![1, 500]);
        let score = |text: &str| weights.score(&query.matches_in([text]));
        assert_eq!(score("Rare and common"), 1.0);
        assert_eq!(score("neither"), 0.0);
        assert!(score("rare") > 0.8 && score("common") < 0.2);
        assert_eq!(Weights::new(0, vec![]).score(&[]), 0.0);
    }
}
