//! Law 5: a second reader would do the same.

use crate::context::Context;
use crate::judge::{Findings, View};
use crate::lexicon::{self as lex, hash, list};
use crate::rubric::{Law, index_of};
use crate::table::Table;
use crate::token::{CAPITALS, CLOCK, Kind, QUOTED, Token, YEAR, at, before};
use crate::truth::{Place, report};
use crate::word::join;

const VAGUE: usize = index_of("vague_quantity");
const MISSING_UNIT: usize = index_of("missing_unit");
const CONFLICT: usize = index_of("conflicting_value");
const ACRONYM: usize = index_of("undefined_acronym");
const EXACT: usize = index_of("exact");

pub(crate) fn examine(view: &View<'_>, findings: &mut Findings) {
    let claim = view.claim;
    let shown = findings
        .features
        .get(view.index)
        .is_some_and(|features| features & (1 << VAGUE) != 0);
    if !shown
        && claim.numbers == 0
        && !claim.question
        && claim.any(const { list("vague") } | const { list("amount") })
    {
        for index in (0..view.tokens.len()).filter(|&index| is_vague(view, index)) {
            view.find(findings, VAGUE, index, index);
        }
    }
    if !(claim.any(lex::DIMENSION) || claim.instruction && claim.has(lex::FOR)) {
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
            view.find(findings, MISSING_UNIT, index, number);
        }
    }
}

const FOR: u64 = hash(b"for");

/// A number that ends its clause: "bake for 25".
fn is_bare(tokens: &[Token], number: usize) -> bool {
    let (token, next) = (at(tokens, number), at(tokens, number + 1));
    token.kind == Kind::Number
        && !token.has(CLOCK | YEAR)
        && (next.is_mark(',')
            || number + 1 == tokens.len()
            || number + 2 == tokens.len() && next.kind == Kind::Mark)
}

/// Exact values are a strength of a sentence without a fault of this law.
pub(crate) fn credit(view: &View<'_>, findings: &mut Findings) {
    let sound = !view.claim.is_marker_row() && !findings.is_defective(view.index, Law::Determinism);
    let says = view.claim.finite || view.claim.instruction;
    if let Some(number) = view.claim.exactness.filter(|_| says && sound) {
        let (number, unit) = (number as usize, at(view.tokens, number as usize + 1));
        let last = number + usize::from(unit.is(lex::UNIT) || unit.kind == Kind::Symbol);
        view.find(findings, EXACT, number, last);
    }
}

// Vague quantities

/// A vague word in an instruction; a vague amount of a change.
fn is_vague(view: &View<'_>, index: usize) -> bool {
    let (token, last) = (at(view.tokens, index), before(view.tokens, index));
    if token.has(QUOTED) {
        return false;
    }
    let condition = matches!(last.hash, AS | SO | HOW | IF | TOO | NOT);
    let in_instruction = view.claim.instruction && token.is(const { list("vague") }) && !condition;
    let near = view
        .tokens
        .get(index.saturating_sub(4)..(index + 4).min(view.tokens.len()))
        .unwrap_or_default();
    in_instruction
        || token.is(const { list("amount") }) && near.iter().any(|token| token.is(const { list("change") }))
}

const AS: u64 = hash(b"as");
const SO: u64 = hash(b"so");
const HOW: u64 = hash(b"how");
const IF: u64 = hash(b"if");
const TOO: u64 = hash(b"too");
const NOT: u64 = hash(b"not");

// Units

/// Words between a dimension and its number.
const REACH: usize = 8;

/// The number that belongs to the dimension at `index`, when it has no unit.
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

const AND: u64 = hash(b"and");
const IN: u64 = hash(b"in");
const TO: u64 = hash(b"to");
const OR: u64 = hash(b"or");

/// Whether a unit, or a word for what is counted, follows the number or the range that it opens.
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

// One value per quantity

/// A quantity with its value, as a sentence gives it.
#[derive(Clone, Copy)]
pub(crate) struct Value {
    /// Of what, in which unit.
    pub(crate) key: u64,
    value: u64,
    /// The place, time or part it holds for; 0 when it holds at large.
    qualifier: u64,
    past: bool,
    /// "a rate of": of one that is only now introduced.
    introduced: bool,
    first: usize,
    last: usize,
}

/// The first value given for each quantity.
#[derive(Default)]
pub(crate) struct Values(Table<Option<Given>>);

#[derive(Clone, Copy)]
struct Given {
    value: u64,
    qualifier: u64,
    past: bool,
    /// Another value stands against it.
    disputed: bool,
    place: Place,
}

impl Values {
    pub(crate) fn fill(&mut self, context: &Context) {
        self.0.clear();
        for value in &context.values {
            self.enter(value, Place::Context);
        }
    }

