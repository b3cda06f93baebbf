//! The operations that kend carries out by a command of ken(1): what is wrong, which configuration is in force, what a run changed
//! in the workspace, and the undo of it.

use std::time::{Duration, Instant};

use ken_types::Error;
use ken_types::limits::FILES_RUN_BYTES;
use ken_types::ops::kend::{ConfigListing, DoctorReport, RunOfFiles};
use ken_types::ops::{Nothing, read_args};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::commands::Output;
use crate::launch::Launch;
use crate::system::{System, memory_file};

/// How long a report answers the same question: a page that is opened twice, or by two people, costs one.
const KEPT: Duration = Duration::from_secs(60);

/// What the output of a command is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Doctor,
    Config,
    /// One object, which is passed on.
    Files,
}

/// Starts the command of an operation, or finds the one that answers already. Returns its number; `None` for any other operation.
pub(crate) fn start(system: &mut System, op: &str, args: &str, now: Instant) -> Result<Option<(u64, Kind)>, Error> {
    let (kind, words, keep) = match op {
        "kend.doctor" => (Kind::Doctor, plain(args, &["doctor", "--json"])?, KEPT),
        "kend.config" => (Kind::Config, plain(args, &["config", "show", "--json", "--stdin"])?, KEPT),
        "kend.diff" => (Kind::Files, of_run(args, "diff")?, Duration::ZERO),
        "kend.undo" => (Kind::Files, of_run(args, "undo")?, Duration::ZERO),
        _ => return Ok(None),
    };
    if let Some(number) = system.commands.find(&words, now) {
        return Ok(Some((number, kind)));
    }
    system.check_not_stopping()?;
    let launch = Launch::of_command(&words, &system.places).map_err(Error::unavailable)?;
    let config;
    let stdin = match kind {
        Kind::Config => {
            let text = system.loaded.source.text();
            config = memory_file("configuration", text.as_bytes()).map_err(|errno| Error::unavailable(errno.desc()))?;
            &config
        }
        _ => &system.null,
    };
    let tools = (&mut system.spawner, stdin);
    Ok(Some((system.commands.start(words, keep, &launch, tools, now)?, kind)))
}

fn plain(args: &str, words: &[&str]) -> Result<Vec<String>, Error> {
    let Nothing {} = read_args(args)?;
    Ok(words.iter().map(|word| (*word).to_owned()).collect())
}

fn of_run(args: &str, command: &str) -> Result<Vec<String>, Error> {
    let RunOfFiles { run } = read_args(args)?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !(1..=FILES_RUN_BYTES).contains(&run.len()) || !run.bytes().all(is_plain) {
        let message = format!("a run has 1 to {FILES_RUN_BYTES} letters, digits, - and _");
        return Err(Error::invalid("/args/run", message));
    }
    Ok([command, "--json", "--", &run].map(str::to_owned).to_vec())
}

/// Returns the reply that the output of a command is.
pub(crate) fn reply(kind: Kind, output: &Output) -> Result<Value, Error> {
    let lines: Vec<Value> = output.text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    // An error is the only line with this field. Exit status 2 alone says nothing: it is also that of `ken doctor` with findings.
    if let Some(error) = lines.iter().find_map(|line| line.get("error")) {
        return Err(serde_json::from_value(error.clone()).unwrap_or_else(|_| failed(output)));
    }
    if !matches!(output.code, Some(0..=2)) {
        return Err(failed(output));
    }
    let at = output.at;
    let reply = match kind {
        Kind::Doctor => serde_json::to_value(DoctorReport { at, findings: typed(lines) }),
        Kind::Config => serde_json::to_value(ConfigListing { at, settings: typed(lines) }),
        Kind::Files => return lines.into_iter().find(Value::is_object).ok_or_else(|| failed(output)),
    };
    reply.map_err(|error| Error::internal(error.to_string()))
}

fn typed<T: DeserializeOwned>(lines: Vec<Value>) -> Vec<T> {
    lines.into_iter().filter_map(|line| serde_json::from_value(line).ok()).collect()
}

fn failed(output: &Output) -> Error {
    let last = output.text.lines().last().unwrap_or("it was killed");
    Error::unavailable(format!("ken: {last}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ken_types::Timestamp;

    fn of(code: i32, text: &str) -> Output {
        Output { code: Some(code), text: text.to_owned(), at: Timestamp::now() }
    }

    #[test]
    fn findings_are_read_line_by_line() {
        let line = r#"{"id":"a","severity":"error","where":"w","why":"y","fix":"f"}"#;
        let report = reply(Kind::Doctor, &of(2, &format!("checking …\n{line}\n"))).unwrap();
        assert_eq!(report["findings"][0]["where"], "w");
        assert_eq!(report["findings"].as_array().unwrap().len(), 1);
        assert!(reply(Kind::Doctor, &of(0, "")).unwrap()["findings"].as_array().unwrap().is_empty());
    }

    #[test]
    fn an_error_keeps_its_code_and_a_crash_is_one() {
        let error = reply(Kind::Files, &of(2, "{\"error\":{\"code\":\"not_found\",\"message\":\"no run\"}}\n"));
        assert_eq!(error, Err(Error::not_found("no run")));
        for output in [of(101, "thread panicked\n"), Output { code: None, ..of(0, "") }, of(0, "no object\n")] {
            assert_eq!(reply(Kind::Files, &output).unwrap_err().code, ken_types::Code::Unavailable, "{output:?}");
        }
    }

    #[test]
    fn a_run_is_no_option() {
        assert_eq!(of_run(r#"{"run":"-x"}"#, "undo").unwrap(), ["undo", "--json", "--", "-x"]);
        for run in ["", "a b", "../x", &"x".repeat(65)] {
            assert_eq!(
                of_run(&serde_json::json!({"run": run}).to_string(), "undo").unwrap_err().at.unwrap(),
                "/args/run"
            );
        }
    }
}
