//! Finds the sentences of the sources that answer a question: those that contain most of its words. Rare words have a
//! higher weight.

use ken_text::{expand, is_filler, is_particle, is_stop_word, same_stem, sentences, stem, verb_of, words};
use ken_types::event::{Block, Message, cited_numbers};
use ken_types::ops::model::{Generate, Source, SourceKind};

use super::{CANNOT_WRITE, MODEL_DOWN, NO_MODEL, OVER_BUDGET};

/// The maximum number of words of a question that are used.
const MAX_TERMS: usize = 16;
/// The maximum number of sentences that have one of these words. Of each text as many sentences are examined as are left of it.
const MAX_CANDIDATES: usize = 2_000;
/// The maximum size of a sentence, in bytes. Longer ones are cut.
const MAX_SENTENCE_BYTES: usize = 600;
/// The weight of a term that occurs in the title or earlier in the entry, but not in the sentence itself, which may
/// refer to it as "it".
const CONTEXT: f64 = 0.5;
/// A sentence is left out if its score is lower than this share of the best score.
const NEAR_BEST: f64 = 0.75;
/// The maximum number of sentences that are shown, and the maximum if all contain the same words of the question, as in
/// a list.
const MAX_SENTENCES: usize = 3;
const MAX_ALIKE_SENTENCES: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Origin<'a> {
    /// A knowledge entry, or the answer of a past turn.
    Source(&'a Source),
    /// A message of the user in a past turn.
    PastPrompt(&'a Source),
    /// An earlier message of the user in this conversation.
    EarlierMessage,
    /// The current message: text of the user besides the question, such as the text of an attached file.
    CurrentMessage,
}

/// A sentence that answers the question.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Hit<'a> {
    pub(super) text: String,
    pub(super) origin: Origin<'a>,
}

/// Returns the best sentences, in the order of the sources. If a message contains both statements and questions, only
/// its questions are answered.
pub(super) fn search<'a>(request: &'a Generate, question: &'a str) -> Vec<Hit<'a>> {
    let questions: Vec<&str> = lines(question).filter(|line| line.ends_with('?')).collect();
    let mut candidates = Vec::new();
    let mut terms = terms(&questions.join(" "));
    if terms.is_empty() {
        // If there is no question, or only one like "Do you know?", the topic is in the rest of the message.
        terms = self::terms(question);
    } else {
        of_user(question, Origin::CurrentMessage, &terms, &mut candidates);
    }
    if terms.is_empty() {
        return Vec::new();
    }
    for source in &request.sources {
        of_source(source, &terms, &mut candidates);
    }
    for text in earlier_words(request) {
        of_user(text, Origin::EarlierMessage, &terms, &mut candidates);
    }
    let weights = weights(terms.len(), &candidates);
    let mut scored: Vec<(f64, usize)> = (0..)
        .zip(&candidates)
        .filter(|(_, candidate)| candidate.share(&vec![1.0; terms.len()]) > 0.5)
        .map(|(index, candidate)| (candidate.share(&weights), index))
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let best = scored.first().map_or(0.0, |(score, _)| *score);
    scored.retain(|(score, _)| *score >= best * NEAR_BEST);
    choose(&scored, &candidates)
}

/// A word of the question: its stem, and a related stem. That is the stem of the verb in a noun (`backup`), or of the
/// noun that a verb makes with its particle (`backed up`).
struct Term {
    stem: String,
    other: Option<String>,
}

impl Term {
    fn new(word: &str, next: Option<&str>) -> Term {
        let mut buffer = String::new();
        let other = match next.filter(|next| is_particle(next)) {
            Some(particle) => Some([stem(word, &mut buffer), particle].concat()),
            None => verb_of(word).map(|verb| stem(verb, &mut buffer).to_owned()),
        };
        Term { stem: stem(word, &mut buffer).to_owned(), other }
    }

    fn matches(&self, stem: &str) -> bool {
        same_stem(stem, &self.stem) || self.other.as_ref().is_some_and(|other| same_stem(stem, other))
    }
}

/// Returns the words of a question that describe its topic, without duplicates.
fn terms(question: &str) -> Vec<Term> {
    let lower: Vec<String> = words(question).map(|word| word.text.to_lowercase()).collect();
    let mut found: Vec<Term> = Vec::new();
    for (index, word) in lower.iter().enumerate() {
        let term = Term::new(word, lower.get(index + 1).map(String::as_str));
        let is_known = found.iter().any(|known| known.stem == term.stem);
        if !is_without_topic(word) && !is_known && found.len() < MAX_TERMS {
            found.push(term);
        }
    }
    found
}

