//! The command line: all commands and their options.

use std::ffi::OsString;

use clap::{Parser, Subcommand};

use crate::acp::Acp;
use crate::approvals::{Approvals, Approve, Deny};
use crate::audit::AuditCommand;
use crate::backup::{Backup, Restore};
use crate::call::Call;
use crate::chat::Chat;
use crate::complete::Complete;
use crate::completions::Completions;
use crate::config::ConfigCommand;
use crate::doctor::Doctor;
use crate::eval::Eval;
use crate::events::Events;
use crate::globals::Globals;
use crate::help::Help;
use crate::hosts::Hosts;
use crate::knowledge::Knowledge;
use crate::logs::Logs;
use crate::mcp::Mcp;
use crate::messenger::Messenger;
use crate::models::setup::Setup;
use crate::open::Open;
use crate::parts::{Change, Kill, Stop};
use crate::replay::Replay;
use crate::rules::Rules;
use crate::runs::{Cancel, Runs, Show};
use crate::schedule::Schedule;
use crate::sessions::Sessions;
use crate::skills::{Accept, Skills};
use crate::status::Status;
use crate::stream::Stream;
use crate::undo::RunArgs;
use crate::up::Up;
use crate::usage::{Usage, Why};
use crate::workspace::Workspace;

/// Run and manage a ken system. `ken X` runs `ken-X`.
#[derive(Debug, Parser)]
#[command(name = "ken", version, after_help = "Manual: ken(1)", disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start everything; prints `ready` with the addresses
    Up(Up),
    /// Stop everything
    Down,
    /// Open the console, the page for a browser
    Open(Open),
    /// Talk to an editor that has started this, by the Agent Client Protocol
    Acp(Acp),
    /// Show the parts: exit status 0 when all enabled parts are ready, 3 otherwise, 4 for an unknown part
    Status(Status),
    /// Show the logs of the parts
    Logs(Logs),
    /// Read the configuration again; unchanged parts keep running
    Reload,
    /// Let the programs take over that are installed now, without an interruption
    Upgrade,
    /// Start a part and the parts it requires
    Start(Change),
    /// Stop a part
    Stop(Stop),
    /// Restart a part
    Restart(Change),
    /// Send a signal to the process of a part
    Kill(Kill),
    /// Call an operation of a part and print the reply
    Call(Call),
    /// Send a message and print the answer as it arrives
    Chat(Chat),
    /// List sessions, newest first
    Sessions(Sessions),
    /// List runs of workflows, newest first
    Runs(Runs),
    /// Show a session, a run or a knowledge entry
    Show(Show),
    /// Cancel a run, or the running turn of a session
    Cancel(Cancel),
    /// Add, list, find and delete knowledge entries, which every turn may use
    Knowledge(Knowledge),
    /// Trust a folder of your own, so that the agent can work there; list and forget such folders
    Workspace(Workspace),
    /// Restore the workspace files that a run changed, and no others
    Undo(RunArgs),
    /// Show what a run changed in the workspace
    Diff(RunArgs),
    /// Add, list, pause and run schedules
    Schedule(Schedule),
    /// Manage the messaging connector: who may write, codes, groups, the webhook
    Messenger(Messenger),
    /// List pending requests for approval, oldest first, or show one request
    Approvals(Approvals),
    /// Approve a request of an agent
    Approve(Approve),
    /// Deny a request of an agent
    Deny(Deny),
    /// Let agents use what others have written, as it is now: an MCP server, a skill, AGENTS.md
    Accept(Accept),
    /// Add and list MCP servers, whose tools agents may call
    Mcp(Mcp),
    /// List, add and switch the governing rules that the runtime enforces
    Rules(Rules),
    /// List the hosts that share a database on a server, and forget one
    Hosts(Hosts),
    /// List and accept the skills and project rules that agents are given
    Skills(Skills),
    /// Show tokens and cost by day, model or session
    Usage(Usage),
    /// Run a recorded turn again, from its record alone, and compare every step
    Replay(Replay),
    /// Turn recorded turns into test cases and try models on them
    Eval(Eval),
    /// Explain what became of a message, even if it was refused
    Why(Why),
    /// Check the audit log of the cognitive server
    Audit {
        #[command(subcommand)]
        command: AuditCommand,
    },
    /// Show changes in the system: sessions, turns, runs, schedules, knowledge
    Events(Events),
    /// Write and read append-only logs that programs can share
    Stream(Stream),
    /// Set up a model: finds what is there, asks, tries it and writes ken.toml and secrets.env
    Setup(Setup),
    /// Find problems and say how to fix them; changes nothing
    Doctor(Doctor),
    /// Write everything that makes the system to one file, or check such a file; the system may be running
    Backup(Backup),
    /// Bring a system back from a backup: all of it, or nothing is changed; the system must be down
    Restore(Restore),
    /// Show the configuration in force
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Print a completion script for a shell
    Completions(Completions),
    /// Print the values that can stand at the end of a command line
    #[command(hide = true)]
    Complete(Complete),
    /// Show the options of a command, or the manual page of a program: `ken help esl`
    Help(Help),
    #[command(external_subcommand)]
    External(Vec<OsString>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_and_option_is_in_the_manual() {
        use clap::CommandFactory;
        // ken-up(1), ken-chat(1) and the others describe the commands.
        let pages = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../man/man1")).unwrap();
        let manual: String = pages.map(|page| std::fs::read_to_string(page.unwrap().path()).unwrap()).collect();
        let ken = Cli::command();
        ken.clone().debug_assert();
        for command in ken.get_subcommands().chain([&ken]) {
            let name = command.get_name();
            assert!(name == "ken" || manual.contains(&format!("Cm {name}")), "no page has {name}");
            let shown = command.get_opts().filter(|option| !option.is_hide_set());
            for option in shown.filter_map(clap::Arg::get_long) {
                assert!(manual.contains(&format!("Fl Fl {option}")), "no page has {name} --{option}");
            }
        }
    }
}
