//! `ken-coder undo`, `diff`, `journal` and `prune`: commands for people that show or undo what a run changed.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{IsTerminal, Write};
use std::time::{Duration, SystemTime};

use clap::Args;
use ken_tool::{Answer, Error, Replied, Reply, Report, Verdict};
use ken_types::id::Mint;
use ken_types::ops::ids::is_meant;
use ken_types::time::Timestamp;
use rustix::fs::FileType;
use serde::Serialize;

use crate::change::{ANY_SIZE, MAX_FILE, action, commit, record};
use crate::confine::{Access, run_confined, with_tree};
use crate::diff::Diff;
use crate::git_state::{Repositories, restore};
use crate::journal::{Entry, GitChange, Journal, MAX_AGE, MAX_BYTES, Record};
use crate::rel_path::{Layout, RelPath};
use crate::settings::{Settings, check_run};
use crate::snapshot::recover;
use crate::tree::{Node, Tree, Version, kind_name};

/// The files that a run changed, from before its first change to after its last one.
#[derive(Default)]
struct RunChanges {
    files: BTreeMap<RelPath, FileChange>,
    folders: Vec<RelPath>,
    git: BTreeMap<RelPath, GitChange>,
    /// The files that cannot be put back, with the reason.
    unsaved: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct FileChange {
    before: Option<Version>,
    after: Option<Version>,
    /// Whether somebody else changed the file between two changes of the run.
    is_broken: bool,
}

impl RunChanges {
    fn of(records: Vec<Record>) -> RunChanges {
        let mut whole = RunChanges::default();
        for record in records {
            for entry in record.files {
                let span = whole.files.entry(entry.path).or_insert_with(|| FileChange {
                    before: entry.before.clone(),
                    after: entry.before.clone(),
                    is_broken: false,
                });
                span.is_broken |= span.after != entry.before;
                span.after = entry.after;
            }
            whole.folders.extend(record.folders);
            whole.unsaved.extend(record.unsaved);
            for change in record.git {
                let whole = whole.git.entry(change.before.repo.clone());
                whole.and_modify(|whole| whole.after = change.after.clone()).or_insert(change);
            }
        }
        // Where a state of the file is known, it is compared with what is there now.
        whole.unsaved.retain(|path, _| !RelPath::parse(path).is_ok_and(|path| whole.files.contains_key(&path)));
        whole.files.retain(|_, span| span.before != span.after || span.is_broken);
        whole
    }