/// Whether a lower-case word does not describe the topic of a question. For a contraction such as "what's", this
/// depends on its first part.
fn is_without_topic(word: &str) -> bool {
    is_filler(word) || expand(word).is_some_and(|contraction| is_filler(contraction.first(word)))
}

/// A sentence, with the terms that it and its context contain, one bit each.
struct Candidate<'a> {
    text: &'a str,
    origin: Origin<'a>,
    held: u32,
    context: u32,
}

impl Candidate<'_> {
    /// Returns the share of the total weight of the terms that the sentence contains. Terms in its context count half.
    fn share(&self, weights: &[f64]) -> f64 {
        let sum = |bits: u32| -> f64 {
            let held = weights.iter().enumerate();
            held.filter(|(index, _)| bits >> index & 1 == 1).map(|(_, weight)| weight).sum()
        };
        let all: f64 = weights.iter().sum();
        (sum(self.held) + CONTEXT * sum(self.context & !self.held)) / all
    }
}

fn of_source<'a>(source: &'a Source, terms: &[Term], into: &mut Vec<Candidate<'a>>) {
    match source.kind {
        SourceKind::Context => {}
        SourceKind::Knowledge | SourceKind::File | SourceKind::Web => {
            of_text(source, contained_terms(&source.title, terms), terms, into)
        }
        SourceKind::Memory => {
            of_user(&source.title, Origin::PastPrompt(source), terms, into);
            // An answer of this engine, or one that cites entries, only repeats sources that the search finds directly.
            // Answers of earlier versions name the ids of entries.
            let second_hand = ["[kb-", NO_MODEL, MODEL_DOWN, OVER_BUDGET, CANNOT_WRITE];
            let is_second_hand = second_hand.iter().any(|mark| source.text.contains(mark));
            if !is_second_hand && cited_numbers(&source.text).is_empty() {
                of_text(source, 0, terms, into);
            }
        }
    }
}

fn of_text<'a>(source: &'a Source, title: u32, terms: &[Term], into: &mut Vec<Candidate<'a>>) {
    let (mut context, mut question) = (title, 0);
    for text in lines(&source.text).take(MAX_CANDIDATES.saturating_sub(into.len())) {
        let held = contained_terms(text, terms);
        if text.ends_with('?') {
            question = held; // the next sentence answers it
            continue;
        }
        if held | question != 0 {
            into.push(Candidate { text, origin: Origin::Source(source), held: held | question, context });
        }
        context |= held;
        question = 0;
    }
}

/// Adds the statements in a message of a user.
fn of_user<'a>(text: &'a str, origin: Origin<'a>, terms: &[Term], into: &mut Vec<Candidate<'a>>) {
    let stated = lines(text).filter(|text| !is_question(text));
    for text in stated.take(MAX_CANDIDATES.saturating_sub(into.len())) {
        let held = contained_terms(text, terms);
        if held != 0 {
            into.push(Candidate { text, origin, held, context: 0 });
        }
    }
}

/// Whether a sentence of a user is a question or a request, even without a question mark. Such sentences are not
/// evidence.
fn is_question(sentence: &str) -> bool {
    let mut words = words(sentence).map(|word| word.text.to_lowercase());
    let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let is = |list: &[&str], word: &str| list.contains(&word);
    sentence.trim_end().ends_with('?')
        || is(&ASKING, &first)
        || is(&VERBS, &first)
        || (is(&CONJUNCTIONS, &first) && is(&VERBS, &second))
        || (is_filler(&first) && !is_stop_word(&first))
}

const ASKING: [&str; 8] = ["what", "what's", "which", "who", "who's", "whose", "why", "how"];
/// These words make a question only before a verb. "When it rains, the pump starts" is a statement.
const CONJUNCTIONS: [&str; 3] = ["when", "where", "while"];
const VERBS: [&str; 22] = [
    "is", "are", "was", "were", "am", "do", "does", "did", "has", "have", "had", "can", "could", "will", "would",
    "shall", "should", "may", "might", "must", "isn't", "doesn't",
];

