//! Law 4: nothing said twice, no padding.

use crate::judge::{Findings, View};
use crate::lexicon::{self as lex, hash, list};
use crate::rubric::index_of;
use crate::token::{CAPITAL, Kind, QUOTED, Token, at, before};

const DOUBLED: usize = index_of("doubled_word");
const FILLERS: usize = index_of("filler");
const MARKERS: usize = index_of("marker_run");

pub(crate) fn examine(view: &View<'_>, findings: &mut Findings) {
    if view.claim.doubled {
        for index in (1..view.tokens.len()).filter(|&index| is_doubled(view.tokens, index)) {
            view.find(findings, DOUBLED, index - 1, index);
        }
    }
    if view.claim.any(const { list("filler") }) {
        examine_fillers(view, findings);
    }
    if view.claim.markers >= MARKER_RUN {
        examine_markers(view, findings);
    }
}

fn is_doubled(tokens: &[Token], index: usize) -> bool {
    let (token, before) = (at(tokens, index), before(tokens, index));
    token.kind == Kind::Word
        && before.kind == Kind::Word
        && token.hash == before.hash
        && token.end - token.start > 1
        && !token.has(QUOTED | CAPITAL)
        && !matches!(token.hash, THAT | HAD)
}

const THAT: u64 = hash(b"that");
const HAD: u64 = hash(b"had");

/// Three fillers in a sentence, or two in a row.
fn examine_fillers(view: &View<'_>, findings: &mut Findings) {
    let is_filler = |index: usize| {
        let token = at(view.tokens, index);
        let rather_than = token.hash == RATHER && at(view.tokens, index + 1).hash == THAN;
        token.is(const { list("filler") }) && !token.has(QUOTED) && !rather_than
    };
    let mut fillers = (0..view.tokens.len()).filter(|&index| is_filler(index));
    let (Some(first), Some(second)) = (fillers.next(), fillers.next()) else {
        return;
    };
    let last = fillers.next();
    if last.is_some() || second == first + 1 {
        view.find(
            findings,
            FILLERS,
            first,
            fillers.next_back().or(last).unwrap_or(second),
        );
    }
}

const RATHER: u64 = hash(b"rather");
const THAN: u64 = hash(b"than");

/// Five or more words of approval with nothing but commas, and, or between them.
fn examine_markers(view: &View<'_>, findings: &mut Findings) {
    let (mut first, mut last, mut count) = (0, 0, 0);
    for (index, token) in view.tokens.iter().enumerate() {
        if token.is(const { list("marker") }) {
            first = if count == 0 { index } else { first };
            last = index;
            count += 1;
        } else if !(token.is_mark(',') || token.is(lex::CONJUNCTION)) {
            report_markers(view, count, first, last, findings);
            count = 0;
        }
    }
    report_markers(view, count, first, last, findings);
}

/// So many words of approval in a row are a row of markers.
const MARKER_RUN: u32 = 5;

fn report_markers(view: &View<'_>, count: u32, first: usize, last: usize, findings: &mut Findings) {
    if count >= MARKER_RUN {
        view.find(findings, MARKERS, first, last);
    }
}
