//! Copies messages: each line of standard input is a request to the gateway, and its answer comes back as lines.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ken_client::{Gateway, OpenResponse};
use ken_types::{Error, json};
use parking_lot::{Condvar, Mutex, MutexGuard};
use serde_json::Value;

/// The maximum number of requests that are answered at the same time. Further ones wait to be read.
const MAX_REQUESTS: usize = 64;
/// How long a request is repeated while the gateway cannot be reached.
const RETRY_TIME: Duration = Duration::from_secs(60);
const PARSE_ERROR: i64 = -32_700;
const INTERNAL_ERROR: i64 = -32_603;
const VERSION: &str = "/params/_meta/io.modelcontextprotocol~1protocolVersion";

/// What all requests of this process share.
#[derive(Debug)]
pub(crate) struct Relay {
    gateway: Gateway,
    target: String,
    /// Tells the request ids of this process from those of others.
    instance: String,
    agreed: Mutex<Agreed>,
    /// The requests that are being answered.
    open: Mutex<Vec<OpenRequest>>,
    less: Condvar,
}

#[derive(Debug)]
struct OpenRequest {
    id: Value,
    is_cancelled: bool,
}

/// What `initialize` has brought.
#[derive(Debug, Default, Clone)]
struct Agreed {
    session: Option<String>,
    version: Option<String>,
}

impl Relay {
    pub(crate) fn new(gateway: Gateway, target: String, instance: String) -> Arc<Relay> {
        let gateway = gateway.retry_for(RETRY_TIME);
        Arc::new(Relay {
            gateway,
            target,
            instance,
            agreed: Mutex::default(),
            open: Mutex::default(),
            less: Condvar::new(),
        })
    }

