//! What is known about a word, in one table that is built when the program is compiled: starting costs nothing.

use crate::lists;
use crate::rubric::{FEATURES, WORD_LISTS};

/// What the table says about a word. `flags` holds the bits below.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    tag: u32,
    /// The value of a numeral or an ordinal, or the number of a pair of opposites.
    pub(crate) value: u16,
    /// The number of an irregular verb.
    pub(crate) verb: u16,
    /// The first phrase that starts with this word, plus one.
    pub(crate) phrase: u16,
    /// The first phrase that starts with any form of this word, plus one.
    pub(crate) stem_phrase: u16,
    pub(crate) flags: u64,
    /// The hash of the stem; 0 when it is not known here.
    pub(crate) stem: u64,
}

pub(crate) const UNKNOWN: Entry = Entry {
    tag: 0,
    value: 0,
    verb: 0,
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

/// Starts a phrase whose second word is known: those are found by both words together.
pub(crate) const PAIRED: u64 = 1 << 60;

pub(crate) const VERB: u64 = VERB_BASE | VERB_S | VERB_PAST | VERB_ING;
/// Flags that make a word an ordinary one, so that it is no acronym when it stands in capitals.
pub(crate) const ORDINARY: u64 =
    FUNCTION | VERB | PREPOSITION | PRONOUN | ACRONYM | CALENDAR | NUMERAL | CONNECTIVE | UNIT;

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
    /// The next phrase with the same start, plus one.
    pub(crate) next: u16,
}

const SLOTS: usize = 16 * 1024;
const PHRASES: usize = count_phrases();
const ELEMENTS: usize = count_elements();

pub(crate) struct Lexicon {
    table: [Entry; SLOTS],
    pub(crate) phrases: [Phrase; PHRASES],
    pub(crate) elements: [Element; ELEMENTS],
    /// The first phrase that starts with a word of the list, plus one.
    pub(crate) by_list: [u16; 32],
    /// The lists that start a phrase, alone or together with a known second word.
    pub(crate) starting_lists: u64,
    pub(crate) paired_lists: u64,
}

#[allow(long_running_const_eval)] // some thousand words, once per build
pub(crate) static LEXICON: Lexicon = build();

impl Lexicon {
    /// What is known about the word with this hash.
    pub(crate) const fn look_up(&self, hash: u64) -> Entry {
        let mut slot = first_slot(hash);
        loop {
            let entry = self.table[slot];
            if entry.tag == tag(hash) || entry.tag == 0 {
                return entry;
            }
            slot = (slot + 1) % SLOTS;
        }
    }
}

const fn first_slot(hash: u64) -> usize {
    (hash >> 50) as usize % SLOTS
}

/// Never 0, which marks a free slot.
const fn tag(hash: u64) -> u32 {
    hash as u32 | 1
}

pub(crate) const SEED: u64 = 0xcbf2_9ce4_8422_2325;

/// One step of FNV-1a (Fowler, Noll, Vo), 64 bits.
pub(crate) const fn step(hash: u64, byte: u8) -> u64 {
    (hash ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3)
}

