//! Where an agent records its steps. The orchestrator records them in the store, a worker on the stream of the agent
//! above it.

use std::future::Future;

use ken_types::event::Body;
use ken_types::id::Mint;
use ken_types::{Error, Timestamp};

use crate::envelope::Envelope;
use crate::ports::{Caller, Events, Task};
use crate::turn_state::{Ending, TaskRef, TurnState, WorkerRef};

pub(crate) trait Journal: Send {
    fn state(&self) -> &TurnState;

    fn state_mut(&mut self) -> &mut TurnState;

    /// In a replay: returns why the turn ends at this place of the record, if it does.
    fn ended(&mut self) -> Option<Ending> {
        None
    }

    /// In a replay: returns the recorded event of the validation of the answer.
    fn recorded_validation(&mut self) -> Option<Body> {
        None
    }

    /// Records one event of the agent itself, or of one of its tasks or workers.
    fn record(&mut self, body: Body, of: Option<TaskRef>) -> impl Future<Output = Result<(), Error>> + Send;

    /// Waits for `work` and sends recorded events in the meantime. Fails if nothing more may be recorded.
    fn during<T: Send>(
        &mut self,
        work: impl Future<Output = T> + Send,
    ) -> impl Future<Output = Result<T, Error>> + Send;

    /// Waits until all recorded events are on disk.
    fn flush(&mut self) -> impl Future<Output = Result<(), Error>> + Send;
}

/// The journal of a worker. It passes its events to the agent that gave the task.
pub(crate) struct Relay {
    state: TurnState,
    envelope: Envelope,
    /// The name of the worker.
    agent: String,
    parent: Caller,
    events: Events,
}

impl Relay {
    pub(crate) fn new(worker: &Caller, task: &Task, events: Events, mint: Mint) -> Relay {
        let fresh = || TurnState::of_worker(worker.session.clone());
        Relay {
            state: task.recorded.clone().unwrap_or_else(fresh),
            envelope: Envelope::of_worker(worker, &task.parent, &task.id, mint),
            agent: task.agent.clone(),
            parent: task.parent.clone(),
            events,
        }
    }
}

impl Journal for Relay {
    fn state(&self) -> &TurnState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut TurnState {
        &mut self.state
    }

    async fn record(&mut self, body: Body, of: Option<TaskRef>) -> Result<(), Error> {
        let below = of.clone().filter(|of| of.worker.is_some());
        let event = self.envelope.wrap(&self.state, body, of, Timestamp::now());
        self.state.apply(&event);
        let of = below.unwrap_or_else(|| TaskRef {
            id: event.place.task_id.clone().unwrap_or_default(),
            worker: Some(WorkerRef {
                agent: self.agent.clone(),
                session: self.state.session.clone(),
                parent: self.parent.session.clone(),
                operation_id: event.place.operation_id.clone(),
                turn_id: event.place.turn_id.clone(),
            }),
        });
        self.events.send_of(event.body, of).await;
        Ok(())
    }

    async fn during<T: Send>(&mut self, work: impl Future<Output = T> + Send) -> Result<T, Error> {
        Ok(work.await)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        self.events.flush().await;
        Ok(())
    }
}
