//! How the words of a text are read.

use super::{Class, Scanner, class};
use crate::lexicon::LEXICON;
use crate::token::{ADDRESS, Kind, Token, WORD};
use crate::word::{self, Case, Short};

impl Scanner<'_> {
    /// Most words are plain and short, and most follow each other: those are read and hashed where they stand, in registers.
    pub(super) fn words(&mut self) {
        let mut at = self.at;
        loop {
            let length = self.letters.run(at);
            if length == 0 {
                break;
            }
            let end = at + length as usize;
            let window = self.bytes.get(at..).and_then(|rest| rest.first_chunk());
            let Some(window) = window.filter(|_| length < WINDOW as u32) else {
                return self.long_word(at);
            };
            let next = window_byte(window, length);
            if next != b' ' && !self.ends_word(next, end) {
                return if matches!(next, b'\'' | 0x80..) {
                    self.odd_word(at)
                } else {
                    self.long_word(at)
                };
            }
            let (short, capitals) = Short::read(*window, length);
            let last = window_byte(window, length - 1);
            let mut marks = word::plural(last) | word::capital(capitals);
            if capitals > 0xff {
                marks = Case::of(capitals, length).marks(last); // not the first letter alone
            }
            self.scan.push_plain(at, end, short.hash(), marks);
            at = end + usize::from(next == b' ');
        }
        self.at = at;
    }

    /// Whether a word of letters ends before this byte.
    fn ends_word(&self, byte: u8, at: usize) -> bool {
        match byte {
            b'\'' => !self.letter_follows(at + 1),
            b'0'..=b'9' | b'_' | b':' | 0x80.. => false,
            _ => true,
        }
    }

    fn is_address(&self) -> bool {
        self.bytes.get(self.at..self.at + 3) == Some(b"://")
    }

    pub(super) fn long_word(&mut self, start: usize) {
        self.at = start;
        let mut case = Case::default();
        loop {
            let byte = self.byte(self.at);
            match class(byte) {
                Class::Letter | Class::Digit => case.add(byte as char),
                Class::High => return self.odd_word(start),
                Class::Mark if byte == b'\'' && self.letter_follows(self.at + 1) => {
                    return self.odd_word(start);
                }
                Class::Mark | Class::Blank | Class::Line => break,
            }
            self.at += 1;
        }
        if self.is_address() {
            return self.address(start);
        }
        let word = self.bytes.get(start..self.at).unwrap_or_default();
        self.push_long(start, self.at, word, case);
    }

    /// A word with an apostrophe or with letters beyond ASCII.
    pub(super) fn odd_word(&mut self, start: usize) {
        self.at = start;
        let mut word = std::mem::take(&mut self.lower);
        word.clear();
        let mut case = Case::default();
        let mut apostrophe = false;
        loop {
            let char = self.char_at(self.at);
            let joins = matches!(char, '\'' | '\u{2019}') && self.letter_follows(self.at + char.len_utf8());
            if !joins && !is_letter(char) {
                break;
            }
            apostrophe |= joins;
            case.add(char);
            word.extend(if joins { '\'' } else { char }.to_lowercase());
            self.at += char.len_utf8();
        }
        if self.at == start {
            self.mark(self.char_at(start)); // a character that only looked like a letter
        } else if !(apostrophe && self.contraction(start)) {
            self.push_long(start, self.at, word.as_bytes(), case);
        }
        self.lower = word;
    }

    pub(super) fn letter_follows(&self, at: usize) -> bool {
        match class(self.byte(at)) {
            Class::Letter => true,
            Class::High => self.char_at(at).is_alphabetic(),
            _ => false,
        }
    }

    /// "isn't" as "is" and "not"; false for a possessive.
    fn contraction(&mut self, start: usize) -> bool {
        let Some(word) = self.text.get(start..self.at) else {
            return false;
        };
        let Some(parts) = ken_text::expand(word) else {
            return false;
        };
        let (middle, end) = (start + parts.stem, self.at);
        for (start, end, word) in [(start, middle, parts.first(word)), (middle, end, parts.second)] {
            let mut case = Case::default();
            word.chars().for_each(|char| case.add(char));
            self.push_long(start, end, word.as_bytes(), case);
        }
        true
    }

    /// `word` is what the table knows it as, in any case.
    fn push_long(&mut self, start: usize, end: usize, word: &[u8], case: Case) {
        let hash = word::hash(word);
        let entry = LEXICON.look_up(hash);
        let mut token = Token::plain(start, end, hash, Kind::Word);
        token.marks = WORD | case.marks(word.last().copied().unwrap_or(0));
        token.learn(entry);
        if entry.stem == 0 && word.len() > 2 {
            token.learn_stem(word::stem(word));
        }
        self.scan.tokens.push(token);
    }

    fn address(&mut self, start: usize) {
        while class(self.byte(self.at)) != Class::Blank && class(self.byte(self.at)) != Class::Line {
            self.at += 1;
        }
        while self.at > start + 3
            && matches!(
                self.byte(self.at - 1),
                b'.' | b',' | b')' | b';' | b'!' | b'?' | b'"'
            )
        {
            self.at -= 1;
        }
        let mut token = Token::plain(start, self.at, word::finish(start as u64), Kind::Word);
        token.marks |= ADDRESS;
        self.scan.tokens.push(token);
    }
}

/// Bytes that a plain word is read from; it has fewer.
const WINDOW: usize = 16;

fn window_byte(window: &[u8; WINDOW], at: u32) -> u8 {
    window[at as usize % WINDOW]
}

fn is_letter(char: char) -> bool {
    char.is_alphanumeric() || matches!(char, '\u{300}'..='\u{36f}')
}
