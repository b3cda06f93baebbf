//! Finds out what a command has changed. The files that it can change are stored before it runs, and compared
//! afterwards.
//!
//! Files that git ignores are left out, because they can be generated again, unless git tracks them. What counts is what
//! git tracked and ignored when the command began: otherwise a command could write a `.gitignore` that hides what it does
//! from then on. A file whose content is in the journal is not read again if its size, times and inode number have not changed since it was read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use ken_types::Error;
use rustix::fs::{FileType, Stat};
use serde::{Deserialize, Serialize};

use crate::change::{ANY_SIZE, MAX_FILE, roll_back};
use crate::git_guard::GitFolders;
use crate::journal::{Entry, Journal, Record};
use crate::rel_path::RelPath;
use crate::settings::Settings;
use crate::tree::{Links, Tree, Version};
use crate::walk::{Ignored, Patterns, place_of, walk};

/// The maximum number of files in a snapshot, and of bytes that it adds to the journal.
const MAX_FILES: usize = 20_000;
const NEW_BYTES: u64 = 256 * 1024 * 1024;
/// The maximum number of files that a record names as not stored.
const MAX_UNSAVED: usize = 1_000;
/// Why a file cannot be put back.
const NOT_KEPT: &str = "what it was before the run is not in the journal";
const MOVED: &str = "it was there before under another name, and is not in the journal";
const UNNAMED: &str = "with a name that is not UTF-8, has a control character or is too long";
/// The coarsest granularity of file times, in nanoseconds. If a file is read within this time after a change, a second
/// change might leave the same time stamps.
const TICK: i128 = 50_000_000;

/// The metadata that shows whether a file has been changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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

