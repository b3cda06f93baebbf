//! `ken-tools add`: puts the MCP servers of a README into mcp.json. It says what each would touch and asks once. Then it
//! installs them and shows what they offer.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use ken_text::visible_line;
use ken_tool::{Answer, Error, Filter, Replied, Reply, Verdict};
use ken_types::ops::tools::Approval;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::commands::{Folders, runtime};
use crate::mcp::{Package, ServerConfig, Servers, Transport, entries_in, put, unreadable_arguments, written};
use crate::servers::{ServerReport, is_answered_with_yes, show_with_command};

#[derive(Args)]
pub(crate) struct Add {
    /// The JSON of the README
    #[arg(short, long, value_name = "JSON")]
    json: Option<String>,
    /// Add without asking
    #[arg(short, long)]
    yes: bool,
    /// Let the servers read a file or folder; can be given more than once
    #[arg(long, value_name = "PATH")]
    read: Vec<PathBuf>,
    /// Let the servers change a file or folder; can be given more than once
    #[arg(long, value_name = "PATH")]
    write: Vec<PathBuf>,
    /// Let the servers reach public addresses
    #[arg(long)]
    network: bool,
    /// Run the install scripts of their packages
    #[arg(long)]
    install_scripts: bool,
    #[command(flatten)]
    folders: Folders,
}

impl Filter for Add {
    const NAME: &'static str = "ken-tools add";
    const ABOUT: &'static str = "Add the MCP servers of a README, given as its JSON";
    const AFTER_HELP: &'static str = "It says what the servers would touch, asks at the terminal, installs them and shows \
                                      their tools.\nExit status: 0 they run, 1 they were not added or do not run, 2 an error.";

    fn inline(&self) -> Option<&str> {
        self.json.as_deref()
    }

    fn run(&self, input: &str, reply: Reply<'_>) -> Result<Replied, Error> {
        let catalog = self.folders.catalog();
        let entries = self.with_permissions(entries_in(input)?, catalog.servers.file())?;
        let plans = plans(&entries, &catalog.servers)?;
        if !self.yes && !is_agreed(&plans)? {
            return Ok(reply.send(&Added { added: false, plans, servers: Vec::new() }));
        }
        let names: Vec<String> = entries.keys().cloned().collect();
        put(catalog.servers.file(), entries)?;
        catalog.changed.set();
        let _listing = catalog.read();
        let servers = started(&catalog.servers, &names)?;
        Ok(reply.send(&Added { added: true, plans, servers }))
    }
}

impl Add {
    /// Adds to each entry what the flags allow, and what its arguments name for reading.
    fn with_permissions(&self, entries: Map<String, Value>, file: &Path) -> Result<Map<String, Value>, Error> {
        let each = entries.into_iter().map(|(name, entry)| {
            // Only what can be read as an entry can get more fields.
            config(&name, &entry, file)?;
            let entry = self.permitted(entry)?;
            let named = unreadable_arguments(&config(&name, &entry, file)?);
            Ok((name, with_paths(entry, "read", &named)))
        });
        each.collect()
    }

    fn permitted(&self, entry: Value) -> Result<Value, Error> {
        let absolute = |paths: &[PathBuf]| -> Result<Vec<PathBuf>, Error> {
            let each = paths.iter().map(std::path::absolute);
            each.collect::<Result<_, _>>().map_err(|error| Error::invalid("", error.to_string()))
        };
        let mut entry = with_paths(with_paths(entry, "read", &absolute(&self.read)?), "write", &absolute(&self.write)?);
        if self.network {
            entry["ken"]["touch"]["network"] = true.into();
        }
        if self.install_scripts {
            entry["ken"]["install_scripts"] = true.into();
        }
        Ok(entry)
    }
}

/// Adds paths to a list of `touch` of an entry.
fn with_paths(mut entry: Value, list: &str, paths: &[PathBuf]) -> Value {
    let known = entry.pointer(&format!("/ken/touch/{list}")).and_then(Value::as_array).cloned().unwrap_or_default();
    if !paths.is_empty() {
        let all: Vec<Value> = known.into_iter().chain(paths.iter().map(|path| json!(path))).collect();
        entry["ken"]["touch"][list] = all.into();
    }
    entry
}

fn config(name: &str, entry: &Value, file: &Path) -> Result<ServerConfig, Error> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    let config = ServerConfig::of(name, entry.clone(), folder).map_err(|error| {
        let at = format!("/{name}{}", error.at.as_deref().unwrap_or_default());
        error.at(at)
    })?;
    config.ok_or_else(|| Error::invalid(format!("/{name}/disabled"), "the entry says that it is not used"))
}

/// What a server would touch, for the person who decides.
#[derive(Serialize)]
struct Plan {
    name: String,
    /// Whether mcp.json has another entry of this name.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    replaces: bool,
    runs: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    package: Option<String>,
    reads: Vec<PathBuf>,
    changes: Vec<PathBuf>,
    network: String,
    /// The names of the variables or headers that it gets.
    gets: Vec<String>,
    /// The names of the secrets and variables whose values it is sent, each with where it is found.
    secrets: Vec<String>,
    /// When a person has to approve a call.
    asks: &'static str,
    /// The agents that can call its tools.
    agents: Vec<String>,
    /// The tools whose calls are made again if their result is lost.
    repeats: BTreeSet<String>,
    /// Paths among its arguments that do not exist.
    missing: Vec<String>,
}

