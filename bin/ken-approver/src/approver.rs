//! The operations: requesting an approval for a call, and deciding a request. Both are stored by ken-store.

use std::time::Duration;

use ken_types::Error;
use ken_types::config::{Approvals, Unattended};
use ken_types::id::{Mint, SubmissionId};
use ken_types::ops::approvals::{
    Approval, ApprovalState, ApprovalsDecide, ApprovalsGet, ApprovalsOf, ApprovalsPut, CallWithApproval,
    DecideApproval, Decision, GetApproval, OfSubmission, PutApproval, RequestApproval,
};
use ken_types::ops::tools::{Need, Preview, ToolsPreview};
use ken_wire::{Daemon, Pool};
use tokio::time::Instant;

/// The state of the daemon.
pub(crate) struct Approver {
    pub(crate) store: Pool,
    tools: Pool,
    config: Approvals,
}

impl Daemon for Approver {}

impl Approver {
    /// Fails with `invalid` if the configured expiry is out of range.
    pub(crate) fn new(store: Pool, tools: Pool, config: Approvals) -> Result<Approver, Error> {
        if let Some(problem) = config.problem() {
            return Err(Error::invalid("approvals.expiry_ms", problem));
        }
        Ok(Approver { store, tools, config })
    }

    /// Returns how long a request is pending at least.
    pub(crate) fn expiry(&self) -> Duration {
        Duration::from_millis(self.config.expiry_ms.into())
    }

    /// Returns whether a call needs an approval and, if it does, the request: stored, or for the caller to store. The
    /// description of the call comes from a preview by ken-tools, not from the caller, so a person always decides about
    /// the actual call. Fails if `time` is over.
    pub(crate) async fn request(&self, args: RequestApproval, time: Duration) -> Result<ApprovalState, Error> {
        let until = Instant::now() + time;
        let (agent, submission) = origin(&args)?;
        if let Some(used) = self.used(&args, &submission, until).await? {
            return Ok(ApprovalState::Request(Box::new(used)));
        }
        let preview = self.tools.call::<ToolsPreview>(&args.call, left(until)).await?;
        match preview.approval {
            Need::None => return Ok(ApprovalState::Free),
            Need::Deny => return Ok(ApprovalState::Denied(preview.reason.unwrap_or_default())),
            Need::Ask => {}
        }
        let caller_stores = args.caller_stores;
        let put = Box::new(self.put(args, preview, agent, submission)?);
        if caller_stores {
            return Ok(ApprovalState::Store(put));
        }
        let stored = self.store.call::<ApprovalsPut>(&put, left(until)).await?;
        Ok(ApprovalState::Request(Box::new(stored)))
    }

    /// Returns the request whose grant this call has already used; `None` if there is none. The call was interrupted
    /// after it used the grant, and may have taken effect, so a new preview would be misleading.
    async fn used(
        &self,
        args: &RequestApproval,
        submission: &SubmissionId,
        until: Instant,
    ) -> Result<Option<Approval>, Error> {
        let of = OfSubmission { submission_id: submission.clone() };
        let calls = self.store.call::<ApprovalsOf>(&of, left(until)).await?.calls;
        let Some(id) = used_by(&calls, args) else {
            return Ok(None);
        };
        let get = GetApproval { id, wait_ms: 0 };
        self.store.call::<ApprovalsGet>(&get, left(until)).await.map(Some)
    }

    fn put(
        &self,
        args: RequestApproval,
        preview: Preview,
        requested_by: String,
        submission_id: SubmissionId,
    ) -> Result<PutApproval, Error> {
        let refuses = args.unattended && self.config.unattended == Unattended::Deny;
        let refusal = refuses.then(|| {
            "Nobody is there to approve it: the turn was started by a schedule ([approvals] unattended in ken.toml)."
                .to_owned()
        });
        Ok(PutApproval {
            id: Mint::fresh()?.prefixed("apr_"),
            submission_id,
            call_id: args.call_id,
            tool_call_id: args.tool_call_id,
            task_id: args.task_id,
            requested_by,
            preview,
            tool: args.call.name,
            expires_in_ms: i64::from(self.config.expiry_ms),
            refusal,
            turn: None,
        })
    }

    /// Stores a decision under an idempotency key, which is generated if the caller gives none. If the answer is lost,
    /// the caller can repeat the request with the same key.
    pub(crate) async fn decide(&self, mut args: DecideApproval, time: Duration) -> Result<Decision, Error> {
        if args.key.is_none() {
            args.key = Some(Mint::fresh()?.ulid());
        }
        self.store.change::<ApprovalsDecide>(&args, time, time).await
    }
}

