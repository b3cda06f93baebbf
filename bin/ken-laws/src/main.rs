//! ken-laws: judges a text by five laws, with a published rubric and the evidence for every point. See ken-laws(1), ken-laws(7).

mod architecture;
mod claim;
mod cli;
mod context;
mod determinism;
mod energy;
mod input;
mod judge;
mod lexicon;
mod lists;
mod phrase;
mod report;
mod rubric;
mod scan;
mod score;
mod table;
mod truth;

use std::process::ExitCode;

fn main() -> ExitCode {
    ken_tool::main::<cli::Laws>()
}
