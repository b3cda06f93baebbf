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
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use ken_types::Error;
use ken_types::time::Timestamp;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::git_names::Names;
use crate::rel_path::{Layout, RelPath};
use crate::settings::Settings;
use crate::tree::{Node, Tree, Version, digest};

/// How long a change waits for another one to end, and after how long a person is told so.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
const TELL_AFTER: Duration = Duration::from_secs(1);
/// When whoever has waited in vain tries again.
const RETRY_AFTER_MS: u64 = 5_000;
/// The journal of a run is removed when its last change is older than this.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 3600);
/// The maximum size of all contents together, in bytes. Above it, the oldest runs are removed.
pub(crate) const MAX_BYTES: u64 = 1024 * 1024 * 1024;
/// The minimum time between two removals of old runs.
const PRUNE_INTERVAL: Duration = Duration::from_secs(3600);
/// The maximum number of new contents that are synced one by one. More are synced together.
const MAX_SINGLE_SYNCS: usize = 16;

/// A change, with the state of each file before and after it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
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
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) folders: Vec<RelPath>,
    /// The files that a command changed and that undo cannot put back, with the reason: by their paths, or by their names as
    /// people are shown them if a call cannot name them. While it runs, those whose contents are not stored.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) unsaved: BTreeMap<String, String>,
    /// The folders that a running command can change. `files` then lists all files in them. Empty for other changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) scope: Vec<RelPath>,
    /// What git ignored when a command began: its files with patterns. Only while the command runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) patterns: BTreeMap<RelPath, String>,
    /// The files that git takes programs from, as they were when a command began. Only while the command runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) guarded: Vec<Entry>,
    /// What the configurations of git named then.
    #[serde(default, skip_serializing_if = "Names::is_empty")]
    pub(crate) names: Names,
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
    /// The digest of the log of `refs/stash`, which the journal stores. All stashes but the newest are in it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stash: Option<String>,
    /// For a further work tree, the repository that has its refs. They are in the state of that one alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) main: Option<RelPath>,
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

/// What the file of the lock says about the change that holds it, for whoever waits. After a kill it stays until the next change.
#[derive(Debug, Serialize, Deserialize)]
struct Holder {
    command: String,
    folder: PathBuf,
    session: Option<String>,
    pid: u32,
    since: String,
}

impl Holder {
    /// Says who holds the lock, and the command that ends it.
    fn describe(lock: &Path) -> (String, Option<String>) {
        let holder = fs::read(lock).ok().and_then(|bytes| serde_json::from_slice::<Holder>(&bytes).ok());
        // It is not written yet, or there was no space.
        let Some(Holder { command, folder, session, pid, since }) = holder else {
            return ("another change of the workspace, or a command, is under way".to_owned(), None);
        };
        let of = session.as_ref().map(|session| format!(" of session {session}")).unwrap_or_default();
        let message = format!(
            "`{command}`{of} is under way in {} since {since} (process {pid}), and changes are made one at a time",
            folder.display()
        );
        (message, session.map(|session| format!("`ken cancel {session}` ends it")))
    }

    fn busy(lock: &Path) -> Error {
        let (message, cancel) = Holder::describe(lock);
        let later = "try again when it has ended".to_owned();
        Error::busy(message, RETRY_AFTER_MS).hint(cancel.map_or(later.clone(), |cancel| format!("{later}; {cancel}")))
    }
}

fn failed(path: &Path, error: impl std::fmt::Display) -> Error {
    Error::unavailable(format!("the journal: {}: {error}", path.display()))
}

impl Journal {
    pub(crate) fn reader(state: &Path) -> Journal {
        Journal { state: state.to_owned(), lock: None }
    }

    /// Opens the journal and takes its lock, for a command that works at `place`. Waits for a change that is in progress.
    pub(crate) fn lock(settings: &Settings, command: &str, place: &RelPath) -> Result<Journal, Error> {
        Journal::lock_or_tell(settings, command, place, |_| ())
    }

