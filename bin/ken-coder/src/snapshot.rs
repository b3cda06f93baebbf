//! Finds out what a command has changed. The files that it can change are stored before it runs, and compared
//! afterwards.
//!
//! Files that git ignores are left out, because they can be generated again, unless git tracks them. What counts is what
//! git tracked and ignored when the command began: otherwise a command could write a `.gitignore` that hides what it does
//! from then on. A file whose content is in the journal is not read again if its size, times and inode number have not changed since it was read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;

use ken_types::Error;
use rustix::fs::{FileType, Stat};
use serde::{Deserialize, Serialize};

use crate::change::{MAX_FILE, roll_back};
use crate::git_guard::GitFolders;
use crate::journal::{Entry, Journal, Record};
use crate::rel_path::RelPath;
use crate::settings::Settings;
use crate::tree::{Links, Tree, Version};
use crate::walk::{Ignored, Patterns, place_of, walk};

/// The maximum number of files in a snapshot, and of bytes that it adds to the journal.
const MAX_FILES: usize = 20_000;
const NEW_BYTES: u64 = 256 * 1024 * 1024;
/// The coarsest granularity of file times, in nanoseconds. If a file is read within this time after a change, a second
/// change might leave the same time stamps.
const TICK: i128 = 50_000_000;

/// The metadata that shows whether a file has been changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    bytes: i64,
    number: u64,
    mode: u32,
    modified: i128,
    changed: i128,
}

impl Stamp {
    fn of(stat: &Stat) -> Stamp {
        let nanoseconds = |seconds: i64, rest: u64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        Stamp {
            bytes: stat.st_size,
            number: stat.st_ino,
            mode: stat.st_mode,
            modified: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            changed: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

/// A file that has been read, with the time of reading.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct KnownFile {
    stamp: Stamp,
    version: Version,
    at: i128,
}

impl KnownFile {
    /// Whether a file with this stamp certainly still has the content that was read.
    fn is_current(&self, stamp: &Stamp) -> bool {
        self.stamp == *stamp && self.stamp.changed + TICK < self.at
    }
}

fn now() -> i128 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| i128::try_from(since.as_nanos()).unwrap_or(i128::MAX))
}

/// The files below some folders at a point in time.
#[derive(Debug)]
pub(crate) struct Snapshot {
    files: BTreeMap<RelPath, KnownFile>,
    /// Files whose content is not stored: those beyond the limits, and those that are not regular files.
    unsaved: BTreeSet<RelPath>,
    folders: BTreeSet<RelPath>,
    patterns: Patterns,
    at: i128,
}

impl Snapshot {
    /// Takes a snapshot, and stores the contents of the files in the journal.
    pub(crate) fn take(
        settings: &Settings,
        tree: &Tree,
        journal: &Journal,
        scope: &[RelPath],
        tracked: &BTreeSet<RelPath>,
    ) -> Result<Snapshot, Error> {
        let notes = settings.file_of_root("seen");
        let mut known: BTreeMap<RelPath, KnownFile> =
            fs::read(&notes).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        let ignored = Ignored::on_disk(settings)?;
        let (mut places, folders) = find_files(settings, scope, &ignored);
        places.extend(
            tracked.iter().filter(|place| tree.kind(place).is_some_and(|kind| kind != FileType::Directory)).cloned(),
        );
        let patterns = ignored.patterns();
        let mut snapshot = Snapshot { files: BTreeMap::new(), unsaved: BTreeSet::new(), folders, patterns, at: 0 };
        let (mut new, mut new_bytes) = (Vec::new(), 0);
        for place in places {
            let saved = if snapshot.files.len() < MAX_FILES && new_bytes < NEW_BYTES {
                read_file(tree, journal, &place, known.get(&place))
            } else {
                None
            };
            match saved {
                Some((seen, bytes)) => {
                    if bytes > 0 {
                        new_bytes += bytes;
                        new.push(seen.version.digest.clone());
                    }
                    snapshot.files.insert(place, seen);
                }
                None => {
                    snapshot.unsaved.insert(place);
                }
            }
        }
        journal.sync(&new)?;
        // Data about files in other folders is kept.
        known.retain(|place, _| !scope.iter().any(|folder| place.is_in(folder)));
        known.extend(snapshot.files.clone());
        journal.replace(&notes, &serde_json::to_vec(&known).unwrap_or_default())?;
        snapshot.at = now();
        Ok(snapshot)
    }

