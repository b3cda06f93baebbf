//! Finds what a sentence says and no source does: numbers, dates and names, or what a source says otherwise.

use ken_text::Span;

use crate::calendar::is_calendar;
use crate::index::{Index, Sentence, SourceSentence};
use crate::meaning::Pair;
use crate::reading::{ROUGH, is_unit};
use crate::token::{Kind, Spellings, Token};
use crate::{Finding, Kind as Finds};

/// What comparing a sentence with its passages shows.
pub(crate) struct Compared {
    pub(crate) findings: Vec<Finding>,
    /// The passage that says the sentence word for word: 0 for the best one, 1 and so on for the next best.
    pub(crate) carrier: Option<usize>,
    /// Whether the best passage speaks of the same thing.
    pub(crate) is_related: bool,
    /// Whether the sentence refers to the one before it.
    pub(crate) refers_back: bool,
}

/// Returns what the sources lack or contradict. `others` are the next best passages.
pub(crate) fn find(
    index: &Index<'_>,
    sentence: &Sentence,
    passage: Option<&SourceSentence>,
    others: &[&SourceSentence],
) -> Compared {
    let tokens = index.tokens_of(sentence);
    let unsupported = |token: &Token| Finding { kind: Finds::Unsupported, span: token.span };
    let Some(found) = passage else {
        let findings = missing(index, tokens).map(unsupported).collect();
        return Compared { findings, carrier: None, is_related: false, refers_back: false };
    };
    let source = index.sources.get(found.source).copied().unwrap_or_default();
    let place = |other: &&SourceSentence| Some((*index.sources.get(other.source)?, other.span));
    let others: Vec<(&str, Span)> = others.iter().filter_map(place).collect();
    let pair = Pair::new((index.text, sentence.span), (source, found.span), around(index, found), &others);
    let findings = match pair.contradiction() {
        Some(span) => vec![Finding { kind: Finds::Contradicted, span }],
        None => {
            let mut words = Vec::new();
            index.vocabulary.look_up(source, found.span, &mut Spellings::new(), &mut words);
            let is_form = |token: &Token| words.iter().any(|other| is_form_of((token, index.text), (other, source)));
            let missing = missing(index, tokens).filter(|token| !pair.states_amount_at(token.span) && !is_form(token));
            missing.map(unsupported).collect()
        }
    };
    Compared {
        findings,
        carrier: pair.carrier(),
        is_related: pair.is_about_the_same(),
        refers_back: pair.refers_back(),
    }
}

/// Returns whether two words begin with the same four letters, such as "Romania" and "Romanian". Numbers never do.
fn is_form_of(ours: (&Token, &str), theirs: (&Token, &str)) -> bool {
    let start = |(token, text): (&Token, &str)| {
        token.span.of(text).chars().take(4).flat_map(char::to_lowercase).collect::<String>()
    };
    ours.0.kind != Kind::Number && start(ours) == start(theirs)
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
