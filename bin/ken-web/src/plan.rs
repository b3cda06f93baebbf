//! Plans the queries of a search: the question itself, and other wordings if the budget allows more than one query.

use ken_text::{is_filler, words};

const QUERY_CHARACTERS: usize = 300;

/// Returns at most `max` queries. Those given by the caller come first.
pub(crate) fn queries(question: &str, named: &[String], max: usize) -> Vec<String> {
    let mut planned: Vec<String> = Vec::new();
    let candidates =
        named.iter().cloned().chain([question.to_owned(), key_words(question), names(question)]).chain(parts(question));
    for candidate in candidates {
        let candidate: String = candidate.trim().chars().take(QUERY_CHARACTERS).collect();
        let is_known = planned.iter().any(|known| known.eq_ignore_ascii_case(&candidate));
        if !candidate.is_empty() && !is_known {
            planned.push(candidate);
        }
    }
    planned.truncate(max);
    planned
}

fn key_words(question: &str) -> String {
    let telling = words(question).filter(|word| !is_filler(&word.text.to_lowercase()));
    telling.map(|word| word.text).collect::<Vec<_>>().join(" ")
}

/// Returns names and numbers: words that begin with a capital letter within a sentence, or contain a digit.
fn names(question: &str) -> String {
    let mut opens = true;
    let mut found = Vec::new();
    for word in words(question) {
        let is_name = word.text.starts_with(char::is_uppercase) && !opens;
        if is_name || word.text.contains(|c: char| c.is_ascii_digit()) {
            found.push(word.text);
        }
        let after = question.get(word.span.end..).unwrap_or_default();
        opens = after.starts_with(['.', '?', '!']);
    }
    found.join(" ")
}

/// Returns the sentences of the question if there are several.
fn parts(question: &str) -> Vec<String> {
    let sentences: Vec<_> = ken_text::sentences(question).map(|sentence| sentence.text.to_owned()).collect();
    match sentences.len() {
        0 | 1 => Vec::new(),
        _ => sentences,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_query_is_the_question_and_more_say_it_in_other_words() {
        let question = "When does the ferry to Norderney leave? Is it running in 2027?";
        assert_eq!(queries(question, &[], 1), [question]);
        assert_eq!(queries(question, &[], 3)[1..], ["ferry Norderney leave running 2027", "Norderney 2027"]);
        assert_eq!(queries(question, &[], 9).len(), 5);
        assert_eq!(queries("tides", &["Tides".into(), "moon".into()], 4), ["Tides", "moon"]);
        assert_eq!(queries("moon", &["tides".into(), "Moon".into()], 4), ["tides", "Moon"], "the second is known too");
        assert_eq!(queries(&"x".repeat(301), &[], 1), ["x".repeat(300)]);
    }
}
