//! ken-esl: detects the emotions of a text. See ken-esl(1).

mod answer;
mod cli;
mod emotion;
mod feature;
mod idiom;
mod lexicon;
mod math;
mod reading;
mod risk;
mod rows;
mod rule;
mod rules;
mod scope;
mod span;
mod table;
mod token;
mod train;
mod window;

use std::process::ExitCode;

fn main() -> ExitCode {
    if cli::asks_for_training() { ken_tool::subcommand::<train::Train>() } else { ken_tool::main::<cli::Esl>() }
}
