//! The walk over a text.

use crate::lexicon::{self, LEXICON};
use crate::line::Line;
use crate::number::Digits;
use crate::scan::{Ending, Scan, Sentence};
use crate::token::{CAPITAL, Kind, QUOTED, Token};
use crate::word::{self, Letters};

mod words;

pub(crate) struct Scanner<'a> {
    text: &'a str,
    /// The text with line feeds after it.
    bytes: &'a [u8],
    letters: &'a Letters,
    at: usize,
    scan: &'a mut Scan,
    /// Where the sentence under way starts.
    first_token: usize,
    line_start: usize,
    item: Option<u16>,
    item_start: Option<usize>,
    indent: u8,
    bullet: bool,
    heading: bool,
    /// The token after an opening quotation mark, and the mark that closes it.
    quote: Option<(usize, char)>,
    in_code: bool,
    /// Room for a word in lower case.
    lower: String,
}

/// What a byte can begin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Blank,
    Line,
    Letter,
    Digit,
    Mark,
    High,
}

static CLASSES: [Class; 256] = classes();

const fn classes() -> [Class; 256] {
    let mut table = [Class::Mark; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte as u8 {
            b'\n' => Class::Line,
            0..=b' ' | 0x7f => Class::Blank,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => Class::Letter,
            b'0'..=b'9' => Class::Digit,
            0x80.. => Class::High,
            _ => Class::Mark,
        };
        byte += 1;
    }
    table
}

fn class(byte: u8) -> Class {
    CLASSES[byte as usize]
}

