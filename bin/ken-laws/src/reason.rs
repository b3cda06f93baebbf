//! Reasons that are only a feeling or a belief. A decision with such a reason shows no criterion, whatever it is about.

use crate::claim::supports;
use crate::grammar::is_finite;
use crate::lexicon as lex;
use crate::lexicon::word::{AS, BECAUSE, DUE, OF, SINCE, TO};
use crate::token::{Token, at};

/// Whether a reason in the sentence is only a feeling or a belief, as in "The limit was kept because it felt right".
pub(crate) fn rests_on_opinion(tokens: &[Token]) -> bool {
    (0..tokens.len()).filter_map(|index| reason_after(tokens, index)).any(|first| is_opinion(tokens, first))
}

/// The first word of the reason that is introduced at `index`: after "because", "because of", "since", "due to", and after
/// "as" with a pronoun.
fn reason_after(tokens: &[Token], index: usize) -> Option<usize> {
    let next = at(tokens, index + 1);
    match at(tokens, index).hash {
        BECAUSE if next.hash == OF => Some(index + 2),
        BECAUSE | SINCE => Some(index + 1),
        DUE if next.hash == TO => Some(index + 2),
        AS if next.is(lex::PRONOUN) => Some(index + 1),
        _ => None,
    }
}

/// Whether the clause at `first` names a feeling, or its main verb says what somebody feels or believes, or how something
/// looks to them. Something that a reader can check makes it more than that.
fn is_opinion(tokens: &[Token], first: usize) -> bool {
    let reason = tokens.get(first..).unwrap_or_default();
    let length = reason.iter().position(Token::ends_clause).unwrap_or(reason.len());
    let reason = reason.get(..length).unwrap_or_default();
    if reason.iter().any(supports) {
        return false;
    }
    let believes = || main_verb(tokens, first, first + length).is_some_and(|verb| opines(tokens, verb));
    reason.iter().any(|token| token.is(lex::HUNCH)) || believes()
}

/// The main verb of a clause. It comes after an auxiliary, negations and fillers: "did not really like".
fn main_verb(tokens: &[Token], first: usize, end: usize) -> Option<usize> {
    let is_verb = |index: &usize| is_finite(tokens, *index) || at(tokens, *index).is(lex::OPINE);
    let finite = (first + 1..end).find(is_verb)?; // the first word is the subject
    if !at(tokens, finite).is(lex::AUXILIARY) {
        return Some(finite);
    }
    let after_be = at(tokens, finite).is(lex::BE);
    let verb = (finite + 1..end).find(|index| !at(tokens, *index).is(lex::NEGATION | lex::FILLER))?;
    let is_verb = at(tokens, verb).is(if after_be { lex::VERB_PAST } else { lex::VERB });
    is_verb.then_some(verb)
}

/// Whether the verb means feeling or believing, or seeming good.
fn opines(tokens: &[Token], verb: usize) -> bool {
    let praises = || (verb + 1..verb + 4).any(|index| at(tokens, index).is(lex::FINE));
    at(tokens, verb).is(lex::OPINE) || at(tokens, verb).is(lex::LOOK) && praises()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::Scan;

    fn is_opinion_in(text: &str) -> bool {
        rests_on_opinion(Scan::new(text).tokens())
    }

    #[test]
    fn feelings_and_beliefs_are_seen_as_such() {
        for text in [
            "It was kept because it felt about right.",
            "It was dropped because nobody on the board liked it.",
            "Only one page was read because we believe that the rest is fine.",
            "It was moved, as it did not really feel safe.",
            "It was cut since a week seemed plenty.",
            "It was built because of a hunch.",
            "It was painted because it looked quite nice.",
            "It is used due to a preference of the owner.",
        ] {
            assert!(is_opinion_in(text), "{text}");
        }
    }

    #[test]
    fn observations_are_reasons() {
        for text in [
            "The seal was replaced because it looked worn.",
            "The seal was replaced because its edge had cracked.",
            "The rule has been in force since May.",
            "The hall was closed because 40 guests felt ill.",
            "It sounds odd because it is like a bell.",
            "As long as it runs, we like it.",
            "We like it because it runs.",
        ] {
            assert!(!is_opinion_in(text), "{text}");
        }
    }
}
