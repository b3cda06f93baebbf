//! Where the workspace and the journal are, and what the operator decided about them.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use ken_types::Error;
use ken_types::config::Workspace;
use ken_types::id::Mint;
use ken_types::places::Places;
use serde::Deserialize;

use crate::place::FOLDERS;

/// The longest id of a run, in bytes.
const RUN_BYTES: usize = 64;

/// What every command needs to know.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The workspace, without links in its path.
    pub(crate) root: PathBuf,
    /// Where the journal is; outside of the workspace.
    pub(crate) state: PathBuf,
    pub(crate) workspace: Workspace,
    /// The keys that ken-proxy is given.
    pub(crate) secrets: PathBuf,
    /// The run that the changes of this call belong to: `KEN_RUN`, or a new id.
    pub(crate) run: String,
    /// Whether the caller has named the run.
    pub(crate) has_run: bool,
    pub(crate) session: Option<String>,
}

impl Settings {
    /// Reads `ken.toml`, and makes the folders that are missing.
    pub(crate) fn load() -> Result<Settings, Error> {
        let places = places()?;
        let workspace = read(&places.config)?;
        let root = workspace.folder(&places.state, path("KEN_WORKSPACE"));
        let state = places.state.join("coder");
        let root = made(&root, 0o755, &FOLDERS)?;
        let state = made(&state, 0o700, &["journal", "objects", "pending", "plans"])?;
        if state.starts_with(&root) {
            return Err(Error::invalid(
                "workspace.root",
                format!("the journal {} lies in the workspace {}", state.display(), root.display()),
            ));
        }
        Ok(Settings {
            root,
            state,
            workspace,
            secrets: places.config.with_file_name("secrets.env"),
            run: run()?,
            has_run: text("KEN_RUN").is_some(),
            session: text("KEN_SESSION"),
        })
    }

    /// The same settings for another folder, which is only read.
    pub(crate) fn at(&self, root: PathBuf) -> Settings {
        Settings { root, ..self.clone() }
    }
}

/// The paths of this system. Those that kend passes have precedence over those below `KEN_HOME`. The run directory is not used, so
/// it need not exist.
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

fn path(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Reads the section `[workspace]`. Errors in other sections are left to kend.
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

fn made(folder: &Path, mode: u32, below: &[&str]) -> Result<PathBuf, Error> {
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

/// Checks the id of a run, which is the name of a folder of the journal.
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
