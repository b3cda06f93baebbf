//! `ken usage` and `ken why`: what was used, and what became of a message.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use ken_types::Error;
use ken_types::places::Places;
use serde_json::{Value, json};

use crate::client;
use crate::ids::field;
use crate::output::{Outcome, one_line, say, say_json, table};

const STORE: &str = "store";

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  ken usage\n  ken usage --by model")]
pub(crate) struct Usage {
    /// What to add up by
    #[arg(long, value_enum, default_value_t = By::Day)]
    by: By,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum By {
    Day,
    Model,
    Session,
}

impl By {
    fn name(self) -> &'static str {
        match self {
            By::Day => "day",
            By::Model => "model",
            By::Session => "session",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Why {
    /// Id of an event, a submission or a run
    id: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn ask(places: &Places, op: &str, args: &Value) -> Result<Value, Error> {
    let mut store = client::connect(&places.socket(STORE), STORE)?;
    store.call(op, args, None, |_| Ok(()))
}

pub(crate) fn usage(places: &Places, args: &Usage) -> Outcome {
    let answer = ask(places, "telemetry.usage", &json!({"by": args.by.name()}))?;
    let groups = answer
        .get("groups")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    if args.json {
        groups.iter().try_for_each(say_json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let head = [
        args.by.name().to_uppercase(),
        "RUNS".into(),
        "INPUT".into(),
        "OUTPUT".into(),
        "COST".into(),
    ];
    let number = |group: &Value, name: &str| {
        group
            .get(name)
            .and_then(Value::as_u64)
            .unwrap_or_default()
            .to_string()
    };
    let row = |group: &Value| {
        let cost = group.get("cost").and_then(Value::as_f64);
        [
            one_line(field(group, "key")),
            number(group, "runs"),
            number(group, "input"),
            number(group, "output"),
            cost.map_or_else(|| "-".to_owned(), |cost| format!("${cost:.4}")),
        ]
    };
    let rows: Vec<_> = std::iter::once(head).chain(groups.iter().map(row)).collect();
    table(&rows).iter().try_for_each(|line| say(line))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn why(places: &Places, args: &Why) -> Outcome {
    let why = ask(places, "events.why", &json!({"id": args.id}))?;
    if args.json {
        say_json(&why)?;
        return Ok(ExitCode::SUCCESS);
    }
    say(&format!(
        "{}: {}",
        field(&why, "status"),
        one_line(field(&why, "cause"))
    ))?;
    for (name, label) in [
        ("receivedAt", "received"),
        ("sessionId", "session"),
        ("submissionId", "submission"),
        ("delivery", "answer"),
    ] {
        if let Some(value) = why.get(name).and_then(Value::as_str) {
            say(&format!("  {label}  {}", one_line(value)))?;
        }
    }
    for approval in why
        .get("approvals")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        say(&format!(
            "  approval  {}",
            one_line(approval.as_str().unwrap_or_default())
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