    /// Takes a line. Requests are answered at the same time, but the order of all others is kept.
    pub(crate) fn take(self: &Arc<Relay>, line: Vec<u8>) -> io::Result<()> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let message = match json::parse(&line, json::MAX_DEPTH) {
            Ok(message) => message,
            Err(error) => return refuse(&Value::Null, PARSE_ERROR, &format!("not JSON: {}", error.message)),
        };
        self.note_cancellation(&message);
        let is_request = message.get("id").is_some() && message.get("method").is_some();
        if !is_request || message.get("method").is_some_and(|method| method == "initialize") {
            return self.send(&line, &message);
        }
        let id = message.get("id").cloned().unwrap_or_default();
        let mut open = self.wait_while(|open| open.len() >= MAX_REQUESTS);
        open.push(OpenRequest { id: id.clone(), is_cancelled: false });
        drop(open);
        let relay = self.clone();
        std::thread::spawn(move || {
            // An error means that nobody reads standard output any more.
            _ = relay.send(&line, &message);
            let mut open = relay.open.lock();
            if let Some(own) = open.iter().position(|request| request.id == id) {
                open.swap_remove(own);
            }
            relay.less.notify_all();
        });
        Ok(())
    }

    /// Waits until all requests are answered.
    pub(crate) fn finish(&self) {
        drop(self.wait_while(|open| !open.is_empty()));
    }

    fn wait_while(&self, holds: impl Fn(&[OpenRequest]) -> bool) -> MutexGuard<'_, Vec<OpenRequest>> {
        let mut open = self.open.lock();
        while holds(&open) {
            self.less.wait(&mut open);
        }
        open
    }

    /// Notes which request the other agent has cancelled. Its answer ends without a message, and must not be asked for again.
    fn note_cancellation(&self, message: &Value) {
        if message.get("method").is_some_and(|method| method == "notifications/cancelled") {
            let id = message.pointer("/params/requestId");
            let mut open = self.open.lock();
            let cancelled = open.iter_mut().filter(|request| Some(&request.id) == id);
            cancelled.for_each(|request| request.is_cancelled = true);
        }
    }

    fn is_cancelled(&self, message: &Value) -> bool {
        let open = self.open.lock();
        open.iter().any(|request| request.is_cancelled && message.get("id") == Some(&request.id))
    }

    fn send(&self, line: &[u8], message: &Value) -> io::Result<()> {
        let id = message.get("id").filter(|id| id.is_string() || id.is_number()).cloned().unwrap_or_default();
        let headers = self.headers(message);
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut written = Ok(());
        let read = |response| self.copy(response, message, &mut written);
        let done = self.gateway.clone().exchange(&self.target, &headers, line, read);
        written?;
        match done {
            Ok(()) => Ok(()),
            Err(error) if message.get("method").is_some() && !id.is_null() => {
                refuse(&id, INTERNAL_ERROR, &said(&error))
            }
            Err(error) => io::stderr().write_all(format!("ken-mcp: {}\n", said(&error)).as_bytes()),
        }
    }

    /// The headers of a message. From 2026-07-28 on, they repeat parts of the message.
    fn headers(&self, message: &Value) -> Vec<(&'static str, String)> {
        let mut headers = vec![
            ("content-type", "application/json".to_owned()),
            ("accept", "application/json, text/event-stream".to_owned()),
            ("x-ken-mcp", self.instance.clone()),
        ];
        let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
        if let Some(version) = text(VERSION) {
            headers.push(("mcp-protocol-version", value(version)));
            headers.extend(text("/method").map(|method| ("mcp-method", value(method))));
            let name = text("/params/name").or_else(|| text("/params/uri"));
            headers.extend(name.map(|name| ("mcp-name", value(name))));
        } else {
            let Agreed { session, version } = self.agreed.lock().clone();
            headers.extend(session.map(|session| ("mcp-session-id", session)));
            headers.extend(version.map(|version| ("mcp-protocol-version", version)));
        }
        headers
    }

    /// Copies a response to standard output. Fails if it ends before the answer.
    fn copy(&self, response: OpenResponse, message: &Value, written: &mut io::Result<()>) -> Result<(), Error> {
        let status = response.status;
        if status == 202 {
            return Ok(());
        }
        let session = response.header("mcp-session-id").map(str::to_owned);
        let is_stream = response.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        for line in response.lines {
            let Ok(line) = line else { break };
            let data = if is_stream { line.strip_prefix("data:").map(str::trim).unwrap_or_default() } else { &line };
            let Some(found) = json::parse_own(data.as_bytes()).ok().filter(Value::is_object) else {
                continue;
            };
            if found.get("jsonrpc").is_none() {
                return Err(refusal(status, &found));
            }
            self.keep(message, session.as_deref(), &found);
            *written = write(&found);
            if written.is_err() || found.get("method").is_none() {
                return Ok(());
            }
        }
        if self.is_cancelled(message) {
            return Ok(());
        }
        Err(Error::unavailable(format!("the gateway answered with {status} and without a message")))
    }

    /// Keeps the session and the version that `initialize` has brought, for the headers of later messages.
    fn keep(&self, message: &Value, session: Option<&str>, found: &Value) {
        if message.get("method").is_some_and(|method| method == "initialize") {
            let version = found.pointer("/result/protocolVersion").and_then(Value::as_str);
            *self.agreed.lock() = Agreed { session: session.map(str::to_owned), version: version.map(str::to_owned) };
        }
    }
}

/// Returns the error of a response that is no message, such as that for a wrong secret.
fn refusal(status: u16, body: &Value) -> Error {
    let text = |name: &str| body.get(name).and_then(Value::as_str).map(str::to_owned);
    let message = text("error").unwrap_or_else(|| format!("the gateway answered with {status}"));
    let error = match status {
        429 | 503 => Error::unavailable(message),
        401 => Error::forbidden(message).hint("give the gateway's API_SECRET in KEN_API_SECRET or with --secret-file"),
        _ => Error::forbidden(message),
    };
    Error { hint: text("hint").or(error.hint), ..error }
}

fn said(error: &Error) -> String {
    match &error.hint {
        Some(hint) => format!("{} ({hint})", error.message),
        None => error.message.clone(),
    }
}

/// Returns text as the value of a header; what a header cannot have, in base64 as the protocol says.
fn value(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) && text.trim() == text;
    if is_plain && !text.starts_with("=?base64?") {
        text.to_owned()
    } else {
        format!("=?base64?{}?=", STANDARD.encode(text))
    }
}

/// Writes the error of a message that the gateway never got.
pub(crate) fn refuse(id: &Value, code: i64, message: &str) -> io::Result<()> {
    write(&serde_json::json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}))
}

fn write(message: &Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(format!("{message}\n").as_bytes())?;
    out.flush()
}
