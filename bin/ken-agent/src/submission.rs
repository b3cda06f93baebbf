//! One submission, from its claim to its end: asks the course what comes next, and does it.

#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ken_types::event::{Body, Event, Outcome};
use ken_types::id::{Mint, random};
use ken_types::ops::store::{Claim, ReadStream, SubmissionKind, Verdict};
use ken_types::{Error, Offset, Timestamp};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::answer::Answer;
use crate::background::Background;
use crate::budget::Budget;
use crate::course::{Course, Ending, Plan, Speech, Step};
use crate::envelope::Envelope;
use crate::model::{Model, Reply, Trouble};
use crate::record::Record;
use crate::retry::{failure, jittered};
use crate::seams::Seams;
use crate::store::Store;
use crate::tools::Running;

/// What every submission of an agent works with.
#[derive(Clone)]
pub(crate) struct Agent<S, M> {
    pub(crate) store: S,
    pub(crate) model: M,
    pub(crate) seams: Seams,
}

/// Calls made again, without a word said between, because ken-model has died; then it counts as a failure.
const DEATHS: u32 = 3;
/// While ken-model is away before anything can be asked.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSES: u32 = 100;

impl<S: Store, M: Model> Agent<S, M> {
    /// Does a claimed submission. `abort` tells that it shall end. An error means that its lease is lost, or that the store
    /// refused to record it: whoever claims it next goes on.
    pub(crate) async fn run(&self, claim: Claim, abort: watch::Receiver<bool>) -> Result<Outcome, Error> {
        let course = self.course(&claim).await?;
        let envelope = Envelope::of(&claim, Mint::fresh()?);
        let record = Record::new(course, envelope, claim.lease.clone(), self.store.clone());
        let until = Instant::now() + Duration::from_millis(u64::try_from(claim.time_left_ms).unwrap_or(0));
        let mut submission = Submission {
            agent: self,
            record,
            plan: Plan {
                kind: claim.kind,
                attempt: claim.attempt,
                models: Vec::new(),
                compaction: None,
                ending: claim.verdict.map(Ending::from),
            },
            background: None,
            budget: None,
            claim: Arc::new(claim),
            abort,
            until,
        };
        submission.prepare().await?;
        submission.go().await?;
        submission.settle().await
    }

