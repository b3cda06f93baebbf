//! `ken.toml` as types. Every section and key has a default, so an empty file is a valid one; unknown keys are refused.
//! The parts read the sections that concern them, `kend` alone reads `[part.*]`. Documented in ken.toml(5).

use crate::address::Allowed;
use crate::proxy::Host;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The contents of `ken.toml`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub kend: Kend,
    pub gateway: Gateway,
    pub cognitive: Cognitive,
    pub chat: Chat,
    pub model: Model,
    pub telemetry: Telemetry,
    pub approvals: Approvals,
    pub limits: Limits,
    pub workspace: Workspace,
    /// The parts that kend starts, by name. Merged into the built-in parts key by key.
    pub part: BTreeMap<String, Part>,
}

impl Config {
    /// The listening address of a section, or `None` if the section has none.
    pub fn listener(&self, section: &str) -> Option<(IpAddr, u16)> {
        match section {
            "gateway" => Some((self.gateway.listen, self.gateway.port)),
            "cognitive" => Some((self.cognitive.listen, self.cognitive.port)),
            _ => None,
        }
    }
}

/// The supervisor itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Kend {
    /// Whether kend starts the parts that come with ken, which `[part.*]` can change. If not, it starts only what the file
    /// names.
    pub builtin_parts: bool,
    /// Whether kend applies a change of the configuration files at once. Read when kend starts.
    pub watch: bool,
    /// The size at which a part's log file is rotated, in bytes.
    pub log_max_bytes: u64,
    /// The number of rotated log files to keep for each part, besides the current one.
    pub log_keep: u32,
}

impl Default for Kend {
    fn default() -> Kend {
        Kend { builtin_parts: true, watch: true, log_max_bytes: 10 * 1024 * 1024, log_keep: 5 }
    }
}

/// The HTTP gateway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gateway {
    /// The address to listen on.
    pub listen: IpAddr,
    /// The TCP port; 0 takes a free one.
    pub port: u16,
    /// The URL that clients use if a proxy stands in front; if empty, the listening address.
    pub public_url: String,
    /// Whether requests from this machine need no secret.
    pub trust_loopback: TrustLoopback,
}

/// Whether requests that come from a loopback address, and not by a proxy that says so, need no secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrustLoopback {
    /// Yes, unless `public_url` is set or the gateway listens on another address than loopback.
    Auto,
    Yes,
    No,
}

impl Gateway {
    /// Whether requests of this machine need no secret, with `auto` decided.
    pub fn trusts_loopback(&self) -> bool {
        match self.trust_loopback {
            TrustLoopback::Auto => self.public_url.is_empty() && self.listen.is_loopback(),
            TrustLoopback::Yes => true,
            TrustLoopback::No => false,
        }
    }
}

impl Default for Gateway {
    fn default() -> Gateway {
        Gateway {
            listen: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 3940,
            public_url: String::new(),
            trust_loopback: TrustLoopback::Auto,
        }
    }
}

/// The cognitive server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cognitive {
    /// The address to listen on.
    pub listen: IpAddr,
    /// The TCP port; 0 takes a free one.
    pub port: u16,
}

impl Default for Cognitive {
    fn default() -> Cognitive {
        Cognitive { listen: IpAddr::V4(Ipv4Addr::LOCALHOST), port: 8000 }
    }
}

/// Chat events and prompts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Chat {
    /// How long the gateway waits for an answer before it replies 202, in milliseconds, at most 600,000.
    pub wait_ms: u32,
}

impl Default for Chat {
    fn default() -> Chat {
        Chat { wait_ms: 200_000 }
    }
}

/// The models that answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Model {
    /// A fail-over list of `provider/model`, first choice first. The variable `KEN_MODEL` takes precedence.
    #[serde(rename = "use")]
    pub choice: String,
    /// The model that makes vectors for search by meaning: `openai/MODEL` or `local/ALIAS`; if empty, there is no such search.
    /// The variable `KEN_EMBED` takes precedence.
    pub embed: String,
    pub budget: Budget,
}

