//! Selects the part of a long entry that concerns the question. An entry can have half a megabyte, and a request has no
//! room for many of those.

use ken_text::{head, is_filler, same_stem, stem, words};
use ken_types::fence::{Outside, named};
use ken_types::ops::store::KnowledgeRecord;
use serde_json::Value;

/// The maximum number of bytes of an entry that are shown, and the maximum number of these before the first word of the
/// question.
const MAX_SHOWN_BYTES: usize = 4_096;
const LEAD_BYTES: usize = 512;
/// The maximum number of words of the question that are used.
const MAX_WORDS: usize = 16;

/// Returns who has written an entry, in words. Only a person who may give ken orders writes entries with the source `api`.
pub(crate) fn origin(entry: &KnowledgeRecord) -> String {
    let place = || place(entry);
    match entry.source.as_str() {
        "api" => "an entry that a person wrote".to_owned(),
        "agent" => format!("an entry that an agent wrote{}", having_read(&entry.outside)),
        "share" => format!("a part of a document that the installation offers, {}", place()),
        "workspace" => format!("a part of a file of the workspace, {}", place()),
        _ => format!("a part of a document that a person imported, {}", place()),
    }
}

/// Returns where a text came from that a turn has written, as the end of a sentence. Empty if the turn had read nothing from
/// outside.
pub(crate) fn having_read(outside: &Outside) -> String {
    if outside.is_empty() {
        return String::new();
    }
    format!(" in a turn that had read text from outside ({})", named(outside))
}

/// Returns the place of an entry: `entry`, or a file with its line.
pub(crate) fn place(entry: &KnowledgeRecord) -> String {
    let field = |name: &str| entry.metadata.get(name).and_then(Value::as_str).unwrap_or_default();
    let Some(line) = entry.metadata.get("line") else {
        return "entry".to_owned();
    };
    match field("folder") {
        "" => format!("{}:{}:{line}", entry.source, field("path")),
        folder => format!("{}/{}:{line}", folder.trim_end_matches('/'), field("path")),
    }
}

/// Returns the whole text if it is short. Otherwise returns the excerpt that contains the most words of the question;
/// of several, the first. Takes time linear in the length of the text.
pub(crate) fn passage<'a>(text: &'a str, question: &str) -> &'a str {
    if text.len() <= MAX_SHOWN_BYTES {
        return text;
    }
    let found = found(text, &terms(question));
    excerpt(text, densest(&found).saturating_sub(LEAD_BYTES))
}

/// Returns the stems of the significant words of a question.
fn terms(question: &str) -> Vec<String> {
    let lower = words(question).map(|word| word.text.to_lowercase());
    let telling = lower.filter(|word| !is_filler(word)).take(MAX_WORDS);
    telling.map(|word| stem(&word, &mut String::new()).to_owned()).collect()
}

/// Returns the positions in the text where a term occurs, each with the index of the term.
fn found(text: &str, terms: &[String]) -> Vec<(usize, usize)> {
    let mut buffer = String::new();
    let mut found = Vec::new();
    for word in words(text) {
        // A longer run of letters is not a word that a question would contain.
        if word.text.len() > 64 {
            continue;
        }
        let stem = stem(word.text, &mut buffer);
        let term = terms.iter().position(|term| same_stem(term, stem));
        found.extend(term.map(|term| (word.span.start, term)));
    }
    found
}

/// Returns the position at which the excerpt with the most different terms starts.
fn densest(found: &[(usize, usize)]) -> usize {
    let mut counts = [0_usize; MAX_WORDS];
    let (mut first, mut best, mut start) = (0, 0, 0);
    for (at, term) in found {
        if let Some(count) = counts.get_mut(*term) {
            *count += 1;
        }
        let is_too_far = |(before, _): &&(usize, usize)| at - before > MAX_SHOWN_BYTES - LEAD_BYTES;
        while let Some((_, old)) = found.get(first).filter(is_too_far) {
            if let Some(count) = counts.get_mut(*old) {
                *count -= 1;
            }
            first += 1;
        }
        let held = counts.iter().filter(|count| **count > 0).count();
        if held > best {
            best = held;
            start = found.get(first).map_or(0, |(at, _)| *at);
        }
    }
    start
}

/// Returns the excerpt from `start`. It starts at a word boundary if there is one nearby.
fn excerpt(text: &str, start: usize) -> &str {
    let rest = text.get(head(text, start).len()..).unwrap_or_default();
    let near = head(rest, LEAD_BYTES);
    let skip = match start {
        0 => 0,
        _ => near.find(char::is_whitespace).unwrap_or_default(),
    };
    head(rest.get(skip..).unwrap_or_default(), MAX_SHOWN_BYTES).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_passage_is_where_the_words_are() {
        let filler = "Nothing of interest is said here. The pressure is fine. ".repeat(4_000);
        let text = format!("{filler}The reactor valve opens at 40 bar. {filler}");
        let found = passage(&text, "At which pressures do the valves of reactors open?");
        assert!(found.contains("40 bar") && found.len() <= MAX_SHOWN_BYTES, "{found}");
        assert_eq!(passage("short", "anything"), "short");
        for long in ["é".repeat(9_000), "\"x".repeat(9_000)] {
            let shown = passage(&long, "x");
            assert!(!shown.is_empty() && shown.len() <= MAX_SHOWN_BYTES);
        }
    }

    #[test]
    fn a_text_is_whole_up_to_the_limit() {
        let text = "é ".repeat(MAX_SHOWN_BYTES)[..MAX_SHOWN_BYTES / 3 * 3].to_owned();
        let text = format!("{text}{}", "x".repeat(MAX_SHOWN_BYTES - text.len()));
        assert_eq!(passage(&text, "x"), text);
        assert!(passage(&format!("{text}x"), "x").len() <= MAX_SHOWN_BYTES);
    }
}
