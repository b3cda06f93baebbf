//! Splits a text into words, marks, emoticons and emoji, with byte spans and folded forms.

/// Maximum length of a folded form in bytes. Longer words are distinguished only by their first bytes.
const MAX_FORM: usize = 24;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Word,
    /// A run of one punctuation mark, an emoticon or an emoji.
    Mark,
}

/// A token. It is small, because a text contains many tokens. Offsets have 32 bits, and no input is longer than that
/// allows.
#[derive(Debug, Clone, Copy)]
pub struct Token {
    start: u32,
    end: u32,
    pub kind: Kind,
    /// Whether it has two or more letters, all of them capitals.
    pub is_caps: bool,
    /// Whether it has two or more letters, and only the first is a capital.
    pub is_title: bool,
    /// If a letter occurs three or more times in a row, as in "soooo": the index of its second occurrence in the form.
    pub stretched: Option<u8>,
    /// The number of repetitions of a mark; 1 for a word.
    pub count: u32,
    form: [u8; MAX_FORM],
    len: u8,
}

impl Token {
    fn new(kind: Kind, start: usize) -> Token {
        Token {
            start: start as u32,
            end: start as u32,
            kind,
            is_caps: false,
            is_title: false,
            stretched: None,
            count: 1,
            form: [0; MAX_FORM],
            len: 0,
        }
    }

    /// Returns the byte offset of its first character. Start and end are character boundaries.
    pub fn start(&self) -> usize {
        self.start as usize
    }

    pub fn end(&self) -> usize {
        self.end as usize
    }

    fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Returns the folded form: lower case, straight apostrophes, a letter at most twice in a row, a mark at most three
    /// times, an emoji once.
    pub fn form(&self) -> &[u8] {
        self.form.get(..self.len()).unwrap_or_default()
    }

    /// Returns the form as 64-bit words, padded with zeros.
    pub fn words(&self) -> impl Iterator<Item = u64> {
        let words = self.form.chunks_exact(8).take(self.len().div_ceil(8));
        words.map(|word| word.try_into().map_or(0, u64::from_le_bytes))
    }

    pub fn is(&self, form: &str) -> bool {
        self.form() == form.as_bytes()
    }

    /// Returns the word with the stretched letter only once: "so" for "soooo".
    pub fn relaxed(&self) -> Token {
        let mut token = *self;
        if let Some(place) = self.stretched.and_then(|place| token.form.get_mut(usize::from(place)..)) {
            place.rotate_left(1);
            token.len -= 1;
        }
        // Clear the bytes that were rotated to the end, because the 64-bit words also include bytes after the form.
        if let Some(rest) = token.form.get_mut(usize::from(token.len)..) {
            rest.fill(0);
        }
        token
    }

    pub fn is_word(&self) -> bool {
        self.kind == Kind::Word
    }

    fn push(&mut self, byte: u8) {
        if let Some(place) = self.form.get_mut(usize::from(self.len)) {
            *place = byte;
            self.len += 1;
        }
    }

    fn push_char(&mut self, letter: char) {
        let mut bytes = [0; 4];
        let bytes = letter.encode_utf8(&mut bytes).as_bytes();
        if self.len() + bytes.len() <= MAX_FORM {
            bytes.iter().for_each(|byte| self.push(*byte));
        }
    }

    /// Adds an ASCII letter or digit to a word, in folded form.
    fn push_ascii(&mut self, byte: u8) {
        let byte = byte.to_ascii_lowercase();
        match *self.form() {
            [.., a, b] if a == byte && b == byte => {
                self.stretched = Some(self.len - 1).filter(|_| byte.is_ascii_alphabetic());
            }
            _ => self.push(byte),
        }
    }
}

