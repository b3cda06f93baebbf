//! `ken-coder commit`: makes the commit that its preview showed.
//!
//! The files are staged once, with an index and a folder for objects of its own, under the lock of the journal. The
//! fingerprint of that preview names the tree, and is compared with what was approved. Then exactly this tree is committed:
//! nothing is staged again, so what a file holds by then, and what a filter would make of it, has no effect.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use ken_tool::Error;
use ken_types::ops::tools::Risk;
use serde::Deserialize;
use serde_json::json;

use crate::call::Operation;
use crate::change::record;
use crate::confine::{Access, run_confined, with_tree};
use crate::gate;
use crate::git::{Printed, check_special_files};
use crate::git_state::{Repositories, file_names};
use crate::journal::{Journal, Record};
use crate::policy;
use crate::preview::{Preview, add};
use crate::rel_path::RelPath;
use crate::repository::{GitCall, MAX_INDEX, Repository};
use crate::settings::Settings;
use crate::tree::{Links, Tree};

/// The maximum number of bytes of a commit's diff that are shown.
const MAX_DIFF_BYTES: usize = crate::diff::MAX_DIFF;
const MESSAGE_BYTES: usize = 16 * 1024;
/// The maximum size of a new object, in bytes. Each is read as a whole.
const MAX_OBJECT_BYTES: u64 = 512 * 1024 * 1024;
/// The author of a commit if the repository does not set one.
const AUTHOR: (&str, &str) = ("ken coding worker", "ken@localhost");
/// Names a file that git itself removes when it is old (`git gc`), should a kill leave it behind.
const TEMPORARY: &str = "tmp_obj_ken";
/// The name of git's lock of the index.
const LOCK: &str = "index.lock";
/// The files of a repository in which git keeps what it has not finished, with its name and the command that finishes it. A commit
/// then has further parents or another message, or is followed by others, as git alone knows.
const UNFINISHED: [(&str, &str, &str); 5] = [
    // They come first, because a rebase can be at a merge or cherry-pick.
    ("rebase-merge", "a rebase", "git rebase --continue"),
    ("rebase-apply", "a rebase or git am", "git rebase --continue or git am --continue"),
    ("MERGE_HEAD", "a merge", "git commit"),
    ("CHERRY_PICK_HEAD", "a cherry-pick", "git cherry-pick --continue"),
    ("REVERT_HEAD", "a revert", "git revert --continue"),
];
/// The maximum number of files that an error names.
const MAX_NAMED: usize = 10;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Commit {
    repo: RelPath,
    message: String,
    #[serde(default)]
    paths: Vec<RelPath>,
}

/// A commit that has been prepared, with everything that it needs.
struct Staged<'a> {
    repository: Repository<'a>,
    tree: String,
    parent: Option<String>,
    /// The digest of the repository's index when the files were staged.
    old_index: Option<String>,
    /// The new index. By its modification time, git recognises files that were changed right after they were staged.
    index: Vec<u8>,
    index_time: SystemTime,
    /// The new objects, by their paths such as `ab/cdef…`.
    objects: Vec<(RelPath, Vec<u8>)>,
    diff: String,
    diff_bytes: u64,
}

impl Commit {
    fn check(&self) -> Result<(), Error> {
        if self.message.trim().is_empty() || self.message.contains('\0') {
            return Err(Error::invalid("/message", "a commit needs a message"));
        }
        if self.message.len() > MESSAGE_BYTES {
            return Err(Error::too_large(format!("a message has at most {MESSAGE_BYTES} bytes")).at("/message"));
        }
        Ok(())
    }

    /// Stages the files in the temporary folder of the repository. Returns the tree.
    fn stage(&self, settings: &Settings, repository: &Repository<'_>, parent: Option<&str>) -> Result<String, Error> {
        check_special_files(settings, repository)?;
        let env = staging(repository);
        let paths: Vec<String> = match self.paths.as_slice() {
            [] => vec![repository.relative(&self.repo, &self.repo)],
            paths => paths.iter().map(|path| repository.relative(&self.repo, path)).collect(),
        };
        let mut list =
            GitCall::new(&["ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard", "--"]);
        list.words.extend(paths.iter().cloned());
        let listed = repository.list(GitCall { env: env.clone(), ..list })?;
        // A folder is a repository of its own, which is not part of this one.
        let changed: String = listed.split_inclusive('\0').filter(|path| !path.ends_with("/\0")).collect();
        check_names(&changed)?;
        let with_filters = self.allow_filters(settings, repository, &env, &changed)?;
        let words = ["update-index", "--add", "--remove", "--replace", "-z", "--stdin"];
        repository.read(&GitCall { env: env.clone(), stdin: Some(&changed), with_filters, ..GitCall::new(&words) })?;
        // From here on no filter may run: git would call it again for a file that was changed just before.
        repository.write_config("")?;
        if self.paths.is_empty() {
            return repository.line(&GitCall { env, ..GitCall::new(&["write-tree"]) });
        }
        tree_with(repository, parent, &paths)
    }

