//! What is said and what is denied: clauses in a normal form, and those that contradict each other.

use std::ops::Range;

use crate::claim::Claim;
use crate::context::Context;
use crate::grammar::{clauses, is_imperative};
use crate::judge::{Findings, View};
use crate::lexicon::{self as lex, hash, list, trace};
use crate::place::{Place, report};
use crate::rubric::index_of;
use crate::scan::{Scan, Sentence};
use crate::table::Table;
use crate::token::{Kind, QUOTED, Token, at, before};
use crate::word::{finish, join};

const CONTRADICTION: usize = index_of("contradiction");

/// A clause in normal form: what it says of what, whether it says so or denies it.
#[derive(Clone, Copy)]
pub(crate) struct Clause {
    pub(crate) key: u64,
    pub(crate) negative: bool,
    /// The clause without its last attributes, for each preposition that begins one.
    prefixes: [u64; 4],
    prefix_count: usize,
    /// The clause as "never" denies it: without the time that opens with after or before.
    at_any_time: Option<u64>,
    /// Whether its subject is a pronoun, which another may have with the next sentence only.
    stands_in: bool,
    /// The traces of the stems that stand in it: what contradicts it has them all.
    needs: u64,
    first: usize,
    last: usize,
}

/// For each normal form where it was said and where denied.
#[derive(Default)]
pub(crate) struct Stances {
    places: Table<Stance>,
    /// For each denial of the text and the context the traces of its stems: only what has them all can contradict it.
    denials: Vec<u64>,
    /// Whether there are so many denials that every sentence is read.
    reads_all: bool,
    /// For each sentence the traces of its stems; none where no sentence denies anything.
    stems: Vec<u64>,
}

/// With more sentences that deny than these all are read, so that a long text costs no more to the word than a short one.
const MOST_DENIALS: usize = 16;

#[derive(Clone, Copy, Default)]
struct Stance {
    said: Option<Place>,
    denied: Option<Place>,
}

impl Stances {
    /// Starts a text: nothing is known but the context.
    pub(crate) fn fill(&mut self, context: &Context, scan: &Scan, claims: &[Claim]) {
        self.denials.clear();
        self.note_denials(&context.clauses);
        let denying = |index: &usize| claims.get(*index).is_some_and(denies);
        let mut deny = (0..claims.len()).filter(denying).peekable();
        self.stems.clear();
        if deny.peek().is_some() || !self.denials.is_empty() {
            self.stems.extend(
                scan.sentences
                    .iter()
                    .map(|sentence| traces_of(scan.tokens_of(sentence))),
            );
        }
        for index in deny.by_ref().take(MOST_DENIALS) {
            self.note_sentence(index, context, scan, claims);
        }
        self.reads_all = deny.next().is_some();
        self.places.clear();
        for clause in &context.clauses {
            self.enter(clause, Place::Context);
        }
    }

    pub(crate) fn add(&mut self, view: &View<'_>, findings: &mut Findings) {
        if !self.concerns(view.index, view.claim) {
            return;
        }
        each_stance(view.tokens, view.sentence, view.claim, |clause| {
            let place = view.place(clause.first, clause.last);
            if let Some(earlier) = self.against(&clause, place) {
                report(earlier, place, CONTRADICTION, findings);
            }
            self.enter(&clause, place);
        });
    }

    fn note_denials(&mut self, clauses: &[Clause]) {
        let denials = clauses.iter().filter(|clause| clause.negative);
        self.denials.extend(denials.map(|clause| clause.needs));
    }

    /// Notes what a sentence denies. A sentence that says nothing else contradicts none, unless another has all its stems.
    fn note_sentence(&mut self, index: usize, context: &Context, scan: &Scan, claims: &[Claim]) {
        let (Some(sentence), Some(claim)) = (scan.sentences.get(index), claims.get(index)) else {
            return;
        };
        let (start, mut clauses) = (self.denials.len(), 0);
        each_stance(scan.tokens_of(sentence), sentence, claim, |clause| {
            clauses += 1;
            self.note_denials(&[clause]);
        });
        if let Some(needs) = self.denials.get(start).filter(|_| clauses == 1) {
            let like = self.stems.iter().filter(|stems| needs & !**stems == 0);
            if like.count() == 1 && context.clauses.is_empty() {
                self.denials.truncate(start);
            }
        }
    }

