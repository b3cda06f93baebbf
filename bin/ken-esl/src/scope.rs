//! The scope of negation, contrast, strength and irony, found in the words before the model sees them.

use crate::emotion::LABELS;
use crate::lexicon::{self, Class, Entry};
use crate::table::Table;
use crate::token::Token;

/// How many words a negator reaches. Clauses are rarely longer, and a mark or a contrast ends its scope earlier.
pub(crate) const REACH: usize = 5;

/// The longest phrase of the lexicon, in words.
const MAX_PHRASE: usize = 4;

/// What the rules know about one token.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Note {
    pub(crate) key: u64,
    pub(crate) entry: Option<Entry>,
    /// How many tokens the entry covers; 0 inside of a phrase.
    pub(crate) width: usize,
    /// What the word is alone, where the phrase that it is part of says something else: the worries of "no worries".
    pub(crate) overruled: Option<Class>,
    pub(crate) is_negated: bool,
    /// It looked like the opposite of what it is, or is a negator that denies nothing: see [`crate::idiom`].
    pub(crate) is_lifted: bool,
    /// Part of a name, as the adjective of "the great wall".
    pub(crate) is_name: bool,
    /// What an intensifier or diminisher before it does to its strength; 0 is nothing.
    pub(crate) boost: f32,
}

impl Note {
    pub(crate) fn class(&self) -> Option<Class> {
        self.entry.map(|entry| entry.class)
    }

    pub(crate) fn is(&self, class: Class) -> bool {
        self.class() == Some(class)
    }

    pub(crate) fn is_feeling(&self) -> bool {
        self.entry.is_some_and(|entry| entry.is_feeling()) && !self.is_name
    }

    fn is_opinion(&self) -> bool {
        self.is(Class::Good) || self.is(Class::Bad)
    }

    /// The emotion of a word that hardly anybody would use for another one.
    pub(crate) fn strong_emotion(&self) -> Option<usize> {
        const STRONG: f32 = 2.5;
        let entry = self
            .entry
            .filter(|entry| entry.valence.abs() >= STRONG && !self.is_negated && self.width == 1)?;
        match entry.class {
            Class::Emotion(emotion) if emotion < LABELS => Some(emotion),
            _ => None,
        }
    }

    /// The word itself must not count: it is negated or a name. What remains is that it was.
    pub(crate) fn is_muted(&self) -> bool {
        self.is_name || self.is_negated && self.is_feeling()
    }
}

/// A stretched word that the lexicon knows without the stretch, "looooove", is that word.
pub(crate) fn settle(table: &Table, token: &mut Token) {
    if token.stretched.is_none() {
        return;
    }
    let knows = |token: &Token| table.entry(lexicon::key(token)).is_some();
    let relaxed = token.relaxed();
    if !knows(token) && knows(&relaxed) {
        *token = relaxed;
    }
}

/// Notes on all tokens, in their order.
pub(crate) fn annotate(table: &Table, tokens: &[Token], notes: &mut Vec<Note>) {
    notes.clear();
    notes.extend(tokens.iter().map(|token| {
        let key = lexicon::key(token);
        Note {
            key,
            entry: table.entry(key),
            width: 1,
            overruled: None,
            is_negated: false,
            is_lifted: false,
            is_name: false,
            boost: 0.0,
        }
    }));
    join_phrases(table, notes);
    mark_names(tokens, notes);
    mark_capitals(tokens, notes);
    mark_scopes(tokens, notes);
}

/// The longest phrase that begins at each word takes the place of its words' own entries.
fn join_phrases(table: &Table, notes: &mut [Note]) {
    let mut at = 0;
    while let Some(rest) = notes.get_mut(at..).filter(|rest| !rest.is_empty()) {
        at += match longest_phrase(table, rest) {
            Some((entry, width)) => {
                rest.iter_mut().take(width).for_each(|note| {
                    note.overruled = note
                        .entry
                        .filter(|word| contradict(entry, *word))
                        .map(|word| word.class);
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

/// Whether a phrase says the opposite of one of its words.
fn contradict(phrase: Entry, word: Entry) -> bool {
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

/// An adjective right after "the", in a text without a verb of being and without an exclamation, classifies and does not
/// praise: the great wall, the good book. A superlative still praises: the best.
fn mark_names(tokens: &[Token], notes: &mut [Note]) {
    let says_something = notes
        .iter()
        .any(|note| note.is(Class::Is) || note.is(Class::Myself));
    if says_something || tokens.iter().any(|token| token.form().first() == Some(&b'!')) {
        return;
    }
    for at in 1..tokens.len().saturating_sub(1) {
        let follows = tokens.get(at - 1).is_some_and(|token| token.is("the"));
        let precedes = tokens.get(at + 1).is_some_and(Token::is_word) && tokens.len() <= at + 4;
        let is_superlative = tokens.get(at).is_some_and(|token| token.form().ends_with(b"st"));
        if let Some(note) = notes
            .get_mut(at)
            .filter(|_| follows && precedes && !is_superlative)
        {
            note.is_name |= note.is_opinion();
        }
    }
}

/// Within a sentence capitals make a name: "near the Great Lakes". Where all begin with one, a headline, they say nothing.
fn mark_capitals(tokens: &[Token], notes: &mut [Note]) {
    for (three, note) in tokens.windows(3).zip(notes.iter_mut().skip(1)) {
        let [before, word, next] = three else { return };
        let is_within = before.is("the") || before.is_word() && !before.is_title;
        note.is_name |= is_within && word.is_title && next.is_title && note.is_opinion();
    }
}

/// One pass from the left: negators reach right, strength words reach the next feeling.
fn mark_scopes(tokens: &[Token], notes: &mut [Note]) {
    let mut reach = 0usize;
    let mut boost = 0.0f32;
    for (at, token) in tokens.iter().enumerate() {
        let follows_restrict = notes.get(at + 1).is_some_and(|next| next.is(Class::Restrict));
        let Some(note) = notes.get_mut(at) else { return };
        match note.class() {
            Some(Class::Negator) => {
                // "not just", "not only" affirm. A second negator ends the first: "not without".
                let is_list = token.is("nor") || token.is("neither");
                reach = if follows_restrict || reach > 0 && !is_list {
                    0
                } else {
                    REACH
                };
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