    /// Refuses files that a filter would change on their way into the commit, unless the operator names that filter. Then
    /// git is configured to run it. Returns whether there is one.
    fn allow_filters(
        &self,
        settings: &Settings,
        repository: &Repository<'_>,
        env: &[String],
        changed: &str,
    ) -> Result<bool, Error> {
        let call = GitCall {
            env: env.to_vec(),
            stdin: Some(changed),
            ..GitCall::new(&["check-attr", "-z", "--stdin", "filter"])
        };
        let attributes = repository.list(call)?;
        let fields: Vec<&str> = attributes.split('\0').collect();
        let rule = settings.rules.first(&self.repo);
        let (mut config, mut refused) = (String::new(), Vec::new());
        for [path, _, filter] in fields.as_chunks().0 {
            if matches!(*filter, "unspecified" | "unset" | "set") {
                continue;
            }
            match rule.and_then(|rule| rule.filters.get(*filter)) {
                Some(command) => config.push_str(&filter_config(filter, command)),
                None => refused.push(format!("{path} ({filter})")),
            }
        }
        if refused.is_empty() {
            let is_needed = !config.is_empty();
            repository.write_config(&config)?;
            return Ok(is_needed);
        }
        refused.truncate(MAX_NAMED);
        let message = format!("a filter would change these files on their way into the commit: {}", refused.join(", "));
        Err(Error::forbidden(message)
            .at("/paths")
            .hint("commit the other files by `paths`; the operator can allow a filter: `filters` of a rule in [workspace] of ken.toml"))
    }

