//! What waits for a person: requests for approval, and the turns, runs and slots of the last day that have failed.

use std::sync::Arc;

use ken_http::{Failure, Request, Response, etag};
use ken_types::Timestamp;
use ken_types::ops::approvals::{ApprovalsPending, ListApprovals};
use ken_types::ops::schedules::{Delivery, ListScheduleRuns, RunState, ScheduleRun, SchedulesRuns};
use ken_types::ops::telemetry::{FailedSince, FailedWork, TelemetryFailed, WorkKind};
use serde_json::{Value, json};

use crate::app::Gateway;

/// How long a failure is shown.
const RECENT_MS: i64 = 24 * 3_600_000;
/// The number of runs of schedules of which those that failed are shown.
const MAX_SLOTS: u32 = 200;

/// GET /api/inbox
pub(crate) async fn inbox(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let since = Timestamp::now().plus_millis(-RECENT_MS);
    let (pending, failed) = (ListApprovals::default(), FailedSince { since });
    let slots = ListScheduleRuns { slug: None, id: None, limit: MAX_SLOTS, after: None };
    let (pending, failed, slots) = tokio::join!(
        gateway.store.call::<ApprovalsPending>(&pending),
        gateway.store.call::<TelemetryFailed>(&failed),
        gateway.store.call::<SchedulesRuns>(&slots),
    );
    // A failed turn of a schedule is there as the slot that it belongs to.
    let turns = failed?.failed.into_iter().filter(|work| work.kind != WorkKind::Schedule).map(of_work);
    let slots = slots?.runs.into_iter().filter_map(|run| of_slot(&run, since));
    let mut failures: Vec<(i64, Value)> = turns.chain(slots).collect();
    failures.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    let failures: Vec<Value> = failures.into_iter().map(|(_, failure)| failure).collect();
    let body = json!({"approvals": pending?.approvals, "failures": failures}).to_string();
    let etag = etag(body.as_bytes());
    let response = if request.knows(&etag) { Response::empty(304) } else { Response::json_bytes(200, body) };
    response.text_header("etag", &etag)
}

fn of_work(work: FailedWork) -> (i64, Value) {
    let kind = if work.kind == WorkKind::Workflow { "run" } else { "turn" };
    let value = json!({
        "kind": kind, "id": work.id, "at": work.ended_at, "status": "failed", "cause": work.cause,
        "sessionId": work.session_id, "name": work.workflow_name,
    });
    (work.ended_at.millis(), value)
}

/// A slot that did not do what it should, or whose result did not arrive. One that was left out because the run before it was still busy is
/// as it was ordered.
fn of_slot(run: &ScheduleRun, since: Timestamp) -> Option<(i64, Value)> {
    let is_undelivered = run.status == RunState::Ok && run.delivery == Delivery::Failed;
    let status = if is_undelivered { "undelivered" } else { run.status.name() };
    let is_failed = matches!(run.status, RunState::Error | RunState::Timeout | RunState::Missed | RunState::Unknown);
    let at = run.finished_at.or(run.slot_at).filter(|at| (is_failed || is_undelivered) && *at > since.millis())?;
    let cause = run.error.clone().unwrap_or_else(|| cause_of(run.status).to_owned());
    let session = run.submission_id.as_ref().map(|_| &run.session_id);
    let value = json!({
        "kind": "slot", "id": run.run_id, "at": Timestamp::from_millis(at), "status": status, "cause": cause,
        "sessionId": session, "name": run.slug,
    });
    Some((at, value))
}

fn cause_of(status: RunState) -> &'static str {
    match status {
        RunState::Missed => "ken was not running when it was due",
        RunState::Timeout => "it took longer than its time limit",
        RunState::Unknown => "a crash interrupted it, and it is not known what it has done",
        _ => "no reason is known",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(status: &str, finished_at: Option<i64>) -> ScheduleRun {
        let value = json!({
            "runId": "r", "scheduleId": "s", "slug": "morning", "slotAt": 1_000, "trigger": "slot", "status": status, "attempt": 1,
            "instanceId": "i", "sessionId": "i", "delivery": "none", "finishedAt": finished_at,
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_slot_that_did_its_work_or_was_left_out_waits_for_nobody() {
        let since = Timestamp::from_millis(500);
        for status in ["ok", "queued", "admitted", "running", "skipped"] {
            assert!(of_slot(&slot(status, Some(2_000)), since).is_none(), "{status}");
        }
        for status in ["error", "timeout", "missed", "unknown"] {
            let (at, value) = of_slot(&slot(status, Some(2_000)), since).unwrap();
            assert_eq!((at, value["status"].as_str(), value["sessionId"].as_str()), (2_000, Some(status), None));
        }
        let undelivered = ScheduleRun { delivery: Delivery::Failed, ..slot("ok", Some(2_000)) };
        assert_eq!(of_slot(&undelivered, since).unwrap().1["status"], "undelivered");
        assert!(of_slot(&slot("error", Some(400)), since).is_none(), "long ago");
        assert!(of_slot(&slot("missed", None), since).is_some(), "it has only its slot");
    }
}
