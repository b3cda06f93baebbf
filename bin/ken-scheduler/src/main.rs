//! ken-scheduler: fires schedules, and ensures that there is exactly one record for every slot. See ken-scheduler(8).

mod clock;
mod cron;
mod definition;
mod fire;
mod plan;
mod preview;
mod record;
mod scheduler;
mod timing;
mod zone;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ken_service::{NoOptions, Program, Start};
use ken_types::{Error, Timestamp};
use ken_wire::{Pool, Table};
use tokio::sync::watch;

use crate::clock::WallClock;
use crate::preview::Preview;
use crate::scheduler::Scheduler;

const PROGRAM: Program = Program {
    name: "ken-scheduler",
    version: env!("CARGO_PKG_VERSION"),
    about: "Fire schedules, with exactly one record for every slot",
    drain: Duration::from_secs(5),
};

fn main() -> ExitCode {
    let command = std::env::args_os().nth(1);
    match command.as_deref().and_then(|word| word.to_str()) {
        Some("preview") => ken_tool::report::<Preview>(),
        _ => ken_service::run(PROGRAM, start),
    }
}

async fn start(start: &mut Start<NoOptions>) -> Result<(Table<Scheduler>, Arc<Scheduler>), Error> {
    let clock = WallClock::new()?;
    let scheduler = Arc::new(Scheduler {
        store: Pool::new(start.places.socket("store")),
        messenger: Pool::new(start.places.socket("messenger")),
        started: Timestamp::now().millis(),
        clock,
        changes: watch::Sender::default(),
        fired: AtomicU64::new(0),
    });
    // Before the first slot is judged, and before a schedule is made whose first slot it decides.
    let has_clock = fire::read_clock(&scheduler).await;
    start.tasks.spawn(fire::follow(scheduler.clone(), start.stop.clone()));
    start.tasks.spawn(fire::run(scheduler.clone(), has_clock, start.stop.clone()));
    Ok((scheduler::table(PROGRAM.part(), PROGRAM.version), scheduler))
}
