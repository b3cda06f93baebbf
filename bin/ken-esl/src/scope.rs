//! The scopes of negation, contrast, intensifiers and irony. They are determined before the model is applied.

use crate::emotion::LABELS;
use crate::lexicon::{self, Class, Entry};
use crate::table::Table;
use crate::token::Token;

/// Maximum scope of a negator, in words. Clauses are rarely longer, and a mark or a contrast ends the scope earlier.
const MAX_SCOPE: usize = 5;

/// The maximum length of a phrase in the lexicon, in words.
const MAX_PHRASE: usize = 4;

/// The properties of a token that the rules use.
#[derive(Debug, Clone, Copy, Default)]
pub struct Note {
    pub key: u64,
    pub entry: Option<Entry>,
    /// The number of tokens that the entry covers. 0 for a token within a phrase.
    pub width: usize,
    /// The class of the word on its own, if it is part of a phrase with another meaning, like "worries" in "no
    /// worries".
    pub overruled: Option<Class>,
    pub is_negated: bool,
    /// Whether the word only looked negated, or is a negator that does not reverse the meaning; see [`crate::idiom`].
    pub is_lifted: bool,
    /// Whether it is part of a name, like the adjective in "the great wall".
    pub is_name: bool,
    /// The change of its strength by an intensifier or diminisher before it. 0 if there is none.
    pub boost: f32,
}

impl Note {
    pub fn class(&self) -> Option<Class> {
        self.entry.map(|entry| entry.class)
    }

    pub fn is(&self, class: Class) -> bool {
        self.class() == Some(class)
    }

    pub fn is_feeling(&self) -> bool {
        self.entry.is_some_and(|entry| entry.is_feeling()) && !self.is_name
    }

    fn is_opinion(&self) -> bool {
        self.is(Class::Good) || self.is(Class::Bad)
    }

    /// Returns the emotion of the word, if it is hardly ever used for another emotion.
    pub fn strong_emotion(&self) -> Option<usize> {
        const STRONG: f32 = 2.5;
        let entry = self.entry.filter(|entry| entry.valence.abs() >= STRONG && !self.is_negated && self.width == 1)?;
        match entry.class {
            Class::Emotion(emotion) if emotion < LABELS => Some(emotion),
            _ => None,
        }
    }

    /// Whether the word on its own is ignored, because it is negated or part of a name.
    pub fn is_ignored(&self) -> bool {
        self.is_name || self.is_negated && self.is_feeling()
    }
}

/// Replaces a stretched word, such as "looooove", with the normal word if the lexicon contains it.
pub fn normalize_stretched(table: &Table, token: &mut Token) {
    if token.stretched.is_none() {
        return;
    }
    let knows = |token: &Token| table.entry(lexicon::key(token)).is_some();
    let relaxed = token.relaxed();
    if !knows(token) && knows(&relaxed) {
        *token = relaxed;
    }
}

/// Writes the notes of all tokens, in their order.
pub fn annotate(table: &Table, tokens: &[Token], notes: &mut Vec<Note>) {
    notes.clear();
    notes.extend(tokens.iter().map(|token| {
        let key = lexicon::key(token);
        Note { key, entry: table.entry(key), width: 1, ..Note::default() }
    }));
    join_phrases(table, notes);
    mark_names(tokens, notes);
    mark_capitals(tokens, notes);
    mark_scopes(tokens, notes);
}

/// Replaces the entries of single words with the longest phrase that begins at each word.
fn join_phrases(table: &Table, notes: &mut [Note]) {
    let mut at = 0;
    while let Some(rest) = notes.get_mut(at..).filter(|rest| !rest.is_empty()) {
        at += match longest_phrase(table, rest) {
            Some((entry, width)) => {
                rest.iter_mut().take(width).for_each(|note| {
                    note.overruled = note.entry.filter(|word| contradicts(entry, *word)).map(|word| word.class);
                    note.entry = None;
                    note.width = 0;
                    note.is_name = entry.class == Class::Name;
                });
                if let Some(first) = rest.first_mut() {
                    first.entry = Some(entry);
                    first.width = width;
                }
                width
            }
            None => 1,
        };
    }
    for note in notes.iter_mut() {
        if note.is(Class::Start) {
            note.entry = None;
        }
    }
}

