//! What is known about a word, in one table that is built when the program is compiled: starting costs nothing.

mod build;

use std::hint::select_unpredictable;

use crate::lists;
use crate::rubric::WORD_LISTS;
use crate::token::FIRST_TRAIT;
pub(crate) use crate::word::hash;
use crate::word::{finish, join};
use build::{ELEMENTS, PHRASES, Words, equal};

/// What the table says about a word. `flags` holds the bits below.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    tag: u32,
    /// The traits below.
    pub(crate) traits: u32,
    /// The value of a numeral or an ordinal, or the number of a pair of opposites.
    pub(crate) value: u16,
    /// The first phrase that starts with this word, plus one.
    pub(crate) phrase: u16,
    /// The first phrase that starts with any form of this word, plus one.
    pub(crate) stem_phrase: u16,
    pub(crate) flags: u64,
    /// The hash of the stem; 0 when it is not known here.
    pub(crate) stem: u64,
}

const UNKNOWN: Entry = Entry {
    tag: 0,
    traits: CONTENT,
    value: 0,
    phrase: 0,
    stem_phrase: 0,
    flags: 0,
    stem: 0,
};

/// Bits of the rubric's word lists are 0 to `WORD_LISTS.len() - 1`, in its order.
pub(crate) const fn list(name: &str) -> u64 {
    let mut index = 0;
    while index < WORD_LISTS.len() {
        if equal(WORD_LISTS[index].name.as_bytes(), name.as_bytes()) {
            return 1 << index;
        }
        index += 1;
    }
    0
}

pub(crate) const FUNCTION: u64 = 1 << 32;
pub(crate) const AUXILIARY: u64 = 1 << 33;
pub(crate) const BE: u64 = 1 << 34;
pub(crate) const VERB_BASE: u64 = 1 << 35;
pub(crate) const VERB_S: u64 = 1 << 36;
pub(crate) const VERB_PAST: u64 = 1 << 37;
pub(crate) const VERB_ING: u64 = 1 << 38;
pub(crate) const DETERMINER: u64 = 1 << 39;
pub(crate) const PREPOSITION: u64 = 1 << 40;
pub(crate) const PRONOUN: u64 = 1 << 41;
pub(crate) const POINTER: u64 = 1 << 42;
pub(crate) const SUBORDINATOR: u64 = 1 << 43;
pub(crate) const OPENER: u64 = 1 << 44;
pub(crate) const CONJUNCTION: u64 = 1 << 45;
pub(crate) const CONNECTIVE: u64 = 1 << 46;
pub(crate) const NEGATION: u64 = 1 << 47;
pub(crate) const ARTICLE: u64 = 1 << 48;
pub(crate) const UNIT: u64 = 1 << 49;
pub(crate) const DIMENSION: u64 = 1 << 50;
pub(crate) const CALENDAR: u64 = 1 << 51;
pub(crate) const QUALIFIER: u64 = 1 << 52;
pub(crate) const NUMERAL: u64 = 1 << 53;
pub(crate) const ORDINAL: u64 = 1 << 54;
pub(crate) const ABBREVIATION: u64 = 1 << 55;
pub(crate) const ACRONYM: u64 = 1 << 56;
pub(crate) const OPPOSITE: u64 = 1 << 57;
/// The second word of a pair of opposites.
pub(crate) const FLIPPED: u64 = 1 << 58;
pub(crate) const OBLIGATION: u64 = 1 << 59;

/// May part two clauses.
pub(crate) const PARTS: u64 = 1 << 61;

/// May stand before the verb of a command.
pub(crate) const POLITE: u64 = 1 << 62;

/// Starts a phrase whose second word is known: those are found by both words together.
pub(crate) const PAIRED: u64 = 1 << 60;

const fn nth_trait(index: u32) -> u32 {
    1u32.rotate_left(FIRST_TRAIT + index)
}

/// Starts a phrase by itself, as the second word of none.
pub(crate) const STARTS: u32 = nth_trait(0);
/// Starts a phrase together with a known second word.
pub(crate) const PAIRS: u32 = nth_trait(1);
/// The second word of such a phrase.
pub(crate) const FOLLOWS: u32 = nth_trait(2);
/// A number, in digits or as a word.
pub(crate) const EXACT: u32 = nth_trait(3);
/// A word of its own meaning, or a number: no function word.
pub(crate) const CONTENT: u32 = nth_trait(4);
pub(crate) const THE: u32 = nth_trait(5);
pub(crate) const BECAUSE: u32 = nth_trait(6);
pub(crate) const OR: u32 = nth_trait(7);
/// Makes what is said hold only in a case: if, unless, whether, would.
pub(crate) const CONDITION: u32 = nth_trait(8);
/// Obliges before "to": have, need.
pub(crate) const HAS_TO: u32 = nth_trait(9);
/// Says that there is no other time: always, never.
pub(crate) const TIMELESS: u32 = nth_trait(10);
/// May and March, which are other words in small letters.
pub(crate) const MONTH: u32 = nth_trait(11);
pub(crate) const SELF: u32 = nth_trait(12);
pub(crate) const ONE: u32 = nth_trait(13);
pub(crate) const FOR: u32 = nth_trait(14);
/// May stand between a quantity and its number.
pub(crate) const LINK: u32 = nth_trait(15);
/// Makes a number a bound.
pub(crate) const BOUND: u32 = nth_trait(16);
/// Says that something could be: would, can, may.
pub(crate) const MODAL: u32 = nth_trait(17);

