//! `ken-coder status`, `changes`, `log`, `commit`, `push` and `clone`: runs git in the sandbox.
//!
//! The sandbox keeps a command that only reads from changing anything, even if the repository's settings make git run
//! other programs. Hooks never run, because the approval of a commit does not cover these programs.

use std::fmt;
use std::time::Duration;

use ken_tool::{Answer, Error};
use ken_types::ops::tools::Risk;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::call::Operation;
use crate::command::journaled;
use crate::confine::{Access, run_confined};
use crate::network::{Network, git_variables, host_of};
use crate::place::Place;
use crate::policy::{self, Approval};
use crate::preview::Preview;
use crate::sandbox::{self, Job};
use crate::settings::Settings;
use crate::tree::{Links, Tree};

/// The maximum number of bytes of an output that are shown.
const OUTPUT: usize = 24 * 1024;
/// The maximum number of bytes of a commit's diff that are shown.
const DIFF: usize = crate::diff::MAX_DIFF;
const TIMEOUT: Duration = Duration::from_secs(120);
const COMMITS: usize = 20;
const MAX_COMMITS: usize = 200;
const MESSAGE_BYTES: usize = 16 * 1024;

/// Options that override the settings of the repository in every call. They are passed in the environment, so that
/// git's child processes use them too.
const OPTIONS: [(&str, &str); 7] = [
    // The workspace can belong to another user than the one that runs ken.
    ("safe.directory", "*"),
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.quotePath", "false"),
    ("commit.gpgSign", "false"),
    ("push.gpgSign", "false"),
    ("gc.auto", "0"),
];

/// The author of a commit if the repository does not set one.
const AUTHOR: (&str, &str) = ("ken coding worker", "ken@localhost");

const STATUS: &str = "git status --porcelain=v1 --branch --untracked-files=all";
const DIFF_SCRIPT: &str = "git diff --no-color --no-ext-diff --no-textconv \"$@\"";
const HISTORY: &str = "git log --no-color --no-show-signature --date=iso-strict --format='%h %ad %an: %s' \"$@\"";
/// Prepares the commit in the temporary directory without making it. The id of the tree identifies exactly what the
/// commit would contain. The copy of the index keeps its time stamp, because git uses it to recognise files that
/// changed right after the index was written.
const STAGE: &str = r#"set -e
index=$(git rev-parse --path-format=absolute --git-path index)
objects=$(git rev-parse --path-format=absolute --git-path objects)
if [ -f "$index" ]; then cp -p "$index" "$TMPDIR/index"; fi
mkdir "$TMPDIR/objects"
export GIT_INDEX_FILE="$TMPDIR/index" GIT_OBJECT_DIRECTORY="$TMPDIR/objects" GIT_ALTERNATE_OBJECT_DIRECTORIES="$objects"
git add -A -- "$@"
git write-tree
git rev-parse -q --verify HEAD || echo none
git symbolic-ref -q HEAD || echo detached
git diff --cached --no-color --no-ext-diff --no-textconv"#;
const COMMIT: &str = r#"set -e
git add -A -- "$@"
git diff --cached --quiet && { echo "there is nothing to commit" >&2; exit 1; }
git config user.name >/dev/null || export GIT_AUTHOR_NAME="$KEN_NAME" GIT_COMMITTER_NAME="$KEN_NAME"
git config user.email >/dev/null || export GIT_AUTHOR_EMAIL="$KEN_MAIL" GIT_COMMITTER_EMAIL="$KEN_MAIL"
git commit -q --no-verify --cleanup=strip -F -
git log -1 --no-color --no-show-signature --format='%H %s'"#;
const TARGET: &str = r#"set -e
git remote get-url --push "$1"
branch=${2:-$(git symbolic-ref --short HEAD)}
echo "$branch"
git rev-parse "refs/heads/$branch"
git log --no-color --no-show-signature --format='%h %s' -n 50 "refs/heads/$branch" --not --remotes="$1""#;
const PUSH: &str = r#"set -e
branch=${2:-$(git symbolic-ref --short HEAD)}
GIT_ALLOW_PROTOCOL=file:http:https git push --no-verify "$1" "refs/heads/$branch" 2>&1"#;
const CLONE: &str =
    r#"GIT_ALLOW_PROTOCOL=file:http:https git clone --no-hardlinks --no-recurse-submodules -- "$1" . 2>&1"#;

