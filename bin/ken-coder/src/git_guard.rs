//! Keeps a command from leaving something behind that the next git of a person runs.
//!
//! Where the kernel allows mounts, ken-sandbox makes the configuration and the hooks of every repository read-only. This is
//! the second line, and the only one without mounts: the same files are recorded before a command and put back after it.
//! A repository that the command has made itself keeps the settings that can run nothing, and no hooks.
//!
//! Nor can it leave a link in a folder of git, through which the next git would write elsewhere: into a hook, or to a file outside. A file
//! `.git` that leads to a repository elsewhere is put aside, because the configuration there could name a program by its path in the work tree.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ken_tool::{Code, Error};
use rustix::fs::FileType;

use crate::confine::{Access, with_tree};
use crate::git_names::{Found, Names, is_kept};
use crate::journal::{Entry, Journal};
use crate::programs::GitPrograms;
use crate::rel_path::RelPath;
use crate::repository::{MAX_CONFIG, config_values, pointer, values_of_text};
use crate::settings::Settings;
use crate::tree::{Links, Node, Tree, Version};
use crate::walk::place_of;

/// The maximum size of a file that is put back, in bytes.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;
/// The files of a repository that name programs, or say where such files are.
const FILES: [&str; 6] = ["config", "config.worktree", "commondir", "gitdir", "hooks", "objects/info/alternates"];
const FOLDERS: [&str; 2] = ["hooks", "info"];
/// The folders of a rebase or cherry-pick that is not finished, and the files in them that can name programs.
const STATES: [&str; 3] = ["rebase-merge", "rebase-apply", "sequencer"];
const STATE_FILES: [&str; 4] =
    ["rebase-merge/git-rebase-todo", "rebase-merge/strategy", "rebase-apply/strategy", "sequencer/opts"];
/// A file that marks a rebase or cherry-pick that a command has begun, which commands may continue. Git removes it with the folder.
const BEGUN: &str = "ken-begun";
/// The commands of a rebase's todo list that run no program.
const TODO: [&str; 25] = [
    "b", "break", "d", "drop", "e", "edit", "f", "fixup", "l", "label", "m", "merge", "noop", "p", "pick", "r",
    "reset", "reword", "s", "squash", "t", "u", "update-ref", "revert", "cherry-pick",
];
/// The merge strategies that are part of git. Any other one is a program.
const STRATEGIES: [&str; 6] = ["octopus", "ort", "ours", "recursive", "resolve", "subtree"];
/// The temporary name of a file that is put back, and the end of the name of what is put aside.
const TEMPORARY: &str = "tmp_obj_ken";
const ASIDE: &str = "ken-disabled";

/// The repositories below some folders, and the files in them that git takes programs from.
#[derive(Debug, Default)]
pub(crate) struct GitFolders {
    folders: BTreeSet<RelPath>,
    /// What has the name `.git`: a folder, a file or a link.
    git_places: BTreeSet<RelPath>,
    /// Also what the configurations name in the tree, and `.git` where it is a file.
    files: BTreeSet<RelPath>,
    names: Names,
    /// What the configurations name in the tree, each with whether all of a folder counts.
    named: BTreeMap<RelPath, bool>,
    /// The states of what a person has begun, such as a rebase.
    states: BTreeSet<RelPath>,
    /// Folders that cannot be read, and those that no call can name, each with whether it holds a repository. Also the links in folders
    /// of git that no call can name.
    hidden: BTreeSet<(PathBuf, bool)>,
}

impl GitFolders {
    /// Finds them, and asks git what their configurations name.
    pub(crate) fn read(settings: &Settings, scope: &[RelPath]) -> Result<GitFolders, Error> {
        let mut found = with_tree(settings, Access::Read, |tree| Ok(GitFolders::find(settings, tree, scope)))?;
        if scope.is_empty() || GitPrograms::find(settings).is_err() {
            return Ok(found);
        }
        found.names =
            Names::read(settings, found.places(), &|text| match config_values(settings, &RelPath::default(), text) {
                // What git cannot read names nothing, and the git of a person fails there too.
                Err(error) if error.code == Code::Conflict => Ok(String::new()),
                listed => listed,
            })?;
        let named = found.names.places(settings, true);
        with_tree(settings, Access::Read, |tree| {
            found.add_named(settings, tree, scope, named);
            Ok(found)
        })
    }

