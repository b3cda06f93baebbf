//! Requests for approvals. Each call has at most one request. It is decided once, and its grant is used once.

use ken_types::id::SubmissionId;
use ken_types::ops::approvals::*;
use ken_types::ops::blobs::BlobPiece;
use ken_types::ops::{Nothing, Page};
use ken_types::{Error, Timestamp};
use serde_json::{Map, Value, json};

use crate::engine::change::{Change, Effect};
use crate::ops::{Read, Write, blobs};
use crate::rules::{approvals, check, digest};
use crate::tables::{AboutCall, ApprovalRow, NewApproval, SubmissionRow, Tables};

/// How long a request is kept after its end, in milliseconds. A grant for a whole session is deleted together with its request.
const RETENTION_MS: i64 = 90 * 24 * 3600 * 1000;
/// The maximum number of requests that one call marks as expired, and that one slice of background work deletes.
const SLICE: usize = 100;
/// The maximum size of a list of requests, in bytes, so that it fits into a line of the wire. Further requests are listed without action
/// and diff.
const LIST_BYTES: usize = 2 * 1024 * 1024;

fn by_id(tables: &dyn Tables, id: &str) -> Result<ApprovalRow, Error> {
    let found = tables.approval(id)?;
    found.ok_or_else(|| Error::not_found(format!("there is no approval {id}")))
}

pub(super) fn submission(tables: &dyn Tables, id: &SubmissionId) -> Result<SubmissionRow, Error> {
    let unknown = || Error::not_found(format!("there is no submission {id}")).at("/submissionId");
    tables.submission(id.as_str())?.ok_or_else(unknown)
}

pub(crate) fn get(tables: &dyn Tables, id: &str) -> Result<Approval, Error> {
    by_id(tables, id).map(|found| found.record)
}

/// Returns the pending requests that match the filters of a list.
pub(crate) fn pending(tables: &dyn Tables, list: &ListApprovals) -> Result<PendingApprovals, Error> {
    let approvals = tables.pending_approvals(list, PENDING, LIST_BYTES)?;
    let ids: Vec<Option<&str>> = approvals.iter().map(|approval| Some(approval.request_id.as_str())).collect();
    Ok(PendingApprovals { tag: digest::of(&ids, 16), approvals })
}

/// Reports a request to consoles and to the calls that wait for it.
fn publish(kind: &'static str, session: &str, request: &Request, status: Status, change: &mut Change) {
    let fields =
        json!({"requestId": request.id, "actionType": request.action_type, "sessionId": session, "status": status});
    change.publish(kind, fields);
    change.push(Effect::Approval(request.id.clone()));
}

/// Stores a request, or returns the existing one that decides the call.
pub(super) fn put(tables: &dyn Tables, args: &PutApproval, change: &mut Change) -> Result<Approval, Error> {
    let found = submission(tables, &args.submission_id)?;
    if found.state.is_settled() || found.abort {
        let message = format!("submission {} has ended or is being ended", found.id);
        return Err(Error::conflict(message).at("/submissionId"));
    }
    let known = tables.approvals_about(&AboutCall {
        submission: found.key,
        call_id: &args.call_id,
        task_id: args.task_id.as_deref(),
        fingerprint: &args.preview.fingerprint,
    })?;
    if let Some(known) = approvals::deciding_request(&known, args) {
        return Ok(known.record.clone());
    }
    // The fingerprint shows what the call would do. A pending request with another one is outdated.
    for old in known.iter().filter(|old| old.record.status == Status::Pending) {
        end(tables, old, Status::Cancelled, None, change)?;
    }
    insert(tables, args, &found, approvals::was_approved_before(&known), change)
}

