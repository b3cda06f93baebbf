//! ken-agent: claims submissions, runs their turns and records every step. ken-agent(8).

mod all_tools;
mod answer;
mod background;
mod budget;
mod builtin;
mod clock;
mod embedding;
mod envelope;
mod governance;
mod indexer;
mod journal;
mod judge;
mod model;
mod names;
mod passage;
mod past;
mod pictures;
mod policy;
mod ports;
mod recent;
mod record;
mod recorded;
mod recorder;
mod replay;
mod retry;
mod scheduled;
mod share;
mod shorten;
mod skills;
mod store;
mod submission;
#[cfg(test)]
mod testing;
mod toolbox;
mod tools;
mod turn_loop;
mod turn_state;
mod validation;
mod worker;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ken_claims::{Claimer, Held, Worker};
use ken_service::{Program, Start};
use ken_types::ops::agent::{AgentRecord, AgentSkill, AgentSkills};
use ken_types::ops::rules::{BaseRule, BaseRules, RulesBase};
use ken_types::ops::store::{Claim, Work};
use ken_types::{Engine, Error};
use ken_wire::{Daemon, Pool, Table};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::all_tools::AllTools;
use crate::builtin::{Builtins, Parts};
use crate::embedding::Embedding;
use crate::indexer::Indexer;
use crate::model::{Model, WireModel};
use crate::policy::Approvals;
use crate::ports::Ports;
use crate::share::Share;
use crate::skills::Skills;
use crate::store::{Store, WireStore};
use crate::submission::Agent;
use crate::toolbox::WireTools;
use crate::worker::ModelWorkers;

const PROGRAM: Program = Program {
    name: "ken-agent",
    version: env!("CARGO_PKG_VERSION"),
    about: "Run turns: claim submissions, ask the model, record every step",
    drain: Duration::from_secs(5),
};

fn main() -> ExitCode {
    if replay::is_requested() {
        return replay::run();
    }
    if std::env::args_os().skip(1).any(|word| word == "--print-rules") {
        share::print()
    } else {
        ken_service::run(PROGRAM, start)
    }
}

#[derive(Debug, clap::Parser)]
#[command(name = PROGRAM.name, version = PROGRAM.version, about = PROGRAM.about)]
struct Flags {
    /// Print the governing rules and what each agent is told about itself, with their files, and exit
    #[arg(long, conflicts_with = "replay")]
    print_rules: bool,
    /// Replay the record of a turn on standard input, compare every step, and exit: status 1 when one differs
    #[arg(long)]
    replay: bool,
    /// With --replay: call this model for real, and compare what it does
    #[arg(long, value_name = "PROVIDER/MODEL", requires_all = ["replay", "model_socket"])]
    model: Option<String>,
    /// With --model: the socket of ken-model
    #[arg(long, value_name = "PATH", requires = "model")]
    model_socket: Option<std::path::PathBuf>,
}

/// The maximum number of submissions that run at the same time.
const MAX_SUBMISSIONS: usize = 64;

impl<S: Store, M: Model> Worker for Agent<S, M> {
    async fn work(&self, claim: Claim, aborted: watch::Receiver<bool>) -> Result<(), Error> {
        self.run(claim, aborted).await.map(drop)
    }
}

struct Part {
    held: Arc<Held>,
    base: Vec<BaseRule>,
    recorder: record::RecordSources,
    skills: Arc<Skills>,
}

impl Daemon for Part {
    fn stats(&self) -> Map<String, Value> {
        let held = &self.held;
        let count = |counter: &std::sync::atomic::AtomicU64| json!(counter.load(Ordering::Relaxed));
        Map::from_iter([
            ("claimed".to_owned(), count(&held.claimed)),
            ("settled".to_owned(), count(&held.settled)),
            ("lost".to_owned(), count(&held.lost)),
            ("running".to_owned(), json!(held.running())),
        ])
    }
}

fn judge(name: &str) -> Result<Option<String>, Error> {
    if name.is_empty() {
        return Ok(None);
    }
    Engine::judge(name).map_err(|error| error.at("/model/judge"))?;
    Ok(Some(name.to_owned()))
}

async fn start(start: &mut Start<Flags>) -> Result<(Table<Part>, Arc<Part>), Error> {
    let share = Share::installed()?;
    let file = share.rules.file.as_ref().map(|file| file.display().to_string());
    tracing::info!(file, "governing rules");
    let base = share.base.clone();
    let held = Arc::new(Held::default());
    let pool = |part: &str| Pool::new(start.places.socket(part));
    let skills = Arc::new(Skills::of_tools(pool("tools")));
    let (loading, mut stop) = (skills.clone(), start.stop.clone());
    // They are loaded now so that the log shows at once which texts are left out.
    start.tasks.spawn(async move {
        tokio::select! {
            _ = loading.texts() => {}
            () = stop.stopped() => {}
        }
    });
    let model = WireModel::new(pool("model"));
    let embedding = Embedding::new(model.clone(), pool("store"));
    let tools = Arc::new(AllTools {
        builtin: Builtins::new(Parts {
            store: pool("store"),
            scheduler: pool("scheduler"),
            embedding: embedding.clone(),
            skills: skills.clone(),
        }),
        wire: WireTools::new(pool("tools")),
    });
    let indexer = Indexer::new(pool("store"), pool("tools"), model.clone());
    start.tasks.spawn(indexer.run(start.stop.clone()));
    let recorder = record::RecordSources { pool: pool("store"), model: model.clone(), tools: tools.clone() };
    let claiming = Claimer {
        worker: Agent {
            store: WireStore::new(pool("store")),
            model: model.clone(),
            ports: Ports {
                share: Arc::new(share),
                judge: judge(&start.config.model.judge)?,
                embedding,
                skills: skills.clone(),
                policy: Arc::new(Approvals::new(pool("approver"), pool("store"), tools.clone(), start.stop.clone())),
                tools,
                workers: Arc::new(ModelWorkers { model }),
            },
        },
        held: held.clone(),
        work: Work::Turns,
        at_once: MAX_SUBMISSIONS,
        socket: start.places.socket("store"),
        holder: format!("ken-agent {}", std::process::id()),
    };
    start.tasks.spawn(claiming.run(start.stop.clone()));
    let table = Table::new("agent", env!("CARGO_PKG_VERSION"))
        .op::<RulesBase, _, _>(|part: Arc<Part>, _, _| async move { Ok(BaseRules { rules: part.base.clone() }) })
        .op::<AgentRecord, _, _>(
            |part: Arc<Part>, caller, work| async move { part.recorder.record(caller, work).await },
        )
        .op::<AgentSkills, _, _>(|part: Arc<Part>, _, _| async move {
            Ok(ken_types::ops::agent::Skills { skills: part.skills.heads().await })
        })
        .op::<AgentSkill, _, _>(|part: Arc<Part>, _, skill| async move { part.skills.text(&skill.name).await });
    Ok((table, Arc::new(Part { held, base, recorder, skills })))
}
