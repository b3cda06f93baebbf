//! Deduction: derives what follows with certainty.

use ken_logic::{Closure, Contradiction, Literal, Theory};
use ken_tool::{Error, Replied, Reply};

use crate::answer::{Found, Issue, NoExtraFields, Proof};
use crate::chain::{Chain, Conclusions, Confidence, Scores};
use crate::document::{Document, Kind};
use crate::numbers::format_count;

/// The maximum number of steps in the proofs of all contradictions together. After one contradiction nearly every
/// statement becomes contradictory, and the proofs of the later ones contain those of the earlier ones.
const MAX_PROOF_STEPS: usize = 100_000;

pub(crate) fn answer(document: &Document<'_>, reply: Reply<'_>) -> Result<Replied, Error> {
    let mut theory = Theory::with_capacity(document.rules.len());
    let given = document.facts_in(&mut theory)?;
    document.rules.add_to(&mut theory)?;
    let closure = theory.derive(&given).map_err(|limit| Error::too_large(limit.to_string()).at("/rules"))?;
    let confidence = Confidence::of(&closure, document.decay)?;
    let chain = Chain::of(&theory, &closure, &confidence);
    let issues = contradictions(&theory, &closure, &given);
    let found = Found {
        conclusions: &Conclusions(&chain),
        confidence: Scores(&chain),
        chain: &chain,
        explanation: explanation(document, &closure, issues.len()),
        issues,
        more: NoExtraFields {},
    };
    Ok(reply.send(&found.answer(Kind::Deductive, &document.facts, document)))
}

fn explanation(document: &Document<'_>, closure: &Closure, contradictions: usize) -> String {
    let deepest = closure.steps.iter().map(|step| step.depth).max().unwrap_or(0);
    let (facts, rules) = (format_count(document.facts.len(), "fact"), format_count(document.rules.len(), "rule"));
    let follows = match closure.steps.len() {
        0 => format!("nothing new follows from {facts} and {rules}"),
        1 => format!("1 statement follows from {facts} and {rules}, in {}", format_count(deepest as usize, "step")),
        more => format!(
            "{more} statements follow from {facts} and {rules}, in at most {}",
            format_count(deepest as usize, "step")
        ),
    };
    match contradictions {
        0 => follows,
        _ => format!("{follows}; {}", format_count(contradictions, "contradiction")),
    }
}

/// Returns every contradiction, with both proofs.
fn contradictions(theory: &Theory<'_>, closure: &Closure, given: &[Literal]) -> Vec<Issue> {
    let mut left = MAX_PROOF_STEPS;
    let found = closure.contradictions();
    found.iter().map(|contradiction| issue(theory, closure, given, contradiction, &mut left)).collect()
}

fn issue(
    theory: &Theory<'_>,
    closure: &Closure,
    given: &[Literal],
    contradiction: &Contradiction,
    left: &mut usize,
) -> Issue {
    let sides = [contradiction.first, contradiction.second];
    Issue {
        proofs: sides.map(|literal| proof(theory, closure, literal, left)).into(),
        ..unproved(theory, closure, given, contradiction)
    }
}

/// Returns a contradiction without its proofs, for answers whose reasoning chain does not contain them.
pub(crate) fn unproved(
    theory: &Theory<'_>,
    closure: &Closure,
    given: &[Literal],
    contradiction: &Contradiction,
) -> Issue {
    let Contradiction { first, second, is_root } = *contradiction;
    let reason = |literal: Literal| match closure.step_of(literal).and_then(|step| closure.steps.get(step)) {
        Some(step) => format!("follows by rule {}", step.rule),
        None => "is a fact".to_owned(),
    };
    let (one, other) = (theory.wording(first), theory.wording(second));
    let (why_one, why_other) = (reason(first), reason(second));
    let rest = if is_root { "" } else { "; this follows from an earlier contradiction" };
    Issue {
        kind: "contradiction",
        severity: "error",
        at: place(closure, given, second).unwrap_or_default(),
        message: format!("\"{one}\" {why_one}, and \"{other}\" {why_other}{rest}"),
        proofs: Vec::new(),
    }
}

fn place(closure: &Closure, given: &[Literal], literal: Literal) -> Option<String> {
    match closure.step_of(literal) {
        Some(step) => Some(format!("/rules/{}", closure.steps.get(step)?.rule)),
        None => Some(format!("/facts/{}", given.iter().position(|&fact| fact == literal)?)),
    }
}

fn proof(theory: &Theory<'_>, closure: &Closure, literal: Literal, left: &mut usize) -> Proof {
    let statement = theory.wording(literal).into_owned();
    match closure.proof(literal, *left) {
        Some(steps) => {
            *left -= steps.len();
            Proof { statement, steps, shortened: false }
        }
        None => shortened(closure, literal, statement, left),
    }
}

fn shortened(closure: &Closure, literal: Literal, statement: String, left: &mut usize) -> Proof {
    // The search for a proof that is too long is expensive, so the limit is halved each time.
    *left /= 2;
    Proof { statement, steps: closure.step_of(literal).into_iter().collect(), shortened: true }
}
