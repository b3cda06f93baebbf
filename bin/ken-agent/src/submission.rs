//! Runs one submission from its claim to its end: the recorded steps of an earlier holder, the turns of its agent, and
//! the result.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ken_types::event::{CitedSource, ModelName, Outcome, cited_numbers};
use ken_types::id::Mint;
use ken_types::ops::documents::Used;
use ken_types::ops::model::{ModelState, NO_MODEL_HINT};
use ken_types::ops::store::{Claim, SubmissionKind};
use ken_types::ops::tools::Approval;
use ken_types::{Code, Error};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::background::{Background, shown_prompt};
use crate::budget::Budget;
use crate::envelope::Envelope;
use crate::model::Model;
use crate::names::TASK;
use crate::ports::{Caller, CallsWithApproval, Ports, ToolFacts, request};
use crate::recorded::recorded;
use crate::recorder::Recorder;
use crate::retry::failure;
use crate::scheduled;
use crate::store::Store;
use crate::turn_loop::{TurnLoop, info};
use crate::turn_state::{Call, Ending, Plan, TurnState};

#[derive(Clone)]
pub(crate) struct Agent<S, M> {
    pub(crate) store: S,
    pub(crate) model: M,
    pub(crate) ports: Ports,
}

impl<S: Store, M: Model> Agent<S, M> {
    /// Runs a claimed submission until it ends or `abort` becomes true. Fails if its lease is lost or the store refuses
    /// to record an event. The holder of the next claim then continues it.
    pub(crate) async fn run(&self, claim: Claim, abort: watch::Receiver<bool>) -> Result<Outcome, Error> {
        // The time runs from the claim: what is read below can take long.
        let until = Instant::now() + Duration::from_millis(u64::try_from(claim.time_left_ms).unwrap_or(0));
        // A later attempt needs the list of tools to decide about interrupted calls. A first attempt needs it only for its first
        // request to the model, so it reads the list together with the history.
        let is_first = claim.attempt <= 1;
        if !is_first {
            self.ports.tools.refresh().await;
        }
        let state = self.recorded(&claim).await?;
        let envelope = Envelope::of(&claim, Mint::fresh()?);
        let journal = Recorder::new(state, envelope, claim.lease.clone(), self.store.clone());
        let plan = Plan { shown: shown_prompt(&claim), ..Plan::of_submission(&claim) };
        let caller = Caller::root(Arc::new(claim));
        let mut submission = TurnLoop::new(journal, &self.model, &self.ports, caller, plan, abort);
        submission.until = Some(until);
        submission.note_approvals();
        let refresh = async {
            if is_first {
                self.ports.tools.refresh().await
            }
        };
        let ((), prepared) = tokio::join!(refresh, self.prepare(&mut submission));
        prepared?;
        submission.go().await?;
        settle(submission).await
    }

    /// Returns the state in which an earlier holder left the submission.
    async fn recorded(&self, claim: &Claim) -> Result<TurnState, Error> {
        let mut state = recorded(&self.store, claim).await?;
        state.next_index = state.next_index.max(claim.next_event_index);
        state.last_timestamp = state.last_timestamp.max(claim.last_timestamp.unwrap_or_default());
        let mut with_approval = if claim.attempt > 1 {
            self.ports.policy.calls_with_approval(claim).await?
        } else {
            CallsWithApproval::new()
        };
        with_approval.extend(self.calls_without_approval(claim, &state, &with_approval).await);
        state.resume(&|call| may_run_again(call, &self.ports.tools.facts(&call.name), &with_approval));
        Ok(state)
    }

    /// Returns interrupted calls for which no approval was requested, but whose tool requires one according to its
    /// preview. They had not begun, because they cannot run without an approval.
    async fn calls_without_approval(
        &self,
        claim: &Claim,
        state: &TurnState,
        with_approval: &CallsWithApproval,
    ) -> CallsWithApproval {
        let tools = &self.ports.tools;
        let mut unasked = CallsWithApproval::new();
        for (agent, call) in state.running(scheduled::agent(claim)) {
            if !is_asked_by_preview(call, &tools.facts(&call.name), with_approval) {
                continue;
            }
            if tools.asks(request(claim, agent, call, false)).await {
                unasked.insert(call.key());
            }
        }
        unasked
    }

