//! Words as they are compared: stems of a vocabulary, numbers by their value, function words apart.

use std::collections::HashMap;
use std::fmt::Write;

use ken_text::{Span, expand, is_negator, is_stop_word, push_stem, words};

use crate::rarity::rarity;

/// A word of a sentence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Token {
    /// Its number in the vocabulary; [`UNKNOWN`] when the text lacks the word.
    pub(crate) id: u32,
    pub(crate) kind: Kind,
    pub(crate) span: Span,
    /// Begins with a capital letter.
    pub(crate) capital: bool,
    pub(crate) negates: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Content,
    /// An article, pronoun, auxiliary, … or a verb of saying.
    Function,
    Number,
}

pub(crate) const UNKNOWN: u32 = u32::MAX;

impl Token {
    fn new(kind: Kind, span: Span) -> Token {
        Token {
            id: UNKNOWN,
            kind,
            span,
            capital: false,
            negates: false,
        }
    }

    pub(crate) fn is_content(&self) -> bool {
        self.kind != Kind::Function
    }
}

/// The words of a text by their stems.
#[derive(Default)]
pub(crate) struct Vocabulary {
    ids: HashMap<String, u32>,
    /// For each word how much it says: 0 for a word of every sentence, 1 for one that is hardly ever used.
    pub(crate) rarities: Vec<f32>,
}

impl Vocabulary {
    /// Appends the words of a sentence of the text. Words that are new get the next number.
    pub(crate) fn learn(&mut self, text: &str, span: Span, to: &mut Vec<Token>) {
        each_word(text, span, |stem, mut token| {
            token.id = match self.ids.get(stem) {
                Some(id) => *id,
                None => {
                    let id = self.rarities.len() as u32;
                    self.ids.insert(stem.to_owned(), id);
                    self.rarities.push(rarity(stem));
                    id
                }
            };
            to.push(token);
        });
    }

    /// Appends the words of a sentence of a source.
    pub(crate) fn look_up(&self, text: &str, span: Span, to: &mut Vec<Token>) {
        each_word(text, span, |stem, mut token| {
            token.id = self.ids.get(stem).copied().unwrap_or(UNKNOWN);
            to.push(token);
        });
    }
}

/// The stems of a text as this crate compares them; for counting how rare words are.
pub fn stems(text: &str, mut each: impl FnMut(&str)) {
    let span = Span {
        start: 0,
        end: text.len(),
    };
    each_word(text, span, |stem, _| each(stem));
}

/// Calls `each` with the stem of every word of `span`. A hyphenated word is several words, "isn't" is two, and a possessive or
/// another contraction is its first word.
fn each_word(text: &str, span: Span, mut each: impl FnMut(&str, Token)) {
    let (mut lower, mut stem) = (String::new(), String::new());
    let mut words = words(span.of(text)).peekable();
    while let Some(word) = words.next() {
        let mut start = span.start + word.span.start;
        // "1, 056": a number whose thousands were parted by a tokeniser.
        let mut thousands = String::new();
        while let Some(next) = words.next_if(|next| {
            let between = text.get(span.start + word.span.end + thousands.len()..span.start + next.span.start);
            between == Some(", ") && is_number(word.text) && next.text.len() == 3 && is_number(next.text)
        }) {
            thousands.push_str(", ");
            thousands.push_str(next.text);
        }
        let whole = word.text.len() + thousands.len();
        let joined = text.get(start..start + whole).filter(|_| !thousands.is_empty());
        if let Some(number) = joined {
            stem.clear();
            let kind = normalise(&number.replace(' ', ""), &mut stem);
            let span = Span {
                start,
                end: start + whole,
            };
            each(&stem, Token::new(kind, span));
            continue;
        }
        for part in word.text.split('-') {
            let span = Span {
                start,
                end: start + part.len(),
            };
            start = span.end + 1;
            lower.clear();
            lower.extend(part.chars().flat_map(char::to_lowercase));
            let capital = part.starts_with(char::is_uppercase);
            let denied = lower.contains(['\'', '’']) && expand(&lower).is_some_and(|two| two.second == "not");
            let before_apostrophe = lower.find(['\'', '’']).unwrap_or(lower.len());
            let mut first = lower.get(..before_apostrophe).unwrap_or_default();
            if denied {
                first = first.strip_suffix('n').unwrap_or(first);
            }
            if !first.is_empty() {
                stem.clear();
                let kind = normalise(first, &mut stem);
                each(
                    &stem,
                    Token {
                        capital,
                        negates: !denied && is_negator(first),
                        ..Token::new(kind, span)
                    },
                );
            }
            if denied {
                each(
                    "not",
                    Token {
                        negates: true,
                        ..Token::new(Kind::Function, span)
                    },
                );
            }
        }
    }
}

fn is_number(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_digit())
}

fn normalise(word: &str, stem: &mut String) -> Kind {
    if word.starts_with(|char: char| char.is_ascii_digit()) {
        let end = word
            .find(|char: char| !(char.is_ascii_digit() || char == '.' || char == ','))
            .unwrap_or(word.len());
        stem.push('#');
        stem.extend(word.get(..end).unwrap_or_default().chars().filter(|&char| char != ','));
        return Kind::Number;
    }
    if let Some(value) = NUMERALS.iter().position(|numeral| *numeral == word) {
        let _ = write!(stem, "#{}", value + 2); // writing to a String does not fail
        return Kind::Number;
    }
    push_stem(word, stem);
    match is_stop_word(word) || FUNCTION_STEMS.contains(&stem.as_str()) {
        true => Kind::Function,
        false => Kind::Content,
    }
}

/// From two on; "one" is most often a pronoun.
const NUMERALS: [&str; 19] = [
    "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
];

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
