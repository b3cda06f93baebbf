//! Law 3: claims carry evidence and do not contradict each other or the context.

use crate::claim::Claim;
use crate::context::Context;
use crate::grammar::is_absolute;
use crate::judge::{Findings, View};
use crate::lexicon::{self as lex, Traces, hash, list};
use crate::rubric::{Law, index_of};
use crate::scan::{Scan, Sentence};
use crate::table::Table;
use crate::token::{Kind, QUOTED, Token, at, before};
use crate::word::{finish, join};

const ABSOLUTE: usize = index_of("absolute_claim");
const CONTRADICTION: usize = index_of("contradiction");
const CONTEXT: usize = index_of("context_conflict");
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
    let supported = view.claim.is_supported() || has_reason && view.claim.content > 3;
    if supported
        && view.claim.is_claim()
        && !view.claim.is_marker_row()
        && !findings.is_defective(view.index, Law::Truth)
    {
        let word = view.claim.support.map_or(0, |word| word as usize);
        view.find(findings, SUPPORTED, word, word);
    }
}

/// Where something was said.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    Text { sentence: u32, start: u32, end: u32 },
    Context,
}

impl Place {
    /// Adds a finding at this place of the text.
    pub(crate) fn find(self, feature: usize, findings: &mut Findings) {
        if let Place::Text { sentence, start, end } = self {
            findings.add(feature, sentence as usize, start as usize, end as usize);
        }
    }
}

/// Finds both sides of a conflict, as one of the text or as one with the context.
pub(crate) fn report(earlier: Place, now: Place, within_text: usize, findings: &mut Findings) {
    match earlier {
        Place::Text { sentence, .. } => {
            let known = findings
                .features
                .get(sentence as usize)
                .is_some_and(|features| features & (1 << within_text) != 0);
            if !known {
                earlier.find(within_text, findings);
            }
            now.find(within_text, findings);
        }
        Place::Context => now.find(CONTEXT, findings),
    }
}

/// A clause in normal form: what it says of what, whether it says so or denies it.
#[derive(Clone, Copy)]
pub(crate) struct Clause {
    pub(crate) key: u64,
    pub(crate) negative: bool,
    /// The clause without its last attributes, for each preposition that begins one.
    prefixes: [u64; 4],
    prefix_count: usize,
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
}

/// With more denials than these every sentence is read, so that a long text costs no more to the word than a short one.
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
        for (sentence, claim) in scan.sentences.iter().zip(claims) {
            if self.denials.len() > MOST_DENIALS {
                break;
            }
            if denies(claim) && states(sentence, claim) {
                each_clause(scan.tokens_of(sentence), |clause| self.note_denials(&[clause]));
            }
        }
        self.places.clear();
        for clause in &context.clauses {
            self.enter(clause, Place::Context);
        }
    }

    pub(crate) fn add(&mut self, view: &View<'_>, findings: &mut Findings) {
        if !states(view.sentence, view.claim) || !self.concerns(view.claim) {
            return;
        }
        each_clause(view.tokens, |clause| {
            let (start, end) = (
                at(view.tokens, clause.first).start,
                at(view.tokens, clause.last).end,
            );
            let place = Place::Text {
                sentence: view.index as u32,
                start,
                end,
            };
            if let Some(earlier) = self.against(&clause) {
                report(earlier, place, CONTRADICTION, findings);
            }
            self.enter(&clause, place);
        });
    }

    fn note_denials(&mut self, clauses: &[Clause]) {
        let denials = clauses.iter().filter(|clause| clause.negative);
        self.denials.extend(denials.map(|clause| clause.needs));
    }

    /// Whether the sentence denies something, or may say what another denies.
    fn concerns(&self, claim: &Claim) -> bool {
        let stems = claim.traces.stems;
        let any = self.denials.len() > MOST_DENIALS || self.denials.iter().any(|needs| needs & !stems == 0);
        any || denies(claim) && !self.denials.is_empty()
    }

    /// Where the opposite was said. What is denied is denied with any attribute; what is said with an attribute is said.
    fn against(&self, clause: &Clause) -> Option<Place> {
        let stance = |key: &u64| self.places.get(*key).unwrap_or_default();
        if clause.negative {
            return stance(&clause.key).said;
        }
        let prefixes = clause.prefixes.iter().take(clause.prefix_count);
        prefixes.chain([&clause.key]).find_map(|key| stance(key).denied)
    }

    fn enter(&mut self, clause: &Clause, place: Place) {
        if clause.negative {
            if let Some(stance) = self.places.entry(clause.key) {
                stance.denied.get_or_insert(place);
            }
            return;
        }
        for &key in clause
            .prefixes
            .iter()
            .take(clause.prefix_count)
            .chain([&clause.key])
        {
            if let Some(stance) = self.places.entry(key) {
                stance.said.get_or_insert(place);
            }
        }
    }
}

