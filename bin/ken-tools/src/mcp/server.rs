//! Starts one MCP server, keeps it running and calls it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ken_text::head;
use ken_types::Error;
use ken_types::event::ToolResult;
use ken_types::ops::model::{SchemaText, ToolSpec};
use ken_types::ops::tools::{Approval, Tool};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientRequest, Implementation,
    InitializeRequestParams, PaginatedRequestParams, PingRequest,
};
use rmcp::service::{NotificationContext, RunningService, ServiceError, serve_client};
use rmcp::{ClientHandler, RoleClient};
use serde_json::Value;
use tokio::process::Child;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::accepted::{Pinned, PinnedTool};
use super::config::{ServerConfig, Transport};
use super::down::{self, Down};
use super::http::SESSION_LOST;
use super::launch::{self, Secrets};
use super::package::Package;
use super::result;
use super::stderr::Stderr;
use super::transport::{Lines, Reason};
use crate::changed::Changed;
use crate::entry::{Confinement, Entry, OutputFormat};
use crate::output::Outputs;
use crate::schema::Schema;

/// The time limit for a server to start and list its tools.
const START: Duration = Duration::from_secs(30);
/// The timeout of a ping to a server that did not respond to a call.
const PING: Duration = Duration::from_secs(5);
/// The pause before a server that has ended is started again. It doubles each time, and is reset once the server runs well.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);
const STABLE_AFTER: Duration = Duration::from_secs(30);
/// The minimum time between two requests for the list of a server that repeatedly reports changes.
const BETWEEN_LISTS: Duration = Duration::from_secs(1);
const MAX_TOOLS: usize = 128;
const MAX_PAGES: usize = 16;
/// The maximum length of a tool's description and of its schema, in bytes. A tool with longer ones is left out.
const DESCRIPTION_BYTES: usize = 8 * 1024;
const SCHEMA_BYTES: usize = 32 * 1024;
/// The maximum length of a tool's name for models, in bytes.
const TOOL_BYTES: usize = 64;
/// The maximum number of bytes that are shown of the beginning of an error response.
const ERROR_BYTES: usize = 1024;

/// A server with its process, which ends when this is dropped.
pub(crate) struct Server {
    pub(crate) config: ServerConfig,
    pinned: Mutex<Option<Pinned>>,
    state: watch::Sender<State>,
    changed: Arc<Changed>,
    runs: Mutex<Option<AbortHandle>>,
    secrets: Arc<Secrets>,
}

/// The state of a server.
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

/// The connection to a running server.
pub(crate) struct Link {
    service: RunningService<RoleClient, Handler>,
    tools: Mutex<Pinned>,
    reason: Reason,
    stderr: Stderr,
    _child: Child,
}

