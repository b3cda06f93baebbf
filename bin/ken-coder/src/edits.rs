//! `ken-coder write`, `edit`, `patch` and `apply`: changes of files that are made completely or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ken_tool::{Answer, Error};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::approved;
use crate::call::Operation;
use crate::change::{MAX_FILES, Plan, action, commit, record};
use crate::command::locked;
use crate::confine::{Access, run_confined, with_tree};
use crate::gate;
use crate::git_guard::GitFolders;
use crate::journal::Record;
use crate::patch;
use crate::policy::{Approval, Permit, of_files};
use crate::preview::Preview;
use crate::rel_path::RelPath;
use crate::settings::Settings;
use crate::tree::Tree;
use crate::unseen;

#[derive(Debug, Serialize)]
pub(crate) struct ChangeResult {
    /// The id of the run, for `ken undo` and `ken diff`.
    run: String,
    changed: Vec<ChangedFile>,
}

#[derive(Debug, Serialize)]
struct ChangedFile {
    path: RelPath,
    action: &'static str,
    /// The digest of the file after the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
}

impl From<Record> for ChangeResult {
    fn from(record: Record) -> ChangeResult {
        let file = |entry: crate::journal::Entry| ChangedFile {
            action: action(entry.before.as_ref(), entry.after.as_ref()),
            digest: entry.after.map(|version| version.digest),
            path: entry.path,
        };
        ChangeResult { run: record.run, changed: record.files.into_iter().map(file).collect() }
    }
}

impl Answer for ChangeResult {
    fn summary(&self, _: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        for ChangedFile { path, action, .. } in &self.changed {
            writeln!(to, "{action} {path}")?;
        }
        writeln!(to, "undo: ken undo {}", self.run)
    }
}

/// A command that changes files.
pub(crate) trait Edits: DeserializeOwned + Send + Sync {
    const NAME: &'static str;
    const ABOUT: &'static str;
    const FIELDS: &'static str;

    /// Adds its changes to a plan.
    fn plan(&self, plan: &mut Plan<'_>) -> Result<(), Error>;
}

impl<E: Edits> Operation for E {
    const NAME: &'static str = E::NAME;
    const ABOUT: &'static str = E::ABOUT;
    const FIELDS: &'static str = E::FIELDS;
    const ASKS: bool = true;
    type Answer = ChangeResult;

    fn preview(&self, settings: &Settings) -> Result<Preview, Error> {
        let guard = guard(settings, self)?;
        with_tree(settings, Access::Read, |tree| {
            Ok(Preview::of_plan(settings, &Plan::of(tree, |plan| self.plan(plan))?, &guard))
        })
    }

