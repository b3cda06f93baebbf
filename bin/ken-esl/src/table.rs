//! The model that is compiled into the program: typed arrays that the compiler reads from `share/esl/table.bin`, so
//! that nothing has to be loaded when the program starts.

use crate::emotion::{FAMILIES, LABELS};
use crate::lexicon::{self, Entry, SLOTS, Slot};

/// The number of values in a row.
pub const WIDTH: usize = 64;
/// The number of rows. Features share rows by their hash.
pub const ROWS: usize = 27_136;
/// The size of a row in bytes. Each byte contains two values.
pub const ROW_BYTES: usize = WIDTH / 2;
/// The size of the filter in 64-bit words.
pub const FILTER: usize = 8192;
/// The number of inputs of the head. Each sum has two: one for its positive and one for its negative part.
pub const INPUTS: usize = 2 * WIDTH;
/// The number of scores of the head: labels, families, positive, negative, polarity.
pub const SCORES: usize = LABELS + FAMILIES + 3;
pub const POSITIVE: usize = LABELS + FAMILIES;
pub const NEGATIVE: usize = POSITIVE + 1;
pub const POLARITY: usize = POSITIVE + 2;
/// The number of thresholds: one for each label, then those of positive and negative.
pub const THRESHOLDS: usize = LABELS + 2;

/// The factor by which the sums are multiplied before they are rounded.
const SUM_SCALE: f32 = 256.0;
/// The maximum magnitude of an input. If the weights of the head are within ±2047, the sum over 128 inputs fits into 32
/// bits.
const SUM_LIMIT: f32 = 8191.0;
/// The maximum magnitude of a weight of the head.
pub const HEAD_LIMIT: f32 = 2047.0;

/// The table without the rows.
pub struct Parts {
    pub slots: [Slot; SLOTS],
    /// A Bloom filter of the features that occurred in enough training texts, with two bits for each feature.
    pub filter: [u64; FILTER],
    /// The value of one unit in each column of the rows.
    pub steps: [f32; WIDTH],
    pub hidden: [f32; WIDTH],
    pub head: [[i16; INPUTS]; SCORES],
    /// The value of one unit in the weights of each score.
    pub scales: [f32; SCORES],
    pub biases: [f32; SCORES],
    pub thresholds: [f32; THRESHOLDS],
}

/// The rows. The values -7 to 7 are stored as 1 to 15. Each row lies within one cache line.
#[repr(align(64))]
struct Rows([u8; ROWS * ROW_BYTES]);

#[derive(Clone, Copy)]
pub struct Table<'a> {
    pub parts: &'a Parts,
    pub rows: &'a [u8],
}

/// The sum of the rows of some features.
#[derive(Clone)]
pub struct Sum {
    pub values: [i32; WIDTH],
    pub count: u32,
}

impl Sum {
    pub const ZERO: Sum = Sum { values: [0; WIDTH], count: 0 };

    pub fn add(&mut self, part: &[i16; WIDTH], count: usize) {
        for (to, from) in self.values.iter_mut().zip(part) {
            *to += i32::from(*from);
        }
        self.count += count as u32;
    }
}

/// The inputs of the head: the 64 columns of a sum.
pub type Hidden = [f32; WIDTH];

