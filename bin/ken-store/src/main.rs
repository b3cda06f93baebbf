//! `ken-store`: the daemon that keeps all durable state of ken and serves it on the wire. See ken-store(8).

mod backup;
mod cli;
mod daemon;
mod migrate;
mod operations;
mod settings;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some((from, to)) = backup::requested_backup() {
        return backup::run(&from, &to);
    }
    if migrate::is_requested() {
        return migrate::run();
    }
    match cli::Check::requested() {
        Some(check) => check.run(),
        None => daemon::run(),
    }
}
