//! A change of several files that happens as a whole or not at all.

use std::collections::BTreeMap;

use ken_types::Error;
use ken_types::id::Mint;
use ken_types::time::Timestamp;

use crate::journal::{Entry, Journal, Record};
use crate::place::Place;
use crate::settings::Settings;
use crate::tree::{Links, Node, Tree, Version};

/// The largest file that a change may replace or write, in bytes.
pub(crate) const MAX_FILE: u64 = 16 * 1024 * 1024;
/// The most files of one change, and of a patch or a list of edits.
pub(crate) const MAX_FILES: usize = 2_000;
/// A change of at most this many files syncs each file before renaming it; a larger change syncs the file system once.
const SYNCED_ALONE: usize = 16;

/// The content and the permissions that a file gets.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) version: Version,
    pub(crate) content: Content,
}

#[derive(Debug, Clone)]
pub(crate) enum Content {
    Bytes(Vec<u8>),
    /// As it is in the journal.
    Kept,
}

/// One file of a change.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    /// `None` if the file does not exist.
    pub(crate) before: Option<Version>,
    /// `None` if the file is removed.
    pub(crate) after: Option<Target>,
}

/// By path.
pub(crate) type Changes = BTreeMap<Place, Change>;

/// Files as they will be after the edits so far.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    tree: &'a Tree,
    files: BTreeMap<Place, (Option<Node>, Option<Node>)>,
}

impl<'a> Plan<'a> {
    pub(crate) fn new(tree: &'a Tree) -> Plan<'a> {
        Plan {
            tree,
            files: BTreeMap::new(),
        }
    }

    /// The file as it will be; `None` if it will not exist.
    pub(crate) fn file(&mut self, place: &Place) -> Result<Option<&Node>, Error> {
        Ok(self.entry(place)?.1.as_ref())
    }

    /// The file as it is.
    pub(crate) fn original(&mut self, place: &Place) -> Result<Option<&Node>, Error> {
        Ok(self.entry(place)?.0.as_ref())
    }

    fn entry(&mut self, place: &Place) -> Result<&mut (Option<Node>, Option<Node>), Error> {
        if !self.files.contains_key(place) {
            place.check_changeable()?;
            if self.files.len() == MAX_FILES {
                return Err(Error::too_large(format!(
                    "one change may touch {MAX_FILES} files"
                )));
            }
            let node = self.tree.read(place, Links::Refuse, MAX_FILE)?;
            if node.as_ref().is_some_and(|node| node.version.link) {
                let message = format!("{place} is a symbolic link; name the file that it leads to");
                return Err(Error::forbidden(message).at("/path"));
            }
            self.files.insert(place.clone(), (node.clone(), node));
        }
        self.files
            .get_mut(place)
            .ok_or_else(|| Error::internal("a file of the plan is missing"))
    }

    /// Gives a file a content; its mode stays, or is that of a new file.
    pub(crate) fn set(&mut self, place: &Place, bytes: Vec<u8>, mode: Option<u32>) -> Result<(), Error> {
        const NEW: u32 = 0o644;
        let (before, after) = self.entry(place)?;
        let known = after.as_ref().or(before.as_ref()).map(|node| node.version.mode);
        let mode = mode.or(known).unwrap_or(NEW);
        *after = Some(Node {
            version: Version::of(&bytes, mode, false),
            bytes,
        });
        Ok(())
    }

    pub(crate) fn remove(&mut self, place: &Place) -> Result<(), Error> {
        self.entry(place)?.1 = None;
        Ok(())
    }

    /// Before and after of each file that changes.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&Place, Option<&Node>, Option<&Node>)> {
        self.files
            .iter()
            .filter(|(_, (before, after))| version(before) != version(after))
            .map(|(place, (before, after))| (place, before.as_ref(), after.as_ref()))
    }

    /// The same, without the contents.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let versions = |node: Option<&Node>| node.map(|node| node.version.clone());
        let entry = |(path, before, after): (&Place, _, _)| Entry {
            path: path.clone(),
            before: versions(before),
            after: versions(after),
        };
        self.pairs().map(entry).collect()
    }

    pub(crate) fn changes(self) -> Changes {
        let changed = |(before, after): &(Option<Node>, Option<Node>)| version(before) != version(after);
        let files = self.files.into_iter().filter(|(_, pair)| changed(pair));
        files
            .map(|(place, (before, after))| {
                let after = after.map(|node| Target {
                    version: node.version,
                    content: Content::Bytes(node.bytes),
                });
                let before = before.map(|node| node.version);
                (place, Change { before, after })
            })
            .collect()
    }
}

fn version(node: &Option<Node>) -> Option<&Version> {
    node.as_ref().map(|node| &node.version)
}

/// A new record of this run.
pub(crate) fn record(settings: &Settings, command: &str) -> Result<Record, Error> {
    Ok(Record {
        run: settings.run.clone(),
        call: Mint::fresh()?.ulid(),
        command: command.to_owned(),
        root: settings.root.clone(),
        session: settings.session.clone(),
        at: Timestamp::now().to_string(),
        files: Vec::new(),
        folders: Vec::new(),
        scope: Vec::new(),
        interrupted: false,
    })
}

