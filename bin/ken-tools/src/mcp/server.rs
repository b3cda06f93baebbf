//! Starts one MCP server, keeps it running and calls it.

use std::sync::Arc;
use std::time::Duration;

use ken_text::head;
use ken_types::Error;
use ken_types::event::ToolResult;
use ken_types::limits::PROMPT_BYTES;
use ken_types::ops::model::SchemaText;
use ken_types::ops::tools::{Approval, Tool};
use parking_lot::Mutex;
use rmcp::model::Prompt;
use rmcp::service::ServiceError;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::accepted::{Pinned, PinnedTool};
use super::config::{ServerConfig, Transport};
use super::down::{self, Down, ERROR_BYTES, Needs};
use super::http::{OUTCOME_UNKNOWN, SESSION_LOST, UNSENT};
use super::launch::Secrets;
use super::link::{Link, Listener, START};
use super::offers::{self, MAX_TOOLS, ToolList};
use super::package::Package;
use super::result;
use crate::changed::Changed;
use crate::entry::{Confinement, Entry, OutputFormat};
use crate::output::Outputs;
use crate::schema::Schema;

/// The pause before a server that has ended is started again. It doubles each time, and is reset once the server runs well.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);
const STABLE_AFTER: Duration = Duration::from_secs(30);
/// The minimum time between two requests for the list of a server that repeatedly reports changes.
const BETWEEN_LISTS: Duration = Duration::from_secs(1);
/// The maximum length of a tool's description and of its schema, in bytes. A tool with longer ones is left out.
const MAX_DESCRIPTION_BYTES: usize = 8 * 1024;
const SCHEMA_BYTES: usize = 32 * 1024;
/// The maximum length of a tool's name for models, in bytes.
const MAX_TOOL_BYTES: usize = 64;

/// A server with its process, which ends when this is dropped.
pub(crate) struct Server {
    pub(crate) config: ServerConfig,
    pinned: Mutex<Option<Pinned>>,
    state: watch::Sender<State>,
    changed: Arc<Changed>,
    runs: Mutex<Option<AbortHandle>>,
    secrets: Arc<Secrets>,
}

#[derive(Clone)]
pub(crate) enum State {
    /// The server has not been started.
    Idle,
    /// The server is being started, after it was down for this reason.
    Starting(Option<Down>),
    Ready(Arc<Link>),
    /// The server has ended or could not be started, for this reason. It is started again after a pause.
    Down(Down),
}

/// The tools of a server that agents can use, and the reasons why others cannot be used.
#[derive(Default)]
pub(crate) struct Offer {
    pub(crate) entries: Vec<Entry>,
    pub(crate) problems: Vec<Error>,
}

impl Server {
    /// Returns a server. With `keeps_running`, it is started at once, and again whenever it ends.
    pub(crate) fn new(
        config: ServerConfig,
        keeps_running: bool,
        secrets: Arc<Secrets>,
        changed: Arc<Changed>,
    ) -> Arc<Server> {
        let server = Arc::new(Server {
            config,
            pinned: Mutex::default(),
            state: watch::Sender::new(State::Idle),
            changed,
            runs: Mutex::default(),
            secrets,
        });
        if keeps_running {
            server.state.send_replace(State::Starting(None));
            let (config, secrets) = (server.config.clone(), server.secrets.clone());
            let (state, changed) = (server.state.clone(), server.changed.clone());
            let task = tokio::spawn(keep_running(config, secrets, state, changed));
            *server.runs.lock() = Some(task.abort_handle());
        }
        server
    }

    /// Sets the list of tools that a person has accepted. It is redacted and has the wanted tools alone, so that it can be compared with
    /// the server's list, which is so, too.
    pub(crate) fn pin(&self, pinned: Option<Pinned>) {
        let wanted = self.config.ken.tools.as_ref();
        let is_wanted = |tool: &PinnedTool| wanted.is_none_or(|names| names.contains(&tool.name));
        let pinned = pinned.map(|Pinned(tools)| Pinned(tools.into_iter().filter(is_wanted).collect()));
        *self.pinned.lock() = pinned.map(Pinned::redacted);
    }

