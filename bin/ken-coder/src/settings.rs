//! The folders of the workspace and the journal, and the operator's settings for them.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ken_trusted::{Folders, check_apart};
use ken_types::Error;
use ken_types::config::Workspace;
use ken_types::hex;
use ken_types::id::Mint;
use ken_types::limits::FILES_RUN_BYTES;
use ken_types::places::Places;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::rel_path::{FOLDERS, Layout, RelPath};
use crate::rules::Rules;

/// The settings that every command uses.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The path of the workspace, or of the trusted folder to which the call is bound, without symbolic links.
    pub(crate) root: PathBuf,
    /// The folder at this path, opened when it was checked.
    pub(crate) folder: Arc<OwnedFd>,
    pub(crate) layout: Layout,
    /// The folder of the journal, outside the workspace.
    pub(crate) state: PathBuf,
    pub(crate) workspace: Workspace,
    /// The rules of the workspace that apply below the root.
    pub(crate) rules: Rules,
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
        let places = Places::of_part(None)?;
        let mut workspace = read(&places.config)?;
        if text("KEN_OUTSIDE").is_some() {
            workspace.distrust();
        }
        let configured = workspace.folder(&places.state, path("KEN_WORKSPACE"));
        let state = places.state.join("coder");
        let root = create_folder(&configured, &FOLDERS)?;
        let folder = open(&root)?;
        let state = create_folder(&state, &["journal", "objects", "pending", "plans"])?;
        if state.starts_with(&root) {
            return Err(Error::invalid(
                "workspace.root",
                format!("the journal {} lies in the workspace {}", state.display(), root.display()),
            ));
        }
        let settings = Settings {
            own: places.own(),
            rules: Rules::of(&workspace.rules, &root, &configured, Layout::Workspace)?,
            root,
            folder,
            layout: Layout::Workspace,
            state,
            workspace,
            secrets: places.config.with_file_name("secrets.env"),
            run: run()?,
            has_run: text("KEN_RUN").is_some(),
            session: text("KEN_SESSION"),
            has_gate: text("KEN_GATE").is_some(),
        };
        match path("KEN_FOLDER") {
            Some(folder) => settings.bound(&folder),
            None => Ok(settings),
        }
    }

    /// Returns the settings for a person who looks at what was changed, or undoes it; `None` if nothing was changed yet, because who only
    /// looks makes no folders. Root does it as the user to whom the system belongs.
    pub(crate) fn of_changes() -> Result<Option<Settings>, Error> {
        let places = Places::of_part(None)?;
        ken_trusted::work_as_owner(&places, std::env::args_os().skip(1))?;
        let journal = places.state.join("coder/journal");
        match journal.try_exists() {
            Ok(true) => Settings::load().map(Some),
            Ok(false) => Ok(None),
            Err(error) => Err(Error::unavailable(format!("the journal {}: {error}", journal.display()))),
        }
    }

    #[cfg(test)]
    pub(crate) fn of_folders(root: &Path, state: &Path) -> Result<Settings, Error> {
        Ok(Settings {
            root: root.to_owned(),
            folder: open(root)?,
            layout: Layout::Workspace,
            state: state.to_owned(),
            workspace: Workspace::default(),
            rules: Rules::default(),
            own: Vec::new(),
            secrets: PathBuf::new(),
            run: String::new(),
            has_run: false,
            session: None,
            has_gate: false,
        })
    }

    /// Returns the settings for a trusted folder in place of the workspace. Fails if it is not trusted (any more).
    pub(crate) fn bound(self, folder: &Path) -> Result<Settings, Error> {
        let state = self.state.parent().unwrap_or(&self.state);
        let opened = Folders::read(state)?.open(folder)?;
        // It may have been trusted before ken's own files came to be there.
        check_apart(folder, &self.own)?;
        let rules = Rules::of(&self.workspace.rules, folder, folder, Layout::Folder)?;
        Ok(Settings { rules, root: folder.to_owned(), folder: Arc::new(opened), layout: Layout::Folder, ..self })
    }

    /// Returns a place as a person is shown it: by its path in the workspace, or by its whole path in a folder of the person's
    /// own.
    pub(crate) fn shown(&self, place: &RelPath) -> String {
        match self.layout {
            Layout::Workspace => place.or_dot().to_owned(),
            Layout::Folder => place.names().fold(self.root.clone(), |path, name| path.join(name)).display().to_string(),
        }
    }

    /// Returns a file in the folder of the journal for what is known of this workspace or trusted folder alone. With one file
    /// for all, a session in another folder would replace it; and a file that was changed without anybody seeing it would
    /// count as seen.
    pub(crate) fn file_of_root(&self, name: &str) -> PathBuf {
        let root = hex::encode(&Sha256::digest(self.root.as_os_str().as_encoded_bytes()));
        self.state.join(match self.layout {
            Layout::Workspace => format!("{name}.json"),
            Layout::Folder => format!("{name}-{}.json", root.get(..16).unwrap_or_default()),
        })
    }

    /// Returns the same settings for another folder that is only read.
    pub(crate) fn at(&self, root: PathBuf) -> Result<Settings, Error> {
        Ok(Settings { folder: open(&root)?, root, ..self.clone() })
    }
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

fn open(folder: &Path) -> Result<Arc<OwnedFd>, Error> {
    use rustix::fs::{Mode, OFlags, open};
    open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map(Arc::new)
        .map_err(|errno| Error::unavailable(format!("the folder {}: {errno}", folder.display())))
}

/// Creates a folder with folders in it. They and the folders around it are for their owner alone, as kend makes them.
fn create_folder(folder: &Path, below: &[&str]) -> Result<PathBuf, Error> {
    let failed = |path: &Path, error: std::io::Error| {
        Error::unavailable(format!("the folder {} cannot be made: {error}", path.display()))
    };
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
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
    if (1..=FILES_RUN_BYTES).contains(&run.len()) && run.bytes().all(plain) {
        Ok(())
    } else {
        Err(Error::invalid(
            "RUN",
            format!("{run:?} is not the id of a run: 1 to {FILES_RUN_BYTES} letters, digits, - and _"),
        ))
    }
}
