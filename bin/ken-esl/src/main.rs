//! ken-esl: detects the emotions of a text. See ken-esl(1).

use std::process::ExitCode;

fn main() -> ExitCode {
    ken_tool::main::<ken_esl::cli::Esl>()
}
