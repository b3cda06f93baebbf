//! Words and phrases: the tables that the build script generates from `share/laws`.

pub(crate) use crate::hash::{NO_LETTERS, extend, hash, join};
use crate::hash::{bit_of, tag_of};

include!(concat!(env!("OUT_DIR"), "/lexicon.rs"));

/// The entry of a word, which fills one line of the processor's cache. Its classes are bits; each has a constant named like the
/// class in `classes.txt`.
#[repr(align(64))]
pub(crate) struct Entry {
    hash: u64,
    pub(crate) stem: u64,
    pub(crate) classes: u128,
    /// The value of a numeral or an ordinal, or the number of a pair of opposites.
    pub(crate) value: u16,
    /// The phrases that can start with this word, as a range of [`STARTS`]: its first index and its length.
    starts: (u16, u16),
}

/// An empty slot of the table; no word has the hash 0.
const EMPTY: Entry = Entry { hash: 0, stem: 0, classes: 0, value: 0, starts: (0, 0) };

/// A phrase that can start with a word.
struct Start {
    /// The bits ([`bit_of`]) of the words that can be second, and those of the words that must be among the next [`NEAR`]. They
    /// exclude most phrases without a comparison.
    second: u64,
    needs: u64,
    phrase: u16,
}

/// A sequence of words that shows a feature.
pub(crate) struct Phrase {
    pub(crate) feature: usize,
    pub(crate) elements: &'static [Element],
}

/// One word of a phrase.
pub(crate) struct Element {
    pub(crate) want: Want,
    pub(crate) optional: bool,
}

impl Element {
    /// Whether it matches any one word, or may be absent.
    pub(crate) fn is_any_or_none(&self) -> bool {
        self.optional && matches!(self.want, Want::Any)
    }
}

pub(crate) enum Want {
    Word(u64),
    Stem(u64),
    Class(u128),
    Any,
}

pub(crate) const VERB: u128 = VERB_BASE | VERB_S | VERB_PAST | VERB_ING;

/// Classes that make a word in capitals an ordinary word and not an acronym.
pub(crate) const ORDINARY: u128 =
    FUNCTION | VERB | PREPOSITION | PRONOUN | ACRONYM | CALENDAR | NUMERAL | CONNECTIVE | UNIT;

/// The entry of the word with this hash. The tags, one byte of each hash, are compared first. All of them fit into the
/// processor's first-level cache, and for most words that are in no list this comparison is enough.
pub(crate) fn look_up(hash: u64) -> Option<&'static Entry> {
    let tag = tag_of(hash);
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
    /// The phrases that can start with this word, each with its number. `next` yields the hashes of the words that follow it.
    pub(crate) fn phrases(&self, next: impl Iterator<Item = u64>) -> impl Iterator<Item = (u16, &'static Phrase)> {
        let (first, count) = (usize::from(self.starts.0), usize::from(self.starts.1));
        let starts = STARTS.get(first..first + count).unwrap_or_default();
        let mut bits = next.take(if count == 0 { 0 } else { NEAR }).map(bit_of);
        let second = bits.next();
        let near = bits.fold(second.unwrap_or_default(), |set, bit| set | bit);
        let second = second.unwrap_or(u64::MAX);
        let starts = starts.iter().filter(move |start| start.needs & !near == 0 && start.second & second != 0);
        starts.filter_map(|start| Some((start.phrase, PHRASES.get(usize::from(start.phrase))?)))
    }
}

/// The hash of a lower-case word's stem; `room` is scratch space.
pub(crate) fn stem_of(word: &str, room: &mut String) -> u64 {
    room.clear();
    ken_text::push_stem(word, room);
    hash(room.as_bytes())
}