impl<'a> Scanner<'a> {
    /// `bytes` are those of the text and [`MARGIN`] line feeds.
    pub(crate) fn new(
        text: &'a str,
        bytes: &'a [u8],
        letters: &'a Letters,
        scan: &'a mut Scan,
    ) -> Scanner<'a> {
        Scanner {
            text,
            bytes,
            letters,
            at: 0,
            scan,
            first_token: 0,
            line_start: 0,
            item: None,
            item_start: None,
            indent: 0,
            bullet: false,
            heading: false,
            quote: None,
            in_code: false,
            lower: String::new(),
        }
    }

    pub(crate) fn run(&mut self) {
        self.open_line();
        loop {
            self.words();
            if self.at >= self.text.len() {
                break;
            }
            let byte = self.byte(self.at);
            match class(byte) {
                Class::Blank => self.at += 1,
                Class::Line => self.line(),
                Class::Letter => self.long_word(self.at),
                Class::Digit => self.number(self.at),
                Class::Mark => self.mark(byte as char),
                Class::High => self.high(),
            }
        }
        self.close(Ending::None);
    }

    fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(b'\n')
    }

    fn char_at(&self, at: usize) -> char {
        self.text
            .get(at..)
            .and_then(|rest| rest.chars().next())
            .unwrap_or('\n')
    }

    // Words

    fn high(&mut self) {
        let char = self.char_at(self.at);
        if char.is_alphabetic() {
            self.odd_word(self.at);
        } else if char.is_whitespace() {
            self.at += char.len_utf8();
        } else {
            self.mark(char);
        }
    }

    fn push_mark(&mut self, start: usize, char: char) {
        self.scan.tokens.push(Token::mark(start, self.at, char));
    }

    // Numbers

    /// Whether the dash at `start` is the sign of a number: after a blank, right before a digit, and no range ("5 -7").
    fn is_sign(&self, start: usize) -> bool {
        let before = start
            .checked_sub(1)
            .map_or(Class::Line, |at| class(self.byte(at)));
        let tokens = self.scan.tokens.get(self.first_token..).unwrap_or_default();
        matches!(before, Class::Blank | Class::Line)
            && self.byte(self.at).is_ascii_digit()
            && tokens.last().is_none_or(|last| last.kind != Kind::Number)
    }

    /// A number whose digits begin here; what is from `start` up to here is its sign.
    fn number(&mut self, start: usize) {
        let mut digits = Digits::after_sign(start < self.at);
        loop {
            let byte = self.byte(self.at);
            match byte {
                b'0'..=b'9' => digits.push(byte),
                b'.' | b',' | b':' if self.byte(self.at + 1).is_ascii_digit() => digits.mark(byte),
                _ => break,
            }
            self.at += 1;
        }
        if matches!(
            self.bytes.get(self.at..self.at + 2),
            Some(b"st" | b"nd" | b"rd" | b"th")
        ) && !self.letter_follows(self.at + 2)
        {
            self.at += 2;
            digits.clock = true;
        }
        let mut token = Token::plain(start, self.at, digits.hash(), Kind::Number);
        token.value = digits.small();
        token.learn_number(LEXICON.look_up(token.hash));
        token.marks |= digits.marks();
        self.scan.tokens.push(token);
    }

    // Marks

    fn mark(&mut self, char: char) {
        let start = self.at;
        self.at += char.len_utf8();
        match char {
            '-' if start > 0 && self.letter_follows(self.at) && self.last_end() == start => {}
            '-' | '−' if self.is_sign(start) => self.number(start),
            '%' | '$' | '°' | '€' | '£' | '¥' => self.symbol(start, char),
            '"' | '`' => self.quotation(start, char),
            '“' | '«' | '„' => self.open_quotation(start, char),
            '”' | '»' => self.close_quotation(start),
            '.' => self.period(start),
            '!' | '?' | '…' | '。' | '！' | '？' => self.terminal(start, char),
            _ => self.push_mark(start, char),
        }
    }

    fn last_end(&self) -> usize {
        self.scan.tokens.last().map_or(0, |token| token.end as usize)
    }

    fn symbol(&mut self, start: usize, char: char) {
        let mut bytes = [0; 4];
        let hash = word::hash(char.encode_utf8(&mut bytes).as_bytes());
        let mut token = Token::plain(start, self.at, hash, Kind::Symbol);
        token.learn(LEXICON.look_up(hash));
        token.marks &= !lexicon::CONTENT;
        self.scan.tokens.push(token);
    }

    fn quotation(&mut self, start: usize, char: char) {
        match self.quote {
            Some((_, open)) if open == char => self.close_quotation(start),
            Some(_) => self.push_mark(start, char),
            None => self.open_quotation(start, char),
        }
    }

    fn open_quotation(&mut self, start: usize, char: char) {
        self.push_mark(start, '"');
        self.quote = Some((self.scan.tokens.len(), char));
    }

    fn close_quotation(&mut self, start: usize) {
        if let Some((first, _)) = self.quote.take() {
            for token in self.scan.tokens.iter_mut().skip(first) {
                token.marks |= QUOTED;
            }
        }
        self.push_mark(start, '"');
    }

    // Sentences

    fn period(&mut self, start: usize) {
        if !self.is_abbreviated(start) {
            self.terminal(start, '.');
        }
    }

    /// Whether the point at `start` belongs to the word before it.
    fn is_abbreviated(&self, start: usize) -> bool {
        let tokens = self.scan.tokens.get(self.first_token..).unwrap_or_default();
        let Some((last, before)) = tokens.split_last() else {
            return false;
        };
        if last.kind != Kind::Word || last.end as usize != start {
            return false;
        }
        let length = last.end - last.start;
        if length > LONGEST_ABBREVIATION {
            return false;
        }
        if length > 1 {
            let flags = flags_of(last);
            let is_known = flags & lexicon::ABBREVIATION != 0 && flags & lexicon::VERB == 0;
            return is_known && self.goes_on_after(last, before.last());
        }
        if self.letter_follows(self.at) {
            return true; // "e.g."
        }
        let inner = start > 1 && self.byte(start.saturating_sub(2)) == b'.';
        let initial = last.has(CAPITAL)
            && before
                .last()
                .is_none_or(|before| before.has(CAPITAL) || flags_of(before) & lexicon::ABBREVIATION != 0);
        inner && !ken_text::opens_sentence(self.rest()) || initial && last.hash != PRONOUN_I
    }

    /// Whether the sentence goes on after the point of an abbreviation: "No. 5" and "Ms. Smith" do, "5 ms. It" ends.
    fn goes_on_after(&self, abbreviation: &Token, before: Option<&Token>) -> bool {
        if ATTACHED.contains(&abbreviation.hash)
            || abbreviation.has(CAPITAL) && TITLES.contains(&abbreviation.hash)
        {
            return true;
        }
        let is_unit = flags_of(abbreviation) & lexicon::UNIT != 0
            && before.is_some_and(|before| before.kind == Kind::Number);
        let opens_with_digit = self
            .rest()
            .trim_start()
            .starts_with(|char: char| char.is_ascii_digit());
        !(ken_text::opens_sentence(self.rest()) || is_unit && opens_with_digit)
    }

    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn terminal(&mut self, start: usize, char: char) {
        // Closing marks and further terminals belong to the sentence.
        while matches!(self.byte(self.at), b'.' | b'!' | b'?') {
            self.at += 1;
        }
        let mut end = self.at;
        loop {
            match self.char_at(end) {
                '"' if self.quote.is_some_and(|(_, open)| open == '"') => end += 1,
                '”' => end += '”'.len_utf8(),
                ')' | ']' | '\'' => end += 1,
                _ => break,
            }
        }
        if !self.ends_here(end, char) {
            return self.push_mark(start, '.');
        }
        while self.at < end {
            let char = self.char_at(self.at);
            self.mark(char);
        }
        self.close(match char {
            '?' | '？' => Ending::Question,
            '!' | '！' => Ending::Exclamation,
            _ => Ending::Period,
        });
    }

    /// A terminal ends the sentence when blanks follow. A small letter after them goes on with the sentence only where a
    /// quotation or a short word ends: "approx. five" is one, a hurried "it works. we shipped it" is two.
    fn ends_here(&self, end: usize, char: char) -> bool {
        if matches!(char, '。' | '！' | '？') {
            return true;
        }
        if self.byte(end) == b' ' && self.byte(end + 1).is_ascii_uppercase() {
            return true; // as most do
        }
        let mut rest = self.text.get(end..).unwrap_or_default().chars();
        match rest.next() {
            None | Some('\n') => true,
            Some(blank) if blank.is_whitespace() => {
                let goes_on = rest
                    .find(|char| !char.is_whitespace())
                    .is_some_and(char::is_lowercase);
                !goes_on || end == self.at && !self.ends_short()
            }
            Some(_) => false,
        }
    }

    /// Whether the last word looks like an abbreviation that no list has.
    fn ends_short(&self) -> bool {
        let short =
            |token: &Token| token.kind == Kind::Word && token.end - token.start < 3 && flags_of(token) == 0;
        self.scan.tokens.last().is_some_and(short)
    }

    /// Ends the sentence under way.
    fn close(&mut self, ending: Ending) {
        let last = self.scan.tokens.len();
        let tokens = self.scan.tokens.get(self.first_token..last).unwrap_or_default();
        if let (Some(first_token), Some(last_token)) = (tokens.first(), tokens.last()) {
            let colon = last_token.kind == Kind::Mark && last_token.hash == ':' as u64;
            let start = self.item_start.unwrap_or(first_token.start as usize);
            let end = if ending == Ending::None {
                last_token.end as usize
            } else {
                self.at
            };
            self.scan.sentences.push(Sentence {
                first: self.first_token as u32,
                last: last as u32,
                start: start as u32,
                end: end as u32,
                ending: if ending == Ending::None && colon {
                    Ending::Colon
                } else {
                    ending
                },
                item: self.item,
                indent: self.indent,
                bullet: self.bullet,
                heading: self.heading,
            });
            self.item = None;
            self.item_start = None;
            self.bullet = false;
        }
        self.first_token = last;
    }

    // Lines

    fn line(&mut self) {
        let line = self.bytes.get(self.line_start..self.at).unwrap_or_default();
        self.at += 1;
        let next = Line::of(self.text.get(self.at..).unwrap_or_default());
        if self.breaks(line, &next) || self.heading || self.in_code {
            self.close(Ending::None);
            self.heading = false;
        }
        if next.is_blank {
            self.quote = None;
        }
        self.line_start = self.at;
        self.open_line();
    }

    /// Whether the sentence ends with this line although nothing closes it.
    fn breaks(&self, line: &[u8], next: &Line) -> bool {
        let last = line.iter().rev().find(|byte| !byte.is_ascii_whitespace());
        let short = line.len() < 50;
        next.is_blank
            || next.is_item
            || last == Some(&b':')
            || short && next.is_capital
            || last == Some(&b',') && line.len() < 30 && self.scan.tokens.len() - self.first_token < 6
    }

    /// Reads what may open a line: a heading mark, a list marker, a fence.
    fn open_line(&mut self) {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let line = Line::of(rest);
        if rest.starts_with("```") {
            self.close(Ending::None);
            // Without a second fence this one skips its own line alone. What is searched here is searched once.
            self.in_code = !self.in_code && rest.contains("\n```");
            self.skip_line();
        } else if self.in_code {
            self.skip_line();
        } else if line.is_item && self.scan.tokens.len() == self.first_token {
            self.item = line.number;
            self.bullet = line.number.is_none();
            self.heading = line.is_heading;
            self.item_start = Some(self.at + line.indent);
            self.indent = line.indent as u8;
            self.at += line.indent + line.marker;
        }
    }

    fn skip_line(&mut self) {
        while class(self.byte(self.at)) != Class::Line {
            self.at += 1;
        }
    }
}

const LONGEST_ABBREVIATION: u32 = crate::lists::longest(crate::lists::ABBREVIATION) as u32;
const PRONOUN_I: u64 = word::hash(b"i");

/// Abbreviations that need what comes next, whatever it is.
const ATTACHED: [u64; 9] = [
    word::hash(b"vs"),
    word::hash(b"eg"),
    word::hash(b"ie"),
    word::hash(b"cf"),
    word::hash(b"fig"),
    word::hash(b"figs"),
    word::hash(b"eq"),
    word::hash(b"incl"),
    word::hash(b"excl"),
];

/// Abbreviations that stand before a name, and then have a capital.
const TITLES: [u64; 13] = [
    word::hash(b"mr"),
    word::hash(b"mrs"),
    word::hash(b"ms"),
    word::hash(b"dr"),
    word::hash(b"prof"),
    word::hash(b"st"),
    word::hash(b"gen"),
    word::hash(b"gov"),
    word::hash(b"hon"),
    word::hash(b"rev"),
    word::hash(b"capt"),
    word::hash(b"col"),
    word::hash(b"sgt"),
];

/// What a word can be; it may not have been looked up yet.
fn flags_of(token: &Token) -> u64 {
    LEXICON.look_up(token.hash).flags
}