fn plans(entries: &Map<String, Value>, servers: &Servers) -> Result<Vec<Plan>, Error> {
    let file = servers.file();
    let plans = entries.iter().map(|(name, entry)| {
        let replaces = written(file, name).is_some_and(|known| known != *entry);
        let server = config(name, entry, file)?;
        Plan::of(&server, servers.secrets_of(&server)?, replaces)
    });
    plans.collect()
}

impl Plan {
    fn of(server: &ServerConfig, secrets: Vec<String>, replaces: bool) -> Result<Plan, Error> {
        let package = Package::of(server).map_err(|down| down.error(&server.name))?;
        let touch = &server.ken.touch;
        let mut network = if touch.network { "public addresses" } else { "none" }.to_owned();
        if !touch.reach.is_empty() {
            network = format!("{network}, {}", touch.reach.join(", "));
        }
        let (gets, missing) = match &server.reached {
            Transport::Stdio { command, env, .. } => (env.keys().cloned().collect(), missing(command)),
            Transport::Http { headers, .. } => {
                network = "the server's address, and public ones".to_owned();
                (headers.keys().cloned().collect(), Vec::new())
            }
        };
        Ok(Plan {
            name: server.name.clone(),
            replaces,
            runs: server.describe().into_iter().skip(1).collect::<Vec<_>>().join(" "),
            package: package.map(|package| package.describe()),
            reads: touch.read.clone(),
            changes: touch.write.clone(),
            network,
            gets,
            secrets,
            asks: match (server.ken.approval, server.ken.trust_hints) {
                (Approval::None, _) => "never: its calls run as soon as they are made",
                (_, true) => "before each call, unless it says that the tool only reads",
                (_, false) => "before each call",
            },
            agents: server.ken.agents.clone(),
            repeats: server.ken.idempotent.clone(),
            missing,
        })
    }

    fn show(&self, to: &mut dyn fmt::Write) -> fmt::Result {
        let paths = |paths: &[PathBuf]| match paths {
            [] => "nothing of yours".to_owned(),
            paths => paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "),
        };
        let replaces = if self.replaces { ", in place of the entry that is there" } else { "" };
        writeln!(to, "{}{replaces}", self.name)?;
        let lines = [
            ("runs", Some(self.runs.clone())),
            ("installs", self.package.clone()),
            ("reads", Some(paths(&self.reads))),
            ("changes", Some(paths(&self.changes))),
            ("network", Some(self.network.clone())),
            ("asks", Some(self.asks.to_owned())),
            ("agents", Some(self.agents.join(", "))),
            (
                "repeats",
                (!self.repeats.is_empty()).then(|| self.repeats.iter().cloned().collect::<Vec<_>>().join(", ")),
            ),
            ("gets", (!self.gets.is_empty()).then(|| self.gets.join(", "))),
            ("secrets", (!self.secrets.is_empty()).then(|| self.secrets.join(", "))),
            (
                "missing",
                (!self.missing.is_empty()).then(|| format!("{}: put your own in its place", self.missing.join(", "))),
            ),
        ];
        for (name, text) in lines {
            if let Some(text) = text {
                writeln!(to, "  {name:8}  {}", visible_line(&text))?;
            }
        }
        Ok(())
    }
}

/// Returns the absolute paths among the arguments that do not exist, as READMEs give them for examples.
fn missing(command: &[String]) -> Vec<String> {
    let arguments = command.iter().skip(1);
    arguments.filter(|word| word.starts_with('/') && !Path::new(word).exists()).cloned().collect()
}

/// Shows the plans and asks the person at the terminal. The input may have been read from standard input, so the answer comes
/// from the terminal itself.
fn is_agreed(plans: &[Plan]) -> Result<bool, Error> {
    let (Ok(terminal), true) = (File::open("/dev/tty"), std::io::stderr().is_terminal()) else { return Ok(false) };
    let mut text = String::new();
    let shown = plans.iter().try_for_each(|plan| plan.show(&mut text));
    shown.map_err(|error| Error::internal(error.to_string()))?;
    let servers = if plans.len() == 1 { "this server" } else { "these servers" };
    is_answered_with_yes(&format!("{text}ken: add {servers}? [y/N] "), BufReader::new(terminal))
}

/// Installs and starts the servers, and asks what they offer.
fn started(servers: &Servers, names: &[String]) -> Result<Vec<ServerReport>, Error> {
    let runtime = runtime()?;
    let each = names.iter().map(|name| {
        let server = servers.find(name)?;
        if server.is_installing() && std::io::stderr().is_terminal() {
            let _ = writeln!(std::io::stderr(), "ken: the package of {name} is being installed");
        }
        Ok(ServerReport::of(&server, runtime.block_on(server.list_once())))
    });
    each.collect()
}

#[derive(Serialize)]
struct Added {
    added: bool,
    plans: Vec<Plan>,
    servers: Vec<ServerReport>,
}

impl Answer for Added {
    fn verdict(&self) -> Verdict {
        (self.added && self.servers.iter().all(ServerReport::is_running)).into()
    }

    fn summary(&self, verbose: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        if !self.added {
            self.plans.iter().try_for_each(|plan| plan.show(to))?;
            return writeln!(to, "Nothing was added. The same command with --yes adds it as it stands here.");
        }
        self.servers.iter().try_for_each(|seen| show_with_command(seen, verbose, to))
    }
}
