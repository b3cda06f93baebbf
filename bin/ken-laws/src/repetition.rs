//! Which sentences share words, and which say again what an earlier one said.

use std::collections::HashMap;

use crate::finding::{Findings, View};
use crate::lexicon as lex;
use crate::rubric::REPETITION;
use crate::token::{Kind, Token};

/// What each sentence is about: the stems of its content words and its numbers.
#[derive(Default)]
pub(crate) struct Repetition {
    said: Vec<Said>,
    /// For each stem the latest sentences that have it, at most [`LATEST`].
    latest: HashMap<u64, Vec<usize>>,
}

/// What one sentence says, as far as two with the same words are compared.
struct Said {
    /// Each once, in order of their numbers.
    stems: Vec<u64>,
    /// All words, in the order of the sentence.
    whole: Vec<u64>,
    /// The numbers, in any order.
    numbers: u64,
    negative: bool,
}

/// Alike from this share of common words, in percent.
const ALIKE: usize = 70;
const FEWEST_STEMS: usize = 3;
/// Sentences that are looked up for one word, so that a text of many like sentences takes linear time.
const LATEST: usize = 8;
/// Words of a sentence by which earlier ones are looked up. If 7 of 10 words are shared, some of the first few are.
const LOOKED_UP: usize = 8;

impl Said {
    fn new(tokens: &[Token]) -> Said {
        let words = || tokens.iter().filter(|token| token.kind != Kind::Mark);
        let content = words().filter(|token| token.is_content() || token.kind == Kind::Number);
        let mut stems: Vec<u64> = content.map(|token| token.stem).collect();
        stems.sort_unstable();
        stems.dedup();
        let numbers = words().filter(|token| token.kind == Kind::Number);
        Said {
            stems,
            whole: words().map(|token| token.hash).collect(),
            numbers: numbers.fold(0, |sum, token| token.hash.wrapping_add(sum)),
            negative: words().filter(|token| token.is(lex::NEGATION)).count() % 2 == 1,
        }
    }

    fn is_like(&self, other: &Said) -> bool {
        let shared = self
            .stems
            .iter()
            .filter(|stem| other.stems.binary_search(stem).is_ok())
            .count();
        let all = self.stems.len() + other.stems.len() - shared;
        let same_sense = self.negative == other.negative && self.numbers == other.numbers;
        same_sense && (self.whole == other.whole || shared >= FEWEST_STEMS && shared * 100 >= all * ALIKE)
    }
}

impl Repetition {
    /// Takes the next sentence, and finds it when an earlier one said the same.
    pub(crate) fn add(&mut self, view: &View<'_>, findings: &mut Findings) {
        let said = Said::new(view.tokens);
        // "Wait here." may have to be said twice; a statement need not.
        let states = view.claim.words > 2 && !view.claim.instruction && !view.claim.question;
        let fewest = if states { 1 } else { FEWEST_STEMS };
        if said.stems.len() >= fewest && !view.sentence.heading {
            let earlier = said
                .stems
                .iter()
                .take(LOOKED_UP)
                .filter_map(|stem| self.latest.get(stem))
                .flatten();
            if earlier
                .filter_map(|index| self.said.get(*index))
                .any(|earlier| earlier.is_like(&said))
            {
                findings.add(view.whole(REPETITION));
            }
            for stem in &said.stems {
                let latest = self.latest.entry(*stem).or_default();
                if latest.len() == LATEST {
                    latest.remove(0);
                }
                latest.push(view.index);
            }
        }
        self.said.push(said);
    }

    /// How many of the sentences have each stem.
    pub(crate) fn counts(&self, counted: impl Fn(usize) -> bool) -> HashMap<u64, u32> {
        let mut counts = HashMap::new();
        for (_, said) in self.said.iter().enumerate().filter(|(index, _)| counted(*index)) {
            said.stems
                .iter()
                .for_each(|stem| *counts.entry(*stem).or_default() += 1);
        }
        counts
    }

    /// Whether the sentence has a word that two or more sentences have.
    pub(crate) fn shares(&self, sentence: usize, counts: &HashMap<u64, u32>) -> bool {
        let said = self.said.get(sentence);
        said.is_some_and(|said| {
            said.stems
                .iter()
                .any(|stem| counts.get(stem).is_some_and(|count| *count > 1))
        })
    }
}
