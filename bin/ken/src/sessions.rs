//! `ken sessions`: lists, names, exports and deletes sessions.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use ken_client::chat::Chosen;
use ken_client::{Gateway, History, Method};
use ken_text::visible_line;
use ken_types::places::Places;
use ken_types::uri::encode_segment;
use ken_types::{Code, Error};
use serde_json::{Value, json};

use crate::globals::Globals;
use crate::ids::{SESSION, field};
use crate::output::{Outcome, print_json, print_line, print_list, print_note, print_text};
use crate::progress::during;
use crate::{eval, gateway, typed, undo};

/// The beginnings of the ids of sessions.
const ORIGINS: [&str; 4] = ["tui-", "web-", "connector-", "schedule:"];

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Sessions {
    #[command(subcommand)]
    command: Option<Action>,
    #[command(flatten)]
    list: List,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List sessions, newest first
    #[command(alias = "ls")]
    List(List),
    /// Give a session a name
    Rename(Rename),
    /// Choose what a session remembers of other sessions, and gives to them
    Memory(Memory),
    /// Take sessions out of lists and names; a prompt brings one back
    Archive(Named),
    /// Print a session with all its prompts and answers
    Export(Export),
    /// Delete sessions for good, with everything that was said in them
    #[command(aliases = ["delete", "remove"])]
    Rm(Rm),
}

