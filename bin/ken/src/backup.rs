//! `ken backup` and `ken restore`: copy the database to a file, and replace it with such a copy.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Args;
use ken_types::places::Places;
use ken_types::{Code, Error, Timestamp};

use crate::client::connect;
use crate::output::{Outcome, print_line};
use crate::progress::during;

#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// File to write, which must not exist
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// File that `ken backup` has written
    pub(crate) file: PathBuf,
}

pub(crate) fn backup(places: &Places, args: &Backup) -> Outcome {
    let database = database(&places.state.join("store"));
    let from = database.as_os_str();
    during("copying the database", || store(&[OsStr::new("--backup"), from, args.file.as_os_str()]))?;
    let bytes = std::fs::metadata(&args.file).map_or(0, |meta| meta.len());
    print_line(&format!("{}: {bytes} bytes", args.file.display()))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn restore(places: &Places, args: &Restore) -> Outcome {
    if connect(&places.socket("kend"), "kend").is_ok() {
        return Err(Error::conflict("the system runs").hint("stop it first: ken down"));
    }
    let check = [OsStr::new("--check"), args.file.as_os_str()];
    during("checking the backup", || store(&check))?;
    let folder = places.state.join("store");
    let kept = set_aside(&folder).map_err(|error| wrong(&folder, &error))?;
    during("copying the database", || put(&args.file, &folder)).map_err(|error| wrong(&args.file, &error))?;
    match kept {
        Some(kept) => print_line(&format!("restored; the previous data is in {}", kept.display()))?,
        None => print_line("restored")?,
    }
    Ok(ExitCode::SUCCESS)
}

fn database(folder: &Path) -> PathBuf {
    folder.join("ken.db")
}

fn wrong(path: &Path, error: &io::Error) -> Error {
    Error::unavailable(format!("{}: {error}", path.display()))
}

/// Runs ken-store with these arguments, because only ken-store knows the format of the database.
fn store(args: &[&OsStr]) -> Result<(), Error> {
    let path = ken_tool::find_program("ken-store")
        .ok_or_else(|| Error::unavailable("there is no ken-store beside ken or on PATH"))?;
    let output = Command::new(&path).args(args).stdin(Stdio::null()).output();
    let output = output.map_err(|error| wrong(&path, &error))?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    let code = if output.status.code() == Some(2) { Code::Invalid } else { Code::Unavailable };
    let message = message.trim().trim_start_matches("ken-store: ").replace('\n', " ");
    Err(Error::new(code, message))
}

/// Renames the folder of the database and creates an empty one in its place. Returns the new path of the old folder, or
/// `None` if there was none.
fn set_aside(folder: &Path) -> io::Result<Option<PathBuf>> {
    let kept = match folder.exists() {
        true => {
            let now = Timestamp::now().to_string().replace(':', "-");
            let kept = folder.with_file_name(format!("store.before-restore-{now}"));
            std::fs::rename(folder, &kept)?;
            Some(kept)
        }
        false => None,
    };
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    Ok(kept)
}

/// Copies the backup into the database folder and syncs the file and the folder to disk.
fn put(file: &Path, folder: &Path) -> io::Result<()> {
    let database = database(folder);
    let mut to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&database)?;
    io::copy(&mut File::open(file)?, &mut to)?;
    to.sync_all()?;
    File::open(folder)?.sync_all()
}
