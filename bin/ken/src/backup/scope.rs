//! What makes a system, and where it is: entries of the folder of the configuration, and entries of the state directory.

use std::fs::DirEntry;
use std::io;
use std::path::{Path, PathBuf};

use ken_types::places::{CLIENT_SECRET, LOCKS, Places, RUN};
use serde::{Deserialize, Serialize};

/// What belongs to ken beside ken.toml. With `--home`, people keep other files there too.
const CONFIG: [&str; 12] = [
    "ken.toml", "secrets.env", CLIENT_SECRET, "accepted.json", "mcp.json", "mcp.accepted.json", "models.toml", "evals",
    "skills", "templates", "tools.d", "workflows",
];
/// What a system makes again (logs, fetched packages and pages, sockets), and the workspace, which holds the person's own files.
const NOT_STATE: [&str; 6] = ["log", "mcp", "web", "workspace", GATEWAY, RUN];
/// The folder of the key that signs the tokens of the console. A gateway without one makes it. It never leaves the machine, because a copy
/// lets everybody in who reads it; and a restore does not touch it, because it would bring back a key that was removed to end all tokens.
const GATEWAY: &str = "gateway";
/// The name of the database in a backup.
pub(super) const DATABASE: &str = "state/store/ken.db";
/// The folder of the database. Of its files only the database is part of a backup, as a copy that SQLite makes.
pub(super) const STORE: &str = "store";
/// The files that hold secrets and nothing else.
const SECRETS: [&str; 3] = ["config/secrets.env", "config/client.secret", "state/cognitive/admin.key"];
/// The secret that is in a folder with other files.
pub(super) const INNER_SECRET: &str = "cognitive/admin.key";
/// What tells this host from others that share a database server, and the newest timeline of that server. They belong to this machine: a backup
/// has none of them, because a copy would take the place of the original, and a restore leaves them as they are.
pub(super) const OF_HOST: [&str; 3] = ["store/host", "store/host.inode", "store/timeline"];
/// The beginning of the names of folders that hold what was there before a restore.
pub(super) const BEFORE: &str = "before-restore-";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Root {
    Config,
    State,
}

impl Root {
    pub(super) const ALL: [Root; 2] = [Root::Config, Root::State];

    pub(super) fn name(self) -> &'static str {
        match self {
            Root::Config => "config",
            Root::State => "state",
        }
    }

    pub(super) fn folder(self, places: &Places) -> PathBuf {
        match self {
            Root::Config => places.config.parent().unwrap_or(Path::new("/")).to_owned(),
            Root::State => places.state.clone(),
        }
    }

    /// Whether earlier versions have put an entry of this folder, which is not restored, into a backup.
    pub(super) fn had(self, name: &str) -> bool {
        self == Root::State && name == GATEWAY
    }

    /// Whether an entry of this folder belongs to a backup.
    pub(super) fn has(self, name: &str) -> bool {
        match self {
            Root::Config => CONFIG.contains(&name),
            Root::State => {
                !NOT_STATE.contains(&name) && !LOCKS.contains(&name) && !name.starts_with('.') && !name.contains(BEFORE)
            }
        }
    }
}

/// An entry of one of the two folders, by its name in a backup.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Unit {
    pub(super) root: Root,
    pub(super) name: String,
}

impl Unit {
    /// Its path in a system. Only ken.toml can have another name there.
    pub(super) fn path(&self, places: &Places) -> PathBuf {
        if self.root == Root::Config && self.name == "ken.toml" {
            return places.config.clone();
        }
        self.root.folder(places).join(&self.name)
    }
}

/// Whether a file of a backup, such as `config/secrets.env`, is left out without `--secrets`.
pub(super) fn is_secret(name: &str) -> bool {
    SECRETS.contains(&name)
}

/// Returns the folders that hold what restores have replaced.
pub(crate) fn replaced(places: &Places) -> Vec<PathBuf> {
    let folders = Root::ALL.map(|root| std::fs::read_dir(root.folder(places)).into_iter().flatten().flatten());
    let is_one = |entry: &DirEntry| entry.file_name().to_str().is_some_and(|name| name.starts_with(BEFORE));
    folders.into_iter().flatten().filter(is_one).map(|entry| entry.path()).collect()
}

/// Returns the entries that a system has.
pub(super) fn present(places: &Places) -> io::Result<Vec<Unit>> {
    let named = |name: &&str| Unit { root: Root::Config, name: (**name).to_owned() };
    let mut units: Vec<Unit> = CONFIG.iter().map(named).collect();
    match std::fs::read_dir(&places.state) {
        Ok(entries) => {
            for entry in entries {
                let name = entry?.file_name();
                let name = name.to_str().filter(|name| Root::State.has(name));
                units.extend(name.map(|name| Unit { root: Root::State, name: name.to_owned() }));
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    units.retain(|unit| unit.path(places).symlink_metadata().is_ok());
    units.sort();
    Ok(units)
}
