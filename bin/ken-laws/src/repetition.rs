//! Finds sentences that share words, and sentences that repeat earlier ones.

use std::ops::Range;

use crate::finding::{Findings, View};
use crate::lexicon::{self as lex, join};
use crate::map::Map;
use crate::rubric::REPETITION;
use crate::token::{Kind, Token};

/// The content words of each sentence, by stem, and its numerals.
#[derive(Default)]
pub(crate) struct Repetition {
    /// The index of each stem in `stems`, assigned when it is first used.
    index_of: Map<usize>,
    stems: Vec<Stem>,
    /// The indexes of the stems of all sentences, one sentence after the other; within a sentence each stem occurs once.
    used: Vec<usize>,
    said: Vec<Said>,
}

#[derive(Default)]
struct Stem {
    /// The latest sentences that contain it. Only these are compared, so that a text of many similar sentences takes linear
    /// time.
    latest: [u32; LATEST],
    /// The number of sentences in `latest`.
    count: usize,
    /// The number of the last sentence that contains it, counted from 1.
    last: usize,
    /// The number of sentences that contain it, among those passed to [`Repetition::count`].
    shared: usize,
}

/// The properties of a sentence that are compared.
struct Said {
    /// The range of its stems in `used`.
    stems: Range<usize>,
    /// The hash of all words in order.
    words: u64,
    /// The hash of its numerals, in any order.
    numbers: u64,
    negative: bool,
}

/// Minimum share of common words, in percent, for two sentences to be alike.
const ALIKE: usize = 70;
const MIN_STEMS: usize = 3;
/// The number of sentences that are stored for each word.
const LATEST: usize = 8;
/// The number of words, from the first on, by which earlier sentences are looked up. If 7 of 10 words are shared, some of the
/// first ones are among them, unless the two sentences have more than 26 different words: a repetition can be missed then.
const LOOKED_UP: usize = 8;

impl Repetition {
    /// Discards the data of the previous text, and reserves memory for a text of this many words.
    pub(crate) fn clear(&mut self, words: usize) {
        self.index_of.clear();
        self.stems.clear();
        self.used.clear();
        self.said.clear();
        self.index_of.reserve(words / 2);
        self.stems.reserve(words / 2);
        self.used.reserve(words / 2);
    }

    /// Adds the next sentence, and a finding if it repeats an earlier one.
    pub(crate) fn add(&mut self, view: &View<'_>, findings: &mut Findings) {
        let said = self.read(view.tokens);
        // An instruction such as "Wait here." can need repetition, but a statement does not.
        let states = view.claim.words > 2 && !view.claim.instruction && !view.claim.question;
        let fewest = if states { 1 } else { MIN_STEMS };
        if said.stems.len() >= fewest && !view.sentence.heading {
            if self.is_repeated(&said) {
                findings.add(view.whole(REPETITION));
            }
            for index in self.used.get(said.stems.clone()).unwrap_or_default() {
                if let Some(stem) = self.stems.get_mut(*index) {
                    stem.latest[stem.count % LATEST] = view.index as u32; // a text has at most 8 MiB
                    stem.count += 1;
                }
            }
        }
        self.said.push(said);
    }

    fn read(&mut self, tokens: &[Token]) -> Said {
        let (first, sentence) = (self.used.len(), self.said.len() + 1);
        let mut said = Said { stems: first..first, words: 0, numbers: 0, negative: false };
        for token in tokens.iter().filter(|token| token.kind != Kind::Mark) {
            said.words = join(said.words, token.hash);
            said.negative ^= token.is(lex::NEGATION);
            if token.kind == Kind::Number {
                said.numbers = said.numbers.wrapping_add(token.hash);
            }
            if token.is_content() || token.kind == Kind::Number {
                self.take(token.stem, sentence);
            }
        }
        said.stems.end = self.used.len();
        said
    }

    /// Adds a stem to the current sentence, once.
    fn take(&mut self, stem: u64, sentence: usize) {
        let index = *self.index_of.entry(stem).or_insert(self.stems.len());
        if index == self.stems.len() {
            self.stems.push(Stem::default());
        }
        if let Some(stem) = self.stems.get_mut(index)
            && stem.last != sentence
        {
            stem.last = sentence;
            self.used.push(index);
        }
    }

    /// Whether an earlier sentence is like the current one.
    fn is_repeated(&self, said: &Said) -> bool {
        let indexes = self.used.get(said.stems.clone()).unwrap_or_default().iter();
        let stems = indexes.take(LOOKED_UP).filter_map(|index| self.stems.get(*index));
        let mut earlier = stems.flat_map(|stem| stem.latest.iter().take(stem.count));
        earlier.any(|index| self.said.get(*index as usize).is_some_and(|earlier| self.is_like(earlier, said)))
    }

    /// Whether the sentence `now` repeats the earlier one.
    fn is_like(&self, earlier: &Said, now: &Said) -> bool {
        let (fewer, more) = (earlier.stems.len().min(now.stems.len()), earlier.stems.len().max(now.stems.len()));
        if earlier.negative != now.negative || earlier.numbers != now.numbers || fewer * 100 < more * ALIKE {
            return false;
        }
        let is_shared = |index: &&usize| {
            let stem = self.stems.get(**index);
            stem.is_some_and(|stem| stem.last == self.said.len() + 1)
        };
        let stems = self.used.get(earlier.stems.clone()).unwrap_or_default();
        let shared = stems.iter().filter(is_shared).count();
        earlier.words == now.words || shared >= MIN_STEMS && shared * 100 >= (fewer + more - shared) * ALIKE
    }

    /// Includes a sentence in what [`Repetition::shares`] compares.
    pub(crate) fn count(&mut self, sentence: usize) {
        let stems = self.said.get(sentence).map_or(0..0, |said| said.stems.clone());
        for index in self.used.get(stems).unwrap_or_default() {
            if let Some(stem) = self.stems.get_mut(*index) {
                stem.shared += 1;
            }
        }
    }

    /// Whether a sentence that was passed to [`Repetition::count`] shares a word with another one of them.
    pub(crate) fn shares(&self, sentence: usize) -> bool {
        let stems = self.said.get(sentence).map_or(0..0, |said| said.stems.clone());
        let mut indexes = self.used.get(stems).unwrap_or_default().iter();
        indexes.any(|index| self.stems.get(*index).is_some_and(|stem| stem.shared > 1))
    }
}
