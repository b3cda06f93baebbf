//! Workflow runs that were started at the gateway. They are claimed from the store, executed by the engine and recorded
//! step by step. A recorded step is not executed again. If a step that calls a model is interrupted, the run fails.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ken_claims::{Claimer, Held, Run, Worker};
use ken_flow::{
    Data, Definition, Event, Kind, Observer, Outcome, Pending, Recorded, Request, Status, StepEnd, StepName, recorded,
};
use ken_service::Stop;
use ken_types::event::Failure;
use ken_types::ops::store::{Claim, EndReason, Work};
use ken_types::places::Places;
use ken_types::{Code, Error};
use ken_wire::Pool;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::app::Cognitive;
use crate::execute::completed;
use crate::observer::AuditObserver;
use crate::research::{self, failure};

/// The maximum number of runs at the same time. The store enforces it for all processes together.
const MAX_RUNS: usize = 32;

/// Claims runs until the server stops.
pub(crate) async fn claim(app: Arc<Cognitive>, places: Places, held: Arc<Held>, stop: Stop) {
    let socket = places.socket("store");
    let claiming = Claimer {
        worker: Runner { app, store: Pool::new(socket.clone()) },
        held,
        work: Work::Runs,
        at_once: MAX_RUNS,
        socket,
        holder: format!("ken-cognitive {}", std::process::id()),
    };
    claiming.run(stop).await;
}

#[derive(Clone)]
struct Runner {
    app: Arc<Cognitive>,
    store: Pool,
}

impl Worker for Runner {
    async fn work(&self, claim: Claim, mut aborted: watch::Receiver<bool>) -> Result<(), Error> {
        let left = Duration::from_millis(u64::try_from(claim.time_left_ms).unwrap_or_default());
        let run = Run::open(&self.store, claim).await?;
        let ended = match run.recorded().interruption() {
            Some(interrupted) => Err(interrupted),
            None => tokio::select! {
                ended = self.execute(&run, Instant::now() + left) => ended?,
                // Dropping the future of the run kills its tools.
                _ = aborted.wait_for(|aborted| *aborted) => Err(EndReason::Abort.of_run()),
            },
        };
        run.end_with_blobs(ended).await
    }
}

impl Runner {
    async fn execute(&self, run: &Run, deadline: Instant) -> Result<research::RunEnd, Error> {
        if run.workflow() == research::NAME {
            return self.app.research.execute(run, deadline).await;
        }
        let ended = execute(&self.app, run, deadline).await?;
        Ok(ended.map(|result| (result, Vec::new())))
    }
}

/// Executes a run. Fails if it could not be recorded because another process has claimed it.
async fn execute(app: &Cognitive, run: &Run, deadline: Instant) -> Result<Result<Value, Failure>, Error> {
    let found = app.catalog.find(run.workflow());
    let (definition, data) = match found.and_then(|found| Ok((found, Data::from_value(run.payload())?))) {
        Ok(found) => found,
        Err(error) => return Ok(Err(refusal(&error))),
    };
    let recorder = RunRecorder {
        run,
        definition: &definition,
        app,
        observer: AuditObserver::new(&app.metrics, run.id().as_str(), USER),
        lost: Mutex::default(),
    };
    let request = Request { deadline: Some(deadline), settings: app.engine.settings(), observer: &recorder };
    let done = app.engine.run(&definition, &data, request).await;
    if let Some(lost) = recorder.lost.lock().take() {
        return Err(lost);
    }
    match done {
        Ok(outcome) => {
            app.metrics.workflow(&definition, &outcome);
            Ok(audited(app, &outcome, run, recorder.observer, deadline).await.and_then(|()| result(outcome)))
        }
        Err(error) => Ok(Err(refusal(&error))),
    }
}

/// The user id of runs in the audit log, because they have no key.
const USER: &str = "gateway";

/// Returns the failure of a run whose workflow was changed or removed after its input was checked.
fn refusal(error: &Error) -> Failure {
    let name = if error.code == Code::NotFound { "WorkflowNotFound" } else { "InvalidRequest" };
    failure(name, error.to_string())
}

