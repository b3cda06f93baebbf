//! Reads the file `mcp.json`. Its object `mcpServers` has the form that other programs use. An entry can have an object
//! `ken` with settings of ken.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use ken_types::ops::tools::{Approval, Problem};
use ken_types::{Error, hex, json};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::problem;
use crate::entry::{MAX_TIMEOUT_MS, ORCHESTRATOR, Permissions, TIMEOUT_MS, WORKERS};
use crate::reach::without_secrets;

/// The maximum size of the file, in bytes.
const MAX_BYTES: u64 = 1024 * 1024;
const MAX_DEPTH: usize = 16;
const MAX_SERVERS: usize = 32;
const NAME_BYTES: usize = 32;

/// The servers of the file, and the problems of the other entries.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) servers: Vec<ServerConfig>,
    pub(crate) problems: Vec<Problem>,
}

/// One server. Servers with equal configurations run in the same way.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ServerConfig {
    pub(crate) name: String,
    pub(crate) reached: Transport,
    pub(crate) ken: KenSettings,
}

/// How a server is reached. In values, `${NAME}` stands for a secret of ken-tools or an environment variable.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Transport {
    /// A program that communicates over standard input and output.
    Stdio {
        /// The program and its arguments. They contain no placeholders, because every user of the machine can see them.
        command: Vec<String>,
        env: BTreeMap<String, String>,
        cwd: Option<String>,
    },
    /// The URL of a server that speaks streamable HTTP.
    Http { url: String, headers: BTreeMap<String, String> },
}

/// The settings of the object `ken`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct KenSettings {
    /// The agents that can call its tools.
    pub(crate) agents: Vec<String>,
    pub(crate) approval: Approval,
    /// Whether the server's hints about its tools (`readOnlyHint`, `idempotentHint`) are trusted.
    pub(crate) trust_hints: bool,
    /// The tools whose calls can be repeated, by their names on the server.
    pub(crate) idempotent: BTreeSet<String>,
    /// The tools that are offered, by their names on the server; `None` for all.
    pub(crate) tools: Option<BTreeSet<String>>,
    pub(crate) touch: Permissions,
    /// Whether the install scripts of its package are run.
    pub(crate) install_scripts: bool,
    pub(crate) timeout_ms: u64,
}

impl Default for KenSettings {
    fn default() -> KenSettings {
        KenSettings {
            agents: WORKERS.map(str::to_owned).into(),
            approval: Approval::Ask,
            trust_hints: false,
            idempotent: BTreeSet::new(),
            tools: None,
            touch: Permissions::default(),
            install_scripts: false,
            timeout_ms: TIMEOUT_MS,
        }
    }
}

/// The fields of an entry in the file. Fields of other programs are ignored.
#[derive(Deserialize)]
struct FileEntry {
    #[serde(rename = "type", alias = "transport")]
    kind: Option<String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    #[serde(alias = "serverUrl", alias = "httpUrl")]
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    disabled: bool,
    #[serde(default)]
    ken: KenSettings,
}

impl Settings {
    /// Reads the file. If it does not exist, there are no servers. An entry that cannot be used becomes a problem and
    /// does not affect the others.
    pub(crate) fn read(path: &Path) -> Settings {
        let mut settings = Settings::default();
        if std::fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return settings;
        }
        let entries = match entries(path) {
            Ok(entries) => entries,
            Err(error) => {
                settings.problems.push(problem(path, "", error));
                return settings;
            }
        };
        let folder = path.parent().unwrap_or(Path::new("/"));
        for (number, (name, value)) in entries.into_iter().enumerate() {
            let config = if number < MAX_SERVERS {
                ServerConfig::of(&name, value, folder)
            } else {
                Err(Error::too_large(format!("there are {MAX_SERVERS} servers already")))
            };
            match config {
                Ok(Some(config)) => settings.servers.push(config),
                Ok(None) => {}
                Err(error) => settings.problems.push(problem(path, &name, error)),
            }
        }
        settings
    }
}

fn entries(path: &Path) -> Result<Map<String, Value>, Error> {
    let mut file = file(path)?;
    match key_of(&file).and_then(|key| file.get_mut(key)).map(Value::take) {
        Some(Value::Object(entries)) => Ok(entries),
        _ => Err(Error::invalid("/mcpServers", "an object of servers is needed")),
    }
}

fn file(path: &Path) -> Result<Value, Error> {
    let bytes = ken_trusted::read(path, MAX_BYTES)?;
    json::parse(&bytes, MAX_DEPTH)
}

