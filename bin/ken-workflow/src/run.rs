//! `ken-workflow run`: runs a workflow over an input.

use std::cell::OnceCell;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use ken_flow::{Catalog, Data, Definition, Engine, Outcome, Protocols, Request, Settings, Status, load};
use ken_tool::{Answer, Code, Error, Filter, Replied, Reply, Verdict};
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};

#[derive(Args)]
pub(crate) struct Run {
    /// Name of the workflow, or its file if the argument has a / or ends in .json
    #[arg(value_name = "NAME|FILE")]
    workflow: String,
    /// The data as JSON
    #[arg(short, long, value_name = "JSON")]
    json: Option<String>,
    /// Time limit of the whole run, in milliseconds
    #[arg(short, long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=86_400_000))]
    deadline: Option<u64>,
    #[arg(skip)]
    opened: OnceCell<OpenedWorkflow>,
}

/// State that all inputs share.
struct OpenedWorkflow {
    workflow: Arc<Definition>,
    engine: Engine,
    /// Declared last, so that it is dropped after the engine, whose child processes it watches.
    runtime: Runtime,
}

impl Filter for Run {
    const NAME: &'static str = "ken-workflow run";
    const ABOUT: &'static str = "Run a workflow over JSON data, or over a text as user_input";
    const AFTER_HELP: &'static str = "Exit status: 0 completed, 1 failed or aborted, 2 an error. See ken-workflow(1).";

    fn inline(&self) -> Option<&str> {
        self.json.as_deref()
    }

    fn run(&self, input: &str, reply: Reply<'_>) -> Result<Replied, Error> {
        let data = self.data(input)?;
        let opened = self.opened()?;
        let request = Request {
            deadline: self.deadline.map(|limit| Instant::now() + Duration::from_millis(limit)),
            ..opened.engine.request()
        };
        let running = opened.engine.run(&opened.workflow, &data, request);
        let mut outcome = opened.runtime.block_on(running)?;
        if !reply.is_verbose() {
            outcome.execution_time_ms = None; // left out, so that equal input gives equal bytes
        }
        Ok(reply.send(&RunAnswer(&outcome)))
    }
}

impl Run {
    /// Reads the data from the input. With `--json` it is any JSON value. From other sources it is an object, or else a
    /// text, which becomes the field `user_input`.
    fn data(&self, input: &str) -> Result<Data, Error> {
        if self.json.is_some() || input.trim_start().starts_with('{') {
            return Data::read(input);
        }
        Data::from_value(&serde_json::json!({"user_input": input.trim_end_matches(['\n', '\r'])}))
    }

    fn opened(&self) -> Result<&OpenedWorkflow, Error> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let opened = OpenedWorkflow::open(&self.workflow)?;
        Ok(self.opened.get_or_init(|| opened))
    }
}

impl OpenedWorkflow {
    fn open(workflow: &str) -> Result<OpenedWorkflow, Error> {
        let settings = Settings::read(|name| std::env::var(name).ok())?;
        let protocols = Protocols::shipped();
        let workflow = if workflow.contains('/') || workflow.ends_with(".json") {
            Arc::new(load(Path::new(workflow), &protocols)?)
        } else {
            Catalog::usual(protocols.clone()).find(workflow).map_err(|error| match error.code {
                Code::NotFound if error.hint.is_none() => error.hint("`ken-workflow list` shows the workflows"),
                _ => error,
            })?
        };
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok(OpenedWorkflow {
            workflow,
            engine: Engine::new(protocols, settings),
            runtime: runtime.map_err(|error| Error::internal(format!("no runtime: {error}")))?,
        })
    }
}

#[derive(Serialize)]
#[serde(transparent)]
struct RunAnswer<'a>(&'a Outcome);

impl Answer for RunAnswer<'_> {
    fn verdict(&self) -> Verdict {
        match self.0.status {
            Status::Completed => Verdict::Positive,
            Status::Failed | Status::Aborted => Verdict::Negative,
        }
    }

    fn summary(&self, verbose: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        let outcome = self.0;
        write!(to, "{}: {}", outcome.workflow, outcome.status.name())?;
        match (verbose, outcome.execution_time_ms) {
            (true, Some(time)) => writeln!(to, " in {:.1} ms", time.as_secs_f64() * 1e3)?,
            _ => writeln!(to)?,
        }
        let governance = &outcome.governance_summary;
        for (step, quality) in &governance.quality_scores {
            writeln!(to, "  {step}: quality {quality:.2}")?;
        }
        for warning in &governance.warnings {
            writeln!(to, "  warning: {warning}")?;
        }
        for action in &governance.actions {
            writeln!(to, "  action: {action}")?;
        }
        if let Some(error) = &outcome.error {
            writeln!(to, "  error: {error}")?;
        }
        for (step, answer) in outcome.results.iter().filter(|_| verbose) {
            writeln!(to, "{step} {}", answer.text())?;
        }
        Ok(())
    }
}
