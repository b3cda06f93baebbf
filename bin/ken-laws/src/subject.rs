//! What each sentence is about, and whether an earlier one said the same.

use crate::judge::{Findings, View};
use crate::lexicon as lex;
use crate::rubric::index_of;
use crate::table::Table;
use crate::token::{Kind, Token};
use crate::word;

const REPETITION: usize = index_of("repetition");

/// What each sentence is about: the stems of its content words and its numbers, each once.
#[derive(Default)]
pub(crate) struct Subjects {
    /// For each stem its place in `words`, plus one.
    known: Table<u32>,
    words: Vec<Word>,
    /// The words of each sentence, as places in `words`.
    uses: Vec<u32>,
    said: Vec<Said>,
    /// For each of four minimal hashes, and for all stems together, the last sentence that had it, plus one.
    buckets: Table<u32>,
    /// Sentences that are in the buckets. The others wait until one comes that could be alike.
    sketched: usize,
}

/// A word of the text in all its forms.
#[derive(Clone, Copy)]
struct Word {
    stem: u64,
    /// The last sentence that has it.
    last: u32,
}

/// What a sentence says, as far as two are compared.
#[derive(Clone, Copy, Default)]
struct Said {
    negative: bool,
    /// Whether it is one that should not be said twice.
    counts: bool,
    /// The numbers, in any order.
    numbers: u64,
    /// All words, in their order.
    whole: u64,
    /// Where its words end among the uses.
    end: usize,
}

impl Said {
    fn add(&mut self, token: &Token) {
        self.whole = (self.whole.rotate_left(7) ^ token.hash).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.negative ^= token.is(lex::NEGATION);
        if token.kind == Kind::Number {
            self.numbers = self.numbers.wrapping_add(token.hash);
        }
    }
}

/// Of four, at least one minimal hash of two sets is equal with a probability of 0.99 when 7 of 10 elements are shared
/// (Broder 1997); whether the sentences are alike is then counted exactly.
const MINIMA: usize = 4;
/// Alike from this share of common words, in percent.
const ALIKE: usize = 70;
const FEWEST_STEMS: usize = 3;

/// A set of stems in a few numbers.
struct Sketch {
    minima: [u64; MINIMA],
    /// Of all of them, in any order.
    sum: u64,
}

impl Sketch {
    fn of(stems: impl Iterator<Item = u64>) -> Sketch {
        let mut sketch = Sketch {
            minima: [u64::MAX; MINIMA],
            sum: 0,
        };
        stems.for_each(|stem| sketch.add(stem));
        sketch
    }

    fn add(&mut self, stem: u64) {
        let mut hash = stem;
        for minimum in &mut self.minima {
            hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
            *minimum = hash.min(*minimum);
        }
        self.sum = self.sum.wrapping_add(hash);
    }

    /// The keys of the buckets that the set belongs to.
    fn keys(&self) -> [u64; MINIMA + 1] {
        let [first, second, third, fourth] = self.minima;
        let mut row = 0;
        [first, second, third, fourth, word::finish(self.sum)].map(|key| {
            row += 1;
            key ^ (row << 60) // the lowest bits choose the slot
        })
    }
}

impl Subjects {
    pub(crate) fn clear(&mut self) {
        self.known.clear();
        self.words.clear();
        self.uses.clear();
        self.said.clear();
        self.buckets.clear();
        self.sketched = 0;
    }

    /// The words of a sentence.
    pub(crate) fn of(&self, sentence: usize) -> &[u32] {
        let end = |sentence: usize| self.said.get(sentence).map_or(0, |said| said.end);
        let start = sentence.checked_sub(1).map_or(0, end);
        self.uses.get(start..end(sentence)).unwrap_or_default()
    }

    /// How many words the text has.
    pub(crate) fn count(&self) -> usize {
        self.words.len()
    }

    /// Takes the next sentence, and finds it when an earlier one said the same.
    pub(crate) fn add(&mut self, view: &View<'_>, findings: &mut Findings) {
        let (start, known) = (self.uses.len(), self.words.len());
        let mut said = Said::default();
        for token in view.tokens.iter().filter(|token| token.kind != Kind::Mark) {
            said.add(token);
            if token.is_content() || token.kind == Kind::Number {
                self.enter(token.stem, view.index as u32);
            }
        }
        let stems = self.uses.len() - start;
        // "Wait here." may have to be said twice; a statement need not.
        let states = view.claim.words > 2 && !view.claim.instruction && !view.claim.question;
        said.counts = stems >= if states { 1 } else { FEWEST_STEMS } && !view.sentence.heading;
        said.end = self.uses.len();
        self.said.push(said);
        let again = stems - (self.words.len() - known);
        if said.counts && again * 100 >= stems * ALIKE && self.was_said(view.index) {
            view.find_all(findings, REPETITION);
        }
    }

    /// Adds a word to the sentence, once.
    fn enter(&mut self, stem: u64, sentence: u32) {
        let Some(place) = self.known.entry(stem) else {
            return;
        };
        if let Some(word) = (*place as usize)
            .checked_sub(1)
            .and_then(|place| self.words.get_mut(place))
        {
            if std::mem::replace(&mut word.last, sentence) != sentence {
                self.uses.push(*place - 1);
            }
            return;
        }
        self.uses.push(self.words.len() as u32);
        self.words.push(Word { stem, last: sentence });
        *place = self.words.len() as u32;
    }

    /// Whether an earlier sentence is alike; enters all up to this one into the buckets.
    fn was_said(&mut self, sentence: usize) -> bool {
        for earlier in self.sketched..sentence {
            if self.said.get(earlier).is_some_and(|said| said.counts) {
                self.sketch(earlier);
            }
        }
        self.sketched = sentence + 1;
        let candidates = self.sketch(sentence);
        candidates
            .into_iter()
            .flatten()
            .any(|earlier| self.are_alike(earlier as usize, sentence))
    }

    /// Enters a sentence into its buckets; the last one in each so far.
    fn sketch(&mut self, sentence: usize) -> [Option<u32>; MINIMA + 1] {
        let stem = |&place: &u32| self.words.get(place as usize).map_or(0, |word| word.stem);
        let sketch = Sketch::of(self.of(sentence).iter().map(stem));
        sketch.keys().map(|key| {
            let last = self.buckets.entry(key)?;
            std::mem::replace(last, sentence as u32 + 1).checked_sub(1)
        })
    }

    /// The later of the two is the last that was taken.
    fn are_alike(&self, earlier: usize, sentence: usize) -> bool {
        let (left, right) = (self.of(earlier), self.of(sentence));
        let is_shared = |place: &&u32| {
            let word = self.words.get(**place as usize);
            word.is_some_and(|word| word.last == sentence as u32)
        };
        let shared = left.iter().filter(is_shared).count();
        let all = left.len() + right.len() - shared;
        let (Some(before), Some(now)) = (self.said.get(earlier), self.said.get(sentence)) else {
            return false;
        };
        let same_sense = before.negative == now.negative && before.numbers == now.numbers;
        same_sense && (before.whole == now.whole || shared >= FEWEST_STEMS && shared * 100 >= all * ALIKE)
    }
}
