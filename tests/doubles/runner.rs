//! A stand-in for ken-cognitive with one workflow, `steps`, whose steps only take some time and append a
//! line to a file, so that a test can count how often each step was executed.
//!
//! Payload: `{"steps", "ms"?, "file"?, "risky"? (a step that must not be repeated), "fail"? (a step that fails)}`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ken_claims::{Claimer, Held, Run, Worker};
use ken_service::{NoOptions, Program};
use ken_types::Error;
use ken_types::event::Failure;
use ken_types::ops::Nothing;
use ken_types::ops::cognitive::{CheckWorkflow, Workflow, Workflows, WorkflowsCheck, WorkflowsList};
use ken_types::ops::store::{Claim, Work};
use ken_wire::{Daemon, Pool, Table};
use serde_json::{Value, json};
use tokio::sync::watch;

const STEPS: &str = "steps";

struct Double;

impl Daemon for Double {}

#[derive(Clone)]
struct TestRunner {
    store: Pool,
}

impl Worker for TestRunner {
    async fn work(&self, claim: Claim, mut aborted: watch::Receiver<bool>) -> Result<(), Error> {
        let run = Run::open(&self.store, claim).await?;
        let ended = match run.recorded().interruption() {
            Some(interrupted) => Err(interrupted),
            None => tokio::select! {
                ended = steps(&run) => ended?,
                _ = aborted.wait_for(|aborted| *aborted) => Err(failure("Aborted", "The run was aborted.")),
            },
        };
        run.end(ended).await
    }
}

async fn steps(run: &Run) -> Result<Result<Value, Failure>, Error> {
    let number = |name: &str| run.payload().get(name).and_then(Value::as_u64);
    let (mut made, mut known) = (0, 0);
    for step in 1..=number("steps").unwrap_or_default() {
        let name = format!("s{step}");
        if run.recorded().step(&name).is_some() {
            known += 1;
            continue;
        }
        run.begin(&name, number("risky") != Some(step)).await?;
        leave_a_line(run, &name);
        tokio::time::sleep(Duration::from_millis(number("ms").unwrap_or_default())).await;
        if number("fail") == Some(step) {
            return Ok(Err(failure("StepFailed", "This step fails.")));
        }
        run.done(&name, &json!({"n": step})).await?;
        made += 1;
    }
    Ok(Ok(json!({"made": made, "known": known})))
}

fn leave_a_line(run: &Run, step: &str) {
    let Some(file) = run.payload().get("file").and_then(Value::as_str) else {
        return;
    };
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file).expect("a file");
    writeln!(file, "{} {step}", run.id()).expect("a line");
}

fn failure(name: &str, message: &str) -> Failure {
    Failure { name: name.to_owned(), message: message.to_owned() }
}

fn check(args: &CheckWorkflow) -> Result<Nothing, Error> {
    if args.name != STEPS {
        return Err(Error::not_found("no such workflow"));
    }
    match args.payload.get("steps") {
        Some(Value::Number(number)) if number.is_u64() => Ok(Nothing {}),
        _ => Err(Error::invalid("/steps", "steps is a number")),
    }
}

fn workflows() -> Workflows {
    Workflows {
        workflows: vec![Workflow {
            name: STEPS.to_owned(),
            description: "Takes its time".to_owned(),
            input: json!({"type": "object", "required": ["steps"], "properties": {"steps": {"type": "integer"}}}),
        }],
    }
}

fn main() -> ExitCode {
    let program = Program {
        name: "ken-cognitive",
        version: "0.0.0",
        about: "Stands in for ken-cognitive",
        drain: Duration::from_secs(1),
    };
    ken_service::run::<NoOptions, _, _>(program, async |start| {
        let claiming = Claimer {
            worker: TestRunner { store: Pool::new(start.places.socket("store")) },
            held: Arc::new(Held::default()),
            work: Work::Runs,
            at_once: 64,
            socket: start.places.socket("store"),
            holder: format!("a double {}", std::process::id()),
        };
        start.tasks.spawn(claiming.run(start.stop.clone()));
        let table = Table::new(program.part(), program.version)
            .op::<WorkflowsList, _, _>(|_: Arc<Double>, _, _| async { Ok(workflows()) })
            .op::<WorkflowsCheck, _, _>(|_: Arc<Double>, _, args| async move { check(&args) });
        Ok((table, Arc::new(Double)))
    })
}
