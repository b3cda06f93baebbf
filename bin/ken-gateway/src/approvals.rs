//! Approvals: actions of agents that a person must approve.

use std::sync::Arc;
use std::time::Duration;

use ken_http::{Caller, Failure, Query, Request, Response, plain};
use ken_types::Error;
use ken_types::id::Mint;
use ken_types::ops::approvals::{
    ApprovalsDecide, ApprovalsDiff, ApprovalsGet, ApprovalsList, ApprovalsPending, DECIDED_BY_CHARACTERS,
    DecideApproval, DecidedAs, GetApproval, GetDiff, GrantScope, LIST_WAIT_MS, ListAllApprovals, ListApprovals,
    PendingApprovals, REASON_CHARACTERS, Status,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::Gateway;
use crate::body::{self, check_length, given, required};
use crate::idempotency::{ReplayableResponse, once};
use crate::page;
use crate::part::CALL_TIMEOUT;

/// GET /api/approvals/pending
pub(crate) async fn pending(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let query = request.query()?;
    let wait_ms = query.number("wait_ms", 0..=LIST_WAIT_MS, 0)?;
    let mut list = ListApprovals {
        task_id: page::filter(&query, "taskId")?,
        wait_ms,
        // The entity tag of the list that the client already has, without its quotes.
        unless: request
            .header("if-none-match")
            .map(|tag| tag.trim().trim_start_matches("W/").trim_matches('"').to_owned()),
        ..scope(&query)?
    };
    let _held = if wait_ms > 0 { Some(request.hold()?) } else { None };
    let mut shutdown = request.shutdown();
    let found = tokio::select! {
        found = read(&gateway, &list) => found?,
        () = shutdown.requested() => {
            list.wait_ms = 0;
            read(&gateway, &list).await?
        }
    };
    let etag = format!("\"{}\"", found.tag);
    let response = if request.knows(&etag) { Response::empty(304) } else { Response::json(200, &found.approvals)? };
    response.text_header("etag", &etag)
}

async fn read(gateway: &Gateway, list: &ListApprovals) -> Result<PendingApprovals, Error> {
    let time = CALL_TIMEOUT + Duration::from_millis(list.wait_ms);
    gateway.store.call_within::<ApprovalsPending>(list, time).await
}

/// Reads the fields of a filter that name connector, actor and conversation.
fn scope(query: &Query) -> Result<ListApprovals, Error> {
    Ok(ListApprovals {
        connector: page::filter(query, "connector")?,
        actor_id: page::filter(query, "actorId")?,
        conversation_id: page::filter(query, "conversationId")?,
        ..ListApprovals::default()
    })
}

/// GET /api/approvals/bindings/pending
pub(crate) async fn bindings(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let found = read(&gateway, &scope(&request.query()?)?).await?;
    let bindings = found.approvals.into_iter().map(|approval| {
        json!({
            "requestId": approval.request_id,
            "connector": approval.connector,
            "actorId": approval.actor_id,
            "conversationId": approval.conversation_id,
            "createdAt": approval.created_at,
        })
    });
    Response::json(200, &bindings.collect::<Vec<Value>>())
}

/// GET /api/approvals
pub(crate) async fn list(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let query = request.query()?;
    let known = |name: &str| Status::named(name).ok_or_else(|| Error::invalid("?status", "there is no such status"));
    let args = ListAllApprovals {
        status: query.one("status")?.map(known).transpose()?,
        session: page::filter(&query, "session")?,
        limit: page::limit(&query, 100, 50)?,
        after: page::cursor(&query, "after")?,
    };
    Response::json(200, &gateway.store.call::<ApprovalsList>(&args).await?)
}

/// GET /api/approvals/:requestId
pub(crate) async fn get(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let id = request.segment("requestId").to_owned();
    let args = GetApproval { id, wait_ms: 0 };
    Response::json(200, &gateway.store.call::<ApprovalsGet>(&args).await?)
}

/// GET /api/approvals/:requestId/diff
pub(crate) async fn diff(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let id = request.segment("requestId");
    let piece = |offset, limit| GetDiff { id: id.to_owned(), offset, limit };
    Ok(gateway.store.blob::<ApprovalsDiff>(piece).await?)
}

#[serde_with::apply(Option => #[serde(default, deserialize_with = "given")])]
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Decided {
    decided_by: Option<String>,
    approved: Option<bool>,
    reason: Option<String>,
    #[serde(default)]
    scope: GrantScope,
    digest: Option<String>,
}

impl Decided {
    fn check(self, id: &str) -> Result<DecideApproval, Error> {
        let decided_by = required("decidedBy", self.decided_by)?;
        check_length("/decidedBy", decided_by.trim(), 1, DECIDED_BY_CHARACTERS)?;
        if decided_by.chars().any(char::is_control) {
            return Err(Error::invalid("/decidedBy", "decidedBy has control characters"));
        }
        if let Some(reason) = &self.reason {
            check_length("/reason", reason, 0, REASON_CHARACTERS)?;
        }
        Ok(DecideApproval {
            id: id.to_owned(),
            approved: required("approved", self.approved)?,
            decided_by,
            reason: self.reason,
            scope: self.scope,
            digest: self.digest,
            decided_as: None,
            key: None,
        })
    }
}

/// POST /api/approvals/:requestId/decision
pub(crate) async fn decide(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let bytes = request.body().await?;
    let decided = body::read::<Decided>(&bytes)?.check(request.segment("requestId"))?;
    let work = async |mut mint: Mint| {
        let decided_as = decided_as(&gateway, request.caller());
        let decided = DecideApproval { key: Some(mint.ulid()), decided_as, ..decided };
        ReplayableResponse::json(200, &gateway.approver.change::<ApprovalsDecide>(&decided).await?)
    };
    once(&gateway, &request, &bytes, plain, work).await
}

/// What the connection shows of the person who decides.
fn decided_as(gateway: &Gateway, caller: Caller) -> Option<DecidedAs> {
    match caller {
        Caller::Local { uid } => uid.map(|uid| DecidedAs::Local { uid, user: gateway.user_name(uid) }),
        Caller::Operator => Some(DecidedAs::Secret),
        Caller::Anyone => None,
    }
}
