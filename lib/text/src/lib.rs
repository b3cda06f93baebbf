//! English text for the protocol tools: words and sentences with byte spans, contractions, negation scope, stems and a
//! normal form. All functions are pure and take linear time.

mod contraction;
mod fence;
mod front_matter;
mod nearest;
mod negation;
mod normal;
mod opposite;
mod section;
mod sentence;
mod stem;
mod terminal;
mod word;

pub use contraction::{Contraction, expand};
pub use fence::Fence;
pub use front_matter::{FrontMatter, front_matter};
pub use nearest::nearest;
pub use negation::{MAX_SCOPE, is_contrast, is_negator, negated};
pub use normal::{fold, is_folded};
pub use opposite::{Opposite, Opposition, all_opposites, opposites};
pub use section::{Section, lines_of_text, sections};
pub use sentence::{Sentence, opens_sentence, sentences};
pub use stem::{index_stems, is_particle, push_index_stem, push_stem, same_stem, stem, verb_of};
pub use terminal::{TerminalBytes, for_terminal, visible, visible_line};
pub use word::{Word, is_filler, is_stop_word, words};

/// A half-open range of bytes of a text. Both ends are character boundaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    pub start: usize,
    pub end: usize,
}

impl Span {
    /// Returns the part of `text` in this range; empty if the range is not valid for `text`.
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

/// Returns the first `bytes` bytes of a text, or up to three fewer so that no character is cut.
pub fn head(text: &str, bytes: usize) -> &str {
    // Characters have at most four bytes.
    let ends = (0..=3).filter_map(|back| bytes.min(text.len()).checked_sub(back));
    ends.into_iter().find_map(|end| text.get(..end)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::head;

    #[test]
    fn a_head_ends_between_characters() {
        assert_eq!([0, 1, 2, 3, 4, 5, 9].map(|bytes| head("a€b", bytes)), ["", "a", "a", "a", "a€", "a€b", "a€b"]);
        assert_eq!([3, 4].map(|bytes| head("🦀", bytes)), ["", "🦀"]);
    }
}
