//! POST /v1/execute: runs a workflow and responds with its outcome.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ken_audit::Record;
use ken_flow::{Outcome, Request as Run, Results, Status, Summary};
use ken_http::{Failure, Request, Response};
use ken_types::id::Mint;
use ken_types::{Code, Error, Timestamp};
use serde::Serialize;

use crate::app::Cognitive;
use crate::body::Body;
use crate::gate::Caller;
use crate::observer::AuditObserver;

/// The time limit of a workflow. Each step has a shorter one.
const WORKFLOW_TIMEOUT: Duration = Duration::from_secs(600);
/// The time limit for receiving a whole body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// POST /v1/execute and /execute
pub(crate) async fn execute(app: Arc<Cognitive>, caller: Caller, mut request: Request) -> Result<Response, Failure> {
    let bytes = tokio::time::timeout(BODY_TIMEOUT, request.body());
    let bytes = bytes.await.map_err(|_| Failure::too_slow("the body took too long"))??;
    let body = Body::read(&bytes)?;
    let definition = body.definition(&app.catalog, app.engine.protocols())?;
    let session = match body.session()? {
        Some(id) => id.to_owned(),
        None => Mint::fresh()?.prefixed("session-"),
    };
    let data = body.data(&definition)?;
    app.sessions.claim(&session, caller.user_id())?;
    let observer = AuditObserver::new(&app.metrics, request.id(), caller.user_id());
    let run =
        Run { deadline: Some(Instant::now() + WORKFLOW_TIMEOUT), settings: app.engine.settings(), observer: &observer };
    let outcome = app.engine.run(&definition, &data, run).await?;
    app.metrics.workflow(&definition, &outcome);
    let mut records = observer.into_records();
    let completed = completed("execute_completed", &outcome, request.id(), caller.user_id());
    records.push(completed.with("session_id", session.as_str()));
    app.record(records).await?;
    answer(&app, &outcome, &session, &request, &caller)
}

/// Returns the audit record of a run: how it ended, without its content.
pub(crate) fn completed(event: &'static str, outcome: &Outcome, request_id: &str, user_id: &str) -> Record {
    let record = Record::new(event, request_id, user_id)
        .with("workflow", outcome.workflow.as_str())
        .with("status", outcome.status.name())
        .with("execution_time_ms", outcome.milliseconds());
    match &outcome.error {
        Some(error) => record.with("code", error.code.name()),
        None => record,
    }
}

/// The fields that the response and the session's history share.
#[derive(Serialize)]
struct SharedFields<'a> {
    workflow: &'a str,
    status: Status,
    results: &'a Results,
    governance_summary: &'a Summary,
    error: &'a Option<Error>,
    execution_time_ms: f64,
    /// The message of the error again, for older clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
}

fn answer(
    app: &Cognitive,
    outcome: &Outcome,
    session: &str,
    request: &Request,
    caller: &Caller,
) -> Result<Response, Failure> {
    let rest = SharedFields {
        workflow: &outcome.workflow,
        status: outcome.status,
        results: &outcome.results,
        governance_summary: &outcome.governance_summary,
        error: &outcome.error,
        execution_time_ms: outcome.milliseconds(),
        detail: outcome.error.as_ref().map(|error| error.message.as_str()),
    };
    let rest = serde_json::to_vec(&rest)
        .map_err(|error| Error::internal(format!("an answer could not be written: {error}")))?;
    let time = Timestamp::now().to_string();
    let entry = object(&[("time", &time), ("request_id", request.id())], &rest);
    app.sessions.record(session, caller.user_id(), entry);
    let status = status_of(outcome);
    Ok(Response::json_bytes(status, object(&[("session_id", session)], &rest)))
}

/// Inserts text fields at the beginning of a JSON object.
fn object(texts: &[(&str, &str)], rest: &[u8]) -> Bytes {
    let mut bytes = Vec::with_capacity(rest.len() + 128);
    bytes.push(b'{');
    for (name, text) in texts {
        bytes.extend_from_slice(format!("\"{name}\":\"{}\",", escaped(text)).as_bytes());
    }
    bytes.extend_from_slice(rest.get(1..).unwrap_or_default());
    bytes.into()
}

/// Escapes a request id, which consists of visible ASCII characters.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// Returns the status of the response: 200 for a completed run; 422 if it was aborted or a tool refused its input; 504
/// if a step timed out; 502 if a tool failed.
fn status_of(outcome: &Outcome) -> u16 {
    match (outcome.status, outcome.error.as_ref().map(|error| error.code)) {
        (Status::Completed, _) => 200,
        (Status::Aborted, _) => 422,
        (Status::Failed, Some(Code::Deadline)) => 504,
        (Status::Failed, Some(Code::Unavailable | Code::Internal | Code::Cancelled) | None) => 502,
        (Status::Failed, Some(Code::Busy)) => 503,
        (Status::Failed, Some(_)) => 422,
    }
}
