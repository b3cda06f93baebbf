//! A git repository of the workspace, and how ken's own git works with it.
//!
//! Whoever may write to a repository decides what its configuration runs: a file system monitor, filters, a pager, a
//! helper for keys, and whatever the next version of git adds. So ken's git never reads it. It gets a folder of its own
//! (`GIT_DIR`) with a configuration that ken writes, and finds the objects, the index and the refs of the repository from
//! there. The sandbox lets it execute git alone.

use std::fmt::Display;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ken_tool::Error;
use rustix::fs::FileType;
use tempfile::TempDir;

use crate::confine::{Access, with_tree};
use crate::network::Network;
use crate::programs::GitPrograms;
use crate::rel_path::RelPath;
use crate::sandbox::{self, Job, Own};
use crate::settings::Settings;
use crate::tree::{Links, Tree};

/// The default maximum number of bytes of an output that are shown.
const OUTPUT: usize = 24 * 1024;
/// The maximum size of a list that git prints for ken, in bytes: half a million paths of 64 bytes.
const MAX_LIST_BYTES: usize = 32 * 1024 * 1024;
const TIMEOUT: Duration = Duration::from_secs(120);
/// The maximum sizes of the files of a repository that ken reads itself, in bytes.
const MAX_POINTER_BYTES: u64 = 4 * 1024;
pub(crate) const MAX_CONFIG: u64 = 1024 * 1024;
pub(crate) const MAX_INDEX: u64 = 512 * 1024 * 1024;

/// The settings of the repository that ken's git gets too. They decide how files become objects, and can run nothing.
const PASSED_ON: [&str; 10] = [
    "core.repositoryformatversion",
    "core.autocrlf",
    "core.eol",
    "core.filemode",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.symlinks",
    "extensions.objectformat",
    "extensions.refstorage",
    "extensions.compatobjectformat",
];
const OWN_CONFIG: &str = "[core]\n\tfsmonitor = false\n\tsplitIndex = false\n\thooksPath = /dev/null\n\tquotePath = false\n\
    [gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[submodule]\n\trecurse = false\n[diff]\n\tignoreSubmodules = dirty\n";

/// A repository, with a temporary folder for ken's git. The folder is removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct Repository<'a> {
    settings: &'a Settings,
    /// The folder with the work tree; for a bare repository, the repository itself.
    pub(crate) work: RelPath,
    /// The folder with `HEAD` and the index of this work tree.
    pub(crate) folder: RelPath,
    /// The folder with the objects and the refs, which other work trees may share.
    pub(crate) common: RelPath,
    pub(crate) is_bare: bool,
    /// The content of `HEAD`.
    pub(crate) head: String,
    values: Vec<(String, String)>,
    own: TempDir,
    programs: GitPrograms,
}

/// Which values of the repository's configuration are read.
enum Values {
    All,
    /// Those without which git cannot read its files.
    Format,
}

/// What is read of a repository before git runs.
struct Found {
    work: RelPath,
    folder: RelPath,
    common: RelPath,
    head: String,
    config: Vec<u8>,
    excluded: Vec<u8>,
    attributes: Vec<u8>,
    /// The files and folders of `common` that git uses where they are.
    links: Vec<&'static str>,
}

#[derive(Debug, Default)]
pub(crate) struct GitCall<'c> {
    pub(crate) words: Vec<String>,
    pub(crate) stdin: Option<&'c str>,
    pub(crate) env: Vec<String>,
    /// The folders that it can change, besides its own temporary ones.
    pub(crate) write: Vec<RelPath>,
    pub(crate) network: Option<Network<'c>>,
    /// Without a work tree, git reads no `.gitattributes` of it.
    pub(crate) without_work_tree: bool,
    /// Whether it can run other programs. Only for filters that the operator names.
    pub(crate) with_filters: bool,
    /// How many bytes of the output are kept; 0 for the default.
    pub(crate) keep: usize,
}

