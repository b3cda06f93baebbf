//! The command-line options that all daemons have.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser};

/// The options that all daemons have, and the additional ones of one daemon.
#[derive(Debug, Parser)]
pub(crate) struct Options<A: Args> {
    /// Keep everything below DIR: ken.toml, secrets.env, state/ and run/
    #[arg(long, value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,

    /// Read this configuration instead of the usual one
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) own: A,
}

/// The type to pass for a daemon without additional options.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct NoOptions {}

const AFTER: &str = "A daemon is normally started by kend(8). Logs are JSON lines on standard error; KEN_LOG sets the \
                     level (error, warn, info, debug, trace). It ends on SIGTERM when what it has begun is done.";

/// Whether a program that is also a command is to run as a daemon: kend has started this process, or an option names the place of its
/// configuration. The words need not be UTF-8.
pub fn is_part() -> bool {
    let own = std::process::id().to_string();
    let started = std::env::var("LISTEN_PID").is_ok_and(|pid| pid == own);
    let is_place = |word: OsString| {
        let word = word.to_string_lossy();
        ["--home", "--config"].contains(&word.split('=').next().unwrap_or_default())
    };
    started || std::env::args_os().skip(1).any(is_place)
}

/// Parses the command line. The error contains the text of the help, the version or the usage error, as clap prints it.
pub(crate) fn parse<A: Args>(
    name: &'static str,
    version: &'static str,
    about: &'static str,
) -> Result<Options<A>, clap::Error> {
    let command = Options::<A>::command().name(name).version(version).about(about).after_help(AFTER);
    let matches = command.try_get_matches()?;
    Options::from_arg_matches(&matches)
}