    pub(crate) fn add(&mut self, view: &View<'_>, findings: &mut Findings) {
        if view.claim.numbers == 0 || view.claim.question || view.sentence.heading {
            return;
        }
        each_value(view.tokens, |value| {
            let (start, end) = (
                at(view.tokens, value.first).start,
                at(view.tokens, value.last).end,
            );
            let place = Place::Text {
                sentence: view.index as u32,
                start,
                end,
            };
            if let Some(earlier) = self.enter(&value, place) {
                report(earlier, place, CONFLICT, findings);
            }
        });
    }

    /// Enters the value; the place of another value of the same quantity. Once two values stand, none of them is right.
    fn enter(&mut self, value: &Value, place: Place) -> Option<Place> {
        let first = Given {
            value: value.value,
            qualifier: value.qualifier,
            past: value.past,
            disputed: false,
            place,
        };
        let given = self.0.entry(value.key)?.get_or_insert(first);
        let same_case = given.qualifier == value.qualifier || given.qualifier == 0 || value.qualifier == 0;
        let differs = given.value != value.value && !value.introduced;
        given.disputed |= differs && same_case && given.past == value.past;
        (given.disputed && same_case && given.past == value.past).then_some(given.place)
    }
}

/// Calls `with` for each "the design load is 40 kN per axle": a named quantity, one number, its unit.
pub(crate) fn each_value(tokens: &[Token], mut with: impl FnMut(Value)) {
    let mut clause = 0;
    for index in 0..tokens.len() {
        let token = at(tokens, index);
        if token.ends_clause() && !token.is_mark(':') && !token.is_mark('=') {
            clause = index + 1;
        }
        if (token.kind == Kind::Number || token.is(lex::NUMERAL))
            && let Some(value) = value_at(tokens, clause, index)
        {
            with(value);
        }
    }
}

/// Words; what stands further from the number is not what it measures.
const LONGEST_SUBJECT: usize = 12;

fn value_at(tokens: &[Token], clause: usize, number: usize) -> Option<Value> {
    let token = at(tokens, number);
    let is_value =
        token.kind == Kind::Number && !token.has(YEAR) || token.is(lex::NUMERAL) && !token.is(lex::ORDINAL);
    if !is_value || token.has(QUOTED) {
        return None;
    }
    let first = clause.max(number.saturating_sub(LONGEST_SUBJECT));
    let subject = Subject::before(tokens, first, number)?;
    let (unit, last) = unit_of(tokens, number)?;
    let clause_tokens = tokens.get(first..number)?;
    let shifts =
        |token: &Token| token.is(lex::QUALIFIER | lex::NEGATION | lex::OBLIGATION) || token.has(lex::MODAL);
    if clause_tokens.iter().any(shifts) {
        return None;
    }
    let past = tokens.get(subject.first..number)?.iter().any(|token| {
        matches!(token.hash, WAS | WERE | HAD)
            || token.is(lex::VERB_PAST) && !token.is(lex::VERB_BASE) && subject.lacks_be
    });
    let value = if token.is(lex::NUMERAL) {
        decimal(token.value)
    } else {
        token.hash
    };
    let (qualifier, last) = qualifier_after(tokens, last);
    Some(Value {
        key: join(subject.key, unit),
        value,
        qualifier,
        past,
        introduced: subject.introduced,
        first: subject.first,
        last,
    })
}

const WAS: u64 = hash(b"was");
const WERE: u64 = hash(b"were");
const HAD: u64 = hash(b"had");

/// The hash that the number has as digits.
fn decimal(value: u16) -> u64 {
    let mut bytes = [0; 3];
    let digits = [
        b'0' + (value / 100 % 10) as u8,
        b'0' + (value / 10 % 10) as u8,
        b'0' + (value % 10) as u8,
    ];
    let skip = digits.iter().take(2).take_while(|digit| **digit == b'0').count();
    bytes.copy_from_slice(&digits);
    hash(bytes.get(skip..).unwrap_or_default())
}

/// What a number measures.
struct Subject {
    key: u64,
    first: usize,
    lacks_be: bool,
    introduced: bool,
}

