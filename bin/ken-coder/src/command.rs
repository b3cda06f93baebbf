//! `ken-coder run` and `ken-coder test`: run a command in the sandbox and record what it changes.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use ken_tool::{Answer, Error, Verdict};
use ken_types::ops::tools::Risk;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::call::Operation;
use crate::change::record;
use crate::confine::{Access, run_confined, with_tree};
use crate::gate;
use crate::git_guard::GitFolders;
use crate::git_names::Names;
use crate::git_state::Repositories;
use crate::inputs::Inputs;
use crate::journal::{GitChange, Journal, Record};
use crate::network::{Network, describe, git_variables};
use crate::policy::{self, Approval, CommandLine, CommandRequirement, Requirement};
use crate::preview::Preview;
use crate::rel_path::{RelPath, shortened};
use crate::repository::config_values;
use crate::risk::is_like_shell;
use crate::sandbox::{self, Ended, Granted, Job, Walls};
use crate::settings::Settings;
use crate::snapshot::{Differences, Snapshot, left_out, recover};
use crate::tree::{Links, Tree};

/// The default and the maximum timeout of a command, in seconds. ken-tools ends every call after 600 s.
const TIMEOUT: f64 = 120.0;
const MAX_TIMEOUT: f64 = 590.0;
/// The maximum timeout of a command that nobody has approved or listed, in seconds. `cat /dev/zero` only reads, and would
/// keep a place of ken-tools for ten minutes.
const MAX_UNAPPROVED_TIMEOUT: f64 = 60.0;
/// The default and the maximum number of bytes of each output in the reply.
const OUTPUT_BYTES: usize = 256 * 1024;
const MAX_OUTPUT_BYTES: usize = 1024 * 1024;
/// The maximum number of files that a reply lists.
const MAX_LISTED: usize = 100;
/// The maximum number of words of a command line, and of bytes of all of them and of standard input. A person has to read
/// them before the command runs.
const MAX_WORDS: usize = 1_000;
const SHOWN_BYTES: usize = 64 * 1024;
const CONFIG_HINT: &str = "commands cannot change the configuration and the hooks of git, because the next git of a person \
    would run what they name: `push` (the tool git_push) publishes a branch after an approval and needs no upstream; \
    a remote or another setting is added by a person";
const READ_HINT: &str = "a command can change the project only, and read it and the folders of the system; if it needs \
    a toolchain elsewhere, such as one below the home folder, a person adds its path to `read`, and a variable that names \
    it, such as RUSTUP_HOME=PATH, to `env`, in [workspace] of ken.toml";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Run {
    #[serde(default)]
    argv: Vec<String>,
    /// A command line for a shell, instead of `argv`.
    shell: Option<String>,
    #[serde(default)]
    cwd: RelPath,
    stdin: Option<String>,
    /// Whether the command can reach the hosts that the rule of its folder names.
    #[serde(default)]
    network: bool,
    timeout_seconds: Option<f64>,
    max_bytes: Option<usize>,
}

/// The outcome of a command.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunResult {
    /// The id of the run, for `ken undo` and `ken diff`.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    command: Vec<String>,
    cwd: RelPath,
    /// The exit status, or 128 + N after signal N.
    pub(crate) status: i32,
    timed_out: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<String>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) stdout_bytes: u64,
    stderr_bytes: u64,
    duration_ms: u64,
    /// The files that it changed. A long list is cut off.
    changed: Vec<RelPath>,
    changed_count: usize,
    /// Files that it changed and that `ken undo` cannot restore.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_saved: Vec<String>,
    /// What else `ken undo` cannot restore, with the reason, such as a history that is too large.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_undone: Vec<String>,
    /// Repositories and files of git in which it left something that git would run. That has been taken back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    disarmed: Vec<RelPath>,
    /// Folders at whose paths something else was afterwards: what it changed there is in the folders that it was given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    moved: Vec<RelPath>,
    /// What can be done instead of what the sandbox has refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'static str>,
    /// Whether it could change what makes git run programs, because no mount namespace can be made here.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    git_unprotected: bool,
}

