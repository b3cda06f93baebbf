//! What one sentence is: claim, instruction, question; and what it rests on.

use crate::grammar::{is_finite, is_imperative_anywhere, is_past, obliges};
use crate::lexicon::{self as lex, Traces, hash, list};
use crate::scan::{Ending, Scan, Sentence};
use crate::token::{ADDRESS, BRACKET, CAPITAL, COLON, COMMA, Kind, QUOTED, Token, WORD, YEAR, at};

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
}

const MARKER: u64 = list("marker");
const HEDGE: u64 = list("hedge") | list("soft");

impl Claim {
    pub(crate) fn of(scan: &Scan, sentence: &Sentence) -> Claim {
        let (tokens, rows) = (scan.tokens_of(sentence), scan.rows_of(sentence));
        let mut claim = Claim::gather(tokens);
        claim.question = sentence.ending == Ending::Question;
        rows.each(|row| row.exact)
            .for_each(|index| claim.count_number(tokens, index));
        claim.count_words(tokens);
        claim.finite = claim.any(lex::AUXILIARY) || (0..tokens.len()).any(|index| is_finite(tokens, index));
        let mut capitals = rows.each(|row| row.capitals);
        claim.named = capitals.any(|index| index > 0 && !at(tokens, index).has(lex::SELF));
        claim.dated =
            claim.any(lex::CALENDAR) || claim.has(YEAR) || claim.has(lex::MONTH) && names_month(tokens);
        claim.cited = claim.has(ADDRESS) || claim.has(BRACKET) && cites(tokens);
        let obliged = claim.any(lex::OBLIGATION)
            || claim.has(lex::HAS_TO) && (0..tokens.len()).any(|index| obliges(tokens, index));
        let commands = claim.any(lex::VERB_BASE) && is_imperative_anywhere(tokens, claim.marks);
        claim.instruction = !claim.question && (obliged || commands);
        claim
    }

    /// Takes up what each token is by itself.
    fn gather(tokens: &[Token]) -> Claim {
        let (mut traces, mut marks, mut doubled, mut last) = (Traces::NONE, 0, false, 0);
        let (mut words, mut function_words) = (0, 0);
        for token in tokens {
            traces.add(token.flags, token.hash);
            marks |= token.marks;
            doubled |= token.hash == last;
            last = token.hash;
            words += u32::from(token.has(WORD));
            function_words += u32::from(token.is(lex::FUNCTION));
        }
        Claim {
            traces,
            marks,
            doubled,
            words,
            content: words - function_words,
            function_words,
            ..Claim::default()
        }
    }

    fn count_number(&mut self, tokens: &[Token], index: usize) {
        self.words += u32::from(at(tokens, index).kind == Kind::Number);
        self.numbers += u32::from(says_how_much(tokens, index));
    }

    /// Counts the words of some kinds that are rare.
    fn count_words(&mut self, tokens: &[Token]) {
        let count = |may_be: bool, is: fn(&Token) -> bool| match may_be {
            true => tokens.iter().filter(|token| token.has(WORD) && is(token)).count() as u32,
            false => 0,
        };
        self.quoted = count(self.has(QUOTED), |token| token.has(QUOTED));
        self.markers = count(self.any(MARKER), |token| token.is(MARKER));
        self.hedges = count(self.any(HEDGE), |token| {
            token.is(HEDGE) && !token.has(QUOTED | CAPITAL)
        });
    }

    /// Whether a reader can check it: a date, a number, a source or a quotation.
    pub(crate) fn is_supported(&self) -> bool {
        self.numbers > 0 || self.is_attributed()
    }

    /// The same but for numbers, of which not every one measures something.
    pub(crate) fn is_attributed(&self) -> bool {
        self.dated || self.cited || self.quoted > 2
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

/// Whether a number or numeral is a figure; "100 %" says the same as "wholly", and "one" is most often a pronoun.
pub(crate) fn says_how_much(tokens: &[Token], index: usize) -> bool {
    let (token, next) = (at(tokens, index), at(tokens, index + 1));
    if token.kind == Kind::Number {
        token.value != 100 || next.hash != PERCENT
    } else {
        !token.has(lex::ONE) || next.is(lex::UNIT)
    }
}

const PERCENT: u64 = hash(b"%");

/// A number, in digits or as a word.
pub(crate) fn is_exact(token: &Token) -> bool {
    token.has(lex::EXACT)
}

/// A word that a reader can check the sentence by.
pub(crate) fn supports(token: &Token) -> bool {
    is_exact(token) || token.has(WORD) && (token.is(lex::CALENDAR) || token.has(ADDRESS | QUOTED))
}

/// A word that takes up what was said before.
pub(crate) fn points_back(token: &Token) -> bool {
    (token.is(lex::POINTER | lex::CONNECTIVE) || token.has(lex::THE)) && !supports(token)
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