    /// Finds them. The names alone decide, because a command can leave a repository for the next one to complete. Every folder is looked into,
    /// however many there are: a command could hide a repository behind as many as a limit allows. The end is certain, because no link is
    /// followed.
    pub(crate) fn find(settings: &Settings, tree: &Tree, scope: &[RelPath]) -> GitFolders {
        let mut found = GitFolders::default();
        let (mut open, mut links) = (scope.to_vec(), Vec::new());
        while let Some(folder) = open.pop() {
            let path = settings.root.join(folder.as_str());
            let names = entries(&path, &mut found.hidden);
            let has = |name: &str| names.contains_key(name);
            if has("commondir") || has("HEAD") && has("objects") && has("refs") || named_git(&folder) {
                found.folders.insert(folder.clone());
            }
            for (name, kind) in names {
                let (place, is_folder) = (folder.join(&name), kind.is_dir());
                if named_git(&place) {
                    found.git_places.insert(place.clone());
                }
                links.extend(kind.is_symlink().then(|| place.clone()));
                if RelPath::parse(place.as_str()).is_err() || is_folder && !has_room(&place) {
                    found.hidden.extend(is_folder.then(|| seen(path.join(&name))));
                } else if is_folder {
                    open.push(place);
                } else if named_git(&place) {
                    found.folders.extend(pointer(settings, tree, &place).ok().flatten());
                    found.files.insert(place);
                } else if name == "commondir" {
                    let text = tree.read(&place, Links::Refuse, MAX_CONFIG).ok().flatten().map(|node| node.bytes);
                    let text = text.unwrap_or_default();
                    let led = std::str::from_utf8(&text).ok().and_then(|text| folder.led(&settings.root, text.trim()));
                    found.folders.extend(led.filter(|led| scope.iter().any(|scope| led.is_in(scope) && led != scope)));
                }
            }
        }
        for folder in found.folders.clone() {
            let names = FILES.iter().chain(&FOLDERS).chain(&STATE_FILES).filter_map(|name| RelPath::parse(name).ok());
            let mut open: Vec<RelPath> = names.map(|name| folder.joined(&name)).collect();
            for state in STATES.map(|name| folder.join(name)) {
                match tree.kind(&state) {
                    Some(FileType::Directory) if tree.kind(&state.join(BEGUN)).is_none() => {
                        found.states.insert(state);
                    }
                    Some(FileType::Directory) => {}
                    // A link can lead to a place that commands may write to.
                    _ => open.push(state),
                }
            }
            found.add_files(settings, tree, scope, open);
        }
        let links = links.into_iter().filter(|link| found.is_written_through(tree, link));
        let (links, unnamed): (Vec<_>, Vec<_>) = links.partition(|link| RelPath::parse(link.as_str()).is_ok());
        found.add_files(settings, tree, scope, links);
        found.hidden.retain(|(path, _)| {
            !path.is_symlink()
                || found.folders.iter().any(|folder| path.starts_with(settings.root.join(folder.as_str())))
        });
        found.hidden.extend(unnamed.iter().map(|link| (settings.root.join(link.as_str()), false)));
        found
    }

    /// Whether git may write to where a link in its folders leads: it appends to logs, and writes messages and lists of refs, in which
    /// names and subjects can be commands. The link `HEAD` is replaced by git, and names a branch in old repositories.
    fn is_written_through(&self, tree: &Tree, link: &RelPath) -> bool {
        // A folder with a file of the name `commondir` need not be one of git.
        let is_of_git = |folder: &RelPath| {
            let has = |name: &str| tree.kind(&folder.join(name)).is_some();
            folder.names().any(|name| name.eq_ignore_ascii_case(".git")) || has("HEAD") || has("refs")
        };
        let mut around = self.folders.iter().filter(|folder| link.is_in(folder) && link != *folder);
        around.any(|folder| link != &folder.join("HEAD") && is_of_git(folder))
    }

    fn add_named(&mut self, settings: &Settings, tree: &Tree, scope: &[RelPath], named: BTreeMap<RelPath, bool>) {
        let is_held = |(place, all): &(&RelPath, &bool)| {
            **all || tree.kind(place).is_some_and(|kind| kind != FileType::Directory)
        };
        let held = named.iter().filter(is_held).map(|(place, _)| place.clone()).collect();
        self.add_files(settings, tree, scope, held);
        self.named.extend(named);
    }

    fn add_files(&mut self, settings: &Settings, tree: &Tree, scope: &[RelPath], mut open: Vec<RelPath>) {
        while let Some(place) = open.pop() {
            let kind = tree.kind(&place);
            if kind == Some(FileType::Directory) {
                let names = entries(&settings.root.join(place.as_str()), &mut BTreeSet::new());
                open.extend(names.keys().map(|name| place.join(name)));
            } else if kind.is_some()
                && RelPath::parse(place.as_str()).is_ok()
                && scope.iter().any(|folder| place.is_in(folder))
            {
                // A record with another name could not be read. Git runs no file with such a name.
                self.files.insert(place);
            }
        }
    }

