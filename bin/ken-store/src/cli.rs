//! The options that only the store has, in addition to those that all daemons have.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use ken_store::tables::sqlite::Sqlite;

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Own {
    /// Read the whole database in FILE, report whether it is sound, and exit; must be the first and only option
    #[arg(long, value_name = "FILE")]
    pub(crate) check: Option<PathBuf>,
}

/// Returns the file of `--check FILE`. The check runs without a socket and creates nothing. It has a process of its own because it opens and
/// closes the file, which would take the locks of a store in the same process away.
pub(crate) fn file_to_check() -> Option<PathBuf> {
    let mut args = std::env::args_os().skip(1);
    let first = args.next()?;
    let file =
        if first == "--check" { args.next()? } else { OsString::from(first.to_str()?.strip_prefix("--check=")?) };
    args.next().is_none().then(|| PathBuf::from(file))
}

/// Checks a database. Prints `FILE: ok`, or one line on standard error that says what is wrong.
pub(crate) fn check(file: &Path) -> ExitCode {
    match Sqlite::check(file, true) {
        Ok(()) => {
            let written = writeln!(std::io::stdout(), "{}: ok", file.display());
            written.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
        }
        Err(error) => {
            _ = writeln!(std::io::stderr(), "ken-store: {error}");
            ExitCode::from(error.code.exit_status())
        }
    }
}
