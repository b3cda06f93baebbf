//! Where an agent records its steps. The orchestrator records them in the store, a worker on the stream of the agent
//! above it.

use std::future::Future;

use ken_types::event::{Body, Event};
use ken_types::id::Mint;
use ken_types::ops::approvals::{Approval, PutApproval};
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

    /// Called before the tool calls of a turn begin.
    fn begin_calls(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// In a replay: returns the recorded event of the validation of the answer.
    fn recorded_validation(&mut self) -> Option<Body> {
        None
    }

    /// Records one event of the agent itself, or of one of its tasks or workers.
    fn record(&mut self, body: Body, of: Option<TaskRef>) -> impl Future<Output = Result<(), Error>> + Send;

    /// Waits for `work`. A journal that stores events sends the recorded ones in the meantime; the default sends none. Fails if nothing more
    /// may be recorded.
    fn during<T: Send>(
        &mut self,
        work: impl Future<Output = T> + Send,
    ) -> impl Future<Output = Result<T, Error>> + Send {
        async { Ok(work.await) }
    }

    /// Waits until all recorded events are on disk.
    fn flush(&mut self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Stores a request for an approval in the same write as all recorded events, and records its event if a person has
    /// to decide. The inner error says why the request was refused. A replay requests nothing.
    fn request(
        &mut self,
        _put: PutApproval,
        _of: Option<TaskRef>,
    ) -> impl Future<Output = Result<Result<Approval, Error>, Error>> + Send {
        std::future::ready(Ok(Err(Error::internal("nobody is asked in a replay"))))
    }
}

/// Returns the event of a request that is not stored yet.
pub(crate) fn requested(put: &PutApproval) -> Body {
    Body::ApprovalRequested {
        request_id: put.id.clone(),
        action_type: put.preview.action_type.clone(),
        risk: put.preview.risk.name().to_owned(),
        expires_at: Timestamp::now().plus_millis(put.expires_in_ms),
        worker: None,
    }
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

    /// Returns an event with its place in the worker's own stream, and the task to which the stream of the agent that gave the task
    /// assigns it.
    fn wrap(&mut self, body: Body, of: Option<TaskRef>) -> (Event, TaskRef) {
        let below = of.clone().filter(|of| of.worker.is_some());
        let event = self.envelope.wrap(&self.state, body, of, Timestamp::now());
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
        (event, of)
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
        let (event, of) = self.wrap(body, of);
        self.state.apply(&event);
        self.events.send_of(event.body, of).await;
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Error> {
        self.events.flush().await;
        Ok(())
    }

    /// The agent that gave the task stores the request and records its event; this one only knows of it.
    async fn request(&mut self, put: PutApproval, of: Option<TaskRef>) -> Result<Result<Approval, Error>, Error> {
        let (_, asking) = self.wrap(requested(&put), of.clone());
        let stored = self.events.request_of(put, Some(asking)).await;
        if let Some(stored) = stored.as_ref().ok().filter(|stored| stored.has_waited()) {
            let (event, _) = self.wrap(stored.requested(None), of);
            self.state.apply(&event);
        }
        Ok(stored)
    }
}