    fn prepare<'a>(&self, settings: &'a Settings) -> Result<Staged<'a>, Error> {
        self.check()?;
        let repository = Repository::open(settings, &self.repo)?;
        if repository.is_bare {
            let message = format!("{} is a bare repository, without files to commit", self.repo);
            return Err(Error::conflict(message).at("/repo"));
        }
        repository.check_refs_are_files()?;
        let old = with_tree(settings, Access::Read, |tree| tree.read_timed(&repository.index(), MAX_INDEX))?;
        let unready = |error: std::io::Error| Error::unavailable(format!("the commit cannot be prepared: {error}"));
        fs::create_dir(repository.own("objects")).map_err(unready)?;
        if let Some((node, modified)) = &old {
            fs::write(repository.own("index"), &node.bytes).map_err(unready)?;
            let copy = fs::File::options().write(true).open(repository.own("index")).map_err(unready)?;
            copy.set_modified(*modified).map_err(unready)?;
        }
        copy_shared_indexes(settings, &repository)?;
        check_finished(settings, &repository)?;
        let parent = repository.commit("HEAD")?;
        let tree = self.stage(settings, &repository, parent.as_deref())?;
        let (diff, diff_bytes) = difference(&repository, parent.as_deref(), &tree)?;
        if diff.is_empty() {
            return Err(Error::conflict(format!("{}: there is nothing to commit", self.repo)).at("/repo"));
        }
        // What git has written is read once. The folder is not trusted, because a filter could have written there too.
        let own = Tree::open(&settings.at(repository.own(""))?)?;
        let read =
            |place: RelPath| Ok(own.read(&place, Links::Refuse, MAX_OBJECT_BYTES)?.map(|node| (place, node.bytes)));
        let objects = loose_objects(&repository.own("objects")).into_iter().map(read);
        let objects: Vec<Option<(RelPath, Vec<u8>)>> = objects.collect::<Result<_, Error>>()?;
        let index = own.read_timed(&RelPath::default().join("index"), MAX_INDEX)?;
        let (index, index_time) = index.ok_or_else(|| Error::internal("git has written no index"))?;
        Ok(Staged {
            tree,
            parent,
            old_index: old.map(|(node, _)| node.version.digest),
            index: index.bytes,
            index_time,
            objects: objects.into_iter().flatten().collect(),
            diff,
            diff_bytes,
            repository,
        })
    }

    fn preview_of(&self, settings: &Settings, staged: &Staged<'_>) -> Preview {
        let folders = staged.repository.git_folders().into_iter().chain([&self.repo]);
        let verdict = policy::of_git(&settings.rules, folders, "git records a commit");
        let branch = staged.repository.branch();
        let branch = branch.map_or("a detached HEAD", |name| name.trim_start_matches("refs/heads/"));
        let mut action = json!({"git": "commit", "repo": self.repo, "branch": branch, "message": self.text(),
            "tree": staged.tree, "parent": staged.parent, "diffBytes": staged.diff_bytes});
        add(&mut action, "repository", staged.repository.elsewhere());
        let repo = staged.repository.shown(&self.repo);
        let about = (format!("Commit to {branch} of {repo}: {}", self.first_line()), &self.repo, Risk::Low);
        let state = (".git of the repository", &serde_json::Value::Null);
        Preview::new(settings, verdict, "git.commit", about, action, Some(staged.diff.clone()), state)
    }

    /// Makes the prepared commit, and returns its id. The index is locked as git does it, so that git of a person and this
    /// never write it at the same time.
    fn make(&self, settings: &Settings, staged: &Staged<'_>) -> Result<String, Error> {
        let Staged { repository, old_index, .. } = staged;
        let index = repository.index();
        with_tree(settings, Access::Write, |tree| {
            tree.create(&index, LOCK, 0o644, &staged.index, true).map_err(|error| {
                error.hint("another git works in this repository, or one that was killed has left index.lock behind")
            })
        })?;
        let made = with_tree(settings, Access::Write, |tree| {
            tree.set_time(&index, LOCK, staged.index_time)?;
            let now = tree.read(&index, Links::Refuse, MAX_INDEX)?.map(|node| node.version.digest);
            if now == *old_index {
                return copy_objects(tree, &repository.objects(), &staged.objects);
            }
            Err(Error::conflict(format!("the index of {} has changed meanwhile", self.repo)).at("/repo"))
        });
        let made = made.and_then(|()| self.record_commit(staged));
        with_tree(settings, Access::Write, |tree| {
            let Ok(commit) = &made else {
                tree.discard(&index, LOCK);
                return Ok(());
            };
            if repository.branch().is_none() {
                let (head, text) = (repository.folder.join("HEAD"), format!("{commit}\n"));
                tree.replace(&head, "HEAD.lock", 0o644, text.as_bytes())?;
            }
            tree.take_over(&index, LOCK)
        })?;
        made
    }

    fn record_commit(&self, staged: &Staged<'_>) -> Result<String, Error> {
        let repository = &staged.repository;
        let mut words = vec!["commit-tree", staged.tree.as_str(), "-F", "-"];
        words.extend(staged.parent.iter().flat_map(|parent| ["-p", parent.as_str()]));
        let value = |key: &str, other: &str| repository.values(key).last().map_or(other, |value| *value).to_owned();
        let (name, mail) = (value("user.name", AUTHOR.0), value("user.email", AUTHOR.1));
        let env = ["AUTHOR", "COMMITTER"].iter();
        let env =
            env.flat_map(|role| [format!("GIT_{role}_NAME={name}"), format!("GIT_{role}_EMAIL={mail}")]).collect();
        let (write, message) = (vec![repository.common.clone()], self.text());
        let call = GitCall { env, write, stdin: Some(&message), ..GitCall::new(&words) };
        let commit = repository.line(&call)?;
        // The branch moves only if it is still where it was when the commit was shown.
        let old = staged.parent.clone().unwrap_or_else(|| "0".repeat(commit.len()));
        let (branch, first) = (repository.branch().unwrap_or("HEAD"), format!("commit: {}", self.first_line()));
        repository.update_refs(&["-m", &first, branch, &commit, &old], None)?;
        Ok(commit)
    }

    /// Returns the message as it is committed: without blanks at the ends of its lines.
    fn text(&self) -> String {
        let lines: Vec<&str> = self.message.trim().lines().map(str::trim_end).collect();
        format!("{}\n", lines.join("\n"))
    }

    fn first_line(&self) -> &str {
        self.message.trim().lines().next().unwrap_or_default()
    }
}

