//! ken-laws: judges a text by five laws, with a published rubric and the evidence for every point. See ken-laws(1), ken-laws(7).

mod acronym;
mod architecture;
mod claim;
mod cli;
mod context;
mod contradiction;
mod determinism;
mod energy;
mod finding;
mod grammar;
mod hash;
mod input;
mod judge;
mod lexicon;
mod line;
mod map;
mod phrase;
mod quantity;
mod reason;
mod repetition;
mod report;
mod review;
mod rubric;
mod scan;
mod score;
mod sources;
mod token;
mod topic;
mod truth;

use std::process::ExitCode;

fn main() -> ExitCode {
    ken_tool::main::<cli::Laws>()
}
