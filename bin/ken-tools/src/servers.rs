//! `ken-tools servers` and `ken-tools accept`: list the configured MCP servers, and accept their tools.

use std::fmt;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use ken_text::for_terminal;
use ken_tool::{Answer, Error, Replied, Reply, Report, Verdict};
use ken_types::ops::tools::Problem;
use serde::Serialize;
use tokio::time::timeout;

use crate::commands::{Folders, runtime};
use crate::mcp::{Down, Pinned, Server};

/// The time within which the list is there. It is a little more than a server may take to start, so that a server that
/// takes too long is named as such.
const LIST: Duration = Duration::from_secs(35);

#[derive(Args)]
pub(crate) struct ListServers {
    #[command(flatten)]
    folders: Folders,
}

impl Report for ListServers {
    const NAME: &'static str = "ken-tools servers";
    const ABOUT: &'static str = "Start the MCP servers that mcp.json names, and say what each offers";
    const AFTER_HELP: &'static str =
        "It answers within 35 seconds. Exit status: 0 all can be used, 1 some cannot, 2 an error.";

    fn run(&self, reply: Reply<'_>) -> Result<Replied, Error> {
        let catalog = self.folders.catalog();
        let _listing = catalog.read();
        let problems = catalog.servers.problems();
        let servers = catalog.servers.all().into_iter();
        let looks = async {
            let started = servers.map(|server| {
                tokio::spawn(async move {
                    let looked = timeout(LIST, server.list_once()).await;
                    looked.map_or_else(|_| ServerReport::starting(&server), |looked| ServerReport::of(&server, looked))
                })
            });
            let mut seen = Vec::new();
            for look in started.collect::<Vec<_>>() {
                seen.push(look.await.map_err(|error| Error::internal(error.to_string()))?);
            }
            Ok::<_, Error>(seen)
        };
        let runtime = runtime()?;
        let servers = runtime.block_on(looks);
        // A look-up of an address that takes longer is not waited for.
        runtime.shutdown_background();
        Ok(reply.send(&Listed { servers: servers?, problems }))
    }
}

/// A server whose tools were requested.
#[derive(Serialize)]
struct ServerReport {
    name: String,
    /// `accepted`, `new`, `changed`, `starting` or `down`.
    state: &'static str,
    /// The reason why it does not run, or what has changed.
    #[serde(skip_serializing_if = "String::is_empty")]
    why: String,
    /// The last lines that a server that is down wrote to standard error.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    said: Vec<String>,
    /// What to write into its entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    sha256: String,
    tools: Pinned,
    /// How the tools differ from the accepted ones, for people.
    #[serde(skip)]
    differences: Vec<String>,
}

impl ServerReport {
    fn of(server: &Arc<Server>, looked: Result<Pinned, Down>) -> ServerReport {
        let tools = match looked {
            Ok(tools) => tools,
            Err(Down { why, said, remedy }) => {
                return ServerReport { said, hint: remedy, ..ServerReport::without_tools(server, "down", why) };
            }
        };
        let (state, why, differences) = match server.pinned() {
            None => ("new", String::new(), Vec::new()),
            Some(pinned) if pinned == tools => ("accepted", String::new(), Vec::new()),
            Some(pinned) => ("changed", pinned.changes(&tools).join(", "), pinned.differences(&tools)),
        };
        let hint = server.unreadable().and_then(|error| error.hint);
        let sha256 = tools.digest();
        ServerReport { hint, sha256, tools, differences, ..ServerReport::without_tools(server, state, why) }
    }

    fn starting(server: &Arc<Server>) -> ServerReport {
        let why = match server.is_fetching() {
            true => "its package is being fetched",
            false => "it is not ready yet",
        };
        ServerReport::without_tools(server, "starting", why.to_owned())
    }

    fn without_tools(server: &Arc<Server>, state: &'static str, why: String) -> ServerReport {
        let name = server.config.name.clone();
        ServerReport {
            name,
            state,
            why,
            said: Vec::new(),
            hint: None,
            sha256: String::new(),
            tools: Pinned::default(),
            differences: Vec::new(),
        }
    }

    fn is_usable(&self) -> bool {
        self.state == "accepted"
    }
}

#[derive(Serialize)]
struct Listed {
    servers: Vec<ServerReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<Problem>,
}

impl Answer for Listed {
    fn verdict(&self) -> Verdict {
        (self.servers.iter().all(ServerReport::is_usable) && self.problems.is_empty()).into()
    }

