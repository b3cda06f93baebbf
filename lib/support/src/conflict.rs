//! Finds words of a sentence that occur in no source, and statements that contradict the passage that supports the
//! sentence best.
//!
//! A contradiction is reported only if the passage is clearly about the same thing, that is, if it contains words with
//! most of the sentence's weight.

use ken_text::Span;

use crate::calendar::is_calendar;
use crate::index::{Index, Sentence, SourceSentence};
use crate::meaning::{Meaning, Pair};
use crate::reading::ROUGH;
use crate::token::{Kind, Spellings, Token, UNKNOWN};
use crate::{Finding, Kind as Finds};

/// How much of the sentence's weight the passage must contain for a differing word to be a contradiction, 0 to 1. The
/// differing word itself is not counted.
const SAME_MATTER: f64 = 0.6;
/// How much of the weight it must contain for exchanged roles to be a contradiction, 0 to 1. This is more, because no single
/// word differs.
const SAME_WORDS: f64 = 0.8;

/// The maximum distance between subject and object in the passage, in content words.
const FARTHEST_ROLES: usize = 4;

/// A sentence, and the passage of a source that supports it best.
struct Comparison<'a> {
    index: &'a Index<'a>,
    text: &'a str,
    tokens: &'a [Token],
    source: &'a str,
    passage: Vec<Token>,
    pair: Option<&'a Pair>,
}

/// Returns what the sources lack or contradict, and whether the passage and its neighbours carry the words of the sentence.
pub(crate) fn find(index: &Index<'_>, sentence: &Sentence, passage: Option<&SourceSentence>) -> (Vec<Finding>, bool) {
    let mut words = Vec::new();
    let source = passage.and_then(|passage| index.sources.get(passage.source)).copied().unwrap_or_default();
    if let Some(passage) = passage {
        index.vocabulary.look_up(source, passage.span, &mut Spellings::new(), &mut words);
    }
    let pair = passage.map(|found| Pair::new(index.text, sentence.span, source, found.span, around(index, found)));
    let tokens = index.tokens_of(sentence);
    let comparison = Comparison { index, text: index.text, tokens, source, passage: words, pair: pair.as_ref() };
    if let Some(contradiction) = comparison.contradiction(sentence.span) {
        return (vec![contradiction], false);
    }
    let meaning = pair.as_ref().map_or(Meaning::Carried, Pair::compare);
    if let Meaning::Contradicted(span) = meaning {
        return (vec![Finding { kind: Finds::Contradicted, span }], false);
    }
    let missing = missing(index, comparison.tokens).filter(|token| !comparison.states(token));
    let missing = missing.filter(|token| !comparison.passage.iter().any(|other| comparison.is_form_of(token, other)));
    let finding = |token: &Token| Finding { kind: Finds::Unsupported, span: token.span };
    let mut findings: Vec<Finding> = missing.map(finding).collect();
    if let Meaning::Uncarried(span) = meaning {
        findings.push(Finding { kind: Finds::Uncarried, span });
    }
    let is_carried = meaning == Meaning::Carried && pair.as_ref().is_some_and(Pair::is_carried);
    (findings, is_carried)
}

/// Returns the passage together with the sentences of its source around it, to which a sentence may refer as well.
fn around(index: &Index<'_>, passage: &SourceSentence) -> Span {
    let at = index
        .source_sentences
        .partition_point(|other| (other.source, other.span.start) < (passage.source, passage.span.start));
    let near =
        index.source_sentences.get(at.saturating_sub(AROUND)..(at + AROUND + 1).min(index.source_sentences.len()));
    let near =
        near.unwrap_or_default().iter().filter(|other| other.source == passage.source && other.span.len() < MAX_AROUND);
    near.fold(passage.span, |span, other| Span {
        start: span.start.min(other.span.start),
        end: span.end.max(other.span.end),
    })
}

/// The number of sentences on each side of a passage to which a sentence may refer as well.
const AROUND: usize = 2;
/// Longer neighbours, in bytes, are not read with a passage. They are no sentences.
const MAX_AROUND: usize = 2000;