    /// Whether the sentence denies something, or may say what another denies.
    fn concerns(&self, index: usize, claim: &Claim) -> bool {
        let stems = self.stems.get(index).copied().unwrap_or(0);
        let any = self.reads_all || self.denials.iter().any(|needs| needs & !stems == 0);
        any || denies(claim) && !self.denials.is_empty()
    }

    /// Where the opposite was said. What is denied is denied with any attribute; what is said with an attribute is said.
    fn against(&self, clause: &Clause, place: Place) -> Option<Place> {
        clause.keys().find_map(|key| {
            let stance = self.places.get(key).unwrap_or_default();
            let opposite = if clause.negative {
                stance.said
            } else {
                stance.denied
            };
            opposite.filter(|earlier| !clause.stands_in || place.is_next_to(*earlier))
        })
    }

    fn enter(&mut self, clause: &Clause, place: Place) {
        for key in clause.keys() {
            if let Some(stance) = self.places.entry(key) {
                let here = if clause.negative {
                    &mut stance.denied
                } else {
                    &mut stance.said
                };
                let first = here.filter(|_| !clause.stands_in);
                *here = first.or(Some(place));
            }
        }
    }
}

impl Clause {
    /// The normal forms that it is said or denied in.
    fn keys(&self) -> impl Iterator<Item = u64> {
        let shorter = if self.negative { 0 } else { self.prefix_count };
        let prefixes = self.prefixes.into_iter().take(shorter);
        prefixes.chain([self.key]).chain(self.at_any_time)
    }
}

fn traces_of(tokens: &[Token]) -> u64 {
    tokens.iter().fold(0, |traces, token| traces | trace(token.stem))
}

fn denies(claim: &Claim) -> bool {
    claim.any(lex::NEGATION | lex::FLIPPED)
}

/// Calls `with` for each clause of the sentence that can contradict another: what it says to be so in every case, or what
/// it commands.
fn each_stance(tokens: &[Token], sentence: &Sentence, claim: &Claim, mut with: impl FnMut(Clause)) {
    if claim.question || claim.is_conditional() || claim.has(lex::OR) || sentence.heading {
        return;
    }
    if !claim.instruction || claim.any(lex::OBLIGATION) && !is_imperative(tokens, 0) {
        return each_clause(tokens, with);
    }
    // "Do not open it until it is cold" denies one time.
    if is_imperative(tokens, 0) && !claim.any(lex::SUBORDINATOR) {
        let ends = |index| at(tokens, index).ends_clause() || parts(tokens, index);
        let command = clauses(tokens, ends).next();
        if let Some(clause) = command.and_then(|clause| Builder::read_command(tokens, clause)) {
            with(clause);
        }
    }
}

/// Calls `with` for each clause that states something of something. Where "or" stands, either may hold: not to be called.
pub(crate) fn each_clause(tokens: &[Token], with: impl FnMut(Clause)) {
    let ends = |index| at(tokens, index).ends_clause() || parts(tokens, index);
    clauses(tokens, ends)
        .filter_map(|clause| Builder::read(tokens, clause))
        .for_each(with);
}

/// Whether a new clause begins after this word.
fn parts(tokens: &[Token], index: usize) -> bool {
    let token = at(tokens, index);
    if !token.is(lex::PARTS) {
        return false;
    }
    // "oak and ash" is one part of a clause; "and" before a subject with its verb begins another.
    let joins_clauses = matches!(token.hash, AND | SO | BUT | YET)
        && (at(tokens, index + 1).is(lex::DETERMINER | lex::PRONOUN) || matches!(token.hash, BUT | YET));
    joins_clauses || matches!(token.hash, BECAUSE | WHILE | ALTHOUGH | THOUGH | WHEREAS)
}

