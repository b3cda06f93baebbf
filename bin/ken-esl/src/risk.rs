//! Words that suggest that the writer is in danger. To miss a person costs more than to be wrong about a joke, so what only
//! sometimes means danger counts unless the text names something trivial.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use crate::reading::Span;

const PHRASES: &str = include_str!("../../../share/esl/risk.txt");

/// Phrases by their first words, and the words that show that a loose one is a figure of speech.
struct Phrases {
    by_first: HashMap<&'static str, Vec<Phrase>>,
    figure: HashSet<&'static str>,
}

struct Phrase {
    is_loose: bool,
    /// The elements after the first word; each holds its alternatives.
    rest: Vec<Vec<&'static str>>,
}

/// Words that `*` stands for.
const GAP: usize = 3;

static KNOWN: LazyLock<Phrases> = LazyLock::new(|| {
    let mut known = Phrases {
        by_first: HashMap::new(),
        figure: HashSet::new(),
    };
    for (kind, words) in PHRASES.lines().filter_map(|line| line.split_once(' ')) {
        match kind {
            "plain" | "loose" => {
                let mut elements = words
                    .split(' ')
                    .map(|element| element.split('/').collect::<Vec<_>>());
                for first in elements.next().unwrap_or_default() {
                    let rest = words
                        .split(' ')
                        .skip(1)
                        .map(|element| element.split('/').collect());
                    known.by_first.entry(first).or_default().push(Phrase {
                        is_loose: kind == "loose",
                        rest: rest.collect(),
                    });
                }
            }
            "figure" => known.figure.extend(words.split(' ')),
            _ => {} // a comment
        }
    }
    known
});

/// The places of the phrases, in the order of the text; none when nothing suggests danger.
pub(crate) fn find(text: &str) -> Vec<Span> {
    let words = words(text);
    let is_figure = words.iter().any(|(word, _)| KNOWN.figure.contains(word.as_str()));
    let mut found: Vec<Span> = Vec::new();
    for (at, (word, span)) in words.iter().enumerate() {
        let phrases = KNOWN
            .by_first
            .get(word.as_str())
            .map(Vec::as_slice)
            .unwrap_or_default();
        let said = phrases.iter().filter(|phrase| !(phrase.is_loose && is_figure));
        let end = said
            .filter_map(|phrase| end_of(&words, at + 1, &phrase.rest))
            .max();
        if let Some((_, last)) = end.and_then(|end| words.get(end - 1))
            && found.last().is_none_or(|before| before.end <= span.start)
        {
            found.push(Span {
                start: span.start,
                end: last.end,
            });
        }
    }
    found
}

/// The word after the phrase that goes on at `at` with `rest`, if it stands there.
fn end_of(words: &[(String, Span)], at: usize, rest: &[Vec<&str>]) -> Option<usize> {
    let Some((element, behind)) = rest.split_first() else {
        return Some(at);
    };
    if element.as_slice() == ["*"] {
        return (0..=GAP)
            .find_map(|skipped| end_of(words, at + skipped, behind).filter(|end| *end <= words.len()));
    }
    let (word, _) = words.get(at)?;
    element
        .contains(&word.as_str())
        .then(|| end_of(words, at + 1, behind))
        .flatten()
}

/// Lower-case words with contractions written out and their places: "don't" is "do not", "cant" is "can not".
fn words(text: &str) -> Vec<(String, Span)> {
    let mut words = Vec::new();
    let mut start = None;
    for (at, char) in text.char_indices().chain([(text.len(), ' ')]) {
        let inside = char.is_alphanumeric() || matches!(char, '\'' | '’');
        match (inside, start) {
            (true, None) => start = Some(at),
            (false, Some(first)) => {
                push(
                    text.get(first..at).unwrap_or_default(),
                    Span {
                        start: first,
                        end: at,
                    },
                    &mut words,
                );
                start = None;
            }
            _ => {}
        }
    }
    words
}

fn push(word: &str, span: Span, to: &mut Vec<(String, Span)>) {
    let lower = word.to_lowercase().replace('’', "'");
    let bare = lower.replace('\'', "");
    let parts = match bare.as_str() {
        "cant" | "cannot" => "can not",
        "wont" => "will not",
        "im" => "i am",
        "id" => "i would",
        "ill" if lower.contains('\'') => "i will",
        "ive" => "i have",
        "theyd" => "they would",
        "itd" => "it would",
        "shouldve" => "should have",
        other => match other.strip_suffix("nt") {
            Some(verb @ ("do" | "does" | "did" | "is" | "was" | "were" | "would" | "could" | "should")) => {
                to.push((verb.to_owned(), span));
                "not"
            }
            _ => other
                .strip_suffix('s')
                .filter(|_| lower.ends_with("'s"))
                .unwrap_or(other),
        },
    };
    to.extend(
        parts
            .split(' ')
            .filter(|part| !part.is_empty())
            .map(|part| (part.to_owned(), span)),
    );
}
