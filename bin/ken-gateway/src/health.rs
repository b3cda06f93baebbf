//! Health and readiness of the system.

use std::sync::Arc;
use std::time::Duration;

use ken_http::{Failure, Request, Response};
use ken_types::ops::Nothing;
use ken_types::ops::kend::{PartState, PartStatus, PartsStatus, StatusArgs};
use ken_types::ops::model::{Down, Health, ModelHealth};
use ken_types::ops::service::ServicePing;
use ken_types::{Code, Error};

use crate::app::Gateway;
use crate::part::Part;
use crate::probe::PROBE_TIMEOUT;

const CALL_TIMEOUT: Duration = Duration::from_secs(1);

/// GET /health: 200 as long as the gateway answers.
pub(crate) async fn health(_: Arc<Gateway>, _: Request) -> Result<Response, Failure> {
    Ok(Response::json_bytes(200, &b"{\"ok\":true}"[..]))
}

/// GET /ready: all enabled parts are ready, the store writes, and a model can be called. It names providers that are down while another
/// model answers.
pub(crate) async fn ready(gateway: Arc<Gateway>, _: Request) -> Result<Response, Failure> {
    let written = gateway.write_probe.outcome(&gateway.store.0);
    let (parts, written, no_model, health) =
        tokio::join!(waiting(&gateway), written, lacks_model(&gateway), health_of(&gateway));
    let down: Vec<Down> = health.down().collect();
    let all_down = (health.called.is_empty() && !down.is_empty()).then(|| no_model_answers(&down));
    let (waiting, error) = match (written, no_model.or(all_down)) {
        _ if !parts.is_empty() => {
            let error = format!("not ready: {}", parts.join(", "));
            (parts, error)
        }
        (Err(error), _) => (vec!["store".to_owned()], unwritten(&error)),
        (Ok(()), Some(why)) => (vec!["model".to_owned()], why),
        (Ok(()), None) if down.is_empty() => return Ok(Response::json_bytes(200, &b"{\"ok\":true}"[..])),
        (Ok(()), None) => return Response::json(200, &serde_json::json!({"ok": true, "degraded": down})),
    };
    Response::json(
        503,
        &serde_json::json!({"ok": false, "waiting": waiting, "error": error, "code": Code::Unavailable}),
    )
}

fn no_model_answers(down: &[Down]) -> String {
    let each = down.iter().map(Down::to_string).collect::<Vec<_>>();
    format!("no model answers: {}", each.join("; "))
}

/// Returns the message for a write probe that failed.
fn unwritten(error: &Error) -> String {
    match error.code {
        Code::Deadline => format!("the store has not written anything for {} s", PROBE_TIMEOUT.as_secs()),
        _ => format!("the store cannot write: {}", error.message),
    }
}

/// Returns what ken-model has seen of the providers; nothing if it does not answer, which is another reason not to be ready.
async fn health_of(gateway: &Gateway) -> Health {
    gateway.model.call_within::<ModelHealth>(&Nothing {}, CALL_TIMEOUT).await.unwrap_or_default()
}

/// Returns the reason why no model can be called.
async fn lacks_model(gateway: &Gateway) -> Option<String> {
    match gateway.models.get(CALL_TIMEOUT).await {
        Ok(state) => state.why_none(),
        Err(error) => Some(format!("the part model does not answer: {}", error.message)),
    }
}

/// Returns the enabled parts that are not ready, as kend reports them. Without kend, these are the parts that do not
/// reply.
async fn waiting(gateway: &Gateway) -> Vec<String> {
    // A part that a person has stopped is enabled, and not wanted; one that a person has started may be wanted only.
    let is_awaited = |part: &PartStatus| (part.enabled || part.wanted) && part.state != PartState::Ready;
    match parts(gateway).await {
        Ok(parts) => names(parts, is_awaited),
        Err(_) => {
            let parts = [("store", &gateway.store), ("model", &gateway.model), ("agent", &gateway.agent)];
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
    let status = gateway.kend.call_within::<PartsStatus>(&args, CALL_TIMEOUT).await;
    status.map(|status| status.parts)
}

async fn unreachable_parts(parts: [(&str, &Part); 3]) -> Vec<String> {
    let [store, model, agent] = parts.map(|(name, part)| async move {
        let answer = part.call_within::<ServicePing>(&Nothing {}, CALL_TIMEOUT).await;
        answer.is_err().then(|| name.to_owned())
    });
    let (store, model, agent) = tokio::join!(store, model, agent);
    [store, model, agent].into_iter().flatten().collect()
}
