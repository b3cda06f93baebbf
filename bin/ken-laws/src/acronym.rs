//! Acronyms that a reader may not know.

use std::collections::HashSet;

use crate::finding::{Finding, Findings, View};
use crate::lexicon as lex;
use crate::lexicon::word::{ARE, IS};
use crate::rubric::UNDEFINED_ACRONYM;
use crate::token::{CAPITALS, Kind, QUOTED, Token, at, before};

/// The words in capitals of a text: where each is used, and whether it is explained anywhere.
#[derive(Default)]
pub(crate) struct Acronyms {
    known: HashSet<u64>,
    uses: Vec<(u64, Finding)>,
}

impl Acronyms {
    /// Discards the data of the previous text. `known` are the stems of the acronyms that the context uses.
    pub(crate) fn clear(&mut self, known: &[u64]) {
        self.known.clear();
        self.known.extend(known);
        self.uses.clear();
    }

    pub(crate) fn add(&mut self, view: &View<'_>) {
        let tokens = view.tokens;
        if !view.claim.has(CAPITALS) {
            return;
        }
        let capitals = tokens.iter().filter(|token| token.has(CAPITALS)).count();
        if capitals == 0 || capitals * 2 > tokens.len() {
            return; // the whole line is in capitals
        }
        let words = tokens.iter().enumerate().skip(dateline(tokens));
        for (index, token) in words.filter(|(_, token)| is_acronym(token)) {
            if is_explained(tokens, index) {
                self.known.insert(token.stem);
            } else if !is_designation(tokens, index) {
                self.uses.push((token.stem, view.finding(UNDEFINED_ACRONYM, index, index)));
            }
        }
    }

    /// Adds a finding for each acronym that the text never explains.
    pub(crate) fn report(&self, findings: &mut Findings) {
        let unknown = self.uses.iter().filter(|(acronym, _)| !self.known.contains(acronym));
        unknown.for_each(|(_, finding)| findings.add(*finding));
    }
}

/// The number of tokens in a dateline such as "NEW YORK, 3 May - …", whose capitals name a place.
fn dateline(tokens: &[Token]) -> usize {
    let place = tokens.iter().take_while(|token| token.has(CAPITALS)).count();
    let (mark, first, second) = (at(tokens, place), at(tokens, place + 1), at(tokens, place + 2));
    let is_month = |token: &Token| token.is(lex::CALENDAR | lex::MONTH);
    let is_day = |token: &Token| token.kind == Kind::Number;
    let dated = is_day(first) && is_month(second) || is_month(first) && is_day(second);
    if mark.is_mark(',') && dated { place } else { 0 }
}

pub(crate) fn is_acronym(token: &Token) -> bool {
    let length = token.end - token.start;
    token.has(CAPITALS) && (2..=6).contains(&length) && !token.is(lex::ORDINARY) && !token.has(QUOTED)
}

/// Whether the acronym is explained here: "(XLB)", "XLB (…)", "XLB stands for", "XLB, short for", "XLB means".
fn is_explained(tokens: &[Token], index: usize) -> bool {
    let (last, next) = (before(tokens, index), at(tokens, index + 1));
    let after = at(tokens, index + if next.is_mark(',') { 2 } else { 1 });
    let is_the = matches!(next.hash, IS | ARE) && at(tokens, index + 2).is(lex::DETERMINER);
    last.is_mark('(') || next.is_mark('(') || next.is_mark('=') || after.is(lex::EXPLAINS) || is_the
}

/// Whether this is the name of a type or standard: capitals with a number.
fn is_designation(tokens: &[Token], index: usize) -> bool {
    let next = at(tokens, index + 1);
    next.kind == Kind::Number
        || next.is_mark('-') && at(tokens, index + 2).kind == Kind::Number
        || before(tokens, index).is_mark('/')
        || next.is_mark('/')
}
