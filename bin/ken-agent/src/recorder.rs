//! Records a submission. Each event is applied to the state at once and sent to the store in order. Only one append is
//! open at a time; events that are recorded in the meantime are sent with the next one. The event that starts a step is
//! held back for a moment so that the following events are sent with it. In this way a quick turn needs only one write.

use std::future::{Future, pending};
use std::pin::pin;
use std::time::Duration;

use ken_types::event::{Body, Event, Message};
use ken_types::ops::approvals::{Approval, PutApproval, TurnOfRequest};
use ken_types::ops::store::{AppendEvents, Lease, SettleSubmission};
use ken_types::{Error, Timestamp};
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep_until};

use crate::envelope::{Envelope, written};
use crate::journal::{Journal, requested};
use crate::ports::Pending;
use crate::store::Store;
use crate::turn_state::{Settlement, TaskRef, TurnState};

/// The maximum size of unsent events, in bytes. The submission waits while there are more.
const MAX_WAITING_BYTES: usize = 1024 * 1024;
/// How long an event that starts a step waits for the following events.
const MAX_EVENT_DELAY: Duration = Duration::from_millis(20);
/// How long the start of a call waits for the request for its approval, whose preview is a process, and a decision for the end of
/// its call. A reader hardly notices, and neither has to be on disk by itself: a call that acts flushes first, and the decision is
/// in the store.
const MAX_CALL_DELAY: Duration = Duration::from_millis(100);

/// The state of a submission, and the events that are not stored yet.
pub(crate) struct Recorder<S> {
    pub(crate) state: TurnState,
    envelope: Envelope,
    lease: Lease,
    store: S,
    /// Events that have not been sent to the store yet.
    waiting: Vec<Box<RawValue>>,
    waiting_bytes: usize,
    /// The time at which they must be sent. `None` if there are none.
    due: Option<Instant>,
    under_way: Option<Pending<'static, Result<(), Error>>>,
}

impl<S: Store> Recorder<S> {
    pub(crate) fn new(state: TurnState, envelope: Envelope, lease: Lease, store: S) -> Recorder<S> {
        Recorder { state, envelope, lease, store, waiting: Vec::new(), waiting_bytes: 0, due: None, under_way: None }
    }

    /// Records one event, unless it is already recorded. It is sent the next time that the submission waits for
    /// something.
    fn note(&mut self, body: Body, of: Option<TaskRef>) -> Result<(), Error> {
        if self.state.is_redundant(&body) {
            return Ok(());
        }
        let delay = max_delay(&body);
        let starts_call = matches!(body, Body::ToolStart { .. });
        let event = self.envelope.wrap(&self.state, body, of, Timestamp::now());
        let raw = written(&event)?;
        self.state.apply(&event);
        self.waiting_bytes += raw.get().len();
        self.waiting.push(raw);
        // What the model said last waits with the start of its calls: these flush it, or ask for their approval with it.
        let earlier = self.due.filter(|_| !starts_call);
        let due = Instant::now() + delay;
        self.due = Some(earlier.map_or(due, |earlier| earlier.min(due)));
        Ok(())
    }

    /// Writes the end of the submission: the unsent events, the outcome and the result, in one transaction.
    pub(crate) async fn settle(
        mut self,
        settlement: Settlement,
        context_usage: Option<serde_json::Value>,
    ) -> Result<(), Error> {
        // The store takes events in the order of their indexes, so the append under way has to end first.
        if let Some(append) = self.under_way.take() {
            append.await?;
        }
        self.note(settlement.event(), None)?;
        while self.waiting_bytes > MAX_WAITING_BYTES {
            self.send_some();
            if let Some(append) = self.under_way.take() {
                append.await?;
            }
        }
        let settle = SettleSubmission {
            lease: self.lease.clone(),
            first_index: self.first_waiting(),
            events: self.waiting,
            outcome: settlement.outcome,
            result: settlement.result,
            error: settlement.error,
            context_usage,
            summary: settlement.summary,
            used: settlement.used,
        };
        self.store.settle(settle).await
    }

    /// Waits until events have to be sent, and sends them with one append. Cancel safe.
    async fn send(&mut self) -> Result<(), Error> {
        if self.under_way.is_none() {
            let has_room = self.waiting_bytes < MAX_WAITING_BYTES;
            match self.due {
                None => pending().await,
                Some(due) if has_room && due > Instant::now() => sleep_until(due).await,
                Some(_) => {}
            }
            self.send_some();
        }
        let sent = match &mut self.under_way {
            Some(append) => append.await,
            None => Ok(()),
        };
        self.under_way = None;
        sent
    }