    pub(crate) fn pinned(&self) -> Option<Pinned> {
        self.pinned.lock().clone()
    }

    /// Returns the tools that agents can use: the accepted ones, unless the server's list has changed.
    pub(crate) fn offer(&self, file: &str) -> Offer {
        let mut offer = Offer::default();
        let pinned = self.pinned();
        let state = self.state.borrow().clone();
        match &state {
            State::Down(down) | State::Starting(Some(down)) => offer.problems.push(down.error(&self.config.name)),
            State::Ready(link) => {
                offer.problems.extend(self.unreadable());
                offer.problems.extend(beyond(&self.config.name, &link.tools().beyond));
            }
            State::Idle | State::Starting(None) => {}
        }
        if let State::Ready(link) = &state
            && let Err(error) = self.is_accepted(link)
        {
            offer.problems.push(error);
            return offer;
        }
        for tool in pinned.iter().flat_map(|list| &list.0) {
            match self.entry(tool, file) {
                Ok(entry) => offer.entries.push(entry),
                Err(error) => offer.problems.push(error),
            }
        }
        offer
    }

    /// Returns an error if the entry names files as arguments that the server cannot read. It runs, but its calls fail.
    pub(crate) fn unreadable(&self) -> Option<Error> {
        let files = down::unreadable_arguments(&self.config);
        let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        let message = format!("the MCP server {} cannot read {}", self.config.name, join_first(&names, ", "));
        let needs = Needs { read: files, ..Needs::default() };
        Some(Error::forbidden(message).hint(needs.lines(&self.config)?))
    }

    /// Returns the note on install scripts that were not run, if its package has any.
    pub(crate) fn skipped_scripts(&self) -> Option<String> {
        let skipped = Package::of(&self.config).ok()??.skipped_scripts();
        (!skipped.is_empty()).then(|| {
            format!(
                "the install scripts of {} were not run; if it does not work without them, put \"install_scripts\": true into \
                 \"ken\" of the entry {:?} of mcp.json",
                join_first(&skipped, ", "),
                self.config.name
            )
        })
    }

    fn is_bridged(&self) -> bool {
        matches!(self.config.reached, Transport::Http { .. })
    }

    fn is_accepted(&self, link: &Link) -> Result<(), Error> {
        let name = &self.config.name;
        let listed = link.tools().tools;
        let why = match &*self.pinned.lock() {
            Some(pinned) if *pinned == listed => return Ok(()),
            Some(pinned) => {
                let changes = join_first(&pinned.changes(&listed), ", ");
                format!("the MCP server {name} has changed its tools ({changes})")
            }
            None => {
                let count = listed.0.len();
                format!("nobody has accepted the {count} tools of the MCP server {name}")
            }
        };
        let error = Error::forbidden(format!("{why}; they are not used"));
        Err(error.hint(format!("ken accept {name}")))
    }

    fn entry(&self, tool: &PinnedTool, file: &str) -> Result<Entry, Error> {
        let own = &self.config.ken;
        let name = offered_name(&self.config.name, &tool.name);
        let left_out = |why: &str| {
            let (tool, server) = (&tool.name, &self.config.name);
            let message = format!("the tool {tool} of the MCP server {server} is left out: {why}");
            Error::invalid("", message)
        };
        if name.len() > MAX_TOOL_BYTES {
            let why = format!("its name {name} has more than {MAX_TOOL_BYTES} bytes");
            return Err(left_out(&why));
        }
        if tool.description.len() > MAX_DESCRIPTION_BYTES || tool.input_schema.to_string().len() > SCHEMA_BYTES {
            return Err(left_out("its description is too long"));
        }
        let schema = |schema: &Value| Schema::compile("", schema).map_err(|error| left_out(&error.message));
        let hints = own.trust_hints.then_some(tool);
        Ok(Entry {
            input: schema(&tool.input_schema)?,
            output: match &tool.output_schema {
                Value::Null => None,
                output => Some(schema(output)?),
            },
            command: self.config.describe(),
            touch: own.touch.clone(),
            timeout: self.config.timeout(),
            server: Some((self.config.name.clone(), tool.name.clone())),
            server_settings: self.config.digest(),
            preview: None,
            writes: OutputFormat::Json,
            sandbox: Confinement::Touch,
            env: Vec::new(),
            secrets: Vec::new(),
            shows: None,
            ok_status: vec![0],
            tool: Tool {
                name,
                description: tool.description.clone(),
                parameters: SchemaText::from(&tool.input_schema),
                idempotent: own.idempotent.contains(&tool.name)
                    || hints.is_some_and(|tool| tool.idempotent || tool.read_only),
                approval: match hints {
                    Some(PinnedTool { read_only: true, .. }) => Approval::None,
                    _ => own.approval,
                },
                agents: own.agents.clone(),
                file: file.to_owned(),
                outside: Some(format!("mcp {}", self.config.name)),
                missing: Vec::new(),
                reports_progress: true,
                pure: false,
            },
        })
    }

