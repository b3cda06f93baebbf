//! ken-vvp: validation and verification. Reads a rule set, or a result of ken-rep, and reports all its problems.

mod answer;
mod chain;
mod cli;
mod conflicts;
mod cycles;
mod issue;
mod reach;
mod redundancy;
mod rulebase;

use std::process::ExitCode;

fn main() -> ExitCode {
    ken_tool::main::<cli::Vvp>()
}