const AND: u64 = hash(b"and");
const SO: u64 = hash(b"so");
const BUT: u64 = hash(b"but");
const YET: u64 = hash(b"yet");
const BECAUSE: u64 = hash(b"because");
const WHILE: u64 = hash(b"while");
const ALTHOUGH: u64 = hash(b"although");
const THOUGH: u64 = hash(b"though");
const WHEREAS: u64 = hash(b"whereas");

/// The words that turn a clause into its denial; "nothing" and "without" do more than that.
const DENIALS: [u64; 4] = [hash(b"not"), hash(b"never"), hash(b"no"), hash(b"cannot")];
/// Subjects that stand for something said before; two sentences in a row that open with the same mean the same.
const PERSONAL: [u64; 4] = [hash(b"it"), hash(b"they"), hash(b"he"), hash(b"she")];
/// Those that may stand for something else each time.
const STAND_INS: [u64; 8] = [
    hash(b"this"),
    hash(b"that"),
    hash(b"these"),
    hash(b"those"),
    hash(b"there"),
    hash(b"which"),
    hash(b"who"),
    hash(b"one"),
];
const CANNOT: u64 = hash(b"cannot");
const CAN: u64 = hash(b"can");
const WAS: u64 = hash(b"was");
const WERE: u64 = hash(b"were");
const DID: u64 = hash(b"did");

/// Words; a longer clause has qualifications that a comparison word by word cannot weigh.
const LONGEST_CLAUSE: usize = 24;

#[derive(Default)]
struct Builder {
    /// Of a command, whose opposite may be the next step of it: "open the valve" does not deny "close the valve".
    command: bool,
    key: u64,
    items: usize,
    negative: bool,
    past: bool,
    prefixes: [u64; 4],
    prefix_count: usize,
    /// The key before "after" or "before".
    timeless: Option<u64>,
    /// Whether it is "never" that denies.
    never: bool,
    stands_in: bool,
    needs: u64,
}

impl Builder {
    /// A clause that says something of its subject.
    fn read(tokens: &[Token], clause: Range<usize>) -> Option<Clause> {
        let words = tokens.get(clause.clone())?;
        let subject = words.first()?;
        let stands_in = STAND_INS.contains(&subject.hash) && at(words, 1).is(lex::AUXILIARY | lex::VERB);
        if words.len() < 2
            || stands_in
            || quantifies(subject)
            || opens_with_verb(subject)
            || !words.iter().any(is_verb)
        {
            return None;
        }
        let builder = Builder {
            stands_in: PERSONAL.contains(&subject.hash),
            ..Builder::default()
        };
        builder.build(tokens, clause)
    }

    /// A command: what is to be done, or never.
    fn read_command(tokens: &[Token], clause: Range<usize>) -> Option<Clause> {
        let polite = |index: &usize| matches!(at(tokens, *index).hash, THEN | PLEASE | AND);
        let first = clause.clone().find(|index| !polite(index))?;
        let builder = Builder {
            key: COMMAND,
            command: true,
            ..Builder::default()
        };
        builder.build(tokens, first..clause.end)
    }

    fn build(mut self, tokens: &[Token], clause: Range<usize>) -> Option<Clause> {
        let words = tokens.get(clause.clone())?;
        if words.len() > LONGEST_CLAUSE || words.iter().any(|token| token.has(QUOTED)) {
            return None;
        }
        for index in 0..words.len() {
            self.push(words, index)?;
        }
        (self.items >= 2).then(|| self.finish(clause.start, clause.end - 1))
    }