    /// Returns what git ignored.
    pub(crate) fn patterns(&self) -> Patterns {
        self.patterns.clone()
    }

    /// Returns the files for the record of a command that is about to start.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let entry = |(path, seen): (&RelPath, &KnownFile)| Entry {
            path: path.clone(),
            before: Some(seen.version.clone()),
            after: None,
        };
        self.files.iter().map(entry).collect()
    }

    /// Returns the changes since the snapshot.
    pub(crate) fn changes(&self, settings: &Settings, tree: &Tree, scope: &[RelPath]) -> Differences {
        let before = |place: &RelPath| match self.files.get(place) {
            Some(seen) => Before::Present(seen.version.clone(), Some(seen.clone())),
            None if self.unsaved.contains(place) => Before::Unknown,
            None => Before::Absent,
        };
        let known = self.files.keys().chain(&self.unsaved);
        let ignored = Ignored::recorded(&self.patterns);
        let mut found = differences(settings, tree, (scope, &ignored), self.at, known, &before);
        found.folders.retain(|folder| !self.folders.contains(folder));
        found
    }
}

/// What a command has changed.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    pub(crate) files: Vec<Entry>,
    /// New folders.
    pub(crate) folders: Vec<RelPath>,
    /// Files that seem to have changed and whose old content is not in the journal.
    pub(crate) unsaved: Vec<RelPath>,
}

enum Before {
    Absent,
    Present(Version, Option<KnownFile>),
    Unknown,
}

fn differences<'a>(
    settings: &Settings,
    tree: &Tree,
    (scope, ignored): (&[RelPath], &Arc<Ignored>),
    at: i128,
    known: impl Iterator<Item = &'a RelPath>,
    before: &dyn Fn(&RelPath) -> Before,
) -> Differences {
    let (mut places, folders) = find_files(settings, scope, ignored);
    places.extend(known.cloned());
    let mut differences = Differences { folders: folders.into_iter().collect(), ..Differences::default() };
    for path in places {
        let stat = tree.stat(&path, Links::Refuse).ok().flatten();
        let stamp = stat.as_ref().map(Stamp::of);
        let is_touched = stamp.as_ref().is_none_or(|stamp| stamp.changed + TICK >= at);
        let (before, seen) = match before(&path) {
            Before::Present(version, seen) => (Some(version), seen),
            // An older file that was not there before had been ignored by git.
            Before::Absent if is_touched => (None, None),
            Before::Absent => continue,
            Before::Unknown => {
                if is_touched {
                    differences.unsaved.push(path);
                }
                continue;
            }
        };
        if let (Some(seen), Some(stamp)) = (&seen, &stamp)
            && seen.is_current(stamp)
        {
            continue;
        }
        match tree.read(&path, Links::Refuse, u64::MAX >> 1) {
            Ok(node) => {
                let after = node.map(|node| node.version);
                if before != after {
                    differences.files.push(Entry { path, before, after });
                }
            }
            Err(_) => differences.unsaved.push(path),
        }
    }
    differences
}

/// Reads a file unless its known state still holds. Returns its current state, and how many bytes of it are new in the
/// journal.
fn read_file(tree: &Tree, journal: &Journal, place: &RelPath, known: Option<&KnownFile>) -> Option<(KnownFile, u64)> {
    let stat = tree.stat(place, Links::Refuse).ok()??;
    let stamp = Stamp::of(&stat);
    if let Some(known) = known.filter(|known| known.is_current(&stamp) && journal.has(&known.version.digest)) {
        return Some((known.clone(), 0));
    }
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        return None;
    }
    let at = now();
    let node = tree.read(place, Links::Refuse, MAX_FILE).ok()??;
    let is_new = journal.keep(&node.version.digest, &node.bytes).ok()?;
    let bytes = if is_new { node.bytes.len().max(1) as u64 } else { 0 };
    let seen = KnownFile { stamp, version: node.version, at };
    Some((seen, bytes))
}

