//! ken-train-esl: trains the models that ken-esl contains. `share/esl/README.md` describes the training texts.

mod train;

use std::process::ExitCode;

fn main() -> ExitCode {
    ken_tool::main::<train::Train>()
}