/// Spreads what [`step`] gathered over all bits (the finaliser of splitmix64).
pub(crate) const fn finish(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// Two hashes as one, where order counts.
pub(crate) const fn join(first: u64, second: u64) -> u64 {
    finish(first.rotate_left(23) ^ second)
}

/// The bit that tells a capital ASCII letter from a small one, in eight bytes. Digits and the apostrophe have it anyway.
const SMALL: u64 = 0x2020_2020_2020_2020;
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The hash of a word, in capitals or small ASCII letters alike; other letters must be small. Eight bytes at a time.
pub(crate) const fn hash(word: &[u8]) -> u64 {
    let mut hash = SEED ^ (word.len() as u64).wrapping_mul(ODD);
    let mut rest = word;
    while let Some((eight, more)) = rest.split_first_chunk::<8>() {
        hash = (hash ^ (u64::from_le_bytes(*eight) | SMALL))
            .wrapping_mul(ODD)
            .rotate_left(27);
        rest = more;
    }
    let mut last = 0;
    while let Some((byte, more)) = rest.split_first() {
        last = last << 8 | *byte as u64;
        rest = more;
    }
    finish((hash ^ (last | SMALL)).wrapping_mul(ODD))
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

/// Words longer than this are their own stem.
pub(crate) const LONGEST: usize = 32;

/// The hash of the word without its inflection: plural, third person, past, -ing, a final e. Light, after Porter (1980), step 1.
pub(crate) const fn stem(word: &[u8]) -> u64 {
    if word.len() > LONGEST {
        return hash(word);
    }
    let mut stem = Stem {
        bytes: [0; LONGEST],
        length: word.len(),
    };
    let mut index = 0;
    while index < word.len() {
        stem.bytes[index] = word[index].to_ascii_lowercase();
        index += 1;
    }
    let stem = stem.inflected_off();
    hash(stem.bytes.split_at(stem.length).0)
}

#[derive(Clone, Copy)]
struct Stem {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Stem {
    const fn inflected_off(self) -> Stem {
        self.without_possessive().without_s().without_ending().without_e()
    }

    const fn ends(&self, with: &[u8]) -> bool {
        if self.length < with.len() {
            return false;
        }
        let mut index = 0;
        while index < with.len() {
            if self.bytes[self.length - with.len() + index] != with[index] {
                return false;
            }
            index += 1;
        }
        true
    }

    const fn cut(self, count: usize) -> Stem {
        Stem {
            length: self.length.saturating_sub(count),
            ..self
        }
    }

    /// Replaces the last `count` letters by a y.
    const fn cut_to_y(self, count: usize) -> Stem {
        let mut stem = self.cut(count);
        stem.bytes[stem.length] = b'y';
        stem.length += 1;
        stem
    }

    const fn without_possessive(self) -> Stem {
        if self.ends(b"'s") {
            self.cut(2)
        } else if self.ends(b"'") {
            self.cut(1)
        } else {
            self
        }
    }

    const fn without_s(self) -> Stem {
        if self.length > 4 && self.ends(b"ies") {
            return self.cut_to_y(3);
        }
        if self.ends(b"sses") || self.ends(b"xes") || self.ends(b"ches") || self.ends(b"shes") {
            return self.cut(2);
        }
        let plural = self.length > 3 && self.ends(b"s");
        if plural && !(self.ends(b"ss") || self.ends(b"us") || self.ends(b"is")) {
            self.cut(1)
        } else {
            self
        }
    }

    const fn without_ending(self) -> Stem {
        if self.length > 4 && self.ends(b"ied") {
            return self.cut_to_y(3);
        }
        let cut = if self.ends(b"ing") {
            3
        } else if self.ends(b"ed") {
            2
        } else {
            return self;
        };
        let rest = self.cut(cut);
        if rest.length < 3 || !rest.has_vowel() {
            self
        } else {
            rest.undoubled()
        }
    }

    const fn has_vowel(&self) -> bool {
        let mut index = 0;
        while index < self.length {
            if matches!(self.bytes[index], b'a' | b'e' | b'i' | b'o' | b'u' | b'y') {
                return true;
            }
            index += 1;
        }
        false
    }

    const fn undoubled(self) -> Stem {
        let (last, before) = (self.bytes[self.length - 1], self.bytes[self.length - 2]);
        if last == before && !matches!(last, b'l' | b's' | b'z' | b'e' | b'o') {
            self.cut(1)
        } else {
            self
        }
    }

    const fn without_e(self) -> Stem {
        if self.length > 3 && self.ends(b"e") {
            self.cut(1)
        } else {
            self
        }
    }
}

const fn equal(a: &[u8], b: &[u8]) -> bool {
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

/// Walks the blank-separated words of a list.
struct Words<'a> {
    bytes: &'a [u8],
    start: usize,
    end: usize,
}

impl<'a> Words<'a> {
    const fn of(text: &'a str) -> Words<'a> {
        Words {
            bytes: text.as_bytes(),
            start: 0,
            end: 0,
        }
    }

    const fn next(&mut self) -> bool {
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

    const fn word(&self) -> &'a [u8] {
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

const fn build() -> Lexicon {
    let no_element = Element {
        want: Want::Any,
        optional: false,
    };
    let no_phrase = Phrase {
        feature: 0,
        length: 0,
        first: 0,
        next: 0,
    };
    let mut lexicon = Lexicon {
        table: [UNKNOWN; SLOTS],
        phrases: [no_phrase; PHRASES],
        elements: [no_element; ELEMENTS],
        by_list: [0; 32],
        starting_lists: 0,
        paired_lists: 0,
    };
    lexicon.add_grammar();
    lexicon.add_verbs();
    lexicon.add_values();
    lexicon.add_word_lists();
    lexicon.add_phrases();
    lexicon.link_stems();
    lexicon
}

impl Lexicon {
    const fn slot(&mut self, hash: u64) -> &mut Entry {
        let mut slot = first_slot(hash);
        while self.table[slot].tag != 0 && self.table[slot].tag != tag(hash) {
            slot = (slot + 1) % SLOTS;
        }
        self.table[slot].tag = tag(hash);
        &mut self.table[slot]
    }

    const fn add(&mut self, word: &[u8], flags: u64) {
        let entry = self.slot(hash(word));
        entry.flags |= flags;
        if entry.verb == 0 {
            entry.stem = stem(word);
        }
    }

    /// Every form of a verb knows the phrases that start with any form of it.
    const fn link_stems(&mut self) {
        let mut slot = 0;
        while slot < SLOTS {
            let stem = self.table[slot].stem;
            if stem != 0 {
                self.table[slot].stem_phrase = self.look_up(!stem).phrase;
            }
            slot += 1;
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
            let entry = self.slot(hash(words.word()));
            entry.flags |= flags;
            entry.verb = number;
            entry.stem = irregular_stem(number);
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
        let mut form = Form::of(base);
        let last = base[base.len() - 1];
        let consonant_y = last == b'y' && !matches!(base[base.len() - 2], b'a' | b'e' | b'o' | b'u');
        if forms & VERB_S != 0 {
            let hissing =
                matches!(last, b's' | b'x' | b'z' | b'o') || matches!(base, [.., b'c' | b's', b'h']);
            self.add_form(
                if consonant_y {
                    form.with(1, b"ies")
                } else {
                    form.with(0, if hissing { b"es" } else { b"s" })
                },
                VERB_S,
            );
        }
        let double = if doubles { 1 } else { 0 };
        form.double(double);
        if forms & VERB_PAST != 0 {
            let past = if consonant_y {
                form.with(1, b"ied")
            } else {
                form.with(0, if last == b'e' { b"d" } else { b"ed" })
            };
            self.add_form(past, VERB_PAST);
        }
        let silent_e = last == b'e' && !matches!(base, [.., b'e' | b'o' | b'y', b'e']);
        self.add_form(form.with(if silent_e { 1 } else { 0 }, b"ing"), VERB_ING);
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
            self.add_opposite(left, OPPOSITE, pair);
            let number = self.slot(hash(left.as_bytes())).value;
            self.add_opposite(right, OPPOSITE | FLIPPED, number as usize);
            pair += 1;
        }
    }

    /// The first pair that a word stands in numbers it.
    const fn add_opposite(&mut self, word: &str, flags: u64, number: usize) {
        let entry = self.slot(hash(word.as_bytes()));
        if entry.flags & OPPOSITE == 0 {
            entry.flags |= flags;
            entry.value = number as u16;
        }
    }

    const fn add_numbered(&mut self, rows: &[(&str, u16)], flags: u64) {
        let mut row = 0;
        while row < rows.len() {
            let entry = self.slot(hash(rows[row].0.as_bytes()));
            entry.flags |= flags;
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
                let first = element;
                let mut words = Words::of(FEATURES[feature].phrases[row]);
                while words.next() {
                    self.elements[element] = parse_element(words.word());
                    element += 1;
                }
                let length = (element - first) as u8;
                self.phrases[number] = Phrase {
                    feature: feature as u8,
                    length,
                    first: first as u16,
                    next: 0,
                };
                number += 1;
                self.chain(number as u16);
                row += 1;
            }
            feature += 1;
        }
    }

    /// Puts the phrase in front of those with the same start: both its first words where they are fixed, else the first.
    const fn chain(&mut self, number: u16) {
        let phrase = self.phrases[number as usize - 1];
        let second = match self.elements[phrase.first as usize + if phrase.length > 1 { 1 } else { 0 }] {
            Element {
                want: Want::Word(word),
                optional: false,
            } if phrase.length > 1 => Some(word),
            _ => None,
        };
        match (self.elements[phrase.first as usize].want, second) {
            (Want::Word(word), Some(second)) => {
                self.slot(word).flags |= PAIRED;
                self.chain_word(number, pair(word, second));
            }
            (Want::Word(word), None) => self.chain_word(number, word),
            (Want::Stem(stem), _) => self.chain_word(number, !stem),
            (Want::List(bit), Some(second)) => {
                self.paired_lists |= bit;
                self.chain_word(number, pair(bit, second));
            }
            (Want::List(bit), None) => {
                let list = bit.trailing_zeros() as usize;
                self.phrases[number as usize - 1].next = self.by_list[list];
                self.by_list[list] = number;
                self.starting_lists |= bit;
            }
            (Want::Any, _) => {}
        }
    }

    const fn chain_word(&mut self, number: u16, hash: u64) {
        let entry = self.slot(hash);
        let next = entry.phrase;
        entry.phrase = number;
        self.phrases[number as usize - 1].next = next;
    }
}

/// The key of phrases that start with these two; a list stands as its bit.
pub(crate) const fn pair(first: u64, second: u64) -> u64 {
    join(first, second)
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

/// A form of a verb under construction.
struct Form {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Form {
    const fn of(base: &[u8]) -> Form {
        let mut form = Form {
            bytes: [0; LONGEST],
            length: 0,
        };
        while form.length < base.len() {
            form.bytes[form.length] = base[form.length];
            form.length += 1;
        }
        form
    }

    const fn double(&mut self, times: usize) {
        if times > 0 {
            self.bytes[self.length] = self.bytes[self.length - 1];
            self.length += 1;
        }
    }

    /// The form with `cut` letters less and an ending.
    const fn with(&self, cut: usize, ending: &[u8]) -> Form {
        let mut form = Form {
            bytes: self.bytes,
            length: self.length - cut,
        };
        let mut index = 0;
        while index < ending.len() {
            form.bytes[form.length] = ending[index];
            form.length += 1;
            index += 1;
        }
        form
    }
}
