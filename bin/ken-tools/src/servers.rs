//! `ken-tools servers`, `ken-tools accept` and `ken-tools prompt`: list the configured MCP servers, accept their tools, and
//! print their prompts.

use std::fmt;
use std::io::{BufRead, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use ken_text::{for_terminal, visible, visible_line};
use ken_tool::{Answer, Error, Replied, Reply, Report, Verdict};
use ken_types::ops::tools::Problem;
use rmcp::model::Prompt;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::time::timeout;

use crate::commands::{Folders, runtime};
use crate::mcp::{Down, Offered, Pinned, Server};

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

/// A server that was asked what it offers.
#[derive(Default, Serialize)]
pub(crate) struct ServerReport {
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
    /// What a person can begin a message with: `ken chat -t SERVER/PROMPT`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    prompts: Vec<Prompt>,
    /// How the tools differ from the accepted ones, for people.
    #[serde(skip)]
    differences: Vec<String>,
}

impl ServerReport {
    pub(crate) fn of(server: &Arc<Server>, looked: Result<Offered, Down>) -> ServerReport {
        let Offered { tools, prompts, left_out } = match looked {
            Ok(offered) => offered,
            Err(Down { why, said, remedy }) => {
                let hint = joined(&[remedy, server.skipped_scripts()]);
                return ServerReport { said, hint, ..ServerReport::without_tools(server, "down", why) };
            }
        };
        let (state, why, differences) = match server.pinned() {
            None => ("new", String::new(), Vec::new()),
            Some(pinned) if pinned == tools => ("accepted", String::new(), Vec::new()),
            Some(pinned) => ("changed", pinned.changes(&tools).join(", "), pinned.differences(&tools)),
        };
        let unreadable = server.unreadable().and_then(|error| error.hint);
        let hint = joined(&[left_out.map(|error| error.to_string()), unreadable, server.skipped_scripts()]);
        let sha256 = tools.digest();
        ServerReport { hint, sha256, tools, prompts, differences, ..ServerReport::without_tools(server, state, why) }
    }

    fn starting(server: &Arc<Server>) -> ServerReport {
        let why = if server.is_installing() { "its package is being installed" } else { "it is not ready yet" };
        ServerReport::without_tools(server, "starting", why.to_owned())
    }

    fn without_tools(server: &Arc<Server>, state: &'static str, why: String) -> ServerReport {
        ServerReport { name: server.config.name.clone(), state, why, ..ServerReport::default() }
    }

    /// Whether it runs, accepted or not.
    pub(crate) fn is_running(&self) -> bool {
        !self.sha256.is_empty()
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
            show_with_command(seen, verbose, to)?;
        }
        for Problem { file, error } in &self.problems {
            writeln!(to, "{}: {}", visible_line(file), visible_line(&error.to_string()))?;
        }
        Ok(())
    }
}

/// Returns the texts that there are, one below the other. A text can quote the server, and is one line nevertheless.
fn joined(texts: &[Option<String>]) -> Option<String> {
    let texts: Vec<String> = texts.iter().flatten().map(|text| text.replace(char::is_control, " ")).collect();
    (!texts.is_empty()).then(|| texts.join("\n  "))
}

/// Returns a prompt with its arguments, as in `greet name [title]`.
fn prompt_words(prompt: &Prompt) -> String {
    let arguments = prompt.arguments.iter().flatten().map(|argument| match argument.required {
        Some(true) => format!(" {}", argument.name),
        _ => format!(" [{}]", argument.name),
    });
    format!("{}{}", prompt.name, arguments.collect::<String>())
}

fn show(seen: &ServerReport, verbose: bool, to: &mut dyn fmt::Write) -> fmt::Result {
    let ServerReport { name, state, why, said, hint, .. } = seen;
    let why = if why.is_empty() { String::new() } else { format!(" ({})", visible_line(why)) };
    let count = if seen.is_running() { format!(", {} tools", seen.tools.0.len()) } else { String::new() };
    writeln!(to, "{name}: {state}{why}{count}")?;
    for line in said {
        writeln!(to, "  | {}", visible_line(line))?;
    }
    if let Some(hint) = hint {
        writeln!(to, "  {}", visible(hint))?;
    }
    for difference in &seen.differences {
        writeln!(to, "  {}", visible(difference).replace('\n', "\n    "))?;
    }
    if verbose || *state == "new" { show_offers(seen, to) } else { Ok(()) }
}

