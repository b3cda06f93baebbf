//! Selects the words of a question to search for, and the sessions for a list with a query.

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
