//! Finds the rubric's phrases among the words of a sentence.

use crate::lexicon::{self, Element, LEXICON, Phrase, Want, pair};
use crate::scan::{Kind, Token};

/// A phrase found: its feature, and its first and last word.
#[derive(Clone, Copy)]
pub(crate) struct Match {
    pub(crate) feature: usize,
    pub(crate) first: usize,
    pub(crate) last: usize,
}

/// Calls `found` for every phrase of the rubric that starts at word `index`. A phrase has at most ten words and five
/// optional ones, so the cost per word is bounded.
pub(crate) fn starting_at(tokens: &[Token], index: usize, found: &mut impl FnMut(Match)) {
    let Some(token) = tokens.get(index) else { return };
    let next = tokens.get(index + 1).map_or(0, |next| next.hash);
    chain(tokens, index, token.phrase, found);
    chain(tokens, index, token.stem_phrase, found);
    if token.is(lexicon::PAIRED) {
        chain(
            tokens,
            index,
            LEXICON.look_up(pair(token.hash, next)).phrase,
            found,
        );
    }
    each_bit(token.flags & LEXICON.starting_lists, |bit| {
        let list = bit.trailing_zeros() as usize;
        chain(
            tokens,
            index,
            LEXICON.by_list.get(list).copied().unwrap_or(0),
            found,
        );
    });
    each_bit(token.flags & LEXICON.paired_lists, |bit| {
        chain(tokens, index, LEXICON.look_up(pair(bit, next)).phrase, found);
    });
}

fn each_bit(bits: u64, mut with: impl FnMut(u64)) {
    let mut rest = bits;
    while rest != 0 {
        with(rest & rest.wrapping_neg());
        rest &= rest - 1;
    }
}

fn chain(tokens: &[Token], index: usize, head: u16, found: &mut impl FnMut(Match)) {
    let mut number = head;
    while let Some(phrase) = usize::from(number)
        .checked_sub(1)
        .and_then(|index| LEXICON.phrases.get(index))
    {
        if let Some(end) = elements(phrase).and_then(|elements| end_of(tokens, index, elements)) {
            found(Match {
                feature: usize::from(phrase.feature),
                first: index,
                last: end - 1,
            });
        }
        number = phrase.next;
    }
}

fn elements(phrase: &Phrase) -> Option<&'static [Element]> {
    let first = usize::from(phrase.first);
    LEXICON.elements.get(first..first + usize::from(phrase.length))
}

/// Where the phrase ends that starts at `index`, if it stands there.
fn end_of(tokens: &[Token], index: usize, elements: &[Element]) -> Option<usize> {
    let Some((element, rest)) = elements.split_first() else {
        return Some(index);
    };
    let here = tokens.get(index).filter(|token| fits(token, element.want));
    let taken = here.and_then(|_| end_of(tokens, index + 1, rest));
    match taken {
        None if element.optional => end_of(tokens, index, rest),
        taken => taken,
    }
}

fn fits(token: &Token, want: Want) -> bool {
    match want {
        _ if token.kind == Kind::Mark => false,
        Want::Word(hash) => token.hash == hash,
        Want::Stem(stem) => token.stem == stem,
        Want::List(bit) => token.is(bit),
        Want::Any => true,
    }
}
