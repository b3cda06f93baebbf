//! The files and folders of the tree that git configurations name: hooks, included files and programs. If a command could write there,
//! the next git of a person would run what it wrote.
//!
//! Git itself splits a configuration into keys and values. No list of keys decides which of them name a program, because there is
//! always one more: every file of the tree that a value names counts, unless the key is known to be data. A place too many does
//! little harm.
//!
//! The configurations are read as git finds them, also outside of the tree: above a trusted folder, in the repository of a further
//! worktree, and in the home folder. So this cannot run in a confined thread. Nothing of them but places of the tree is used.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use ken_tool::{Error, open_regular};
use serde::{Deserialize, Serialize};

use crate::rel_path::{RelPath, pieces};
use crate::repository::{MAX_CONFIG, values_of_text};
use crate::settings::Settings;

/// The maximum number of configurations that are read, with those that they include.
const MAX_FILES: usize = 2_000;
/// The maximum number of symbolic links in a path, as in the kernel.
const MAX_LINKS: usize = 40;
/// The settings, besides those that a new repository keeps, whose files git only reads as data.
const DATA: [&str; 6] = [
    "blame.ignorerevsfile", "commit.template", "core.excludesfile", "diff.orderfile", "format.signaturefile",
    "mailmap.file",
];

/// The settings that a repository made by a command keeps. `*` stands for a name that it chose.
const KEPT: [&str; 22] = [
    "branch.*.merge",
    "branch.*.rebase",
    "branch.*.remote",
    "core.autocrlf",
    "core.bare",
    "core.eol",
    "core.filemode",
    "core.ignorecase",
    "core.logallrefupdates",
    "core.precomposeunicode",
    "core.repositoryformatversion",
    "core.symlinks",
    "extensions.compatobjectformat",
    "extensions.objectformat",
    "extensions.refstorage",
    "remote.*.fetch",
    "remote.*.tagopt",
    "remote.*.url",
    "submodule.*.active",
    "submodule.*.url",
    "user.email",
    "user.name",
];

/// The repositories in the tree: what has the name `.git`, and the folders of git.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found<'a> {
    pub(crate) git_places: &'a BTreeSet<RelPath>,
    pub(crate) folders: &'a BTreeSet<RelPath>,
}

/// How a value names a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Kind {
    /// The whole value is a path, of a folder with hooks or of a file that is included.
    Whole,
    /// A word with a slash in a command line.
    Path,
    /// A word without one, such as `clean.py` in `python3 clean.py`. It counts if it is the name of a file.
    Bare,
}

/// A repository and what its configuration names.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Named {
    /// The folders in which git can start what is named by a relative path.
    from: BTreeSet<PathBuf>,
    paths: BTreeSet<(String, Kind)>,
}

/// The repositories whose git a person runs in the tree, by the folder with the configuration. The empty path stands for the
/// settings of the person, which count in all of them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Names(BTreeMap<PathBuf, Named>);

impl Names {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads the configurations of the repositories in which the folders of `found` are. `list` lists the settings in a text.
    pub(crate) fn read(
        settings: &Settings,
        found: Found<'_>,
        list: &dyn Fn(&[u8]) -> Result<String, Error>,
    ) -> Result<Names, Error> {
        let mut names = Names::default().with_folders(settings, found);
        let mut open: Vec<(PathBuf, PathBuf)> = personal().into_iter().map(|file| (PathBuf::new(), file)).collect();
        for common in names.0.keys().filter(|common| !common.as_os_str().is_empty()) {
            let own = further(common).map(|folder| folder.join("config.worktree"));
            let files = own.chain(["config", "config.worktree"].map(|name| common.join(name)));
            open.extend(files.map(|file| (common.clone(), file)));
        }
        let (mut seen, mut known) = (BTreeSet::new(), BTreeMap::<Vec<u8>, Vec<(String, String)>>::new());
        while let Some((common, file)) = open.pop() {
            let at = follow(&file, &mut Vec::new());
            if !seen.insert((common.clone(), at.clone())) {
                continue;
            }
            if seen.len() > MAX_FILES {
                let message = format!("git reads more than {MAX_FILES} configurations here");
                return Err(Error::too_large(message).hint("work in one of the repositories"));
            }
            let Some(text) = text_of(&at)? else { continue };
            let values = match known.get(&text) {
                Some(values) => values.clone(),
                None => values_of_text(&list(&text)?),
            };
            for (key, value) in &values {
                let included = names.add(&common, &file, key, value);
                open.extend(included.map(|included| (common.clone(), included)));
            }
            known.insert(text, values);
        }
        Ok(names)
    }