/// The environment in which git writes an index and objects of its own.
fn staging(repository: &Repository<'_>) -> Vec<String> {
    staging_in(repository, "index")
}

fn staging_in(repository: &Repository<'_>, index: &str) -> Vec<String> {
    let mut env = repository.with_objects_in(&repository.own("objects").display().to_string());
    env.push(format!("GIT_INDEX_FILE={}", repository.own(index).display()));
    env
}

/// Copies the shared files of a split index, without which git cannot read the copy of the index. Git then writes a whole one.
fn copy_shared_indexes(settings: &Settings, repository: &Repository<'_>) -> Result<(), Error> {
    let names = file_names(Path::new(&repository.path(&repository.folder)));
    for name in names.into_iter().filter(|name| name.starts_with("sharedindex.")) {
        let place = repository.folder.join(&name);
        let read = with_tree(settings, Access::Read, |tree| tree.read(&place, Links::Refuse, MAX_INDEX))?;
        if let Some(node) = read.filter(|node| !node.version.link) {
            let unready = |error| Error::unavailable(format!("the commit cannot be prepared: {error}"));
            fs::write(repository.own(&name), node.bytes).map_err(unready)?;
        }
    }
    Ok(())
}

/// Fails while git is in the middle of something that ends with a commit, or while a file has a conflict: staging the file would
/// commit it with its conflict markers.
fn check_finished(settings: &Settings, repository: &Repository<'_>) -> Result<(), Error> {
    let (work, folder) = (&repository.work, &repository.folder);
    let unfinished = with_tree(settings, Access::Read, |tree| {
        Ok(UNFINISHED.into_iter().find(|(name, ..)| tree.kind(&folder.join(name)).is_some()))
    })?;
    if let Some((_, what, command)) = unfinished {
        let message = format!("{what} is under way in {work}; finish it with `{command}`");
        return Err(Error::conflict(message).at("/repo"));
    }
    let call = GitCall { env: staging(repository), ..GitCall::new(&["ls-files", "-z", "--unmerged"]) };
    let unmerged = repository.list(call)?;
    let names = unmerged.split_terminator('\0').filter_map(|entry| Some(entry.split_once('\t')?.1));
    let names: BTreeSet<&str> = names.collect();
    if names.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = names.into_iter().take(MAX_NAMED).collect();
    let message = format!("{work}: these files have a conflict: {}", names.join(", "));
    Err(Error::conflict(message).at("/repo").hint("resolve it, and mark them with `git add`"))
}

fn check_names(names: &str) -> Result<(), Error> {
    if names.contains(char::REPLACEMENT_CHARACTER) {
        return Err(Error::invalid("/paths", "the name of a file is not UTF-8; commit it by hand"));
    }
    Ok(())
}

/// Returns the tree with what is staged at these paths, and everything else as in the parent: like `git commit PATHS`, which
/// leaves out what a person has staged elsewhere. The entries are copied from one index to another, because a file that is
/// staged a second time could be another one by then.
fn tree_with(repository: &Repository<'_>, parent: Option<&str>, paths: &[String]) -> Result<String, Error> {
    let env = staging_in(repository, "only");
    if let Some(parent) = parent {
        repository.read(&GitCall { env: env.clone(), ..GitCall::new(&["read-tree", parent]) })?;
    }
    let entries = |env: Vec<String>| {
        let mut list = GitCall { env, ..GitCall::new(&["ls-files", "-z", "--stage", "--"]) };
        list.words.extend(paths.iter().cloned());
        repository.list(list)
    };
    let (old, new) = (entries(env.clone())?, entries(staging(repository))?);
    let [old, new] = [&old, &new].map(|list| list.split_inclusive('\0').collect::<BTreeSet<&str>>());
    // An entry of mode 0 is removed.
    let removed = old.difference(&new).filter_map(|entry| Some(format!("0 {}", entry.split_once(' ')?.1)));
    let changed: String = removed.chain(new.difference(&old).map(|entry| (*entry).to_owned())).collect();
    check_names(&changed)?;
    let words = ["update-index", "-z", "--index-info"];
    repository.read(&GitCall { env: env.clone(), stdin: Some(&changed), ..GitCall::new(&words) })?;
    repository.line(&GitCall { env, ..GitCall::new(&["write-tree"]) })
}

