//! What each sentence is about, and whether an earlier one said the same.

use std::ops::Range;

use crate::judge::{Findings, View};
use crate::lexicon as lex;
use crate::rubric::index_of;
use crate::scan::Scan;
use crate::table::Table;
use crate::token::{Kind, Token, at};
use crate::word;
use crate::words::Words;

const REPETITION: usize = index_of("repetition");

/// What each sentence is about: the stems of its content words and its numbers, each once.
#[derive(Default)]
pub(crate) struct Subjects {
    words: Words,
    said: Vec<Said>,
    /// For each of four minimal hashes, and for all stems together, the last sentence that had it, plus one.
    buckets: Table<u32>,
    /// Sentences that are in the buckets. The others wait until one comes that could be alike.
    sketched: usize,
}

/// A sentence whose words are taken.
#[derive(Clone, Copy)]
struct Said {
    /// Whether it is one that should not be said twice.
    counts: bool,
    /// Where its words end among the uses.
    end: usize,
}

/// What a sentence says, as far as two with the same words are compared.
#[derive(Default)]
struct Sense {
    negative: bool,
    /// The numbers, in any order.
    numbers: u64,
    /// All words, in their order.
    whole: u64,
}

impl Sense {
    fn of(tokens: &[Token]) -> Sense {
        let mut sense = Sense::default();
        let words = tokens.iter().filter(|token| token.kind != Kind::Mark);
        words.for_each(|token| sense.add(token));
        sense
    }

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
        self.words.clear();
        self.said.clear();
        self.buckets.clear();
        self.sketched = 0;
    }

    /// The words of a sentence.
    fn of(&self, sentence: usize) -> Range<usize> {
        let end = |sentence: usize| self.said.get(sentence).map_or(0, |said| said.end);
        sentence.checked_sub(1).map_or(0, end)..end(sentence)
    }

    /// Counts the sentences for each of their words.
    pub(crate) fn count(&mut self, sentences: Range<usize>) {
        if let Some(last) = sentences.clone().next_back() {
            let uses = self.of(sentences.start).start..self.of(last).end;
            self.words.count(uses);
        }
    }

    /// Whether a word of the sentence was counted for two or more.
    pub(crate) fn shares(&self, sentence: usize) -> bool {
        self.words.any_counted_twice(self.of(sentence))
    }

    /// Takes the next sentence, and finds it when an earlier one said the same.
    pub(crate) fn add(&mut self, view: &View<'_>, scan: &Scan, findings: &mut Findings) {
        let (start, mut again) = (self.words.uses(), 0);
        self.words.next_sentence();
        for index in view.rows.each(|row| row.content) {
            again += usize::from(self.words.add(at(view.tokens, index).stem));
        }
        let stems = self.words.uses() - start;
        // "Wait here." may have to be said twice; a statement need not.
        let states = view.claim.words > 2 && !view.claim.instruction && !view.claim.question;
        let said = Said {
            counts: stems >= if states { 1 } else { FEWEST_STEMS } && !view.sentence.heading,
            end: self.words.uses(),
        };
        self.said.push(said);
        if said.counts && again * 100 >= stems * ALIKE && self.was_said(view.index, scan) {
            view.find_all(findings, REPETITION);
        }
    }

    /// Whether an earlier sentence is alike; enters all up to this one into the buckets.
    fn was_said(&mut self, sentence: usize, scan: &Scan) -> bool {
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
            .any(|earlier| self.are_alike(earlier as usize, sentence, scan))
    }

    /// Enters a sentence into its buckets; the last one in each so far.
    fn sketch(&mut self, sentence: usize) -> [Option<u32>; MINIMA + 1] {
        let sketch = Sketch::of(self.words.stems(self.of(sentence)));
        sketch.keys().map(|key| {
            let last = self.buckets.entry(key)?;
            std::mem::replace(last, sentence as u32 + 1).checked_sub(1)
        })
    }

    /// The later of the two is the last that was taken.
    fn are_alike(&self, earlier: usize, sentence: usize, scan: &Scan) -> bool {
        let (left, right) = (self.of(earlier), self.of(sentence));
        let both = left.len() + right.len();
        let shared = self.words.are_here(left);
        let all = both - shared;
        let sense = |index: usize| {
            let sentence = scan.sentences.get(index)?;
            Some(Sense::of(scan.tokens_of(sentence)))
        };
        let (Some(before), Some(now)) = (sense(earlier), sense(sentence)) else {
            return false;
        };
        let same_sense = before.negative == now.negative && before.numbers == now.numbers;
        same_sense && (before.whole == now.whole || shared >= FEWEST_STEMS && shared * 100 >= all * ALIKE)
    }
}
