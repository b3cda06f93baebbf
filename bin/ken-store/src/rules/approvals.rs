//! Rules for approvals: the limits of a request, who decides it, and which call a grant allows.

use ken_types::ops::approvals::*;
use ken_types::{Error, Timestamp, hex};

use crate::tables::ApprovalRow;

/// The maximum time for which a request can be pending, in milliseconds.
const EXPIRY_MS: i64 = 7 * 24 * 3_600_000;

pub(crate) fn check_put(args: &PutApproval) -> Result<(), Error> {
    if hex::decode::<32>(&args.preview.fingerprint).is_none() {
        return Err(Error::invalid("/preview/fingerprint", "a fingerprint is 64 hexadecimal digits in lower case"));
    }
    if !(1..=EXPIRY_MS).contains(&args.expires_in_ms) {
        return Err(Error::invalid("/expiresInMs", format!("a request is pending for 1 to {EXPIRY_MS} ms")));
    }
    let bytes = serde_json::to_string(&args.preview).map_or(usize::MAX, |text| text.len());
    if bytes > REQUEST_BYTES {
        let message = format!("the request has {bytes} bytes, at most {REQUEST_BYTES} are kept");
        return Err(Error::too_large(message).at("/preview"));
    }
    Ok(())
}

pub(crate) fn check_decision(args: &DecideApproval) -> Result<(), Error> {
    let length = args.decided_by.trim().chars().count();
    if !(1..=DECIDED_BY_CHARACTERS).contains(&length) || args.decided_by.chars().any(char::is_control) {
        return Err(Error::invalid(
            "/decidedBy",
            format!("decidedBy has 1 to {DECIDED_BY_CHARACTERS} characters, none of them control characters"),
        ));
    }
    let reason = args.reason.as_deref().unwrap_or_default();
    if reason.chars().count() > REASON_CHARACTERS {
        return Err(Error::invalid("/reason", format!("reason has at most {REASON_CHARACTERS} characters")));
    }
    Ok(())
}

/// Returns the key of a request. It consists of the submission, the task if there is one, the call, and the fingerprint.
pub(crate) fn dedupe_key(args: &PutApproval) -> String {
    let fingerprint = &args.preview.fingerprint;
    match &args.task_id {
        Some(task) => format!("{}:{task}:{}:{fingerprint}", args.submission_id, args.call_id),
        None => format!("{}:{}:{fingerprint}", args.submission_id, args.call_id),
    }
}

/// Returns the earlier request whose outcome also applies to this one. `known` contains the earlier requests about the same call of the same
/// task and those that were denied for the same fingerprint, newest first. If a grant for the call was used, there is no second request,
/// because it is unknown what the call did. A denial is valid until the submission ends.
pub(crate) fn deciding_request<'a>(known: &'a [ApprovalRow], args: &PutApproval) -> Option<&'a ApprovalRow> {
    let used = known.iter().find(|row| row.record.used_at.is_some());
    let denied = || known.iter().find(|row| row.record.status == Status::Denied);
    let same = || known.iter().find(|row| row.record.request.fingerprint == args.preview.fingerprint);
    used.or_else(denied).or_else(same)
}

/// Whether the same call was approved, and has not run because it would do something else now. If it has run, its request decides.
pub(crate) fn was_approved_before(known: &[ApprovalRow]) -> bool {
    known.iter().any(|row| row.record.status == Status::Approved)
}

/// Returns the status of a new request. If no person has to decide it, also returns its decision.
pub(crate) fn initial_status(
    id: &str,
    args: &PutApproval,
    granted: Option<String>,
    now: Timestamp,
) -> (Status, Option<Decision>) {
    let decision = |approved, decided_by: String, reason: Option<String>| Decision {
        request_id: id.to_owned(),
        approved,
        decided_by,
        decided_at: now,
        decided_as: None,
        reason,
        scope: GrantScope::Once,
    };
    match (&args.refusal, granted) {
        (Some(reason), _) => {
            let denied = decision(false, "policy".to_owned(), Some(reason.clone()));
            (Status::Denied, Some(denied))
        }
        (None, Some(grant)) => (Status::Approved, Some(decision(true, format!("session grant {grant}"), None))),
        (None, None) => (Status::Pending, None),
    }
}

/// Checks that a request can still be decided. Fails with `conflict`, which names the status of the request.
pub(crate) fn check_open(record: &Approval, is_ending: bool, now: Timestamp) -> Result<(), Error> {
    let status = match record.status {
        Status::Pending if is_ending => Status::Cancelled,
        Status::Pending if record.request.expires_at <= now => Status::Expired,
        Status::Pending => return Ok(()),
        status => status,
    };
    Err(Error::conflict(format!("the request is {}", status.name())))
}

/// Checks that who approves a long diff has had all of it: the request shows its beginning only. Fails with `invalid`.
pub(crate) fn check_shown(request: &Request, args: &DecideApproval) -> Result<(), Error> {
    let Some(whole) = request.whole().filter(|_| args.approved) else {
        return Ok(());
    };
    if args.digest.as_ref() != Some(&whole.digest) {
        let message = format!("the diff has {} bytes, of which the request shows the beginning", whole.bytes);
        let hint = format!(
            "read all of it (GET /api/approvals/{}/diff, or `ken approvals {0}`), and approve it with the digest in \
             metadata.whole",
            request.id
        );
        return Err(Error::invalid("/digest", message).hint(hint));
    }
    if args.scope == GrantScope::Session {
        let message = "a change that is too long for the request can be approved once, not for the session";
        return Err(Error::invalid("/scope", message));
    }
    Ok(())
}

/// Checks that a grant allows this call. Fails with `conflict`, which says why it does not.
pub(crate) fn check_grant(found: &ApprovalRow, args: &ConsumeApproval, has_ended: bool) -> Result<(), Error> {
    let record = &found.record;
    let why = if record.status != Status::Approved {
        format!("the approval is {}", record.status.name())
    } else if found.session != args.session {
        "the approval is for another session".to_owned()
    } else if record.request.fingerprint != args.fingerprint {
        "what was approved has changed: arguments, program, environment or files".to_owned()
    } else if record.used_at.is_some() && !args.again {
        "the approval was used".to_owned()
    } else if has_ended {
        "the turn of the approval has ended".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::conflict(why))
}