/// Whether a phrase means the opposite of one of its words.
fn contradicts(phrase: Entry, word: Entry) -> bool {
    phrase.valence.abs() >= 1.0 && phrase.valence * word.valence < 0.0
}

fn longest_phrase(table: &Table, notes: &[Note]) -> Option<(Entry, usize)> {
    let first = notes.first()?;
    first.entry.filter(|entry| entry.starts_phrase)?;
    let mut key = first.key;
    let mut longest = None;
    for (width, note) in notes.iter().enumerate().take(MAX_PHRASE).skip(1) {
        key = lexicon::longer(key, note.key);
        if let Some(entry) = table.entry(key) {
            longest = Some((entry, width + 1));
        }
    }
    longest
}

/// Marks adjectives that classify rather than praise, as in "the great wall" or "the good book". These are adjectives
/// directly after "the", in a text without a form of "to be" and without an exclamation mark. A superlative such as
/// "the best" still praises.
fn mark_names(tokens: &[Token], notes: &mut [Note]) {
    let says_something = notes.iter().any(|note| note.is(Class::Is) || note.is(Class::Myself));
    if says_something || tokens.iter().any(|token| token.form().first() == Some(&b'!')) {
        return;
    }
    for at in 1..tokens.len().saturating_sub(1) {
        let follows = tokens.get(at - 1).is_some_and(|token| token.is("the"));
        let precedes = tokens.get(at + 1).is_some_and(Token::is_word) && tokens.len() <= at + 4;
        let is_superlative = tokens.get(at).is_some_and(|token| token.form().ends_with(b"st"));
        if let Some(note) = notes.get_mut(at).filter(|_| follows && precedes && !is_superlative) {
            note.is_name |= note.is_opinion();
        }
    }
}

/// Marks capitalised words within a sentence as names: "near the Great Lakes". In a headline, where all words are
/// capitalised, capitals have no meaning.
fn mark_capitals(tokens: &[Token], notes: &mut [Note]) {
    for (three, note) in tokens.windows(3).zip(notes.iter_mut().skip(1)) {
        let [before, word, next] = three else { return };
        let is_within = before.is("the") || before.is_word() && !before.is_title;
        note.is_name |= is_within && word.is_title && next.is_title && note.is_opinion();
    }
}

/// Determines the scopes in one pass from left to right. The scope of a negator extends to the right, and an
/// intensifier applies to the next feeling.
fn mark_scopes(tokens: &[Token], notes: &mut [Note]) {
    let mut reach = 0usize;
    let mut boost = 0.0f32;
    for (at, token) in tokens.iter().enumerate() {
        let follows_restrict = notes.get(at + 1).is_some_and(|next| next.is(Class::Restrict));
        let Some(note) = notes.get_mut(at) else { return };
        match note.class() {
            Some(Class::Negator) => {
                // "not just" and "not only" affirm. A second negator ends the scope of the first: "not without".
                let is_list = token.is("nor") || token.is("neither");
                reach = if follows_restrict || reach > 0 && !is_list { 0 } else { MAX_SCOPE };
                continue;
            }
            Some(Class::Contrast | Class::Restrict) => reach = 0,
            Some(Class::Intensifier) => boost += 0.3,
            Some(Class::Diminisher) => boost -= 0.3,
            _ => {}
        }
        if !token.is_word() {
            let ends = !matches!(token.form(), b"'" | b"\"" | b"-" | b"[n]" | b"*");
            reach = if ends { 0 } else { reach };
            boost = 0.0;
            continue;
        }
        note.is_negated = reach > 0;
        reach = reach.saturating_sub(1);
        if note.is_feeling() {
            note.boost = boost;
            boost = 0.0;
        }
    }
}
