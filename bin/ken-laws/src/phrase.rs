//! Finds the rubric's phrases among the words of a sentence.

use crate::lexicon::{Element, Want};
use crate::token::{Kind, QUOTED, Token, at};

/// A phrase that was found: its feature, and its first and last word.
#[derive(Clone, Copy)]
pub(crate) struct Match {
    phrase: u16,
    pub(crate) feature: usize,
    pub(crate) first: usize,
    pub(crate) last: usize,
}

/// All phrases in a sentence that are stated rather than quoted. A phrase has at most ten words, five of them optional, so the
/// cost per word is bounded.
pub(crate) fn find(tokens: &[Token]) -> Vec<Match> {
    let mut matches = Vec::new();
    for (first, token) in tokens.iter().enumerate().filter(|(_, token)| !token.has(QUOTED)) {
        let Some(entry) = token.entry else { continue };
        let next = tokens.iter().skip(first + 1).map(|token| token.hash);
        for (number, phrase) in entry.phrases(next) {
            if let Some(end) = end_of(tokens, first, phrase.elements) {
                matches.push(Match { phrase: number, feature: phrase.feature, first, last: end - 1 });
            }
        }
    }
    // Of two phrases that begin at the same word, the one that stands first in the list counts.
    matches.sort_unstable_by_key(|found| (found.first, found.phrase));
    matches
}

/// Where the phrase ends if it occurs at `index`.
fn end_of(tokens: &[Token], mut index: usize, mut rest: &[Element]) -> Option<usize> {
    while let Some((element, behind)) = rest.split_first() {
        let is_here = fits(at(tokens, index), &element.want);
        if !element.optional && !is_here {
            return None;
        }
        if element.optional
            && is_here
            && let Some(end) = end_of(tokens, index + 1, behind)
        {
            return Some(end);
        }
        index += usize::from(!element.optional);
        rest = behind;
        // If several optional elements in a row match any word, it makes no difference which of them are absent. The rest of
        // the row is therefore skipped as a whole.
        if element.is_any_or_none() {
            while let Some((_, behind)) = rest.split_first().filter(|(next, _)| next.is_any_or_none()) {
                rest = behind;
            }
        }
    }
    Some(index)
}

fn fits(token: &Token, want: &Want) -> bool {
    token.kind != Kind::Mark
        && match want {
            Want::Word(hash) => token.hash == *hash,
            Want::Stem(stem) => token.stem == *stem,
            Want::Class(class) => token.is(*class),
            Want::Any => true,
        }
}
