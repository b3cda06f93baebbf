//! Words that suggest that the writer is in danger. Missing a person in danger is worse than misjudging a joke, so phrases that only
//! sometimes mean danger count unless the text names something trivial.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::LazyLock;

use crate::reading::Span;

const PHRASES: &str = include_str!("../../../share/esl/risk.txt");

/// Phrases by their first words, the words that show that a phrase is a figure of speech, and groups of other words.
struct Phrases {
    by_first: HashMap<&'static str, Vec<Phrase>>,
    figure: HashSet<&'static str>,
    /// The groups that each word is in.
    groups: HashMap<&'static str, Groups>,
}

/// A set of groups of words, one bit each.
type Groups = u8;
const SELF: Groups = 1;
const OTHER: Groups = 1 << 1;
const THING: Groups = 1 << 2;
const DEATH: Groups = 1 << 3;
const WISH: Groups = 1 << 4;
const LIFE: Groups = 1 << 5;
const AGAINST: Groups = 1 << 6;
const PLACE: Groups = 1 << 7;

fn group(name: &str) -> Groups {
    match name {
        "self" => SELF,
        "other" => OTHER,
        "thing" => THING,
        "death" => DEATH,
        "wish" => WISH,
        "life" => LIFE,
        "against" => AGAINST,
        "place" => PLACE,
        _ => 0,
    }
}

struct Phrase {
    is_loose: bool,
    /// The elements after the first word, each as a list of alternatives.
    rest: Vec<Vec<&'static str>>,
}

/// Maximum number of words that `*` stands for.
const GAP: usize = 3;

static KNOWN: LazyLock<Phrases> = LazyLock::new(|| {
    let mut known = Phrases {
        by_first: HashMap::new(),
        figure: HashSet::new(),
        groups: HashMap::new(),
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
            "group" => {
                let (name, members) = words.split_once(' ').unwrap_or((words, ""));
                for word in members.split(' ') {
                    *known.groups.entry(word).or_default() |= group(name);
                }
            }
            _ => {} // a comment
        }
    }
    known
});

/// The places of the phrases, in the order of the text; empty if nothing suggests danger.
pub(crate) fn find(text: &str) -> Vec<Span> {
    let words = words(text);
    let is_figure = words.iter().any(|(word, _)| KNOWN.figure.contains(word.as_str()));
    let groups = words
        .iter()
        .map(|(word, _)| KNOWN.groups.get(word.as_str()).copied().unwrap_or(0));
    let groups: Vec<Groups> = groups.collect();
    let mut found: Vec<Span> = Vec::new();
    for (at, (word, _)) in words.iter().enumerate() {
        let phrases = KNOWN
            .by_first
            .get(word.as_str())
            .map(Vec::as_slice)
            .unwrap_or_default();
        let said = phrases.iter().filter(|phrase| !(phrase.is_loose && is_figure));
        let phrase = said
            .filter_map(|phrase| end_of(&words, at + 1, &phrase.rest))
            .max();
        let phrase = phrase.map(|end| at..end);
        if let Some(place) = phrase.or_else(|| thought(&words, &groups, at).filter(|_| !is_figure))
            && let Some(whole) = span_of(&words, &place)
            && found.last().is_none_or(|before| before.end <= whole.start)
        {
            found.push(whole);
        }
    }
    found
}

/// The span from the first to the last word of a place.
fn span_of(words: &[(String, Span)], place: &Range<usize>) -> Option<Span> {
    let words = words.get(place.clone())?;
    let ((_, first), (_, last)) = (words.first()?, words.last()?);
    Some(Span {
        start: first.start,
        end: last.end,
    })
}

/// Maximum distance in words between a word of death or life and its wish or negation.
const NEAR: usize = 7;

/// The words with which the writer wishes for death or is tired of life, at a word of death or life.
fn thought(words: &[(String, Span)], groups: &[Groups], at: usize) -> Option<Range<usize>> {
    let first = at.saturating_sub(NEAR);
    let is = |place: usize, group: Groups| groups.get(place).is_some_and(|groups| groups & group != 0);
    // "my life" is about the writer, "my phone is dead" is not.
    let says = |back: usize, word: &str| {
        at.checked_sub(back)
            .and_then(|at| words.get(at))
            .is_some_and(|(other, _)| other == word)
    };
    let is_mine = says(1, "my") || says(1, "own") && says(2, "my");
    let is_own = |others: Groups| {
        let person = (first..at).rfind(|place| is(*place, SELF | others));
        is_mine || person.is_some_and(|place| is(place, SELF))
    };
    if is(at, DEATH) && is_own(OTHER | THING) {
        let wish = (first..at + NEAR).find(|place| is(*place, WISH))?;
        return Some(wish.min(at)..wish.max(at) + 1);
    }
    if is(at, LIFE) && !is(at + 1, PLACE) && is_own(OTHER) {
        let against = (first..at).rfind(|place| is(*place, AGAINST))?;
        return Some(against..at + 1);
    }
    None
}

/// The index after the phrase whose remaining elements `rest` occur at `at`, if they do.
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

/// The words in lower case with their places, contractions written out: "don't" is "do not", "cant" is "can not".
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
