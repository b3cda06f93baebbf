//! How the lexicon is made: by the compiler, from the lists and the rubric.

mod places;

use super::*;
use crate::part::Part;
use crate::rubric::FEATURES;
use crate::word::{LONGEST, stem};

pub(super) const SLOTS: usize = 64 * 1024;
const MOST_IN_BUCKET: usize = 16;
/// Room for the words; the build fails when they do not fit.
pub(super) const ENTRIES: usize = 10 * 1024;
pub(super) const PHRASES: usize = count_phrases();
pub(super) const ELEMENTS: usize = count_elements();

pub(super) const fn equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut index = 0;
    while index < a.len() {
        if a[index] != b[index] {
            return false;
        }
        index += 1;
    }
    true
}

/// A form of a verb.
type Form = Part<LONGEST>;

/// Walks the blank-separated words of a list.
pub(super) struct Words<'a> {
    bytes: &'a [u8],
    start: usize,
    end: usize,
}

impl<'a> Words<'a> {
    pub(super) const fn of(text: &'a str) -> Words<'a> {
        Words {
            bytes: text.as_bytes(),
            start: 0,
            end: 0,
        }
    }

    pub(super) const fn next(&mut self) -> bool {
        self.start = self.end;
        while self.start < self.bytes.len() && self.bytes[self.start] == b' ' {
            self.start += 1;
        }
        self.end = self.start;
        while self.end < self.bytes.len() && self.bytes[self.end] != b' ' {
            self.end += 1;
        }
        self.start < self.end
    }

    pub(super) const fn word(&self) -> &'a [u8] {
        self.bytes.split_at(self.end).0.split_at(self.start).1
    }
}

const fn count_words(text: &str) -> usize {
    let mut words = Words::of(text);
    let mut count = 0;
    while words.next() {
        count += 1;
    }
    count
}

const fn count_phrases() -> usize {
    let (mut feature, mut count) = (0, 0);
    while feature < FEATURES.len() {
        count += FEATURES[feature].phrases.len();
        feature += 1;
    }
    count
}

const fn count_elements() -> usize {
    let (mut feature, mut count) = (0, 0);
    while feature < FEATURES.len() {
        let mut phrase = 0;
        while phrase < FEATURES[feature].phrases.len() {
            count += count_words(FEATURES[feature].phrases[phrase]);
            phrase += 1;
        }
        feature += 1;
    }
    count
}

/// The lexicon as words come in.
struct Draft {
    /// Where in `entries` the word with a hash is; 0 where no word is.
    slots: [u16; SLOTS],
    entries: [Entry; ENTRIES],
    hashes: [u64; ENTRIES],
    /// Which are forms of irregular verbs: their stem is told, not cut off.
    irregular: [bool; ENTRIES],
    /// The last of them that is taken.
    last: usize,
    /// Phrases with one start are a chain: for each the next, plus one.
    next: [u16; PHRASES],
    lexicon: Lexicon,
}

/// In three steps: the compiler counts what each constant costs, and says so when one costs too much.
pub(super) const fn build() -> Lexicon {
    let mut draft = PHRASES_ADDED;
    draft.gather_chains();
    draft.link_stems();
    draft.mark_kinds();
    draft.find_places();
    draft.lexicon
}

#[allow(long_running_const_eval)]
const VERBS_ADDED: Draft = {
    let mut draft = Draft {
        slots: [0; SLOTS],
        entries: [UNKNOWN; ENTRIES],
        hashes: [0; ENTRIES],
        irregular: [false; ENTRIES],
        last: 0,
        next: [0; PHRASES],
        lexicon: EMPTY,
    };
    draft.add_grammar();
    draft.add_verbs();
    draft
};

#[allow(long_running_const_eval)]
const PHRASES_ADDED: Draft = {
    let mut draft = VERBS_ADDED;
    draft.add_values();
    draft.add_word_lists();
    draft.add_phrases();
    draft
};

const EMPTY: Lexicon = Lexicon {
    shifts: [0; BUCKETS],
    places: [UNKNOWN; PLACES],
    phrases: [Phrase {
        feature: 0,
        length: 0,
        first: 0,
        needs: Traces::NONE,
        goes_on: false,
        varies: false,
    }; PHRASES],
    elements: [Element {
        want: Want::Any,
        optional: false,
    }; ELEMENTS],
    by_list: [0; 32],
    starting_lists: 0,
    paired_lists: 0,
    stem_starts: [0; 16],
    pair_starts: [0; PAIR_BITS / 64],
};

const fn first_slot(hash: u64) -> usize {
    (hash >> 48) as usize % SLOTS
}