/// Returns what a snapshot of these folders would leave out, as lines for people: the files that git ignores, by folder, and
/// those beyond the limits.
pub(crate) fn left_out(
    settings: &Settings,
    tree: &Tree,
    scope: &[RelPath],
    tracked: &BTreeSet<RelPath>,
) -> Result<Vec<String>, Error> {
    let ignored = Ignored::on_disk(settings)?;
    let (places, _) = find_files(settings, scope, &ignored);
    let mut lines = ignored.left_out(settings, &|place| tracked.contains(place));
    let is_large = |place: &&RelPath| {
        let stat = tree.stat(place, Links::Refuse).ok().flatten();
        stat.is_some_and(|stat| stat.st_size.unsigned_abs() > MAX_FILE)
    };
    let count = places.iter().filter(is_large).count();
    if count > 0 {
        lines.push(format!("{count} with more than {} MiB", MAX_FILE / 1024 / 1024));
    }
    if places.len() > MAX_FILES {
        lines.push(format!("{} beyond the first {MAX_FILES}", places.len() - MAX_FILES));
    }
    Ok(lines)
}

/// Returns the files and folders below some folders, except those that are ignored.
fn find_files(
    settings: &Settings,
    scope: &[RelPath],
    ignored: &Arc<Ignored>,
) -> (BTreeSet<RelPath>, BTreeSet<RelPath>) {
    let (mut files, mut folders) = (BTreeSet::new(), BTreeSet::new());
    for folder in scope {
        for entry in walk(settings, folder, Some(ignored.clone())).build().flatten() {
            let Some(place) = place_of(settings, entry.path()) else {
                continue;
            };
            if entry.file_type().is_some_and(|kind| kind.is_dir()) {
                folders.insert(place);
            } else {
                files.insert(place);
            }
        }
    }
    (files, folders)
}

/// Completes changes that a kill or a power failure interrupted. A change of files is rolled back. For a command, the
/// changes that it made until then are recorded.
pub(crate) fn recover(settings: &Settings, tree: &Tree, journal: &Journal) -> Result<(), Error> {
    for mut record in journal.interrupted()? {
        if record.root != settings.root {
            continue; // the next change in that other workspace recovers it
        }
        if record.scope.is_empty() {
            if roll_back(tree, journal, &record) {
                journal.forget(&record)
            } else {
                journal.end(&record)?
            }
            continue;
        }
        let guarded = std::mem::take(&mut record.guarded);
        let guard = GitFolders::of_record(&guarded);
        guard.uncover(settings, tree, &record.scope);
        // Git cannot be asked here what the settings of a new repository are, so none of them is kept.
        guard.put_back(settings, tree, journal, (&record.scope, &guarded), &BTreeMap::new());
        let before: BTreeMap<RelPath, Version> = std::mem::take(&mut record.files)
            .into_iter()
            .filter_map(|entry| Some((entry.path, entry.before?)))
            .collect();
        let begun = begin_time(&record);
        let was = |place: &RelPath| match before.get(place) {
            Some(version) => Before::Present(version.clone(), None),
            None => Before::Absent,
        };
        let ignored = Ignored::recorded(&std::mem::take(&mut record.patterns));
        let found = differences(settings, tree, (&record.scope, &ignored), begun, before.keys(), &was);
        record.files = found.files;
        record.interrupted = true;
        journal.end(&record)?;
    }
    Ok(())
}

/// Returns the time at which the change began, in nanoseconds since 1970.
fn begin_time(record: &Record) -> i128 {
    let at: Option<ken_types::time::Timestamp> = record.at.parse().ok();
    at.map_or(i128::MAX, |at| i128::from(at.millis()) * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times of files advance in steps, so a write soon after the reading can leave every field of the stamp as it was.
    #[test]
    fn what_was_read_within_a_tick_of_its_change_is_read_again() {
        let stamp = Stamp { bytes: 4, number: 7, mode: 0o100_644, modified: 1_000, changed: 1_000 };
        let known = |at| KnownFile { stamp: stamp.clone(), version: Version::of(b"text", 0o644, false), at };
        assert!(!known(1_000).is_current(&stamp));
        assert!(!known(1_000 + TICK).is_current(&stamp));
        assert!(known(1_001 + TICK).is_current(&stamp));
        let other = Stamp { changed: 999, ..stamp.clone() };
        assert!(!known(1_001 + TICK).is_current(&other));
    }
}
