//! Detects the emotions of a text. See ken-esl(1). The trainer of its model, in `tools/train`, shares the tokens, features
//! and rules.

mod answer;
pub mod cli;
pub mod emotion;
pub mod feature;
mod idiom;
pub mod lexicon;
pub mod math;
pub mod reading;
pub mod risk;
mod rows;
pub mod rules;
pub mod scope;
pub mod span;
pub mod table;
pub mod token;
pub mod window;
