//! What undo needs of git repositories: which files are tracked, and the refs with the objects that they lead to.
//!
//! Refs alone would not do: a command can delete a branch and remove its objects at once (`git gc --prune=now`). So the
//! objects are kept as packs with the journal, in which each new pack holds only what the earlier ones do not.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use ken_tool::Error;
use serde::{Deserialize, Serialize};

use crate::confine::{Access, with_tree};
use crate::journal::{GitChange, Journal, RepositoryState};
use crate::rel_path::RelPath;
use crate::repository::{GitCall, MAX_INDEX, Repository, is_bare, pointer};
use crate::settings::Settings;
use crate::tree::{Links, Tree, digest};
use crate::walk::{place_of, walk};

/// The maximum number of repositories whose state is recorded before a command.
const MAX_REPOSITORIES: usize = 200;

/// The log of `refs/stash`, in the folder of a repository.
const STASH_LOG: &str = "logs/refs/stash";

/// The repositories below some folders.
#[derive(Debug, Default)]
pub(crate) struct Repositories {
    pub(crate) states: Vec<RepositoryState>,
    /// The files in `HEAD` or in the index of the projects themselves.
    pub(crate) tracked: BTreeSet<RelPath>,
    /// Repositories that git cannot read, with the reason.
    pub(crate) unreadable: Vec<String>,
}

impl Repositories {
    /// Reads the repositories in these folders: those of projects, and all that are below, such as submodules and further work trees.
    pub(crate) fn read(settings: &Settings, scope: &[RelPath]) -> Result<Repositories, Error> {
        let repos = with_tree(settings, Access::Read, |tree| Ok(find(settings, tree, scope)))?;
        Ok(Repositories::of(settings, repos))
    }

    /// Reads these repositories, and those whose refs they share.
    pub(crate) fn of(settings: &Settings, repos: impl IntoIterator<Item = RelPath>) -> Repositories {
        let (mut found, mut seen) = (Repositories::default(), BTreeSet::new());
        let mut open: VecDeque<RelPath> = repos.into_iter().collect();
        while let Some(repo) = open.pop_front() {
            if seen.contains(&repo) {
                continue;
            }
            if seen.len() == MAX_REPOSITORIES {
                let why = format!("there are more than {MAX_REPOSITORIES}");
                found.unreadable.push(format!("the refs of {repo} and of further repositories: {why}"));
                break;
            }
            seen.insert(repo.clone());
            match known_or_read(settings, &repo) {
                Ok(known) => {
                    open.extend(known.state.main.clone());
                    // An ignored work tree could take up all that is kept of files.
                    if settings.layout.project(&repo).as_ref() == Some(&repo) {
                        found.tracked.extend(known.tracked);
                    }
                    found.states.push(known.state);
                }
                Err(error) => found.unreadable.push(format!("the refs of {repo}: {}", error.message)),
            }
        }
        found
    }

    /// Stores the indexes and the logs of stashes.
    pub(crate) fn keep_files(&self, settings: &Settings, journal: &Journal) -> Result<(), Error> {
        with_tree(settings, Access::Write, |tree| {
            for state in &self.states {
                let stash = state.index_place.around().join(STASH_LOG);
                for (place, wanted) in [(&state.index_place, &state.index), (&stash, &state.stash)] {
                    let node = tree.read(place, Links::Refuse, MAX_INDEX)?;
                    let Some(node) = node.filter(|node| wanted.as_ref() == Some(&node.version.digest)) else {
                        continue;
                    };
                    if journal.keep(&node.version.digest, &node.bytes)? {
                        journal.sync(&[node.version.digest])?;
                    }
                }
            }
            Ok(())
        })
    }

    /// Stores these files, and the objects that the refs lead to.
    pub(crate) fn keep(&mut self, settings: &Settings, journal: &Journal) -> Result<(), Error> {
        self.keep_files(settings, journal)?;
        for state in &self.states {
            if let Err(error) = keep_objects(settings, journal, state) {
                self.unreadable.push(format!("the history of {}: {}", state.repo, error.message));
            }
        }
        Ok(())
    }