    /// Starts an append with as many unsent events as fit into one line of the wire.
    fn send_some(&mut self) {
        let first_index = self.first_waiting();
        let mut bytes = 0;
        let fitting = self.waiting.iter().take_while(|event| {
            bytes += event.get().len();
            bytes <= 2 * MAX_WAITING_BYTES
        });
        let count = fitting.count();
        let events: Vec<Box<RawValue>> = self.waiting.drain(..count).collect();
        self.waiting_bytes = self.waiting.iter().map(|event| event.get().len()).sum();
        self.due = (!self.waiting.is_empty()).then(Instant::now);
        let append = AppendEvents { lease: self.lease.clone(), first_index, events };
        let store = self.store.clone();
        self.under_way = Some(Box::pin(async move { store.append(append).await }));
    }

    /// Takes note of a request that was stored together with all unsent events. If it is a new one, with this id and
    /// event, its event was stored, too.
    fn note_stored(&mut self, stored: &Approval, id: &str, event: &Event, of: Option<TaskRef>) -> Result<(), Error> {
        self.waiting.clear();
        (self.waiting_bytes, self.due) = (0, None);
        if !stored.has_waited() {
            return Ok(());
        }
        if stored.request_id == id {
            self.state.apply(event);
            return Ok(());
        }
        self.note(stored.requested(None), of)
    }

    fn first_waiting(&self) -> u64 {
        self.state.next_index - self.waiting.len() as u64
    }
}

impl<S: Store> Journal for Recorder<S> {
    fn state(&self) -> &TurnState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut TurnState {
        &mut self.state
    }

    async fn record(&mut self, body: Body, of: Option<TaskRef>) -> Result<(), Error> {
        self.note(body, of)
    }

    /// Fails with the error of the store if the lease is lost. Nothing more may then be written.
    async fn during<T: Send>(&mut self, work: impl Future<Output = T> + Send) -> Result<T, Error> {
        let mut work = pin!(work);
        loop {
            // Without room the work is not polled: a model that writes faster than the disk must not fill the memory.
            let has_room = self.waiting_bytes < MAX_WAITING_BYTES;
            tokio::select! {
                biased;
                done = &mut work, if has_room => return Ok(done),
                sent = self.send() => sent?,
            }
        }
    }

    async fn request(&mut self, put: PutApproval, of: Option<TaskRef>) -> Result<Result<Approval, Error>, Error> {
        if let Some(append) = self.under_way.take() {
            append.await?;
        }
        if self.waiting_bytes > MAX_WAITING_BYTES {
            self.flush().await?; // they do not fit into the line of the request
        }
        let id = put.id.clone();
        let event = self.envelope.wrap(&self.state, requested(&put), of.clone(), Timestamp::now());
        let Event { body: Body::ApprovalRequested { worker, .. }, place, .. } = event.clone() else {
            return Err(Error::internal("the event of a request is another one"));
        };
        let append =
            AppendEvents { lease: self.lease.clone(), first_index: self.first_waiting(), events: self.waiting.clone() };
        let put = PutApproval { turn: Some(TurnOfRequest { append, place, worker }), ..put };
        match self.store.request(put).await {
            Ok(stored) => self.note_stored(&stored, &id, &event, of).map(|()| Ok(stored)),
            // Nothing of it was stored. If the lease is lost, writing the events fails, too.
            Err(refusal) => self.flush().await.map(|()| Err(refusal)),
        }
    }

    async fn flush(&mut self) -> Result<(), Error> {
        while self.under_way.is_some() || !self.waiting.is_empty() {
            self.due = self.due.map(|due| due.min(Instant::now()));
            self.send().await?;
        }
        Ok(())
    }
}

fn max_delay(body: &Body) -> Duration {
    match body {
        Body::SubmissionResumed { .. }
        | Body::OperationStart { .. }
        | Body::AgentStart
        | Body::CompactionStart { .. }
        | Body::TurnStart { .. }
        | Body::MessageStart { .. }
        | Body::MessageEnd { message: Message::User { .. } | Message::Signal { .. } } => MAX_EVENT_DELAY,
        Body::ToolStart { .. } | Body::ApprovalDecided { .. } => MAX_CALL_DELAY,
        _ => Duration::ZERO,
    }
}