impl Subject {
    /// Reads backwards from the number: link words, then a noun with its attribute; over a verb on to its subject.
    fn before(tokens: &[Token], first: usize, number: usize) -> Option<Subject> {
        let linked = skip_back(tokens, first, number, |token| {
            is_link(token) || token.has(lex::BOUND)
        });
        let mut start = content_before(tokens, first, linked);
        let bounds = tokens
            .get(linked..number)?
            .iter()
            .filter(|token| token.has(lex::BOUND));
        let mut key = bounds.fold(join_range(tokens, start, linked), |key, token| {
            join(key, token.hash)
        });
        let mut has_be = tokens.get(linked..number)?.iter().any(|token| token.is(lex::BE));
        let verb = linked
            .checked_sub(1)
            .is_some_and(|last| last >= start && is_verb_only(at(tokens, last)));
        if verb {
            let auxiliary = skip_back(tokens, first, start, |token| {
                token.is(lex::AUXILIARY) || token.hash == THAT
            });
            has_be |= auxiliary < start;
            let subject = content_before(tokens, first, auxiliary);
            key = join(join_range(tokens, subject, auxiliary), key);
            if subject == auxiliary && start == linked - 1 {
                return None; // a verb without its subject
            }
            start = subject;
        }
        let open = before(tokens, start);
        let introduced = start > first && matches!(open.hash, A | AN);
        let indefinite = start > first
            && (matches!(open.hash, EACH | EVERY | ANY | ANOTHER | NO | SOME | PER)
                || open.kind == Kind::Number
                || open.is(lex::NUMERAL));
        let tied = start == linked || linked == number && !verb;
        (!tied && !indefinite).then_some(Subject {
            key,
            first: start,
            lacks_be: !has_be,
            introduced,
        })
    }
}

const A: u64 = hash(b"a");
const AN: u64 = hash(b"an");
const EACH: u64 = hash(b"each");
const EVERY: u64 = hash(b"every");
const ANY: u64 = hash(b"any");
const ANOTHER: u64 = hash(b"another");
const NO: u64 = hash(b"no");
const SOME: u64 = hash(b"some");
const PER: u64 = hash(b"per");
const THAT: u64 = hash(b"that");

/// Words that may stand between a quantity and its number.
fn is_link(token: &Token) -> bool {
    token.is(lex::BE)
        || token.kind == Kind::Symbol
        || token.is_mark(':')
        || token.is_mark('=')
        || token.has(lex::LINK)
}

fn is_verb_only(token: &Token) -> bool {
    token.is(lex::VERB_PAST | lex::VERB_S) && !token.is(lex::VERB_BASE | lex::DIMENSION)
}

fn skip_back(tokens: &[Token], first: usize, end: usize, skip: impl Fn(&Token) -> bool) -> usize {
    let mut start = end;
    while start > first && skip(at(tokens, start - 1)) {
        start -= 1;
    }
    start
}

/// Where the one or two words of content begin that end before `end`.
fn content_before(tokens: &[Token], first: usize, end: usize) -> usize {
    let mut start = end;
    while start > first && end - start < 2 && at(tokens, start - 1).is_content() {
        start -= 1;
    }
    start
}

fn join_range(tokens: &[Token], start: usize, end: usize) -> u64 {
    tokens
        .get(start..end)
        .unwrap_or_default()
        .iter()
        .fold(0, |key, token| join(key, token.stem))
}

/// The unit after the number, and the last word of it; none for a range, which gives no one value.
fn unit_of(tokens: &[Token], number: usize) -> Option<(u64, usize)> {
    let next = at(tokens, number + 1);
    let goes_on = matches!(next.hash, TO | OR)
        || next.is_mark('-')
        || next.is_mark('–')
        || next.is_mark('±')
        || next.is_mark('/');
    if goes_on && at(tokens, number + 2).kind == Kind::Number
        || next.hash == AND && at(tokens, number + 2).kind == Kind::Number
    {
        return None;
    }
    let counted = next.is(lex::UNIT) || next.kind == Kind::Symbol || next.is_content();
    Some(if counted {
        (next.stem, number + 1)
    } else {
        (0, number)
    })
}

/// "per axle", "at the north gauge": the case that the value is given for, and the last word of it.
fn qualifier_after(tokens: &[Token], last: usize) -> (u64, usize) {
    let preposition = at(tokens, last + 1);
    if !preposition.is(lex::PREPOSITION) {
        return (0, last);
    }
    let mut words = (last + 2..last + 5).take_while(|&index| !at(tokens, index).ends_clause());
    let object: Vec<usize> = words
        .by_ref()
        .filter(|&index| at(tokens, index).is_content() || at(tokens, index).kind == Kind::Number)
        .take(2)
        .collect();
    let key = object
        .iter()
        .fold(preposition.hash, |key, &index| join(key, at(tokens, index).stem));
    object.last().map_or((0, last), |&end| (key, end))
}

// Acronyms

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
            .filter(|(_, token)| is_acronym(token))
        {
            if is_explained(view.tokens, index) {
                self.explain(token.stem);
            } else if !is_designation(view.tokens, index) {
                let place = Place::Text {
                    sentence: view.index as u32,
                    start: token.start,
                    end: token.end,
                };
                self.uses.push((token.stem, place));
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
