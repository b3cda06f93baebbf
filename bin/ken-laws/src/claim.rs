//! What one sentence is: claim, instruction, question; and what it rests on.

use crate::grammar::{is_finite, is_imperative_anywhere, is_past, obliges};
use crate::lexicon::{self as lex, Traces, hash, list};
use crate::scan::{Ending, Sentence};
use crate::token::{ADDRESS, BRACKET, CAPITAL, COLON, COMMA, Kind, Places, QUOTED, ROW, Token, YEAR, at};

/// What the rules ask about a sentence. All that its words are is gathered first, without a branch; what depends on where a
/// word stands is asked of those words only that can matter.
#[derive(Clone, Copy, Default)]
pub(crate) struct Claim {
    /// All that its words are, together: what no word is need not be looked for.
    pub(crate) traces: Traces,
    marks: u32,
    pub(crate) doubled: bool,
    pub(crate) words: u32,
    /// Words that are no function words.
    pub(crate) content: u32,
    pub(crate) function_words: u32,
    pub(crate) quoted: u32,
    pub(crate) markers: u32,
    /// Words that hedge.
    pub(crate) hedges: u32,
    /// Whether a verb can carry a main clause.
    pub(crate) finite: bool,
    /// Numbers and numerals that say how much; "100 %" says nothing of the kind.
    pub(crate) numbers: u32,
    /// A year, month or weekday.
    pub(crate) dated: bool,
    /// A name within the sentence: a capital that does not open it.
    pub(crate) named: bool,
    /// A web address, or a citation in brackets.
    pub(crate) cited: bool,
    pub(crate) question: bool,
    pub(crate) instruction: bool,
    /// The first word that supports it, that is exact, that points back.
    pub(crate) support: Option<u32>,
    pub(crate) exactness: Option<u32>,
    pub(crate) link: Option<u32>,
}

const MARKER: u64 = list("marker");
const HEDGE: u64 = list("hedge") | list("soft");
const VERBS: u64 = lex::VERB_BASE | lex::VERB_S | lex::VERB_PAST;

/// The places in a row of tokens that are looked at again.
#[derive(Default)]
struct Row {
    verbs: Places,
    numbers: Places,
    supports: Places,
    links: Places,
}

impl Claim {
    pub(crate) fn of(tokens: &[Token], sentence: &Sentence) -> Claim {
        let mut claim = Claim {
            question: sentence.ending == Ending::Question,
            ..Claim::default()
        };
        let mut last = 0;
        for (number, row) in tokens.chunks(ROW).enumerate() {
            let places = claim.gather(row, &mut last);
            claim.visit(tokens, number * ROW, &places);
        }
        claim.finish(tokens);
        claim
    }

    /// Takes up what each token is by itself. `last` is the hash of the one before.
    fn gather(&mut self, row: &[Token], last: &mut u64) -> Row {
        let mut places = Row::default();
        for (place, token) in row.iter().enumerate() {
            let (word, number) = (token.kind == Kind::Word, token.kind == Kind::Number);
            self.traces.flags |= token.flags;
            self.traces.words |= Traces::bit(token.hash);
            self.traces.stems |= Traces::bit(token.stem);
            self.marks |= token.marks;
            self.doubled |= token.hash == *last;
            *last = token.hash;
            self.words += u32::from(word);
            let function = token.is(lex::FUNCTION);
            self.function_words += u32::from(word & function);
            self.content += u32::from(word & !function);
            let exact = number | word & token.is(lex::NUMERAL);
            let supports = (word | number) & (exact | token.is(lex::CALENDAR) | token.has(ADDRESS | QUOTED));
            let links = word & !supports & (token.is(lex::POINTER | lex::CONNECTIVE) | token.has(lex::THE));
            places.numbers.note(place, exact);
            places.supports.note(place, supports);
            places.links.note(place, links);
            places
                .verbs
                .note(place, word & (token.is(VERBS) | could_be_verb(token)));
        }
        places
    }

    /// Looks at the places again, now with what stands around them.
    fn visit(&mut self, tokens: &[Token], start: usize, places: &Row) {
        let first = |places: &Places| places.first().map(|place| start as u32 + place);
        self.exactness = self.exactness.or(first(&places.numbers));
        self.support = self.support.or(first(&places.supports));
        self.link = self.link.or(first(&places.links));
        self.finite = self.finite
            || self.any(lex::AUXILIARY)
            || places
                .verbs
                .into_iter()
                .any(|place| is_finite(tokens, start + place));
        for place in places.numbers {
            self.add_number(tokens, start + place);
        }
    }

