//! Statements that follow from the meaning of a word: "was rejected" says that it was not accepted.

use ken_text::{Opposition, opposites};

use crate::statement::Statement;

/// Returns the weaker statements that a statement implies by one of its words: "always late" implies "late", "must enter"
/// implies "may enter", and "rejected" implies "not accepted". The words are those of the normal form.
pub(crate) fn implied(statement: &Statement<'_>) -> Vec<Statement<'static>> {
    let mut implied = Vec::new();
    if statement.negated || !statement.atom.contains(' ') {
        return implied;
    }
    let words: Vec<&str> = statement.atom.split(' ').take(MAX_WORDS + 1).collect();
    if words.len() > MAX_WORDS || words.iter().any(|word| matches!(*word, "and" | "or" | "but" | "if" | "not")) {
        return implied;
    }
    let mut push = |at: usize, word: &str, negated: bool| {
        let mut words = words.clone();
        if word.is_empty() {
            words.remove(at);
        } else if let Some(place) = words.get_mut(at) {
            *place = word;
        }
        implied.push(Statement { atom: words.join(" ").into(), negated });
    };
    for (at, word) in words.iter().enumerate() {
        match (at, *word) {
            (0, "all") | (1.., "always") => push(at, "", false),
            (1.., "has-to") => push(at, "may", false),
            (0, "everybody") => push(at, "somebody", false),
            (0, "everything") => push(at, "something", false),
            (1.., word) => {
                let contrary = opposites(word).iter().filter(|other| other.opposition == Opposition::Contrary);
                // One direction suffices: what follows is compared with what is said of the other word.
                let contrary = contrary.filter(|other| other.is_first && is_said(&words, at));
                contrary.for_each(|other| push(at, other.word, true));
            }
            _ => {}
        }
    }
    implied
}

/// Returns whether a word is said of the subject, as in "was rejected" or "rejected the offer", and does not only
/// describe a thing, as in "the rejected offer".
fn is_said(words: &[&str], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| words.get(before));
    !before.is_some_and(|before| DETERMINERS.contains(before))
}

/// The maximum length of a statement that is examined. Statements that grow with every step of a derivation are longer.
const MAX_WORDS: usize = 32;

const DETERMINERS: [&str; 24] = [
    "a", "an", "the", "this", "that", "these", "those", "his", "her", "its", "their", "our", "my", "your", "every",
    "each", "any", "some", "all", "no", "more", "less", "very", "of",
];
