//! Opens the files that decide what kend runs. They have to be regular files that nobody but their owner can change, and
//! the owner has to be the user of kend or root: otherwise kend would run what another user says.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::unistd::geteuid;

use crate::problem::Problem;

/// No configuration is larger.
const LIMIT_BYTES: u64 = 4 * 1024 * 1024;
/// The permission bits that let group and others write.
const OTHERS_WRITE: u32 = 0o022;
/// A folder in which only the owner of a file can remove or rename it, as in /tmp.
const STICKY: u32 = 0o1000;

/// Who may have access to a file besides its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Others {
    MayRead,
    Nothing,
}

/// The text of a file; `None` if there is no such file.
pub(crate) fn read(path: &Path, others: Others) -> Result<Option<String>, Problem> {
    let failed = |error: std::io::Error| Problem::whole(path, format!("cannot be read: {error}"));
    let mut options = OpenOptions::new();
    // Opening a FIFO must not wait for a writer.
    options.read(true).custom_flags(OFlag::O_NONBLOCK.bits());
    let file = match options.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let meta = file.metadata().map_err(failed)?;
    check_file(path, &meta, others)?;
    Ok(Some(read_all(file, path)?))
}

fn read_all(file: File, path: &Path) -> Result<String, Problem> {
    let mut text = String::new();
    let read = file.take(LIMIT_BYTES + 1).read_to_string(&mut text);
    read.map_err(|error| Problem::whole(path, format!("cannot be read: {error}")))?;
    match text.len() as u64 > LIMIT_BYTES {
        true => Err(Problem::whole(path, format!("has more than {LIMIT_BYTES} bytes"))),
        false => Ok(text),
    }
}

fn check_file(path: &Path, meta: &Metadata, others: Others) -> Result<(), Problem> {
    if !meta.is_file() {
        let problem = Problem::whole(path, "is not a regular file");
        return Err(problem.hint("put a file in its place, or remove it"));
    }
    check_owner(path, meta)?;
    let mode = meta.mode() & 0o777;
    if others == Others::Nothing && mode & 0o077 != 0 {
        let problem = Problem::whole(path, format!("has mode {mode:04o}, others can read it"));
        return Err(problem.hint(format!("chmod 600 {}", path.display())));
    }
    check_mode(path, mode)
}

/// Checks the folder in which the configuration lies: whoever can write there can replace the files. One that does not
/// exist is fine.
pub(crate) fn check_folder(path: &Path) -> Result<(), Problem> {
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Problem::whole(path, format!("cannot be read: {error}"))),
    };
    if !meta.is_dir() {
        return Err(Problem::whole(path, "is not a folder"));
    }
    check_owner(path, &meta)?;
    match meta.mode() & STICKY == 0 {
        true => check_mode(path, meta.mode() & 0o777),
        false => Ok(()),
    }
}

fn check_owner(path: &Path, meta: &Metadata) -> Result<(), Problem> {
    let (owner, own) = (meta.uid(), geteuid().as_raw());
    if owner == 0 || owner == own {
        return Ok(());
    }
    let message = format!("belongs to the user with id {owner}, who is neither root nor the user of kend");
    Err(Problem::whole(path, message).hint(format!("chown {own} {}", path.display())))
}

fn check_mode(path: &Path, mode: u32) -> Result<(), Problem> {
    if mode & OTHERS_WRITE == 0 {
        return Ok(());
    }
    let message = format!("has mode {mode:04o}, others can change it");
    Err(Problem::whole(path, message).hint(format!("chmod go-w {}", path.display())))
}
