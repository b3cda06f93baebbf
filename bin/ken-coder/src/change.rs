//! A change of several files that is made completely or not at all.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use ken_types::Error;
use ken_types::id::Mint;
use ken_types::time::Timestamp;
use rustix::fs::FileType;

use crate::journal::{Entry, Journal, Record};
use crate::rel_path::RelPath;
use crate::settings::Settings;
use crate::tree::{Links, Node, Tree, Version, WRITTEN_MODE};

/// The maximum size of a file that a change can replace or write, in bytes.
pub(crate) const MAX_FILE: u64 = 16 * 1024 * 1024;
/// For files that are compared with what a record says of them: a command can have written one of any size.
pub(crate) const ANY_SIZE: u64 = u64::MAX >> 1;
/// The maximum number of files in a change, and of edits in a list.
pub(crate) const MAX_FILES: usize = 2_000;
/// A change of at most this many files syncs each new file before it is renamed. A larger change syncs the whole file
/// system once.
const MAX_SINGLE_SYNCS: usize = 16;

/// The files of a change while its edits are applied one after the other. Each file is held in its original state and
/// in its state after the edits so far.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    tree: &'a Tree,
    files: BTreeMap<RelPath, (Option<Node>, Option<Node>)>,
}

impl<'a> Plan<'a> {
    /// Applies edits to the files of a tree. All plans are made here, so that each is checked.
    pub(crate) fn of(tree: &'a Tree, edit: impl FnOnce(&mut Plan<'a>) -> Result<(), Error>) -> Result<Plan<'a>, Error> {
        let mut plan = Plan { tree, files: BTreeMap::new() };
        edit(&mut plan)?;
        plan.check_git()?;
        Ok(plan)
    }

    /// Returns the file after the edits so far, or `None` if it does not exist then.
    pub(crate) fn file(&mut self, place: &RelPath) -> Result<Option<&Node>, Error> {
        Ok(self.entry(place)?.1.as_ref())
    }

    /// Returns the file as it is on disk.
    pub(crate) fn original(&mut self, place: &RelPath) -> Result<Option<&Node>, Error> {
        Ok(self.entry(place)?.0.as_ref())
    }

    fn entry(&mut self, place: &RelPath) -> Result<&mut (Option<Node>, Option<Node>), Error> {
        if !self.files.contains_key(place) {
            self.tree.check_changeable(place)?;
            if self.files.len() == MAX_FILES {
                return Err(Error::too_large(format!("one change may touch {MAX_FILES} files")));
            }
            let node = self.tree.read(place, Links::Refuse, MAX_FILE)?;
            if node.as_ref().is_some_and(|node| node.version.link) {
                let message = format!("{place} is a symbolic link; name the file that it leads to");
                return Err(Error::forbidden(message).at("/path"));
            }
            self.files.insert(place.clone(), (node.clone(), node));
        }
        self.files.get_mut(place).ok_or_else(|| Error::internal("a file of the plan is missing"))
    }

    /// Sets the content of a file. Without `mode`, an existing file keeps its permissions and a new one gets the
    /// default ones.
    pub(crate) fn set(&mut self, place: &RelPath, bytes: Vec<u8>, mode: Option<u32>) -> Result<(), Error> {
        const NEW: u32 = 0o644;
        let (before, after) = self.entry(place)?;
        let known = after.as_ref().or(before.as_ref()).map(|node| node.version.mode);
        let mode = mode.or(known).unwrap_or(NEW);
        *after = Some(Node { version: Version::of(&bytes, mode, false), bytes });
        Ok(())
    }

    pub(crate) fn remove(&mut self, place: &RelPath) -> Result<(), Error> {
        self.entry(place)?.1 = None;
        Ok(())
    }

    /// Returns the files that the edits change, each with its state before and after.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&RelPath, Option<&Node>, Option<&Node>)> {
        self.files
            .iter()
            .filter(|(_, (before, after))| version(before) != version(after))
            .map(|(place, (before, after))| (place, before.as_ref(), after.as_ref()))
    }

    /// Fails if the edits change a file in a git directory, or complete one. Git takes every folder that has these names for a
    /// git directory, whatever the folder itself is called, and runs what its configuration says, even for `git status`. It does
    /// not matter which of the names were there before.
    fn check_git(&self) -> Result<(), Error> {
        // The names that each folder around a file gets. They are in lower case, because some file systems ignore case.
        let mut made: BTreeMap<RelPath, BTreeSet<String>> = BTreeMap::new();
        for (place, _, after) in self.pairs() {
            for place in std::iter::once(place.clone()).chain(place.folders()) {
                let names = made.entry(place.around()).or_default();
                names.extend(after.is_some().then(|| place.name().to_ascii_lowercase()));
            }
        }
        for (folder, names) in &made {
            let has =
                |name: &str| names.contains(&name.to_ascii_lowercase()) || self.tree.kind(&folder.join(name)).is_some();
            if has("commondir") || has("HEAD") && has("objects") && has("refs") {
                let message = format!(
                    "{folder} is a git directory, or would become one; git's own files are changed by git only"
                );
                return Err(Error::forbidden(message).at("/path"));
            }
        }
        Ok(())
    }

    /// Returns the files that the edits change, without their contents.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let versions = |node: Option<&Node>| node.map(|node| node.version.clone());
        let entry = |(path, before, after): (&RelPath, _, _)| Entry {
            path: path.clone(),
            before: versions(before),
            after: versions(after),
        };
        self.pairs().map(entry).collect()
    }

    /// Returns what a file holds after the edits.
    pub(crate) fn content(&self, place: &RelPath) -> Result<Cow<'_, [u8]>, Error> {
        let after = self.files.get(place).and_then(|(_, after)| after.as_ref());
        let node = after.ok_or_else(|| Error::internal("a file of the plan is missing"))?;
        Ok(Cow::Borrowed(&node.bytes))
    }
}

