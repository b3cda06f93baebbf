use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use ken_types::Error;
use ken_types::ops::kend::WaitFor;
use ken_types::places::Places;
use nix::unistd::geteuid;

use crate::approvals::{Approvals, Approve, Deny};
use crate::eval::Eval;
use crate::knowledge::Knowledge;
use crate::messenger::Messenger;
use crate::replay::Replay;
use crate::rules::Rules;
use crate::schedule::Schedule;
use crate::skills::Skills;
use crate::stream::Stream;
use crate::undo::OfRun;
use crate::usage::{Usage, Why};

/// Run and look after a system of ken. `ken X` runs `ken-X`.
#[derive(Debug, Parser)]
#[command(
    name = "ken",
    version,
    after_help = "Manual: ken(1)",
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    /// Folder of the system [default: KEN_HOME, else the user's own folders]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,
    /// Use the gateway at this address, for instance on another machine
    #[arg(long, global = true, value_name = "URL", help_heading = "Gateway")]
    pub(crate) url: Option<String>,
    /// File that holds the gateway's API_SECRET [default: KEN_API_SECRET, else secrets.env of the system]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Gateway")]
    pub(crate) secret_file: Option<PathBuf>,
    /// Print control characters as they are on a terminal too
    #[arg(long, global = true)]
    pub(crate) raw: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start everything; prints `ready` with the addresses
    Up(Up),
    /// Stop everything
    Down,
    /// Show the parts: exit status 0 when all enabled parts are ready, 3 otherwise, 4 for an unknown part
    Status(Status),
    /// Show what the parts have logged
    Logs(Logs),
    /// Read the configuration again; unchanged parts keep running
    Reload,
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
    /// Send a message and print the answer as it comes
    Chat(Chat),
    /// List sessions, newest first
    Sessions(Sessions),
    /// List runs of workflows, newest first
    Runs(Runs),
    /// Show a session, a run or a knowledge entry
    Show(Show),
    /// Cancel the running turn of a session, or a run
    Cancel(Cancel),
    /// Add, list, find and delete what the agent is taught
    Knowledge(Knowledge),
    /// Put back the files of the workspace that a run changed, and only those
    Undo(OfRun),
    /// Show what a run changed in the workspace
    Diff(OfRun),
    /// Add, list, pause and run schedules
    Schedule(Schedule),
    /// Look after the messaging connector: who may write, codes, groups, the webhook
    Messenger(Messenger),
    /// List what agents ask to be allowed, oldest first, or show one request
    Approvals(Approvals),
    /// Allow what an agent asks for
    Approve(Approve),
    /// Refuse what an agent asks for
    Deny(Deny),
    /// List, add and switch the governing rules that every turn is held to
    Rules(Rules),
    /// List and accept the skills and project rules that agents are told
    Skills(Skills),
    /// Show tokens and cost by day, model or session
    Usage(Usage),
    /// Run a recorded turn again, from its record alone, and compare every step
    Replay(Replay),
    /// Turn recorded turns into test cases and try models on them
    Eval(Eval),
    /// Say what became of a message, also of one that was refused
    Why(Why),
    /// Check the audit log of the cognitive server
    Audit(Audit),
    /// Show changes in the system: sessions, turns, runs, schedules, knowledge
    Events(Events),
    /// Use append-only logs that any program may share
    Stream(Stream),
    /// Find what is wrong, and say how to mend it; changes nothing
    Doctor(Doctor),
    /// Copy the database to a file, also while the system runs
    Backup(Backup),
    /// Put a backup in place of the database; the system must be down
    Restore(Restore),
    /// Show the configuration in force
    Config(Config),
    /// Print a script that completes commands and flags in a shell
    Completions(Completions),
    /// Show the flags of a command, or the manual page of a program: `ken help esl`
    Help(Help),
    #[command(external_subcommand)]
    External(Vec<OsString>),
}

