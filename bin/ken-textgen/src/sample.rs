//! Sampling: chooses a token from the logits.

use ken_types::Error;

use crate::simd::{self, Isa};

/// How tokens are chosen. Penalties also apply to greedy choices; the other settings apply only to sampling.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    pub greedy: bool,
    /// The logits are divided by it.
    pub temperature: f32,
    /// How many of the most likely tokens are kept; 0 keeps all.
    pub top_k: usize,
    /// Of these, the most likely tokens are kept whose probabilities add up to this share.
    pub top_p: f32,
    /// The logit of a token that has occurred is divided by it, or multiplied if it is negative (Keskar et al. 2019).
    pub repetition_penalty: f32,
    /// No sequence of this many tokens may occur twice; 0 allows it.
    pub no_repeat_ngram: usize,
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling {
            greedy: false,
            temperature: 1.0,
            top_k: 50,
            top_p: 1.0,
            repetition_penalty: 1.0,
            no_repeat_ngram: 0,
            seed: 0,
        }
    }
}

impl Sampling {
    /// Returns an error for values with which no token could be chosen; `name` maps a field to the caller's name for it.
    pub fn check(&self, name: impl Fn(&str) -> String) -> Result<(), Error> {
        let fault = |field: &str, fault: String| Err(Error::invalid(name(field), format!("{} {fault}", name(field))));
        if !(self.temperature.is_finite() && self.temperature > 0.0) {
            let error = fault("temperature", format!("is {}; it must be above 0", self.temperature));
            return error
                .map_err(|error| error.hint(format!("to always take the most likely token, use {}", name("greedy"))));
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return fault("top_p", format!("is {}; it must be above 0 and at most 1", self.top_p));
        }
        if !(self.repetition_penalty.is_finite() && self.repetition_penalty > 0.0) {
            return fault("repetition_penalty", format!("is {}; it must be above 0", self.repetition_penalty));
        }
        Ok(())
    }
}

/// Chooses the tokens of one text.
pub struct Sampler {
    sampling: Sampling,
    isa: Isa,
    random: Random,
    /// The largest logit of each block, for the current token.
    maxima: Vec<f32>,
}

#[derive(Clone, Copy)]
struct Candidate {
    token: u32,
    weight: f32,
}

impl Sampler {
    pub fn new(sampling: Sampling, isa: Isa) -> Sampler {
        Sampler { sampling, isa, random: Random(sampling.seed), maxima: Vec::new() }
    }

    /// Chooses the next token after `history`, which is the prompt and the generated tokens.
    pub fn pick(&mut self, logits: &mut [f32], history: &[u32]) -> u32 {
        penalise(logits, history, self.sampling.repetition_penalty);
        forbid_repeats(logits, history, self.sampling.no_repeat_ngram);
        simd::maxima(self.isa, logits, &mut self.maxima);
        if self.sampling.greedy { argmax(logits, &self.maxima) } else { self.draw(logits) }
    }

    fn draw(&mut self, logits: &[f32]) -> u32 {
        let candidates = self.candidates(logits);
        let total: f64 = candidates.iter().map(|candidate| f64::from(candidate.weight)).sum();
        let mut left = self.random.unit() * total;
        for candidate in &candidates {
            left -= f64::from(candidate.weight);
            if left < 0.0 {
                return candidate.token;
            }
        }
        candidates.first().map_or(0, |candidate| candidate.token)
    }

    /// The tokens that top-k and top-p keep, with weights in proportion to their probabilities, most likely first. If neither is
    /// used, the order is that of the vocabulary.
    fn candidates(&self, logits: &[f32]) -> Vec<Candidate> {
        let (k, p) = (self.sampling.top_k, self.sampling.top_p);
        let min = self.kth_largest_bound(k);
        let tokens = (0u32..).zip(logits);
        let tokens = tokens.filter(|(_, logit)| **logit >= min && logit.is_finite());
        let mut list: Vec<_> = tokens.map(|(token, logit)| Candidate { token, weight: *logit }).collect();
        let likelier = |a: &Candidate, b: &Candidate| b.weight.total_cmp(&a.weight).then(a.token.cmp(&b.token));
        if k > 0 && k < list.len() {
            list.select_nth_unstable_by(k - 1, likelier);
            list.truncate(k);
        }
        if k > 0 || p < 1.0 {
            list.sort_unstable_by(likelier);
        }
        self.weigh(&mut list);
        if p < 1.0 {
            list.truncate(nucleus(&list, p));
        }
        list
    }