    fn is_empty(&self) -> bool {
        self.files.is_empty() && self.git.is_empty() && self.unsaved.is_empty()
    }
}

/// The word that means the newest run.
const LAST: &str = "last";
/// The maximum number of runs that are listed if a word can mean several.
const MAX_LISTED: usize = 10;

/// Returns the settings for the folder in which a run worked: the workspace, or a trusted folder.
fn settings_of(word: &str) -> Result<Settings, Error> {
    let settings = Settings::of_changes()?.ok_or_else(|| unknown(word))?;
    let records = run_confined(&settings, Access::Read, || {
        let journal = Journal::reader(&settings.state);
        find(&settings, &journal, word).map(|(_, records)| records).or_else(|error| {
            // The only change of the run may be one that was interrupted, which is completed in the settings of its folder.
            let pending: Vec<Record> = journal.interrupted()?;
            let pending: Vec<Record> = pending.into_iter().filter(|record| is_meant(&record.run, word)).collect();
            if pending.is_empty() { Err(error) } else { Ok(pending) }
        })
    })?;
    match records.first() {
        Some(record) if record.root != settings.root && record.layout == Layout::Folder => settings.bound(&record.root),
        _ => Ok(settings),
    }
}

const SEE_JOURNAL: &str = "`ken-coder journal` lists the runs that changed files";

fn unknown(word: &str) -> Error {
    let message = match word {
        LAST => "no run has changed files yet".to_owned(),
        word => format!("the journal has no changes of a run {word}"),
    };
    Error::not_found(message).hint(SEE_JOURNAL)
}

/// Returns the run that a word names, which must belong to this workspace.
fn find_here(settings: &Settings, journal: &Journal, word: &str) -> Result<(String, Vec<Record>), Error> {
    let (run, records) = find(settings, journal, word)?;
    match records.iter().find(|record| record.root != settings.root) {
        None => Ok((run, records)),
        Some(other) => {
            let root = other.root.display();
            let message = format!("the run {run} worked in {root}, and the workspace is {}", settings.root.display());
            Err(Error::conflict(message).hint(match settings.layout {
                Layout::Workspace => format!("set KEN_WORKSPACE={root}"),
                Layout::Folder => "do it without KEN_FOLDER".to_owned(),
            }))
        }
    }
}

/// Returns the run that a word names: its id, an unambiguous beginning or end of it, or `last`, the newest one that changed
/// something in the workspace or trusted folder of the settings. Elsewhere a run can have changed files of the same names,
/// and whoever says `last` does not say that they mean it.
fn find(settings: &Settings, journal: &Journal, word: &str) -> Result<(String, Vec<Record>), Error> {
    check_run(word)?;
    let runs = journal.runs()?;
    if word == LAST {
        let mut elsewhere = None;
        for (run, _) in runs {
            let records = journal.records(&run)?;
            if RunChanges::of(records.clone()).is_empty() {
                continue;
            }
            match records.iter().find(|record| record.root != settings.root) {
                None => return Ok((run, records)),
                Some(other) => elsewhere = elsewhere.or_else(|| Some((run, other.root.clone()))),
            }
        }
        let hint = match elsewhere {
            Some((run, root)) => format!("the newest run elsewhere is {run}, in {}", root.display()),
            None => SEE_JOURNAL.to_owned(),
        };
        let message = format!("no run has changed files yet in {}", settings.root.display());
        return Err(Error::not_found(message).hint(hint));
    }
    let like: Vec<_> = match runs.iter().find(|(run, _)| run == word) {
        Some(exact) => vec![exact],
        None => runs.iter().filter(|(run, _)| is_meant(run, word)).collect(),
    };
    let run = match like.as_slice() {
        [(run, _)] => run.clone(),
        [] => {
            return Err(unknown(word));
        }
        several => {
            let mut message = format!("`{word}` can mean several runs:");
            for (run, at) in several.iter().take(MAX_LISTED) {
                let at = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                let at = Timestamp::from_millis(i64::try_from(at.as_millis()).unwrap_or(i64::MAX));
                message += &format!("\n  {at}  {run}");
            }
            if several.len() > MAX_LISTED {
                message += "\n  and more";
            }
            return Err(Error::invalid("RUN", message).hint("use more of the id"));
        }
    };
    let records = journal.records(&run)?;
    Ok((run, records))
}

#[derive(Args)]
pub(crate) struct Undo {
    /// Id of a run, its beginning or end, or `last`
    #[arg(value_name = "RUN")]
    run: String,
    /// Say on standard error what it waits for, if it has to wait
    #[arg(long)]
    tell: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UndoResult {
    run: String,
    /// The workspace or trusted folder, below which the paths are.
    root: String,
    /// The run that can undo this undo; absent if nothing was restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    undo: Option<String>,
    restored: Vec<RelPath>,
    refused: Vec<Refused>,
}

#[derive(Debug, Serialize)]
struct Refused {
    path: String,
    why: String,
}

impl Report for Undo {
    const NAME: &'static str = "ken-coder undo";
    const ABOUT: &'static str = "Put back the files that a run changed, and only those";
    const AFTER_HELP: &'static str = "A file that was changed since is refused and named.\n\n\
        Exit status: 0 all are as they were before the run, 1 some were refused, 2 an error.";

