//! Administration of API keys.

use std::sync::Arc;

use ken_audit::Record;
use ken_http::{Failure, Request, Response};
use ken_types::Error;
use serde::Deserialize;
use serde_json::json;

use crate::admission::name;
use crate::app::Cognitive;
use crate::body::fields;
use crate::failure::unprocessable;
use crate::gate::Caller;
use crate::keys::{ADMIN, Role};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewKey {
    api_key: String,
    #[serde(default = "user")]
    role: Role,
    user_id: Option<String>,
}

fn user() -> Role {
    Role::User
}

/// GET /admin/api-keys: lists digests, never keys.
pub(crate) async fn list(app: Arc<Cognitive>, _: Caller, _: Request) -> Result<Response, Failure> {
    Response::json(200, &json!({"api_keys": app.keys.list()}))
}

/// POST /admin/api-keys
pub(crate) async fn add(app: Arc<Cognitive>, caller: Caller, mut request: Request) -> Result<Response, Failure> {
    let new: NewKey = fields(request.value().await?)?;
    new.check().map_err(unprocessable)?;
    let entry = app.keys.prepare(&new.api_key, new.role, new.user_id.as_deref())?;
    let record = Record::new("key_created", request.id(), caller.user_id())
        .with("for", entry.user_id.as_str())
        .with("role", name(entry.role))
        .with("key_hash", entry.key_hash.as_str());
    app.record(vec![record.clone()]).await?;
    let added = app.keys.add(entry.clone());
    app.settle(record, added).await?;
    Response::json(201, &entry)
}

/// DELETE /admin/api-keys/:user_id
pub(crate) async fn remove(app: Arc<Cognitive>, caller: Caller, request: Request) -> Result<Response, Failure> {
    let user_id = request.segment("user_id");
    let count = app.keys.list().iter().filter(|entry| entry.user_id == user_id).count();
    if count == 0 {
        let error = Error::not_found(format!("there is no key of {user_id:?}"));
        return Err(match user_id {
            ADMIN => error.hint("to remove the key of MCP_API_KEY, set another one"),
            _ => error,
        }
        .into());
    }
    let record = Record::new("key_deleted", request.id(), caller.user_id()).with("for", user_id).with("keys", count);
    app.record(vec![record.clone()]).await?;
    let removed = app.keys.remove(user_id);
    app.settle(record, removed).await?;
    app.sessions.forget(user_id);
    Response::json(200, &json!({"user_id": user_id, "deleted": true, "keys": count}))
}

impl NewKey {
    fn check(&self) -> Result<(), Error> {
        let is_visible = self.api_key.bytes().all(|byte| byte.is_ascii_graphic());
        if !(8..=256).contains(&self.api_key.len()) || !is_visible {
            return Err(Error::invalid("/api_key", "a key has 8 to 256 visible ASCII characters without spaces"));
        }
        let Some(user_id) = &self.user_id else {
            return Ok(());
        };
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte);
        if !(1..=64).contains(&user_id.len()) || !user_id.bytes().all(is_plain) {
            let message = "a user_id has 1 to 64 letters, digits and . _ @ -";
            return Err(Error::invalid("/user_id", message));
        }
        if user_id == ADMIN {
            return Err(Error::invalid("/user_id", "`admin` is reserved for the key of MCP_API_KEY"));
        }
        Ok(())
    }
}