impl GitCall<'_> {
    pub(crate) fn new<'c>(words: &[&str]) -> GitCall<'c> {
        GitCall { words: words.iter().map(|word| (*word).to_owned()).collect(), ..GitCall::default() }
    }

    pub(crate) fn without_work_tree<'c>(words: &[&str]) -> GitCall<'c> {
        GitCall { without_work_tree: true, ..GitCall::new(words) }
    }
}

pub(crate) struct Output {
    pub(crate) status: i32,
    pub(crate) text: String,
    pub(crate) errors: String,
    /// The length of the whole output, in bytes.
    pub(crate) bytes: u64,
}

impl Output {
    /// Returns the output. Fails unless the exit status is 0; the error names the repository.
    fn successful(self, repo: &RelPath) -> Result<Output, Error> {
        if self.status == 0 { Ok(self) } else { Err(failed(repo, self.status, &self.all())) }
    }

    pub(crate) fn all(&self) -> String {
        format!("{}{}", self.errors, self.text)
    }
}

impl<'a> Repository<'a> {
    /// Finds the repository that contains a place: the nearest one at or above it.
    pub(crate) fn open(settings: &'a Settings, place: &RelPath) -> Result<Repository<'a>, Error> {
        Repository::open_with(settings, place, Values::All)
    }

    /// Opens a repository to read its refs, objects and index.
    pub(crate) fn open_to_read(settings: &'a Settings, place: &RelPath) -> Result<Repository<'a>, Error> {
        Repository::open_with(settings, place, Values::Format)
    }

    fn open_with(settings: &'a Settings, place: &RelPath, what: Values) -> Result<Repository<'a>, Error> {
        let project = settings
            .layout
            .project(place)
            .ok_or_else(|| Error::invalid("/repo", format!("{place}: a repository is repos/NAME or projects/NAME")))?;
        let found = with_tree(settings, Access::Read, |tree| find(settings, tree, place, &project))?;
        let programs = GitPrograms::find(settings)?;
        let own = own_folder()?;
        prepare(settings, own.path(), &found).map_err(unready)?;
        let Found { work, folder, common, head, config, .. } = found;
        let is_bare = work == folder;
        // Most configurations say nothing about the format, and then git need not be asked what they hold.
        let is_plain = !config.to_ascii_lowercase().windows(10).any(|part| part == b"extensions");
        let values = match what {
            Values::Format if is_plain => Vec::new(),
            _ => values_of_text(&config_values(settings, &work, &config)?),
        };
        let repository = Repository { settings, work, folder, common, is_bare, head, values, own, programs };
        if repository.main().is_some() {
            // A further work tree has a table of its own with its `HEAD`, and git would find that of the repository.
            repository.check_refs_are_files()?;
        }
        repository.write_config("")?;
        Ok(repository)
    }

    /// Returns the values of a key of the repository's configuration, in which section and name are in lower case.
    pub(crate) fn values(&self, key: &str) -> Vec<&str> {
        self.values.iter().filter(|(name, _)| name == key).map(|(_, value)| value.as_str()).collect()
    }

    /// Fails if the repository keeps `HEAD` and its refs in a reftable. ken-coder writes `HEAD`, and reads the stashes, as files.
    pub(crate) fn check_refs_are_files(&self) -> Result<(), Error> {
        if self.values("extensions.refstorage").last() != Some(&"reftable") {
            return Ok(());
        }
        let message = format!(
            "{} keeps its refs in a reftable, which ken-coder cannot change; `git refs migrate --ref-format=files` (git 2.49) or a \
             new clone has them in files",
            self.work
        );
        Err(Error::conflict(message).at("/repo"))
    }

    /// Returns the branch that is checked out, such as `refs/heads/main`, or `None` if `HEAD` names a commit.
    pub(crate) fn branch(&self) -> Option<&str> {
        self.head.strip_prefix("ref:").map(str::trim)
    }

    /// Returns a file or folder in the temporary folder.
    pub(crate) fn own(&self, name: &str) -> PathBuf {
        self.own.path().join(name)
    }

    pub(crate) fn index(&self) -> RelPath {
        self.folder.join("index")
    }

    pub(crate) fn objects(&self) -> RelPath {
        self.common.join("objects")
    }

    /// Returns the place of the repository whose refs this work tree shares, or `None` if it has its own.
    pub(crate) fn main(&self) -> Option<RelPath> {
        let main = if self.common.name() == ".git" { self.common.around() } else { self.common.clone() };
        (self.folder != self.common).then_some(main)
    }

    /// Returns the folders in which git changes files of its own.
    pub(crate) fn git_folders(&self) -> [&RelPath; 2] {
        [&self.folder, &self.common]
    }

    /// Returns the folder with the refs if it is not in the work tree: then git changes it for other work trees too.
    pub(crate) fn elsewhere(&self) -> Option<&RelPath> {
        Some(&self.common).filter(|common| !common.is_in(&self.work))
    }

    /// Returns a place in the work tree as a person is shown it before git changes something: with [`Repository::elsewhere`].
    pub(crate) fn shown(&self, place: impl Display) -> String {
        let elsewhere = self.elsewhere().map(|common| format!(" (repository {common})"));
        format!("{place}{}", elsewhere.unwrap_or_default())
    }

    pub(crate) fn path(&self, place: &RelPath) -> String {
        self.settings.root.join(place.as_str()).display().to_string()
    }

    /// Returns a path for git, relative to the work tree. A path of a call is relative to the workspace, or else to
    /// `repo`.
    pub(crate) fn relative(&self, repo: &RelPath, place: &RelPath) -> String {
        let whole = if place.is_in(&self.work) { place.clone() } else { repo.joined(place) };
        let rest = whole.as_str().strip_prefix(self.work.as_str()).unwrap_or_default();
        format!("./{}", rest.trim_start_matches('/'))
    }

    /// Writes the configuration of ken's git, with `more` at its end.
    pub(crate) fn write_config(&self, more: &str) -> Result<(), Error> {
        let mut text =
            format!("{OWN_CONFIG}[core]\n\tbare = {0}\n\tlogAllRefUpdates = {1}\n", self.is_bare, !self.is_bare);
        for (name, value) in self.values.iter().filter(|(name, _)| PASSED_ON.contains(&name.as_str())) {
            // Each of them is a single word. Anything else is not passed on.
            if let Some((section, name)) = name.split_once('.')
                && value.bytes().all(|byte| byte.is_ascii_alphanumeric())
            {
                text.push_str(&format!("[{section}]\n\t{name} = {value}\n"));
            }
        }
        text.push_str(more);
        fs::write(self.own("config"), text).map_err(unready)
    }

    /// Runs git and returns its output. Fails unless its exit status is 0.
    pub(crate) fn read(&self, call: &GitCall<'_>) -> Result<Output, Error> {
        self.run(call)?.successful(&self.work)
    }

    /// Runs git and returns the one line that it prints.
    pub(crate) fn line(&self, call: &GitCall<'_>) -> Result<String, Error> {
        Ok(self.read(call)?.text.trim().to_owned())
    }

    /// Runs git and returns its whole output.
    pub(crate) fn list(&self, call: GitCall<'_>) -> Result<String, Error> {
        let output = self.read(&GitCall { keep: MAX_LIST_BYTES, ..call })?;
        if output.bytes <= MAX_LIST_BYTES as u64 {
            Ok(output.text)
        } else {
            Err(Error::too_large(format!("{}: git lists more than {MAX_LIST_BYTES} bytes", self.work)).at("/repo"))
        }
    }

    /// The environment in which git reads the objects of the repository, and writes new ones to `folder`.
    pub(crate) fn with_objects_in(&self, folder: &str) -> Vec<String> {
        let known = self.path(&self.objects());
        vec![format!("GIT_OBJECT_DIRECTORY={folder}"), format!("GIT_ALTERNATE_OBJECT_DIRECTORIES={known}")]
    }

    /// Moves refs, by the words or the input of `git update-ref`. Each is named with its old value.
    pub(crate) fn update_refs(&self, words: &[&str], stdin: Option<&str>) -> Result<(), Error> {
        // Git makes no folder beyond a link.
        let logs = [self.common.join("logs"), self.common.join("logs/refs"), self.folder.join("logs")];
        with_tree(self.settings, Access::Write, |tree| {
            if self.is_bare { Ok(()) } else { logs.iter().try_for_each(|folder| tree.make_folder(folder)) }
        })?;
        let write = vec![self.common.clone(), self.folder.clone()];
        let call = GitCall { write, stdin, ..GitCall::without_work_tree(&[&["update-ref"], words].concat()) };
        self.read(&call).map(drop)
    }

    /// Returns the commit that a name stands for, or `None` if there is none.
    pub(crate) fn commit(&self, name: &str) -> Result<Option<String>, Error> {
        let output = self.run(&GitCall::new(&["rev-parse", "--quiet", "--verify", &format!("{name}^{{commit}}")]))?;
        Ok((output.status == 0).then(|| output.text.trim().to_owned()))
    }

    pub(crate) fn run(&self, call: &GitCall<'_>) -> Result<Output, Error> {
        let env = self.environment(call.without_work_tree || self.is_bare);
        run_git(self.settings, &self.programs, call, &self.work, self.own.path(), env)
    }

    fn environment(&self, without_work_tree: bool) -> Vec<String> {
        let mut env = vec![
            format!("GIT_DIR={}", self.own.path().display()),
            format!("GIT_OBJECT_DIRECTORY={}", self.path(&self.objects())),
            format!("GIT_INDEX_FILE={}", self.path(&self.index())),
        ];
        match without_work_tree {
            true if self.is_bare => {}
            true => env.extend(crate::network::git_variables(&[("core.bare".to_owned(), "true".to_owned())])),
            false => env.push("GIT_WORK_TREE=.".to_owned()),
        }
        env
    }
}

/// Splits the output of `git config --null --list` into names and values.
pub(crate) fn values_of_text(text: &str) -> Vec<(String, String)> {
    let value = |entry: &str| {
        let (name, value) = entry.split_once('\n').unwrap_or((entry, "true"));
        (name.to_owned(), value.to_owned())
    };
    text.split('\0').filter(|entry| !entry.is_empty()).map(value).collect()
}

/// Runs git where there is no repository yet, such as for a clone into the folder `work`. Fails unless its exit status is 0.
pub(crate) fn read_without_repository(
    settings: &Settings,
    work: &RelPath,
    own: &Path,
    call: &GitCall<'_>,
) -> Result<Output, Error> {
    run_git(settings, &GitPrograms::find(settings)?, call, work, own, Vec::new())?.successful(work)
}

/// Lists the settings in the text of a configuration, as `git config --null --list` does. What it includes is not read.
pub(crate) fn config_values(settings: &Settings, work: &RelPath, text: &[u8]) -> Result<String, Error> {
    let own = own_folder()?;
    // Not `config`: git would read it as that of a repository before the one that it is asked for, with what it includes, which anybody
    // can have put beside the temporary folder.
    let file = own.path().join("settings");
    fs::write(&file, text).map_err(unready)?;
    let path = file.display().to_string();
    let call = GitCall {
        keep: MAX_LIST_BYTES,
        env: vec![format!("GIT_DIR={}", own.path().display())],
        ..GitCall::new(&["config", "--file", &path, "--no-includes", "--null", "--list"])
    };
    let output = run_git(settings, &GitPrograms::find(settings)?, &call, work, own.path(), Vec::new())?;
    // Not what it has printed until then: values can be secret.
    if output.status == 0 { Ok(output.text) } else { Err(failed(work, output.status, &output.errors)) }
}

fn run_git(
    settings: &Settings,
    programs: &GitPrograms,
    call: &GitCall<'_>,
    work: &RelPath,
    own: &Path,
    own_env: Vec<String>,
) -> Result<Output, Error> {
    let execute = match (call.with_filters, &call.network) {
        (true, _) => Vec::new(),
        (false, None) => programs.alone(),
        (false, Some(_)) => programs.with_helpers()?,
    };
    // The last setting of a variable counts.
    let env = [
        "GIT_CONFIG_NOSYSTEM=1",
        "GIT_CONFIG_GLOBAL=/dev/null",
        "GIT_ATTR_NOSYSTEM=1",
        "GIT_TERMINAL_PROMPT=0",
        "GIT_OPTIONAL_LOCKS=0",
        // A replaced object would be shown and committed in place of the one that the tree names.
        "GIT_NO_REPLACE_OBJECTS=1",
        "GIT_ALLOW_PROTOCOL=http:https",
        "GIT_EDITOR=false",
        // `*` and `:` in the path of a call are themselves.
        "GIT_LITERAL_PATHSPECS=1",
    ];
    let env = env.map(str::to_owned).into_iter().chain(own_env).chain(call.env.iter().cloned()).collect();
    let job = Job {
        argv: std::iter::once(programs.git.display().to_string()).chain(call.words.iter().cloned()).collect(),
        cwd: work,
        write: &call.write,
        protects_git: false,
        env,
        stdin: call.stdin,
        network: call.network.clone(),
        timeout: TIMEOUT,
        keep: if call.keep == 0 { OUTPUT } else { call.keep },
        own: Some(Own { folder: own, execute: &execute }),
    };
    let ended = sandbox::run(settings, &job)?;
    Ok(Output {
        status: ended.status,
        text: ended.stdout.text(),
        errors: ended.stderr.text(),
        bytes: ended.stdout.bytes,
    })
}

fn failed(repo: &RelPath, status: i32, output: &str) -> Error {
    let lines: Vec<&str> = output.lines().take(5).collect();
    Error::conflict(format!("git in {repo} ended with {status}: {}", lines.join("; "))).at("/repo")
}

/// Makes a temporary folder for ken's git. It is removed when the value is dropped.
pub(crate) fn own_folder() -> Result<TempDir, Error> {
    tempfile::Builder::new().prefix("ken-git-").tempdir().map_err(unready)
}

fn unready(error: std::io::Error) -> Error {
    Error::unavailable(format!("the temporary folder for git cannot be prepared: {error}"))
}

/// Finds a repository and reads what git needs of it.
fn find(settings: &Settings, tree: &Tree, place: &RelPath, project: &RelPath) -> Result<Found, Error> {
    tree.folder(place)?;
    let (work, folder) = match nearest(settings, tree, place, project)? {
        Some(found) => found,
        None if is_bare(tree, place)? => (place.clone(), place.clone()),
        None => return Err(Error::not_found(format!("{place} is not a git repository")).at("/repo")),
    };
    let read = |place: &RelPath, max: u64| {
        let node = tree.read(place, Links::Refuse, max)?;
        Ok::<_, Error>(node.filter(|node| !node.version.link).map(|node| node.bytes))
    };
    let common = match read(&folder.join("commondir"), MAX_POINTER_BYTES)? {
        None => folder.clone(),
        Some(text) => led(settings, &folder, &text).ok_or_else(|| outside(&folder.join("commondir")))?,
    };
    if !(folder.is_in(project) && common.is_in(project)) {
        // Whoever may write in this project can write such a pointer, and must not reach another repository by that.
        let of_tree = folder.around() == common.join("worktrees")
            && read(&folder.join("gitdir"), MAX_POINTER_BYTES)?.and_then(|text| led(settings, &folder, &text))
                == Some(work.join(".git"));
        // A submodule of such a work tree.
        let of_submodule = |around: &Found| folder == common && folder.is_in(&around.folder);
        if !of_tree
            && (work == *project
                || !find(settings, tree, &work.around(), project).is_ok_and(|found| of_submodule(&found)))
        {
            let message = format!("{} leads to {common}, which does not know it as its work tree", work.join(".git"));
            return Err(Error::forbidden(message)
                .at("/repo")
                .hint("`git worktree repair` in that repository mends the pointers of a work tree that was moved"));
        }
    }
    let head = read(&folder.join("HEAD"), MAX_POINTER_BYTES)?.unwrap_or_default();
    let info = common.join("info");
    let mut links = vec!["refs"];
    for name in ["packed-refs", "reftable", "shallow"] {
        if tree.stat(&common.join(name), Links::Refuse)?.is_some() {
            links.push(name);
        }
    }
    Ok(Found {
        head: String::from_utf8_lossy(&head).trim().to_owned(),
        config: read(&common.join("config"), MAX_CONFIG)?.unwrap_or_default(),
        excluded: read(&info.join("exclude"), MAX_CONFIG)?.unwrap_or_default(),
        attributes: read(&info.join("attributes"), MAX_CONFIG)?.unwrap_or_default(),
        links,
        work,
        folder,
        common,
    })
}

/// Returns the nearest folder with `.git`, and the folder of git that it leads to; or the nearest bare repository.
fn nearest(
    settings: &Settings,
    tree: &Tree,
    place: &RelPath,
    project: &RelPath,
) -> Result<Option<(RelPath, RelPath)>, Error> {
    let mut work = place.clone();
    loop {
        let git = work.join(".git");
        match tree.stat(&git, Links::Refuse)?.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Some(FileType::Directory) => return Ok(Some((work, git))),
            Some(_) => {
                let folder = pointer(settings, tree, &git)?.ok_or_else(|| outside(&git))?;
                return Ok(Some((work, folder)));
            }
            // As git finds it. A `.git` is found from its work tree.
            None if work.name() != ".git" && is_bare(tree, &work)? => return Ok(Some((work.clone(), work))),
            None => {}
        }
        match work.split().filter(|_| work != *project) {
            Some((folder, _)) => work = folder,
            None => return Ok(None),
        }
    }
}

/// Returns the folder that a file `.git` of a work tree or submodule names, or `None` if it is not in the workspace.
pub(crate) fn pointer(settings: &Settings, tree: &Tree, git: &RelPath) -> Result<Option<RelPath>, Error> {
    let node = tree.read(git, Links::Refuse, MAX_POINTER_BYTES)?.filter(|node| !node.version.link);
    let bytes = node.map(|node| node.bytes).unwrap_or_default();
    Ok(bytes.strip_prefix(b"gitdir:").and_then(|path| led(settings, &git.around(), path)))
}

fn led(settings: &Settings, from: &RelPath, path: &[u8]) -> Option<RelPath> {
    from.led_unambiguously(&settings.root, std::str::from_utf8(path.trim_ascii()).ok()?)
}

fn outside(pointer: &RelPath) -> Error {
    Error::forbidden(format!("{pointer} does not lead to a folder of the workspace")).at("/repo")
}

pub(crate) fn is_bare(tree: &Tree, place: &RelPath) -> Result<bool, Error> {
    for name in ["HEAD", "objects", "refs"] {
        if tree.stat(&place.join(name), Links::Refuse)?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Fills the temporary folder. `HEAD` is a copy, because git does not accept a link there; refs and logs are links, because
/// git changes them. A further work tree shares the logs of the refs, and has a log of its `HEAD`.
fn prepare(settings: &Settings, own: &Path, found: &Found) -> std::io::Result<()> {
    fs::create_dir(own.join("info"))?;
    fs::write(own.join("config"), OWN_CONFIG)?;
    fs::write(own.join("info/exclude"), &found.excluded)?;
    fs::write(own.join("info/attributes"), &found.attributes)?;
    fs::write(own.join("HEAD"), format!("{}\n", found.head))?;
    let common = settings.root.join(found.common.as_str());
    for name in &found.links {
        symlink(common.join(name), own.join(name))?;
    }
    if found.folder == found.common {
        symlink(common.join("logs"), own.join("logs"))?;
    } else {
        fs::create_dir(own.join("logs"))?;
        symlink(common.join("logs/refs"), own.join("logs/refs"))?;
        symlink(settings.root.join(found.folder.as_str()).join("logs/HEAD"), own.join("logs/HEAD"))?;
    }
    File::open(own)?.sync_all()
}
