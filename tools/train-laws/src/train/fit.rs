//! Ridge regression for two linear models, which are weighted by how much a text copies from its source.

use ken_support::{FEATURES, Model, REGIME};

use super::data::Document;

const INPUTS: usize = FEATURES - REGIME;
/// The number of coefficients: the inputs and the constants of both linear models.
const COLUMNS: usize = 2 * (INPUTS + 1);

/// The penalty on squared weights. Inputs are scaled to a standard deviation of 1.
const PENALTY: f64 = 30.0;
/// The weight of a document that rewrites. It is greater than 1 because these documents have only a third as many
/// sentences as the others.
const REWRITTEN: f64 = 2.0;

pub(crate) fn fit(documents: &[&Document]) -> Model {
    let mut model = Model { regime: fit_regime(documents), ..Model::default() };
    let scale = Scale::of(documents);
    let mut normal = [[0.0; COLUMNS]; COLUMNS];
    let mut right = [0.0; COLUMNS];
    for document in documents {
        let features: Vec<_> = document.sentences.iter().map(|sentence| sentence.features).collect();
        let copying = model.copying(&features);
        let weight = if document.copies { 1.0 } else { REWRITTEN };
        for sentence in &document.sentences {
            let row = columns(&scale, &sentence.features, copying);
            for (at, value) in row.iter().enumerate() {
                right[at] += weight * value * sentence.supported;
                for (other, cell) in row.iter().zip(&mut normal[at]) {
                    *cell += weight * value * other;
                }
            }
        }
    }
    for (at, row) in normal.iter_mut().enumerate() {
        let constant = at % (INPUTS + 1) == INPUTS;
        row[at] += if constant { 1e-6 } else { PENALTY };
    }
    let weights = solve(normal, right);
    for (at, to) in [&mut model.copied, &mut model.rewritten].into_iter().enumerate() {
        let scaled = &weights[at * (INPUTS + 1)..(at + 1) * (INPUTS + 1)];
        to[INPUTS] = scaled[INPUTS];
        for input in 0..INPUTS {
            to[input] = scaled[input] / scale.deviation[input];
            to[INPUTS] -= to[input] * scale.mean[input];
        }
    }
    model
}

/// Mean and deviation of each input.
struct Scale {
    mean: [f64; INPUTS],
    deviation: [f64; INPUTS],
}

impl Scale {
    fn of(documents: &[&Document]) -> Scale {
        let sentences = || documents.iter().flat_map(|document| &document.sentences);
        let count = sentences().count().max(1) as f64;
        let mean: [f64; INPUTS] =
            std::array::from_fn(|at| sentences().map(|each| each.features[at]).sum::<f64>() / count);
        let deviation = std::array::from_fn(|at| {
            let squares: f64 = sentences().map(|each| (each.features[at] - mean[at]).powi(2)).sum();
            (squares / count).sqrt().max(1e-6)
        });
        Scale { mean, deviation }
    }
}

fn columns(scale: &Scale, features: &[f64; FEATURES], copying: f64) -> [f64; COLUMNS] {
    std::array::from_fn(|column| {
        let input = column % (INPUTS + 1);
        let share = if column <= INPUTS { copying } else { 1.0 - copying };
        let value = match input {
            INPUTS => 1.0,
            input => (features[input] - scale.mean[input]) / scale.deviation[input],
        };
        share * value
    })
}

/// A logistic regression of whether a text copies, by gradient descent.
fn fit_regime(documents: &[&Document]) -> [f64; REGIME + 1] {
    const STEPS: usize = 3000;
    const RATE: f64 = 20.0;
    const DECAY: f64 = 1e-5;
    let mean = |document: &Document, at: usize| {
        let values = document.sentences.iter().map(|each| each.features[INPUTS + at]);
        values.sum::<f64>() / document.sentences.len().max(1) as f64
    };
    let rows: Vec<([f64; REGIME + 1], f64)> = documents
        .iter()
        .map(|document| {
            let row = std::array::from_fn(|at| if at == REGIME { 1.0 } else { mean(document, at) });
            (row, f64::from(u8::from(document.copies)))
        })
        .collect();
    let mut weights = [0.0; REGIME + 1];
    for _ in 0..STEPS {
        let mut gradient = weights.map(|weight| DECAY * weight);
        gradient[REGIME] = 0.0;
        for (row, copies) in &rows {
            let sum: f64 = row.iter().zip(&weights).map(|(value, weight)| value * weight).sum();
            let error = 1.0 / (1.0 + (-sum).exp()) - copies;
            for (slope, value) in gradient.iter_mut().zip(row) {
                *slope += error * value / rows.len() as f64;
            }
        }
        for (weight, slope) in weights.iter_mut().zip(gradient) {
            *weight -= RATE * slope;
        }
    }
    weights
}

/// Solves a positive definite system by Gauss-Jordan elimination.
fn solve(mut matrix: [[f64; COLUMNS]; COLUMNS], mut right: [f64; COLUMNS]) -> [f64; COLUMNS] {
    for at in 0..COLUMNS {
        let pivot = matrix[at];
        let value = right[at] / pivot[at];
        right[at] = value;
        let normalised = pivot.map(|cell| cell / pivot[at]);
        matrix[at] = normalised;
        for other in (0..COLUMNS).filter(|other| *other != at) {
            let factor = matrix[other][at];
            right[other] -= factor * value;
            for (cell, from) in matrix[other].iter_mut().zip(normalised) {
                *cell -= factor * from;
            }
        }
    }
    right
}
