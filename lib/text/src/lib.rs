//! English text as the protocol tools see it: words and sentences with byte spans, contractions, negation scope, and one
//! normal form. Pure functions, linear in the text, no tables beyond closed word classes.

mod contraction;
mod negation;
mod normal;
mod sentence;
mod word;

pub use contraction::{Contraction, expand};
pub use negation::{MAX_SCOPE, is_contrast, is_negator, negated};
pub use normal::{fold, is_folded};
pub use sentence::{Sentence, sentences};
pub use word::{Word, is_stop_word, words};

/// A half-open range of bytes of the text it came from; both ends are character boundaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    pub start: usize,
    pub end: usize,
}

impl Span {
    /// The text that the span covers; empty when the span is not of this text.
    pub fn of(self, text: &str) -> &str {
        text.get(self.start..self.end).unwrap_or_default()
    }

    pub fn len(self) -> usize {
        self.end - self.start
    }

    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
}
