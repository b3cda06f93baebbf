//! MCP servers as sources of tools (<https://modelcontextprotocol.io>): what `mcp.json` names is started in a sandbox and kept
//! running, and its tools are offered once a person has accepted them. ken-mcp(5).

mod accepted;
mod config;
mod http;
mod launch;
mod result;
mod server;
mod transport;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ken_trusted::Others;
use ken_types::Error;
use ken_types::ops::tools::Problem;

use self::accepted::Accepted;
pub(crate) use self::accepted::Pinned;
use self::config::Settings;
pub(crate) use self::http::bridge;
use self::launch::Secrets;
pub(crate) use self::server::Server;
use crate::changed::Changed;
use crate::entry::Entry;

/// The servers that are configured, each with what runs for it.
pub(crate) struct Servers {
    settings: PathBuf,
    accepted: PathBuf,
    known: Mutex<Known>,
    /// Set when a server has come, gone or changed.
    changed: Arc<Changed>,
    /// Whether the servers run all the time, as in the daemon; else each is started for the call that needs it.
    keeps_running: bool,
    /// Those of `secrets.env`, for a command that a person runs.
    secrets: Result<Arc<Secrets>, Error>,
}

#[derive(Default)]
struct Known {
    servers: BTreeMap<String, Arc<Server>>,
    problems: Vec<Problem>,
}

impl Servers {
    /// Those of `mcp.json` in this folder, which is that of the configuration.
    pub(crate) fn new(folder: &Path, keeps_running: bool, changed: Arc<Changed>) -> Servers {
        let secrets = match keeps_running {
            true => Ok(Secrets::new()),
            false => secrets(&folder.join("secrets.env")),
        };
        Servers {
            secrets: secrets.map(Arc::new),
            settings: folder.join("mcp.json"),
            accepted: folder.join("mcp.accepted.json"),
            known: Mutex::default(),
            changed,
            keeps_running,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads both files again. A server whose entry is unchanged goes on running; the others are started and ended. Returns
    /// the tools that are offered, and what is wrong.
    pub(crate) fn read(&self) -> (Vec<Entry>, Vec<Problem>) {
        let settings = Settings::read(&self.settings);
        let accepted = Accepted::read(&self.accepted);
        let mut known = self.lock();
        let mut problems = settings.problems;
        let secrets = self.secrets.clone().unwrap_or_else(|error| {
            problems.push(problem(&self.settings, "", error));
            Arc::default()
        });
        let accepted = accepted.unwrap_or_else(|error| {
            problems.push(problem(&self.accepted, "", error));
            Accepted::default()
        });
        let mut servers = BTreeMap::new();
        for config in settings.servers {
            let name = config.name.clone();
            let server = match known.servers.remove(&name) {
                Some(server) if server.config == config => server,
                _ => Server::new(config, self.keeps_running, secrets.clone(), self.changed.clone()),
            };
            server.pin(accepted.of(&name));
            servers.insert(name, server);
        }
        known.servers = servers;
        let mut entries = Vec::new();
        for (name, server) in &known.servers {
            let offer = server.offer(&self.settings.display().to_string());
            entries.extend(offer.entries);
            problems.extend(
                offer
                    .problems
                    .into_iter()
                    .map(|error| problem(&self.settings, name, error)),
            );
        }
        known.problems.clone_from(&problems);
        (entries, problems)
    }

    /// A server by its name.
    pub(crate) fn find(&self, name: &str) -> Result<Arc<Server>, Error> {
        let missing = || Error::not_found(format!("{} names no server `{name}`", self.settings.display()));
        self.lock().servers.get(name).cloned().ok_or_else(missing)
    }

    pub(crate) fn all(&self) -> Vec<Arc<Server>> {
        self.lock().servers.values().cloned().collect()
    }

    /// What is wrong now, in a line; empty when nothing is.
    pub(crate) fn status(&self) -> String {
        let known = self.lock();
        // A server's own words: a line feed would begin another line of the message to kend.
        let lines = known.problems.iter().map(|problem| {
            let message = problem.error.message.replace(char::is_control, " ");
            ken_text::head(&message, STATUS_BYTES).to_owned()
        });
        lines.collect::<Vec<_>>().join("; ")
    }

    /// Puts a list of tools in force.
    pub(crate) fn accept(&self, name: &str, pinned: Pinned) -> Result<(), Error> {
        let mut accepted = Accepted::read(&self.accepted)?;
        accepted.put(name, pinned);
        accepted.write(&self.accepted)?;
        self.changed.set();
        Ok(())
    }
}

/// The longest message about one server in the status, in bytes.
const STATUS_BYTES: usize = 256;
/// The longest `secrets.env`, in bytes.
const SECRETS_BYTES: u64 = 1024 * 1024;

/// What the file says; nothing without one.
fn secrets(file: &Path) -> Result<Secrets, Error> {
    let bytes = ken_trusted::find(file, Others::Nothing, SECRETS_BYTES)?;
    let text = String::from_utf8(bytes.unwrap_or_default()).map_err(|_| Error::invalid("", "not UTF-8"))?;
    let settings = ken_types::secrets::parse(&text).flatten();
    Ok(settings
        .map(|setting| (setting.name.to_owned(), setting.value.to_owned()))
        .collect())
}

/// What is wrong with a server, or with the whole file.
fn problem(file: &Path, server: &str, error: Error) -> Problem {
    let place = match server {
        "" => file.display().to_string(),
        name => format!("{}: {name}", file.display()),
    };
    Problem { file: place, error }
}
