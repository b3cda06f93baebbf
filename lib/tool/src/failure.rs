//! How a tool reports an error, and its exit status.

use std::io::{self, Write};
use std::process::ExitCode;

use ken_text::for_terminal;
use ken_types::error::wants_json_errors;
use serde::Serialize;

use crate::Error;
use crate::mark::Mark;

/// Why a tool ends without an answer. A program that is not a [`crate::Filter`] can use it too.
pub enum Failure {
    /// The tool or its input is wrong.
    Error(Error),
    /// The tool was started on a terminal without an input; holds the usage line.
    NothingToRead(String),
    /// The reader of standard output has closed the pipe. This is not reported.
    ReaderGone,
}

/// The status that a shell reports for a process that was ended by SIGPIPE: 128 + 13.
const SIGPIPE_STATUS: u8 = 141;

/// The exit status of a tool for every error. Other programs have a status for each error code.
const ERROR_STATUS: u8 = 2;

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Error(error)
    }
}

impl Failure {
    /// Reports the failure on standard error and returns the exit status.
    pub fn report(self, tool: &str) -> ExitCode {
        match self {
            Failure::ReaderGone => return ExitCode::from(SIGPIPE_STATUS),
            Failure::Error(error) => print_error(tool, &error, ""),
            Failure::NothingToRead(usage) => {
                let error = Error::invalid("", "nothing to read: standard input is a terminal");
                print_error(tool, &error.hint(format!("{tool} --help explains the input")), &usage);
            }
        }
        ExitCode::from(ERROR_STATUS)
    }
}

/// Writes the error to standard error, as a sentence followed by the usage if it is not empty, or as JSON.
pub(crate) fn print_error(tool: &str, error: &Error, usage: &str) {
    let as_json = wants_json_errors();
    let mut text = text(tool, error, as_json);
    if !as_json && !usage.is_empty() {
        text = format!("{text}{}\n", usage.trim_end());
    }
    // An error cannot be reported here, except by the exit status.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Returns an error as a program writes it to standard error: a sentence after the program's name or, if `as_json` is set
/// or the environment asks for it, one line of JSON. A sentence has no characters that control a terminal.
pub fn text(program: &str, error: &Error, as_json: bool) -> String {
    if as_json || wants_json_errors() {
        return line(error);
    }
    format!("{program}: {}\n", for_terminal(&error.to_string()))
}

/// `{"error":{"code","message","at",…}}` and a line feed. `at` is always present; "" means the whole input (RFC 6901).
pub fn line(error: &Error) -> String {
    #[derive(Serialize)]
    struct Line {
        error: Error,
    }
    let mut error = error.clone();
    error.at.get_or_insert_default();
    let line = serde_json::to_string(&Line { error });
    // Serialising texts and numbers into memory cannot fail.
    line.unwrap_or_else(|_| r#"{"error":{"code":"internal","message":"","at":""}}"#.to_owned()) + "\n"
}

/// Like [`line()`], without the line feed and with the field that names the input.
pub(crate) fn answer(error: &Error, mark: Option<&Mark>) -> String {
    let mut line = line(error);
    line.pop();
    if let Some(mark) = mark {
        line.pop();
        line = format!("{line},{}}}", mark.field());
    }
    line
}
