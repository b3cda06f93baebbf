//! Runs workflows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use ken_types::Error;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::answer::Answer;
use crate::coherence;
use crate::data::Data;
use crate::definition::{Definition, Item, Step};
use crate::governance;
use crate::observer::{Decision, Event, NoObserver, Observer, Pending, Recorded, StepEnd, StepName};
use crate::outcome::{Coherence, Outcome, Results, Status, Summary};
use crate::pool::ToolState;
use crate::progress::{Progress, StepResult};
use crate::protocol::{Kind, Protocols};
use crate::scope::Scope;
use crate::settings::Settings;
use crate::template::Unfilled;
use crate::tool::Tool;

/// Runs workflows with the tools of its protocols. One engine serves all requests of a program. It must be used on the
/// main thread, because the kernel kills a tool when the thread that started it ends (PR_SET_PDEATHSIG).
pub struct Engine {
    protocols: Protocols,
    tools: Vec<Tool>,
    settings: Settings,
}

/// The limits and the observer of one run.
pub struct Request<'a> {
    /// When the run must be finished. A step that is still running at this time fails with `deadline`.
    pub deadline: Option<Instant>,
    pub settings: &'a Settings,
    pub observer: &'a dyn Observer,
}

impl Engine {
    pub fn new(protocols: Protocols, settings: Settings) -> Engine {
        Engine { tools: protocols.iter().map(Tool::new).collect(), protocols, settings }
    }

    pub fn protocols(&self) -> &Protocols {
        &self.protocols
    }

    /// The default settings of a request.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A request with the engine's settings, without a deadline and without an observer.
    pub fn request(&self) -> Request<'_> {
        Request { deadline: None, settings: &self.settings, observer: &NoObserver }
    }

    /// Runs a workflow. Returns an error only when the run did not start because the input is refused (`invalid`, with a
    /// pointer into the input as `at`); errors of steps are in the outcome. Dropping the future kills the tools that the
    /// run is using.
    pub async fn run(&self, definition: &Definition, data: &Data, request: Request<'_>) -> Result<Outcome, Error> {
        definition.check(data)?;
        let slots = Semaphore::new(request.settings.max_parallel.max(1));
        Ok(Run { engine: self, definition, data, slots, request }.govern().await)
    }

    /// The state of each protocol's processes.
    pub fn state(&self) -> Vec<ToolState> {
        self.tools.iter().map(|tool| tool.pool.state()).collect()
    }

    /// Ends idle processes now and busy ones after their answer. The next request starts new ones, which read their
    /// environment and files again.
    pub fn restart_tools(&self) {
        self.tools.iter().for_each(|tool| tool.pool.restart());
    }

    fn find(&self, protocol: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.protocol.name == protocol)
    }
}

struct Run<'a> {
    engine: &'a Engine,
    definition: &'a Definition,
    data: &'a Data,
    request: Request<'a>,
    /// Limits the number of tools that the run uses at the same time.
    slots: Semaphore,
}

