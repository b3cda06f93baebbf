//! Text into tokens and sentences, in one pass that looks at each byte once and knows each word's entry in the lexicon.
//!
//! `ken_text` has words and sentences for its callers; here both come from one walk, with the punctuation, the list
//! markers and the line structure that the rubric reads, because the figure to reach is 50 MB/s.

use crate::scanner::Scanner;
use crate::token::Token;

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
pub(crate) const MARGIN: usize = 16;

/// The scanned text. Kept and refilled, so that a co-process allocates nothing per line.
#[derive(Default)]
pub(crate) struct Scan {
    pub(crate) tokens: Vec<Token>,
    pub(crate) sentences: Vec<Sentence>,
    /// The text again, with line feeds after it, so that a word at its end is read as any other.
    room: Vec<u8>,
}

impl Scan {
    pub(crate) fn fill(&mut self, text: &str) {
        self.tokens.clear();
        self.sentences.clear();
        let mut room = std::mem::take(&mut self.room);
        room.clear();
        room.extend_from_slice(text.as_bytes());
        room.extend_from_slice(&[b'\n'; MARGIN]);
        Scanner::new(text, &room, self).run();
        self.room = room;
    }

    pub(crate) fn tokens_of(&self, sentence: &Sentence) -> &[Token] {
        self.tokens
            .get(sentence.first as usize..sentence.last as usize)
            .unwrap_or_default()
    }
}
