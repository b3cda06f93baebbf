use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use ken_types::Error;
use ken_types::ops::kend::WaitFor;
use ken_types::places::Places;
use nix::unistd::geteuid;

use crate::stream::Stream;

/// Runs and looks after a system of ken. `ken X` is `ken-X`.
#[derive(Debug, Parser)]
#[command(name = "ken", version, after_help = "Manual: ken(1)")]
pub(crate) struct Cli {
    /// The folder of the system; without it KEN_HOME, else the places of the user
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start everything; says `ready` and where
    Up(Up),
    /// Stop everything
    Down,
    /// What the parts are doing: 0 all that are wanted are up, 3 not, 4 no such part
    Status(Status),
    /// What a part has printed
    Logs(Logs),
    /// Read the configuration again; what did not change goes on
    Reload,
    /// Start a part and what it requires
    Start(Change),
    /// Stop a part and what requires it
    Stop(Change),
    /// Give a part a new process
    Restart(Change),
    /// Call an operation of a part and print what it answers
    Call(Call),
    /// Say something and print the answer as it comes
    Chat(Chat),
    /// List the conversations, newest first
    Sessions(Sessions),
    /// The audit log of the cognitive server
    Audit(Audit),
    /// What changes in the system: sessions, turns, runs, knowledge
    Events(Events),
    /// Append-only logs that any program may use: create, append, read, follow, close, rm, fork
    Stream(Stream),
    #[command(external_subcommand)]
    External(Vec<OsString>),
}

#[derive(Debug, Args)]
pub(crate) struct Up {
    /// Port of the gateway; 0 takes a free one
    #[arg(long, value_name = "N")]
    pub(crate) port: Option<u16>,
    /// Port of the cognitive server; 0 takes a free one
    #[arg(long, value_name = "N")]
    pub(crate) cognitive_port: Option<u16>,
    /// Leave it running in the background once it is ready
    #[arg(short = 'd', long)]
    pub(crate) detach: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Only this part
    pub(crate) name: Option<String>,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// A part, or kend
    pub(crate) name: String,
    /// How many of the last lines
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    pub(crate) lines: u32,
    /// Go on with what comes
    #[arg(short = 'f', long)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Change {
    pub(crate) name: String,
    /// Return only when it is `ready` or `stopped`
    #[arg(long, value_name = "STATE", value_parser = wait_for)]
    pub(crate) wait: Option<WaitFor>,
    /// Wait at most so long: 500ms, 5s, 2m
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Call {
    /// The part, or kend
    pub(crate) part: String,
    /// The operation, noun.verb; service.info lists them
    pub(crate) op: String,
    /// key=value, the value as JSON if it is JSON, else as text; or - for a JSON object on standard input
    pub(crate) args: Vec<String>,
    /// Wait at most so long: 500ms, 5s, 2m
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Chat {
    /// What to say; without it, or with -, the text on standard input
    pub(crate) text: Vec<String>,
    /// Go on with a session, by id or name; without it a fresh one
    #[arg(short = 's', long, value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// Print the turn's events, one JSON object a line, instead of its text
    #[arg(long)]
    pub(crate) events: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Sessions {
    /// At most so many
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) limit: u32,
    /// Those that were archived
    #[arg(long)]
    pub(crate) archived: bool,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Audit {
    #[command(subcommand)]
    pub(crate) command: AuditCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Whether it is what was written; names the first record that is not
    Verify(Verify),
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// Files of one log, in any order; without any, those of this system
    pub(crate) files: Vec<PathBuf>,
    /// A record with this hash, noted earlier, has to be among them
    #[arg(long, value_name = "HASH", value_parser = hash)]
    pub(crate) holds: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Events {
    /// How many of the last events
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    pub(crate) lines: u32,
    /// Go on with what comes, over restarts of the gateway
    #[arg(short = 'f', long)]
    pub(crate) follow: bool,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

impl Cli {
    /// The folder that the person means, absolute.
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

/// A number with `ms`, `s` or `m`; the bare number is seconds.
fn duration(text: &str) -> Result<Duration, String> {
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

/// SHA-256 in hexadecimal, as it is compared: in lower case.
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
