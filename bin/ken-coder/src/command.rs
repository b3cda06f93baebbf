//! `ken-coder run` and `ken-coder test`: run a command in the sandbox and record what it changes.

use std::fmt;
use std::time::Duration;

use ken_tool::{Answer, Error, Verdict as Ending};
use ken_types::ops::tools::Risk;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::call::Operation;
use crate::change::record;
use crate::confine::{Access, run_confined};
use crate::journal::{Journal, Record};
use crate::network::{Network, git_variables};
use crate::place::{Place, shortened};
use crate::policy::{self, Approval, CommandLine, CommandVerdict};
use crate::preview::Preview;
use crate::sandbox::{self, Ended, Job};
use crate::settings::Settings;
use crate::snapshot::{Differences, Snapshot, recover};
use crate::tree::{Links, Tree};

/// The default and the maximum timeout of a command, in seconds. ken-tools ends every call after 600 s.
const TIMEOUT: f64 = 120.0;
const MAX_TIMEOUT: f64 = 590.0;
/// The default and the maximum number of bytes of each output in the reply.
const OUTPUT_BYTES: usize = 256 * 1024;
const MAX_OUTPUT_BYTES: usize = 1024 * 1024;
/// The maximum number of files that a reply lists.
const MAX_LISTED: usize = 100;
/// The maximum size of a program in the workspace whose content is checked, in bytes.
const MAX_PROGRAM: u64 = 64 * 1024 * 1024;
/// The maximum number of words of a command line, and of bytes of all of them.
const WORDS: usize = 1_000;
const WORD_BYTES: usize = 100_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Run {
    #[serde(default)]
    argv: Vec<String>,
    /// A command line for a shell, instead of `argv`.
    shell: Option<String>,
    #[serde(default)]
    cwd: Place,
    stdin: Option<String>,
    /// Whether the command can reach the hosts that the rule of its folder names.
    #[serde(default)]
    network: bool,
    timeout_seconds: Option<f64>,
    max_bytes: Option<usize>,
}

/// The outcome of a command.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunResult {
    /// The id of the run, for `ken undo` and `ken diff`.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    command: Vec<String>,
    cwd: Place,
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
    changed: Vec<Place>,
    changed_count: usize,
    /// Files that it changed and that `ken undo` cannot restore.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_saved: Vec<Place>,
}

impl Operation for Run {
    const NAME: &'static str = "ken-coder run";
    const COMMAND: &'static str = "run";
    const ABOUT: &'static str = "Run a command in a folder of the workspace, in a sandbox";
    const FIELDS: &'static str = "Fields: argv (the program and its arguments) or shell (a text for sh -c), cwd, stdin, network (true: it \
        may reach the hosts that the rule of its folder names, through a proxy), \
        timeoutSeconds (default 120), maxBytes (of each output; default 262144: the beginning and the end).\n\n\
        Exit status: 0 the command ended with 0, 1 it did not, 2 it was not run.";
    type Answer = RunResult;

    fn preview(&self, settings: &Settings) -> Result<Preview, Error> {
        let argv = self.argv()?;
        let program = run_confined(settings, Access::Read, || {
            let tree = Tree::open(&settings.root)?;
            tree.folder(&self.cwd)?;
            Ok(program_digest(&tree, &self.cwd, &argv))
        })?;
        let scope = sandbox::scope(&self.cwd);
        let CommandVerdict { verdict, is_read_only } = policy::of_command(settings, &self.line(&argv), &scope);
        let network = self.network(settings)?;
        let write = if is_read_only { &[][..] } else { &scope };
        let action = json!({"argv": argv, "cwd": self.cwd, "timeoutSeconds": self.timeout()?.as_secs_f64(),
            "stdin": self.stdin, "canChange": write, "network": network.as_ref().map_or(Value::Bool(false), Network::describe)});
        let summary = format!("Run {} in {}", command_line(&argv), self.cwd);
        let risk = match (is_read_only, &self.shell, &network) {
            (true, ..) => Risk::Low,
            (false, None, None) => Risk::Medium,
            _ => Risk::High,
        };
        let target = self.cwd.project().unwrap_or_default();
        let state = json!({"program": program});
        Ok(Preview::new(
            settings,
            verdict,
            "shell.execute",
            (summary, &target, risk),
            action,
            None,
            (&sandbox::profile(settings, write, network.as_ref()), &state),
        ))
    }

    fn run(&self, settings: &Settings) -> Result<RunResult, Error> {
        let argv = self.argv()?;
        let scope = sandbox::scope(&self.cwd);
        let allowed = policy::of_command(settings, &self.line(&argv), &scope);
        if allowed.verdict.approval == Approval::Deny {
            return Err(Error::forbidden(allowed.verdict.reason));
        }
        let write = if allowed.is_read_only { &[][..] } else { &scope };
        let network = self.network(settings)?;
        let job = Job {
            argv,
            cwd: &self.cwd,
            write,
            env: network.as_ref().map(|network| git_variables(&network.git_options())).unwrap_or_default(),
            stdin: self.stdin.as_deref(),
            network,
            timeout: self.timeout()?,
            keep: self.max_bytes.unwrap_or(OUTPUT_BYTES).min(MAX_OUTPUT_BYTES),
        };
        journaled(settings, Self::COMMAND, &job)
    }
}

