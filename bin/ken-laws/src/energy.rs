//! Law 4: nothing said twice, no padding.

use crate::claim::{at, before};
use crate::judge::{Findings, View};
use crate::lexicon::{self as lex, hash, list};
use crate::rubric::index_of;
use crate::scan::{CAPITAL, Kind, QUOTED, Token};
use crate::table::Table;

const DOUBLED: usize = index_of("doubled_word");
const FILLERS: usize = index_of("filler");
const MARKERS: usize = index_of("marker_run");
const REPETITION: usize = index_of("repetition");

pub(crate) fn examine(view: &View<'_>, findings: &mut Findings) {
    if view.claim.doubled {
        for index in (1..view.tokens.len()).filter(|&index| is_doubled(view.tokens, index)) {
            view.find(findings, DOUBLED, index - 1, index);
        }
    }
    if view.claim.any(const { list("filler") }) {
        examine_fillers(view, findings);
    }
    if view.claim.markers >= MARKER_RUN {
        examine_markers(view, findings);
    }
}

fn is_doubled(tokens: &[Token], index: usize) -> bool {
    let (token, before) = (at(tokens, index), before(tokens, index));
    token.kind == Kind::Word
        && before.kind == Kind::Word
        && token.hash == before.hash
        && token.end - token.start > 1
        && !token.has(QUOTED | CAPITAL)
        && !matches!(token.hash, THAT | HAD)
}

const THAT: u64 = hash(b"that");
const HAD: u64 = hash(b"had");

/// Three fillers in a sentence, or two in a row.
fn examine_fillers(view: &View<'_>, findings: &mut Findings) {
    let is_filler = |index: usize| {
        let token = at(view.tokens, index);
        let rather_than = token.hash == RATHER && at(view.tokens, index + 1).hash == THAN;
        token.is(const { list("filler") }) && !token.has(QUOTED) && !rather_than
    };
    let mut fillers = (0..view.tokens.len()).filter(|&index| is_filler(index));
    let (Some(first), Some(second)) = (fillers.next(), fillers.next()) else {
        return;
    };
    let last = fillers.next();
    if last.is_some() || second == first + 1 {
        view.find(
            findings,
            FILLERS,
            first,
            fillers.next_back().or(last).unwrap_or(second),
        );
    }
}

const RATHER: u64 = hash(b"rather");
const THAN: u64 = hash(b"than");

/// Five or more words of approval with nothing but commas, and, or between them.
fn examine_markers(view: &View<'_>, findings: &mut Findings) {
    let (mut first, mut last, mut count) = (0, 0, 0);
    for (index, token) in view.tokens.iter().enumerate() {
        if token.is(const { list("marker") }) {
            first = if count == 0 { index } else { first };
            last = index;
            count += 1;
        } else if !(token.is_mark(',') || token.is(lex::CONJUNCTION)) {
            report_markers(view, count, first, last, findings);
            count = 0;
        }
    }
    report_markers(view, count, first, last, findings);
}

/// So many words of approval in a row are a row of markers.
const MARKER_RUN: u32 = 5;

fn report_markers(view: &View<'_>, count: u32, first: usize, last: usize, findings: &mut Findings) {
    if count >= MARKER_RUN {
        view.find(findings, MARKERS, first, last);
    }
}

/// What each sentence is about: the stems of its content words and its numbers, sorted, each once.
#[derive(Default)]
pub(crate) struct Subjects {
    stems: Vec<u64>,
    ends: Vec<usize>,
    /// For each of four minimal hashes, and for all stems together, the last sentence that had it, plus one.
    buckets: Table<u32>,
    said: Vec<Said>,
}

/// What two sentences must share beside their words to say the same.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Said {
    negative: bool,
    /// The numbers, in any order.
    numbers: u64,
    /// All words, in their order.
    whole: u64,
}

impl Said {
    fn add(&mut self, token: &Token, stems: &mut Vec<u64>) {
        if token.kind == Kind::Mark {
            return;
        }
        self.whole = (self.whole.rotate_left(7) ^ token.hash).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.negative ^= token.is(lex::NEGATION);
        if token.kind == Kind::Number {
            self.numbers = self.numbers.wrapping_add(token.hash);
        }
        if token.is_content() || token.kind == Kind::Number {
            stems.push(token.stem);
        }
    }
}