#[derive(Debug, Args)]
struct List {
    /// Maximum number of sessions
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Show archived sessions
    #[arg(long)]
    archived: bool,
    /// Also show the runs of schedules, and first exchanges of programs
    #[arg(long)]
    all: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Rename {
    /// Id of the session, its beginning or last part, or its name
    session: String,
    /// The new name: 1 to 120 characters
    name: String,
}

#[derive(Debug, Args)]
struct Memory {
    /// Id of the session, its beginning or last part, or its name
    session: String,
    /// `on`: it uses past turns of other sessions, and they use its own; `session`: neither; `off`: no past turns at all
    #[arg(value_parser = ["on", "session", "off"])]
    memory: String,
}

#[derive(Debug, Args)]
struct Named {
    /// Id of a session, its beginning or last part, or its name
    #[arg(required = true, value_name = "SESSION")]
    sessions: Vec<String>,
}

#[derive(Debug, Args)]
struct Export {
    /// Id of the session, its beginning or last part, or its name
    session: String,
    /// Markdown for people, or JSON with every detail of the transcript
    #[arg(long, value_parser = ["md", "json"], default_value = "md")]
    format: String,
}

#[derive(Debug, Args)]
struct Rm {
    #[command(flatten)]
    named: Named,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

pub(crate) fn run(globals: &Globals, args: &Sessions) -> Outcome {
    let gateway = &mut gateway::find(globals)?;
    match &args.command {
        None => list(globals, gateway, &args.list)?,
        Some(Action::List(args)) => list(globals, gateway, args)?,
        Some(Action::Rename(args)) => change(gateway, &args.session, &json!({"displayName": args.name}))?,
        Some(Action::Memory(args)) => change(gateway, &args.session, &json!({"memory": args.memory}))?,
        Some(Action::Archive(several)) => {
            for word in &several.sessions {
                let id = named(gateway, word)?.id;
                gateway.delete(&target(&id))?;
            }
        }
        Some(Action::Export(args)) => export(gateway, args)?,
        Some(Action::Rm(args)) => return remove(globals, gateway, args),
    }
    Ok(ExitCode::SUCCESS)
}

fn list(globals: &Globals, gateway: &mut Gateway, args: &List) -> Result<(), Error> {
    let chosen = Chosen { archived: args.archived, scheduled: args.all };
    let (sessions, has_more) = during("waiting for the gateway", || gateway.sessions(chosen, args.limit))?;
    print_list(&sessions, args.json, ["SESSION", "UPDATED", "NAME", "TITLE"], row)?;
    if has_more {
        let (ken, shown) = (globals.command(), args.limit);
        print_note(&format!("there are more than {shown}: `{ken} sessions -n N` lists N"));
    }
    Ok(())
}

fn change(gateway: &mut Gateway, session: &str, body: &Value) -> Result<(), Error> {
    let id = named(gateway, session)?.id;
    gateway.patch(&target(&id), body).map(drop)
}

fn export(gateway: &mut Gateway, args: &Export) -> Result<(), Error> {
    let target = format!("{}/export?format={}", target(&named(gateway, &args.session)?.id), args.format);
    let answer = gateway.call(&Method::GET, &target, &[], &[])?;
    if args.format == "json" { print_json(&answer.json()?) } else { print_text(&String::from_utf8_lossy(&answer.body)) }
}

/// Deletes sessions for good. Before the first one is deleted, all are found and the person is asked.
fn remove(globals: &Globals, gateway: &mut Gateway, args: &Rm) -> Outcome {
    let found = args.named.sessions.iter().map(|word| named(gateway, word));
    let found: Vec<Found> = found.collect::<Result<_, _>>()?;
    if !args.yes && !confirmed(&found)? {
        print_note("nothing was deleted");
        return Ok(ExitCode::from(1));
    }
    for Found { id, .. } in &found {
        match gateway.delete(&format!("{}?purge=true", target(id))) {
            // An earlier attempt may have been interrupted before it removed the files.
            Err(error) if error.code != Code::Gone => return Err(error),
            _ => {}
        }
        // The files of a system on another machine are not here.
        if globals.url.is_none() {
            remove_files(&globals.places()?, id)?;
        }
        print_line(&format!("deleted {id}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn confirmed(found: &[Found]) -> Result<bool, Error> {
    if !typed::is_person() {
        let error = Error::invalid("--yes", "nobody is there to ask whether to delete it for good");
        return Err(error.hint("add --yes"));
    }
    for Found { id, title } in found {
        print_note(&format!("{id}  {}", visible_line(title)));
    }
    let what = if found.len() == 1 { "this session" } else { "these sessions" };
    typed::is_agreed(&format!(
        "ken: delete {what} for good, with everything that was said in it, and with the schedules that the agent made there? [y/N] "
    ))
}

/// Removes what files outside the database hold of a deleted session.
fn remove_files(places: &Places, session: &str) -> Result<(), Error> {
    History::below(&places.state)
        .forget(session)
        .map_err(|error| Error::unavailable(format!("the history of the terminal client: {error}")))?;
    eval::remove_session(places, session)?;
    undo::remove_session(places, session)
}

/// Returns the sessions of which a file outside the database holds something.
pub(crate) fn in_files(places: &Places) -> BTreeSet<String> {
    let history = History::below(&places.state).sessions();
    history.into_iter().chain(eval::sessions(places)).chain(undo::sessions(places)).collect()
}

/// A session that a person names. The title is empty if the session has been deleted.
struct Found {
    id: String,
    title: String,
}

fn named(gateway: &mut Gateway, word: &str) -> Result<Found, Error> {
    match SESSION.find(gateway, word) {
        Ok(found) => Ok(Found { id: found.id, title: found.label.unwrap_or_default() }),
        // Only the gateway knows whether this is one whose deletion was interrupted.
        Err(error) if error.code == Code::NotFound && ORIGINS.iter().any(|origin| word.starts_with(origin)) => {
            Ok(Found { id: word.to_owned(), title: String::new() })
        }
        Err(error) => Err(error),
    }
}

fn target(id: &str) -> String {
    format!("/api/chat/sessions/{}", encode_segment(id))
}

fn row(session: &Value) -> [String; 4] {
    ["sessionId", "updatedAt", "displayName", "title"].map(|name| match field(session, name) {
        "" => "-".to_owned(),
        text => text.to_owned(),
    })
}