/// Iterates over the tokens of a text. White space is skipped.
pub struct Tokens<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    pub fn new(text: &'a str) -> Tokens<'a> {
        Tokens { text, at: 0 }
    }

    fn byte(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    fn char(&self) -> Option<char> {
        self.text.get(self.at..).and_then(|rest| rest.chars().next())
    }

    /// Skips characters that are not part of any token.
    fn skip_blanks(&mut self) {
        while self.at < self.text.len() {
            let byte = self.byte(0);
            match byte {
                0x21..=0x7E => return,
                0..=0x7F => self.at += 1,
                _ => match self.char() {
                    Some(letter) if is_invisible(letter) => self.at += letter.len_utf8(),
                    _ => return,
                },
            }
        }
    }

    fn word(&mut self) -> Token {
        self.plain_word().unwrap_or_else(|| self.any_word())
    }

    /// Reads a short word of ASCII letters and digits without stretched letters, followed by a character that cannot
    /// belong to it. Nearly all words are of this kind.
    fn plain_word(&mut self) -> Option<Token> {
        const SMALL: u8 = 0x20; // the bit that is set in small letters and digits, but not in capitals
        let rest = self.text.as_bytes().get(self.at..)?;
        let mut token = Token::new(Kind::Word, self.at);
        let (mut length, mut capitals, mut small) = (0, 0, 0);
        let (mut last, mut before) = (0, 0);
        while let Some(&byte) = rest.get(length).filter(|byte| byte.is_ascii_alphanumeric()) {
            let folded = byte | SMALL;
            if folded == last && last == before {
                return None;
            }
            *token.form.get_mut(length)? = folded;
            capitals += u32::from(byte & SMALL == 0);
            small += u32::from(byte > b'Z');
            (before, last) = (last, folded);
            length += 1;
        }
        if matches!(rest.get(length), Some(b'\'' | b'*' | 0x80..)) {
            return None;
        }
        token.len = length as u8;
        self.at += length;
        token.end = self.at as u32;
        token.is_caps = capitals >= 2 && small == 0;
        token.is_title = capitals == 1 && small > 0 && rest.first().is_some_and(u8::is_ascii_uppercase);
        Some(token)
    }

    fn any_word(&mut self) -> Token {
        let mut token = Token::new(Kind::Word, self.at);
        let (mut capitals, mut letters) = (0, 0);
        loop {
            let byte = self.byte(0);
            if byte.is_ascii_alphanumeric() {
                capitals += usize::from(byte.is_ascii_uppercase());
                letters += usize::from(byte.is_ascii_alphabetic());
                token.push_ascii(byte);
                self.at += 1;
            } else if matches!(byte, b'\'' | b'*') && self.byte(1).is_ascii_alphanumeric() {
                token.push(byte);
                self.at += 1;
            } else if byte >= 0x80 && self.wide(&mut token) {
                letters += 1;
            } else {
                break;
            }
        }
        token.end = self.at as u32;
        token.is_caps = letters >= 2 && capitals == letters;
        token
    }

    /// Adds a non-ASCII letter or apostrophe to the word, if there is one.
    fn wide(&mut self, token: &mut Token) -> bool {
        let Some(letter) = self.char() else { return false };
        let width = letter.len_utf8();
        if is_apostrophe(letter) {
            if !self.byte(width).is_ascii_alphabetic() || token.len == 0 {
                return false;
            }
            token.push(b'\'');
        } else if letter.is_alphanumeric() {
            let folded = letter.to_lowercase().next().unwrap_or(letter);
            token.push_char(folded);
        } else {
            return false;
        }
        self.at += width;
        true
    }

    fn mark(&mut self) -> Token {
        if let Some(token) = self.name().or_else(|| self.emoticon()) {
            return token;
        }
        let mut token = Token::new(Kind::Mark, self.at);
        let Some(mark) = self.char() else { return token };
        let folded = fold_mark(mark);
        token.count = 0;
        while self.char().is_some_and(|next| fold_mark(next) == folded) {
            if token.count < if folded.is_ascii() { 3 } else { 1 } {
                token.push_char(folded);
            }
            token.count += 1;
            self.at += self.char().map_or(1, char::len_utf8);
        }
        token.end = self.at as u32;
        token
    }

    /// Reads `[NAME]` and `[RELIGION]`, which replace names in the training texts.
    fn name(&mut self) -> Option<Token> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let placeholder =
            [&b"[NAME]"[..], b"[RELIGION]"].into_iter().find(|placeholder| rest.starts_with(placeholder))?;
        let mut token = Token::new(Kind::Mark, self.at);
        b"[n]".iter().for_each(|byte| token.push(*byte));
        self.at += placeholder.len();
        token.end = self.at as u32;
        Some(token)
    }

    /// Reads an emoticon: `:-)`, `;D`, `=(`, `:'(`, `<3`. Its folded form consists of eyes and mouth, without a nose.
    fn emoticon(&mut self) -> Option<Token> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let heart = [(&b"<3"[..], "<3"), (b"</3", "</3")];
        let heart = heart.into_iter().find(|(text, _)| rest.starts_with(text));
        let (width, form) = heart.map(|(text, form)| (text.len(), form)).or_else(|| face(rest))?;
        let before = self.at.checked_sub(1).and_then(|at| self.text.as_bytes().get(at));
        let is_glued = before.is_some_and(u8::is_ascii_alphanumeric);
        if is_glued && form == ":/" {
            return None; // as in http://
        }
        let mut token = Token::new(Kind::Mark, self.at);
        form.bytes().for_each(|byte| token.push(byte));
        self.at += width;
        token.end = self.at as u32;
        Some(token)
    }
}

