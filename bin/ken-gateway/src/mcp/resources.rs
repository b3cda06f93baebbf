//! What was said to ken as resources, if the configuration allows it.

use ken_types::ops::store::{ListSessions, Scope, Session, SessionsList, WEB};
use ken_types::{Code, Error};
use serde_json::{Value, json};

use super::client::Client;
use super::message::{Call, INVALID_PARAMS, RpcError};
use crate::app::Gateway;
use crate::export::{exchanges, find, markdown};

const BEFORE_ID: &str = "ken://sessions/";
const MARKDOWN: &str = "text/markdown";
/// The error for a URI that stands for nothing, up to 2025-11-25. Later versions have the one for wrong parameters.
const NOT_FOUND: i64 = -32_002;
const PAGE: u32 = 100;

/// Returns the result of `resources/list`: sessions with at least one message, newest first.
pub(super) async fn list(gateway: &Gateway, client: &Client, call: &Call) -> Result<Value, RpcError> {
    let after = match call.params.get("cursor") {
        None | Some(Value::Null) => None,
        Some(Value::String(cursor)) => Some(cursor.clone()),
        Some(_) => return Err(RpcError::new(INVALID_PARAMS, "cursor is not a string")),
    };
    let args = ListSessions {
        scope: scope(client),
        archived: false,
        empty: false,
        scheduled: false,
        q: None,
        text: None,
        limit: PAGE,
        after,
    };
    let page = gateway.store.call::<SessionsList>(&args).await?;
    let mut result = json!({"resources": page.sessions.iter().map(resource).collect::<Vec<_>>()});
    if let Some(after) = page.page.after {
        result["nextCursor"] = after.into();
    }
    Ok(result)
}

fn resource(session: &Session) -> Value {
    let mut resource = json!({
        "uri": format!("{BEFORE_ID}{}", session.session_id),
        "name": session.session_id,
        "mimeType": MARKDOWN,
        "annotations": {"lastModified": session.updated_at},
    });
    if let Some(title) = session.display_name.as_ref().or(session.title.as_ref()) {
        resource["title"] = title.as_str().into();
    }
    resource
}

/// Returns the result of `resources/read`: all messages of a session.
pub(super) async fn read(gateway: &Gateway, client: &Client, call: &Call) -> Result<Value, RpcError> {
    let uri = call.params.get("uri").and_then(Value::as_str);
    let uri = uri.ok_or_else(|| RpcError::new(INVALID_PARAMS, "params has no uri, a string"))?;
    let missing = || {
        let code = if client.modern { INVALID_PARAMS } else { NOT_FOUND };
        RpcError::new(code, "there is no such resource; resources/list names them").data(json!({"uri": uri}))
    };
    let id = uri.strip_prefix(BEFORE_ID).ok_or_else(missing)?;
    let failed = |error: Error| match error.code {
        Code::NotFound | Code::Gone | Code::Forbidden => missing(),
        _ => error.into(),
    };
    let session = find(gateway, id, scope(client)).await.map_err(failed)?;
    let text = markdown(&session, &exchanges(gateway, &session).await.map_err(failed)?);
    Ok(json!({"contents": [{"uri": uri, "mimeType": MARKDOWN, "text": text}]}))
}

/// A client that names nobody is one of the operator, who may read all; any other one reads its own.
fn scope(client: &Client) -> Option<Scope> {
    let Scope { actor_id, conversation_id, thread_id, .. } = &client.scope;
    let is_nobody = actor_id == WEB && conversation_id == WEB && thread_id.is_none();
    (!is_nobody).then(|| client.scope.clone())
}