    fn summary(&self, verbose: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        if self.servers.is_empty() && self.problems.is_empty() {
            return writeln!(to, "mcp.json names no servers");
        }
        for seen in &self.servers {
            show(seen, verbose, to)?;
        }
        for Problem { file, error } in &self.problems {
            writeln!(to, "{}: {}", for_terminal(file), for_terminal(&error.to_string()))?;
        }
        Ok(())
    }
}

fn show(seen: &ServerReport, verbose: bool, to: &mut dyn fmt::Write) -> fmt::Result {
    let ServerReport { name, state, why, said, hint, .. } = seen;
    let why = match why.is_empty() {
        true => String::new(),
        false => format!(" ({})", for_terminal(why)),
    };
    match seen.sha256.is_empty() {
        true => writeln!(to, "{name}: {state}{why}")?,
        false => writeln!(to, "{name}: {state}{why}, {} tools", seen.tools.0.len())?,
    }
    for line in said {
        writeln!(to, "  | {}", for_terminal(line))?;
    }
    if let Some(hint) = hint {
        writeln!(to, "  {}", for_terminal(hint))?;
    }
    for difference in &seen.differences {
        writeln!(to, "  {}", for_terminal(difference).replace('\n', "\n    "))?;
    }
    let shows_all = verbose || *state == "new";
    for tool in seen.tools.0.iter().filter(|_| shows_all) {
        let (name, description) = (for_terminal(&tool.name), for_terminal(&tool.description));
        writeln!(to, "  {name}: {}", description.replace('\n', "\n    "))?;
    }
    match *state {
        "new" | "changed" => {
            let sha256 = &seen.sha256;
            writeln!(to, "  accept them as they are: ken accept {name} --digest {sha256}")
        }
        _ => Ok(()),
    }
}

#[derive(Args)]
pub(crate) struct Accept {
    /// The server
    #[arg(value_name = "SERVER")]
    server: String,
    /// The SHA-256 of the list as it was shown; without it, the list is shown and nothing is accepted
    #[arg(value_name = "SHA256")]
    sha256: Option<String>,
    /// Accept the list as it is now, without asking
    #[arg(short, long, conflicts_with = "sha256")]
    yes: bool,
    #[command(flatten)]
    folders: Folders,
}

impl Report for Accept {
    const NAME: &'static str = "ken-tools accept";
    const ABOUT: &'static str = "Let agents use the tools of an MCP server, as it describes them now";
    const AFTER_HELP: &'static str = "Exit status: 0 they may be used, 1 they may not, 2 an error.";

    fn run(&self, reply: Reply<'_>) -> Result<Replied, Error> {
        let catalog = self.folders.catalog();
        let _listing = catalog.read();
        let server = catalog.servers.find(&self.server)?;
        let mut seen = ServerReport::of(&server, runtime()?.block_on(server.list_once()));
        if self.is_agreed(&seen)? {
            catalog.servers.accept(&self.server, seen.tools.clone())?;
            seen.state = "accepted";
            seen.why = String::new();
            seen.differences = Vec::new();
        }
        Ok(reply.send(&Accepted(seen)))
    }
}

impl Accept {
    /// Whether the list that was seen shall be accepted. A person at a terminal is asked. A server without a list cannot be accepted.
    fn is_agreed(&self, seen: &ServerReport) -> Result<bool, Error> {
        if seen.sha256.is_empty() {
            return Ok(false);
        }
        match &self.sha256 {
            Some(sha256) if *sha256 == seen.sha256 => Ok(true),
            Some(_) => {
                let message = format!("the list is another one now: {}", seen.sha256);
                let hint = format!("look at it: ken accept {}", self.server);
                Err(Error::conflict(message).hint(hint))
            }
            None if self.yes => Ok(true),
            None => Ok(!seen.is_usable() && asks() && confirmed(seen)?),
        }
    }
}

/// Whether a person is there who sees the question and can answer it.
fn asks() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Shows the list to the person at the terminal and asks.
fn confirmed(seen: &ServerReport) -> Result<bool, Error> {
    let mut text = String::new();
    let shown = show(seen, false, &mut text);
    shown.map_err(|error| Error::internal(error.to_string()))?;
    let mut stderr = std::io::stderr();
    let asked = write!(stderr, "{text}ken: may agents use these tools? [y/N] ").and_then(|()| stderr.flush());
    let mut answer = String::new();
    let read = asked.and_then(|()| std::io::stdin().read_line(&mut answer));
    read.map_err(|error| Error::internal(format!("the terminal: {error}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[derive(Serialize)]
#[serde(transparent)]
struct Accepted(ServerReport);

impl Answer for Accepted {
    fn verdict(&self) -> Verdict {
        self.0.is_usable().into()
    }

    fn summary(&self, verbose: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        show(&self.0, verbose, to)
    }
}
