//! The words of a question, and which of them a text holds. Words are made as FTS5's `unicode61` makes them: runs of
//! letters and digits, in lower case, without diacritics.

use std::collections::HashSet;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// Words of a question that are looked for.
pub(crate) const MOST_TERMS: usize = 8;
/// Words of a question that are weighed at all.
const MOST_WEIGHED: usize = 24;

/// English words that say nothing about what is asked. Sorted.
const STOP_WORDS: [&str; 134] = [
    "a", "about", "after", "again", "all", "also", "am", "an", "and", "any", "are", "as", "at", "be",
    "because", "been", "before", "being", "between", "both", "but", "by", "can", "could", "did", "do",
    "does", "doing", "done", "during", "each", "every", "few", "for", "from", "further", "get", "give",
    "had", "has", "have", "having", "he", "her", "here", "hers", "him", "his", "how", "i", "if", "in",
    "into", "is", "it", "its", "just", "know", "let", "like", "many", "may", "me", "might", "more", "most",
    "much", "must", "my", "no", "nor", "not", "now", "of", "off", "on", "once", "only", "or", "other", "our",
    "ours", "out", "over", "own", "please", "s", "same", "say", "shall", "she", "should", "so", "some",
    "such", "t", "tell", "than", "that", "the", "their", "theirs", "them", "then", "there", "these", "they",
    "this", "those", "through", "to", "too", "under", "until", "up", "us", "very", "was", "we", "were",
    "what", "when", "where", "which", "while", "who", "whom", "whose", "why", "will", "with", "would", "you",
    "your",
];

/// The words of a question, each once, in their order.
#[derive(Debug)]
pub(crate) struct Query {
    words: Vec<String>,
}

impl Query {
    /// Without stop words; a question of nothing else asks for nothing.
    pub(crate) fn of(text: &str) -> Query {
        let words = distinct(text, |word| STOP_WORDS.binary_search(&word).is_err());
        Query { words }
    }

    /// As [`Query::of`], but whoever looks for a stop word alone means it.
    pub(crate) fn of_list(text: &str) -> Query {
        let query = Query::of(text);
        if query.words.is_empty() {
            let words = distinct(text, |_| true);
            return Query { words };
        }
        query
    }

    pub(crate) fn words(&self) -> &[String] {
        &self.words
    }

    /// For each word, whether one of the texts holds it.
    pub(crate) fn held_by<const N: usize>(&self, texts: [&str; N]) -> Vec<bool> {
        let mut held = vec![false; self.words.len()];
        for text in texts {
            each_word(text, |word| {
                if let Some(at) = self.words.iter().position(|wanted| wanted == word) {
                    _ = held.get_mut(at).map(|held| *held = true);
                }
                true
            });
        }
        held
    }
}

fn distinct(text: &str, keep: impl Fn(&str) -> bool) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut words = Vec::new();
    each_word(text, |word| {
        if keep(word) && seen.insert(word.to_owned()) {
            words.push(word.to_owned());
        }
        words.len() < MOST_WEIGHED
    });
    words
}

/// Calls `see` with each word until it has enough.
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

/// What the words of a question weigh: the fewer entries hold one, the more.
#[derive(Debug)]
pub(crate) struct Weights {
    holders: Vec<u64>,
    weights: Vec<f64>,
}

impl Weights {
    /// For each word, how many of `entries` entries hold it.
    pub(crate) fn new(entries: u64, holders: Vec<u64>) -> Weights {
        // A word that nothing holds weighs a little more than one that one entry holds.
        let weight = |held: &u64| (1.0 + entries as f64 / (*held as f64).max(0.5)).ln();
        let weights = holders.iter().map(weight).collect();
        Weights { holders, weights }
    }

    pub(crate) fn holders(&self) -> &[u64] {
        &self.holders
    }

    /// The part of all weight that these words have, 0 to 1.
    pub(crate) fn score(&self, held: &[bool]) -> f64 {
        let all: f64 = self.weights.iter().sum();
        let there: f64 = self
            .weights
            .iter()
            .zip(held)
            .filter(|(_, held)| **held)
            .map(|(weight, _)| weight)
            .sum();
        if all > 0.0 { there / all } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_words_are_sorted_because_they_are_searched_so() {
        assert!(STOP_WORDS.is_sorted());
    }

    #[test]
    fn words_are_plain_distinct_and_without_stop_words() {
        assert_eq!(
            Query::of("What's the Café's WiFi-password? café").words(),
            ["cafe", "wifi", "password"]
        );
        assert_eq!(Query::of("who are you?").words(), [""; 0]);
        assert_eq!(Query::of_list("who are").words(), ["who", "are"]);
        assert_eq!(
            Query::of("e\u{301}te\u{301} ŁÓDŹ 42").words(),
            ["ete", "łodz", "42"]
        );
    }

    #[test]
    fn the_score_is_the_weighted_part_that_is_held() {
        let query = Query::of("rare common");
        let weights = Weights::new(1_000, vec![1, 500]);
        let score = |text: &str| weights.score(&query.held_by([text]));
        assert_eq!(score("Rare and common"), 1.0);
        assert_eq!(score("neither"), 0.0);
        assert!(score("rare") > 0.8 && score("common") < 0.2);
        assert_eq!(Weights::new(0, vec![]).score(&[]), 0.0);
    }
}
