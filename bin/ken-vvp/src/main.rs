//! ken-vvp: validation and verification. A rule set in (or a result of ken-rep), all its problems out.

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