/// Caps on what models may use; 0 means no cap. Days are in UTC and costs in US dollars.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    pub tokens_per_day: u64,
    pub cost_per_day: f64,
    pub tokens_per_session: u64,
    pub cost_per_session: f64,
}

impl Budget {
    /// Whether there is no cap at all.
    pub fn is_unlimited(&self) -> bool {
        *self == Budget::default()
    }

    /// Every cap whose value is not allowed: its key and the reason.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let costs = [("cost_per_day", self.cost_per_day), ("cost_per_session", self.cost_per_session)];
        let wrong = costs.into_iter().filter_map(|(key, cost)| Some((key, dollars_problem(cost)?)));
        wrong.collect()
    }
}

/// Why an amount of US dollars is not allowed; `None` for 0 to 1,000,000,000.
pub fn dollars_problem(dollars: f64) -> Option<String> {
    let is_sound = (0.0..=1e9).contains(&dollars);
    (!is_sound).then(|| format!("{dollars} is not from 0 to 1000000000"))
}

impl Default for Model {
    fn default() -> Model {
        Model { choice: String::from("rules"), embed: String::new(), budget: Budget::default() }
    }
}

/// Where summaries of the work are sent, as OpenTelemetry traces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Telemetry {
    /// The collector's address for OTLP over HTTP, such as `http://127.0.0.1:4318`; if empty, nothing is sent. The variable
    /// `OTEL_EXPORTER_OTLP_ENDPOINT` takes precedence.
    pub otlp: String,
    /// Whether answers and results of tools are sent, too.
    pub content: bool,
}

/// Requests for approvals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Approvals {
    /// How long a request waits for its decision, in milliseconds, 1,000 to 604,800,000.
    pub expiry_ms: u32,
    /// What happens to requests of turns that a schedule has started.
    pub unattended: Unattended,
}

/// What happens to a request if nobody waits for the answer of its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unattended {
    /// They are denied at once.
    Deny,
    /// They wait for a decision, like any other request.
    Ask,
}

impl Default for Approvals {
    fn default() -> Approvals {
        Approvals { expiry_ms: 900_000, unattended: Unattended::Deny }
    }
}

/// The limits of the gateway, above which it answers `busy`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The maximum number of connections. Above that, the connection that has been idle longest is closed for a new one.
    pub connections: u32,
    /// How many of them may be held by streams, long polls and waiting prompts.
    pub held_connections: u32,
    /// The maximum size of all request bodies of more than 16 KiB together, in bytes. One caller may use a quarter of it.
    pub body_memory: u64,
    /// The rate of chat events, prompts and workflow starts per caller: `N/second|minute|hour|day`. The variable
    /// `RATE_LIMIT_CHAT` takes precedence.
    pub rate_chat: String,
    /// The rate of all other requests per caller. The variable `RATE_LIMIT_API` takes precedence.
    pub rate_api: String,
    /// Whether requests from this machine are limited too. The variable `RATE_LIMIT_LOOPBACK` takes precedence.
    pub rate_loopback: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 1024,
            held_connections: 512,
            body_memory: 64 * 1024 * 1024,
            rate_chat: String::from("120/minute"),
            rate_api: String::from("600/minute"),
            rate_loopback: false,
        }
    }
}

/// The folder in which the coding worker works, and what needs no approval there. ken-coder reads it for each call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Workspace {
    /// The folder; if empty, `workspace` in the state directory. The variable `KEN_WORKSPACE` takes precedence.
    pub root: String,
    /// Absolute paths outside of it that commands may read and execute, such as those of a toolchain.
    pub read: Vec<PathBuf>,
    /// Environment of commands: `NAME` is passed through, `NAME=value` is set.
    pub env: Vec<String>,
    /// The first rule for a path applies; without one, every change needs approval.
    pub rules: Vec<WorkspaceRule>,
}

