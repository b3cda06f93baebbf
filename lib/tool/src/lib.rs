//! The skeleton of every filter of ken: it reads an input, writes an answer and sets the exit status.
//!
//! A tool supplies its flags and a [`Filter::run`]; the skeleton owns the rest, so that a flag, an exit status and an error
//! mean the same in every tool:
//!
//! - exactly one input source: the tool's inline flag, `--file PATH`, FILE arguments, `-`, or standard input; each of
//!   several files is a separate input, and its answer contains its name;
//! - `--format json|compact|summary` on standard output, which stays empty when the tool fails;
//! - `--lines`: one output line for each input line, flushed before the next read, until EOF. A [`Tag`] and an `id` are
//!   repeated in the answer;
//! - errors on standard error as a sentence, or as one line `{"error":{"code","message","at"}}` with `KEN_ERRORS=json`;
//! - exit status 0 for success, 1 for a negative answer, 2 for an error.
//!
//! A command that takes no input is a [`Report`].
//!
//! ```no_run
//! # use ken_tool::{Answer, Error, Filter, Replied, Reply};
//! #[derive(clap::Args)]
//! struct Count {
//!     /// The text to count
//!     #[arg(short, long)]
//!     text: Option<String>,
//! }
//!
//! #[derive(serde::Serialize)]
//! struct Words { words: usize }
//!
//! impl Answer for Words {
//!     fn summary(&self, _verbose: bool, to: &mut dyn std::fmt::Write) -> std::fmt::Result {
//!         writeln!(to, "{} words", self.words)
//!     }
//! }
//!
//! impl Filter for Count {
//!     const NAME: &'static str = "ken-count";
//!     const ABOUT: &'static str = "Count words";
//!     fn inline(&self) -> Option<&str> { self.text.as_deref() }
//!     fn run(&self, input: &str, reply: Reply<'_>) -> Result<Replied, Error> {
//!         Ok(reply.send(&Words { words: input.split_whitespace().count() }))
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode { ken_tool::main::<Count>() }
//! ```

mod cli;
mod failure;
mod input;
mod json;
mod lines;
mod mark;
mod output;
mod program;
mod regular;
mod reply;
mod report;
mod start;
mod tag;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;

pub use ken_types::{Code, Error};

pub use cli::{has_flag, usage_error};
pub use failure::{Failure, line as error_line, text as error_text};
pub use input::unreadable;
pub use json::Raw;
pub use output::{Output, print};
pub use program::{find_program, part_socket};
pub use regular::open_regular;
pub use reply::{Answer, Replied, Reply, Verdict};
pub use report::{Report, front, report};
pub use tag::Tag;

use cli::{Cli, Parsed};
use input::Source;

#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

/// The largest input, and the longest input line with `--lines`, in bytes.
pub const MAX_INPUT: usize = 8 * 1024 * 1024;

/// The deepest nesting of a JSON input; for [`ken_types::json::parse`] and [`ken_types::json::check_depth`].
pub const MAX_DEPTH: usize = 128;

/// A tool: its flags (a `clap::Args`), and the function that answers one input.
pub trait Filter: clap::Args {
    /// The program's name, as in `ken-rep`.
    const NAME: &'static str;
    /// One line for `--help`.
    const ABOUT: &'static str;
    /// Text after the flags in `--help`.
    const AFTER_HELP: &'static str = "";

    /// The value of the inline flag (`--json`, `--text`), if it was given.
    fn inline(&self) -> Option<&str>;

    /// Whether an input has to be read, given these flags.
    fn need(&self) -> Need {
        Need::Input
    }

    /// Answers one input. Called once, or once for each line with `--lines`; no answer may depend on an earlier call. The
    /// input is valid UTF-8 and, unless [`Filter::need`] says otherwise, not blank.
    fn run(&self, input: &str, reply: Reply<'_>) -> Result<Replied, Error>;
}

/// Whether an input has to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// There must be an input, and it must not be blank.
    Input,
    /// An input may be blank, and standard input is not read when it is a terminal.
    Optional,
    /// The flags are complete: standard input is read only when `-` or `--file -` names it.
    Nothing,
}