/// Returns a word for people that says what a change does to a file.
pub(crate) fn action(before: Option<&Version>, after: Option<&Version>) -> &'static str {
    match (before, after) {
        (None, _) => "created",
        (_, None) => "removed",
        _ => "changed",
    }
}

fn version(node: &Option<Node>) -> Option<&Version> {
    node.as_ref().map(|node| &node.version)
}

/// Returns an empty record for a change of this run.
pub(crate) fn record(settings: &Settings, command: &str) -> Result<Record, Error> {
    Ok(Record {
        run: settings.run.clone(),
        call: Mint::fresh()?.ulid(),
        command: command.to_owned(),
        root: settings.root.clone(),
        layout: settings.layout,
        session: settings.session.clone(),
        at: Timestamp::now().to_string(),
        ..Record::default()
    })
}

/// Returns the content of a file for the version that it gets.
type Contents<'a> = dyn Fn(&RelPath, &Version) -> Result<Cow<'a, [u8]>, Error> + 'a;

/// Makes the changes that the record lists, and returns the record. After an error, every file is as it was before, unless it could not be
/// restored.
pub(crate) fn commit(
    tree: &Tree,
    journal: &Journal,
    mut record: Record,
    contents: &Contents<'_>,
) -> Result<Record, Error> {
    check_places(&record.files)?;
    // The record is compared with the files that are written, which lose the other bits.
    for after in record.files.iter_mut().filter_map(|entry| entry.after.as_mut()) {
        after.mode &= WRITTEN_MODE;
    }
    record.folders = missing_folders(tree, &record.files);
    // On the disk before the first file changes: after a crash, the record says what is to be put back.
    journal.begin(&record)?;
    match apply(tree, journal, &record, contents).and_then(|()| journal.end_as_begun(&record)) {
        Ok(()) => {
            journal.prune_sometimes();
            Ok(record)
        }
        Err(error) => {
            if roll_back(tree, journal, &record) {
                journal.forget(&record);
            } else {
                // If files could not be restored, the record stays, so that `undo` can try again and report why it
                // fails. If this fails too, it is still pending, and the next change restores them.
                let _ = journal.end_as_begun(&record);
            }
            Err(error)
        }
    }
}

/// Returns the files that a change writes, and the folders that they need.
fn made(files: &[Entry]) -> (BTreeSet<&RelPath>, BTreeSet<RelPath>) {
    let new: BTreeSet<&RelPath> = files.iter().filter(|entry| entry.after.is_some()).map(|entry| &entry.path).collect();
    let around = new.iter().flat_map(|place| place.folders()).collect();
    (new, around)
}

/// Fails if a change makes a file where another of its files needs a folder.
fn check_places(files: &[Entry]) -> Result<(), Error> {
    let (new, around) = made(files);
    match new.into_iter().find(|place| around.contains(*place)) {
        Some(place) => Err(Error::invalid("/path", format!("{place} would be a file and a folder"))),
        None => Ok(()),
    }
}

