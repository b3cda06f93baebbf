//! Prints results on standard output and errors on standard error, and sets the exit status.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use clap::error::ErrorKind;
use ken_text::{for_terminal, visible};
use ken_types::error::wants_json_errors;
use ken_types::{Code, Error};
use serde::Serialize;

/// The result of a command: its exit status, or an error.
pub(crate) type Outcome = Result<ExitCode, Error>;

/// The options of a list that is always the whole one.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Whether `--raw` was given. It is a global variable so that no command can forget to pass it on.
static RAW: AtomicBool = AtomicBool::new(false);

/// Whether errors are JSON because `--json` was given.
static JSON_ERRORS: AtomicBool = AtomicBool::new(false);

/// From now on, errors are printed as JSON.
pub(crate) fn set_json_errors() {
    JSON_ERRORS.store(true, Ordering::Relaxed);
}

/// From now on, control characters are printed unchanged on a terminal too.
pub(crate) fn set_raw() {
    RAW.store(true, Ordering::Relaxed);
}

/// Whether control characters on standard output must be replaced.
pub(crate) fn is_guarded() -> bool {
    !RAW.load(Ordering::Relaxed) && io::stdout().is_terminal()
}

pub(crate) fn print_line(line: &str) -> Result<(), Error> {
    print_text(&format!("{line}\n"))
}

/// Prints text without a line end and flushes it. On a terminal, control characters are replaced.
pub(crate) fn print_text(text: &str) -> Result<(), Error> {
    if is_guarded() { print_bytes(for_terminal(text).as_bytes()) } else { print_bytes(text.as_bytes()) }
}

/// Prints bytes unchanged and flushes them.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Error> {
    ken_tool::print(bytes)
}

/// Prints a line that consists of pieces, each with an optional colour (SGR code of ECMA-48).
pub(crate) fn print_coloured(pieces: &[(Option<u8>, &str)]) -> Result<(), Error> {
    let mut line = String::new();
    for (colour, text) in pieces {
        let text = if is_guarded() { for_terminal(text) } else { (*text).into() };
        match colour {
            Some(colour) => line.push_str(&format!("\x1b[{colour}m{text}\x1b[0m")),
            None => line.push_str(&text),
        }
    }
    print_bytes(format!("{line}\n").as_bytes())
}

/// Whether standard output shows colour: on a terminal that supports it, unless NO_COLOR is set (no-color.org).
pub(crate) fn wants_colour() -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    io::stdout().is_terminal() && set("NO_COLOR").is_none() && set("TERM").is_some_and(|terminal| terminal != "dumb")
}

pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Error> {
    let line = serde_json::to_string(value).map_err(|error| Error::internal(error.to_string()))?;
    print_line(&line)
}

/// Prints an error on standard error: a sentence, or one line of JSON.
pub(crate) fn fail(error: &Error) -> ExitCode {
    if error.message.is_empty() {
        return ExitCode::SUCCESS;
    }
    let text = ken_tool::error_text("ken", error, JSON_ERRORS.load(Ordering::Relaxed));
    let _ = io::stderr().write_all(text.as_bytes());
    ExitCode::from(error.code.exit_status())
}

/// Prints every error. Returns the exit status of the last one, or success if there are none.
pub(crate) fn fail_each(errors: impl IntoIterator<Item = Error>) -> ExitCode {
    errors.into_iter().fold(ExitCode::SUCCESS, |_, error| fail(&error))
}

/// Prints help or a usage error of clap: clap's own text for a person, one line of JSON for a program.
pub(crate) fn show_clap_error(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || !(JSON_ERRORS.load(Ordering::Relaxed) || wants_json_errors()) {
        _ = error.print();
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(Code::Invalid.exit_status()));
    }
    let refusal = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Error::invalid("", "a command is needed"),
        _ => ken_tool::usage_error(error),
    };
    let text = error.render().to_string();
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: "));
    fail(&match usage {
        Some(usage) => refusal.hint(format!("usage: {usage}")),
        None => refusal.hint("`ken --help` lists the commands, `ken COMMAND --help` the flags of one"),
    })
}

/// Prints a remark on standard error.
pub(crate) fn print_note(text: &str) {
    let mut stderr = io::stderr();
    let _ = if stderr.is_terminal() {
        writeln!(stderr, "ken: {}", for_terminal(text))
    } else {
        writeln!(stderr, "ken: {text}")
    };
}

/// Prints a question on standard error without a line end. On a terminal, every character of it can be seen; elsewhere each line
/// begins with the name of the program, as an error does.
pub(crate) fn print_on_stderr(text: &str) {
    let mut stderr = io::stderr();
    let _ = if stderr.is_terminal() { write!(stderr, "{}", visible(text)) } else { write!(stderr, "ken: {text}") };
    _ = stderr.flush();
}

/// Prints a list: as a table, or one JSON object per line.
pub(crate) fn print_list<T: Serialize, const N: usize>(
    list: &[T],
    as_json: bool,
    head: [&str; N],
    row: impl FnMut(&T) -> [String; N],
) -> Result<(), Error> {
    if as_json { list.iter().try_for_each(print_json) } else { print_table(head, list.iter().map(row)) }
}

/// Prints rows of cells below a heading, with the columns aligned.
pub(crate) fn print_table<const N: usize>(
    head: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> Result<(), Error> {
    let rows: Vec<_> = std::iter::once(head.map(String::from)).chain(rows).collect();
    table(&rows).iter().try_for_each(|line| print_line(line))
}

/// Formats rows of cells as lines, with the columns aligned. Line ends and tabs in a cell become blanks.
pub(crate) fn table<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let rows: Vec<[String; N]> = rows.iter().map(|row| row.each_ref().map(|cell| one_line(cell))).collect();
    let mut widths = [0; N];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths);
        let padded: Vec<String> = cells.map(|(cell, width)| format!("{cell:width$}")).collect();
        padded.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Formats a number of things, as `1 file` or `2 files`.
pub(crate) fn format_count(count: u64, one: &str, several: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{count} {several}"),
    }
}

/// Replaces line ends and tabs of a text by blanks.
pub(crate) fn one_line(text: &str) -> String {
    text.replace(['\n', '\t'], " ")
}
