//! `ken completions`: a script that completes the commands and flags of `ken` in a shell.

use std::process::ExitCode;

use clap::CommandFactory;

use crate::cli::{Cli, Completions};
use crate::output::{Outcome, put_bytes};

pub(crate) fn run(args: &Completions) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ken", &mut script);
    put_bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}
