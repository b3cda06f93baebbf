//! `ken undo` and `ken diff`: undo or show what a run changed in the workspace. Both run ken-coder(1) and print its
//! output.

use std::process::{Command, ExitCode, Output, Stdio};

use clap::Args;
use ken_tool::find_program;
use ken_types::{Code, Error, json};
use serde_json::Value;

use crate::external::error_of;
use crate::globals::Globals;
use crate::output::{Outcome, print_text};

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Id of the turn or run that made the changes, its beginning or end, or `last`
    run: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs `ken-coder undo` or `ken-coder diff`, according to `what`. The exit status is that of ken-coder: 1 if it
/// refused some files.
pub(crate) fn run(globals: &Globals, what: &str, of: &RunArgs) -> Outcome {
    let output = coder(globals, what, if of.json { "compact" } else { "summary" }, &of.run)?;
    print_text(&String::from_utf8_lossy(&output.stdout))?;
    match output.status.code().and_then(|status| u8::try_from(status).ok()) {
        Some(status @ 0..=1) => Ok(ExitCode::from(status)),
        _ => Err(error_of("ken-coder", &output.stderr, Code::Unavailable)),
    }
}

/// Returns what a run changed, in the form of `ken-coder diff --format compact`.
pub(crate) fn changes(globals: &Globals, run: &str) -> Result<Value, Error> {
    let output = coder(globals, "diff", "compact", run)?;
    if !output.status.success() {
        return Err(error_of("ken-coder", &output.stderr, Code::Unavailable));
    }
    json::parse(&output.stdout, json::MAX_DEPTH)
}

fn coder(globals: &Globals, what: &str, format: &str, run: &str) -> Result<Output, Error> {
    let places = globals.places()?;
    let program =
        find_program("ken-coder").ok_or_else(|| Error::unavailable("the program ken-coder is not installed"))?;
    Command::new(program)
        .args([what, "--format", format, "--", run])
        .env("KEN_CONFIG", &places.config)
        .env("KEN_STATE_DIR", &places.state)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::unavailable(format!("ken-coder: {error}")))
}
