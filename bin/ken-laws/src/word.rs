//! Words as numbers: the hash of a word, in capitals or not, and of its stem. Both are computed when the program is
//! compiled for the words it knows, and with the same result when it runs for those it does not.

use crate::token::{CAPITAL, CAPITALS, PLURAL};

pub(crate) const SEED: u64 = 0xcbf2_9ce4_8422_2325;

/// One step of FNV-1a (Fowler, Noll, Vo), 64 bits.
pub(crate) const fn step(hash: u64, byte: u8) -> u64 {
    (hash ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3)
}

/// Both halves of the product of two numbers, as one: each bit of it depends on all of theirs.
const fn fold(left: u64, right: u64) -> u64 {
    let product = left as u128 * right as u128;
    product as u64 ^ (product >> 64) as u64
}

/// Spreads a number over all bits.
pub(crate) const fn finish(hash: u64) -> u64 {
    fold(hash ^ SEED, ODD)
}

/// Two hashes as one, where order counts.
pub(crate) const fn join(first: u64, second: u64) -> u64 {
    fold(first ^ SEED, second ^ ODD)
}

/// The bit that tells a capital ASCII letter from a small one. Digits and the apostrophe have it anyway.
const SMALL: u8 = 0x20;
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The hash of a word, in capitals or small ASCII letters alike; other letters must be small. Sixteen bytes at a time.
pub(crate) const fn hash(word: &[u8]) -> u64 {
    let (mut hash, mut rest) = (SEED, word);
    while let Some((sixteen, more)) = rest.split_first_chunk::<16>() {
        hash = add(hash, u128::from_le_bytes(*sixteen) | each(SMALL));
        rest = more;
    }
    let (mut last, mut index) = (0, 0);
    while index < rest.len() {
        last |= ((rest[index] | SMALL) as u128) << (8 * index);
        index += 1;
    }
    add(hash, last)
}

/// The same of at most fifteen bytes in small letters, the first of them lowest.
pub(crate) const fn hash_of(bytes: u128) -> u64 {
    add(SEED, bytes)
}

