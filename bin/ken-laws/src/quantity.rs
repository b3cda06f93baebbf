//! Quantities: what is measured, in which unit, and the stated value.

use crate::finding::{Findings, Place, View};
use crate::lexicon::word::{A, AN, AND, ANOTHER, ANY, EACH, EVERY, HAD, IN, NO, OR, PER, SOME, THAT, TO, WAS, WERE};
use crate::lexicon::{self as lex, hash, join};
use crate::map::Map;
use crate::rubric::CONFLICTING_VALUE;
use crate::token::{Kind, NOTHING, QUOTED, Token, YEAR, at, before};

/// A quantity with its value, as stated in a sentence.
#[derive(Clone, Copy)]
pub(crate) struct Quantity {
    /// The hash of the subject that is measured and of the unit.
    key: u64,
    value: u64,
    /// The place, time or part that the value is limited to; 0 if there is none.
    qualifier: u64,
    past: bool,
    /// Whether the quantity is introduced here, as in "a rate of".
    introduced: bool,
    /// Its first and last word, as indices into the sentence.
    first: usize,
    last: usize,
}

/// The first value of each quantity.
#[derive(Default)]
pub(crate) struct Quantities(Map<Given>);

struct Given {
    quantity: Quantity,
    /// Whether a different value has been stated too.
    disputed: bool,
    place: Place,
}

impl Quantities {
    /// Discards the data of the previous text, then adds the quantities of the context.
    pub(crate) fn clear(&mut self, context: &[Quantity]) {
        self.0.clear();
        for quantity in context {
            self.enter(quantity, Place::Context);
        }
    }

    pub(crate) fn add(&mut self, view: &View<'_>, findings: &mut Findings) {
        if view.claim.numbers == 0 || view.claim.question || view.sentence.heading {
            return;
        }
        for quantity in in_sentence(view.tokens) {
            let now = view.finding(CONFLICTING_VALUE, quantity.first, quantity.last);
            if let Some(earlier) = self.enter(&quantity, Place::Text(now)) {
                findings.add_conflict(earlier, now, CONFLICTING_VALUE);
            }
        }
    }

    /// Adds a value, and returns the place of the first value if they differ. Once two values differ, every further value of the
    /// quantity is a conflict.
    fn enter(&mut self, quantity: &Quantity, place: Place) -> Option<Place> {
        let given = self.0.entry(quantity.key).or_insert(Given { quantity: *quantity, disputed: false, place });
        let first = &given.quantity;
        let same_qualifier = first.qualifier == quantity.qualifier || first.qualifier == 0 || quantity.qualifier == 0;
        let same_case = same_qualifier && first.past == quantity.past;
        let differs = first.value != quantity.value && !quantity.introduced;
        given.disputed |= differs && same_case;
        (given.disputed && same_case).then_some(given.place)
    }
}

/// The quantities of a sentence: a name, one number and its unit, such as "the design load is 40 kN per axle".
pub(crate) fn in_sentence(tokens: &[Token]) -> impl Iterator<Item = Quantity> {
    let numbers = (0..tokens.len()).filter(|index| at(tokens, *index).is_exact());
    numbers.filter_map(|number| quantity_at(tokens, number))
}

/// Maximum distance in words between a number and what it measures.
const MAX_SUBJECT_WORDS: usize = 12;

/// The unit of a number that may measure something, and the last word of the unit.
fn measures(tokens: &[Token], number: usize) -> Option<(u64, usize)> {
    let (token, last) = (at(tokens, number), before(tokens, number));
    let is_value = token.kind == Kind::Number && !token.has(YEAR) || token.is(lex::NUMERAL) && !token.is(lex::ORDINAL);
    if is_founding(tokens, number) {
        return unit_of(tokens, number).map(|_| (YEAR_OF, number));
    }
    if !is_value || token.has(QUOTED) || !(last.is_content() || links(last)) {
        return None;
    }
    unit_of(tokens, number)
}

/// Whether the number is a year that can have only one value, as in "was founded in 1990".
fn is_founding(tokens: &[Token], number: usize) -> bool {
    let verb = number.checked_sub(2).map_or(&NOTHING, |verb| at(tokens, verb));
    let token = at(tokens, number);
    token.has(YEAR) && !token.has(QUOTED) && before(tokens, number).hash == IN && verb.is(lex::FOUNDED)
}