    /// A lower bound of the k-th largest logit: the k-th largest of the blocks' maxima, which are logits themselves. Few other
    /// logits reach it, so few have to be sorted.
    fn kth_largest_bound(&self, k: usize) -> f32 {
        if k == 0 || k >= self.maxima.len() {
            return f32::NEG_INFINITY;
        }
        let mut maxima = self.maxima.clone();
        *maxima.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a)).1
    }

    /// Sets the weights to exp((logit - largest) / temperature).
    fn weigh(&self, list: &mut [Candidate]) {
        let largest = list.iter().map(|candidate| candidate.weight).fold(f32::NEG_INFINITY, f32::max);
        let scaled = list.iter().map(|candidate| (candidate.weight - largest) / self.sampling.temperature);
        let mut weights: Vec<f32> = scaled.collect();
        simd::exp_from(self.isa, &mut weights, 0.0);
        list.iter_mut().zip(weights).for_each(|(candidate, weight)| candidate.weight = weight);
    }
}

/// How many candidates, from the first on, are needed to reach the share `p`.
fn nucleus(list: &[Candidate], p: f32) -> usize {
    let total: f64 = list.iter().map(|candidate| f64::from(candidate.weight)).sum();
    let mut sum = 0.0;
    let reached = list.iter().position(|candidate| {
        sum += f64::from(candidate.weight);
        sum >= f64::from(p) * total
    });
    reached.map_or(list.len(), |last| last + 1)
}

/// The first token with the largest logit, which is in the first block with that maximum.
fn argmax(logits: &[f32], maxima: &[f32]) -> u32 {
    let largest = maxima.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let block = maxima.iter().position(|maximum| *maximum == largest);
    let start = block.unwrap_or_default() * simd::BLOCK;
    let mut rest = logits.iter().skip(start);
    let place = rest.position(|logit| *logit == largest);
    (start + place.unwrap_or_default()) as u32
}

fn penalise(logits: &mut [f32], history: &[u32], penalty: f32) {
    if penalty == 1.0 {
        return;
    }
    let mut seen = history.to_vec();
    seen.sort_unstable();
    seen.dedup();
    for token in seen {
        if let Some(logit) = logits.get_mut(token as usize) {
            *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
        }
    }
}

/// Excludes every token that would complete a sequence of `length` tokens that the history contains. If that would exclude all
/// tokens, none is excluded.
fn forbid_repeats(logits: &mut [f32], history: &[u32], length: usize) {
    if length == 0 || history.len() < length {
        return;
    }
    let start = &history[history.len() + 1 - length..];
    let mut barred: Vec<u32> = history
        .windows(length)
        .filter_map(|window| window.split_last().filter(|(_, before)| *before == start).map(|(last, _)| *last))
        .collect();
    barred.sort_unstable();
    barred.dedup();
    if barred.len() >= logits.len() {
        return;
    }
    for token in barred {
        if let Some(logit) = logits.get_mut(token as usize) {
            *logit = f32::NEG_INFINITY;
        }
    }
}

