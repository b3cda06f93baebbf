//! ken-model: one model call, messages in, events out. ken-model(8).

mod choice;
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
    ken_service::run(program, start)
}

struct Model {
    choice: Choice,
}

impl Daemon for Model {}

async fn start(start: &mut Start<NoOptions>) -> Result<(Table<Model>, Arc<Model>), Error> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let list = variable("KEN_MODEL").unwrap_or_else(|| start.config.model.choice.clone());
    let choice = Choice::read(&list, variable("KEN_SCRIPT").as_deref())?;
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
