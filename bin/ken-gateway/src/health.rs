//! Whether it works.

use std::sync::Arc;
use std::time::Duration;

use ken_http::{Failure, Request, Response};
use ken_types::Code;
use ken_types::ops::Nothing;
use ken_types::ops::kend::{PartState, PartsStatus, StatusArgs};
use ken_types::ops::service::{ServicePing, ServiceStats};
use ken_wire::Pool;

use crate::gateway::Gateway;

/// How long a part has to say that it lives.
const PATIENCE: Duration = Duration::from_secs(1);

/// GET /health: the gateway answers.
pub(crate) async fn health(_: Arc<Gateway>, _: Request) -> Result<Response, Failure> {
    Ok(Response::json_bytes(200, &b"{\"ok\":true}"[..]))
}

/// GET /ready: all parts are ready, and the store can write.
pub(crate) async fn ready(gateway: Arc<Gateway>, _: Request) -> Result<Response, Failure> {
    let (mut waiting, writable) = tokio::join!(waiting(&gateway), can_write(&gateway));
    let mut error = format!("not ready: {}", waiting.join(", "));
    if waiting.is_empty() {
        if writable {
            return Ok(Response::json_bytes(200, &b"{\"ok\":true}"[..]));
        }
        waiting.push("store".to_owned());
        error = "the store cannot write: its disk is full or fails".to_owned();
    }
    Response::json(
        503,
        &serde_json::json!({"ok": false, "waiting": waiting, "error": error, "code": Code::Unavailable}),
    )
}

/// Whether the store's last attempt to write worked. A store that does not answer is not ready anyway.
async fn can_write(gateway: &Gateway) -> bool {
    let stats = gateway
        .store
        .pool()
        .call::<ServiceStats>(&Nothing {}, PATIENCE)
        .await;
    !stats.is_ok_and(|stats| stats.get("writable").is_some_and(|writable| writable == 0))
}

/// The parts that are wanted and not ready: by kend's word, and without a kend by asking them.
async fn waiting(gateway: &Gateway) -> Vec<String> {
    match gateway
        .kend
        .call::<PartsStatus>(&StatusArgs::default(), PATIENCE)
        .await
    {
        Ok(status) => {
            let parts = status
                .parts
                .into_iter()
                .filter(|part| part.wanted && part.state != PartState::Ready);
            parts.map(|part| part.name).collect()
        }
        Err(_) => {
            let parts = [
                ("store", gateway.store.pool()),
                ("model", &gateway.model),
                ("agent", &gateway.agent),
            ];
            silent(parts).await
        }
    }
}

/// The parts that a turn needs and that are not ready.
pub(crate) async fn waiting_for(gateway: &Gateway) -> Vec<String> {
    let mut parts = waiting(gateway).await;
    parts.retain(|part| part == "agent" || part == "model");
    parts
}

async fn silent(parts: [(&str, &Pool); 3]) -> Vec<String> {
    let [store, model, agent] = parts.map(|(name, part)| async move {
        let answer = part.call::<ServicePing>(&Nothing {}, PATIENCE).await;
        answer.is_err().then(|| name.to_owned())
    });
    let (store, model, agent) = tokio::join!(store, model, agent);
    [store, model, agent].into_iter().flatten().collect()
}
