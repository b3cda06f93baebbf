//! The command line, and how errors of the sandbox itself are reported.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Component, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use clap::error::ErrorKind;
use ken_tool::{Code, Error};
use ken_types::address::is_address;

/// The sandbox could not be set up, or the command line is wrong. As in timeout(1) and env(1), so that a caller can tell
/// it from the exit status of the command.
pub(crate) const CANNOT_CONFINE: u8 = 125;
/// The command was found and cannot be executed.
pub(crate) const CANNOT_EXECUTE: u8 = 126;
/// There is no such command.
pub(crate) const NOT_FOUND: u8 = 127;
/// The command ran into the timeout.
pub(crate) const TIMED_OUT: u8 = 124;

/// Run one command that can touch only what it is given
///
/// The command can read and execute the system's programs and libraries, read and write a temporary directory of its own
/// (TMPDIR, HOME), and nothing else: no other file, no network, no other process. Nothing that it starts outlives it.
#[derive(Debug, Parser)]
#[command(name = "ken-sandbox", version, after_help = AFTER_HELP)]
pub(crate) struct Job {
    /// Let it read and execute PATH and everything below it; can be given more than once
    #[arg(short, long, value_name = "PATH")]
    pub(crate) read: Vec<PathBuf>,
    /// Let it read, execute and change PATH and everything below it; can be given more than once
    #[arg(short, long, value_name = "PATH")]
    pub(crate) write: Vec<PathBuf>,
    /// As --read, for what descriptor N is open on; can be given more than once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(3..))]
    pub(crate) read_fd: Vec<i32>,
    /// As --write, for what descriptor N is open on; can be given more than once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(3..))]
    pub(crate) write_fd: Vec<i32>,
    /// Keep it from changing what makes git run programs, in every repository below its writable folders
    #[arg(long)]
    pub(crate) protect_git: bool,
    /// Keep it from changing PATH below the folder of --write-fd N; can be given more than once
    #[arg(long, value_name = "N:PATH", value_parser = below)]
    pub(crate) read_only_below: Vec<(i32, PathBuf)>,
    /// Run nothing if a folder that it is given contains DIR or lies in it; can be given more than once
    #[arg(long, value_name = "DIR")]
    pub(crate) keep_out: Vec<PathBuf>,
    /// Allow what lies in DIR, although that lies in a folder of --keep-out; can be given more than once
    #[arg(long, value_name = "DIR")]
    pub(crate) except: Vec<PathBuf>,
    /// Let it execute PATH and everything below it, and nothing else: all other files can at most be read. The loader of
    /// its programs has to be among them. Can be given more than once
    #[arg(short = 'x', long, value_name = "PATH")]
    pub(crate) execute: Vec<PathBuf>,
    /// Let it reach public addresses and the name servers of this machine, over TCP and UDP
    #[arg(short, long)]
    pub(crate) network: bool,
    /// Let it reach ADDRESS, ADDRESS:PORT or a network such as 10.1.0.0/16, public or not; can be given more than once
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub(crate) reach: Vec<String>,
    /// Start it in DIR
    #[arg(short = 'C', long, value_name = "DIR", overrides_with = "cwd")]
    pub(crate) cwd: Option<PathBuf>,
    /// Start it in the folder that descriptor N is open on
    #[arg(long, value_name = "N", conflicts_with = "cwd", value_parser = clap::value_parser!(i32).range(3..))]
    pub(crate) cwd_fd: Option<i32>,
    /// Set a variable of its environment, or pass it on; can be given more than once
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<OsString>,
    /// As --env, for each variable in what descriptor N is open on, which end with NUL bytes; can be given more than once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(3..))]
    pub(crate) env_fd: Vec<i32>,
    /// Leave the inherited descriptor N open for it; can be given more than once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(3..))]
    pub(crate) fd: Vec<i32>,
    /// End it after SECONDS: TERM first, KILL two seconds later
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// End it when the program that started ken-sandbox ends
    #[arg(long)]
    pub(crate) with_parent: bool,
    /// Limit the data memory of each process, and of all together where a control group can be made, to MIB
    #[arg(long, value_name = "MIB")]
    pub(crate) memory: Option<u64>,
    /// Limit the size of each file that it writes to MIB
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pub(crate) file_size: u64,
    /// Limit the open files of each process to N
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub(crate) open_files: u64,
    /// Limit the processes that run at a time to N, where the kernel counts them for the sandbox alone
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub(crate) processes: u64,
    /// Print as JSON which walls this system has, and run nothing
    #[arg(long)]
    pub(crate) walls: bool,
    /// The command and its arguments
    #[arg(
        required_unless_present = "walls",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub(crate) command: Vec<OsString>,
}

const AFTER_HELP: &str = "\
Exit status: the command's own; 128 + N when signal N ended it; 124 after the timeout; 125 when the sandbox could not be \
set up; 126 when the command cannot be executed; 127 when it is not found.