    /// Calls a tool. The error is a message for the model.
    pub(crate) async fn call(self: &Arc<Server>, call: &ServerCall<'_>) -> Result<ToolResult, String> {
        let name = &self.config.name;
        let first = self.call_once(call).await;
        let ended = match &first {
            Err(Failed::Ended(link, _)) if call.entry.tool.idempotent => Some(link),
            // The call has not been carried out. It is repeated in a new session, and only once.
            Err(Failed::Forgotten(link)) => Some(link),
            _ => None,
        };
        match ended {
            Some(link) => {
                self.restarted_after(link).await;
                self.call_once(call).await
            }
            None => first,
        }
        .map_err(|failed| match failed {
            Failed::Ended(_, down) => self.with_remedy(format!(
                "The MCP server {name} ended while the call was under way ({}). Whether it took effect is unknown.{}",
                down.why,
                down.quoted(name)
            )),
            Failed::Forgotten(_) => format!("The MCP server {name} has forgotten its session. The call was not made."),
            Failed::Reported(why) => why,
        })
    }

    async fn call_once(self: &Arc<Server>, call: &ServerCall<'_>) -> Result<ToolResult, Failed> {
        let (name, time) = (&self.config.name, call.entry.timeout);
        let link = self.ready().await.map_err(Failed::Reported)?;
        self.is_accepted(&link).map_err(|error| Failed::Reported(format!("The call was not allowed: {error}.")))?;
        // A report on progress does not extend the time.
        match timeout(time, link.call(call.tool, call.arguments, call.listener)).await {
            Ok(Ok(answer)) => {
                let read = result::read(name, answer, call.entry.output.as_ref(), call.outputs).await;
                read.map_err(|why| Failed::Reported(self.with_remedy(why)))
            }
            Ok(Err(ServiceError::McpError(error))) if self.is_bridged() && error.code.0 == SESSION_LOST => {
                Err(Failed::Forgotten(link))
            }
            Ok(Err(ServiceError::McpError(error))) if self.is_bridged() && error.code.0 == UNSENT => {
                Err(Failed::Reported(format!("The call of the MCP server {name} was not made: {}.", error.message)))
            }
            Ok(Err(ServiceError::McpError(error))) => {
                let quoted = down::quote(name, head(&error.message, ERROR_BYTES)).map_err(Failed::Reported)?;
                let what = match error.code.0 {
                    OUTCOME_UNKNOWN if self.is_bridged() => {
                        "did not answer as it should. Whether the call took effect is unknown."
                    }
                    _ => "refused the call.",
                };
                let why = format!("The MCP server {name} {what}\n{quoted}");
                Err(Failed::Reported(self.with_remedy(why)))
            }
            Ok(Err(
                ServiceError::TransportClosed | ServiceError::TransportSend(_) | ServiceError::Cancelled { .. },
            )) => {
                let down = link.end_reason().await;
                Err(Failed::Ended(link, down))
            }
            Ok(Err(ServiceError::UnexpectedResponse)) => Err(Failed::Reported(format!(
                "The MCP server {name} did not answer as the protocol says. Whether the call took effect is unknown."
            ))),
            Ok(Err(error)) => Err(Failed::Reported(format!("The call of the MCP server {name} failed: {error}."))),
            Err(_) => {
                tokio::spawn(async move { link.check_alive().await });
                let seconds = time.as_secs_f64();
                Err(Failed::Reported(format!(
                    "The MCP server {name} did not answer within {seconds} s. Whether the call took effect is unknown."
                )))
            }
        }
    }

