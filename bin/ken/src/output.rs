//! Standard output for results, standard error for what went wrong, the exit status for both.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;

use ken_types::Error;
use serde::Serialize;

/// What a command comes to.
pub(crate) type Outcome = Result<ExitCode, Error>;

/// Prints a line.
pub(crate) fn say(line: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush())
        .map_err(closed)
}

/// Prints a value as one line of JSON.
pub(crate) fn say_json(value: &impl Serialize) -> Result<(), Error> {
    let line = serde_json::to_string(value).map_err(|error| Error::internal(error.to_string()))?;
    say(&line)
}

/// A reader that has seen enough is no error, and nothing more is to be said.
fn closed(error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::BrokenPipe => Error::cancelled(String::new()),
        _ => Error::internal(format!("cannot write: {error}")),
    }
}

/// One line on standard error: text for a person, JSON for a program.
pub(crate) fn fail(error: &Error) -> ExitCode {
    if error.message.is_empty() {
        return ExitCode::SUCCESS;
    }
    let mut err = io::stderr();
    let json = serde_json::to_string(error).ok();
    let _ = match json.filter(|_| !err.is_terminal()) {
        Some(line) => writeln!(err, "{line}"),
        None => writeln!(err, "ken: {error}"),
    };
    ExitCode::from(error.code.exit_status())
}

/// A remark for a person.
pub(crate) fn remark(text: &str) {
    let _ = writeln!(io::stderr(), "ken: {text}");
}
