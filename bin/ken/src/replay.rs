//! `ken replay`: runs a recorded turn through the turn loop again, from its record alone.

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use clap::Args;
use ken_tool::open_regular;
use ken_trusted::Others;
use ken_types::error::JSON_ERRORS;
use ken_types::places::Places;
use ken_types::{Code, Error};
use serde_json::{Value, json};

use crate::client;
use crate::external::{cannot_run, error_of, installed};
use crate::ids::field;
use crate::output::{Outcome, one_line, print_json, print_line};
use crate::runs::TURN;
use crate::skills::workspace;

const AGENT: &str = "agent";
const MAX_SHOWN_BYTES: usize = 400;

#[derive(Debug, Args)]
#[command(after_help = "Exit status 1 says that the turn loop would do something else today.")]
pub(crate) struct Replay {
    /// Id of a turn that has ended, its beginning or end, or `last`
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    run: Option<String>,
    /// Replay a saved record; no part needs to run
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Save the record too
    #[arg(long, value_name = "FILE", requires = "run")]
    save: Option<PathBuf>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(places: &Places, args: &Replay) -> Outcome {
    let record = match (&args.run, &args.file) {
        (Some(id), _) => record(places, id)?,
        (None, Some(file)) => read(file)?,
        (None, None) => return Err(Error::invalid("", "no run is named")),
    };
    if let Some(file) = &args.save {
        save(file, &record)?;
    }
    let mut is_same = false;
    replay(places, &record, &[], |line| {
        is_same |= line.get("same").is_some();
        if args.json { print_json(&line) } else { show(&line) }
    })?;
    Ok(ExitCode::from(u8::from(!is_same)))
}

/// Returns the record of a turn, from ken-agent.
pub(crate) fn record(places: &Places, id: &str) -> Result<Value, Error> {
    let id = TURN.find_in_store(places, id)?.id;
    let mut agent = client::connect(places, AGENT)?;
    let mut events = Vec::new();
    let record = agent.call("agent.record", &json!({"id": id}), None, |event| {
        events.push(event);
        Ok(())
    })?;
    Ok(json!({"record": record, "events": events}))
}

pub(crate) fn read(file: &Path) -> Result<Value, Error> {
    let unreadable = |why: String| Error::invalid("", format!("{}: {why}", file.display()));
    let text = open_regular(file).and_then(io::read_to_string).map_err(|error| unreadable(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))
}

/// Writes a record to a file that only its owner can read, because it contains the conversation.
pub(crate) fn save(file: &Path, record: &Value) -> Result<(), Error> {
    ken_trusted::replace(file, format!("{record}\n").as_bytes(), Others::Nothing)
}

/// Runs `ken-agent --replay` and passes each line of its output to `on_line`. Exit status 1 means that there are
/// differences, which is not an error here.
pub(crate) fn replay(
    places: &Places,
    record: &Value,
    words: &[&str],
    mut on_line: impl FnMut(Value) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut agent = installed("ken-agent")?;
    agent.arg("--replay").args(words).env(JSON_ERRORS.0, JSON_ERRORS.1);
    agent.env("KEN_CONFIG", &places.config).env("KEN_WORKSPACE", workspace(places));
    let child = agent.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let failed = |error: io::Error| cannot_run(&agent, &error);
    let mut child = child.map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // If ken-agent rejects its arguments, it does not read its input. The write then fails, and the cause is
        // reported from its standard error below.
        _ = stdin.write_all(record.to_string().as_bytes());
    }
    let lines = child.stdout.take().map(|out| BufReader::new(out).lines());
    for line in lines.into_iter().flatten() {
        let line = line.map_err(failed)?;
        let line = serde_json::from_str(&line)
            .map_err(|error| Error::internal(format!("a line of ken-agent is not understood: {error}")))?;
        on_line(line)?;
    }
    let output = child.wait_with_output().map_err(failed)?;
    if matches!(output.status.code(), Some(0 | 1)) {
        return Ok(());
    }
    // Text that is not JSON comes from a crash.
    Err(error_of(&agent, &output.stderr, Code::Internal))
}

fn show(line: &Value) -> Result<(), Error> {
    if let Some(step) = line.get("step") {
        let session = Some(field(step, "session")).filter(|session| *session != "default");
        let words = ["type", "toolName", "agent", "role", "stopReason", "status", "verdict", "outcome"]
            .iter()
            .map(|name| field(step, name))
            .filter(|word| !word.is_empty());
        let words = words.chain(session).collect::<Vec<_>>().join("  ");
        return print_line(&format!("  {}", one_line(&words)));
    }
    if let Some(difference) = line.get("difference") {
        let at = difference.get("eventIndex").and_then(Value::as_u64);
        let at = at.map_or_else(|| "after the last event".to_owned(), |at| format!("at event {at}"));
        print_line(&format!("differs {at} of session {}", one_line(field(difference, "session"))))?;
        for name in ["recorded", "now"] {
            let event = difference.get(name).filter(|event| !event.is_null());
            let event = event.map_or_else(|| "nothing".to_owned(), Value::to_string);
            print_line(&format!("  {name:<9} {}", one_line(ken_text::head(&event, MAX_SHOWN_BYTES))))?;
        }
        return Ok(());
    }
    let events = line.get("events").and_then(Value::as_u64).unwrap_or_default();
    print_line(&format!("the same, {events} events"))
}
