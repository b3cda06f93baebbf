//! Which sentences of the sources answer a question: those that hold most of its telling words, rare ones weighing more.

use ken_text::{is_stop_word, sentences, words};
use ken_types::event::{Block, Message};
use ken_types::ops::model::{Generate, Source, SourceKind};

use super::stem::{agree, stem};
use super::{MODEL_DOWN, NO_MODEL};

/// Words of a question that count, and sentences that are looked at.
const TERMS: usize = 16;
const SENTENCES: usize = 2_000;
/// Longer ones are shown up to here.
const SENTENCE_BYTES: usize = 600;
/// The part of the question's weight that a sentence must hold, and the part of the best one's for those after it.
const ENOUGH: f64 = 0.34;
const NEAR_BEST: f64 = 0.6;
/// A term that stands in the title only.
const TITLE: f64 = 0.5;
const SHOWN: usize = 3;

/// Where a sentence stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Origin<'a> {
    /// In an entry or an earlier answer of this number.
    Source(&'a Source),
    /// In what the user said before, in a source of past turns.
    Told(&'a Source),
    /// In what the user said before in this conversation.
    Here,
}

/// A sentence that answers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Hit<'a> {
    pub(super) text: String,
    pub(super) origin: Origin<'a>,
}

/// The best sentences, best source first, each source's in their own order.
pub(super) fn search<'a>(request: &'a Generate, question: &str) -> Vec<Hit<'a>> {
    let terms = terms(question);
    if terms.is_empty() {
        return Vec::new();
    }
    let mut candidates = Vec::new();
    for source in &request.sources {
        of_source(source, &terms, &mut candidates);
    }
    for text in earlier_words(request) {
        of_text(text, 0, Origin::Here, &terms, &mut candidates);
    }
    let weights = weights(terms.len(), &candidates);
    let mut scored: Vec<(f64, usize)> = candidates
        .iter()
        .map(|candidate| candidate.score(&weights))
        .zip(0..)
        .collect();
    scored.retain(|(score, _)| *score >= ENOUGH);
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let best = scored.first().map_or(0.0, |(score, _)| *score);
    scored.retain(|(score, _)| *score >= best * NEAR_BEST);
    choose(&scored, &candidates)
}

/// A sentence, and as bits which terms it and its title hold.
struct Candidate<'a> {
    text: &'a str,
    origin: Origin<'a>,
    held: u32,
    titled: u32,
}

impl Candidate<'_> {
    fn score(&self, weights: &[f64]) -> f64 {
        let sum = |bits: u32| -> f64 {
            let held = weights
                .iter()
                .enumerate()
                .filter(|(index, _)| bits >> index & 1 == 1);
            held.map(|(_, weight)| weight).sum()
        };
        let all: f64 = weights.iter().sum();
        (sum(self.held) + TITLE * sum(self.titled & !self.held)) / all
    }
}

/// The telling words of a question, as stems.
fn terms(question: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut buffer = String::new();
    for word in words(question) {
        let lower = word.text.to_lowercase();
        if is_stop_word(&lower) || FILLER.contains(&lower.as_str()) {
            continue;
        }
        let stem = stem(&lower, &mut buffer);
        if !found.iter().any(|known| known == stem) {
            found.push(stem.to_owned());
        }
        if found.len() == TERMS {
            break;
        }
    }
    found
}

/// Words of a question that ask and do not tell.
const FILLER: [&str; 20] = [
    "tell", "know", "please", "give", "show", "find", "much", "many", "let", "like", "want", "need", "get",
    "got", "say", "said", "explain", "describe", "list", "what's",
];

fn of_source<'a>(source: &'a Source, terms: &[String], into: &mut Vec<Candidate<'a>>) {
    match source.kind {
        SourceKind::Knowledge => {
            let titled = held(&source.title, terms);
            of_text(&source.text, titled, Origin::Source(source), terms, into);
        }
        SourceKind::Memory => {
            of_text(&source.title, 0, Origin::Told(source), terms, into);
            // An answer that named its entries is second hand: what it rests on is found by itself while it is there.
            if !source.text.contains("[kb-") {
                of_text(&source.text, 0, Origin::Source(source), terms, into);
            }
        }
    }
}

