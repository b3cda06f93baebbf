//! Text into tokens and sentences, in one pass that looks at each byte once and knows each word's entry in the lexicon.
//!
//! `ken_text` has words and sentences for its callers; here both come from one walk, with the punctuation, the list
//! markers and the line structure that the rubric reads, because the figure to reach is 50 MB/s.

use crate::lexicon::{self, Entry, LEXICON, UNKNOWN};

/// A word, number, symbol or mark of punctuation.
#[derive(Clone, Copy)]
pub(crate) struct Token {
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// Of the word in lower case; of the value of a number.
    pub(crate) hash: u64,
    pub(crate) stem: u64,
    pub(crate) flags: u64,
    /// The value of a numeral, ordinal or small whole number; the number of a pair of opposites.
    pub(crate) value: u16,
    /// The first phrase that starts with this word, and with its stem, plus one.
    pub(crate) phrase: u16,
    pub(crate) stem_phrase: u16,
    pub(crate) kind: Kind,
    pub(crate) marks: u8,
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

/// All letters are capitals, and there are two or more.
pub(crate) const CAPITALS: u8 = 1;
/// The first letter is a capital.
pub(crate) const CAPITAL: u8 = 2;
/// Inside quotation marks or code marks: mentioned, not said.
pub(crate) const QUOTED: u8 = 4;
/// A time of day, or a number that is its own unit.
pub(crate) const CLOCK: u8 = 8;
/// A whole number from 1000 to 2100 without a comma: a year, most likely.
pub(crate) const YEAR: u8 = 16;
/// The word ends in s: a plural, most likely.
pub(crate) const PLURAL: u8 = 64;
/// A web address.
pub(crate) const ADDRESS: u8 = 32;

/// How a sentence ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Period,
    Question,
    Exclamation,
    /// By a colon at the end of a line.
    Colon,
    /// By the line or the text: a heading, a label, a greeting.
    None,
}

#[derive(Clone, Copy)]
pub(crate) struct Sentence {
    /// Tokens.
    pub(crate) first: u32,
    pub(crate) last: u32,
    /// Bytes.
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) ending: Ending,
    /// The number of the list item that this sentence opens: `3.` or `3)` at the start of a line.
    pub(crate) item: Option<u16>,
    /// Opens an item of a list without numbers.
    pub(crate) bullet: bool,
    /// A heading or a row of a table.
    pub(crate) heading: bool,
}

/// The scanned text. Kept and refilled, so that a co-process allocates nothing per line.
#[derive(Default)]
pub(crate) struct Scan {
    pub(crate) tokens: Vec<Token>,
    pub(crate) sentences: Vec<Sentence>,
}

impl Scan {
    pub(crate) fn fill(&mut self, text: &str) {
        self.tokens.clear();
        self.sentences.clear();
        let mut scanner = Scanner::new(text, self);
        scanner.run();
    }

    pub(crate) fn tokens_of(&self, sentence: &Sentence) -> &[Token] {
        self.tokens
            .get(sentence.first as usize..sentence.last as usize)
            .unwrap_or_default()
    }
}

struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    scan: &'a mut Scan,
    /// Where the sentence under way starts.
    first_token: usize,
    line_start: usize,
    item: Option<u16>,
    item_start: Option<usize>,
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
    fn new(text: &'a str, scan: &'a mut Scan) -> Scanner<'a> {
        Scanner {
            text,
            bytes: text.as_bytes(),
            at: 0,
            scan,
            first_token: 0,
            line_start: 0,
            item: None,
            item_start: None,
            bullet: false,
            heading: false,
            quote: None,
            in_code: false,
            lower: String::new(),
        }
    }

    fn run(&mut self) {
        self.open_line();
        while let Some(&byte) = self.bytes.get(self.at) {
            match class(byte) {
                Class::Blank => self.at += 1,
                Class::Line => self.line(),
                Class::Letter => self.word(),
                Class::Digit => self.number(),
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
            self.word();
        } else if char.is_whitespace() {
            self.at += char.len_utf8();
        } else {
            self.mark(char);
        }
    }

    /// Most words are plain: ASCII letters and digits, read and hashed where they stand.
    fn word(&mut self) {
        let start = self.at;
        let mut case = Case::default();
        let is_plain = loop {
            let byte = self.byte(self.at);
            match class(byte) {
                Class::Letter | Class::Digit => case.add_byte(byte),
                Class::High => break false,
                Class::Mark => break byte != b'\'' || !self.letter_follows(self.at + 1),
                Class::Blank | Class::Line => break true,
            }
            self.at += 1;
        };
        if !is_plain {
            return self.odd_word(start);
        }
        if self.byte(self.at) == b':' && self.bytes.get(self.at..self.at + 3) == Some(b"://") {
            return self.address(start);
        }
        let word = self.bytes.get(start..self.at).unwrap_or_default();
        self.push_word(start, self.at, word, case);
    }

    /// A word with an apostrophe or with letters beyond ASCII.
    fn odd_word(&mut self, start: usize) {
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
            self.push_word(start, self.at, word.as_bytes(), case);
        }
        self.lower = word;
    }

    fn letter_follows(&self, at: usize) -> bool {
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
            self.push_word(start, end, word.as_bytes(), case);
        }
        true
    }

    /// `word` is what the table knows it as, in any case.
    fn push_word(&mut self, start: usize, end: usize, word: &[u8], case: Case) {
        let hash = lexicon::hash(word);
        let entry = LEXICON.look_up(hash);
        let (stem, stem_phrase) = match entry.stem {
            0 if word.len() > 2 => {
                let stem = lexicon::stem(word);
                (stem, LEXICON.look_up(!stem).phrase)
            }
            0 => (hash, entry.stem_phrase),
            stem => (stem, entry.stem_phrase),
        };
        self.scan.tokens.push(Token {
            start: start as u32,
            end: end as u32,
            hash,
            stem,
            flags: entry.flags,
            value: entry.value,
            phrase: entry.phrase,
            stem_phrase,
            kind: Kind::Word,
            marks: case.marks(word.last().copied()),
        });
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
        self.push(start, self.at, lexicon::finish(start as u64), Kind::Word);
        if let Some(token) = self.scan.tokens.last_mut() {
            token.marks = ADDRESS;
        }
    }

    fn push(&mut self, start: usize, end: usize, hash: u64, kind: Kind) {
        self.scan.tokens.push(Token {
            start: start as u32,
            end: end as u32,
            hash,
            stem: hash,
            flags: 0,
            value: 0,
            phrase: 0,
            stem_phrase: 0,
            kind,
            marks: 0,
        });
    }

    // Numbers

    fn number(&mut self) {
        let start = self.at;
        let mut digits = Digits::default();
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
        self.push(start, self.at, digits.hash(), Kind::Number);
        if let Some(token) = self.scan.tokens.last_mut() {
            token.value = digits.small();
            token.phrase = LEXICON.look_up(token.hash).phrase;
            token.marks = digits.marks();
        }
    }

    // Marks

    fn mark(&mut self, char: char) {
        let start = self.at;
        self.at += char.len_utf8();
        match char {
            '-' if start > 0 && self.letter_follows(self.at) && self.last_end() == start => {}
            '%' | '$' | '°' | '€' | '£' | '¥' => self.symbol(start, char),
            '"' | '`' => self.quotation(start, char),
            '“' | '«' | '„' => self.open_quotation(start, char),
            '”' | '»' => self.close_quotation(start),
            '.' => self.period(start),
            '!' | '?' | '…' | '。' | '！' | '？' => self.terminal(start, char),
            _ => self.push(start, self.at, char as u64, Kind::Mark),
        }
    }

    fn last_end(&self) -> usize {
        self.scan.tokens.last().map_or(0, |token| token.end as usize)
    }

    fn symbol(&mut self, start: usize, char: char) {
        let mut bytes = [0; 4];
        let hash = lexicon::hash(char.encode_utf8(&mut bytes).as_bytes());
        self.push(start, self.at, hash, Kind::Symbol);
        let entry = LEXICON.look_up(hash);
        if let Some(token) = self.scan.tokens.last_mut() {
            token.learn(entry);
        }
    }

    fn quotation(&mut self, start: usize, char: char) {
        match self.quote {
            Some((_, open)) if open == char => self.close_quotation(start),
            Some(_) => self.push(start, self.at, char as u64, Kind::Mark),
            None => self.open_quotation(start, char),
        }
    }

    fn open_quotation(&mut self, start: usize, char: char) {
        self.push(start, self.at, '"' as u64, Kind::Mark);
        self.quote = Some((self.scan.tokens.len(), char));
    }

    fn close_quotation(&mut self, start: usize) {
        if let Some((first, _)) = self.quote.take() {
            for token in self.scan.tokens.iter_mut().skip(first) {
                token.marks |= QUOTED;
            }
        }
        self.push(start, self.at, '"' as u64, Kind::Mark);
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
        let capital_follows = self.follows_capital();
        if last.end - last.start > 1 {
            return last.flags & lexicon::ABBREVIATION != 0
                && (last.flags & lexicon::VERB == 0)
                && !(capital_follows && last.hash == ETC);
        }
        if self.letter_follows(self.at) {
            return true; // "e.g."
        }
        let inner = start > 1 && self.byte(start.saturating_sub(2)) == b'.';
        let initial = last.marks & CAPITAL != 0
            && before.last().is_none_or(|before| {
                before.marks & CAPITAL != 0 || before.flags & lexicon::ABBREVIATION != 0
            });
        inner && !capital_follows || initial && last.hash != PRONOUN_I
    }

    fn follows_capital(&self) -> bool {
        let rest = self.text.get(self.at..).unwrap_or_default();
        rest.chars()
            .find(|char| !char.is_whitespace())
            .is_some_and(char::is_uppercase)
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
            return self.push(start, self.at, '.' as u64, Kind::Mark);
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
            |token: &Token| token.kind == Kind::Word && token.end - token.start < 3 && token.flags == 0;
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
            self.in_code = !self.in_code;
            self.skip_line();
        } else if self.in_code {
            self.skip_line();
        } else if line.is_item && self.scan.tokens.len() == self.first_token {
            self.item = line.number;
            self.bullet = line.number.is_none();
            self.heading = line.is_heading;
            self.item_start = Some(self.at + line.indent);
            self.at += line.indent + line.marker;
        }
    }

    fn skip_line(&mut self) {
        while class(self.byte(self.at)) != Class::Line {
            self.at += 1;
        }
    }
}

