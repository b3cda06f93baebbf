//! Decides whether a passage says a sentence word for word, so that no rule has to know what its words mean.
//!
//! Each word of the sentence, articles excepted, has to stand in the passage, in this order: names and numbers, negations and
//! duties, tenses and prepositions. Of the passage, only a part that is joined with "and", or a clause that begins with "who" or
//! "which", may be left out. A condition, a place or a time may not: "the shop is closed" is something else than "the shop is
//! closed on Sundays".

use crate::reading::{Reading, Word};

/// The maximum number of words of a sentence or a passage that are compared. Longer ones are left open.
const MAX_WORDS: usize = 100;
/// The maximum number of places in the passage that are followed for one word. The limit bounds the time for repeated words.
const MAX_PLACES: usize = 8;

pub(crate) fn is_carried(sentence: &Reading, passage: &Reading) -> bool {
    let (ours, theirs) = (said(sentence), said(passage));
    if ours.is_empty() || ours.len().max(theirs.len()) > MAX_WORDS {
        return false;
    }
    let is_at = |word: &Word, at: usize| theirs.get(at).is_some_and(|other| word.says_same(other));
    // The places in the passage up to which the words so far stand there.
    let mut reached: Vec<usize> = ours.first().filter(|word| is_at(word, 0)).map(|_| 0).into_iter().collect();
    for word in ours.iter().skip(1) {
        let follows = |at: &usize| reached.iter().any(|before| before < at && can_leave_out(&theirs, before + 1, *at));
        let places = (0..theirs.len()).filter(|at| is_at(word, *at));
        reached = places.filter(follows).take(MAX_PLACES).collect();
    }
    reached.into_iter().any(|last| last + 1 == theirs.len() || can_end_at(&theirs, last))
}

/// Returns whether a sentence begins with a word that refers to the sentence before it.
pub(crate) fn refers_back(sentence: &Reading) -> bool {
    sentence.words.iter().take(3).any(|word| word.is_one_of(&REFERENCES))
}

fn said(reading: &Reading) -> Vec<&Word> {
    reading.words.iter().filter(|word| !word.is_one_of(&["a", "an", "the"])).collect()
}

/// Returns whether the words from `start` to `end` say nothing that what is before and after them depends on.
fn can_leave_out(words: &[&Word], start: usize, end: usize) -> bool {
    let opens_clause = |at: usize| {
        let clause = |at: usize| words.get(at).map(|word| word.clause);
        at.checked_sub(1).is_some_and(|before| clause(before) != clause(at))
    };
    let is_clause = is(words, start, &RELATIVES) && opens_clause(end);
    start == end || (is_clause || is_join(words, end - 1)) && is_plain(words, start, end)
}

fn can_end_at(words: &[&Word], last: usize) -> bool {
    let goes_on = is_join(words, last + 1) || is(words, last + 1, &RELATIVES);
    goes_on && is_plain(words, last + 1, words.len())
}

fn is(words: &[&Word], at: usize, list: &[&str]) -> bool {
    words.get(at).is_some_and(|word| word.is_one_of(list))
}

/// Returns whether the word joins two parts, each of which holds alone. "Five hundred and twelve" is one number.
fn is_join(words: &[&Word], at: usize) -> bool {
    let is_number = |at: usize| words.get(at).is_some_and(|word| word.number.is_some());
    is(words, at, &["and"]) && !(at > 0 && is_number(at - 1) && is_number(at + 1))
}

/// Returns whether no word of a part denies, limits or reports something.
fn is_plain(words: &[&Word], start: usize, end: usize) -> bool {
    let part = words.get(start..end).unwrap_or_default();
    !part.iter().any(|word| word.negates || word.is_one_of(&LIMITS))
}

const RELATIVES: [&str; 3] = ["who", "which", "whose"];
const REFERENCES: [&str; 16] = [
    "it", "its", "he", "his", "him", "she", "her", "hers", "they", "their", "them", "this", "these", "that", "those",
    "there",
];

/// Words that say under which condition, for whom, how likely or by whose word something is so.
const LIMITS: [&str; 40] = [
    "that", "whether", "if", "unless", "when", "until", "or", "either", "only", "except", "may", "might", "can",
    "could", "would", "should", "must", "hardly", "scarcely", "barely", "rarely", "seldom", "almost", "nearly",
    "perhaps", "probably", "allegedly", "reportedly", "said", "says", "say", "told", "tells", "claimed", "claims",
    "believe", "believes", "think", "thinks", "thought",
];

#[cfg(test)]
mod tests {
    use ken_text::Span;

    use super::*;
    use crate::reading::read;

    fn carries(passage: &str, sentence: &str) -> bool {
        let [sentence, passage] = [sentence, passage].map(|text| read(text, Span { start: 0, end: text.len() }));
        is_carried(&sentence, &passage)
    }

    #[test]
    fn a_sentence_is_carried_if_its_passage_says_it_in_the_same_words() {
        let passage = "The council, which met on Monday, closed the old bridge and raised the rent by 12 euros.";
        for sentence in [
            passage,
            "The council, which met on Monday, closed the old bridge.",
            "The council closed the old bridge.",
            "The council raised the rent by twelve euros.",
        ] {
            assert!(carries(passage, sentence), "{sentence}");
        }
    }

    #[test]
    fn a_changed_word_or_order_and_a_missing_limit_are_not_carried() {
        for (passage, sentence) in [
            ("The council closed the old bridge.", "The council closed the new bridge."),
            ("The council closed the old bridge.", "The council closes the old bridge."),
            ("The council closed the old bridge.", "The council closed the bridge."),
            ("Ann sued Bob.", "Bob sued Ann."),
            ("The shop is closed on Sundays.", "The shop is closed."),
            ("Dogs may stay if they are quiet.", "Dogs may stay."),
            ("Hart denied that the bridge was closed.", "The bridge was closed."),
            ("Hart said the bridge was closed.", "The bridge was closed."),
            ("It was 5 degrees.", "It was -5 degrees."),
            ("It was 5 °C.", "It was 5 %."),
            ("Bush tomatoes need no stick.", "Tomatoes need no stick."),
            ("Most of the pears were ripe.", "The pears were ripe."),
            ("Members and guests pay.", "Guests pay twice."),
            ("The son of Ann and Bob died.", "Bob died."),
            ("The council did not close the bridge and raised the rent.", "The council raised the rent."),
            ("It cost five hundred and twelve euros.", "It cost five hundred."),
            ("It cost five hundred and twelve euros.", "It cost twelve euros."),
        ] {
            assert!(!carries(passage, sentence), "{sentence}");
        }
        assert!(!carries(&"word ".repeat(MAX_WORDS + 1), &"word ".repeat(MAX_WORDS)));
    }
}