fn of_text<'a>(
    text: &'a str,
    titled: u32,
    origin: Origin<'a>,
    terms: &[String],
    into: &mut Vec<Candidate<'a>>,
) {
    let own = |text: &str| text.starts_with(NO_MODEL) || text.starts_with(MODEL_DOWN);
    let lines = sentences(text).flat_map(|sentence| list_items(sentence.text));
    let telling = lines.filter(|text| !text.ends_with('?') && !own(text));
    for text in telling.take(SENTENCES.saturating_sub(into.len())) {
        let held = held(text, terms);
        if held != 0 {
            into.push(Candidate {
                text,
                origin,
                held,
                titled,
            });
        }
    }
}

/// A list has no full stops: each of its items is a sentence.
fn list_items(sentence: &str) -> impl Iterator<Item = &str> {
    let is_list = sentence.contains("\n- ") || sentence.contains("\n* ") || sentence.contains('|');
    let mark = if is_list { '\n' } else { '\0' }; // no text of the contract holds a NUL
    let items = sentence
        .split(mark)
        .map(|item| item.trim_start_matches(['-', '*', '#', ' ']).trim_end());
    items.filter(|item| !item.is_empty())
}

/// Which terms a text holds, as bits.
fn held(text: &str, terms: &[String]) -> u32 {
    let mut buffer = String::new();
    let mut held = 0;
    for word in words(text) {
        let stem = stem(word.text, &mut buffer);
        for (index, term) in terms.iter().enumerate() {
            if agree(stem, term) {
                held |= 1 << index;
            }
        }
    }
    held
}

/// How telling each term is: the fewer sentences hold it, the more; most of all if none does.
fn weights(terms: usize, candidates: &[Candidate<'_>]) -> Vec<f64> {
    let count = candidates.len().max(1) as f64;
    let holding = |index: usize| {
        candidates
            .iter()
            .filter(|one| (one.held | one.titled) >> index & 1 == 1)
            .count()
    };
    let weight = |index| match holding(index) {
        0 => (1.0 + 2.0 * count).ln(),
        some => (1.0 + count / some as f64).ln(),
    };
    (0..terms).map(weight).collect()
}

/// What the user has said before in this conversation, newest first; questions are no statements.
fn earlier_words(request: &Generate) -> impl Iterator<Item = &str> {
    let users = request
        .messages
        .iter()
        .rev()
        .filter(|message| matches!(message, Message::User { .. }));
    users
        .skip(1)
        .flat_map(|message| message.content())
        .filter_map(|block| match block {
            Block::Text { text } => Some(text.as_str()),
            _ => None,
        })
}

fn choose<'a>(scored: &[(f64, usize)], candidates: &[Candidate<'a>]) -> Vec<Hit<'a>> {
    let mut chosen: Vec<(usize, &Candidate<'a>)> = Vec::new();
    for (_, index) in scored {
        let Some(candidate) = candidates.get(*index) else {
            continue;
        };
        if chosen.len() < SHOWN && !chosen.iter().any(|(_, one)| one.text == candidate.text) {
            chosen.push((*index, candidate));
        }
    }
    chosen.sort_by_key(|(index, _)| *index);
    chosen.into_iter().map(|(_, candidate)| hit(candidate)).collect()
}

fn hit<'a>(candidate: &Candidate<'a>) -> Hit<'a> {
    let end = ken_text::head(candidate.text, SENTENCE_BYTES).len();
    let mut text: String = candidate.text.get(..end).unwrap_or_default().replace('\n', " ");
    if end < candidate.text.len() {
        text.push('…');
    }
    Hit {
        text,
        origin: candidate.origin,
    }
}