impl Draft {
    /// The number of the word with this hash; 0 when it is not there yet, with the slot that it would take.
    const fn find(&self, hash: u64) -> (usize, usize) {
        let mut slot = first_slot(hash);
        loop {
            let index = self.slots[slot] as usize;
            if index == 0 || self.hashes[index] == hash {
                return (index, slot);
            }
            slot = (slot + 1) % SLOTS;
        }
    }

    /// The number of the word with this hash, a new one if need be.
    const fn number(&mut self, hash: u64) -> usize {
        let (index, slot) = self.find(hash);
        if index > 0 {
            return index;
        }
        self.last += 1;
        self.slots[slot] = self.last as u16;
        self.hashes[self.last] = hash;
        self.entries[self.last].tag = tag(hash);
        self.last
    }

    const fn slot(&mut self, hash: u64) -> &mut Entry {
        let index = self.number(hash);
        &mut self.entries[index]
    }

    const fn add(&mut self, word: &[u8], flags: u64) -> &mut Entry {
        let index = self.number(hash(word));
        let entry = &mut self.entries[index];
        entry.flags |= flags;
        if !self.irregular[index] {
            entry.stem = stem(word);
        }
        entry
    }

    /// Lays the phrases of each chain side by side, in its order.
    const fn gather_chains(&mut self) {
        let chained = self.lexicon.phrases;
        let (mut index, mut count) = (0, 0);
        while index <= self.last {
            (self.entries[index].phrase, count) = self.gather(&chained, self.entries[index].phrase, count);
            index += 1;
        }
        let mut list = 0;
        while list < self.lexicon.by_list.len() {
            (self.lexicon.by_list[list], count) = self.gather(&chained, self.lexicon.by_list[list], count);
            list += 1;
        }
    }

    /// The chain from `head` goes behind the first `count` phrases: where it starts now, plus one, and the new count.
    const fn gather(&mut self, chained: &[Phrase; PHRASES], head: u16, count: usize) -> (u16, usize) {
        let (mut number, mut end) = (head, count);
        while number != 0 {
            self.lexicon.phrases[end] = chained[number as usize - 1];
            number = self.next[number as usize - 1];
            self.lexicon.phrases[end].goes_on = number != 0;
            end += 1;
        }
        (if head == 0 { 0 } else { count as u16 + 1 }, end)
    }

    /// Every form of a verb knows the phrases that start with any form of it.
    const fn link_stems(&mut self) {
        let mut index = 0;
        while index <= self.last {
            let stem = self.entries[index].stem;
            if stem != 0 {
                self.entries[index].stem_phrase = self.entries[self.find(!stem).0].phrase;
            }
            index += 1;
        }
    }

    /// Marks the words that a phrase can start with and those of some kinds, so that all others are passed by.
    const fn mark_kinds(&mut self) {
        let mut index = 0;
        while index <= self.last {
            let entry = &mut self.entries[index];
            if entry.phrase | entry.stem_phrase != 0 || entry.flags & self.lexicon.starting_lists != 0 {
                entry.traits |= STARTS;
            }
            if entry.flags & (self.lexicon.paired_lists | PAIRED) != 0 {
                entry.traits |= PAIRS;
            }
            if entry.flags & NUMERAL != 0 {
                entry.traits |= EXACT;
            }
            if entry.flags & FUNCTION != 0 {
                entry.traits &= !CONTENT;
            }
            index += 1;
        }
    }

    const fn add_traits(&mut self, text: &str, traits: u32) {
        let mut words = Words::of(text);
        while words.next() {
            self.add(words.word(), 0).traits |= traits;
        }
    }

    const fn add_list(&mut self, text: &str, flags: u64) {
        let mut words = Words::of(text);
        while words.next() {
            self.add(words.word(), flags);
        }
    }

    const fn add_grammar(&mut self) {
        self.add_list(lists::FUNCTION, FUNCTION);
        self.add_list(lists::AUXILIARY, AUXILIARY);
        self.add_list(lists::BE, BE);
        self.add_list(lists::DETERMINER, DETERMINER);
        self.add_list(lists::PREPOSITION, PREPOSITION);
        self.add_list(lists::PRONOUN, PRONOUN);
        self.add_list(lists::POINTER, POINTER);
        self.add_list(lists::SUBORDINATOR, SUBORDINATOR);
        self.add_list(lists::OPENER, OPENER);
        self.add_list(lists::CONJUNCTION, CONJUNCTION);
        self.add_list(lists::CONNECTIVE, CONNECTIVE);
        self.add_list(lists::NEGATION, NEGATION);
        self.add_list(lists::ARTICLE, ARTICLE);
        self.add_list(lists::UNIT, UNIT);
        self.add_list(lists::DIMENSION, DIMENSION);
        self.add_list(lists::CALENDAR, CALENDAR);
        self.add_list(lists::QUALIFIER, QUALIFIER);
        self.add_list(lists::ABBREVIATION, ABBREVIATION);
        self.add_list(lists::ACRONYM, ACRONYM);
        self.add_list(lists::OBLIGATION, OBLIGATION);
        self.add_list(lists::PARTS, PARTS);
        self.add_list(lists::POLITE, POLITE);
        self.add_traits("the", THE);
        self.add_traits("because", BECAUSE);
        self.add_traits("or", OR);
        self.add_traits(lists::CONDITION, CONDITION);
        self.add_traits(lists::HAS_TO, HAS_TO);
        self.add_traits(lists::TIMELESS, TIMELESS);
        self.add_traits(lists::MONTH, MONTH);
        self.add_traits("i", SELF);
        self.add_traits("one", ONE);
        self.add_traits("for", FOR);
        self.add_traits(lists::LINK, LINK);
        self.add_traits(lists::BOUND, BOUND);
        self.add_traits(lists::MODAL, MODAL);
    }