    fn places(&self) -> Found<'_> {
        Found { git_places: &self.git_places, folders: &self.folders }
    }

    pub(crate) fn names(&self) -> Names {
        self.names.clone()
    }

    /// Returns the files that the configurations name in the tree, the folders of which all counts, and what a person has begun.
    pub(crate) fn held(&self) -> impl Iterator<Item = &RelPath> {
        let named = self.named.iter().filter(|(place, all)| **all || self.files.contains(*place));
        named.map(|(place, _)| place).chain(&self.states)
    }

    /// Whether git executes or includes a file of the tree, because a configuration says so.
    pub(crate) fn executes(&self, place: &RelPath) -> bool {
        self.named.iter().any(|(named, all)| place == named || *all && place.is_in(named))
    }

    /// Whether a file is in a git directory, or in the folder that the `commondir` file of one names.
    pub(crate) fn holds(&self, place: &RelPath) -> bool {
        self.folders.iter().any(|folder| place.is_in(folder))
    }

    /// Stores the files in the journal, and returns them for the record of the command.
    pub(crate) fn keep(&self, tree: &Tree, journal: &Journal) -> Result<Vec<Entry>, Error> {
        let (mut kept, mut new) = (Vec::new(), Vec::new());
        for path in &self.files {
            let node = match tree.read(path, Links::Refuse, MAX_FILE_BYTES) {
                Ok(Some(node)) => node,
                Ok(None) => continue,
                Err(_) => {
                    // For example, it has several hard links. It is listed so that it does not count as new afterwards.
                    kept.push(Entry { path: path.clone(), before: None, after: None });
                    continue;
                }
            };
            if journal.keep(&node.version.digest, &node.bytes)? {
                new.push(node.version.digest.clone());
            }
            kept.push(Entry { path: path.clone(), before: Some(node.version), after: None });
        }
        journal.sync(&new)?;
        Ok(kept)
    }

    /// Makes the folders that a command has hidden since visible: readable, as the command could make them too, and with a
    /// name if they hold a repository. Removes the links that it has hidden.
    pub(crate) fn uncover(&self, settings: &Settings, tree: &Tree, scope: &[RelPath]) {
        // Each round can uncover folders in which there are others.
        for round in 0..100 {
            let now = GitFolders::find(settings, tree, scope).hidden;
            let mut new = now.difference(&self.hidden).peekable();
            if new.peek().is_none() {
                return;
            }
            for (number, (path, _)) in new.enumerate() {
                if path.is_symlink() {
                    let _ = fs::remove_file(path);
                    continue;
                }
                let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
                let around = scope.iter().map(|folder| settings.root.join(folder.as_str()));
                let around = around.into_iter().find(|folder| path.starts_with(folder));
                let is_named = place_of(settings, path).is_some_and(|place| has_room(&place));
                if let Some(around) = around.filter(|_| !is_named && holds_git(path)) {
                    let _ = fs::rename(path, around.join(format!("{ASIDE}-{round}-{number}")));
                }
            }
        }
    }

    /// Returns the configurations of the repositories that a command has made since.
    pub(crate) fn new_configs(&self, settings: &Settings, tree: &Tree, scope: &[RelPath]) -> BTreeSet<Vec<u8>> {
        let now = GitFolders::find(settings, tree, scope);
        let new = now.folders.difference(&self.folders).map(|folder| folder.join("config"));
        new.filter_map(|config| Some(tree.read(&config, Links::Refuse, MAX_CONFIG).ok()??.bytes)).collect()
    }

    /// Puts back the files that a command has changed since, and returns them. `parsed` has the settings of the
    /// configurations of new repositories, as git lists them; of a configuration that is not there, nothing is kept.
    pub(crate) fn put_back(
        &self,
        settings: &Settings,
        tree: &Tree,
        journal: &Journal,
        (scope, kept): (&[RelPath], &[Entry]),
        parsed: &BTreeMap<Vec<u8>, String>,
    ) -> Vec<RelPath> {
        let mut now = GitFolders::find(settings, tree, scope);
        // The configurations are going to be as they were. Their relative paths also count in the work trees that are new.
        let mut named = self.names.clone().with_folders(settings, now.places()).places(settings, false);
        named.extend(self.named.clone());
        now.add_named(settings, tree, scope, named);
        let before: BTreeMap<&RelPath, &Version> =
            kept.iter().filter_map(|entry| Some((&entry.path, entry.before.as_ref()?))).collect();
        let is_new =
            |place: &RelPath| now.folders.iter().any(|folder| !self.folders.contains(folder) && place.is_in(folder));
        let mut changed = Vec::new();
        let all: BTreeSet<&RelPath> = now.files.iter().chain(before.keys().copied()).collect();
        for place in all {
            let version = before.get(place).copied();
            let read = tree.read(place, Links::Refuse, MAX_FILE_BYTES);
            let node = read.as_ref().ok().and_then(Option::as_ref);
            let current = node.map(|node| node.version.clone());
            let is_same = match &read {
                Ok(_) => current.as_ref() == version,
                Err(_) => version.is_none() && self.files.contains(place),
            };
            let is_state = STATES.iter().chain(&STATE_FILES).any(|name| place.as_str().ends_with(&format!("/{name}")));
            // Git changes the state itself, and a person may have gone on meanwhile. So only what would run a program is taken back.
            if is_state && read.is_ok() {
                let before = version.and_then(|version| journal.content(&version.digest).ok()).unwrap_or_default();
                if node.is_none_or(|node| !node.version.link && runs_nothing(place.name(), &node.bytes, &before)) {
                    continue;
                }
            }
            let leads_out = match &read {
                Ok(Some(node)) => leads_out(settings, scope, place, node),
                Ok(None) => false,
                Err(_) => named_git(place),
            };
            // `.git` as a file may be made: what it leads to in these folders is a repository, and treated as one. A hook that is checked out
            // in a further work tree is the one that was there before.
            let is_copy = || {
                let mut named = before.iter().filter(|(path, _)| path.name() == place.name() && self.executes(path));
                now.executes(place) && named.any(|(_, version)| current.as_ref() == Some(*version))
            };
            let may_be_new = !leads_out && (is_new(place) && !is_state || named_git(place) || is_copy());
            if is_same || version.is_none() && may_be_new {
                continue;
            }
            put(tree, journal, place, version);
            changed.push(place.clone());
        }
        let is_in_scope = |folder: &&RelPath| scope.iter().any(|scope| folder.is_in(scope));
        for folder in now.folders.difference(&self.folders).filter(is_in_scope) {
            // A configuration in whose place there is a link becomes an empty one.
            let config = folder.join("config");
            let is_link = |place: &&RelPath| {
                place.is_in(folder) && **place != config && tree.kind(place) == Some(FileType::Symlink)
            };
            let links: Vec<&RelPath> = now.files.iter().filter(is_link).collect();
            links.iter().for_each(|link| put_aside(tree, link));
            if disarm(tree, folder, parsed) || !links.is_empty() {
                changed.push(folder.clone());
            }
        }
        changed
    }

    /// Marks the states of what a command has begun since, so that the next one can go on with it.
    pub(crate) fn mark_begun(&self, settings: &Settings, tree: &Tree, scope: &[RelPath]) {
        for state in GitFolders::find(settings, tree, scope).states.difference(&self.states) {
            let _ = tree.create(&state.join(BEGUN), BEGUN, 0o644, b"", false);
        }
    }

    /// For a command that was interrupted: what it had found is known from its record.
    pub(crate) fn of_record(kept: &[Entry], names: Names) -> GitFolders {
        let folders = kept.iter().filter_map(|entry| {
            let (folder, name) = entry.path.split()?;
            (name == "config").then_some(folder)
        });
        GitFolders {
            folders: folders.collect(),
            files: kept.iter().map(|entry| entry.path.clone()).collect(),
            names,
            ..GitFolders::default()
        }
    }
}

