//! ken-model: one model call, messages in, events out. ken-model(8).

mod choice;
mod filter;
mod heard;
mod local;
mod pieces;
mod provider;
mod question;
mod rules;
mod script;
mod usage;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ken_service::{NoOptions, Program, Start};
use ken_types::Error;
use ken_types::ops::model::{Delta, ModelGenerate, ModelInfo};
use ken_wire::{Context, Daemon, Table};

use crate::choice::Choice;
use crate::provider::{Ear, Pending, generate};

fn main() -> ExitCode {
    let program = Program {
        name: "ken-model",
        version: env!("CARGO_PKG_VERSION"),
        about: "Answer model calls: messages in, events out",
        drain: Duration::from_secs(5),
    };
    match is_part() {
        true => ken_service::run(program, start),
        false => ken_tool::main::<filter::Ask>(),
    }
}

/// Whether it is to listen: kend has started this very process, or a flag says where. Otherwise it is a filter.
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
}

impl Daemon for Model {}

async fn start(start: &mut Start<NoOptions>) -> Result<(Table<Model>, Arc<Model>), Error> {
    let choice = Choice::from_environment(&start.config.model.choice)?;
    tracing::info!(models = choice.state().models.join(","), "models");
    Ok((table(), Arc::new(Model { choice })))
}

fn table() -> Table<Model> {
    Table::new("model", env!("CARGO_PKG_VERSION"))
        .op::<ModelInfo, _, _>(|model: Arc<Model>, _, _| async move { Ok(model.choice.state()) })
        .op::<ModelGenerate, _, _>(|model: Arc<Model>, caller, request| async move {
            let provider = model.choice.find(request.model.as_deref())?;
            generate(provider, &request, &Caller(caller)).await
        })
}

/// The caller of `model.generate` hears it as items.
struct Caller(Context<ModelGenerate>);

impl Ear for Caller {
    fn hear(&self, delta: Delta) -> Pending<'_, Result<(), Error>> {
        Box::pin(async move { self.0.item(&delta).await })
    }
}
