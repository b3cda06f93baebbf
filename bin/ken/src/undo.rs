//! `ken undo` and `ken diff`: undo or show what a run changed in the workspace. Both run ken-coder(1) and print its
//! output.

use std::process::{Command, ExitCode, Output, Stdio};

use clap::Args;
use ken_tool::find_program;
use ken_types::error::JSON_ERRORS;
use ken_types::places::Places;
use ken_types::{Code, Error, json};
use serde_json::Value;

use crate::external::error_of;
use crate::globals::Globals;
use crate::ids::LAST;
use crate::output::{Outcome, print_text};

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Id of the turn or run that made the changes, its beginning or end, or `last`
    run: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs `ken-coder undo` or `ken-coder diff`, according to `what`. The exit status is that of ken-coder: 1 if it
/// refused some files.
pub(crate) fn run(globals: &Globals, what: &str, of: &RunArgs) -> Outcome {
    let format = if of.json { "compact" } else { "summary" };
    let run = match &of.run {
        Some(run) => run,
        None if what == "diff" => LAST,
        // What changes files is named by the person.
        None => {
            let error = Error::invalid("RUN", "it is not said what to undo");
            return Err(error.hint("`ken diff last` shows what the newest run changed, `ken undo last` takes it back"));
        }
    };
    let output = coder(&globals.places()?, &[what, "--format", format, "--", run])?;
    print_text(&String::from_utf8_lossy(&output.stdout))?;
    match output.status.code().and_then(|status| u8::try_from(status).ok()) {
        Some(status @ 0..=1) => Ok(ExitCode::from(status)),
        _ => Err(error_of("ken-coder", &output.stderr, Code::Unavailable)),
    }
}

/// Removes what undoing the changes of a session would need.
pub(crate) fn remove_session(places: &Places, session: &str) -> Result<(), Error> {
    if !places.state.join("coder").is_dir() {
        return Ok(());
    }
    let output = coder(places, &["prune", "--session", session])?;
    if output.status.success() { Ok(()) } else { Err(error_of("ken-coder", &output.stderr, Code::Unavailable)) }
}

/// Returns what a run changed, in the form of `ken-coder diff --format compact`.
pub(crate) fn changes(globals: &Globals, run: &str) -> Result<Value, Error> {
    let output = coder(&globals.places()?, &["diff", "--format", "compact", "--", run])?;
    if !output.status.success() {
        return Err(error_of("ken-coder", &output.stderr, Code::Unavailable));
    }
    json::parse(&output.stdout, json::MAX_DEPTH)
}

fn coder(places: &Places, words: &[&str]) -> Result<Output, Error> {
    let program =
        find_program("ken-coder").ok_or_else(|| Error::unavailable("the program ken-coder is not installed"))?;
    Command::new(program)
        .args(words)
        .env(JSON_ERRORS.0, JSON_ERRORS.1)
        .env("KEN_CONFIG", &places.config)
        .env("KEN_STATE_DIR", &places.state)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::unavailable(format!("ken-coder: {error}")))
}
