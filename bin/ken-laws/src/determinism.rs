//! Law 5: another reader would act on the text in the same way.

use crate::claim::says_how_much;
use crate::finding::{Findings, View};
use crate::lexicon::word::{AND, AS, FOR, HOW, IF, IN, NOT, OR, SO, TO, TOO};
use crate::lexicon::{self as lex, hash};
use crate::quantity::end_of_unit;
use crate::rubric::{EXACT, Law, MISSING_UNIT, SOURCED, VAGUE_QUANTITY};
use crate::token::{CLOCK, Kind, QUOTED, Token, YEAR, at, before};

pub(crate) fn examine(view: &View<'_>, findings: &mut Findings) {
    let claim = view.claim;
    if !findings.has(view.index, VAGUE_QUANTITY)
        && claim.numbers == 0
        && !claim.question
        && claim.any(lex::VAGUE | lex::AMOUNT)
    {
        for index in (0..view.tokens.len()).filter(|&index| is_vague(view, index)) {
            findings.add(view.finding(VAGUE_QUANTITY, index, index));
        }
    }
    if !(claim.any(lex::DIMENSION) || claim.instruction && claim.any(lex::FOR)) {
        return;
    }
    for index in 0..view.tokens.len() {
        let token = at(view.tokens, index);
        let number = match token.hash {
            FOR if claim.instruction => Some(index + 1).filter(|&number| is_bare(view.tokens, number)),
            _ if token.is(lex::DIMENSION) => number_without_unit(view.tokens, index),
            _ => None,
        };
        if let Some(number) = number {
            findings.add(view.finding(MISSING_UNIT, index, number));
        }
    }
}

/// Whether a number ends its clause, as in "bake for 25".
fn is_bare(tokens: &[Token], number: usize) -> bool {
    let (token, next) = (at(tokens, number), at(tokens, number + 1));
    token.kind == Kind::Number
        && !token.has(CLOCK | YEAR)
        && (next.is_mark(',') || number + 1 == tokens.len() || number + 2 == tokens.len() && next.kind == Kind::Mark)
}

/// Exact values are a strength of a sentence that has no defect of this law.
pub(crate) fn credit(view: &View<'_>, findings: &mut Findings) {
    let sound = !view.claim.is_marker_row() && !findings.is_defective(view.index, Law::Determinism);
    let says = view.claim.finite || view.claim.instruction;
    if !(view.claim.numbers > 0 && says && sound) {
        return;
    }
    // The year of a citation is not an exact value.
    let cites = view.claim.cited || findings.has(view.index, SOURCED);
    let measures = |number: &usize| !(cites && at(view.tokens, *number).has(YEAR));
    if let Some(number) = first_value(view).filter(measures) {
        let unit = at(view.tokens, number + 1);
        let last =
            if unit.is(lex::UNIT) || unit.kind == Kind::Symbol { end_of_unit(view.tokens, number + 1) } else { number };
        findings.add(view.finding(EXACT, number, last));
    }
}

/// The first number that is an exact value.
pub(crate) fn first_value(view: &View<'_>) -> Option<usize> {
    if view.claim.numbers == 0 {
        return None;
    }
    let mut numbers = (0..view.tokens.len()).filter(|index| at(view.tokens, *index).is_exact());
    numbers.find(|number| says_how_much(view.tokens, *number) && is_value(view.tokens, *number))
}

/// Whether a number is an exact value: one with a unit, a price, or a count of things. A year, day, time of day or fraction
/// needs no unit.
fn is_value(tokens: &[Token], number: usize) -> bool {
    let (token, last, next) = (at(tokens, number), before(tokens, number), at(tokens, number + 1));
    let is_day = last.is(lex::CALENDAR) || last.is(lex::MONTH) || next.is(lex::MONTH);
    let is_fraction = token.kind == Kind::Number && token.value == 0 && token.hash != ZERO; // or a negative number
    token.has(CLOCK | YEAR) || is_day || is_fraction || last.kind == Kind::Symbol || has_unit(tokens, number)
}

const ZERO: u64 = hash(b"0");

// Vague quantities

/// Whether the word is vague in an instruction, or a vague amount of a change.
fn is_vague(view: &View<'_>, index: usize) -> bool {
    let (token, last) = (at(view.tokens, index), before(view.tokens, index));
    if token.has(QUOTED) {
        return false;
    }
    let condition = matches!(last.hash, AS | SO | HOW | IF | TOO | NOT);
    let in_instruction = view.claim.instruction && token.is(lex::VAGUE) && !condition;
    let near = view.tokens.get(index.saturating_sub(4)..(index + 4).min(view.tokens.len())).unwrap_or_default();
    in_instruction || token.is(lex::AMOUNT) && near.iter().any(|token| token.is(lex::CHANGE))
}

// Units

/// Maximum number of words between a dimension and its number.
const REACH: usize = 8;

/// The number of the dimension at `index`, if it has no unit.
fn number_without_unit(tokens: &[Token], index: usize) -> Option<usize> {
    let last = (index + 1 + REACH).min(tokens.len());
    let number = (index + 1..last)
        .take_while(|&index| !at(tokens, index).ends_clause())
        .find(|&index| at(tokens, index).kind == Kind::Number)?;
    let (token, label) = (at(tokens, number), before(tokens, number));
    let labelled = label.is_content() && !label.is(lex::VERB) || label.kind == Kind::Symbol;
    let joined = tokens
        .get(index + 1..number)
        .unwrap_or_default()
        .iter()
        .any(|token| matches!(token.hash, AND | IN) || token.is(lex::UNIT | lex::SUBORDINATOR));
    let own_unit = token.has(CLOCK | YEAR) || has_unit(tokens, number);
    (!labelled && !joined && !own_unit && number > index + 1).then_some(number)
}

/// Whether the number, or the range that it begins, is followed by a unit or by a word for what is counted.
fn has_unit(tokens: &[Token], number: usize) -> bool {
    let next = at(tokens, number + 1);
    if next.is(lex::UNIT) || next.kind == Kind::Symbol || next.is_content() {
        return true;
    }
    let range = matches!(next.hash, TO | AND | OR)
        || next.is_mark('-')
        || next.is_mark('–')
        || next.is_mark('/')
        || next.is_mark('±')
        || next.is_mark('×');
    range && at(tokens, number + 2).kind == Kind::Number && has_unit_after(tokens, number + 2)
}

fn has_unit_after(tokens: &[Token], number: usize) -> bool {
    let next = at(tokens, number + 1);
    next.is(lex::UNIT) || next.kind == Kind::Symbol || next.is_content()
}