/// Returns the name of the object of servers. READMEs for VS Code call it `servers`.
fn key_of(file: &Value) -> Option<&'static str> {
    ["mcpServers", "servers"].into_iter().find(|key| file.get(key).is_some())
}

/// Returns the entries in the JSON of a README: an object of servers with or without its name, or below `mcp` as in the
/// settings of VS Code.
pub(crate) fn entries_in(text: &str) -> Result<Map<String, Value>, Error> {
    // Some READMEs show the object as a part of a larger one.
    let text = text.trim().trim_end_matches(',');
    let text = if text.starts_with('"') { format!("{{{text}}}") } else { text.to_owned() };
    let mut found = json::parse(text.as_bytes(), MAX_DEPTH)?;
    if let Some(inner) = found.get_mut("mcp").filter(|inner| key_of(inner).is_some()) {
        found = inner.take();
    }
    let nameless = "an entry has no name: {\"NAME\": {\"command\": …}}";
    let servers = match key_of(&found) {
        Some(key) => found.get_mut(key).map(Value::take).unwrap_or_default(),
        None if found.get("command").is_some() || found.get("url").is_some() => {
            return Err(Error::invalid("", nameless));
        }
        None => found,
    };
    match servers {
        Value::Object(entries) if !entries.is_empty() && entries.values().all(Value::is_object) => Ok(entries),
        _ => Err(Error::invalid("/mcpServers", "an object of servers is needed, as their READMEs print it")),
    }
}

/// Puts entries into the file, and leaves the rest of it as it is. Other users cannot read a new file, because entries often
/// contain keys; the group that may read the configuration beside it can, because a service runs as another user than root.
pub(crate) fn put(path: &Path, entries: Map<String, Value>) -> Result<(), Error> {
    ken_trusted::locked(path, || put_alone(path, entries))
}

fn put_alone(path: &Path, entries: Map<String, Value>) -> Result<(), Error> {
    let mut file = if path.exists() { file(path)? } else { serde_json::json!({"mcpServers": {}}) };
    let servers = key_of(&file).and_then(|key| file.get_mut(key)).and_then(Value::as_object_mut);
    servers.ok_or_else(|| Error::invalid("/mcpServers", "an object of servers is needed"))?.extend(entries);
    let text = serde_json::to_string_pretty(&file).map_err(|error| Error::internal(error.to_string()))?;
    let is_new = !path.exists();
    ken_trusted::rewrite(path, format!("{text}\n").as_bytes(), 0o600, None)?;
    let beside = std::fs::metadata(path.with_file_name("ken.toml")).ok().filter(|_| is_new);
    beside
        .map_or(Ok(()), |beside| share_with_group(path, &beside))
        .map_err(|error| Error::invalid("", error.to_string()))
}

fn share_with_group(path: &Path, like: &Metadata) -> std::io::Result<()> {
    std::os::unix::fs::chown(path, None, Some(like.gid()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(like.mode() & 0o640))
}

/// Returns the entry of a server in the file as it is written there.
pub(crate) fn written(path: &Path, name: &str) -> Option<Value> {
    entries(path).ok()?.remove(name)
}

impl ServerConfig {
    /// Reads an entry. Returns `None` if it is disabled.
    pub(crate) fn of(name: &str, value: Value, folder: &Path) -> Result<Option<ServerConfig>, Error> {
        if !is_name(name) {
            let wanted = format!("a name is 1 to {NAME_BYTES} letters, digits, - and single _");
            return Err(Error::invalid("", format!("{name:?}: {wanted}")));
        }
        let written: FileEntry = json::from_value(value)?;
        if written.disabled {
            return Ok(None);
        }
        let config =
            ServerConfig { name: name.to_owned(), ken: written.ken.clone(), reached: written.reached(folder)? };
        config.check()?;
        Ok(Some(config))
    }

    /// Whether it can reach the network.
    pub(crate) fn is_networked(&self) -> bool {
        self.ken.touch.is_networked() || matches!(self.reached, Transport::Http { .. })
    }

    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_millis(self.ken.timeout_ms)
    }

    /// Returns what the person who approves a call sees: the program with its arguments, or the address.
    pub(crate) fn describe(&self) -> Vec<String> {
        let what = format!("mcp:{}", self.name);
        match &self.reached {
            Transport::Stdio { command, .. } => std::iter::once(what).chain(command.iter().cloned()).collect(),
            Transport::Http { url, .. } => vec![what, without_secrets(url)],
        }
    }

    /// Returns a hash of all settings, also of those that are not shown because they can hold keys.
    pub(crate) fn digest(&self) -> String {
        hex::encode(&Sha256::digest(format!("{self:?}")))
    }

    fn check(&self) -> Result<(), Error> {
        let invalid = |at: &str, message: String| Err(Error::invalid(at, message));
        let own = &self.ken;
        if own.approval == Approval::Preview {
            let message = "a server has no preview: `ask` or `none`";
            return invalid("/ken/approval", message.to_owned());
        }
        if !(1..=MAX_TIMEOUT_MS).contains(&own.timeout_ms) {
            let message = format!("{} is not 1 to {MAX_TIMEOUT_MS} ms", own.timeout_ms);
            return invalid("/ken/timeout_ms", message);
        }
        if self.is_networked() && own.agents.iter().any(|agent| agent == ORCHESTRATOR) {
            let message = "a server with network access is not for the orchestrator";
            return invalid("/ken/agents", message.to_owned());
        }
        own.touch.check("/ken/touch")
    }
}