    fn run(&self, reply: Reply<'_>) -> Result<Replied, Error> {
        let settings = settings_of(&self.run)?;
        let tell = |why: &str| {
            if self.tell || std::io::stderr().is_terminal() {
                // If standard error is closed, nobody wants to know.
                let _ = writeln!(std::io::stderr(), "ken-coder: waits: {why}");
            }
        };
        let place = RelPath::default();
        let journal =
            run_confined(&settings, Access::Write, || Journal::lock_or_tell(&settings, "undo", &place, tell))?;
        let undo = Mint::fresh()?.ulid();
        let (mut undone, git) =
            with_tree(&settings, Access::Write, |tree| self.undo(&settings, tree, &journal, &undo))?;
        undone.restore_git(&settings, &journal, &undo, git);
        Ok(reply.send(&undone))
    }
}

impl Undo {
    /// Restores the files. Returns what the run has changed in repositories too, because git cannot run in this confined
    /// thread.
    fn undo(
        &self,
        settings: &Settings,
        tree: &Tree,
        journal: &Journal,
        new_run: &str,
    ) -> Result<(UndoResult, BTreeMap<RelPath, GitChange>), Error> {
        recover(settings, tree, journal)?;
        let (run, records) = find_here(settings, journal, &self.run)?;
        let whole = RunChanges::of(records);
        let mut record = Record { run: new_run.to_owned(), ..record(settings, "undo")? };
        let mut refused = Vec::new();
        for (path, span) in &whole.files {
            match restoring_change(tree, journal, path, span) {
                Ok(change) => record.files.extend(change),
                Err(why) => refused.push(Refused { path: path.to_string(), why }),
            }
        }
        // Only now it is known which files are going to be out of the way.
        let changes = std::mem::take(&mut record.files);
        let removed =
            changes.iter().filter(|change| change.after.is_none()).map(|change| change.path.clone()).collect();
        for change in changes {
            match change.after.as_ref().and_then(|_| obstacle(tree, &change.path, &removed)) {
                Some(why) => refused.push(Refused { path: change.path.to_string(), why }),
                None => record.files.push(change),
            }
        }
        refused.extend(whole.unsaved.into_iter().map(|(path, why)| Refused { path, why }));
        let restored: Vec<RelPath> = record.files.iter().map(|entry| entry.path.clone()).collect();
        let undo = (!restored.is_empty()).then(|| new_run.to_owned());
        if undo.is_some() {
            commit(tree, journal, record, &|_, version| journal.content(&version.digest).map(Cow::Owned))?;
        }
        // Remove the deepest folders first. A folder that is not empty stays.
        let folders: BTreeSet<&RelPath> = whole.folders.iter().collect();
        for folder in folders.into_iter().rev() {
            tree.remove_folder(folder);
        }
        let root = settings.root.display().to_string();
        Ok((UndoResult { run, root, undo, restored, refused }, whole.git))
    }
}

impl UndoResult {
    /// Restores the repositories, each as far as nobody has changed it since. Whatever fails is refused and not an error, because the files have
    /// been put back, and a person has to learn which, and how to have them again.
    fn restore_git(&mut self, settings: &Settings, journal: &Journal, undo: &str, git: BTreeMap<RelPath, GitChange>) {
        let mut repositories = Repositories::of(settings, git.keys().cloned());
        if let Err(error) = repositories.keep(settings, journal) {
            let why = format!("what is there now cannot be kept: {}", error.message);
            self.refused
                .extend(git.keys().map(|repo| Refused { path: repo.join(".git").to_string(), why: why.clone() }));
            return;
        }
        for (repo, change) in git {
            match restore(settings, journal, &change) {
                Ok(restored) => {
                    self.restored.extend(restored.done);
                    self.refused.extend(
                        restored.refused.into_iter().map(|(path, why)| Refused { path: path.to_string(), why }),
                    );
                }
                Err(error) => self.refused.push(Refused { path: repo.join(".git").to_string(), why: error.message }),
            }
        }
        let git = repositories.changes(settings);
        if git.is_empty() {
            return;
        }
        let places: Vec<String> = git.iter().map(|change| change.before.repo.join(".git").to_string()).collect();
        let recorded = record(settings, "undo").and_then(|record| {
            let record = Record { run: undo.to_owned(), git, ..record };
            run_confined(settings, Access::Write, || journal.end(&record))
        });
        match recorded {
            Ok(()) => self.undo = Some(undo.to_owned()),
            Err(error) => {
                let why = format!("it was put back, but nobody can have it again: {}", error.message);
                self.refused.extend(places.into_iter().map(|path| Refused { path, why: why.clone() }));
            }
        }
    }
}

/// Returns the change that restores a file, or `None` if it needs no change. The error says why it cannot be restored.
fn restoring_change(
    tree: &Tree,
    journal: &Journal,
    path: &RelPath,
    span: &FileChange,
) -> Result<Option<Entry>, String> {
    let now = tree.file(path, ANY_SIZE).map_err(|error| error.message)?;
    let now = now.map(|node| node.version);
    if now == span.before {
        return Ok(None);
    }
    if span.is_broken {
        return Err("it was changed by somebody else during the run".to_owned());
    }
    if now != span.after {
        return Err(match (&now, &span.after) {
            (None, _) => "it was removed since".to_owned(),
            (_, None) => "it was created again since".to_owned(),
            _ => "it was changed since".to_owned(),
        });
    }
    if let Some(version) = &span.before {
        journal.content(&version.digest).map_err(|error| error.message)?;
    }
    Ok(Some(Entry { path: path.clone(), before: now, after: span.before.clone() }))
}

/// Returns what keeps a file from being put back, if `removed` is gone: a file in the place of its folder, or a folder with
/// files in its own.
fn obstacle(tree: &Tree, path: &RelPath, removed: &BTreeSet<RelPath>) -> Option<String> {
    for folder in path.folders() {
        match tree.kind(&folder) {
            Some(FileType::Directory) => break,
            Some(kind) if !removed.contains(&folder) => {
                return Some(format!("{folder} is {} where its folder was", kind_name(kind)));
            }
            _ => {}
        }
    }
    let is_in_the_way = tree.kind(path) == Some(FileType::Directory) && !has_only(tree, path, removed);
    is_in_the_way.then(|| "a folder with other files is in its place".to_owned())
}

/// Whether a folder has no files but these.
fn has_only(tree: &Tree, folder: &RelPath, files: &BTreeSet<RelPath>) -> bool {
    let Ok(names) = tree.folder(folder).and_then(|open| tree.names(open)) else {
        return false;
    };
    names.iter().map(|name| folder.join(name)).all(|place| match tree.kind(&place) {
        Some(FileType::Directory) => has_only(tree, &place, files),
        _ => files.contains(&place),
    })
}

impl Answer for UndoResult {
    fn verdict(&self) -> Verdict {
        self.refused.is_empty().into()
    }