impl Operation for Run {
    const NAME: &'static str = "ken-coder run";
    const ABOUT: &'static str = "Run a command in a folder of the workspace, in a sandbox";
    const FIELDS: &'static str = "Fields: argv (the program and its arguments) or shell (a text for sh -c), cwd, stdin, network (true: it \
        may reach the hosts that the rule of its folder names, through a proxy), \
        timeoutSeconds (default 120), maxBytes (of each output; default 262144: the beginning and the end).\n\n\
        Exit status: 0 the command ended with 0, 1 it did not, 2 it was not run.";
    const ASKS: bool = true;
    type Answer = RunResult;

    fn preview(&self, settings: &Settings) -> Result<Preview, Error> {
        let terms = self.terms(settings)?;
        let mounts = self.can_protect_git(settings, terms.is_read_only)?;
        let preview = with_tree(settings, Access::Read, |tree| self.preview_in(settings, tree, &terms, mounts))?;
        Ok(if terms.is_read_only { preview } else { preview.with_left_out(not_undoable(settings, &terms.write)?) })
    }

    fn run(&self, settings: &Settings) -> Result<RunResult, Error> {
        let terms = self.terms(settings)?;
        let mounts = self.can_protect_git(settings, terms.is_read_only)?;
        let network = terms.network.clone();
        let job = Job {
            argv: terms.argv.clone(),
            cwd: &self.cwd,
            write: &terms.write,
            protects_git: mounts,
            env: network.as_ref().map(|network| git_variables(&network.git_options())).unwrap_or_default(),
            stdin: self.stdin.as_deref(),
            network,
            timeout: terms.timeout,
            keep: self.max_bytes.unwrap_or(OUTPUT_BYTES).min(MAX_OUTPUT_BYTES),
            own: None,
        };
        journaled(settings, Self::COMMAND, &job, |tree| {
            gate::pass(settings, &self.preview_in(settings, tree, &terms, mounts)?).map(drop)
        })
    }
}

/// What the call and the settings decide, without a look at the files of the workspace.
struct Terms<'a> {
    argv: Vec<String>,
    verdict: Requirement,
    is_read_only: bool,
    /// The folders that it can change.
    write: Vec<RelPath>,
    network: Option<Network<'a>>,
    timeout: Duration,
}

