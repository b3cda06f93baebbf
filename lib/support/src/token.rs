//! Splits sentences into words in the form in which they are compared: stems for words, values for numbers.

use std::collections::HashMap;
use std::fmt::Write;

use ken_text::{Span, expand, is_stop_word, push_stem, words};

use crate::rarity::rarity;
use crate::reading::numeral;

/// A word of a sentence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Token {
    /// The number of the word in the vocabulary; [`UNKNOWN`] if the word does not occur in the text.
    pub(crate) id: u32,
    pub(crate) kind: Kind,
    pub(crate) span: Span,
    /// Whether the word begins with a capital letter.
    pub(crate) capital: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Content,
    /// A word that says nothing about the topic: an article, pronoun, auxiliary or similar word, or a verb such as
    /// "say".
    Function,
    Number,
}

pub(crate) const UNKNOWN: u32 = u32::MAX;

impl Token {
    fn new(word: Word, span: Span, capital: bool) -> Token {
        Token { id: word.id, kind: word.kind, span, capital }
    }

    pub(crate) fn is_content(&self) -> bool {
        self.kind != Kind::Function
    }
}

/// The distinct words of the text, by stem.
#[derive(Default)]
pub(crate) struct Vocabulary {
    ids: HashMap<String, u32>,
    /// The weight of each word, from 0 for the most common words to 1 for rare ones.
    pub(crate) rarities: Vec<f32>,
}

/// What is known about a spelling.
#[derive(Clone, Copy)]
pub(crate) struct Word {
    id: u32,
    kind: Kind,
}

/// The spellings in the sources. They are stored so that the stem of each is computed only once.
pub(crate) type Spellings = HashMap<String, Word>;

impl Vocabulary {
    /// Appends the words of a sentence of the text to `to`. New words are added to the vocabulary.
    pub(crate) fn learn(&mut self, text: &str, span: Span, to: &mut Vec<Token>) {
        let mut stem = String::new();
        let word = |spelled: &str| {
            let kind = normalise(spelled, &mut stem);
            let id = self.ids.get(&stem).copied().unwrap_or_else(|| {
                let id = self.rarities.len() as u32;
                self.ids.insert(stem.clone(), id);
                self.rarities.push(rarity(&stem));
                id
            });
            Word { id, kind }
        };
        each_word(text, span, word, |token| to.push(token));
    }

    /// Appends the words of a sentence of a source to `to`. Words that are not in the vocabulary are [`UNKNOWN`].
    pub(crate) fn look_up(&self, text: &str, span: Span, spellings: &mut Spellings, to: &mut Vec<Token>) {
        let mut stem = String::new();
        let word = |spelled: &str| {
            if let Some(known) = spellings.get(spelled) {
                return *known;
            }
            let kind = normalise(spelled, &mut stem);
            let word = Word { id: self.ids.get(&stem).copied().unwrap_or(UNKNOWN), kind };
            spellings.insert(spelled.to_owned(), word);
            word
        };
        each_word(text, span, word, |token| to.push(token));
    }
}

/// Calls `each` with the stems of all words of a text, as this crate compares them. It is used to count how rare words
/// are.
pub fn stems(text: &str, mut each: impl FnMut(&str)) {
    let span = Span { start: 0, end: text.len() };
    let mut stem = String::new();
    let word = |spelled: &str| {
        let kind = normalise(spelled, &mut stem);
        each(&stem);
        Word { id: UNKNOWN, kind }
    };
    each_word(text, span, word, |_| {});
}

/// Calls `each` with every word of `span`. `word` must return what is known about a spelling in lower case. A
/// hyphenated word counts as several words, and "isn't" as two. Of a possessive or another contraction, only the first
/// word counts.
fn each_word(text: &str, span: Span, mut word: impl FnMut(&str) -> Word, mut each: impl FnMut(Token)) {
    let mut lower = String::new();
    let mut words = words(span.of(text)).peekable();
    while let Some(first) = words.next() {
        let start = span.start + first.span.start;
        let mut end = span.start + first.span.end;
        // Joins a number such as "1, 056" that a tokeniser has split at its thousands separator.
        while is_number(first.text)
            && let Some(next) = words.next_if(|next| {
                let between = text.get(end..span.start + next.span.start);
                between == Some(", ") && next.text.len() == 3 && is_number(next.text)
            })
        {
            end = span.start + next.span.end;
        }
        let whole = Span { start, end };
        if end > span.start + first.span.end {
            let number = whole.of(text).replace(' ', "");
            each(Token::new(word(&number), whole, false));
        } else {
            each_part(whole, first.text, &mut lower, &mut word, &mut each);
        }
    }
}

/// Calls `each` with the parts of a word, as [`each_word`] describes.
fn each_part(
    span: Span,
    whole: &str,
    lower: &mut String,
    word: &mut impl FnMut(&str) -> Word,
    each: &mut impl FnMut(Token),
) {
    let mut start = span.start;
    for part in whole.split('-') {
        let span = Span { start, end: start + part.len() };
        start = span.end + 1;
        lower.clear();
        if part.is_ascii() {
            lower.push_str(part);
            lower.make_ascii_lowercase();
        } else {
            lower.extend(part.chars().flat_map(char::to_lowercase));
        }
        let apostrophe = lower.find(['\'', '’']);
        let denied = apostrophe.is_some() && expand(lower).is_some_and(|two| two.second == "not");
        let before = lower.get(..apostrophe.unwrap_or(lower.len())).unwrap_or_default();
        let first = if denied { before.strip_suffix('n').unwrap_or(before) } else { before };
        if !first.is_empty() {
            each(Token::new(word(first), span, part.starts_with(char::is_uppercase)));
        }
        if denied {
            each(Token::new(word("not"), span, false));
        }
    }
}

fn is_number(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_digit())
}

/// Writes the stem of a lower-case word to `stem`. Returns the kind of the word.
fn normalise(word: &str, stem: &mut String) -> Kind {
    stem.clear();
    if word.starts_with(|char: char| char.is_ascii_digit()) {
        let end = word.find(|char: char| !(char.is_ascii_digit() || char == '.' || char == ',')).unwrap_or(word.len());
        stem.push('#');
        stem.extend(word.get(..end).unwrap_or_default().chars().filter(|&char| char != ','));
        return Kind::Number;
    }
    if let Some(value) = numeral(word) {
        let _ = write!(stem, "#{value}"); // writing to a String does not fail
        return Kind::Number;
    }
    push_stem(word, stem);
    if is_stop_word(word) || FUNCTION_STEMS.contains(&stem.as_str()) { Kind::Function } else { Kind::Content }
}

const FUNCTION_STEMS: [&str; 9] = ["be", "have", "do", "say", "will", "can", "may", "tell", "accord"];

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<String> {
        let mut all = Vec::new();
        stems(text, |stem| all.push(stem.to_owned()));
        all
    }

    #[test]
    fn words_are_compared_by_stem_and_numbers_by_value() {
        assert_eq!(of("The pumps weren't stopped"), ["the", "pump", "be", "not", "stop"]);
        assert_eq!(of("1,000 euros, £3.50, two, 5m"), ["#1000", "euro", "#3.50", "#2", "#5"]);
        assert_eq!(of("about 1, 056 and 1,056 of 12, 9"), ["about", "#1056", "and", "#1056", "of", "#12", "#9"]);
        assert_eq!(of("Anna's well-known log"), ["anna", "well", "know", "log"]);
        assert_eq!(of("can't won’t '"), ["ca", "not", "wo", "not"]);
    }
}