impl Table<'_> {
    pub fn shipped() -> Table<'static> {
        const BYTES: &[u8; SIZE] = include_bytes!("../../../share/esl/table.bin");
        const { assert!(u64::from_le_bytes(bytes(BYTES, 0)) == u64::from_le_bytes(*MAGIC), "a file of another format") };
        static PARTS: Parts = Parts::read(BYTES);
        static ROWS: Rows = Rows(bytes(BYTES, AT_ROWS));
        Table { parts: &PARTS, rows: &ROWS.0 }
    }

    /// Returns the lexicon's entry for a key.
    pub fn entry(&self, key: u64) -> Option<Entry> {
        lexicon::find(&self.parts.slots, key)
    }

    /// Whether the feature occurred in training. This is also true of about one in fifty features that did not.
    #[inline]
    pub fn knows(&self, feature: u64) -> bool {
        let (word, mask) = filter_place(feature);
        self.parts.filter[word] & mask == mask
    }

    /// Adds the rows with these indices to a sum.
    pub fn add(&self, rows: &[u32], sum: &mut [i16; WIDTH]) {
        // A byte can hold the sum of seventeen values of at most 15.
        for rows in rows.chunks(16) {
            let mut low = [0u8; ROW_BYTES];
            let mut high = [0u8; ROW_BYTES];
            for row in rows {
                let at = *row as usize * ROW_BYTES;
                let Some(row) = self.rows.get(at..at + ROW_BYTES) else {
                    continue;
                };
                for ((low, high), byte) in low.iter_mut().zip(&mut high).zip(row) {
                    *low += byte & 15;
                    *high += byte >> 4;
                }
            }
            let offset = 8 * rows.len() as i16;
            let (sum_low, sum_high) = sum.split_at_mut(ROW_BYTES);
            for (sum, part) in [(sum_low, &low), (sum_high, &high)] {
                sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += i16::from(*part) - offset);
            }
        }
    }

    /// Converts a sum to the inputs of the head.
    pub fn hidden(&self, sum: &Sum) -> Hidden {
        let scale = 1.0 / (sum.count.max(1) as f32).sqrt();
        let mut hidden = self.parts.hidden;
        for ((hidden, value), step) in hidden.iter_mut().zip(&sum.values).zip(&self.parts.steps) {
            *hidden += *value as f32 * (step * scale);
        }
        hidden
    }

    /// Returns the scores of all outputs except the families, which are used only in training.
    pub fn scores(&self, hidden: &Hidden) -> [f32; SCORES] {
        let mut inputs = [0i16; INPUTS];
        let (above, below) = inputs.split_at_mut(WIDTH);
        for ((above, below), value) in above.iter_mut().zip(below).zip(hidden) {
            let value = (value * SUM_SCALE).clamp(-SUM_LIMIT, SUM_LIMIT) as i32 as i16;
            *above = value.max(0);
            *below = (-value).max(0);
        }
        let mut scores = [0.0; SCORES];
        let constants = self.parts.scales.iter().zip(&self.parts.biases);
        let outputs = scores.iter_mut().zip(&self.parts.head).zip(constants).enumerate();
        for (number, ((score, weights), (scale, bias))) in outputs {
            if (LABELS..POSITIVE).contains(&number) {
                continue;
            }
            *score = dot(weights, &inputs) as f32 * (scale / SUM_SCALE) + bias;
        }
        scores
    }

    /// Returns the derivative of one score with respect to each column, at this point, as integers relative to the
    /// largest.
    pub fn slope(&self, score: usize, hidden: &Hidden) -> [i16; WIDTH] {
        let Some(weights) = self.parts.head.get(score) else {
            return [0; WIDTH];
        };
        let slope: [f32; WIDTH] = std::array::from_fn(|number| {
            let (above, below) = (weights[number], -weights[number + WIDTH]);
            let weight = if hidden[number] > 0.0 { above } else { below };
            f32::from(weight) * self.parts.steps[number]
        });
        let largest = slope.iter().fold(1e-9f32, |largest, value| largest.max(value.abs()));
        slope.map(|value| (value * (HEAD_LIMIT / largest)) as i32 as i16)
    }

    /// Returns the minimum score with which a label is detected.
    pub fn threshold(&self, label: usize) -> f32 {
        self.parts.thresholds.get(label).copied().unwrap_or(0.0)
    }
}

/// Returns the dot product of two arrays whose length is a multiple of eight. The caller ensures that it fits into 32
/// bits. The eight independent sums let the compiler use vector instructions.
pub fn dot<const N: usize>(a: &[i16; N], b: &[i16; N]) -> i32 {
    const { assert!(N.is_multiple_of(8)) };
    let mut sums = [0; 8];
    for (a, b) in a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += i32::from(*a) * i32::from(*b);
        }
    }
    sums.iter().sum()
}

/// Returns the index of the filter word for a feature, and the two bits that the feature sets in it.
#[inline]
pub fn filter_place(feature: u64) -> (usize, u64) {
    let mask = 1u64 << (feature & 63) | 1u64 << (feature >> 6 & 63);
    ((feature >> 12) as usize % FILTER, mask)
}

