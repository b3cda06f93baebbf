//! The recording of a submission: what is said is applied to the course and on its way to the store at once, in order, with
//! as few appends as the store's own speed allows. One append is under way at a time; what comes meanwhile goes with the next.
//! Only the beginning of something waits a moment for what it begins with: a turn that is over by then is one write.

use std::future::{Future, pending};
use std::pin::pin;
use std::time::Duration;

use ken_types::event::Body;
use ken_types::ops::store::{AppendEvents, Lease, SettleSubmission};
use ken_types::{Error, Timestamp};
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep_until};

use crate::course::{Course, Settlement};
use crate::envelope::{Envelope, written};
use crate::seams::Pending;
use crate::store::Store;

/// What waits beyond this makes its speaker wait.
const WAITING_BYTES: usize = 1024 * 1024;
/// How long a beginning waits for what follows it.
const PATIENCE: Duration = Duration::from_millis(20);

pub(crate) struct Record<S> {
    pub(crate) course: Course,
    envelope: Envelope,
    lease: Lease,
    store: S,
    /// Written events that no append has taken yet.
    waiting: Vec<Box<RawValue>>,
    waiting_bytes: usize,
    /// When they are to be sent; `None` while none waits.
    due: Option<Instant>,
    under_way: Option<Pending<'static, Result<(), Error>>>,
}

impl<S: Store> Record<S> {
    pub(crate) fn new(course: Course, envelope: Envelope, lease: Lease, store: S) -> Record<S> {
        Record {
            course,
            envelope,
            lease,
            store,
            waiting: Vec::new(),
            waiting_bytes: 0,
            due: None,
            under_way: None,
        }
    }

    /// Records one event. It is sent when the submission next waits for something.
    pub(crate) fn say(&mut self, body: Body, task_id: Option<String>) -> Result<(), Error> {
        let due = Instant::now() + patience(&body);
        let event = self.envelope.wrap(&self.course, body, task_id, Timestamp::now());
        let raw = written(&event)?;
        self.course.apply(&event);
        self.waiting_bytes += raw.get().len();
        self.waiting.push(raw);
        self.due = Some(self.due.map_or(due, |earlier| earlier.min(due)));
        Ok(())
    }

    /// Waits for `work` and sends meanwhile. An error is the store's: the lease is lost and nothing more may be written.
    pub(crate) async fn during<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Error> {
        let mut work = pin!(work);
        loop {
            let has_room = self.waiting_bytes < WAITING_BYTES;
            tokio::select! {
                biased;
                done = &mut work, if has_room => return Ok(done),
                sent = self.send() => sent?,
            }
        }
    }

    /// Sends all that waits.
    pub(crate) async fn flush(&mut self) -> Result<(), Error> {
        while self.under_way.is_some() || !self.waiting.is_empty() {
            self.due = self.due.map(|due| due.min(Instant::now()));
            self.send().await?;
        }
        Ok(())
    }

    /// The end: what is still waiting, the outcome and the result, in one transaction.
    pub(crate) async fn settle(
        mut self,
        settlement: Settlement,
        context_usage: Option<serde_json::Value>,
    ) -> Result<(), Error> {
        if let Some(append) = self.under_way.take() {
            append.await?;
        }
        self.say(settlement.event(), None)?;
        while self.waiting_bytes > WAITING_BYTES {
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
        };
        self.store.settle(settle).await
    }

    /// Sends what is due, once. Cancel safe.
    async fn send(&mut self) -> Result<(), Error> {
        if self.under_way.is_none() {
            let has_room = self.waiting_bytes < WAITING_BYTES;
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

    /// Starts an append with what waits, as far as it fits a line of the wire.
    fn send_some(&mut self) {
        let first_index = self.first_waiting();
        let mut bytes = 0;
        let fitting = self.waiting.iter().take_while(|event| {
            bytes += event.get().len();
            bytes <= 2 * WAITING_BYTES
        });
        let count = fitting.count();
        let events: Vec<Box<RawValue>> = self.waiting.drain(..count).collect();
        self.waiting_bytes = self.waiting.iter().map(|event| event.get().len()).sum();
        self.due = (!self.waiting.is_empty()).then(Instant::now);
        let append = AppendEvents {
            lease: self.lease.clone(),
            first_index,
            events,
        };
        let store = self.store.clone();
        self.under_way = Some(Box::pin(async move { store.append(append).await }));
    }

    fn first_waiting(&self) -> u64 {
        self.course.next_index - self.waiting.len() as u64
    }
}

/// How long an event may wait for others: a beginning is told with what it begins with.
fn patience(body: &Body) -> Duration {
    match body {
        Body::SubmissionResumed { .. }
        | Body::OperationStart { .. }
        | Body::AgentStart
        | Body::CompactionStart { .. }
        | Body::TurnStart { .. }
        | Body::MessageStart { .. } => PATIENCE,
        _ => Duration::ZERO,
    }
}
