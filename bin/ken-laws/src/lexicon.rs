//! What is known about words and phrases: the tables that the build script makes of `share/laws`.

pub(crate) use crate::hash::{hash, join};

include!(concat!(env!("OUT_DIR"), "/lexicon.rs"));

/// What the lexicon says about a word. Its classes are bits; each has a constant of the name that it has in `classes.txt`.
pub(crate) struct Entry {
    hash: u64,
    pub(crate) stem: u64,
    pub(crate) classes: u128,
    /// The value of a numeral or an ordinal, or the number of a pair of opposites.
    pub(crate) value: u16,
    /// The first of [`STARTS`] that is this word's, and how many are.
    starts: (u16, u16),
}

/// A free place of the table; no word has the hash 0.
const EMPTY: Entry = Entry {
    hash: 0,
    stem: 0,
    classes: 0,
    value: 0,
    starts: (0, 0),
};

/// A row of words that shows a feature.
pub(crate) struct Phrase {
    pub(crate) feature: usize,
    pub(crate) elements: &'static [Element],
}

/// One word of a phrase.
pub(crate) struct Element {
    pub(crate) want: Want,
    pub(crate) optional: bool,
}

pub(crate) enum Want {
    Word(u64),
    Stem(u64),
    Class(u128),
    Any,
}

pub(crate) const VERB: u128 = VERB_BASE | VERB_S | VERB_PAST | VERB_ING;

/// What makes a word in capitals an ordinary one and no acronym.
pub(crate) const ORDINARY: u128 =
    FUNCTION | VERB | PREPOSITION | PRONOUN | ACRONYM | CALENDAR | NUMERAL | CONNECTIVE | UNIT;

/// What is known about the word with this hash.
pub(crate) fn look_up(hash: u64) -> Option<&'static Entry> {
    let mut place = hash as usize % ENTRIES.len();
    loop {
        let entry = ENTRIES.get(place).filter(|entry| entry.hash != 0)?;
        if entry.hash == hash {
            return Some(entry);
        }
        place = (place + 1) % ENTRIES.len();
    }
}

impl Entry {
    /// The phrases that can start with the word.
    pub(crate) fn phrases(&self) -> impl Iterator<Item = &'static Phrase> {
        let (first, count) = (usize::from(self.starts.0), usize::from(self.starts.1));
        let numbers = STARTS.get(first..first + count).unwrap_or_default();
        numbers
            .iter()
            .filter_map(|number| PHRASES.get(usize::from(*number)))
    }
}

/// The stem of a lower-case word as a hash; `room` is scratch space.
pub(crate) fn stem_of(word: &str, room: &mut String) -> u64 {
    room.clear();
    ken_text::push_stem(word, room);
    hash(room.as_bytes())
}
