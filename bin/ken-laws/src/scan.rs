//! Splits a text into tokens and sentences, with the punctuation, list markers and line structure that the rubric needs.

use std::borrow::Cow;

use crate::lexicon::{self as lex, NO_LETTERS, extend, hash, look_up, stem_of};
use crate::line::Line;
use crate::token::{ADDRESS, CAPITAL, CAPITALS, CLOCK, Kind, PAST_SHAPED, PLURAL, QUOTED, Token, YEAR};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Period,
    Question,
    Exclamation,
    /// At the end of a line or the text without a mark, as in a heading, a label or a greeting.
    None,
}

#[derive(Clone, Copy)]
pub(crate) struct Sentence {
    /// The range of its tokens.
    first: usize,
    last: usize,
    /// Byte offsets in the text.
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) ending: Ending,
    /// The number of the list item that this sentence opens: `3.` or `3)` at the start of a line.
    pub(crate) item: Option<u16>,
    /// Blanks before the item's marker, at most 16.
    pub(crate) indent: usize,
    /// Whether it opens an item of a list without numbers.
    pub(crate) bullet: bool,
    /// Whether it is a heading or a row of a table.
    pub(crate) heading: bool,
}

/// The scanned text.
#[derive(Default)]
pub(crate) struct Scan {
    tokens: Vec<Token>,
    pub(crate) sentences: Vec<Sentence>,
    /// Scratch space for a word in lower case, and for its stem.
    lower: String,
    stem: String,
}

impl Scan {
    pub(crate) fn new(text: &str) -> Scan {
        let mut scan = Scan::default();
        scan.read(text);
        scan
    }

    /// Reads another text, in the memory of the last one.
    pub(crate) fn read(&mut self, text: &str) {
        let mut scan = std::mem::take(self);
        scan.tokens.clear();
        scan.sentences.clear();
        scan.tokens.reserve(text.len() / 5); // a word and its blank have at least about five bytes
        let mut scanner = Scanner { text, scan, ..Scanner::default() };
        scanner.run();
        *self = scanner.scan;
    }

    pub(crate) fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    pub(crate) fn tokens_of(&self, sentence: &Sentence) -> &[Token] {
        self.tokens.get(sentence.first..sentence.last).unwrap_or_default()
    }
}

/// The state while a text is scanned.
#[derive(Default)]
struct Scanner<'a> {
    text: &'a str,
    at: usize,
    scan: Scan,
    /// Where the current sentence starts.
    first_token: usize,
    line_start: usize,
    item: Option<u16>,
    item_start: Option<usize>,
    indent: usize,
    bullet: bool,
    heading: bool,
    /// The token after an opening quotation mark, and the mark that closes it.
    quote: Option<(usize, char)>,
    in_code: bool,
}