impl Iterator for Tokens<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        self.skip_blanks();
        if self.at >= self.text.len() {
            return None;
        }
        let starts_word = match self.byte(0) {
            byte @ 0..=0x7F => byte.is_ascii_alphanumeric(),
            _ => self.char().is_some_and(|letter| letter.is_alphanumeric() && !is_apostrophe(letter)),
        };
        Some(if starts_word { self.word() } else { self.mark() })
    }
}

/// Whether this is an apostrophe. U+02BC is a letter in Unicode, but no word begins with it.
fn is_apostrophe(letter: char) -> bool {
    matches!(letter, '\u{2018}' | '\u{2019}' | '\u{02BC}')
}

/// Returns the length of an emoticon in bytes, and its plain form.
fn face(text: &[u8]) -> Option<(usize, &'static str)> {
    let eyes = *text.first().filter(|eyes| b":;=".contains(eyes))?;
    let mut at = 1;
    let tear = text.get(at) == Some(&b'\'');
    if matches!(text.get(at), Some(b'-' | b'\'' | b'^' | b'o')) {
        at += 1;
    }
    let mouth = *text.get(at)?;
    let follows_letter = text.get(at + 1).is_some_and(u8::is_ascii_alphanumeric);
    let form = match mouth {
        b'(' | b'[' if tear => ":'(",
        b')' | b']' if eyes == b';' => ";)",
        b')' | b']' | b'}' => ":)",
        b'(' | b'[' | b'{' => ":(",
        b'*' => ":*",
        b'/' | b'\\' => ":/",
        b'|' => ":|",
        _ if follows_letter || at + 1 < text.len() && text.get(at + 1) == Some(&b'/') => return None,
        b'D' => ":D",
        b'P' | b'p' => ":P",
        b'3' => ":3",
        b'O' if at == 1 => ":O",
        _ => return None,
    };
    Some((at + 1, form))
}

fn fold_mark(mark: char) -> char {
    match mark {
        '\u{201C}' | '\u{201D}' | '\u{201E}' | '\u{AB}' | '\u{BB}' => '"',
        '\u{2018}' | '\u{2019}' | '\u{02BC}' | '`' => '\'',
        '\u{2013}' | '\u{2014}' => '-',
        '\u{2026}' => '.',
        other => other,
    }
}

/// Whether a character is white space, a control character, a joiner, a variation selector or a skin tone.
fn is_invisible(letter: char) -> bool {
    letter.is_whitespace()
        || letter.is_control()
        || matches!(letter,
            '\u{AD}' | '\u{200B}'..='\u{200F}' | '\u{2060}'..='\u{2064}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}'
            | '\u{1F3FB}'..='\u{1F3FF}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forms(text: &str) -> Vec<String> {
        let form = |token: Token| String::from_utf8_lossy(token.form()).into_owned();
        Tokens::new(text).map(form).collect()
    }

    #[test]
    fn words_marks_and_emoticons_are_distinguished() {
        assert_eq!(forms("I don\u{2019}t know!!!!!"), ["i", "don't", "know", "!!!"]);
        assert_eq!(forms("Sooooo GOOD :-) <3"), ["soo", "good", ":)", "<3"]);
        assert_eq!(forms("see http://x.org :'("), ["see", "http", ":", "//", "x", ".", "org", ":'("]);
        assert_eq!(forms("[NAME] is ok\u{2026}"), ["[n]", "is", "ok", "."]);
        assert_eq!(forms("\u{1F622}\u{1F622} sh*t"), ["\u{1F622}", "sh*t"]);
        assert_eq!(forms(" \u{200B}\n"), Vec::<String>::new());
    }

    /// U+02BC counts as a letter, but begins no word. An empty word there would be an endless loop.
    #[test]
    fn every_character_is_covered_at_any_position() {
        let around = [("", ""), ("a", ""), ("", "a"), ("a", "b"), ("'", "'"), ("\u{2019}", "s")];
        for char in '\u{1}'..=char::MAX {
            for (before, after) in around {
                let text = format!("{before}{char}{after}");
                let mut end = 0;
                for token in Tokens::new(&text) {
                    assert!(token.start() >= end && token.end() > token.start(), "{text:?}");
                    end = token.end();
                }
            }
        }
    }

    #[test]
    fn capitals_and_lengthened_words_are_detected() {
        let tokens: Vec<Token> = Tokens::new("I AM HaPPy soooo").collect();
        let caps: Vec<bool> = tokens.iter().map(|token| token.is_caps).collect();
        assert_eq!(caps, [false, true, false, false]);
        assert!(tokens[3].stretched.is_some());
        assert!(tokens[3].relaxed().is("so"));
    }
}
