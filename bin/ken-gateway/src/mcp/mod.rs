//! The server of the Model Context Protocol: tools, knowledge, questions and skills for other agents, over streamable HTTP. `ken-mcp`
//! copies the lines of its standard streams to it. See ken-mcp(1).
//!
//! What a person decides is not offered: approvals, schedules, what ken knows, its configuration and its parts. Nor are the tools
//! that touch anything.

mod answer;
mod client;
mod message;
mod prompts;
mod repeat;
mod resources;
pub(crate) mod state;
mod tools;
mod version;
mod work;

use std::sync::Arc;

use ken_http::http::StatusCode;
use ken_http::http::header::{ALLOW, HeaderValue};
use ken_http::{Failure, Request, Response};
use ken_types::Code;
use serde_json::{Map, Value, json};

use crate::app::Gateway;
use client::{Client, SESSION};
use message::{Call, METHOD_NOT_FOUND, Message, RpcError, reply};
use version::OWN_NAME;

const INSTRUCTIONS: &str = "ken is the agent of this machine. knowledge_search finds what it knows; ask_ken gives it a question or a \
                            task; the other tools reason and judge texts by fixed rules, without a model.";

/// POST /mcp
pub(crate) async fn post(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let bytes = request.body().await?;
    let call = match message::read(&bytes) {
        Ok(Message::Request(call)) => call,
        Ok(Message::Notification { method, params }) => return notified(&gateway, &request, &method, &params),
        Ok(Message::Response) => return Ok(Response::empty(202)),
        Err((id, error)) => return error.response(&id),
    };
    let id = call.id.clone();
    match answer(gateway, &request, call).await? {
        Ok(response) => Ok(response),
        Err(error) => error.response(&id),
    }
}

/// GET /mcp: the rest of an answer that broke off. This server sends nothing of its own accord.
pub(crate) async fn get(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let Some(event) = request.header("last-event-id").map(str::to_owned) else {
        let message = "a client posts its messages; GET only resumes an answer, with Last-Event-ID";
        let failure = Failure::new(StatusCode::METHOD_NOT_ALLOWED, Code::Invalid, message);
        return Err(failure.header(ALLOW, HeaderValue::from_static("POST")));
    };
    let mut client = Client::of(&request, None, false)?;
    match client.check_session(&gateway) {
        Ok(()) => answer::resume(gateway, &request, client, &event),
        Err(error) => error.response(&Value::Null),
    }
}

/// Takes a notification. Only the cancellation of a call has an effect.
fn notified(
    gateway: &Gateway,
    request: &Request,
    method: &str,
    params: &Map<String, Value>,
) -> Result<Response, Failure> {
    if method == "notifications/cancelled"
        && let Some(id) = params.get("requestId")
    {
        // The notification itself does not say of which kind its client is.
        for modern in [false, true] {
            if let Some(name) = Client::of(request, None, modern)?.request_name(id) {
                gateway.mcp_running.cancel(&name);
            }
        }
    }
    Ok(Response::empty(202))
}

/// Answers a request. The inner error is a reply of the protocol.
async fn answer(gateway: Arc<Gateway>, request: &Request, call: Call) -> Result<Result<Response, RpcError>, Failure> {
    let checked = version::check_loop(request, &call).and_then(|()| version::is_modern(request, &call));
    let modern = match checked {
        Ok(modern) => modern,
        Err(error) => return Ok(Err(error)),
    };
    let mut client = Client::of(request, Some(&call), modern)?;
    if call.method == "initialize" {
        return initialize(&gateway, &client, &call).map(Ok);
    }
    if !modern {
        let checked = version::check_legacy(request).and_then(|()| client.check_session(&gateway));
        if let Err(error) = checked {
            return Ok(Err(error));
        }
    }
    let tool = call.params.get("name").and_then(Value::as_str).unwrap_or_default();
    if call.method == "tools/call" && work::is_long(tool) {
        return answer::long(gateway, request, client, call).await.map(Ok);
    }
    match short(&gateway, &client, &call).await {
        Ok(result) => Response::json(200, &reply(&call.id, stamped(&client, result))).map(Ok),
        Err(error) => Ok(Err(error)),
    }
}

fn initialize(gateway: &Gateway, client: &Client, call: &Call) -> Result<Response, Failure> {
    let requested = call.params.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
    let result = json!({
        "protocolVersion": version::negotiated(requested),
        "capabilities": capabilities(gateway),
        "serverInfo": server_info(),
        "instructions": INSTRUCTIONS,
    });
    let response = Response::json(200, &reply(&call.id, result))?;
    response.text_header(SESSION, &client.new_session(gateway)?)
}

fn capabilities(gateway: &Gateway) -> Value {
    if gateway.mcp_transcripts {
        json!({"tools": {}, "prompts": {}, "resources": {}})
    } else {
        json!({"tools": {}, "prompts": {}})
    }
}

fn server_info() -> Value {
    json!({"name": OWN_NAME, "title": "ken", "version": env!("CARGO_PKG_VERSION")})
}

async fn short(gateway: &Gateway, client: &Client, call: &Call) -> Result<Value, RpcError> {
    match call.method.as_str() {
        "server/discover" if client.modern => Ok(cached(client, discovered(gateway))),
        "ping" if !client.modern => Ok(json!({})),
        "tools/list" => Ok(cached(client, tools::list(gateway).await)),
        "tools/call" => tools::call(gateway, client, call).await,
        "prompts/list" => prompts::list(gateway).await.map(|list| cached(client, list)),
        "prompts/get" => prompts::get(gateway, call).await,
        "resources/list" if gateway.mcp_transcripts => {
            resources::list(gateway, client, call).await.map(|list| cached(client, list))
        }
        "resources/templates/list" if gateway.mcp_transcripts => Ok(cached(client, json!({"resourceTemplates": []}))),
        "resources/read" if gateway.mcp_transcripts => {
            resources::read(gateway, client, call).await.map(|read| cached(client, read))
        }
        other => {
            let status = if client.modern { 404 } else { 200 };
            Err(RpcError::new(METHOD_NOT_FOUND, format!("there is no method `{other}`")).status(status))
        }
    }
}

fn discovered(gateway: &Gateway) -> Value {
    json!({"supportedVersions": version::supported(), "capabilities": capabilities(gateway), "instructions": INSTRUCTIONS})
}

/// Adds how long a list may be kept, which the version without sessions requires. A skill or a tool can change at any time.
fn cached(client: &Client, mut result: Value) -> Value {
    if client.modern {
        result["ttlMs"] = 0.into();
        result["cacheScope"] = "private".into();
    }
    result
}

/// Adds what each result of the version without sessions has.
fn stamped(client: &Client, mut result: Value) -> Value {
    if client.modern {
        result["resultType"] = "complete".into();
        result["_meta"] = json!({"io.modelcontextprotocol/serverInfo": server_info()});
    }
    result
}