/// What the coding worker may do below a path without approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceRule {
    /// A folder or file, relative to the workspace; if empty, all of it.
    #[serde(default)]
    pub path: String,
    pub policy: WorkspacePolicy,
    /// Commands that run without approval in the folders of this rule: each a whole command line, word by word.
    #[serde(default)]
    pub commands: Vec<Vec<String>>,
    /// Hosts that commands and git in these folders may reach if a call asks for the network: `HOST` (port 443) or `HOST:PORT`.
    #[serde(default)]
    pub hosts: Vec<Host>,
    /// Networks that the names of `hosts` may resolve to although they are not public.
    #[serde(default)]
    pub private: Vec<String>,
    /// Keys that ken-proxy adds to requests: for a host of `hosts`, the name of its key in `secrets.env`.
    #[serde(default)]
    pub keys: BTreeMap<Host, String>,
}

/// Whether changes of files need approval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkspacePolicy {
    /// Changes of files need no approval. Commands and git do.
    AutoEdit,
    /// A person has to approve each change.
    #[default]
    Ask,
    /// Nothing may be changed here, even with approval.
    Deny,
}

impl Workspace {
    /// The folder of the workspace; `variable` is the value of `KEN_WORKSPACE`.
    pub fn folder(&self, state: &Path, variable: Option<PathBuf>) -> PathBuf {
        match variable.filter(|folder| !folder.as_os_str().is_empty()) {
            Some(folder) => folder,
            None if self.root.is_empty() => state.join("workspace"),
            None => PathBuf::from(&self.root),
        }
    }

    /// Every value that is not allowed: its key and the reason.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        if !self.root.is_empty() && !Path::new(&self.root).is_absolute() {
            found.push(("root", format!("{} is not an absolute path", self.root)));
        }
        for path in self.read.iter().filter(|path| !path.is_absolute()) {
            found.push(("read", format!("{} is not an absolute path", path.display())));
        }
        for rule in &self.rules {
            let relative = |part: Component<'_>| matches!(part, Component::Normal(_));
            if !Path::new(&rule.path).components().all(relative) {
                let message = format!("{:?} is not a path below the workspace", rule.path);
                found.push(("rules", message));
            }
            if let Some(host) = rule.keys.keys().find(|host| !rule.hosts.contains(host)) {
                let message = format!("a key for {host}, which is not among the hosts of its rule");
                found.push(("rules", message));
            }
            if let Err(error) = Allowed::parse("private", &rule.private.join(",")) {
                found.push(("rules", format!("private: {}", error.message)));
            }
            let names_nothing = |words: &Vec<String>| words.first().is_none_or(String::is_empty);
            if rule.commands.iter().any(names_nothing) {
                found.push(("rules", "a command without a program".to_owned()));
            }
        }
        found
    }
}

/// A process that kend supervises.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Part {
    /// Whether it starts with the system. If not, `ken start` starts it.
    pub enabled: bool,
    /// Program and arguments. If empty, the program is `ken-NAME`. A program without a slash is searched beside kend, then on
    /// PATH; one with a slash is relative to the directory of the configuration.
    pub command: Vec<String>,
    /// Parts that must be ready before this one starts, and that start with it.
    pub requires: Vec<String>,
    /// Parts that must be ready before this one starts, if they are enabled.
    pub after: Vec<String>,
    /// Listening sockets. kend holds them over restarts and passes them by name (`LISTEN_FDNAMES`), sorted by name.
    pub sockets: BTreeMap<String, Socket>,
    /// Environment: `NAME` is passed through from kend's own or `secrets.env`, `NAME=value` is set.
    pub env: Vec<String>,
    /// Names looked up in `secrets.env`, then in kend's own environment, and passed through a descriptor.
    pub secrets: Vec<String>,
    /// Sections of this file that the part reads. A reload that changes one of them restarts the part.
    pub reads: Vec<String>,
    /// When the part is considered ready.
    pub ready: Ready,
    /// How long it may take to become ready, in milliseconds. After that it is stopped and considered failed.
    pub ready_timeout_ms: u64,
    /// The time between SIGTERM and SIGKILL when the part is stopped, in milliseconds.
    pub stop_timeout_ms: u64,
    /// The interval in which the part has to send `WATCHDOG=1`, in milliseconds; 0 for no watchdog.
    pub watchdog_ms: u64,
    /// When to stop restarting it.
    pub limit: Limit,
    /// The limit of open files (`RLIMIT_NOFILE`).
    pub nofile: u64,
    /// The nice value of its processes, 0 to 19: the higher it is, the sooner they give way to others.
    pub nice: u8,
    /// Whether programs that it runs may gain privileges, for instance by a setuid bit.
    pub new_privileges: bool,
}