impl Run<'_> {
    /// Runs all items and judges their results.
    async fn govern(&self) -> Outcome {
        let begun = Instant::now();
        let mut progress = Progress::new(self.definition.steps().len());
        let done = self.items(self.definition.items(), &mut progress).await;
        let mut summary = self.judge(&progress);
        summary.actions.append(&mut progress.actions);
        let reported = self.report(&summary).await;
        let (status, error) = match (done, reported) {
            (Ok(()), Ok(())) => (Status::Completed, None),
            (Err(RunError::Failed(error)), _) | (Ok(()), Err(error)) => (Status::Failed, Some(error)),
            (Err(RunError::Aborted(error)), _) => (Status::Aborted, Some(error)),
        };
        Outcome {
            workflow: self.definition.name().to_owned(),
            status,
            results: self.results(&progress),
            governance_summary: summary,
            error,
            execution_time_ms: Some(begun.elapsed()),
        }
    }

    fn judge(&self, progress: &Progress) -> Summary {
        let governance = self.request.settings.governance;
        if !governance.is_enabled {
            return Summary::default();
        }
        let protocols = &self.engine.protocols;
        governance::judge(self.definition, protocols, &progress.results, governance.min_quality)
    }

    async fn report(&self, summary: &Summary) -> Result<(), Error> {
        let min_quality = self.request.settings.governance.min_quality;
        let scores = summary.quality_scores.iter();
        for (step, quality) in scores.filter(|(_, quality)| *quality < min_quality) {
            let event = Event::GovernanceLowQuality { step: step.clone(), quality: *quality, min_quality };
            self.request.observer.event(&event).await?;
        }
        let found = summary.coherence.as_ref();
        match found.filter(|found| !found.issues.is_empty()) {
            // If results are required to agree, the observer was informed after the step.
            Some(found) if !self.requires_coherence() => self.report_incoherence(found).await,
            _ => Ok(()),
        }
    }

    async fn report_incoherence(&self, found: &Coherence) -> Result<(), Error> {
        let event = Event::GovernanceIncoherenceDetected { score: found.score, issues: found.issues.clone() };
        self.request.observer.event(&event).await
    }

    fn requires_coherence(&self) -> bool {
        let governance = self.request.settings.governance;
        governance.is_enabled && governance.requires_coherence
    }

    /// Called after each step. If results are required to agree and the step's result disagrees with earlier ones, the
    /// step runs once more with the issues in its input. If they still disagree, or a later step disagrees, the run is
    /// aborted: there is one retry and one abort in a run.
    async fn require_coherence(&self, number: usize, progress: &mut Progress) -> Result<(), RunError> {
        let Some(step) = self.definition.steps().get(number) else {
            return Ok(());
        };
        let Some(found) = self.disagreement(progress) else {
            return Ok(());
        };
        if progress.has_retried {
            return self.abort(step, &found, progress).await;
        }
        self.retry(number, step, found, progress).await?;
        match self.disagreement(progress) {
            Some(found) => self.abort(step, &found, progress).await,
            None => Ok(()),
        }
    }

    async fn retry(&self, number: usize, step: &Step, found: Coherence, progress: &mut Progress) -> Result<(), Error> {
        self.decide(Decision::Retry, step, &found).await?;
        let issues = format_count(found.issues.len(), "issue");
        progress.actions.push(format!("retried {} with {issues} found", step.id));
        progress.has_retried = true;
        progress.issues = found.issues;
        let retried = self.execute(number, step, progress).await;
        progress.issues.clear();
        retried
    }

    async fn abort(&self, step: &Step, found: &Coherence, progress: &mut Progress) -> Result<(), RunError> {
        self.decide(Decision::Abort, step, found).await?;
        progress.actions.push(format!("aborted: after one retry the results of {} still disagree", step.id));
        let issues = found.issues.join("; ");
        Err(RunError::Aborted(Error::conflict(format!("step {}: the results do not agree: {issues}", step.id))))
    }

    /// The issues among the results so far; `None` if there are none, if results are not required to agree, or in a branch.
    fn disagreement(&self, progress: &Progress) -> Option<Coherence> {
        if progress.is_branch || !self.requires_coherence() {
            return None;
        }
        let found = coherence::of(self.definition, &self.engine.protocols, &progress.results)?;
        (!found.issues.is_empty()).then_some(found)
    }

    async fn decide(&self, decision: Decision, step: &Step, found: &Coherence) -> Result<(), Error> {
        self.report_incoherence(found).await?;
        let issues = found.issues.clone();
        let reason = format!("step {}: the results do not agree: {}", step.id, format_count(issues.len(), "issue"));
        let observer = self.request.observer;
        observer.event(&Event::RecoveryDecision { decision, reason }).await?;
        match decision {
            Decision::Retry => Ok(()),
            Decision::Abort => observer.event(&Event::GovernanceAbort { issues }).await,
        }
    }

    /// Runs items one after the other until one fails.
    fn items<'s>(&'s self, items: &'s [Item], progress: &'s mut Progress) -> Pending<'s, Result<(), RunError>> {
        Box::pin(async move {
            for item in items {
                self.item(item, progress).await?;
            }
            Ok(())
        })
    }

    async fn item(&self, item: &Item, progress: &mut Progress) -> Result<(), RunError> {
        match item {
            Item::Step(step) => self.step(*step, progress).await,
            Item::Loop { rounds, items } => {
                for _ in 0..*rounds {
                    self.items(items, progress).await?;
                }
                Ok(())
            }
            Item::Parallel(items) => self.parallel(items, progress).await,
        }
    }

    /// Runs all items until each has ended. If several fail, returns the error of the first one in the file. No item sees
    /// the results of another, so the order in which they finish does not matter. The results are compared in the order of
    /// the file when all items have ended; in a nested group when the outermost one has.
    async fn parallel(&self, items: &[Item], progress: &mut Progress) -> Result<(), RunError> {
        let branches = items.iter().map(|item| {
            let mut own = progress.branch();
            async move {
                let done = self.items(std::slice::from_ref(item), &mut own).await;
                (own, done)
            }
        });
        let mut all_done = Ok(());
        for (branch, done) in join_all(branches).await {
            for (step, turn, made) in progress.new_results_of(branch) {
                progress.take(step, turn, made);
                if all_done.is_ok() {
                    all_done = self.require_coherence(step, progress).await;
                }
            }
            if all_done.is_ok() {
                all_done = done;
            }
        }
        all_done
    }

    async fn step(&self, number: usize, progress: &mut Progress) -> Result<(), RunError> {
        let Some(step) = self.definition.steps().get(number) else {
            return Ok(());
        };
        let when = step.when.as_ref();
        if when.is_some_and(|condition| !condition.holds(&self.scope(progress))) {
            return Ok(());
        }
        self.execute(number, step, progress).await?;
        self.require_coherence(number, progress).await
    }

    /// Runs one step without evaluating its condition, and stores its result.
    async fn execute(&self, number: usize, step: &Step, progress: &mut Progress) -> Result<(), Error> {
        let tool = self.engine.find(&step.protocol);
        let tool = tool.ok_or_else(|| named(step, Error::internal("no such protocol")))?;
        let scope = self.scope(progress);
        let line = line(step, tool.protocol.kind, &scope).map_err(|error| named(step, error));
        let name = StepName { id: step.id.clone(), turn: progress.next_turn(number) };
        let made = self.recorded_or_run(step, &name, tool, line).await?;
        let ended = made.result.as_ref().map(|_| ()).map_err(Error::clone);
        progress.keep(number, made);
        ended
    }

    /// Returns the step's recorded result if the observer has one, otherwise calls the tool. Fails only if the observer
    /// does.
    async fn recorded_or_run(
        &self,
        step: &Step,
        name: &StepName,
        tool: &Tool,
        line: Result<String, Error>,
    ) -> Result<StepResult, Error> {
        let (input, known) = match line {
            Ok(line) => (Arc::from(line), self.request.observer.recorded(name)),
            Err(error) => (Arc::from(""), Some(Err(error))),
        };
        let result = match known {
            Some(known) => known,
            None => self.observed(step, name, tool, &input).await?,
        };
        Ok(StepResult { id: step.id.as_str().into(), protocol: step.protocol.as_str().into(), input, result })
    }

    /// Calls the tool and reports to the observer before and after. Fails only if the observer does; an error of the tool
    /// is part of the recorded result.
    async fn observed(&self, step: &Step, name: &StepName, tool: &Tool, input: &str) -> Result<Recorded, Error> {
        let begun = Instant::now();
        self.request.observer.begun(name).await?;
        let result = self.ask(step, tool, input).await;
        let end = StepEnd { name, protocol: &step.protocol, input, result: &result, time: begun.elapsed() };
        self.request.observer.ended(&end).await?;
        Ok(result)
    }

    async fn ask(&self, step: &Step, tool: &Tool, line: &str) -> Recorded {
        let queue = self.limit(self.request.settings.queue_timeout, "no place among the steps that run in parallel");
        let _slot = timeout(queue.time, self.slots.acquire()).await.map_err(|_| queue.error(step))?; // never closed
        let own = step.timeout.unwrap_or_else(|| self.request.settings.timeout_of(&step.protocol));
        let limit = self.limit(own, "no answer");
        if limit.time.is_zero() {
            return Err(limit.error(step)); // the tool is not asked for an answer that nobody can wait for
        }
        let answer = match timeout(limit.time, tool.ask(line, limit.time)).await {
            Ok(answered) => answered.map_err(|error| named(step, error))?,
            Err(_) => return Err(limit.error(step)),
        };
        match answer.error() {
            Some(error) => Err(named(step, error)),
            None => Ok(Arc::new(answer)),
        }
    }

    /// The limit `own` for what is missing after it, or the time left until the request's deadline if that is shorter.
    fn limit(&self, own: Duration, missing: &'static str) -> Limit {
        let deadline = self.request.deadline;
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match left {
            Some(time) if time < own => Limit { time, missing: None },
            _ => Limit { time: own, missing: Some(missing) },
        }
    }

    fn scope<'s>(&'s self, progress: &'s Progress) -> Scope<'s> {
        Scope { data: self.data, progress }
    }

    fn results(&self, progress: &Progress) -> Results {
        let steps = self.definition.steps().iter().zip(&progress.results);
        let answered = steps.filter_map(|(step, made)| {
            let answer = made.as_ref()?.result.as_ref().ok()?;
            Some((step.id.clone(), answer.clone()))
        });
        Results(answered.collect())
    }
}

