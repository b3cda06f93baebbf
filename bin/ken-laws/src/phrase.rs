//! Finds the rubric's phrases among the words of a sentence.

use crate::lexicon::{self, Element, LEXICON, Phrase, Traces, Want};
use crate::token::{Kind, Token};

/// A phrase found: its feature, and its first and last word.
#[derive(Clone, Copy)]
pub(crate) struct Match {
    pub(crate) feature: usize,
    pub(crate) first: usize,
    pub(crate) last: usize,
}

/// Calls `found` for every phrase of the rubric that starts at word `index` of a sentence with these traces. A phrase has at
/// most ten words and five optional ones, so the cost per word is bounded.
pub(crate) fn starting_at(tokens: &[Token], index: usize, traces: &Traces, found: &mut impl FnMut(Match)) {
    let Some(token) = tokens.get(index) else { return };
    let next = tokens.get(index + 1).map_or(0, |next| next.hash);
    let mut follow = |head| chain(tokens, index, head, traces, found);
    follow(token.phrase);
    follow(token.stem_phrase);
    if token.is(lexicon::PAIRED) {
        follow(LEXICON.phrase_of_pair(token.hash, next));
    }
    each_bit(token.flags & LEXICON.starting_lists, |bit| {
        let list = bit.trailing_zeros() as usize;
        follow(LEXICON.by_list.get(list).copied().unwrap_or(0));
    });
    each_bit(token.flags & LEXICON.paired_lists, |bit| {
        follow(LEXICON.phrase_of_pair(bit, next));
    });
}

fn each_bit(bits: u64, mut with: impl FnMut(u64)) {
    let mut rest = bits;
    while rest != 0 {
        with(rest & rest.wrapping_neg());
        rest &= rest - 1;
    }
}

/// The phrases of one start stand side by side.
fn chain(tokens: &[Token], index: usize, head: u16, traces: &Traces, found: &mut impl FnMut(Match)) {
    let Some(first) = usize::from(head).checked_sub(1) else {
        return;
    };
    for phrase in LEXICON.phrases.get(first..).unwrap_or_default() {
        if traces.may_hold(&phrase.needs)
            && let Some(end) = elements(phrase).and_then(|elements| end_of(tokens, index, elements))
        {
            found(Match {
                feature: usize::from(phrase.feature),
                first: index,
                last: end - 1,
            });
        }
        if !phrase.goes_on {
            return;
        }
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
