//! The parts of the system, for a person who looks at it: their states, the models, and the restart of a part.

use std::sync::Arc;
use std::time::Duration;

use ken_http::{Failure, Request, Response, plain};
use ken_types::id::Mint;
use ken_types::ops::Nothing;
use ken_types::ops::cognitive::AuditVerify;
use ken_types::ops::kend::{
    ChangeArgs, PartState, PartStatus, PartsRestart, PartsStatus, StatusArgs, SystemStatus, WaitFor,
};
use ken_types::ops::model::{Health, ModelHealth, ModelState};
use ken_types::{Code, Error};
use serde_json::{Value, json};

use crate::app::Gateway;
use crate::idempotency::{ReplayableResponse, once};
use crate::telemetry::budget;

/// The timeout of a call to a part for its state.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a restart may take before the answer says that it is not ready yet.
const RESTART_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the check of the audit log may take. All of it is read.
const AUDIT_TIMEOUT: Duration = Duration::from_secs(60);

/// GET /api/system
pub(crate) async fn state(gateway: Arc<Gateway>, _: Request) -> Result<Response, Failure> {
    let (nothing, with_usage) = (Nothing {}, StatusArgs { usage: true, ..StatusArgs::default() });
    let (status, models, health, budget) = tokio::join!(
        gateway.kend.call_within::<PartsStatus>(&with_usage, CALL_TIMEOUT),
        gateway.models.get(CALL_TIMEOUT),
        gateway.model.call_within::<ModelHealth>(&nothing, CALL_TIMEOUT),
        budget(&gateway),
    );
    let SystemStatus { version, home, config, parts, listeners, .. } = status?;
    // Without ken-model, the state of its part says what is wrong.
    let (models, health, budget) = (models.ok(), health.unwrap_or_default(), budget.ok().flatten());
    let body = json!({
        // The version of this program, whose files the console consists of; kend may be of another one during an upgrade.
        "version": env!("CARGO_PKG_VERSION"),
        "kendVersion": version,
        "home": home,
        "config": {"path": config.path, "good": config.good, "errors": config.errors},
        "listeners": listeners,
        "parts": parts.iter().map(part).collect::<Vec<_>>(),
        "models": models.as_ref().map(models_of),
        "providers": providers(&health),
        "budget": budget,
    });
    Response::json(200, &body)
}

fn part(part: &PartStatus) -> Value {
    // A part that cannot become ready ends again and again. It has been down since it last was.
    let is_down = !matches!(part.state, PartState::Ready | PartState::Stopping);
    let down_since = part.deaths.iter().rfind(|death| is_down && death.ready).map(|death| death.at);
    json!({
        "name": part.name,
        "state": part.state,
        "enabled": part.enabled,
        "wanted": part.wanted,
        "waitsFor": part.waits_for,
        "uptimeMs": part.uptime_ms,
        "restarts": part.restarts,
        "retryInMs": part.retry_in_ms,
        "memoryBytes": part.memory_bytes,
        "cpuMs": part.cpu_ms,
        "statusText": part.status_text,
        "cause": part.cause,
        "lastExit": part.last_exit,
        "downSince": down_since,
    })
}

fn models_of(state: &ModelState) -> Value {
    let unusable = state.unusable.iter().map(|one| json!({"model": one.model, "why": one.why})).collect::<Vec<_>>();
    json!({"use": state.models, "others": state.others, "unusable": unusable, "contextWindow": state.context_window})
}

fn providers(health: &Health) -> Value {
    json!({"called": health.called, "known": health.providers})
}

/// POST /api/system/parts/:name/restart
pub(crate) async fn restart(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    request.no_fields().await?;
    let name = request.segment("name").to_owned();
    if name == "gateway" {
        let error = Error::new(Code::Conflict, "the gateway cannot answer while it restarts itself");
        return Err(error.hint("`ken restart gateway`").into());
    }
    let work = async |_: Mint| {
        let wait = u64::try_from(RESTART_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
        let args = ChangeArgs { name, wait: Some(WaitFor::Ready), timeout_ms: Some(wait) };
        let limit = RESTART_TIMEOUT + CALL_TIMEOUT;
        let restarted = gateway.kend.change_once_within::<PartsRestart>(&args, limit).await?;
        ReplayableResponse::json(200, &part(&restarted))
    };
    once(&gateway, &request, b"{}", plain, work).await
}

/// GET /api/audit: whether the chain of the audit log holds.
pub(crate) async fn audit(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let _held = request.hold()?;
    Response::json(200, &gateway.cognitive.call_within::<AuditVerify>(&Nothing {}, AUDIT_TIMEOUT).await?)
}
