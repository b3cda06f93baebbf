//! ken, the front command: up, down, status, chat and the rest; `ken X` runs `ken-X`. See ken(1).

mod approvals;
mod audit;
mod backup;
mod call;
mod chat;
mod cli;
mod client;
mod completions;
mod config;
mod doctor;
mod eval;
mod events;
mod external;
mod gateway;
mod help;
mod ids;
mod input;
mod knowledge;
mod logs;
mod messenger;
mod nearest;
mod needed;
mod operations;
mod output;
mod parts;
mod progress;
mod replay;
mod rules;
mod runs;
mod schedule;
mod sessions;
mod skills;
mod status;
mod stream;
mod undo;
mod up;
mod usage;

use std::process::ExitCode;

use clap::Parser;

use cli::{Audit, AuditCommand, Cli, Command, Config, ConfigCommand};
use output::Outcome;

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => {
            if cli.raw {
                output::set_raw();
            }
            run(&cli).unwrap_or_else(|error| output::fail(&error))
        }
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
        Command::Start(change) => parts::start(&cli.places()?, "parts.start", change),
        Command::Stop(stop) => parts::stop(&cli.places()?, stop),
        Command::Restart(change) => parts::start(&cli.places()?, "parts.restart", change),
        Command::Kill(kill) => parts::kill(&cli.places()?, kill),
        Command::Call(call) => call::run(&cli.places()?, call),
        Command::Chat(chat) => chat::run(cli, chat),
        Command::Events(events) => events::run(cli, events),
        Command::Stream(stream) => stream::run(cli, stream),
        Command::Sessions(sessions) => sessions::run(cli, sessions),
        Command::Runs(runs) => runs::list(cli, runs),
        Command::Show(show) => runs::show(cli, show),
        Command::Cancel(cancel) => runs::cancel(cli, cancel),
        Command::Knowledge(knowledge) => knowledge::run(cli, knowledge),
        Command::Schedule(schedule) => schedule::run(cli, schedule),
        Command::Undo(of) => undo::run(cli, "undo", of),
        Command::Diff(of) => undo::run(cli, "diff", of),
        Command::Messenger(messenger) => messenger::run(cli, messenger),
        Command::Approvals(approvals) => approvals::run(cli, approvals),
        Command::Approve(approve) => approvals::approve(cli, approve),
        Command::Deny(deny) => approvals::deny(cli, deny),
        Command::Rules(rules) => rules::run(|| cli.places(), rules),
        Command::Skills(skills) => skills::run(|| cli.places(), skills),
        Command::Usage(usage) => usage::usage(&cli.places()?, usage),
        Command::Replay(replay) => replay::run(&cli.places()?, replay),
        Command::Eval(eval) => eval::run(&cli.places()?, eval),
        Command::Why(why) => usage::why(&cli.places()?, why),
        Command::Doctor(doctor) => doctor::run(cli, doctor),
        Command::Backup(backup) => backup::backup(&cli.places()?, backup),
        Command::Restore(restore) => backup::restore(&cli.places()?, restore),
        Command::Config(Config {
            command: ConfigCommand::Show(show),
        }) => config::show(&cli.places()?, show),
        Command::Completions(completions) => completions::run(completions),
        Command::Help(help) => help::run(help),
        Command::Audit(Audit {
            command: AuditCommand::Verify(verify),
        }) => audit::run(|| cli.places(), verify),
        Command::External(words) => external::run(cli, words),
    }
}