/// Whether a file `.git` or `commondir` leads git out of these folders, or to where there is nothing yet. Git would take its configuration from
/// there, and that can name a program by a path in the work tree.
fn leads_out(settings: &Settings, scope: &[RelPath], place: &RelPath, node: &Node) -> bool {
    // As git reads them: without the ends of lines at the end, then to the first NUL. Blanks belong to the path.
    let end = node.bytes.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    let text = node.bytes.get(..end).unwrap_or_default().split(|byte| *byte == 0).next().unwrap_or_default();
    let path = match (node.version.link, named_git(place)) {
        (true, true) => Some(text),
        (false, true) => text.strip_prefix(b"gitdir: "),
        (_, false) => Some(text).filter(|_| place.name() == "commondir"),
    };
    let Some(path) = path else { return false };
    let around = settings.root.join(place.around().as_str());
    let to = around.join(OsStr::from_bytes(path)).canonicalize();
    !to.is_ok_and(|to| scope.iter().any(|folder| to.starts_with(settings.root.join(folder.as_str()))))
}

/// Whether nothing in a file of a rebase or cherry-pick makes git run a program. What the file contained `before` does not count.
fn runs_nothing(name: &str, text: &[u8], before: &[u8]) -> bool {
    let (text, before) = (String::from_utf8_lossy(text), String::from_utf8_lossy(before));
    let runs_nothing = |line: &str| {
        let word = line.split_whitespace().next().unwrap_or_default();
        // A comment can begin with any character. The name of a command always begins with a letter.
        !word.starts_with(|letter: char| letter.is_ascii_alphabetic()) || TODO.contains(&word)
    };
    match name {
        "git-rebase-todo" => text.lines().all(|line| runs_nothing(line) || before.lines().any(|known| known == line)),
        "strategy" => STRATEGIES.contains(&text.trim()) || text == before,
        // A configuration, in which the strategy is a key.
        "opts" => !text.to_ascii_lowercase().replace("strategy-option", "").contains("strategy") || text == before,
        _ => false,
    }
}

