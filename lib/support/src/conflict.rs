//! Finds what a sentence says and no source does: numbers, dates and names, and who does what to whom.

use ken_text::Span;

use crate::calendar::is_calendar;
use crate::index::{Index, Sentence, SourceSentence};
use crate::meaning::{Meaning, Pair};
use crate::reading::{ROUGH, is_unit};
use crate::token::{Kind, Spellings, Token};
use crate::{Finding, Kind as Finds};

/// How much of the sentence's weight the passage must contain for exchanged roles to be noticed, 0 to 1.
const SAME_WORDS: f64 = 0.8;

/// The maximum distance between subject and object in the passage, in content words.
const FARTHEST_ROLES: usize = 4;

/// A sentence, and the passage of a source that supports it best.
struct Comparison<'a> {
    index: &'a Index<'a>,
    tokens: &'a [Token],
    source: &'a str,
    passage: Vec<Token>,
}

/// Returns what the sources lack or contradict. `others` are the next best passages.
pub(crate) fn find(
    index: &Index<'_>,
    sentence: &Sentence,
    passage: Option<&SourceSentence>,
    others: &[&SourceSentence],
) -> Vec<Finding> {
    let tokens = index.tokens_of(sentence);
    let unsupported = |token: &Token| Finding { kind: Finds::Unsupported, span: token.span };
    let Some(found) = passage else { return missing(index, tokens).map(unsupported).collect() };
    let source = index.sources.get(found.source).copied().unwrap_or_default();
    let mut words = Vec::new();
    index.vocabulary.look_up(source, found.span, &mut Spellings::new(), &mut words);
    let comparison = Comparison { index, tokens, source, passage: words };
    let place = |other: &&SourceSentence| Some((*index.sources.get(other.source)?, other.span));
    let others: Vec<(&str, Span)> = others.iter().filter_map(place).collect();
    let pair = Pair::new((index.text, sentence.span), (source, found.span), around(index, found), &others);
    let meaning = pair.compare();
    if let Meaning::Contradicted(span) = meaning {
        return vec![Finding { kind: Finds::Contradicted, span }];
    }
    let missing = missing(index, tokens).filter(|token| !pair.states_amount_at(token.span));
    let missing = missing.filter(|token| !comparison.passage.iter().any(|other| comparison.is_form_of(token, other)));
    let mut findings: Vec<Finding> = missing.map(unsupported).collect();
    match meaning {
        Meaning::Uncarried(span) => findings.push(Finding { kind: Finds::Uncarried, span }),
        // The words alone do not tell whether it says the same.
        _ if comparison.has_changed_roles() => findings.push(Finding { kind: Finds::Uncarried, span: sentence.span }),
        _ => {}
    }
    findings
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

fn is_date(index: &Index<'_>, token: &Token) -> bool {
    token.capital && is_calendar(&token.span.of(index.text).to_lowercase())
}

impl Comparison<'_> {
    /// Returns how much of the sentence's weight the passage contains, 0 to 1.
    fn held(&self) -> f64 {
        let (mut held, mut all) = (0.0, 0.0);
        for token in self.tokens.iter().filter(|token| token.is_content()) {
            let weight = f64::from(self.index.rarity(token.id));
            all += weight;
            held += if self.passage.iter().any(|other| other.id == token.id) { weight } else { 0.0 };
        }
        if all > 0.0 { held / all } else { 0.0 }
    }

    /// Returns whether two words begin with the same four letters, such as "Romania" and "Romanian". Numbers never do.
    fn is_form_of(&self, token: &Token, other: &Token) -> bool {
        let start =
            |token: &Token, text| token.span.of(text).chars().take(4).flat_map(char::to_lowercase).collect::<String>();
        token.kind != Kind::Number && start(token, self.index.text) == start(other, self.source)
    }

    /// Returns whether the subject and the object of a verb are exchanged, as in "A sued B" and "B sued A".
    fn has_changed_roles(&self) -> bool {
        if self.held() < SAME_WORDS {
            return false;
        }
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
        changed && self.has_agent(self.index.text, self.tokens) == self.has_agent(self.source, &self.passage)
    }

    /// Returns whether the sentence names an agent with "by", as in "was sued by". In such a passive sentence, the one
    /// who acts comes last.
    fn has_agent(&self, text: &str, tokens: &[Token]) -> bool {
        tokens.iter().any(|token| token.span.of(text) == "by")
    }
}
