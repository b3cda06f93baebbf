//! `ken call PART OP [key=value …]`: calls any operation of any part.

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use ken_text::nearest;
use ken_types::limits::WIRE_LINE_BYTES;
use ken_types::ops::kend::unknown_part;
use ken_types::places::Places;
use ken_types::{Code, Error, json};
use ken_wire::blocking::Client;
use serde_json::{Map, Value, json};

use crate::client;
use crate::duration::duration;
use crate::gateway::status;
use crate::ids::items;
use crate::input::stdin_bytes;
use crate::operations::describe;
use crate::output::{print_json, print_text};

#[derive(Debug, Args)]
pub(crate) struct Call {
    /// Name of a part, or kend
    pub(crate) part: String,
    /// Operation, as noun.verb
    #[arg(required_unless_present = "list")]
    pub(crate) op: Option<String>,
    /// key=value, where the value is JSON or else text; or - for a JSON object on standard input
    pub(crate) args: Vec<String>,
    /// List the operations of the part and their arguments
    #[arg(long, conflicts_with = "op")]
    pub(crate) list: bool,
    /// Timeout: 500ms, 5s, 2m
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    pub(crate) timeout: Duration,
}

pub(crate) fn run(places: &Places, call: &Call) -> Result<(), Error> {
    if call.part.contains('/') {
        return Err(Error::invalid("PART", "the name of a part, without slashes"));
    }
    let args = read_args(&call.args)?;
    let mut part = connect(places, call)?;
    let Some(op) = &call.op else {
        return list(&mut part, call);
    };
    let answer = part.call(op, &args, Some(call.timeout), |item| print_json(&item))?;
    print_json(&answer)
}

/// Prints the operations that the part reports, with their arguments.
fn list(part: &mut Client, call: &Call) -> Result<(), Error> {
    let info = part.call("service.info", &json!({}), Some(call.timeout), |_| Ok(()))?;
    items(&info, "ops").iter().filter_map(Value::as_str).try_for_each(|op| print_text(&describe(op)))
}

/// Connects to a part. If that fails, the error says whether kend knows no part of this name, or the part does not
/// accept connections now.
fn connect(places: &Places, call: &Call) -> Result<Client, Error> {
    client::connect(places, &call.part).map_err(|lost| match check_operation(places, call) {
        Err(unknown) if unknown.code == Code::NotFound => unknown,
        _ => lost,
    })
}

fn check_operation(places: &Places, call: &Call) -> Result<(), Error> {
    let parts = status(places)?.parts;
    let names = || parts.iter().map(|part| part.name.as_str());
    if names().any(|name| name == call.part) {
        return Ok(());
    }
    let error = unknown_part(&call.part);
    Err(match nearest(&call.part, names().chain(["kend"])) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error,
    })
}

fn read_args(words: &[String]) -> Result<Value, Error> {
    if words == ["-"] {
        return read_input();
    }
    let mut args = Map::new();
    for word in words {
        let (key, text) = word
            .split_once('=')
            .filter(|(key, _)| !key.is_empty())
            .ok_or_else(|| Error::invalid(word.clone(), "an argument is key=value, or a single -"))?;
        if args.insert(key.to_owned(), value(text)).is_some() {
            return Err(Error::invalid(key, "given twice"));
        }
    }
    Ok(Value::Object(args))
}

/// Parses the text as JSON. Text that is not valid JSON becomes a JSON string.
fn value(text: &str) -> Value {
    json::parse(text.as_bytes(), json::MAX_DEPTH).unwrap_or_else(|_| Value::from(text))
}

fn read_input() -> Result<Value, Error> {
    if std::io::stdin().is_terminal() {
        return Err(Error::invalid("-", "standard input is a terminal; a JSON object is expected there"));
    }
    match json::parse(&stdin_bytes(WIRE_LINE_BYTES as u64)?, json::MAX_DEPTH)? {
        Value::Object(args) => Ok(Value::Object(args)),
        _ => Err(Error::invalid("-", "standard input is not a JSON object")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(words: &[&str]) -> Result<Value, Error> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        read_args(&words)
    }

    #[test]
    fn values_are_json_where_they_can_be() {
        let got = args(&["limit=5", "text=hello you", "id=\"5\"", "tags=[\"a\"]", "eq=a=b", "no="]).unwrap();
        assert_eq!(got, json!({"limit": 5, "text": "hello you", "id": "5", "tags": ["a"], "eq": "a=b", "no": ""}));
        assert_eq!(args(&[]).unwrap(), json!({}));
        for bad in [&["limit"][..], &["=5"], &["a=1", "a=2"], &["-", "a=1"]] {
            assert!(args(bad).is_err(), "{bad:?}");
        }
    }
}