/// Of four, at least one minimal hash of two sets is equal with a probability of 0.99 when 7 of 10 elements are shared
/// (Broder 1997); whether the sentences are alike is then counted exactly.
const MINIMA: usize = 4;
/// Alike from this share of common words, in percent.
const ALIKE: usize = 70;
const FEWEST_STEMS: usize = 3;

impl Subjects {
    pub(crate) fn clear(&mut self) {
        self.stems.clear();
        self.ends.clear();
        self.said.clear();
        self.buckets.clear();
    }

    /// The stems of a sentence.
    pub(crate) fn of(&self, sentence: usize) -> &[u64] {
        let start = sentence
            .checked_sub(1)
            .map_or(0, |before| self.ends.get(before).copied().unwrap_or(0));
        self.ends
            .get(sentence)
            .and_then(|&end| self.stems.get(start..end))
            .unwrap_or_default()
    }

    /// Takes the next sentence, and finds it when an earlier one said the same.
    pub(crate) fn add(&mut self, view: &View<'_>, findings: &mut Findings) {
        let start = self.stems.len();
        let mut said = Said::default();
        for token in view.tokens {
            said.add(token, &mut self.stems);
        }
        let end = start + self.sort_from(start);
        self.stems.truncate(end);
        self.ends.push(end);
        self.said.push(said);
        // "Wait here." may have to be said twice; a statement need not.
        let states = view.claim.words > 2 && !view.claim.instruction && !view.claim.question;
        let fewest = if states { 1 } else { FEWEST_STEMS };
        if end - start >= fewest && !view.sentence.heading && self.was_said(view.index) {
            view.find_all(findings, REPETITION);
        }
    }

    /// Sorts what starts there and strikes doubles; how many are left.
    fn sort_from(&mut self, start: usize) -> usize {
        let stems = self.stems.get_mut(start..).unwrap_or_default();
        stems.sort_unstable();
        let mut kept = 0;
        for index in 0..stems.len() {
            let stem = stems.get(index).copied().unwrap_or(0);
            if kept == 0 || stems.get(kept - 1) != Some(&stem) {
                stems[kept] = stem; // kept <= index
                kept += 1;
            }
        }
        kept
    }

    /// Whether an earlier sentence is alike; enters this one for later ones.
    fn was_said(&mut self, sentence: usize) -> bool {
        let mut minima = [u64::MAX; MINIMA];
        for &stem in self.of(sentence) {
            let mut hash = stem;
            for minimum in &mut minima {
                hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
                *minimum = hash.min(*minimum);
            }
        }
        let same = self
            .of(sentence)
            .iter()
            .fold(0, |key, stem| lex::join(key, *stem));
        let mut candidates = [0; MINIMA + 1];
        for (row, (key, candidate)) in minima.into_iter().chain([same]).zip(&mut candidates).enumerate() {
            if let Some(last) = self.buckets.entry(lex::join(key, row as u64)) {
                *candidate = std::mem::replace(last, sentence as u32 + 1);
            }
        }
        let earlier = candidates
            .into_iter()
            .filter_map(|candidate| (candidate as usize).checked_sub(1));
        earlier
            .into_iter()
            .any(|earlier| self.are_alike(earlier, sentence))
    }

    fn are_alike(&self, earlier: usize, sentence: usize) -> bool {
        let (left, right) = (self.of(earlier), self.of(sentence));
        let shared = shared(left, right);
        let all = left.len() + right.len() - shared;
        let (Some(before), Some(now)) = (self.said.get(earlier), self.said.get(sentence)) else {
            return false;
        };
        let same_sense = before.negative == now.negative && before.numbers == now.numbers;
        same_sense && (before.whole == now.whole || shared >= FEWEST_STEMS && shared * 100 >= all * ALIKE)
    }
}

/// How many elements two sorted lists share.
fn shared(mut left: &[u64], mut right: &[u64]) -> usize {
    let mut count = 0;
    while let ([a, rest_a @ ..], [b, rest_b @ ..]) = (left, right) {
        if a <= b {
            left = rest_a;
        }
        if b <= a {
            right = rest_b;
        }
        count += usize::from(a == b);
    }
    count
}