/// SplitMix64 (Steele, Lea and Flood 2014), which gives the same numbers for a seed on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in [0, 1), in steps of 2^-53.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(sampling: Sampling) -> Sampler {
        Sampler::new(sampling, Isa::detect())
    }

    fn shares(sampling: Sampling, logits: &[f32]) -> Vec<(u32, f32)> {
        let mut sampler = sampler(sampling);
        simd::maxima(sampler.isa, logits, &mut sampler.maxima);
        let list = sampler.candidates(logits);
        let total: f32 = list.iter().map(|candidate| candidate.weight).sum();
        list.iter().map(|candidate| (candidate.token, candidate.weight / total)).collect()
    }

    fn close(left: &[(u32, f32)], right: &[(u32, f32)]) {
        assert_eq!(left.len(), right.len(), "{left:?} {right:?}");
        for (left, right) in left.iter().zip(right) {
            assert!(left.0 == right.0 && (left.1 - right.1).abs() < 1e-6, "{left:?} {right:?}");
        }
    }

    /// Logits whose probabilities are 0.1, 0.4, 0.3, 0.2.
    fn logits() -> Vec<f32> {
        [0.1f32, 0.4, 0.3, 0.2].map(f32::ln).to_vec()
    }

    const ALL: Sampling = Sampling {
        greedy: false,
        temperature: 1.0,
        top_k: 0,
        top_p: 1.0,
        repetition_penalty: 1.0,
        no_repeat_ngram: 0,
        seed: 0,
    };

    #[test]
    fn temperature_one_keeps_the_probabilities_and_a_half_squares_them() {
        close(&shares(ALL, &logits()), &[(0, 0.1), (1, 0.4), (2, 0.3), (3, 0.2)]);
        let cold = Sampling { temperature: 0.5, ..ALL };
        // 0.01, 0.16, 0.09 and 0.04 of 0.30.
        let squares = [(0, 1.0 / 30.0), (1, 16.0 / 30.0), (2, 9.0 / 30.0), (3, 4.0 / 30.0)];
        close(&shares(cold, &logits()), &squares);
    }

    #[test]
    fn top_k_keeps_the_k_likeliest() {
        close(&shares(Sampling { top_k: 2, ..ALL }, &logits()), &[(1, 4.0 / 7.0), (2, 3.0 / 7.0)]);
        close(&shares(Sampling { top_k: 9, ..ALL }, &logits()), &[(1, 0.4), (2, 0.3), (3, 0.2), (0, 0.1)]);
    }

    #[test]
    fn among_many_the_k_likeliest_are_found_without_sorting_all() {
        let mut random = Random(7);
        let logits: Vec<f32> = (0..5_000).map(|_| (random.unit() * 300.0).floor() as f32).collect();
        let mut sorted: Vec<u32> = (0..5_000).collect();
        sorted.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b)));
        for k in [1, 2, 50, 78, 79, 80, 400] {
            let list = shares(Sampling { top_k: k, ..ALL }, &logits);
            let tokens: Vec<u32> = list.iter().map(|(token, _)| *token).collect();
            assert_eq!(tokens, sorted[..k], "{k}");
        }
        let mut greedy = sampler(Sampling { greedy: true, ..ALL });
        assert_eq!(greedy.pick(&mut logits.clone(), &[]), sorted[0]);
        assert_eq!(greedy.pick(&mut vec![f32::NEG_INFINITY; 70], &[]), 0);
    }

    #[test]
    fn top_p_keeps_the_fewest_that_reach_the_share() {
        let nucleus = |p| shares(Sampling { top_p: p, ..ALL }, &logits());
        close(&nucleus(0.65), &[(1, 4.0 / 7.0), (2, 3.0 / 7.0)]);
        close(&nucleus(0.75), &[(1, 4.0 / 9.0), (2, 3.0 / 9.0), (3, 2.0 / 9.0)]);
        close(&nucleus(0.01), &[(1, 1.0)]);
        // After top-k, the shares refer to the tokens that top-k has kept: 4/7 is below 0.6.
        close(&shares(Sampling { top_k: 2, top_p: 0.6, ..ALL }, &logits()), &[(1, 4.0 / 7.0), (2, 3.0 / 7.0)]);
        close(&shares(Sampling { top_k: 2, top_p: 0.5, ..ALL }, &logits()), &[(1, 1.0)]);
    }

    #[test]
    fn the_repetition_penalty_divides_positive_logits_and_multiplies_negative_ones_once() {
        let mut logits = vec![2.0, -2.0, 3.0, 0.0];
        penalise(&mut logits, &[0, 1, 0, 3], 2.0);
        assert_eq!(logits, [1.0, -4.0, 3.0, 0.0]);
        // The largest logit changes from 2.0 at token 0 to 1.5 at token 2.
        let mut greedy = sampler(Sampling { greedy: true, repetition_penalty: 2.0, ..ALL });
        assert_eq!(greedy.pick(&mut [2.0, -2.0, 1.5, 0.0], &[0]), 2);
    }

    #[test]
    fn no_sequence_of_n_tokens_occurs_twice() {
        let barred = |history: &[u32], length| {
            let mut logits = vec![0.0; 5];
            forbid_repeats(&mut logits, history, length);
            (0u32..).zip(logits).filter(|(_, logit)| !logit.is_finite()).map(|(id, _)| id).collect::<Vec<_>>()
        };
        assert_eq!(barred(&[1, 2, 3, 1, 2], 3), [3]);
        assert_eq!(barred(&[1, 2, 3, 1, 4, 1], 2), [2, 4]);
        assert_eq!(barred(&[1, 2, 1], 1), [1, 2]);
        assert_eq!(barred(&[1, 2], 3), Vec::<u32>::new());
        assert_eq!(barred(&[0, 1, 2, 3, 4], 1), Vec::<u32>::new());
    }

    #[test]
    fn a_seed_gives_the_published_numbers_and_draws_in_proportion() {
        // The first outputs for the seed 1234567, as the algorithm's authors publish them.
        let mut random = Random(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
        let mut sampler = sampler(Sampling { seed: 5, ..ALL });
        let mut counts = [0f64; 4];
        for _ in 0..40_000 {
            counts[sampler.pick(&mut logits(), &[]) as usize] += 1.0;
        }
        for (count, share) in counts.iter().zip([0.1, 0.4, 0.3, 0.2]) {
            assert!((count / 40_000.0 - share).abs() < 0.01, "{counts:?}");
        }
    }

    #[test]
    fn invalid_values_are_named() {
        let name = |field: &str| format!("--{}", field.replace('_', "-"));
        for (bad, at) in [
            (Sampling { temperature: 0.0, ..ALL }, "--temperature"),
            (Sampling { temperature: -1.0, ..ALL }, "--temperature"),
            (Sampling { temperature: f32::NAN, ..ALL }, "--temperature"),
            (Sampling { top_p: 0.0, ..ALL }, "--top-p"),
            (Sampling { top_p: 1.1, ..ALL }, "--top-p"),
            (Sampling { repetition_penalty: 0.0, ..ALL }, "--repetition-penalty"),
        ] {
            assert_eq!(bad.check(name).unwrap_err().at.as_deref(), Some(at));
        }
        assert!(ALL.check(name).is_ok());
    }
}