/// Returns the time that is left for the next of several calls.
fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

/// Returns the request whose grant this call has used. Only a call of the same task is the same.
fn used_by(calls: &[CallWithApproval], args: &RequestApproval) -> Option<String> {
    let is_same = |call: &&CallWithApproval| call.call_id == args.call_id && call.task_id == args.task_id;
    calls.iter().find(is_same)?.used.clone()
}

/// Returns the agent and the submission that make the call. Fails with `invalid` if the agent, the submission or the
/// session is missing.
fn origin(args: &RequestApproval) -> Result<(String, SubmissionId), Error> {
    let missing = |name: &str| Error::invalid(format!("/call/{name}"), format!("{name} is missing"));
    let agent = args.call.agent.clone().ok_or_else(|| missing("agent"))?;
    let submission = args.call.submission.clone();
    let submission = submission.ok_or_else(|| missing("submission"))?;
    if args.call.session.is_none() {
        return Err(missing("session"));
    }
    Ok((agent, SubmissionId(submission)))
}

#[cfg(test)]
mod tests {
    use ken_types::ops::tools::CallTool;

    use super::*;

    fn approver(expiry_ms: u32, unattended: Unattended) -> Result<Approver, Error> {
        let pool = || Pool::new("/nowhere");
        Approver::new(pool(), pool(), Approvals { expiry_ms, unattended })
    }

    fn request(call: &str, task: Option<&str>, unattended: bool) -> RequestApproval {
        let text = || Some("x".to_owned());
        RequestApproval {
            call: CallTool { agent: text(), submission: text(), session: text(), ..CallTool::default() },
            call_id: call.to_owned(),
            tool_call_id: call.to_owned(),
            task_id: task.map(str::to_owned),
            unattended,
            caller_stores: false,
        }
    }

    #[test]
    fn a_request_waits_for_a_second_to_a_week() {
        for (expiry_ms, fits) in [(999, false), (1_000, true), (604_800_000, true), (604_800_001, false)] {
            assert_eq!(approver(expiry_ms, Unattended::Ask).is_ok(), fits, "{expiry_ms}");
        }
    }

    #[test]
    fn nobody_is_asked_only_if_nobody_is_there_and_the_settings_say_so() {
        for unattended in [false, true] {
            for setting in [Unattended::Ask, Unattended::Deny] {
                let preview = serde_json::from_value(serde_json::json!({"approval": "ask"})).unwrap();
                let args = request("1", None, unattended);
                let put = approver(1_000, setting).unwrap().put(args, preview, "a".into(), SubmissionId("s".into()));
                let is_refused = put.unwrap().refusal.is_some();
                assert_eq!(is_refused, unattended && setting == Unattended::Deny, "{unattended} {setting:?}");
            }
        }
    }

    #[test]
    fn a_used_grant_is_that_of_the_same_call_of_the_same_task() {
        let call = |call: &str, task: Option<&str>, used: Option<&str>| CallWithApproval {
            call_id: call.to_owned(),
            task_id: task.map(str::to_owned),
            used: used.map(str::to_owned),
        };
        let calls = [
            call("1", None, None),
            call("1", Some("t"), Some("of the worker")),
            call("2", None, Some("of the agent")),
            call("2", Some("t"), None),
        ];
        for (id, task, used) in [
            ("1", None, None),
            ("1", Some("t"), Some("of the worker")),
            ("1", Some("u"), None),
            ("2", None, Some("of the agent")),
            ("2", Some("t"), None),
            ("3", None, None),
        ] {
            assert_eq!(used_by(&calls, &request(id, task, false)).as_deref(), used, "{id} {task:?}");
        }
    }

    #[test]
    fn a_call_is_that_of_an_agent_in_a_session() {
        let without = |change: fn(&mut CallTool)| {
            let mut args = request("1", None, false);
            change(&mut args.call);
            origin(&args).err().and_then(|error| error.at)
        };
        assert_eq!(without(|_| {}), None);
        assert_eq!(without(|call| call.agent = None).as_deref(), Some("/call/agent"));
        assert_eq!(without(|call| call.submission = None).as_deref(), Some("/call/submission"));
        assert_eq!(without(|call| call.session = None).as_deref(), Some("/call/session"));
    }
}
