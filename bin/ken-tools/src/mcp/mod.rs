//! MCP servers as sources of tools (<https://modelcontextprotocol.io>). The servers in `mcp.json` are started in
//! sandboxes and kept running. Their tools can be used when a person has accepted them. See ken-mcp(5).

mod accepted;
mod config;
mod down;
mod http;
mod launch;
mod link;
mod offers;
mod package;
mod result;
mod server;
mod stderr;
mod transport;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ken_types::Error;
use ken_types::ops::tools::Problem;
use parking_lot::Mutex;

use self::accepted::Accepted;
pub(crate) use self::accepted::Pinned;
use self::config::Settings;
pub(crate) use self::config::{ServerConfig, Transport, entries_in, put, written};
pub(crate) use self::down::{Down, unreadable_arguments};
pub(crate) use self::http::bridge;
use self::launch::Secrets;
pub(crate) use self::link::Listener;
pub(crate) use self::package::Package;
use self::server::{Offer, join_first, left_out};
pub(crate) use self::server::{Offered, Server, ServerCall};
use crate::changed::Changed;
use crate::entry::Entry;

/// The configured servers, each with its process.
pub(crate) struct Servers {
    settings: PathBuf,
    accepted: PathBuf,
    known: Mutex<Known>,
    /// Set when a server has been added, removed or changed.
    changed: Arc<Changed>,
    /// Whether the servers run all the time, as in the daemon. Otherwise each is started when a call needs it.
    keeps_running: bool,
    secrets: Arc<Secrets>,
}

#[derive(Default)]
struct Known {
    servers: BTreeMap<String, Arc<Server>>,
    problems: Vec<Problem>,
}

impl Servers {
    /// Returns the servers of `mcp.json` in `folder`, the folder of the configuration.
    pub(crate) fn new(folder: &Path, keeps_running: bool, changed: Arc<Changed>) -> Servers {
        let secrets = if keeps_running { Secrets::default() } else { Secrets::of_folder(folder.to_owned()) };
        Servers {
            secrets: Arc::new(secrets),
            settings: folder.join("mcp.json"),
            accepted: folder.join("mcp.accepted.json"),
            known: Mutex::default(),
            changed,
            keeps_running,
        }
    }

    /// Returns the path of `mcp.json`.
    pub(crate) fn file(&self) -> &Path {
        &self.settings
    }

    /// Reads both files again. A server whose entry is unchanged keeps running; others are started or ended. Adds the
    /// usable tools to `entries` until it has `max`. Returns the problems.
    pub(crate) fn read(&self, entries: &mut BTreeMap<String, Entry>, max: usize) -> Vec<Problem> {
        let settings = Settings::read(&self.settings);
        let accepted = Accepted::read(&self.accepted);
        let mut known = self.known.lock();
        let mut problems = settings.problems;
        let accepted = accepted.unwrap_or_else(|error| {
            problems.push(problem(&self.accepted, "", error));
            Accepted::default()
        });
        let mut servers = BTreeMap::new();
        for config in settings.servers {
            let name = config.name.clone();
            let server = match known.servers.remove(&name) {
                Some(server) if server.config == config => server,
                _ => Server::new(config, self.keeps_running, self.secrets.clone(), self.changed.clone()),
            };
            server.pin(accepted.of(&name));
            servers.insert(name, server);
        }
        known.servers = servers;
        for (name, server) in &known.servers {
            let offer = server.offer(&self.settings.display().to_string());
            let found = add(entries, max, name, offer).into_iter();
            problems.extend(found.map(|error| problem(&self.settings, name, error)));
        }
        known.problems.clone_from(&problems);
        problems
    }

    /// Returns the problems found when the files were last read.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        self.known.lock().problems.clone()
    }

    pub(crate) fn find(&self, name: &str) -> Result<Arc<Server>, Error> {
        let missing = || Error::not_found(format!("{} names no server `{name}`", self.settings.display()));
        self.known.lock().servers.get(name).cloned().ok_or_else(missing)
    }

    /// Returns the names of the secrets and variables that are put into the values of a server, each with where it is found.
    pub(crate) fn secrets_of(&self, server: &ServerConfig) -> Result<Vec<String>, Error> {
        self.secrets.named(server).map_err(|why| Error::invalid(format!("/{}", server.name), why))
    }

    pub(crate) fn all(&self) -> Vec<Arc<Server>> {
        self.known.lock().servers.values().cloned().collect()
    }

    /// Returns the first problems on one line, or an empty text if there are none.
    pub(crate) fn status(&self) -> String {
        let known = self.known.lock();
        // A problem can quote the server. A line feed in it would begin another field of the message to kend.
        let lines = known.problems.iter().map(|problem| {
            let message = ken_text::visible_line(&problem.error.message);
            ken_text::head(&message, MAX_STATUS_BYTES).to_owned()
        });
        join_first(&lines.collect::<Vec<_>>(), "; ")
    }

    /// Accepts a list of tools of a server, and stores it.
    pub(crate) fn accept(&self, name: &str, pinned: Pinned) -> Result<(), Error> {
        ken_trusted::locked(&self.accepted, || {
            let mut accepted = Accepted::read(&self.accepted)?;
            accepted.put(name, pinned);
            accepted.write(&self.accepted)
        })?;
        self.changed.set();
        Ok(())
    }
}

/// The maximum length of the text about one problem in the status, in bytes.
const MAX_STATUS_BYTES: usize = 256;
/// Adds the tools of a server whose names are not in use, as long as there is room. Returns the problems of the others.
fn add(entries: &mut BTreeMap<String, Entry>, max: usize, server: &str, offer: Offer) -> Vec<Error> {
    let (mut taken, mut beyond) = (Vec::new(), Vec::new());
    for entry in offer.entries {
        let name = entry.tool.name.clone();
        let own_name = entry.server.as_ref().map_or(&name, |(_, tool)| tool);
        if entries.contains_key(&name) {
            taken.push(format!("{own_name} ({name})"));
        } else if entries.len() >= max {
            beyond.push(own_name.clone());
        } else {
            entries.insert(name, entry);
        }
    }
    let mut problems = offer.problems;
    problems.extend(left_out(server, &taken, "other tools have the same names"));
    problems.extend(left_out(server, &beyond, &format!("there are {max} tools already")));
    problems
}

/// Returns a problem of a server or of the whole file.
fn problem(file: &Path, server: &str, error: Error) -> Problem {
    let place = match server {
        "" => file.display().to_string(),
        name => format!("{}: {name}", file.display()),
    };
    Problem { file: place, error }
}