/// Whether the path of a folder leaves room for the longest name of a file that git runs in a repository.
fn has_room(folder: &RelPath) -> bool {
    RelPath::parse(folder.join("hooks/reference-transaction").as_str()).is_ok()
}

fn named_git(place: &RelPath) -> bool {
    place.name().eq_ignore_ascii_case(".git")
}

/// Returns the names in a folder, and what they are. What has no name in UTF-8, or cannot be read, is `hidden`.
fn entries(folder: &Path, hidden: &mut BTreeSet<(PathBuf, bool)>) -> BTreeMap<String, fs::FileType> {
    let mut names = BTreeMap::new();
    let Ok(entries) = fs::read_dir(folder) else {
        hidden.insert((folder.to_owned(), false));
        return names;
    };
    for entry in entries.flatten() {
        // It was removed meanwhile.
        let Ok(kind) = entry.file_type() else { continue };
        match entry.file_name().into_string() {
            Ok(name) => drop(names.insert(name, kind)),
            Err(_) if kind.is_dir() => drop(hidden.insert(seen(entry.path()))),
            Err(_) if kind.is_symlink() => drop(hidden.insert((entry.path(), false))),
            Err(_) => {}
        }
    }
    names
}

fn seen(folder: PathBuf) -> (PathBuf, bool) {
    let holds_git = holds_git(&folder);
    (folder, holds_git)
}

/// Whether a folder, or one below it, looks like a repository.
fn holds_git(folder: &Path) -> bool {
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if [".git", "HEAD", "commondir"].iter().any(|name| entry.file_name().eq_ignore_ascii_case(name)) {
                return true;
            }
            open.extend(entry.file_type().is_ok_and(|kind| kind.is_dir()).then(|| entry.path()));
        }
    }
    false
}

/// Puts a file back as it was, or removes it. What cannot be replaced, such as a folder in its place, is put aside.
fn put(tree: &Tree, journal: &Journal, place: &RelPath, version: Option<&Version>) {
    let mut folder = RelPath::default();
    for name in place.around().names() {
        folder = folder.join(name);
        if tree.kind(&folder).is_some_and(|kind| kind != FileType::Directory) {
            put_aside(tree, &folder);
        }
        let _ = tree.make_folder(&folder);
    }
    if version.is_none() || tree.kind(place) == Some(FileType::Directory) {
        put_aside(tree, place);
    }
    if let Some(version) = version
        && let Ok(bytes) = journal.content(&version.digest)
    {
        tree.discard(place, TEMPORARY);
        let staged = tree.stage(place, TEMPORARY, version, &bytes, true);
        let _ = staged.and_then(|()| tree.take_over(place, TEMPORARY));
    }
}

/// Renames a file or folder to a name that git does not use. A link is removed, because a branch can have the new name, and then git
/// would append the branch's log to where the link leads.
fn put_aside(tree: &Tree, place: &RelPath) {
    if tree.kind(place) == Some(FileType::Symlink) {
        let _ = tree.remove(place);
        return;
    }
    let _ = (0..1_000).find(|number| tree.set_aside(place, &format!("{}.{ASIDE}-{number}", place.name())).is_ok());
}

/// Takes from a new repository what could run a program. Returns whether there was something.
fn disarm(tree: &Tree, folder: &RelPath, parsed: &BTreeMap<Vec<u8>, String>) -> bool {
    let mut is_changed = false;
    for name in ["config.worktree", "hooks"] {
        let place = folder.join(name);
        if tree.kind(&place).is_some() && !has_only_samples(tree, &place) {
            put_aside(tree, &place);
            is_changed = true;
        }
    }
    let config = folder.join("config");
    if tree.kind(&config).is_none() {
        return is_changed;
    }
    let text = tree.read(&config, Links::Refuse, MAX_CONFIG).ok().flatten().filter(|node| !node.version.link);
    let text = text.map(|node| node.bytes).unwrap_or_default();
    let kept = match parsed.get(&text) {
        Some(listed) if values_of_text(listed).iter().all(is_kept) => return is_changed,
        listed => config_of(&values_of_text(listed.map_or("", String::as_str))),
    };
    put_aside(tree, &config);
    let _ = tree.replace(&config, TEMPORARY, 0o644, kept.as_bytes());
    true
}

/// Whether a folder holds only the examples that `git init` puts there. Git does not run them.
fn has_only_samples(tree: &Tree, hooks: &RelPath) -> bool {
    let names = tree.folder(hooks).and_then(|folder| tree.names(folder));
    names.is_ok_and(|names| names.iter().all(|name| name.ends_with(".sample")))
}

