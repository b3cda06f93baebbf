//! `ken runs`, `ken show` and `ken cancel`: find runs, sessions and knowledge entries by id.

use std::process::ExitCode;

use clap::Args;
use ken_client::Gateway;
use ken_client::chat::Identity;
use ken_types::id::Mint;
use ken_types::uri::encode_segment;
use ken_types::{Code, Error};
use serde_json::{Value, json};

use crate::gateway;
use crate::globals::Globals;
use crate::ids::{field, items, only_one};
use crate::output::{Outcome, print_json, print_line, print_table};
use crate::progress::during;
use crate::{knowledge, sessions};

/// The number of recent runs that are searched for a shortened id.
const RECENT: u32 = 1_000;
/// The maximum number of exchanges that are shown of a session.
const EXCHANGES: u32 = 100;

#[derive(Debug, Args)]
pub(crate) struct Runs {
    /// `list` is what other commands call this, and changes nothing
    #[arg(hide = true, value_parser = ["list"])]
    list: Option<String>,
    /// Maximum number of runs
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,
    /// Show only runs in this state
    #[arg(long, value_name = "STATUS", value_parser = ["active", "completed", "errored"])]
    pub(crate) status: Option<String>,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Id of a session, run or knowledge entry, or the beginning of one
    pub(crate) id: String,
    /// Print JSON: the record, or one exchange per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Cancel {
    /// Id of a session or run, or the beginning of one
    pub(crate) id: String,
}

