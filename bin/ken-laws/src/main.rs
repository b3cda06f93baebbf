//! ken-laws: judges a text by five laws, with a published rubric and the evidence for every point. See ken-laws(1), ken-laws(7).

mod acronym;
mod architecture;
mod bits;
mod claim;
mod cli;
mod compact;
mod context;
mod determinism;
mod energy;
mod evidence;
mod grammar;
mod input;
mod json;
mod judge;
mod lexicon;
mod line;
mod lists;
mod number;
mod part;
mod phrase;
mod place;
mod report;
mod row;
mod rubric;
mod scan;
mod scanner;
mod scatter;
mod score;
mod stance;
mod subject;
mod table;
mod token;
mod truth;
mod value;
mod word;
mod words;

use std::process::ExitCode;

fn main() -> ExitCode {
    ken_tool::main::<cli::Laws>()
}