fn denies(claim: &Claim) -> bool {
    claim.any(lex::NEGATION | lex::FLIPPED)
}

/// Whether it says that something is so, in every case.
fn states(sentence: &Sentence, claim: &Claim) -> bool {
    !(claim.question || claim.is_conditional() || claim.instruction || claim.has(lex::OR) || sentence.heading)
}

/// Calls `with` for each clause that states something of something. Where "or" stands, either may hold: not to be called.
pub(crate) fn each_clause(tokens: &[Token], mut with: impl FnMut(Clause)) {
    let mut first = 0;
    for index in 0..=tokens.len() {
        let token = at(tokens, index);
        let ends = index == tokens.len() || token.ends_clause() || parts(tokens, index);
        if !ends {
            continue;
        }
        if let Some(clause) = Builder::read(tokens, first, index) {
            with(clause);
        }
        first = index + 1;
    }
}

/// Whether a new clause begins after this word.
fn parts(tokens: &[Token], index: usize) -> bool {
    let token = at(tokens, index);
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
/// Subjects that stand for something said before.
const STAND_INS: [u64; 12] = [
    hash(b"it"),
    hash(b"they"),
    hash(b"this"),
    hash(b"that"),
    hash(b"these"),
    hash(b"those"),
    hash(b"he"),
    hash(b"she"),
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

struct Builder {
    key: u64,
    items: usize,
    negative: bool,
    past: bool,
    prefixes: [u64; 4],
    prefix_count: usize,
    needs: u64,
}

impl Builder {
    fn read(tokens: &[Token], first: usize, end: usize) -> Option<Clause> {
        let words = tokens.get(first..end)?;
        let subject = words.first()?;
        let states = words.len() >= 2 && words.len() <= LONGEST_CLAUSE && words.iter().any(is_verb);
        let quoted = words.iter().any(|token| token.has(QUOTED));
        if !states
            || quoted
            || STAND_INS.contains(&subject.hash) && at(words, 1).is(lex::AUXILIARY | lex::VERB)
            || opens_with_verb(subject)
        {
            return None;
        }
        let mut builder = Builder {
            key: 0,
            items: 0,
            negative: false,
            past: false,
            prefixes: [0; 4],
            prefix_count: 0,
            needs: 0,
        };
        for index in 0..words.len() {
            builder.push(words, index)?;
        }
        (builder.items >= 2).then(|| builder.finish(first, end - 1))
    }

    /// None when the clause denies in a way that this form cannot hold.
    fn push(&mut self, words: &[Token], index: usize) -> Option<()> {
        let token = at(words, index);
        if token.is(lex::NEGATION) {
            self.negative ^= DENIALS.contains(&token.hash);
            if token.hash == CANNOT {
                self.add(CAN);
            }
            return DENIALS.contains(&token.hash).then_some(());
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
        self.negative ^= token.is(lex::FLIPPED);
        if !token.is(lex::BE | lex::OPPOSITE) {
            self.needs |= Traces::bit(token.stem);
        }
        self.add(normal(token));
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
        Clause {
            key: join(self.key, tense),
            negative: self.negative,
            prefixes: self.prefixes.map(|prefix| join(prefix, tense)),
            prefix_count: self.prefix_count,
            needs: self.needs,
            first,
            last,
        }
    }
}

fn is_verb(token: &Token) -> bool {
    token.is(lex::AUXILIARY | lex::VERB)
}

fn opens_with_verb(token: &Token) -> bool {
    token.is(lex::AUXILIARY)
        || token.is(lex::VERB_S | lex::VERB_PAST) && !token.is(lex::VERB_BASE)
        || token.is(lex::PREPOSITION | lex::SUBORDINATOR)
}

/// One form for all forms of be, for a word and its opposite, for a word and its inflections.
fn normal(token: &Token) -> u64 {
    if token.is(lex::BE) {
        return BE;
    }
    if token.is(lex::OPPOSITE) {
        return finish(!(u64::from(token.value) << 32));
    }
    token.stem
}

const BE: u64 = hash(b"be");