pub(crate) const VERB: u64 = VERB_BASE | VERB_S | VERB_PAST | VERB_ING;
/// Flags that make a word an ordinary one, so that it is no acronym when it stands in capitals.
pub(crate) const ORDINARY: u64 =
    FUNCTION | VERB | PREPOSITION | PRONOUN | ACRONYM | CALENDAR | NUMERAL | CONNECTIVE | UNIT;

/// What words leave behind in a sentence: all their flags, and one of 64 bits for each word.
#[derive(Clone, Copy, Default)]
pub(crate) struct Traces {
    pub(crate) flags: u64,
    pub(crate) words: u64,
}

impl Traces {
    pub(crate) const NONE: Traces = Traces { flags: 0, words: 0 };

    pub(crate) fn add(&mut self, flags: u64, word: u64) {
        self.flags |= flags;
        self.words |= trace(word);
    }

    /// Whether all that left the others may be here; most often it is not.
    pub(crate) fn may_hold(&self, others: &Traces) -> bool {
        (others.flags & !self.flags) | (others.words & !self.words) == 0
    }
}

/// The bit of a word, or of a stem.
pub(crate) const fn trace(hash: u64) -> u64 {
    1 << (hash >> 58)
}

/// One word of a phrase.
#[derive(Clone, Copy)]
pub(crate) struct Element {
    pub(crate) want: Want,
    pub(crate) optional: bool,
}

#[derive(Clone, Copy)]
pub(crate) enum Want {
    Word(u64),
    Stem(u64),
    List(u64),
    Any,
}

#[derive(Clone, Copy)]
pub(crate) struct Phrase {
    pub(crate) feature: u8,
    pub(crate) length: u8,
    pub(crate) first: u16,
    /// Of the words that it cannot be without.
    pub(crate) needs: Traces,
    /// Whether the next phrase has the same start.
    pub(crate) goes_on: bool,
    /// Whether some of its words may be left out.
    pub(crate) varies: bool,
}

pub(crate) struct Lexicon {
    /// For each bucket of words how their places are computed, so that no two words of the lexicon share one.
    shifts: [u8; BUCKETS],
    places: [Entry; PLACES],
    pub(crate) phrases: [Phrase; PHRASES],
    pub(crate) elements: [Element; ELEMENTS],
    /// The first phrase that starts with a word of the list, plus one.
    pub(crate) by_list: [u16; 32],
    /// The lists that start a phrase, alone or together with a known second word.
    pub(crate) starting_lists: u64,
    pub(crate) paired_lists: u64,
    /// For the stems that start a phrase, the bits of [`stem_bit`].
    stem_starts: [u64; 16],
    /// The same for the pairs of words that start one.
    pair_starts: [u64; PAIR_BITS / 64],
}

#[allow(long_running_const_eval)] // some thousand words, once per build
pub(crate) static LEXICON: Lexicon = build::build();

impl Lexicon {
    /// What is known about the word with this hash.
    pub(crate) fn look_up(&self, hash: u64) -> &Entry {
        let entry = &self.places[place(hash, self.shifts[bucket(hash)])];
        select_unpredictable(entry.tag == tag(hash), entry, &UNKNOWN)
    }

    /// The first phrase that starts with any word of a stem, plus one. For most stems there is none, which one bit tells.
    pub(crate) fn phrase_of_stem(&self, stem: u64) -> u16 {
        let (word, bit) = stem_bit(stem);
        if self.stem_starts[word] & bit == 0 {
            return 0;
        }
        self.look_up(!stem).phrase
    }
}

/// Enough for the words to find places quickly when the program is compiled: twice as many as there are.
const PLACES: usize = 16 * 1024;
const BUCKETS: usize = 4 * 1024;
/// Many more than there are pairs.
const PAIR_BITS: usize = 32 * 1024;

impl Lexicon {
    /// The first phrase that starts with these two, plus one; a list stands as its bit.
    pub(crate) fn phrase_of_pair(&self, first: u64, second: u64) -> u16 {
        let key = pair(first, second);
        let (word, bit) = pair_bit(key);
        if self.pair_starts[word] & bit == 0 {
            return 0;
        }
        self.look_up(key).phrase
    }
}

const fn pair_bit(key: u64) -> (usize, u64) {
    let index = key as usize % PAIR_BITS;
    (index / 64, 1 << (index % 64))
}

const fn stem_bit(stem: u64) -> (usize, u64) {
    ((stem >> 60) as usize, 1 << (stem >> 54 & 63))
}

const fn bucket(hash: u64) -> usize {
    (hash >> 48) as usize % BUCKETS
}

const fn place(hash: u64, shift: u8) -> usize {
    let spread = (hash as u32 ^ (hash >> 24) as u32).wrapping_mul(2 * shift as u32 + 1);
    (spread >> 16) as usize % PLACES
}

/// Never 0, which marks what is unknown.
const fn tag(hash: u64) -> u32 {
    hash as u32 | 1
}

/// The key of phrases that start with these two; a list stands as its bit.
const fn pair(first: u64, second: u64) -> u64 {
    join(first, second)
}

/// The stem that all forms of an irregular verb share.
pub(crate) const fn irregular_stem(number: u16) -> u64 {
    finish(!(number as u64))
}

/// The stem of an irregular verb that the lists hold.
pub(crate) const fn irregular(base: &str) -> u64 {
    let mut words = Words::of(lists::IRREGULAR_BASE);
    let mut number = 0;
    while words.next() {
        number += 1;
        if equal(words.word(), base.as_bytes()) {
            break;
        }
    }
    irregular_stem(number)
}