/// Returns the folders that must be created for new files, parents first. Some of them may be files or links by now, which
/// the change removes.
fn missing_folders(tree: &Tree, files: &[Entry]) -> Vec<RelPath> {
    let (mut seen, mut missing) = (BTreeSet::new(), BTreeSet::new());
    for entry in files.iter().filter(|entry| entry.after.is_some()) {
        for folder in entry.path.folders() {
            if !seen.insert(folder.clone()) || tree.kind(&folder) == Some(FileType::Directory) {
                break;
            }
            missing.insert(folder);
        }
    }
    missing.into_iter().collect()
}

/// Splits the files of a change into those that it removes to make way, and the others. A file makes way if it is in the
/// place of a folder that is needed, or in a folder whose place a file gets.
fn split_off_in_the_way(files: &[Entry]) -> (Vec<&Entry>, Vec<&Entry>) {
    let (new, around) = made(files);
    files.iter().partition(|Entry { path, after, .. }| {
        after.is_none() && (around.contains(path) || path.folders().any(|folder| new.contains(&folder)))
    })
}

fn apply(tree: &Tree, journal: &Journal, record: &Record, contents: &Contents<'_>) -> Result<(), Error> {
    let alone = record.files.len() <= MAX_SINGLE_SYNCS;
    let (in_the_way, others) = split_off_in_the_way(&record.files);
    let mut kept = Vec::new();
    // Only these are removed before the new contents are staged. If the disk is full, staging fails, and putting files back could fail too.
    for entry in in_the_way {
        kept.extend(replace(tree, journal, record, entry)?);
    }
    let new = || others.iter().filter_map(|entry| Some((&entry.path, entry.after.as_ref()?)));
    for (path, _) in new().filter(|(path, _)| tree.kind(path) == Some(FileType::Directory)) {
        tree.remove_empty_folders(path);
    }
    for folder in &record.folders {
        tree.make_folder(folder)?;
    }
    for (path, after) in new() {
        tree.stage(path, &staged(record, path), after, &contents(path, after)?, alone)?;
    }
    // All contents must be on disk before the first file is replaced. A single syncfs(2) is many times faster than
    // writing each file when it is renamed (auto_da_alloc of ext4(5)).
    if !alone {
        tree.sync()?;
    }
    for entry in others {
        kept.extend(replace(tree, journal, record, entry)?);
    }
    journal.sync(&kept)
}

/// Replaces a file by the staged one, or removes it. Returns the digest of what it was, if that is new in the journal.
fn replace(tree: &Tree, journal: &Journal, record: &Record, entry: &Entry) -> Result<Option<String>, Error> {
    let Entry { path, before, after } = entry;
    let old = check(tree, path, before.as_ref())?;
    let staged = staged(record, path);
    match (&old, after) {
        // Not a rename over it: the old file stays under the temporary name until the journal has it.
        (Some(_), Some(_)) => tree.exchange(path, &staged)?,
        (Some(_), None) => tree.set_aside(path, &staged)?,
        (None, Some(_)) => tree.put(path, &staged)?,
        (None, None) => {}
    }
    match old {
        Some(old) => journal.adopt(tree, path, &staged, &old),
        None => Ok(None),
    }
}

/// Returns the file that will be replaced. Fails if somebody else has changed it since the change was planned.
fn check(tree: &Tree, place: &RelPath, before: Option<&Version>) -> Result<Option<Node>, Error> {
    let now = tree.file(place, ANY_SIZE)?;
    if version(&now) == before {
        return Ok(now);
    }
    Err(Error::conflict(format!("{place} has changed meanwhile; nothing was changed")).at("/path"))
}

/// Returns the temporary name of a file, which the new file has first and the old one afterwards. It depends only on
/// the record and the path, so the file can be found after a crash.
fn staged(record: &Record, place: &RelPath) -> String {
    let name = crate::tree::digest(place.as_str().as_bytes());
    format!(".ken-{}-{}", record.call, name.get(..12).unwrap_or_default())
}

/// Restores the files that an interrupted change has already replaced. Returns whether all of them were restored.
pub(crate) fn roll_back(tree: &Tree, journal: &Journal, record: &Record) -> bool {
    let mut all = true;
    // The last first: they may not have been replaced yet, and what was staged for them has the space that the others need.
    let (made, removed): (Vec<_>, Vec<_>) = record.files.iter().rev().partition(|entry| entry.after.is_some());
    // All of them, even after one that fails: each file that is back is one less for a person to look at.
    let mut restore_all = |entries: Vec<&Entry>| {
        for entry in entries {
            all &= restore(tree, journal, entry, &staged(record, &entry.path)).is_ok();
        }
    };
    // What was removed comes last, because new files and folders can be in its place.
    restore_all(made);
    // The innermost first. A folder in which somebody has put something meanwhile is not empty, and stays.
    for folder in record.folders.iter().rev() {
        tree.remove_folder(folder);
    }
    restore_all(removed);
    all
}

