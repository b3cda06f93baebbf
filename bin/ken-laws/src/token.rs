//! Tokens: the smallest parts of a text, with their properties.

use crate::lexicon::{self as lex, Entry};

/// A word, number, symbol or mark of punctuation.
#[derive(Clone, Copy)]
pub(crate) struct Token {
    /// Byte offsets in the text.
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// The hash of the word in lower case or of the value of a number; for a mark, the character itself.
    pub(crate) hash: u64,
    pub(crate) stem: u64,
    /// The classes of the word in the lexicon, as bits.
    pub(crate) classes: u128,
    /// The marks of the token, as bits; the constants of this module.
    pub(crate) marks: u32,
    /// The value of a numeral, ordinal or small whole number; the number of a pair of opposites.
    pub(crate) value: u16,
    pub(crate) kind: Kind,
    pub(crate) entry: Option<&'static Entry>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Word,
    Number,
    /// A sign that counts as a word: %, ° or a currency symbol.
    Symbol,
    /// Any other character that is not white space.
    Mark,
}

/// All letters are capitals, and there are two or more.
pub(crate) const CAPITALS: u32 = 1;
/// The first letter is a capital.
pub(crate) const CAPITAL: u32 = 1 << 1;
/// A time of day, or a number that needs no unit.
pub(crate) const CLOCK: u32 = 1 << 2;
/// An integer from 1000 to 2100 without a comma, which is probably a year.
pub(crate) const YEAR: u32 = 1 << 3;
pub(crate) const ADDRESS: u32 = 1 << 4;
/// The word ends in s, and is probably a plural.
pub(crate) const PLURAL: u32 = 1 << 5;
/// The token is inside quotation marks or code marks, so it is mentioned rather than stated.
pub(crate) const QUOTED: u32 = 1 << 6;
/// The word ends in ed, and is probably a past form.
pub(crate) const PAST_SHAPED: u32 = 1 << 8;
/// The token is a mark of punctuation that ends a clause.
const ENDS: u32 = 1 << 7;
pub(crate) const COLON: u32 = 1 << 9;

impl Token {
    /// A token without an entry of the lexicon.
    pub(crate) fn new(start: usize, end: usize, hash: u64, kind: Kind) -> Token {
        Token { start, end, hash, stem: hash, kind, marks: 0, ..NOTHING }
    }

    pub(crate) fn mark(start: usize, end: usize, char: char) -> Token {
        let marks = match char {
            '/' | '\'' => 0,
            ':' => ENDS | COLON,
            _ => ENDS,
        };
        Token { marks, ..Token::new(start, end, char.into(), Kind::Mark) }
    }

    /// Copies the classes and the value from the word's entry.
    pub(crate) fn learn(&mut self, entry: &'static Entry) {
        self.stem = entry.stem;
        self.classes = entry.classes;
        self.value = entry.value;
        self.entry = Some(entry);
    }

    /// Whether the word belongs to one of the classes.
    pub(crate) fn is(&self, classes: u128) -> bool {
        self.classes & classes != 0
    }

    pub(crate) fn has(&self, marks: u32) -> bool {
        self.marks & marks != 0
    }

    pub(crate) fn is_mark(&self, mark: char) -> bool {
        self.kind == Kind::Mark && self.hash == u64::from(mark)
    }

    /// Whether it is a content word: not a function word, number or mark.
    pub(crate) fn is_content(&self) -> bool {
        self.kind == Kind::Word && !self.is(lex::FUNCTION)
    }

    /// Whether it is a number, in digits or as a word.
    pub(crate) fn is_exact(&self) -> bool {
        self.kind == Kind::Number || self.is(lex::NUMERAL)
    }

    pub(crate) fn ends_clause(&self) -> bool {
        self.has(ENDS)
    }
}

/// A token that matches nothing, for indices out of range.
pub(crate) static NOTHING: Token =
    Token { start: 0, end: 0, hash: 0, stem: 0, classes: 0, marks: ENDS, value: 0, kind: Kind::Mark, entry: None };

/// The token at an index, or [`NOTHING`].
pub(crate) fn at(tokens: &[Token], index: usize) -> &Token {
    tokens.get(index).unwrap_or(&NOTHING)
}

/// The token before an index, or [`NOTHING`].
pub(crate) fn before(tokens: &[Token], index: usize) -> &Token {
    index.checked_sub(1).map_or(&NOTHING, |index| at(tokens, index))
}
