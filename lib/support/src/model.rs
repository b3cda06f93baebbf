//! The trained model. It consists of a linear model for texts that copy from their sources, another one for texts that
//! rewrite them, and weights that decide in which proportion the two are mixed for a text.
//!
//! Two models are needed because the signs of an error differ. In a text that is assembled from pieces of its source, a
//! place where two pieces meet is suspicious. In a text that rewrites its source, such places are normal, and new words
//! are suspicious instead. How much a text copies is measured over the whole text.

use std::fmt;
use std::sync::LazyLock;

use crate::features::{FEATURES, NAMES};

/// The number of features that show whether a text copies or rewrites. They are the last ones, and their means over the
/// text are used. The two linear models use the other features.
pub const REGIME: usize = 1;

/// The number of inputs of a linear model. It has one weight for each input, and a constant.
const INPUTS: usize = FEATURES - REGIME;
const WEIGHTS: usize = INPUTS + 1;

/// The width of the interval in which a straight line replaces the logistic curve, in units of the curve's argument.
const SLOPE: f64 = 6.0;

const SHIPPED: &str = include_str!("../../../share/support/model.txt");

static MODEL: LazyLock<Model> = LazyLock::new(|| Model::parse(SHIPPED).unwrap_or_default());

/// The weights in `model.txt`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Model {
    /// The weights of the means of the last features, followed by a constant. If the sum is above 0, the text copies
    /// more than it rewrites.
    pub regime: [f64; REGIME + 1],
    /// The weights of the inputs for a text that copies, followed by the constant.
    pub copied: [f64; WEIGHTS],
    /// The weights of the inputs for a text that rewrites, followed by the constant.
    pub rewritten: [f64; WEIGHTS],
}

/// An error in the text of a model: the number of the wrong line, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelError {
    pub line: usize,
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} of the model is not a name and its weights", self.line)
    }
}

impl std::error::Error for ModelError {}

impl Model {
    /// Returns the model that is compiled into the program.
    pub fn shipped() -> &'static Model {
        &MODEL
    }

    /// Returns a score from 0 to 1 for each sentence of one text. `sentences` contains the features of all its
    /// sentences.
    pub fn scores(&self, sentences: &[[f64; FEATURES]]) -> Vec<f64> {
        let copying = self.copying(sentences);
        let score = |features| {
            let [copied, rewritten] = [&self.copied, &self.rewritten].map(|weights| linear(weights, features));
            (copying * copied + (1.0 - copying) * rewritten).clamp(0.0, 1.0)
        };
        sentences.iter().map(score).collect()
    }

    /// Returns how much a text copies, from 0 to 1. The weights were fitted with the logistic curve. A straight line
    /// approximates it here, because `exp` does not give the same bits on every machine.
    pub fn copying(&self, sentences: &[[f64; FEATURES]]) -> f64 {
        let mut sum = self.regime.last().copied().unwrap_or(0.0);
        for (feature, weight) in self.regime.iter().take(REGIME).enumerate() {
            let values = sentences.iter().filter_map(|features| features.get(INPUTS + feature));
            sum += weight * values.sum::<f64>() / sentences.len().max(1) as f64;
        }
        (0.5 + sum / SLOPE).clamp(0.0, 1.0)
    }

    /// Reads the text that `Display` writes: one line for each input, and one for each weight of `regime`.
    pub fn parse(text: &str) -> Result<Model, ModelError> {
        let mut model = Model::default();
        let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
        for (line, text) in lines {
            model.read(text).ok_or(ModelError { line: line + 1 })?;
        }
        Ok(model)
    }

    fn read(&mut self, line: &str) -> Option<()> {
        let mut words = line.split_whitespace();
        let (kind, name) = (words.next()?, words.next()?);
        let numbers = words.map(|word| word.parse().ok()).collect::<Option<Vec<f64>>>()?;
        match (kind, numbers.as_slice()) {
            ("input", [copied, rewritten]) => {
                let at = position(&INPUT_NAMES, name)?;
                *self.copied.get_mut(at)? = *copied;
                *self.rewritten.get_mut(at)? = *rewritten;
            }
            ("regime", [weight]) => *self.regime.get_mut(position(&REGIME_NAMES, name)?)? = *weight,
            _ => return None,
        }
        Some(())
    }
}

fn position(names: &[&str], name: &str) -> Option<usize> {
    names.iter().position(|known| *known == name)
}

const CONSTANT: &str = "constant";

/// The names of the weights of a linear model and of the weights of `regime`, as in `model.txt`.
const INPUT_NAMES: [&str; WEIGHTS] = names(0);
const REGIME_NAMES: [&str; REGIME + 1] = names(INPUTS);

/// Returns the names of the features from `first` on, followed by that of the constant.
const fn names<const N: usize>(first: usize) -> [&'static str; N] {
    let (mut names, mut at) = ([CONSTANT; N], 0);
    while at + 1 < N {
        names[at] = NAMES[first + at];
        at += 1;
    }
    names
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((name, copied), rewritten) in INPUT_NAMES.iter().zip(self.copied).zip(self.rewritten) {
            writeln!(f, "input {name} {copied:.4} {rewritten:.4}")?;
        }
        for (name, weight) in REGIME_NAMES.iter().zip(self.regime) {
            writeln!(f, "regime {name} {weight:.4}")?;
        }
        Ok(())
    }
}

fn linear(weights: &[f64; WEIGHTS], features: &[f64; FEATURES]) -> f64 {
    let inputs = features.iter().take(INPUTS).chain(std::iter::once(&1.0));
    weights.iter().zip(inputs).map(|(weight, input)| weight * input).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_read_as_it_was_written() {
        let shipped = Model::shipped();
        assert!(shipped.copied.iter().any(|weight| *weight != 0.0));
        assert_eq!(Model::parse(&shipped.to_string()).as_ref(), Ok(shipped));
        assert_eq!(Model::parse("# a comment\ninput trigrams 1"), Err(ModelError { line: 2 }));
        assert_eq!(Model::parse("input nonsense 1 2"), Err(ModelError { line: 1 }));
    }
}