impl FileEntry {
    fn reached(self, folder: &Path) -> Result<Transport, Error> {
        let invalid = |at: &str, message: String| Err(Error::invalid(at, message));
        let kind = match (self.kind.as_deref(), &self.url) {
            (Some("local"), _) | (None, None) => "stdio",
            (Some("streamable-http" | "streamable_http" | "streamableHttp"), _) | (None, Some(_)) => "http",
            (Some(kind), _) => kind,
        };
        match (kind, self.command, self.url) {
            ("stdio", Some(program), _) if !program.is_empty() => {
                if let Some(word) = self.args.iter().chain([&program]).find(|word| word.contains("${")) {
                    let why = "everybody on this machine can see arguments; pass it in `env`";
                    return invalid("/args", format!("{word:?}: {why}"));
                }
                if Path::new(&program).file_name().is_some_and(|name| name == "docker" || name == "podman") {
                    let message = format!("{program} cannot start containers in the sandbox of ken");
                    let hint = "most servers can also be started with npx or uvx, or have a `url`";
                    return Err(Error::invalid("/command", message).hint(hint));
                }
                let program = if program.contains('/') { folder.join(program).display().to_string() } else { program };
                Ok(Transport::Stdio {
                    command: std::iter::once(program).chain(self.args.into_iter().map(below_home)).collect(),
                    env: self.env,
                    cwd: self.cwd,
                })
            }
            ("stdio", ..) => invalid("/command", "the program is missing".to_owned()),
            ("http", _, Some(url)) if url.starts_with("http://") || url.starts_with("https://") => {
                Ok(Transport::Http { url, headers: self.headers })
            }
            ("http", _, Some(_)) => invalid("/url", "an address begins with http:// or https://".to_owned()),
            ("http", ..) => invalid("/url", "the address is missing".to_owned()),
            ("sse", ..) => {
                let message = "`sse` is the transport of 2024, which is not supported";
                let hint = "most servers offer streamable HTTP too: \"type\": \"http\"";
                Err(Error::invalid("/type", message).hint(hint))
            }
            (other, ..) => invalid("/type", format!("{other:?} is neither `stdio` nor `http`")),
        }
    }
}

/// A shell would have replaced `~` by the home directory, but none runs here. In the sandbox, `HOME` is another folder.
fn below_home(word: String) -> String {
    let home = std::env::var("HOME").ok();
    match (word.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => format!("{home}/{rest}"),
        _ => word,
    }
}

