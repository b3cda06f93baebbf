//! The model, tools, approvals and workers of a replay. All of their replies come from the record.

use ken_types::Error;
use ken_types::event::{Body, NO_TOOL, ToolResult};
use ken_types::ops::agent::Record;
use ken_types::ops::model::{Delta, Generate, Generated, ModelState, ToolSpec};
use serde_json::Value;

use super::tape::{End, RecordedAnswer, SharedTape, stopped};
use crate::model::{Model, ModelError, Reply};
use crate::ports::{Events, Grant, Pending, Policy, Ports, RequestedCall, Task, ToolFacts, Tools, Workers};
use crate::tools::NOT_ALLOWED;
use crate::worker::ModelWorkers;

/// Returns the recorded answers of a session.
#[derive(Clone)]
pub(super) struct TapeModel {
    pub(super) tape: SharedTape,
    pub(super) session: String,
    pub(super) state: ModelState,
}

pub(super) struct TapeReply {
    answer: RecordedAnswer,
    /// The part of the message that was already recorded before this call.
    prefix: String,
}

impl Model for TapeModel {
    type Reply = TapeReply;

    async fn info(&self) -> Result<ModelState, Error> {
        Ok(self.state.clone())
    }

    async fn generate(&self, request: &Generate) -> Result<TapeReply, ModelError> {
        let (answer, is_open) = {
            let mut tape = self.tape.lock();
            (tape.answer(&self.session), tape.may_leave_calls_open())
        };
        match answer {
            Some(answer) => Ok(TapeReply { answer, prefix: request.prefix.clone() }),
            None if is_open => std::future::pending().await,
            None => Err(ModelError::Failed(stopped())),
        }
    }

    fn paces(&self) -> bool {
        false
    }
}

impl Reply for TapeReply {
    async fn next(&mut self) -> Option<Result<Delta, Error>> {
        while let Some(delta) = self.answer.deltas.pop_front() {
            match delta {
                Delta::Text { delta } if !self.prefix.is_empty() && !delta.is_empty() => {
                    if let Some(rest) = self.prefix.strip_prefix(delta.as_str()) {
                        self.prefix = rest.to_owned();
                        continue;
                    }
                    let fresh = delta.strip_prefix(self.prefix.as_str()).unwrap_or(&delta).to_owned();
                    self.prefix.clear();
                    return Some(Ok(Delta::Text { delta: fresh }));
                }
                delta => return Some(Ok(delta)),
            }
        }
        match &self.answer.end {
            End::Done(_) => None,
            End::Failed(error) => Some(Err(error.clone())),
            End::Cut => std::future::pending().await,
        }
    }

    async fn end(self) -> Result<Generated, ModelError> {
        match self.answer.end {
            End::Done(generated) => Ok(generated),
            End::Failed(error) => Err(ModelError::Failed(error)),
            End::Cut => std::future::pending().await,
        }
    }
}

/// The tools of the record. Calls return the recorded results.
pub(super) struct TapeTools {
    pub(super) record: Record,
    pub(super) tape: SharedTape,
}

impl Tools for TapeTools {
    fn list(&self, agent: &str) -> Vec<ToolSpec> {
        self.record.tools.get(agent).cloned().unwrap_or_default()
    }

    fn facts(&self, name: &str) -> ToolFacts {
        ToolFacts { is_built_in: self.record.built_in.iter().any(|own| own == name), ..ToolFacts::default() }
    }

    fn call(&self, requested: RequestedCall, _: Option<Grant>) -> Pending<'static, Result<ToolResult, String>> {
        let (result, not_judged) = {
            let mut tape = self.tape.lock();
            let result = tape.result(requested.caller.session.as_str(), &requested.call.id);
            (result, requested.call.id.is_empty().then(|| tape.not_judged()).flatten())
        };
        Box::pin(async move {
            match result {
                Some(Err(why)) if was_refused(&why) => Err(format!("It was refused then, and would run today. {why}")),
                Some(result) => result,
                None if requested.call.id.is_empty() => {
                    Err(not_judged.unwrap_or_else(|| "it was not judged then".to_owned()))
                }
                // The record has no result because the call was still running when the record was
                // cut off or the turn was aborted.
                None => std::future::pending().await,
            }
        })
    }
}

/// Whether the loop itself refused a call, because of a rule or because there was no such tool.
fn was_refused(why: &str) -> bool {
    let reason = why.strip_prefix(NOT_ALLOWED).unwrap_or_default();
    reason.starts_with("the rule ") || why.starts_with(NO_TOOL)
}

/// Decides requests for approval as they were decided in the record.
pub(super) struct TapePolicy {
    pub(super) tape: SharedTape,
}

impl Policy for TapePolicy {
    fn check(&self, requested: RequestedCall, events: Events) -> Pending<'static, Result<Option<Grant>, String>> {
        let tape = self.tape.clone();
        Box::pin(async move {
            // The record is at this call only when the events before it have been compared.
            events.flush().await;
            let session = requested.caller.session.as_str();
            let approvals = tape.lock().approvals(session);
            let mut open = 0;
            for body in approvals {
                match &body {
                    Body::ApprovalRequested { .. } => open += 1,
                    Body::ApprovalDecided { status, .. } if status == "cancelled" => continue,
                    _ => open -= 1,
                }
                events.send(body).await;
            }
            if open > 0 {
                std::future::pending::<()>().await;
            }
            let next = tape.lock().next_result(session, &requested.call.id).cloned();
            let Some(Err(why)) = next else { return Ok(None) };
            match why.strip_prefix(NOT_ALLOWED) {
                Some(reason) if !was_refused(&why) => Err(reason.to_owned()),
                _ => Ok(None),
            }
        })
    }
}

/// Workers, which use the same loop.
pub(super) struct TapeWorkers {
    pub(super) model: TapeModel,
}

impl Workers for TapeWorkers {
    fn work(&self, task: Task, ports: Ports, events: Events) -> Pending<'static, Result<Value, String>> {
        let session = task.parent.worker(&task.agent, &task.id).session;
        let mut model = self.model.clone();
        let models = model.tape.lock().models(session.as_str());
        if !models.is_empty() {
            model.state.models = models;
        }
        model.session = session.as_str().to_owned();
        ModelWorkers { model }.work(task, ports, events)
    }
}
