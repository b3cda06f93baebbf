//! The smallest parts of a text, and what is known of each by itself.

use std::hint::select_unpredictable;

use crate::lexicon::{self, Entry, LEXICON};

/// A word, number, symbol or mark of punctuation.
#[derive(Clone, Copy)]
pub(crate) struct Token {
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// Of the word in lower case; of the value of a number.
    pub(crate) hash: u64,
    pub(crate) stem: u64,
    /// What the word can be: bits of the lexicon.
    pub(crate) flags: u64,
    /// The bits below, and the traits that the lexicon gives a word.
    pub(crate) marks: u32,
    /// The value of a numeral, ordinal or small whole number; the number of a pair of opposites.
    pub(crate) value: u16,
    /// The first phrase that starts with this word, and with its stem, plus one.
    pub(crate) phrase: u16,
    pub(crate) stem_phrase: u16,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Word,
    Number,
    /// A sign that counts as a word: %, °, a currency.
    Symbol,
    /// Anything else that is not blank; `hash` is its first byte, or the character.
    Mark,
}

/// The lexicon's traits begin with this bit and go on with the lowest, up to here.
pub(crate) const FIRST_TRAIT: u32 = 19;
/// All letters are capitals, and there are two or more.
pub(crate) const CAPITALS: u32 = 1 << 5;
/// A time of day, or a number that is its own unit.
pub(crate) const CLOCK: u32 = 1 << 6;
/// A whole number from 1000 to 2100 without a comma: a year, most likely.
pub(crate) const YEAR: u32 = 1 << 7;
/// A web address.
pub(crate) const ADDRESS: u32 = 1 << 8;
/// The word ends in s: a plural, most likely.
pub(crate) const PLURAL: u32 = 1 << 9;
/// What of punctuation the rules look for.
pub(crate) const COMMA: u32 = 1 << 10;
pub(crate) const COLON: u32 = 1 << 11;
pub(crate) const SEMICOLON: u32 = 1 << 12;
/// `[` and `)`, which can belong to a citation.
pub(crate) const BRACKET: u32 = 1 << 13;
/// The kind, once more as a bit.
pub(crate) const WORD: u32 = 1 << 14;
pub(crate) const NUMBER: u32 = 1 << 15;
/// The byte of the marks that [`crate::row`] has as sets: these, and the lexicon's first traits.
pub(crate) const CLASSES: usize = 2;
/// The first letter is a capital.
pub(crate) const CAPITAL: u32 = 1 << 16;
/// Inside quotation marks or code marks: mentioned, not said.
pub(crate) const QUOTED: u32 = 1 << 17;
/// A mark that ends a clause; a bracket or a quotation mark does too.
const ENDS: u32 = 1 << 18;

impl Token {
    /// One of which only its kind is known.
    pub(crate) fn plain(start: usize, end: usize, hash: u64, kind: Kind) -> Token {
        Token {
            start: start as u32,
            end: end as u32,
            hash,
            stem: hash,
            marks: match kind {
                Kind::Word => WORD | lexicon::CONTENT,
                Kind::Number => NUMBER | lexicon::EXACT | lexicon::CONTENT,
                Kind::Symbol | Kind::Mark => 0,
            },
            kind,
            ..NOTHING
        }
    }

    pub(crate) fn mark(start: usize, end: usize, char: char) -> Token {
        let marks = match char {
            ',' => COMMA | ENDS,
            ':' => COLON | ENDS,
            ';' => SEMICOLON | ENDS,
            '[' | ')' => BRACKET | ENDS,
            '/' | '\'' => 0,
            _ => ENDS,
        };
        Token {
            marks,
            ..Token::plain(start, end, char as u64, Kind::Mark)
        }
    }

    /// What the lexicon knows.
    #[inline(always)]
    pub(crate) fn learn(&mut self, entry: &Entry) {
        self.stem = select_unpredictable(entry.stem == 0, self.hash, entry.stem);
        self.flags = entry.flags;
        self.marks |= entry.traits;
        self.value = entry.value;
        self.phrase = entry.phrase;
        self.stem_phrase = entry.stem_phrase;
    }

    /// The stem of an unknown word, and the phrases that start with any form of it.
    pub(crate) fn learn_stem(&mut self, stem: u64) {
        let phrase = LEXICON.phrase_of_stem(stem);
        self.stem = stem;
        self.stem_phrase = phrase;
        self.marks |= if phrase > 0 { lexicon::STARTS } else { 0 };
    }

    /// Phrases that start with a number, alone or with its second word; one may be the second word of any.
    pub(crate) fn learn_number(&mut self, entry: &Entry) {
        self.flags = entry.flags;
        self.phrase = entry.phrase;
        self.marks |= lexicon::FOLLOWS | entry.traits;
    }

    pub(crate) fn is(&self, flags: u64) -> bool {
        self.flags & flags != 0
    }

    pub(crate) fn has(&self, marks: u32) -> bool {
        self.marks & marks != 0
    }

    pub(crate) fn is_mark(&self, mark: char) -> bool {
        self.kind == Kind::Mark && self.hash == mark as u64
    }

    /// A word of its own meaning: no function word, number or mark.
    pub(crate) fn is_content(&self) -> bool {
        self.kind == Kind::Word && !self.is(lexicon::FUNCTION)
    }

    pub(crate) fn ends_clause(&self) -> bool {
        self.has(ENDS)
    }
}

/// No word.
pub(crate) static NOTHING: Token = Token {
    start: 0,
    end: 0,
    hash: 0,
    stem: 0,
    flags: 0,
    marks: ENDS,
    value: 0,
    phrase: 0,
    stem_phrase: 0,
    kind: Kind::Mark,
};

/// The token at an index, or nothing.
pub(crate) fn at(tokens: &[Token], index: usize) -> &Token {
    tokens.get(index).unwrap_or(&NOTHING)
}

/// The token before an index, or nothing.
pub(crate) fn before(tokens: &[Token], index: usize) -> &Token {
    index.checked_sub(1).map_or(&NOTHING, |index| at(tokens, index))
}
