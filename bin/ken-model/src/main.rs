//! ken-model: makes one model call at a time for a caller. It receives messages and returns events. See ken-model(8).

mod breaker;
mod budget;
mod choice;
mod command;
mod embedder;
mod filter;
mod generate;
mod http;
mod installed;
mod local;
mod pieces;
mod prices;
mod provider;
mod question;
mod remote;
mod rules;
mod script;
mod sources;
mod telemetry;
mod usage;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ken_service::{NoOptions, Program, Start, secret};
use ken_types::Error;
use ken_types::ops::model::{Delta, ModelBudget, ModelEmbed, ModelGenerate, ModelHealth, ModelInfo};
use ken_types::providers::Providers;
use ken_wire::{Context, Daemon, Pool};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::breaker::Breakers;
use crate::budget::Budget;
use crate::choice::{Choice, Setup};
use crate::prices::Table;
use crate::provider::{DeltaSink, Pending};
use crate::telemetry::{Counts, Exporter};

fn main() -> ExitCode {
    let program = Program {
        name: "ken-model",
        version: env!("CARGO_PKG_VERSION"),
        about: "Answer model calls: messages in, events out",
        drain: Duration::from_secs(5),
    };
    if command::is_requested() {
        return command::run();
    }
    if ken_service::is_part() { ken_service::run(program, start) } else { ken_tool::main::<filter::Ask>() }
}

struct Model {
    choice: Choice,
    providers: Providers,
    table: Table,
    breakers: Arc<Breakers>,
    budget: Budget,
    telemetry: Arc<Counts>,
    /// The last status that was sent to kend.
    status: Mutex<String>,
}

impl Model {
    /// Models that are not in the list share the failures of those that are.
    fn setup(&self) -> Setup<'_> {
        Setup { providers: &self.providers, setting: &secret, table: &self.table, breakers: self.breakers.clone() }
    }

    /// Reports to kend, for `ken status`, which models cannot be called, if that has changed.
    fn report(&self) {
        let unusable = self.choice.state().unusable;
        let words: Vec<String> = unusable.iter().map(|one| format!("{}: {}", one.model, one.why)).collect();
        let missing = (!words.is_empty()).then(|| format!("not configured: {}", words.join("; ")));
        let down = self.choice.health().down().map(|one| one.to_string()).collect::<Vec<_>>().join("; ");
        let down = (!down.is_empty()).then(|| format!("down: {down}"));
        let status = missing.into_iter().chain(down).chain(self.breakers.over_budget());
        let status = status.collect::<Vec<_>>().join("; ");
        let mut reported = self.status.lock();
        if *reported != status {
            _ = sd_notify::notify(&[sd_notify::NotifyState::Status(&status)]);
            *reported = status;
        }
    }
}

impl Daemon for Model {
    fn stats(&self) -> Map<String, Value> {
        let count = |counter: &AtomicU64| json!(counter.load(Ordering::Relaxed));
        Map::from_iter([
            ("telemetry_exported".to_owned(), count(&self.telemetry.exported)),
            ("telemetry_lost".to_owned(), count(&self.telemetry.lost)),
        ])
    }
}

async fn start(start: &mut Start<NoOptions>) -> Result<(ken_wire::Table<Model>, Arc<Model>), Error> {
    let settings = &start.config.model;
    let (providers, breakers) = (settings.provider.clone(), Arc::<Breakers>::default());
    let table = Table::installed(Some(&start.places.config))?;
    let setup = Setup { providers: &providers, setting: &secret, table: &table, breakers: breakers.clone() };
    let choice = Choice::configured(&settings.choice, &setup)?.with_embedder(&settings.embed, &setup)?;
    let state = choice.state();
    for unusable in &state.unusable {
        tracing::warn!(model = unusable.model, "model not configured: {}", unusable.why);
    }
    tracing::info!(models = state.models.join(","), "models");
    let store = Pool::new(start.places.socket("store"));
    let telemetry = Arc::<Counts>::default();
    let exporter = Exporter::configured(&start.config.telemetry, secret, store.clone(), telemetry.clone())?;
    if let Some(exporter) = exporter {
        start.tasks.spawn(exporter.run(start.stop.clone()));
    }
    let budget = Budget::new(store, start.config.model.budget, breakers.clone())?;
    let model = Model { choice, providers, table, breakers, budget, telemetry, status: Mutex::default() };
    model.report();
    Ok((operations(), Arc::new(model)))
}

fn operations() -> ken_wire::Table<Model> {
    ken_wire::Table::new("model", env!("CARGO_PKG_VERSION"))
        .op::<ModelInfo, _, _>(|model: Arc<Model>, _, _| async move { Ok(model.choice.state()) })
        .op::<ModelHealth, _, _>(|model: Arc<Model>, _, _| async move { Ok(model.choice.health()) })
        .op::<ModelEmbed, _, _>(|model: Arc<Model>, _, args| async move {
            let embedder = model.choice.embedder(&args.texts)?;
            let embedded = model.budget.embed(embedder, &args.texts).await;
            model.report();
            embedded
        })
        .op::<ModelBudget, _, _>(|model: Arc<Model>, _, args| async move { model.budget.state(args.session).await })
        .op::<ModelGenerate, _, _>(|model: Arc<Model>, caller, request| async move {
            let unlisted = match &request.model {
                Some(name) if request.unlisted => Some(Choice::read(name, "/args/model", &model.setup())?),
                _ => None,
            };
            let provider = match &unlisted {
                Some(choice) => choice.find(None)?,
                None => model.choice.find(request.model.as_deref())?,
            };
            let generated = model.budget.generate(provider, request.with_past_messages(), &Caller(caller)).await;
            model.report();
            generated
        })
}

/// Sends the deltas to the caller of `model.generate`, as items.
struct Caller(Context<ModelGenerate>);

impl DeltaSink for Caller {
    fn send(&self, delta: Delta) -> Pending<'_, Result<(), Error>> {
        Box::pin(async move { self.0.item(&delta).await })
    }
}
