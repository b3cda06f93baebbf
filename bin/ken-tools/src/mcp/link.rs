//! The connection to a running server: starts it, reads what it offers, and sends it requests.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use ken_text::head;
use ken_types::ops::tools::{ToolProgress, ToolsCall};
use ken_wire::Context;
use parking_lot::Mutex;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotification, CancelledNotificationParam,
    ClientCapabilities, ClientRequest, ElicitRequestParams, ElicitResult, ErrorCode, ErrorData, Implementation,
    InitializeRequestParams, PingRequest, ProgressNotificationParam, ProgressToken, ProtocolVersion, RequestId,
    ServerCapabilities, ServerResult,
};
use rmcp::service::{
    NotificationContext, PeerRequestOptions, RequestContext, RunningService, ServiceError, serve_client,
};
use rmcp::{ClientHandler, Peer, RoleClient};
use serde_json::Value;
use tokio::process::Child;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::accepted::Kind;
use super::config::ServerConfig;
use super::down::{self, Down, ERROR_BYTES};
use super::launch::{self, Secrets};
use super::offers::{self, ToolList};
use super::package::Package;
use super::stderr::Stderr;
use super::transport::{Lines, Reason};

/// The time limit for a server to start and list its tools.
pub(super) const START: Duration = Duration::from_secs(30);
/// The timeout of a ping to a server that did not respond to a call.
const PING: Duration = Duration::from_secs(5);
/// The minimum time between two reports on how far a call has come.
const BETWEEN_REPORTS: Duration = Duration::from_secs(1);
/// The maximum number of reports that are kept until they are told. More calls than this do not run at the same time.
const MAX_REPORTED: usize = 64;
/// The maximum length of the text in a report, in bytes.
const MAX_REPORT_BYTES: usize = 200;

/// The caller that is told how far a call has come, if it listens.
pub(crate) type Listener<'a> = Option<&'a Context<ToolsCall>>;

/// The connection to a running server.
pub(crate) struct Link {
    pub(super) service: RunningService<RoleClient, Handler>,
    tools: Mutex<ToolList>,
    /// The names of the tools that are wanted; `None` for all.
    wanted: Option<BTreeSet<String>>,
    pub(super) reason: Reason,
    stderr: Stderr,
    _child: Child,
}

/// Handles what a server sends of its own accord.
#[derive(Default)]
pub(super) struct Handler {
    pub(super) list_changed: Notify,
    /// How far the calls have come that have not been told yet.
    reported: Mutex<HashMap<ProgressToken, ToolProgress>>,
}

impl ClientHandler for Handler {
    /// No capability is declared. What a server may ask of a client would put its text before a person or a model unasked,
    /// so such a request is refused with an error, as the protocol says.
    fn get_info(&self) -> InitializeRequestParams {
        let own = Implementation::new("ken", env!("CARGO_PKG_VERSION"));
        // Later versions have no `initialize`.
        InitializeRequestParams::new(ClientCapabilities::default(), own)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Err(refused("elicitation/create"))
    }

    #[expect(deprecated, reason = "servers of the current version ask for it")]
    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<rmcp::model::ListRootsResult, ErrorData> {
        Err(refused("roots/list"))
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.list_changed.notify_one();
    }

    async fn on_progress(&self, said: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let finite = |number: &f64| number.is_finite();
        let text = |text: String| head(&text.replace(char::is_control, " "), MAX_REPORT_BYTES).to_owned();
        let report = ToolProgress {
            progress: Some(said.progress).filter(finite).unwrap_or_default(),
            total: said.total.filter(finite),
            message: said.message.map(text),
        };
        let mut reported = self.reported.lock();
        // Nobody takes a report that comes after the end of its call, or for a token that the server has made up. The calls that are under
        // way lose one report at most, and the next one tells more.
        if reported.len() >= MAX_REPORTED {
            reported.clear();
        }
        reported.insert(said.progress_token, report);
    }
}

fn refused(method: &str) -> ErrorData {
    let message = format!("{method}: ken has not declared this capability");
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, message, None)
}

