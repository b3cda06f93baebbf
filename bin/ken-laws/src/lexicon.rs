//! What is known about words and phrases: the tables that the build script makes of `share/laws`.

pub(crate) use crate::hash::{NO_LETTERS, extend, hash, join};

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

/// A phrase that can start with a word.
struct Start {
    /// What the phrase wants second, unless it may end or go on differently there. Few phrases pass this.
    second: Option<Want>,
    phrase: u16,
}

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

/// What is known about the word with this hash. The tags, half of each hash, are looked at first: all of them fit into the
/// processor's cache, and most words that no list has need nothing else.
pub(crate) fn look_up(hash: u64) -> Option<&'static Entry> {
    let tag = ((hash >> 32) as u32).max(1);
    let mut place = hash as usize % TAGS.len();
    loop {
        let here = TAGS.get(place).filter(|tag| **tag != 0)?;
        if *here == tag
            && let Some(entry) = ENTRIES.get(place).filter(|entry| entry.hash == hash)
        {
            return Some(entry);
        }
        place = (place + 1) % TAGS.len();
    }
}

impl Entry {
    /// The phrases that can start with the word where `fits` says whether the next word is what they want.
    pub(crate) fn phrases(&self, fits: impl Fn(&Want) -> bool) -> impl Iterator<Item = &'static Phrase> {
        let (first, count) = (usize::from(self.starts.0), usize::from(self.starts.1));
        let starts = STARTS.get(first..first + count).unwrap_or_default();
        let starts = starts
            .iter()
            .filter(move |start| start.second.as_ref().is_none_or(&fits));
        starts.filter_map(|start| PHRASES.get(usize::from(start.phrase)))
    }
}

/// The stem of a lower-case word as a hash; `room` is scratch space.
pub(crate) fn stem_of(word: &str, room: &mut String) -> u64 {
    room.clear();
    ken_text::push_stem(word, room);
    hash(room.as_bytes())
}
