//! What one sentence is: claim, instruction, question; and what it rests on.

use crate::lexicon::{self as lex, hash, list};
use crate::scan::{ADDRESS, CAPITAL, CLOCK, Ending, Kind, NOTHING, PLURAL, QUOTED, Sentence, Token, YEAR};

const EVERYONE: u64 = list("everyone");

/// What the rules ask about a sentence.
#[derive(Clone, Copy, Default)]
pub(crate) struct Claim {
    /// All that its words are, together: what no word is need not be looked for.
    pub(crate) flags: u64,
    pub(crate) marks: u8,
    pub(crate) doubled: bool,
    pub(crate) because: bool,
    obliges: bool,
    pub(crate) either: bool,
    pub(crate) words: u32,
    /// Words that are no function words.
    pub(crate) content: u32,
    /// Verbs that can carry a main clause.
    pub(crate) finite: u32,
    /// Numbers and numerals that say how much; "100 %" says nothing of the kind.
    pub(crate) numbers: u32,
    /// Numbers with a unit, times of day.
    pub(crate) exact: u32,
    /// A year, month or weekday.
    pub(crate) dated: bool,
    /// A name within the sentence: a capital that does not open it.
    pub(crate) named: bool,
    /// A web address, or a citation in brackets.
    pub(crate) cited: bool,
    pub(crate) quoted: u32,
    pub(crate) function_words: u32,
    pub(crate) points_back: bool,
    pub(crate) has_the: bool,
    pub(crate) comma: bool,
    pub(crate) colon: bool,
    pub(crate) conditional: bool,
    pub(crate) past: bool,
    pub(crate) passive: bool,
    pub(crate) markers: u32,
    /// Words that hedge.
    pub(crate) hedges: u32,
    /// Tells of a change.
    pub(crate) change: bool,
    pub(crate) question: bool,
    pub(crate) instruction: bool,
    /// The first word that supports it, that is exact, that points back.
    pub(crate) support: Option<u32>,
    pub(crate) exactness: Option<u32>,
    pub(crate) link: Option<u32>,
}

impl Claim {
    pub(crate) fn of(tokens: &[Token], sentence: &Sentence) -> Claim {
        let mut claim = Claim {
            question: sentence.ending == Ending::Question,
            ..Claim::default()
        };
        let mut last = 0;
        for (index, token) in tokens.iter().enumerate() {
            claim.flags |= token.flags;
            claim.marks |= token.marks;
            claim.doubled |= token.hash == last;
            last = token.hash;
            match token.kind {
                Kind::Word => {
                    claim.place(index, token);
                    claim.add_word(tokens, index, token);
                }
                Kind::Number => {
                    claim.place(index, token);
                    claim.add_number(tokens, index, token);
                }
                Kind::Symbol => {}
                Kind::Mark => claim.add_mark(tokens, index, token),
            }
        }
        claim.instruction = !claim.question && (claim.obliges || is_imperative_anywhere(tokens));
        claim
    }

    /// Whether a reader can check it: a date, a number, a source or a quotation.
    pub(crate) fn is_supported(&self) -> bool {
        self.numbers > 0 || self.dated || self.cited || self.quoted > 2
    }

    /// Whether words of approval are so many in it that they say nothing.
    pub(crate) fn is_marker_row(&self) -> bool {
        self.markers * 3 > self.words
    }

    /// Whether any of its words has one of the flags.
    pub(crate) fn any(&self, flags: u64) -> bool {
        self.flags & flags != 0
    }

    /// Whether it says something as true, rather than asking, telling to do or naming.
    pub(crate) fn is_claim(&self) -> bool {
        self.finite > 0 && self.words > 2 && !self.question && !self.instruction
    }

