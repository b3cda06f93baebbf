//! Words in capitals that a reader may not know.

use crate::context::Context;
use crate::judge::{Findings, View};
use crate::lexicon::{self as lex, hash};
use crate::place::Place;
use crate::rubric::index_of;
use crate::table::Table;
use crate::token::{CAPITALS, Kind, QUOTED, Token, at, before};

const ACRONYM: usize = index_of("undefined_acronym");

/// Words in capitals: where each is used, and whether it is explained anywhere.
#[derive(Default)]
pub(crate) struct Acronyms {
    /// Those that are explained.
    known: Table<bool>,
    uses: Vec<(u64, Place)>,
}

impl Acronyms {
    pub(crate) fn fill(&mut self, context: &Context) {
        self.known.clear();
        self.uses.clear();
        for &acronym in &context.acronyms {
            self.explain(acronym);
        }
    }

    pub(crate) fn add(&mut self, view: &View<'_>) {
        if !view.claim.has(CAPITALS) {
            return;
        }
        let capitals = view.tokens.iter().filter(|token| token.has(CAPITALS)).count();
        if capitals * 2 > view.tokens.len() {
            return; // a line in capitals throughout
        }
        for (index, token) in view
            .tokens
            .iter()
            .enumerate()
            .skip(dateline(view.tokens))
            .filter(|(_, token)| is_acronym(token))
        {
            if is_explained(view.tokens, index) {
                self.explain(token.stem);
            } else if !is_designation(view.tokens, index) {
                self.uses.push((token.stem, view.place(index, index)));
            }
        }
    }

    fn explain(&mut self, acronym: u64) {
        if let Some(explained) = self.known.entry(acronym) {
            *explained = true;
        }
    }

    /// Finds those that stay unexplained to the end.
    pub(crate) fn report(&self, findings: &mut Findings) {
        for (_, place) in self
            .uses
            .iter()
            .filter(|(acronym, _)| self.known.get(*acronym).is_none())
        {
            place.find(ACRONYM, findings);
        }
    }
}

/// The capitals of "NEW YORK, 3 May - …", which name a place.
fn dateline(tokens: &[Token]) -> usize {
    let place = tokens.iter().take_while(|token| token.has(CAPITALS)).count();
    let (mark, first, second) = (at(tokens, place), at(tokens, place + 1), at(tokens, place + 2));
    let is_month = |token: &Token| token.is(lex::CALENDAR) || token.has(lex::MONTH);
    let is_day = |token: &Token| token.kind == Kind::Number;
    let dated = is_day(first) && is_month(second) || is_month(first) && is_day(second);
    if mark.is_mark(',') && dated { place } else { 0 }
}

pub(crate) fn is_acronym(token: &Token) -> bool {
    let length = token.end - token.start;
    token.has(CAPITALS) && (2..=6).contains(&length) && !token.is(lex::ORDINARY) && !token.has(QUOTED)
}

/// "(XLB)", "XLB (…)", "XLB stands for", "XLB, short for", "XLB means".
fn is_explained(tokens: &[Token], index: usize) -> bool {
    let (last, next) = (before(tokens, index), at(tokens, index + 1));
    let after = if next.is_mark(',') {
        at(tokens, index + 2)
    } else {
        next
    };
    let is_the = matches!(next.hash, IS | ARE) && at(tokens, index + 2).is(lex::DETERMINER);
    last.is_mark('(') || next.is_mark('(') || next.is_mark('=') || EXPLAINS.contains(&after.hash) || is_the
}

const IS: u64 = hash(b"is");
const ARE: u64 = hash(b"are");
const EXPLAINS: [u64; 7] = [
    hash(b"stands"),
    hash(b"stand"),
    hash(b"short"),
    hash(b"means"),
    hash(b"abbreviates"),
    hash(b"denotes"),
    hash(b"aka"),
];

/// The name of a type or norm: capitals with a number.
fn is_designation(tokens: &[Token], index: usize) -> bool {
    let next = at(tokens, index + 1);
    next.kind == Kind::Number
        || next.is_mark('-') && at(tokens, index + 2).kind == Kind::Number
        || before(tokens, index).is_mark('/')
        || next.is_mark('/')
}
