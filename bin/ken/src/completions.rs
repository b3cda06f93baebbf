//! `ken completions`: a script that completes the commands and flags of `ken` in a shell.

use std::process::ExitCode;

use clap::Args;

use crate::output::{Outcome, print_bytes};

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// bash, zsh or fish
    pub(crate) shell: clap_complete::Shell,
}

/// Prints the completion script. `ken` is the command line of this program, as clap describes it.
pub(crate) fn run(args: &Completions, mut ken: clap::Command) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut ken, "ken", &mut script);
    print_bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}
