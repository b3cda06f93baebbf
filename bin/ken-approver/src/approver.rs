//! Requests and decisions on their way to the store.

use std::time::Duration;

use ken_types::Error;
use ken_types::config::{Approvals, Unattended};
use ken_types::id::{Mint, SubmissionId};
use ken_types::ops::approvals::{
    ApprovalsDecide, ApprovalsPut, Asked, DecideApproval, Decision, PutApproval, RequestApproval,
};
use ken_types::ops::tools::{Need, Preview, ToolsPreview};
use ken_wire::{Daemon, Pool};
use tokio::sync::Notify;
use tokio::time::Instant;

/// The daemon.
pub(crate) struct Approver {
    pub(crate) store: Pool,
    tools: Pool,
    config: Approvals,
    /// A request was stored, which may be the first to expire.
    pub(crate) stored: Notify,
}

impl Daemon for Approver {}

impl Approver {
    pub(crate) fn new(store: Pool, tools: Pool, config: Approvals) -> Approver {
        Approver {
            store,
            tools,
            config,
            stored: Notify::new(),
        }
    }

    /// What the call would do comes from ken-tools alone, so that nobody is asked about anything else.
    pub(crate) async fn request(&self, args: RequestApproval, time: Duration) -> Result<Asked, Error> {
        let until = Instant::now() + time;
        let (agent, submission) = origin(&args)?;
        let preview = self.tools.call::<ToolsPreview>(&args.call, time).await?;
        match preview.approval {
            Need::None => return Ok(Asked::Free),
            Need::Deny => return Ok(Asked::Denied(preview.reason.unwrap_or_default())),
            Need::Ask => {}
        }
        let put = self.put(args, preview, agent, submission)?;
        let left = until.saturating_duration_since(Instant::now());
        let stored = self.store.call::<ApprovalsPut>(&put, left).await?;
        self.stored.notify_one();
        Ok(Asked::Request(Box::new(stored)))
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
            task_id: args.task_id,
            requested_by,
            preview,
            tool: args.call.name,
            expires_in_ms: i64::from(self.config.expiry_ms),
            refusal,
        })
    }

    /// Whoever did not hear the answer asks again under the same key, so every decision has one.
    pub(crate) async fn decide(&self, mut args: DecideApproval, time: Duration) -> Result<Decision, Error> {
        if args.key.is_none() {
            args.key = Some(Mint::fresh()?.ulid());
        }
        self.store.change::<ApprovalsDecide>(&args, time, time).await
    }
}

/// Who calls, and in which turn.
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