/// Returns the numbers, units, dates and names of a sentence that occur in no source.
fn missing<'a>(index: &'a Index<'_>, tokens: &'a [Token]) -> impl Iterator<Item = &'a Token> {
    let absent = tokens.iter().enumerate().filter(|(_, token)| !index.has(token.id));
    absent
        .filter(|(at, token)| {
            let number = token.kind == Kind::Number && !is_rough(index, tokens, *at);
            let measures = is_unit(&token.span.of(index.text).to_lowercase())
                && at.checked_sub(1).is_some_and(|before| is_figure(tokens, before));
            number || measures || is_name(token, *at) || is_date(index, token)
        })
        .map(|(_, token)| token)
}

/// Returns whether the word is a name: it has a capital and is not the first word of the sentence, which always has
/// one.
fn is_name(token: &Token, at: usize) -> bool {
    token.capital && token.kind == Kind::Content && at > 0
}

/// Returns whether the number at `at` is a bound or an estimate, such as "about 50". A passage with another number can
/// support it.
fn is_rough(index: &Index<'_>, tokens: &[Token], at: usize) -> bool {
    let before = tokens.get(at.saturating_sub(2)..at).unwrap_or_default();
    before.iter().any(|token| ROUGH.contains(&token.span.of(index.text).to_lowercase().as_str()))
}

/// Returns whether the word at `at` is a number, or a word such as "million" after one.
fn is_figure(tokens: &[Token], at: usize) -> bool {
    let number = |at: usize| tokens.get(at).is_some_and(|token| token.kind == Kind::Number);
    number(at) || at.checked_sub(1).is_some_and(number)
}

/// Returns whether a word in lower case is a unit of measurement.
pub(crate) fn is_unit(word: &str) -> bool {
    UNITS.contains(&word)
}

/// Units of measurement. A statement has another meaning if one of them is replaced by another.
const UNITS: [&str; 32] = [
    "euros",
    "dollars",
    "pounds",
    "francs",
    "yen",
    "cents",
    "percent",
    "seconds",
    "minutes",
    "hours",
    "days",
    "weeks",
    "months",
    "years",
    "metres",
    "meters",
    "kilometres",
    "kilometers",
    "km",
    "miles",
    "feet",
    "inches",
    "grams",
    "kg",
    "tonnes",
    "tons",
    "litres",
    "liters",
    "gallons",
    "degrees",
    "volts",
    "watts",
];

fn is_date(index: &Index<'_>, token: &Token) -> bool {
    token.capital && is_calendar(&token.span.of(index.text).to_lowercase())
}

