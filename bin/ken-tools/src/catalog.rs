//! The catalog of all tools. They come from the files `*.json` in the user's `tools.d`, from those in the
//! installation's `tools.d`, and from MCP servers.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ken_types::ops::tools::{Problem, Tools};
use ken_types::{Error, share};
use parking_lot::Mutex;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::net::unix::pipe::Receiver;

use crate::changed::Changed;
use crate::entry::Entry;
use crate::mcp::Servers;

/// The maximum number of tools. More would not fit into a model's prompt.
const MAX_TOOLS: usize = 256;

/// The folders, the tools found in them, and whether they must be read again.
pub(crate) struct Catalog {
    folders: Vec<PathBuf>,
    pub(crate) servers: Arc<Servers>,
    listing: Mutex<Option<Arc<Listing>>>,
    /// Set when an MCP server has changed, or the file of servers.
    pub(crate) changed: Arc<Changed>,
    /// The events of the folders, by inotify(7), which is read like a pipe. `None` for the commands for a shell, which read the folders once.
    inotify: Option<Receiver>,
    /// Set if the folders cannot be watched. They are then read for every call.
    is_blind: AtomicBool,
}

/// The changes that matter. Opening a file causes no event: the agent reads files in these folders at each turn.
const CHANGES: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::ATTRIB);

/// The tools found, and the problems of those that cannot be used.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// The number of this reading of the folders.
    pub(crate) generation: u64,
    pub(crate) entries: BTreeMap<String, Entry>,
    pub(crate) problems: Vec<Problem>,
}

/// Returns the folders that contain descriptions of tools. The first is `tools.d` beside the configuration or, without one, in
/// `$KEN_HOME` or `$XDG_CONFIG_HOME/ken`. The second is that of the installation: `share/ken/tools.d` beside the folder
/// of this program, or `share/tools.d` of the source tree.
pub(crate) fn folders(config: Option<&Path>) -> Vec<PathBuf> {
    let own = match config {
        Some(config) => Some(config.with_file_name("tools.d")),
        None => share::of_user("tools.d"),
    };
    own.into_iter().chain(share::find("tools.d")).collect()
}

impl Catalog {
    /// Returns a catalog that reads the folders for every call.
    pub(crate) fn new(folders: Vec<PathBuf>) -> Catalog {
        Catalog::with_servers(folders, false)
    }

    fn with_servers(folders: Vec<PathBuf>, keeps_running: bool) -> Catalog {
        let changed: Arc<Changed> = Arc::default();
        // `mcp.json` is beside the first `tools.d`, which belongs to the configuration.
        let beside = folders.first().and_then(|folder| folder.parent()).unwrap_or(Path::new("/"));
        let servers = Arc::new(Servers::new(beside, keeps_running, changed.clone()));
        Catalog {
            folders,
            servers,
            listing: Mutex::default(),
            changed,
            inotify: None,
            is_blind: AtomicBool::new(false),
        }
    }

    /// Returns a catalog that reads the folders again only after a change, and keeps the MCP servers running.
    pub(crate) fn watched(folders: Vec<PathBuf>) -> Catalog {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(std::io::Error::from);
        let inotify = inotify.and_then(Receiver::from_owned_fd_unchecked).inspect_err(warn_of).ok();
        Catalog { inotify, ..Catalog::with_servers(folders, true) }
    }

    /// Waits until a folder or an MCP server changes.
    pub(crate) async fn wait(&self) {
        let Some(inotify) = &self.inotify else {
            return self.changed.wait().await;
        };
        tokio::select! {
            () = self.changed.wait() => {}
            // The events are left for `read`.
            _ = inotify.readable() => {}
        }
    }

    /// Reads the events. Returns whether there were any.
    fn has_changed(&self) -> bool {
        let Some(inotify) = &self.inotify else { return false };
        let mut events = [0; 4096];
        let mut has_changed = false;
        while matches!(inotify.try_read(&mut events), Ok(1..)) {
            has_changed = true;
        }
        has_changed
    }

