//! `ken audit verify`: checks whether the audit log is unchanged.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use ken_audit::{Verified, files, verify};
use ken_types::Error;
use ken_types::places::Places;

use crate::output::{Outcome, print_line};

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Check that no record was changed, and name the first one that was
    Verify(Verify),
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// Files of one log, in any order [default: the log of this system]
    pub(crate) files: Vec<PathBuf>,
    /// Require that the log contains a record with this hash
    #[arg(long, value_name = "HASH", value_parser = hash)]
    pub(crate) holds: Option<String>,
}

/// Prints one line: a summary of the verified records, or the first bad record. The exit status is 1 if there is a bad
/// record.
pub(crate) fn run(places: impl FnOnce() -> Result<Places, Error>, options: &Verify) -> Outcome {
    let files = match options.files.as_slice() {
        [] => all(&places()?.state.join("cognitive"))?,
        files => files.to_vec(),
    };
    let wanted = options.holds.as_deref().unwrap_or_default();
    let found = verify(&files, wanted)?;
    let (line, is_good) = match &found {
        Ok(verified) if verified.holds => (summary(verified), true),
        Ok(verified) => (format!("{}, but no record has the hash {wanted}", summary(verified)), false),
        Err(bad) => (bad.to_string(), false),
    };
    print_line(&line)?;
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn all(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let none = || Error::not_found(format!("there is no audit log below {}", dir.display()));
    match files(dir) {
        Ok(files) if !files.is_empty() => Ok(files),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::unavailable(format!("{}: {error}", dir.display())))
        }
        _ => Err(none().hint("ken-cognitive writes one; or name the files")),
    }
}

fn summary(verified: &Verified) -> String {
    match verified.records {
        0 => "good: no records".to_owned(),
        count => format!(
            "good: {count} records, {} to {}; the last is {}",
            verified.first,
            verified.last.seq,
            verified.last.hash_text()
        ),
    }
}

/// Checks a SHA-256 digest in hexadecimal, and converts it to lower case for comparison.
fn hash(text: &str) -> Result<String, String> {
    if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(String::from("a hash has 64 digits, 0-9 and a-f"))
    }
}