    /// Loads the background of the turns. A submission that only has to be closed does not need it.
    async fn prepare(&self, submission: &mut SubmissionLoop<'_, S, M>) -> Result<(), Error> {
        if submission.plan.ending.is_some() {
            return Ok(());
        }
        let Some(info) = submission.outside(info(&self.model)).await? else {
            return Ok(());
        };
        let caller = submission.caller.clone();
        let claim = &caller.claim;
        let info = match info.and_then(|info| check_callable(info, claim)) {
            Ok(info) => info,
            Err(error) => {
                // While kend stops, it does not restart ken-model. The next process can reach one.
                submission.leave_if_stopping().await?;
                // No model can be called, so the submission fails with this error.
                submission.journal.state.failure = Some((ModelName::default(), failure(&error)));
                return Ok(());
            }
        };
        let load = Background::load(&self.store, &self.ports, &caller, info.exchanges);
        match submission.outside(load).await? {
            Some(Ok(background)) => {
                let budget = Budget::of(&info);
                (submission.plan.compaction, submission.plan.on_overflow) = background.compactions(claim, &budget);
                submission.caller.rules = background.rules.clone();
                submission.plan.duties = background.duties();
                submission.plan.sources = background.cited();
                let found = submission.journal.state.found_sources();
                let numbers = submission.plan.sources.iter().chain(&found).map(|source| source.number);
                submission.caller.last_source.fetch_max(numbers.max().unwrap_or_default(), Ordering::Relaxed);
                submission.background = Some(background);
                submission.budget = Some(budget);
            }
            Some(Err(error)) => submission.plan.ending = Some(Ending::Defect(error.to_string())),
            None => {}
        }
        let requested = requested_model(claim);
        submission.plan.is_chosen = requested.is_some();
        submission.plan.models = match requested {
            Some(model) => vec![model.to_owned()],
            None => info.models,
        };
        Ok(())
    }
}

/// Whether a call that a crash has interrupted may be made again. A task continues where its worker stopped, and a call with
/// a requested approval continues with that request. A call that never runs without an approval had not begun if none was
/// requested.
fn may_run_again(call: &Call, tool: &ToolFacts, with_approval: &CallsWithApproval) -> bool {
    let is_always_asked = tool.approval == Some(Approval::Ask);
    call.name == TASK || tool.is_idempotent || with_approval.contains(&call.key()) || is_always_asked
}

/// Whether only the preview of an interrupted call tells if it needs an approval.
fn is_asked_by_preview(call: &Call, tool: &ToolFacts, with_approval: &CallsWithApproval) -> bool {
    !with_approval.contains(&call.key()) && tool.approval == Some(Approval::Preview)
}

/// Returns the model that the prompt requests, or else its session. If there is one, no other model is called.
fn requested_model(claim: &Claim) -> Option<&str> {
    let of_prompt = claim.context.as_ref().and_then(|context| context.get("model")?.as_str());
    of_prompt.or(claim.model.as_deref())
}

/// Fails if no model can be called. A prompt is accepted without one if ken-model did not answer then, or if it is that of a
/// connector or a schedule. A compaction may have nothing to do, and then needs none.
fn check_callable(info: ModelState, claim: &Claim) -> Result<ModelState, Error> {
    let is_callable = match requested_model(claim) {
        _ if claim.kind == SubmissionKind::Compact => true,
        Some(_) => info.choices().next().is_some(),
        None => !info.models.is_empty(),
    };
    match info.why_none() {
        Some(why) if !is_callable => Err(Error::new(Code::Unauthenticated, why).hint(NO_MODEL_HINT)),
        _ => Ok(info),
    }
}

/// The turns of the submission's own agent.
type SubmissionLoop<'a, S, M> = TurnLoop<'a, Recorder<S>, M>;

async fn settle<S: Store, M: Model>(submission: SubmissionLoop<'_, S, M>) -> Result<Outcome, Error> {
    drop(submission.abort); // `Leases` detects by this that it is too late for an abort
    let state = &submission.journal.state;
    let mut settlement = state.settlement(&submission.plan);
    let (mut usage, mut report) = (None, None);
    if let Some(budget) = &submission.budget {
        usage = (state.context_tokens > 0).then(|| budget.usage(state.context_tokens));
        if let (SubmissionKind::Compact, Some(background)) = (submission.plan.kind, &submission.background) {
            let fixed = background.fixed_tokens();
            report = Some(budget.report(&background.loaded, fixed, settlement.summary.as_deref()));
        }
    }
    if let Some(result) = &mut settlement.result {
        result.context_budget = report;
    }
    settlement.used = used(&submission.plan.sources, state);
    let outcome = settlement.outcome;
    submission.journal.settle(settlement, usage).await?;
    Ok(outcome)
}

/// Returns the knowledge entries that the turns were given at the start, those that their tools found, and those that
/// the answer names.
fn used(given: &[CitedSource], state: &TurnState) -> Vec<(String, Used)> {
    let cited = cited_numbers(&state.text);
    let found = state.found_sources();
    let given = given.iter().map(|source| (source, Used::Given));
    let sources = given.chain(found.iter().map(|source| (source, Used::Found)));
    let mut used = BTreeMap::new();
    for (source, how) in sources.filter(|(source, _)| source.id.starts_with("kb-")) {
        // A model may name an entry by its id, because the results of tools contain it.
        let is_cited = cited.contains(&source.number) || state.text.contains(&source.id);
        let how = if is_cited { Used::Cited } else { how };
        let known = used.entry(source.id.clone()).or_insert(how);
        *known = how.max(*known);
    }
    used.into_iter().collect()
}
