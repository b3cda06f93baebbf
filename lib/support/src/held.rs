//! Decides whether passages contain every number, date, unit and name of a sentence.

use ken_text::head;

use crate::calendar::is_calendar;
use crate::index::Index;
use crate::rarity::is_common;
use crate::reading::is_unit;
use crate::token::{Kind, Token};

/// Words that multiply the number before them.
const MAGNITUDES: [&str; 6] = ["dozen", "hundred", "thousand", "million", "billion", "trillion"];

/// The maximum length in bytes of the word that is returned.
const MAX_WORD_BYTES: usize = 60;

/// Returns the first number, date, unit, or name of the sentence that no passage contains. All numbers count, an estimate
/// too, and so does a first word with a capital that is not a common word.
pub(crate) fn missing_word<'a>(sentence: &'a str, passages: &[&str]) -> Option<&'a str> {
    let text = with_decimal_points(sentence);
    let passages: Vec<String> = passages.iter().map(|passage| with_decimal_points(passage)).collect();
    let passages: Vec<&str> = passages.iter().map(String::as_str).collect();
    let index = Index::new(&text, &passages);
    let mut tokens = index.tokens.iter().enumerate();
    let missing = tokens.find(|(at, token)| {
        let word = token.span.of(sentence);
        is_exact(&index.tokens, *at, token, word) && !index.has(token.id)
    });
    missing.map(|(_, token)| head(token.span.of(sentence), MAX_WORD_BYTES))
}

/// Whether the word has to be in the passage itself, and no other word can stand for it.
fn is_exact(tokens: &[Token], at: usize, token: &Token, word: &str) -> bool {
    let lower = word.to_lowercase();
    let is_number = |token: &Token| token.kind == Kind::Number;
    let is_name = || token.capital && token.is_content() && (at > 0 || !is_common(&lower));
    let is_after_number = || {
        let before = tokens.get(at.saturating_sub(2)..at).unwrap_or_default();
        before.iter().any(is_number) && (is_unit(&lower) || MAGNITUDES.contains(&lower.as_str()))
    };
    is_number(token)
        || word.contains(char::is_numeric)
        || token.capital && is_calendar(&lower)
        || is_name()
        || is_after_number()
}

/// Replaces each comma in a number that separates no thousands, because 2,5 is not 25. No place in the text changes.
fn with_decimal_points(text: &str) -> String {
    let bytes = text.as_bytes();
    let digits_from =
        |at: usize| bytes.get(at..).map_or(0, |rest| rest.iter().take_while(|byte| byte.is_ascii_digit()).count());
    let is_decimal = |at: usize| {
        let after = digits_from(at + 1);
        at.checked_sub(1).is_some_and(|before| digits_from(before) > 0) && after > 0 && after != 3
    };
    text.char_indices().map(|(at, char)| if char == ',' && is_decimal(at) { '.' } else { char }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_dates_units_and_names_have_to_be_in_the_passage() {
        let passage = ["In March 1990 the engineers of Siemens moved 5 million tonnes, or 1,056 loads, for 2,5 euros."];
        for held in [
            "Siemens moved 5 million tonnes in March 1990.",
            "There were 1056 loads.",
            "Engineers moved a lot.",
            "It cost 2,5 euros.",
        ] {
            assert_eq!(missing_word(held, &passage), None, "{held}");
        }
        for (other, word) in [
            ("Siemens moved 6 million tonnes.", "6"),
            ("Siemens moved 5 billion tonnes.", "billion"),
            ("Siemens moved about 4 million tonnes.", "4"),
            ("It moved them in April 1990.", "April"),
            ("It was moved by Bosch.", "Bosch"),
            ("Zeiss moved tonnes.", "Zeiss"),
            ("It cost 2,5 dollars.", "dollars"),
            ("It cost 25 euros.", "25"),
            ("It used the A4 road.", "A4"),
            ("It moved seven loads.", "seven"),
            ("It moved ٣ loads.", "٣"),
        ] {
            assert_eq!(missing_word(other, &passage), Some(word), "{other}");
        }
        assert_eq!(missing_word("It cost 2,5 euros.", &["It cost 25 euros."]), Some("2,5"));
        assert_eq!(missing_word("It cost 2,5 euros.", &["It cost 2.5 euros."]), None);
    }
}
