//! kend, the supervisor of ken: starts the parts, holds their sockets, watches and restarts them. See kend(8).
//!
//! kend has one thread with a poll loop, and a second one that writes the logs (writer.rs), because a disk can stand still. Decisions
//! are made in policy.rs, order.rs and check.rs, which are pure. Effects are in small modules: spawn.rs, sockets.rs and logs.rs.
//! system.rs combines them, and run.rs contains the loop.

mod check;
mod cli;
mod commands;
mod config;
mod connection;
mod control;
mod cursor;
#[allow(unsafe_code)] // for descriptors that are known by their number
mod descriptor;
mod files;
mod group;
mod handover;
mod journal;
mod launch;
mod lock;
mod logs;
mod notify;
mod ops;
mod order;
mod part;
mod pending;
mod policy;
mod problem;
mod reap;
mod reports;
mod rotating;
mod run;
mod secrets;
mod signals;
mod sockets;
mod source;
#[allow(unsafe_code)] // for the code between clone and exec
mod spawn;
mod status;
mod system;
mod system_files;
mod upgrade;
mod watch;
mod writer;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match run::run(cli::Cli::parse()) {
        Ok(code) => code,
        Err(failure) => {
            for line in &failure.lines {
                let _ = writeln!(std::io::stderr(), "kend: {line}");
            }
            ExitCode::from(failure.code.exit_status())
        }
    }
}