    /// Adds the folders in which a relative path counts: the repositories and work trees of `found`, and those around the tree.
    pub(crate) fn with_folders(mut self, settings: &Settings, found: Found<'_>) -> Names {
        self.0.entry(PathBuf::new()).or_default();
        let inside = found.git_places.iter().map(|git| settings.root.join(git.around().as_str()));
        for work in inside.chain(settings.root.ancestors().skip(1).map(Path::to_owned)) {
            let git = work.join(".git");
            let folder = match pointer(&git) {
                Some(text) => text.strip_prefix(b"gitdir:").and_then(|path| led(&work, path)),
                None => git.is_dir().then_some(git),
            };
            if let Some(folder) = folder {
                self.add_folders(&folder, Some(&work));
            }
        }
        for folder in found.folders {
            self.add_folders(&settings.root.join(folder.as_str()), None);
        }
        self
    }

    fn add_folders(&mut self, folder: &Path, work: Option<&Path>) {
        let folder = follow(folder, &mut Vec::new());
        let common = pointer(&folder.join("commondir")).and_then(|text| led(&folder, &text));
        let common = follow(common.as_deref().unwrap_or(&folder), &mut Vec::new());
        let works = further(&common).filter_map(|folder| led(&folder, &pointer(&folder.join("gitdir"))?));
        let works: Vec<PathBuf> = works.filter_map(|git| git.parent().map(Path::to_owned)).collect();
        let from = [folder, common.clone()].into_iter().chain(works).chain(work.map(Path::to_owned));
        // A path that is no text cannot be recorded, and no call can name what is there.
        let from = from.filter(|path| path.to_str().is_some());
        if common.to_str().is_some() {
            self.0.entry(common).or_default().from.extend(from);
        }
    }

    /// Adds what a setting names, and returns the file that it includes.
    fn add(&mut self, common: &Path, file: &Path, key: &str, value: &str) -> Option<PathBuf> {
        let named = self.0.entry(common.to_owned()).or_default();
        let home = std::env::home_dir().unwrap_or_default();
        let home_path =
            |path: &str| path.strip_prefix("~/").and_then(|rest| Some(home.join(rest).to_str()?.to_owned()));
        let whole = home_path(value).unwrap_or_else(|| value.to_owned());
        match key {
            _ if value.is_empty() => {}
            "core.worktree" => drop(named.from.insert(common.join(whole))),
            "core.hookspath" | "init.templatedir" => drop(named.paths.insert((whole, Kind::Whole))),
            // Whether its condition holds depends on what a command can change, such as the branch.
            _ if key == "include.path" || key.starts_with("includeif.") && key.ends_with(".path") => {
                let included = file.parent().unwrap_or(file).join(whole);
                named.paths.extend(included.to_str().map(|path| (path.to_owned(), Kind::Whole)));
                return Some(included);
            }
            _ if DATA.contains(&key) || is_kept(&(key.to_owned(), value.to_owned())) => {}
            // The words of an alias are those of git, but for one that begins with `!`.
            _ if key.starts_with("alias.") && !value.starts_with('!') => {}
            _ => {
                let value = value.replace("${HOME}/", "~/").replace("$HOME/", "~/");
                for (number, word) in pieces(&value).into_iter().enumerate() {
                    let word = word.trim_start_matches('!');
                    let word = home_path(word).unwrap_or_else(|| word.to_owned());
                    // What follows a substitution begins with a slash: `$(git rev-parse --show-toplevel)/tools/x`.
                    let below = word.trim_start_matches('/').to_owned();
                    if word.contains('/') {
                        named.paths.extend([word, below].map(|word| (word, Kind::Path)));
                    } else if number > 0 && word != value && !key.starts_with("alias.") {
                        // The first one is looked up in PATH, and an alias is a script in which words mean anything.
                        named.paths.insert((word, Kind::Bare));
                    }
                }
            }
        }
        None
    }