Example: run the tests of a project that must not reach anything else
  ken-sandbox --write ~/src/site --cwd ~/src/site --timeout 300 -- make test";

/// Parses the command line. `Err` is the exit status when there is nothing to run.
pub(crate) fn parse(words: impl Iterator<Item = OsString>) -> Result<Job, ExitCode> {
    Job::try_parse_from(words).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // If nobody reads standard output any more, there is nobody to tell.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        _ => {
            let usage = ken_tool::usage_error(&error).hint("ken-sandbox --help lists the options");
            Refusal::new(CANNOT_CONFINE, usage).report()
        }
    })
}

/// Names are refused: they could resolve to another address by the time that they are used.
fn address(text: &str) -> Result<String, String> {
    if is_address(text) {
        Ok(text.to_owned())
    } else {
        Err("an address, ADDRESS:PORT or a network such as 10.1.0.0/16".to_owned())
    }
}

fn below(text: &str) -> Result<(i32, PathBuf), String> {
    let parts = text.split_once(':').and_then(|(number, path)| Some((number.parse().ok()?, PathBuf::from(path))));
    let is_below = |path: &PathBuf| path.components().all(|part| matches!(part, Component::Normal(_)));
    parts
        .filter(|(_, path)| is_below(path))
        .ok_or_else(|| "N:PATH, with a path below the folder without `..`".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds".to_owned())?;
    let timeout = Duration::try_from_secs_f64(seconds).map_err(|_| "a number of seconds above 0".to_owned())?;
    if timeout.is_zero() { Err("a number of seconds above 0".to_owned()) } else { Ok(timeout) }
}

impl Job {
    pub(crate) fn sockets(&self) -> Sockets {
        match (self.network, self.reach.is_empty()) {
            (true, _) => Sockets::Public,
            (false, false) => Sockets::Named,
            (false, true) => Sockets::None,
        }
    }
}

/// Which sockets of the Internet families the command may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sockets {
    None,
    /// Those of a network that has a loopback interface only.
    Loopback,
    /// Those that connect to the addresses of `--reach`.
    Named,
    /// Those that connect to public addresses too, also from a port that the command has chosen.
    Public,
}

impl Sockets {
    /// What a command without network may have, when it has a network of its own.
    pub(crate) fn with(self, has_loopback: bool) -> Sockets {
        if self == Sockets::None && has_loopback { Sockets::Loopback } else { self }
    }

    /// Whether the supervisor makes the calls that name an address.
    pub(crate) fn are_supervised(self) -> bool {
        matches!(self, Sockets::Named | Sockets::Public)
    }
}

/// Why the command was not run.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: u8,
    error: Error,
}

impl Refusal {
    pub(crate) fn new(status: u8, error: Error) -> Refusal {
        Refusal { status, error }
    }

    /// The system refused a step of the set-up.
    pub(crate) fn step(what: &str, why: impl std::fmt::Display) -> Refusal {
        let error = Error { code: Code::Unavailable, ..Error::internal(format!("{what}: {why}")) };
        Refusal::new(CANNOT_CONFINE, error)
    }

    pub(crate) fn with_status(self, status: u8) -> Refusal {
        Refusal { status, ..self }
    }

    /// The same refusal, with what it is about in front of it.
    pub(crate) fn about(self, what: &str) -> Refusal {
        let message = format!("{what}: {}", self.error.message);
        Refusal { error: Error { message, ..self.error }, ..self }
    }

    pub(crate) fn hint(self, hint: &str) -> Refusal {
        Refusal { error: self.error.hint(hint), ..self }
    }

    /// One line on standard error: a sentence, or JSON.
    pub(crate) fn report(self) -> ExitCode {
        let text = ken_tool::error_text("ken-sandbox", &self.error, false);
        // Nowhere is left to report that this failed; the exit status still tells.
        let _ = std::io::stderr().write_all(text.as_bytes());
        ExitCode::from(self.status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_without_network_may_use_a_loopback_of_its_own() {
        use Sockets::{Loopback, Named, None, Public};
        for (wanted, with, without) in [(None, Loopback, None), (Named, Named, Named), (Public, Public, Public)] {
            assert_eq!((wanted.with(true), wanted.with(false)), (with, without));
            assert_eq!(wanted.are_supervised(), wanted != None);
        }
    }

    #[test]
    fn what_is_named_below_a_folder_lies_below_it() {
        for (text, is_ok) in [
            ("3:a/b", true),
            ("0:.git", true),
            ("3:../a", false),
            ("3:a/../../b", false),
            ("3:/a", false),
            ("3:./a", false),
            ("x:a", false),
            ("a", false),
        ] {
            assert_eq!(below(text).is_ok(), is_ok, "{text}");
        }
    }
}
