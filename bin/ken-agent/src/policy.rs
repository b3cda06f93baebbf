//! Approvals: asks ken-approver whether a person has to approve a call, stores the request with the events of the turn, and
//! waits for its decision.

use std::sync::Arc;
use std::time::Duration;

use ken_service::Stop;
use ken_types::event::Body;
use ken_types::ops::Op;
use ken_types::ops::approvals::{
    Approval as Request, ApprovalState as Answer, ApprovalsGet, ApprovalsOf, ApprovalsRequest, GetApproval,
    OfSubmission, RequestApproval, Status,
};
use ken_types::ops::store::Claim;
use ken_types::ops::tools::Approval;
use ken_types::{Code, Error, Timestamp};
use ken_wire::Pool;
use tokio::time::{Instant, sleep};

use crate::ports::{CallsWithApproval, Events, Grant, Pending, Policy, RequestedCall, Tools, reason};

/// The timeout of a request, during which ken-tools computes the preview of the call.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// How long ken-approver or the store may be unreachable before a call fails. A pending request fails this long after it has
/// expired.
const MAX_UNREACHABLE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);
/// The timeout of one call that waits for the decision. The call is then repeated.
const WAIT_TIMEOUT: Duration = Duration::from_secs(300);
const WAIT_MARGIN: Duration = Duration::from_secs(10);

/// Calls ken-approver over its socket, and reads requests from the store.
pub(crate) struct Approvals {
    approver: Pool,
    store: Pool,
    tools: Arc<dyn Tools>,
    stop: Stop,
}

impl Approvals {
    pub(crate) fn new(approver: Pool, store: Pool, tools: Arc<dyn Tools>, stop: Stop) -> Approvals {
        Approvals { approver, store, tools, stop }
    }
}

impl Policy for Approvals {
    fn calls_with_approval(&self, claim: &Claim) -> Pending<'static, Result<CallsWithApproval, Error>> {
        let store = self.store.clone();
        let args = OfSubmission { submission_id: claim.lease.submission_id.clone() };
        Box::pin(async move {
            let requests = ken_claims::call_until_answered::<ApprovalsOf>(&store, &args).await?;
            Ok(requests.calls.into_iter().map(|call| call.call_id).collect())
        })
    }

    fn stopping(&self) -> Pending<'static, ()> {
        let mut stop = self.stop.clone();
        Box::pin(async move { stop.stopped().await })
    }

    fn check(&self, requested: RequestedCall, events: Events) -> Pending<'static, Result<Option<Grant>, String>> {
        let facts = self.tools.facts(&requested.call.name);
        if is_free(requested.ask, facts.approval) {
            return Box::pin(std::future::ready(Ok(None)));
        }
        let (approver, store, stopping) = (self.approver.clone(), self.store.clone(), self.stopping());
        let leaving = events.clone();
        let check = async move {
            let tool = requested.call.name.clone();
            let until = Instant::now() + MAX_UNREACHABLE;
            let request = request(&requested);
            let answer = call::<ApprovalsRequest>(&approver, &request, REQUEST_TIMEOUT, until).await;
            let request = match answer.map_err(|error| message(&error))? {
                Answer::Free => return Ok(None),
                Answer::Denied(reason) => return Err(reason),
                Answer::Store(put) => events.request(*put).await.map_err(|error| message(&error))?,
                Answer::Request(known) => {
                    // An earlier holder may have been killed before it could record that the call waits.
                    if known.has_waited() {
                        events.send(known.requested(None)).await;
                    }
                    *known
                }
            };
            let request = decided(&store, request, &events).await?;
            grant(request, &tool, facts.is_idempotent)
        };
        // A ken-approver that has died is not started again while the system stops, and would be waited for in vain.
        Box::pin(async move {
            tokio::select! {
                biased;
                checked = check => checked,
                () = stopping => leaving.leave().await,
            }
        })
    }

    fn is_unused(&self, grant: &Grant) -> Pending<'static, bool> {
        let (store, args) = (self.store.clone(), GetApproval { id: grant.clone(), wait_ms: 0 });
        Box::pin(async move {
            let until = Instant::now() + MAX_UNREACHABLE;
            let found = call::<ApprovalsGet>(&store, &args, REQUEST_TIMEOUT, until).await;
            found.is_ok_and(|found| is_good(&found))
        })
    }
}

/// Whether a request is approved and not used.
fn is_good(request: &Request) -> bool {
    request.status == Status::Approved && request.used_at.is_none()
}

/// Whether a call needs no decision of a person: neither a rule nor the tool asks for one. For an unknown tool, ken-approver is asked.
fn is_free(is_asked_by_rule: bool, of_tool: Option<Approval>) -> bool {
    !is_asked_by_rule && of_tool == Some(Approval::None)
}

fn request(requested: &RequestedCall) -> RequestApproval {
    RequestApproval {
        call_id: requested.call.key(),
        tool_call_id: requested.call.id.clone(),
        task_id: requested.caller.task.clone(),
        // Nobody reads the session of a scheduled run while it runs.
        unattended: requested.caller.claim.instance.starts_with("schedule:"),
        call: requested.request(),
        caller_stores: true,
    }
}

/// Waits for the decision, records it and returns the decided request.
async fn decided(store: &Pool, approval: Request, events: &Events) -> Result<Request, String> {
    let approval = wait(store, approval).await.map_err(|error| message(&error))?;
    events
        .send(Body::ApprovalDecided {
            request_id: approval.request_id.clone(),
            status: approval.status.name().to_owned(),
            decided_by: approval.decision.as_ref().map(|decision| decision.decided_by.clone()),
            worker: None,
        })
        .await;
    Ok(approval)
}

