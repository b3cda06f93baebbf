//! ken, the front command: up, down, status, logs, call, and every `ken-X` as `ken X`. See ken(1).

mod audit;
mod call;
mod chat;
mod cli;
mod client;
mod events;
mod external;
mod gateway;
mod logs;
mod output;
mod parts;
mod remote;
mod sessions;
mod status;
mod stream;
mod up;

use std::process::ExitCode;

use clap::Parser;

use cli::{Audit, AuditCommand, Cli, Command};
use output::Outcome;

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => run(&cli).unwrap_or_else(|error| output::fail(&error)),
        Err(shown) => output::show(&shown),
    }
}

fn run(cli: &Cli) -> Outcome {
    match &cli.command {
        Command::Up(up) => up::run(cli, up),
        Command::Down => parts::down(&cli.places()?),
        Command::Status(status) => status::run(&cli.places()?, status),
        Command::Logs(logs) => logs::run(&cli.places()?, logs),
        Command::Reload => parts::reload(&cli.places()?),
        Command::Start(change) => parts::change(&cli.places()?, "parts.start", change),
        Command::Stop(change) => parts::change(&cli.places()?, "parts.stop", change),
        Command::Restart(change) => parts::change(&cli.places()?, "parts.restart", change),
        Command::Call(call) => call::run(&cli.places()?, call),
        Command::Chat(chat) => chat::run(&cli.places()?, chat),
        Command::Events(events) => events::run(&cli.places()?, events),
        Command::Stream(stream) => stream::run(&cli.places()?, stream),
        Command::Sessions(sessions) => sessions::run(&cli.places()?, sessions),
        Command::Audit(Audit {
            command: AuditCommand::Verify(verify),
        }) => audit::run(|| cli.places(), verify),
        Command::External(words) => external::run(cli, words),
    }
}
