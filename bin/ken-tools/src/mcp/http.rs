//! `ken-tools bridge`: connects standard input and output, with one message per line, to a server that uses streamable
//! HTTP. It runs in a sandbox with network access, which ken-tools itself does not have. It gets the address and the
//! headers as secrets, because they can contain keys.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Cursor, ErrorKind, Read, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ken_types::sse::Parser;
use ken_types::{Error, json};
use parking_lot::Mutex;
use serde_json::{Value, json};
use ureq::http::{Response, StatusCode};
use ureq::tls::TlsConfig;
use ureq::{Agent, Body, RequestBuilder, SendBody, Timeout};

use super::transport::MAX_LINE_BYTES;
use crate::reach;

/// The names of the secrets with the address, and with the headers as a JSON object.
pub(crate) const URL: &str = "KEN_MCP_URL";
pub(crate) const HEADERS: &str = "KEN_MCP_HEADERS";

/// The code of the error in place of the answer to a request that the server has refused because it has forgotten the
/// session. Such a request has not been carried out. The bridge alone says this code and the next two: what a server says
/// with one of them gets another.
pub(crate) const SESSION_LOST: i32 = -32_900;
/// The code of the error of a request that may have reached the server, which has not answered as it should.
pub(crate) const OUTCOME_UNKNOWN: i32 = -32_901;
/// The code of the error of a request that was not sent. Nothing in its message comes from the server.
pub(crate) const UNSENT: i32 = -32_902;
/// The code of the error of a request that was not carried out.
const FAILED: i32 = -32_000;
const FORGOTTEN: &str = "the server has forgotten the session";

const CONNECT: Duration = Duration::from_secs(10);
/// The pause before the stream of the server's own messages is opened again.
const PAUSE: Duration = Duration::from_secs(5);
/// The maximum size of an error response that is passed on, in bytes. ken-tools redacts it and shows far less of it, so
/// a secret that is cut off here is never partly shown.
const MAX_ERROR_BYTES: u64 = 64 * 1024;

/// Passes messages on until standard input ends or the session is lost. After that, ken-tools starts the bridge again.
pub(crate) fn bridge() -> ExitCode {
    let ended =
        ken_service::inherit_secrets().and_then(|()| Bridge::open()).and_then(|bridge| Arc::new(bridge).relay_input());
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            _ = writeln!(std::io::stderr(), "{error}");
            ExitCode::from(error.code.exit_status())
        }
    }
}

struct Bridge {
    agent: Agent,
    url: String,
    headers: BTreeMap<String, String>,
    session: Mutex<Session>,
}

/// The values that the server set in its response to `initialize`.
#[derive(Debug, Clone, Default)]
struct Session {
    id: Option<String>,
    version: Option<String>,
}