impl Default for Part {
    fn default() -> Part {
        Part {
            enabled: true,
            command: Vec::new(),
            requires: Vec::new(),
            after: Vec::new(),
            sockets: BTreeMap::new(),
            env: Vec::new(),
            secrets: Vec::new(),
            reads: Vec::new(),
            ready: Ready::Notify,
            ready_timeout_ms: 10_000,
            stop_timeout_ms: 10_000,
            watchdog_ms: 0,
            limit: Limit::default(),
            nofile: 4096,
            nice: 0,
            new_privileges: false,
        }
    }
}

/// When a part is considered ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ready {
    /// When it sends `READY=1` to `NOTIFY_SOCKET`.
    Notify,
    /// When its program has been executed.
    Start,
}

/// A listening socket.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Socket {
    /// A Unix stream socket, mode 0600: a path, relative to the run directory.
    Unix(String),
    /// A TCP socket: `ADDRESS:PORT`, or the name of a section with `listen` and `port`.
    Tcp(String),
}

/// Give up after `n` starts within `within_ms` milliseconds; never if `n` is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limit {
    pub n: u32,
    pub within_ms: u64,
}

impl Default for Limit {
    fn default() -> Limit {
        Limit { n: 0, within_ms: 60_000 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_document_is_the_default_and_an_unknown_key_is_refused() {
        let config: Config = serde_json::from_str("{}").unwrap();
        assert_eq!(config, Config::default());
        assert!(serde_json::from_str::<Config>(r#"{"gateway":{"prot":1}}"#).is_err());
        assert!(serde_json::from_str::<Config>(r#"{"part":{"store":{"comand":[]}}}"#).is_err());
    }

    #[test]
    fn the_workspace_is_what_was_named() {
        let state = Path::new("/state");
        let named = Workspace { root: "/w".to_owned(), ..Workspace::default() };
        assert_eq!(Workspace::default().folder(state, None), Path::new("/state/workspace"));
        assert_eq!(named.folder(state, Some(PathBuf::new())), Path::new("/w"));
        assert_eq!(named.folder(state, Some("/v".into())), Path::new("/v"));
        let wrong = r#"{"root":"w","read":["r"],"rules":[{"path":"../x","policy":"auto-edit","commands":[[]]}]}"#;
        let wrong: Workspace = serde_json::from_str(wrong).unwrap();
        assert_eq!(wrong.problems().len(), 4);
        assert!(serde_json::from_str::<Workspace>(r#"{"rules":[{"path":"repos"}]}"#).is_err());
    }

    #[test]
    fn loopback_is_trusted_where_nobody_else_can_come_from_there() {
        let trusts = |text: &str| serde_json::from_str::<Gateway>(text).unwrap().trusts_loopback();
        assert!(trusts("{}"));
        assert!(trusts(r#"{"listen":"::1"}"#));
        assert!(!trusts(r#"{"listen":"0.0.0.0"}"#));
        assert!(!trusts(r#"{"listen":"10.0.0.1"}"#));
        assert!(!trusts(r#"{"public_url":"https://ken.example"}"#));
        assert!(trusts(r#"{"public_url":"https://ken.example","trust_loopback":"yes"}"#));
        assert!(!trusts(r#"{"trust_loopback":"no"}"#));
        assert!(serde_json::from_str::<Gateway>(r#"{"trust_loopback":"perhaps"}"#).is_err());
    }
}