/// Whether a text is a valid name. It has no `__`, because that separates the server's name from the tool's.
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=NAME_BYTES).contains(&name.len()) && name.bytes().all(is_plain) && !name.contains("__") && !name.ends_with('_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_is_for_the_owner_and_for_the_group_that_reads_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mcp.json");
        let mode = || std::fs::metadata(&path).unwrap().mode() & 0o777;
        put(&path, entries_in(r#"{"x": {"command": "x"}}"#).unwrap()).unwrap();
        assert_eq!(mode(), 0o600);
        std::fs::write(folder.path().join("ken.toml"), "").unwrap();
        fs::set_permissions(folder.path().join("ken.toml"), fs::Permissions::from_mode(0o644)).unwrap();
        // A file that exists keeps its mode.
        put(&path, entries_in(r#"{"y": {"command": "y"}}"#).unwrap()).unwrap();
        assert_eq!(mode(), 0o600);
        assert_eq!(entries(&path).unwrap().keys().collect::<Vec<_>>(), ["x", "y"]);
        std::fs::remove_file(&path).unwrap();
        put(&path, entries_in(r#"{"x": {"command": "x"}}"#).unwrap()).unwrap();
        assert_eq!(mode(), 0o640);
    }

    #[test]
    fn entries_that_are_put_at_once_are_all_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mcp.json");
        let one = |name: usize| entries_in(&format!(r#"{{"s{name}": {{"command": "x"}}}}"#)).unwrap();
        std::thread::scope(|scope| {
            (0..16).for_each(|name| {
                drop(scope.spawn({
                    let path = &path;
                    move || put(path, one(name)).unwrap()
                }))
            });
        });
        assert_eq!(entries(&path).unwrap().len(), 16);
    }

    fn read(text: &str) -> Settings {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mcp.json");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        Settings::read(&path)
    }

    #[test]
    fn entries_of_other_programs_are_read_as_they_are() {
        let settings = read(
            r#"{"inputs": [], "mcpServers": {
                "files": {"command": "npx", "args": ["-y", "x"], "env": {"A": "b"}, "autoApprove": ["*"], "timeout": 60},
                "off": {"command": "x", "disabled": true},
                "remote": {"type": "http", "url": "https://me:word@example.org/mcp?key=1", "headers": {"Authorization": "Bearer ${TOKEN}"}}
            }}"#,
        );
        assert!(settings.problems.is_empty(), "{:?}", settings.problems);
        let [files, remote] = &settings.servers[..] else { panic!("{:?}", settings.servers) };
        assert_eq!(files.describe(), ["mcp:files", "npx", "-y", "x"]);
        let mut other = files.clone();
        if let Transport::Stdio { env, .. } = &mut other.reached {
            env.insert("TARGET".to_owned(), "production".to_owned());
        }
        assert_eq!(other.describe(), files.describe());
        assert_ne!(other.digest(), files.digest());
        assert_eq!((files.ken.approval, files.ken.agents.len(), files.is_networked()), (Approval::Ask, 2, false));
        assert_eq!(remote.describe(), ["mcp:remote", "https://example.org/mcp"]);
        assert!(remote.is_networked());
    }

    #[test]
    fn readmes_show_entries_in_several_forms() {
        let entry = r#""x": {"command": "x"}"#;
        for text in [
            format!(r#"{{"mcpServers": {{{entry}}}}}"#),
            format!(r#"{{"servers": {{{entry}}}, "inputs": []}}"#),
            format!(r#"{{"mcp": {{"servers": {{{entry}}}}}}}"#),
            format!(r#""mcpServers": {{{entry}}},"#),
            format!("{{{entry}}}"),
            entry.to_owned(),
        ] {
            let found = entries_in(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(found.keys().collect::<Vec<_>>(), ["x"], "{text}");
        }
        for text in ["", "[]", "{}", r#"{"x": 1}"#, r#"{"command": "x"}"#, r#"{"mcpServers": []}"#] {
            assert!(entries_in(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_with_one_is_named_and_the_others_stay() {
        let settings = read(
            r#"{"mcpServers": {"good": {"command": "x"},
                "a__b": {"command": "x"}, "b": {}, "c": {"type": "sse", "url": "http://x"}, "d": {"url": "ftp://x"},
                "e": {"command": "x", "args": ["${TOKEN}"]}, "f": {"command": "x", "ken": {"agent": []}},
                "g": {"url": "http://x", "ken": {"agents": ["orchestrator"]}},
                "h": {"command": "x", "ken": {"touch": {"read": ["relative"]}}},
                "i": {"command": "x", "ken": {"approval": "preview"}}, "j": {"command": "x", "ken": {"timeout_ms": 0}}}}"#,
        );
        assert_eq!(settings.servers.len(), 1);
        let places: Vec<_> =
            settings.problems.iter().map(|problem| problem.error.at.clone().unwrap_or_default()).collect();
        let wanted = [
            "", "/command", "/type", "/url", "/args", "/ken/agent", "/ken/agents", "/ken/touch/read", "/ken/approval",
            "/ken/timeout_ms",
        ];
        assert_eq!(places, wanted);
        assert_eq!(read(r#"{"servers": {"code": {"type": "stdio", "command": "x"}}}"#).servers.len(), 1);
        assert_eq!(read("[]").problems[0].error.at.as_deref(), Some("/mcpServers"));
    }

    #[test]
    fn the_number_of_servers_is_bounded() {
        for count in [MAX_SERVERS, MAX_SERVERS + 1] {
            let servers: Vec<String> = (0..count).map(|number| format!(r#""s{number}": {{"command": "x"}}"#)).collect();
            let settings = read(&format!(r#"{{"mcpServers": {{{}}}}}"#, servers.join(",")));
            assert_eq!((settings.servers.len(), settings.problems.len()), (MAX_SERVERS, count - MAX_SERVERS));
        }
    }
}
