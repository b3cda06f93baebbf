//! Law 3: claims carry evidence and do not contradict each other or the context.

use crate::claim::supports;
use crate::determinism::first_value;
use crate::finding::{Findings, View};
use crate::grammar::is_absolute;
use crate::lexicon as lex;
use crate::rubric::{ABSOLUTE_CLAIM, Law, REASONED, STACKED_HEDGES, SUPPORTED};
use crate::token::at;

pub(crate) fn examine(view: &View<'_>, findings: &mut Findings) {
    examine_hedges(view, findings);
    let claim = view.claim;
    let could_be = claim.any(lex::EVERYONE | lex::TIMELESS);
    if !could_be || claim.question || claim.is_conditional() || claim.is_supported() {
        return;
    }
    for index in (0..view.tokens.len()).filter(|index| is_absolute(view.tokens, *index)) {
        let last = (index + 1).min(view.tokens.len() - 1);
        let first = if last == index { index.saturating_sub(1) } else { index };
        findings.add(view.finding(ABSOLUTE_CLAIM, first, last));
    }
}

/// Finds sentences with three hedges and no number, unless a phrase of this feature has been found already.
fn examine_hedges(view: &View<'_>, findings: &mut Findings) {
    let claim = view.claim;
    if claim.hedges < 3 || claim.numbers > 0 || claim.question || findings.has(view.index, STACKED_HEDGES) {
        return;
    }
    let mut hedges = (0..view.tokens.len()).filter(|index| at(view.tokens, *index).is(lex::HEDGE | lex::SOFT));
    if let (Some(first), Some(last)) = (hedges.next(), hedges.next_back()) {
        findings.add(view.finding(STACKED_HEDGES, first, last));
    }
}

/// A claim with evidence or a reason is a strength if it has no defect.
pub(crate) fn credit(view: &View<'_>, findings: &mut Findings) {
    let claim = view.claim;
    if !claim.is_claim() || claim.is_marker_row() || findings.is_defective(view.index, Law::Truth) {
        return;
    }
    let has_reason = findings.has(view.index, REASONED) && claim.content > 3;
    let evidence = if claim.is_attributed() { view.tokens.iter().position(supports) } else { first_value(view) };
    if claim.is_attributed() || evidence.is_some() || has_reason {
        let word = evidence.unwrap_or(0);
        findings.add(view.finding(SUPPORTED, word, word));
    }
}
