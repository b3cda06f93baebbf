//! The folders of the workspace and the journal, and the operator's settings for them.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use ken_types::Error;
use ken_types::config::Workspace;
use ken_types::id::Mint;
use ken_types::places::Places;
use serde::Deserialize;

use crate::place::{FOLDERS, Place};

/// The maximum length of a run's id, in bytes.
const RUN_BYTES: usize = 64;

/// The settings that every command uses.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The path of the workspace, without symbolic links.
    pub(crate) root: PathBuf,
    /// The folder of the journal, outside the workspace.
    pub(crate) state: PathBuf,
    pub(crate) workspace: Workspace,
    /// ken's own files and folders. Nothing that contains one of them, or lies in one, is granted to a command, but for the
    /// workspace.
    pub(crate) own: Vec<PathBuf>,
    /// The file with the keys for ken-proxy.
    pub(crate) secrets: PathBuf,
    /// The run to which the changes of this call belong: `KEN_RUN`, or a new id.
    pub(crate) run: String,
    /// Whether the caller has set the id of the run.
    pub(crate) has_run: bool,
    pub(crate) session: Option<String>,
    /// Whether ken-tools waits to be asked whether the call may go on.
    pub(crate) has_gate: bool,
}

impl Settings {
    /// Reads `ken.toml`, and creates missing folders.
    pub(crate) fn load() -> Result<Settings, Error> {
        let places = places()?;
        let mut workspace = read(&places.config)?;
        if text("KEN_OUTSIDE").is_some() {
            workspace.distrust();
        }
        let root = workspace.folder(&places.state, path("KEN_WORKSPACE"));
        let state = places.state.join("coder");
        let root = create_folder(&root, 0o755, &FOLDERS)?;
        let state = create_folder(&state, 0o700, &["journal", "objects", "pending", "plans"])?;
        if state.starts_with(&root) {
            return Err(Error::invalid(
                "workspace.root",
                format!("the journal {} lies in the workspace {}", state.display(), root.display()),
            ));
        }
        Ok(Settings {
            own: own(&places),
            root,
            state,
            workspace,
            secrets: places.config.with_file_name("secrets.env"),
            run: run()?,
            has_run: text("KEN_RUN").is_some(),
            session: text("KEN_SESSION"),
            has_gate: text("KEN_GATE").is_some(),
        })
    }

    /// Whether the rule for a target, and every rule for a part of it, also counts in turns that have read outside text.
    pub(crate) fn trusts(&self, target: &Place) -> bool {
        let folders =
            self.workspace.rules.iter().filter_map(|rule| Some((Place::parse(&rule.path).ok()?, rule.trusted)));
        let (above, below): (Vec<_>, Vec<_>) = folders.partition(|(folder, _)| target.is_in(folder));
        let is_trusted_below = below.iter().all(|(folder, trusted)| *trusted || !folder.is_in(target));
        above.first().is_some_and(|(_, trusted)| *trusted) && is_trusted_below
    }

    /// Returns the same settings for another folder that is only read.
    pub(crate) fn at(&self, root: PathBuf) -> Settings {
        Settings { root, ..self.clone() }
    }
}

/// Returns the paths of this system. Variables that kend sets take precedence over paths below `KEN_HOME`. The run
/// directory is not used, so it need not exist.
fn places() -> Result<Places, Error> {
    let uid = rustix::process::geteuid().as_raw();
    let mut places = Places::resolve(None, uid, |name| match name {
        "KEN_RUN_DIR" => Some(PathBuf::from("/")),
        name => path(name),
    })?;
    for (place, name) in [(&mut places.state, "KEN_STATE_DIR"), (&mut places.config, "KEN_CONFIG")] {
        if let Some(path) = path(name) {
            *place = path;
        }
    }
    Ok(places)
}

/// Returns the files and folders of ken itself. The folder of the configuration is one of them if it has nothing else in it.
fn own(places: &Places) -> Vec<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let run = Places::resolve(None, uid, path).ok().map(|places| places.run);
    let folder = places.config.parent().filter(|folder| folder.ends_with("ken"));
    let tools = places.config.with_file_name("tools.d");
    let mut own = vec![places.state.clone(), places.config.clone(), places.secrets(), tools];
    own.extend(places.home.clone());
    own.extend(run);
    own.extend(folder.map(Path::to_owned));
    own
}

fn path(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Reads the section `[workspace]`. Errors in other sections are reported by kend.
fn read(config: &Path) -> Result<Workspace, Error> {
    #[derive(Default, Deserialize)]
    struct File {
        #[serde(default)]
        workspace: Workspace,
    }
    let wrong = |why: String| {
        Error::invalid("workspace", format!("{}: {why}", config.display())).hint("`kend --check` names every error")
    };
    let file: File = match fs::read_to_string(config) {
        Ok(text) => toml::from_str(&text).map_err(|error| wrong(error.message().to_owned()))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => File::default(),
        Err(error) => return Err(wrong(error.to_string())),
    };
    match file.workspace.problems().into_iter().next() {
        Some((key, message)) => Err(wrong(format!("workspace.{key}: {message}"))),
        None => Ok(file.workspace),
    }
}

fn create_folder(folder: &Path, mode: u32, below: &[&str]) -> Result<PathBuf, Error> {
    let failed = |path: &Path, error: std::io::Error| {
        Error::unavailable(format!("the folder {} cannot be made: {error}", path.display()))
    };
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(mode);
    builder.create(folder).map_err(|error| failed(folder, error))?;
    let folder = folder.canonicalize().map_err(|error| failed(folder, error))?;
    for name in below {
        let path = folder.join(name);
        builder.create(&path).map_err(|error| failed(&path, error))?;
    }
    Ok(folder)
}

fn run() -> Result<String, Error> {
    let Some(run) = text("KEN_RUN") else {
        return Ok(Mint::fresh()?.ulid());
    };
    check_run(&run).map(|()| run)
}

/// Checks the id of a run, because a folder of the journal is named after it.
pub(crate) fn check_run(run: &str) -> Result<(), Error> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    match (1..=RUN_BYTES).contains(&run.len()) && run.bytes().all(plain) {
        true => Ok(()),
        false => Err(Error::invalid(
            "RUN",
            format!("{run:?} is not the id of a run: 1 to {RUN_BYTES} letters, digits, - and _"),
        )),
    }
}
