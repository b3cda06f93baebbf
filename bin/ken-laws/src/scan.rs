//! Text into tokens and sentences, in one pass that looks at each byte once and knows each word's entry in the lexicon.
//!
//! `ken_text` has words and sentences for its callers; here both come from one walk, with the punctuation, the list
//! markers and the line structure that the rubric reads, because the figure to reach is 50 MB/s.

use crate::lexicon::LEXICON;
use crate::row::{Rows, Within};
use crate::scanner::Scanner;
use crate::token::{Kind, Token, WORD};
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
    /// Blanks before the item's marker, as far as [`crate::line`] counts them.
    pub(crate) indent: u8,
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
    /// The tokens that are plain words; once those are looked up, only the unknown ones.
    plain: Vec<u32>,
}

impl Scan {
    pub(crate) fn fill(&mut self, text: &str) {
        self.tokens.clear();
        self.sentences.clear();
        self.plain.clear();
        let mut room = std::mem::take(&mut self.room);
        room.clear();
        room.extend_from_slice(text.as_bytes());
        room.extend_from_slice(&[b'\n'; MARGIN]);
        let mut letters = std::mem::take(&mut self.letters);
        letters.fill(&room);
        Scanner::new(text, &room, &letters, self).run();
        self.letters = letters;
        self.learn();
        self.stem(&room);
        self.room = room;
        self.rows.fill(&self.tokens);
    }

    /// Takes a word whose looking up can wait.
    pub(crate) fn push_plain(&mut self, start: usize, end: usize, hash: u64, marks: u32) {
        self.plain.push(self.tokens.len() as u32);
        self.tokens.push(Token {
            marks: WORD | marks,
            ..Token::plain(start, end, hash, Kind::Word)
        });
    }

    /// Looks the plain words up, one after the other without a branch, so that none waits for the memory of another.
    fn learn(&mut self) {
        let mut unknown = 0;
        for place in 0..self.plain.len() {
            let index = self.plain.get(place).copied().unwrap_or(0);
            let Some(token) = self.tokens.get_mut(index as usize) else {
                continue;
            };
            let entry = LEXICON.look_up(token.hash);
            token.learn(entry);
            if let Some(slot) = self.plain.get_mut(unknown) {
                *slot = index;
            }
            unknown += usize::from(entry.stem == 0);
        }
        self.plain.truncate(unknown);
    }

    /// Cuts the stems off the words that are unknown.
    fn stem(&mut self, room: &[u8]) {
        for &index in &self.plain {
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