    /// Adds what the sandbox keeps the server from, if its words show that, and the line that allows it.
    fn with_remedy(&self, why: String) -> String {
        let lines: Vec<String> = why.lines().map(str::to_owned).collect();
        match down::remedy(&self.config, None, &lines) {
            Some(remedy) => format!("{why}\nWhat ken says of it: {remedy}"),
            None => why,
        }
    }

    /// Waits until the server runs. Starts it first if it is not kept running. Fails at once if the server is down.
    async fn ready(self: &Arc<Server>) -> Result<Arc<Link>, String> {
        let name = &self.config.name;
        let down = |down: Down| {
            // The reason can quote the server too.
            let all = [&[down.why], &down.said[..]].concat().join("\n");
            Err(format!("The MCP server {name} is down.\n{}", down::quote(name, &all)?))
        };
        let mut state = self.state.subscribe();
        let until = Instant::now() + START;
        loop {
            match state.borrow_and_update().clone() {
                State::Ready(link) if !link.service.is_transport_closed() => return Ok(link),
                State::Ready(_) => return down("it has ended".to_owned().into()),
                State::Down(why) => return down(why),
                State::Idle => break,
                State::Starting(_) => {}
            }
            if !matches!(tokio::time::timeout_at(until, state.changed()).await, Ok(Ok(()))) {
                return down("it takes too long to start".to_owned().into());
            }
        }
        match Link::open(&self.config, &self.secrets).await {
            Ok(link) => {
                let link = Arc::new(link);
                self.state.send_replace(State::Ready(link.clone()));
                Ok(link)
            }
            Err(why) => down(why),
        }
    }

    /// Waits until the server has been started again after `ended`. A server that is not kept running is only marked as
    /// not started.
    async fn restarted_after(&self, ended: &Arc<Link>) {
        if self.runs.lock().is_none() {
            self.state.send_replace(State::Idle);
            return;
        }
        let mut state = self.state.subscribe();
        let is_another = |state: &State| matches!(state, State::Ready(link) if !Arc::ptr_eq(link, ended));
        _ = timeout(START, state.wait_for(is_another)).await;
    }

    /// Whether its package has still to be installed.
    pub(crate) fn is_installing(&self) -> bool {
        matches!(Package::of(&self.config), Ok(Some(package)) if !package.is_installed())
    }

    /// Starts the server, returns what it offers, and ends it.
    pub(crate) async fn list_once(&self) -> Result<Offered, Down> {
        let link = Link::open(&self.config, &self.secrets).await?;
        let prompts = timeout(START, offers::prompts(&link.service, &link.capabilities())).await;
        let prompts = prompts.map_err(|_| "it did not name its prompts in time".to_owned()).and_then(|named| named);
        let ToolList { tools, beyond: names } = link.tools();
        Ok(Offered { tools, prompts: prompts?, left_out: beyond(&self.config.name, &names) })
    }

    /// Starts the server, and returns the text of one of its prompts.
    pub(crate) async fn prompt_once(&self, name: &str, values: Map<String, Value>) -> Result<String, Error> {
        let server = &self.config.name;
        let link = Link::open(&self.config, &self.secrets).await.map_err(|down| down.error(server))?;
        self.is_accepted(&link)?;
        let refused = |why: String| Error::invalid(name, format!("the MCP server {server} gives no prompt: {why}"));
        let messages = timeout(self.config.timeout(), offers::prompt(&link.service, name, values)).await;
        let messages = messages.map_err(|_| Error::deadline(format!("the MCP server {server} did not answer")))?;
        let messages = messages.map_err(|error| refused(head(&error.to_string(), ERROR_BYTES).to_owned()))?;
        let text = result::of_messages(&messages);
        if text.len() > PROMPT_BYTES {
            return Err(Error::too_large(format!(
                "the prompt {name} has {} bytes, at most {PROMPT_BYTES}",
                text.len()
            )));
        }
        Ok(text)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(task) = self.runs.lock().take() {
            task.abort();
        }
    }
}