    const fn add_verbs(&mut self) {
        let mut words = Words::of(lists::REGULAR);
        while words.next() {
            self.add_regular(words.word());
        }
        self.add_irregular(lists::IRREGULAR_BASE, VERB_BASE);
        self.add_irregular(lists::IRREGULAR_S, VERB_S);
        self.add_irregular(lists::IRREGULAR_PAST, VERB_PAST);
        self.add_irregular(lists::IRREGULAR_PARTICIPLE, VERB_PAST);
        let mut words = Words::of(lists::IRREGULAR_BASE);
        while words.next() {
            self.add_forms(words.word(), false, VERB_ING);
        }
    }

    /// The rows of the four lists are the same verbs in the same order, so that all forms of one share a number.
    const fn add_irregular(&mut self, text: &str, flags: u64) {
        let mut words = Words::of(text);
        let mut number = 0;
        while words.next() {
            number += 1;
            let index = self.number(hash(words.word()));
            self.irregular[index] = true;
            self.entries[index].flags |= flags;
            self.entries[index].stem = irregular_stem(number);
        }
    }

    const fn add_regular(&mut self, word: &[u8]) {
        let (base, doubles) = match word {
            [base @ .., b'+'] => (base, true),
            base => (base, false),
        };
        self.add(base, VERB_BASE);
        self.add_forms(base, doubles, VERB_S | VERB_PAST | VERB_ING);
    }

    const fn add_forms(&mut self, base: &[u8], doubles: bool, forms: u64) {
        let mut form = Form::new().with(base);
        let last = base[base.len() - 1];
        let consonant_y = last == b'y' && !matches!(base[base.len() - 2], b'a' | b'e' | b'o' | b'u');
        if forms & VERB_S != 0 {
            let hissing =
                matches!(last, b's' | b'x' | b'z' | b'o') || matches!(base, [.., b'c' | b's', b'h']);
            self.add_form(
                if consonant_y {
                    form.without(1).with(b"ies")
                } else {
                    form.with(if hissing { b"es" } else { b"s" })
                },
                VERB_S,
            );
        }
        if doubles {
            form = form.with(&[last]);
        }
        if forms & VERB_PAST != 0 {
            let past = if consonant_y {
                form.without(1).with(b"ied")
            } else {
                form.with(if last == b'e' { b"d" } else { b"ed" })
            };
            self.add_form(past, VERB_PAST);
        }
        let silent_e = last == b'e' && !matches!(base, [.., b'e' | b'o' | b'y', b'e']);
        self.add_form(form.without(if silent_e { 1 } else { 0 }).with(b"ing"), VERB_ING);
    }

    const fn add_form(&mut self, form: Form, flags: u64) {
        self.add(form.bytes.split_at(form.length).0, flags);
    }

    const fn add_values(&mut self) {
        self.add_numbered(lists::NUMERAL, NUMERAL);
        self.add_numbered(lists::ORDINAL, ORDINAL);
        let mut pair = 0;
        while pair < lists::OPPOSITE.len() {
            let (left, right) = lists::OPPOSITE[pair];
            let known = self.add(right.as_bytes(), 0);
            let number = if known.flags & OPPOSITE != 0 {
                known.value as usize
            } else {
                pair
            };
            self.add_opposite(left, OPPOSITE, number);
            let number = self.add(left.as_bytes(), 0).value;
            self.add_opposite(right, OPPOSITE | FLIPPED, number as usize);
            pair += 1;
        }
    }

    /// The first pair that a word stands in numbers it, and the words of later pairs that it is in.
    const fn add_opposite(&mut self, word: &str, flags: u64, number: usize) {
        let entry = self.add(word.as_bytes(), 0);
        if entry.flags & OPPOSITE == 0 {
            entry.flags |= flags;
            entry.value = number as u16;
        }
    }

