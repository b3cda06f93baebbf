//! One submission, from its claim to its end: takes the next step until none is left.

#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ken_types::event::{Body, Event, ModelName, OperationKind, Outcome};
use ken_types::id::{Mint, random};
use ken_types::ops::model::Delta;
use ken_types::ops::store::{Claim, ReadStream, SubmissionKind, Verdict};
use ken_types::{Error, Offset, Timestamp};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::answer::Answer;
use crate::background::Background;
use crate::budget::Budget;
use crate::envelope::Envelope;
use crate::model::{Model, ModelError, Reply};
use crate::recorder::Recorder;
use crate::retry::{failure, jittered};
use crate::seams::{Caller, ORCHESTRATOR, Seams};
use crate::store::Store;
use crate::tools::Running;
use crate::turn_state::{Ending, MessageState, Plan, Step, TaskRef, TurnState};

/// What all submissions of an agent share.
#[derive(Clone)]
pub(crate) struct Agent<S, M> {
    pub(crate) store: S,
    pub(crate) model: M,
    pub(crate) seams: Seams,
}

/// How often ken-model may die within one call; then the call has failed.
const DEATHS: u32 = 3;
/// How long to wait before a call to a ken-model that was away is made again, and how often at the start of a submission.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSES: u32 = 100;

impl<S: Store, M: Model> Agent<S, M> {
    /// Runs a claimed submission to its end, or until `abort` becomes true. An error means that its lease is lost, or that
    /// the store refused to record an event: the holder of the next claim goes on.
    pub(crate) async fn run(&self, claim: Claim, abort: watch::Receiver<bool>) -> Result<Outcome, Error> {
        self.seams.tools.refresh().await;
        let state = self.recorded(&claim).await?;
        let envelope = Envelope::of(&claim, Mint::fresh()?);
        let recorder = Recorder::new(state, envelope, claim.lease.clone(), self.store.clone());
        let until = Instant::now() + Duration::from_millis(u64::try_from(claim.time_left_ms).unwrap_or(0));
        let mut submission = Submission {
            agent: self,
            recorder,
            plan: Plan {
                kind: claim.kind,
                operation: operation_kind(claim.kind),
                attempt: claim.attempt,
                models: Vec::new(),
                compaction: None,
                on_overflow: None,
                ending: claim.verdict.map(Ending::from),
            },
            background: None,
            budget: None,
            claim: Arc::new(claim),
            abort,
            until,
            waiting_since: None,
        };
        submission.note_approvals();
        submission.prepare().await?;
        submission.go().await?;
        submission.settle().await
    }

    /// The state in which an earlier holder left it.
    async fn recorded(&self, claim: &Claim) -> Result<TurnState, Error> {
        let mut state = TurnState::default();
        let mut offset = claim.recorded_from;
        while claim.next_event_index > state.next_index {
            let page = ReadStream {
                stream: claim.stream.clone(),
                offset,
                ..ReadStream::default()
            };
            let page = self.store.recorded(page).await?;
            for event in events(&page.entries)? {
                if event.place.submission_id == claim.lease.submission_id {
                    state.apply(&event);
                }
            }
            if page.next >= page.end {
                break;
            }
            offset = Offset::After(page.next);
        }
        state.next_index = state.next_index.max(claim.next_event_index);
        state.last_timestamp = state.last_timestamp.max(claim.last_timestamp.unwrap_or_default());
        state.resume(|tool| self.seams.tools.is_idempotent(tool));
        Ok(state)
    }
}

fn events(entries: &[Box<serde_json::value::RawValue>]) -> Result<Vec<Event>, Error> {
    let read = entries.iter().map(|entry| serde_json::from_str(entry.get()));
    let unreadable = |error| Error::internal(format!("a recorded event was not understood: {error}"));
    read.collect::<Result<_, _>>().map_err(unreadable)
}

impl From<Verdict> for Ending {
    fn from(verdict: Verdict) -> Ending {
        match verdict {
            Verdict::Abort => Ending::Aborted,
            Verdict::RetryExhausted => Ending::RetryExhausted,
            Verdict::Timeout => Ending::Timeout,
        }
    }
}

fn operation_kind(kind: SubmissionKind) -> OperationKind {
    match kind {
        SubmissionKind::Compact => OperationKind::Compact,
        _ => OperationKind::Prompt,
    }
}

struct Submission<'a, S, M> {
    agent: &'a Agent<S, M>,
    claim: Arc<Claim>,
    recorder: Recorder<S>,
    plan: Plan,
    background: Option<Background>,
    budget: Option<Budget>,
    abort: watch::Receiver<bool>,
    /// When it has passed its time limit.
    until: Instant,
    /// Since when an approval is waited for. That time does not count.
    waiting_since: Option<Instant>,
}

