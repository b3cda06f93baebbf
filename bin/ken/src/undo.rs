//! `ken undo` and `ken diff`: undo or show what a run changed in the workspace. Both run ken-coder(1) and print its
//! output.

use std::fs::{self, DirEntry};
use std::io::{IsTerminal, stderr};
use std::process::{Command, ExitCode};

use clap::Args;
use ken_types::ops::ids::IdKind;
use ken_types::ops::telemetry::{ByWork, EventsWhy};
use ken_types::places::Places;
use ken_types::{Code, Error, json};
use serde_json::Value;

use crate::client::{STORE, call};
use crate::external::{error_of, installed, output_with_notes, printed};
use crate::globals::Globals;
use crate::ids::{LAST, Wanted};
use crate::output::{Outcome, print_text};
use crate::workspace::around;

const RUN: Wanted = Wanted::of(&[IdKind::Turn, IdKind::Run], "turn or run", "`ken runs` lists them");

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
    let places = globals.places()?;
    let tell: &[&str] = if what == "undo" && stderr().is_terminal() { &["--tell"] } else { &[] };
    let mut coder = coder(&places, &[&[what, "--format", format], tell, &["--", run]].concat())?;
    // `last` is that of the folder in which a session here would work. An id says itself where its run worked.
    if let Some(folder) = around(&places).filter(|_| run == LAST) {
        coder.env("KEN_FOLDER", folder);
    }
    let output = output_with_notes(&mut coder)?;
    print_text(&String::from_utf8_lossy(&output.stdout))?;
    match output.status.code().and_then(|status| u8::try_from(status).ok()) {
        Some(status @ 0..=1) => Ok(ExitCode::from(status)),
        _ => Err(elsewhere(&places, run, error_of(&coder, &output.stderr, Code::Unavailable))),
    }
}

/// The journal is on the host where a run worked. If that is another one, this says so instead of `missing`.
fn elsewhere(places: &Places, run: &str, missing: Error) -> Error {
    if missing.code != Code::NotFound || run == LAST {
        return missing;
    }
    let found = RUN.find_in_store(places, run).and_then(|found| {
        let host = call::<EventsWhy>(places, STORE, &ByWork { id: found.id.clone() }, None)?.host;
        Ok(host.map(|host| (found.id, host)))
    });
    let Ok(Some((run, host))) = found else { return missing };
    Error::unavailable(format!("the run {run} worked on the host {host}, and only there is known what it changed"))
        .hint(format!("`ken diff {run}` on {host} shows it"))
}

/// Removes what undoing the changes of a session would need.
pub(crate) fn remove_session(places: &Places, session: &str) -> Result<(), Error> {
    if !places.state.join("coder").is_dir() {
        return Ok(());
    }
    printed(&mut coder(places, &["prune", "--session", session])?, Code::Unavailable).map(drop)
}

/// Returns the sessions whose changes can be undone, one for each run.
pub(crate) fn sessions(places: &Places) -> Vec<String> {
    // journal/RUN/CALL.json: all calls of a run are of one session.
    let of_run = |run: DirEntry| {
        let call = fs::read_dir(run.path()).ok()?.flatten().next()?;
        let record: Value = serde_json::from_slice(&fs::read(call.path()).ok()?).ok()?;
        record.get("session").and_then(Value::as_str).map(str::to_owned)
    };
    let runs = fs::read_dir(places.state.join("coder/journal")).into_iter().flatten().flatten();
    runs.filter_map(of_run).collect()
}

/// Returns what a run changed, in the form of `ken-coder diff --format compact`.
pub(crate) fn changes(globals: &Globals, run: &str) -> Result<Value, Error> {
    let places = globals.places()?;
    let mut coder = coder(&places, &["diff", "--format", "compact", "--", run])?;
    let changes = printed(&mut coder, Code::Unavailable).map_err(|error| elsewhere(&places, run, error))?;
    json::parse(&changes, json::MAX_DEPTH)
}

fn coder(places: &Places, words: &[&str]) -> Result<Command, Error> {
    let mut coder = installed("ken-coder")?;
    coder.args(words).env("KEN_CONFIG", &places.config).env("KEN_STATE_DIR", &places.state);
    Ok(coder)
}
