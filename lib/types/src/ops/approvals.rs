//! Approvals: what an agent may do only after a person has said yes. `ken-approver` serves all of these operations but those
//! that it calls itself on `ken-store`, where each request is kept.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Nothing;
use super::store::Scope;
use super::tools::{CallTool, Preview, Risk};
use crate::Timestamp;
use crate::id::SubmissionId;

crate::operations! {
    /// Asks for the approval of a tool call: what it would do is read from ken-tools, stored, and waits for a decision. A
    /// repeat for the same call finds the first request.
    ApprovalsRequest, "approvals.request": RequestApproval => Asked;
    /// One request. Waits up to `wait_ms` while it is pending. `not_found` for an unknown id.
    ApprovalsGet, "approvals.get": GetApproval => Approval;
    /// Pending requests, oldest first, at most 1 000. Waits up to `wait_ms` while there are none, or while the list is the
    /// one that `unless` names.
    ApprovalsPending, "approvals.pending": ListApprovals => PendingApprovals;
    /// Decides. `conflict` when it is decided, expired or cancelled; of two at once one wins.
    ApprovalsDecide, "approvals.decide": DecideApproval => Decision;
    /// Takes the grant for one call, right before it runs. `conflict` unless the request is approved, for this fingerprint
    /// and session, of a turn that has not ended, and was not taken before.
    ApprovalsConsume, "approvals.consume": ConsumeApproval => Nothing;

    /// Of the store: stores a request, or answers with the one that decides about it already.
    ApprovalsPut, "approvals.put": PutApproval => Approval;
    /// Of the store: the calls of a submission that were ever asked about.
    ApprovalsOf, "approvals.of": OfSubmission => AskedCalls;
    /// Of the store: ends the requests whose time is over.
    ApprovalsExpire, "approvals.expire": Nothing => Expired;
}

/// What a request may have in all, as JSON text, in bytes. A longer diff is cut, and says so.
pub const REQUEST_BYTES: usize = 256 * 1024;
/// Requests that may be pending, and that a list holds.
pub const PENDING: usize = 1_000;
/// The longest name of who decides, and the longest reason, in characters.
pub const DECIDED_BY_CHARACTERS: usize = 120;
pub const REASON_CHARACTERS: usize = 2_000;
/// The longest time that a list is waited for, in milliseconds.
pub const LIST_WAIT_MS: u64 = 60_000;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestApproval {
    /// The call, with `agent`, `submission` and `session`.
    pub call: CallTool,
    /// Names the call among all of its submission.
    pub call_id: String,
    /// The id that the model gave to it.
    pub tool_call_id: String,
    /// The task of the worker that calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// Nobody waits for the answer of this turn, so a person is asked only if the configuration says so.
    #[serde(default)]
    pub unattended: bool,
}

/// Whether a call may run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// It needs nobody.
    Free,
    /// It must not run, for this reason.
    Denied(String),
    /// This request decides.
    Request(Box<Approval>),
}

/// A request as the HTTP contract shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// `apr_` and a ULID.
    pub id: String,
    pub dedupe_key: String,
    /// The task of a worker, else the submission.
    pub task_id: String,
    pub action_type: String,
    pub summary: String,
    pub reason: String,
    pub risk: Risk,
    pub target: String,
    /// The agent.
    pub requested_by: String,
    pub fingerprint: String,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    /// `action`, `diff`, `tool`, `sessionId`, `submissionId`, `toolCallId`.
    pub metadata: Map<String, Value>,
}

/// A request and what became of it, as the HTTP contract shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    pub request: Request,
    pub status: Status,
    pub updated_at: Timestamp,
    pub request_id: String,
    pub task_type: String,
    pub description: String,
    pub actor_id: String,
    pub conversation_id: String,
    pub connector: String,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// When the call that it allows was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_at: Option<Timestamp>,
}

impl Approval {
    /// A record, with the fields that repeat those of the request. A turn without a scope shows `api` and `default`.
    pub fn new(request: Request, status: Status, updated_at: Timestamp, scope: Option<Scope>) -> Approval {
        let (connector, actor_id, conversation_id) = match scope {
            Some(scope) => (scope.connector, scope.actor_id, scope.conversation_id),
            None => ("api".to_owned(), "api".to_owned(), "default".to_owned()),
        };
        Approval {
            request_id: request.id.clone(),
            task_type: request.action_type.clone(),
            description: request.summary.clone(),
            created_at: request.created_at,
            actor_id,
            conversation_id,
            connector,
            status,
            updated_at,
            decision: None,
            used_at: None,
            request,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Pending,
    Approved,
    Denied,
    Expired,
    Cancelled,
}

impl Status {
    pub const ALL: [Status; 5] = [
        Status::Pending,
        Status::Approved,
        Status::Denied,
        Status::Expired,
        Status::Cancelled,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Status::Pending => "pending",
            Status::Approved => "approved",
            Status::Denied => "denied",
            Status::Expired => "expired",
            Status::Cancelled => "cancelled",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    pub request_id: String,
    pub approved: bool,
    pub decided_by: String,
    pub decided_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub scope: GrantScope,
}

/// How often a grant may be used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantScope {
    #[default]
    Once,
    /// The same call may run again in the same session without being asked about.
    Session,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetApproval {
    pub id: String,
    #[serde(default)]
    pub wait_ms: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListApprovals {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connector: Option<String>,
    #[serde(default, rename = "wait_ms")]
    pub wait_ms: u64,
    /// The `tag` of the list that the caller has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unless: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PendingApprovals {
    /// Names the list: another list has another tag.
    pub tag: String,
    /// Where they are more than a line of the wire takes, the later ones are without action and diff.
    pub approvals: Vec<Approval>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DecideApproval {
    pub id: String,
    pub approved: bool,
    /// Who decides, for the record: 1 to 120 characters.
    pub decided_by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default)]
    pub scope: GrantScope,
    /// A ULID of the caller's: a repeat with the same one gets the same answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConsumeApproval {
    pub request_id: String,
    pub fingerprint: String,
    pub session: String,
    /// A ULID of the caller's: a repeat with the same one is the same use.
    pub key: String,
    /// The call does no harm when it is made again, so a grant whose call was cut may be used again.
    #[serde(default)]
    pub again: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PutApproval {
    /// `apr_` and a ULID, if this becomes a new request.
    pub id: String,
    pub submission_id: SubmissionId,
    pub call_id: String,
    pub tool_call_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    pub requested_by: String,
    pub preview: Preview,
    pub tool: String,
    /// How long it may be pending.
    pub expires_in_ms: i64,
    /// The policy denies it, for this reason: it is stored, and nobody is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfSubmission {
    pub submission_id: SubmissionId,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct AskedCalls {
    /// Ids of calls, with the task of their worker.
    pub calls: Vec<AskedCall>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedCall {
    pub call_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// The request whose grant the call has taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Expired {
    pub expired: u64,
    /// When the next one expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Timestamp>,
}
