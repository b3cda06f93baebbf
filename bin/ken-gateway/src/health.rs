//! Health and readiness of the system.

use std::sync::Arc;
use std::time::Duration;

use ken_http::{Failure, Request, Response};
use ken_types::ops::Nothing;
use ken_types::ops::kend::{PartState, PartStatus, PartsStatus, StatusArgs};
use ken_types::ops::service::{ServicePing, ServiceStats};
use ken_types::{Code, Error};
use ken_wire::Pool;

use crate::app::Gateway;
use crate::turn::no_model;

/// The timeout of a call to a part.
const CALL_TIMEOUT: Duration = Duration::from_secs(1);

/// GET /health: 200 as long as the gateway answers.
pub(crate) async fn health(_: Arc<Gateway>, _: Request) -> Result<Response, Failure> {
    Ok(Response::json_bytes(200, &b"{\"ok\":true}"[..]))
}

/// GET /ready: all parts are ready, the store can write, and a model can be called.
pub(crate) async fn ready(gateway: Arc<Gateway>, _: Request) -> Result<Response, Failure> {
    let (mut waiting, writable, no_model) = tokio::join!(waiting(&gateway), can_write(&gateway), lacks_model(&gateway));
    let mut error = format!("not ready: {}", waiting.join(", "));
    if waiting.is_empty() {
        (waiting, error) = match (writable, no_model) {
            (true, None) => return Ok(Response::json_bytes(200, &b"{\"ok\":true}"[..])),
            (true, Some(why)) => (vec!["model".to_owned()], why),
            (false, _) => {
                let why = "the store cannot write: its disk is full or fails";
                (vec!["store".to_owned()], why.to_owned())
            }
        };
    }
    Response::json(
        503,
        &serde_json::json!({"ok": false, "waiting": waiting, "error": error, "code": Code::Unavailable}),
    )
}

/// Returns the reason why no model can be called. If ken-model does not reply, returns `None`, because it is then
/// reported as not ready anyway.
async fn lacks_model(gateway: &Gateway) -> Option<String> {
    let state = gateway.models.get(CALL_TIMEOUT).await.ok()?;
    no_model(&state)
}

/// Whether the last write of the store succeeded. If the store does not reply, returns true, because it is then
/// reported as not ready anyway.
async fn can_write(gateway: &Gateway) -> bool {
    let stats = gateway.store.pool().call::<ServiceStats>(&Nothing {}, CALL_TIMEOUT).await;
    !stats.is_ok_and(|stats| stats.get("writable").is_some_and(|writable| writable == 0))
}

/// Returns the enabled parts that are not ready, as kend reports them. Without kend, these are the parts that do not
/// reply.
async fn waiting(gateway: &Gateway) -> Vec<String> {
    let is_awaited = |part: &PartStatus| part.wanted && part.state != PartState::Ready;
    match parts(gateway).await {
        Ok(parts) => names(parts, is_awaited),
        Err(_) => {
            let parts = [("store", gateway.store.pool()), ("model", &gateway.model), ("agent", &gateway.agent)];
            unreachable_parts(parts).await
        }
    }
}

/// Returns the parts that a turn needs and that are not ready, including parts that a person has stopped.
pub(crate) async fn missing_for_turns(gateway: &Gateway) -> Vec<String> {
    let is_missing =
        |part: &PartStatus| matches!(part.name.as_str(), "agent" | "model") && part.state != PartState::Ready;
    names(parts(gateway).await.unwrap_or_default(), is_missing)
}

fn names(parts: Vec<PartStatus>, are: impl Fn(&PartStatus) -> bool) -> Vec<String> {
    let found = parts.into_iter().filter(are);
    found.map(|part| part.name).collect()
}

async fn parts(gateway: &Gateway) -> Result<Vec<PartStatus>, Error> {
    let args = StatusArgs::default();
    let status = gateway.kend.call::<PartsStatus>(&args, CALL_TIMEOUT).await;
    status.map(|status| status.parts)
}

async fn unreachable_parts(parts: [(&str, &Pool); 3]) -> Vec<String> {
    let [store, model, agent] = parts.map(|(name, part)| async move {
        let answer = part.call::<ServicePing>(&Nothing {}, CALL_TIMEOUT).await;
        answer.is_err().then(|| name.to_owned())
    });
    let (store, model, agent) = tokio::join!(store, model, agent);
    [store, model, agent].into_iter().flatten().collect()
}