impl<S: Store, M: Model> Submission<'_, S, M> {
    /// Loads what the turns start from. None of it is needed to close a submission.
    async fn prepare(&mut self) -> Result<(), Error> {
        if self.plan.ending.is_some() {
            return Ok(());
        }
        let agent = self.agent;
        let Some(info) = self.outside(info(&agent.model)).await? else {
            return Ok(());
        };
        let info = match info {
            Ok(info) => info,
            Err(error) => {
                // No model can be called; the submission fails, and says why.
                self.recorder.state.failure = Some((ModelName::default(), failure(&error)));
                return Ok(());
            }
        };
        let claim = self.claim.clone();
        let load = Background::load(&agent.store, &agent.seams, &claim, info.exchanges);
        match self.outside(load).await? {
            Some(Ok(background)) => {
                let budget = Budget::of(&info);
                (self.plan.compaction, self.plan.on_overflow) = background.compactions(&self.claim, &budget);
                self.background = Some(background);
                self.budget = Some(budget);
            }
            Some(Err(error)) => self.plan.ending = Some(Ending::Defect(error.to_string())),
            None => {}
        }
        self.plan.models = info.models;
        Ok(())
    }

    async fn go(&mut self) -> Result<(), Error> {
        loop {
            match self.recorder.state.next(&self.plan) {
                Step::Record(body, task) => self.recorder.record(*body, task)?,
                Step::Backoff { base_ms } => self.back_off(base_ms).await?,
                Step::CallModel { model } => self.call_model(model).await?,
                Step::CallTools(calls) => {
                    // A tool that runs before its start is on disk would be run again after a crash.
                    self.recorder.flush().await?;
                    let running = Running::start(&self.agent.seams, &self.caller(), calls);
                    self.run_tools(running).await?;
                }
                Step::Settle => return Ok(()),
            }
        }
    }

    fn caller(&self) -> Caller {
        Caller {
            claim: self.claim.clone(),
            agent: ORCHESTRATOR.to_owned(),
        }
    }

    async fn back_off(&mut self, base_ms: u64) -> Result<(), Error> {
        let [byte] = random::<1>()?;
        let pause = Duration::from_millis(jittered(base_ms, byte));
        self.outside(tokio::time::sleep(pause)).await?;
        self.recorder.state.backoff_done = true;
        Ok(())
    }

    /// Makes one model call and records its answer as it comes. When ken-model dies the call is made again for the rest of
    /// the answer, unless the answer so far is more than text: thoughts and tool calls cannot be continued.
    async fn call_model(&mut self, model: usize) -> Result<(), Error> {
        for _ in 0..DEATHS {
            let mut answer = Answer::default();
            let before = self.recorder.state.next_index;
            match self.receive(model, &mut answer).await? {
                None | Some(Ok(())) => return Ok(()),
                Some(Err(ModelError::Failed(error))) => return self.fail(&error),
                Some(Err(ModelError::Died)) if answer.is_text_only(&self.recorder.state) => {}
                Some(Err(ModelError::Died)) => break,
            }
            if self.recorder.state.next_index == before {
                self.outside(tokio::time::sleep(PAUSE)).await?;
            }
        }
        self.fail(&Error::unavailable("ken-model ended in the middle of its answer"))
    }

    fn fail(&mut self, error: &Error) -> Result<(), Error> {
        if self.plan.ending.is_none() {
            self.recorder.state.failing = Some(failure(error));
            self.recorder.state.retry_after_ms = error.retry_after_ms.unwrap_or_default();
        }
        Ok(())
    }

    /// `None` when the submission is to end.
    async fn receive(
        &mut self,
        model: usize,
        answer: &mut Answer,
    ) -> Result<Option<Result<(), ModelError>>, Error> {
        let Some(request) = self.request(model) else {
            let error = Error::internal("a model was to be asked before anything was loaded");
            return Ok(Some(Err(ModelError::Failed(error))));
        };
        let provider = self.agent.model.clone();
        let mut reply = match self.outside(provider.generate(&request)).await? {
            Some(Ok(reply)) => reply,
            Some(Err(trouble)) => return Ok(Some(Err(trouble))),
            None => return Ok(None),
        };
        loop {
            match self.outside(reply.next()).await? {
                Some(Some(Ok(delta))) => {
                    if self.lacks_start(&delta) {
                        // A part that replaces ken-model may not say who answers.
                        let start = self.start_of(model);
                        let events = answer.add(&self.recorder.state, start);
                        self.record_all(events)?;
                    }
                    let events = answer.add(&self.recorder.state, delta);
                    self.record_all(events)?;
                }
                Some(Some(Err(error))) => return Ok(Some(Err(ModelError::Failed(error)))),
                Some(None) => break,
                None => return Ok(None),
            }
        }
        match self.outside(reply.end()).await? {
            Some(Ok(generated)) => {
                let end = std::mem::take(answer).end(&self.recorder.state, &generated, Timestamp::now());
                self.record_all(end)?;
                Ok(Some(Ok(())))
            }
            Some(Err(trouble)) => Ok(Some(Err(trouble))),
            None => Ok(None),
        }
    }

    fn lacks_start(&self, delta: &Delta) -> bool {
        let turn = self.recorder.state.turn.as_ref();
        let is_open = turn.is_none_or(|turn| !matches!(turn.message, MessageState::NotStarted));
        !is_open && !matches!(delta, Delta::Start { .. })
    }

    fn start_of(&self, model: usize) -> Delta {
        let name = self.plan.model(model);
        Delta::Start {
            api: name.provider.clone(),
            provider: name.provider,
            model: name.id,
        }
    }

    /// The request, with the text of the open message when the same call is made again.
    fn request(&self, model: usize) -> Option<ken_types::ops::model::Generate> {
        let (background, budget) = (self.background.as_ref()?, self.budget.as_ref()?);
        let state = &self.recorder.state;
        let mut request = background.request(&self.claim, state, &self.agent.seams, budget);
        request.model = self.plan.models.get(model).cloned();
        if let Some(MessageState::Open(draft)) = state.turn.as_ref().map(|turn| &turn.message) {
            request.prefix.clone_from(&draft.text);
        }
        Some(request)
    }

    fn record_all(&mut self, bodies: Vec<Body>) -> Result<(), Error> {
        bodies
            .into_iter()
            .try_for_each(|body| self.recorder.record(body, None))
    }

    /// Runs all calls of a turn and records their events as they come. Dropping the calls kills what still runs.
    async fn run_tools(&mut self, mut running: Running) -> Result<(), Error> {
        loop {
            match self.outside(running.next()).await? {
                Some(Some(event)) => {
                    let worker = event.worker;
                    let task = event.task.map(|id| TaskRef { id, worker });
                    self.recorder.record(event.body, task)?;
                    self.note_approvals();
                }
                Some(None) | None => return Ok(()),
            }
        }
    }

    /// Stops the clock while an approval is waited for: people may take longer than a submission may run.
    fn note_approvals(&mut self) {
        let waits = !self.recorder.state.approvals.is_empty();
        match self.waiting_since {
            None if waits => self.waiting_since = Some(Instant::now()),
            Some(since) if !waits => {
                self.until += since.elapsed();
                self.waiting_since = None;
            }
            _ => {}
        }
    }

    /// Waits for something outside; `None` when the submission has to end instead. Recorded events are sent meanwhile.
    async fn outside<T>(&mut self, work: impl Future<Output = T>) -> Result<Option<T>, Error> {
        let until = self.waiting_since.is_none().then_some(self.until);
        let abort = &mut self.abort;
        let is_ending = self.plan.ending.is_some();
        let work = async {
            tokio::select! {
                biased;
                done = work => Ok(done),
                ending = ended(abort, until), if !is_ending => Err(ending),
            }
        };
        match self.recorder.during(work).await? {
            Ok(done) => Ok(Some(done)),
            Err(ending) => {
                self.plan.ending = Some(ending);
                Ok(None)
            }
        }
    }

    async fn settle(self) -> Result<Outcome, Error> {
        drop(self.abort); // `Leases` sees by this that it is too late for an abort
        let mut settlement = self.recorder.state.settlement(&self.plan);
        let state = &self.recorder.state;
        let (mut usage, mut report) = (None, None);
        if let Some(budget) = &self.budget {
            usage = (state.context_tokens > 0).then(|| budget.usage(state.context_tokens));
            if let (SubmissionKind::Compact, Some(background)) = (self.plan.kind, &self.background) {
                let fixed = background.fixed_tokens();
                report = Some(budget.report(&background.history, fixed, settlement.summary.as_deref()));
            }
        }
        if let Some(result) = &mut settlement.result {
            result.context_budget = report;
        }
        let outcome = settlement.outcome;
        self.recorder.settle(settlement, usage).await?;
        Ok(outcome)
    }
}

/// Resolves when the submission is aborted or has passed its time limit, if it has one.
async fn ended(abort: &mut watch::Receiver<bool>, until: Option<Instant>) -> Ending {
    let aborted = async {
        if abort.wait_for(|aborted| *aborted).await.is_err() {
            std::future::pending::<()>().await; // nobody can abort it any more
        }
    };
    tokio::select! {
        () = aborted => Ending::Aborted,
        () = passed(until) => Ending::Timeout,
    }
}

async fn passed(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// The configured models; waits a moment for a ken-model that is being started.
async fn info(model: &impl Model) -> Result<ken_types::ops::model::ModelState, Error> {
    let mut tries = 0;
    loop {
        match model.info().await {
            Err(_) if tries < PAUSES => tokio::time::sleep(PAUSE).await,
            answer => return answer,
        }
        tries += 1;
    }
}
