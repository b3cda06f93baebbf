//! ken-rep: reasoning and explanation. Reads a document of facts and rules and writes conclusions with their proofs.

mod abductive;
mod analogical;
mod answer;
mod causal;
mod chain;
mod clause;
mod cli;
mod deductive;
mod document;
mod inductive;
mod moment;
mod numbers;
mod reading;
mod rules;
mod scan;
mod structure;
mod trend;
mod wordings;

use std::process::ExitCode;

fn main() -> ExitCode {
    ken_tool::main::<cli::Rep>()
}
