//! `--backup FROM TO`: copies the database to one file, even while a store is writing.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ken_store::ops;
use ken_store::tables::sqlite::{Sqlite, beside, keep, temporary_error};
use ken_types::{Error, Timestamp};

use crate::cli::fail;

/// Returns the two files if the command line asks for a backup. `--backup` must be the first and only option.
pub(crate) fn requested_backup() -> Option<(PathBuf, PathBuf)> {
    let mut args = std::env::args_os().skip(1);
    let is_asked = args.next()? == "--backup";
    let (from, to) = (args.next()?, args.next()?);
    (is_asked && args.next().is_none()).then(|| (from.into(), to.into()))
}

/// Runs a backup. Prints nothing, or one line on standard error that says what is wrong.
pub(crate) fn run(from: &Path, to: &Path) -> ExitCode {
    match copy(from, to) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

/// Copies to a temporary file beside `to`, checks the copy, and renames it. A file with the name `to` is therefore always complete.
fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    if !from.is_file() {
        return Err(Error::invalid(from.display().to_string(), "there is no database"));
    }
    if to.exists() {
        return Err(Error::invalid(to.display().to_string(), "exists already").hint("name a new file"));
    }
    // What has this name is overwritten, so it is a name that nobody else gives.
    let part = beside(to, ".ken-part");
    let done = write(from, &part).and_then(|()| Sqlite::check(&part, true));
    let done = done.and_then(|()| keep(&part, to).map_err(|error| temporary_error(to, error)));
    if done.is_err() {
        _ = std::fs::remove_file(&part);
    }
    done
}

/// Writes the copy with a mode that lets only its owner read it.
fn write(from: &Path, part: &Path) -> Result<(), Error> {
    let new = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(part);
    new.map_err(|error| temporary_error(part, error))?;
    // Who deletes a session for good is answered before all of it has gone.
    Sqlite::copy(from, part, |tables| ops::delete_from_copy(tables, Timestamp::now()))
}