    /// Returns what has changed since.
    pub(crate) fn changes(self, settings: &Settings) -> Vec<GitChange> {
        let now = |repo: &RelPath| known_or_read(settings, repo).ok().map(|known| known.state);
        let change = |before: RepositoryState| GitChange { after: now(&before.repo), before };
        let changes = self.states.into_iter().map(change);
        changes.filter(|change| !change.after.as_ref().is_some_and(|after| after.is_as(&change.before))).collect()
    }
}

/// What git said about a repository. It is stored with the journal, because git need not be asked again as long as the files
/// that it read are the same.
#[derive(Serialize, Deserialize)]
struct Known {
    /// The digest of these files.
    files: String,
    state: RepositoryState,
    tracked: BTreeSet<RelPath>,
}

fn known_or_read(settings: &Settings, repo: &RelPath) -> Result<Known, Error> {
    let repository = Repository::open_to_read(settings, repo)?;
    if repository.work != *repo {
        return Err(Error::not_found(format!("{repo} is no repository any more")));
    }
    let files = with_tree(settings, Access::Read, |tree| Ok(files_digest(settings, tree, &repository)))?;
    let path = kept_folder(settings, &repository.work).join("known.json");
    let known = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<Known>(&bytes).ok());
    if let Some(known) = known.filter(|known| known.files == files) {
        return Ok(known);
    }
    let (state, staged) = state(settings, &repository)?;
    let known = Known { files, tracked: tracked(&repository, &staged)?, state };
    // If it cannot be stored, git is asked again the next time.
    let _ = fs::create_dir_all(kept_folder(settings, &repository.work));
    let _ = Journal::reader(&settings.state).replace(&path, &serde_json::to_vec(&known).unwrap_or_default());
    Ok(known)
}

/// Returns a digest of the files in which git keeps `HEAD`, the refs and the index.
fn files_digest(settings: &Settings, tree: &Tree, repository: &Repository<'_>) -> String {
    let common = &repository.common;
    let mut open = vec![common.join("refs"), common.join("packed-refs"), repository.index()];
    open.extend([common.join("reftable").join("tables.list"), common.join(STASH_LOG)]);
    let mut all = repository.head.clone();
    while let Some(place) = open.pop() {
        let mut names = file_names(&settings.root.join(place.as_str()));
        names.sort();
        open.extend(names.iter().map(|name| place.join(name)).filter(|place| RelPath::parse(place.as_str()).is_ok()));
        if let Ok(Some(node)) = tree.read(&place, Links::Refuse, MAX_INDEX) {
            all.push_str(&format!("\n{place} {}", node.version.digest));
        }
    }
    digest(all.as_bytes())
}

/// Returns the repositories below some folders. What git ignores can be one too.
fn find(settings: &Settings, tree: &Tree, scope: &[RelPath]) -> BTreeSet<RelPath> {
    let is_repository = |place: &RelPath| {
        let is = tree.kind(&place.join(".git")).is_some() || is_bare(tree, place).unwrap_or(false);
        is && settings.layout.project(place).is_some()
    };
    let entries = scope.iter().flat_map(|folder| walk(settings, folder, None).build().flatten());
    let folders = entries.filter(|entry| entry.file_type().is_some_and(|kind| kind.is_dir()));
    folders.filter_map(|entry| place_of(settings, entry.path())).filter(is_repository).collect()
}

impl RepositoryState {
    fn is_as(&self, other: &RepositoryState) -> bool {
        (&self.head, &self.refs, &self.staged, &self.stash) == (&other.head, &other.refs, &other.staged, &other.stash)
    }

    /// Returns the names and the commits that must be in the repository.
    fn tips(&self) -> BTreeSet<&str> {
        let head = (!self.head.starts_with("ref:")).then_some(self.head.as_str());
        self.refs.values().map(String::as_str).chain(head).filter(|id| !id.is_empty()).collect()
    }
}

