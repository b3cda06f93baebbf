//! Finds clauses that contradict each other, by their normal forms.

use std::ops::Range;

use crate::claim::Claim;
use crate::finding::{Finding, Findings, Place, View};
use crate::grammar::{clauses, is_imperative};
use crate::lexicon::word::{
    AFTER, ALWAYS, AND, BE, BEFORE, CAN, CANNOT, DID, EVER, NEVER, PLEASE, SO, THEN, WAS, WERE,
};
use crate::lexicon::{self as lex, hash, join};
use crate::map::Map;
use crate::rubric::CONTRADICTION;
use crate::scan::Sentence;
use crate::token::{Kind, QUOTED, Token, at, before};

/// A clause in normal form: a subject, a statement about it, and whether the clause affirms or negates this statement.
#[derive(Clone)]
pub(crate) struct Clause {
    key: u64,
    negative: bool,
    /// The keys of the clause without its last attributes, one for each preposition that begins an attribute.
    prefixes: Vec<u64>,
    /// The clause in the form in which "never" negates it: without a time that begins with "after" or "before".
    at_any_time: Option<u64>,
    /// Whether its subject is a pronoun, which has the same meaning only in the next sentence.
    has_pronoun_subject: bool,
    /// Its first and last word, as indices into the sentence.
    first: usize,
    last: usize,
}

/// For each normal form, the places where it was affirmed and where it was negated.
#[derive(Default)]
pub(crate) struct Statements {
    known: Map<Statement>,
    places: Vec<Place>,
}

/// Indices in [`Statements::places`]: all normal forms of a clause share its place.
#[derive(Default)]
struct Statement {
    affirmed: Option<usize>,
    negated: Option<usize>,
}

impl Statements {
    /// Discards the data of the previous text, then adds the statements of the context.
    pub(crate) fn clear(&mut self, context: &[Clause]) {
        self.known.clear();
        self.places.clear();
        context.iter().for_each(|clause| self.enter(clause, Place::Context));
    }

    /// Whether neither the context nor the text has stated anything so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(crate) fn add(&mut self, view: &View<'_>, findings: &mut Findings) {
        for clause in contradictable(view.tokens, view.sentence, view.claim) {
            let now = view.finding(CONTRADICTION, clause.first, clause.last);
            if let Some(earlier) = self.against(&clause, &now) {
                findings.add_conflict(earlier, now, CONTRADICTION);
            }
            self.enter(&clause, Place::Text(now));
        }
    }

    /// The place of an earlier clause that contradicts this one. If a clause is negated, it is also negated with any attribute; if
    /// it is affirmed with an attribute, it is also affirmed without it.
    fn against(&self, clause: &Clause, now: &Finding) -> Option<Place> {
        let is_next = |earlier: &Place| matches!(earlier, Place::Text(earlier) if earlier.sentence + 1 == now.sentence);
        clause.keys().find_map(|key| {
            let statement = self.known.get(&key)?;
            let opposite = if clause.negative { statement.affirmed } else { statement.negated };
            let earlier = self.places.get(opposite?).copied();
            earlier.filter(|earlier| !clause.has_pronoun_subject || is_next(earlier))
        })
    }

    fn enter(&mut self, clause: &Clause, place: Place) {
        for key in clause.keys() {
            let statement = self.known.entry(key).or_default();
            let here = if clause.negative { &mut statement.negated } else { &mut statement.affirmed };
            let first = here.filter(|_| !clause.has_pronoun_subject);
            *here = first.or(Some(self.places.len()));
        }
        self.places.push(place);
    }
}

impl Clause {
    /// The normal forms under which the clause is stored.
    fn keys(&self) -> impl Iterator<Item = u64> {
        let prefixes = if self.negative { &[][..] } else { &self.prefixes };
        prefixes.iter().copied().chain([self.key]).chain(self.at_any_time)
    }
}

/// The clauses of the sentence that can contradict others: unconditional statements and commands.
fn contradictable(tokens: &[Token], sentence: &Sentence, claim: &Claim) -> impl Iterator<Item = Clause> {
    let states = !claim.instruction || claim.any(lex::OBLIGATION) && !is_imperative(tokens, 0);
    // "Do not open it until it is cold" applies to one time only.
    let holds_always = states || is_imperative(tokens, 0) && !claim.any(lex::SUBORDINATOR);
    let is_open = claim.question || claim.is_conditional() || claim.any(lex::OR) || sentence.heading;
    let max_clauses = if is_open || !holds_always {
        0
    } else if states {
        usize::MAX
    } else {
        1 // what comes after the command in its sentence can be a condition
    };
    let read = if states { Builder::read } else { Builder::read_command };
    ranges(tokens).take(max_clauses).filter_map(move |clause| read(tokens, clause))
}

/// The clauses that state something. A sentence with "or" has none, because either alternative may hold.
pub(crate) fn in_sentence(tokens: &[Token]) -> impl Iterator<Item = Clause> {
    ranges(tokens).filter_map(|clause| Builder::read(tokens, clause))
}

fn ranges(tokens: &[Token]) -> impl Iterator<Item = Range<usize>> {
    clauses(tokens, |index| at(tokens, index).ends_clause() || parts(tokens, index))
}

/// Whether a new clause begins after this word.
fn parts(tokens: &[Token], index: usize) -> bool {
    let token = at(tokens, index);
    // "oak and ash" is one part of a clause; "and" before a subject with its verb begins another.
    let joins_words = || matches!(token.hash, AND | SO) && !at(tokens, index + 1).is(lex::DETERMINER | lex::PRONOUN);
    token.is(lex::PARTS) && !joins_words()
}