/// Used as the unit of a year for which [`is_founding`] holds.
const YEAR_OF: u64 = hash(b"year");

fn quantity_at(tokens: &[Token], number: usize) -> Option<Quantity> {
    let token = at(tokens, number);
    let (unit, last) = measures(tokens, number)?;
    let farthest = number.saturating_sub(MAX_SUBJECT_WORDS);
    let first = skip_back(tokens, farthest, number, |token| !parts(token));
    let subject = if is_founding(tokens, number) {
        Subject::before(tokens, first, number - 1).filter(|subject| subject.is_the_only(tokens, first))?
    } else {
        Subject::before(tokens, first, number)?
    };
    let clause_tokens = tokens.get(first..number)?;
    let shifts = |token: &Token| token.is(lex::QUALIFIER | lex::NEGATION | lex::OBLIGATION | lex::MODAL);
    if clause_tokens.iter().any(shifts) {
        return None;
    }
    let past = tokens.get(subject.first..number)?.iter().any(|token| {
        matches!(token.hash, WAS | WERE | HAD)
            || token.is(lex::VERB_PAST) && !token.is(lex::VERB_BASE) && subject.lacks_be
    });
    let value = if token.is(lex::NUMERAL) { hash(token.value.to_string().as_bytes()) } else { token.hash };
    let (after, last) = case_at(tokens, last + 1).unwrap_or((0, last));
    let qualifier = if after == 0 { opening_case(tokens, first) } else { after };
    Some(Quantity {
        key: join(subject.key, unit),
        value,
        qualifier,
        past,
        introduced: subject.introduced,
        first: subject.first,
        last,
    })
}

/// Whether the token separates a quantity from its value.
fn parts(token: &Token) -> bool {
    token.ends_clause() && !token.is_mark(':') && !token.is_mark('=')
}

/// The subject that a number measures.
struct Subject {
    key: u64,
    first: usize,
    lacks_be: bool,
    introduced: bool,
}

impl Subject {
    /// Whether the subject opens the clause, at most with "the" before it. Otherwise more than the subject identifies the thing,
    /// as in "the school of music" or "his firm".
    fn is_the_only(&self, tokens: &[Token], first: usize) -> bool {
        self.first == first || self.first == first + 1 && before(tokens, self.first).is(lex::THE)
    }

    /// Reads the subject of the verb before `linked`, which it shares with the verb before "and". In "The hut lies in a wood and
    /// sleeps 36 people", the result has the key of "the hut sleeps".
    fn shared(tokens: &[Token], first: usize, linked: usize, has_be: bool) -> Option<Subject> {
        let verb = linked - 1;
        let start = first + usize::from(at(tokens, first).is(lex::DETERMINER));
        let nouns = (start..verb).take_while(|&index| is_noun(at(tokens, index))).count();
        let joined = before(tokens, verb).hash == AND && is_verb_only(at(tokens, start + nouns));
        if !joined || !(1..=3).contains(&nouns) {
            return None;
        }
        let noun = start + nouns - 1;
        let words = join(join(0, at(tokens, noun).stem), at(tokens, verb).stem);
        Some(Subject {
            key: join(join_range(tokens, start, noun), words),
            first: start,
            lacks_be: !has_be,
            introduced: matches!(before(tokens, start).hash, A | AN),
        })
    }