/// Returns the state of a repository, and the entries of its index. Git works without a work tree here, because it would read the
/// attributes there, and a FIFO of that name would stop it.
pub(crate) fn state(settings: &Settings, repository: &Repository<'_>) -> Result<(RepositoryState, String), Error> {
    repository.check_refs_are_files()?;
    let main = repository.main();
    let refs = match main {
        Some(_) => String::new(),
        None => repository.list(GitCall::without_work_tree(&[
            "for-each-ref",
            "--format=%(objectname) %(refname)%(if)%(symref)%(then) symbolic%(end)",
        ]))?,
    };
    let refs = refs
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(_, name)| !name.starts_with("refs/remotes/") && !name.ends_with(" symbolic"));
    let staged = repository.list(GitCall::without_work_tree(&["ls-files", "-z", "--stage"]))?;
    let (index, stash) = with_tree(settings, Access::Read, |tree| {
        let stash = repository.folder.join(STASH_LOG);
        Ok((tree.read(&repository.index(), Links::Refuse, MAX_INDEX)?, tree.read(&stash, Links::Refuse, MAX_INDEX)?))
    })?;
    let state = RepositoryState {
        repo: repository.work.clone(),
        head: repository.head.clone(),
        refs: refs.map(|(id, name)| (name.to_owned(), id.to_owned())).collect(),
        index: index.map(|node| node.version.digest),
        index_place: repository.index(),
        staged: digest(staged.as_bytes()),
        stash: stash.map(|node| node.version.digest),
        main,
    };
    Ok((state, staged))
}

/// Returns the files in the index or in `HEAD`.
fn tracked(repository: &Repository<'_>, staged: &str) -> Result<BTreeSet<RelPath>, Error> {
    let words = ["ls-tree", "-r", "-z", "--name-only", "HEAD"];
    // Without a commit there is no `HEAD`, which is no error.
    let listed = match repository.list(GitCall::without_work_tree(&words)) {
        Err(_) if repository.commit("HEAD")?.is_none() => String::new(),
        listed => listed?,
    };
    let in_index = staged.split('\0').filter_map(|entry| Some(entry.split_once('\t')?.1));
    let names = in_index.chain(listed.split_terminator('\0'));
    Ok(names.filter_map(|name| Some(repository.work.joined(&RelPath::parse(name).ok()?))).collect())
}

/// Returns the folder with the kept packs of a repository.
fn kept_folder(settings: &Settings, repo: &RelPath) -> PathBuf {
    let name = digest(format!("{}\0{repo}", settings.root.display()).as_bytes());
    settings.state.join("git").join(name.get(..32).unwrap_or_default())
}

/// Returns the commits of the stashes. The journal has their log.
fn stashes(journal: &Journal, state: &RepositoryState) -> Result<Vec<String>, Error> {
    let log = state.stash.as_ref().map(|log| journal.content(log)).transpose()?.unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    // Each line has the commit of the stash before, then its own.
    let ids = log.lines().filter_map(|line| line.split(' ').nth(1));
    Ok(ids.filter(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit())).map(str::to_owned).collect())
}

