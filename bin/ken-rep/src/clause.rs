//! Finds the words of an observation that a negation covers.

use ken_text::{Word, is_stop_word};

/// Finite verbs. If one of them follows an "and", directly or after one word, another predicate begins at the "and". A
/// negation before the "and" does not cover it.
const FINITE_VERBS: [&str; 16] = [
    "is", "are", "was", "were", "has", "have", "had", "does", "do", "did", "can", "could", "will", "would", "should",
    "must",
];

/// The maximum number of words between a "not" and the "and" that ends its scope, as in "is not a very tall man and
/// ...".
const MAX_WORDS_BETWEEN: usize = 4;

/// Returns for each word whether it is negated, as [`ken_text::negated`] does. Here a scope also ends before an "and"
/// that begins another predicate: "Ann is not tall and eats fish" does not negate that she eats.
pub(crate) fn negated(text: &str, words: &[Word<'_>]) -> Vec<bool> {
    let mut flags = Vec::with_capacity(words.len());
    let mut start = 0;
    let ends = (0..words.len()).filter(|&place| begins_predicate(words, place));
    for end in ends.chain([words.len()]) {
        flags.extend(ken_text::negated(text, words.get(start..end).unwrap_or_default()));
        start = end;
    }
    flags
}

/// Returns whether the word at this place is an "and" after which another predicate begins.
fn begins_predicate(words: &[Word<'_>], place: usize) -> bool {
    let word = |place: usize| words.get(place).map(|word| word.text);
    if !word(place).is_some_and(|and| and.eq_ignore_ascii_case("and")) {
        return false;
    }
    let is_finite = |place: usize| {
        word(place).is_some_and(|verb| FINITE_VERBS.iter().any(|finite| finite.eq_ignore_ascii_case(verb)))
    };
    // The second case is a subject before the verb: "and Bob is fat".
    let is_verb = || word(place + 1).is_some_and(ends_like_a_verb);
    is_finite(place + 1) || is_finite(place + 2) || (is_verb() && is_one_word_denied(words, place))
}

/// Returns whether the word has the ending of a verb, as "eats" does. Plurals such as "cats" have it too.
fn ends_like_a_verb(word: &str) -> bool {
    word.len() > 2 && word.ends_with('s') && !word.ends_with("ss") && !is_stop_word(word)
}

/// Returns whether the words before this place are "not" and a single content word that is not a plural. In that case,
/// a word in -s after the "and" is probably a verb and not a second negated thing.
fn is_one_word_denied(words: &[Word<'_>], place: usize) -> bool {
    let before = words.get(..place).unwrap_or_default().iter().rev();
    let mut before = before.map(|word| ken_text::fold(word.text)).take(MAX_WORDS_BETWEEN);
    let is_not = |word: &str| word == "not" || ken_text::expand(word).is_some_and(|both| both.second == "not");
    let is_singular = before.next().is_some_and(|last| !is_not(&last) && !ends_like_a_verb(&last));
    let stop = before.find(|word| is_not(word) || !is_stop_word(word));
    is_singular && stop.is_some_and(|word| is_not(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(text: &str) -> Vec<&str> {
        let words: Vec<Word<'_>> = ken_text::words(text).collect();
        let flags = negated(text, &words);
        let denied = words.iter().zip(flags).filter(|(_, flag)| *flag);
        denied.map(|(word, _)| word.text).collect()
    }

    #[test]
    fn a_denial_ends_before_another_predicate() {
        for (text, expected) in [
            ("Ann is not tall and eats fish", &["tall"][..]),
            ("Ann isn't a teacher and eats fish", &["a", "teacher"]),
            ("Ann is not fond of milk and is tall", &["fond", "of", "milk"]),
            ("Ann is not fond of Eve and Bob is tall", &["fond", "of", "Eve"]),
            ("Ann is not tall and does not eat fish", &["tall", "eat", "fish"]),
            ("Ann is not tall and fat", &["tall", "and", "fat"]),
            ("Ann does not like cats and dogs", &["like", "cats", "and", "dogs"]),
            ("Ann has no cat and dogs", &["cat", "and", "dogs"]),
        ] {
            assert_eq!(denied(text), expected, "{text}");
        }
    }
}
