//! ken-agent: claims submissions, runs turns, records every step, goes on after a crash. ken-agent(8).

mod answer;
mod background;
mod budget;
mod course;
mod envelope;
mod model;
mod passage;
mod record;
mod retry;
mod seams;
mod store;
mod submission;
#[cfg(test)]
mod testing;
mod tools;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ken_claims::{Claiming, Held, Worker};
use ken_service::{NoOptions, Program, Start};
use ken_types::Error;
use ken_types::ops::store::{Claim, Work};
use ken_wire::{Daemon, Pool, Table};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::model::{Model, WireModel};
use crate::seams::{ListedMayRun, NoTools, NoWorkers, Seams, ShippedRules};
use crate::store::{Store, WireStore};
use crate::submission::Agent;

fn main() -> ExitCode {
    let program = Program {
        name: "ken-agent",
        version: env!("CARGO_PKG_VERSION"),
        about: "Run turns: claim submissions, ask the model, record every step",
        drain: Duration::from_secs(5),
    };
    ken_service::run(program, start)
}

/// Submissions at a time.
const AT_ONCE: usize = 64;

impl<S: Store, M: Model> Worker for Agent<S, M> {
    async fn work(&self, claim: Claim, aborted: watch::Receiver<bool>) -> Result<(), Error> {
        self.run(claim, aborted).await.map(drop)
    }
}

struct Numbers(Arc<Held>);

impl Daemon for Numbers {
    fn stats(&self) -> Map<String, Value> {
        let held = &self.0;
        let count = |counter: &std::sync::atomic::AtomicU64| json!(counter.load(Ordering::Relaxed));
        Map::from_iter([
            ("claimed".to_owned(), count(&held.claimed)),
            ("settled".to_owned(), count(&held.settled)),
            ("lost".to_owned(), count(&held.lost)),
            ("running".to_owned(), json!(held.running())),
        ])
    }
}

async fn start(start: &mut Start<NoOptions>) -> Result<(Table<Numbers>, Arc<Numbers>), Error> {
    let store = start.places.socket("store");
    let held = Arc::new(Held::default());
    let claiming = Claiming {
        worker: Agent {
            store: WireStore::new(Pool::new(store.clone())),
            model: WireModel::new(Pool::new(start.places.socket("model"))),
            seams: Seams {
                rules: Arc::new(ShippedRules),
                tools: Arc::new(NoTools),
                policy: Arc::new(ListedMayRun),
                workers: Arc::new(NoWorkers),
            },
        },
        held: held.clone(),
        work: Work::Turns,
        at_once: AT_ONCE,
        socket: store,
        holder: format!("ken-agent {}", std::process::id()),
    };
    start.tasks.spawn(claiming.run(start.stop.clone()));
    Ok((
        Table::new("agent", env!("CARGO_PKG_VERSION")),
        Arc::new(Numbers(held)),
    ))
}
