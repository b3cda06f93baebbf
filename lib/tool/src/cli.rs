//! The flags that every tool has, beside its own.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, FromArgMatches, Parser, ValueEnum};

use crate::failure::Failure;
use crate::{Error, Filter, Report};

#[derive(Parser)]
pub(crate) struct Cli<F: Args> {
    #[command(flatten)]
    pub(crate) filter: F,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args)]
pub(crate) struct Common {
    /// Read the input from PATH; - is standard input
    #[arg(short, long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
    /// Answer each line of input with one line of output, until the input ends
    #[arg(long)]
    pub(crate) lines: bool,
    #[command(flatten)]
    pub(crate) output: OutputFlags,
    /// Files to read, each as a separate input; - is standard input, which is then read even if the options are complete
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

/// The flags of a command without an input.
#[derive(Parser)]
pub(crate) struct BareCli<R: Args> {
    #[command(flatten)]
    pub(crate) report: R,
    #[command(flatten)]
    pub(crate) output: OutputFlags,
}

/// How an answer is printed.
#[derive(Args)]
pub(crate) struct OutputFlags {
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Json)]
    pub(crate) format: Format,
    /// Add details to a summary
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// JSON with one line for each field and list item
    Json,
    /// JSON on one line
    Compact,
    /// Text for people
    Summary,
}

pub(crate) enum Parsed<P> {
    Run(P),
    /// `--help` or `--version`: text for standard output.
    Print(String),
}

/// Parses a command line; its first word is the program's name.
pub(crate) fn parse<P: FromArgMatches>(
    command: clap::Command,
    words: impl Iterator<Item = OsString>,
) -> Result<Parsed<P>, Failure> {
    let name = command.get_name().to_owned();
    let matches = command.try_get_matches_from(words);
    match matches.and_then(|mut matches| P::from_arg_matches_mut(&mut matches)) {
        Ok(cli) => Ok(Parsed::Run(cli)),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(Parsed::Print(error.render().to_string())),
            _ => Err(Failure::Error(usage_error(&error).hint(format!("{name} --help lists the flags")))),
        },
    }
}

pub(crate) fn usage<F: Filter>() -> String {
    command::<F>().render_usage().to_string()
}

pub(crate) fn command<F: Filter>() -> clap::Command {
    named(Cli::<F>::command(), F::NAME, F::ABOUT).after_help(F::AFTER_HELP)
}

pub(crate) fn bare<R: Report>() -> clap::Command {
    named(BareCli::<R>::command(), R::NAME, R::ABOUT).after_help(R::AFTER_HELP)
}

pub(crate) fn named(command: clap::Command, name: &'static str, about: &'static str) -> clap::Command {
    command.name(name).bin_name(name).about(about).version(env!("CARGO_PKG_VERSION")) // the workspace's: every program has the same
}

/// Messages of the number parsers in Rust's standard library, each with a plainer replacement.
const PARSE_ERRORS: [(&str, &str); 7] = [
    ("invalid digit found in string", "it is not a whole number"),
    ("invalid float literal", "it is not a number"),
    ("number too large to fit in target type", "it is too large"),
    ("number too small to fit in target type", "it is too small"),
    ("cannot parse integer from empty string", "it is empty"),
    ("cannot parse float from empty string", "it is empty"),
    ("provided string was not `true` or `false`", "it must be true or false"),
];

fn plain_words(message: String) -> String {
    for (rust, plain) in PARSE_ERRORS {
        if let Some(start) = message.strip_suffix(rust) {
            return format!("{start}{plain}");
        }
    }
    let range = message.rsplit_once(" is not in ");
    match range.and_then(|(start, range)| Some((start, range.split_once("..=")?))) {
        Some((start, (low, high))) => format!("{start} is not from {low} to {high}"),
        None => message,
    }
}

/// Whether the command line of this process contains a flag. It is for the time before the command line is understood: a flag
/// says how an error in the same command line is written.
pub fn has_flag(flag: &str) -> bool {
    std::env::args_os().skip(1).take_while(|word| word != "--").any(|word| word == flag)
}

/// Converts an error of clap: one line without usage and advice, with the flag as `at`.
pub fn usage_error(error: &clap::Error) -> Error {
    let text = error.render().to_string();
    let first = text.split("\n\n").next().unwrap_or(&text);
    let words = first.trim_start_matches("error: ").split_whitespace();
    let message = words.collect::<Vec<_>>().join(" ");
    let message = plain_words(message);
    let flag = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) if flag.starts_with('-') => {
            flag.split([' ', '=']).next().unwrap_or_default().to_owned()
        }
        _ => String::new(),
    };
    Error::invalid(flag, message)
}
