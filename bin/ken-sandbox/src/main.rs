//! ken-sandbox: runs one command that can touch only what it is given, and leaves no process behind. See ken-sandbox(1).
//!
//! Three processes take part. The *supervisor* (this program) prepares everything, enforces the timeout and makes some
//! calls on behalf of the command ([`notify`]). Its child *init* starts the command and reaps what the command leaves
//! behind; where the kernel allows it, init is the first process of a PID namespace, so that its end is everybody's end.
//! The *command* restricts itself between fork and exec ([`confine`]).

mod caller;
mod cli;
mod confine;
mod files;
mod grant;
mod group;
mod init;
mod memory;
mod metadata;
mod mounts;
mod namespace;
mod network;
mod notify;
mod process;
mod repositories;
mod supervise;
mod syscalls;
mod temporary;
mod walls;

use std::process::ExitCode;

fn main() -> ExitCode {
    let job = match cli::parse(std::env::args_os()) {
        Ok(job) => job,
        Err(end) => return end,
    };
    match supervise::run(&job) {
        Ok(status) => ExitCode::from(status),
        Err(refusal) => refusal.report(),
    }
}