    const fn add_numbered(&mut self, rows: &[(&str, u16)], flags: u64) {
        let mut row = 0;
        while row < rows.len() {
            let entry = self.add(rows[row].0.as_bytes(), flags);
            entry.value = rows[row].1;
            row += 1;
        }
    }

    const fn add_word_lists(&mut self) {
        let mut index = 0;
        while index < WORD_LISTS.len() {
            self.add_list(WORD_LISTS[index].words, 1 << index);
            index += 1;
        }
    }

    const fn add_phrases(&mut self) {
        let (mut feature, mut number, mut element) = (0, 0, 0);
        while feature < FEATURES.len() {
            let mut row = 0;
            while row < FEATURES[feature].phrases.len() {
                let (first, mut varies) = (element, false);
                let mut words = Words::of(FEATURES[feature].phrases[row]);
                while words.next() {
                    self.lexicon.elements[element] = parse_element(words.word());
                    self.add_word(words.word(), self.lexicon.elements[element], element - first);
                    varies |= self.lexicon.elements[element].optional;
                    element += 1;
                }
                let length = (element - first) as u8;
                self.lexicon.phrases[number] = Phrase {
                    feature: feature as u8,
                    length,
                    first: first as u16,
                    needs: self.needs(first, element),
                    goes_on: false,
                    varies,
                };
                number += 1;
                self.chain(number as u16);
                row += 1;
            }
            feature += 1;
        }
    }

    /// The words that phrases are found by: the first of each, and the second.
    const fn add_word(&mut self, word: &[u8], element: Element, place: usize) {
        if !matches!(element.want, Want::Word(_)) || element.optional || place > 1 {
            return;
        }
        let entry = self.add(word, 0);
        if place == 1 {
            entry.traits |= FOLLOWS;
        }
    }

    /// Puts the phrase in front of those with the same start: both its first words where they are fixed, else the first.
    const fn chain(&mut self, number: u16) {
        let phrase = self.lexicon.phrases[number as usize - 1];
        let second =
            match self.lexicon.elements[phrase.first as usize + if phrase.length > 1 { 1 } else { 0 }] {
                Element {
                    want: Want::Word(word),
                    optional: false,
                } if phrase.length > 1 => Some(word),
                _ => None,
            };
        match (self.lexicon.elements[phrase.first as usize].want, second) {
            (Want::Word(word), Some(second)) => {
                self.slot(word).flags |= PAIRED;
                self.chain_pair(number, pair(word, second));
            }
            (Want::Word(word), None) => self.chain_word(number, word),
            (Want::Stem(stem), _) => {
                let (word, bit) = stem_bit(stem);
                self.lexicon.stem_starts[word] |= bit;
                self.chain_word(number, !stem)
            }
            (Want::List(bit), Some(second)) => {
                self.lexicon.paired_lists |= bit;
                self.chain_pair(number, pair(bit, second));
            }
            (Want::List(bit), None) => {
                let list = bit.trailing_zeros() as usize;
                self.next[number as usize - 1] = self.lexicon.by_list[list];
                self.lexicon.by_list[list] = number;
                self.lexicon.starting_lists |= bit;
            }
            (Want::Any, _) => {}
        }
    }

    /// The traces of the elements that may not be left out.
    const fn needs(&self, first: usize, end: usize) -> Traces {
        let (mut needs, mut index) = (Traces::NONE, first);
        while index < end {
            let element = self.lexicon.elements[index];
            match element.want {
                _ if element.optional => {}
                Want::Word(hash) => needs.words |= trace(hash),
                Want::List(bit) => needs.flags |= bit,
                Want::Stem(_) | Want::Any => {}
            }
            index += 1;
        }
        needs
    }

    const fn chain_pair(&mut self, number: u16, key: u64) {
        let (word, bit) = pair_bit(key);
        self.lexicon.pair_starts[word] |= bit;
        self.chain_word(number, key);
    }

    const fn chain_word(&mut self, number: u16, hash: u64) {
        let entry = self.slot(hash);
        let next = entry.phrase;
        entry.phrase = number;
        self.next[number as usize - 1] = next;
    }
}

const fn parse_element(word: &[u8]) -> Element {
    let (word, optional) = match word {
        [word @ .., b'?'] => (word, true),
        word => (word, false),
    };
    let want = match word {
        [b'_'] => Want::Any,
        [b'{', name @ .., b'}'] => match std::str::from_utf8(name) {
            Ok(name) => Want::List(list(name)),
            Err(_) => Want::Any,
        },
        [word @ .., b'~'] => Want::Stem(stem(word)),
        word => Want::Word(hash(word)),
    };
    Element { want, optional }
}