const PRONOUN_I: u64 = lexicon::hash(b"i");
const ETC: u64 = lexicon::hash(b"etc");

/// How a line begins.
struct Line {
    is_blank: bool,
    /// Begins with a capital letter or a digit.
    is_capital: bool,
    /// Begins with a list marker or a heading mark.
    is_item: bool,
    is_heading: bool,
    number: Option<u16>,
    indent: usize,
    /// Bytes of the marker.
    marker: usize,
}

impl Line {
    fn of(rest: &str) -> Line {
        let bytes = rest.as_bytes();
        let indent = bytes
            .iter()
            .take(16)
            .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
            .count();
        let body = bytes.get(indent..).unwrap_or_default();
        let mut line = Line {
            is_blank: matches!(body.first(), None | Some(b'\n')),
            is_capital: rest
                .get(indent..)
                .and_then(|rest| rest.chars().next())
                .is_some_and(|char| char.is_uppercase() || char.is_ascii_digit()),
            is_item: false,
            is_heading: matches!(body.first(), Some(b'#' | b'|')),
            number: None,
            indent,
            marker: 0,
        };
        let digits = body
            .iter()
            .take(4)
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        match body {
            [b'-' | b'*' | b'+', b' ', ..] => line.marker = 1,
            [0xe2, 0x80, 0xa2, ..] => line.marker = 3, // •
            [b'#' | b'|' | b'>', ..] => line.marker = 1,
            _ if (1..4).contains(&digits)
                && matches!(body.get(digits), Some(b'.' | b')'))
                && matches!(body.get(digits + 1), Some(b' ' | b'\t')) =>
            {
                line.marker = digits + 1;
                line.number = rest
                    .get(indent..indent + digits)
                    .and_then(|digits| digits.parse().ok());
            }
            _ => {}
        }
        line.is_item = line.marker > 0;
        line
    }
}

impl Token {
    fn learn(&mut self, entry: Entry) {
        self.flags = entry.flags;
        self.value = entry.value;
        self.phrase = entry.phrase;
        self.stem_phrase = entry.stem_phrase;
    }

    pub(crate) fn is(&self, flags: u64) -> bool {
        self.flags & flags != 0
    }

    pub(crate) fn has(&self, marks: u8) -> bool {
        self.marks & marks != 0
    }

    pub(crate) fn is_mark(&self, mark: char) -> bool {
        self.kind == Kind::Mark && self.hash == mark as u64
    }

    /// A word of its own meaning: no function word, number or mark.
    pub(crate) fn is_content(&self) -> bool {
        self.kind == Kind::Word && !self.is(lexicon::FUNCTION)
    }

    /// A mark that ends a clause; a bracket or a quotation mark does too.
    pub(crate) fn ends_clause(&self) -> bool {
        self.kind == Kind::Mark && !self.is_mark('/') && !self.is_mark('\'')
    }
}

fn is_letter(char: char) -> bool {
    char.is_alphanumeric() || matches!(char, '\u{300}'..='\u{36f}')
}