pub(crate) struct ServerCall<'a> {
    /// The name of the tool on the server.
    pub(crate) tool: &'a str,
    pub(crate) arguments: &'a Value,
    pub(crate) entry: &'a Entry,
    pub(crate) outputs: &'a Outputs,
    pub(crate) listener: Listener<'a>,
}

pub(crate) struct Offered {
    pub(crate) tools: Pinned,
    pub(crate) prompts: Vec<Prompt>,
    /// The tools for which there is no room.
    pub(crate) left_out: Option<Error>,
}

fn beyond(server: &str, tools: &[String]) -> Option<Error> {
    left_out(server, tools, &format!("a server may have {MAX_TOOLS} tools"))
}

/// Returns the error that names the tools of a server that are left out, and how others are chosen; `None` if there are none.
pub(super) fn left_out(server: &str, tools: &[String], why: &str) -> Option<Error> {
    let named = join_first(tools, ", ");
    let message = format!("{why}, so these of the MCP server {server} are left out: {named}");
    let remedy = "name the tools that are needed in `ken.tools` of its entry";
    (!tools.is_empty()).then(|| Error::conflict(message).hint(remedy))
}

/// Why a call failed.
enum Failed {
    /// The server ended during the call, for this reason.
    Ended(Arc<Link>, Down),
    /// A server with a URL has forgotten the session, and has not carried out the call.
    Forgotten(Arc<Link>),
    /// The error message for the model.
    Reported(String),
}

/// Returns the tool's name for models: `mcp__SERVER__TOOL`, in which `_` replaces characters that are not allowed.
fn offered_name(server: &str, tool: &str) -> String {
    let plain = tool.chars().map(|letter| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' => letter,
        _ => '_',
    });
    format!("mcp__{server}__{}", plain.collect::<String>())
}

/// Joins the first items of a list, and adds how many more there are.
pub(super) fn join_first(all: &[String], between: &str) -> String {
    const MAX_SHOWN: usize = 5;
    let shown = all.get(..MAX_SHOWN).unwrap_or(all).join(between);
    match all.len().saturating_sub(MAX_SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Starts a server again whenever it has ended.
async fn keep_running(config: ServerConfig, secrets: Arc<Secrets>, state: watch::Sender<State>, changed: Arc<Changed>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let begun = Instant::now();
        let mut down = match Link::open(&config, &secrets).await {
            Ok(link) => {
                let link = Arc::new(link);
                state.send_replace(State::Ready(link.clone()));
                changed.set();
                tracing::info!(server = config.name, "the MCP server is ready");
                serve(&link, &changed).await
            }
            Err(down) => down,
        };
        down.remedy = down.remedy.or_else(|| down::remedy(&config, None, &down.said));
        tracing::warn!(server = config.name, "the MCP server is down: {}", down.line());
        state.send_replace(State::Down(down.clone()));
        changed.set();
        if begun.elapsed() > STABLE_AFTER {
            pause = FIRST_PAUSE;
        }
        sleep(pause).await;
        pause = (pause * 2).min(MAX_PAUSE);
        state.send_replace(State::Starting(Some(down)));
    }
}

/// Watches a server until it ends. Returns the reason for its end.
async fn serve(link: &Link, changed: &Changed) -> Down {
    loop {
        tokio::select! {
            () = link.reason.closed() => return link.end().await,
            () = link.service.service().list_changed.notified() => {}
        }
        link.list_again().await;
        changed.set();
        if link.reason.get().is_some() {
            return link.end().await;
        }
        sleep(BETWEEN_LISTS).await;
    }
}