#[derive(Debug, Args)]
pub(crate) struct Up {
    /// Port of the gateway; 0 picks a free one
    #[arg(long, value_name = "N")]
    pub(crate) port: Option<u16>,
    /// Port of the cognitive server; 0 picks a free one
    #[arg(long, value_name = "N")]
    pub(crate) cognitive_port: Option<u16>,
    /// Run in the background, and return when everything is ready
    #[arg(short = 'd', long)]
    pub(crate) detach: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Show only this part
    pub(crate) name: Option<String>,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// Names of parts, or kend; all by default
    pub(crate) names: Vec<String>,
    /// Number of lines: 50 by default, with --since all
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) lines: Option<usize>,
    /// Keep printing new lines
    #[arg(short = 'f', long)]
    pub(crate) follow: bool,
    /// Print the lines as the parts wrote them, which are JSON for the parts of ken
    #[arg(long)]
    pub(crate) json: bool,
    /// Show lines logged after TIME: 30s, 10m, 2h or 1d ago, or 2026-11-22T04:30 (UTC)
    #[arg(long, value_name = "TIME", value_parser = crate::logs::since)]
    pub(crate) since: Option<i64>,
    /// Show lines of LEVEL and more severe ones: error, warn, info, debug, trace
    #[arg(long, value_name = "LEVEL", value_parser = crate::logs::level)]
    pub(crate) level: Option<u8>,
}

