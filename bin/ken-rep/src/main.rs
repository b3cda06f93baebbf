//! ken-rep: reasoning and explanation. One document of facts and rules in, conclusions with their proofs out.

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
