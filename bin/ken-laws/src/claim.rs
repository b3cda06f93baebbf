//! The kind of a sentence (claim, instruction, question), and the evidence in it.

use crate::grammar::{is_finite, is_imperative_anywhere, is_past, obliges};
use crate::lexicon::word::{ARE, CAN, DID, DO, DOES, HAD, HAS, HAVE, IS, MAY, MUST, WAS, WERE, WILL};
use crate::lexicon::{self as lex, hash};
use crate::scan::{Ending, Sentence};
use crate::token::{ADDRESS, CAPITAL, Kind, QUOTED, Token, YEAR, at, before};

/// The properties of a sentence that the rules use.
#[derive(Clone, Copy, Default)]
pub(crate) struct Claim {
    /// The union of the classes and marks of all its tokens.
    classes: u128,
    marks: u32,
    pub(crate) words: usize,
    /// The number of words that are not function words.
    pub(crate) content: usize,
    pub(crate) function_words: usize,
    pub(crate) foreign_words: usize,
    /// The number of function words, verbs, numerals, units and names of days.
    pub(crate) grammatical_words: usize,
    /// The number of words for which [`is_unlisted`] holds.
    pub(crate) unlisted: usize,
    quoted: usize,
    pub(crate) markers: usize,
    pub(crate) hedges: usize,
    /// Whether a verb can carry a main clause.
    pub(crate) finite: bool,
    /// The number of numbers and numerals that state a quantity; "100 %" does not.
    pub(crate) numbers: usize,
    /// How many of `numbers` are neither years nor numbers of references.
    figures: usize,
    /// Whether it contains a year, month or weekday.
    pub(crate) dated: bool,
    /// Whether it contains a name: a capital letter that is not at the beginning.
    pub(crate) named: bool,
    /// Whether it contains a web address or a citation in brackets.
    pub(crate) cited: bool,
    pub(crate) question: bool,
    pub(crate) instruction: bool,
}

impl Claim {
    pub(crate) fn new(tokens: &[Token], sentence: &Sentence) -> Claim {
        let count = |is: fn(&Token) -> bool| tokens.iter().filter(|token| is(token)).count();
        let mut claim = Claim {
            question: sentence.ending == Ending::Question,
            classes: tokens.iter().fold(0, |classes, token| classes | token.classes),
            marks: tokens.iter().fold(0, |marks, token| marks | token.marks),
            words: count(|token| matches!(token.kind, Kind::Word | Kind::Number)),
            content: count(Token::is_content),
            function_words: count(|token| token.is(lex::FUNCTION)),
            foreign_words: count(|token| token.is(lex::FOREIGN)),
            grammatical_words: count(|token| token.is(lex::ORDINARY)),
            finite: (0..tokens.len()).any(|index| is_finite(tokens, index)),
            ..Claim::default()
        };
        for (index, token) in tokens.iter().enumerate() {
            claim.unlisted += usize::from(is_unlisted(tokens, index));
            if token.has(QUOTED | CAPITAL | YEAR) || token.kind == Kind::Number || token.is(COUNTED) {
                claim.count_rare(tokens, index, token);
            }
        }
        let obliged = claim.any(lex::OBLIGATION | lex::HAS_TO) && (0..tokens.len()).any(|index| obliges(tokens, index));
        claim.cited = claim.has(ADDRESS) || claim.numbers > 0 && cites(tokens);
        claim.instruction = !claim.question && (obliged || is_imperative_anywhere(tokens));
        claim
    }

    /// Counts the properties that only a few of the words have, such as being a number or a hedge.
    fn count_rare(&mut self, tokens: &[Token], index: usize, token: &Token) {
        let says_how_much = token.is_exact() && says_how_much(tokens, index);
        let is_figure = !(token.has(YEAR) || before(tokens, index).is_mark('['));
        self.quoted += usize::from(token.kind == Kind::Word && token.has(QUOTED));
        self.markers += usize::from(token.is(lex::MARKER));
        self.hedges += usize::from(token.is(lex::HEDGE | lex::SOFT) && !token.has(QUOTED | CAPITAL));
        self.numbers += usize::from(says_how_much);
        self.figures += usize::from(says_how_much && is_figure);
        let is_name = index > 0 && token.has(CAPITAL);
        self.named |= is_name && !token.is(lex::SELF);
        self.dated |= token.is(lex::CALENDAR) || token.has(YEAR) || is_name && token.is(lex::MONTH);
    }

    /// Whether it contains something that a reader can check: a date, a number, a source or a quotation.
    pub(crate) fn is_supported(&self) -> bool {
        self.numbers > 0 || self.is_attributed()
    }

    /// Like [`Claim::is_supported`], but without numbers, because not every number measures something.
    pub(crate) fn is_attributed(&self) -> bool {
        self.dated || self.cited || self.quoted > 2
    }