    fn run(&self, settings: &Settings) -> Result<ChangeResult, Error> {
        let journal = run_confined(settings, Access::Write, || locked(settings, Self::COMMAND, &RelPath::default()))?;
        let guard = guard(settings, self)?;
        with_tree(settings, Access::Write, |tree| {
            let plan = Plan::of(tree, |plan| self.plan(plan))?;
            let permit = gate::pass(settings, &Preview::without_diff(settings, &plan, &guard))?;
            let record = Record { files: plan.entries(), ..record(settings, Self::COMMAND)? };
            if record.files.is_empty() {
                return Ok(record.into());
            }
            // An edit of an approved plan was seen with the plan.
            let permit = if approved::use_up(settings, &journal, &record.files)? { Permit::Person } else { permit };
            unseen::record(settings, &journal, permit, record.files.iter().map(|entry| &entry.path))?;
            commit(tree, &journal, record, &|place, _| plan.content(place)).map(ChangeResult::from)
        })
    }
}

/// Returns what git executes in the projects whose files are changed, if a rule lets them be edited: git has to be asked before the
/// work on the files, in which no program can be started.
fn guard(settings: &Settings, edits: &impl Edits) -> Result<GitFolders, Error> {
    if !settings.rules.let_edit() {
        return Ok(GitFolders::default());
    }
    let places: Vec<RelPath> = with_tree(settings, Access::Read, |tree| {
        let plan = Plan::of(tree, |plan| edits.plan(plan))?;
        Ok(plan.pairs().map(|(place, ..)| place.clone()).collect())
    })?;
    if of_files(&settings.rules, places.iter()).approval != Approval::None {
        return Ok(GitFolders::default());
    }
    let projects: BTreeSet<RelPath> = places.iter().filter_map(|place| settings.layout.project(place)).collect();
    GitFolders::read(settings, &projects.into_iter().collect::<Vec<_>>())
}

/// Fails if a file has changed since the caller read it.
fn check_expected(plan: &mut Plan<'_>, place: &RelPath, expect: Option<&str>) -> Result<(), Error> {
    let Some(expect) = expect else { return Ok(()) };
    let now = plan.original(place)?.map(|node| node.version.digest.clone());
    if now.as_deref().unwrap_or("absent") == expect {
        return Ok(());
    }
    let is = now.map_or("is absent".to_owned(), |digest| format!("has the digest {digest}"));
    let message = format!("{place} has changed since it was read: it {is}");
    Err(Error::conflict(message).at("/expect").hint("read it again"))
}

fn text_of(plan: &mut Plan<'_>, place: &RelPath) -> Result<String, Error> {
    let node = plan.file(place)?.ok_or_else(|| Error::not_found(format!("there is no file {place}")).at("/path"))?;
    String::from_utf8(node.bytes.clone()).map_err(|_| Error::invalid("/path", format!("{place} is not text in UTF-8")))
}

/// Replaces a text that must occur exactly once in the file.
fn replace(plan: &mut Plan<'_>, place: &RelPath, old: &str, new: &str) -> Result<(), Error> {
    if old.is_empty() {
        let error = Error::invalid("/old", "the text to replace is empty");
        return Err(error.hint("`write` writes a whole file"));
    }
    let text = text_of(plan, place)?;
    let Some(start) = text.find(old) else {
        let error = Error::conflict(format!("{place} does not hold the text to replace"));
        return Err(error.at("/old").hint("read the file; blanks and line ends count"));
    };
    // Another one may overlap with it, as `aa` does in `aaa`.
    if text.rfind(old) != Some(start) {
        let count = text.matches(old).count().max(2);
        let error = Error::conflict(format!("{place} holds the text to replace {count} times"));
        return Err(error.at("/old").hint("include more of the text around it"));
    }
    let (head, tail) = text.split_at(start);
    let tail = tail.get(old.len()..).unwrap_or_default();
    plan.set(place, format!("{head}{new}{tail}").into_bytes(), None)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Write {
    path: RelPath,
    content: String,
    expect: Option<String>,
}

impl Edits for Write {
    const NAME: &'static str = "ken-coder write";
    const ABOUT: &'static str = "Write a whole file";
    const FIELDS: &'static str =
        "Fields: path, content, expect (the digest that the file has now; \"absent\" for a new one).";

    fn plan(&self, plan: &mut Plan<'_>) -> Result<(), Error> {
        check_expected(plan, &self.path, self.expect.as_deref())?;
        plan.set(&self.path, self.content.clone().into_bytes(), None)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edit {
    path: RelPath,
    old: String,
    new: String,
    expect: Option<String>,
}

impl Edits for Edit {
    const NAME: &'static str = "ken-coder edit";
    const ABOUT: &'static str = "Replace a text that is in a file exactly once";
    const FIELDS: &'static str =
        "Fields: path, old (the text to replace), new, expect (the digest that the file has now).";

    fn plan(&self, plan: &mut Plan<'_>) -> Result<(), Error> {
        check_expected(plan, &self.path, self.expect.as_deref())?;
        replace(plan, &self.path, &self.old, &self.new)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Patch {
    patch: String,
    /// The folder to which the names in the patch are relative.
    #[serde(default)]
    folder: RelPath,
    #[serde(default)]
    expect: BTreeMap<RelPath, String>,
}

impl Edits for Patch {
    const NAME: &'static str = "ken-coder patch";
    const ABOUT: &'static str = "Apply a unified diff of one or more files";
    const FIELDS: &'static str = "Fields: patch, folder (that its names are relative to; default: the workspace), expect (an object: path to digest).";

    fn plan(&self, plan: &mut Plan<'_>) -> Result<(), Error> {
        for (place, expect) in &self.expect {
            check_expected(plan, place, Some(expect))?;
        }
        let files = patch::parse(&self.patch).map_err(|why| Error::invalid("/patch", why))?;
        for file in files {
            self.one(plan, &file)?;
        }
        Ok(())
    }
}

impl Patch {
    fn one(&self, plan: &mut Plan<'_>, file: &patch::FilePatch) -> Result<(), Error> {
        let place = |name: &String| {
            let place = RelPath::parse(name).map_err(|why| Error::invalid("/patch", why))?;
            let names = place.names().fold(self.folder.clone(), |folder, name| folder.join(name));
            Ok::<RelPath, Error>(names)
        };
        let (old, new) = (file.old.as_ref().map(place).transpose()?, file.new.as_ref().map(place).transpose()?);
        let text = match &old {
            Some(old) => text_of(plan, old)?,
            None => String::new(),
        };
        let shown = new.as_ref().or(old.as_ref()).cloned().unwrap_or_default();
        let patched = file
            .apply(&text)
            .map_err(|why| Error::conflict(format!("{shown}: {why}; nothing was changed")).at("/patch"))?;
        let Some(new) = new else {
            if !patched.is_empty() {
                let message = format!("{shown}: the patch removes the file but not all of its lines");
                return Err(Error::conflict(message).at("/patch"));
            }
            return plan.remove(&shown);
        };
        let mut mode = file.mode;
        if old.as_ref() != Some(&new) {
            if plan.file(&new)?.is_some() {
                return Err(Error::conflict(format!("{new} is there already; nothing was changed")).at("/patch"));
            }
            if let Some(old) = &old {
                mode = mode.or(plan.file(old)?.map(|node| node.version.mode));
                plan.remove(old)?;
            }
        }
        plan.set(&new, patched.into_bytes(), mode)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Apply {
    edits: Vec<OneEdit>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct OneEdit {
    path: RelPath,
    expect: Option<String>,
    old: Option<String>,
    new: Option<String>,
    content: Option<String>,
    move_to: Option<RelPath>,
    executable: Option<bool>,
    #[serde(default)]
    remove: bool,
}

impl Edits for Apply {
    const NAME: &'static str = "ken-coder apply";
    const ABOUT: &'static str = "Change several files as a whole or not at all";
    const FIELDS: &'static str = "Fields: edits, a list of objects with path and one of: old and new (a text that must be there once); content (the whole \
     file); moveTo (a path); remove (true); executable (true or false). Each may have expect. They are applied in order.";

    fn plan(&self, plan: &mut Plan<'_>) -> Result<(), Error> {
        plan_all(&self.edits, plan)
    }
}

/// Returns the files as they will be after all edits.
pub(crate) fn plan_of<'a>(tree: &'a Tree, edits: &[OneEdit]) -> Result<Plan<'a>, Error> {
    Plan::of(tree, |plan| plan_all(edits, plan))
}

fn plan_all(edits: &[OneEdit], plan: &mut Plan<'_>) -> Result<(), Error> {
    if edits.is_empty() || edits.len() > MAX_FILES {
        return Err(Error::invalid("/edits", format!("1 to {MAX_FILES} edits")));
    }
    for (number, edit) in edits.iter().enumerate() {
        edit.plan(plan).map_err(|error| {
            let at = format!("/edits/{number}{}", error.at.as_deref().unwrap_or_default());
            let message = format!("edit {}: {}", number + 1, error.message);
            Error { message, ..error }.at(at)
        })?;
    }
    Ok(())
}

impl OneEdit {
    fn plan(&self, plan: &mut Plan<'_>) -> Result<(), Error> {
        check_expected(plan, &self.path, self.expect.as_deref())?;
        let content = self.content.as_ref();
        match (&self.old, &self.new, content, &self.move_to, self.remove, self.executable) {
            (Some(old), Some(new), None, None, false, None) => replace(plan, &self.path, old, new),
            (None, None, Some(content), None, false, _) => {
                plan.set(&self.path, content.clone().into_bytes(), self.mode())
            }
            (None, None, None, Some(to), false, None) => self.moved(plan, to),
            (None, None, None, None, true, None) => {
                self.bytes(plan)?;
                plan.remove(&self.path)
            }
            (None, None, None, None, false, Some(_)) => {
                let (bytes, _) = self.bytes(plan)?;
                plan.set(&self.path, bytes, self.mode())
            }
            _ => Err(Error::invalid("", "an edit has one of old and new, content, moveTo, remove: true, executable")),
        }
    }

    fn mode(&self) -> Option<u32> {
        self.executable.map(|executable| if executable { 0o755 } else { 0o644 })
    }

    fn bytes(&self, plan: &mut Plan<'_>) -> Result<(Vec<u8>, u32), Error> {
        let node = plan.file(&self.path)?;
        let node = node.ok_or_else(|| Error::not_found(format!("there is no file {}", self.path)).at("/path"))?;
        Ok((node.bytes.clone(), node.version.mode))
    }

    fn moved(&self, plan: &mut Plan<'_>, to: &RelPath) -> Result<(), Error> {
        let (bytes, mode) = self.bytes(plan)?;
        if plan.file(to)?.is_some() {
            return Err(Error::conflict(format!("{to} is there already")).at("/moveTo"));
        }
        plan.remove(&self.path)?;
        plan.set(to, bytes, Some(mode))
    }
}
