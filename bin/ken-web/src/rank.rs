//! Selects the passages that answer the question. Passages are scored by BM25 over the words of the question, and the
//! best ones are taken until the budget is used up.

use std::collections::HashMap;

use ken_text::{is_filler, sentences, stem, words};
use ken_types::event::estimated_tokens;

/// The minimum number of bytes of a passage, unless its page is shorter, and the maximum.
const MIN_PASSAGE_BYTES: usize = 300;
const MAX_PASSAGE_BYTES: usize = 1_200;
/// The usual parameters of BM25 (Robertson and Zaragoza, 2009).
const K1: f64 = 1.2;
const B: f64 = 0.75;
/// The separator between two passages of a page.
const GAP: &str = "\n\n[…]\n\n";

/// Returns the stems of the significant words of a text.
pub(crate) fn terms(text: &str) -> Vec<String> {
    let lower = words(text).map(|word| word.text.to_lowercase());
    let telling = lower.filter(|word| !is_filler(word));
    let mut buffer = String::new();
    telling.map(|word| stem(&word, &mut buffer).to_owned()).collect()
}

/// The passages that were taken from one page.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Packed {
    /// The index of the page in the input.
    pub(crate) page: usize,
    pub(crate) text: String,
    /// The score of its best passage; above 0 only if the passage contains a word of the question.
    pub(crate) score: f64,
}

struct Passage<'a> {
    page: usize,
    /// The position of the passage in its page.
    order: usize,
    text: &'a str,
    score: f64,
}

/// Returns the best passages of `pages` within a number of tokens. `pages` are sorted, best first. Pages without a
/// selected passage are left out.
pub(crate) fn pack(question: &str, pages: &[&str], tokens: u64) -> Vec<Packed> {
    let mut passages: Vec<Passage<'_>> = Vec::new();
    for (page, text) in pages.iter().enumerate() {
        let parts = parts(text).into_iter().enumerate();
        passages.extend(parts.map(|(order, text)| Passage { page, order, text, score: 0.0 }));
    }
    score(question, &mut passages);
    let mut best: Vec<&Passage<'_>> = passages.iter().filter(|passage| passage.score > 0.0).collect();
    best.sort_by(|a, b| b.score.total_cmp(&a.score).then((a.page, a.order).cmp(&(b.page, b.order))));
    let several = best.windows(2).any(|pair| matches!(pair, [a, b] if a.page != b.page));
    // If there are several sources, one may use at most half of the budget.
    let share = if several { tokens / 2 } else { tokens };
    let mut taken: HashMap<usize, (u64, Vec<&Passage<'_>>)> = HashMap::new();
    let mut used = 0;
    for passage in best {
        let needed = estimated_tokens(passage.text) + 4;
        let of_page = taken.entry(passage.page).or_default();
        if used + needed <= tokens && of_page.0 + needed <= share.max(needed) {
            used += needed;
            of_page.0 += needed;
            of_page.1.push(passage);
        }
    }
    let mut packed: Vec<Packed> = taken
        .into_iter()
        .filter(|(_, (_, passages))| !passages.is_empty())
        .map(|(page, (_, passages))| joined(page, passages))
        .collect();
    packed.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.page.cmp(&b.page)));
    packed
}

fn joined(page: usize, mut passages: Vec<&Passage<'_>>) -> Packed {
    passages.sort_by_key(|passage| passage.order);
    let mut text = String::new();
    let mut next = None;
    for passage in &passages {
        if next == Some(passage.order) {
            text.push_str(passage.text);
        } else {
            text.truncate(text.trim_end().len());
            text.push_str(if text.is_empty() { "" } else { GAP });
            // The first line keeps its indentation.
            text.push_str(passage.text.trim_start_matches('\n'));
        }
        next = Some(passage.order + 1);
    }
    text.truncate(text.trim_end().len());
    let score = passages.iter().map(|passage| passage.score).fold(0.0, f64::max);
    Packed { page, text, score }
}

/// Scores passages by BM25. Pages that the search ranked higher get up to a fifth more.
fn score(question: &str, passages: &mut [Passage<'_>]) {
    let question_terms = terms(question);
    let counted: Vec<(HashMap<String, f64>, f64)> = passages
        .iter()
        .map(|passage| {
            let terms = terms(passage.text);
            let length = f64::from(u32::try_from(terms.len()).unwrap_or(u32::MAX));
            let mut counts = HashMap::new();
            for term in terms {
                *counts.entry(term).or_insert(0.0) += 1.0;
            }
            (counts, length)
        })
        .collect();
    let number = f64::from(u32::try_from(passages.len().max(1)).unwrap_or(u32::MAX));
    let mean = counted.iter().map(|(_, length)| length).sum::<f64>() / number;
    for term in &question_terms {
        let holding = counted.iter().filter(|(counts, _)| counts.contains_key(term)).count();
        let holding = f64::from(u32::try_from(holding).unwrap_or(u32::MAX));
        let rarity = (1.0 + (number - holding + 0.5) / (holding + 0.5)).ln();
        for (passage, (counts, length)) in passages.iter_mut().zip(&counted) {
            if let Some(count) = counts.get(term) {
                let weight = count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length / mean.max(1.0)));
                passage.score += rarity * weight;
            }
        }
    }
    for passage in passages {
        let place = f64::from(u32::try_from(passage.page).unwrap_or(u32::MAX));
        passage.score *= 1.0 + 0.2 / (1.0 + place);
    }
}

