//! Walks over the folders of the workspace. They follow no links and omit git's own folders, and what git ignores.
//!
//! Files with patterns (`.gitignore`) are read by [`Tree::read`]: a FIFO of that name would block a plain open(2), and
//! with it every call that waits for the lock of the journal.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use ignore::{Match, WalkBuilder};
use ken_types::Error;
use parking_lot::Mutex;

use crate::rel_path::RelPath;
use crate::settings::Settings;
use crate::tree::{Links, Tree};

/// The maximum size of a file with patterns, in bytes. A larger one counts as empty.
const MAX_PATTERNS_BYTES: u64 = 1024 * 1024;
/// The maximum number of folders that a list of ignored files names, and of files that are counted in each.
const MAX_FOLDERS: usize = 20;
const MAX_COUNTED: usize = 1_000_000;

/// The texts of the files with patterns, by path.
pub(crate) type Patterns = BTreeMap<RelPath, String>;

/// Returns a walk over a folder. With `ignored`, it omits what these rules ignore.
pub(crate) fn walk(settings: &Settings, folder: &RelPath, ignored: Option<Arc<Ignored>>) -> WalkBuilder {
    let mut walk = WalkBuilder::new(settings.root.join(folder.as_str()));
    let (root, start) = (settings.clone(), folder.clone());
    walk.standard_filters(false).follow_links(false).sort_by_file_name(Ord::cmp).filter_entry(move |entry| {
        let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        let is_ignored = |ignored: &Arc<Ignored>| {
            let place = place_of(&root, entry.path());
            let top = ignored.top.as_ref().unwrap_or(&start);
            place.is_some_and(|place| place != start && ignored.takes(top, &place, is_folder))
        };
        entry.file_name() != ".git" && !ignored.as_ref().is_some_and(is_ignored)
    });
    walk
}

/// Returns the place for a path from a walk, or `None` if a call cannot name that path.
pub(crate) fn place_of(settings: &Settings, path: &Path) -> Option<RelPath> {
    let relative = path.strip_prefix(&settings.root).ok()?.to_str()?;
    RelPath::parse(relative).ok()
}

/// What git ignores: by the files with patterns on disk, or by those of an earlier time.
#[derive(Debug)]
pub(crate) struct Ignored {
    /// `None` if only the given patterns count.
    tree: Option<Tree>,
    /// The outermost folder whose patterns count. `None` for the one where a walk begins.
    top: Option<RelPath>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    patterns: Patterns,
    rules: HashMap<RelPath, Arc<[Gitignore]>>,
    /// The folders and files that were left out.
    folders: Vec<RelPath>,
    files: Vec<RelPath>,
}

impl Ignored {
    /// Returns the rules as they are on disk. They are read when a walk comes to their folder.
    pub(crate) fn on_disk(settings: &Settings) -> Result<Arc<Ignored>, Error> {
        let tree = Some(Tree::open(settings)?);
        Ok(Arc::new(Ignored { tree, top: None, state: Mutex::default() }))
    }

    /// Returns the rules as they are on disk for a walk over this folder: also those of the folders around it, up to its repository, or else
    /// up to the workspace.
    pub(crate) fn around(settings: &Settings, folder: &RelPath) -> Result<Arc<Ignored>, Error> {
        let tree = Tree::open(settings)?;
        let mut folders = std::iter::once(folder.clone()).chain(folder.folders());
        let top = folders.find(|place| tree.kind(&place.join(".git")).is_some()).unwrap_or_default();
        Ok(Arc::new(Ignored { tree: Some(tree), top: Some(top), state: Mutex::default() }))
    }

    /// Returns the rules of an earlier walk. What has been written since has no effect on them.
    pub(crate) fn recorded(patterns: &Patterns) -> Arc<Ignored> {
        let state = State { patterns: patterns.clone(), ..State::default() };
        Arc::new(Ignored { tree: None, top: None, state: Mutex::new(state) })
    }

    pub(crate) fn patterns(&self) -> Patterns {
        self.state.lock().patterns.clone()
    }