    fn summary(&self, _: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        writeln!(to, "in {}:", self.root)?;
        for path in &self.restored {
            writeln!(to, "put back {path}")?;
        }
        for Refused { path, why } in &self.refused {
            writeln!(to, "refused  {path}: {why}")?;
        }
        match &self.undo {
            Some(undo) => writeln!(to, "to have it again: ken undo {undo}"),
            None if self.refused.is_empty() => writeln!(to, "every file is as it was before the run"),
            None => Ok(()),
        }
    }
}

#[derive(Args)]
pub(crate) struct DiffArgs {
    /// Id of a run, its beginning or end, or `last`
    #[arg(value_name = "RUN")]
    run: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Differences {
    run: String,
    /// The workspace or trusted folder, below which the paths are.
    root: String,
    files: Vec<Difference>,
    /// The branches and tags that it changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refs: Vec<RefDifference>,
    /// The files that it changed and that cannot be shown or put back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_saved: Vec<Refused>,
    diff: String,
}

#[derive(Debug, Serialize)]
struct RefDifference {
    repo: RelPath,
    name: String,
    before: Option<String>,
    after: Option<String>,
}

#[derive(Debug, Serialize)]
struct Difference {
    path: RelPath,
    action: &'static str,
    /// The number of lines that the run added and removed; `None` if it is not known which lines are its own.
    added: Option<usize>,
    removed: Option<usize>,
    /// Whether the file still is as the run left it. Only then can it be restored.
    current: bool,
}

impl Report for DiffArgs {
    const NAME: &'static str = "ken-coder diff";
    const ABOUT: &'static str = "Show what a run changed";