    /// Returns the places of the tree that are named, each with whether all of a folder counts. Only before a command, a word
    /// without a slash counts: afterwards its file can be a new one, such as `test` after `make test`.
    pub(crate) fn places(&self, settings: &Settings, before: bool) -> BTreeMap<RelPath, bool> {
        let root = follow(&settings.root, &mut Vec::new());
        let everywhere: BTreeSet<&PathBuf> = self.0.values().flat_map(|named| &named.from).collect();
        let mut places = BTreeMap::new();
        for (common, Named { from, paths }) in &self.0 {
            let from = if common.as_os_str().is_empty() { everywhere.clone() } else { from.iter().collect() };
            for (path, kind) in paths.iter().filter(|(_, kind)| before || *kind != Kind::Bare) {
                for from in &from {
                    // Each link on the way counts too: with another one in its place, the path leads elsewhere.
                    let mut ways = Vec::new();
                    let end = follow(&from.join(path), &mut ways);
                    ways.push(end);
                    let below = ways.iter().filter_map(|way| way.strip_prefix(&root).ok()?.to_str());
                    let below =
                        below.filter_map(|path| RelPath::parse(path).ok()).filter(|place| !place.as_str().is_empty());
                    for place in below.filter(|place| *kind != Kind::Bare || root.join(place.as_str()).is_file()) {
                        *places.entry(place).or_default() |= *kind == Kind::Whole;
                    }
                }
            }
        }
        places
    }
}

/// Returns the files with the settings of the person and of the system.
fn personal() -> Vec<PathBuf> {
    let home = std::env::home_dir().unwrap_or_default();
    let config = std::env::var_os("XDG_CONFIG_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let config = config.unwrap_or_else(|| home.join(".config"));
    vec![PathBuf::from("/etc/gitconfig"), config.join("git/config"), home.join(".gitconfig")]
}

/// Returns the folders of git that belong to the further worktrees of a repository.
fn further(common: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(common.join("worktrees")).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn led(from: &Path, path: &[u8]) -> Option<PathBuf> {
    Some(from.join(std::str::from_utf8(path.trim_ascii()).ok()?))
}

/// Returns where a path leads, whether something is there or not, and adds the symbolic links on the way to `links`.
fn follow(path: &Path, links: &mut Vec<PathBuf>) -> PathBuf {
    let parts = |path: &Path| path.components().map(|part| part.as_os_str().to_owned()).collect::<VecDeque<_>>();
    let (mut open, mut at) = (parts(path), PathBuf::from("/"));
    while let Some(part) = open.pop_front() {
        match Path::new(&part).components().next() {
            Some(Component::ParentDir) => drop(at.pop()),
            Some(Component::RootDir) => at = PathBuf::from("/"),
            Some(Component::Normal(name)) => {
                at.push(name);
                if links.len() < MAX_LINKS
                    && let Ok(target) = fs::read_link(&at)
                {
                    links.push(at.clone());
                    at.pop();
                    let mut way = parts(&target);
                    way.append(&mut open);
                    open = way;
                }
            }
            _ => {}
        }
    }
    at
}

/// Reads a regular file. Fails if it is too long for a configuration: git would read it, and commands could write to what it names.
fn text_of(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    let Ok(file) = open_regular(path) else { return Ok(None) };
    let mut text = Vec::new();
    match file.take(MAX_CONFIG + 1).read_to_end(&mut text) {
        Ok(bytes) if bytes as u64 > MAX_CONFIG => {
            let message = format!("{} has more than {MAX_CONFIG} bytes", path.display());
            Err(Error::too_large(message).hint("git reads it as a configuration: shorten it, or include it nowhere"))
        }
        Ok(_) => Ok(Some(text)),
        Err(_) => Ok(None),
    }
}

/// Reads a file that leads to another folder of git. One that is longer is no path.
fn pointer(path: &Path) -> Option<Vec<u8>> {
    text_of(path).ok().flatten()
}

/// Whether a repository that a command has made keeps this setting. It runs nothing.
pub(crate) fn is_kept((key, value): &(String, String)) -> bool {
    let name = match (key.split_once('.'), key.rsplit_once('.')) {
        (Some((section, rest)), Some((_, name))) if rest.contains('.') => format!("{section}.*.{name}"),
        _ => key.clone(),
    };
    // `ext::` and the like are programs.
    let is_url = name.ends_with(".url");
    KEPT.contains(&name.as_str()) && !(is_url && (value.contains("::") || value.starts_with('-')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_settings_of_a_repository_only_those_that_run_nothing_are_kept() {
        for (key, value, expected) in [
            ("remote.origin.url", "https://example.org/a.git", true),
            ("submodule.a.b.url", "../b.git", true),
            // Git would take it for an option, such as the one that names the program at the other end.
            ("remote.origin.url", "--upload-pack=touch /tmp/x", false),
            ("submodule.a.url", "-x", false),
            ("remote.origin.url", "ext::sh -c id", false),
            ("remote.origin.uploadpack", "sh -c id", false),
            ("user.name", "-- Ann :: Other", true),
            ("core.fsmonitor", "sh -c id", false),
        ] {
            assert_eq!(is_kept(&(key.to_owned(), value.to_owned())), expected, "{key} = {value}");
        }
    }
}