impl Link {
    /// Starts the server and lists its tools.
    pub(super) async fn open(config: &ServerConfig, secrets: &Secrets) -> Result<Link, Down> {
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
        let wanted = config.ken.tools.clone();
        let lines = Lines::new(stdout, stdin, reason.clone());
        let opened = timeout(START, async {
            let service = serve_client(Handler::default(), lines).await;
            let service = service.map_err(|error| head(&error.to_string(), ERROR_BYTES).to_owned())?;
            let tools = offers::tools(&service, &capabilities(&service), wanted.as_ref()).await?;
            Ok((service, tools))
        });
        let opened =
            opened.await.unwrap_or_else(|_| Err(format!("it did not name its tools within {} s", START.as_secs())));
        match opened {
            Ok((service, tools)) => {
                Ok(Link { service, tools: Mutex::new(tools), wanted, reason, stderr, _child: child })
            }
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

    pub(super) fn tools(&self) -> ToolList {
        self.tools.lock().clone()
    }

    pub(super) fn capabilities(&self) -> ServerCapabilities {
        capabilities(&self.service)
    }

    /// Lists the tools again, after the server has said that they have changed.
    pub(super) async fn list_again(&self) {
        match timeout(START, offers::tools(&self.service, &self.capabilities(), self.wanted.as_ref())).await {
            Ok(Ok(tools)) => *self.tools.lock() = tools,
            Ok(Err(why)) => self.reason.set(why),
            Err(_) => self.reason.set("it does not name its tools any more"),
        }
    }

    /// Calls a tool of the server, or reads for the model what else it offers.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: &Value,
        listener: Listener<'_>,
    ) -> Result<CallToolResult, ServiceError> {
        let kind = self.tools.lock().tools.0.iter().find(|known| known.name == tool).map(|known| known.kind);
        match kind.unwrap_or_default() {
            Kind::Tool => self.call_tool(tool, arguments, listener).await,
            Kind::ListResources => offers::list_resources(&self.service).await,
            Kind::ReadResource => offers::read_resource(&self.service, arguments).await,
        }
    }

    async fn call_tool(
        &self,
        tool: &str,
        arguments: &Value,
        listener: Listener<'_>,
    ) -> Result<CallToolResult, ServiceError> {
        let mut params = CallToolRequestParams::new(tool.to_owned());
        params.arguments = arguments.as_object().cloned();
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let request = self.service.send_cancellable_request(request, PeerRequestOptions::no_options()).await?;
        let open = OpenRequest::of(self, request.id.clone(), request.progress_token.clone());
        let answer = request.await_response();
        tokio::pin!(answer);
        let mut report = interval(BETWEEN_REPORTS);
        report.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let answer = loop {
            tokio::select! {
                answer = &mut answer => break answer,
                _ = report.tick() => open.report(listener).await,
            }
        };
        open.end();
        match answer? {
            ServerResult::CallToolResult(result) => Ok(result),
            _ => Err(ServiceError::UnexpectedResponse),
        }
    }

    /// Cancels the open calls. The process ends with the last of them. Returns the reason for its end.
    pub(super) async fn end(&self) -> Down {
        self.service.cancellation_token().cancel();
        self.end_reason().await
    }

    /// Returns the reason why the server has ended.
    pub(super) async fn end_reason(&self) -> Down {
        let said = self.stderr.last_lines().await;
        Down { why: self.reason.get().unwrap_or_else(|| "it has ended".to_owned()), said, remedy: None }
    }

    /// Sends a ping. Ends the server if there is no response.
    pub(super) async fn check_alive(&self) {
        let ping = ClientRequest::PingRequest(PingRequest::default());
        let answered = timeout(PING, self.service.send_request(ping)).await;
        if !matches!(answered, Ok(Ok(_) | Err(ServiceError::McpError(_)))) {
            self.reason.set("it does not answer any more");
            self.reason.close();
        }
    }
}

fn capabilities(service: &RunningService<RoleClient, Handler>) -> ServerCapabilities {
    service.peer_info().map(|info| info.capabilities.clone()).unwrap_or_default()
}

/// A call that the server has not answered. When it is dropped because nobody waits any more, the server is told.
struct OpenRequest<'a> {
    link: &'a Link,
    id: Option<RequestId>,
    token: ProgressToken,
}

impl OpenRequest<'_> {
    fn of(link: &Link, id: RequestId, token: ProgressToken) -> OpenRequest<'_> {
        OpenRequest { link, id: Some(id), token }
    }

    /// Tells the caller the last that the server has said of the call, if that is new.
    async fn report(&self, listener: Listener<'_>) {
        let report = self.link.service.service().reported.lock().remove(&self.token);
        if let (Some(listener), Some(report)) = (listener, report) {
            // A caller that is gone drops the call as well.
            _ = listener.item(&report).await;
        }
    }

    /// The server has answered, so that there is nothing to cancel.
    fn end(mut self) {
        self.id = None;
    }
}

impl Drop for OpenRequest<'_> {
    fn drop(&mut self) {
        self.link.service.service().reported.lock().remove(&self.token);
        // Without a runtime the process is about to end, and the server with it.
        if let (Some(id), Ok(runtime)) = (self.id.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(cancel(self.link.service.peer().clone(), id));
        }
    }
}

async fn cancel(peer: Peer<RoleClient>, id: RequestId) {
    let params = CancelledNotificationParam::new(Some(id), Some("nobody waits for the answer any more".to_owned()));
    _ = peer.send_notification(CancelledNotification::new(params).into()).await;
}

/// Returns the program of the server itself, unless `npx` or `uvx` starts it, whose files it can use.
fn own_program(config: &ServerConfig) -> Option<&str> {
    let super::config::Transport::Stdio { command, .. } = &config.reached else { return None };
    let is_launched = matches!(Package::of(config), Ok(Some(_)));
    command.first().map(String::as_str).filter(|_| !is_launched)
}
