//! Commands without an input, and tools that consist of several commands.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::FromArgMatches;
use clap::error::{Error as ClapError, ErrorKind};

use crate::cli::{self, BareCli};
use crate::{Error, Replied, Reply, end};

/// A command that reports on something and reads no input. It has `--format` and `--verbose` beside its own flags.
pub trait Report: clap::Args {
    /// The tool and the command, as in `ken-workflow list`.
    const NAME: &'static str;
    /// One line for `--help`.
    const ABOUT: &'static str;
    /// Text after the flags in `--help`.
    const AFTER_HELP: &'static str = "";

    /// Sends the answer.
    fn run(&self, reply: Reply<'_>) -> Result<Replied, Error>;
}

/// Runs a report that is the first argument of a tool.
pub fn report<R: Report>() -> ExitCode {
    let words = std::env::args_os().skip(1);
    let parsed = cli::parse::<BareCli<R>>(cli::bare::<R>(), words);
    end(R::NAME, parsed, |cli, output| {
        let reply = Reply::new(output, &cli.output);
        Ok(cli.report.run(reply)?.verdict())
    })
}

/// Handles a command line that names none of a tool's commands: `--help`, `--version`, or an error. `commands` are the
/// names, each with its line for `--help`.
pub fn front(name: &'static str, about: &'static str, commands: &[(&'static str, &'static str)]) -> ExitCode {
    let commands = commands.iter().map(|(name, about)| clap::Command::new(*name).about(*about));
    let command = cli::named(clap::Command::new(name), name, about)
        .subcommands(commands)
        .subcommand_required(true)
        .disable_help_subcommand(true);
    let words: Vec<OsString> = std::env::args_os().collect();
    let parsed = cli::parse::<NoFlags>(command, words.into_iter());
    end(name, parsed, |_, _| Err(Error::invalid("", "no command").into()))
}

/// Never parsed: clap prints help or refuses first.
struct NoFlags;

impl FromArgMatches for NoFlags {
    fn from_arg_matches(_: &clap::ArgMatches) -> Result<NoFlags, ClapError> {
        Err(ClapError::raw(ErrorKind::MissingSubcommand, "a command is needed"))
    }

    fn update_from_arg_matches(&mut self, _: &clap::ArgMatches) -> Result<(), ClapError> {
        Ok(())
    }
}