fn insert(
    tables: &dyn Tables,
    args: &PutApproval,
    found: &SubmissionRow,
    was_approved: bool,
    change: &mut Change,
) -> Result<Approval, Error> {
    if tables.count_pending_approvals()? >= PENDING as u64 {
        let message = format!("{PENDING} requests wait for a decision");
        return Err(Error::busy(message, 1_000).hint("`ken approvals` lists them"));
    }
    if let Some(whole) = &args.preview.whole {
        blobs::complete(tables, &whole.digest, "/preview/whole/digest")?;
    }
    let log = tables.log_by_key(found.stream)?;
    let session = log.instance();
    let mut request = request(args, session, change.now);
    if was_approved {
        request.reason = format!("what was approved has changed; {}", request.reason);
    }
    // A grant for the session was given for what the person wanted then. A turn that has read outside text may want something else.
    let granted = if found.outside.is_empty() || args.preview.trusted {
        tables.session_grant(session, &request.fingerprint)?
    } else {
        None
    };
    let (status, decision) = approvals::initial_status(&request.id, args, granted, change.now);
    let scope = tables.event(found.event)?.and_then(|event| event.scope);
    let scope = scope.map(|scope| tables.scope_key(&scope)).transpose()?;
    tables.insert_approval(&NewApproval {
        submission: found.key,
        session,
        call_id: &args.call_id,
        task_id: args.task_id.as_deref(),
        scope: scope.flatten(),
        whole: args.preview.whole.as_ref().map(|whole| whole.digest.as_str()),
        request: &request,
        status,
        decision: decision.as_ref(),
        now: change.now,
    })?;
    let kind = match status {
        Status::Pending => "approval.requested",
        _ => "approval.decided",
    };
    publish(kind, session, &request, status, change);
    get(tables, &request.id)
}

fn request(args: &PutApproval, session: &str, now: Timestamp) -> Request {
    let preview = &args.preview;
    let mut metadata = Map::from_iter([
        ("tool".to_owned(), args.tool.clone().into()),
        ("action".to_owned(), preview.action.clone()),
        ("sessionId".to_owned(), session.into()),
        ("submissionId".to_owned(), args.submission_id.as_str().into()),
        ("toolCallId".to_owned(), args.tool_call_id.clone().into()),
    ]);
    metadata.extend(preview.diff.clone().map(|diff| ("diff".to_owned(), Value::from(diff))));
    metadata.extend(preview.whole.as_ref().map(|whole| ("whole".to_owned(), json!(whole))));
    Request {
        id: args.id.clone(),
        dedupe_key: approvals::dedupe_key(args),
        task_id: args.task_id.clone().unwrap_or_else(|| args.submission_id.0.clone()),
        action_type: preview.action_type.clone(),
        summary: preview.summary.clone(),
        reason: preview.reason.clone().unwrap_or_default(),
        risk: preview.risk,
        target: preview.target.clone(),
        requested_by: args.requested_by.clone(),
        fingerprint: preview.fingerprint.clone(),
        created_at: now,
        expires_at: now.plus_millis(args.expires_in_ms),
        metadata,
    }
}

impl Read for ApprovalsOf {
    fn run(tables: &dyn Tables, args: &OfSubmission) -> Result<CallsWithApproval, Error> {
        let found = submission(tables, &args.submission_id)?;
        let calls = tables.calls_with_approval(found.key)?;
        Ok(CallsWithApproval { calls })
    }
}

impl Read for ApprovalsList {
    fn check(args: &ListAllApprovals) -> Result<(), Error> {
        check::limit(args.limit, check::PAGE)
    }

    fn run(tables: &dyn Tables, args: &ListAllApprovals) -> Result<ApprovalPage, Error> {
        let before = match &args.after {
            None => None,
            Some(id) => Some(tables.approval(id)?.ok_or_else(|| Error::invalid("/after", "no such cursor"))?.key),
        };
        let mut approvals = tables.approvals_before(before, args, args.limit as usize + 1, LIST_BYTES)?;
        let has_more = approvals.len() > args.limit as usize;
        approvals.truncate(args.limit as usize);
        let after = approvals.last().filter(|_| has_more).map(|last| last.request_id.clone());
        Ok(ApprovalPage { approvals, page: Page { limit: args.limit, has_more, after } })
    }
}