/// Returns the index of the row of a feature.
#[inline]
pub fn row_of(feature: u64) -> u32 {
    (((feature >> 32) * ROWS as u64) >> 32) as u32
}

/// The format of the file: a magic number, the slots, the filter, the rows, then the other parts in their order, all
/// little-endian.
const MAGIC: &[u8; 8] = b"ken-esl1";
const AT_FILTER: usize = MAGIC.len() + SLOTS * Slot::BYTES;
const AT_ROWS: usize = AT_FILTER + FILTER * 8;
const AT_STEPS: usize = AT_ROWS + ROWS * ROW_BYTES;
const AT_HEAD: usize = AT_STEPS + 2 * WIDTH * 4;
const AT_SCALES: usize = AT_HEAD + SCORES * INPUTS * 2;
const AT_THRESHOLDS: usize = AT_SCALES + 2 * SCORES * 4;

/// The size of the file in bytes.
pub const SIZE: usize = AT_THRESHOLDS + THRESHOLDS * 4;

/// Returns some bytes of the file. This runs only at compile time, so a position behind the file is a compile error.
const fn bytes<const N: usize>(file: &[u8; SIZE], at: usize) -> [u8; N] {
    match file.split_at(at).1.first_chunk() {
        Some(bytes) => *bytes,
        None => [0; N],
    }
}

const fn read_floats<const N: usize>(file: &[u8; SIZE], at: usize) -> [f32; N] {
    let mut floats = [0.0; N];
    let mut number = 0;
    while number < N {
        floats[number] = f32::from_le_bytes(bytes(file, at + number * 4));
        number += 1;
    }
    floats
}

impl Parts {
    const fn read(file: &[u8; SIZE]) -> Parts {
        let mut parts = Parts {
            slots: [Slot::EMPTY; SLOTS],
            filter: [0; FILTER],
            steps: read_floats(file, AT_STEPS),
            hidden: read_floats(file, AT_STEPS + WIDTH * 4),
            head: [[0; INPUTS]; SCORES],
            scales: read_floats(file, AT_SCALES),
            biases: read_floats(file, AT_SCALES + SCORES * 4),
            thresholds: read_floats(file, AT_THRESHOLDS),
        };
        let mut number = 0;
        while number < SLOTS {
            parts.slots[number] = Slot::read(bytes(file, MAGIC.len() + number * Slot::BYTES));
            number += 1;
        }
        number = 0;
        while number < FILTER {
            parts.filter[number] = u64::from_le_bytes(bytes(file, AT_FILTER + number * 8));
            number += 1;
        }
        number = 0;
        while number < SCORES * INPUTS {
            let weight = i16::from_le_bytes(bytes(file, AT_HEAD + number * 2));
            parts.head[number / INPUTS][number % INPUTS] = weight;
            number += 1;
        }
        parts
    }
}

/// Returns the file that contains a table.
pub fn file(parts: &Parts, rows: &[u8]) -> Vec<u8> {
    let mut file = Vec::with_capacity(SIZE);
    file.extend_from_slice(MAGIC);
    parts.slots.iter().for_each(|slot| file.extend_from_slice(&slot.write()));
    parts.filter.iter().for_each(|word| file.extend_from_slice(&word.to_le_bytes()));
    file.extend_from_slice(rows);
    let floats = |floats: &[f32], file: &mut Vec<u8>| {
        floats.iter().for_each(|float| file.extend_from_slice(&float.to_le_bytes()));
    };
    floats(&parts.steps, &mut file);
    floats(&parts.hidden, &mut file);
    let weights = parts.head.iter().flatten();
    weights.for_each(|weight| file.extend_from_slice(&weight.to_le_bytes()));
    floats(&parts.scales, &mut file);
    floats(&parts.biases, &mut file);
    floats(&parts.thresholds, &mut file);
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_table_is_its_file() {
        let shipped = Table::shipped();
        let bytes = include_bytes!("../../../share/esl/table.bin");
        assert!(bytes.len() < 1_000_000);
        assert!(file(shipped.parts, shipped.rows) == bytes);
    }
}