fn config_of(values: &[(String, String)]) -> String {
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let mut text = String::new();
    for (key, value) in values.iter().filter(|value| is_kept(value)) {
        let Some((section, name)) = key.rsplit_once('.') else { continue };
        let header = match section.split_once('.') {
            Some((section, within)) => format!("{section} \"{}\"", quoted(within)),
            None => section.to_owned(),
        };
        text.push_str(&format!("[{header}]\n\t{name} = \"{}\"\n", quoted(value)));
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::journal::tests::{entry, journal, place};

    /// A workspace on disk.
    struct World {
        root: tempfile::TempDir,
        _state: tempfile::TempDir,
        journal: Journal,
        settings: Settings,
        tree: Tree,
    }

    impl World {
        fn new() -> World {
            let root = tempfile::tempdir().unwrap();
            fs::create_dir(root.path().join("repos")).unwrap();
            let (state, journal) = journal();
            let settings = Settings::of_folders(root.path(), state.path()).unwrap();
            let tree = Tree::open(&settings).unwrap();
            World { root, _state: state, journal, settings, tree }
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn read(&self, path: &str) -> Option<String> {
            fs::read_to_string(self.root.path().join(path)).ok()
        }

        /// Makes those of the files and folders of a repository.
        fn repository(&self, path: &str, names: &[&str]) {
            for name in names {
                match *name {
                    "objects" | "refs" => fs::create_dir_all(self.root.path().join(path).join(name)).unwrap(),
                    name => self.write(&format!("{path}/{name}"), ""),
                }
            }
        }

        /// Every configuration that is not empty has the settings `values`.
        fn find(&self, scope: &[RelPath], values: &str) -> GitFolders {
            let mut found = GitFolders::find(&self.settings, &self.tree, scope);
            let list = |text: &[u8]| Ok(if text.is_empty() { String::new() } else { values.replace(' ', "\n") });
            found.names = Names::read(&self.settings, found.places(), &list).unwrap();
            let named = found.names.places(&self.settings, true);
            found.add_named(&self.settings, &self.tree, scope, named);
            found
        }
    }

    fn places(paths: &[&str]) -> BTreeSet<RelPath> {
        paths.iter().map(|path| place(path)).collect()
    }

    const WHOLE: [&str; 4] = ["HEAD", "objects", "refs", "config"];

    #[test]
    fn repositories_are_found_by_the_names_of_their_files_and_by_what_leads_to_them() {
        let world = World::new();
        world.repository("repos/a/.git", &WHOLE);
        world.write("repos/a/.git/config", "it is the one that is not empty");
        let values = "core.hookspath tools/hooks\0include.path ../inc\0blame.ignorerevsfile src/no\0include.path ../../../outside/x\0";
        for file in ["hooks/pre-commit", "info/attributes", "objects/info/alternates", "logs/HEAD"] {
            world.write(&format!("repos/a/.git/{file}"), "");
        }
        for file in ["tools/hooks/x", "inc", "no", "src"] {
            world.write(&format!("repos/a/{file}"), "");
        }
        world.write("repos/a/sub/.git", "gitdir: ../.git/modules/sub\n");
        world.repository("repos/a/.git/modules/sub", &["config"]);
        world.repository("repos/bare", &WHOLE);
        for (name, files) in [("one", ["HEAD", "objects"]), ("two", ["HEAD", "refs"]), ("three", ["objects", "refs"])] {
            world.repository(&format!("repos/part/{name}"), &files);
        }
        world.write("repos/tree/commondir", "../far\n");
        world.write("repos/far/config", "");
        // To the folders of all repositories, and out of them.
        world.write("repos/up/commondir", "..");
        world.write("repos/out/commondir", "../../outside");
        world.write("outside/config", "");
        world.write("repos/case/.GIT/config", "");
        let found = world.find(&[place("repos")], values);
        let folders = ["a/.git", "a/.git/modules/sub", "bare", "tree", "far", "up", "out", "case/.GIT"]
            .map(|name| format!("repos/{name}"));
        assert_eq!(found.folders, places(&folders.each_ref().map(String::as_str)));
        let files = [
            "a/.git/config",
            "a/.git/hooks/pre-commit",
            "a/.git/info/attributes",
            "a/.git/objects/info/alternates",
            "a/tools/hooks/x",
            "a/inc",
            "a/sub/.git",
            "a/.git/modules/sub/config",
            "bare/config",
            "tree/commondir",
            "far/config",
            "up/commondir",
            "out/commondir",
            "case/.GIT/config",
        ]
        .map(|name| format!("repos/{name}"));
        assert_eq!(found.files, places(&files.each_ref().map(String::as_str)));
        for (name, is) in
            [("tools/hooks/x", true), ("tools/hooks", true), ("inc", true), ("no", false), ("tools", false)]
        {
            assert_eq!(found.executes(&place(&format!("repos/a/{name}"))), is, "{name}");
        }
        // Only what lies in a folder that the command can write to is found.
        let found = world.find(&[place("repos/tree"), place("repos/bare")], values);
        assert_eq!(found.files, places(&["repos/tree/commondir", "repos/bare/config"]));
        assert_eq!(found.folders, places(&["repos/tree", "repos/bare"]));
        let found = world.find(&[place("repos/a/.git"), place("repos/bare")], values);
        let inc = place("repos/a/inc");
        assert!(found.executes(&inc) && !found.files.contains(&inc), "{:?}", found.files);
    }

    /// What a command has changed is put back, what it has added is put aside, and a repository that it has made keeps what can
    /// run nothing.
    #[test]
    fn what_git_would_run_is_as_it_was() {
        let world = World::new();
        let scope = [place("repos")];
        world.repository("repos/a/.git", &WHOLE);
        for file in ["config", "hooks/changed", "hooks/kept", "hooks/folder", "info/gone"] {
            world.write(&format!("repos/a/.git/{file}"), file);
        }
        world.write("repos/a/sub/.git", "gitdir: ../.git/modules/sub");
        let before = world.find(&scope, "");
        let kept = before.keep(&world.tree, &world.journal).unwrap();
        assert_eq!(kept.len(), 6);
        world.write("repos/a/.git/config", "evil");
        world.write("repos/a/.git/hooks/changed", "evil");
        world.write("repos/a/.git/hooks/new", "evil");
        fs::remove_file(world.root.path().join("repos/a/.git/hooks/folder")).unwrap();
        world.write("repos/a/.git/hooks/folder/x", "evil");
        fs::remove_dir_all(world.root.path().join("repos/a/.git/info")).unwrap();
        world.write("repos/a/.git/info", "evil");
        world.write("repos/a/sub/.git", "gitdir: ../evil");
        // A repository of its own, with and without something to run, and one that `.git` as a file leads to.
        world.repository("repos/good/.git", &["HEAD", "objects", "refs", "hooks/one.sample"]);
        world.write("repos/good/.git/config", "good");
        world.repository(
            "repos/bad/.git",
            &["HEAD", "objects", "refs", "hooks/one.sample", "hooks/two", "config.worktree"],
        );
        world.write("repos/bad/.git/config", "bad");
        world.write("repos/unread/.git/config", "unread");
        // Its configuration is what a link leads to, not the text of the link, which is one too.
        world.repository("repos/linked/.git", &["HEAD"]);
        world.write("repos/linked/.git/[core]", "evil");
        std::os::unix::fs::symlink("[core]", world.root.path().join("repos/linked/.git/config")).unwrap();
        world.write("repos/led/.git", "gitdir: ../led.git");
        world.repository("repos/led.git", &["HEAD"]);
        let parsed = BTreeMap::from([
            (b"[core]".to_vec(), String::new()),
            (b"good".to_vec(), "core.bare\nfalse\0user.name\nAda\0".to_owned()),
            (b"bad".to_vec(), "core.bare\nfalse\0core.fsmonitor\nevil\0remote.o.url\nhttps://x/\"y\0".to_owned()),
        ]);
        let new = before.new_configs(&world.settings, &world.tree, &scope);
        assert_eq!(new, ["[core]", "bad", "good", "unread"].map(|text| text.as_bytes().to_vec()).into());
        let changed = before.put_back(&world.settings, &world.tree, &world.journal, (&scope, &kept), &parsed);
        let names = ["config", "hooks/changed", "hooks/folder", "hooks/new", "info", "info/gone"];
        let mut wanted: BTreeSet<String> = names.iter().map(|name| format!("repos/a/.git/{name}")).collect();
        wanted.extend(["sub/.git"].map(|name| format!("repos/a/{name}")));
        wanted.extend(["bad", "linked", "unread"].map(|name| format!("repos/{name}/.git")));
        let changed: BTreeSet<String> = changed.iter().map(|place| place.as_str().to_owned()).collect();
        assert_eq!(changed, wanted);
        for file in ["config", "hooks/changed", "hooks/kept", "hooks/folder", "info/gone"] {
            assert_eq!(world.read(&format!("repos/a/.git/{file}")).as_deref(), Some(file));
        }
        let aside = |path: &str| world.root.path().join(format!("{path}.{ASIDE}-0")).exists();
        assert!(aside("repos/a/.git/hooks/new") && !world.root.path().join("repos/a/.git/hooks/new").exists());
        assert_eq!(world.read("repos/good/.git/config").as_deref(), Some("good"));
        assert!(world.root.path().join("repos/good/.git/hooks").exists());
        let config = "[core]\n\tbare = \"false\"\n[remote \"o\"]\n\turl = \"https://x/\\\"y\"\n";
        assert_eq!(world.read("repos/bad/.git/config").as_deref(), Some(config));
        assert!(["hooks", "config.worktree", "config"].iter().all(|name| aside(&format!("repos/bad/.git/{name}"))));
        assert_eq!(world.read("repos/unread/.git/config").as_deref(), Some(""));
        assert_eq!(world.read("repos/linked/.git/config").as_deref(), Some(""));
        assert_eq!(world.read("repos/a/sub/.git").as_deref(), Some("gitdir: ../.git/modules/sub"));
        assert_eq!(world.read("repos/led/.git").as_deref(), Some("gitdir: ../led.git"));
    }

    /// `KEN_FOLDERS` is the number of folders that are looked into before the repository, since the last name is looked into first.
    #[test]
    fn a_repository_cannot_hide_behind_many_folders() {
        let world = World::new();
        let scope = [place("repos")];
        let before = world.find(&scope, "");
        let folders = std::env::var("KEN_FOLDERS").map_or(2_000, |number| number.parse().unwrap());
        for number in 0..folders {
            fs::create_dir_all(world.root.path().join(format!("repos/z/{}/{number}", number / 1_000))).unwrap();
        }
        world.repository("repos/a/.git", &["HEAD", "objects", "refs", "hooks/pre-commit"]);
        let changed = before.put_back(&world.settings, &world.tree, &world.journal, (&scope, &[]), &BTreeMap::new());
        assert_eq!(changed, [place("repos/a/.git")]);
    }

    /// A folder that no call can name gets a name if it holds a repository, so that the next search finds it.
    #[test]
    fn a_repository_cannot_hide_behind_its_name() {
        let world = World::new();
        let scope = [place("projects"), place("repos")];
        let odd = |name: &[u8]| world.root.path().join("repos").join(OsStr::from_bytes(name));
        fs::create_dir_all(odd(b"old\xff").join("deep/.git")).unwrap();
        let before = world.find(&scope, "");
        fs::create_dir_all(odd(b"one\xff").join("deep/.GIT")).unwrap();
        fs::create_dir_all(odd(b"two\xff").join("commondir")).unwrap();
        fs::create_dir_all(odd(b"none\xff").join("deep/git")).unwrap();
        fs::write(odd(b"file\xff"), "x").unwrap();
        let mode = || odd(b"file\xff").metadata().unwrap().permissions().mode();
        let mode_before = mode();
        fs::set_permissions(odd(b"one\xff"), fs::Permissions::from_mode(0o000)).unwrap();
        before.uncover(&world.settings, &world.tree, &scope);
        let there = [&b"old\xff"[..], b"one\xff", b"two\xff", b"none\xff", b"file\xff"].map(|name| odd(name).exists());
        assert_eq!(there, [true, false, false, true, true]);
        let names = entries(&world.root.path().join("repos"), &mut BTreeSet::new());
        let named: Vec<_> = names.keys().filter(|name| name.starts_with(ASIDE)).collect();
        assert_eq!(named.len(), 2, "{names:?}");
        assert_eq!(mode(), mode_before);
        assert_eq!(odd(b"none\xff").metadata().unwrap().permissions().mode() & 0o777, 0o700);
        for (name, holds) in [(&b"old\xff"[..], true), (b"none\xff", false)] {
            assert_eq!(holds_git(&odd(name)), holds);
        }
    }

    /// A record that names a file in a way in which no call can is not read again, and with it the run cannot be undone.
    #[test]
    fn what_no_call_can_name_is_not_recorded_and_a_repository_there_is_hidden() {
        let world = World::new();
        world.repository("repos/a/.git", &WHOLE);
        world.write("repos/a/.git/hooks/pre\nfix", "x");
        // The longest folder in which all that git runs has a name, and one of a byte more.
        let folder = |length: usize| {
            let mut path = format!("repos/{}", format!("{}/", "d".repeat(100)).repeat(8));
            path.push_str(&"e".repeat(length - path.len() - "/.git".len()));
            format!("{path}/.git")
        };
        let (fits, long) =
            (folder(1024 - "/hooks/reference-transaction".len()), folder(1025 - "/hooks/reference-transaction".len()));
        for path in [&fits, &long] {
            world.repository(path, &WHOLE);
            world.write(&format!("{path}/hooks/reference-transaction"), "x");
        }
        let found = world.find(&[place("repos")], "");
        for (path, is) in [(&fits, true), (&long, false)] {
            assert_eq!(found.folders.contains(&place(path)), is, "{}", path.len());
            assert_eq!(found.hidden.contains(&(world.root.path().join(path), true)), !is, "{}", path.len());
        }
        assert!(found.files.contains(&place(&format!("{fits}/hooks/reference-transaction"))));
        assert_eq!(found.files.iter().find(|file| RelPath::parse(file.as_str()).is_err()), None);
    }

    #[test]
    fn of_an_interrupted_command_the_record_is_known() {
        let kept = ["repos/a/.git/config", "repos/a/.git/hooks/config.x", "repos/b/config"]
            .map(|path| entry(path, Some("x"), None));
        let known = GitFolders::of_record(&kept, Names::default());
        assert_eq!(known.folders, places(&["repos/a/.git", "repos/b"]));
        assert_eq!(known.files.len(), 3);
    }
}