impl Read for ApprovalsDiff {
    fn run(tables: &dyn Tables, args: &GetDiff) -> Result<BlobPiece, Error> {
        let request = by_id(tables, &args.id)?.record.request;
        if let Some(whole) = request.whole() {
            let blob = blobs::complete(tables, &whole.digest, "/id")?;
            return blobs::piece(tables, &blob, args.offset, args.limit);
        }
        let Some(diff) = request.metadata.get("diff").and_then(Value::as_str) else {
            return Err(Error::not_found(format!("the request {} has no diff", args.id)));
        };
        Ok(blobs::part(diff.as_bytes(), args.offset, args.limit))
    }
}

impl Write for ApprovalsDecide {
    fn check(args: &DecideApproval) -> Result<(), Error> {
        approvals::check_decision(args)
    }

    fn run(tables: &dyn Tables, args: &DecideApproval, change: &mut Change) -> Result<Decision, Error> {
        let found = by_id(tables, &args.id)?;
        if let Some(decision) = &found.record.decision
            && args.key.is_some()
            && found.decide_key == args.key
        {
            return Ok(decision.clone());
        }
        let is_ending = tables.submission_by_key(found.submission)?.abort;
        approvals::check_open(&found.record, is_ending, change.now)?;
        approvals::check_shown(&found.record.request, args)?;
        let decision = Decision {
            request_id: args.id.clone(),
            approved: args.approved,
            decided_by: args.decided_by.trim().to_owned(),
            decided_at: change.now,
            decided_as: args.decided_as.clone(),
            reason: args.reason.clone(),
            scope: args.scope,
        };
        let status = if args.approved { Status::Approved } else { Status::Denied };
        let by = (&decision, args.key.as_deref());
        end(tables, &found, status, Some(by), change)?;
        Ok(decision)
    }
}

fn end(
    tables: &dyn Tables,
    found: &ApprovalRow,
    status: Status,
    decision: Option<(&Decision, Option<&str>)>,
    change: &mut Change,
) -> Result<(), Error> {
    tables.end_approval(found.key, status, decision, change.now)?;
    let kind = match status {
        Status::Expired => "approval.expired",
        Status::Cancelled => "approval.cancelled",
        _ => "approval.decided",
    };
    publish(kind, &found.session, &found.record.request, status, change);
    Ok(())
}

impl Write for ApprovalsConsume {
    fn run(tables: &dyn Tables, args: &ConsumeApproval, change: &mut Change) -> Result<Nothing, Error> {
        let found = by_id(tables, &args.request_id)?;
        if found.use_key.as_ref() == Some(&args.key) {
            return Ok(Nothing {});
        }
        let turn = tables.submission_by_key(found.submission)?;
        let has_ended = turn.state.is_settled() || turn.abort;
        approvals::check_grant(&found, args, has_ended)?;
        tables.use_approval(found.key, &args.key, change.now)?;
        Ok(Nothing {})
    }
}

impl Write for ApprovalsExpire {
    fn run(tables: &dyn Tables, _: &Nothing, change: &mut Change) -> Result<Expired, Error> {
        let due = tables.due_approvals(change.now, SLICE)?;
        for found in &due {
            end(tables, found, Status::Expired, None, change)?;
        }
        Ok(Expired { expired: due.len() as u64, next: tables.next_due_approval()? })
    }
}

/// Deletes requests that ended long ago. Returns true if there may be more.
pub(super) fn prune(tables: &dyn Tables, now: Timestamp) -> Result<bool, Error> {
    Ok(tables.prune_approvals(now.plus_millis(-RETENTION_MS), SLICE)? == SLICE)
}

/// Cancels the pending requests of a submission that has ended.
pub(super) fn cancel_of(tables: &dyn Tables, submission: i64, change: &mut Change) -> Result<(), Error> {
    for found in tables.pending_approvals_of(submission)? {
        end(tables, &found, Status::Cancelled, None, change)?;
    }
    Ok(())
}