pub(crate) fn list(globals: &Globals, args: &Runs) -> Outcome {
    let mut gateway = gateway::find(globals)?;
    let status = args.status.as_deref().map(|status| format!("&status={status}"));
    let target = format!("/runs?limit={}{}", args.limit, status.unwrap_or_default());
    let runs = during("waiting for the gateway", || recent(&mut gateway, &target))?;
    if args.json {
        runs.iter().try_for_each(print_json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let row = |run: &Value| {
        let took = run.get("durationMs").and_then(Value::as_u64);
        [
            field(run, "runId").to_owned(),
            field(run, "workflowName").to_owned(),
            field(run, "status").to_owned(),
            field(run, "startedAt").to_owned(),
            took.map_or_else(|| "-".to_owned(), |ms| format!("{ms} ms")),
        ]
    };
    print_table(["RUN", "WORKFLOW", "STATUS", "STARTED", "TOOK"], runs.iter().map(row))?;
    Ok(ExitCode::SUCCESS)
}

fn recent(gateway: &mut Gateway, target: &str) -> Result<Vec<Value>, Error> {
    match gateway.get(target)?.get_mut("runs").map(Value::take) {
        Some(Value::Array(runs)) => Ok(runs),
        _ => Err(Error::internal("the gateway's answer has no list of runs")),
    }
}

/// The record that an id names.
enum Named {
    Session(Value),
    Run(String),
    Knowledge(String),
}

/// Looks for a word among sessions, runs and knowledge entries. A word with the prefix of one kind is looked for only
/// among that kind.
fn find(gateway: &mut Gateway, word: &str) -> Result<Named, Error> {
    let may_be = |prefix: &[&str]| prefix.iter().any(|prefix| word.starts_with(prefix));
    let mut found = Vec::new();
    let mut problem = None;
    let mut keep = |result: Result<Named, Error>| match result {
        Ok(named) => found.push(named),
        Err(error) if error.code == Code::NotFound => {}
        Err(error) => problem = Some(error),
    };
    if !may_be(&["run_", "kb-"]) {
        keep(sessions::find(gateway, None, word).map(Named::Session));
    }
    if !may_be(&["tui-", "web-", "connector-", "kb-"]) {
        keep(find_run(gateway, word).map(Named::Run));
    }
    if !may_be(&["tui-", "web-", "connector-", "run_"]) {
        keep(knowledge::find(gateway, word).map(Named::Knowledge));
    }
    if let Some(problem) = problem {
        return Err(problem);
    }
    let several = found.len() > 1;
    match found.pop() {
        Some(_) if several => {
            let message = format!("`{word}` names things of several kinds");
            Err(Error::new(Code::Conflict, message).hint("use more of the id, with its prefix"))
        }
        Some(named) => Ok(named),
        None => Err(Error::not_found(format!("there is no session, run or knowledge entry `{word}`"))
            .hint("`ken sessions`, `ken runs` and `ken knowledge list` list them")),
    }
}

fn find_run(gateway: &mut Gateway, word: &str) -> Result<String, Error> {
    let runs = recent(gateway, &format!("/runs?limit={RECENT}"))?;
    let ids = runs.iter().map(|run| field(run, "runId").to_owned()).collect();
    only_one(ids, word, "run_", "run", "`ken runs` lists them")
}

pub(crate) fn show(globals: &Globals, args: &Show) -> Outcome {
    let mut gateway = gateway::find(globals)?;
    match during("looking for it", || find(&mut gateway, &args.id))? {
        Named::Run(id) => {
            let record = gateway.get(&format!("/runs/{}?meta", encode_segment(&id)))?;
            show_run(&record, args.json)?;
        }
        Named::Knowledge(id) => knowledge::show(&mut gateway, &id, args.json)?,
        Named::Session(session) => show_session(&mut gateway, &session, args.json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn show_run(record: &Value, as_json: bool) -> Result<(), Error> {
    if as_json {
        return print_json(record);
    }
    for (name, value) in record.as_object().into_iter().flatten() {
        match value {
            Value::String(text) => print_line(&format!("{name:12} {text}"))?,
            value => print_line(&format!("{name:12} {value}"))?,
        }
    }
    Ok(())
}

/// Prints a conversation: each prompt after `> `, each answer unchanged.
fn show_session(gateway: &mut Gateway, session: &Value, as_json: bool) -> Result<(), Error> {
    let identity = Identity::of(session).ok_or_else(|| Error::internal("the session has no owner"))?;
    let page = gateway.transcript(&identity, field(session, "sessionId"), EXCHANGES)?;
    let exchanges = items(&page, "exchanges");
    if as_json {
        return exchanges.iter().try_for_each(print_json);
    }
    if page.pointer("/page/hasOlder") == Some(&json!(true)) {
        print_line(&format!("(the last {EXCHANGES} exchanges)"))?;
    }
    for exchange in exchanges {
        let text = |pointer: &str| exchange.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        for line in text("/prompt/text").lines() {
            print_line(&format!("> {line}"))?;
        }
        let status = match text("/error/message") {
            "" => text("/status").to_owned(),
            why => format!("{}: {why}", text("/status")),
        };
        match (text("/assistant/text"), status.as_str()) {
            ("", status) => print_line(&format!("({status})"))?,
            (answer, "completed") => print_line(answer)?,
            (answer, status) => print_line(&format!("{answer}\n({status})"))?,
        }
        print_line("")?;
    }
    Ok(())
}

pub(crate) fn cancel(globals: &Globals, args: &Cancel) -> Outcome {
    let mut gateway = gateway::find(globals)?;
    let (what, cancelled) = match during("looking for it", || find(&mut gateway, &args.id))? {
        Named::Run(id) => {
            let target = format!("/runs/{}/abort", encode_segment(&id));
            let answer = gateway.post(&target, &Mint::fresh()?.ulid(), &json!({}))?;
            (id, answer.get("aborted") == Some(&json!(true)))
        }
        Named::Session(session) => {
            let identity = Identity::of(&session).ok_or_else(|| Error::internal("the session has no owner"))?;
            let id = field(&session, "sessionId");
            (id.to_owned(), gateway.cancel_turn(&identity, id)?)
        }
        Named::Knowledge(id) => {
            let message = format!("{id} is a knowledge entry, which cannot be cancelled");
            return Err(Error::invalid("ID", message).hint("`ken knowledge rm` deletes it"));
        }
    };
    match cancelled {
        true => print_line(&format!("{what} cancelled"))?,
        false => return Err(Error::conflict(format!("nothing runs in {what}"))),
    }
    Ok(ExitCode::SUCCESS)
}