    /// Reads backwards from the number: linking words, then a noun with its attribute, or a verb and its subject.
    fn before(tokens: &[Token], first: usize, number: usize) -> Option<Subject> {
        let linked = skip_back(tokens, first, number, links);
        let mut start = content_before(tokens, first, linked);
        let bounds = tokens.get(linked..number)?.iter().filter(|token| token.is(lex::BOUND));
        let mut key = bounds.fold(join_range(tokens, start, linked), |key, token| join(key, token.hash));
        let mut has_be = tokens.get(linked..number)?.iter().any(|token| token.is(lex::BE));
        let verb = linked.checked_sub(1).is_some_and(|last| last >= start && is_verb_only(at(tokens, last)));
        if verb {
            let auxiliary = skip_back(tokens, first, start, |token| token.is(lex::AUXILIARY) || token.hash == THAT);
            has_be |= auxiliary < start;
            let subject = content_before(tokens, first, auxiliary);
            key = join(join_range(tokens, subject, auxiliary), key);
            if subject == auxiliary && start == linked - 1 {
                return Subject::shared(tokens, first, linked, has_be).filter(|_| linked == number);
            }
            start = subject;
        }
        let open = before(tokens, start);
        // "A breach costs 40 euros" applies to every breach.
        let general = verb && at(tokens, linked - 1).is(lex::VERB_S);
        let introduced = start > first && matches!(open.hash, A | AN) && !general;
        let indefinite = start > first
            && (matches!(open.hash, EACH | EVERY | ANY | ANOTHER | NO | SOME | PER)
                || open.kind == Kind::Number
                || open.is(lex::NUMERAL));
        let tied = start == linked || linked == number && !verb;
        (!tied && !indefinite).then_some(Subject { key, first: start, lacks_be: !has_be, introduced })
    }
}

/// Whether the word is allowed between a quantity and its number.
fn links(token: &Token) -> bool {
    token.is(lex::BE)
        || token.kind == Kind::Symbol
        || token.is_mark(':')
        || token.is_mark('=')
        || token.is(lex::LINK | lex::BOUND)
}

fn is_noun(token: &Token) -> bool {
    token.is_content() && !is_verb_only(token)
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

/// The start of the one or two content words that end before `end`.
fn content_before(tokens: &[Token], first: usize, end: usize) -> usize {
    let mut start = end;
    while start > first && end - start < 2 && at(tokens, start - 1).is_content() {
        start -= 1;
    }
    start
}

fn join_range(tokens: &[Token], start: usize, end: usize) -> u64 {
    tokens.get(start..end).unwrap_or_default().iter().fold(0, |key, token| join(key, token.stem))
}

/// The unit after the number, and its last word; `None` for a range, which is not a single value.
fn unit_of(tokens: &[Token], number: usize) -> Option<(u64, usize)> {
    let next = at(tokens, number + 1);
    let goes_on = matches!(next.hash, TO | OR | AND) || ['-', '–', '±', '/'].into_iter().any(|mark| next.is_mark(mark));
    if goes_on && at(tokens, number + 2).kind == Kind::Number {
        return None;
    }
    let counted = next.is(lex::UNIT) || next.kind == Kind::Symbol || next.is_content();
    if !counted {
        return Some((0, number));
    }
    let last = end_of_unit(tokens, number + 1);
    let rest = tokens.get(number + 2..=last).unwrap_or_default();
    let unit = rest.iter().fold(next.stem, |unit, part| join(unit, part.stem));
    Some((unit, last))
}

/// The last word of the unit that begins here; "km/h", "°C" and "degrees Celsius" have more than one.
pub(crate) fn end_of_unit(tokens: &[Token], first: usize) -> usize {
    let (unit, next) = (at(tokens, first), at(tokens, first + 1));
    if next.is_mark('/') && at(tokens, first + 2).kind == Kind::Word {
        first + 2
    } else {
        first + usize::from(unit.is(lex::DEGREE) && next.is(lex::SCALE))
    }
}

/// The case to which a value applies, and the index of its last word: "per axle", "at the north gauge", "outside".
fn case_at(tokens: &[Token], index: usize) -> Option<(u64, usize)> {
    let opening = at(tokens, index);
    if opening.is(lex::PLACE) {
        return Some((opening.hash, index));
    }
    if !opening.is(lex::PREPOSITION) {
        return None;
    }
    let words = (index + 1..index + 4).take_while(|&index| !at(tokens, index).ends_clause());
    let object =
        words.filter(|&index| at(tokens, index).is_content() || at(tokens, index).kind == Kind::Number).take(2);
    Some(object.fold((opening.hash, index), |(key, _), index| (join(key, at(tokens, index).stem), index)))
}

/// The case at the beginning of the clause at `first`: "In Berlin, …", "Outside, …"; 0 without one.
fn opening_case(tokens: &[Token], first: usize) -> u64 {
    match case_at(tokens, 0) {
        Some((key, last)) if before(tokens, first).is_mark(',') && last + 2 == first => key,
        _ => 0,
    }
}