    /// Returns how many files the walks have left out, by folder. Files of `saved` do not count. A long list ends with
    /// the sum of the rest.
    pub(crate) fn left_out(&self, settings: &Settings, saved: &dyn Fn(&RelPath) -> bool) -> Vec<String> {
        let state = self.state.lock();
        let mut single: BTreeMap<RelPath, usize> = BTreeMap::new();
        for file in state.files.iter().filter(|file| !saved(file)) {
            *single.entry(file.around()).or_default() += 1;
        }
        let whole = state.folders.iter().map(|folder| (folder.clone(), count_files(settings, folder, saved)));
        let mut counts: Vec<(RelPath, usize)> = whole.chain(single).filter(|(_, count)| *count > 0).collect();
        counts.sort_by(|(folder, count), (other, other_count)| other_count.cmp(count).then(folder.cmp(other)));
        let rest = counts.split_off(counts.len().min(MAX_FOLDERS));
        let mut lines: Vec<String> =
            counts.iter().map(|(folder, count)| format!("{folder}: {}", files(*count))).collect();
        if !rest.is_empty() {
            let sum = rest.iter().map(|(_, count)| count).sum();
            lines.push(format!("{} other folders: {}", rest.len(), files(sum)));
        }
        lines
    }

    /// Whether a walk leaves out a place in a folder that it has not left out, by the patterns of the folders up to `top`.
    fn takes(&self, top: &RelPath, place: &RelPath, is_folder: bool) -> bool {
        let mut state = self.state.lock();
        let mut folder = place.clone();
        while let Some((parent, _)) = folder.split().filter(|_| folder != *top) {
            // Patterns of a deeper folder take precedence.
            let rules = state.rules_of(&parent, self.tree.as_ref());
            let found =
                rules.iter().map(|rules| rules.matched(absolute(place), is_folder)).find(|found| !found.is_none());
            match found {
                Some(Match::Ignore(_)) => {
                    let list = if is_folder { &mut state.folders } else { &mut state.files };
                    list.push(place.clone());
                    return true;
                }
                Some(_) => return false,
                None => folder = parent,
            }
        }
        false
    }
}

impl State {
    fn rules_of(&mut self, folder: &RelPath, tree: Option<&Tree>) -> Arc<[Gitignore]> {
        if let Some(known) = self.rules.get(folder) {
            return known.clone();
        }
        let names = [folder.join(".gitignore"), folder.join(".git").join("info").join("exclude")];
        let rules = names.into_iter().filter_map(|name| {
            if let Some(text) = tree.and_then(|tree| read(tree, &name)) {
                self.patterns.insert(name.clone(), text);
            }
            parsed(folder, self.patterns.get(&name)?)
        });
        let rules: Arc<[Gitignore]> = rules.collect();
        self.rules.insert(folder.clone(), rules.clone());
        rules
    }
}

/// Reads a file with patterns. As for git, it must not be a link.
fn read(tree: &Tree, place: &RelPath) -> Option<String> {
    let node = tree.read(place, Links::Refuse, MAX_PATTERNS_BYTES).ok()??;
    (!node.version.link).then(|| String::from_utf8_lossy(&node.bytes).into_owned())
}

fn parsed(folder: &RelPath, text: &str) -> Option<Gitignore> {
    let mut builder = GitignoreBuilder::new(absolute(folder));
    for line in text.lines() {
        // A line that is not a pattern ignores nothing, as in git.
        let _ = builder.add_line(None, line);
    }
    builder.build().ok().filter(|rules| !rules.is_empty())
}

/// The patterns need paths that begin at a common root.
fn absolute(place: &RelPath) -> String {
    format!("/{}", place.as_str())
}

fn count_files(settings: &Settings, folder: &RelPath, saved: &dyn Fn(&RelPath) -> bool) -> usize {
    let files = walk(settings, folder, None).build().flatten().filter(|entry| {
        let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        !is_folder && !place_of(settings, entry.path()).is_some_and(|place| saved(&place))
    });
    files.take(MAX_COUNTED).count()
}

fn files(count: usize) -> String {
    match count {
        1 => "1 file".to_owned(),
        MAX_COUNTED.. => format!("{MAX_COUNTED} files or more"),
        count => format!("{count} files"),
    }
}
