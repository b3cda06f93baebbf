//! Health checks.

use std::sync::Arc;

use ken_http::{Failure, Request, Response};
use ken_types::Error;
use serde_json::json;

use crate::app::Cognitive;
use crate::gate::Caller;

/// GET /health: 503 while no workflow can run, because what it does cannot be recorded.
pub(crate) async fn health(app: Arc<Cognitive>, _: Caller, _: Request) -> Result<Response, Failure> {
    if app.audit.is_failing() {
        return Err(Error::unavailable("the audit log cannot be written, so workflows are refused")
            .hint("see `ken logs cognitive`; the next request tries to write it again")
            .into());
    }
    Ok(Response::json_bytes(200, r#"{"status":"ok"}"#))
}

/// GET /health/detailed: the state of each component. The status is 503 if a component that every request needs does
/// not work.
pub(crate) async fn detailed(app: Arc<Cognitive>, _: Caller, _: Request) -> Result<Response, Failure> {
    let audit = if app.audit.is_failing() { "failing" } else { "ok" };
    let body = json!({
        "status": audit,
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_seconds": app.started.elapsed().as_secs(),
        "parts": {
            "audit": {"status": audit, "waiting": app.audit.waiting()},
            "sessions": {"status": "ok", "count": app.sessions.count()},
            "tools": app.engine.state(),
        },
    });
    Response::json(if app.audit.is_failing() { 503 } else { 200 }, &body)
}