/// Which letters of a word are capitals.
#[derive(Clone, Copy, Default)]
struct Case {
    length: u32,
    letters: u32,
    capitals: u32,
    first_is_capital: bool,
}

impl Case {
    fn add_byte(&mut self, byte: u8) {
        let capital = byte.is_ascii_uppercase();
        self.first_is_capital |= capital && self.length == 0;
        self.capitals += u32::from(capital);
        self.letters += u32::from(byte.is_ascii_alphabetic());
        self.length += 1;
    }

    fn add(&mut self, char: char) {
        let capital = char.is_uppercase();
        self.first_is_capital |= capital && self.length == 0;
        self.capitals += u32::from(capital);
        self.letters += u32::from(char.is_alphabetic());
        self.length += 1;
    }

    fn marks(&self, last: Option<u8>) -> u8 {
        let mark = |mark: u8, holds: bool| if holds { mark } else { 0 };
        let in_capitals = self.letters > 1 && self.letters == self.length && self.capitals == self.letters;
        // "URLs"
        let plural =
            last == Some(b's') && self.letters > 2 && self.length < 7 && self.capitals + 1 == self.letters;
        mark(PLURAL, matches!(last, Some(b's' | b'S')))
            | mark(CAPITALS, in_capitals || plural && self.first_is_capital)
            | mark(CAPITAL, self.first_is_capital)
    }
}

/// A number as it is being read: two spellings of one value have one hash.
#[derive(Default)]
struct Digits {
    /// The digits without leading zeros, and without trailing ones after the point, as a hash.
    state: u64,
    /// The whole part; saturates.
    value: u64,
    /// Zeros after the point that a further digit would make count.
    zeros: u32,
    count: u32,
    point: bool,
    fraction: bool,
    comma: bool,
    clock: bool,
}

impl Digits {
    fn push(&mut self, byte: u8) {
        self.count += 1;
        if self.point {
            return self.push_fraction(byte);
        }
        self.value = self
            .value
            .saturating_mul(10)
            .saturating_add(u64::from(byte - b'0'));
        if byte != b'0' || self.state != 0 {
            self.state = lexicon::step(self.state, byte);
        }
    }

    fn push_fraction(&mut self, byte: u8) {
        if byte == b'0' {
            self.zeros += 1;
            return;
        }
        if !self.fraction {
            self.fraction = true;
            self.state = lexicon::step(self.state, b'.');
        }
        self.flush_zeros();
        self.state = lexicon::step(self.state, byte);
    }

    fn flush_zeros(&mut self) {
        for _ in 0..std::mem::take(&mut self.zeros) {
            self.state = lexicon::step(self.state, b'0');
        }
    }

    fn mark(&mut self, byte: u8) {
        match byte {
            b',' => self.comma = true,
            b'.' if !self.point => self.point = true,
            // A time of day, or the second point of a version.
            _ => {
                self.fraction |= byte == b'.';
                self.clock |= byte == b':';
                self.flush_zeros();
                self.state = lexicon::step(self.state, byte);
            }
        }
    }

    fn is_whole(&self) -> bool {
        !self.fraction && !self.clock
    }

    /// A whole number hashes as its digits, so that a phrase can name it.
    fn hash(&self) -> u64 {
        if !self.is_whole() || self.value > 9_999_999_999 {
            return lexicon::finish(self.state);
        }
        let mut bytes = [b'0'; 10];
        let (mut length, mut rest) = (0, self.value);
        for slot in bytes.iter_mut().rev() {
            *slot = b'0' + (rest % 10) as u8;
            rest /= 10;
            length += 1;
            if rest == 0 {
                break;
            }
        }
        lexicon::hash(bytes.get(bytes.len() - length..).unwrap_or_default())
    }

    fn small(&self) -> u16 {
        if self.is_whole() {
            u16::try_from(self.value).unwrap_or(u16::MAX)
        } else {
            0
        }
    }

    fn marks(&self) -> u8 {
        let year = self.is_whole()
            && !self.point
            && !self.comma
            && self.count == 4
            && (1000..=2100).contains(&self.value);
        (u8::from(self.clock) * CLOCK) | (u8::from(year) * YEAR)
    }
}

/// No word.
pub(crate) static NOTHING: Token = Token {
    start: 0,
    end: 0,
    hash: 0,
    stem: 0,
    flags: UNKNOWN.flags,
    value: 0,
    phrase: 0,
    stem_phrase: 0,
    kind: Kind::Mark,
    marks: 0,
};