/// Shows all that is accepted with a list.
fn show_offers(seen: &ServerReport, to: &mut dyn fmt::Write) -> fmt::Result {
    for tool in &seen.tools.0 {
        // A name with a line feed must not look like a tool of its own.
        let name = visible_line(&tool.name);
        writeln!(to, "  {name}: {}", visible(&tool.description).replace('\n', "\n    "))?;
        // Models read the schemas, too, which have room for much text.
        writeln!(to, "    takes {}", visible(&tool.input_schema.to_string()))?;
        if !tool.output_schema.is_null() {
            writeln!(to, "    answers {}", visible(&tool.output_schema.to_string()))?;
        }
        if let Some(about) = tool.kind.about() {
            writeln!(to, "    {about}")?;
        }
        if tool.read_only {
            writeln!(to, "    says that it only reads")?;
        }
        if tool.idempotent {
            writeln!(to, "    says that its calls can be repeated")?;
        }
    }
    for prompt in &seen.prompts {
        let about = prompt.description.as_deref().unwrap_or_default().replace('\n', " ");
        writeln!(to, "  prompt {}: {}", visible_line(&prompt_words(prompt)), visible(&about))?;
    }
    Ok(())
}

/// Says what a server offers, and how to accept it.
pub(crate) fn show_with_command(seen: &ServerReport, verbose: bool, to: &mut dyn fmt::Write) -> fmt::Result {
    show(seen, verbose, to)?;
    if seen.is_running() && !seen.is_usable() {
        let ServerReport { name, sha256, .. } = seen;
        writeln!(to, "  accept them as they are: ken accept {name} --digest {sha256}")?;
    }
    Ok(())
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
    let shown = show(seen, seen.state == "new", &mut text);
    shown.map_err(|error| Error::internal(error.to_string()))?;
    is_answered_with_yes(&format!("{text}ken: may agents use these tools? [y/N] "), std::io::stdin().lock())
}

/// Puts a question to the person at the terminal, and reads the answer.
pub(crate) fn is_answered_with_yes(question: &str, mut from: impl BufRead) -> Result<bool, Error> {
    let (mut stderr, mut answer) = (std::io::stderr(), String::new());
    let asked = stderr.write_all(question.as_bytes()).and_then(|()| stderr.flush());
    let read = asked.and_then(|()| from.read_line(&mut answer));
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
        show_with_command(&self.0, verbose, to)
    }
}

#[derive(Args)]
pub(crate) struct GetPrompt {
    /// The server
    #[arg(value_name = "SERVER")]
    server: String,
    /// The prompt
    #[arg(value_name = "PROMPT")]
    prompt: String,
    /// A value for an argument of the prompt
    #[arg(value_name = "NAME=VALUE")]
    values: Vec<String>,
    #[command(flatten)]
    folders: Folders,
}

impl Report for GetPrompt {
    const NAME: &'static str = "ken-tools prompt";
    const ABOUT: &'static str = "Print a prompt of an MCP server, with values for its arguments";
    const AFTER_HELP: &'static str = "`ken chat -t SERVER/PROMPT -p NAME=VALUE` sends it.";

    fn run(&self, reply: Reply<'_>) -> Result<Replied, Error> {
        let pair = |word: &String| {
            let (name, value) = word.split_once('=').ok_or_else(|| Error::invalid(word, "NAME=VALUE is needed"))?;
            Ok((name.to_owned(), Value::from(value)))
        };
        let values: Map<String, Value> = self.values.iter().map(pair).collect::<Result<_, Error>>()?;
        let catalog = self.folders.catalog();
        let _listing = catalog.read();
        let server = catalog.servers.find(&self.server)?;
        let text = runtime()?.block_on(server.prompt_once(&self.prompt, values))?;
        Ok(reply.send(&PromptText { server: &self.server, prompt: &self.prompt, text }))
    }
}

#[derive(Serialize)]
struct PromptText<'a> {
    server: &'a str,
    prompt: &'a str,
    text: String,
}

impl Answer for PromptText<'_> {
    fn summary(&self, _: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        writeln!(to, "{}", for_terminal(&self.text))
    }
}
