//! Approvals: a person's consent to an action of an agent. `ken-approver` serves these operations, except those marked
//! "store only", which `ken-store` serves; it stores the requests.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::blobs::{BlobPiece, piece_bytes};
use super::store::{AppendEvents, Scope};
use super::tools::{CallTool, Preview, Risk, Whole};
use super::{Nothing, Page};
use crate::Timestamp;
use crate::event::{AskingWorker, Body, Place};
use crate::id::SubmissionId;

crate::operations! {
    /// Requests the approval of a tool call. ken-approver gets the preview of the call from ken-tools and stores it
    /// with the request. A repeated request for the same call returns the first one.
    ApprovalsRequest, "approvals.request": RequestApproval => ApprovalState;
    /// Returns one request. Waits up to `wait_ms` while it is pending. `not_found` for an unknown id.
    ApprovalsGet, "approvals.get": GetApproval => Approval;
    /// Returns pending requests, oldest first, at most 1,000. Waits up to `wait_ms` while there are none, or while the
    /// tag of the list is still `unless`.
    ApprovalsPending, "approvals.pending": ListApprovals => PendingApprovals;
    /// Decides a request. `conflict` if it was already decided, has expired or was cancelled. Of two simultaneous
    /// decisions, one takes effect.
    ApprovalsDecide, "approvals.decide": DecideApproval => Decision;
    /// Uses the grant for one call, right before the call runs. `conflict` unless all of this is true: the request is
    /// approved for this fingerprint and session, its turn has not ended, and the grant has not been used.
    ApprovalsConsume, "approvals.consume": ConsumeApproval => Nothing;

    /// Store only: stores a request, or returns the existing one that decides the call. With `turn`, also the events that
    /// the holder of the submission records, in the same transaction. A repetition with the same id gets the same reply.
    ApprovalsPut, "approvals.put": PutApproval => Approval;
    /// Store only: returns at most `limit` bytes of the whole diff of a request. `not_found` for an unknown id and for a
    /// request without a diff.
    ApprovalsDiff, "approvals.diff": GetDiff => BlobPiece;
    /// Store only: returns requests of any status, newest first.
    ApprovalsList, "approvals.list": ListAllApprovals => ApprovalPage;
    /// Store only: returns the calls of a submission for which approval was ever requested.
    ApprovalsOf, "approvals.of": OfSubmission => CallsWithApproval;
    /// Store only: expires the requests whose time has run out.
    ApprovalsExpire, "approvals.expire": Nothing => Expired;
}

/// The maximum size of a request as JSON text, in bytes. Of a longer diff it holds the beginning, and the blob `whole`
/// holds all of it.
pub const REQUEST_BYTES: usize = 256 * 1024;
/// The maximum number of pending requests, and of requests in a list.
pub const PENDING: usize = 1_000;
/// The maximum length of the deciding person's name, and of the reason, in characters.
pub const DECIDED_BY_CHARACTERS: usize = 120;
pub const REASON_CHARACTERS: usize = 2_000;
/// The maximum time to wait for a list, in milliseconds.
pub const LIST_WAIT_MS: u64 = 60_000;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestApproval {
    /// The call, with `agent`, `submission` and `session`.
    pub call: CallTool,
    /// The id of the call, unique within its submission.
    pub call_id: String,
    /// The id that the model gave to the call.
    pub tool_call_id: String,
    /// The task of the worker that makes the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// Whether nobody waits for the answer of this turn. A person is then asked only if the configuration says so.
    #[serde(default)]
    pub unattended: bool,
    /// Whether the caller stores a new request itself, with `approvals.put`, together with the events of its turn.
    #[serde(default)]
    pub caller_stores: bool,
}

/// Whether a call may run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    /// The call needs no approval.
    Free,
    /// The call must not run, for this reason.
    Denied(String),
    /// The call may run if this request is approved.
    Request(Box<Approval>),
    /// The same, but the caller has to store the request first, because it said that it does.
    Store(Box<PutApproval>),
}

/// A request as the HTTP contract shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// `apr_` and a ULID.
    pub id: String,
    pub dedupe_key: String,
    /// The task if a worker makes the call, else the submission.
    pub task_id: String,
    pub action_type: String,
    pub summary: String,
    pub reason: String,
    pub risk: Risk,
    pub target: String,
    /// The agent that makes the call.
    pub requested_by: String,
    pub fingerprint: String,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    /// `action`, `diff`, `whole`, `tool`, `sessionId`, `submissionId`, `toolCallId`.
    pub metadata: Map<String, Value>,
}