/// The tools of a server that agents can use, and the reasons why others cannot be used.
#[derive(Default)]
pub(crate) struct Offer {
    pub(crate) entries: Vec<Entry>,
    pub(crate) problems: Vec<Error>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
            *lock(&server.runs) = Some(task.abort_handle());
        }
        server
    }

    /// Sets the list of tools that a person has accepted. It is redacted, so that it can be compared with the server's redacted list.
    pub(crate) fn pin(&self, pinned: Option<Pinned>) {
        *lock(&self.pinned) = pinned.map(Pinned::redacted);
    }

    pub(crate) fn pinned(&self) -> Option<Pinned> {
        lock(&self.pinned).clone()
    }

    /// Returns the tools that agents can use: the accepted ones, unless the server's list has changed.
    pub(crate) fn offer(&self, file: &str) -> Offer {
        let mut offer = Offer::default();
        let pinned = self.pinned();
        let state = self.state.borrow().clone();
        match &state {
            State::Down(down) | State::Starting(Some(down)) => offer.problems.push(down.error(&self.config.name)),
            State::Ready(_) => offer.problems.extend(self.unreadable()),
            State::Idle | State::Starting(None) => {}
        }
        if let State::Ready(link) = &state
            && let Err(error) = self.is_accepted(link)
        {
            offer.problems.push(error);
            return offer;
        }
        let accepted = pinned.iter().flat_map(|list| &list.0);
        for tool in accepted.filter(|tool| self.is_wanted(tool)) {
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
        Some(Error::forbidden(message).hint(down::lines(&self.config, &files, false)?))
    }

    fn is_bridged(&self) -> bool {
        matches!(self.config.reached, Transport::Http { .. })
    }

    fn is_wanted(&self, tool: &PinnedTool) -> bool {
        let wanted = self.config.ken.tools.as_ref();
        wanted.is_none_or(|tools| tools.contains(&tool.name))
    }

    fn is_accepted(&self, link: &Link) -> Result<(), Error> {
        let name = &self.config.name;
        let listed = lock(&link.tools).clone();
        let why = match &*lock(&self.pinned) {
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

    /// Returns the catalog entry of a tool.
    fn entry(&self, tool: &PinnedTool, file: &str) -> Result<Entry, Error> {
        let own = &self.config.ken;
        let name = offered_name(&self.config.name, &tool.name);
        let left_out = |why: &str| {
            let (tool, server) = (&tool.name, &self.config.name);
            let message = format!("the tool {tool} of the MCP server {server} is left out: {why}");
            Error::invalid("", message)
        };
        if name.len() > TOOL_BYTES {
            let why = format!("its name {name} has more than {TOOL_BYTES} bytes");
            return Err(left_out(&why));
        }
        if tool.description.len() > DESCRIPTION_BYTES || tool.input_schema.to_string().len() > SCHEMA_BYTES {
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
            preview: None,
            writes: OutputFormat::Json,
            sandbox: Confinement::Touch,
            env: Vec::new(),
            secrets: Vec::new(),
            shows: None,
            ok_status: vec![0],
            tool: Tool {
                spec: ToolSpec {
                    name,
                    description: tool.description.clone(),
                    parameters: SchemaText::from(&tool.input_schema),
                },
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
            },
        })
    }

    /// Calls a tool. The error is a message for the model.
    pub(crate) async fn call(
        self: &Arc<Server>,
        tool: &str,
        arguments: &Value,
        entry: &Entry,
        outputs: &Outputs,
    ) -> Result<ToolResult, String> {
        let (name, again) = (&self.config.name, entry.tool.idempotent);
        let first = self.call_once(tool, arguments, entry, outputs).await;
        let ended = match &first {
            Err(Failed::Ended(link, _)) if again => Some(link),
            // The call has not been carried out. It is repeated in a new session, and only once.
            Err(Failed::Forgotten(link)) => Some(link),
            _ => None,
        };
        match ended {
            Some(link) => {
                self.restarted_after(link).await;
                self.call_once(tool, arguments, entry, outputs).await
            }
            None => first,
        }
        .map_err(|failed| match failed {
            Failed::Ended(_, down) => format!(
                "The MCP server {name} ended while the call was under way ({}). Whether it took effect is unknown.{}",
                down.why,
                down.quoted(name)
            ),
            Failed::Forgotten(_) => format!("The MCP server {name} has forgotten its session. The call was not made."),
            Failed::Reported(why) => why,
        })
    }

    async fn call_once(
        self: &Arc<Server>,
        tool: &str,
        arguments: &Value,
        entry: &Entry,
        outputs: &Outputs,
    ) -> Result<ToolResult, Failed> {
        let name = &self.config.name;
        let link = self.ready().await.map_err(Failed::Reported)?;
        self.is_accepted(&link).map_err(|error| Failed::Reported(format!("The call was not allowed: {error}.")))?;
        let mut params = CallToolRequestParams::new(tool.to_owned());
        params.arguments = arguments.as_object().cloned();
        match timeout(entry.timeout, link.service.call_tool_once(params)).await {
            Ok(Ok(CallToolResponse::Complete(answer))) => {
                let read = result::read(name, answer, entry.output.as_ref(), outputs);
                read.await.map_err(Failed::Reported)
            }
            Ok(Ok(_)) => {
                Err(Failed::Reported(format!("The MCP server {name} asks for something that ken does not do.")))
            }
            Ok(Err(ServiceError::McpError(error))) if self.is_bridged() && error.code.0 == SESSION_LOST => {
                Err(Failed::Forgotten(link))
            }
            Ok(Err(ServiceError::McpError(error))) => {
                let quoted = down::quote(name, head(&error.message, ERROR_BYTES)).map_err(Failed::Reported)?;
                Err(Failed::Reported(format!("The MCP server {name} refused the call.\n{quoted}")))
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
                link.check_alive();
                let seconds = entry.timeout.as_secs_f64();
                Err(Failed::Reported(format!(
                    "The MCP server {name} did not answer within {seconds} s. Whether the call took effect is unknown."
                )))
            }
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
        if lock(&self.runs).is_none() {
            self.state.send_replace(State::Idle);
            return;
        }
        let mut state = self.state.subscribe();
        let is_another = |state: &State| matches!(state, State::Ready(link) if !Arc::ptr_eq(link, ended));
        _ = timeout(START, state.wait_for(is_another)).await;
    }

    /// Whether its package has still to be fetched.
    pub(crate) fn is_fetching(&self) -> bool {
        let Transport::Stdio { command, .. } = &self.config.reached else { return false };
        matches!(Package::of(&self.config.name, command), Ok(Some(package)) if !package.is_fetched())
    }

    /// Starts the server, returns the list of its tools, and ends it.
    pub(crate) async fn list_once(&self) -> Result<Pinned, Down> {
        let link = Link::open(&self.config, &self.secrets).await?;
        let tools = lock(&link.tools).clone();
        Ok(tools)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.runs).take() {
            task.abort();
        }
    }
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
        let down = match Link::open(&config, &secrets).await {
            Ok(link) => {
                let link = Arc::new(link);
                state.send_replace(State::Ready(link.clone()));
                changed.set();
                tracing::info!(server = config.name, "the MCP server is ready");
                link.serve(&changed).await
            }
            Err(down) => down,
        };
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

/// Handles the notifications of a server.
struct Handler {
    list_changed: Arc<Notify>,
}

impl ClientHandler for Handler {
    fn get_info(&self) -> InitializeRequestParams {
        let version = env!("CARGO_PKG_VERSION");
        InitializeRequestParams::new(ClientCapabilities::default(), Implementation::new("ken", version))
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.list_changed.notify_one();
    }
}

impl Link {
    /// Starts the server and lists its tools.
    async fn open(config: &ServerConfig, secrets: &Secrets) -> Result<Link, Down> {
        let mut child = launch::command(config, secrets)
            .await?
            .spawn()
            .map_err(|error| format!("the sandbox could not be started: {error}"))?;
        let (reason, stderr) = (Reason::default(), Stderr::default());
        let (Some(stdin), Some(stdout), Some(from)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err("the sandbox has no pipes".to_owned().into());
        };
        tokio::spawn(stderr.clone().read(from));
        let handler = Handler { list_changed: Arc::default() };
        let lines = Lines::new(stdout, stdin, reason.clone());
        let opened = timeout(START, async {
            let service =
                serve_client(handler, lines).await.map_err(|error| head(&error.to_string(), ERROR_BYTES).to_owned())?;
            let tools = listed(&service).await?;
            Ok((service, tools))
        });
        let opened =
            opened.await.unwrap_or_else(|_| Err(format!("it did not name its tools within {} s", START.as_secs())));
        match opened {
            Ok((service, tools)) => Ok(Link { service, tools: Mutex::new(tools), reason, stderr, _child: child }),
            Err(why) => {
                let said = stderr.last_lines().await;
                let remedy = down::remedy(config, own_program(config), &said);
                // The words of the library for an end are no help to a person.
                let why =
                    if why.starts_with("connection closed") { "it ended before it was ready".to_owned() } else { why };
                Err(Down { why: reason.get().unwrap_or(why), said, remedy })
            }
        }
    }

    /// Monitors the server until it ends. Returns the reason for its end.
    async fn serve(self: Arc<Link>, changed: &Changed) -> Down {
        loop {
            let list_changed = &self.service.service().list_changed;
            tokio::select! {
                () = self.reason.closed() => return self.end().await,
                () = list_changed.notified() => {}
            }
            match timeout(START, listed(&self.service)).await {
                Ok(Ok(tools)) => {
                    *lock(&self.tools) = tools;
                    changed.set();
                }
                Ok(Err(why)) => self.reason.set(why),
                Err(_) => self.reason.set("it does not name its tools any more"),
            }
            if self.reason.get().is_some() {
                return self.end().await;
            }
            sleep(BETWEEN_LISTS).await;
        }
    }

    /// Cancels the open calls. The process ends with the last of them. Returns the reason for its end.
    async fn end(&self) -> Down {
        self.service.cancellation_token().cancel();
        self.end_reason().await
    }

    /// Returns the reason why the server has ended.
    async fn end_reason(&self) -> Down {
        let said = self.stderr.last_lines().await;
        Down { why: self.reason.get().unwrap_or_else(|| "it has ended".to_owned()), said, remedy: None }
    }

    /// Sends a ping, and ends the server if there is no response.
    fn check_alive(self: &Arc<Link>) {
        let link = self.clone();
        tokio::spawn(async move {
            let ping = ClientRequest::PingRequest(PingRequest::default());
            let answered = timeout(PING, link.service.send_request(ping)).await;
            if !matches!(answered, Ok(Ok(_) | Err(ServiceError::McpError(_)))) {
                link.reason.set("it does not answer any more");
                link.reason.close();
            }
        });
    }
}

/// Returns the program of the server itself, unless `npx` or `uvx` starts it, whose files it can use.
fn own_program(config: &ServerConfig) -> Option<&str> {
    let Transport::Stdio { command, .. } = &config.reached else { return None };
    let is_launched = matches!(Package::of(&config.name, command), Ok(Some(_)));
    command.first().map(String::as_str).filter(|_| !is_launched)
}

/// Returns all tools of a server, sorted by name.
async fn listed(service: &RunningService<RoleClient, Handler>) -> Result<Pinned, String> {
    let mut tools = Vec::new();
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        let params = PaginatedRequestParams::default().with_cursor(cursor.take());
        let page = service
            .list_tools(Some(params))
            .await
            .map_err(|error| format!("it does not name its tools: {}", head(&error.to_string(), ERROR_BYTES)))?;
        tools.extend(page.tools.into_iter().map(|tool| {
            let hint = |hint: fn(&rmcp::model::ToolAnnotations) -> Option<bool>| {
                tool.annotations.as_ref().and_then(hint).unwrap_or(false)
            };
            PinnedTool {
                read_only: hint(|said| said.read_only_hint),
                idempotent: hint(|said| said.idempotent_hint),
                name: tool.name.to_string(),
                description: tool.description.as_deref().unwrap_or_default().to_owned(),
                input_schema: Value::Object((*tool.input_schema).clone()),
                output_schema: tool.output_schema.as_deref().cloned().map_or(Value::Null, Value::Object),
            }
        }));
        if tools.len() > MAX_TOOLS {
            return Err(format!("it has more than {MAX_TOOLS} tools"));
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            tools.sort_by(|one: &PinnedTool, other| one.name.cmp(&other.name));
            return Ok(Pinned(tools));
        }
    }
    Err(format!("it names its tools on more than {MAX_PAGES} pages"))
}