impl Run {
    fn terms<'a>(&self, settings: &'a Settings) -> Result<Terms<'a>, Error> {
        let argv = self.argv()?;
        let scope = settings.layout.scope(&self.cwd);
        let line = self.line(settings, &argv);
        let CommandRequirement { verdict, is_read_only } = policy::of_command(settings, &line, &scope);
        let timeout = self.timeout(settings, &line, is_read_only)?;
        let network = self.network.then(|| Network::of(settings, &self.cwd)).transpose()?;
        let write = if is_read_only { Vec::new() } else { scope };
        Ok(Terms { argv, verdict, is_read_only, write, network, timeout })
    }

    /// Whether the sandbox can keep a command from changing what git runs. One that only reads cannot change it.
    fn can_protect_git(&self, settings: &Settings, is_read_only: bool) -> Result<bool, Error> {
        if is_read_only {
            return Ok(true);
        }
        // Without the folder, or without the kernel's help, that is what the caller is told.
        with_tree(settings, Access::Read, |tree| tree.folder(&self.cwd).map(drop))?;
        Ok(Walls::find()?.mounts)
    }

    /// `mounts` tells whether git can be protected from the command.
    fn preview_in(&self, settings: &Settings, tree: &Tree, terms: &Terms<'_>, mounts: bool) -> Result<Preview, Error> {
        let Terms { argv, is_read_only, write, network, .. } = terms;
        let (is_read_only, network, mut verdict) = (*is_read_only, network.as_ref(), terms.verdict.clone());
        tree.folder(&self.cwd)?;
        // A command that only reads executes none of the files that it names.
        let inputs = if is_read_only { Inputs::default() } else { Inputs::of(settings, tree, &self.cwd, argv)? };
        if !mounts && !is_read_only && verdict.approval == Approval::None {
            verdict = policy::with_approval(
                "a rule names this command, but no mount can keep it from changing what git runs, so a person decides",
            );
        }
        let can_change: Vec<String> = write.iter().map(|folder| settings.shown(folder)).collect();
        let action = json!({"argv": argv, "cwd": settings.shown(&self.cwd),
            "timeoutSeconds": terms.timeout.as_secs_f64(), "stdin": self.stdin, "canChange": can_change,
            "network": describe(network), "compared": listed(&inputs.files), "changedUnseen": listed(&inputs.unseen)});
        let risk = match (is_read_only, is_like_shell(argv, self.stdin.as_deref()), network) {
            (true, ..) => Risk::Low,
            (false, false, None) => Risk::Medium,
            _ => Risk::High,
        };
        let target = settings.layout.project(&self.cwd).unwrap_or_default();
        let state = serde_json::to_value(&inputs).map_err(|error| Error::internal(error.to_string()))?;
        Ok(Preview::new(
            settings,
            verdict,
            "shell.execute",
            (self.summary(argv), &target, risk),
            action,
            None,
            (&sandbox::profile(settings, write, network), &state),
        ))
    }

    /// Returns one line for a list. It names what the command line does not show.
    fn summary(&self, argv: &[String]) -> String {
        let stdin = self.stdin.as_ref().map(|text| format!(", with {} bytes of standard input", text.len()));
        let network = self.network.then_some(", with the network");
        format!(
            "Run {} in {}{}{}",
            command_line(argv),
            self.cwd,
            stdin.unwrap_or_default(),
            network.unwrap_or_default()
        )
    }

    fn argv(&self) -> Result<Vec<String>, Error> {
        let argv = match (&self.shell, self.argv.as_slice()) {
            (Some(text), []) => vec!["sh".to_owned(), "-c".to_owned(), text.clone()],
            (None, [program, ..]) if !program.is_empty() => self.argv.clone(),
            (None, _) => return Err(Error::invalid("/argv", "the program is missing")),
            (Some(_), _) => return Err(Error::invalid("/shell", "give argv or shell, not both")),
        };
        if argv.iter().any(|word| word.contains('\0')) {
            return Err(Error::invalid("/argv", "a word holds a NUL byte"));
        }
        if argv.len() > MAX_WORDS || argv.iter().map(String::len).sum::<usize>() > SHOWN_BYTES {
            let message = format!("a command line has at most {MAX_WORDS} words and {SHOWN_BYTES} bytes");
            return Err(Error::too_large(message).at("/argv").hint("write long texts to a file first"));
        }
        if self.stdin.as_ref().is_some_and(|text| text.len() > SHOWN_BYTES) {
            let message = format!("standard input has at most {SHOWN_BYTES} bytes");
            return Err(Error::too_large(message).at("/stdin").hint("write long texts to a file first"));
        }
        Ok(argv)
    }

    fn line<'a>(&'a self, settings: &Settings, argv: &'a [String]) -> CommandLine<'a> {
        let (stdin, is_path_safe) = (self.stdin.as_deref(), policy::is_path_safe(settings));
        CommandLine { argv, stdin, cwd: &self.cwd, has_network: self.network, is_path_safe }
    }

    fn timeout(&self, settings: &Settings, line: &CommandLine<'_>, is_read_only: bool) -> Result<Duration, Error> {
        let seconds = self.timeout_seconds.unwrap_or(TIMEOUT);
        let is_unapproved = is_read_only && !policy::is_listed(settings, line);
        let most = if is_unapproved { MAX_UNAPPROVED_TIMEOUT } else { MAX_TIMEOUT };
        if seconds > 0.0 && seconds <= MAX_TIMEOUT {
            Ok(Duration::from_secs_f64(seconds.min(most)))
        } else {
            Err(Error::invalid("/timeoutSeconds", format!("above 0 and at most {MAX_TIMEOUT}")))
        }
    }
}

