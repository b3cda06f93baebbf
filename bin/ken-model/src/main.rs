//! ken-model: one model call, messages in, events out. ken-model(8).

mod choice;
mod collected;
mod command;
mod filter;
mod local;
mod pieces;
mod prices;
mod provider;
mod question;
mod remote;
mod rules;
mod script;
mod secrets;
mod usage;

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ken_service::{NoOptions, Program, Start};
use ken_types::Error;
use ken_types::ops::model::{Delta, ModelEmbed, ModelGenerate, ModelInfo};
use ken_wire::{Context, Daemon, Table};

use crate::choice::Choice;
use crate::provider::{DeltaSink, Pending, generate};

fn main() -> ExitCode {
    let program = Program {
        name: "ken-model",
        version: env!("CARGO_PKG_VERSION"),
        about: "Answer model calls: messages in, events out",
        drain: Duration::from_secs(5),
    };
    if command::is_wanted() {
        return command::run();
    }
    match is_part() {
        true => ken_service::run(program, start),
        false => ken_tool::main::<filter::Ask>(),
    }
}

/// Whether to run as a daemon: kend has started this very process, or a flag says where to listen. Otherwise it is a filter.
fn is_part() -> bool {
    let own = std::process::id().to_string();
    let started = std::env::var("LISTEN_PID").is_ok_and(|pid| pid == own);
    let is_place = |word: &str| ["--home", "--config"].contains(&word);
    let mut words = std::env::args_os().skip(1);
    started
        || words.any(|word| {
            let word = word.to_string_lossy();
            is_place(word.split('=').next().unwrap_or_default())
        })
}

struct Model {
    choice: Choice,
    /// What kend was told last.
    status: Mutex<String>,
}

impl Model {
    /// Tells kend which models cannot be called, for `ken status`, when that has changed.
    fn report(&self) {
        let unusable = self.choice.state().unusable;
        let words: Vec<String> = unusable
            .iter()
            .map(|one| format!("{}: {}", one.model, one.why))
            .collect();
        let status = match words.is_empty() {
            true => String::new(),
            false => format!("not configured: {}", words.join("; ")),
        };
        let mut told = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        if *told != status {
            _ = sd_notify::notify(&[sd_notify::NotifyState::Status(&status)]);
            *told = status;
        }
    }
}

impl Daemon for Model {}

async fn start(start: &mut Start<NoOptions>) -> Result<(Table<Model>, Arc<Model>), Error> {
    let settings = &start.config.model;
    let choice = Choice::from_environment(&settings.choice)?.with_embedder(&settings.embed)?;
    let state = choice.state();
    for unusable in &state.unusable {
        tracing::warn!(model = unusable.model, "model not configured: {}", unusable.why);
    }
    tracing::info!(models = state.models.join(","), "models");
    let model = Model {
        choice,
        status: Mutex::default(),
    };
    model.report();
    Ok((table(), Arc::new(model)))
}

fn table() -> Table<Model> {
    Table::new("model", env!("CARGO_PKG_VERSION"))
        .op::<ModelInfo, _, _>(|model: Arc<Model>, _, _| async move { Ok(model.choice.state()) })
        .op::<ModelEmbed, _, _>(
            |model: Arc<Model>, _, args| async move { model.choice.embed(&args.texts).await },
        )
        .op::<ModelGenerate, _, _>(|model: Arc<Model>, caller, request| async move {
            let provider = model.choice.find(request.model.as_deref())?;
            let generated = generate(provider, &request, &Caller(caller)).await;
            model.report();
            generated
        })
}

/// The caller of `model.generate` gets the deltas as items.
struct Caller(Context<ModelGenerate>);

impl DeltaSink for Caller {
    fn send(&self, delta: Delta) -> Pending<'_, Result<(), Error>> {
        Box::pin(async move { self.0.item(&delta).await })
    }
}
