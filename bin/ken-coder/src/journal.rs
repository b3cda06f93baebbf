//! The journal stores what each change replaced, so that the change can be undone. It is outside the workspace, where
//! no command can access it:
//!
//! - `objects/ab/abcd…`: contents, by digest;
//! - `pending/CALL.json`: a change that has begun and may not have ended;
//! - `journal/RUN/CALL.json`: a change that has ended.
//!
//! The record of a change is on disk before the change begins. It leaves `pending` when the change has ended. A file
//! that is replaced is moved to `objects`. Files that a command could replace are copied there before the command
//! starts.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use ken_types::Error;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::rel_path::{Layout, RelPath};
use crate::tree::{Node, Tree, Version, digest};

/// How long a change waits for another one to end.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
/// The journal of a run is removed when its last change is older than this.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 3600);
/// The maximum size of all contents together, in bytes. Above it, the oldest runs are removed.
pub(crate) const MAX_BYTES: u64 = 1024 * 1024 * 1024;
/// The minimum time between two removals of old runs.
const PRUNE_INTERVAL: Duration = Duration::from_secs(3600);
/// The maximum number of new contents that are synced one by one. More are synced together.
const MAX_SINGLE_SYNCS: usize = 16;

/// A change, with the state of each file before and after it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) run: String,
    /// A ULID, so that records sort by time.
    pub(crate) call: String,
    /// The command, such as `edit`.
    pub(crate) command: String,
    /// The path of the workspace or trusted folder.
    pub(crate) root: PathBuf,
    #[serde(default, skip_serializing_if = "Layout::is_workspace")]
    pub(crate) layout: Layout,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<String>,
    /// The time at which it began, in RFC 3339.
    pub(crate) at: String,
    pub(crate) files: Vec<Entry>,
    /// The folders that it created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) folders: Vec<RelPath>,
    /// The folders that a running command can change. `files` then lists all files in them. Empty for other changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) scope: Vec<RelPath>,
    /// What git ignored when a command began: its files with patterns. Only while the command runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) patterns: BTreeMap<RelPath, String>,
    /// The files that git takes programs from, as they were when a command began. Only while the command runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) guarded: Vec<Entry>,
    /// The repositories whose refs, `HEAD` or index it has changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) git: Vec<GitChange>,
    /// Whether the change was interrupted before its end was recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) interrupted: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) path: RelPath,
    /// `None` if the file did not exist.
    pub(crate) before: Option<Version>,
    pub(crate) after: Option<Version>,
}

/// A repository at a point in time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RepositoryState {
    pub(crate) repo: RelPath,
    pub(crate) head: String,
    /// The refs, except those that only record what a remote has.
    pub(crate) refs: BTreeMap<String, String>,
    /// The digest of the index file, which the journal stores, and that of the entries in it. Git rewrites the file
    /// without changing an entry, so only the second one shows a change.
    pub(crate) index: Option<String>,
    pub(crate) index_place: RelPath,
    pub(crate) staged: String,
}

/// A repository before and after a change.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct GitChange {
    pub(crate) before: RepositoryState,
    /// `None` if the change was interrupted.
    pub(crate) after: Option<RepositoryState>,
}

/// The journal, with the lock that is needed to change the workspace.
#[derive(Debug)]
pub(crate) struct Journal {
    state: PathBuf,
    /// `None` for a reader, which needs no lock.
    lock: Option<OwnedFd>,
}

fn failed(path: &Path, error: impl std::fmt::Display) -> Error {
    Error::unavailable(format!("the journal: {}: {error}", path.display()))
}

impl Journal {
    pub(crate) fn reader(state: &Path) -> Journal {
        Journal { state: state.to_owned(), lock: None }
    }