/// Takes sixteen bytes more into a hash.
const fn add(hash: u64, bytes: u128) -> u64 {
    fold(hash ^ bytes as u64, ODD ^ (bytes >> 64) as u64)
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

/// A word of ASCII letters that fits two registers, in small letters. Most words do.
#[derive(Clone, Copy)]
pub(crate) struct Short {
    /// The first byte lowest; zero past the length.
    bytes: u128,
    /// Bytes, 1 to 15.
    length: u32,
}

/// A byte in each place of sixteen.
const fn each(byte: u8) -> u128 {
    u128::from_le_bytes([byte; 16])
}

/// The bits of the first bytes, at most fifteen.
fn below(length: u32) -> u128 {
    BELOW[length as usize & 15]
}

static BELOW: [u128; 16] = {
    let (mut table, mut length) = ([0; 16], 0);
    while length < 16 {
        table[length] = (1 << (8 * length)) - 1;
        length += 1;
    }
    table
};

/// Which of eight bytes are not zero but one, one bit each.
const fn ones_of(eight: [u8; 8]) -> u64 {
    // Moves the lowest bit of each byte to its place among the eight highest bits.
    u64::from_le_bytes(eight).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// Where the ASCII letters of a text are: for every thirty-two bytes a bit for each of them and of the thirty-two that
/// follow. The end of a word is found without looking at its letters.
#[derive(Default)]
pub(crate) struct Letters(Vec<u64>);

impl Letters {
    /// What is left over of thirty-two bytes at the end is not looked at.
    pub(crate) fn fill(&mut self, bytes: &[u8]) {
        self.0.clear();
        let (blocks, _) = bytes.as_chunks::<32>();
        for block in blocks {
            let letters = block.map(|byte| u8::from(byte.is_ascii_alphabetic()));
            let (eights, _) = letters.as_chunks();
            let places = eights.iter().enumerate();
            let bits = places.fold(0, |bits, (place, eight)| bits | ones_of(*eight) << (8 * place));
            if let Some(last) = self.0.last_mut() {
                *last |= bits << 32;
            }
            self.0.push(bits);
        }
    }

    /// How many letters there are from this byte on; of more than thirty-one perhaps not all are counted.
    pub(crate) fn run(&self, at: usize) -> u32 {
        let bits = self.0.get(at / 32).copied().unwrap_or(0);
        (bits >> (at % 32)).trailing_ones()
    }
}

impl Short {
    /// The word of so many letters, at most fifteen, that sixteen bytes begin with, and a bit for each that is a capital.
    pub(crate) fn read(sixteen: [u8; 16], length: u32) -> (Short, u128) {
        let bytes = u128::from_le_bytes(sixteen) & below(length);
        let small = bytes | each(SMALL) & below(length);
        let word = Short { bytes: small, length };
        (word, small ^ bytes)
    }

    /// The same as [`hash`] of its bytes.
    pub(crate) fn hash(self) -> u64 {
        hash_of(self.bytes)
    }

    /// The same as [`stem`] of its bytes; `hash` is its own.
    pub(crate) fn stem(self, hash: u64) -> u64 {
        if matches!(self.last(1) as u8, b's' | b'd' | b'g' | b'e') {
            self.without_s().without_ending().without_e().hash()
        } else {
            hash
        }
    }

    /// The last bytes, at most eight, as [`ending`] has them.
    fn last(self, count: u32) -> u64 {
        let aligned = self.bytes << (128 - 8 * self.length);
        (aligned >> 64) as u64 >> (64 - 8 * count)
    }

    fn cut(self, count: u32) -> Short {
        let length = self.length - count;
        Short {
            bytes: self.bytes & below(length),
            length,
        }
    }

    fn cut_to_y(self, count: u32) -> Short {
        let cut = self.cut(count);
        Short {
            bytes: cut.bytes | u128::from(b'y') << (8 * cut.length),
            length: cut.length + 1,
        }
    }

    fn without_s(self) -> Short {
        let last = self.last(4);
        if last >> 24 != u64::from(b's') {
            return self;
        }
        let (three, two) = (last >> 8, last >> 16);
        if self.length > 4 && three == ending(b"ies") {
            return self.cut_to_y(3);
        }
        if last == ending(b"sses")
            || three == ending(b"xes")
            || last == ending(b"ches")
            || last == ending(b"shes")
        {
            return self.cut(2);
        }
        let singular = two == ending(b"ss") || two == ending(b"us") || two == ending(b"is");
        if self.length > 3 && !singular {
            self.cut(1)
        } else {
            self
        }
    }

    fn without_ending(self) -> Short {
        let last = self.last(3);
        if self.length > 4 && last == ending(b"ied") {
            return self.cut_to_y(3);
        }
        let cut = if last == ending(b"ing") {
            3
        } else if last >> 8 == ending(b"ed") {
            2
        } else {
            return self;
        };
        if self.length < cut + 3 {
            return self;
        }
        let rest = self.cut(cut);
        if rest.has_vowel() { rest.undoubled() } else { self }
    }

    fn has_vowel(self) -> bool {
        let bytes = self.bytes.to_le_bytes();
        bytes
            .iter()
            .any(|byte| matches!(byte, b'a' | b'e' | b'i' | b'o' | b'u' | b'y'))
    }

    fn undoubled(self) -> Short {
        let last = self.last(2);
        let (last, before) = ((last >> 8) as u8, last as u8);
        if last == before && !matches!(last, b'l' | b's' | b'z' | b'e' | b'o') {
            self.cut(1)
        } else {
            self
        }
    }

    fn without_e(self) -> Short {
        if self.length > 3 && self.last(1) == u64::from(b'e') {
            self.cut(1)
        } else {
            self
        }
    }
}

/// An ending as [`Short::last`] has it: its first byte lowest.
const fn ending(text: &[u8]) -> u64 {
    let (mut value, mut index) = (0, 0);
    while index < text.len() {
        value |= (text[index] as u64) << (8 * index);
        index += 1;
    }
    value
}

/// Which letters of a word are capitals.
#[derive(Clone, Copy, Default)]
pub(crate) struct Case {
    length: u32,
    letters: u32,
    capitals: u32,
    first_is_capital: bool,
}

impl Case {
    /// Of a word where all are letters, with a bit for each that is a capital.
    pub(crate) fn of(capitals: u128, length: u32) -> Case {
        Case {
            length,
            letters: length,
            capitals: capitals.count_ones(),
            first_is_capital: capitals as u8 != 0,
        }
    }

    pub(crate) fn add(&mut self, char: char) {
        let capital = char.is_uppercase();
        self.first_is_capital |= capital && self.length == 0;
        self.capitals += u32::from(capital);
        self.letters += u32::from(char.is_alphabetic());
        self.length += 1;
    }

    /// `last` is the last byte of the word as it is spelled.
    pub(crate) fn marks(&self, last: u8) -> u32 {
        let mark = |mark: u32, holds: bool| if holds { mark } else { 0 };
        if self.capitals == 0 {
            return plural(last);
        }
        let throughout = self.letters > 1 && self.letters == self.length && self.capitals == self.letters;
        // "URLs"
        let but_one =
            last == b's' && self.letters > 2 && self.length < 7 && self.capitals + 1 == self.letters;
        plural(last)
            | mark(CAPITALS, throughout || but_one && self.first_is_capital)
            | mark(CAPITAL, self.first_is_capital)
    }
}

/// What the last byte of a word, as it is spelled, marks it as.
pub(crate) fn plural(last: u8) -> u32 {
    u32::from(last | SMALL == b's') * PLURAL
}

/// What the first letter of a word marks it as; `capitals` has a bit for each that is one.
pub(crate) fn capital(capitals: u128) -> u32 {
    (capitals as u32 & SMALL as u32) * (CAPITAL / SMALL as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &[&str] = &[
        "a",
        "is",
        "as",
        "ed",
        "ing",
        "sing",
        "bing",
        "being",
        "running",
        "falling",
        "fizzed",
        "agreed",
        "seed",
        "cities",
        "ties",
        "died",
        "tied",
        "carried",
        "boxes",
        "classes",
        "churches",
        "wishes",
        "bus",
        "gas",
        "glass",
        "thesis",
        "uses",
        "used",
        "make",
        "axe",
        "the",
        "x_y",
        "b2b",
        "q1s",
        "rhythms",
        "crwth",
        "compliance",
        "measurements",
        "overriding",
        "configurations",
        "responsibility",
        "Ties",
        "RUNNING",
    ];

    /// What is read in registers has the numbers that the compiler gave to the same word.
    #[test]
    fn short_words_are_numbered_as_all_words_are() {
        for word in WORDS {
            let mut bytes = [b' '; 16];
            bytes[..word.len()].copy_from_slice(word.as_bytes());
            let (short, _) = Short::read(bytes, word.len() as u32);
            let small = word.to_lowercase();
            assert_eq!(short.hash(), hash(small.as_bytes()), "{word}");
            assert_eq!(short.stem(short.hash()), stem(small.as_bytes()), "{word}");
        }
    }

    #[test]
    fn capitals_are_counted() {
        let marks = |text: &[u8; 16], length| {
            let (_, capitals) = Short::read(*text, length);
            Case::of(capitals, length).marks(text[length as usize - 1])
        };
        assert_eq!(marks(b"URLs, and so on.", 4), PLURAL | CAPITALS | CAPITAL);
        assert_eq!(marks(b"NASA, and so on.", 4), CAPITALS | CAPITAL);
        assert_eq!(marks(b"I, and he too...", 1), CAPITAL);
        assert_eq!(marks(b"Letters go on...", 7), PLURAL | CAPITAL);
        assert_eq!(marks(b"kHz, and so on..", 3), 0);
    }

    #[test]
    fn runs_of_letters_end_where_letters_end() {
        let text: String =
            (0..0x250).filter_map(char::from_u32).collect::<String>() + &"a".repeat(150) + &" ".repeat(32);
        let mut letters = Letters::default();
        letters.fill(text.as_bytes());
        for at in 0..text.len() - 32 {
            let rest = text.as_bytes()[at..].iter();
            let run = rest.take_while(|byte| byte.is_ascii_alphabetic()).count();
            assert_eq!(letters.run(at).min(32) as usize, run.min(32), "at {at}");
        }
    }
}