    /// The same; if it has to wait, `tell` is called once with the reason.
    pub(crate) fn lock_or_tell(
        settings: &Settings,
        command: &str,
        place: &RelPath,
        tell: impl FnOnce(&str),
    ) -> Result<Journal, Error> {
        let (path, begun, mut tell) = (settings.state.join("lock"), Instant::now(), Some(tell));
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(&path).map_err(|error| failed(&path, error))?;
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(rustix::io::Errno::WOULDBLOCK) if begun.elapsed() < LOCK_TIMEOUT => {
                    if begun.elapsed() >= TELL_AFTER
                        && let Some(tell) = tell.take()
                    {
                        let (message, cancel) = Holder::describe(&path);
                        tell(&[Some(message), cancel].into_iter().flatten().collect::<Vec<_>>().join("; "));
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(Holder::busy(&path)),
                Err(errno) => return Err(failed(&path, errno)),
            }
        }
        let holder = Holder {
            command: command.to_owned(),
            folder: place.names().fold(settings.root.clone(), |folder, name| folder.join(name)),
            session: settings.session.clone(),
            pid: std::process::id(),
            since: Timestamp::now().to_string(),
        };
        // Where there is no space for it the change goes on, and whoever waits is not told what for.
        let _ = lock.set_len(0);
        let _ = lock.write_all_at(&serde_json::to_vec(&holder).unwrap_or_default(), 0);
        Ok(Journal { state: settings.state.clone(), lock: Some(lock.into()) })
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

    fn run_folder(&self, record: &Record) -> PathBuf {
        self.state.join("journal").join(&record.run)
    }

    /// Makes the folder of the run, and returns the path that the record of a change has in it.
    fn ended(&self, record: &Record) -> Result<PathBuf, Error> {
        let folder = self.run_folder(record);
        fs::create_dir_all(&folder).map_err(|error| failed(&folder, error))?;
        Ok(folder.join(format!("{}.json", record.call)))
    }

    /// Writes the record of a change before it begins. The folder in which it ends is made now, while the change can still fail.
    pub(crate) fn begin(&self, record: &Record) -> Result<(), Error> {
        self.ended(record)?;
        write(&self.pending(record), &encoded(record), true).inspect_err(|_| self.forget(record))
    }

    /// Moves the record of a change that has ended out of `pending`.
    pub(crate) fn end(&self, record: &Record) -> Result<(), Error> {
        let (pending, path) = (self.pending(record), self.ended(record)?);
        write(&path, &encoded(record), true)?;
        match fs::remove_file(&pending) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(&pending, error)),
            _ => Ok(()),
        }
    }

    /// The same for a change whose record is as it was when it began. On a full disk a file can be renamed and none can be written.
    pub(crate) fn end_as_begun(&self, record: &Record) -> Result<(), Error> {
        let path = self.ended(record)?;
        let folder = self.run_folder(record);
        let moved = fs::rename(self.pending(record), &path).and_then(|()| File::open(folder)?.sync_all());
        moved.map_err(|error| failed(&path, error))
    }

    /// Removes the record of a change that was not made, and the folder of its run if that is empty.
    pub(crate) fn forget(&self, record: &Record) {
        let _ = fs::remove_file(self.pending(record));
        let _ = fs::remove_dir(self.run_folder(record));
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

    /// Returns all runs with the time of the last change of each, newest first. The folder of a run whose first change has not ended
    /// is empty.
    pub(crate) fn runs(&self) -> Result<Vec<(String, SystemTime)>, Error> {
        let folder = self.state.join("journal");
        let entries = fs::read_dir(&folder).map_err(|error| failed(&folder, error))?;
        let mut runs: Vec<(String, SystemTime)> = entries
            .flatten()
            .filter_map(|entry| {
                let changed = entry.metadata().ok()?.modified().ok()?;
                fs::read_dir(entry.path()).ok()?.next()?.ok()?;
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
        if is_due(age) {
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
        while let Some((run, _)) = runs.pop_if(|(_, at)| is_old(at)) {
            self.remove_run(&run)?;
            gone += 1;
        }
        loop {
            let (removed, bytes) = self.sweep(&runs)?;
            objects += removed;
            if bytes <= max || runs.is_empty() {
                return Ok((gone, objects));
            }
            // A tenth of the runs is removed at a time, because each sweep reads every record.
            let left = runs.len() - (runs.len() / 10).max(1);
            for (run, _) in runs.drain(left..).rev() {
                self.remove_run(&run)?;
                gone += 1;
            }
        }
    }

    /// Removes the runs of a session. Their contents are removed by the next [`Journal::prune`]. Returns how many runs were removed.
    pub(crate) fn remove_session(&self, session: &str) -> Result<usize, Error> {
        let mut removed = 0;
        for (run, _) in self.runs()? {
            if self.records(&run)?.iter().any(|record| record.session.as_deref() == Some(session)) {
                self.remove_run(&run)?;
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

    fn remove_run(&self, run: &str) -> Result<(), Error> {
        let folder = self.state.join("journal").join(run);
        fs::remove_dir_all(&folder).map_err(|error| failed(&folder, error))
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
            let git = record.git.into_iter().map(|change| change.before);
            needed.extend(git.flat_map(|before| before.index.into_iter().chain(before.stash)));
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

/// Whether old runs are removed again, this long after the last time.
fn is_due(age: Option<Duration>) -> bool {
    age.is_none_or(|age| age >= PRUNE_INTERVAL)
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
    if written.is_err() {
        let _ = fs::remove_file(&temporary); // on a full disk it has space that others need
    }
    written.map_err(|error| failed(path, error))
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    pub(crate) fn place(path: &str) -> RelPath {
        RelPath::parse(path).unwrap()
    }

    pub(crate) fn version(text: &str) -> Version {
        Version::of(text.as_bytes(), 0o644, false)
    }

    /// A change of a file from one text to another; `None` where there is no file.
    pub(crate) fn entry(path: &str, before: Option<&str>, after: Option<&str>) -> Entry {
        Entry { path: place(path), before: before.map(version), after: after.map(version) }
    }

    pub(crate) fn record(run: &str, call: &str, files: Vec<Entry>) -> Record {
        let text =
            serde_json::json!({"run": run, "call": call, "command": "edit", "root": "/w", "at": "", "files": []});
        Record { files, ..serde_json::from_value(text).unwrap() }
    }

    pub(crate) fn repository(repo: &str, head: &str, refs: &[(&str, &str)], index: &str) -> RepositoryState {
        RepositoryState {
            repo: place(repo),
            head: head.to_owned(),
            refs: refs.iter().map(|(name, id)| ((*name).to_owned(), (*id).to_owned())).collect(),
            index: Some(digest(index.as_bytes())),
            index_place: place(repo).join(".git/index"),
            staged: digest(format!("staged {index}").as_bytes()),
            stash: None,
            main: None,
        }
    }

    pub(crate) fn journal() -> (tempfile::TempDir, Journal) {
        let folder = tempfile::tempdir().unwrap();
        for name in ["objects", "pending", "journal", "plans", "git"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let settings = Settings::of_folders(folder.path(), folder.path()).unwrap();
        let journal = Journal::lock(&settings, "edit", &RelPath::default()).unwrap();
        (folder, journal)
    }

    fn keep(journal: &Journal, text: &str) -> bool {
        journal.keep(&digest(text.as_bytes()), text.as_bytes()).unwrap()
    }

    fn set_age(path: &Path, age: Duration) {
        let file = File::open(path).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_content_is_kept_once_and_its_damage_is_noticed() {
        let (folder, journal) = journal();
        assert!(keep(&journal, "one") && !keep(&journal, "one") && keep(&journal, "two"));
        let wanted = digest(b"one");
        assert!(journal.has(&wanted) && !journal.has(&digest(b"three")) && !journal.has("x"));
        assert_eq!(journal.content(&wanted).unwrap(), b"one");
        assert_eq!(journal.content(&digest(b"three")).unwrap_err().code, ken_types::Code::NotFound);
        fs::write(journal.object(&wanted), "onf").unwrap();
        assert!(journal.content(&wanted).unwrap_err().message.contains("damaged"));
        fs::remove_file(journal.object(&wanted)).unwrap();
        fs::create_dir(journal.object(&wanted)).unwrap();
        assert_eq!(journal.content(&wanted).unwrap_err().code, ken_types::Code::Unavailable);
        // Many are synced together, and one that is not there is noticed only where it is opened itself.
        for (count, is_ok) in [(MAX_SINGLE_SYNCS, false), (MAX_SINGLE_SYNCS + 1, true)] {
            assert_eq!(journal.sync(&vec!["absent".to_owned(); count]).is_ok(), is_ok, "{count}");
        }
        drop(folder);
    }

    #[test]
    fn a_change_is_pending_until_it_ends() {
        let (folder, journal) = journal();
        let one = record("run", "2", vec![entry("a", None, Some("x"))]);
        let other = record("run", "1", vec![]);
        journal.begin(&one).unwrap();
        journal.begin(&other).unwrap();
        fs::write(folder.path().join("pending/3.part"), "cut").unwrap();
        let calls = |records: Vec<Record>| records.into_iter().map(|record| record.call).collect::<Vec<_>>();
        assert_eq!(calls(journal.interrupted().unwrap()), ["1", "2"]);
        assert!(journal.records("run").unwrap().is_empty() && journal.runs().unwrap().is_empty());
        let third = record("third", "3", vec![]);
        journal.begin(&third).unwrap();
        journal.forget(&third);
        assert!(!folder.path().join("journal/third").exists());
        journal.end_as_begun(&one).unwrap();
        assert!(journal.end_as_begun(&one).is_err());
        journal.forget(&other);
        assert_eq!(
            (calls(journal.interrupted().unwrap()), calls(journal.records("run").unwrap())),
            (vec![], vec!["2".to_owned()])
        );
        // What ends without having been begun, such as an undo of refs, is recorded too.
        journal.end(&other).unwrap();
        assert_eq!(calls(journal.records("run").unwrap()), ["1", "2"]);
        fs::write(folder.path().join("journal/run/4.json"), "{").unwrap();
        assert!(journal.records("run").is_err(), "a record that cannot be read is not left out");
        fs::write(folder.path().join("journal/file"), "x").unwrap();
        assert!(journal.records("file").is_err());
    }

    /// The content of a file is kept as long as a record names it: that of a change that has begun or ended, that of the index of a
    /// repository, or that of a file in which git finds the programs that it runs.
    #[test]
    fn only_contents_that_no_record_names_are_removed() {
        let (_folder, journal) = journal();
        for text in ["ended", "pending", "index", "stash", "guarded", "after", "nobody"] {
            keep(&journal, text);
        }
        let mut ended =
            record("run", "1", vec![entry("a", Some("ended"), Some("after")), entry("b", None, Some("after"))]);
        let stash = Some(digest(b"stash"));
        let before = RepositoryState { stash, ..repository("repos/a", "ref: refs/heads/main", &[], "index") };
        ended.git = vec![GitChange { before, after: None }];
        journal.end(&ended).unwrap();
        let mut pending = record("other", "2", vec![entry("a", Some("pending"), None)]);
        pending.guarded = vec![entry("b", Some("guarded"), None)];
        journal.begin(&pending).unwrap();
        assert_eq!(journal.prune(MAX_AGE, MAX_BYTES).unwrap(), (0, 2));
        let left = ["ended", "pending", "index", "stash", "guarded", "after", "nobody"]
            .map(|text| journal.has(&digest(text.as_bytes())));
        assert_eq!(left, [true, true, true, true, true, false, false]);
        // What an unfinished change needs is kept, even where the limit is zero.
        assert_eq!(journal.prune(MAX_AGE, 0).unwrap(), (1, 3));
        assert_eq!(journal.prune(MAX_AGE, 0).unwrap(), (0, 0));
        assert!(journal.has(&digest(b"pending")) && journal.has(&digest(b"guarded")));
    }

    #[test]
    fn old_runs_go_by_age_and_then_by_size() {
        let (folder, journal) = journal();
        let runs = |journal: &Journal| journal.runs().unwrap().into_iter().map(|(run, _)| run).collect::<Vec<_>>();
        let content = |number: u32| format!("{number:0>100}");
        for number in 0..21u32 {
            let text = content(number);
            keep(&journal, &text);
            let run = format!("run{number:02}");
            journal.end(&record(&run, "1", vec![entry("a", Some(&text), None)])).unwrap();
            set_age(&folder.path().join("journal").join(run), HOUR * (number + 1) - HOUR / 2);
        }
        for (name, age) in [("plans/old", 4), ("plans/new", 2)] {
            fs::write(folder.path().join(name), "").unwrap();
            set_age(&folder.path().join(name), HOUR * age);
        }
        for (name, age) in [("git/old", 4), ("git/new", 2)] {
            fs::create_dir(folder.path().join(name)).unwrap();
            set_age(&folder.path().join(name), HOUR * age);
        }
        assert_eq!(journal.prune(HOUR * 20, MAX_BYTES).unwrap(), (1, 1));
        assert_eq!((runs(&journal).len(), &*runs(&journal)[0]), (20, "run00"));
        // A tenth of them at a time, until what is left fits exactly.
        assert_eq!(journal.prune(HOUR * 20, 1_800).unwrap(), (2, 2));
        assert_eq!(journal.prune(HOUR * 20, 1_800).unwrap(), (0, 0));
        assert_eq!(journal.prune(HOUR * 20, 1_799).unwrap(), (1, 1));
        assert_eq!(journal.prune(HOUR * 3, MAX_BYTES).unwrap(), (14, 14));
        assert_eq!(runs(&journal), ["run00", "run01", "run02"]);
        let there = ["plans/old", "plans/new", "git/old", "git/new"].map(|name| folder.path().join(name).exists());
        assert_eq!(there, [false, true, false, true]);
        // With a limit of zero, all of them are removed.
        assert_eq!(journal.prune(HOUR * 3, 0).unwrap(), (3, 3));
        assert!(runs(&journal).is_empty());
    }

    #[test]
    fn the_runs_of_a_session_go_with_it() {
        let (_folder, journal) = journal();
        for (run, call, session) in
            [("a", "1", None), ("a", "2", Some("s")), ("b", "1", Some("t")), ("c", "1", Some("s"))]
        {
            journal.end(&Record { session: session.map(str::to_owned), ..record(run, call, vec![]) }).unwrap();
        }
        assert_eq!(journal.remove_session("s").unwrap(), 2);
        assert_eq!(journal.runs().unwrap().into_iter().map(|(run, _)| run).collect::<Vec<_>>(), ["b"]);
        assert_eq!(journal.remove_session("s").unwrap(), 0);
    }

    #[test]
    fn old_runs_are_looked_for_once_an_hour() {
        for (age, is) in
            [(None, true), (Some(PRUNE_INTERVAL), true), (Some(PRUNE_INTERVAL - Duration::from_millis(1)), false)]
        {
            assert_eq!(is_due(age), is, "{age:?}");
        }
    }
}
