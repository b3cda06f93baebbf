//! Text into tokens and sentences, in one pass that looks at each byte once and knows each word's entry in the lexicon.
//!
//! `ken_text` has words and sentences for its callers; here both come from one walk, with the punctuation, the list
//! markers and the line structure that the rubric reads, because the figure to reach is 50 MB/s.

use crate::lexicon::LEXICON;
use crate::row::{Rows, Within};
use crate::scanner::Scanner;
use crate::token::Token;
use crate::word::{Letters, Short};

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

/// Bytes that may be read past the end of a text.
pub(crate) const MARGIN: usize = 32;

/// The scanned text. Kept and refilled, so that a co-process allocates nothing per line.
#[derive(Default)]
pub(crate) struct Scan {
    pub(crate) tokens: Vec<Token>,
    pub(crate) sentences: Vec<Sentence>,
    rows: Rows,
    /// The text again, with line feeds after it, so that a word at its end is read as any other.
    room: Vec<u8>,
    letters: Letters,
    /// The tokens that are plain words and that the lexicon does not know, so many of them.
    unknown: Vec<u32>,
    unknown_count: usize,
}

impl Scan {
    pub(crate) fn fill(&mut self, text: &str) {
        self.tokens.clear();
        self.sentences.clear();
        self.unknown_count = 0;
        self.unknown.resize(self.unknown.len().max(text.len() / 2 + 1), 0); // a word ends with something else
        let mut room = std::mem::take(&mut self.room);
        room.clear();
        room.extend_from_slice(text.as_bytes());
        room.extend_from_slice(&[b'\n'; MARGIN]);
        let mut letters = std::mem::take(&mut self.letters);
        letters.fill(&room);
        Scanner::new(text, &room, &letters, self).run();
        self.letters = letters;
        self.stem(&room);
        self.room = room;
        self.rows.fill(&self.tokens);
    }

    /// Looks a plain word up without a branch, so that none waits for the memory of another; its stem, if it is not known, can
    /// wait.
    pub(crate) fn push_word(&mut self, start: usize, end: usize, hash: u64, marks: u32) {
        let entry = LEXICON.look_up(hash);
        if let Some(slot) = self.unknown.get_mut(self.unknown_count) {
            *slot = self.tokens.len() as u32;
        }
        self.unknown_count += usize::from(entry.stem == 0);
        let token = Token::word(start, end, hash, entry);
        self.tokens.push(Token {
            marks: token.marks | marks,
            ..token
        });
    }

    /// Cuts the stems off the words that are unknown.
    fn stem(&mut self, room: &[u8]) {
        for &index in self.unknown.iter().take(self.unknown_count) {
            let Some(token) = self.tokens.get_mut(index as usize) else {
                continue;
            };
            let sixteen = room
                .get(token.start as usize..)
                .and_then(|rest| rest.first_chunk());
            if let Some(bytes) = sixteen.filter(|_| token.end - token.start > 2) {
                let (short, _) = Short::read(*bytes, token.end - token.start);
                token.learn_stem(short.stem(token.hash));
            }
        }
    }

    pub(crate) fn tokens_of(&self, sentence: &Sentence) -> &[Token] {
        self.tokens
            .get(sentence.first as usize..sentence.last as usize)
            .unwrap_or_default()
    }

    pub(crate) fn rows_of(&self, sentence: &Sentence) -> Within<'_> {
        self.rows.within(sentence.first as usize..sentence.last as usize)
    }
}