    /// Opens the journal and takes its lock. Waits for a change that is in progress.
    pub(crate) fn lock(state: &Path) -> Result<Journal, Error> {
        let path = state.join("lock");
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let lock = OwnedFd::from(options.open(&path).map_err(|error| failed(&path, error))?);
        let end = Instant::now() + LOCK_TIMEOUT;
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let message = "another change of the workspace, or a command, is under way";
                    return Err(Error::busy(message, 5_000));
                }
                Err(errno) => return Err(failed(&path, errno)),
            }
        }
        Ok(Journal { state: state.to_owned(), lock: Some(lock) })
    }

    /// The lock is held until every copy of this descriptor is closed.
    pub(crate) fn lock_descriptor(&self) -> Option<&OwnedFd> {
        self.lock.as_ref()
    }

    fn object(&self, digest: &str) -> PathBuf {
        let (folder, _) = digest.split_at(2.min(digest.len()));
        self.state.join("objects").join(folder).join(digest)
    }

    pub(crate) fn has(&self, digest: &str) -> bool {
        self.object(digest).exists()
    }

    /// Stores a copy of a content. Returns whether it is new. Until `sync`, a power failure can lose it.
    pub(crate) fn keep(&self, digest: &str, bytes: &[u8]) -> Result<bool, Error> {
        self.store(digest, |path| write(path, bytes, false))
    }

    /// Moves the replaced file, which has the temporary name `staged` beside `place`, into the journal. Moving avoids
    /// copying its content, and removing a file, which can take milliseconds. A link, or a file of another file system,
    /// is copied. Returns the digest if the content is new.
    pub(crate) fn adopt(
        &self,
        tree: &Tree,
        place: &RelPath,
        staged: &str,
        old: &Node,
    ) -> Result<Option<String>, Error> {
        let digest = &old.version.digest;
        let mut is_moved = false;
        let is_new = self.store(digest, |path| {
            is_moved = !old.version.link && tree.move_out(place, staged, path).is_ok();
            if is_moved { Ok(()) } else { write(path, &old.bytes, true) }
        })?;
        if !is_moved {
            tree.discard(place, staged);
        }
        Ok(is_new.then(|| digest.clone()))
    }

    fn store(&self, digest: &str, put: impl FnOnce(&Path) -> Result<(), Error>) -> Result<bool, Error> {
        let path = self.object(digest);
        if path.exists() {
            return Ok(false);
        }
        let folder = path.parent().unwrap_or(&self.state);
        if !folder.exists() {
            fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
        }
        put(&path).map(|()| true)
    }

    /// Reads a stored content and verifies its digest.
    pub(crate) fn content(&self, wanted: &str) -> Result<Vec<u8>, Error> {
        let path = self.object(wanted);
        let bytes = fs::read(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::not_found("its content is no longer in the journal"),
            _ => failed(&path, error),
        })?;
        if digest(&bytes) == wanted { Ok(bytes) } else { Err(failed(&path, "the content is damaged")) }
    }

    /// Syncs stored contents to the disk.
    pub(crate) fn sync(&self, digests: &[String]) -> Result<(), Error> {
        if digests.len() > MAX_SINGLE_SYNCS {
            let folder = File::open(&self.state).map_err(|error| failed(&self.state, error))?;
            return rustix::fs::syncfs(&folder).map_err(|errno| failed(&self.state, errno));
        }
        for digest in digests {
            let path = self.object(digest);
            // The file and its name in the folder: either can be lost without the other.
            for path in [path.as_path(), path.parent().unwrap_or(&self.state)] {
                let synced = File::open(path).and_then(|file| file.sync_all());
                synced.map_err(|error| failed(path, error))?;
            }
        }
        Ok(())
    }

    fn pending(&self, record: &Record) -> PathBuf {
        self.state.join("pending").join(format!("{}.json", record.call))
    }

    /// Writes the record of a change before it begins.
    pub(crate) fn begin(&self, record: &Record) -> Result<(), Error> {
        let path = self.pending(record);
        write(&path, &encoded(record), true)
    }

    /// Moves the record of a change that has ended out of `pending`.
    pub(crate) fn end(&self, record: &Record) -> Result<(), Error> {
        let folder = self.state.join("journal").join(&record.run);
        fs::create_dir_all(&folder).map_err(|error| failed(&folder, error))?;
        let (pending, path) = (self.pending(record), folder.join(format!("{}.json", record.call)));
        write(&path, &encoded(record), true)?;
        match fs::remove_file(&pending) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(&pending, error)),
            _ => Ok(()),
        }
    }

    /// Removes the record of a change that was not made.
    pub(crate) fn forget(&self, record: &Record) {
        let _ = fs::remove_file(self.pending(record));
    }

    /// Returns the records of interrupted changes. The caller must hold the lock, because otherwise such a change could
    /// still be running.
    pub(crate) fn interrupted(&self) -> Result<Vec<Record>, Error> {
        records(&self.state.join("pending"))
    }

    /// Returns the records of a run, oldest first, or none if the run is unknown.
    pub(crate) fn records(&self, run: &str) -> Result<Vec<Record>, Error> {
        records(&self.state.join("journal").join(run))
    }

    /// Returns all runs with the time of the last change of each, newest first.
    pub(crate) fn runs(&self) -> Result<Vec<(String, SystemTime)>, Error> {
        let folder = self.state.join("journal");
        let entries = fs::read_dir(&folder).map_err(|error| failed(&folder, error))?;
        let mut runs: Vec<(String, SystemTime)> = entries
            .flatten()
            .filter_map(|entry| {
                let changed = entry.metadata().ok()?.modified().ok()?;
                Some((entry.file_name().into_string().ok()?, changed))
            })
            .collect();
        runs.sort_by(|(name, at), (other, other_at)| other_at.cmp(at).then(other.cmp(name)));
        Ok(runs)
    }

    /// Removes runs that are too old or beyond the size limit, at most once per `PRUNE_INTERVAL`.
    pub(crate) fn prune_sometimes(&self) {
        let mark = self.state.join("pruned");
        let age = fs::metadata(&mark).and_then(|about| about.modified()).ok().and_then(|at| at.elapsed().ok());
        if age.is_none_or(|age| age >= PRUNE_INTERVAL) {
            // An error is ignored, because the change itself succeeded.
            let _ = self.prune(MAX_AGE, MAX_BYTES);
            let _ = fs::write(&mark, "");
        }
    }

    /// Removes the runs that are older than `kept`, then the oldest ones while all contents together take more than
    /// `max` bytes. Returns how many runs and contents were removed.
    pub(crate) fn prune(&self, kept: Duration, max: u64) -> Result<(usize, usize), Error> {
        let is_old = |at: &SystemTime| at.elapsed().is_ok_and(|age| age > kept);
        for plan in self.older("plans", &is_old) {
            let _ = fs::remove_file(plan);
        }
        // The objects of repositories that no run has changed since.
        for folder in self.older("git", &is_old) {
            let _ = fs::remove_dir_all(folder);
        }
        let mut runs = self.runs()?;
        let (mut gone, mut objects) = (0, 0);
        while runs.last().is_some_and(|(_, at)| is_old(at)) {
            gone += usize::from(self.remove_oldest(&mut runs)?);
        }
        loop {
            let (removed, bytes) = self.sweep(&runs)?;
            objects += removed;
            if bytes <= max || runs.is_empty() {
                return Ok((gone, objects));
            }
            // A tenth of the runs is removed at a time, because each sweep reads every record.
            for _ in 0..(runs.len() / 10).max(1) {
                gone += usize::from(self.remove_oldest(&mut runs)?);
            }
        }
    }

    /// Removes the runs of a session. Their contents are removed by the next [`Journal::prune`]. Returns how many runs were removed.
    pub(crate) fn remove_session(&self, session: &str) -> Result<usize, Error> {
        let mut removed = 0;
        for (run, _) in self.runs()? {
            if self.records(&run)?.iter().any(|record| record.session.as_deref() == Some(session)) {
                let folder = self.state.join("journal").join(run);
                fs::remove_dir_all(&folder).map_err(|error| failed(&folder, error))?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Returns the entries of a folder whose last change is this old.
    fn older(&self, folder: &str, is_old: &dyn Fn(&SystemTime) -> bool) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.state.join(folder)).into_iter().flatten().flatten();
        let modified = |entry: &fs::DirEntry| entry.metadata().and_then(|about| about.modified());
        entries.filter(|entry| modified(entry).is_ok_and(|at| is_old(&at))).map(|entry| entry.path()).collect()
    }

    fn remove_oldest(&self, runs: &mut Vec<(String, SystemTime)>) -> Result<bool, Error> {
        let Some((run, _)) = runs.pop() else {
            return Ok(false);
        };
        let folder = self.state.join("journal").join(run);
        fs::remove_dir_all(&folder).map_err(|error| failed(&folder, error))?;
        Ok(true)
    }

    /// Removes the contents that no record refers to. Returns how many were removed, and the total size in bytes of the
    /// others.
    fn sweep(&self, runs: &[(String, SystemTime)]) -> Result<(usize, u64), Error> {
        let mut needed = HashSet::new();
        let mut records = self.interrupted()?;
        for (run, _) in runs {
            records.extend(self.records(run)?);
        }
        for record in records {
            needed.extend(record.git.into_iter().filter_map(|change| change.before.index));
            needed
                .extend(record.files.into_iter().chain(record.guarded).filter_map(|entry| Some(entry.before?.digest)));
        }
        let (mut removed, mut bytes) = (0, 0);
        let folder = self.state.join("objects");
        let folders = fs::read_dir(&folder).map_err(|error| failed(&folder, error))?;
        for object in folders.flatten().flat_map(|folder| fs::read_dir(folder.path()).into_iter().flatten().flatten()) {
            let name = object.file_name();
            if name.to_str().is_some_and(|name| needed.contains(name)) {
                bytes += object.metadata().map_or(0, |about| about.len());
            } else if fs::remove_file(object.path()).is_ok() {
                removed += 1;
            }
        }
        Ok((removed, bytes))
    }

    /// Replaces a file of the journal. After a power failure, the old file may be back.
    pub(crate) fn replace(&self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        write(path, bytes, false)
    }

    /// Replaces a file of the journal. When this returns, the new file is on disk.
    pub(crate) fn replace_durably(&self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        write(path, bytes, true)
    }
}

fn records(folder: &Path) -> Result<Vec<Record>, Error> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(folder, error)),
    };
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .collect();
    paths.sort();
    let read = |path: PathBuf| {
        let bytes = fs::read(&path).map_err(|error| failed(&path, error))?;
        serde_json::from_slice(&bytes).map_err(|error| failed(&path, error))
    };
    paths.into_iter().map(read).collect()
}

fn encoded(record: &Record) -> Vec<u8> {
    serde_json::to_vec(record).unwrap_or_default()
}

/// Writes a file atomically: under a temporary name, then renamed.
fn write(path: &Path, bytes: &[u8], sync: bool) -> Result<(), Error> {
    let temporary = path.with_extension("part");
    let folder = path.parent().unwrap_or(path);
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options.open(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        if sync {
            file.sync_all()?;
        }
        fs::rename(&temporary, path)?;
        if sync { File::open(folder)?.sync_all() } else { Ok(()) }
    });
    written.map_err(|error| failed(path, error))
}