/// Makes the change. An error leaves every file as it was.
pub(crate) fn commit(
    tree: &Tree,
    journal: &Journal,
    mut record: Record,
    changes: &Changes,
) -> Result<Record, Error> {
    record.files = changes
        .iter()
        .map(|(path, change)| Entry {
            path: path.clone(),
            before: change.before.clone(),
            after: change.after.as_ref().map(|target| target.version.clone()),
        })
        .collect();
    let kept = keep(tree, journal, &record.files)?;
    // The record lists the new folders before they are made, without those that exist already.
    let mut folders = Vec::new();
    for (place, change) in changes {
        if change.after.is_some() {
            missing_folders(tree, place, &mut folders)?;
        }
    }
    record.folders = folders;
    journal.begin(&record)?;
    match apply(tree, journal, &record, changes, &kept) {
        Ok(()) => {
            journal.end(&record)?;
            journal.prune_sometimes();
            Ok(record)
        }
        Err(error) => {
            match roll_back(tree, journal, &record) {
                true => journal.forget(&record),
                // A file that could not be restored stays on record, so that `undo` can try again and name the obstacle.
                false => journal.end(&record)?,
            }
            Err(error)
        }
    }
}

/// Stores the contents that the change replaces; returns those that are new in the journal.
fn keep(tree: &Tree, journal: &Journal, files: &[Entry]) -> Result<Vec<String>, Error> {
    let mut new = Vec::new();
    for entry in files {
        let Some(before) = entry
            .before
            .as_ref()
            .filter(|before| !journal.has(&before.digest))
        else {
            continue;
        };
        let node = tree.read(&entry.path, Links::Refuse, MAX_FILE)?;
        let node = node.filter(|node| node.version == *before);
        let node = node.ok_or_else(|| meanwhile(&entry.path))?;
        journal.keep(&before.digest, &node.bytes)?;
        new.push(before.digest.clone());
    }
    Ok(new)
}

fn missing_folders(tree: &Tree, place: &Place, folders: &mut Vec<Place>) -> Result<(), Error> {
    let mut missing = Vec::new();
    let mut folder = place.split().map(|(folder, _)| folder);
    while let Some(place) = folder.filter(|place| !place.as_str().is_empty() && !folders.contains(place)) {
        if tree.stat(&place, Links::Refuse)?.is_some() {
            break;
        }
        folder = place.split().map(|(folder, _)| folder);
        missing.push(place);
    }
    folders.extend(missing.into_iter().rev());
    Ok(())
}

fn apply(
    tree: &Tree,
    journal: &Journal,
    record: &Record,
    changes: &Changes,
    kept: &[String],
) -> Result<(), Error> {
    let alone = changes.len() <= SYNCED_ALONE;
    for (place, change) in changes {
        let Some(target) = &change.after else { continue };
        tree.make_folders(place, &mut Vec::new())?;
        let staged = staged(record, place);
        match &target.content {
            Content::Bytes(bytes) => tree.stage(place, &staged, &target.version, bytes, alone)?,
            Content::Kept => {
                let bytes = journal.content(&target.version.digest)?;
                tree.stage(place, &staged, &target.version, &bytes, alone)?;
            }
        }
    }
    // Old and new contents are on the disk before the first file gets its new one. Files that are written one by one as they
    // are renamed (auto_da_alloc of ext4(5)) take many times as long as all of them together.
    if !alone {
        tree.sync();
    }
    if alone || !journal.is_beside(tree) {
        journal.sync(kept)?;
    }
    for (place, change) in changes {
        check(tree, place, change)?;
        match &change.after {
            Some(_) => tree.put(place, &staged(record, place), change.before.is_none())?,
            None => tree.remove(place)?,
        }
    }
    Ok(())
}

/// Refuses to replace what somebody else has changed.
fn check(tree: &Tree, place: &Place, change: &Change) -> Result<(), Error> {
    let now = tree.read(place, Links::Refuse, MAX_FILE)?;
    match version(&now) == change.before.as_ref() {
        true => Ok(()),
        false => Err(meanwhile(place)),
    }
}

fn meanwhile(place: &Place) -> Error {
    Error::conflict(format!("{place} has changed meanwhile; nothing was changed")).at("/path")
}

/// The temporary name of a file: the same after a crash, so that it can be removed.
fn staged(record: &Record, place: &Place) -> String {
    let name = crate::tree::digest(place.as_str().as_bytes());
    format!(".ken-{}-{}", record.call, name.get(..12).unwrap_or_default())
}

/// Restores the files that an interrupted change has already changed. Returns whether all of them were restored.
pub(crate) fn roll_back(tree: &Tree, journal: &Journal, record: &Record) -> bool {
    let mut all = true;
    for entry in &record.files {
        let name = staged(record, &entry.path);
        tree.discard(&entry.path, &name);
        let Ok(now) = tree.read(&entry.path, Links::Refuse, MAX_FILE) else {
            all = false;
            continue;
        };
        if version(&now) == entry.before.as_ref() || version(&now) != entry.after.as_ref() {
            continue;
        }
        let restored = match &entry.before {
            None => tree.remove(&entry.path),
            Some(before) => journal
                .content(&before.digest)
                .and_then(|bytes| tree.stage(&entry.path, &name, before, &bytes, false))
                .and_then(|()| tree.put(&entry.path, &name, entry.after.is_none())),
        };
        all &= restored.is_ok();
    }
    for folder in record.folders.iter().rev() {
        tree.remove_folder(folder);
    }
    all
}
