//! The HTTP gateway: the interface of ken for other programs. It keeps no state.

mod agents;
mod app;
mod approvals;
mod body;
mod chat;
mod console;
mod dedup;
mod doctor;
mod export;
mod fork;
mod health;
mod idempotency;
mod identity;
mod ids;
mod images;
mod import;
mod inbox;
mod knowledge;
mod link;
mod logs;
mod mcp;
mod messenger;
mod openai;
mod openapi;
mod page;
mod part;
mod probe;
mod routes;
mod runs;
mod schedules;
mod sessions;
mod start;
mod stream;
mod system;
mod telemetry;
mod turn;
mod undo;
mod workflows;

use std::process::ExitCode;
use std::time::Duration;

use ken_service::{NoOptions, Program, run};

fn main() -> ExitCode {
    let program = Program {
        name: "ken-gateway",
        version: env!("CARGO_PKG_VERSION"),
        about: "HTTP server of ken: sessions, chat, transcripts, live streams, runs, knowledge",
        drain: Duration::from_secs(1),
    };
    run::<NoOptions, _, _>(program, async |start| start::start(program, start))
}
