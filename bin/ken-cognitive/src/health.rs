//! Health checks.

use std::sync::Arc;

use ken_http::{Failure, Request, Response};
use serde_json::json;

use crate::app::Cognitive;
use crate::gate::Caller;

/// GET /health
pub(crate) async fn health(_: Arc<Cognitive>, _: Caller, _: Request) -> Result<Response, Failure> {
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
