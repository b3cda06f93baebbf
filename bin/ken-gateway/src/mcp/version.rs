//! The versions of the protocol. Up to 2025-11-25 a client begins with `initialize` and has a session; from 2026-07-28 on each
//! request says in `_meta` what it needs to be understood, and there are no sessions. Both are served at one address.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ken_http::Request;
use serde_json::{Map, Value, json};

use super::message::{Call, INVALID_PARAMS, INVALID_REQUEST, RpcError};

/// The version without sessions.
pub(super) const MODERN: &str = "2026-07-28";
/// The versions with `initialize`, newest first.
const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
const HEADER_MISMATCH: i64 = -32_020;
const UNSUPPORTED_VERSION: i64 = -32_022;
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const CLIENT_KEY: &str = "io.modelcontextprotocol/clientInfo";

/// All versions, newest first.
pub(super) fn supported() -> Vec<&'static str> {
    std::iter::once(MODERN).chain(LEGACY).collect()
}

/// Returns the version that `initialize` agrees on: the requested one, else the newest that has `initialize`.
pub(super) fn negotiated(requested: &str) -> &'static str {
    LEGACY.into_iter().find(|version| *version == requested).unwrap_or(LEGACY[0])
}

/// Whether a client of this version can resume an answer that broke off. Earlier ones may fail on an event without data.
pub(super) fn resumes(request: &Request) -> bool {
    header(request) == Some(LEGACY[0])
}

fn header(request: &Request) -> Option<&str> {
    request.header("mcp-protocol-version")
}

/// Returns the name that a client gives itself, in `_meta` or in the parameters of `initialize`.
pub(super) fn client_name(call: &Call) -> Option<&str> {
    let info = match call.method.as_str() {
        "initialize" => call.params.get("clientInfo"),
        _ => meta(call).and_then(|meta| meta.get(CLIENT_KEY)),
    };
    info?.get("name")?.as_str()
}

fn meta(call: &Call) -> Option<&Map<String, Value>> {
    call.params.get("_meta").and_then(Value::as_object)
}

/// Whether a request is one without a session. The error says what is wrong with its version or its headers.
pub(super) fn is_modern(request: &Request, call: &Call) -> Result<bool, RpcError> {
    if call.method == "initialize" {
        return Ok(false);
    }
    let (header, inline) = (header(request), meta(call).and_then(|meta| meta.get(VERSION_KEY)?.as_str()));
    match inline.or(header) {
        Some(version) if LEGACY.contains(&version) => return Ok(false),
        None if call.method != "server/discover" => return Ok(false),
        _ => {}
    }
    let Some(inline) = inline else {
        return Err(RpcError::new(INVALID_PARAMS, format!("_meta has no {VERSION_KEY}")).status(400));
    };
    if header != Some(inline) {
        return Err(mismatch("MCP-Protocol-Version", header, inline));
    }
    if inline != MODERN {
        return Err(unsupported(inline));
    }
    check_metadata(request, call)?;
    Ok(true)
}

/// Checks the version that a client with a session names in a header.
pub(super) fn check_legacy(request: &Request) -> Result<(), RpcError> {
    match header(request) {
        Some(version) if version != MODERN && !LEGACY.contains(&version) => Err(unsupported(version)),
        _ => Ok(()),
    }
}

fn unsupported(requested: &str) -> RpcError {
    let data = json!({"supported": supported(), "requested": requested});
    RpcError::new(UNSUPPORTED_VERSION, "Unsupported protocol version").data(data).status(400)
}

fn check_metadata(request: &Request, call: &Call) -> Result<(), RpcError> {
    if !meta(call).is_some_and(|meta| meta.get(CAPABILITIES_KEY).is_some_and(Value::is_object)) {
        let message = format!("_meta has no {CAPABILITIES_KEY}, an object");
        return Err(RpcError::new(INVALID_PARAMS, message).status(400));
    }
    let method = request.header("mcp-method");
    if method != Some(call.method.as_str()) {
        return Err(mismatch("Mcp-Method", method, &call.method));
    }
    let field = match call.method.as_str() {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        _ => return Ok(()),
    };
    let (given, name) = (request.header("mcp-name"), call.params.get(field).and_then(Value::as_str));
    let name = name.ok_or_else(|| RpcError::new(INVALID_PARAMS, format!("params has no {field}, a string")))?;
    if given.and_then(decoded).as_deref() != Some(name) {
        return Err(mismatch("Mcp-Name", given, name));
    }
    Ok(())
}

/// Decodes the value of a header. Text that a header cannot have is sent as `=?base64?…?=`.
fn decoded(value: &str) -> Option<String> {
    match value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        Some(coded) => String::from_utf8(STANDARD.decode(coded).ok()?).ok(),
        None => Some(value.to_owned()),
    }
}

fn mismatch(name: &str, given: Option<&str>, body: &str) -> RpcError {
    let given = given.map_or_else(|| "is missing".to_owned(), |given| format!("is {given:?}"));
    RpcError::new(HEADER_MISMATCH, format!("the header {name} {given}, and the body says {body:?}")).status(400)
}

/// The refusal of a call that ken's own client of MCP servers makes. ken would ask itself, without an end.
pub(super) fn check_loop(request: &Request, call: &Call) -> Result<(), RpcError> {
    let is_own_agent = request.header("user-agent").is_some_and(|agent| agent.starts_with("ken/"));
    if is_own_agent || client_name(call) == Some(OWN_NAME) {
        let message = "ken's own client has called ken, which would ask itself: remove this server from tools.d of ken";
        return Err(RpcError::new(INVALID_REQUEST, message).status(403));
    }
    Ok(())
}

/// The name of this server, and that of ken as a client of others.
pub(super) const OWN_NAME: &str = "ken";