fn keep_objects(settings: &Settings, journal: &Journal, state: &RepositoryState) -> Result<(), Error> {
    let folder = kept_folder(settings, state.main.as_ref().unwrap_or(&state.repo));
    let failed = |error: std::io::Error| Error::unavailable(format!("{}: {error}", folder.display()));
    fs::create_dir_all(&folder).map_err(failed)?;
    let tips = fs::read_to_string(folder.join("tips")).unwrap_or_default();
    let mut known: BTreeSet<&str> = tips.lines().collect();
    let (mut needed, index, stashes) = (state.tips(), format!("index {}", state.staged), stashes(journal, state)?);
    needed.extend(stashes.iter().map(String::as_str).chain([index.as_str()]));
    if needed.is_subset(&known) {
        return Ok(());
    }
    let kept = known.iter().filter(|tip| !tip.starts_with("index "));
    let excluded: String = kept.map(|tip| format!("^{tip}\n")).collect();
    let repository = Repository::open_to_read(settings, &state.repo)?;
    let words = ["rev-list", "--objects", "--all", "--indexed-objects", "--ignore-missing", "--stdin"];
    let wanted = state.tips().into_iter().chain(stashes.iter().map(String::as_str));
    let wanted: String = wanted.map(|tip| format!("{tip}\n")).collect();
    let stdin = wanted + &excluded;
    let listed = repository.list(GitCall { stdin: Some(&stdin), ..GitCall::without_work_tree(&words) })?;
    let ids: String = listed.lines().filter_map(|line| line.split(' ').next()).map(|id| format!("{id}\n")).collect();
    if !ids.is_empty() {
        let base = repository.own("kept").display().to_string();
        let objects = repository.own("objects");
        fs::create_dir_all(&objects).map_err(failed)?;
        let env = repository.with_objects_in(&objects.display().to_string());
        let words = ["pack-objects", "-q", &base];
        let call = GitCall { env, stdin: Some(&ids), ..GitCall::without_work_tree(&words) };
        let name = repository.line(&call)?;
        for end in ["idx", "pack"] {
            let (from, to) = (repository.own(&format!("kept-{name}.{end}")), folder.join(format!("pack-{name}.{end}")));
            fs::copy(from, &to).and_then(|_| fs::File::open(&to)?.sync_all()).map_err(failed)?;
        }
    }
    known.extend(needed);
    let known = known.into_iter().collect::<Vec<_>>().join("\n");
    // Only now: the tips say that everything that they lead to is there.
    journal.replace_durably(&folder.join("tips"), known.as_bytes())
}

/// Puts back the refs, `HEAD` and the index of a repository. What has changed since `change` is left alone. Returns what
/// was put back, and what was not with the reason.
pub(crate) fn restore(settings: &Settings, journal: &Journal, change: &GitChange) -> Result<Restored, Error> {
    let before = &change.before;
    let is_revived =
        change.after.is_none() && with_tree(settings, Access::Write, |tree| revive(settings, tree, before))?;
    let repository = Repository::open_to_read(settings, &before.repo)?;
    let (now, _) = state(settings, &repository)?;
    let after = match &change.after {
        Some(after) => after,
        None if now.is_as(before) => return Ok(Restored::default()),
        None if is_revived || now.refs.is_empty() && before.main.is_none() => &now,
        None => {
            let why = "the command was interrupted, so it is not known which refs it changed".to_owned();
            return Ok(Restored { refused: vec![(before.repo.join(".git"), why)], ..Restored::default() });
        }
    };
    let mut restored = Restored::default();
    let (updates, mut wanted) = restored.plan(&repository.common, before, after, &now);
    if before.stash != after.stash {
        wanted.extend(stashes(journal, before)?.iter().map(|id| format!("{id}\n")));
    }
    if before.head != after.head && !before.head.starts_with("ref:") {
        wanted.push_str(&format!("{}\n", before.head));
    }
    if !wanted.is_empty() && !is_connected(&repository, &wanted)? {
        with_tree(settings, Access::Write, |tree| bring_back(settings, tree, &repository))?;
    }
    if !updates.is_empty() {
        repository.update_refs(&["-m", "ken undo", "--stdin"], Some(&updates))?;
    }
    with_tree(settings, Access::Write, |tree| restored.put_back(tree, journal, &repository, before, after, &now))?;
    Ok(restored)
}

