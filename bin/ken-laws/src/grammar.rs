//! The functions of words in their sentence: main verb, command, negation.

use std::ops::Range;

use crate::lexicon::word::{
    A, ALWAYS, AN, AND, ARE, BECAUSE, BUT, CAN, DO, DOES, HAS, IS, NEVER, NOT, SO, TO, WILL, WITHOUT, YET,
};
use crate::lexicon::{self as lex, hash};
use crate::token::{CAPITAL, Kind, PAST_SHAPED, PLURAL, QUOTED, Token, at, before};

/// Whether the word can be the verb of a main clause in its position. Returns true if in doubt.
pub(crate) fn is_finite(tokens: &[Token], index: usize) -> bool {
    let token = at(tokens, index);
    if token.is(lex::AUXILIARY) {
        return true;
    }
    if !token.is(lex::VERB_S | lex::VERB_PAST | lex::VERB_BASE) {
        return looks_finite(tokens, index);
    }
    let before = before(tokens, index);
    let next = at(tokens, index + 1);
    // "Children under 12 take 5 mg": an object follows.
    let takes = token.is(lex::VERB_BASE) && (next.kind == Kind::Number || next.is(lex::DETERMINER));
    let labels = before.kind == Kind::Number
        && (token.is(lex::VERB_PAST) || takes || index > 1 && at(tokens, index - 2).is_content());
    let label = before.hash == A && before.has(CAPITAL) && index > 1; // "farm A weighed"
    // "Heating up takes a minute", "Some wished for more".
    let is_particle = before.is(lex::PREPOSITION) && token.is(lex::VERB_S) && next.is(lex::DETERMINER);
    let is_noun_mark = before.is(lex::DETERMINER | lex::PREPOSITION) && !before.is(lex::PRONOUN);
    let after_noun_mark =
        is_noun_mark && !label && !is_particle && !are_subject(tokens, index) || before.kind == Kind::Number && !labels;
    if token.is(lex::VERB_S | lex::VERB_PAST) {
        return !after_noun_mark && !before.is(lex::BE) && !is_counted(tokens, index);
    }
    before.hash != TO && !after_noun_mark && (before.is(lex::PRONOUN) || !is_noun_after_article(tokens, index))
}

/// Whether a verb certainly says something of a subject. A word that could be a noun or a participle as well, as in "envelopes,
/// stamps", "on the other hand" and "fingers crossed", does so only with an object or a number, or of a subject that agrees with it.
pub(crate) fn has_predicate(tokens: &[Token]) -> bool {
    let has_number = tokens.iter().any(|token| token.kind == Kind::Number);
    (0..tokens.len()).filter(|&index| is_finite(tokens, index)).any(|index| {
        let (token, subject, next) = (at(tokens, index), before(tokens, index), at(tokens, index + 1));
        let near = tokens.get(index.saturating_sub(3)..index).unwrap_or_default();
        let is_name = |token: &Token| token.has(CAPITAL) && !token.has(PLURAL);
        let is_definite = |token: &Token| token.is(lex::DETERMINER | lex::PRONOUN) || is_name(token);
        let agrees = if token.is(lex::VERB_BASE) && !token.is(lex::VERB_PAST) {
            subject.has(PLURAL) || subject.is(lex::PRONOUN)
        } else {
            !token.is(lex::VERB_PAST) || near.iter().any(is_definite)
        };
        let has_object = has_number || next.is(lex::DETERMINER | lex::NUMERAL);
        token.is(lex::AUXILIARY) || index > 0 && subject.kind == Kind::Word && (agrees || has_object)
    })
}

/// Whether a singular article precedes the word without a plural in between: "a large set", "a very compact file".
fn is_noun_after_article(tokens: &[Token], index: usize) -> bool {
    let mut phrase =
        tokens.iter().take(index).rev().take(3).take_while(|token| token.kind == Kind::Word && !token.has(PLURAL));
    phrase.any(|token| matches!(token.hash, A | AN))
}

/// Whether the word before this past form stands for people or things: "some wished for more".
fn are_subject(tokens: &[Token], index: usize) -> bool {
    let is_past = at(tokens, index).is(lex::VERB_PAST) || at(tokens, index).has(PAST_SHAPED);
    is_past
        && index == 1
        && before(tokens, index).is(lex::QUANTIFIER)
        && at(tokens, index + 1).is(lex::PREPOSITION | lex::PRONOUN)
}

/// Whether a word that is in no list has the spelling and place of a finite verb: "the cache evicts old pages".
fn looks_finite(tokens: &[Token], index: usize) -> bool {
    let (token, before, next) = (at(tokens, index), before(tokens, index), at(tokens, index + 1));
    let subject = before.is_content() && !before.has(QUOTED) || before.is(lex::PERSONAL) || are_subject(tokens, index);
    if token.kind != Kind::Word || token.is(KNOWN) || token.has(CAPITAL) || !subject || is_counted(tokens, index) {
        return false;
    }
    let goes_on = matches!(next.kind, Kind::Word | Kind::Number);
    let after_noun = index > 1 && at(tokens, index - 2).is(lex::DETERMINER) || before.is(lex::PERSONAL);
    // "a heap of wet towels": a preposition without a determiner is followed by its object.
    let mut words = tokens.iter().take(index).rev();
    let opens = words.find(|token| !token.is_content());
    let is_object = opens.is_some_and(|token| token.is(lex::PREPOSITION));
    let third =
        token.has(PLURAL) && token.stem != token.hash && !before.has(PLURAL) && !is_object && (goes_on || after_noun);
    let past = token.has(PAST_SHAPED);
    let base = next.is(lex::DETERMINER | lex::PRONOUN | lex::NUMERAL);
    third || past || base
}