    fn run(&self, reply: Reply<'_>) -> Result<Replied, Error> {
        let settings = settings_of(&self.run)?;
        let found = with_tree(&settings, Access::Read, |tree| self.diff(&settings, tree))?;
        Ok(reply.send(&found))
    }
}

impl DiffArgs {
    fn diff(&self, settings: &Settings, tree: &Tree) -> Result<Differences, Error> {
        let journal = Journal::reader(&settings.state);
        let (run, records) = find_here(settings, &journal, &self.run)?;
        let (mut files, mut shown) = (Vec::new(), Diff::default());
        let RunChanges { files: changed, git, unsaved, .. } = RunChanges::of(records);
        for (path, span) in changed {
            let now = tree.file(&path, ANY_SIZE).ok().flatten();
            let current = now.as_ref().map(|node| &node.version) == span.after.as_ref();
            let stored = |version: &Version| {
                Some(Node { version: version.clone(), bytes: journal.content(&version.digest).ok()? })
            };
            let before = span.before.as_ref().and_then(stored);
            // The record has only the digest of what the run wrote. Its content is there if the file still has it, or if a later change such
            // as an undo has replaced it. Otherwise the current content is shown, in which lines may be of somebody else.
            let written = if current { now.clone() } else { span.after.as_ref().and_then(stored) };
            let has_both = before.is_some() == span.before.is_some() && written.is_some() == span.after.is_some();
            let after = if has_both { written } else { now };
            let is_shown = after.as_ref().is_none_or(|node| node.bytes.len() as u64 <= MAX_FILE);
            let (old, new) = if is_shown { (before.as_ref(), after.as_ref()) } else { (None, None) };
            let lines = shown.add(&path, old, new).filter(|_| has_both && is_shown && !span.is_broken);
            files.push(Difference {
                added: lines.map(|(added, _)| added),
                removed: lines.map(|(_, removed)| removed),
                current,
                action: action(span.before.as_ref(), span.after.as_ref()),
                path,
            });
        }
        let (root, refs) = (settings.root.display().to_string(), git.into_values().flat_map(refs_of).collect());
        let not_saved = unsaved.into_iter().map(|(path, why)| Refused { path, why }).collect();
        Ok(Differences { run, root, files, refs, not_saved, diff: shown.finish() })
    }
}

fn refs_of(change: GitChange) -> Vec<RefDifference> {
    let GitChange { before, after } = change;
    let after = after.map(|after| after.refs).unwrap_or_default();
    let names: BTreeSet<&String> = before.refs.keys().chain(after.keys()).collect();
    let changed = names.into_iter().filter(|name| before.refs.get(*name) != after.get(*name));
    changed
        .map(|name| RefDifference {
            repo: before.repo.clone(),
            name: name.clone(),
            before: before.refs.get(name).cloned(),
            after: after.get(name).cloned(),
        })
        .collect()
}

impl Answer for Differences {
    fn summary(&self, _: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        writeln!(to, "# in {}", self.root)?;
        for file in self.files.iter().filter(|file| !file.current) {
            writeln!(to, "# {} was changed since", file.path)?;
        }
        for Refused { path, why } in &self.not_saved {
            writeln!(to, "# {path} cannot be shown: {why}")?;
        }
        for RefDifference { repo, name, before, after } in &self.refs {
            let [before, after] = [before, after].map(|id| id.as_deref().unwrap_or("absent"));
            let repo = if repo.as_str().is_empty() { &self.root } else { repo.as_str() };
            writeln!(to, "# {name} of {repo}: {before} to {after}")?;
        }
        to.write_str(&self.diff)
    }
}

#[derive(Args)]
pub(crate) struct JournalArgs {}

#[derive(Debug, Serialize)]
pub(crate) struct Runs {
    runs: Vec<RunOf>,
}

#[derive(Debug, Serialize)]
struct RunOf {
    run: String,
    session: Option<String>,
    at: String,
    changes: usize,
    files: usize,
}

impl Report for JournalArgs {
    const NAME: &'static str = "ken-coder journal";
    const ABOUT: &'static str = "List the runs that changed files, newest first";

