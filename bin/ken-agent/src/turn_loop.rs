//! Executes the steps of an agent one after the other: it calls the model, runs the tools, and records each step. The
//! orchestrator and its workers use the same loop.

use std::future::Future;
use std::time::Duration;

use ken_types::event::Body;
use ken_types::fence::Outside;
use ken_types::id::random;
use ken_types::ops::model::{Delta, ModelState};
use ken_types::{Error, Timestamp};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::answer::Answer;
use crate::background::Background;
use crate::budget::Budget;
use crate::journal::Journal;
use crate::judge;
use crate::model::{Model, ModelError, Reply};
use crate::ports::{CallMessage, Caller, Ports};
use crate::retry::{failure, jittered};
use crate::shorten::shorten_calls;
use crate::tools::Running;
use crate::turn_state::{Ending, MessageState, Plan, Step};
use crate::validation::{self, Review};

/// The number of times that ken-model may die during one call. After that, the call has failed.
const MAX_DEATHS: u32 = 3;
/// The pause before the next attempt to call a ken-model that could not be reached, and the maximum number of such
/// pauses at the start of a submission.
const PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSES: u32 = 100;

/// The maximum size of the messages of a request, as JSON. A request is one line of the wire, with room for its other
/// fields. An answer can fill a line alone, so the arguments of earlier calls are left out where there are several.
const MAX_MESSAGES_BYTES: usize = 3 * 1024 * 1024;
const LEFT_OUT: &str = " […the rest is left out here; the call was made with all of it]";

pub(crate) struct TurnLoop<'a, J, M> {
    pub(crate) journal: J,
    pub(crate) model: &'a M,
    pub(crate) ports: &'a Ports,
    /// The agent that executes these steps.
    pub(crate) caller: Caller,
    pub(crate) plan: Plan,
    /// The background of the requests. `None` until it is loaded.
    pub(crate) background: Option<Background>,
    pub(crate) budget: Option<Budget>,
    pub(crate) abort: watch::Receiver<bool>,
    /// The time at which the time limit is reached. `None` if there is no limit.
    pub(crate) until: Option<Instant>,
    /// The time since which the submission has been waiting for an approval. This wait does not count against the time
    /// limit.
    pub(crate) waiting_since: Option<Instant>,
}

