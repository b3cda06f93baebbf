//! Waiting for a submission, how it failed, and where its stream is.

use std::time::Duration;

use ken_http::http::StatusCode;
use ken_http::{Failure, Request, Shutdown};
use ken_types::event::Failure as Cause;
use ken_types::id::SubmissionId;
use ken_types::ops::store::{SubmissionStatus, SubmissionsWait, WaitSubmission};
use ken_types::uri::encode_segment;
use ken_types::{Code, Error};
use tokio::time::{Instant, sleep};

use crate::app::Gateway;
use crate::store::CALL;

/// One call to the store waits at most so long; the wire allows ten minutes.
const ONE_WAIT: Duration = Duration::from_secs(300);
/// Between tries while the store restarts.
const PAUSE: Duration = Duration::from_millis(20);

/// How waiting ended.
#[derive(Debug)]
pub(crate) enum Waited {
    Settled(Box<SubmissionStatus>),
    /// The time is over; where it stands, if the store could say.
    Running(Option<Box<SubmissionStatus>>),
    /// The gateway stops.
    Stopping,
}

/// Waits until a submission is settled, at most for `time`. A store that restarts meanwhile is waited for: what it
/// accepted is still there.
pub(crate) async fn wait(
    gateway: &Gateway,
    mut shutdown: Shutdown,
    id: &SubmissionId,
    time: Option<Duration>,
) -> Result<Waited, Error> {
    let until = time.map(|time| Instant::now() + time);
    let mut standing = None;
    loop {
        let left = until.map_or(ONE_WAIT, |until| {
            until.saturating_duration_since(Instant::now()).min(ONE_WAIT)
        });
        if left.is_zero() {
            return Ok(Waited::Running(standing));
        }
        let answer = tokio::select! {
            answer = wait_once(gateway, id, left) => answer,
            () = shutdown.requested() => return Ok(Waited::Stopping),
        };
        match answer {
            Ok(now) if now.state.is_settled() => return Ok(Waited::Settled(Box::new(now))),
            // The store cannot write, so nothing will settle soon: the caller is not kept waiting.
            Ok(now) if now.stalled.is_some() => return Ok(Waited::Running(Some(Box::new(now)))),
            Ok(now) => standing = Some(Box::new(now)),
            Err(error) if may_pass(error.code) => sleep(PAUSE.min(left)).await,
            Err(error) => return Err(error),
        }
    }
}

async fn wait_once(gateway: &Gateway, id: &SubmissionId, time: Duration) -> Result<SubmissionStatus, Error> {
    let wait_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let args = WaitSubmission {
        submission_id: id.clone(),
        wait_ms,
        or_waiting: false,
    };
    gateway.store.call::<SubmissionsWait>(&args, time + CALL).await
}

/// To a caller who waited every failure is a 500, told apart by its type. Turns and runs name their causes each in a
/// style of their own.
pub(crate) fn failure(aborted: bool, cause: Option<Cause>) -> Failure {
    let cause = cause.unwrap_or_else(|| Cause {
        name: String::new(),
        message: "it failed".to_owned(),
    });
    let kind = match cause.name.as_str() {
        _ if aborted => "submission_aborted",
        "timeout" | "Timeout" => "submission_timeout",
        "interrupted" | "Interrupted" => "submission_interrupted",
        "retry_exhausted" | "RetryExhausted" => "submission_retry_exhausted",
        _ => "operation_failed",
    };
    // The cause is its own, which its stream shows as well: nothing is told here that was hidden.
    Failure::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        Code::Unavailable,
        cause.message,
    )
    .kind(kind)
}

fn may_pass(code: Code) -> bool {
    matches!(code, Code::Unavailable | Code::Deadline | Code::Busy)
}

/// Refuses a prompt that no model could ever answer. With the model's part down it is accepted, and waits.
pub(crate) async fn check_model(gateway: &Gateway) -> Result<(), Error> {
    match gateway.models.get(Duration::from_secs(1)).await {
        Ok(state) if state.models.is_empty() => {
            let hint = "set KEN_MODEL, or [model] use in ken.toml; `rules` needs no model";
            Err(Error::unavailable("no model is configured").hint(hint))
        }
        _ => Ok(()),
    }
}

/// The absolute URL of an instance's stream.
pub(crate) fn stream_url(gateway: &Gateway, request: &Request, instance: &str) -> String {
    format!(
        "{}/agents/orchestrator/{}",
        gateway.base_url(request),
        encode_segment(instance)
    )
}