/// Returns the sentences of a text, without the fences of code blocks. Items of lists are returned separately.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    sentences(text).flat_map(|sentence| list_items(sentence.text.trim_start_matches("```").trim_start()))
}

/// Returns the items of a list, which are not separated by full stops. Any other sentence is returned as a whole.
fn list_items(sentence: &str) -> impl Iterator<Item = &str> {
    let is_list = sentence.contains("\n- ") || sentence.contains("\n* ") || sentence.contains('|');
    let mark = if is_list { '\n' } else { '\0' }; // a text never contains a NUL
    let items = sentence.split(mark).map(|item| item.trim_start_matches(['-', '*', '#', ' ']).trim_end());
    items.filter(|item| !item.is_empty())
}

/// Returns the terms that a text contains, one bit each.
fn contained_terms(text: &str, terms: &[Term]) -> u32 {
    let mut buffer = String::new();
    let mut held = 0;
    for word in words(text) {
        let stem = stem(word.text, &mut buffer);
        for (index, term) in terms.iter().enumerate() {
            if term.matches(stem) {
                held |= 1 << index;
            }
        }
    }
    held
}

/// Returns the weight of each term. A term has a higher weight if fewer sentences contain it, but never three times
/// that of another term. The range is small because all sentences were chosen for containing some of the terms, so
/// these numbers have little meaning.
fn weights(terms: usize, candidates: &[Candidate<'_>]) -> Vec<f64> {
    let holding = |index: usize| {
        let holds = |one: &&Candidate<'_>| (one.held | one.context) >> index & 1 == 1;
        candidates.iter().filter(holds).count().max(1)
    };
    let weight = |index| (2.0 + (candidates.len() as f64 / holding(index) as f64).min(10.0)).ln();
    (0..terms).map(weight).collect()
}

/// Returns the user's earlier messages in this conversation, newest first.
fn earlier_words(request: &Generate) -> impl Iterator<Item = &str> {
    let messages = request.messages.iter().rev();
    let users = messages.filter(|message| matches!(message, Message::User { .. }));
    let blocks = users.skip(1).flat_map(|message| message.content());
    blocks.filter_map(|block| match block {
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
        let is_alike = chosen.iter().all(|(_, one)| one.held == candidate.held);
        let max = if is_alike { MAX_ALIKE_SENTENCES } else { MAX_SENTENCES };
        if chosen.len() < max && !chosen.iter().any(|(_, one)| one.is_repetition_of(candidate)) {
            chosen.push((*index, candidate));
        }
    }
    chosen.sort_by_key(|(index, _)| *index);
    let same = |text: &str| chosen.iter().filter(|(_, one)| one.text == text).count();
    let hits = chosen.iter().map(|(_, one)| hit(one, same(one.text) > 1));
    hits.collect()
}

impl Candidate<'_> {
    /// Whether two sentences are repetitions. The same sentence in two entries can have different meanings, but a user
    /// who writes the same sentence twice repeats it.
    fn is_repetition_of(&self, other: &Candidate<'_>) -> bool {
        let is_entry = |origin: Origin<'_>| matches!(origin, Origin::Source(_));
        self.text == other.text && (self.origin == other.origin || !is_entry(self.origin) || !is_entry(other.origin))
    }
}

/// Returns the sentence as it is shown. The title of its entry is added if the sentence alone does not name its
/// subject.
fn hit<'a>(candidate: &Candidate<'a>, is_ambiguous: bool) -> Hit<'a> {
    let shown = ken_text::head(candidate.text, MAX_SENTENCE_BYTES);
    let mut text = shown.replace('\n', " ");
    if shown.len() < candidate.text.len() {
        text.push('…');
    }
    match candidate.origin {
        Origin::Source(source)
            if matches!(source.kind, SourceKind::Knowledge | SourceKind::File)
                && (is_ambiguous || opens_with_pronoun(shown)) =>
        {
            text = format!("{}: {text}", source.title);
        }
        _ => {}
    }
    Hit { text, origin: candidate.origin }
}

fn opens_with_pronoun(sentence: &str) -> bool {
    const PRONOUNS: [&str; 8] = ["it", "its", "they", "their", "this", "these", "he", "she"];
    let first = words(sentence).next().map(|word| word.text.to_lowercase());
    first.is_some_and(|first| PRONOUNS.contains(&first.as_str()))
}
