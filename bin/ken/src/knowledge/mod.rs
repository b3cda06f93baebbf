//! `ken knowledge`: manages the entries that people have added for the agent.

mod import;

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use ken_client::Gateway;
use ken_types::Error;
use ken_types::event::ENTRY_ID_CHARACTERS;
use ken_types::ops::ids::IdKind;
use ken_types::places::Places;
use ken_types::uri::{encode_query, encode_segment};
use serde_json::{Value, json};

use crate::client::ask;
use crate::gateway;
use crate::globals::Globals;
use crate::ids::{Wanted, field, items};
use crate::input::words_or_stdin;
use crate::output::{Outcome, print_json, print_line, print_list};
use crate::progress::during;

const TARGET: &str = "/api/knowledge";
const MAX_CONTENT_BYTES: usize = 512 * 1024;
const ENTRY: Wanted = Wanted::of(&[IdKind::Knowledge], "knowledge entry", "`ken knowledge list` lists them");

const EXAMPLES: &str = "Examples:
  ken knowledge add 'Deploy window' 'The site is deployed on Tuesdays at 14:00 UTC.'
  ken knowledge add --tag runbook 'Failover' < failover.md
  ken knowledge search deploy
  ken knowledge import ~/notes
  ken knowledge list --by agent";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Knowledge {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Add an entry, and print its id
    Add(Add),
    /// List entries, newest first
    List(List),
    /// Show an entry
    Show(Named),
    /// Find entries, best match first
    Search(Search),
    /// Delete entries
    Rm(Several),
    /// Import the Markdown files of a folder, or update those that have changed
    Import(import::Import),
    /// List the turns that used an entry, newest first
    Why(Named),
}

#[derive(Debug, Args)]
struct Add {
    /// Title, 1 to 200 characters
    title: String,
    /// Content; without it, or with -, standard input is read
    content: Vec<String>,
    /// Tag; may be repeated
    #[arg(short = 't', long, value_name = "TAG")]
    tag: Vec<String>,
}

#[derive(Debug, Args)]
struct List {
    /// Maximum number of entries
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100))]
    limit: u32,
    /// Only entries of one origin. Without it and without words to look for, files of the installation and of the workspace are
    /// left out
    #[arg(long, value_enum, value_name = "ORIGIN")]
    by: Option<By>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// Where an entry is from.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum By {
    /// Added over HTTP or with `ken knowledge add`
    Api,
    /// Written by an agent in a turn
    Agent,
    /// A file that `ken knowledge import` has read
    Import,
    /// A document of the installation
    Share,
    /// A file of the workspace
    Workspace,
}

#[derive(Debug, Args)]
struct Search {
    /// Words to look for
    #[arg(required = true)]
    words: Vec<String>,
    #[command(flatten)]
    list: List,
}

#[derive(Debug, Args)]
struct Named {
    /// Id of an entry, its beginning or end, or `last`
    id: String,
    /// Print the record as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Several {
    /// Ids of entries, their beginnings or ends
    #[arg(required = true)]
    ids: Vec<String>,
}

