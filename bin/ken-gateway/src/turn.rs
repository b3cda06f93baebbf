//! Waiting for a submission, reporting its failure, and the URL of its stream.

use std::time::Duration;

use ken_http::http::StatusCode;
use ken_http::{Failure, Request, Shutdown};
use ken_types::event::Failure as Cause;
use ken_types::id::SubmissionId;
use ken_types::ops::model::NO_MODEL_HINT;
use ken_types::ops::store::{SubmissionStatus, SubmissionsWait, WaitSubmission};
use ken_types::uri::encode_segment;
use ken_types::{Code, Error};
use tokio::time::{Instant, sleep};

use crate::app::Gateway;
use crate::part::CALL_TIMEOUT;
use crate::stream::page::PAUSE;

/// How long one call to the store waits. The wire allows ten minutes.
const WAIT_TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub(crate) enum Waited {
    Settled(Box<SubmissionStatus>),
    /// The time limit has passed. Contains the current state if the store has returned it.
    Running(Option<Box<SubmissionStatus>>),
    /// The gateway is shutting down.
    Stopping,
}

/// Waits until a submission is settled, at most for `time`. A restart of the store only causes a delay, because
/// accepted submissions are on disk.
pub(crate) async fn wait(
    gateway: &Gateway,
    mut shutdown: Shutdown,
    id: &SubmissionId,
    time: Option<Duration>,
) -> Result<Waited, Error> {
    let until = time.map(|time| Instant::now() + time);
    let mut standing = None;
    loop {
        let left =
            until.map_or(WAIT_TIMEOUT, |until| until.saturating_duration_since(Instant::now()).min(WAIT_TIMEOUT));
        if left.is_zero() {
            return Ok(Waited::Running(standing));
        }
        let answer = tokio::select! {
            answer = wait_once(gateway, id, left) => answer,
            () = shutdown.requested() => return Ok(Waited::Stopping),
        };
        match answer {
            Ok(now) if now.state.is_settled() => return Ok(Waited::Settled(Box::new(now))),
            // The store cannot write, so nothing will settle soon, and waiting is pointless.
            Ok(now) if now.stalled.is_some() => return Ok(Waited::Running(Some(Box::new(now)))),
            Ok(now) => standing = Some(Box::new(now)),
            Err(Error { code: Code::Unavailable | Code::Deadline | Code::Busy, .. }) => sleep(PAUSE.min(left)).await,
            Err(error) => return Err(error),
        }
    }
}

/// Returns how a submission stands, without waiting for anything.
pub(crate) async fn standing(gateway: &Gateway, id: &SubmissionId) -> Result<SubmissionStatus, Error> {
    wait_once(gateway, id, Duration::ZERO).await
}

async fn wait_once(gateway: &Gateway, id: &SubmissionId, time: Duration) -> Result<SubmissionStatus, Error> {
    let wait_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let args = WaitSubmission { submission_id: id.clone(), wait_ms, or_waiting: false };
    gateway.store.call_within::<SubmissionsWait>(&args, time + CALL_TIMEOUT).await
}

/// Returns the failure for a caller that waited for a turn or run that failed: 500, with a type for each cause. The
/// causes of turns are in snake case, those of runs in camel case.
pub(crate) fn failure(aborted: bool, cause: Option<Cause>) -> Failure {
    let cause = cause.unwrap_or_else(|| Cause { name: String::new(), message: "it failed".to_owned() });
    let kind = match cause.name.as_str() {
        _ if aborted => "submission_aborted",
        "timeout" | "Timeout" => "submission_timeout",
        "interrupted" | "Interrupted" => "submission_interrupted",
        "retry_exhausted" | "RetryExhausted" => "submission_retry_exhausted",
        _ => "operation_failed",
    };
    // The message is not secret, because the stream shows it too.
    Failure::new(StatusCode::INTERNAL_SERVER_ERROR, Code::Unavailable, cause.message).kind(kind)
}

/// Refuses a prompt if no model is configured. If ken-model is only down, the prompt is accepted and waits.
pub(crate) async fn check_model(gateway: &Gateway) -> Result<(), Error> {
    let state = gateway.models.get(Duration::from_secs(1)).await;
    match state.ok().and_then(|state| state.why_none()) {
        Some(why) => Err(Error::unavailable(why).hint(NO_MODEL_HINT)),
        None => Ok(()),
    }
}

/// Refuses a prompt that names a model which is not configured. `at` is the field that names it.
pub(crate) async fn check_named_model(gateway: &Gateway, model: Option<&str>) -> Result<(), Error> {
    let (Some(model), Ok(state)) = (model, gateway.models.get(Duration::from_secs(1)).await) else {
        return Ok(());
    };
    if state.has(model) {
        return Ok(());
    }
    let error = Error::invalid("/model", format!("no model `{model}` is configured"));
    let known: Vec<&str> = state.choices().collect();
    Err(error.hint(format!("configured: {}; [model] use, or `models` of [model.provider.NAME]", known.join(", "))))
}

/// Returns the absolute URL of an instance's stream.
pub(crate) fn stream_url(gateway: &Gateway, request: &Request, instance: &str) -> String {
    format!("{}/agents/orchestrator/{}", gateway.base_url(request), encode_segment(instance))
}