/// Restores one file, unless it has not been replaced yet or somebody else has changed it since.
fn restore(tree: &Tree, journal: &Journal, entry: &Entry, staged: &str) -> Result<(), Error> {
    let path = &entry.path;
    let now = tree.file(path, ANY_SIZE);
    // Until the old file is in the journal, it is under the temporary name. Any other content there is a new file that
    // was not completely written or not renamed.
    let aside = tree.read_aside(path, staged, ANY_SIZE)?;
    let is_old = aside.is_some_and(|aside| Some(&aside.version) == entry.before.as_ref());
    let is_as_planned = |now: &Option<Node>| version(now) == entry.after.as_ref();
    if !now.as_ref().is_ok_and(is_as_planned) {
        if now.is_ok() || !is_old {
            tree.discard(path, staged);
        }
        return now.map(drop);
    }
    let Some(before) = &entry.before else {
        return tree.remove(path);
    };
    if !is_old && let Ok(bytes) = journal.content(&before.digest) {
        tree.discard(path, staged);
        let around: Vec<RelPath> = path.folders().collect();
        around.iter().rev().try_for_each(|folder| tree.make_folder(folder))?;
        tree.stage(path, staged, before, &bytes, true)?;
    }
    match entry.after {
        Some(_) => tree.exchange(path, staged)?,
        None => tree.put(path, staged)?,
    }
    tree.discard(path, staged);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use std::path::{Path, PathBuf};

    use super::*;

    /// Makes an empty workspace and a journal. Returns the root of the workspace first.
    fn workspace(home: &Path) -> (PathBuf, Tree, Journal) {
        let (root, state) = (home.join("root"), home.join("state"));
        for folder in ["root/repos/site", "state/objects", "state/pending", "state/journal"] {
            std::fs::create_dir_all(home.join(folder)).unwrap();
        }
        let settings = Settings::of_folders(&root, &state).unwrap();
        let journal = Journal::lock(&settings, "edit", &RelPath::default()).unwrap();
        (root, Tree::open(&settings).unwrap(), journal)
    }

    fn place(name: &str) -> RelPath {
        RelPath::parse(&format!("repos/site/{name}")).unwrap()
    }

    /// What a change replaces is looked at again right before: somebody else may have written it since the plan was made.
    #[test]
    fn a_file_that_was_changed_since_the_plan_is_not_replaced() {
        let home = tempfile::tempdir().unwrap();
        let (root, tree, journal) = workspace(home.path());
        let path = |name: &str| root.join(place(name).as_str());
        for (number, meanwhile) in [Some("by hand"), None].into_iter().enumerate() {
            for name in ["a", "b", "c"] {
                std::fs::write(path(name), "old").unwrap();
            }
            std::fs::set_permissions(path("a"), std::os::unix::fs::PermissionsExt::from_mode(0o2644)).unwrap();
            let plan = Plan::of(&tree, |plan| {
                for name in ["a", "b", "new"] {
                    plan.set(&place(name), b"planned".to_vec(), None)?;
                }
                plan.remove(&place("c"))
            });
            let plan = plan.unwrap();
            // The last file of the change, so that the others are already replaced when it is looked at.
            match meanwhile {
                Some(text) => std::fs::write(path("c"), text).unwrap(),
                None => std::fs::write(path("new"), "by hand").unwrap(),
            }
            let record = Record {
                call: format!("call{number}"),
                run: "run".to_owned(),
                command: "apply".to_owned(),
                root: root.clone(),
                at: Timestamp::now().to_string(),
                files: plan.entries(),
                ..Record::default()
            };
            let error = commit(&tree, &journal, record, &|place, _| plan.content(place)).unwrap_err();
            assert!(error.message.contains("has changed meanwhile"), "{error}");
            let text = |name: &str| std::fs::read_to_string(path(name)).unwrap();
            assert_eq!((text("a").as_str(), text("b").as_str()), ("old", "old"), "the others are put back");
            match meanwhile {
                Some(text_of_person) => assert_eq!(text("c"), text_of_person),
                None => assert_eq!((text("c").as_str(), text("new").as_str()), ("old", "by hand")),
            }
            let _ = std::fs::remove_file(path("new"));
        }
    }

    /// Where the end of a change cannot be recorded, it has not happened. Where files cannot be put back either, the error is
    /// that of the change, and its record stays.
    #[test]
    fn a_change_whose_end_cannot_be_recorded_is_not_made() {
        let home = tempfile::tempdir().unwrap();
        let (root, tree, journal) = workspace(home.path());
        let path = |name: &str| root.join(place(name).as_str());
        let object = home.path().join("state/objects").join(digest_path("old"));
        for (call, is_damaged, why) in [("one", false, "Is a directory"), ("two", true, "changed meanwhile")] {
            for (name, mode) in [("a", 0o2644), ("b", 0o644)] {
                std::fs::write(path(name), "old").unwrap();
                std::fs::set_permissions(path(name), std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
            }
            let plan = Plan::of(&tree, |plan| {
                plan.set(&place("a"), b"new".to_vec(), None)?;
                plan.set(&place("b"), b"new".to_vec(), None)
            });
            let plan = plan.unwrap();
            if is_damaged {
                std::fs::write(&object, "damaged").unwrap();
                std::fs::write(path("b"), "by hand").unwrap();
            }
            // The record cannot be moved there.
            std::fs::create_dir_all(home.path().join(format!("state/journal/run/{call}.json"))).unwrap();
            let record = Record {
                call: call.to_owned(),
                run: "run".to_owned(),
                root: root.clone(),
                files: plan.entries(),
                ..Record::default()
            };
            let error = commit(&tree, &journal, record, &|place, _| plan.content(place)).unwrap_err();
            assert!(error.message.contains(why), "{call}: {error}");
            let texts = ["a", "b"].map(|name| std::fs::read_to_string(path(name)).unwrap());
            assert_eq!(texts, if is_damaged { ["new", "by hand"] } else { ["old", "old"] }, "{call}");
            assert_eq!(journal.interrupted().unwrap().len(), usize::from(is_damaged), "{call}");
            let count = std::fs::read_dir(path("")).unwrap().count();
            assert_eq!(count, 2, "{call}: temporary files are left");
        }
    }

    fn digest_path(text: &str) -> String {
        let digest = crate::tree::digest(text.as_bytes());
        format!("{}/{digest}", &digest[..2])
    }

    /// A file takes the place of a folder, and a folder that of a file. The change is interrupted at its end, or fails at its last file.
    #[test]
    fn what_made_way_is_put_back() {
        let home = tempfile::tempdir().unwrap();
        let (root, tree, journal) = workspace(home.path());
        let path = |name: &str| root.join(place(name).as_str());
        let version = |text: &str| Some(Version::of(text.as_bytes(), 0o644, false));
        let entry =
            |name: &str, before: Option<Version>, after: Option<Version>| Entry { path: place(name), before, after };
        let write = |name: &str, text: &str| {
            std::fs::write(path(name), text).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
            std::fs::set_permissions(path(name), mode).unwrap();
        };
        std::fs::create_dir_all(path("e/f")).unwrap();
        for name in ["d", "e/f/y", "z"] {
            write(name, "old");
        }
        for is_changed in [false, true] {
            let last = if is_changed { "other" } else { "old" };
            let record = Record {
                call: format!("call{is_changed}"),
                run: "run".to_owned(),
                root: root.clone(),
                files: vec![
                    entry("d", version("old"), None),
                    entry("d/g/x", None, version("new")),
                    entry("e", None, version("new")),
                    entry("e/f/y", version("old"), None),
                    entry("z", version(last), version("new")),
                ],
                ..Record::default()
            };
            let contents = |_: &RelPath, _: &Version| Ok(Cow::Borrowed(&b"new"[..]));
            if is_changed {
                assert!(commit(&tree, &journal, record, &contents).unwrap_err().message.contains("meanwhile"));
            } else {
                let record = Record { folders: missing_folders(&tree, &record.files), ..record };
                assert_eq!(record.folders, [place("d"), place("d/g")]);
                apply(&tree, &journal, &record, &contents).unwrap();
                assert!(path("d/g/x").is_file() && path("e").is_file());
                assert!(roll_back(&tree, &journal, &record));
            }
            for name in ["d", "e/f/y", "z"] {
                assert_eq!(std::fs::read_to_string(path(name)).unwrap(), "old", "{is_changed} {name}");
            }
            assert_eq!(std::fs::read_dir(path("")).unwrap().count(), 3, "{is_changed}");
        }
    }
}