impl<'a, J: Journal, M: Model> TurnLoop<'a, J, M> {
    /// Creates a loop with no background and no time limit.
    pub(crate) fn new(
        journal: J,
        model: &'a M,
        ports: &'a Ports,
        caller: Caller,
        plan: Plan,
        abort: watch::Receiver<bool>,
    ) -> TurnLoop<'a, J, M> {
        TurnLoop {
            journal,
            model,
            ports,
            caller,
            plan,
            background: None,
            budget: None,
            abort,
            until: None,
            waiting_since: None,
        }
    }

    /// Executes steps until none is left. Fails if nothing more may be recorded.
    pub(crate) async fn go(&mut self) -> Result<(), Error> {
        loop {
            if let Some(ending) = self.journal.ended() {
                self.plan.ending = Some(ending);
            }
            self.note_approvals();
            match self.journal.state().next(&self.plan) {
                Step::Record(body, None) if matches!(*body, Body::TurnStart { .. }) && self.is_overspent() => {}
                Step::Record(mut body, task) => {
                    if let Body::TurnStart { outside, .. } = &mut *body {
                        *outside = self.origins();
                    }
                    if let Body::ToolStart { tool_name, tools, .. } = &mut *body {
                        *tools = self.ports.tools.facts(tool_name).process;
                    }
                    self.journal.record(*body, task).await?;
                }
                Step::Backoff { base_ms, least_ms } => self.back_off(base_ms, least_ms).await?,
                Step::CallModel { model } => {
                    self.leave_if_stopping().await?;
                    self.call_model(model).await?;
                }
                Step::Validate => self.validate().await?,
                Step::CallTools(calls) => {
                    self.journal.begin_calls()?;
                    let repeats = self.journal.state().repeats;
                    let caller = Caller { outside: self.origins(), ..self.caller.clone() };
                    let running = Running::start(self.ports, &caller, calls, repeats);
                    self.run_tools(running).await?;
                }
                Step::Settle => return Ok(()),
            }
        }
    }

    /// Leaves a turn between its steps to the next process if this one stops. A model call that begins now would be cut when
    /// the time to stop is over, and made again; and until then no other turn could begin.
    pub(crate) async fn leave_if_stopping(&mut self) -> Result<(), Error> {
        if self.ports.is_stopping().await { self.leave().await } else { Ok(()) }
    }

    /// Leaves a turn to the next process. A worker stays: it is dropped with the turn that it works for.
    async fn leave(&mut self) -> Result<(), Error> {
        if self.caller.depth > 0 {
            return Ok(());
        }
        self.journal.flush().await?;
        Err(Error::cancelled("it continues in the next process: this agent stops"))
    }

    /// Returns the origins of all outside text that the agent has read: from the store, from the agent that gave its task, in its
    /// background, and since.
    fn origins(&self) -> Outside {
        let background = self.background.iter().flat_map(|background| &background.outside);
        let read = self.caller.outside.iter().chain(background).chain(&self.journal.state().outside);
        read.cloned().collect()
    }

    /// Whether the submission has cost more than a rule allows. If so, the submission ends. Only the orchestrator
    /// checks this, because its usage includes that of its workers.
    fn is_overspent(&mut self) -> bool {
        let demand = self.caller.rules.max_cost().filter(|_| self.caller.depth == 0);
        let spent = (self.journal.state().usage.cost.total * 1e6).round() / 1e6;
        let Some(demand) = demand.filter(|demand| is_used_up(demand.value, spent)) else {
            return false;
        };
        if self.plan.ending.is_none() {
            self.plan.ending = Some(Ending::Rule(format!(
                "The rule {} allows a cost of ${}, and ${spent} is spent.",
                demand.rule, demand.value
            )));
        }
        true
    }

    /// Validates the answer and records the result. If a rule requires validation and the answer cannot be validated,
    /// it is not delivered.
    async fn validate(&mut self) -> Result<(), Error> {
        if let Some(recorded) = self.journal.recorded_validation() {
            return self.journal.record(recorded, None).await;
        }
        let demand = self.caller.rules.validation();
        let state = self.journal.state();
        let begun_with = self.background.iter().flat_map(Background::knowledge);
        let evidence: Vec<_> = begun_with.chain(state.found()).collect();
        let text = state.text.clone();
        let Some(review) = self.review(&text, &evidence).await? else {
            return Ok(()); // the submission has to end
        };
        let Some(demand) = demand else {
            return self.journal.record(validation::by_sources(&text, &evidence, review), None).await;
        };
        let caller = self.caller.clone();
        let judging = validation::by_laws(self.ports, &caller, &text, &evidence, review, &demand);
        match self.outside(judging).await? {
            Some(Ok(judged)) => self.journal.record(judged, None).await,
            Some(Err(why)) => {
                self.plan.ending =
                    Some(Ending::Rule(format!("The rule {}{}{why}", demand.rule, validation::NOT_JUDGED)));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Compares an answer with its sources. Returns `None` if the submission has to end.
    async fn review(&mut self, text: &str, evidence: &[(String, String)]) -> Result<Option<Review>, Error> {
        let sources: Vec<&str> = evidence.iter().map(|(_, text)| text.as_str()).collect();
        let mut support = ken_support::support(text, &sources);
        let (model, ports) = (self.model, self.ports);
        let Some(name) = ports.judge.as_deref().filter(|_| !sources.is_empty()) else {
            return Ok(Some(Review { support, judge: None }));
        };
        let session = self.caller.claim.instance.clone();
        let question = judge::Question { text, sources: &sources, session: &session };
        let used = self.outside(judge::review(model, name, &question, &mut support)).await?;
        used.transpose().map(|used| used.map(|used| Review { support, judge: Some(Box::new(used)) }))
    }

    async fn back_off(&mut self, base_ms: u64, least_ms: u64) -> Result<(), Error> {
        let [byte] = random::<1>()?;
        let pause = Duration::from_millis(jittered(base_ms, byte).max(least_ms));
        if self.model.paces() {
            self.outside(tokio::time::sleep(pause)).await?
        } else {
            self.outside(tokio::task::yield_now()).await?
        };
        self.journal.state_mut().backoff_done = true;
        Ok(())
    }

    /// Makes one model call and records its answer as it arrives. If ken-model dies, the call is repeated for the rest
    /// of the answer. This is not possible if the answer so far contains thoughts or tool calls, because they cannot be
    /// continued.
    async fn call_model(&mut self, model: usize) -> Result<(), Error> {
        for _ in 0..MAX_DEATHS {
            let mut answer = Answer::default();
            let before = self.journal.state().next_index;
            match self.receive(model, &mut answer).await? {
                None | Some(Ok(())) => return Ok(()),
                Some(Err(ModelError::Failed(error))) => return self.fail(&error),
                Some(Err(ModelError::Died)) if answer.is_text_only(self.journal.state()) => {}
                Some(Err(ModelError::Died)) => break,
            }
            if self.journal.state().next_index == before {
                self.outside(tokio::time::sleep(PAUSE)).await?;
            }
        }
        self.fail(&Error::unavailable("ken-model ended in the middle of its answer"))
    }

    fn fail(&mut self, error: &Error) -> Result<(), Error> {
        if self.plan.ending.is_none() {
            self.journal.state_mut().failing = Some(failure(error));
            self.journal.state_mut().retry_after_ms = error.retry_after_ms.unwrap_or_default();
        }
        Ok(())
    }

    /// Receives the answer of one call. Returns `None` if the submission has to end.
    async fn receive(&mut self, model: usize, answer: &mut Answer) -> Result<Option<Result<(), ModelError>>, Error> {
        let Some(request) = self.request(model) else {
            let error = Error::internal("a model was to be asked before anything was loaded");
            return Ok(Some(Err(ModelError::Failed(error))));
        };
        let provider = self.model.clone();
        let mut reply = match self.outside(provider.generate(&request)).await? {
            Some(Ok(reply)) => reply,
            Some(Err(trouble)) => return Ok(Some(Err(trouble))),
            None => return Ok(None),
        };
        loop {
            match self.outside(reply.next()).await? {
                Some(Some(Ok(delta))) => {
                    if self.lacks_start(&delta) {
                        // Another implementation of ken-model may not name the model at the start of its answer.
                        let start = self.start_of(model);
                        let events = answer.add(self.journal.state(), start);
                        self.record_all(events).await?;
                    }
                    let events = answer.add(self.journal.state(), delta);
                    self.record_all(events).await?;
                }
                Some(Some(Err(error))) => return Ok(Some(Err(ModelError::Failed(error)))),
                Some(None) => break,
                None => return Ok(None),
            }
        }
        match self.outside(reply.end()).await? {
            Some(Ok(generated)) => {
                let end = std::mem::take(answer).end(self.journal.state(), &generated, Timestamp::now());
                self.record_all(end).await?;
                Ok(Some(Ok(())))
            }
            Some(Err(trouble)) => Ok(Some(Err(trouble))),
            None => Ok(None),
        }
    }

    fn lacks_start(&self, delta: &Delta) -> bool {
        let turn = self.journal.state().turn.as_ref();
        let is_open = turn.is_none_or(|turn| !matches!(turn.message, MessageState::NotStarted));
        !is_open && !matches!(delta, Delta::Start { .. })
    }

    fn start_of(&self, model: usize) -> Delta {
        let name = self.plan.model(model);
        Delta::Start { api: name.provider.clone(), provider: name.provider, model: name.id }
    }

    /// Returns the request. If the same call is repeated, the request contains the text of the open message.
    fn request(&self, model: usize) -> Option<ken_types::ops::model::Generate> {
        let (background, budget) = (self.background.as_ref()?, self.budget.as_ref()?);
        let state = self.journal.state();
        let mut request = background.request(&self.caller, state, self.ports, budget);
        request.model = self.plan.models.get(model).cloned();
        request.chosen = self.plan.is_chosen;
        shorten_calls(&mut request.messages, MAX_MESSAGES_BYTES, LEFT_OUT);
        if let Some(MessageState::Open(draft)) = state.turn.as_ref().map(|turn| &turn.message) {
            request.prefix.clone_from(&draft.text);
        }
        Some(request)
    }

    async fn record_all(&mut self, bodies: Vec<Body>) -> Result<(), Error> {
        for body in bodies {
            self.journal.record(body, None).await?;
        }
        Ok(())
    }

    /// Runs all calls of a turn and records their events as they arrive. Dropping the calls kills those that are still
    /// running.
    async fn run_tools(&mut self, mut running: Running) -> Result<(), Error> {
        loop {
            match self.outside(running.next()).await? {
                Some(Some(CallMessage::Event(body, of))) => {
                    self.journal.record(*body, of).await?;
                    self.note_approvals();
                    if self.is_overspent() {
                        return Ok(());
                    }
                }
                Some(Some(CallMessage::Flush(done))) => {
                    self.journal.flush().await?;
                    _ = done.send(());
                }
                Some(Some(CallMessage::Request { put, of, reply })) => {
                    let stored = self.journal.request(*put, of).await?;
                    self.note_approvals();
                    _ = reply.send(stored);
                }
                Some(Some(CallMessage::Leave)) => {}
                Some(None) | None => return Ok(()),
            }
            if running.can_be_left() {
                self.leave().await?;
            }
        }
    }

    /// Stops the clock of the time limit while an approval is pending, because a person may take longer than a
    /// submission may run.
    pub(crate) fn note_approvals(&mut self) {
        let waits = !self.journal.state().approvals.is_empty();
        match self.waiting_since {
            None if waits => self.waiting_since = Some(Instant::now()),
            Some(since) if !waits => {
                self.until = self.until.map(|until| until + since.elapsed());
                self.waiting_since = None;
            }
            _ => {}
        }
    }

    /// Waits for something outside the loop and sends recorded events in the meantime. Returns `None` if the submission
    /// has to end instead.
    pub(crate) async fn outside<T: Send>(&mut self, work: impl Future<Output = T> + Send) -> Result<Option<T>, Error> {
        let until = self.until.filter(|_| self.waiting_since.is_none());
        let abort = &mut self.abort;
        let is_ending = self.plan.ending.is_some();
        // Only the orchestrator leaves. Its workers are dropped with it.
        let may_leave = self.waiting_since.is_some() && self.caller.depth == 0;
        let stopping = self.ports.policy.stopping();
        let work = async {
            tokio::select! {
                biased;
                done = work => Ok(done),
                ending = ended(abort, until), if !is_ending => Err(Some(ending)),
                () = stopping, if may_leave => Err(None),
            }
        };
        match self.journal.during(work).await? {
            Ok(done) => Ok(Some(done)),
            Err(Some(ending)) => {
                self.plan.ending = Some(ending);
                Ok(None)
            }
            Err(None) => {
                self.journal.flush().await?;
                Err(Error::cancelled("it waits for an approval, and this agent stops"))
            }
        }
    }
}

/// Whether the maximum cost allows no further call. It never forbids calls that cost nothing.
fn is_used_up(max: f64, spent: f64) -> bool {
    spent >= max && spent > 0.0
}

/// Resolves when the submission is aborted or has passed its time limit, if it has one.
async fn ended(abort: &mut watch::Receiver<bool>, until: Option<Instant>) -> Ending {
    let aborted = async {
        if abort.wait_for(|aborted| *aborted).await.is_err() {
            std::future::pending::<()>().await; // nothing can abort it any more
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

/// Returns the configured models. If ken-model is just being started, waits a moment for it.
pub(crate) async fn info(model: &impl Model) -> Result<ModelState, Error> {
    let mut tries = 0;
    loop {
        match model.info().await {
            Err(_) if tries < MAX_PAUSES => tokio::time::sleep(PAUSE).await,
            answer => return answer,
        }
        tries += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemoryModel;

    #[test]
    fn a_model_part_that_starts_is_waited_for_a_number_of_times() {
        let paused = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        for (failures, is_known) in [(0, true), (MAX_PAUSES, true), (MAX_PAUSES + 1, false)] {
            let model = MemoryModel::new(Vec::new());
            *model.absences.lock() = failures;
            let known = paused.block_on(info(&model));
            assert_eq!(known.is_ok(), is_known, "{failures}");
        }
    }

    #[test]
    fn a_cost_is_used_up_when_it_is_reached_and_something_was_paid() {
        for (max, spent, is) in [
            (0.0, 0.0, false),
            (0.0, 0.000_001, true),
            (0.5, 0.499_999, false),
            (0.5, 0.5, true),
            (0.5, 0.500_001, true),
        ] {
            assert_eq!(is_used_up(max, spent), is, "{max} {spent}");
        }
    }
}