    fn run(&self, reply: Reply<'_>) -> Result<Replied, Error> {
        let Some(settings) = Settings::of_changes()? else {
            return Ok(reply.send(&Runs { runs: Vec::new() }));
        };
        let runs = run_confined(&settings, Access::Read, || {
            let journal = Journal::reader(&settings.state);
            let mut runs = Vec::new();
            for (run, _) in journal.runs()? {
                let records = journal.records(&run)?;
                runs.push(RunOf {
                    session: records.last().and_then(|record| record.session.clone()),
                    at: records.last().map(|record| record.at.clone()).unwrap_or_default(),
                    changes: records.len(),
                    files: RunChanges::of(records).files.len(),
                    run,
                });
            }
            Ok(Runs { runs })
        })?;
        Ok(reply.send(&runs))
    }
}

impl Answer for Runs {
    fn summary(&self, _: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        for run in &self.runs {
            writeln!(to, "{} {} {} files", run.at, run.run, run.files)?;
        }
        Ok(())
    }
}

#[derive(Args)]
pub(crate) struct Prune {
    /// Keep runs of the last N days
    #[arg(long, value_name = "N", default_value_t = MAX_AGE.as_secs() / 86_400)]
    days: u64,
    /// Keep at most N MiB of contents
    #[arg(long, value_name = "N", default_value_t = MAX_BYTES / 1024 / 1024)]
    mib: u64,
    /// Remove the runs of this session too, however new they are
    #[arg(long, value_name = "ID")]
    session: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pruned {
    runs_removed: usize,
    contents_removed: usize,
    at: String,
}

impl Report for Prune {
    const NAME: &'static str = "ken-coder prune";
    const ABOUT: &'static str = "Remove old runs from the journal, as every change does once an hour";

