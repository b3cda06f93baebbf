//! Finds the rubric's phrases among the words of a sentence.

use crate::bits::Bits;
use crate::lexicon::{self, Element, LEXICON, Phrase, Traces, Want};
use crate::token::{Kind, Token, at};

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
    let (token, next) = (at(tokens, index), at(tokens, index + 1));
    let mut follow = |head: u16| {
        if let Some(first) = usize::from(head).checked_sub(1) {
            chain(tokens, index, first, traces, found);
        }
    };
    let pairs = token.has(lexicon::PAIRS) & next.has(lexicon::FOLLOWS);
    follow(token.phrase);
    follow(token.stem_phrase);
    if pairs && token.is(lexicon::PAIRED) {
        follow(LEXICON.phrase_of_pair(token.hash, next.hash));
    }
    for list in Bits(token.flags & LEXICON.starting_lists) {
        follow(LEXICON.by_list.get(list).copied().unwrap_or(0));
    }
    if pairs {
        for list in Bits(token.flags & LEXICON.paired_lists) {
            follow(LEXICON.phrase_of_pair(1 << list, next.hash));
        }
    }
}

/// The phrases of one start stand side by side; most need a word that is not in the sentence.
#[inline(always)]
fn chain(tokens: &[Token], index: usize, first: usize, traces: &Traces, found: &mut impl FnMut(Match)) {
    for phrase in LEXICON.phrases.get(first..).unwrap_or_default() {
        if traces.may_hold(&phrase.needs) {
            attempt(tokens, index, phrase, found);
        }
        if !phrase.goes_on {
            return;
        }
    }
}

#[inline(never)]
fn attempt(tokens: &[Token], index: usize, phrase: &Phrase, found: &mut impl FnMut(Match)) {
    if let Some(end) = end_of(tokens, index, phrase) {
        found(Match {
            feature: usize::from(phrase.feature),
            first: index,
            last: end - 1,
        });
    }
}

/// Where the phrase ends that starts at `index`, if it stands there.
fn end_of(tokens: &[Token], index: usize, phrase: &Phrase) -> Option<usize> {
    let first = usize::from(phrase.first);
    let elements = LEXICON.elements.get(first..first + usize::from(phrase.length))?;
    if phrase.varies {
        return end_among(tokens, index, elements);
    }
    let end = index + elements.len();
    let mut pairs = tokens.get(index..end)?.iter().zip(elements);
    pairs
        .all(|(token, element)| fits(token, element.want))
        .then_some(end)
}

/// The same where words may be left out.
fn end_among(tokens: &[Token], index: usize, elements: &[Element]) -> Option<usize> {
    let (mut index, mut rest) = (index, elements);
    while let Some((element, behind)) = rest.split_first() {
        let is_here = fits(at(tokens, index), element.want);
        if !element.optional && !is_here {
            return None;
        }
        if element.optional && is_here {
            let taken = end_among(tokens, index + 1, behind);
            if taken.is_some() {
                return taken;
            }
        }
        index += usize::from(!element.optional);
        rest = behind;
    }
    Some(index)
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