    /// Notes the first words that show what the counts say.
    fn place(&mut self, index: usize, token: &Token) {
        let index = Some(index as u32);
        if token.kind == Kind::Number || token.is(lex::NUMERAL) {
            self.exactness = self.exactness.or(index);
            self.support = self.support.or(index);
        } else if token.is(lex::CALENDAR) || token.has(ADDRESS | QUOTED) {
            self.support = self.support.or(index);
        } else if token.is(lex::POINTER | lex::CONNECTIVE) || token.hash == THE {
            self.link = self.link.or(index);
        }
    }

    fn add_word(&mut self, tokens: &[Token], index: usize, token: &Token) {
        self.words += 1;
        if token.is(lex::FUNCTION) {
            self.function_words += 1;
        } else {
            self.content += 1;
        }
        self.finite += u32::from(is_finite(tokens, index));
        self.quoted += u32::from(token.has(QUOTED));
        self.dated |=
            token.is(lex::CALENDAR) || matches!(token.hash, MAY | MARCH) && token.has(CAPITAL) && index > 0;
        self.cited |= token.has(ADDRESS);
        self.named |= index > 0 && token.has(CAPITAL) && token.hash != I;
        self.points_back |= token.is(lex::POINTER | lex::CONNECTIVE);
        self.has_the |= token.hash == THE;
        self.conditional |=
            token.hash == IF || token.hash == UNLESS || token.hash == WHETHER || token.hash == WOULD;
        self.past |= token.hash == WAS
            || token.hash == WERE
            || token.hash == DID
            || token.hash == HAD
            || is_past(tokens, index);
        self.obliges |= obliges(tokens, index);
        self.because |= token.hash == BECAUSE;
        self.either |= token.hash == OR;
        self.passive |= token.is(lex::BE) && at(tokens, index + 1).is(lex::VERB_PAST);
        self.hedges += u32::from(
            token.is(const { list("hedge") } | const { list("soft") }) && !token.has(QUOTED | CAPITAL),
        );
        self.change |= token.is(const { list("change") });
        self.markers += u32::from(token.is(const { list("marker") }));
        if token.is(lex::NUMERAL) && token.hash != ONE {
            self.numbers += 1;
        }
        if token.is(lex::NUMERAL) && at(tokens, index + 1).is(lex::UNIT) {
            self.exact += 1;
            self.numbers += u32::from(token.hash == ONE);
        }
    }

    fn add_number(&mut self, tokens: &[Token], index: usize, token: &Token) {
        self.words += 1;
        let next = at(tokens, index + 1);
        if token.value == 100 && next.hash == PERCENT {
            return;
        }
        self.numbers += 1;
        self.dated |= token.has(YEAR);
        let before = before(tokens, index);
        let is_exact =
            token.has(CLOCK | YEAR) || next.is(lex::UNIT) || before.kind == Kind::Symbol || next.is_content();
        self.exact += u32::from(is_exact);
    }

    fn add_mark(&mut self, tokens: &[Token], index: usize, token: &Token) {
        self.comma |= token.is_mark(',');
        self.colon |= token.is_mark(':');
        let inside = at(tokens, index + 1);
        let opens = token.is_mark('[') && inside.kind == Kind::Number;
        let closes = token.is_mark(')') && index > 1 && at(tokens, index - 1).has(YEAR);
        self.cited |= opens && at(tokens, index + 2).is_mark(']') || closes;
    }
}

const I: u64 = hash(b"i");
const MAY: u64 = hash(b"may");
const MARCH: u64 = hash(b"march");
const THE: u64 = hash(b"the");
const IF: u64 = hash(b"if");
const UNLESS: u64 = hash(b"unless");
const WHETHER: u64 = hash(b"whether");
const WOULD: u64 = hash(b"would");
const WAS: u64 = hash(b"was");
const WERE: u64 = hash(b"were");
const DID: u64 = hash(b"did");
const HAD: u64 = hash(b"had");
const ONE: u64 = hash(b"one");
const PERCENT: u64 = hash(b"%");
const TO: u64 = hash(b"to");
const NOT: u64 = hash(b"not");
const DO: u64 = hash(b"do");
const ALWAYS: u64 = hash(b"always");
const NEVER: u64 = hash(b"never");
const HAVE: u64 = hash(b"have");
const HAS: u64 = hash(b"has");
const NEED: u64 = hash(b"need");
const NEEDS: u64 = hash(b"needs");

