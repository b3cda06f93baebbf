//! The workers: agents that do a task for another agent, each with its own turn loop, instructions and tools. Their
//! events appear on the stream of the other agent. After a crash, a worker continues after its last recorded event.

use ken_types::Error;
use ken_types::event::Outcome;
use ken_types::id::Mint;
use serde_json::Value;
use tokio::sync::watch;

use crate::background::Background;
use crate::budget::Budget;
use crate::journal::{Journal, Relay};
use crate::model::Model;
use crate::ports::{Events, Pending, Ports, Task, Workers};
use crate::turn_loop::{TurnLoop, info};
use crate::turn_state::Plan;

pub(crate) struct ModelWorkers<M> {
    pub(crate) model: M,
}

impl<M: Model> Workers for ModelWorkers<M> {
    fn work(&self, task: Task, ports: Ports, events: Events) -> Pending<'static, Result<Value, String>> {
        let model = self.model.clone();
        Box::pin(async move {
            let done = work(&model, task, &ports, events).await;
            done.map_err(|error| error.to_string())
        })
    }
}

/// Does a task and returns the worker's last message.
async fn work(model: &impl Model, task: Task, ports: &Ports, events: Events) -> Result<Value, Error> {
    let caller = task.parent.worker(&task.agent, &task.id);
    let info = match info(model).await {
        // The turn that gave the task is left to the next process, which has a ken-model again.
        Err(_) if ports.is_stopping().await => events.leave().await,
        known => known?,
    };
    // An abort goes to the turn that started the worker; when that turn ends, the worker is dropped.
    let (_, abort) = watch::channel(false);
    let mut journal = Relay::new(&caller, &task, events, Mint::fresh()?);
    journal.state_mut().complete_prompt(&task.prompt);
    let background = Background::of_worker(ports, &caller).await;
    let budget = Budget::of(&info);
    let plan = Plan::of_worker(task.prompt, info.models);
    let mut turns = TurnLoop::new(journal, model, ports, caller, plan, abort);
    (turns.background, turns.budget) = (Some(background), Some(budget));
    turns.go().await?;
    let settlement = turns.journal.state().settlement(&turns.plan);
    match (settlement.outcome, settlement.result, settlement.error) {
        (Outcome::Completed, Some(result), _) => Ok(Value::String(result.text)),
        (_, _, Some(failure)) => Err(Error::internal(failure.message)),
        _ => Err(Error::internal("the worker ended without an answer")),
    }
}