/// How long a run waits until it tries again to write its audit records.
const AUDIT_PAUSE: Duration = Duration::from_millis(500);

/// Writes the audit records. The run was accepted, so it waits for a full disk as long as it has time, and fails only then.
async fn audited(
    app: &Cognitive,
    outcome: &Outcome,
    run: &Run,
    observer: AuditObserver<'_>,
    deadline: Instant,
) -> Result<(), Failure> {
    let mut records = observer.into_records();
    records.push(completed("run_completed", outcome, run.id().as_str(), USER));
    loop {
        match app.record(records.clone()).await {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() + AUDIT_PAUSE >= deadline => {
                return Err(failure("AuditUnavailable", error.message));
            }
            Err(_) => sleep(AUDIT_PAUSE).await,
        }
    }
}

/// Returns the outcome in the form of `ken-workflow`, but without the time, so that a resumed run has the same result.
fn result(outcome: Outcome) -> Result<Value, Failure> {
    let why = |error: &Option<Error>| error.as_ref().map_or_else(String::new, |error| error.message.clone());
    match outcome.status {
        Status::Completed => {
            let outcome = Outcome { execution_time_ms: None, ..outcome };
            serde_json::to_value(&outcome).map_err(|error| failure("Defect", error.to_string()))
        }
        Status::Aborted => Err(failure("Incoherent", why(&outcome.error))),
        Status::Failed => Err(failure("StepFailed", why(&outcome.error))),
    }
}

/// Records the steps of a run, and replays those recorded earlier.
struct RunRecorder<'a> {
    run: &'a Run,
    definition: &'a Definition,
    app: &'a Cognitive,
    observer: AuditObserver<'a>,
    /// The error because of which the run could not be recorded.
    lost: Mutex<Option<Error>>,
}

/// Returns the key that identifies one execution of a step.
fn key(name: &StepName) -> String {
    match name.turn {
        1 => name.id.clone(),
        turn => format!("{}#{turn}", name.id),
    }
}

impl RunRecorder<'_> {
    /// Whether a step can be repeated. All steps except calls of a model are deterministic and change nothing.
    fn is_repeatable(&self, id: &str) -> bool {
        let protocol = self.definition.protocol_of(id);
        let protocol = protocol.and_then(|name| self.app.engine.protocols().find(name));
        protocol.is_some_and(|protocol| !matches!(protocol.kind, Kind::Model | Kind::Other))
    }

    fn keep(&self, written: Result<(), Error>) -> Result<(), Error> {
        written.inspect_err(|error| {
            *self.lost.lock() = Some(error.clone());
        })
    }
}

impl Observer for RunRecorder<'_> {
    fn recorded(&self, name: &StepName) -> Option<Recorded> {
        match self.run.recorded().step(&key(name))? {
            Ok(output) => Some(recorded(output.to_string())),
            Err(error) => Some(Err(error.clone())),
        }
    }

    fn begun<'a>(&'a self, name: &'a StepName) -> Pending<'a, Result<(), Error>> {
        Box::pin(async move { self.keep(self.run.begin(&key(name), self.is_repeatable(&name.id)).await) })
    }

    fn ended<'a>(&'a self, step: &'a StepEnd<'a>) -> Pending<'a, Result<(), Error>> {
        Box::pin(async move {
            self.observer.ended(step).await?;
            let key = key(step.name);
            let written = match step.result {
                Ok(answer) => match serde_json::from_str(answer.text()) {
                    Ok(output) => self.run.done(&key, &output).await,
                    Err(error) => Err(Error::internal(format!("an answer cannot be read: {error}"))),
                },
                Err(error) => self.run.failed(&key, error).await,
            };
            self.keep(written)
        })
    }

    fn event<'a>(&'a self, event: &'a Event) -> Pending<'a, Result<(), Error>> {
        Box::pin(async move {
            self.observer.event(event).await?;
            let event_json = serde_json::to_value(event).unwrap_or_else(|_| json!({}));
            self.keep(self.run.log("warn", event.name(), json!({"governance": event_json})).await)
        })
    }
}