/// The token at an index, or nothing.
pub(crate) fn at(tokens: &[Token], index: usize) -> &Token {
    tokens.get(index).unwrap_or(&NOTHING)
}

/// The token before an index, or nothing.
pub(crate) fn before(tokens: &[Token], index: usize) -> &Token {
    index.checked_sub(1).map_or(&NOTHING, |index| at(tokens, index))
}

/// Whether the word can be the verb of a main clause where it stands. In doubt it can.
fn is_finite(tokens: &[Token], index: usize) -> bool {
    let token = at(tokens, index);
    if token.is(lex::AUXILIARY) {
        return true;
    }
    let before = before(tokens, index);
    let labels = before.kind == Kind::Number
        && (token.is(lex::VERB_PAST) || index > 1 && at(tokens, index - 2).is_content());
    let label = before.hash == A && before.has(CAPITAL) && index > 1; // "farm A weighed"
    let after_noun_mark = !label && before.is(lex::DETERMINER | lex::PREPOSITION) && !before.is(lex::PRONOUN)
        || before.kind == Kind::Number && !labels;
    if token.is(lex::VERB_S | lex::VERB_PAST) {
        return !after_noun_mark && !before.is(lex::BE);
    }
    if token.is(lex::VERB_BASE) {
        return before.hash != TO && !after_noun_mark && !is_noun_after_article(tokens, index);
    }
    looks_like_a_verb(token)
        && !after_noun_mark
        && index > 0
        && at(tokens, index + 1).is(lex::DETERMINER | lex::PRONOUN)
}

/// "a large set", "a very compact file": a singular article not far before, and no plural between.
fn is_noun_after_article(tokens: &[Token], index: usize) -> bool {
    let phrase = tokens
        .iter()
        .take(index)
        .rev()
        .take(3)
        .take_while(|token| token.kind == Kind::Word && !token.has(PLURAL));
    phrase.into_iter().any(|token| matches!(token.hash, A | AN))
}

const A: u64 = hash(b"a");
const AN: u64 = hash(b"an");

/// An unknown word whose spelling allows a finite verb.
fn looks_like_a_verb(token: &Token) -> bool {
    token.flags == 0 && token.kind == Kind::Word && token.stem != token.hash
}

/// A past form that is no participle after a form of be or have.
fn is_past(tokens: &[Token], index: usize) -> bool {
    let token = at(tokens, index);
    token.is(lex::VERB_PAST)
        && !token.is(lex::VERB_BASE)
        && is_finite(tokens, index)
        && !before(tokens, index).is(lex::AUXILIARY)
}

/// Whether the sentence holds an imperative, at its head or after a condition.
fn is_imperative_anywhere(tokens: &[Token]) -> bool {
    if is_imperative(tokens, 0) {
        return true;
    }
    let first = at(tokens, 0);
    let opens_aside =
        first.is(lex::SUBORDINATOR | lex::PREPOSITION | lex::ORDINAL | lex::QUALIFIER | lex::CONNECTIVE)
            || first.hash == STEP;
    let mut marks = tokens
        .iter()
        .enumerate()
        .filter(|(_, token)| token.is_mark(',') || token.is_mark(':') || token.is_mark(';'));
    opens_aside
        && marks
            .next()
            .is_some_and(|(mark, _)| is_imperative(tokens, mark + 1))
}

/// "must", "has to", "needs to".
fn obliges(tokens: &[Token], index: usize) -> bool {
    let token = at(tokens, index);
    token.is(lex::OBLIGATION)
        || matches!(token.hash, HAVE | HAS | NEED | NEEDS) && at(tokens, index + 1).hash == TO
}