/// The output of git.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Printed {
    repo: Place,
    text: String,
    /// The length of the whole output, in bytes.
    bytes: u64,
}

impl Answer for Printed {
    fn summary(&self, _: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        writeln!(to, "{}", self.text.trim_end())
    }
}

struct Git<'a> {
    settings: &'a Settings,
    repo: &'a Place,
    script: &'static str,
    words: Vec<String>,
    stdin: Option<&'a str>,
    write: &'a [Place],
    network: Option<Network<'a>>,
    keep: usize,
}

impl<'a> Git<'a> {
    /// Returns a run of a script that has no input, no folder to write to and no network.
    fn new(settings: &'a Settings, repo: &'a Place, script: &'static str, words: Vec<String>) -> Git<'a> {
        Git { settings, repo, script, words, stdin: None, write: &[], network: None, keep: OUTPUT }
    }

    fn job(&self) -> Result<Job<'_>, Error> {
        if self.repo.project().is_none() {
            let message = format!("{}: a repository is repos/NAME or projects/NAME", self.repo);
            return Err(Error::invalid("/repo", message));
        }
        let mut argv = ["sh", "-c", self.script, "git"].map(str::to_owned).to_vec();
        argv.extend(self.words.iter().cloned());
        Ok(Job {
            argv,
            cwd: self.repo,
            write: self.write,
            protects_git: true,
            env: self.environment(),
            stdin: self.stdin,
            network: self.network.clone(),
            timeout: TIMEOUT,
            keep: self.keep,
        })
    }

    fn environment(&self) -> Vec<String> {
        let ceilings = crate::place::FOLDERS.map(|folder| self.settings.root.join(folder).display().to_string());
        let mut env = vec![
            "GIT_CONFIG_NOSYSTEM=1".to_owned(),
            "GIT_TERMINAL_PROMPT=0".to_owned(),
            "GIT_OPTIONAL_LOCKS=0".to_owned(),
            // git must not use a repository that encloses the workspace.
            format!("GIT_CEILING_DIRECTORIES={}", ceilings.join(":")),
            format!("KEN_NAME={}", AUTHOR.0),
            format!("KEN_MAIL={}", AUTHOR.1),
        ];
        let mut options: Vec<(String, String)> = OPTIONS.map(|(name, value)| (name.into(), value.into())).to_vec();
        options.extend(self.network.iter().flat_map(Network::git_options));
        env.extend(git_variables(&options));
        env
    }

    /// Runs git. Returns the part of the output that is shown, and the length of the whole output in bytes.
    fn read(&self) -> Result<(String, u64), Error> {
        let ended = sandbox::run(self.settings, &self.job()?)?;
        match ended.status {
            0 => Ok((ended.stdout.text(), ended.stdout.bytes)),
            status => Err(failed(self.repo, status, &ended.stderr.text())),
        }
    }

    /// Runs a command that changes the repository, and records what it changes.
    fn change(&self, command: &str) -> Result<Printed, Error> {
        let verdict = policy::of_folder(&self.settings.workspace, self.repo, "");
        if verdict.approval == Approval::Deny {
            return Err(Error::forbidden(verdict.reason));
        }
        let ran = journaled(self.settings, command, &self.job()?)?;
        match ran.status {
            0 => Ok(Printed { repo: self.repo.clone(), text: ran.stdout, bytes: ran.stdout_bytes }),
            status => Err(failed(self.repo, status, &format!("{}{}", ran.stderr, ran.stdout))),
        }
    }
}

fn failed(repo: &Place, status: i32, output: &str) -> Error {
    let lines: Vec<&str> = output.lines().take(5).collect();
    Error::conflict(format!("git in {repo} ended with {status}: {}", lines.join("; "))).at("/repo")
}

/// Refuses a name that git would interpret as an option or as something other than a name.
fn check_name(at: &str, name: &str) -> Result<(), Error> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._/~^@{}-".contains(letter);
    match !name.is_empty() && !name.starts_with('-') && name.len() <= 200 && name.chars().all(plain) {
        true => Ok(()),
        false => Err(Error::invalid(at, format!("{name:?} is not the name of a branch, commit or remote"))),
    }
}