/// Why a run stops before its last item.
enum RunError {
    /// A step or the observer failed.
    Failed(Error),
    /// The results do not agree, although they are required to.
    Aborted(Error),
}

impl From<Error> for RunError {
    fn from(error: Error) -> RunError {
        RunError::Failed(error)
    }
}

/// A time limit in a step. `missing` says what did not come in time; `None` for the request's deadline.
struct Limit {
    time: Duration,
    missing: Option<&'static str>,
}

impl Limit {
    fn error(&self, step: &Step) -> Error {
        let message = match self.missing {
            Some(missing) => format!("{missing} within {} ms", self.time.as_millis()),
            None => "the deadline of the request has passed".to_owned(),
        };
        named(step, Error::deadline(message))
    }
}

fn line(step: &Step, kind: Kind, scope: &Scope<'_>) -> Result<String, Error> {
    match &step.input {
        None => kind.line(scope),
        Some(template) => {
            template.fill(scope).map_err(|Unfilled(hole)| Error::invalid("", format!("{{{{{hole}}}}} has no value")))
        }
    }
}

/// Adds the name of the step to an error.
fn named(step: &Step, error: Error) -> Error {
    let message = format!("step {}: {}", step.id, error.message);
    let at = error.at.filter(|at| !at.is_empty());
    Error { message, at, ..error }
}

fn format_count(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("tools", &self.state()).finish()
    }
}

/// A recorded result for [`Observer::recorded`] to return. Returns `invalid` if it is not a JSON document.
pub fn recorded(line: String) -> Recorded {
    Answer::read(line).map(Arc::new)
}
