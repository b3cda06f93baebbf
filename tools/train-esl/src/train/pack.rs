//! Converts a trained network to the parts of a table.

use super::network::Network;
use ken_esl::lexicon::Slot;
use ken_esl::table::{
    FILTER, HEAD_LIMIT, INPUTS, Parts, ROW_BYTES, ROWS, SCORES, THRESHOLDS, Table, WIDTH, file, filter_place,
};

/// The values of a row are -7 to 7, stored as 1 to 15.
const STEPS: f32 = 7.0;

/// A table that is being built.
pub(crate) struct Draft {
    pub(crate) parts: Box<Parts>,
    rows: Vec<u8>,
}

impl Draft {
    pub(crate) fn new() -> Draft {
        Draft {
            parts: Box::new(Parts {
                slots: [Slot::EMPTY; ken_esl::lexicon::SLOTS],
                filter: [0; FILTER],
                steps: [0.0; WIDTH],
                hidden: [0.0; WIDTH],
                head: [[0; INPUTS]; SCORES],
                scales: [0.0; SCORES],
                biases: [0.0; SCORES],
                thresholds: [0.0; THRESHOLDS],
            }),
            rows: vec![0; ROWS * ROW_BYTES],
        }
    }

    pub(crate) fn table(&self) -> Table<'_> {
        Table { parts: &self.parts, rows: &self.rows }
    }

    pub(crate) fn file(&self) -> Vec<u8> {
        file(&self.parts, &self.rows)
    }

    pub(crate) fn put_feature(&mut self, feature: u64) {
        let (word, mask) = filter_place(feature);
        self.parts.filter[word] |= mask;
    }

    pub(crate) fn put_network(&mut self, network: &Network) {
        for dimension in 0..WIDTH {
            let step = best_step(network, dimension);
            self.parts.steps[dimension] = step;
            self.parts.hidden[dimension] = network.hidden.get(dimension).copied().unwrap_or(0.0);
            for row in 0..ROWS {
                self.put_number(row, dimension, (network.number(row, dimension) / step).round());
            }
        }
        for score in 0..SCORES {
            self.put_score(network, score);
        }
    }

    fn put_number(&mut self, row: usize, dimension: usize, number: f32) {
        let code = (number.clamp(-STEPS, STEPS) + STEPS + 1.0) as u8;
        if let Some(byte) = self.rows.get_mut(row * ROW_BYTES + dimension % ROW_BYTES) {
            *byte |= if dimension < ROW_BYTES { code } else { code << 4 };
        }
    }

    fn put_score(&mut self, network: &Network, score: usize) {
        let weight = |input: usize| network.weight(input, score);
        let largest = (0..INPUTS).map(|input| weight(input).abs()).fold(1e-6, f32::max);
        let scale = largest / HEAD_LIMIT;
        for input in 0..INPUTS {
            self.parts.head[score][input] = (weight(input) / scale).round() as i16;
        }
        self.parts.scales[score] = scale;
        self.parts.biases[score] = network.biases.get(score).copied().unwrap_or(0.0);
    }
}

/// Returns the step with the least squared error in one dimension.
fn best_step(network: &Network, dimension: usize) -> f32 {
    let numbers = || (0..ROWS).map(|row| network.number(row, dimension));
    let deviation = (numbers().map(|number| number * number).sum::<f32>() / ROWS as f32).sqrt();
    let error = |step: f32| -> f32 {
        let one = |number: f32| number - (number / step).round().clamp(-STEPS, STEPS) * step;
        numbers().map(|number| one(number) * one(number)).sum()
    };
    let steps = (2..30).map(|part| (deviation * part as f32 * 0.05).max(1e-6));
    let rated = steps.map(|step| (error(step), step));
    rated.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(1.0, |best| best.1)
}