    fn add_number(&mut self, tokens: &[Token], index: usize) {
        let (token, next) = (at(tokens, index), at(tokens, index + 1));
        let counts = if token.kind == Kind::Number {
            self.words += 1;
            token.value != 100 || next.hash != PERCENT
        } else {
            !token.has(lex::ONE) || next.is(lex::UNIT)
        };
        self.numbers += u32::from(counts);
    }

    /// What follows from all that was gathered.
    fn finish(&mut self, tokens: &[Token]) {
        let count = |may_be: bool, is: fn(&Token) -> bool| match may_be {
            true => tokens
                .iter()
                .filter(|token| token.kind == Kind::Word && is(token))
                .count() as u32,
            false => 0,
        };
        self.quoted = count(self.has(QUOTED), |token| token.has(QUOTED));
        self.markers = count(self.any(MARKER), |token| token.is(MARKER));
        self.hedges = count(self.any(HEDGE), |token| {
            token.is(HEDGE) && !token.has(QUOTED | CAPITAL)
        });
        self.named = tokens
            .iter()
            .skip(1)
            .any(|token| token.has(CAPITAL) && !token.has(lex::SELF));
        self.dated = self.any(lex::CALENDAR) || self.has(YEAR) || self.has(lex::MONTH) && names_month(tokens);
        self.cited = self.has(ADDRESS) || self.has(BRACKET) && cites(tokens);
        let obliged = self.any(lex::OBLIGATION)
            || self.has(lex::HAS_TO) && (0..tokens.len()).any(|index| obliges(tokens, index));
        self.instruction = !self.question && (obliged || is_imperative_anywhere(tokens, self.marks));
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
        self.traces.flags & flags != 0
    }

    /// Whether any of its tokens has one of the marks.
    pub(crate) fn has(&self, marks: u32) -> bool {
        self.marks & marks != 0
    }

    /// Whether it says something as true, rather than asking, telling to do or naming.
    pub(crate) fn is_claim(&self) -> bool {
        self.finite && self.words > 2 && !self.question && !self.instruction
    }

    /// Whether it takes up something said before.
    pub(crate) fn points_back(&self) -> bool {
        self.any(lex::POINTER | lex::CONNECTIVE) || self.has(lex::THE)
    }

    pub(crate) fn is_conditional(&self) -> bool {
        self.has(lex::CONDITION)
    }

    pub(crate) fn has_comma(&self) -> bool {
        self.has(COMMA)
    }

    pub(crate) fn has_colon(&self) -> bool {
        self.has(COLON)
    }
}

const PERCENT: u64 = hash(b"%");

/// An unknown word whose spelling allows a finite verb.
fn could_be_verb(token: &Token) -> bool {
    (token.flags == 0) & (token.stem != token.hash)
}

/// "In May", "March 3": not the verbs.
fn names_month(tokens: &[Token]) -> bool {
    let mut inner = tokens.iter().skip(1);
    inner.any(|token| token.has(lex::MONTH) && token.has(CAPITAL))
}

/// "[4]", "(Miller 1998)".
fn cites(tokens: &[Token]) -> bool {
    tokens.iter().enumerate().any(|(index, token)| {
        let inside = at(tokens, index + 1);
        let opens = token.is_mark('[') && inside.kind == Kind::Number;
        let closes = token.is_mark(')') && index > 1 && at(tokens, index - 1).has(YEAR);
        opens && at(tokens, index + 2).is_mark(']') || closes
    })
}

/// Whether it tells of the past.
pub(crate) fn tells_past(tokens: &[Token]) -> bool {
    let in_past = |index| matches!(at(tokens, index).hash, WAS | WERE | DID | HAD) || is_past(tokens, index);
    (0..tokens.len()).any(in_past)
}

const WAS: u64 = hash(b"was");
const WERE: u64 = hash(b"were");
const DID: u64 = hash(b"did");
const HAD: u64 = hash(b"had");

/// Whether something in it is done to something.
pub(crate) fn is_passive(tokens: &[Token]) -> bool {
    let mut pairs = tokens.windows(2);
    pairs.any(|pair| matches!(pair, [be, verb] if be.is(lex::BE) && verb.is(lex::VERB_PAST)))
}