fn paths(repo: &Place, paths: &[Place]) -> Vec<String> {
    // Paths are relative to the repository. A path that starts with the repository's own path in the workspace is
    // accepted too.
    let relative = |place: &Place| match place.as_str().strip_prefix(repo.as_str()) {
        Some(rest) if rest.starts_with('/') => format!(".{rest}"),
        _ => format!("./{}", place.as_str()),
    };
    paths.iter().map(relative).collect()
}

/// Implements a command that prints something and changes nothing.
macro_rules! looking {
    ($type:ty, $command:literal, $action:literal, $about:literal, $fields:literal) => {
        impl Operation for $type {
            const NAME: &'static str = concat!("ken-coder ", $command);
            const COMMAND: &'static str = $command;
            const ABOUT: &'static str = $about;
            const FIELDS: &'static str = $fields;
            type Answer = Printed;

            fn preview(&self, settings: &Settings) -> Result<Preview, Error> {
                Ok(Preview::of_read(settings, $action, &self.repo))
            }

            fn run(&self, settings: &Settings) -> Result<Printed, Error> {
                let (script, words) = self.script()?;
                let (text, bytes) = Git::new(settings, &self.repo, script, words).read()?;
                Ok(Printed { repo: self.repo.clone(), text, bytes })
            }
        }
    };
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Status {
    repo: Place,
}

looking!(Status, "status", "git.status", "Show the state of a git repository", "Fields: repo (such as repos/site).");

impl Status {
    fn script(&self) -> Result<(&'static str, Vec<String>), Error> {
        Ok((STATUS, Vec::new()))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Changes {
    repo: Place,
    #[serde(default)]
    staged: bool,
    base: Option<String>,
    #[serde(default)]
    paths: Vec<Place>,
}

looking!(
    Changes,
    "changes",
    "git.diff",
    "Show what differs in a git repository",
    "Fields: repo, staged (true: what is staged), base (a commit to compare with), paths."
);

impl Changes {
    fn script(&self) -> Result<(&'static str, Vec<String>), Error> {
        let mut words = Vec::new();
        if self.staged {
            words.push("--cached".to_owned());
        }
        if let Some(base) = &self.base {
            check_name("/base", base)?;
            words.push(base.clone());
        }
        words.push("--".to_owned());
        words.extend(paths(&self.repo, &self.paths));
        Ok((DIFF_SCRIPT, words))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Log {
    repo: Place,
    commits: Option<usize>,
    from: Option<String>,
    #[serde(default)]
    paths: Vec<Place>,
}

looking!(
    Log,
    "log",
    "git.log",
    "Show the history of a git repository",
    "Fields: repo, commits (how many; default 20), from (a branch or commit), paths."
);

impl Log {
    fn script(&self) -> Result<(&'static str, Vec<String>), Error> {
        let max = self.commits.unwrap_or(COMMITS).clamp(1, MAX_COMMITS);
        let mut words = vec![format!("--max-count={max}")];
        if let Some(from) = &self.from {
            check_name("/from", from)?;
            words.push(from.clone());
        }
        words.push("--".to_owned());
        words.extend(paths(&self.repo, &self.paths));
        Ok((HISTORY, words))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Commit {
    repo: Place,
    message: String,
    #[serde(default)]
    paths: Vec<Place>,
}

impl Commit {
    fn check(&self) -> Result<Vec<String>, Error> {
        if self.message.trim().is_empty() || self.message.contains('\0') {
            return Err(Error::invalid("/message", "a commit needs a message"));
        }
        if self.message.len() > MESSAGE_BYTES {
            return Err(Error::too_large(format!("a message has at most {MESSAGE_BYTES} bytes")).at("/message"));
        }
        Ok(match self.paths.is_empty() {
            true => vec![".".to_owned()],
            false => paths(&self.repo, &self.paths),
        })
    }
}

impl Operation for Commit {
    const NAME: &'static str = "ken-coder commit";
    const COMMAND: &'static str = "commit";
    const ABOUT: &'static str = "Commit changes of a git repository";
    const FIELDS: &'static str =
        "Fields: repo, message, paths (default: everything that has changed). Hooks are not run.";
    type Answer = Printed;

    fn preview(&self, settings: &Settings) -> Result<Preview, Error> {
        let git = Git { keep: DIFF, ..Git::new(settings, &self.repo, STAGE, self.check()?) };
        let (text, bytes) = git.read()?;
        let mut lines = text.splitn(4, '\n');
        let mut line = || lines.next().unwrap_or_default().to_owned();
        let (tree, head, branch, diff) = (line(), line(), line(), line());
        if diff.is_empty() {
            return Err(Error::conflict(format!("{}: there is nothing to commit", self.repo)).at("/repo"));
        }
        let project = [self.repo.clone()];
        let verdict = policy::of_folder(&settings.workspace, &self.repo, "git records a commit");
        let branch = branch.trim_start_matches("refs/heads/");
        let first = self.message.trim().lines().next().unwrap_or_default();
        let action = json!({"git": "commit", "repo": self.repo, "branch": branch, "message": self.message,
            "tree": tree, "parent": head, "diffBytes": bytes});
        let about = (format!("Commit to {branch} of {}: {first}", self.repo), &self.repo, Risk::Low);
        let profile = sandbox::profile(settings, &project, None);
        Ok(Preview::new(
            settings,
            verdict,
            "git.commit",
            about,
            action,
            Some(diff),
            (&profile, &serde_json::Value::Null),
        ))
    }

    fn run(&self, settings: &Settings) -> Result<Printed, Error> {
        let project = sandbox::scope(&self.repo);
        let git = Git {
            stdin: Some(&self.message),
            write: &project,
            ..Git::new(settings, &self.repo, COMMIT, self.check()?)
        };
        git.change(Self::COMMAND)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Push {
    repo: Place,
    remote: Option<String>,
    branch: Option<String>,
}

impl Push {
    /// Returns the URL of the remote, and three texts: the branch, the commit and what would be published.
    fn target(&self, settings: &Settings) -> Result<(String, [String; 3]), Error> {
        let (text, _) = Git::new(settings, &self.repo, TARGET, self.words()?).read()?;
        let mut lines = text.splitn(4, '\n').map(str::to_owned);
        let mut line = || lines.next().unwrap_or_default();
        Ok((line(), [line(), line(), line()]))
    }

    /// Returns the folders that a push writes to. Without a network, the remote is a folder, which can be any
    /// folder of the workspace.
    fn scope(&self, network: Option<&Network<'_>>) -> Vec<Place> {
        sandbox::scope(network.map_or(&Place::default(), |_| &self.repo))
    }

    fn words(&self) -> Result<Vec<String>, Error> {
        let remote = self.remote.as_deref().unwrap_or("origin");
        check_name("/remote", remote)?;
        let mut words = vec![remote.to_owned()];
        if let Some(branch) = &self.branch {
            check_name("/branch", branch)?;
            words.push(branch.clone());
        }
        Ok(words)
    }
}

impl Operation for Push {
    const NAME: &'static str = "ken-coder push";
    const COMMAND: &'static str = "push";
    const ABOUT: &'static str = "Push a branch of a git repository";
    const FIELDS: &'static str = "Fields: repo, remote (default origin), branch (default: the current one). A remote is a folder of the \
        workspace, or an http or https URL of a host that the rule of the repository names.";
    type Answer = Printed;

    fn preview(&self, settings: &Settings) -> Result<Preview, Error> {
        let (url, [branch, commit, commits]) = self.target(settings)?;
        let network = network_of(settings, &self.repo, "/remote", &url)?;
        let verdict = policy::of_folder(&settings.workspace, &self.repo, "git publishes a branch");
        let action = json!({"git": "push", "repo": self.repo, "remote": url, "branch": branch, "commit": commit,
            "commits": commits.lines().collect::<Vec<_>>(), "network": describe_network(network.as_ref())});
        let about = (format!("Push {branch} of {} to {url}", self.repo), &self.repo, Risk::High);
        let profile = sandbox::profile(settings, &self.scope(network.as_ref()), network.as_ref());
        Ok(Preview::new(settings, verdict, "git.push", about, action, None, (&profile, &serde_json::Value::Null)))
    }

    fn run(&self, settings: &Settings) -> Result<Printed, Error> {
        let (url, _) = self.target(settings)?;
        let network = network_of(settings, &self.repo, "/remote", &url)?;
        let git = Git {
            write: &self.scope(network.as_ref()),
            network,
            ..Git::new(settings, &self.repo, PUSH, self.words()?)
        };
        git.change(Self::COMMAND)
    }
}

fn describe_network(network: Option<&Network<'_>>) -> serde_json::Value {
    network.map_or(serde_json::Value::Bool(false), Network::describe)
}

/// Returns the network that a remote needs, or `None` if the remote is a folder of the workspace.
fn network_of<'a>(settings: &'a Settings, repo: &Place, at: &str, url: &str) -> Result<Option<Network<'a>>, Error> {
    let forbidden = |why: String| Error::forbidden(format!("the remote {url}: {why}")).at(at);
    if let Some(host) = host_of(url) {
        let host = host.map_err(&forbidden)?;
        let network = Network::of(settings, repo).map_err(|error| Error { at: Some(at.to_owned()), ..error })?;
        return match network.allows(&host) {
            true => Ok(Some(network)),
            false => Err(forbidden(format!("the rule of {repo} does not name the host {host}"))),
        };
    }
    let path = url.strip_prefix("file://").unwrap_or(url);
    let is_path = path.starts_with('/') || path.starts_with('.');
    match is_path && !path.contains("::") {
        true => Ok(None),
        false => Err(forbidden("only http and https can be reached, by way of the proxy".to_owned())
            .hint("use the https URL of the repository, or do it yourself")),
    }
}

/// Clones a repository into a new folder.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Clone {
    url: String,
    repo: Place,
}

impl Clone {
    fn check<'a>(&self, settings: &'a Settings) -> Result<Option<Network<'a>>, Error> {
        if self.repo.project().as_ref() != Some(&self.repo) {
            let message = format!("{}: a new repository is repos/NAME or projects/NAME", self.repo);
            return Err(Error::invalid("/repo", message));
        }
        if self.url.starts_with('-') || self.url.chars().any(char::is_control) {
            return Err(Error::invalid("/url", "it is not the URL of a repository"));
        }
        let network = network_of(settings, &self.repo, "/url", &self.url)?;
        let there =
            run_confined(settings, Access::Read, || Tree::open(&settings.root)?.stat(&self.repo, Links::Refuse))?;
        match there {
            None => Ok(network),
            Some(_) => Err(Error::conflict(format!("{} is there already", self.repo)).at("/repo")),
        }
    }
}

impl Operation for Clone {
    const NAME: &'static str = "ken-coder clone";
    const COMMAND: &'static str = "clone";
    const ABOUT: &'static str = "Clone a git repository into the workspace";
    const FIELDS: &'static str = "Fields: url (http or https, of a host that the rule of the new folder names; or the path of a folder \
        of the workspace), repo (the new folder, such as repos/site). Hooks are not run, submodules are not fetched.";
    type Answer = Printed;

    fn preview(&self, settings: &Settings) -> Result<Preview, Error> {
        let network = self.check(settings)?;
        let verdict = policy::of_folder(&settings.workspace, &self.repo, "a repository is fetched");
        let action =
            json!({"git": "clone", "url": self.url, "repo": self.repo, "network": describe_network(network.as_ref())});
        let about = (format!("Clone {} to {}", self.url, self.repo), &self.repo, Risk::Medium);
        let profile = sandbox::profile(settings, std::slice::from_ref(&self.repo), network.as_ref());
        Ok(Preview::new(settings, verdict, "repo.clone", about, action, None, (&profile, &serde_json::Value::Null)))
    }

    fn run(&self, settings: &Settings) -> Result<Printed, Error> {
        let network = self.check(settings)?;
        // The folder must exist before the sandbox can be given access to it.
        run_confined(settings, Access::Write, || Tree::open(&settings.root)?.make_folder(&self.repo))?;
        let git = Git {
            write: std::slice::from_ref(&self.repo),
            network,
            ..Git::new(settings, &self.repo, CLONE, vec![self.url.clone()])
        };
        let cloned = git.change(Self::COMMAND);
        if cloned.is_err() {
            // After a failed clone, git leaves the folder empty.
            let _ = run_confined(settings, Access::Write, || {
                Tree::open(&settings.root)?.remove_folder(&self.repo);
                Ok(())
            });
        }
        cloned
    }
}