/// Runs the tool with the arguments of the process. A tool's `main` consists of this call.
pub fn main<F: Filter>() -> ExitCode {
    run::<F>(std::env::args_os())
}

/// Like [`main`], for a tool that is a subcommand of another, as in `ken-tools call`. [`Filter::NAME`] contains both words.
pub fn subcommand<F: Filter>() -> ExitCode {
    run::<F>(std::env::args_os().skip(1))
}

/// Like [`subcommand`], with these words in place of the arguments of the process. The first one is the subcommand.
pub fn subcommand_of<F: Filter>(words: Vec<OsString>) -> ExitCode {
    run::<F>(words.into_iter())
}

fn run<F: Filter>(words: impl Iterator<Item = OsString>) -> ExitCode {
    end(F::NAME, cli::parse::<Cli<F>>(cli::command::<F>(), words), answer)
}

/// Calls `answer` or prints help, then reports errors and returns the exit status.
fn end<P>(
    name: &str,
    parsed: Result<Parsed<P>, Failure>,
    answer: impl FnOnce(&P, &mut Output) -> Result<Verdict, Failure>,
) -> ExitCode {
    let mut output = Output::open();
    let result = match parsed {
        Ok(Parsed::Run(cli)) => answer(&cli, &mut output),
        Ok(Parsed::Print(text)) => {
            output.text(&text);
            Ok(Verdict::Positive)
        }
        Err(failure) => Err(failure),
    };
    match result.and_then(|verdict| output.finish().map(|()| verdict)) {
        Ok(verdict) => verdict.exit_code(),
        Err(failure) => failure.report(name),
    }
}

fn answer<F: Filter>(cli: &Cli<F>, output: &mut Output) -> Result<Verdict, Failure> {
    let sources = input::choose(cli)?;
    if cli.common.lines {
        for source in &sources {
            lines::answer_each(cli, source, output)?;
        }
        return Ok(Verdict::Positive);
    }
    match sources.as_slice() {
        [source] => answer_one(cli, source, None, output),
        several => answer_files(cli, several, output),
    }
}

fn answer_one<F: Filter>(
    cli: &Cli<F>,
    source: &Source<'_>,
    file: Option<&str>,
    output: &mut Output,
) -> Result<Verdict, Failure> {
    let need = cli.filter.need();
    if source.is_stdin_unnamed() && std::io::stdin().is_terminal() && need != Need::Optional {
        return Err(Failure::NothingToRead(cli::usage::<F>()));
    }
    let text = input::read(source, need)?;
    input::check_blank(&text, need)?;
    let reply = Reply::new(output, &cli.common.output).about(file);
    Ok(cli.filter.run(&text, reply)?.verdict())
}

/// Answers each file in turn. As with grep, an error in one file is reported and the next file is read. The exit status is
/// the worst of all files.
fn answer_files<F: Filter>(cli: &Cli<F>, sources: &[Source<'_>], output: &mut Output) -> Result<Verdict, Failure> {
    let mut verdict = Verdict::Positive;
    let mut failed = None;
    for source in sources {
        let name = source.name();
        match answer_one(cli, source, Some(&name), output) {
            Ok(Verdict::Positive) => {}
            Ok(Verdict::Negative) => verdict = Verdict::Negative,
            Err(Failure::Error(mut error)) => {
                if !error.message.contains(&name) {
                    error.message = format!("{name}: {}", error.message);
                }
                if let Some(earlier) = failed.replace(error) {
                    failure::print_error(F::NAME, &earlier, "");
                }
            }
            Err(failure) => return Err(failure),
        }
        output.flush();
    }
    failed.map_or(Ok(verdict), |error| Err(error.into()))
}