    /// Where an earlier holder left it.
    async fn course(&self, claim: &Claim) -> Result<Course, Error> {
        let mut course = Course::default();
        let mut offset = claim.recorded_from;
        while claim.next_event_index > course.next_index {
            let page = ReadStream {
                stream: claim.stream.clone(),
                offset,
                ..ReadStream::default()
            };
            let page = self.store.recorded(page).await?;
            for event in events(&page.entries)? {
                if event.place.submission_id == claim.lease.submission_id {
                    course.apply(&event);
                }
            }
            if page.next >= page.end {
                break;
            }
            offset = Offset::After(page.next);
        }
        course.next_index = course.next_index.max(claim.next_event_index);
        course.last_timestamp = course
            .last_timestamp
            .max(claim.last_timestamp.unwrap_or_default());
        course.resume(|tool| self.seams.tools.is_idempotent(tool));
        Ok(course)
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

struct Submission<'a, S, M> {
    agent: &'a Agent<S, M>,
    claim: Arc<Claim>,
    record: Record<S>,
    plan: Plan,
    background: Option<Background>,
    budget: Option<Budget>,
    abort: watch::Receiver<bool>,
    until: Instant,
}

impl<S: Store, M: Model> Submission<'_, S, M> {
    /// What the turns start from. Nothing of it is needed to close a submission.
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
                // Nobody is left to ask; why is told as a failure of the model.
                self.record.course.failure = Some(failure(&error));
                return Ok(());
            }
        };
        let claim = self.claim.clone();
        let load = Background::load(&agent.store, &agent.seams, &claim, info.exchanges);
        match self.outside(load).await? {
            Some(Ok(background)) => {
                let budget = Budget::of(&info);
                self.plan.compaction = background.compaction(&self.claim, &budget);
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
            match self.record.course.next(&self.plan) {
                Step::Say(body, task_id) => self.record.say(*body, task_id)?,
                Step::Rest { base_ms } => self.rest(base_ms).await?,
                Step::Ask { model } => self.ask(model).await?,
                Step::Run(calls) => {
                    // One that may have run without a record of it would be run again after a crash.
                    self.record.flush().await?;
                    let running = Running::start(&self.agent.seams, &self.claim, calls);
                    self.run_tools(running).await?;
                }
                Step::Settle => return Ok(()),
            }
        }
    }

    async fn rest(&mut self, base_ms: u64) -> Result<(), Error> {
        let [byte] = random::<1>()?;
        let pause = Duration::from_millis(jittered(base_ms, byte));
        self.outside(tokio::time::sleep(pause)).await?;
        self.record.course.rested = true;
        Ok(())
    }

    /// One model call, told as it comes. A ken-model that dies is asked again for the rest, unless what it said cannot be
    /// gone on with.
    async fn ask(&mut self, model: usize) -> Result<(), Error> {
        for _ in 0..DEATHS {
            let mut answer = Answer::default();
            let said = self.record.course.next_index;
            match self.listen(model, &mut answer).await? {
                None | Some(Ok(())) => return Ok(()),
                Some(Err(Trouble::Failed(error))) => return self.fail(&error),
                Some(Err(Trouble::Gone)) if answer.is_text_only(&self.record.course) => {}
                Some(Err(Trouble::Gone)) => break,
            }
            if self.record.course.next_index == said {
                self.outside(tokio::time::sleep(PAUSE)).await?;
            }
        }
        self.fail(&Error::unavailable("ken-model ended in the middle of its answer"))
    }

    fn fail(&mut self, error: &Error) -> Result<(), Error> {
        if self.plan.ending.is_none() {
            self.record.course.failing = Some(failure(error));
        }
        Ok(())
    }

    /// `None` when the submission is to end.
    async fn listen(
        &mut self,
        model: usize,
        answer: &mut Answer,
    ) -> Result<Option<Result<(), Trouble>>, Error> {
        let Some(request) = self.request(model) else {
            let error = Error::internal("a model was to be asked before anything was loaded");
            return Ok(Some(Err(Trouble::Failed(error))));
        };
        let model = self.agent.model.clone();
        let mut reply = match self.outside(model.generate(&request)).await? {
            Some(Ok(reply)) => reply,
            Some(Err(trouble)) => return Ok(Some(Err(trouble))),
            None => return Ok(None),
        };
        loop {
            match self.outside(reply.next()).await? {
                Some(Some(Ok(delta))) => {
                    let heard = answer.hear(&self.record.course, delta);
                    self.say_all(heard)?;
                }
                Some(Some(Err(error))) => return Ok(Some(Err(Trouble::Failed(error)))),
                Some(None) => break,
                None => return Ok(None),
            }
        }
        match self.outside(reply.end()).await? {
            Some(Ok(generated)) => {
                let end = std::mem::take(answer).end(&self.record.course, &generated, Timestamp::now());
                self.say_all(end)?;
                Ok(Some(Ok(())))
            }
            Some(Err(trouble)) => Ok(Some(Err(trouble))),
            None => Ok(None),
        }
    }

    /// With what the open message holds already, when the same call is made again.
    fn request(&self, model: usize) -> Option<ken_types::ops::model::Generate> {
        let (background, budget) = (self.background.as_ref()?, self.budget.as_ref()?);
        let course = &self.record.course;
        let mut request = background.request(&self.claim, course, &self.agent.seams, budget);
        request.model = self.plan.models.get(model).cloned();
        if let Some(Speech::Open(draft)) = course.turn.as_ref().map(|turn| &turn.speech) {
            request.prefix.clone_from(&draft.text);
        }
        Some(request)
    }

    fn say_all(&mut self, bodies: Vec<Body>) -> Result<(), Error> {
        bodies
            .into_iter()
            .try_for_each(|body| self.record.say(body, None))
    }

    /// Runs all calls of a turn; each tells its end when it comes. Dropping them kills what still runs.
    async fn run_tools(&mut self, mut running: Running) -> Result<(), Error> {
        loop {
            match self.outside(running.next()).await? {
                Some(Some((body, task_id))) => self.record.say(body, task_id)?,
                Some(None) | None => return Ok(()),
            }
        }
    }

    /// Waits for something outside; `None` when the submission has to end instead. What is recorded is sent meanwhile.
    async fn outside<T>(&mut self, work: impl Future<Output = T>) -> Result<Option<T>, Error> {
        let (abort, until) = (&mut self.abort, self.until);
        let is_ending = self.plan.ending.is_some();
        let work = async {
            tokio::select! {
                biased;
                done = work => Ok(done),
                ending = ended(abort, until), if !is_ending => Err(ending),
            }
        };
        match self.record.during(work).await? {
            Ok(done) => Ok(Some(done)),
            Err(ending) => {
                self.plan.ending = Some(ending);
                Ok(None)
            }
        }
    }

    async fn settle(self) -> Result<Outcome, Error> {
        drop(self.abort); // it is too late for one, and `Leases` sees so
        let mut settlement = self.record.course.settlement(&self.plan);
        let course = &self.record.course;
        let (mut usage, mut report) = (None, None);
        if let Some(budget) = &self.budget {
            usage = (course.context_tokens > 0).then(|| budget.usage(course.context_tokens));
            if let (SubmissionKind::Compact, Some(background)) = (self.plan.kind, &self.background) {
                let fixed = background.fixed_tokens();
                report = Some(budget.report(&background.history, fixed, settlement.summary.as_deref()));
            }
        }
        if let Some(result) = &mut settlement.result {
            result.context_budget = report;
        }
        let outcome = settlement.outcome;
        self.record.settle(settlement, usage).await?;
        Ok(outcome)
    }
}

/// Resolves when an abort is told or the time is over.
async fn ended(abort: &mut watch::Receiver<bool>, until: Instant) -> Ending {
    let aborted = async {
        if abort.wait_for(|aborted| *aborted).await.is_err() {
            std::future::pending::<()>().await; // nobody is left who could abort
        }
    };
    tokio::select! {
        () = aborted => Ending::Aborted,
        () = tokio::time::sleep_until(until) => Ending::Timeout,
    }
}

/// What is configured; waits a moment for a ken-model that is being started.
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
