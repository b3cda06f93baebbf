//! Checks the approval of every call. A call that needs approval uses up its grant here, right before its process
//! starts, or when the tool itself asks.

use std::time::Duration;

use ken_types::Error;
use ken_types::id::Mint;
use ken_types::ops::approvals::{ApprovalsConsume, ConsumeApproval};
use ken_types::ops::tools::{Approval, Need, Preview};
use ken_wire::Pool;

use crate::admitted::Admitted;
use crate::entry::Entry;
use crate::preview;

/// The timeout of the call to the store for the grant.
const CONSUME_TIMEOUT: Duration = Duration::from_secs(10);

/// Who approves calls.
pub(crate) enum ApprovalGate {
    /// The operator, who calls the tool in a shell.
    Operator,
    /// A person, whose decision is in the store.
    Person(Pool),
}

/// Whether a call can run.
pub(crate) enum GateResult {
    MayRun,
    /// The tool's own preview denies the call, for this reason.
    Refused(String),
}

impl ApprovalGate {
    /// Decides whether the call can run. After an error nothing runs: `forbidden` if a required grant is missing,
    /// `conflict` if the grant is for another call or has been used, `unavailable` if the store does not reply.
    pub(crate) async fn pass(&self, call: &Admitted<'_>) -> Result<GateResult, Error> {
        let ApprovalGate::Person(store) = self else {
            return Ok(GateResult::MayRun);
        };
        if is_free(call.entry.tool.approval, call.call.ask) {
            return Ok(GateResult::MayRun);
        }
        decide(store, call, preview::of(call).await).await
    }

    /// Returns who answers the tool if it asks itself whether the call may go on; `None` if it does not ask.
    pub(crate) fn asked_by(&self, entry: &Entry) -> Option<&Pool> {
        match self {
            ApprovalGate::Person(store) if entry.asks() => Some(store),
            _ => None,
        }
    }
}

/// Whether neither the tool nor a rule of the caller asks a person.
fn is_free(of_tool: Approval, is_asked_by_rule: bool) -> bool {
    of_tool == Approval::None && !is_asked_by_rule
}

/// Decides on the question of a tool, with which it says what it is about to do.
pub(crate) async fn answer(store: &Pool, call: &Admitted<'_>, question: &str) -> Result<GateResult, Error> {
    match preview::asked(call, question) {
        Ok(preview) => decide(store, call, preview).await,
        Err(reason) => Ok(GateResult::Refused(reason)),
    }
}

async fn decide(store: &Pool, call: &Admitted<'_>, preview: Preview) -> Result<GateResult, Error> {
    match preview.approval {
        Need::None => Ok(GateResult::MayRun),
        Need::Deny => Ok(GateResult::Refused(preview.reason.unwrap_or_default())),
        Need::Ask => consume(store, call, preview.fingerprint).await.map(|()| GateResult::MayRun),
    }
}

async fn consume(store: &Pool, call: &Admitted<'_>, fingerprint: String) -> Result<(), Error> {
    let Some(grant) = &call.call.grant else {
        let message = format!("a person has to approve this call of {}", call.call.name);
        return Err(Error::forbidden(message).at("/grant"));
    };
    let args = ConsumeApproval {
        request_id: grant.clone(),
        fingerprint,
        session: call.call.session.clone().unwrap_or_default(),
        key: Mint::fresh()?.ulid(),
        again: call.entry.tool.idempotent,
    };
    store
        .call::<ApprovalsConsume>(&args, CONSUME_TIMEOUT)
        .await
        .map(drop)
        .map_err(|error| Error { at: Some("/grant".to_owned()), ..error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_neither_the_tool_nor_a_rule_asks_about_is_free() {
        for of_tool in [Approval::None, Approval::Ask, Approval::Preview] {
            for by_rule in [false, true] {
                assert_eq!(is_free(of_tool, by_rule), of_tool == Approval::None && !by_rule, "{of_tool:?} {by_rule}");
            }
        }
    }
}