impl Scanner<'_> {
    fn run(&mut self) {
        self.open_line();
        while let Some(char) = self.char_at(self.at) {
            match char {
                ' ' => self.at += 1,
                '\n' => self.line(),
                'a'..='z' | 'A'..='Z' => self.word(),
                char if is_letter(char) && !char.is_ascii_digit() => self.word(),
                '0'..='9' => self.number(self.at),
                char if char.is_whitespace() || char.is_control() => self.at += char.len_utf8(),
                char => self.mark(char),
            }
        }
        self.close(Ending::None);
    }

    fn rest(&self, at: usize) -> &str {
        self.text.get(at..).unwrap_or_default()
    }

    fn char_at(&self, at: usize) -> Option<char> {
        match self.text.as_bytes().get(at) {
            Some(byte) if byte.is_ascii() => Some(char::from(*byte)),
            _ => self.rest(at).chars().next(),
        }
    }

    fn letter_at(&self, at: usize) -> bool {
        self.char_at(at).is_some_and(|char| char.is_alphabetic() || char == '_')
    }

    fn digit_at(&self, at: usize) -> bool {
        self.char_at(at).is_some_and(|char| char.is_ascii_digit())
    }

    /// The tokens of the current sentence.
    fn open_tokens(&self) -> &[Token] {
        self.scan.tokens.get(self.first_token..).unwrap_or_default()
    }

    // Words

    /// Reads a word. Nearly all words consist of ASCII letters; if such a word is in the lexicon, it is not copied to lower case.
    fn word(&mut self) {
        let start = self.at;
        let rest = self.text.as_bytes().get(start..).unwrap_or_default();
        let (mut word, mut is_small, mut length) = (NO_LETTERS, true, 0);
        for byte in rest {
            let lower = LOWER[usize::from(*byte)];
            if lower == 0 {
                break;
            }
            word = extend(word, lower);
            is_small &= *byte >= b'a'; // digits, capitals and "_" come before the small letters
            length += 1;
        }
        if matches!(rest.get(length), Some(128..|b'\''| b':')) {
            return self.long_word();
        }
        self.at += length;
        let spelled = self.text.get(start..self.at).unwrap_or_default();
        let mut token = Token::new(start, self.at, word, Kind::Word);
        match look_up(word) {
            Some(entry) => token.learn(entry),
            None if is_small => token.stem = stem_of(spelled, &mut self.scan.stem),
            None => {
                let Scan { lower, stem, .. } = &mut self.scan;
                lower.clear();
                lower.push_str(spelled);
                lower.make_ascii_lowercase();
                token.stem = stem_of(lower, stem);
            }
        }
        token.marks = if is_small { shape_of(spelled) } else { marks_of(spelled) };
        self.scan.tokens.push(token);
    }

    /// Reads a word that may have an apostrophe or letters beyond ASCII, or may be the beginning of an address.
    fn long_word(&mut self) {
        let start = self.at;
        let mut lower = std::mem::take(&mut self.scan.lower);
        lower.clear();
        let mut apostrophe = false;
        while let Some(char) = self.char_at(self.at) {
            let joins = matches!(char, '\'' | '\u{2019}') && self.letter_at(self.at + char.len_utf8());
            if joins {
                lower.push('\'');
            } else if char.is_ascii_alphanumeric() {
                lower.push(char.to_ascii_lowercase());
            } else if is_letter(char) {
                lower.extend(char.to_lowercase());
            } else {
                break;
            }
            apostrophe |= joins;
            self.at += char.len_utf8();
        }
        if self.rest(self.at).starts_with("://") {
            self.address(start);
        } else if !(apostrophe && self.contraction(start)) {
            self.push_word(start, self.at, &lower);
        }
        self.scan.lower = lower;
    }

    /// Reads "isn't" as "is" and "not". Returns false for a possessive.
    fn contraction(&mut self, start: usize) -> bool {
        let text = self.text;
        let Some(word) = text.get(start..self.at) else {
            return false;
        };
        let Some(parts) = ken_text::expand(word) else {
            return false;
        };
        let (middle, end) = (start + parts.stem, self.at);
        let first = parts.first(word).to_lowercase();
        self.push_word(start, middle, &first);
        self.push_word(middle, end, parts.second);
        true
    }

    /// Adds a word; `lower` is its form in the lexicon.
    fn push_word(&mut self, start: usize, end: usize, lower: &str) {
        let mut token = Token::new(start, end, hash(lower.as_bytes()), Kind::Word);
        match look_up(token.hash) {
            Some(entry) => token.learn(entry),
            None => token.stem = stem_of(lower, &mut self.scan.stem),
        }
        token.marks = marks_of(self.text.get(start..end).unwrap_or_default());
        self.scan.tokens.push(token);
    }

    fn address(&mut self, start: usize) {
        let rest = self.rest(self.at);
        let length = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let address = rest.get(..length).unwrap_or_default();
        self.at += address.trim_end_matches(['.', ',', ')', ';', '!', '?', '"']).len().max(3);
        let mut token = Token::new(start, self.at, start as u64, Kind::Word);
        token.marks = ADDRESS;
        self.scan.tokens.push(token);
    }

    // Numbers

    /// Whether the dash at `start` is the sign of a number: after a blank, directly before a digit, and not a range ("5 -7").
    fn is_sign(&self, start: usize) -> bool {
        let after_blank =
            self.text.get(..start).is_none_or(|before| before.is_empty() || before.ends_with(char::is_whitespace));
        after_blank && self.digit_at(self.at) && self.open_tokens().last().is_none_or(|last| last.kind != Kind::Number)
    }

    /// Reads a number whose digits begin at the current position; the bytes from `start` to there are its sign.
    fn number(&mut self, start: usize) {
        let digits = self.at;
        while self.digit_at(self.at)
            || matches!(self.char_at(self.at), Some('.' | ',' | ':')) && self.digit_at(self.at + 1)
        {
            self.at += 1;
        }
        let spelled = self.text.get(digits..self.at).unwrap_or_default();
        let value = canonical(spelled);
        let ordinal = ["st", "nd", "rd", "th"].iter().any(|ending| self.rest(self.at).starts_with(ending));
        let ordinal = ordinal && !self.letter_at(self.at + 2);
        self.at += if ordinal { 2 } else { 0 };
        let negative = start < digits && value != "0";
        let whole: Option<u64> = value.parse().ok().filter(|_| !negative);
        let sized = hash(value.as_bytes());
        let mut token = Token::new(start, self.at, if negative { !sized } else { sized }, Kind::Number);
        if let Some(entry) = look_up(token.hash) {
            token.learn(entry); // phrases can start with numbers
        }
        token.stem = token.hash;
        token.value = whole.map_or(0, |whole| u16::try_from(whole).unwrap_or(u16::MAX));
        let year = spelled.len() == 4 && whole.is_some_and(|whole| (1000..=2100).contains(&whole));
        token.marks = if ordinal || spelled.contains(':') { CLOCK } else { 0 } | if year { YEAR } else { 0 };
        self.scan.tokens.push(token);
    }

    // Marks

    fn mark(&mut self, char: char) {
        let start = self.at;
        self.at += char.len_utf8();
        match char {
            '-' if self.letter_at(self.at) && start > 0 && self.last_end() == start => {} // inside a word
            '-' | '−' if self.is_sign(start) => self.number(start),
            '%' | '$' | '°' | '€' | '£' | '¥' => self.symbol(start),
            '"' | '`' => self.quotation(start, char),
            '“' | '«' | '„' => self.open_quotation(start, char),
            '”' | '»' => self.close_quotation(start),
            '.' if self.is_abbreviated(start) => {}
            '.' | '!' | '?' | '…' | '。' | '！' | '？' => self.terminal(start, char),
            _ => self.push_mark(start, char),
        }
    }

    fn push_mark(&mut self, start: usize, char: char) {
        self.scan.tokens.push(Token::mark(start, self.at, char));
    }

    fn last_end(&self) -> usize {
        self.scan.tokens.last().map_or(0, |token| token.end)
    }

    fn symbol(&mut self, start: usize) {
        let spelled = self.text.get(start..self.at).unwrap_or_default();
        let mut token = Token::new(start, self.at, hash(spelled.as_bytes()), Kind::Symbol);
        if let Some(entry) = look_up(token.hash) {
            token.learn(entry);
        }
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

    /// Whether the period at `start` belongs to the word before it.
    fn is_abbreviated(&self, start: usize) -> bool {
        let Some((last, before)) = self.open_tokens().split_last() else {
            return false;
        };
        if last.kind != Kind::Word || last.end != start {
            return false;
        }
        if last.end - last.start > 1 {
            return last.is(lex::ABBREVIATION) && !last.is(lex::VERB) && self.goes_on_after(last, before.last());
        }
        if self.letter_at(self.at) {
            return true; // "e.g."
        }
        let inner = self.text.get(..last.start).is_some_and(|text| text.ends_with('.'));
        let after = before.last().is_none_or(|before| before.has(CAPITAL) || before.is(lex::ABBREVIATION));
        inner && !ken_text::opens_sentence(self.rest(self.at)) || last.has(CAPITAL) && after && !last.is(lex::SELF)
    }

    /// Whether the sentence continues after the period of an abbreviation, as in "No. 5" and "Ms. Smith" but not in "5 ms. It".
    fn goes_on_after(&self, abbreviation: &Token, before: Option<&Token>) -> bool {
        if abbreviation.is(lex::ATTACHED) || abbreviation.has(CAPITAL) && abbreviation.is(lex::TITLE) {
            return true;
        }
        let rest = self.rest(self.at);
        let is_unit = abbreviation.is(lex::UNIT) && before.is_some_and(|before| before.kind == Kind::Number);
        let digit = rest.trim_start().starts_with(|char: char| char.is_ascii_digit());
        !(ken_text::opens_sentence(rest) || is_unit && digit)
    }

    fn terminal(&mut self, start: usize, char: char) {
        // Closing marks and further terminals belong to the sentence.
        while matches!(self.char_at(self.at), Some('.' | '!' | '?')) {
            self.at += 1;
        }
        let mut end = self.at;
        while let Some(char) = self.char_at(end) {
            let closes = matches!(char, '”' | ')' | ']' | '\'');
            if !closes && (char != '"' || self.quote.is_none_or(|(_, open)| open != '"')) {
                break;
            }
            end += char.len_utf8();
        }
        if !self.ends_here(end, char) {
            return self.push_mark(start, '.');
        }
        while self.at < end
            && let Some(char) = self.char_at(self.at)
        {
            self.mark(char);
        }
        self.close(match char {
            '?' | '？' => Ending::Question,
            '!' | '！' => Ending::Exclamation,
            _ => Ending::Period,
        });
    }

    /// Whether a terminal, such as a period, ends the sentence here. It does if blanks follow. If a small letter comes after them,
    /// the sentence continues only after a quotation or a short word: "approx. five" is one sentence, but "it works. we shipped
    /// it" is two.
    fn ends_here(&self, end: usize, char: char) -> bool {
        let mut rest = self.rest(end).chars();
        match rest.next() {
            None | Some('\n') => true,
            Some(blank) if blank.is_whitespace() => {
                let next = rest.find(|char| !char.is_whitespace());
                !next.is_some_and(char::is_lowercase) || end == self.at && !self.ends_short()
            }
            Some(_) => matches!(char, '。' | '！' | '？'),
        }
    }

    /// Whether the last word looks like an abbreviation that is in no list.
    fn ends_short(&self) -> bool {
        let short = |token: &Token| token.kind == Kind::Word && token.end - token.start < 3 && token.classes == 0;
        self.scan.tokens.last().is_some_and(short)
    }

    /// Ends the current sentence.
    fn close(&mut self, ending: Ending) {
        let last = self.scan.tokens.len();
        if let Some(first_byte) = self.open_tokens().first().map(|token| token.start) {
            let end = if ending == Ending::None { self.last_end() } else { self.at };
            self.scan.sentences.push(Sentence {
                first: self.first_token,
                last,
                start: self.item_start.take().unwrap_or(first_byte),
                end,
                ending,
                item: self.item.take(),
                indent: self.indent,
                bullet: std::mem::take(&mut self.bullet),
                heading: self.heading,
            });
        }
        self.first_token = last;
    }

    // Lines

    fn line(&mut self) {
        let line = self.text.get(self.line_start..self.at).unwrap_or_default();
        self.at += 1;
        let next = Line::new(self.rest(self.at));
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

    /// Whether the sentence ends with this line without a terminal.
    fn breaks(&self, line: &str, next: &Line) -> bool {
        let last = line.trim_end().chars().next_back();
        let greeting = last == Some(',') && line.len() < 30 && self.open_tokens().len() < 6;
        next.is_blank || next.marker > 0 || last == Some(':') || line.len() < 50 && next.is_capital || greeting
    }

    /// Reads a heading mark, a list marker or a code fence at the beginning of a line.
    fn open_line(&mut self) {
        let rest = self.rest(self.at);
        let line = Line::new(rest);
        let is_fence = rest.starts_with("```");
        if is_fence || self.in_code {
            if is_fence {
                // A fence that is never closed skips only its own line. Each byte is searched only once here.
                let opens = !self.in_code && rest.contains("\n```");
                self.close(Ending::None);
                self.in_code = opens;
            }
            self.at += self.rest(self.at).find('\n').unwrap_or(self.rest(self.at).len());
        } else if line.marker > 0 && self.open_tokens().is_empty() {
            self.item = line.number;
            self.bullet = line.number.is_none();
            self.heading = line.is_heading;
            self.item_start = Some(self.at + line.indent);
            self.indent = line.indent;
            self.at += line.indent + line.marker;
        }
    }
}

/// For each byte of an ASCII word, the byte in lower case; 0 for other bytes.
static LOWER: [u8; 256] = {
    let (mut lower, mut byte) = ([0; 256], 0);
    while byte < 128u8 {
        if byte.is_ascii_alphanumeric() || byte == b'_' {
            lower[byte as usize] = byte.to_ascii_lowercase();
        }
        byte += 1;
    }
    lower
};

fn is_letter(char: char) -> bool {
    char.is_alphanumeric() || char == '_' || matches!(char, '\u{300}'..='\u{36f}')
}

/// The marks of a word by its spelling.
fn shape_of(word: &str) -> u32 {
    match word.as_bytes() {
        [.., b's' | b'S'] => PLURAL,
        [.., b'e', b'd'] => PAST_SHAPED,
        _ => 0,
    }
}

fn marks_of(word: &str) -> u32 {
    let shape = shape_of(word);
    if word.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return shape;
    }
    let (mut length, mut letters, mut capitals) = (0, 0, 0);
    for char in word.chars() {
        length += 1;
        letters += u32::from(char.is_alphabetic());
        capitals += u32::from(char.is_uppercase());
    }
    let first = word.starts_with(char::is_uppercase);
    let throughout = letters > 1 && letters == length && capitals == letters;
    let plural_of_capitals = word.ends_with('s') && letters > 2 && length < 7 && capitals + 1 == letters && first; // "URLs"
    let all = if throughout || plural_of_capitals { CAPITALS } else { 0 };
    shape | all | if first { CAPITAL } else { 0 }
}

/// A unique spelling for each value: without commas, leading zeros of integers and trailing zeros of fractions.
fn canonical(digits: &str) -> Cow<'_, str> {
    if !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return digits.into();
    }
    let plain = digits.replace(',', "");
    if plain.contains(':') || plain.matches('.').count() > 1 {
        return plain.into(); // a time of day, a version
    }
    let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    let whole = if whole.is_empty() { "0" } else { whole };
    match fraction {
        "" => whole.to_owned().into(),
        fraction => format!("{whole}.{fraction}").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_one_value_are_one() {
        for (left, right) in [("1,000", "1000"), ("007", "7"), ("2.50", "2.5"), ("0.0", "0")] {
            assert_eq!(canonical(left), canonical(right));
        }
        assert_eq!(canonical("10:30"), "10:30");
        assert_eq!(canonical("1.2.0"), "1.2.0");
    }

    #[test]
    fn capitals_are_marked() {
        assert_eq!(marks_of("URLs"), PLURAL | CAPITALS | CAPITAL);
        assert_eq!(marks_of("NASA"), CAPITALS | CAPITAL);
        assert_eq!(marks_of("I"), CAPITAL);
        assert_eq!(marks_of("kHz"), 0);
    }
}