/// Whether a word before this plural says how many there are, so that it is a noun: "twelve boats", "several stops". The number of
/// a thing says nothing about the next word: "gauge three shows".
fn is_counted(tokens: &[Token], index: usize) -> bool {
    let (token, before) = (at(tokens, index), before(tokens, index));
    let says_how_many = before.is(lex::NUMERAL) && !before.is(lex::ONE) || before.is(lex::QUANTIFIER);
    says_how_many
        && token.has(PLURAL)
        && !token.is(lex::VERB_PAST)
        && !(index > 1 && at(tokens, index - 2).is_content())
}

/// Classes of words that cannot be unknown verbs.
const KNOWN: u128 =
    lex::FUNCTION | lex::VERB | lex::PRONOUN | lex::PREPOSITION | lex::UNIT | lex::CALENDAR | lex::NUMERAL;

/// Whether the word is a past form, and not a participle after a form of "be" or "have".
pub(crate) fn is_past(tokens: &[Token], index: usize) -> bool {
    let token = at(tokens, index);
    token.is(lex::VERB_PAST)
        && !token.is(lex::VERB_BASE)
        && is_finite(tokens, index)
        && !before(tokens, index).is(lex::AUXILIARY)
}

/// Whether the sentence contains an imperative, at its beginning or after a condition.
pub(crate) fn is_imperative_anywhere(tokens: &[Token]) -> bool {
    if is_imperative(tokens, 0) {
        return true;
    }
    let first = at(tokens, 0);
    let opens_aside = first.is(lex::SUBORDINATOR | lex::PREPOSITION | lex::ORDINAL | lex::QUALIFIER | lex::CONNECTIVE)
        || first.hash == STEP;
    let mut parts = tokens.iter();
    let mark = parts.position(|token| token.is_mark(',') || token.is_mark(':') || token.is_mark(';'));
    opens_aside && mark.is_some_and(|mark| is_imperative(tokens, mark + 1))
}

/// The parts of a sentence between the tokens that end a clause, without these tokens.
pub(crate) fn clauses(tokens: &[Token], ends: impl Fn(usize) -> bool) -> impl Iterator<Item = Range<usize>> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let start = next;
        let end = (start..tokens.len()).find(|&index| ends(index)).unwrap_or(tokens.len());
        next = end + 1;
        (start <= tokens.len()).then_some(start..end)
    })
}

/// Whether the word is an obligation: "must", "has to", "needs to".
pub(crate) fn obliges(tokens: &[Token], index: usize) -> bool {
    let token = at(tokens, index);
    token.is(lex::OBLIGATION) || token.is(lex::HAS_TO) && at(tokens, index + 1).hash == TO
}

pub(crate) const STEP: u64 = hash(b"step");

/// Whether a clause that starts at `index` is an imperative.
pub(crate) fn is_imperative(tokens: &[Token], index: usize) -> bool {
    let mut index = index;
    while at(tokens, index).is(lex::POLITE) || at(tokens, index).is(lex::ORDINAL) && index < 2 {
        index += 1;
    }
    let (verb, next) = (at(tokens, index), at(tokens, index + 1));
    if verb.hash == DO && next.hash == NOT {
        return true;
    }
    let is_verb = verb.is(lex::VERB_BASE)
        && !verb.is(lex::AUXILIARY | lex::PREPOSITION | lex::PRONOUN | lex::DETERMINER | lex::NUMERAL);
    if !is_verb || next.is(lex::AUXILIARY | lex::VERB_S) || next.is(lex::VERB_PAST) && !next.is(lex::VERB_BASE) {
        return false;
    }
    // In "Stop words are left out", the word that looks like a verb is part of a noun.
    if next.is_content() && at(tokens, index + 2).is(lex::AUXILIARY) {
        return false;
    }
    // In "Work on the bridge began", a noun and its attribute precede the verb.
    let clause = tokens.iter().skip(index + 1).take_while(|token| !token.ends_clause());
    let mut finite =
        clause.filter(|token| token.is(lex::AUXILIARY) || token.is(lex::VERB_PAST) && !token.is(lex::VERB_BASE));
    !(next.is(lex::PREPOSITION) && finite.next().is_some())
}

/// Whether the word at `index` is in the scope of a negation, which precedes it closely in the same clause.
pub(crate) fn is_negated(tokens: &[Token], index: usize) -> bool {
    let mut negative = false;
    for (distance, token) in tokens.iter().take(index).rev().take(ken_text::MAX_SCOPE).enumerate() {
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

/// Whether an absolute word makes a general claim in the present tense: "always" or "never" with a verb, or "everyone" as
/// subject.
pub(crate) fn is_absolute(tokens: &[Token], index: usize) -> bool {
    let (token, before, next) = (at(tokens, index), before(tokens, index), at(tokens, index + 1));
    if token.has(QUOTED) || is_negated(tokens, index) {
        return false;
    }
    let present = next.is(lex::VERB_S) || next.is(lex::VERB_BASE) && !next.is(lex::VERB_PAST);
    match token.hash {
        ALWAYS | NEVER => {
            let after_present = matches!(before.hash, IS | ARE | WILL | CAN | DOES | DO);
            let subject = before.is_content() && !before.is(lex::POLITE) || before.is(lex::PRONOUN);
            after_present || subject && (present || matches!(next.hash, IS | ARE | WILL | CAN))
        }
        _ => {
            token.is(lex::EVERYONE)
                && !before.is(lex::SUBORDINATOR)
                && (present || matches!(next.hash, IS | WILL | CAN | HAS | ALWAYS))
                && !next.is(lex::OBLIGATION)
        }
    }
}