    /// Whether it contains evidence itself: a figure or a quotation. A citation does not count, because it only names a
    /// source.
    pub(crate) fn shows_evidence(&self) -> bool {
        self.figures > 0 || self.quoted > 2
    }

    pub(crate) fn is_quoting(&self) -> bool {
        self.quoted > 0
    }

    /// Whether it contains so many words of approval that they have no meaning.
    pub(crate) fn is_marker_row(&self) -> bool {
        self.markers * 3 > self.words
    }

    /// Whether any of its words belongs to one of the classes.
    pub(crate) fn any(&self, classes: u128) -> bool {
        self.classes & classes != 0
    }

    /// Whether any of its tokens has one of the marks.
    pub(crate) fn has(&self, marks: u32) -> bool {
        self.marks & marks != 0
    }

    /// Whether it states something. Questions, instructions and mere names do not.
    pub(crate) fn is_claim(&self) -> bool {
        self.finite && self.words > 2 && !self.question && !self.instruction
    }

    /// Whether it states, instructs or asks something.
    pub(crate) fn is_readable(&self) -> bool {
        (self.finite || self.instruction) && self.words > 1 && self.content > 0 && !self.is_marker_row()
    }

    pub(crate) fn is_conditional(&self) -> bool {
        self.any(lex::CONDITION)
    }
}

/// The classes whose words have a property that [`Claim::count_rare`] counts.
const COUNTED: u128 = lex::MARKER | lex::HEDGE | lex::SOFT | lex::NUMERAL | lex::CALENDAR;

pub(crate) fn has_mark(tokens: &[Token], mark: char) -> bool {
    tokens.iter().any(|token| token.is_mark(mark))
}

/// Whether a number or numeral states a quantity. "100 %" only means "wholly", and "one" is mostly a pronoun.
pub(crate) fn says_how_much(tokens: &[Token], index: usize) -> bool {
    let (token, next) = (at(tokens, index), at(tokens, index + 1));
    if token.kind == Kind::Number {
        token.value != 100 || next.hash != PERCENT
    } else {
        !token.is(lex::ONE) || next.is(lex::UNIT)
    }
}

const PERCENT: u64 = hash(b"%");

/// Whether the token is a content word that is in no list and has no capital that makes it a name.
pub(crate) fn is_unlisted(tokens: &[Token], index: usize) -> bool {
    let token = at(tokens, index);
    token.is_content() && token.entry.is_none() && (index == 0 || !token.has(CAPITAL))
}

/// Whether the token helps a reader to check the sentence.
pub(crate) fn supports(token: &Token) -> bool {
    token.is_exact() || token.kind == Kind::Word && (token.is(lex::CALENDAR) || token.has(ADDRESS | QUOTED))
}

/// Whether there is a citation: "\[4\]", "(Miller 1998)", "by Miller 1998".
fn cites(tokens: &[Token]) -> bool {
    tokens.iter().enumerate().any(|(index, token)| {
        let numbered = token.is_mark('[') && at(tokens, index + 1).kind == Kind::Number;
        let dated = token.is_mark(')') && index > 1 && at(tokens, index - 1).has(YEAR);
        let named = token.has(YEAR)
            && index > 1
            && at(tokens, index - 1).has(CAPITAL)
            && !at(tokens, index - 1).is(lex::CALENDAR | lex::MONTH)
            && at(tokens, index - 2).is(lex::PREPOSITION | lex::CONJUNCTION);
        numbered && at(tokens, index + 2).is_mark(']') || dated || named
    })
}

/// Whether the sentence is about the past.
pub(crate) fn tells_past(tokens: &[Token]) -> bool {
    let in_past = |index| matches!(at(tokens, index).hash, WAS | WERE | DID | HAD) || is_past(tokens, index);
    (0..tokens.len()).any(in_past)
}

/// Whether the sentence tells the past rather than the present; nothing if it does both or neither.
pub(crate) fn is_past_rather(tokens: &[Token], claim: &Claim) -> Option<bool> {
    let is_present = |index: usize| {
        let token = at(tokens, index);
        matches!(token.hash, IS | ARE | HAS | HAVE | DOES | DO | CAN | MAY | MUST | WILL)
            || token.is(lex::VERB_S) && is_finite(tokens, index)
    };
    let (past, present) = (tells_past(tokens), claim.instruction || (0..tokens.len()).any(is_present));
    (past != present).then_some(past)
}

/// Whether the sentence contains a passive.
pub(crate) fn is_passive(tokens: &[Token]) -> bool {
    let mut pairs = tokens.windows(2);
    pairs.any(|pair| matches!(pair, [be, verb] if be.is(lex::BE) && verb.is(lex::VERB_PAST)))
}