/// Makes a repository that was removed one again, without refs and objects. Returns whether it was removed.
fn revive(settings: &Settings, tree: &Tree, before: &RepositoryState) -> Result<bool, Error> {
    let git = before.repo.join(".git");
    let folder = pointer(settings, tree, &git).ok().flatten().unwrap_or(git);
    let head = folder.join("HEAD");
    if tree.stat(&head, Links::Refuse)?.is_some() || is_bare(tree, &before.repo)? {
        return Ok(false);
    }
    tree.make_folder(&folder)?;
    // A further work tree has those of its repository.
    for name in ["objects", "refs"].iter().filter(|_| before.main.is_none()) {
        tree.make_folder(&folder.join(name))?;
    }
    let text = format!("{}\n", before.head);
    tree.replace(&head, "HEAD.lock", 0o644, text.as_bytes())?;
    Ok(true)
}

/// The outcome of [`restore`], by the paths of the refs and files.
#[derive(Debug, Default)]
pub(crate) struct Restored {
    pub(crate) done: Vec<RelPath>,
    pub(crate) refused: Vec<(RelPath, String)>,
}

impl Restored {
    /// Returns the commands for `git update-ref`, and the objects that they need.
    fn plan(
        &mut self,
        common: &RelPath,
        before: &RepositoryState,
        after: &RepositoryState,
        now: &RepositoryState,
    ) -> (String, String) {
        let names: BTreeSet<&String> = before.refs.keys().chain(after.refs.keys()).collect();
        let (mut updates, mut wanted) = (String::new(), String::new());
        for name in names {
            let [was, left, is] = [before, after, now].map(|state| state.refs.get(name));
            if was == left || is == was {
                continue;
            }
            let place = common.joined(&RelPath::parse(name).unwrap_or_default());
            if is != left {
                self.refused.push((place, "it was changed since".to_owned()));
                continue;
            }
            match (was, is) {
                (Some(was), Some(is)) => updates.push_str(&format!("update {name} {was} {is}\n")),
                (Some(was), None) => updates.push_str(&format!("create {name} {was}\n")),
                (None, Some(is)) => updates.push_str(&format!("delete {name} {is}\n")),
                (None, None) => {}
            }
            wanted.extend(was.map(|was| format!("{was}\n")));
            self.done.push(place);
        }
        (updates, wanted)
    }

    fn put_back(
        &mut self,
        tree: &Tree,
        journal: &Journal,
        repository: &Repository<'_>,
        before: &RepositoryState,
        after: &RepositoryState,
        now: &RepositoryState,
    ) -> Result<(), Error> {
        let mut put = |place: RelPath, [was, left, is]: [&str; 3], bytes: &dyn Fn() -> Result<Vec<u8>, Error>| {
            if was == left || is == was {
                return Ok(());
            }
            if is != left {
                self.refused.push((place, "it was changed since".to_owned()));
                return Ok(());
            }
            tree.replace(&place, &format!("{}.lock", place.name()), 0o644, &bytes()?)?;
            self.done.push(place);
            Ok::<(), Error>(())
        };
        let head = || Ok(format!("{}\n", before.head).into_bytes());
        put(repository.folder.join("HEAD"), [before, after, now].map(|state| state.head.as_str()), &head)?;
        if let Some(index) = &before.index {
            let staged = [before, after, now].map(|state| state.staged.as_str());
            put(repository.index(), staged, &|| journal.content(index))?;
        }
        if let Some(stash) = before.stash.as_ref().filter(|_| before.stash != after.stash) {
            let logs = repository.folder.join("logs");
            [&logs, &logs.join("refs")].into_iter().try_for_each(|folder| tree.make_folder(folder))?;
            let log = repository.folder.join(STASH_LOG);
            let stashes = [before, after, now].map(|state| state.stash.as_deref().unwrap_or_default());
            put(log, stashes, &|| journal.content(stash))?;
        }
        Ok(())
    }
}

/// Whether the repository has everything that these commits lead to.
fn is_connected(repository: &Repository<'_>, commits: &str) -> Result<bool, Error> {
    let words = ["rev-list", "--quiet", "--objects", "--stdin"];
    let call = GitCall { stdin: Some(commits), ..GitCall::without_work_tree(&words) };
    Ok(repository.run(&call)?.status == 0)
}

