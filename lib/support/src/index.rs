//! Finds which words and sequences of words of the text occur in the sources, in one pass over the sources.
//!
//! Words that do not occur in the text are not stored. Hence the size of the tables depends only on the length of the
//! text, and the time on the length of both.

use std::collections::HashMap;

use ken_text::{Span, sentences};

use crate::token::{Spellings, Token, UNKNOWN, Vocabulary};

/// The words of the text, and where they occur in the sources.
#[derive(Default)]
pub(crate) struct Index<'a> {
    pub(crate) text: &'a str,
    pub(crate) sources: &'a [&'a str],
    pub(crate) vocabulary: Vocabulary,
    pub(crate) sentences: Vec<Sentence>,
    pub(crate) tokens: Vec<Token>,
    pub(crate) source_sentences: Vec<SourceSentence>,
    /// The content words of all source sentences, one sentence after the other, without those that do not occur in the
    /// text.
    known: Vec<u32>,
    /// All sequences of three words in the text, each with whether it occurs in a source.
    trigrams: HashMap<[u32; 3], bool>,
    pairs: HashMap<[u32; 2], Pair>,
    /// For each word of the vocabulary, the first [`MOST_POSTINGS`] source sentences that contain it.
    postings: Vec<Vec<u32>>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Sentence {
    pub(crate) span: Span,
    first: usize,
    end: usize,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct SourceSentence {
    pub(crate) source: usize,
    pub(crate) span: Span,
    first: usize,
    end: usize,
}

/// Two neighbouring content words of the text, as they occur in the sources.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pair {
    /// The shortest distance from the first word to the second in a source, in content words; 0 if they never occur
    /// within [`REACH`].
    pub(crate) distance: u8,
    /// The source sentence in which they have this distance.
    pub(crate) sentence: u32,
}

/// The maximum number of source sentences that are stored for a word. A word that occurs in more of them hardly helps
/// to distinguish them.
const MOST_POSTINGS: usize = 64;

/// The maximum distance of two words of a pair, in content words.
const REACH: usize = 8;

impl<'a> Index<'a> {
    pub(crate) fn new(text: &'a str, sources: &'a [&'a str]) -> Index<'a> {
        let mut index = Index { text, sources, ..Index::default() };
        index.read_text();
        for (source, text) in sources.iter().enumerate() {
            index.read_source(source, text);
        }
        index
    }

    fn read_text(&mut self) {
        for sentence in sentences(self.text) {
            let first = self.tokens.len();
            self.vocabulary.learn(self.text, sentence.span, &mut self.tokens);
            let end = self.tokens.len();
            if end > first {
                self.sentences.push(Sentence { span: sentence.span, first, end });
            }
        }
        for sentence in &self.sentences {
            let tokens = self.tokens.get(sentence.first..sentence.end).unwrap_or_default();
            for three in trigrams(tokens) {
                self.trigrams.insert(three, false);
            }
            for two in content_pairs(tokens) {
                self.pairs.insert(two, Pair::default());
            }
        }
        self.postings.resize(self.vocabulary.rarities.len(), Vec::new());
    }

    fn read_source(&mut self, source: usize, text: &str) {
        let (mut tokens, mut spellings) = (Vec::new(), Spellings::new());
        let mut last = [UNKNOWN; 2];
        let mut recent = [UNKNOWN; REACH]; // the latest content words, the newest first
        for sentence in sentences(text) {
            tokens.clear();
            self.vocabulary.look_up(text, sentence.span, &mut spellings, &mut tokens);
            let number = self.source_sentences.len() as u32;
            let first = self.known.len();
            for token in &tokens {
                let three = [last[0], last[1], token.id];
                if !three.contains(&UNKNOWN)
                    && let Some(found) = self.trigrams.get_mut(&three)
                {
                    *found = true;
                }
                last = [last[1], token.id];
                if token.is_content() {
                    self.note(token.id, &recent, number);
                    recent.rotate_right(1);
                    recent[0] = token.id;
                } else if token.id != UNKNOWN {
                    self.post(token.id, number);
                }
            }
            self.source_sentences.push(SourceSentence { source, span: sentence.span, first, end: self.known.len() });
        }
    }

    /// Records that a source sentence contains a content word, `recent` being the content words before it.
    fn note(&mut self, id: u32, recent: &[u32; REACH], sentence: u32) {
        if id == UNKNOWN {
            return;
        }
        self.post(id, sentence);
        self.known.push(id);
        for (distance, before) in (1u8..).zip(recent).filter(|(_, before)| **before != UNKNOWN) {
            if let Some(pair) = self.pairs.get_mut(&[*before, id])
                && (pair.distance == 0 || distance < pair.distance)
            {
                *pair = Pair { distance, sentence };
            }
        }
    }

    fn post(&mut self, id: u32, sentence: u32) {
        if let Some(postings) = self.postings.get_mut(id as usize)
            && postings.len() < MOST_POSTINGS
            && postings.last() != Some(&sentence)
        {
            postings.push(sentence);
        }
    }

    pub(crate) fn tokens_of(&self, sentence: &Sentence) -> &[Token] {
        self.tokens.get(sentence.first..sentence.end).unwrap_or_default()
    }

    /// Returns the content words of a source sentence that also occur in the text, in their order.
    pub(crate) fn known_of(&self, sentence: usize) -> &[u32] {
        let range = self.source_sentences.get(sentence).map(|one| one.first..one.end);
        range.and_then(|range| self.known.get(range)).unwrap_or_default()
    }

    /// Returns whether the word occurs in any source.
    pub(crate) fn has(&self, id: u32) -> bool {
        !self.postings_of(id).is_empty()
    }

    pub(crate) fn postings_of(&self, id: u32) -> &[u32] {
        self.postings.get(id as usize).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns whether this sequence of three words occurs in a source.
    pub(crate) fn has_trigram(&self, three: &[u32; 3]) -> bool {
        self.trigrams.get(three).is_some_and(|found| *found)
    }

    pub(crate) fn pair(&self, two: [u32; 2]) -> Pair {
        self.pairs.get(&two).copied().unwrap_or_default()
    }

    pub(crate) fn rarity(&self, id: u32) -> f32 {
        self.vocabulary.rarities.get(id as usize).copied().unwrap_or(1.0)
    }
}

pub(crate) fn trigrams(tokens: &[Token]) -> impl Iterator<Item = [u32; 3]> {
    tokens.windows(3).filter_map(|window| match window {
        [a, b, c] => Some([a.id, b.id, c.id]),
        _ => None,
    })
}

pub(crate) fn content_pairs(tokens: &[Token]) -> impl Iterator<Item = [u32; 2]> {
    let content = || tokens.iter().filter(|token| token.is_content());
    content().zip(content().skip(1)).map(|(a, b)| [a.id, b.id])
}