/// Maximum length of a clause in words. A longer one has qualifications that a comparison of words cannot consider.
const MAX_CLAUSE_WORDS: usize = 24;

#[derive(Default)]
struct Builder {
    /// Whether it is a command. A command with the opposite word can be the next step: "open the valve" does not contradict "close
    /// the valve".
    command: bool,
    key: u64,
    items: usize,
    negative: bool,
    past: bool,
    prefixes: Vec<u64>,
    /// The key before "after" or "before".
    timeless: Option<u64>,
    /// Whether the negation is "never".
    never: bool,
    has_pronoun_subject: bool,
}

impl Builder {
    /// Reads a clause that states something about its subject.
    fn read(tokens: &[Token], clause: Range<usize>) -> Option<Clause> {
        let words = tokens.get(clause.clone())?;
        let subject = words.first()?;
        let is_placeholder = subject.is(lex::STAND_IN) && at(words, 1).is(lex::AUXILIARY | lex::VERB);
        if words.len() < 2
            || is_placeholder
            || quantifies(subject)
            || opens_with_verb(subject)
            || !words.iter().any(is_verb)
        {
            return None;
        }
        let builder = Builder { has_pronoun_subject: subject.is(lex::PERSONAL), ..Builder::default() };
        builder.build(tokens, clause)
    }

    fn read_command(tokens: &[Token], clause: Range<usize>) -> Option<Clause> {
        let polite = |index: &usize| matches!(at(tokens, *index).hash, THEN | PLEASE | AND);
        let first = clause.clone().find(|index| !polite(index))?;
        let builder = Builder { key: COMMAND, command: true, ..Builder::default() };
        builder.build(tokens, first..clause.end)
    }

    fn build(mut self, tokens: &[Token], clause: Range<usize>) -> Option<Clause> {
        let words = tokens.get(clause.clone())?;
        if words.len() > MAX_CLAUSE_WORDS || words.iter().any(|token| token.has(QUOTED)) {
            return None;
        }
        for index in 0..words.len() {
            self.push(words, index)?;
        }
        (self.items >= 2).then(|| self.finish(clause.start, clause.end - 1))
    }

    /// Adds a word. Returns `None` if the clause has a negation that this form cannot represent.
    fn push(&mut self, words: &[Token], index: usize) -> Option<()> {
        let token = at(words, index);
        if token.is(lex::NEGATION) {
            self.negative ^= token.is(lex::DENIAL);
            self.never |= token.hash == NEVER;
            if token.hash == CANNOT {
                self.add(CAN);
            }
            return token.is(lex::DENIAL).then_some(());
        }
        if token.hash == ALWAYS {
            return (!self.negative).then_some(()); // "not always" does not mean never
        }
        self.past |= matches!(token.hash, WAS | WERE | DID);
        if token.is(lex::ARTICLE | lex::FILLER) || token.kind == Kind::Mark {
            return Some(());
        }
        let after_auxiliary =
            before(words, index).is(lex::AUXILIARY | lex::DETERMINER) || before(words, index).is(lex::NEGATION);
        self.past |= token.is(lex::VERB_PAST) && !token.is(lex::VERB_BASE) && !after_auxiliary;
        if token.is(lex::PREPOSITION) && self.items >= 2 {
            self.prefixes.push(self.key);
        }
        if matches!(token.hash, AFTER | BEFORE) && !self.command {
            self.timeless.get_or_insert(self.key);
        }
        let opposes = token.is(lex::OPPOSITE) && !self.command;
        self.negative ^= opposes && token.is(lex::FLIPPED);
        self.add(if opposes { pole(token) } else { normal(token) });
        Some(())
    }

    fn add(&mut self, item: u64) {
        self.key = join(self.key, item);
        self.items += 1;
    }

    /// Completes the clause. The tense is part of the normal form: "was open" does not contradict "is closed".
    fn finish(self, first: usize, last: usize) -> Clause {
        let tense = u64::from(self.past);
        let timeless =
            if self.negative { Some(self.key).filter(|_| self.never && !self.command) } else { self.timeless };
        Clause {
            key: join(self.key, tense),
            negative: self.negative,
            prefixes: self.prefixes.into_iter().map(|prefix| join(prefix, tense)).collect(),
            at_any_time: timeless.map(|key| join(join(key, tense), EVER)),
            has_pronoun_subject: self.has_pronoun_subject,
            first,
            last,
        }
    }
}

/// Whether the subject refers to only some of many. Then nothing is compared, because "some are" and "some are not" can both be
/// true.
fn quantifies(subject: &Token) -> bool {
    subject.kind == Kind::Number || subject.is(lex::NUMERAL) || subject.is(lex::QUANTIFIER)
}

fn is_verb(token: &Token) -> bool {
    token.is(lex::AUXILIARY | lex::VERB)
}

fn opens_with_verb(token: &Token) -> bool {
    token.is(lex::AUXILIARY)
        || token.is(lex::VERB_S | lex::VERB_PAST) && !token.is(lex::VERB_BASE)
        || token.is(lex::PREPOSITION | lex::SUBORDINATOR)
}

/// A common form of a word and its opposite.
fn pole(token: &Token) -> u64 {
    !u64::from(token.value)
}

/// A common form of all inflections of a word, and of all forms of "be".
fn normal(token: &Token) -> u64 {
    if token.is(lex::BE) { BE } else { token.stem }
}

const COMMAND: u64 = hash(b"!");
