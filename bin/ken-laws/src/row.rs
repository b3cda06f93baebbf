//! Where the tokens of some kinds stand, one bit for each token, so that the others need not be looked at.

use std::ops::Range;

use crate::bits::Bits;
use crate::token::{CLASSES, Token};

/// Tokens of a row.
const ROW: usize = 64;

/// The rows of a text.
#[derive(Default)]
pub(crate) struct Rows(Vec<Row>);

/// Which of up to sixty-four tokens are so: one set for each bit of the byte of the marks that is [`CLASSES`].
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) capitals: u64,
    quoted: u64,
    starts: u64,
    pairs: u64,
    follows: u64,
    pub(crate) exact: u64,
    pub(crate) content: u64,
    /// Where a phrase may start: with a word that starts one, or with two that do.
    pub(crate) phrases: u64,
}

/// The rows of one sentence; its tokens count from 0.
#[derive(Clone, Copy)]
pub(crate) struct Within<'a> {
    rows: &'a [Row],
    /// Tokens of the first row.
    first: usize,
    end: usize,
}

impl Rows {
    pub(crate) fn fill(&mut self, tokens: &[Token]) {
        self.0.clear();
        self.0.extend(tokens.chunks(ROW).map(Row::of));
        let mut follows = 0; // of the row behind
        for row in self.0.iter_mut().rev() {
            let next = row.follows >> 1 | follows << (ROW - 1);
            row.phrases = (row.starts | row.pairs & next) & !row.quoted;
            follows = row.follows;
        }
    }

    pub(crate) fn within(&self, tokens: Range<usize>) -> Within<'_> {
        let first = tokens.start / ROW;
        let rows = self.0.get(first..tokens.end.div_ceil(ROW));
        Within {
            rows: rows.unwrap_or_default(),
            first: tokens.start - first * ROW,
            end: tokens.end - first * ROW,
        }
    }
}

impl Row {
    fn of(tokens: &[Token]) -> Row {
        let mut sets = [[0; 8]; 8];
        let (eights, rest) = tokens.as_chunks::<8>();
        let mut note = |place: usize, bytes: u64| {
            for (set, byte) in sets.iter_mut().zip(transposed(bytes).to_le_bytes()) {
                set[place % 8] = byte;
            }
        };
        for (place, eight) in eights.iter().enumerate() {
            note(place, classes(eight));
        }
        if !rest.is_empty() {
            note(eights.len(), classes(rest));
        }
        let [capitals, quoted, _, starts, pairs, follows, exact, content] = sets.map(u64::from_le_bytes);
        Row {
            capitals,
            quoted,
            starts,
            pairs,
            follows,
            exact,
            content,
            phrases: 0,
        }
    }
}

/// The classes of up to eight tokens, a byte each.
#[inline(always)]
fn classes(tokens: &[Token]) -> u64 {
    let tokens = tokens.iter().rev();
    tokens.fold(0, |bytes, token| {
        bytes << 8 | u64::from(token.marks.to_le_bytes()[CLASSES])
    })
}

/// Eight bytes of eight bits with rows and columns exchanged (Warren, "Hacker's Delight").
const fn transposed(bytes: u64) -> u64 {
    let odd = (bytes ^ bytes >> 7) & 0x00aa_00aa_00aa_00aa;
    let bytes = bytes ^ odd ^ odd << 7;
    let odd = (bytes ^ bytes >> 14) & 0x0000_cccc_0000_cccc;
    let bytes = bytes ^ odd ^ odd << 14;
    let odd = (bytes ^ bytes >> 28) & 0x0000_0000_f0f0_f0f0;
    bytes ^ odd ^ odd << 28
}

impl<'a> Within<'a> {
    /// The tokens that a set of the rows has, in order.
    #[inline]
    pub(crate) fn each(self, set: impl Fn(&Row) -> u64 + 'a) -> impl Iterator<Item = usize> + 'a {
        let mut rows = self.rows.iter();
        let first = rows.next().map_or(0, &set);
        let mut bits = Bits(first & u64::MAX << self.first);
        let mut base = 0;
        std::iter::from_fn(move || {
            loop {
                if let Some(place) = bits.next() {
                    let place = base + place;
                    return (place < self.end).then(|| place - self.first);
                }
                bits = Bits(set(rows.next()?));
                base += ROW;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::Scan;
    use crate::token::Kind;

    #[test]
    fn the_tokens_of_a_set_are_those_that_have_its_mark() {
        let text = "Ash bent 4 mm, and the two others (oak) not. ".repeat(40) + &"so it is 5 ".repeat(90);
        let mut scan = Scan::default();
        scan.fill(&text);
        assert!(scan.sentences.len() > 40);
        for sentence in &scan.sentences {
            let (tokens, rows) = (scan.tokens_of(sentence), scan.rows_of(sentence));
            let are = |is: fn(&Token) -> bool| {
                let places = tokens.iter().enumerate().filter(move |(_, token)| is(token));
                places.map(|(place, _)| place).collect::<Vec<_>>()
            };
            assert!(rows.each(|row| row.exact).eq(are(
                |token| token.kind == Kind::Number || token.is(crate::lexicon::NUMERAL)
            )));
            assert!(
                rows.each(|row| row.content)
                    .eq(are(|token| token.kind == Kind::Number || token.is_content()))
            );
            assert!(
                rows.each(|row| row.capitals)
                    .eq(are(|token| token.has(crate::token::CAPITAL)))
            );
        }
    }
}