const STEP: u64 = hash(b"step");
const THEN: u64 = hash(b"then");
const PLEASE: u64 = hash(b"please");
const AND: u64 = hash(b"and");

/// Whether a clause that starts at `index` is an imperative.
fn is_imperative(tokens: &[Token], index: usize) -> bool {
    let mut index = index;
    while matches!(at(tokens, index).hash, THEN | PLEASE | ALWAYS | NEVER | AND)
        || at(tokens, index).is(lex::ORDINAL) && index < 2
    {
        index += 1;
    }
    let (verb, next) = (at(tokens, index), at(tokens, index + 1));
    if verb.hash == DO && next.hash == NOT {
        return true;
    }
    let is_verb = verb.is(lex::VERB_BASE)
        && !verb.is(lex::AUXILIARY | lex::PREPOSITION | lex::PRONOUN | lex::DETERMINER | lex::NUMERAL);
    if !is_verb
        || next.is(lex::AUXILIARY | lex::VERB_S)
        || next.is(lex::VERB_PAST) && !next.is(lex::VERB_BASE)
    {
        return false;
    }
    // "Stop words are left out": the verb's look-alike is part of a noun.
    if next.is_content() && at(tokens, index + 2).is(lex::AUXILIARY) {
        return false;
    }
    // "Work on the bridge began": a noun and its attribute, then the verb.
    let clause = tokens
        .iter()
        .skip(index + 1)
        .take_while(|token| !token.ends_clause());
    let mut finite = clause
        .filter(|token| token.is(lex::AUXILIARY) || token.is(lex::VERB_PAST) && !token.is(lex::VERB_BASE));
    !(next.is(lex::PREPOSITION) && finite.next().is_some())
}

/// Whether the word at `index` stands in the scope of a negation: after one in its clause, near enough.
pub(crate) fn is_negated(tokens: &[Token], index: usize) -> bool {
    let mut negative = false;
    for (distance, token) in tokens
        .iter()
        .take(index)
        .rev()
        .take(ken_text::MAX_SCOPE)
        .enumerate()
    {
        if token.ends_clause()
            || token.hash == WITHOUT && distance > 2
            || matches!(token.hash, AND | BUT | YET | SO | BECAUSE)
        {
            break;
        }
        negative ^= token.is(lex::NEGATION);
    }
    negative
}

const WITHOUT: u64 = hash(b"without");
const BUT: u64 = hash(b"but");
const OR: u64 = hash(b"or");
const YET: u64 = hash(b"yet");
const SO: u64 = hash(b"so");
const BECAUSE: u64 = hash(b"because");

/// Where an absolute word makes a general claim in the present tense: always, never with a verb, everyone as subject.
pub(crate) fn is_absolute(tokens: &[Token], index: usize) -> bool {
    let (token, before, next) = (at(tokens, index), before(tokens, index), at(tokens, index + 1));
    if token.has(QUOTED) || is_negated(tokens, index) {
        return false;
    }
    let present = next.is(lex::VERB_S) || next.is(lex::VERB_BASE) && !next.is(lex::VERB_PAST);
    match token.hash {
        ALWAYS | NEVER => {
            let after_present = matches!(before.hash, IS | ARE | WILL | CAN | DOES | DO);
            let subject = before.is_content() || before.is(lex::PRONOUN);
            after_present || subject && (present || matches!(next.hash, IS | ARE | WILL | CAN))
        }
        _ => {
            token.is(EVERYONE)
                && !before.is(lex::SUBORDINATOR)
                && (present || matches!(next.hash, IS | WILL | CAN | HAS | ALWAYS))
                && !next.is(lex::OBLIGATION)
        }
    }
}

const IS: u64 = hash(b"is");
const ARE: u64 = hash(b"are");
const WILL: u64 = hash(b"will");
const CAN: u64 = hash(b"can");
const DOES: u64 = hash(b"does");
