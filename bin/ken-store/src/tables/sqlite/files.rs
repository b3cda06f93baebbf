//! The files of a database: whether they are still those that SQLite has open, and whether they hold everything that was acknowledged.
//!
//! While the store runs, only SQLite may open the database, its log and its index. close(2) drops all POSIX locks that the process holds on
//! a file, whichever of its descriptors is closed. SQLite would then hold no lock, and the next `sqlite3` that looks at the database would
//! take itself for the last user and remove the log. So these functions use stat(2), or run before SQLite has opened the files.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ken_types::{Code, Error, Timestamp};

/// Returns the path of a file beside another one.
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

pub(super) fn log_path(database: &Path) -> PathBuf {
    beside(database, "-wal")
}

/// Returns the length of a file; 0 if there is none.
pub(super) fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |meta| meta.len())
}

/// Returns an error for a problem that trying again does not solve (exit status 2).
pub(super) fn refuse(path: &Path, what: impl std::fmt::Display) -> Error {
    Error::new(Code::Invalid, format!("{}: {what}", path.display()))
}

/// Returns an error for a problem that may disappear by itself (exit status 75).
pub fn temporary_error(path: &Path, what: impl std::fmt::Display) -> Error {
    Error::unavailable(format!("{}: {what}", path.display()))
}

/// The device and the inode of a file; `None` if there is no such file.
type Identity = Option<(u64, u64)>;

fn identity(path: &Path) -> Identity {
    std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// The database and its log, as they were when SQLite had just opened them.
#[derive(Debug)]
pub(super) struct OpenFiles {
    database: (PathBuf, Identity),
    log: (PathBuf, Identity),
}

/// A file that SQLite has open is no longer at its path.
#[derive(Debug)]
pub(super) struct Moved {
    pub(super) path: PathBuf,
    /// Whether the log can still be copied into the database: only its name has gone, and nobody has written another log.
    pub(super) can_copy: bool,
}

impl OpenFiles {
    pub(super) fn of(database: &Path) -> OpenFiles {
        let named = |path: PathBuf| (path.clone(), identity(&path));
        OpenFiles { database: named(database.to_owned()), log: named(log_path(database)) }
    }

    /// Compares the files at the paths with those that SQLite has open, with two calls of stat(2).
    pub(super) fn moved(&self) -> Option<Moved> {
        let has_moved = |(path, ours): &(PathBuf, Identity)| identity(path) != *ours;
        if has_moved(&self.database) {
            return Some(Moved { path: self.database.0.clone(), can_copy: false });
        }
        let path = &self.log.0;
        has_moved(&self.log).then(|| Moved { path: path.clone(), can_copy: length(path) == 0 })
    }
}

/// The number of the last acknowledged change, in a small file beside the database. SQLite drops the unreadable part of a damaged log
/// without a word, and takes a missing log for an empty one; only this file tells that there was more.
///
/// The number is written after each commit and before its answer, and not synced. After a kill it is exact. After a power failure it may be
/// older than the database, which was synced, but never newer: then it tells less, but nothing wrong.
#[derive(Debug)]
pub(super) struct Acknowledged {
    file: File,
}

impl Acknowledged {
    fn path(database: &Path) -> PathBuf {
        beside(database, ".acknowledged")
    }

    /// Reads the number; 0 if there is no file yet.
    pub(super) fn read(database: &Path) -> Result<u64, Error> {
        let path = Acknowledged::path(database);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(refuse(&path, format_args!("cannot be read: {error}"))),
        };
        text.trim().parse().map_err(|_| {
            let hint = "check the database with ken-store --check, then remove this file";
            refuse(&path, "damaged: it is not the number of a change").hint(hint)
        })
    }

    /// Replaces the file, durably and at once, so that a kill leaves the old or the new one.
    pub(super) fn create(database: &Path, newest: u64) -> std::io::Result<Acknowledged> {
        let (path, fresh) = (Acknowledged::path(database), beside(database, ".acknowledged.new"));
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        let acknowledged = Acknowledged { file };
        acknowledged.write(newest)?;
        keep(&fresh, &path)?;
        Ok(acknowledged)
    }

    /// Records a change that is about to be acknowledged. If that fails, the change is durable all the same, and only the next start knows
    /// less.
    pub(super) fn record(&self, newest: u64) {
        if let Err(error) = self.write(newest) {
            tracing::warn!(newest, "the number of the last change could not be written: {error}");
        }
    }

    /// Writes the number with a fixed width, so that one short write replaces it.
    fn write(&self, newest: u64) -> std::io::Result<()> {
        self.file.write_all_at(format!("{newest:020}\n").as_bytes(), 0)
    }
}

/// Records durably that acknowledged changes are missing, and keeps a copy of the log, of which SQLite will overwrite what it cannot read.
/// The record stays until a person removes it. No connection to the database may be open.
pub(super) fn record_loss(database: &Path, newest: u64, acknowledged: u64) -> std::io::Result<()> {
    let (log, now) = (log_path(database), Timestamp::now());
    let copy = beside(&log, &format!("{DAMAGED}{}", now.millis()));
    let kept = if length(&log) > 0 {
        std::fs::copy(&log, &copy)?;
        format!("; the log as it was found is kept as {}", copy.display())
    } else {
        String::new()
    };
    let what = format!(
        "acknowledged changes are missing: the newest one is {newest}, but change {acknowledged} had been acknowledged{kept}"
    );
    tracing::error!("{}: {what}", database.display());
    let path = beside(database, ".changes-lost");
    let mut record = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
    writeln!(record, "{now} {what}")?;
    record.sync_all()?;
    sync_folder(&path)
}

/// The end of the names of copies of damaged logs, without their times.
const DAMAGED: &str = ".damaged-";

/// Removes the copies that [`record_loss`] has made.
pub(super) fn remove_damaged_logs(database: &Path) -> std::io::Result<()> {
    let prefix = beside(&log_path(database), DAMAGED);
    let Some(folder) = database.parent() else { return Ok(()) };
    for file in std::fs::read_dir(folder)? {
        let path = file?.path();
        if path.as_os_str().as_encoded_bytes().starts_with(prefix.as_os_str().as_encoded_bytes()) {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Gives a finished file its name. The content is synced before the name, and the name in its folder last: after a loss of power the name
/// leads to a whole file or to nothing.
pub fn keep(fresh: &Path, path: &Path) -> std::io::Result<()> {
    File::open(fresh)?.sync_all()?;
    std::fs::rename(fresh, path)?;
    sync_folder(path)
}

fn sync_folder(path: &Path) -> std::io::Result<()> {
    // The parent of a name alone is empty.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_removed_or_replaced_has_moved() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("ken.db");
        let log = log_path(&database);
        for (path, text) in [(&database, "d"), (&log, "w")] {
            std::fs::write(path, text).unwrap();
        }
        let open = OpenFiles::of(&database);
        assert!(open.moved().is_none());
        let _keeps_its_inode = File::open(&log).unwrap();
        std::fs::remove_file(&log).unwrap();
        assert!(open.moved().is_some_and(|moved| moved.path == log && moved.can_copy));
        std::fs::write(&log, "").unwrap();
        assert!(open.moved().is_some_and(|moved| moved.can_copy));
        std::fs::write(&log, "another").unwrap();
        assert!(open.moved().is_some_and(|moved| !moved.can_copy));
        std::fs::remove_file(&database).unwrap();
        assert!(open.moved().is_some_and(|moved| moved.path == database && !moved.can_copy));
    }
}
