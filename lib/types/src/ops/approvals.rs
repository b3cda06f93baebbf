//! Approvals: actions of an agent that need a person's consent. `ken-approver` serves these operations, except those that it
//! calls on `ken-store`, which keeps the requests.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Nothing;
use super::store::Scope;
use super::tools::{CallTool, Preview, Risk};
use crate::Timestamp;
use crate::id::SubmissionId;

crate::operations! {
    /// Requests the approval of a tool call. The preview of the call comes from ken-tools and is stored with the request. A
    /// repeated request for the same call returns the first one.
    ApprovalsRequest, "approvals.request": RequestApproval => Asked;
    /// One request. Waits up to `wait_ms` while it is pending. `not_found` for an unknown id.
    ApprovalsGet, "approvals.get": GetApproval => Approval;
    /// Pending requests, oldest first, at most 1,000. Waits up to `wait_ms` while there are none, or while the list still has
    /// the tag `unless`.
    ApprovalsPending, "approvals.pending": ListApprovals => PendingApprovals;
    /// Decides a request. `conflict` if it was decided, has expired or was cancelled; of two simultaneous decisions one wins.
    ApprovalsDecide, "approvals.decide": DecideApproval => Decision;
    /// Uses the grant for one call, right before the call runs. `conflict` unless the request is approved for this fingerprint and
    /// session, its turn has not ended, and the grant was not used before.
    ApprovalsConsume, "approvals.consume": ConsumeApproval => Nothing;

    /// Store only: stores a request, or returns the existing one that decides the call.
    ApprovalsPut, "approvals.put": PutApproval => Approval;
    /// Store only: the calls of a submission for which approval was ever requested.
    ApprovalsOf, "approvals.of": OfSubmission => AskedCalls;
    /// Store only: expires the requests whose time is over.
    ApprovalsExpire, "approvals.expire": Nothing => Expired;
}

/// The maximum size of a request as JSON text, in bytes. A diff that does not fit is cut, with a note.
pub const REQUEST_BYTES: usize = 256 * 1024;
/// The maximum number of pending requests, and of requests in a list.
pub const PENDING: usize = 1_000;
/// The longest name of the person who decides, and the longest reason, in characters.
pub const DECIDED_BY_CHARACTERS: usize = 120;
pub const REASON_CHARACTERS: usize = 2_000;
/// The longest time to wait for a list, in milliseconds.
pub const LIST_WAIT_MS: u64 = 60_000;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestApproval {
    /// The call, with `agent`, `submission` and `session`.
    pub call: CallTool,
    /// The id of the call, unique within its submission.
    pub call_id: String,
    /// The id that the model gave to it.
    pub tool_call_id: String,
    /// The task of the worker that calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// Whether nobody waits for the answer of this turn; a person is then asked only if the configuration says so.
    #[serde(default)]
    pub unattended: bool,
}

/// Whether a call may run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// It needs no approval.
    Free,
    /// It must not run, for this reason.
    Denied(String),
    /// The decision on this request applies.
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

/// A request and its outcome, as the HTTP contract shows it.
#[serde_with::skip_serializing_none]
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
    pub thread_id: Option<String>,
    pub connector: String,
    pub created_at: Timestamp,
    pub decision: Option<Decision>,
    /// When the approved call began.
    pub used_at: Option<Timestamp>,
}

impl Approval {
    /// A record, with the fields that repeat those of the request. A turn without a scope shows `api` and `default`.
    pub fn new(request: Request, status: Status, updated_at: Timestamp, scope: Option<Scope>) -> Approval {
        let scope = scope.unwrap_or_else(|| Scope {
            connector: "api".to_owned(),
            actor_id: "api".to_owned(),
            conversation_id: "default".to_owned(),
            thread_id: None,
        });
        Approval {
            request_id: request.id.clone(),
            task_type: request.action_type.clone(),
            description: request.summary.clone(),
            created_at: request.created_at,
            actor_id: scope.actor_id,
            conversation_id: scope.conversation_id,
            thread_id: scope.thread_id,
            connector: scope.connector,
            status,
            updated_at,
            decision: None,
            used_at: None,
            request,
        }
    }
}

crate::named! {
    pub enum Status {
        Pending = "pending",
        Approved = "approved",
        Denied = "denied",
        Expired = "expired",
        Cancelled = "cancelled",
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
    /// The same call may run again in the same session without another request.
    Session,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetApproval {
    pub id: String,
    #[serde(default)]
    pub wait_ms: u64,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListApprovals {
    pub task_id: Option<String>,
    pub actor_id: Option<String>,
    pub conversation_id: Option<String>,
    pub connector: Option<String>,
    #[serde(default, rename = "wait_ms")]
    pub wait_ms: u64,
    /// The `tag` of the list that the caller has.
    pub unless: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PendingApprovals {
    /// Identifies the content of the list: another list has another tag.
    pub tag: String,
    /// If they do not all fit on a line of the wire, the later ones lack action and diff.
    pub approvals: Vec<Approval>,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DecideApproval {
    pub id: String,
    pub approved: bool,
    /// Who decides, for the record: 1 to 120 characters.
    pub decided_by: String,
    pub reason: Option<String>,
    #[serde(default)]
    pub scope: GrantScope,
    /// A ULID that the caller mints: a repetition with the same key gets the same answer.
    pub key: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConsumeApproval {
    pub request_id: String,
    pub fingerprint: String,
    pub session: String,
    /// A ULID that the caller mints: a repetition with the same key is the same use.
    pub key: String,
    /// Whether the call is idempotent, so that its grant may be used again if the call was interrupted.
    #[serde(default)]
    pub again: bool,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PutApproval {
    /// The id of the request if this call creates one: `apr_` and a ULID.
    pub id: String,
    pub submission_id: SubmissionId,
    pub call_id: String,
    pub tool_call_id: String,
    pub task_id: Option<String>,
    pub requested_by: String,
    pub preview: Preview,
    pub tool: String,
    /// How long it may be pending.
    pub expires_in_ms: i64,
    /// If set, the policy denies the call for this reason: the request is stored as denied, and nobody is asked.
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

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedCall {
    pub call_id: String,
    pub task_id: Option<String>,
    /// The request whose grant the call has taken.
    pub used: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Expired {
    pub expired: u64,
    /// When the next one expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Timestamp>,
}
