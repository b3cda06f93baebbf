//! Approvals: requests ken-approver's decision on a call that a person has to approve, and waits for it.

use std::sync::Arc;
use std::time::Duration;

use ken_service::Stop;
use ken_types::event::Body;
use ken_types::ops::Op;
use ken_types::ops::approvals::{
    Approval as Request, ApprovalsGet, ApprovalsOf, ApprovalsRequest, Asked as Answer, GetApproval, OfSubmission,
    RequestApproval, Status,
};
use ken_types::ops::store::Claim;
use ken_types::ops::tools::Approval;
use ken_types::{Code, Error, Timestamp};
use ken_wire::Pool;
use tokio::time::{Instant, sleep};

use crate::seams::{Asked, AskedCalls, Events, Grant, Pending, Policy, Tools, reason};

/// The timeout of a request, during which ken-tools computes the preview of the call.
const REQUEST: Duration = Duration::from_secs(60);
/// How long ken-approver may be unreachable before a call fails. A pending request fails this long after it has
/// expired.
const AWAY: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);
/// The timeout of one call that waits for the decision. The call is then repeated.
const WAIT: Duration = Duration::from_secs(300);
const SLACK: Duration = Duration::from_secs(10);

/// Calls ken-approver over its socket, and reads earlier requests from the store.
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
    fn asked_calls(&self, claim: &Claim) -> Pending<'static, Result<AskedCalls, Error>> {
        let store = self.store.clone();
        let args = OfSubmission { submission_id: claim.lease.submission_id.clone() };
        Box::pin(async move {
            let asked = ken_claims::patiently::<ApprovalsOf>(&store, &args).await?;
            Ok(asked.calls.into_iter().map(|call| call.call_id).collect())
        })
    }

    fn stopping(&self) -> Pending<'static, ()> {
        let mut stop = self.stop.clone();
        Box::pin(async move { stop.stopped().await })
    }

    fn check(&self, asked: Asked, events: Events) -> Pending<'static, Result<Option<Grant>, String>> {
        if !asked.ask && self.tools.approval(&asked.call.name) == Some(Approval::None) {
            return Box::pin(std::future::ready(Ok(None)));
        }
        let is_idempotent = self.tools.is_idempotent(&asked.call.name);
        let approver = self.approver.clone();
        Box::pin(async move {
            let tool = asked.call.name.clone();
            let until = Instant::now() + AWAY;
            let request = request(&asked);
            let answer = call::<ApprovalsRequest>(&approver, &request, REQUEST, until).await;
            match answer.map_err(|error| words(&error))? {
                Answer::Free => Ok(None),
                Answer::Denied(reason) => Err(reason),
                Answer::Request(request) => {
                    let request = decided(&approver, *request, &events).await?;
                    match request.used_at.is_some() && !is_idempotent {
                        true => Err(format!("{tool} was interrupted; whether it took effect is unknown")),
                        false => grant(request, &tool),
                    }
                }
            }
        })
    }
}

fn request(asked: &Asked) -> RequestApproval {
    RequestApproval {
        call_id: asked.call.key(),
        tool_call_id: asked.call.id.clone(),
        task_id: asked.caller.task.clone(),
        // Nobody reads the session of a scheduled run while it runs.
        unattended: asked.caller.claim.instance.starts_with("schedule:"),
        call: asked.request(),
    }
}

/// Waits for the decision and returns the decided request. An event that an earlier holder recorded is not recorded
/// again.
async fn decided(approver: &Pool, approval: Request, events: &Events) -> Result<Request, String> {
    // A request that was decided at once did not have to wait. A request that was decided later did, even if its holder
    // was killed before it could record that.
    let has_waited = approval.status == Status::Pending || approval.updated_at > approval.request.created_at;
    if has_waited {
        let request = &approval.request;
        events
            .send(Body::ApprovalRequested {
                request_id: request.id.clone(),
                action_type: request.action_type.clone(),
                risk: request.risk.name().to_owned(),
                expires_at: request.expires_at,
            })
            .await;
    }
    let approval = wait(approver, approval).await.map_err(|error| words(&error))?;
    events
        .send(Body::ApprovalDecided {
            request_id: approval.request_id.clone(),
            status: approval.status.name().to_owned(),
        })
        .await;
    Ok(approval)
}

async fn wait(approver: &Pool, mut approval: Request) -> Result<Request, Error> {
    while approval.status == Status::Pending {
        let args = GetApproval { id: approval.request_id.clone(), wait_ms: WAIT.as_secs() * 1_000 };
        let left = approval.request.expires_at.millis() - Timestamp::now().millis();
        let left = Duration::from_millis(u64::try_from(left).unwrap_or_default());
        let until = Instant::now() + left + AWAY;
        approval = call::<ApprovalsGet>(approver, &args, WAIT + SLACK, until).await?;
    }
    Ok(approval)
}

/// Calls ken-approver, and repeats the call while it or the store is unreachable, until `until`.
async fn call<O: Op>(approver: &Pool, args: &O::Args, time: Duration, until: Instant) -> Result<O::Reply, Error> {
    loop {
        match approver.call::<O>(args, time).await {
            Err(error) if error.code == Code::Unavailable && Instant::now() < until => sleep(PAUSE).await,
            answer => return answer,
        }
    }
}

/// Returns the grant of a request that is no longer pending, or for the model the reason why there is none.
fn grant(request: Request, tool: &str) -> Result<Option<Grant>, String> {
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

fn words(error: &Error) -> String {
    match error.code {
        Code::Unavailable | Code::Deadline => "nobody can be asked for the approval now".to_owned(),
        _ => reason(error),
    }
}
