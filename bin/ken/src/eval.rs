//! `ken eval`: uses recorded turns as test cases for other models. Each case is a file in a folder of the user.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use ken_types::ops::Nothing;
use ken_types::ops::model::ModelInfo;
use ken_types::places::Places;
use ken_types::{Engine, Error};
use serde_json::{Value, json};

use crate::client;
use crate::config;
use crate::ids::items;
use crate::output::{ListArgs, Outcome, one_line, print_json, print_line, print_table};
use crate::replay::{read, record, replay, save};

const MODEL: &str = "model";
const MAX_SHOWN_BYTES: usize = 200;

#[derive(Debug, Args)]
pub(crate) struct Eval {
    #[command(subcommand)]
    command: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Turn a recorded turn into a case: its prompt, its context, and the results of its tools
    Add(Add),
    /// List the cases
    List(ListArgs),
    /// Delete cases
    Rm(Named),
    /// Run all cases with a model and print the differences; exit status 1 if there are any
    Run(Run),
}

#[derive(Debug, Args)]
struct Add {
    /// Id of a turn that has ended, its beginning or end, or `last`
    run: String,
    /// Name of the case: a-z, 0-9, - and _ [default: the beginning of its id]
    #[arg(long)]
    name: Option<String>,
}

#[derive(Debug, Args)]
struct Named {
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

#[derive(Debug, Args)]
struct Run {
    /// The model to try; its provider must be set up [default: the first configured model]
    #[arg(long, value_name = "PROVIDER/MODEL")]
    model: Option<String>,
    /// Only these cases
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(places: &Places, eval: &Eval) -> Outcome {
    match &eval.command {
        Action::Add(add) => make(places, add)?,
        Action::List(args) => list(places, args)?,
        Action::Rm(named) => remove(places, named)?,
        Action::Run(args) => return run_cases(places, args),
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the folder of the cases: `evals` beside ken.toml.
fn folder(places: &Places) -> PathBuf {
    places.config.with_file_name("evals")
}

fn file(places: &Places, at: &str, name: &str) -> Result<PathBuf, Error> {
    let is_plain = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || "-_".contains(char);
    if !(1..=64).contains(&name.len()) || !name.chars().all(is_plain) {
        let message = format!("{name:?} is not a name of a case: 1 to 64 characters a-z, 0-9, - and _");
        return Err(Error::invalid(at, message));
    }
    Ok(folder(places).join(format!("{name}.json")))
}

fn make(places: &Places, add: &Add) -> Result<(), Error> {
    let case = record(places, &add.run)?;
    let submission = case.pointer("/record/claim/lease/submission_id");
    let id = submission.and_then(Value::as_str).unwrap_or(&add.run);
    let short: String = id.chars().take(8).collect();
    let name = add.name.as_deref().unwrap_or(&short);
    let file = file(places, "--name", name)?;
    let images = case.pointer("/record/images").and_then(Value::as_u64);
    if images.is_some_and(|images| images > 0) {
        let message = "its prompt has images, which a case cannot hold";
        return Err(Error::invalid("RUN", message));
    }
    if file.exists() {
        let hint = format!("ken eval rm {name}, or --name OTHER");
        return Err(Error::conflict(format!("there is a case {name} already")).hint(hint));
    }
    save(&file, &case)?;
    print_line(name)
}

/// Returns the names and files of the cases, sorted by name.
fn cases(places: &Places) -> Vec<(String, PathBuf)> {
    let files = fs::read_dir(folder(places)).into_iter().flatten().flatten();
    let mut cases: Vec<(String, PathBuf)> = files
        .filter_map(|entry| {
            let name = entry.file_name().to_str()?.strip_suffix(".json")?.to_owned();
            Some((name, entry.path()))
        })
        .collect();
    cases.sort();
    cases
}

fn prompt(case: &Value) -> &str {
    let text = case.pointer("/record/claim/text").and_then(Value::as_str);
    text.unwrap_or_default()
}

fn list(places: &Places, args: &ListArgs) -> Result<(), Error> {
    let mut rows = Vec::new();
    for (name, file) in cases(places) {
        let case = read(&file)?;
        let events = items(&case, "events").len();
        if args.json {
            print_json(&json!({"name": name, "events": events, "prompt": prompt(&case)}))?
        } else {
            rows.push([name, events.to_string(), one_line(ken_text::head(prompt(&case), MAX_SHOWN_BYTES))])
        }
    }
    if args.json { Ok(()) } else { print_table(["NAME", "EVENTS", "PROMPT"], rows) }
}

fn remove(places: &Places, named: &Named) -> Result<(), Error> {
    for name in &named.names {
        let file = file(places, "NAME", name)?;
        fs::remove_file(&file).map_err(|error| match error.kind() {
            ErrorKind::NotFound => unknown(name),
            _ => Error::unavailable(format!("{}: {error}", file.display())),
        })?;
    }
    Ok(())
}

/// Removes the cases that were made of turns of a session.
pub(crate) fn remove_session(places: &Places, session: &str) -> Result<(), Error> {
    for (_, file) in cases(places) {
        if session_of(&file).as_deref() == Some(session) {
            fs::remove_file(&file).map_err(|error| Error::unavailable(format!("{}: {error}", file.display())))?;
        }
    }
    Ok(())
}

/// Returns the sessions of whose turns there are cases, one for each case.
pub(crate) fn sessions(places: &Places) -> Vec<String> {
    cases(places).iter().filter_map(|(_, file)| session_of(file)).collect()
}

/// Returns the session of a case. A file that is not a case has none.
fn session_of(file: &Path) -> Option<String> {
    read(file).ok()?.pointer("/record/claim/instance").and_then(Value::as_str).map(str::to_owned)
}

fn unknown(name: &str) -> Error {
    Error::not_found(format!("there is no case {name}")).hint("ken eval list")
}

fn run_cases(places: &Places, args: &Run) -> Outcome {
    if let Some(model) = &args.model {
        let providers = config::effective_config(&places.config)?.model.provider;
        Engine::list(model, &providers).map_err(|error| error.at("--model"))?;
    }
    let mut cases = cases(places);
    for name in &args.names {
        if !cases.iter().any(|(known, _)| known == name) {
            return Err(unknown(name));
        }
    }
    cases.retain(|(name, _)| args.names.is_empty() || args.names.contains(name));
    if cases.is_empty() {
        return Err(Error::not_found("there are no cases").hint("ken eval add RUN"));
    }
    let model = match &args.model {
        Some(model) => model.clone(),
        None => first_model(places)?,
    };
    let socket = places.socket(MODEL).display().to_string();
    let words = ["--model", &model, "--model-socket", &socket];
    let mut different = 0;
    for (name, file) in &cases {
        let case = read(file)?;
        let mut result = Value::Null;
        replay(places, &case, &words, |line| {
            if line.get("differs").is_some() {
                result = line;
            }
            Ok(())
        })?;
        result["name"] = json!(name);
        different += usize::from(!differing(&result).is_empty());
        if args.json { print_json(&result)? } else { show(name, &result)? }
    }
    if !args.json {
        let all = cases.len();
        print_line(&format!("{model}: {} of {all} the same", all - different))?;
    }
    Ok(ExitCode::from(u8::from(different > 0)))
}

fn first_model(places: &Places) -> Result<String, Error> {
    let state = client::call::<ModelInfo>(places, MODEL, &Nothing {}, None)?;
    let why = state.why_none().unwrap_or_default();
    let first = state.models.into_iter().next();
    first.ok_or_else(|| Error::unavailable(why).hint("--model PROVIDER/MODEL"))
}

fn differing(result: &Value) -> Vec<&str> {
    items(result, "differs").iter().filter_map(Value::as_str).collect()
}

/// Prints one line for the case and two for each difference.
fn show(name: &str, result: &Value) -> Result<(), Error> {
    let differs = differing(result);
    let verdict = if differs.is_empty() { "same".to_owned() } else { format!("differs: {}", differs.join(", ")) };
    print_line(&format!("{name}  {verdict}"))?;
    for what in &differs {
        let from = match *what {
            "tool calls" => "toolCalls",
            other => other,
        };
        for side in ["recorded", "now"] {
            let value = result.pointer(&format!("/{side}/{from}")).unwrap_or(&Value::Null);
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            print_line(&format!("  {what}, {side}: {}", one_line(ken_text::head(&value, MAX_SHOWN_BYTES))))?;
        }
    }
    for call in items(result, "unrecordedCalls") {
        print_line(&format!(
            "  not executed, because it is not recorded: {}",
            one_line(ken_text::head(&call.to_string(), MAX_SHOWN_BYTES))
        ))?;
    }
    match result.pointer("/error/message").and_then(Value::as_str) {
        Some(error) => print_line(&format!("  error: {}", one_line(error))),
        None => Ok(()),
    }
}