impl Bridge {
    fn open() -> Result<Bridge, Error> {
        let missing = |name: &str| Error::invalid(name, "not set: ken-tools starts this, for a server in mcp.json");
        let url = ken_service::secret(URL).ok_or_else(|| missing(URL))?;
        let headers = ken_service::secret(HEADERS).ok_or_else(|| missing(HEADERS))?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("ken/", env!("CARGO_PKG_VERSION")))
            .timeout_resolve(Some(ken_tls::RESOLVE_TIMEOUT))
            .timeout_connect(Some(CONNECT))
            .proxy(ken_tls::proxy(&url, &|name| ken_service::secret(name))?)
            .tls_config(TlsConfig::builder().root_certs(ken_tls::roots()?).build());
        Ok(Bridge {
            agent: config.build().into(),
            url,
            headers: json::from_value(json::parse(headers.as_bytes(), 2)?)?,
            session: Mutex::default(),
        })
    }

    fn relay_input(self: Arc<Bridge>) -> Result<(), Error> {
        for line in std::io::stdin().lock().lines() {
            let line = line.map_err(|error| Error::internal(format!("standard input: {error}")))?;
            let message = json::parse(line.as_bytes(), json::MAX_DEPTH)?;
            let method = message.get("method").and_then(Value::as_str);
            let bridge = self.clone();
            match method {
                // This message is sent synchronously, because later ones need the session that the server sets in its
                // response.
                Some("initialize") => bridge.send(&message)?,
                Some("notifications/initialized") => {
                    bridge.send(&message)?;
                    std::thread::spawn(move || bridge.listen());
                }
                // Other messages are sent in threads, so that a long call delays neither other calls nor its own
                // cancellation.
                _ => drop(std::thread::spawn(move || {
                    if let Err(error) = bridge.send(&message) {
                        _ = writeln!(std::io::stderr(), "{error}");
                        // The next process begins a new session.
                        bridge.leave();
                    }
                })),
            }
        }
        if self.session.lock().id.is_some() {
            _ = self.with_headers(self.agent.delete(&self.url)).call();
        }
        Ok(())
    }

    /// Ends the process. It has no state that must be saved.
    fn leave(&self) {
        _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGTERM);
    }

    fn with_headers<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        let session = self.session.lock().clone();
        let mut request = request.header("accept", "application/json, text/event-stream");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        for (name, value) in [("mcp-session-id", session.id), ("mcp-protocol-version", session.version)] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        request
    }

    /// The host of the server, and the proxy that leads to it.
    fn host(&self) -> String {
        let host = reach::host_of(&self.url).unwrap_or_default();
        match self.agent.config().proxy() {
            Some(proxy) => format!("{host}, behind the proxy {},", ken_tls::address(proxy)),
            None => host,
        }
    }

    /// Whether the server has forgotten the session of a request that it answered with `status`. It should answer 404, but
    /// many answer 400, which can also mean that the request is wrong. A ping is never wrong.
    fn has_lost_session(&self, status: StatusCode) -> bool {
        let is_refused = |status| matches!(status, StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST);
        let ping = || {
            let ping = json!({"jsonrpc": "2.0", "id": "session", "method": "ping"});
            let request = self.with_headers(self.agent.post(&self.url)).header("content-type", "application/json");
            request.send(ping.to_string()).is_ok_and(|response| is_refused(response.status()))
        };
        self.session.lock().id.is_some() && is_refused(status) && (status == StatusCode::NOT_FOUND || ping())
    }

    /// Sends a message and prints the response. If the server does not respond to a request, an error is printed in its
    /// place. Fails if the session is lost, and if a new process could reach the server where this one cannot.
    fn send(&self, message: &Value) -> Result<(), Error> {
        let has_session = self.session.lock().id.is_some();
        let id = message.get("method").and_then(|_| message.get("id"));
        let request = self.with_headers(self.agent.post(&self.url));
        let request = request.header("content-type", "application/json");
        let text = message.to_string();
        let request = request.header("content-length", text.len().to_string());
        let mut body = Unread { text: Cursor::new(text), is_begun: false };
        let mut response = match request.send(SendBody::from_reader(&mut body)) {
            Ok(response) => response,
            Err(error) if !body.is_begun => {
                let host = self.host();
                let why = format!("the server at {host} cannot be reached: {}", reason(&error));
                self.fail_with(UNSENT, id, &why)?;
                // The first message is the one by which a new process would find the same.
                let is_first = message.get("method").and_then(Value::as_str) == Some("initialize");
                return if is_first || is_of_server(&error) {
                    Ok(())
                } else {
                    Err(Error::unavailable(format!("{host} cannot be reached: {error}")))
                };
            }
            Err(error) => return self.fail_with(OUTCOME_UNKNOWN, id, &format!("the server did not answer: {error}")),
        };
        if has_session && self.has_lost_session(response.status()) {
            self.fail_with(SESSION_LOST, id, FORGOTTEN)?;
            return Err(Error::not_found(FORGOTTEN));
        }
        if let Some(target) = redirection(&response) {
            let why = format!(
                "the server answers {}: it is at {target} now; if that is right, put this address into `url` of its entry in mcp.json",
                response.status()
            );
            return self.fail_with(FAILED, id, &why);
        }
        if !response.status().is_success() {
            let mut body = String::new();
            let reader = response.body_mut().as_reader();
            _ = reader.take(MAX_ERROR_BYTES).read_to_string(&mut body);
            let why = format!("the server answers {}: {}", response.status(), body.trim());
            // A proxy may have passed the request on before it failed.
            let code = if response.status().is_server_error() { OUTCOME_UNKNOWN } else { FAILED };
            return self.fail_with(code, id, &why);
        }
        if let Some(set) = header(&response, "mcp-session-id").filter(|_| !has_session) {
            self.session.lock().id = Some(set.to_owned());
        }
        match self.print(response, id) {
            Ok(true) => Ok(()),
            Ok(false) => self.fail_with(OUTCOME_UNKNOWN, id, "the server ended its answer before it was whole"),
            Err(error) => self.fail_with(OUTCOME_UNKNOWN, id, &error.message),
        }
    }

    /// Prints the server's own messages, if it offers a stream for them.
    fn listen(&self) {
        let mut was_offered = false;
        loop {
            match self.with_headers(self.agent.get(&self.url)).call() {
                Ok(response) if response.status().is_success() => {
                    was_offered = true;
                    _ = self.print(response, None);
                }
                // A server that was restarted is noticed here, before the next call.
                Ok(response) if was_offered && self.has_lost_session(response.status()) => {
                    _ = writeln!(std::io::stderr(), "{FORGOTTEN}");
                    return self.leave();
                }
                // The server offers no such stream.
                Ok(_) => return,
                Err(_) => {}
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Prints the messages of a body. Returns whether the response to the request is among them, or true if there is no
    /// request.
    fn print(&self, response: Response<Body>, id: Option<&Value>) -> Result<bool, Error> {
        let kind = header(&response, "content-type").unwrap_or_default();
        let is_stream = kind.starts_with("text/event-stream");
        let broke_off = |error: std::io::Error| Error::unavailable(format!("the answer broke off: {error}"));
        let mut reader = response.into_body().into_reader();
        let mut answered = id.is_none();
        if !is_stream {
            let mut text = Vec::new();
            let read = reader.take(MAX_LINE_BYTES as u64 + 1).read_to_end(&mut text);
            read.map_err(broke_off)?;
            if !text.trim_ascii().is_empty() {
                answered |= self.print_text(&text, id)?;
            }
            return Ok(answered);
        }
        let (mut parser, mut buffer) = (Parser::default(), [0; 16 * 1024]);
        loop {
            let read = reader.read(&mut buffer).map_err(broke_off)?;
            let chunk = buffer.get(..read).unwrap_or_default();
            for event in parser.push(chunk)? {
                if !event.data.is_empty() {
                    answered |= self.print_text(event.data.as_bytes(), id)?;
                }
            }
            if read == 0 {
                return Ok(answered);
            }
        }
    }

    /// Prints a message, or several in an array. Returns whether the response to the request is among them.
    fn print_text(&self, text: &[u8], id: Option<&Value>) -> Result<bool, Error> {
        if text.len() > MAX_LINE_BYTES {
            let message = format!("the server sent a message of more than {MAX_LINE_BYTES} bytes");
            return Err(Error::too_large(message));
        }
        let broken = |error: Error| Error::invalid("", format!("the server sent broken JSON: {}", error.message));
        let messages = match json::parse_output(text, json::MAX_DEPTH).map_err(broken)? {
            Value::Array(messages) => messages,
            message => vec![message],
        };
        let mut answered = false;
        // A batch in a batch is left out: as a line of its own its messages would be read, without a look at them here.
        for message in messages.into_iter().filter(Value::is_object) {
            if let Some(version) = message.pointer("/result/protocolVersion").and_then(Value::as_str) {
                self.session.lock().version = Some(version.to_owned());
            }
            answered |= id.is_some() && message.get("method").is_none() && message.get("id") == id;
            self.put_of_server(message)?;
        }
        Ok(answered)
    }

    /// Prints a message of the server. An error of its own never means what the codes of the bridge mean, for instance that a
    /// call was not carried out and can be repeated.
    fn put_of_server(&self, mut message: Value) -> Result<(), Error> {
        let own = [SESSION_LOST, OUTCOME_UNKNOWN, UNSENT].map(|code| Some(f64::from(code)));
        if let Some(code) = message.pointer_mut("/error/code").filter(|code| own.contains(&code.as_f64())) {
            *code = FAILED.into();
        }
        self.put(&message)
    }

    /// Prints an error as the response to a request. Without a request, it is printed on standard error.
    fn fail_with(&self, code: i32, id: Option<&Value>, why: &str) -> Result<(), Error> {
        match id {
            Some(id) => self.put(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": why}})),
            None => {
                _ = writeln!(std::io::stderr(), "{why}");
                Ok(())
            }
        }
    }

    fn put(&self, message: &Value) -> Result<(), Error> {
        let mut out = std::io::stdout().lock();
        let line = format!("{message}\n");
        let put = out.write_all(line.as_bytes()).and_then(|()| out.flush());
        put.map_err(|error| Error::cancelled(format!("standard output: {error}")))
    }
}

/// The body of a request, of which nobody has read a byte before there is a connection.
struct Unread {
    text: Cursor<String>,
    is_begun: bool,
}

impl Read for Unread {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.is_begun = true;
        self.text.read(to)
    }
}

/// Why there was no connection, without words of the server: those of TLS can contain the names in its certificate.
fn reason(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Timeout(Timeout::Resolve) => "no name server answers".to_owned(),
        ureq::Error::Timeout(_) => "it does not accept connections".to_owned(),
        ureq::Error::HostNotFound => "it has no address".to_owned(),
        ureq::Error::ConnectProxyFailed(_) => "the proxy refuses".to_owned(),
        ureq::Error::BadUri(_) => "this is not an http or https address".to_owned(),
        ureq::Error::Io(error) if is_of_system(error) => error.to_string(),
        _ => "there is no secure connection with it".to_owned(),
    }
}

/// Whether the error is one of the kernel, or of a look-up. Those of TLS have other kinds.
fn is_of_system(error: &io::Error) -> bool {
    let is_of_tls = matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof | ErrorKind::Other);
    error.raw_os_error().is_some() || !is_of_tls
}

/// Whether it is the server that takes no connection. Otherwise its name or the name servers may have changed, and this process may
/// reach only the addresses that were known when it started.
fn is_of_server(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Io(error) => error.kind() == ErrorKind::ConnectionRefused,
        error => matches!(error, ureq::Error::Timeout(Timeout::Connect) | ureq::Error::ConnectProxyFailed(_)),
    }
}

/// Returns where a redirection leads, without the parts of the address that can be secret.
fn redirection(response: &Response<Body>) -> Option<String> {
    let target = header(response, "location").filter(|_| response.status().is_redirection())?;
    let is_whole = target.contains("://");
    Some(if is_whole { reach::without_secrets(target) } else { target.split(['?', '#']).next()?.to_owned() })
}

fn header<'a>(response: &'a Response<Body>, name: &str) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}
