//! `ken approvals`, `ken approve` and `ken deny`: requests of agents for actions that need a person's approval.

use clap::Args;
use ken_approval::Request;
use ken_client::Gateway;
use ken_client::approvals::{Decision, user};
use ken_text::visible_line;
use ken_types::ops::ids::{FoundId, IdKind};
use ken_types::uri::encode_query;
use ken_types::{Code, Error};
use serde_json::Value;

use crate::gateway;
use crate::globals::Globals;
use crate::ids::{LAST, Wanted, field};
use crate::output::{print_json, print_line, print_table, print_text};
use crate::progress::during;

const PENDING: &str = "/api/approvals/pending";
const ALL: &str = "/api/approvals?limit=100";
const REQUEST: Wanted = Wanted::of(&[IdKind::Approval], "request", "`ken approvals --all` lists them");
const PENDING_REQUEST: Wanted = Wanted { name: "pending request", hint: "`ken approvals` lists them", ..REQUEST };

#[derive(Debug, Args)]
pub(crate) struct Approvals {
    /// Show this request with its exact action and diff, even if it is decided: its id, its beginning or end, or `last`
    id: Option<String>,
    /// List the requests of the last 90 days, newest first, with how they ended
    #[arg(long, conflicts_with = "id")]
    all: bool,
    /// Print JSON: one request per line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Approve {
    /// Id of a request, its beginning or end, or `last` if only one waits
    id: Option<String>,
    /// Also approve further calls in this session with the same arguments and the same files
    #[arg(long)]
    session: bool,
    /// Digest of a diff that is longer than a request; `ken approvals ID` prints both
    #[arg(long, value_name = "DIGEST")]
    digest: Option<String>,
    #[command(flatten)]
    words: DecisionText,
}