/// Returns what undo could not restore after a command that can change these folders, as lines for people.
fn not_undoable(settings: &Settings, write: &[RelPath]) -> Result<Vec<String>, Error> {
    let repositories = Repositories::read(settings, write)?;
    let mut lines = with_tree(settings, Access::Read, |tree| left_out(settings, tree, write, &repositories.tracked))?;
    lines.extend(repositories.unreadable);
    Ok(lines)
}

/// Returns the names of files for the person who decides, if there are any. The fingerprint covers all of them, with
/// their contents.
fn listed(files: &BTreeMap<RelPath, String>) -> Option<Vec<&RelPath>> {
    (!files.is_empty()).then(|| files.keys().take(MAX_LISTED).collect())
}

/// Formats the command as one short line for people.
fn command_line(argv: &[String]) -> String {
    const MAX_CHARACTERS: usize = 120;
    // In quotes, control characters are named.
    let is_special = |letter: char| letter.is_whitespace() || letter.is_control();
    let is_quoted = |word: &str| word.contains(is_special) || word.is_empty();
    let words = argv.iter().map(|word| if is_quoted(word) { format!("{word:?}") } else { word.clone() });
    let line = words.collect::<Vec<_>>().join(" ");
    shortened(&line, MAX_CHARACTERS)
}

/// The state between the start of a command and its end. It holds the lock of the journal.
pub(crate) struct Open {
    journal: Journal,
    granted: Granted,
    snapshot: Snapshot,
    record: Record,
    guard: GitFolders,
}

impl Open {
    /// Puts back what git takes programs from, and returns the files that the command had changed there.
    fn disarm(&self, settings: &Settings) -> Result<Vec<RelPath>, Error> {
        let Open { journal, record, guard, .. } = self;
        let scope = record.scope.as_slice();
        let configs = with_tree(settings, Access::Write, |tree| {
            guard.uncover(settings, tree, scope);
            Ok(guard.new_configs(settings, tree, scope))
        })?;
        let values = |text: Vec<u8>| Some((text.clone(), config_values(settings, scope.first()?, &text).ok()?));
        let parsed = configs.into_iter().filter_map(values).collect();
        with_tree(settings, Access::Write, |tree| {
            let disarmed = guard.put_back(settings, tree, journal, (scope, &record.guarded), &parsed);
            guard.mark_begun(settings, tree, scope);
            Ok(disarmed)
        })
    }
}

/// Runs a command if `check` succeeds, and records what it changes. `check` is called as late as possible: under the lock
/// of the journal, which is held until the command has ended. A command without write access needs no record.
fn journaled(
    settings: &Settings,
    command: &str,
    job: &Job<'_>,
    check: impl FnOnce(&Tree) -> Result<(), Error> + Send,
) -> Result<RunResult, Error> {
    if job.write.is_empty() {
        with_tree(settings, Access::Read, check)?;
        return Ok(result(job, sandbox::run(settings, job)?));
    }
    let (ended, changes) = recorded(settings, command, (job.cwd, job.write), check, |open| {
        sandbox::run_in(settings, job, &open.granted, open.journal.lock_descriptor())
    })?;
    let Recorded { run, found, disarmed, moved, not_undone } = changes;
    Ok(RunResult {
        run,
        changed_count: found.files.len(),
        changed: found.files.into_iter().take(MAX_LISTED).map(|entry| entry.path).collect(),
        not_saved: found.unsaved.into_keys().take(MAX_LISTED).collect(),
        disarmed: disarmed.into_iter().take(MAX_LISTED).collect(),
        moved,
        not_undone,
        git_unprotected: !job.protects_git,
        ..result(job, ended)
    })
}

