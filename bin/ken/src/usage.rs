//! `ken usage` and `ken why`: show tokens and cost, and what became of a message.

use std::time::Duration;

use clap::Args;
use ken_types::ops::budget::Sum;
use ken_types::ops::ids::{FoundId, IdKind};
use ken_types::ops::model::{BudgetState, ModelBudget, OfSession};
use ken_types::places::Places;
use ken_types::{Code, Error};
use serde_json::{Value, json};

use crate::client::{STORE, ask, call};
use crate::ids::{LAST, SESSION, Wanted, field, items};
use crate::output::{one_line, print_json, print_line, print_note, print_table};

/// What `ken why` takes.
const EXPLAINED: Wanted = Wanted {
    kinds: &[IdKind::Turn, IdKind::Run, IdKind::ScheduleRun, IdKind::Event, IdKind::Approval],
    last: &[IdKind::Turn, IdKind::Run],
    name: "turn, run, message or approval",
    hint: "`ken show SESSION`, `ken runs` and `ken approvals --all` list them; what was refused before it was read has none",
};
/// Precedes the number in the id of an update of the messaging platform.
const UPDATE: &str = "messenger:";
const MODEL: &str = "model";
/// The timeout of the call to ken-model for the budget. It is long enough for a part that is starting.
const BUDGET_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  ken usage\n  ken usage --by model")]
pub(crate) struct Usage {
    /// Group the totals by this
    #[arg(long, value_parser = ["day", "model", "session"], default_value = "day")]
    by: String,
    /// Show only what this session has used, and its budget: its id, its beginning or end, its name, or `last`
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Show at most this many groups: the newest days, or the models or sessions with the most tokens
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Why {
    /// Id of a message, a turn, an approval, or a run of a workflow or a schedule, its beginning or end, or `last`
    #[arg(default_value = LAST)]
    id: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn usage(places: &Places, args: &Usage) -> Result<(), Error> {
    // The instance of an agent may be no session.
    let found = args.session.as_ref().map(|word| SESSION.find_in_store(places, word)).transpose();
    let (session, unknown) = match found {
        Ok(found) => (found.map(|found| found.id), None),
        Err(error) if error.code == Code::NotFound => (args.session.clone(), Some(error)),
        Err(error) => return Err(error),
    };
    let by = json!({"by": args.by, "session": session, "limit": args.limit});
    let answer = ask(places, STORE, "telemetry.usage", &by, None)?;
    let groups = items(&answer, "groups");
    let others = answer.get("others").filter(|others| !others.is_null());
    if let Some(unknown) = unknown.filter(|_| groups.is_empty()) {
        return Err(unknown);
    }
    if args.json {
        groups.iter().try_for_each(print_json)?;
        others.map_or(Ok(()), |others| print_json(&json!({"others": others})))?
    } else {
        show_groups(&args.by, groups, others)?
    }
    match budget(places, session.as_deref()) {
        Ok(None) => {}
        Ok(Some(budget)) if args.json => print_json(&json!({"budget": budget}))?,
        Ok(Some(budget)) => budget_lines(&budget, session.as_deref()).iter().try_for_each(|line| print_line(line))?,
        // The usage has been printed, so a missing budget is not an error.
        Err(error) => print_note(&format!("the budget is not known: {error}")),
    }
    Ok(())
}

fn show_groups(by: &str, groups: &[Value], others: Option<&Value>) -> Result<(), Error> {
    let number = |group: &Value, name: &str| group.get(name).and_then(Value::as_u64).unwrap_or_default();
    let row = |(key, group): (String, &Value)| {
        let cost = group.get("cost").and_then(Value::as_f64);
        [
            key,
            number(group, "runs").to_string(),
            // What a provider had already read, or keeps from now on, is input, too.
            (number(group, "input") + number(group, "cacheRead") + number(group, "cacheWrite")).to_string(),
            number(group, "cacheRead").to_string(),
            number(group, "output").to_string(),
            cost.map_or_else(|| "-".to_owned(), |cost| format!("${cost:.4}")),
        ]
    };
    let groups = groups.iter().map(|group| (one_line(field(group, "key")), group));
    let others = others.map(|others| match number(others, "groups") {
        1 => ("1 other".to_owned(), others),
        count => (format!("{count} others"), others),
    });
    print_table([&by.to_uppercase(), "RUNS", "INPUT", "CACHED", "OUTPUT", "COST"], groups.chain(others).map(row))
}

/// Returns the limits of the budget and how much of them is used, or `None` if there are no limits.
fn budget(places: &Places, session: Option<&str>) -> Result<Option<BudgetState>, Error> {
    let args = OfSession { session: session.map(str::to_owned) };
    let state = call::<ModelBudget>(places, MODEL, &args, Some(BUDGET_TIMEOUT))?;
    Ok((!state.caps.is_unlimited()).then_some(state))
}

/// Returns one line for the day and one for a session: what is used and what is left.
fn budget_lines(state: &BudgetState, session: Option<&str>) -> Vec<String> {
    let (caps, spent) = (&state.caps, &state.spent);
    let line = |scope: &str, tokens: u64, cost: f64, used: &Sum| {
        let mut parts = Vec::new();
        if tokens > 0 {
            let left = tokens.saturating_sub(used.tokens);
            parts.push(format!("{} of {tokens} tokens used, {left} left", used.tokens));
        }
        if cost > 0.0 {
            let left = (cost - used.cost).max(0.0);
            parts.push(format!("${:.4} of ${cost:.4} used, ${left:.4} left", used.cost));
        }
        if used.reserved_tokens > 0 && !parts.is_empty() {
            parts.push(format!("{} tokens of it reserved", used.reserved_tokens));
        }
        (!parts.is_empty()).then(|| format!("budget of {scope}: {}", parts.join("; ")))
    };
    let day = line(&state.day, caps.tokens_per_day, caps.cost_per_day, &spent.day);
    let (scope, used) = match session {
        Some(session) => (one_line(session), spent.session),
        None => ("each session".to_owned(), Sum::default()),
    };
    let of_session = line(&scope, caps.tokens_per_session, caps.cost_per_session, &used);
    day.into_iter().chain(of_session).collect()
}

pub(crate) fn why(places: &Places, args: &Why) -> Result<(), Error> {
    let id = match EXPLAINED.find_in_store(places, &args.id) {
        Ok(FoundId { kind: IdKind::Approval, submission_id: Some(turn), .. }) => turn,
        Ok(found) => found.id,
        // Updates of the messaging platform have ids of their own.
        Err(error) if error.code == Code::NotFound && args.id.starts_with(UPDATE) => args.id.clone(),
        Err(error) => return Err(error),
    };
    let why = ask(places, STORE, "events.why", &json!({"id": id}), None)?;
    if args.json {
        return print_json(&why);
    }
    print_line(&format!("{}: {}", field(&why, "status"), one_line(field(&why, "cause"))))?;
    for (name, label) in [
        ("receivedAt", "received"),
        ("sessionId", "session "),
        ("submissionId", "turn    "),
        ("host", "host    "),
        ("delivery", "answer  "),
    ] {
        if let Some(value) = why.get(name).and_then(Value::as_str) {
            print_line(&format!("  {label}  {}", one_line(value)))?;
        }
    }
    if let Some(attempts) = why.get("attempts").and_then(Value::as_u64).filter(|attempts| *attempts > 1) {
        print_line(&format!(
            "  attempts  {attempts}: the process that worked on it was lost, and another one continued"
        ))?;
    }
    for failed in items(&why, "failures") {
        let (model, next) = (field(failed, "model"), field(failed, "next"));
        let then = match next {
            "" => "no model was called after it".to_owned(),
            next if next == model => "it was called again".to_owned(),
            next => format!("{} was called instead", one_line(next)),
        };
        print_line(&format!("  failed    {}: {}; {then}", one_line(model), one_line(field(failed, "error"))))?;
    }
    for failed in items(&why, "toolFailures") {
        print_line(&format!("  tool      {}: {}", one_line(field(failed, "tool")), one_line(field(failed, "error"))))?;
    }
    for violation in items(&why, "violations").iter().filter_map(Value::as_str) {
        print_line(&format!("  rule      {}", one_line(violation)))?;
    }
    for approval in items(&why, "approvals").iter().filter_map(Value::as_str) {
        print_line(&format!("  approval  {}", one_line(approval)))?;
    }
    for output in items(&why, "outputs") {
        print_line(&format!(
            "  output    {} bytes: ken call store blobs.get digest={}",
            output.get("bytes").and_then(Value::as_u64).unwrap_or_default(),
            one_line(field(output, "blob"))
        ))?;
    }
    if let Some(turn) = why.get("submissionId").and_then(Value::as_str) {
        print_line(&format!("`ken show {}` shows each step", one_line(turn)))?;
    }
    Ok(())
}