impl Run {
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
        if argv.len() > WORDS || argv.iter().map(String::len).sum::<usize>() > WORD_BYTES {
            let message = format!("a command line has at most {WORDS} words and {WORD_BYTES} bytes");
            return Err(Error::too_large(message).at("/argv").hint("give long texts on stdin or in a file"));
        }
        Ok(argv)
    }

    fn line<'a>(&'a self, argv: &'a [String]) -> CommandLine<'a> {
        CommandLine { argv, stdin: self.stdin.as_deref(), cwd: &self.cwd, has_network: self.network }
    }

    fn network<'a>(&self, settings: &'a Settings) -> Result<Option<Network<'a>>, Error> {
        self.network.then(|| Network::of(settings, &self.cwd)).transpose()
    }

    fn timeout(&self) -> Result<Duration, Error> {
        let seconds = self.timeout_seconds.unwrap_or(TIMEOUT);
        match seconds > 0.0 && seconds <= MAX_TIMEOUT {
            true => Ok(Duration::from_secs_f64(seconds)),
            false => Err(Error::invalid("/timeoutSeconds", format!("above 0 and at most {MAX_TIMEOUT}"))),
        }
    }
}

/// Returns the digest of a program in the workspace. It is part of the fingerprint, because the program could be
/// replaced between the approval and the start.
fn program_digest(tree: &Tree, cwd: &Place, argv: &[String]) -> Option<String> {
    let program = argv.first().filter(|program| program.contains('/'))?;
    let place = Place::parse(&format!("{}/{program}", cwd.as_str())).ok()?;
    let node = tree.read(&place, Links::Follow, MAX_PROGRAM).ok()??;
    Some(node.version.digest)
}

/// Formats the command as one short line for people.
fn command_line(argv: &[String]) -> String {
    const MAX_CHARACTERS: usize = 120;
    let is_quoted = |word: &str| word.contains(char::is_whitespace) || word.is_empty();
    let words = argv.iter().map(|word| if is_quoted(word) { format!("{word:?}") } else { word.clone() });
    let mut line = words.collect::<Vec<_>>().join(" ");
    line.retain(|letter| !letter.is_control());
    shortened(&line, MAX_CHARACTERS)
}

/// The state between the start of a command and its end. It holds the lock of the journal.
struct Open {
    journal: Journal,
    snapshot: Snapshot,
    record: Record,
}

/// Runs a command and records what it changes. A command without write access needs no record.
pub(crate) fn journaled(settings: &Settings, command: &str, job: &Job<'_>) -> Result<RunResult, Error> {
    if job.write.is_empty() {
        run_confined(settings, Access::Read, || Tree::open(&settings.root)?.folder(job.cwd).map(drop))?;
        let ended = sandbox::run(settings, job)?;
        return Ok(result(job, ended, None, None));
    }
    let open = run_confined(settings, Access::Write, || begin(settings, command, job))?;
    let ended = sandbox::run(settings, job);
    run_confined(settings, Access::Write, || {
        let Open { journal, snapshot, mut record } = open;
        let tree = Tree::open(&settings.root)?;
        let found = snapshot.changes(settings, &tree, &record.scope);
        record.files = found.files.clone();
        record.folders = found.folders.clone();
        match record.files.is_empty() && record.folders.is_empty() {
            true => journal.forget(&record),
            false => journal.end(&record)?,
        }
        journal.prune_sometimes();
        Ok(result(job, ended?, Some(found), Some(record.run)))
    })
}

fn begin(settings: &Settings, command: &str, job: &Job<'_>) -> Result<Open, Error> {
    let tree = Tree::open(&settings.root)?;
    tree.folder(job.cwd)?;
    let journal = Journal::lock(&settings.state)?;
    recover(settings, &tree, &journal)?;
    let snapshot = Snapshot::take(settings, &tree, &journal, job.write)?;
    let mut record = record(settings, command)?;
    record.files = snapshot.entries();
    record.scope = job.write.to_vec();
    journal.begin(&record)?;
    Ok(Open { journal, snapshot, record })
}

fn result(job: &Job<'_>, ended: Ended, found: Option<Differences>, run: Option<String>) -> RunResult {
    let (files, unsaved) = found.map_or_else(Default::default, |found| (found.files, found.unsaved));
    RunResult {
        run: run.filter(|_| !files.is_empty()),
        command: job.argv.clone(),
        cwd: job.cwd.clone(),
        status: ended.status,
        timed_out: ended.timed_out,
        stopped: ended.stopped,
        stdout: ended.stdout.text(),
        stderr: ended.stderr.text(),
        stdout_bytes: ended.stdout.bytes,
        stderr_bytes: ended.stderr.bytes,
        duration_ms: u64::try_from(ended.duration.as_millis()).unwrap_or(u64::MAX),
        changed_count: files.len(),
        changed: files.into_iter().take(MAX_LISTED).map(|entry| entry.path).collect(),
        not_saved: unsaved.into_iter().take(MAX_LISTED).collect(),
    }
}

impl Answer for RunResult {
    fn verdict(&self) -> Ending {
        match self.status {
            0 => Ending::Positive,
            _ => Ending::Negative,
        }
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
    cwd: Place,
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
    /// Returns the command that runs the tests.
    fn command(&self, settings: &Settings) -> Result<Run, Error> {
        let argv = run_confined(settings, Access::Read, || {
            let tree = Tree::open(&settings.root)?;
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
    const COMMAND: &'static str = "test";
    const ABOUT: &'static str = "Run the tests of a project, by the files that it has";
    const FIELDS: &'static str = "Fields: cwd (the project), network (true: as for `run`), timeoutSeconds (default 590), maxBytes.\n\n\
        Exit status: 0 the tests passed, 1 they did not, 2 they were not run.";
    type Answer = RunResult;

    fn preview(&self, settings: &Settings) -> Result<Preview, Error> {
        self.command(settings)?.preview(settings)
    }

    fn run(&self, settings: &Settings) -> Result<RunResult, Error> {
        self.command(settings)?.run(settings)
    }
}
