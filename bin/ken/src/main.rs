//! ken, the front command: up, down, status, chat and the rest; `ken X` runs `ken-X`. See ken(1).

mod accept;
mod acp;
mod approvals;
mod audit;
mod backup;
mod call;
mod chat;
mod cli;
mod client;
mod complete;
mod completions;
mod config;
mod doctor;
mod duration;
mod eval;
mod events;
mod external;
mod gateway;
mod globals;
mod help;
mod hosts;
mod ids;
mod input;
mod knowledge;
mod logs;
mod mcp;
mod messenger;
mod models;
mod named_session;
mod needed;
mod open;
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
mod turn;
mod typed;
mod undo;
mod up;
mod usage;
mod workspace;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use ken_types::ops::kend::{PartsRestart, PartsStart};

use audit::AuditCommand;
use cli::{Cli, Command};
use config::ConfigCommand;
use output::Outcome;

fn main() -> ExitCode {
    let parsed = Cli::try_parse();
    // Another program can have a `--json` with another meaning.
    let is_external = parsed.as_ref().is_ok_and(|cli| matches!(cli.command, Command::External(_)));
    if !is_external && ken_tool::has_flag("--json") {
        output::set_json_errors();
    }
    match parsed {
        Ok(cli) => {
            if cli.globals.raw {
                output::set_raw();
            }
            run(&cli).unwrap_or_else(|error| output::fail(&error))
        }
        Err(mut shown) => {
            // Other programs take the prompt without a command, such as `-p TEXT`. Behind a command the unknown option is its own.
            let first = std::env::args().nth(1).unwrap_or_default();
            if shown.kind() == ErrorKind::UnknownArgument
                && matches!(shown.get(ContextKind::InvalidArg), Some(ContextValue::String(unknown)) if first.starts_with(unknown))
            {
                let tip = ContextValue::StyledStrs(vec![
                    "`ken chat TEXT` asks the agent; `ken chat --help` lists its options".into(),
                ]);
                shown.insert(ContextKind::Suggested, tip);
            }
            output::show_clap_error(&shown)
        }
    }
}

fn run(cli: &Cli) -> Outcome {
    let globals = &cli.globals;
    match &cli.command {
        Command::Up(up) => up::run(globals, up),
        Command::Down => parts::down(&globals.places()?),
        Command::Status(status) => status::run(&globals.places()?, status),
        Command::Logs(logs) => logs::run(&globals.places()?, logs),
        Command::Open(open) => open::run(globals, open),
        Command::Acp(args) => acp::run(globals, args),
        Command::Reload => parts::reload(&globals.places()?),
        Command::Upgrade => parts::upgrade(&globals.places()?),
        Command::Start(change) => parts::start::<PartsStart>(&globals.places()?, change),
        Command::Stop(stop) => parts::stop(&globals.places()?, stop),
        Command::Restart(change) => parts::start::<PartsRestart>(&globals.places()?, change),
        Command::Kill(kill) => parts::kill(&globals.places()?, kill),
        Command::Call(call) => call::run(&globals.places()?, call),
        Command::Chat(chat) => chat::run(globals, chat),
        Command::Events(events) => events::run(globals, events),
        Command::Stream(stream) => stream::run(globals, stream),
        Command::Sessions(sessions) => sessions::run(globals, sessions),
        Command::Runs(runs) => runs::list(globals, runs),
        Command::Show(show) => runs::show(globals, show),
        Command::Cancel(cancel) => runs::cancel(globals, cancel),
        Command::Knowledge(knowledge) => knowledge::run(globals, knowledge),
        Command::Schedule(schedule) => schedule::run(globals, schedule),
        Command::Undo(of) => undo::run(globals, "undo", of),
        Command::Diff(of) => undo::run(globals, "diff", of),
        Command::Messenger(messenger) => messenger::run(globals, messenger),
        Command::Approvals(approvals) => approvals::run(globals, approvals),
        Command::Approve(approve) => approvals::approve(globals, approve),
        Command::Accept(args) => accept::run::<Cli>(globals, args),
        Command::Mcp(args) => mcp::run::<Cli>(globals, args),
        Command::Deny(deny) => approvals::deny(globals, deny),
        Command::Hosts(hosts) => hosts::run(&globals.places()?, hosts),
        Command::Rules(rules) => rules::run(|| globals.places(), rules),
        Command::Workspace(args) => workspace::run(globals, args),
        Command::Skills(skills) => skills::run(|| globals.places(), skills),
        Command::Usage(usage) => usage::usage(&globals.places()?, usage),
        Command::Replay(replay) => replay::run(&globals.places()?, replay),
        Command::Eval(eval) => eval::run(&globals.places()?, eval),
        Command::Why(why) => usage::why(&globals.places()?, why),
        Command::Setup(setup) => models::setup::run(globals, setup),
        Command::Doctor(doctor) => doctor::run(globals, doctor),
        Command::Backup(backup) => backup::backup(&globals.places()?, backup),
        Command::Restore(restore) => backup::restore(&globals.places()?, restore),
        Command::Config { command: ConfigCommand::Show(show) } => config::show(&globals.places()?, show),
        Command::Completions(completions) => completions::run(completions, Cli::command()),
        Command::Complete(complete) => {
            let mut ken = Cli::command();
            ken.build();
            complete::run(globals, complete, ken)
        }
        Command::Help(help) => help::run(help, Cli::command()),
        Command::Audit { command: AuditCommand::Verify(verify) } => audit::run(|| globals.places(), verify),
        Command::External(words) if models::command::is_own(words) => models::command::run(globals, words),
        Command::External(words) => external::run(globals, words, &Cli::command()),
    }
}
