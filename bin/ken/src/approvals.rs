//! `ken approvals`, `ken approve` and `ken deny`: requests of agents for actions that need a person's approval.

use std::process::ExitCode;

use clap::Args;
use ken_client::Gateway;
use ken_client::approvals::Decision;
use ken_types::Error;
use serde_json::Value;

use crate::gateway;
use crate::globals::Globals;
use crate::ids::{field, only_one};
use crate::output::{Outcome, one_line, print_json, print_line, print_table};
use crate::progress::during;

const PENDING: &str = "/api/approvals/pending";
const PREFIX: &str = "apr_";

#[derive(Debug, Args)]
pub(crate) struct Approvals {
    /// Show this request with its exact action and diff, even if it is decided
    id: Option<String>,
    /// Print JSON: one request per line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Approve {
    /// Id of a request, or a unique prefix of it
    id: String,
    /// Also approve further calls in this session with the same arguments and the same files
    #[arg(long)]
    session: bool,
    #[command(flatten)]
    words: DecisionText,
}

#[derive(Debug, Args)]
pub(crate) struct Deny {
    /// Id of a request, or a unique prefix of it
    id: String,
    #[command(flatten)]
    words: DecisionText,
}

/// The reason and the name that are recorded with a decision.
#[derive(Debug, Args)]
struct DecisionText {
    /// Reason to record; the agent gets it with a denial
    #[arg(short, long, value_name = "TEXT")]
    reason: Option<String>,
    /// Name of the person who decides, to record [default: the user who runs this]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

pub(crate) fn run(globals: &Globals, args: &Approvals) -> Outcome {
    let mut gateway = gateway::find(globals)?;
    match &args.id {
        Some(word) => {
            let id = find(&mut gateway, word)?;
            show(&gateway.approval(&id)?, args.json)?;
        }
        None => list(&mut gateway, args.json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(gateway: &mut Gateway, as_json: bool) -> Result<(), Error> {
    let pending = pending(gateway)?;
    if as_json {
        return pending.iter().try_for_each(print_json);
    }
    let row = |record: &Value| {
        let [risk, action, target, summary] =
            ["risk", "actionType", "target", "summary"].map(|name| field(request(record), name).to_owned());
        [field(record, "requestId").to_owned(), risk, action, target, summary]
    };
    print_table(["ID", "RISK", "ACTION", "TARGET", "SUMMARY"], pending.iter().map(row))
}

fn pending(gateway: &mut Gateway) -> Result<Vec<Value>, Error> {
    match during("waiting for the gateway", || gateway.get(PENDING))? {
        Value::Array(pending) => Ok(pending),
        _ => Err(Error::internal("the gateway did not answer with a list")),
    }
}

fn request(record: &Value) -> &Value {
    record.get("request").unwrap_or(&Value::Null)
}

/// Prints the fields of a request, an empty line and the exact action.
fn show(record: &Value, as_json: bool) -> Result<(), Error> {
    if as_json {
        return print_json(record);
    }
    let request = request(record);
    for (name, key) in [
        ("id", "id"),
        ("action", "actionType"),
        ("summary", "summary"),
        ("reason", "reason"),
        ("risk", "risk"),
        ("target", "target"),
        ("agent", "requestedBy"),
        ("created", "createdAt"),
        ("expires", "expiresAt"),
    ] {
        if !field(request, key).is_empty() {
            print_line(&format!("{name:10} {}", one_line(field(request, key))))?;
        }
    }
    print_line(&format!("{:10} {}", "status", status(record)))?;
    let metadata = request.get("metadata").unwrap_or(&Value::Null);
    match metadata.get("action") {
        // The gateway sends an action as a JSON object, or as text if it is shortened.
        Some(Value::String(text)) => print_line(&format!("\n{text}"))?,
        Some(action) => print_line(&format!("\n{action:#}"))?,
        None => {}
    }
    match field(metadata, "diff") {
        "" => Ok(()),
        diff => print_line(&format!("\n{}", diff.trim_end_matches('\n'))),
    }
}

fn status(record: &Value) -> String {
    let mut status = field(record, "status").to_owned();
    if let Some(decision) = record.get("decision") {
        status += &format!(" by {} at {}", one_line(field(decision, "decidedBy")), field(decision, "decidedAt"));
        if !field(decision, "reason").is_empty() {
            status += &format!(": {}", one_line(field(decision, "reason")));
        }
    }
    if !field(record, "usedAt").is_empty() {
        status += &format!(", used at {}", field(record, "usedAt"));
    }
    status
}

pub(crate) fn approve(globals: &Globals, args: &Approve) -> Outcome {
    decide(globals, &args.id, true, args.session, &args.words)
}

pub(crate) fn deny(globals: &Globals, args: &Deny) -> Outcome {
    decide(globals, &args.id, false, false, &args.words)
}

fn decide(globals: &Globals, word: &str, approved: bool, for_session: bool, words: &DecisionText) -> Outcome {
    let mut gateway = gateway::find(globals)?;
    let id = find(&mut gateway, word)?;
    let decision = Decision {
        approved,
        by: words.by.clone().unwrap_or_else(user),
        reason: words.reason.clone(),
        for_session,
        digest: None,
    };
    during("deciding", || gateway.decide(&id, &decision))?;
    let done = if approved { "approved" } else { "denied" };
    print_line(&format!("{done} {id}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the name of the user who runs this, or `uid N` if the user has no name.
fn user() -> String {
    let uid = nix::unistd::geteuid();
    match nix::unistd::User::from_uid(uid) {
        Ok(Some(user)) => user.name,
        _ => format!("uid {uid}"),
    }
}

/// Returns the id for a word: the word itself if it has the form of a whole id, else the only pending request whose id
/// begins with it. Fails if no pending request matches, or several.
fn find(gateway: &mut Gateway, word: &str) -> Result<String, Error> {
    if word.len() == PREFIX.len() + 26 && word.starts_with(PREFIX) {
        return Ok(word.to_owned());
    }
    let pending = pending(gateway)?;
    let ids = pending.iter().map(|record| field(record, "requestId").to_owned());
    only_one(ids.collect(), word, PREFIX, "pending request", "`ken approvals` lists them")
}
