//! ken, the front command: up, down, status, chat and the rest; `ken X` runs `ken-X`. See ken(1).

mod accept;
mod access;
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
            let first = std::env::args_os().nth(1).unwrap_or_default();
            if shown.kind() == ErrorKind::UnknownArgument
                && matches!(shown.get(ContextKind::InvalidArg), Some(ContextValue::String(unknown)) if first.to_string_lossy().starts_with(unknown))
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

/// Runs the command. It prints its result itself; some have an exit status of their own.
fn run(cli: &Cli) -> Outcome {
    let globals = &cli.globals;
    let places = || globals.places();
    match &cli.command {
        Command::Up(up) => return up::run(globals, up),
        Command::Status(status) => return status::run(&places()?, status),
        Command::Chat(chat) => return chat::run(globals, chat),
        Command::Sessions(sessions) => return sessions::run(globals, sessions),
        Command::Knowledge(knowledge) => return knowledge::run(globals, knowledge),
        Command::Undo(of) => return undo::run(globals, "undo", of),
        Command::Diff(of) => return undo::run(globals, "diff", of),
        Command::Accept(args) => return accept::run(globals, args),
        Command::Rules(rules) => return rules::run(places, rules),
        Command::Skills(skills) => return skills::run(places, skills),
        Command::Replay(replay) => return replay::run(&places()?, replay),
        Command::Eval(eval) => return eval::run(&places()?, eval),
        Command::Setup(setup) => return models::setup::run(globals, setup),
        Command::Doctor(doctor) => return doctor::run(globals, doctor, std::env::args_os().skip(1)),
        Command::Audit { command: AuditCommand::Verify(verify) } => return audit::run(places, verify),
        Command::External(words) if models::command::is_own(words) => return models::command::run(globals, words),
        Command::Down => parts::down(&places()?),
        Command::Logs(logs) => logs::run(&places()?, logs),
        Command::Open(open) => open::run(globals, open),
        Command::Acp(_) => acp::run(globals),
        Command::Reload => parts::reload(&places()?),
        Command::Upgrade => parts::upgrade(&places()?),
        Command::Start(change) => parts::start::<PartsStart>(&places()?, change),
        Command::Stop(stop) => parts::stop(&places()?, stop),
        Command::Restart(change) => parts::start::<PartsRestart>(&places()?, change),
        Command::Kill(kill) => parts::kill(&places()?, kill),
        Command::Call(call) => call::run(&places()?, call),
        Command::Events(events) => events::run(globals, events),
        Command::Stream(stream) => stream::run(globals, stream),
        Command::Runs(runs) => runs::list(globals, runs),
        Command::Show(show) => runs::show(globals, show),
        Command::Cancel(cancel) => runs::cancel(globals, cancel),
        Command::Schedule(schedule) => schedule::run(globals, schedule),
        Command::Messenger(messenger) => messenger::run(globals, messenger),
        Command::Approvals(approvals) => approvals::run(globals, approvals),
        Command::Approve(approve) => approvals::approve(globals, approve),
        Command::Deny(deny) => approvals::deny(globals, deny),
        Command::Mcp(args) => mcp::run(globals, args),
        Command::Hosts(hosts) => hosts::run(&places()?, hosts),
        Command::Workspace(args) => workspace::run(globals, args),
        Command::Usage(usage) => usage::usage(&places()?, usage),
        Command::Why(why) => usage::why(&places()?, why),
        Command::Backup(backup) => backup::backup(&places()?, backup),
        Command::Restore(restore) => backup::restore(&places()?, restore),
        Command::Config { command: ConfigCommand::Show(show) } => config::show(&places()?, show),
        Command::Completions(completions) => completions::run(completions, Cli::command()),
        Command::Complete(complete) => {
            let mut ken = Cli::command();
            ken.build();
            complete::run(globals, complete, &ken)
        }
        Command::Help(help) => help::run(help, Cli::command()),
        Command::External(words) => external::run(globals, words, &Cli::command()),
    }?;
    Ok(ExitCode::SUCCESS)
}
