//! `ken sessions`, and the search for the session that a person names.

use std::process::ExitCode;

use clap::Args;
use ken_client::Gateway;
use ken_client::chat::Identity;
use ken_types::{Code, Error};
use serde_json::Value;

use crate::gateway;
use crate::globals::Globals;
use crate::ids::{field, is_short};
use crate::output::{Outcome, print_json, print_table};
use crate::progress::during;

/// The number of recent sessions that are searched for a shortened id.
const RECENT: u32 = 100;

#[derive(Debug, Args)]
pub(crate) struct Sessions {
    /// `list` is what other commands call this, and changes nothing
    #[arg(hide = true, value_parser = ["list"])]
    list: Option<String>,
    /// Maximum number of sessions
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) limit: u32,
    /// Show archived sessions
    #[arg(long)]
    pub(crate) archived: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(globals: &Globals, args: &Sessions) -> Outcome {
    let mut gateway = gateway::find(globals)?;
    let sessions = during("waiting for the gateway", || gateway.sessions(None, args.archived, args.limit))?;
    if args.json {
        sessions.iter().try_for_each(print_json)?;
        return Ok(ExitCode::SUCCESS);
    }
    print_table(["SESSION", "UPDATED", "NAME", "TITLE"], sessions.iter().map(row))?;
    Ok(ExitCode::SUCCESS)
}

fn row(session: &Value) -> [String; 4] {
    ["sessionId", "updatedAt", "displayName", "title"].map(|name| match field(session, name) {
        "" => "-".to_owned(),
        text => text.to_owned(),
    })
}

/// Returns the id of the session that was used last.
pub(crate) fn last(gateway: &mut Gateway) -> Result<String, Error> {
    let sessions = gateway.sessions(Some(&Identity::local()), false, 1)?;
    let last = sessions.first().map(|session| field(session, "sessionId").to_owned());
    last.ok_or_else(|| Error::not_found("there is no session to continue"))
}

/// Returns the only recent session that matches a word: by its id, the beginning or the last part of the id, or its
/// name. An archived session is found only by its whole id.
pub(crate) fn find(gateway: &mut Gateway, of: Option<&Identity>, word: &str) -> Result<Value, Error> {
    let sessions = gateway.sessions(of, false, RECENT)?;
    only_one(sessions, word)
}

fn only_one(sessions: Vec<Value>, word: &str) -> Result<Value, Error> {
    let id = |session: &Value| field(session, "sessionId").to_owned();
    if let Some(exact) = sessions.iter().find(|session| id(session) == word) {
        return Ok(exact.clone());
    }
    let is_meant = |session: &&Value| {
        let id = id(session);
        let tail = id.rsplit('-').next().unwrap_or_default();
        field(session, "displayName") == word || is_short(&id, word) || is_short(tail, word)
    };
    let meant: Vec<&Value> = sessions.iter().filter(is_meant).collect();
    match meant.as_slice() {
        [one] => Ok((*one).clone()),
        [] => Err(Error::not_found(format!("there is no session `{word}`")).hint("`ken sessions` lists them")),
        several => {
            let ids: Vec<String> = several.iter().take(5).map(|session| id(session)).collect();
            let message = format!("`{word}` means {} sessions: {}", several.len(), ids.join(", "));
            Err(Error::new(Code::Conflict, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_session_is_meant_by_id_its_beginning_its_last_part_or_its_name() {
        let sessions = || {
            vec![
                json!({"sessionId": "tui-2027-02-03T04-05-06-789Z-0f3c9a1e", "displayName": "nightly"}),
                json!({"sessionId": "tui-2027-02-03T04-05-07-000Z-0f3cffff"}),
            ]
        };
        let found = |word: &str| only_one(sessions(), word).map(|one| one["sessionId"].clone());
        let first = Ok(json!("tui-2027-02-03T04-05-06-789Z-0f3c9a1e"));
        for word in ["0f3c9", "0f3c9a1e", "nightly", "tui-2027-02-03T04-05-06", "tui-2027-02-03T04-05-06-789Z-0f3c9a1e"]
        {
            assert_eq!(found(word), first, "{word}");
        }
        for (word, code) in
            [("0f3c", Code::Conflict), ("tui-2027", Code::Conflict), ("0f", Code::NotFound), ("night", Code::NotFound)]
        {
            assert_eq!(found(word).unwrap_err().code, code, "{word}");
        }
    }
}