/// The inode number and the time of the last change of a file that a call cannot name; `None` if it was gone at once.
type UnnamedStamp = Option<(u64, i64, i64)>;

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
    unnamed: BTreeMap<PathBuf, UnnamedStamp>,
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
        let mut known = known_files(settings);
        let ignored = Ignored::on_disk(settings)?;
        let found = find_files(settings, scope, &ignored).with_tracked(tree, tracked);
        let Found { files, folders, unnamed, .. } = found;
        let (patterns, unsaved) = (ignored.patterns(), BTreeSet::new());
        let mut snapshot = Snapshot { files: BTreeMap::new(), unsaved, unnamed, folders, patterns, at: 0 };
        let (mut new, mut taken) = (Vec::new(), Taken::default());
        for place in files {
            let saved = match taken.limit() {
                None => read_file(tree, journal, &place, known.get(&place)),
                Some(_) => None,
            };
            match saved {
                Some((seen, bytes)) => {
                    taken.add(bytes);
                    new.extend((bytes > 0).then(|| seen.version.digest.clone()));
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
        journal.replace(&settings.file_of_root(SEEN), &serde_json::to_vec(&known).unwrap_or_default())?;
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

    /// Returns the files whose contents are not stored, for the same record.
    pub(crate) fn unsaved(&self) -> BTreeMap<String, String> {
        self.unsaved.iter().map(|place| (place.to_string(), NOT_KEPT.to_owned())).collect()
    }

    /// Returns the changes since the snapshot.
    pub(crate) fn changes(&self, settings: &Settings, tree: &Tree, scope: &[RelPath]) -> Differences {
        let before = |place: &RelPath| match self.files.get(place) {
            Some(seen) => Before::Present(seen.version.clone(), Some(seen.clone())),
            None if self.unsaved.contains(place) => Before::Unknown,
            None => Before::Absent,
        };
        let known = self.files.keys().chain(&self.unsaved);
        let stamps = self.files.values().map(|seen| &seen.stamp).collect();
        let ignored = Ignored::recorded(&self.patterns);
        let mut found = differences(settings, tree, (scope, &ignored), (self.at, &stamps), known, &before);
        found.folders.retain(|folder| !self.folders.contains(folder));
        let now = std::mem::take(&mut found.unnamed);
        let names: BTreeSet<&PathBuf> = self.unnamed.keys().chain(now.keys()).collect();
        for name in names.into_iter().filter(|name| self.unnamed.get(*name) != now.get(*name)) {
            let name = name.as_os_str().as_bytes().escape_ascii().to_string();
            found.cannot_put_back(name, &format!("the journal has no file {UNNAMED}"));
        }
        found
    }
}

/// What a command has changed.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    pub(crate) files: Vec<Entry>,
    /// New folders.
    pub(crate) folders: Vec<RelPath>,
    /// Files that seem to have changed and that undo cannot put back, with the reason.
    pub(crate) unsaved: BTreeMap<String, String>,
    unnamed: BTreeMap<PathBuf, UnnamedStamp>,
}

impl Differences {
    fn cannot_put_back(&mut self, name: String, why: &str) {
        if self.unsaved.len() < MAX_UNSAVED {
            self.unsaved.insert(name, why.to_owned());
        }
    }
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
    (at, stored): (i128, &BTreeSet<&Stamp>),
    known: impl Iterator<Item = &'a RelPath>,
    before: &dyn Fn(&RelPath) -> Before,
) -> Differences {
    let Found { files: mut places, folders, unnamed, .. } = find_files(settings, scope, ignored);
    places.extend(known.cloned());
    let folders = folders.into_iter().collect();
    let mut differences = Differences { folders, unnamed, ..Differences::default() };
    for path in places {
        let stat = tree.stat(&path, Links::Refuse).ok().flatten();
        let stamp = stat.as_ref().map(Stamp::of);
        let is_touched = stamp.as_ref().is_none_or(|stamp| stamp.changed + TICK >= at);
        let (before, seen) = match before(&path) {
            Before::Present(version, seen) => (Some(version), seen),
            // A file that is moved together with its folder stays as old as it was.
            Before::Absent if is_touched || stamp.as_ref().is_some_and(|stamp| stored.contains(stamp)) => (None, None),
            // It had another name too, and git ignored it there. Undo must not remove it, as it cannot bring it back.
            Before::Absent => {
                differences.cannot_put_back(path.to_string(), MOVED);
                continue;
            }
            Before::Unknown => {
                if is_touched {
                    differences.cannot_put_back(path.to_string(), NOT_KEPT);
                }
                continue;
            }
        };
        if let (Some(seen), Some(stamp)) = (&seen, &stamp)
            && seen.is_current(stamp)
        {
            continue;
        }
        match tree.file(&path, ANY_SIZE) {
            Ok(node) => {
                let after = node.map(|node| node.version);
                if before != after {
                    differences.files.push(Entry { path, before, after });
                }
            }
            Err(error) => {
                differences.cannot_put_back(path.to_string(), &error.message);
                // What it was is in the journal, and undo puts it back as soon as this is out of the way.
                if before.is_some() {
                    differences.files.push(Entry { path, before, after: None });
                }
            }
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

/// The file with what is known of the files of the last snapshots.
const SEEN: &str = "seen";

fn known_files(settings: &Settings) -> BTreeMap<RelPath, KnownFile> {
    let notes = fs::read(settings.file_of_root(SEEN)).ok();
    notes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

/// How much a snapshot has taken up.
#[derive(Default)]
struct Taken {
    files: usize,
    new_bytes: u64,
}

impl Taken {
    fn add(&mut self, new_bytes: u64) {
        self.files += 1;
        self.new_bytes += new_bytes;
    }

    /// Returns the limit that is reached, as the end of a line for people.
    fn limit(&self) -> Option<String> {
        if self.files >= MAX_FILES {
            Some(format!("beyond the first {MAX_FILES}"))
        } else if self.new_bytes >= NEW_BYTES {
            Some(format!("beyond {} MiB of new contents", NEW_BYTES / 1024 / 1024))
        } else {
            None
        }
    }
}

/// Returns what a snapshot of these folders would leave out, as lines for people: the files that git ignores, by folder, and
/// the number of those that cannot be stored, by reason.
pub(crate) fn left_out(
    settings: &Settings,
    tree: &Tree,
    scope: &[RelPath],
    tracked: &BTreeSet<RelPath>,
) -> Result<Vec<String>, Error> {
    let ignored = Ignored::on_disk(settings)?;
    let found = find_files(settings, scope, &ignored).with_tracked(tree, tracked);
    let mut lines = ignored.left_out(settings, &|place| tracked.contains(place));
    let (known, journal) = (known_files(settings), Journal::reader(&settings.state));
    let (mut counts, mut taken) = (BTreeMap::<String, usize>::new(), Taken::default());
    for place in &found.files {
        let Some(stat) = tree.stat(place, Links::Refuse).ok().flatten() else {
            continue;
        };
        let is_known = known
            .get(place)
            .is_some_and(|known| known.is_current(&Stamp::of(&stat)) && journal.has(&known.version.digest));
        let why = || if is_known { None } else { unreadable(tree, place, &stat) };
        match taken.limit().or_else(why) {
            Some(why) => *counts.entry(why).or_default() += 1,
            None if is_known => taken.add(0),
            None => taken.add(stat.st_size.unsigned_abs()),
        }
    }
    counts.insert(UNNAMED.to_owned(), found.unnamed.len());
    let folders = if found.closed == 1 { "folder" } else { "folders" };
    counts.insert(format!("{folders} without permission to read"), found.closed);
    lines.extend(counts.iter().filter(|(_, count)| **count > 0).map(|(why, count)| format!("{count} {why}")));
    Ok(lines)
}

/// Returns why [`Tree::read`] would not read a file, as the end of a line for people.
fn unreadable(tree: &Tree, place: &RelPath, stat: &Stat) -> Option<String> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => None,
        FileType::RegularFile if stat.st_nlink > 1 => Some("with more than one hard link".to_owned()),
        FileType::RegularFile if stat.st_size.unsigned_abs() > MAX_FILE => {
            Some(format!("with more than {} MiB", MAX_FILE / 1024 / 1024))
        }
        FileType::RegularFile if tree.is_readable(place) => None,
        FileType::RegularFile => Some("without permission to read".to_owned()),
        _ => Some("of another kind than file or link".to_owned()),
    }
}

/// What is below some folders, except what is ignored.
#[derive(Default)]
struct Found {
    files: BTreeSet<RelPath>,
    folders: BTreeSet<RelPath>,
    /// The files that a call cannot name, by their paths below the root.
    unnamed: BTreeMap<PathBuf, UnnamedStamp>,
    /// The number of folders that cannot be read.
    closed: usize,
}

impl Found {
    /// Adds the files that git tracks, which count even where it ignores others.
    fn with_tracked(mut self, tree: &Tree, tracked: &BTreeSet<RelPath>) -> Found {
        let is_file = |place: &&RelPath| tree.kind(place).is_some_and(|kind| kind != FileType::Directory);
        self.files.extend(tracked.iter().filter(is_file).cloned());
        self
    }
}

fn find_files(settings: &Settings, scope: &[RelPath], ignored: &Arc<Ignored>) -> Found {
    let mut found = Found::default();
    for folder in scope {
        for entry in walk(settings, folder, Some(ignored.clone())).build() {
            let Ok(entry) = entry else {
                found.closed += 1;
                continue;
            };
            let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
            match place_of(settings, entry.path()) {
                Some(place) if is_folder => drop(found.folders.insert(place)),
                Some(place) => drop(found.files.insert(place)),
                // The files in it are found, and have no such name either.
                None if is_folder => {}
                None => {
                    let about = entry.metadata().ok();
                    let stamp = about.map(|about| (about.ino(), about.ctime(), about.ctime_nsec()));
                    let path = entry.path().strip_prefix(&settings.root).unwrap_or(entry.path());
                    found.unnamed.insert(path.to_owned(), stamp);
                }
            }
        }
    }
    found
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
                journal.end_as_begun(&record)?
            }
            continue;
        }
        let guarded = std::mem::take(&mut record.guarded);
        let guard = GitFolders::of_record(&guarded, std::mem::take(&mut record.names));
        guard.uncover(settings, tree, &record.scope);
        // Git cannot be asked here what the settings of a new repository are, so none of them is kept.
        guard.put_back(settings, tree, journal, (&record.scope, &guarded), &BTreeMap::new());
        let before: BTreeMap<RelPath, Version> = std::mem::take(&mut record.files)
            .into_iter()
            .filter_map(|entry| Some((entry.path, entry.before?)))
            .collect();
        let unsaved: BTreeSet<RelPath> = record.unsaved.keys().filter_map(|path| RelPath::parse(path).ok()).collect();
        let begun = begin_time(&record);
        let was = |place: &RelPath| match before.get(place) {
            Some(version) => Before::Present(version.clone(), None),
            None if unsaved.contains(place) => Before::Unknown,
            None => Before::Absent,
        };
        let ignored = Ignored::recorded(&std::mem::take(&mut record.patterns));
        // The snapshot that the command began with is the last one of this folder.
        let seen = known_files(settings);
        let stamps = seen.values().map(|seen| &seen.stamp).collect();
        let known = before.keys().chain(&unsaved);
        let found = differences(settings, tree, (&record.scope, &ignored), (begun, &stamps), known, &was);
        (record.files, record.unsaved) = (found.files, found.unsaved);
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