    /// None when the clause denies in a way that this form cannot hold.
    fn push(&mut self, words: &[Token], index: usize) -> Option<()> {
        let token = at(words, index);
        if token.is(lex::NEGATION) {
            self.negative ^= DENIALS.contains(&token.hash);
            self.never |= token.hash == NEVER;
            if token.hash == CANNOT {
                self.add(CAN);
            }
            return DENIALS.contains(&token.hash).then_some(());
        }
        if token.hash == ALWAYS {
            return (!self.negative).then_some(()); // what is not always so may be so
        }
        self.past |= matches!(token.hash, WAS | WERE | DID);
        if token.is(lex::ARTICLE | const { list("filler") }) || token.kind == Kind::Mark {
            return Some(());
        }
        let after_auxiliary = before(words, index).is(lex::AUXILIARY | lex::DETERMINER)
            || before(words, index).is(lex::NEGATION);
        self.past |= token.is(lex::VERB_PAST) && !token.is(lex::VERB_BASE) && !after_auxiliary;
        if token.is(lex::PREPOSITION) && self.items >= 2 {
            self.cut();
        }
        if matches!(token.hash, AFTER | BEFORE) && !self.command {
            self.timeless.get_or_insert(self.key);
        }
        let opposes = token.is(lex::OPPOSITE) && !self.command;
        self.negative ^= opposes && token.is(lex::FLIPPED);
        if !opposes && !token.is(lex::BE) {
            self.needs |= trace(token.stem);
        }
        self.add(if opposes { pole(token) } else { normal(token) });
        Some(())
    }

    fn add(&mut self, item: u64) {
        self.key = join(self.key, item);
        self.items += 1;
    }

    fn cut(&mut self) {
        if let Some(slot) = self.prefixes.get_mut(self.prefix_count) {
            *slot = self.key;
            self.prefix_count += 1;
        }
    }

    /// The tense belongs to what is said: "was open" does not deny "is closed".
    fn finish(self, first: usize, last: usize) -> Clause {
        let tense = u64::from(self.past);
        let timeless = if self.negative {
            Some(self.key).filter(|_| self.never && !self.command)
        } else {
            self.timeless
        };
        Clause {
            key: join(self.key, tense),
            negative: self.negative,
            prefixes: self.prefixes.map(|prefix| join(prefix, tense)),
            prefix_count: self.prefix_count,
            at_any_time: timeless.map(|key| join(join(key, tense), EVER)),
            stands_in: self.stands_in,
            needs: self.needs,
            first,
            last,
        }
    }
}

/// Whether the subject stands for some of many: "some are" and "some are not" both hold.
fn quantifies(subject: &Token) -> bool {
    subject.kind == Kind::Number || subject.is(lex::NUMERAL) || QUANTIFIERS.contains(&subject.hash)
}

const QUANTIFIERS: [u64; 7] = [
    hash(b"some"),
    hash(b"many"),
    hash(b"most"),
    hash(b"few"),
    hash(b"several"),
    hash(b"another"),
    hash(b"others"),
];

fn is_verb(token: &Token) -> bool {
    token.is(lex::AUXILIARY | lex::VERB)
}

fn opens_with_verb(token: &Token) -> bool {
    token.is(lex::AUXILIARY)
        || token.is(lex::VERB_S | lex::VERB_PAST) && !token.is(lex::VERB_BASE)
        || token.is(lex::PREPOSITION | lex::SUBORDINATOR)
}

/// One form for a word and its opposite.
fn pole(token: &Token) -> u64 {
    finish(!(u64::from(token.value) << 32))
}

/// One form for all forms of be, for a word and its inflections.
fn normal(token: &Token) -> u64 {
    if token.is(lex::BE) { BE } else { token.stem }
}

const BE: u64 = hash(b"be");
const COMMAND: u64 = hash(b"!");
const ALWAYS: u64 = hash(b"always");
const NEVER: u64 = hash(b"never");
const EVER: u64 = hash(b"ever");
const AFTER: u64 = hash(b"after");
const BEFORE: u64 = hash(b"before");
const THEN: u64 = hash(b"then");
const PLEASE: u64 = hash(b"please");