#[derive(Debug, Args)]
pub(crate) struct Change {
    /// Name of a part
    pub(crate) name: String,
    /// Return when the part is `ready` (the default of start and restart) or `stopped` (of stop)
    #[arg(long, value_name = "STATE", value_parser = wait_for)]
    pub(crate) wait: Option<WaitFor>,
    /// Return at once
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Timeout: 500ms, 5s, 2m
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Stop {
    #[command(flatten)]
    pub(crate) change: Change,
    /// Stop the parts that require it too
    #[arg(long)]
    pub(crate) dependents: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Kill {
    /// Name of a part
    pub(crate) name: String,
    /// Name or number of the signal: TERM, 15
    #[arg(short = 's', long, default_value = "KILL")]
    pub(crate) signal: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Call {
    /// Name of a part, or kend
    pub(crate) part: String,
    /// Operation, as noun.verb
    #[arg(required_unless_present = "list")]
    pub(crate) op: Option<String>,
    /// key=value, where the value is JSON or else text; or - for a JSON object on standard input
    pub(crate) args: Vec<String>,
    /// List the operations of the part and their arguments
    #[arg(long, conflicts_with = "op")]
    pub(crate) list: bool,
    /// Timeout: 500ms, 5s, 2m
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Chat {
    /// Message; without it, or with -, standard input is read
    pub(crate) text: Vec<String>,
    /// Continue a session, by id, the end of an id, or name; without it a new one
    #[arg(short = 's', long, value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// Continue the last session
    #[arg(short = 'c', long = "continue", conflicts_with = "session")]
    pub(crate) resume: bool,
    /// End when nothing has come for this long: 30s, 5m
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5m")]
    pub(crate) wait: Duration,
    /// Answer with this model only: provider/model, one of those that are configured
    #[arg(short = 'm', long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Put the text of a file before the message; may be repeated
    #[arg(short = 'f', long, value_name = "FILE")]
    pub(crate) fragment: Vec<PathBuf>,
    /// Send a file along: a text, or a PNG, JPEG, GIF or WebP image; may be repeated
    #[arg(short = 'a', long, value_name = "FILE")]
    pub(crate) attach: Vec<PathBuf>,
    /// Use a template of prompts; the message is its {{input}}
    #[arg(short = 't', long, value_name = "NAME")]
    pub(crate) template: Option<String>,
    /// Value of a placeholder of the template; may be repeated
    #[arg(short = 'p', long, value_name = "NAME=VALUE", requires = "template", value_parser = pair)]
    pub(crate) param: Vec<(String, String)>,
    /// Print an answer that is JSON and fits this JSON Schema; else nothing, and exit with status 1
    #[arg(long, value_name = "FILE", conflicts_with = "events")]
    pub(crate) schema: Option<PathBuf>,
    /// Print the answer when it is complete
    #[arg(long)]
    pub(crate) no_stream: bool,
    /// Print one JSON object: the answer, model, usage and ids
    #[arg(long, conflicts_with = "events")]
    pub(crate) json: bool,
    /// Print the events of the turn instead of its text, one JSON object a line
    #[arg(long)]
    pub(crate) events: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("it must be NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

#[derive(Debug, Args)]
pub(crate) struct Sessions {
    /// Maximum number of sessions
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) limit: u32,
    /// Show archived sessions
    #[arg(long)]
    pub(crate) archived: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Runs {
    /// Maximum number of runs
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,
    /// Show only runs in this state
    #[arg(long, value_name = "STATUS", value_parser = ["active", "completed", "errored"])]
    pub(crate) status: Option<String>,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Id of a session, run or knowledge entry, or the beginning of one
    pub(crate) id: String,
    /// Print JSON: the record, or one exchange a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Cancel {
    /// Id of a session or run, or the beginning of one
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// File to write, which must not exist
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// File that `ken backup` has written
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Config {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every setting with the file and line it comes from; secrets are masked
    Show(ConfigShow),
}

#[derive(Debug, Args)]
pub(crate) struct ConfigShow {
    /// Show only this section: gateway, part, part.store
    pub(crate) section: Option<String>,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// bash, zsh or fish
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Help {
    /// A command of ken, or the name of a program or page without `ken-`
    pub(crate) topic: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Audit {
    #[command(subcommand)]
    pub(crate) command: AuditCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Check that no record was changed; names the first one that was
    Verify(Verify),
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// Files of one log, in any order [default: the log of this system]
    pub(crate) files: Vec<PathBuf>,
    /// Require a record with this hash, which was noted earlier
    #[arg(long, value_name = "HASH", value_parser = hash)]
    pub(crate) holds: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Number of events
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    pub(crate) lines: u32,
    /// Keep printing new events
    #[arg(short = 'f', long)]
    pub(crate) follow: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

impl Cli {
    /// The folder of the system, absolute, if one was named.
    pub(crate) fn home(&self) -> Result<Option<PathBuf>, Error> {
        let set = std::env::var_os("KEN_HOME").filter(|home| !home.is_empty());
        let home = self.home.clone().or_else(|| set.map(PathBuf::from));
        let absolute = home.map(|home| {
            std::path::absolute(&home)
                .map_err(|error| Error::invalid("--home", format!("{}: {error}", home.display())))
        });
        absolute.transpose()
    }

    pub(crate) fn places(&self) -> Result<Places, Error> {
        Places::resolve(self.home()?.as_deref(), geteuid().as_raw(), |name| {
            std::env::var_os(name).map(PathBuf::from)
        })
    }
}

fn wait_for(text: &str) -> Result<WaitFor, String> {
    match text {
        "ready" => Ok(WaitFor::Ready),
        "stopped" => Ok(WaitFor::Stopped),
        _ => Err(String::from("`ready` or `stopped`")),
    }
}

/// A number with `ms`, `s` or `m`; seconds without a unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits
        .parse()
        .map_err(|_| String::from("a number with ms, s or m"))?;
    let ms = match text.get(digits.len()..) {
        Some("ms") => Some(number),
        Some("s" | "") => number.checked_mul(1_000),
        Some("m") => number.checked_mul(60_000),
        _ => None,
    };
    match ms {
        Some(ms) if ms <= 600_000 => Ok(Duration::from_millis(ms)),
        _ => Err(String::from("a number with ms, s or m, at most 10m")),
    }
}

/// SHA-256 in hexadecimal, in lower case for comparison.
fn hash(text: &str) -> Result<String, String> {
    match text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => Ok(text.to_ascii_lowercase()),
        false => Err(String::from("a hash has 64 digits, 0-9 and a-f")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, ms) in [
            ("500ms", 500),
            ("5s", 5_000),
            ("7", 7_000),
            ("2m", 120_000),
            ("0s", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "1h", "-1s", "1.5s", "11m", "99999999999999999999s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_command_and_option_is_in_the_manual() {
        use clap::CommandFactory;
        let manual = include_str!("../../../man/man1/ken.1");
        let ken = Cli::command();
        ken.clone().debug_assert();
        for command in ken.get_subcommands().chain([&ken]) {
            let name = command.get_name();
            assert!(name == "ken" || manual.contains(name), "{name} is not in ken(1)");
            for option in command.get_opts().filter_map(clap::Arg::get_long) {
                assert!(
                    manual.contains(&format!("Fl Fl {option}")),
                    "{name} --{option} is not in ken(1)"
                );
            }
        }
    }
}
