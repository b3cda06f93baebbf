//! Runs workflows.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ken_types::{Code, Error};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::answer::Answer;
use crate::data::Data;
use crate::definition::{Definition, Item, Step};
use crate::governance;
use crate::join::join_all;
use crate::observer::{Decision, Event, Nobody, Observer, Pending, Recorded, StepEnd, StepName};
use crate::outcome::{Outcome, Results, Status, Summary};
use crate::pool::ToolState;
use crate::protocol::{Kind, Protocols};
use crate::scope::Scope;
use crate::settings::Settings;
use crate::template::Unfilled;
use crate::tool::Tool;

/// The protocols and the processes of their tools. One engine serves every request of a program; it must be used on the
/// thread that will end last, because the tools end with the thread that started them (PR_SET_PDEATHSIG).
pub struct Engine {
    protocols: Protocols,
    tools: Vec<Tool>,
    settings: Settings,
}

/// What one run is held to.
pub struct Request<'a> {
    /// When the whole must be done; a step that is at work then fails with `deadline`.
    pub deadline: Option<Instant>,
    pub settings: &'a Settings,
    pub observer: &'a dyn Observer,
}

impl Engine {
    pub fn new(protocols: Protocols, settings: Settings) -> Engine {
        Engine {
            tools: protocols.iter().map(Tool::new).collect(),
            protocols,
            settings,
        }
    }

    pub fn protocols(&self) -> &Protocols {
        &self.protocols
    }

    /// What a request is held to that asks for nothing else.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A request with the engine's settings, without a deadline, that nobody observes.
    pub fn request(&self) -> Request<'_> {
        Request {
            deadline: None,
            settings: &self.settings,
            observer: &Nobody,
        }
    }

    /// Runs a workflow to its end. `Err` only when it was not begun, because the data is not what the workflow takes
    /// (`invalid`, `at` a pointer into the data); what goes wrong in it is in the outcome. Dropped before its end, the tools
    /// at work for it are killed, and nothing of it reaches another run.
    pub async fn run(
        &self,
        definition: &Definition,
        data: &Data,
        request: Request<'_>,
    ) -> Result<Outcome, Error> {
        definition.check(data)?;
        let begun = Instant::now();
        let mut run = Run::new(self, definition, data, request);
        let (status, error, summary) = run.govern().await;
        Ok(Outcome {
            workflow: definition.name().to_owned(),
            status,
            results: run.into_results(),
            governance_summary: summary,
            error,
            execution_time_ms: Some(begun.elapsed()),
        })
    }

    /// What the processes of each protocol's tool are doing.
    pub fn state(&self) -> Vec<ToolState> {
        self.tools.iter().map(|tool| tool.pool.state()).collect()
    }

    /// Ends the processes that do nothing; they are started again when they are needed, with the environment and the
    /// files of then.
    pub fn rest(&self) {
        self.tools.iter().for_each(|tool| tool.pool.rest());
    }

    fn find(&self, protocol: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.protocol.name == protocol)
    }
}

/// A run on its way.
struct Run<'a> {
    engine: &'a Engine,
    definition: &'a Definition,
    data: &'a Data,
    request: Request<'a>,
    /// Tools that may be at work for it.
    places: Semaphore,
    progress: Mutex<Progress>,
    /// What was wrong with the first try.
    issues: Vec<String>,
}

/// By the steps of the definition.
struct Progress {
    results: Vec<Option<Made>>,
    turns: Vec<u32>,
    /// The steps with a result, oldest result first.
    order: Vec<usize>,
}

/// A step that ran.
#[derive(Clone)]
pub(crate) struct Made {
    /// The line that its tool was given; empty when there was none to be made.
    pub(crate) input: Arc<str>,
    pub(crate) result: Recorded,
}

