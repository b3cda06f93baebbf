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
    /// The set of the second words in `closed`, one bit each (see [`bit_of`]). Testing it excludes most phrases without a search.
    seconds: u64,
    /// The phrases whose possible second words are all known, as a range of [`STARTS`]: its first index and its length. The range
    /// is sorted by the second word.
    closed: (u16, u16),
    /// The other phrases that can start with this word, as a range of [`STARTS`] too.
    open: (u16, u16),
}

/// An empty slot of the table; no word has the hash 0.
const EMPTY: Entry = Entry { hash: 0, stem: 0, classes: 0, value: 0, seconds: 0, closed: (0, 0), open: (0, 0) };

/// A phrase that can start with a word, and one of its possible second words. There is one `Start` for each of them.
struct Start {
    /// The hash of the second word. In an open phrase, the hash of a required word among the next [`NEAR`] words, or 0.
    word: u64,
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
    /// Whether a phrase may start with this word and the word whose hash is `second`. This excludes most pairs of words.
    pub(crate) fn starts_with(&self, second: u64) -> bool {
        self.seconds & bit_of(second) != 0 || self.open.1 > 0
    }

    /// The phrases that can start with this word, each with its number, in no particular order. `next` yields the hashes of the
    /// words that follow it; `second` is the first of them.
    pub(crate) fn phrases(
        &self,
        second: u64,
        next: impl Iterator<Item = u64>,
    ) -> impl Iterator<Item = (u16, &'static Phrase)> {
        let closed = if self.seconds & bit_of(second) == 0 { &[] } else { starts(self.closed) };
        let first = closed.partition_point(|start| start.word < second);
        let closed = closed.iter().skip(first).take_while(move |start| start.word == second);
        let open = starts(self.open);
        let near = next.take(if open.is_empty() { 0 } else { NEAR }).fold(0, |set, word| set | bit_of(word));
        let open = open.iter().filter(move |start| start.word == 0 || near & bit_of(start.word) != 0);
        let numbers = closed.chain(open).map(|start| start.phrase);
        numbers.filter_map(|number| Some((number, PHRASES.get(usize::from(number))?)))
    }
}

fn starts((first, count): (u16, u16)) -> &'static [Start] {
    let first = usize::from(first);
    STARTS.get(first..first + usize::from(count)).unwrap_or_default()
}

/// The hash of a lower-case word's stem; `room` is scratch space.
pub(crate) fn stem_of(word: &str, room: &mut String) -> u64 {
    room.clear();
    ken_text::push_stem(word, room);
    hash(room.as_bytes())
}
