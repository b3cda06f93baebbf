//! Selects the words of a question to search for, and the sessions for a list with a query.

use ken_text::{head, sentences};
use ken_types::ops::store::Session;

use crate::rules::terms::{MAX_TERMS, Query, Weights};

/// If more entries than this contain a word, it is only searched for if there is no rarer word. Ranking reads all matches, which would take
/// too long.
const COMMON_WORD_ROWS: u64 = 5_000;

/// Returns the rarest words that occur in the index, each with its stems.
pub(crate) fn rarest_words<'a>(query: &'a Query, weights: &Weights) -> Vec<&'a [String]> {
    let mut words: Vec<(u64, &[String])> = weights
        .document_frequencies()
        .iter()
        .zip(query.terms())
        .filter(|(holders, _)| **holders > 0)
        .map(|(holders, term)| (*holders, term.stems.as_slice()))
        .collect();
    words.sort_by_key(|(holders, _)| *holders);
    let rare = words.iter().take_while(|(holders, _)| *holders <= COMMON_WORD_ROWS).count();
    words.truncate(rare.clamp(1, MAX_TERMS));
    words.into_iter().map(|(_, stems)| stems).collect()
}

/// The beginning of a text in which a passage is looked for, and the maximum length of the passage, in bytes. A list shows a passage for
/// each of a hundred sessions.
const READ_BYTES: usize = 16 << 10;
const PASSAGE_BYTES: usize = 240;

/// Returns the first sentence, or piece of a long one, that contains most words of a query, on one line.
pub(crate) fn passage(query: &Query, texts: [&str; 2]) -> String {
    let mut best = ("", 0);
    for piece in texts.iter().flat_map(|text| sentences(head(text, READ_BYTES))).flat_map(|found| pieces(found.text)) {
        let held = query.matches_in([piece]).into_iter().filter(|held| *held).count();
        if held > best.1 {
            best = (piece, held);
        }
    }
    best.0.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Cuts a sentence between words into pieces.
fn pieces(sentence: &str) -> impl Iterator<Item = &str> {
    let mut rest = sentence;
    std::iter::from_fn(move || {
        let piece = head(rest, PASSAGE_BYTES);
        let end = if piece.len() < rest.len() { piece.rfind(char::is_whitespace) } else { None };
        let (piece, left) = rest.split_at_checked(end.filter(|end| *end > 0).unwrap_or(piece.len()))?;
        rest = left.trim_start();
        Some(piece).filter(|piece| !piece.is_empty())
    })
}

/// The words that a session must contain to be in a list.
pub(crate) struct SessionWords(Vec<String>);

impl SessionWords {
    pub(crate) fn of(q: Option<&str>) -> SessionWords {
        let words = q.unwrap_or_default().split_whitespace();
        SessionWords(words.map(str::to_lowercase).collect())
    }

    /// Returns whether the name, the title and the id of a session together contain all words.
    pub(crate) fn are_in(&self, session: &Session) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let texts = [session.display_name.as_deref(), session.title.as_deref(), Some(session.session_id.as_str())];
        let text = texts.map(Option::unwrap_or_default).join("\n").to_lowercase();
        self.0.iter().all(|word| text.contains(word))
    }
}
