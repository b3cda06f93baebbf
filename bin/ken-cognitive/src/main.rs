//! The cognitive server: workflows of protocol tools over HTTP. It computes the same results as `ken-workflow` and adds
//! keys, rate limits, sessions, metrics and an audit log.

mod admission;
mod app;
mod audit;
mod body;
mod execute;
mod failure;
mod file;
mod gate;
mod health;
mod keys;
mod keys_admin;
mod limits;
mod listings;
mod metrics;
mod metrics_page;
mod models;
mod models_admin;
mod observer;
mod openapi;
mod research;
mod routes;
mod runs;
mod sessions;
mod settings;
mod start;
mod window;
mod wire;

use std::process::ExitCode;
use std::time::Duration;

use ken_service::{NoOptions, Program, run};

fn main() -> ExitCode {
    let program = Program {
        name: "ken-cognitive",
        version: env!("CARGO_PKG_VERSION"),
        about: "Runs workflows over HTTP: reasoning, emotion, verification, with governance and an audit log",
        drain: Duration::from_secs(1),
    };
    run::<NoOptions, _, _>(program, async |start| start::start(program, start))
}
