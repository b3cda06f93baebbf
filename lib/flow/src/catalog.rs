//! The workflows of a system: files `NAME.json` in folders.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ken_text::nearest;
use ken_tool::unreadable;
use ken_types::{Error, share};
use parking_lot::Mutex;

use crate::definition::{Definition, MAX_FILE_BYTES, is_name};
use crate::protocol::Protocols;

/// Folders of workflow files, the user's first. Each use of a workflow checks its file and reads it again if it has changed, so nothing
/// needs to be watched and no result is older than the file. An invalid file makes only its own workflow unusable.
pub struct Catalog {
    folders: Vec<PathBuf>,
    protocols: Protocols,
    read: Mutex<HashMap<PathBuf, Kept>>,
}

/// The result of reading a file.
struct Kept {
    version: Version,
    workflow: Result<Arc<Definition>, Error>,
}

/// Metadata from which a change of the file is recognised.
#[derive(Debug, Clone, PartialEq)]
struct Version {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    /// Whether the file was more than [`TICK`] old when it was read. A younger file can change again without getting a new time stamp.
    is_settled: bool,
}

/// Upper bound for the resolution of a file system's time stamps.
const TICK: Duration = Duration::from_millis(20);

impl Catalog {
    /// A catalog of these folders, which need not exist. If several contain a workflow of the same name, the first one is used.
    pub fn new(folders: Vec<PathBuf>, protocols: Protocols) -> Catalog {
        Catalog { folders, protocols, read: Mutex::default() }
    }

    /// The catalog of the user's folder (`$KEN_HOME/workflows`, else `$XDG_CONFIG_HOME/ken/workflows`, else `~/.config/ken/workflows`),
    /// and the folder of the installation: `share/ken/workflows` beside the program's folder, or `share/workflows` of the
    /// checkout that it was built in.
    pub fn usual(protocols: Protocols) -> Catalog {
        let own = share::of_user("workflows").into_iter();
        Catalog::new(own.chain(share::find("workflows")).collect(), protocols)
    }

    /// Finds a workflow by name. Returns `not_found`, with a hint if another workflow has a similar name, or `invalid` with file and place when its file is invalid.
    pub fn find(&self, name: &str) -> Result<Arc<Definition>, Error> {
        let unknown = || Error::not_found(format!("there is no workflow `{name}`"));
        if !is_name(name) {
            return Err(unknown());
        }
        let file = format!("{name}.json");
        let found = self.folders.iter().find_map(|folder| self.read(&folder.join(&file)));
        found.unwrap_or_else(|| Err(self.with_suggestion(unknown(), name)))
    }

    /// Adds a hint that names the workflow with a similar name, if there is one.
    fn with_suggestion(&self, error: Error, name: &str) -> Error {
        let files: Vec<_> = self.folders.iter().flat_map(|folder| files(folder).unwrap_or_default()).collect();
        match nearest(name, files.iter().map(|(known, _)| known.as_str())) {
            Some(known) => error.hint(format!("did you mean `{known}`?")),
            None => error,
        }
    }

    /// Every workflow by name, or the error of its file. A folder that cannot be read is in the list as well, by its path.
    pub fn list(&self) -> BTreeMap<String, Result<Arc<Definition>, Error>> {
        let mut all = BTreeMap::new();
        for folder in &self.folders {
            let files = files(folder).unwrap_or_else(|error| {
                all.insert(folder.display().to_string(), Err(unreadable(folder, &error)));
                Vec::new()
            });
            for (name, path) in files {
                if !all.contains_key(&name)
                    && let Some(workflow) = self.read(&path)
                {
                    all.insert(name, workflow);
                }
            }
        }
        all
    }

    /// Reads a file unless it is unchanged; `None` if it does not exist.
    fn read(&self, path: &Path) -> Option<Result<Arc<Definition>, Error>> {
        let version = match metadata_of(path) {
            Ok(metadata) => Version::of(&metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => return Some(Err(unreadable(path, &error))),
        };
        if let Some(workflow) = self.kept(path, &version) {
            return Some(workflow);
        }
        let workflow = load_named(path, &self.protocols).map(Arc::new);
        let kept = Kept { version, workflow: workflow.clone() };
        self.read.lock().insert(path.to_owned(), kept);
        Some(workflow)
    }

    /// The stored result for this version of a file, if it has been read before.
    fn kept(&self, path: &Path, version: &Version) -> Option<Result<Arc<Definition>, Error>> {
        let read = self.read.lock();
        let kept = read.get(path)?;
        (kept.version.is_settled && kept.version == *version).then(|| kept.workflow.clone())
    }
}

impl Version {
    fn of(metadata: &fs::Metadata) -> Version {
        let age = metadata.modified().ok().and_then(|time| SystemTime::now().duration_since(time).ok());
        Version {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            is_settled: age.is_some_and(|age| age > TICK),
        }
    }
}

/// The files in a folder that have the name of a workflow, with these names. A folder that does not exist has none.
fn files(folder: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let named = entries.flatten().map(|entry| entry.path()).filter_map(|path| {
        let is_json = path.extension().is_some_and(|end| end == "json");
        let name = path.file_stem()?.to_str().filter(|name| is_json && is_name(name))?;
        Some((name.to_owned(), path))
    });
    Ok(named.collect())
}

/// Reads one file. Errors name the file.
pub fn load(path: &Path, protocols: &Protocols) -> Result<Definition, Error> {
    let metadata = metadata_of(path).map_err(|error| unreadable(path, &error))?;
    if metadata.len() > MAX_FILE_BYTES as u64 {
        let message = format!("{} is larger than {MAX_FILE_BYTES} bytes", path.display());
        return Err(Error::too_large(message));
    }
    let text = fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    Definition::parse(&text, path, protocols)
}

/// Reads one file of a catalog. The file must have the name of its workflow, so that a workflow can be found by its file name.
pub fn load_named(path: &Path, protocols: &Protocols) -> Result<Definition, Error> {
    let workflow = load(path, protocols)?;
    if path.file_stem().is_some_and(|stem| stem == workflow.name()) {
        return Ok(workflow);
    }
    let message = format!("{}: the workflow is named `{}`", path.display(), workflow.name());
    Err(Error::invalid("/name", message).hint("a workflow NAME is the file NAME.json"))
}

/// The metadata of a regular file. Reading a pipe or a device could block for ever or have side effects.
fn metadata_of(path: &Path) -> io::Result<fs::Metadata> {
    let metadata = fs::metadata(path)?;
    if metadata.is_file() { Ok(metadata) } else { Err(io::Error::other("it is not a regular file")) }
}
