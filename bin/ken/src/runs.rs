//! `ken runs`, `ken show` and `ken cancel`.

use clap::Args;
use ken_client::{Gateway, source_lines};
use ken_types::Error;
use ken_types::live_text::prompt_text;
use ken_types::ops::ids::{FoundId, IdKind};
use ken_types::ops::store::Scope;
use ken_types::uri::encode_segment;
use serde_json::{Value, json};

use crate::gateway;
use crate::globals::Globals;
use crate::ids::{LAST, SESSION, Wanted, field, items};
use crate::output::{print_json, print_line, print_list};
use crate::progress::during;
use crate::{approvals, knowledge, turn};

const MAX_EXCHANGES: u32 = 100;

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
    /// Id of a session, turn, run, approval, message, run of a schedule or knowledge entry, its beginning or end, or
    /// `last`, the newest turn or run
    #[arg(default_value = LAST)]
    pub(crate) id: String,
    /// Print JSON: the page, the record, or one exchange per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Cancel {
    /// Id of a session, turn or run, its beginning or end, or `last`, the newest turn or run
    #[arg(default_value = LAST)]
    pub(crate) id: String,
}

pub(crate) fn list(globals: &Globals, args: &Runs) -> Result<(), Error> {
    let mut gateway = gateway::find(globals)?;
    let status = args.status.as_deref().map(|status| format!("&status={status}"));
    let target = format!("/runs?limit={}{}", args.limit, status.unwrap_or_default());
    let runs = during("waiting for the gateway", || recent(&mut gateway, &target))?;
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
    print_list(&runs, args.json, ["RUN", "WORKFLOW", "STATUS", "STARTED", "TOOK"], row)
}

fn recent(gateway: &mut Gateway, target: &str) -> Result<Vec<Value>, Error> {
    match gateway.get(target)?.get_mut("runs").map(Value::take) {
        Some(Value::Array(runs)) => Ok(runs),
        _ => Err(Error::internal("the gateway's answer has no list of runs")),
    }
}

/// What `ken show` takes.
const SHOWN: Wanted = Wanted {
    kinds: &[],
    last: &[IdKind::Turn, IdKind::Run],
    name: "session, turn, run, approval, message or knowledge entry",
    hint: "`ken sessions`, `ken runs`, `ken approvals --all` and `ken knowledge list` list them",
};
/// What `ken cancel` takes.
const CANCELLED: Wanted = Wanted {
    kinds: &[IdKind::Session, IdKind::Turn, IdKind::Run],
    last: &[IdKind::Turn, IdKind::Run],
    name: "session, turn or run",
    hint: "`ken sessions` and `ken runs` list them",
};
pub(crate) const TURN: Wanted = Wanted::of(&[IdKind::Turn], "turn", "`ken show SESSION` prints the ids of its turns");

pub(crate) fn show(globals: &Globals, args: &Show) -> Result<(), Error> {
    let mut gateway = gateway::find(globals)?;
    let found = during("looking for it", || SHOWN.find(&mut gateway, &args.id))?;
    show_found(globals, &mut gateway, &found, args.json)
}

fn show_found(globals: &Globals, gateway: &mut Gateway, found: &FoundId, as_json: bool) -> Result<(), Error> {
    let FoundId { id, label, submission_id, .. } = found;
    match found.kind {
        IdKind::Turn => turn::show(globals, gateway, found, as_json),
        IdKind::Run => show_fields(&gateway.get(&format!("/runs/{}?meta", encode_segment(id)))?, as_json),
        IdKind::Knowledge => knowledge::show(gateway, id, as_json),
        IdKind::Session => show_session(gateway, found, as_json),
        IdKind::Approval => approvals::show(globals, gateway, id, as_json),
        IdKind::ScheduleRun => {
            let slug = label.as_deref().unwrap_or_default();
            let record =
                gateway.get(&format!("/api/schedules/{}/runs/{}", encode_segment(slug), encode_segment(id)))?;
            show_fields(record.get("run").unwrap_or(&record), as_json)?;
            match submission_id.as_ref().filter(|_| !as_json) {
                Some(turn) => {
                    print_line("")?;
                    show_turn(globals, gateway, turn, false)
                }
                None => Ok(()),
            }
        }
        IdKind::Event => match submission_id {
            Some(turn) => show_turn(globals, gateway, turn, as_json),
            None => Err(Error::not_found(format!("the message {id} started no turn"))
                .hint(format!("`ken why {id}` says what became of it"))),
        },
    }
}

fn show_turn(globals: &Globals, gateway: &mut Gateway, id: &str, as_json: bool) -> Result<(), Error> {
    let turn = TURN.find(gateway, id)?;
    turn::show(globals, gateway, &turn, as_json)
}

fn show_fields(record: &Value, as_json: bool) -> Result<(), Error> {
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

/// Prints a conversation: each prompt after `> `, each answer unchanged, and the id of the turn.
fn show_session(gateway: &mut Gateway, session: &FoundId, as_json: bool) -> Result<(), Error> {
    let page = gateway.transcript(owner(session)?, &session.id, MAX_EXCHANGES, None)?;
    let exchanges = items(&page, "exchanges");
    if as_json {
        return exchanges.iter().try_for_each(print_json);
    }
    if page.pointer("/page/hasOlder") == Some(&json!(true)) {
        print_line(&format!("(the last {MAX_EXCHANGES} exchanges)"))?;
    }
    for exchange in exchanges {
        let text = |pointer: &str| exchange.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        for line in prompt_text(exchange).lines() {
            print_line(&format!("> {line}"))?;
        }
        let status = match text("/error/message") {
            "" => text("/status").to_owned(),
            why => format!("{}: {why}", text("/status")),
        };
        if !text("/assistant/text").is_empty() {
            print_line(text("/assistant/text"))?;
        }
        let sources = exchange.get("assistant").map(source_lines).unwrap_or_default();
        if !sources.is_empty() {
            print_line(&format!("\n{sources}"))?;
        }
        let turn = text("/submissionId");
        match status.as_str() {
            "completed" => print_line(&format!("(turn {turn})\n"))?,
            status => print_line(&format!("(turn {turn}: {status})\n"))?,
        }
    }
    Ok(())
}

pub(crate) fn cancel(globals: &Globals, args: &Cancel) -> Result<(), Error> {
    let mut gateway = gateway::find(globals)?;
    let found = during("looking for it", || CANCELLED.find(&mut gateway, &args.id))?;
    let cancelled = match found.kind {
        IdKind::Run => {
            let target = format!("/runs/{}/abort", encode_segment(&found.id));
            let answer = gateway.post(&target, &json!({}))?;
            answer.get("aborted") == Some(&json!(true))
        }
        IdKind::Session => gateway.cancel(owner(&found)?, &found.id, None)?,
        _ => {
            let session = SESSION.find(&mut gateway, found.session_id.as_deref().unwrap_or_default())?;
            gateway.cancel(owner(&session)?, &session.id, Some(&found.id))?
        }
    };
    if !cancelled {
        return Err(Error::conflict(format!("nothing runs in {}", found.id)));
    }
    print_line(&format!("{} cancelled", found.id))
}

fn owner(session: &FoundId) -> Result<&Scope, Error> {
    session.scope.as_ref().ok_or_else(|| Error::internal("the session has no owner"))
}