/// Returns the diff and its whole length. It is made without the files `.gitattributes`, which could hide a text as a
/// binary file.
fn difference(repository: &Repository<'_>, parent: Option<&str>, tree: &str) -> Result<(String, u64), Error> {
    let mut env = staging(repository);
    let empty =
        GitCall { env: env.clone(), stdin: Some(""), ..GitCall::new(&["hash-object", "-t", "tree", "-w", "--stdin"]) };
    let empty = repository.line(&empty)?;
    // With an index, git would take the content from the work tree where it seems to be the same.
    env.push(format!("GIT_INDEX_FILE={}", repository.own("none").display()));
    let options = [("core.bare", "true"), ("attr.tree", empty.as_str())];
    env.extend(crate::network::git_variables(&options.map(|(name, value)| (name.to_owned(), value.to_owned()))));
    let words = ["diff-tree", "-r", "-p", "-M", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv"];
    let mut call = GitCall { env, keep: MAX_DIFF_BYTES, ..GitCall::without_work_tree(&words) };
    call.words.extend([parent.unwrap_or(&empty).to_owned(), tree.to_owned()]);
    let output = repository.read(&call)?;
    Ok((output.text, output.bytes))
}

fn filter_config(filter: &str, command: &str) -> String {
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("[filter \"{}\"]\n\tclean = \"{}\"\n\trequired = true\n", quoted(filter), quoted(command))
}

/// Returns the places of the objects in a folder `objects`, such as `objects/ab/cdef…`.
fn loose_objects(folder: &Path) -> Vec<RelPath> {
    let names =
        |folder: &Path| file_names(folder).into_iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let places = names(folder).filter(|name| name.len() == 2).flat_map(|first| {
        let place = RelPath::default().join("objects").join(&first);
        names(&folder.join(first)).map(move |rest| place.join(&rest))
    });
    places.collect()
}

/// Copies new objects into the repository. They are on disk when this returns.
fn copy_objects(tree: &Tree, to: &RelPath, objects: &[(RelPath, Vec<u8>)]) -> Result<(), Error> {
    for (name, bytes) in objects {
        let place = to.around().joined(name);
        if tree.stat(&place, Links::Refuse)?.is_some() {
            continue;
        }
        tree.make_folder(&place.around())?;
        tree.discard(&place, TEMPORARY);
        tree.create(&place, TEMPORARY, 0o444, bytes, false)?;
        tree.take_over(&place, TEMPORARY)?;
    }
    tree.sync()
}

impl Operation for Commit {
    const NAME: &'static str = "ken-coder commit";
    const ABOUT: &'static str = "Commit changes of a git repository";
    const FIELDS: &'static str =
        "Fields: repo, message, paths (default: everything that has changed). Hooks are not run.";
    const ASKS: bool = true;
    type Answer = Printed;

    fn preview(&self, settings: &Settings) -> Result<Preview, Error> {
        Ok(self.preview_of(settings, &self.prepare(settings)?))
    }

    fn run(&self, settings: &Settings) -> Result<Printed, Error> {
        let journal = run_confined(settings, Access::Write, || Journal::lock(settings, Self::COMMAND, &self.repo))?;
        let staged = self.prepare(settings)?;
        gate::pass(settings, &self.preview_of(settings, &staged))?;
        let before = Repositories::of(settings, [staged.repository.work.clone()]);
        before.keep_files(settings, &journal)?;
        let commit = self.make(settings, &staged)?;
        let git = before.changes(settings);
        let record = Record { git, ..record(settings, Self::COMMAND)? };
        run_confined(settings, Access::Write, || journal.end(&record))?;
        Ok(Printed::of_text(&self.repo, format!("{commit} {}\n", self.first_line())))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_length_of_a_message() {
        for (message, fits) in [
            ("x".repeat(MESSAGE_BYTES), true),
            ("x".repeat(MESSAGE_BYTES + 1), false),
            (" \n".to_owned(), false),
            ("a\0b".to_owned(), false),
        ] {
            let commit = Commit { repo: RelPath::parse("repos/a").unwrap(), message, paths: Vec::new() };
            assert_eq!(commit.check().is_ok(), fits, "{}", commit.message.len());
        }
    }
}
