//! Law 4: the text repeats nothing and wastes no words.

use crate::finding::{Findings, View};
use crate::lexicon as lex;
use crate::lexicon::word::{HAD, RATHER, THAN, THAT};
use crate::rubric::{DOUBLED_WORD, FILLER, MARKER_RUN};
use crate::token::{CAPITAL, Kind, QUOTED, Token, at};

/// Minimum number of consecutive words of approval for the feature `marker_run`.
const MARKERS: usize = 5;

pub(crate) fn examine(view: &View<'_>, findings: &mut Findings) {
    for (index, pair) in view.tokens.windows(2).enumerate() {
        if let [first, second] = pair
            && is_doubled(first, second)
        {
            findings.add(view.finding(DOUBLED_WORD, index, index + 1));
        }
    }
    if view.claim.any(lex::FILLER) {
        examine_fillers(view, findings);
    }
    if view.claim.markers >= MARKERS {
        examine_markers(view, findings);
    }
}

fn is_doubled(before: &Token, token: &Token) -> bool {
    token.hash == before.hash
        && token.kind == Kind::Word
        && before.kind == Kind::Word
        && token.end - token.start > 1
        && !token.has(QUOTED | CAPITAL)
        && !matches!(token.hash, THAT | HAD)
}

/// Three fillers in a sentence, or two in a row.
fn examine_fillers(view: &View<'_>, findings: &mut Findings) {
    let is_filler = |index: &usize| {
        let token = at(view.tokens, *index);
        let rather_than = token.hash == RATHER && at(view.tokens, index + 1).hash == THAN;
        token.is(lex::FILLER) && !token.has(QUOTED) && !rather_than
    };
    let fillers: Vec<usize> = (0..view.tokens.len()).filter(is_filler).collect();
    match fillers.as_slice() {
        [first, second] if second - first == 1 => findings.add(view.finding(FILLER, *first, *second)),
        [first, _, .., last] => findings.add(view.finding(FILLER, *first, *last)),
        _ => {}
    }
}

/// Five or more words of approval with nothing but commas, "and" and "or" between them.
fn examine_markers(view: &View<'_>, findings: &mut Findings) {
    let joins = |token: &Token| token.is(lex::MARKER | lex::CONJUNCTION) || token.is_mark(',');
    let mut start = 0;
    for run in view.tokens.split(|token| !joins(token)) {
        let markers = || (0..run.len()).filter(|index| at(run, *index).is(lex::MARKER));
        if markers().count() >= MARKERS
            && let (Some(first), Some(last)) = (markers().next(), markers().next_back())
        {
            findings.add(view.finding(MARKER_RUN, start + first, start + last));
        }
        start += run.len() + 1;
    }
}