#[derive(Debug, Args)]
pub(crate) struct Deny {
    /// Id of a request, its beginning or end, or `last` if only one waits
    id: Option<String>,
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

pub(crate) fn run(globals: &Globals, args: &Approvals) -> Result<(), Error> {
    let mut gateway = gateway::find(globals)?;
    match &args.id {
        Some(word) => {
            let id = REQUEST.find(&mut gateway, word)?.id;
            show(globals, &mut gateway, &id, args.json)
        }
        None if args.all => list_all(&mut gateway, args.json),
        None => list(&mut gateway, args.json),
    }
}

fn list(gateway: &mut Gateway, as_json: bool) -> Result<(), Error> {
    let pending = pending(gateway)?;
    if as_json {
        return pending.iter().try_for_each(print_json);
    }
    let row = |request: Request| [request.id, request.risk, request.action_type, request.target, request.summary];
    let rows = pending.iter().filter_map(Request::of).map(row);
    print_table(["ID", "RISK", "ACTION", "TARGET", "SUMMARY"], rows)
}

/// Lists requests of any status, page by page.
fn list_all(gateway: &mut Gateway, as_json: bool) -> Result<(), Error> {
    let mut rows = Vec::new();
    let mut after = String::new();
    loop {
        let page = during("waiting for the gateway", || gateway.get(&format!("{ALL}{after}")))?;
        let records = page.get("approvals").and_then(Value::as_array).cloned().unwrap_or_default();
        if as_json {
            records.iter().try_for_each(print_json)?;
        } else {
            rows.extend(records.iter().filter_map(row_with_outcome));
        }
        match page.pointer("/page/after").and_then(Value::as_str) {
            Some(next) => after = format!("&after={}", encode_query(next)),
            None if as_json => return Ok(()),
            None => return print_table(["ID", "ASKED", "ACTION", "OUTCOME", "DECIDED", "SUMMARY"], rows),
        }
    }
}

fn row_with_outcome(record: &Value) -> Option<[String; 6]> {
    let request = Request::of(record)?;
    let outcome = request.outcome.unwrap_or(request.status);
    let decided = record.pointer("/decision/decidedAt").and_then(Value::as_str).unwrap_or("-");
    let [asked, decided] = [field(record, "createdAt"), decided].map(visible_line);
    Some([request.id, asked, request.action_type, outcome, decided, request.summary])
}

fn pending(gateway: &mut Gateway) -> Result<Vec<Value>, Error> {
    match during("waiting for the gateway", || gateway.get(PENDING))? {
        Value::Array(pending) => Ok(pending),
        _ => Err(Error::internal("the gateway did not answer with a list")),
    }
}

/// Prints a whole request in the order in which a person reads it, and below it how it ended.
pub(crate) fn show(globals: &Globals, gateway: &mut Gateway, id: &str, as_json: bool) -> Result<(), Error> {
    let record = gateway.approval(id)?;
    if as_json {
        return print_json(&record);
    }
    let request = gateway.with_whole_diff(&record)?;
    print_text(&request.text())?;
    print_line(&format!("\n{id} {}", status(&record, &request)))?;
    match request.digest.as_ref().filter(|_| request.is_pending()) {
        // Who approves a long diff names its digest, which only somebody knows to whom all of it was shown.
        Some(digest) => print_line(&format!("to approve it: {} approve {id} --digest {digest}", globals.command())),
        None => Ok(()),
    }
}

fn status(record: &Value, request: &Request) -> String {
    let mut status = request.outcome.clone().unwrap_or_else(|| "waits for a decision".to_owned());
    let decision = record.get("decision").unwrap_or(&Value::Null);
    for (before, text) in [
        (" at ", field(decision, "decidedAt")),
        (": ", field(decision, "reason")),
        (", used at ", field(record, "usedAt")),
    ] {
        if !text.is_empty() {
            status += &format!("{before}{}", visible_line(text));
        }
    }
    status
}

pub(crate) fn approve(globals: &Globals, args: &Approve) -> Result<(), Error> {
    let digest = args.digest.clone();
    decide(globals, args.id.as_ref(), Decision { for_session: args.session, digest, ..decision(true, &args.words) })
}

pub(crate) fn deny(globals: &Globals, args: &Deny) -> Result<(), Error> {
    decide(globals, args.id.as_ref(), decision(false, &args.words))
}

fn decision(approved: bool, words: &DecisionText) -> Decision {
    let by = words.by.clone().unwrap_or_else(user);
    Decision { approved, by, reason: words.reason.clone(), for_session: false, digest: None }
}

fn decide(globals: &Globals, word: Option<&String>, decision: Decision) -> Result<(), Error> {
    // Nobody decides a request without having named it.
    let missing = || Error::invalid("ID", "the id of the request is missing");
    let word = word.ok_or_else(|| missing().hint("`ken approvals` lists them; `last` is the only one that waits"))?;
    let mut gateway = gateway::find(globals)?;
    let id = find_pending(&mut gateway, word)?;
    during("deciding", || gateway.decide(&id, &decision))?;
    let done = if decision.approved { "approved" } else { "denied" };
    print_line(&format!("{done} {id}"))
}

/// Returns the id of the only pending request that a word names. `last` names it only if no other one waits, so that
/// nobody decides a request that has come after the one that was read. If none is pending, an ended one is named, and
/// the decision fails with its outcome.
fn find_pending(gateway: &mut Gateway, word: &str) -> Result<String, Error> {
    let known = |record: &Value| {
        Some(FoundId {
            kind: IdKind::Approval,
            id: field(record, "requestId").to_owned(),
            at: field(record, "createdAt").parse().ok()?,
            label: Some(visible_line(field(record, "description"))),
            session_id: None,
            submission_id: None,
            offset: None,
            scope: None,
        })
    };
    let pending = pending(gateway)?.iter().filter_map(known).collect();
    match PENDING_REQUEST.only_one(pending, word) {
        Err(error) if error.code == Code::NotFound && word != LAST => {
            REQUEST.find(gateway, word).map(|found| found.id).map_err(|other| match other.code {
                Code::NotFound => error,
                _ => other,
            })
        }
        found => found.map(|found| found.id),
    }
}