/// Says what can be done if it is likely that the sandbox has refused something. `git config`, `git remote add` and
/// `git push -u` write git's configuration. The launchers of toolchain managers (rustup, pyenv) are on PATH, and
/// start programs in the home folder, which the sandbox does not show.
fn hint(ended: &Ended) -> Option<&'static str> {
    let text = ended.stderr.text();
    let says = |whys: &[&str]| ended.status != 0 && whys.iter().any(|why| text.contains(why));
    if says(&["could not write config file", "could not lock config file"]) {
        Some(CONFIG_HINT)
    } else {
        says(&["ermission denied", "EACCES", "rustup could not choose"]).then_some(READ_HINT)
    }
}

/// What has changed between the start of a command and its end.
pub(crate) struct Recorded {
    /// `None` if there is nothing to undo.
    run: Option<String>,
    found: Differences,
    disarmed: Vec<RelPath>,
    moved: Vec<RelPath>,
    not_undone: Vec<String>,
}

/// Does what can change the folders of `scope` if `check` succeeds, and records what it has changed.
pub(crate) fn recorded<T>(
    settings: &Settings,
    command: &str,
    (cwd, scope): (&RelPath, &[RelPath]),
    check: impl FnOnce(&Tree) -> Result<(), Error> + Send,
    work: impl FnOnce(&Open) -> Result<T, Error>,
) -> Result<(T, Recorded), Error> {
    // The lock comes first: what is looked up before it could have been replaced by the command that held it.
    let journal = run_confined(settings, Access::Write, || locked(settings, command, cwd))?;
    let mut repositories = Repositories::read(settings, scope)?;
    repositories.keep(settings, &journal)?;
    with_tree(settings, Access::Write, check)?;
    let guard = GitFolders::read(settings, scope)?;
    let open = with_tree(settings, Access::Write, |tree| {
        begin(settings, tree, (journal, guard), command, (cwd, scope), &repositories)
    })?;
    let not_undone = std::mem::take(&mut repositories.unreadable);
    let done = work(&open);
    // Before anybody's git runs here again.
    let disarmed = open.disarm(settings)?;
    let git = repositories.changes(settings);
    let recorded = with_tree(settings, Access::Write, |tree| {
        let Open { journal, granted, snapshot, mut record, .. } = open;
        let found = snapshot.changes(settings, tree, &record.scope);
        (record.files, record.folders, record.git) = (found.files.clone(), found.folders.clone(), git);
        record.unsaved = found.unsaved.clone();
        record.patterns.clear();
        record.guarded.clear();
        record.names = Names::default();
        let is_empty = record.files.is_empty() && record.git.is_empty() && record.unsaved.is_empty();
        if is_empty && record.folders.is_empty() {
            journal.forget(&record);
        } else {
            journal.end(&record)?;
        }
        journal.prune_sometimes();
        let run = (!is_empty).then_some(record.run);
        Ok(Recorded { run, found, disarmed, moved: granted.moved(tree, cwd, scope), not_undone })
    })?;
    Ok((done?, recorded))
}

/// Takes the lock of the journal, and completes what was interrupted.
pub(crate) fn locked(settings: &Settings, command: &str, place: &RelPath) -> Result<Journal, Error> {
    let journal = Journal::lock(settings, command, place)?;
    recover(settings, &Tree::open(settings)?, &journal)?;
    Ok(journal)
}

fn begin(
    settings: &Settings,
    tree: &Tree,
    (journal, guard): (Journal, GitFolders),
    command: &str,
    (cwd, scope): (&RelPath, &[RelPath]),
    repositories: &Repositories,
) -> Result<Open, Error> {
    let mut granted = Granted::open(tree, cwd, scope)?;
    let snapshot = Snapshot::take(settings, tree, &journal, scope, &repositories.tracked)?;
    granted.protect(scope, guard.held());
    let mut record = record(settings, command)?;
    record.files = snapshot.entries();
    record.unsaved = snapshot.unsaved();
    record.scope = scope.to_vec();
    record.patterns = snapshot.patterns();
    record.git = repositories.states.iter().map(|state| GitChange { before: state.clone(), after: None }).collect();
    record.guarded = guard.keep(tree, &journal)?;
    record.names = guard.names();
    journal.begin(&record)?;
    Ok(Open { journal, granted, snapshot, record, guard })
}

