//! ken-train-laws: fits the model of support by sources that `lib/support` contains, to summaries that people have judged.

mod train;

use std::process::ExitCode;

fn main() -> ExitCode {
    ken_tool::main::<train::Train>()
}
