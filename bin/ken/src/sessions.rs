//! `ken sessions`: which conversations there are, newest first.

use std::process::ExitCode;

use ken_types::places::Places;
use serde_json::Value;

use crate::cli::Sessions;
use crate::gateway::Gateway;
use crate::output::{Outcome, say, say_json, table};

pub(crate) fn run(places: &Places, args: &Sessions) -> Outcome {
    let archived = if args.archived { "&archived=1" } else { "" };
    let answer = Gateway::find(places)?.get(&format!("/api/chat/sessions?limit={}{archived}", args.limit))?;
    let sessions = answer
        .get("sessions")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    if args.json {
        sessions.iter().try_for_each(say_json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let head = ["SESSION", "UPDATED", "NAME", "TITLE"].map(String::from);
    let rows: Vec<_> = std::iter::once(head).chain(sessions.iter().map(row)).collect();
    table(&rows).iter().try_for_each(|line| say(line))?;
    Ok(ExitCode::SUCCESS)
}

fn row(session: &Value) -> [String; 4] {
    let text = |name: &str| {
        session
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or("-")
            .to_owned()
    };
    [
        text("sessionId"),
        text("updatedAt"),
        text("displayName"),
        text("title"),
    ]
}