pub(crate) fn run(globals: &Globals, knowledge: &Knowledge) -> Outcome {
    let gateway = || gateway::find(globals);
    match &knowledge.command {
        Command::Import(args) => return import::run(&globals.places()?, args),
        Command::Why(named) => why(&globals.places()?, &find(&mut gateway()?, &named.id)?, named.json)?,
        Command::Add(entry) => add(&mut gateway()?, entry)?,
        Command::List(args) => list(&mut gateway()?, args, "")?,
        Command::Search(search) => {
            let query = format!("&q={}", encode_query(&search.words.join(" ")));
            list(&mut gateway()?, &search.list, &query)?;
        }
        Command::Show(named) => {
            let mut gateway = gateway()?;
            let id = find(&mut gateway, &named.id)?;
            show(&mut gateway, &id, named.json)?;
        }
        Command::Rm(several) => {
            let mut gateway = gateway()?;
            for word in &several.ids {
                let id = find(&mut gateway, word)?;
                gateway.delete(&target(&id))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn add(gateway: &mut Gateway, entry: &Add) -> Result<(), Error> {
    let content = words_or_stdin(&entry.content, MAX_CONTENT_BYTES, "CONTENT", "ken knowledge add TITLE CONTENT")?;
    let body = json!({"title": entry.title, "content": content, "tags": entry.tag});
    let answer = during("adding", || gateway.post(TARGET, &body))?;
    print_line(answer.pointer("/record/id").and_then(Value::as_str).unwrap_or_default())
}

fn list(gateway: &mut Gateway, args: &List, query: &str) -> Result<(), Error> {
    let by = args.by.and_then(|by| by.to_possible_value());
    let by = by.map_or(String::new(), |by| format!("&source={}", by.get_name()));
    let target = format!("{TARGET}?limit={}{query}{by}", args.limit);
    let answer = during("waiting for the gateway", || gateway.get(&target))?;
    let row = |record: &Value| {
        let id = field(record, "id");
        [
            short(id).to_owned(),
            field(record, "updatedAt").to_owned(),
            field(record, "scope").to_owned(),
            origin(record),
            field(record, "title").to_owned(),
        ]
    };
    print_list(items(&answer, "records"), args.json, ["ID", "UPDATED", "SCOPE", "FROM", "TITLE"], row)
}

/// Returns the origin of an entry: who added it, the turn in which an agent wrote it, or the file and line.
fn origin(record: &Value) -> String {
    let metadata = record.get("metadata").unwrap_or(&Value::Null);
    let Some(line) = metadata.get("line") else {
        return field(record, "createdBy").to_owned();
    };
    let path = field(metadata, "path");
    match (field(record, "source"), field(metadata, "folder")) {
        (_, folder @ ("/" | "")) => format!("{}:{folder}{path}:{line}", field(record, "source")),
        (_, folder) => format!("{folder}/{path}:{line}"),
    }
}

/// Prints the turns that used an entry.
fn why(places: &Places, id: &str, as_json: bool) -> Result<(), Error> {
    let answer = ask(places, "store", "knowledge.uses", &json!({"id": id}), None)?;
    let uses = items(&answer, "uses");
    if uses.is_empty() && !as_json {
        return print_line("No turn of the last 30 days used it.");
    }
    let row =
        |used: &Value| ["at", "how", "sessionId", "submissionId", "prompt"].map(|name| field(used, name).to_owned());
    print_list(uses, as_json, ["AT", "USED", "SESSION", "TURN", "PROMPT"], row)
}

fn short(id: &str) -> &str {
    id.get(..ENTRY_ID_CHARACTERS).unwrap_or(id)
}

/// Prints the fields of an entry, an empty line and its content.
pub(crate) fn show(gateway: &mut Gateway, id: &str, as_json: bool) -> Result<(), Error> {
    let answer = gateway.get(&target(id))?;
    let record = answer.get("record").unwrap_or(&Value::Null);
    if as_json {
        return print_json(record);
    }
    for name in ["id", "title", "scope", "source", "createdAt", "updatedAt"] {
        print_line(&format!("{name:10} {}", field(record, name)))?;
    }
    print_line(&format!("{:10} {}", "from", origin(record)))?;
    for (label, name) in [("session", "sessionId"), ("turn", "submissionId")] {
        if record.get(name).is_some() {
            print_line(&format!("{label:10} {}", field(record, name)))?;
        }
    }
    let tags: Vec<&str> = items(record, "tags").iter().filter_map(Value::as_str).collect();
    if !tags.is_empty() {
        print_line(&format!("{:10} {}", "tags", tags.join(", ")))?;
    }
    print_line("")?;
    print_line(field(record, "content").trim_end_matches('\n'))
}

fn target(id: &str) -> String {
    format!("{TARGET}/{}", encode_segment(id))
}

/// Returns the id of the only entry that a word names: its id, a piece of it, or `last`.
pub(crate) fn find(gateway: &mut Gateway, word: &str) -> Result<String, Error> {
    ENTRY.find(gateway, word).map(|found| found.id)
}