/// The result of a command that has changed nothing.
fn result(job: &Job<'_>, ended: Ended) -> RunResult {
    RunResult {
        command: job.argv.clone(),
        cwd: job.cwd.clone(),
        status: ended.status,
        hint: hint(&ended),
        timed_out: ended.timed_out,
        stopped: ended.stopped,
        stdout: ended.stdout.text(),
        stderr: ended.stderr.text(),
        stdout_bytes: ended.stdout.bytes,
        stderr_bytes: ended.stderr.bytes,
        duration_ms: u64::try_from(ended.duration.as_millis()).unwrap_or(u64::MAX),
        ..RunResult::default()
    }
}

impl Answer for RunResult {
    fn verdict(&self) -> Verdict {
        (self.status == 0).into()
    }

    fn summary(&self, _: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        to.write_str(&self.stdout)?;
        to.write_str(&self.stderr)?;
        match &self.stopped {
            Some(why) => writeln!(to, "[stopped: {why}]")?,
            None if self.timed_out => writeln!(to, "[stopped: it took too long]")?,
            None if self.status != 0 => writeln!(to, "[status {}]", self.status)?,
            None => {}
        }
        for path in &self.changed {
            writeln!(to, "changed {path}")?;
        }
        match self.changed_count.saturating_sub(self.changed.len()) {
            0 => {}
            more => writeln!(to, "[and {more} more]")?,
        }
        for path in &self.not_saved {
            writeln!(to, "[ken undo cannot put back {path}]")?;
        }
        for what in &self.not_undone {
            writeln!(to, "[ken undo cannot put back {what}]")?;
        }
        for path in &self.disarmed {
            writeln!(to, "taken back {path}: git could have run what it named")?;
        }
        for path in &self.moved {
            writeln!(to, "[{path} was replaced meanwhile: what was changed is in the folder that was there before]")?;
        }
        if let Some(hint) = self.hint {
            writeln!(to, "[{hint}]")?;
        }
        match &self.run {
            Some(run) => writeln!(to, "undo: ken undo {run}"),
            None => Ok(()),
        }
    }
}

/// Runs the tests of a project.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Test {
    cwd: RelPath,
    #[serde(default)]
    network: bool,
    timeout_seconds: Option<f64>,
    max_bytes: Option<usize>,
}

/// A file that identifies the kind of a project, and the command that runs its tests. The first file that exists
/// decides.
const TESTS: [(&str, &[&str]); 6] = [
    ("Cargo.toml", &["cargo", "test", "--offline"]),
    ("go.mod", &["go", "test", "./..."]),
    ("package.json", &["npm", "test"]),
    ("pyproject.toml", &["python3", "-m", "pytest"]),
    ("Makefile", &["make", "test"]),
    ("test.sh", &["sh", "./test.sh"]),
];

impl Test {
    fn command(&self, settings: &Settings) -> Result<Run, Error> {
        let argv = with_tree(settings, Access::Read, |tree| {
            for (file, argv) in TESTS {
                if tree.stat(&self.cwd.join(file), Links::Refuse)?.is_some() {
                    return Ok(argv);
                }
            }
            let files: Vec<&str> = TESTS.iter().map(|(file, _)| *file).collect();
            let message = format!("{}: none of {} is there", self.cwd, files.join(", "));
            Err(Error::not_found(message).at("/cwd").hint("use `run` with the command that runs the tests"))
        })?;
        Ok(Run {
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            shell: None,
            cwd: self.cwd.clone(),
            stdin: None,
            network: self.network,
            timeout_seconds: Some(self.timeout_seconds.unwrap_or(MAX_TIMEOUT)),
            max_bytes: self.max_bytes,
        })
    }
}