/// Splits a text into passages, which together are the text. Short paragraphs are joined with the following ones, long ones are
/// split between sentences.
fn parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut end = 0;
    for piece in text.split_inclusive("\n\n").flat_map(pieces) {
        if end > start && end + piece.len() - start > MAX_PASSAGE_BYTES {
            parts.extend(text.get(start..end));
            start = end;
        }
        end += piece.len();
        if end - start >= MIN_PASSAGE_BYTES {
            parts.extend(text.get(start..end));
            start = end;
        }
    }
    parts.extend(text.get(start..end));
    parts
}

/// Returns the pieces of a paragraph, each with the blanks before it.
fn pieces(paragraph: &str) -> Vec<&str> {
    if paragraph.len() <= MAX_PASSAGE_BYTES {
        return vec![paragraph];
    }
    let mut pieces = Vec::new();
    let mut from = 0;
    for end in sentences(paragraph).map(|sentence| sentence.span.end).chain([paragraph.len()]) {
        let mut rest = paragraph.get(from..end).unwrap_or_default();
        while !rest.is_empty() {
            let head = ken_text::head(rest, MAX_PASSAGE_BYTES);
            // Code has no sentences. It is split between lines.
            let lines = head.rfind('\n').filter(|_| head.len() < rest.len()).and_then(|end| head.get(..=end));
            let piece = lines.unwrap_or(head);
            pieces.push(piece);
            rest = rest.get(piece.len()..).unwrap_or_default();
        }
        from = end;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filler(topic: &str, paragraphs: usize) -> String {
        let paragraph = format!("{topic} goes on without a word of what is asked. ").repeat(8);
        vec![paragraph; paragraphs].join("\n\n")
    }

    #[test]
    fn the_passage_that_answers_is_taken_and_the_budget_is_kept() {
        let long = format!("{}\n\nThe ferry leaves at nine.\n\n{}", filler("Gardening", 20), filler("Cooking", 20));
        let pages = [filler("Sports", 30), long, "A ferry is a ship.".to_owned()];
        let pages: Vec<&str> = pages.iter().map(String::as_str).collect();
        let packed = pack("When does the ferry leave?", &pages, 400);
        let text: String = packed.iter().map(|packed| packed.text.as_str()).collect();
        assert!(text.contains("The ferry leaves at nine."), "{packed:?}");
        assert!(packed.iter().all(|packed| packed.page != 0 && packed.score > 0.0));
        assert!(estimated_tokens(&text) <= 400, "{}", text.len());
        assert_eq!(pack("ferry", &[], 400), []);
        assert_eq!(pack("volcano", &pages, 400), []);
    }

    #[test]
    fn parts_cover_a_text_and_are_never_too_long() {
        let text = format!("{}\n\nshort\n\n{}", "x".repeat(5_000), "é. ".repeat(2_000));
        let parts = parts(&text);
        assert!(parts.iter().all(|part| part.len() <= MAX_PASSAGE_BYTES));
        assert_eq!(parts.concat(), text);
    }

    #[test]
    fn code_of_a_page_keeps_its_lines() {
        // Each line ends what could be a sentence.
        let line = |number: usize| format!("    ferry({number});    // Leaves. Then\n");
        let code: String = (0..200).map(line).collect();
        let page = format!("{}\n\n{code}\n{}", filler("Gardening", 5), filler("Cooking", 5));
        let packed = pack("ferry leaves", &[&page], 7_500);
        assert!(packed.first().is_some_and(|packed| packed.text.starts_with(&code)), "{packed:?}");
        // What is too long is cut between lines.
        let long = format!("    ferry(\"{}\")\n", "x".repeat(100)).repeat(30);
        let packed = pack("ferry", &[&format!("{}\n\n{long}", filler("Gardening", 5))], 400);
        let text = packed.first().map(|packed| packed.text.as_str()).unwrap_or_default();
        assert!(text.lines().all(|line| long.lines().next() == Some(line)) && !text.is_empty(), "{text}");
    }
}
