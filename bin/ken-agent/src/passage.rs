//! The part of a long entry that a turn is about. An entry may hold half a megabyte, a request cannot hold many of those.

use std::borrow::Cow;

use ken_text::{head, is_stop_word, words};

/// What is shown of an entry, and the step in which the best place is looked for.
const SHOWN_BYTES: usize = 4_096;
const STEP_BYTES: usize = 1_024;
/// Words of the question that count.
const WORDS: usize = 16;

/// The whole text if it is short, else the stretch that holds most of the question's words; the first of equals.
pub(crate) fn passage<'a>(text: &'a str, question: &str) -> Cow<'a, str> {
    if text.len() <= SHOWN_BYTES {
        return Cow::Borrowed(text);
    }
    let terms = terms(question);
    let starts = (0..text.len()).step_by(STEP_BYTES);
    let best = starts.map(|start| stretch(text, start)).reduce(|best, next| {
        if count(next, &terms) > count(best, &terms) {
            next
        } else {
            best
        }
    });
    Cow::Borrowed(best.unwrap_or_default())
}

/// From the first word after `start`.
fn stretch(text: &str, start: usize) -> &str {
    let start = head(text, start).len();
    let rest = text.get(start..).unwrap_or_default();
    let skip = match start {
        0 => 0,
        _ => rest.find(char::is_whitespace).unwrap_or_default(),
    };
    let rest = rest.get(skip..).unwrap_or_default();
    head(rest, SHOWN_BYTES).trim()
}

fn terms(question: &str) -> Vec<String> {
    let lower = words(question).map(|word| word.text.to_lowercase());
    lower.filter(|word| !is_stop_word(word)).take(WORDS).collect()
}

fn count(stretch: &str, terms: &[String]) -> usize {
    let lower = stretch.to_lowercase();
    terms.iter().filter(|term| lower.contains(term.as_str())).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_passage_is_where_the_words_are() {
        let filler = "Nothing of interest is said here. ".repeat(4_000);
        let text = format!("{filler}The reactor valve opens at 40 bar. {filler}");
        let found = passage(&text, "At which pressure does the reactor valve open?");
        assert!(found.contains("40 bar") && found.len() <= SHOWN_BYTES);
        assert_eq!(passage("short", "anything"), "short");
        assert!(passage(&"é".repeat(9_000), "x").len() <= SHOWN_BYTES);
    }
}
