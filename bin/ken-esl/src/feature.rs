//! The features of a text that the model uses: words, pairs of words, letters within words, negation, and style.
//! The trainer and the classifier share this file; a change here requires a new table.

use crate::lexicon::Class;
use crate::math::mix;
use crate::scope::Note;
use crate::token::Token;

/// Kinds of features. The keys of different kinds are never equal except by a hash collision.
#[derive(Clone, Copy)]
enum Kind {
    Word = 1,
    Pair,
    Letters,
    Negated,
    Emotion,
    Valence,
    Style,
}

fn keyed(kind: Kind, key: u64) -> u64 {
    mix(key, kind as u64)
}

/// Stands for the edge of a text, as the neighbour of its first and last word.
const EDGE: u64 = 0xED6E;

/// Calls `feature` for each feature of the token at `at`.
pub fn of_token(tokens: &[Token], notes: &[Note], at: usize, mut feature: impl FnMut(u64)) {
    let (Some(token), Some(note)) = (tokens.get(at), notes.get(at)) else {
        return;
    };
    of_place(notes, at, &mut feature);
    if !note.is_ignored() {
        of_itself(token, note.key, feature);
    }
}

/// Calls `feature` for each feature of the token that depends on its context.
pub fn of_place(notes: &[Note], at: usize, mut feature: impl FnMut(u64)) {
    let Some(note) = notes.get(at) else { return };
    let before = at.checked_sub(1).and_then(|at| notes.get(at)).map_or(EDGE, |note| note.key);
    feature(keyed(Kind::Pair, mix(before, note.key)));
    if at + 1 == notes.len() {
        feature(keyed(Kind::Pair, mix(note.key, EDGE)));
    }
    if note.is_negated {
        feature(keyed(Kind::Negated, note.key));
    }
    of_meaning(note, &mut feature);
}

/// Calls `feature` for each feature of the token that does not depend on its context.
pub fn of_itself(token: &Token, key: u64, mut feature: impl FnMut(u64)) {
    feature(of_word(key));
    if token.is_word() && token.form().len() > 1 {
        of_letters(token.form(), &mut feature);
    }
}

/// Calls `feature` for the features of the word's lexicon entry, so that a rare word is treated like a common word of
/// the same kind.
fn of_meaning(note: &Note, feature: &mut impl FnMut(u64)) {
    let Some(entry) = note.entry.filter(|_| !note.is_name) else {
        return;
    };
    let sign = u64::from(note.is_negated);
    if let Class::Emotion(number) = entry.class {
        feature(keyed(Kind::Emotion, number as u64 * 2 + sign));
    }
    if entry.is_feeling() {
        let strength = (entry.valence + 4.5) as u64;
        feature(keyed(Kind::Valence, strength * 2 + sign));
    }
}

/// Calls `feature` for every sequence of three to five letters of `<word>`.
fn of_letters(form: &[u8], feature: &mut impl FnMut(u64)) {
    const BUFFER_BYTES: usize = 40;
    let mut padded = [0u8; BUFFER_BYTES];
    padded[0] = b'<';
    let len = form.len().min(BUFFER_BYTES - 16);
    for (to, from) in padded.iter_mut().skip(1).zip(form.iter().take(len)) {
        *to = *from;
    }
    if let Some(end) = padded.get_mut(len + 1) {
        *end = b'>';
    }
    let len = len + 2;
    for (at, window) in padded.windows(8).take(len.saturating_sub(2)).enumerate() {
        let letters = window.try_into().map_or(0, u64::from_le_bytes);
        feature(keyed(Kind::Letters, letters & 0xFF_FFFF));
        if at + 4 <= len && len > 4 {
            feature(keyed(Kind::Letters, letters & 0xFFFF_FFFF));
        }
        if at + 5 <= len && len > 5 {
            feature(keyed(Kind::Letters, letters & 0xFF_FFFF_FFFF));
        }
    }
}

/// Calls `feature` for each feature of the style of the whole text.
pub fn of_style(tokens: &[Token], mut feature: impl FnMut(u64)) {
    let words = tokens.iter().filter(|token| token.is_word()).count();
    let caps = tokens.iter().filter(|token| token.is_caps).count();
    let shout = match caps {
        0 => 0,
        caps if caps * 2 > words => 2,
        _ => 1,
    };
    feature(keyed(Kind::Style, shout));
    feature(keyed(Kind::Style, 10 + u64::from(tokens.len().max(1).ilog2())));
    for (mark, number) in [(b'?', 20), (b'!', 21)] {
        if tokens.iter().any(|token| token.form().first() == Some(&mark)) {
            feature(keyed(Kind::Style, number));
        }
    }
}

/// Returns the feature of a word with this key.
pub fn of_word(key: u64) -> u64 {
    keyed(Kind::Word, key)
}
