//! Law 3: claims carry evidence and do not contradict each other or the context.

use crate::claim::supports;
use crate::determinism::first_value;
use crate::grammar::is_absolute;
use crate::judge::{Findings, View};
use crate::lexicon::{self as lex, list};
use crate::rubric::{Law, index_of};
use crate::token::{ADDRESS, QUOTED, at};

const ABSOLUTE: usize = index_of("absolute_claim");
const HEDGES: usize = index_of("stacked_hedges");
const SUPPORTED: usize = index_of("supported");
const REASONED: usize = index_of("reasoned");

pub(crate) fn examine(view: &View<'_>, findings: &mut Findings) {
    let claim = view.claim;
    examine_hedges(view, findings);
    let could_be = claim.any(const { list("everyone") }) || claim.has(lex::TIMELESS);
    if !could_be || claim.question || claim.is_conditional() || claim.is_supported() {
        return;
    }
    for index in (0..view.tokens.len()).filter(|&index| is_absolute(view.tokens, index)) {
        let last = (index + 1).min(view.tokens.len() - 1);
        view.find(
            findings,
            ABSOLUTE,
            index.saturating_sub(usize::from(index > 0 && last == index)),
            last,
        );
    }
}

/// Three hedges and no number, where no phrase has shown it yet.
fn examine_hedges(view: &View<'_>, findings: &mut Findings) {
    let shown = findings
        .features
        .get(view.index)
        .is_some_and(|features| features & (1 << HEDGES) != 0);
    if shown || view.claim.hedges < 3 || view.claim.numbers > 0 || view.claim.question {
        return;
    }
    let mut hedges = (0..view.tokens.len())
        .filter(|&index| at(view.tokens, index).is(const { list("hedge") } | const { list("soft") }));
    if let (Some(first), Some(last)) = (hedges.next(), hedges.next_back()) {
        view.find(findings, HEDGES, first, last);
    }
}

/// A claim with evidence, or with a reason, is a strength when nothing of it is at fault.
pub(crate) fn credit(view: &View<'_>, findings: &mut Findings) {
    let has_reason = findings
        .features
        .get(view.index)
        .is_some_and(|features| features & (1 << REASONED) != 0);
    let supported =
        view.claim.is_attributed() || first_value(view).is_some() || has_reason && view.claim.content > 3;
    if supported
        && view.claim.is_claim()
        && !view.claim.is_marker_row()
        && !findings.is_defective(view.index, Law::Truth)
    {
        let word = first_support(view).unwrap_or(0);
        view.find(findings, SUPPORTED, word, word);
    }
}

/// Most often the first number.
fn first_support(view: &View<'_>) -> Option<usize> {
    if view.claim.any(lex::CALENDAR) || view.claim.has(ADDRESS | QUOTED) {
        return view.tokens.iter().position(supports);
    }
    first_value(view)
}
