//! ken-model as a filter: it reads one request and writes one answer. It keeps no state.

use std::cell::OnceCell;
use std::fmt;

use ken_tool::{Answer, Error, Filter, MAX_DEPTH, Replied, Reply};
use ken_types::event::{Block, ModelName, Usage};
use ken_types::ops::call::{self, Answered, Failed};
use ken_types::ops::model::{Delta, Generate};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};

use crate::choice::Choice;
use crate::generate::generate;
use crate::installed::Installed;
use crate::provider::{DeltaSink, Pending, Provider, full_name};

#[derive(clap::Args)]
pub(crate) struct Ask {
    /// What the user says, or a request as a JSON object
    #[arg(short, long, value_name = "TEXT")]
    text: Option<String>,
    /// Models, first choice first, instead of those of KEN_MODEL
    #[arg(short, long, value_name = "PROVIDER/MODEL,...")]
    model: Option<String>,
    #[arg(skip)]
    engine: OnceCell<Engine>,
}

impl Filter for Ask {
    const NAME: &'static str = "ken-model";
    const ABOUT: &'static str = "Answer a model call: a text or {\"messages\": […]} in, the answer out";
    const AFTER_HELP: &'static str = "Without --model and KEN_MODEL, the models of ken.toml answer, else the engine rules.\n\
        ken-model list shows the providers' models, ken-model try PROVIDER/MODEL calls one, ken-model check reads the configuration.\n\
        ken-model --home DIR or --config FILE listens for other parts instead; see ken-model(8).";

    fn inline(&self) -> Option<&str> {
        self.text.as_deref()
    }

    fn run(&self, input: &str, reply: Reply<'_>) -> Result<Replied, Error> {
        let engine = self.engine()?;
        let answer = engine.answer(&call::read(input, MAX_DEPTH)?)?;
        Ok(reply.send(&Written(answer)))
    }
}

impl Ask {
    /// Opened for the first request and kept for the following ones.
    fn engine(&self) -> Result<&Engine, Error> {
        if let Some(engine) = self.engine.get() {
            return Ok(engine);
        }
        let engine = Engine::open(self.model.as_deref())?;
        Ok(self.engine.get_or_init(|| engine))
    }
}

/// Creates a single-threaded runtime, for a command that makes one call at a time.
pub(crate) fn runtime() -> Result<Runtime, Error> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Error::internal(format!("no runtime: {error}")))
}

#[derive(Debug)]
struct Engine {
    choice: Choice,
    runtime: Runtime,
}

impl Engine {
    fn open(model: Option<&str>) -> Result<Engine, Error> {
        let installed = Installed::load()?;
        let choice = installed.with_setup(|setup| Choice::of_command(model, &installed.model.choice, setup))?;
        Ok(Engine { choice, runtime: runtime()? })
    }

    /// Returns the answer of the first model that gives one.
    fn answer(&self, request: &Generate) -> Result<Answered, Error> {
        let mut failed = Vec::new();
        for provider in self.choice.candidates(request.model.as_deref())? {
            match self.runtime.block_on(ask(provider, request)) {
                Ok(answered) => return Ok(Answered { failed, ..answered }),
                Err(error) => failed.push(Failed { model: full_name(provider), error }),
            }
        }
        Err(Failed::all(failed))
    }
}

async fn ask(provider: &dyn Provider, request: &Generate) -> Result<Answered, Error> {
    let sink = Collector::default();
    let end = generate(provider, request, &sink).await?;
    let (text, tool_calls) = sink.0.into_inner();
    Ok(Answered {
        text,
        tool_calls,
        usage: end.usage,
        model: end.model,
        stop_reason: end.stop_reason,
        failed: Vec::new(),
    })
}

#[derive(Default)]
struct Collector(Mutex<(String, Vec<Block>)>);

impl DeltaSink for Collector {
    fn send(&self, delta: Delta) -> Pending<'_, Result<(), Error>> {
        let mut collected = self.0.lock();
        match delta {
            Delta::Text { delta } => collected.0.push_str(&delta),
            Delta::ToolCall { id, name, arguments } => collected.1.push(Block::ToolCall { id, name, arguments }),
            Delta::Start { .. } | Delta::Think { .. } => {}
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

/// An answer in the form in which it is printed.
#[derive(Serialize)]
#[serde(transparent)]
struct Written(Answered);

impl Answer for Written {
    fn summary(&self, verbose: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        let Written(answer) = self;
        writeln!(to, "{}", answer.text)?;
        if verbose {
            let Usage { input, output, .. } = answer.usage;
            let ModelName { provider, id } = &answer.model;
            writeln!(to, "-- {provider}/{id}, {input} tokens in, {output} out")?;
            for Failed { model, error } in &answer.failed {
                writeln!(to, "-- {model} failed: {error}")?;
            }
        }
        Ok(())
    }
}