impl Request {
    /// Returns the whole diff if `metadata.diff` holds only its beginning. Approving the request needs its digest.
    pub fn whole(&self) -> Option<Whole> {
        let whole = self.metadata.get("whole")?;
        Whole::deserialize(whole).ok()
    }
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

    /// Whether the call has had to wait for a decision. A request that was decided when it was stored has not.
    pub fn has_waited(&self) -> bool {
        self.status == Status::Pending || self.updated_at > self.request.created_at
    }

    /// Returns the event that reports the request on the stream of its turn.
    pub fn requested(&self, worker: Option<AskingWorker>) -> Body {
        Body::ApprovalRequested {
            request_id: self.request_id.clone(),
            action_type: self.request.action_type.clone(),
            risk: self.request.risk.name().to_owned(),
            expires_at: self.request.expires_at,
            worker,
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

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    pub request_id: String,
    pub approved: bool,
    pub decided_by: String,
    pub decided_at: Timestamp,
    /// How the person who decided reached ken. Absent for decisions of the policy, and of older versions.
    pub decided_as: Option<DecidedAs>,
    pub reason: Option<String>,
    pub scope: GrantScope,
}

/// How a person who decides reached ken. `decided_by` is what the caller says, this is what ken knows: the part that
/// takes the decision fills it from its connection, never from what the caller sends.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum DecidedAs {
    /// By a process of this machine, under this user.
    Local {
        uid: u32,
        /// The name of the user, if it has one.
        user: Option<String>,
    },
    /// With the gateway's secret.
    Secret,
    /// By a user of the messenger.
    Messenger { user_id: String },
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
    /// The `tag` of the list that the caller already has.
    pub unless: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PendingApprovals {
    /// Identifies the content of the list. The tag changes when the list does.
    pub tag: String,
    /// If the requests do not all fit into a line of the wire, the later ones have no action and no diff.
    pub approvals: Vec<Approval>,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListAllApprovals {
    pub status: Option<Status>,
    pub session: Option<String>,
    /// The maximum number of requests, 1 to 100.
    pub limit: u32,
    /// The cursor of the page before: the id of its last request.
    pub after: Option<String>,
}

/// If the requests do not all fit into a line of the wire, the older ones have no action and no diff.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ApprovalPage {
    pub approvals: Vec<Approval>,
    pub page: Page,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DecideApproval {
    pub id: String,
    pub approved: bool,
    /// The name of the person who decides, for the record: 1 to 120 characters.
    pub decided_by: String,
    pub reason: Option<String>,
    #[serde(default)]
    pub scope: GrantScope,
    /// The digest of the whole diff. Approving a request that has `whole` is `invalid` without it.
    pub digest: Option<String>,
    pub decided_as: Option<DecidedAs>,
    /// A ULID created by the caller. A repetition with the same key gets the same reply.
    pub key: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConsumeApproval {
    pub request_id: String,
    pub fingerprint: String,
    pub session: String,
    /// A ULID created by the caller. A repetition with the same key counts as the same use.
    pub key: String,
    /// Whether the call is idempotent. If it was interrupted, its grant may then be used again.
    #[serde(default)]
    pub again: bool,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PutApproval {
    /// The id of the request if this call creates it: `apr_` and a ULID.
    pub id: String,
    pub submission_id: SubmissionId,
    pub call_id: String,
    pub tool_call_id: String,
    pub task_id: Option<String>,
    pub requested_by: String,
    pub preview: Preview,
    pub tool: String,
    /// How long the request may be pending, in milliseconds.
    pub expires_in_ms: i64,
    /// If set, the policy denies the call for this reason. The request is stored as denied, and no person is asked.
    pub refusal: Option<String>,
    /// What the holder of the submission records in the same transaction.
    pub turn: Option<TurnOfRequest>,
}

/// The events that are recorded together with a request. So the request is on disk exactly if its call is, and neither
/// takes a transaction of its own.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TurnOfRequest {
    pub append: AppendEvents,
    /// The place of the event `approval_requested`, right after these events. It is recorded if the request is new and
    /// a person has to decide it.
    pub place: Place,
    pub worker: Option<AskingWorker>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetDiff {
    pub id: String,
    #[serde(default)]
    pub offset: u64,
    /// The maximum number of bytes to return, at most 1 MiB.
    #[serde(default = "piece_bytes")]
    pub limit: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfSubmission {
    pub submission_id: SubmissionId,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CallsWithApproval {
    /// The calls, each with the task of its worker.
    pub calls: Vec<CallWithApproval>,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallWithApproval {
    pub call_id: String,
    pub task_id: Option<String>,
    /// The request whose grant the call has used.
    pub used: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Expired {
    pub expired: u64,
    /// The time at which the next request expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Timestamp>,
}