async fn wait(store: &Pool, mut approval: Request) -> Result<Request, Error> {
    while approval.status == Status::Pending {
        let args = GetApproval { id: approval.request_id.clone(), wait_ms: WAIT_TIMEOUT.as_secs() * 1_000 };
        let left = approval.request.expires_at.millis() - Timestamp::now().millis();
        let left = Duration::from_millis(u64::try_from(left).unwrap_or_default());
        let until = Instant::now() + left + MAX_UNREACHABLE;
        approval = call::<ApprovalsGet>(store, &args, WAIT_TIMEOUT + WAIT_MARGIN, until).await?;
    }
    Ok(approval)
}

/// Calls ken-approver or the store, and repeats the call while it is unreachable, until `until`.
async fn call<O: Op>(part: &Pool, args: &O::Args, time: Duration, until: Instant) -> Result<O::Reply, Error> {
    loop {
        match part.call::<O>(args, time).await {
            Err(error) if error.code == Code::Unavailable && Instant::now() < until => sleep(PAUSE).await,
            answer => return answer,
        }
    }
}

/// Returns the grant of a request that is no longer pending, or for the model the reason why there is none.
fn grant(request: Request, tool: &str, is_idempotent: bool) -> Result<Option<Grant>, String> {
    if request.used_at.is_some() && !is_idempotent {
        return Err(format!("{tool} was interrupted; whether it took effect is unknown"));
    }
    match (request.status, request.decision) {
        (Status::Approved, _) => Ok(Some(request.request_id)),
        (Status::Denied, Some(decision)) => Err(format!(
            "{} denied it{}. Do not try the same again.",
            decision.decided_by,
            decision.reason.map(|why| format!(": {why}")).unwrap_or_default()
        )),
        (Status::Expired, _) => Err(format!("nobody decided about the call of {tool} in time")),
        _ => Err(format!("the request is {}", request.status.name())),
    }
}

fn message(error: &Error) -> String {
    match error.code {
        Code::Unavailable | Code::Deadline => "nobody can be asked for the approval now".to_owned(),
        _ => reason(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(status: &str, is_used: bool, decision: Option<(&str, Option<&str>)>) -> Request {
        let time = Timestamp::default();
        let decision = decision.map(|(by, reason)| {
            json!({"requestId": "apr_1", "approved": false, "decidedBy": by, "decidedAt": time, "reason": reason, "scope": "once"})
        });
        let record = json!({
            "request": {"id": "apr_1", "dedupeKey": "", "taskId": "s", "actionType": "x", "summary": "x", "reason": "",
                "risk": "low", "target": "x", "requestedBy": "x", "fingerprint": "", "createdAt": time, "expiresAt": time,
                "metadata": {}},
            "status": status, "updatedAt": time, "requestId": "apr_1", "taskType": "x", "description": "x", "actorId": "a",
            "conversationId": "c", "connector": "tui", "createdAt": time, "decision": decision,
            "usedAt": is_used.then_some(time),
        });
        serde_json::from_value(record).unwrap()
    }

    /// A part that restarts is waited for, and not for longer.
    #[test]
    fn a_part_that_cannot_be_reached_is_given_up_in_time() {
        let paused = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        paused.block_on(async {
            let (begun, time) = (Instant::now(), Duration::from_secs(5));
            let args = GetApproval { id: "apr_1".to_owned(), wait_ms: 0 };
            let pool = Pool::new("/nowhere");
            let answer = call::<ApprovalsGet>(&pool, &args, REQUEST_TIMEOUT, begun + time);
            let answer = tokio::time::timeout(10 * time, answer).await.expect("it is given up");
            assert_eq!(answer.unwrap_err().code, Code::Unavailable);
            assert!(begun.elapsed() >= time && begun.elapsed() < 2 * time, "{:?}", begun.elapsed());
        });
    }

    #[test]
    fn only_what_neither_a_rule_nor_the_tool_asks_about_is_free() {
        for by_rule in [false, true] {
            for of_tool in [None, Some(Approval::None), Some(Approval::Ask), Some(Approval::Preview)] {
                let expected = !by_rule && of_tool == Some(Approval::None);
                assert_eq!(is_free(by_rule, of_tool), expected, "{by_rule} {of_tool:?}");
            }
        }
    }

    /// A grant that was used is given again only to a call that may run twice.
    #[test]
    fn a_request_that_has_ended_gives_a_grant_or_a_reason() {
        let granted = Ok(Some("apr_1".to_owned()));
        let unknown = Err("x was interrupted; whether it took effect is unknown".to_owned());
        let refused = |why: &str| Err(why.to_owned());
        for (status, is_used, decision, expected) in [
            ("approved", false, Some(("vera", None)), granted.clone()),
            ("approved", true, Some(("vera", None)), granted),
            ("denied", false, Some(("vera", None)), refused("vera denied it. Do not try the same again.")),
            ("denied", false, Some(("vera", Some("no"))), refused("vera denied it: no. Do not try the same again.")),
            ("expired", false, None, refused("nobody decided about the call of x in time")),
            ("cancelled", false, None, refused("the request is cancelled")),
        ] {
            let ended = || request(status, is_used, decision);
            assert_eq!(grant(ended(), "x", true), expected, "{status} {is_used}");
            assert_eq!(grant(ended(), "x", false), if is_used { unknown.clone() } else { expected }, "{status}");
            assert_eq!(is_good(&ended()), status == "approved" && !is_used, "{status} {is_used}");
        }
    }
}