impl Comparison<'_> {
    fn contradiction(&self, sentence: Span) -> Option<Finding> {
        let at = |span| Finding { kind: Finds::Contradicted, span };
        self.other_word().map(at).or_else(|| {
            let turned = self.held(None) >= SAME_WORDS && self.has_changed_roles();
            turned.then(|| at(sentence))
        })
    }

    /// Returns how much of the sentence's weight the passage contains, 0 to 1. The word at `but` is not counted.
    fn held(&self, but: Option<usize>) -> f64 {
        let (mut held, mut all) = (0.0, 0.0);
        let tokens = self.tokens.iter().enumerate();
        for (_, token) in tokens.filter(|(at, token)| Some(*at) != but && token.is_content()) {
            let weight = f64::from(self.index.rarity(token.id));
            all += weight;
            held += if self.passage_has(token.id) { weight } else { 0.0 };
        }
        if all > 0.0 { held / all } else { 0.0 }
    }

    fn passage_has(&self, id: u32) -> bool {
        self.passage.iter().any(|token| token.id == id)
    }

    /// Returns the first word of the sentence that the passage replaces by a different number, date or name, or by a
    /// word of opposite meaning.
    fn other_word(&self) -> Option<Span> {
        let candidates = self.tokens.iter().enumerate();
        let mut others = candidates.filter(|(_, token)| token.is_content() && !self.passage_has(token.id));
        others
            .find(|(at, token)| self.has_other(*at, token) && self.held(Some(*at)) >= SAME_MATTER)
            .map(|(_, token)| token.span)
    }

    fn has_other(&self, at: usize, token: &Token) -> bool {
        if token.kind == Kind::Number || is_date(self.index, token) || is_name(token, at) {
            if is_rough(self.index, self.tokens, at) || self.states(token) {
                return false;
            }
            return self.slot(at).is_some_and(|other| self.is_other(token, other));
        }
        false
    }

    fn sentence_has(&self, id: u32) -> bool {
        id != UNKNOWN && self.tokens.iter().any(|token| token.id == id)
    }

    /// Returns whether `other`, a word of the passage, is of the same kind as `token` (number, date or name) but has
    /// another meaning.
    fn is_other(&self, token: &Token, other: &Token) -> bool {
        let date = |token: &Token, text| is_calendar(&token.span.of(text).to_lowercase());
        let same_kind = match token.kind {
            Kind::Number => other.kind == Kind::Number,
            _ => other.kind == Kind::Content && other.capital && date(token, self.text) == date(other, self.source),
        };
        same_kind && !self.sentence_has(other.id) && !self.is_form_of(token, other)
    }

    /// Returns whether two words begin with the same four letters, such as "Romania" and "Romanian". Numbers never do.
    fn is_form_of(&self, token: &Token, other: &Token) -> bool {
        let start =
            |token: &Token, text| token.span.of(text).chars().take(4).flat_map(char::to_lowercase).collect::<String>();
        token.kind != Kind::Number && start(token, self.text) == start(other, self.source)
    }

    /// Returns the word of the passage that has the same neighbours as the word at `at` in the sentence. One equal
    /// neighbour suffices if it is a content word, or if the sentence ends on the other side.
    fn slot(&self, at: usize) -> Option<&Token> {
        let near = |index: Option<usize>| index.and_then(|index| self.tokens.get(index)).map(|token| token.id);
        let (before, after) = (near(at.checked_sub(1)), near(at.checked_add(1)));
        let fits = |place: usize| {
            let beside = |index: Option<usize>| index.and_then(|index| self.passage.get(index)).map(|token| token.id);
            let left = beside(place.checked_sub(1));
            let right = beside(place.checked_add(1));
            let same = |ours: Option<u32>, theirs: Option<u32>| ours.is_some() && ours == theirs;
            let content = |id: Option<u32>| {
                let mut tokens = self.tokens.iter();
                tokens.any(|token| Some(token.id) == id && token.is_content())
            };
            let (same_left, same_right) = (same(before, left), same(after, right));
            same_right && (same_left || content(after)) || same_left && (after.is_none() || content(before))
        };
        let places = self.passage.iter().enumerate();
        places.filter(|(place, _)| fits(*place)).map(|(_, token)| token).next()
    }

    /// Returns whether the passage or its neighbours state the number, perhaps in another unit or in words.
    fn states(&self, token: &Token) -> bool {
        self.pair.is_some_and(|pair| pair.states_amount_at(token.span))
    }

    /// Returns whether the subject and the object of a verb are exchanged, as in "A sued B" and "B sued A".
    fn has_changed_roles(&self) -> bool {
        let content = |tokens: &[Token]| -> Vec<u32> {
            tokens.iter().filter(|token| token.is_content()).map(|token| token.id).collect()
        };
        let (ours, theirs) = (content(self.tokens), content(&self.passage));
        let place = |id: u32| {
            let mut places = theirs.iter().enumerate().filter(|(_, other)| **other == id);
            let first = places.next().map(|(place, _)| place);
            first.filter(|_| places.next().is_none())
        };
        let turned = |subject: u32, verb: u32, object: u32| {
            let (subject, verb, object) = (place(subject)?, place(verb)?, place(object)?);
            (object < verb && verb < subject && subject - object <= FARTHEST_ROLES).then_some(())
        };
        let mut threes = ours.windows(3);
        let changed = threes.any(|three| matches!(three, [a, b, c] if turned(*a, *b, *c).is_some()));
        changed && self.has_agent(self.text, self.tokens) == self.has_agent(self.source, &self.passage)
    }

    /// Returns whether the sentence names an agent with "by", as in "was sued by". In such a passive sentence, the one
    /// who acts comes last.
    fn has_agent(&self, text: &str, tokens: &[Token]) -> bool {
        tokens.iter().any(|token| token.span.of(text) == "by")
    }
}