    fn run(&self, reply: Reply<'_>) -> Result<Replied, Error> {
        let at = || Timestamp::now().to_string();
        let Some(settings) = Settings::of_changes()? else {
            return Ok(reply.send(&Pruned { runs_removed: 0, contents_removed: 0, at: at() }));
        };
        let pruned = with_tree(&settings, Access::Write, |tree| {
            let journal = Journal::lock(&settings, "prune", &RelPath::default())?;
            recover(&settings, tree, &journal)?;
            let kept = Duration::from_secs(self.days.saturating_mul(86_400));
            let of_session = self.session.as_deref().map(|session| journal.remove_session(session)).transpose()?;
            let (old, contents_removed) = journal.prune(kept, self.mib.saturating_mul(1024 * 1024))?;
            let runs_removed = old + of_session.unwrap_or_default();
            Ok(Pruned { runs_removed, contents_removed, at: at() })
        })?;
        Ok(reply.send(&pruned))
    }
}

impl Answer for Pruned {
    fn summary(&self, _: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        writeln!(to, "removed {} runs and {} contents", self.runs_removed, self.contents_removed)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use std::path::Path;

    use super::*;
    use crate::journal::tests::{entry, journal, place, record, repository, version};

    fn span(before: Option<&str>, after: Option<&str>, is_broken: bool) -> FileChange {
        FileChange { before: before.map(version), after: after.map(version), is_broken }
    }

    /// The changes of a run are one change of each file, from before the first to after the last.
    #[test]
    fn several_changes_of_a_file_are_one() {
        let (none, one, two, three) = (None, Some("one"), Some("two"), Some("three"));
        for (steps, expected) in [
            (vec![(one, two)], Some(span(one, two, false))),
            (vec![(one, two), (two, three)], Some(span(one, three, false))),
            (vec![(none, two), (two, three)], Some(span(none, three, false))),
            (vec![(one, two), (two, none)], Some(span(one, none, false))),
            // It is as it was, so that there is nothing to undo.
            (vec![(one, two), (two, one)], None),
            (vec![(none, two), (two, none)], None),
            (vec![(one, one)], None),
            // Somebody else has changed it in between, even if it is as it was again.
            (vec![(one, two), (three, two)], Some(span(one, two, true))),
            (vec![(one, two), (three, one)], Some(span(one, one, true))),
            (vec![(one, two), (three, one), (one, two)], Some(span(one, two, true))),
        ] {
            let records = steps.iter().map(|(before, after)| record("r", "1", vec![entry("a", *before, *after)]));
            let whole = RunChanges::of(records.collect());
            assert_eq!(whole.files.get(&place("a")), expected.as_ref(), "{steps:?}");
        }
        let git = |before: &str, after: Option<&str>| {
            let state = |head: &str| repository("repos/a", head, &[], "");
            let change = crate::journal::GitChange { before: state(before), after: after.map(state) };
            crate::journal::Record { git: vec![change], ..record("r", "1", vec![]) }
        };
        let whole = RunChanges::of(vec![git("1", Some("2")), git("2", Some("3"))]);
        let change = &whole.git[&place("repos/a")];
        assert_eq!((change.before.head.as_str(), change.after.as_ref().unwrap().head.as_str()), ("1", "3"));
    }

    /// A file is put back only if it is as the run left it, and its content is still kept.
    #[test]
    fn only_what_is_as_the_run_left_it_is_put_back() {
        let root = tempfile::tempdir().unwrap();
        let (state, journal) = journal();
        std::fs::create_dir_all(root.path().join("repos/a")).unwrap();
        let settings = Settings::of_folders(root.path(), state.path()).unwrap();
        let tree = Tree::open(&settings).unwrap();
        journal.keep(&crate::tree::digest(b"one"), b"one").unwrap();
        let (path, file) = (place("repos/a/x"), root.path().join("repos/a/x"));
        let since = |what: &str| Err(format!("it was {what} since"));
        for (before, after, is_broken, now, expected) in [
            (Some("one"), Some("two"), false, Some("two"), Ok(Some(true))),
            (Some("one"), Some("two"), false, Some("one"), Ok(None)),
            (Some("one"), Some("two"), false, Some("three"), since("changed")),
            (Some("one"), Some("two"), false, None, since("removed")),
            (Some("one"), None, false, None, Ok(Some(true))),
            (Some("one"), None, false, Some("three"), since("created again")),
            (None, Some("two"), false, Some("two"), Ok(Some(false))),
            (None, Some("two"), false, None, Ok(None)),
            (None, Some("two"), false, Some("three"), since("changed")),
            (
                Some("one"),
                Some("two"),
                true,
                Some("two"),
                Err("it was changed by somebody else during the run".to_owned()),
            ),
            (Some("one"), Some("two"), true, Some("one"), Ok(None)),
            (Some("gone"), Some("two"), false, Some("two"), Err("its content is no longer in the journal".to_owned())),
        ] {
            _ = std::fs::remove_file(&file);
            if let Some(text) = now {
                std::fs::write(&file, text).unwrap();
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
                std::fs::set_permissions(&file, mode).unwrap();
            }
            let found = restoring_change(&tree, &journal, &path, &span(before, after, is_broken));
            let found = found.map(|change| change.map(|change| change.after.is_some()));
            assert_eq!(found, expected, "{before:?} {after:?} {is_broken} {now:?}");
        }
    }

    #[test]
    fn a_run_is_found_by_its_id_or_by_an_unambiguous_part_of_it() {
        let root = tempfile::tempdir().unwrap();
        let (state, journal) = journal();
        let settings = Settings::of_folders(root.path(), state.path()).unwrap();
        let put = |run: &str, at: &Path, layout: Layout, files: Vec<crate::journal::Entry>| {
            let call = crate::journal::Record { root: at.to_owned(), layout, ..record(run, "1", files) };
            journal.end(&call).unwrap();
        };
        let changes = || vec![entry("repos/a/x", Some("one"), Some("two"))];
        let elsewhere = Path::new("/elsewhere");
        put("runsb", root.path(), Layout::Workspace, changes());
        put("runsc", elsewhere, Layout::Folder, changes());
        put("runs", elsewhere, Layout::Workspace, changes());
        put("zz", root.path(), Layout::Workspace, vec![]);
        for (number, run) in ["runsb", "runsc", "runs", "zz"].into_iter().enumerate() {
            let age = std::time::Duration::from_secs(10 - number as u64);
            let folder = std::fs::File::open(state.path().join("journal").join(run)).unwrap();
            folder.set_modified(SystemTime::now() - age).unwrap();
        }
        let found = |word: &str| find(&settings, &journal, word).map(|(run, _)| run).map_err(|error| error.code);
        assert_eq!(found("runs").as_deref(), Ok("runs"), "the whole id goes before a part");
        assert_eq!(found("runsb").as_deref(), Ok("runsb"));
        assert_eq!(found("run"), Err(ken_types::Code::NotFound), "too short to mean one by");
        std::fs::remove_dir_all(state.path().join("journal/runs")).unwrap();
        assert_eq!(found("runs"), Err(ken_types::Code::Invalid));
        put("runs", elsewhere, Layout::Workspace, changes());
        assert_eq!(found("none"), Err(ken_types::Code::NotFound));
        for count in 0..=MAX_LISTED {
            put(&format!("many{count}"), root.path(), Layout::Workspace, vec![]);
            let Err(error) = find(&settings, &journal, "many") else { continue };
            let lines = error.message.lines().count() - 1;
            assert_eq!((lines, error.message.ends_with("and more")), (count + 1, count == MAX_LISTED));
        }
        // The newest that has changed something here.
        assert_eq!(found(LAST).as_deref(), Ok("runsb"));
        let here = |word: &str| find_here(&settings, &journal, word).map(|(run, _)| run).map_err(|error| error.code);
        assert_eq!((here("runsb").as_deref(), here("runsc")), (Ok("runsb"), Err(ken_types::Code::Conflict)));
        // Only refs were changed.
        let state = |head: &str| repository("repos/a", head, &[], "");
        let change = crate::journal::GitChange { before: state("1"), after: Some(state("2")) };
        let refs =
            crate::journal::Record { root: root.path().to_owned(), git: vec![change], ..record("refs", "1", vec![]) };
        journal.end(&refs).unwrap();
        assert_eq!(found(LAST).as_deref(), Ok("refs"));
    }

    #[test]
    fn the_refs_that_differ_are_named() {
        let before =
            repository("repos/a", "", &[("refs/heads/a", "1"), ("refs/heads/b", "1"), ("refs/heads/c", "1")], "");
        let after =
            repository("repos/a", "", &[("refs/heads/a", "1"), ("refs/heads/b", "2"), ("refs/heads/d", "1")], "");
        let found = refs_of(GitChange { before, after: Some(after) });
        let found: Vec<_> =
            found.iter().map(|each| (&*each.name, each.before.as_deref(), each.after.as_deref())).collect();
        let wanted = [
            ("refs/heads/b", Some("1"), Some("2")),
            ("refs/heads/c", Some("1"), None),
            ("refs/heads/d", None, Some("1")),
        ];
        assert_eq!(found, wanted);
    }
}