impl Operation for Test {
    const NAME: &'static str = "ken-coder test";
    const ABOUT: &'static str = "Run the tests of a project, by the files that it has";
    const FIELDS: &'static str = "Fields: cwd (the project), network (true: as for `run`), timeoutSeconds (default 590), maxBytes.\n\n\
        Exit status: 0 the tests passed, 1 they did not, 2 they were not run.";
    const ASKS: bool = true;
    type Answer = RunResult;

    fn preview(&self, settings: &Settings) -> Result<Preview, Error> {
        self.command(settings)?.preview(settings)
    }

    fn run(&self, settings: &Settings) -> Result<RunResult, Error> {
        self.command(settings)?.run(settings)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::Value;

    use super::*;
    use crate::rules::Rules;

    #[test]
    fn a_command_is_one_line_that_names_control_characters() {
        let line = |words: &[&str]| command_line(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(line(&["sh", "-c", "a b", ""]), r#"sh -c "a b" """#);
        assert_eq!(line(&["a\u{1b}[2Jb", "c\rd"]), r#""a\u{1b}[2Jb" "c\rd""#);
    }

    #[test]
    fn the_limits_of_a_command_line() {
        let check = |run: Value| {
            let run: Run = serde_json::from_value(run).unwrap();
            run.argv().map(drop).map_err(|error| error.at.unwrap_or_default())
        };
        let text = |length: usize| "x".repeat(length);
        let refused = |at: &str| Err(at.to_owned());
        for (run, expected) in [
            (json!({"argv": vec!["x"; MAX_WORDS]}), Ok(())),
            (json!({"argv": vec!["x"; MAX_WORDS + 1]}), refused("/argv")),
            (json!({"argv": ["x", text(SHOWN_BYTES - 1)]}), Ok(())),
            (json!({"argv": ["x", text(SHOWN_BYTES)]}), refused("/argv")),
            (json!({"argv": ["x", "a\0b"]}), refused("/argv")),
            (json!({"argv": ["", "x"]}), refused("/argv")),
            (json!({"argv": ["x"], "shell": "x"}), refused("/shell")),
            (json!({"argv": ["x"], "stdin": text(SHOWN_BYTES)}), Ok(())),
            (json!({"argv": ["x"], "stdin": text(SHOWN_BYTES + 1)}), refused("/stdin")),
        ] {
            assert_eq!(check(run), expected);
        }
    }

    #[test]
    fn what_nobody_has_approved_runs_a_minute_at_most() {
        let (root, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let rules = r#"[{"path":"repos/a","policy":"ask","commands":[["cat","x"]]}]"#;
        let settings =
            Settings { rules: Rules::of_json(rules), ..Settings::of_folders(root.path(), state.path()).unwrap() };
        for (folder, is_read_only, seconds, expected) in [
            ("repos/a", true, None, Some(TIMEOUT)),
            ("repos/a", false, None, Some(TIMEOUT)),
            ("repos/b", true, None, Some(MAX_UNAPPROVED_TIMEOUT)),
            ("repos/b", true, Some(0.5), Some(0.5)),
            ("repos/b", true, Some(MAX_TIMEOUT), Some(MAX_UNAPPROVED_TIMEOUT)),
            ("repos/b", false, Some(MAX_TIMEOUT), Some(MAX_TIMEOUT)),
            ("repos/a", true, Some(MAX_TIMEOUT), Some(MAX_TIMEOUT)),
            ("repos/b", false, Some(MAX_TIMEOUT + 1.0), None),
            ("repos/b", true, Some(MAX_TIMEOUT + 1.0), None),
            ("repos/b", false, Some(0.0), None),
            ("repos/b", false, Some(-1.0), None),
        ] {
            let run = json!({"argv": ["cat", "x"], "cwd": folder, "timeoutSeconds": seconds});
            let run: Run = serde_json::from_value(run).unwrap();
            let argv = run.argv().unwrap();
            let timeout = run.timeout(&settings, &run.line(&settings, &argv), is_read_only).ok();
            assert_eq!(timeout, expected.map(Duration::from_secs_f64), "{folder} {is_read_only} {seconds:?}");
        }
    }
}
