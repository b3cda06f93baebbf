//! The options that only the store has, in addition to those that all daemons have.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser};
use ken_store::tables::postgres::Postgres;
use ken_store::tables::sqlite::Sqlite;
use ken_store::transfer;
use ken_types::places::Places;
use ken_types::{Code, Error};

use crate::settings::server_url_of;

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Own {
    /// Read the whole database in FILE, or that of the settings, report whether it is sound, and exit; must be the first option
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub(crate) check: Option<Option<PathBuf>>,
}

/// `ken-store --check [FILE] [--home DIR]`.
#[derive(Debug, Parser)]
#[command(name = "ken-store", version)]
pub(crate) struct Check {
    #[command(flatten)]
    own: Own,
    #[arg(long, value_name = "DIR")]
    home: Option<PathBuf>,
}

/// Prints what a command says, or on standard error what is wrong, in one line. Returns the exit status.
pub(crate) fn print(done: Result<String, Error>) -> ExitCode {
    match done.and_then(|said| ken_tool::print(format!("{said}\n").as_bytes())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

/// Says what is wrong on standard error: a sentence, or a line of JSON if the environment asks for that.
pub(crate) fn fail(error: &Error) -> ExitCode {
    // That the reader of the output has ended is no error, and has no message.
    if error.message.is_empty() {
        return ExitCode::SUCCESS;
    }
    _ = std::io::stderr().write_all(ken_tool::error_text("ken-store", error, false).as_bytes());
    ExitCode::from(error.code.exit_status())
}

impl Check {
    /// Returns the check that the command line asks for. It has a process of its own because it opens and closes the file, which would take
    /// the locks of a store in the same process away.
    pub(crate) fn requested() -> Option<Check> {
        let first = std::env::args_os().nth(1)?;
        let is_check = first == "--check" || first.to_str()?.starts_with("--check=");
        is_check.then(Check::try_parse)?.ok()
    }

    /// Checks a database. Prints that it is sound, or one line on standard error that says what is wrong. Creates nothing.
    pub(crate) fn run(self) -> ExitCode {
        print(self.check())
    }

    fn check(self) -> Result<String, Error> {
        let Some(Some(file)) = self.own.check else {
            let places = Places::here(self.home.as_deref())?;
            return match server_url_of(&places)? {
                Some(url) => check_server(&url),
                None => check_file(&places.state.join("store/ken.db")),
            };
        };
        match file.to_str().filter(|text| text.contains("://")) {
            Some(url) if Postgres::has_password(url)? => Err(Error::new(
                Code::Invalid,
                "a password on the command line can be read by every user of this machine",
            )
            .hint("set KEN_STORE_URL in secrets.env, and give --check without a URL")),
            Some(url) => check_server(url),
            None => check_file(&file),
        }
    }
}

fn check_file(file: &Path) -> Result<String, Error> {
    Sqlite::check(file, true).map(|()| format!("{}: ok", file.display()))
}

fn check_server(url: &str) -> Result<String, Error> {
    let (name, read) = transfer::check_server(url)?;
    let rows: u64 = read.iter().map(|(_, rows)| rows).sum();
    Ok(format!("{name}: ok: {rows} rows of {} tables were read", read.len()))
}