    /// Watches the folders that exist, and the parent of each. The parent shows when a missing folder is created, and
    /// it contains the files of the MCP servers.
    fn watch(&self) {
        let Some(inotify) = &self.inotify else { return };
        let around = self.folders.iter().filter_map(|folder| folder.parent());
        let mut all = around.chain(self.folders.iter().map(PathBuf::as_path)).filter(|folder| folder.is_dir());
        let failed = all.find_map(|folder| inotify::add_watch(inotify, folder, CHANGES).err());
        if let Some(error) = failed {
            warn_of(&error.into());
            self.is_blind.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the current tools.
    pub(crate) fn read(&self) -> Arc<Listing> {
        let mut listing = self.listing.lock();
        // Before the folders are read, so that a change during the read is seen the next time.
        let has_changed = self.changed.take() | self.has_changed();
        match &*listing {
            Some(known) if self.is_watching() && !has_changed => known.clone(),
            _ => {
                // Watching starts before the folders are read, so that no change in between is missed.
                self.watch();
                let generation = listing.as_ref().map_or(0, |known| known.generation) + 1;
                let found = Arc::new(Listing { generation, ..Listing::read(&self.folders, &self.servers) });
                *listing = Some(found.clone());
                found
            }
        }
    }

    /// Whether changes of all folders are noticed: each folder or its parent exists.
    fn is_watching(&self) -> bool {
        let is_seen = |folder: &PathBuf| folder.is_dir() || folder.parent().is_some_and(Path::is_dir);
        self.inotify.is_some() && !self.is_blind.load(Ordering::Relaxed) && self.folders.iter().all(is_seen)
    }
}

fn warn_of(error: &std::io::Error) {
    tracing::warn!("tools.d cannot be watched and is read for each call: {error}");
}

impl Listing {
    /// Reads all descriptions. If two folders describe a tool with the same name, the first folder counts, so that a user's
    /// description replaces that of the installation.
    fn read(folders: &[PathBuf], servers: &Servers) -> Listing {
        let mut listing = Listing::default();
        for folder in folders {
            let files = fs::read_dir(folder).into_iter().flatten().flatten();
            let mut paths: Vec<PathBuf> = files.map(|file| file.path()).filter(|path| is_description(path)).collect();
            paths.sort();
            for path in paths {
                listing.add(&path);
            }
        }
        let problems = servers.read(&mut listing.entries, MAX_TOOLS);
        listing.problems.extend(problems);
        listing
    }

    fn add(&mut self, path: &Path) {
        let added = Entry::read(path).and_then(|entry| {
            let name = entry.tool.name.clone();
            match self.entries.get(&name) {
                Some(known) if Path::new(&known.tool.file).parent() == path.parent() => {
                    Err(Error::invalid("/name", format!("the name {name} is taken by {}", known.tool.file)))
                }
                Some(_) => Ok(()),
                None if self.entries.len() == MAX_TOOLS => {
                    Err(Error::too_large(format!("there are {MAX_TOOLS} tools already")))
                }
                None => {
                    self.entries.insert(name, entry);
                    Ok(())
                }
            }
        });
        if let Err(error) = added {
            self.problems.push(Problem { file: path.display().to_string(), error });
        }
    }

    /// Returns the tools of an agent, or all tools.
    pub(crate) fn tools_of(&self, agent: Option<&str>) -> Tools {
        let tools = self.entries.values().map(|entry| &entry.tool);
        let for_it = |agents: &[String]| agent.is_none_or(|agent| agents.iter().any(|known| known == agent));
        Tools {
            tools: tools.filter(|tool| for_it(&tool.agents)).cloned().collect(),
            problems: self.problems.clone(),
            tag: String::new(),
            process: String::new(),
        }
    }
}

/// Whether a file is a description. Editors create other files beside it.
fn is_description(path: &Path) -> bool {
    let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    !hidden && path.extension().is_some_and(|end| end == "json")
}
