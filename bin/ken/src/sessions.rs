//! `ken sessions`, and the search for the session that a person names.

use std::process::ExitCode;

use clap::Args;
use ken_client::Gateway;
use ken_client::chat::Identity;
use ken_types::Error;
use ken_types::ops::ids::{FoundId, IdKind};
use serde_json::{Value, json};

use crate::gateway;
use crate::globals::Globals;
use crate::ids::{Wanted, field};
use crate::output::{Outcome, print_json, print_table};
use crate::progress::during;

pub(crate) const SESSION: Wanted =
    Wanted { kinds: &[IdKind::Session], last: &[IdKind::Session], name: "session", hint: "`ken sessions` lists them" };

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

/// Returns the only session that a word names: by its id, a piece of it, its name, or `last`. An archived session is
/// named only by its whole id. `of` is the only one to whom it may belong.
pub(crate) fn find(gateway: &mut Gateway, of: Option<&Identity>, word: &str) -> Result<Value, Error> {
    let found = match of {
        None => SESSION.find(gateway, word)?,
        Some(of) => SESSION.find_own(gateway, word, |found| identity(found).as_ref() == Some(of))?,
    };
    let mut record = found.scope.map_or_else(|| Ok(json!({})), serde_json::to_value).unwrap_or_default();
    if let Some(fields) = record.as_object_mut() {
        fields.insert("sessionId".to_owned(), found.id.into());
        fields.insert("title".to_owned(), found.label.into());
    }
    Ok(record)
}

fn identity(found: &FoundId) -> Option<Identity> {
    Identity::of(&serde_json::to_value(found.scope.as_ref()?).ok()?)
}