/// Copies the kept packs into the repository.
fn bring_back(settings: &Settings, tree: &Tree, repository: &Repository<'_>) -> Result<(), Error> {
    let from = kept_folder(settings, &repository.main().unwrap_or_else(|| repository.work.clone()));
    let packs = repository.objects().join("pack");
    tree.make_folder(&packs)?;
    let mut names: Vec<String> = file_names(&from).into_iter().filter(|name| name.starts_with("pack-")).collect();
    // The index of a pack comes last, because it makes git look for the pack.
    names.sort_by_key(|name| !name.ends_with(".pack"));
    for name in names {
        let place = packs.join(&name);
        if tree.stat(&place, Links::Refuse)?.is_some() {
            continue;
        }
        let path = from.join(&name);
        let bytes = fs::read(&path).map_err(|error| Error::unavailable(format!("{}: {error}", path.display())))?;
        tree.discard(&place, "tmp_pack_ken");
        tree.replace(&place, "tmp_pack_ken", 0o444, &bytes)?;
    }
    Ok(())
}

/// Returns the names in a folder that are UTF-8; none if it cannot be read.
pub(crate) fn file_names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::journal::tests::{place, repository};

    /// Every way in which a ref can have been before the command, after it and now.
    #[test]
    fn a_ref_is_put_back_if_only_the_command_has_changed_it() {
        const NAME: &str = "refs/heads/a";
        let values = [None, Some("1"), Some("2"), Some("3")];
        for was in values {
            for left in values {
                for is in values {
                    let state = |value: Option<&str>| {
                        let refs: Vec<_> = value.into_iter().map(|id| (NAME, id)).collect();
                        repository("repos/a", "", &refs, "")
                    };
                    let mut restored = Restored::default();
                    let common = place("repos/a/.git");
                    let (updates, wanted) = restored.plan(&common, &state(was), &state(left), &state(is));
                    let is_meant = was != left && is != was;
                    let expected = match (was, is) {
                        _ if !is_meant || is != left => String::new(),
                        (Some(was), Some(is)) => format!("update {NAME} {was} {is}\n"),
                        (Some(was), None) => format!("create {NAME} {was}\n"),
                        (None, Some(is)) => format!("delete {NAME} {is}\n"),
                        (None, None) => String::new(),
                    };
                    let about = format!("{was:?} {left:?} {is:?}");
                    assert_eq!(updates, expected, "{about}");
                    let is_wanted = !expected.is_empty();
                    let objects = was.filter(|_| is_wanted).map_or(String::new(), |was| format!("{was}\n"));
                    assert_eq!(wanted, objects, "{about}");
                    let counts = (restored.done.len(), restored.refused.len());
                    assert_eq!(counts, (usize::from(is_wanted), usize::from(is_meant && is != left)), "{about}");
                }
            }
        }
    }

    #[test]
    fn what_a_repository_is_compared_by_and_what_it_needs() {
        let one = || repository("repos/a", "ref: refs/heads/a", &[("refs/heads/a", "1"), ("refs/heads/b", "")], "x");
        assert!(one().is_as(&one()));
        // Git rewrites the index without changing an entry.
        assert!(one().is_as(&RepositoryState { index: None, ..one() }));
        for other in [
            RepositoryState { head: "2".to_owned(), ..one() },
            RepositoryState { refs: BTreeMap::new(), ..one() },
            RepositoryState { staged: "y".to_owned(), ..one() },
        ] {
            assert!(!one().is_as(&other) && !other.is_as(&one()), "{other:?}");
        }
        let detached = RepositoryState { head: "2".to_owned(), ..one() };
        assert_eq!((Vec::from_iter(one().tips()), Vec::from_iter(detached.tips())), (vec!["1"], vec!["1", "2"]));
    }
}