impl<'a> Run<'a> {
    fn new(engine: &'a Engine, definition: &'a Definition, data: &'a Data, request: Request<'a>) -> Run<'a> {
        let steps = definition.steps().len();
        Run {
            engine,
            definition,
            data,
            places: Semaphore::new(request.settings.max_parallel.max(1)),
            request,
            progress: Mutex::new(Progress {
                results: (0..steps).map(|_| None).collect(),
                turns: vec![0; steps],
                order: Vec::with_capacity(steps),
            }),
            issues: Vec::new(),
        }
    }

    /// The first try; where its results do not agree and must, the second.
    async fn govern(&mut self) -> (Status, Option<Error>, Summary) {
        let mut actions = Vec::new();
        loop {
            let failed = self.items(self.definition.items()).await.err();
            let mut summary = self.judge();
            summary.actions = actions.clone();
            let told = self.tell(&summary).await;
            if let Some(error) = failed.or(told.err()) {
                return (Status::Failed, Some(error), summary);
            }
            let governance = self.request.settings.governance;
            if summary.is_coherent != Some(false) || !governance.requires_coherence {
                return (Status::Completed, None, summary);
            }
            let issues = summary
                .coherence
                .as_ref()
                .map(|found| found.issues.clone())
                .unwrap_or_default();
            let is_last = !self.issues.is_empty();
            if let Err(error) = self.decide(is_last, &issues).await {
                return (Status::Failed, Some(error), summary);
            }
            if is_last {
                let words = format!("the results do not agree: {}", issues.join("; "));
                summary
                    .actions
                    .push("aborted: the second try was not coherent either".to_owned());
                return (Status::Aborted, Some(Error::conflict(words)), summary);
            }
            actions.push(format!("retried with {} found", counted(issues.len(), "issue")));
            self.begin_again(issues);
        }
    }

    fn begin_again(&mut self, issues: Vec<String>) {
        self.issues = issues;
        let mut progress = self.progress();
        progress.results.iter_mut().for_each(|result| *result = None);
        progress.order.clear();
    }

    fn judge(&self) -> Summary {
        let governance = self.request.settings.governance;
        if !governance.is_enabled {
            return Summary::default();
        }
        let results = self.progress().results.clone();
        governance::judge(
            self.definition,
            &self.engine.protocols,
            &results,
            governance.min_quality,
        )
    }

    async fn tell(&self, summary: &Summary) -> Result<(), Error> {
        let min_quality = self.request.settings.governance.min_quality;
        for (step, quality) in &summary.quality_scores {
            if *quality < min_quality {
                let event = Event::GovernanceLowQuality {
                    step: step.clone(),
                    quality: *quality,
                    min_quality,
                };
                self.request.observer.event(&event).await?;
            }
        }
        match &summary.coherence {
            Some(found) if summary.is_coherent == Some(false) => {
                let event = Event::GovernanceIncoherenceDetected {
                    score: found.score,
                    issues: found.issues.clone(),
                };
                self.request.observer.event(&event).await
            }
            _ => Ok(()),
        }
    }

    async fn decide(&self, is_last: bool, issues: &[String]) -> Result<(), Error> {
        let observer = self.request.observer;
        let decision = if is_last { Decision::Abort } else { Decision::Retry };
        let reason = format!("the results do not agree: {}", counted(issues.len(), "issue"));
        observer
            .event(&Event::RecoveryDecision { decision, reason })
            .await?;
        if is_last {
            let issues = issues.to_vec();
            observer.event(&Event::GovernanceAbort { issues }).await?;
        }
        Ok(())
    }

    /// Items one after the other, until one fails.
    fn items<'s>(&'s self, items: &'s [Item]) -> Pending<'s, Result<(), Error>> {
        Box::pin(async move {
            for item in items {
                self.item(item).await?;
            }
            Ok(())
        })
    }

    async fn item(&self, item: &Item) -> Result<(), Error> {
        match item {
            Item::Step(step) => self.step(*step).await,
            Item::Loop { rounds, items } => {
                for _ in 0..*rounds {
                    self.items(items).await?;
                }
                Ok(())
            }
            // All come to their end; the first that failed is the error.
            Item::Parallel(items) => {
                let branches = items.iter().map(|item| self.items(std::slice::from_ref(item)));
                join_all(branches).await.into_iter().collect()
            }
        }
    }

    async fn step(&self, number: usize) -> Result<(), Error> {
        let Some(step) = self.definition.steps().get(number) else {
            return Ok(());
        };
        let scope = self.scope();
        if step
            .when
            .as_ref()
            .is_some_and(|condition| !condition.holds(&scope))
        {
            return Ok(());
        }
        let name = StepName {
            id: step.id.clone(),
            turn: self.next_turn(number),
        };
        let tool = self.engine.find(&step.protocol);
        let tool = tool.ok_or_else(|| named(step, Error::internal("no such protocol")))?;
        let (input, known) = match line(step, tool.protocol.kind, &scope) {
            Ok(line) => (Arc::from(line), self.request.observer.recorded(&name)),
            Err(error) => (Arc::from(""), Some(Err(named(step, error)))),
        };
        drop(scope);
        let result = match known {
            Some(known) => known,
            None => self.observed(step, &name, tool, &input).await?,
        };
        let ended = result.as_ref().map(|_| ()).map_err(Error::clone);
        self.progress().keep(number, Made { input, result });
        ended
    }

    /// Asks the tool under the observer's eyes; only the observer's own error is one here.
    async fn observed(
        &self,
        step: &Step,
        name: &StepName,
        tool: &Tool,
        input: &str,
    ) -> Result<Recorded, Error> {
        let begun = Instant::now();
        self.request.observer.begun(name).await?;
        let result = self.ask(step, tool, input).await;
        let end = StepEnd {
            name,
            protocol: &step.protocol,
            input,
            result: &result,
            time: begun.elapsed(),
        };
        self.request.observer.ended(&end).await?;
        Ok(result)
    }

    async fn ask(&self, step: &Step, tool: &Tool, line: &str) -> Recorded {
        let limit = self.limit(step)?;
        let asked = async {
            let _place = self.places.acquire().await; // never closed
            tool.ask(line, limit.time).await
        };
        let answer = match timeout(limit.time, asked).await {
            Ok(answered) => answered.map_err(|error| named(step, error))?,
            Err(_) => return Err(limit.error(step)),
        };
        match answer.error() {
            Some(error) => Err(named(step, error)),
            None => Ok(Arc::new(answer)),
        }
    }

    fn limit(&self, step: &Step) -> Result<Limit, Error> {
        let own = step
            .timeout
            .unwrap_or_else(|| self.request.settings.timeout_of(&step.protocol));
        let left = self
            .request
            .deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match left {
            Some(left) if left.is_zero() => Err(Limit {
                time: left,
                is_own: false,
            }
            .error(step)),
            Some(left) if left < own => Ok(Limit {
                time: left,
                is_own: false,
            }),
            _ => Ok(Limit {
                time: own,
                is_own: true,
            }),
        }
    }

    fn next_turn(&self, number: usize) -> u32 {
        let mut progress = self.progress();
        let turn = progress.turns.get_mut(number);
        turn.map_or(1, |turn| {
            *turn += 1;
            *turn
        })
    }

    fn scope(&self) -> Scope<'_> {
        let progress = self.progress();
        let answer = |made: &Option<Made>| made.as_ref().and_then(|made| made.result.as_ref().ok().cloned());
        Scope {
            definition: self.definition,
            data: self.data,
            results: progress.results.iter().map(answer).collect(),
            order: progress.order.clone(),
            issues: &self.issues,
        }
    }

    fn into_results(self) -> Results {
        let progress = self.progress.into_inner().unwrap_or_else(PoisonError::into_inner);
        let steps = self.definition.steps().iter().map(|step| step.id.clone());
        let answers = progress.results.into_iter().map(|made| made?.result.ok());
        let found = steps.zip(answers).filter_map(|(id, answer)| Some((id, answer?)));
        Results(found.collect())
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress {
    fn keep(&mut self, number: usize, made: Made) {
        self.order.retain(|step| *step != number);
        self.order.push(number);
        if let Some(place) = self.results.get_mut(number) {
            *place = Some(made);
        }
    }
}

/// How long a step may take, and whether that is its own limit or what was left of the request's.
struct Limit {
    time: Duration,
    is_own: bool,
}

impl Limit {
    fn error(&self, step: &Step) -> Error {
        let words = match self.is_own {
            true => format!("no answer within {} ms", self.time.as_millis()),
            false => "the time of the request was over".to_owned(),
        };
        named(step, Error::new(Code::Deadline, words))
    }
}

fn line(step: &Step, kind: Kind, scope: &Scope<'_>) -> Result<String, Error> {
    match &step.input {
        None => kind.line(scope),
        Some(template) => template
            .fill(scope)
            .map_err(|Unfilled(hole)| Error::invalid("", format!("nothing is at {{{{{hole}}}}}"))),
    }
}

/// The error of a step.
fn named(step: &Step, error: Error) -> Error {
    let message = format!("step {}: {}", step.id, error.message);
    let at = error.at.filter(|at| !at.is_empty());
    Error { message, at, ..error }
}

fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("tools", &self.state()).finish()
    }
}

/// A result that was recorded elsewhere, to be supplied by [`Observer::recorded`]. `invalid` when it is no JSON document.
pub fn recorded(line: String) -> Recorded {
    Answer::read(line).map(Arc::new)
}
