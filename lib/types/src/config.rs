//! The types of `ken.toml`. Every section and key has a default, so an empty file is valid. An unknown key is an error.
//! Each part reads only the sections that concern it, and only `kend` reads `[part.*]`. ken.toml(5) documents the file.

use crate::address::Allowed;
use crate::limits::PROMPT_BYTES;
use crate::ops::store::Memory;
use crate::providers::Providers;
use crate::proxy::Host;
use crate::uri;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::path::{Component, Path, PathBuf};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// The contents of `ken.toml`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub kend: Kend,
    pub gateway: Gateway,
    pub cognitive: Cognitive,
    pub chat: Chat,
    pub doors: Doors,
    pub retention: Retention,
    pub store: Store,
    pub model: Model,
    pub telemetry: Telemetry,
    pub approvals: Approvals,
    pub limits: Limits,
    pub workspace: Workspace,
    /// The parts that kend starts, by name. A section changes only the keys that it sets of a built-in part.
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

/// The settings of kend itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Kend {
    /// Whether kend starts the parts that come with ken (`[part.*]` can change them). If false, it starts only the
    /// parts that the file names.
    pub builtin_parts: bool,
    /// Whether kend applies a change of the configuration files at once. kend reads this key only when it starts.
    pub watch: bool,
    /// The size at which a part's log file is rotated, in bytes.
    pub log_max_bytes: u64,
    /// The number of rotated log files to keep for each part, besides the current one.
    pub log_keep: u32,
    /// What to do if the kernel lacks some of the walls of the parts. kend reads this key only when it starts.
    pub walls: WallsMode,
}

/// What kend does if the kernel cannot enforce all walls of the parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WallsMode {
    /// Uses those that the kernel has.
    Auto,
    /// Does not start.
    Require,
}

impl Default for Kend {
    fn default() -> Kend {
        Kend { builtin_parts: true, watch: true, log_max_bytes: 10 * 1024 * 1024, log_keep: 5, walls: WallsMode::Auto }
    }
}

/// The settings of the HTTP gateway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gateway {
    /// The address to listen on.
    #[serde(deserialize_with = "listening_address")]
    pub listen: IpAddr,
    /// The TCP port. 0 selects a free one.
    pub port: u16,
    /// The URL under which clients reach the gateway, if there is a proxy in front of it. If empty, the listening
    /// address.
    pub public_url: String,
    /// Whether requests from this machine need no secret.
    pub trust_loopback: TrustLoopback,
    /// The origins (`http://localhost:5173`) besides the gateway's own whose pages send requests like local programs.
    pub origins: Vec<String>,
}

/// Whether a request that comes from a loopback address, and was not forwarded by a proxy, needs no secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrustLoopback {
    /// Yes, unless `public_url` is set or the gateway listens on an address that is not a loopback address.
    Auto,
    /// Yes, if the user of the gateway has sent it.
    Yes,
    /// Yes, whoever has sent it.
    AnyUser,
    No,
}

impl Gateway {
    /// Whether requests of some user of this machine need no secret. Resolves `auto`.
    pub fn trusts_loopback(&self) -> bool {
        match self.trust_loopback {
            TrustLoopback::Auto => self.public_url.is_empty() && self.listen.is_loopback(),
            TrustLoopback::Yes | TrustLoopback::AnyUser => true,
            TrustLoopback::No => false,
        }
    }

    /// Returns why it must not listen there: other machines can reach it, and requests need no secret.
    pub fn listen_problem(&self, has_secret: bool) -> Option<String> {
        let is_open = !has_secret && !self.listen.is_loopback();
        is_open.then(|| {
            format!(
                "other machines can reach {}, and API_SECRET is not set; put API_SECRET=... into secrets.env, or listen on 127.0.0.1",
                self.listen
            )
        })
    }
}

/// The error of the standard library names neither the text nor what would be right.
fn listening_address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<IpAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    let wrong = |_| D::Error::custom(format!("`{text}` is not an IP address, such as 127.0.0.1, or 0.0.0.0 for all"));
    text.parse().map_err(wrong)
}

/// Whether a text is an origin as browsers send it: a scheme and a host, a port if it is not the usual one, and no path.
pub fn is_origin(text: &str) -> bool {
    uri::after_http(text).is_some_and(|host| !host.contains(['/', '?', '#', '@', ' ']))
}

impl Default for Gateway {
    fn default() -> Gateway {
        Gateway {
            listen: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 3940,
            public_url: String::new(),
            trust_loopback: TrustLoopback::Auto,
            origins: Vec::new(),
        }
    }
}

/// The settings of the cognitive server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cognitive {
    /// The address to listen on.
    #[serde(deserialize_with = "listening_address")]
    pub listen: IpAddr,
    /// The TCP port. 0 selects a free one.
    pub port: u16,
}

impl Default for Cognitive {
    fn default() -> Cognitive {
        Cognitive { listen: IpAddr::V4(Ipv4Addr::LOCALHOST), port: 8000 }
    }
}

/// The settings for chat events and prompts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Chat {
    /// How long the gateway waits for the end of a turn before it replies 202, in milliseconds, at most 600,000.
    pub wait_ms: u32,
    /// Which past turns a session remembers if nothing else is set for it.
    pub memory: Memory,
}

impl Default for Chat {
    fn default() -> Chat {
        Chat { wait_ms: 200_000, memory: Memory::On }
    }
}

/// The interfaces of others that the gateway has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Doors {
    /// How long a request of the interface of OpenAI waits for a turn that waits for a decision, in milliseconds, at most 600,000.
    pub wait_ms: u32,
    /// Whether the interface of OpenAI also has the models themselves, as `provider/model`.
    pub raw_models: bool,
    /// Whether programs that speak the Model Context Protocol can read what was said to ken.
    pub mcp_transcripts: bool,
}

impl Default for Doors {
    fn default() -> Doors {
        Doors { wait_ms: 240_000, raw_models: false, mcp_transcripts: false }
    }
}

/// For how many days data is kept. 0 is for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retention {
    /// Sessions, after their last use.
    pub sessions: Days,
    /// Runs of schedules and their conversations, after their end.
    pub schedule_runs: Days,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention { sessions: Days(0), schedule_runs: Days(30) }
    }
}

/// The default configuration, with comments. ken.toml overrides it key by key.
pub const BUILTIN: &str = include_str!("../../../etc/ken.toml");

/// The secret with the URL of the store's database. It takes precedence over [`Store::url`] and may contain a password.
pub const STORE_URL: &str = "KEN_STORE_URL";

/// The variables with the address of a proxy, which can contain a password: for URLs with `https` and `http`, and for all. They are passed
/// to parts as secrets.
pub const PROXIES: [&str; 6] = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
/// The variables with the hosts that are reached without a proxy, separated by commas. They are not secret: what is, is masked wherever it
/// occurs.
pub const WITHOUT_PROXY: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// Where the store keeps its data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// The URL of a PostgreSQL database, without a password. If it is empty, the data is in a file of SQLite.
    pub url: String,
    /// Whether the server must have a synchronous standby. Without one the store does not work.
    pub require_sync: bool,
    /// Whether hosts that share the database tell each other of changes. If not, each of them looks once a second.
    pub notify: bool,
    /// Whether the folders of sessions are at the same paths on all hosts, so that any of them can work there.
    pub shared_workspace: bool,
}

impl Default for Store {
    fn default() -> Store {
        Store { url: String::new(), require_sync: false, notify: true, shared_workspace: false }
    }
}

impl Store {
    /// Returns why the URL is not allowed.
    pub fn problem(&self) -> Option<String> {
        let has_password =
            user_info(&self.url).is_some_and(|user| user.contains(':')) || self.url.contains("password=");
        if has_password {
            return Some(format!("has a password; put the URL into secrets.env as {STORE_URL}"));
        }
        let problem = database_problem(&self.url).filter(|_| !self.url.is_empty());
        problem.map(|problem| format!("{problem}; {DATABASE_FORM}"))
    }
}

/// The form of the URL of a database.
pub const DATABASE_FORM: &str = "it has the form postgres://USER@HOST:PORT/DATABASE: ken-postgres(7)";

/// Returns why a URL cannot be that of a database. Names of options and escapes are left to the library that connects.
pub fn database_problem(url: &str) -> Option<&'static str> {
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Some("does not begin with postgres://");
    }
    let (place, options) = url.split_once('?').unwrap_or((url, ""));
    // The library takes what follows the first @ for the host, and a person what follows the last one: the end of a password would be
    // looked up and logged.
    if url.contains('@') && [authority(url), place].iter().any(|part| part.matches('@').count() != 1) {
        return Some("has an @ or a / in its password; write them as %40 and %2F");
    }
    let is_given =
        |text: &str, option: &str| !text.is_empty() || options.split('&').any(|pair| pair.starts_with(option));
    let hosts = authority(url).rsplit('@').next().unwrap_or_default();
    let database = place.splitn(4, '/').nth(3).unwrap_or_default();
    if !is_given(hosts, "host") {
        return Some("names no host");
    }
    let is_complete = is_given(user_info(url).unwrap_or_default(), "user=") && is_given(database, "dbname=");
    (!is_complete).then_some("needs a user and a database")
}

fn authority(url: &str) -> &str {
    let (_, rest) = url.split_once("://").unwrap_or_default();
    rest.split(['/', '?']).next().unwrap_or_default()
}

fn user_info(url: &str) -> Option<&str> {
    authority(url).rsplit_once('@').map(|(user, _)| user)
}

/// Returns whether the database of this URL is reached over the network, and not over a Unix socket alone.
pub fn is_over_network(url: &str) -> bool {
    let hosts = authority(url).rsplit('@').next().unwrap_or_default();
    let is_folder = |host: &str| host.to_ascii_lowercase().starts_with("%2f");
    !url.is_empty() && !hosts.split(',').all(is_folder)
}

/// A number of days, at most a hundred years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Days(u16);

impl Days {
    /// Returns the time in milliseconds; `None` for ever.
    pub fn millis(self) -> Option<i64> {
        (self.0 > 0).then(|| i64::from(self.0) * 24 * 3_600_000)
    }

    pub fn count(self) -> u16 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Days {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Days, D::Error> {
        const MAX: u16 = 36_500;
        // Any value, so that the error can show it.
        let value = serde_json::Value::deserialize(deserializer)?;
        let days = value.as_u64().and_then(|days| u16::try_from(days).ok()).filter(|days| *days <= MAX);
        days.map(Days)
            .ok_or_else(|| D::Error::custom(format!("{value} is not a number of days: 0 (for ever) to {MAX}")))
    }
}

/// The models of the agents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Model {
    /// A list of `provider/model` in order of preference. If one fails, the next is called. The variable `KEN_MODEL`
    /// takes precedence.
    #[serde(rename = "use")]
    pub choice: String,
    /// The model that computes vectors for search by meaning: `openai/MODEL` or `local/ALIAS`. If empty, there is no
    /// search by meaning. The variable `KEN_EMBED` takes precedence.
    pub embed: String,
    /// The model that judges which sentences of an answer its sources support: one `provider/model`. If empty, words are
    /// compared and no model is asked.
    pub judge: String,
    pub budget: Budget,
    /// Providers by name. One with a known name needs no table.
    pub provider: Providers,
}

/// Limits on what models may use; 0 means no limit. A day is a day in UTC, and costs are in US dollars.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    pub tokens_per_day: u64,
    pub cost_per_day: f64,
    pub tokens_per_session: u64,
    pub cost_per_session: f64,
}

impl Budget {
    /// Whether no limit is set.
    pub fn is_unlimited(&self) -> bool {
        *self == Budget::default()
    }

    /// Returns the key of every limit whose value is not allowed, with the reason.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let costs = [("cost_per_day", self.cost_per_day), ("cost_per_session", self.cost_per_session)];
        let wrong = costs.into_iter().filter_map(|(key, cost)| Some((key, dollars_problem(cost)?)));
        wrong.collect()
    }
}

/// Returns why an amount of US dollars is not allowed, or `None` if it is between 0 and 1,000,000,000.
pub fn dollars_problem(dollars: f64) -> Option<String> {
    let is_sound = (0.0..=1e9).contains(&dollars);
    (!is_sound).then(|| format!("{dollars} is not from 0 to 1000000000"))
}

impl Default for Model {
    fn default() -> Model {
        Model {
            choice: String::from("rules"),
            embed: String::new(),
            judge: String::new(),
            budget: Budget::default(),
            provider: Providers::new(),
        }
    }
}

/// Where summaries of submissions and runs are sent, as OpenTelemetry traces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Telemetry {
    /// The collector's address for OTLP over HTTP, such as `http://127.0.0.1:4318`; if empty, nothing is sent. The variable
    /// `OTEL_EXPORTER_OTLP_ENDPOINT` takes precedence.
    pub otlp: String,
    /// The encoding of the traces. The variable `OTEL_EXPORTER_OTLP_PROTOCOL` takes precedence.
    pub protocol: OtlpProtocol,
    /// Whether the texts of answers and tool results are sent, too.
    pub content: bool,
}

impl Telemetry {
    /// Returns why `otlp` is not allowed.
    pub fn problem(&self) -> Option<String> {
        let address = self.otlp.trim();
        if user_info(address).is_some() {
            return Some("has a password; put it into OTEL_EXPORTER_OTLP_HEADERS in secrets.env".to_owned());
        }
        let is_wrong = !address.is_empty() && uri::after_http(address).is_none();
        is_wrong.then(|| format!("`{address}` is not an http or https address, such as http://127.0.0.1:4318"))
    }
}

crate::named! {
    /// An encoding of OTLP over HTTP, with the names and the default of OpenTelemetry's specification.
    #[derive(Default)]
    pub enum OtlpProtocol {
        #[default]
        Protobuf = "http/protobuf",
        Json = "http/json",
    }
}

/// The settings for approval requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Approvals {
    /// How long a request waits for its decision, in milliseconds, 1,000 to 604,800,000.
    pub expiry_ms: u32,
    /// What happens to approval requests of turns that a schedule started.
    pub unattended: Unattended,
}

/// What happens to an approval request of a turn whose answer nobody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unattended {
    /// The request is denied at once.
    Deny,
    /// The request waits for a decision, like any other.
    Ask,
}

impl Default for Approvals {
    fn default() -> Approvals {
        Approvals { expiry_ms: 900_000, unattended: Unattended::Deny }
    }
}

impl Approvals {
    /// A second to a week.
    const EXPIRY_MS: RangeInclusive<u32> = 1_000..=604_800_000;

    /// Returns why `expiry_ms` is not allowed.
    pub fn problem(&self) -> Option<String> {
        let (min, max) = (Approvals::EXPIRY_MS.start(), Approvals::EXPIRY_MS.end());
        let is_wrong = !Approvals::EXPIRY_MS.contains(&self.expiry_ms);
        is_wrong.then(|| format!("{} is not from {min} to {max} milliseconds", self.expiry_ms))
    }
}

/// The limits of the gateway. A request above them is refused with `busy`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The maximum number of connections. When it is reached, the connection that has been idle longest is closed to
    /// make room for a new one.
    pub connections: u32,
    /// How many of these connections may be used by streams, long polls and waiting prompts.
    pub held_connections: u32,
    /// The maximum memory for request bodies of more than 16 KiB, all requests together, in bytes. One caller may use a
    /// quarter of it.
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

impl Limits {
    /// One caller may use a quarter, which is then enough for the longest prompt.
    const MIN_BODY_MEMORY: u64 = 4 * PROMPT_BYTES as u64;

    /// Returns the key of every limit below which nothing, or no prompt, would be answered, with the reason.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let rows = [
            ("connections", self.connections.into(), 1),
            ("held_connections", self.held_connections.into(), 1),
            ("body_memory", self.body_memory, Limits::MIN_BODY_MEMORY),
        ];
        let wrong = rows.into_iter().filter(|(_, value, min)| value < min);
        wrong.map(|(key, value, min)| (key, format!("{value} is too low, at least {min}"))).collect()
    }
}

/// The folder in which the coding worker works, and which actions there need no approval. ken-coder reads this section
/// for each call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Workspace {
    /// The folder; if empty, `workspace` in the state directory. The variable `KEN_WORKSPACE` takes precedence.
    pub root: String,
    /// Absolute paths outside the folder that commands may read and execute, such as those of a toolchain.
    pub read: Vec<PathBuf>,
    /// The environment of commands. `NAME` passes a variable on, `NAME=value` sets one.
    pub env: Vec<String>,
    /// The first rule whose path matches applies. A change that no rule matches needs approval.
    pub rules: Vec<WorkspaceRule>,
}

/// What the coding worker may do below a path without approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceRule {
    /// A folder or file, relative to the workspace; if empty, the whole workspace. An absolute path is one of trusted
    /// folders, and no other rule applies there.
    #[serde(default)]
    pub path: String,
    pub policy: WorkspacePolicy,
    /// Whether the rule also counts in a turn that has read outside text. Without it, a person is asked in such a turn,
    /// because what a page says is then as likely the reason for the call as what the person wants.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trusted: bool,
    /// Commands that run without approval in the folders of this rule.
    #[serde(default)]
    pub commands: Vec<ListedCommand>,
    /// Hosts that commands and git in these folders may reach if the call requests network access: `HOST` (port 443) or
    /// `HOST:PORT`.
    #[serde(default)]
    pub hosts: Vec<Host>,
    /// Networks that the names in `hosts` may resolve to although they are not public.
    #[serde(default)]
    pub private: Vec<String>,
    /// Keys that ken-proxy adds to requests. Maps a host of `hosts` to the name of its key in `secrets.env`.
    #[serde(default)]
    pub keys: BTreeMap<Host, String>,
    /// Filters of git (the attribute `filter`) that files may pass on their way into a commit. Maps the name of a filter
    /// to the command that it runs.
    #[serde(default)]
    pub filters: BTreeMap<String, String>,
}

impl WorkspaceRule {
    /// Returns the place below a root to which a path of this rule leads: the root itself if the path is above it. `None` if the rule is not
    /// for this root. A rule for the trusted folders below a path is not for the workspace, wherever that is; but what must not be changed
    /// must not be changed there either.
    pub fn place_below<'a>(&self, path: &'a Path, root: &Path, is_workspace: bool) -> Option<&'a Path> {
        let is_for_root = || (!is_workspace || self.policy == WorkspacePolicy::Deny) && root.starts_with(path);
        path.strip_prefix(root).ok().or_else(|| is_for_root().then(|| Path::new("")))
    }
}

/// A command that runs without approval. In the file it is a list of words, or a table if it needs more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "CommandForm", into = "CommandForm")]
pub struct ListedCommand {
    /// The whole command line.
    pub argv: Vec<String>,
    /// Exactly this text on standard input; `None` for no standard input.
    pub stdin: Option<String>,
    /// Whether it may also run with the network, that is with the hosts and the keys of its rule.
    pub network: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "a command is a list of words, or a table with argv and, if needed, network and stdin")]
enum CommandForm {
    Words(Vec<String>),
    Table(CommandTable),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CommandTable {
    argv: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stdin: Option<String>,
    #[serde(default)]
    network: bool,
}

impl From<CommandForm> for ListedCommand {
    fn from(form: CommandForm) -> ListedCommand {
        match form {
            CommandForm::Words(argv) => ListedCommand { argv, stdin: None, network: false },
            CommandForm::Table(CommandTable { argv, stdin, network }) => ListedCommand { argv, stdin, network },
        }
    }
}

impl From<ListedCommand> for CommandForm {
    fn from(ListedCommand { argv, stdin, network }: ListedCommand) -> CommandForm {
        if stdin.is_none() && !network {
            return CommandForm::Words(argv);
        }
        CommandForm::Table(CommandTable { argv, stdin, network })
    }
}

impl ListedCommand {
    /// Whether a rule that lists this command allows a call with exactly this command line, standard input and network.
    pub fn allows(&self, argv: &[String], stdin: Option<&str>, has_network: bool) -> bool {
        self.argv == argv && self.stdin.as_deref() == stdin && (self.network || !has_network)
    }
}

/// Whether changes of files need approval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkspacePolicy {
    /// Changes of files need no approval. Commands and git still do.
    AutoEdit,
    /// A person has to approve each change.
    #[default]
    Ask,
    /// Nothing may be changed, even with approval.
    Deny,
}

impl Workspace {
    /// Returns the folder of the workspace. `variable` is the value of `KEN_WORKSPACE`.
    pub fn folder(&self, state: &Path, variable: Option<PathBuf>) -> PathBuf {
        match variable.filter(|folder| !folder.as_os_str().is_empty()) {
            Some(folder) => folder,
            None if self.root.is_empty() => state.join("workspace"),
            None => PathBuf::from(&self.root),
        }
    }

    /// Removes the permissions of all rules that are not `trusted`. What a rule denies stays denied.
    pub fn distrust(&mut self) {
        for rule in self.rules.iter_mut().filter(|rule| !rule.trusted) {
            rule.policy = rule.policy.max(WorkspacePolicy::Ask);
            rule.commands.clear();
        }
    }

    /// Returns the key of every value that is not allowed, with the reason.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        if !self.root.is_empty() && !Path::new(&self.root).is_absolute() {
            found.push(("root", format!("{} is not an absolute path", self.root)));
        }
        for path in self.read.iter().filter(|path| !path.is_absolute()) {
            found.push(("read", format!("{} is not an absolute path", path.display())));
        }
        for rule in &self.rules {
            let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
            if !Path::new(&rule.path).components().all(is_plain) {
                let message = format!("{:?} is neither a path below the workspace nor an absolute one", rule.path);
                found.push(("rules", message));
            }
            if let Some(host) = rule.keys.keys().find(|host| !rule.hosts.contains(host)) {
                let message = format!("a key for {host}, which is not among the hosts of its rule");
                found.push(("rules", message));
            }
            if let Err(error) = Allowed::parse("private", &rule.private.join(",")) {
                found.push(("rules", format!("private: {}", error.message)));
            }
            let names_nothing = |command: &ListedCommand| command.argv.first().is_none_or(String::is_empty);
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
    /// Whether it starts with the system. If false, only `ken start` starts it.
    pub enabled: bool,
    /// Program and arguments. If empty, the program is `ken-NAME`. A program without a slash is searched for in kend's
    /// directory, then on PATH. One with a slash is relative to the directory of the configuration file.
    pub command: Vec<String>,
    /// Parts that must be ready before this one starts. They are started with it.
    pub requires: Vec<String>,
    /// Parts that must be ready before this one starts, if they are enabled.
    pub after: Vec<String>,
    /// Listening sockets. kend keeps them open when the part restarts, and passes them by name (`LISTEN_FDNAMES`),
    /// sorted by name.
    pub sockets: BTreeMap<String, Socket>,
    /// The environment of the part. `NAME` passes a variable on from `secrets.env` or kend's own environment,
    /// `NAME=value` sets one.
    pub env: Vec<String>,
    /// Names of secrets. Each is looked up in `secrets.env`, then in kend's own environment, and passed through a file
    /// descriptor.
    pub secrets: Vec<String>,
    /// Sections of this file that the part reads. A reload that changes one of them restarts the part.
    pub reads: Vec<String>,
    /// When the part is considered ready.
    pub ready: Ready,
    /// How long the part may take to become ready, in milliseconds. After that, kend stops it and counts the start as
    /// failed.
    pub ready_timeout_ms: u64,
    /// The time between SIGTERM and SIGKILL when the part is stopped, in milliseconds.
    pub stop_timeout_ms: u64,
    /// The interval in which the part has to send `WATCHDOG=1`, in milliseconds; 0 for no watchdog.
    pub watchdog_ms: u64,
    /// When kend stops restarting the part.
    pub limit: Limit,
    /// The limit on open files (`RLIMIT_NOFILE`).
    pub nofile: u64,
    /// The limit on its address space in bytes (`RLIMIT_AS`); 0 for that of kend.
    pub address_space: u64,
    /// The limit on the processes and threads of its user (`RLIMIT_NPROC`), which does not hold for root; 0 for that of kend.
    pub nproc: u64,
    /// The nice value of its processes, 0 to 19. Processes with a higher value get less processor time.
    pub nice: u8,
    /// Whether programs that the part runs may gain privileges, for instance by a setuid bit. A part that may has no walls.
    pub new_privileges: bool,
    /// What the kernel lets the process do.
    pub walls: Walls,
}

/// The walls of a part: everything that is not named here is refused by the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Walls {
    /// Its system calls, and with them its network.
    pub calls: Calls,
    /// Files and folders that it can read, besides its program, the libraries and `ken.toml`. `STATE/` stands for the state
    /// directory, and what is below it is a folder that kend creates if it is missing; `SHARE/` for each folder of the installed
    /// data files; `CONFIG/` for the folder of `ken.toml` and the configuration folder of the user, where kend makes what ends with a slash.
    pub read: Vec<String>,
    /// The same, for what it can change.
    pub write: Vec<String>,
    /// Programs that it can execute, for the classes `run` and `run-network`: names that are looked up as those of parts are.
    pub run: Vec<String>,
}

crate::named! {
    /// A class of system calls.
    #[derive(Default)]
    pub enum Calls {
        /// All, and all files: no walls.
        #[default]
        Any = "any",
        /// Files, threads and Unix sockets.
        Local = "local",
        /// These, and to accept connections on the sockets that kend passes and ask the kernel whose they are.
        Serve = "serve",
        /// These, and connections to other machines.
        Network = "network",
        /// To start the programs that are named, which inherit everything that the part may not do. Sockets are Unix sockets.
        Run = "run",
        /// The same, and connections to other machines.
        RunNetwork = "run-network",
        /// To start any program. What it needs is not known here, so there are no rules for files.
        Programs = "programs",
        /// To start programs, and ken-sandbox, which sets up namespaces.
        Sandbox = "sandbox",
    }
}

impl Calls {
    /// Whether the files of the part are restricted.
    pub fn has_file_rules(self) -> bool {
        !matches!(self, Calls::Any | Calls::Programs | Calls::Sandbox)
    }

    /// Whether the part starts the programs that are named for it, and no others.
    pub fn runs_named(self) -> bool {
        matches!(self, Calls::Run | Calls::RunNetwork)
    }

    /// Whether the part connects to other machines, if its files are restricted.
    pub fn reaches_out(self) -> bool {
        matches!(self, Calls::Network | Calls::RunNetwork)
    }
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
            address_space: 0,
            nproc: 0,
            nice: 0,
            new_privileges: false,
            walls: Walls::default(),
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

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Socket {
    /// A Unix stream socket, mode 0600: a path, relative to the run directory.
    Unix(String),
    /// A TCP socket: `ADDRESS:PORT`, or the name of a section that has `listen` and `port`.
    Tcp(String),
}

/// kend stops restarting a part after `n` starts within `within_ms` milliseconds. If `n` is 0, it never stops.
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
    fn a_listed_command_is_read_back_as_it_was_written() {
        let argv = vec!["npm".to_owned(), "ci".to_owned()];
        for (stdin, network) in [(None, false), (None, true), (Some("y"), false), (Some("y"), true)] {
            let command = ListedCommand { argv: argv.clone(), stdin: stdin.map(str::to_owned), network };
            let written = serde_json::to_value(&command).unwrap();
            assert_eq!(written.is_array(), stdin.is_none() && !network, "{written}");
            assert_eq!(serde_json::from_value::<ListedCommand>(written).unwrap(), command);
            // A call has exactly this standard input, and the network only if it is listed.
            for (input, has_network) in [(None, false), (None, true), (Some("y"), false), (Some("y"), true)] {
                let expected = input == stdin && (network || !has_network);
                assert_eq!(command.allows(&argv, input, has_network), expected, "{command:?} {input:?} {has_network}");
            }
            assert!(!command.allows(&argv[..1], stdin, network));
        }
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
        assert!(trusts(r#"{"public_url":"https://ken.example","trust_loopback":"any-user"}"#));
        assert!(serde_json::from_str::<Gateway>(r#"{"trust_loopback":"perhaps"}"#).is_err());
    }

    #[test]
    fn the_url_of_the_store_has_no_password_and_says_whether_it_leads_to_the_network() {
        for (url, has_problem, is_network) in [
            ("", false, false),
            ("postgres://ken@db/ken", false, true),
            ("postgres://ken:secret@db/ken", true, true),
            ("postgres://ken@db/ken?password=secret", true, true),
            ("postgres://ken@%2Frun%2Fpostgresql/ken", false, false),
            ("postgres://ken@%2frun:1,db:2/ken", false, true),
        ] {
            let store = Store { url: url.into(), ..Store::default() };
            assert_eq!((store.problem().is_some(), is_over_network(url)), (has_problem, is_network), "{url}");
        }
    }

    #[test]
    fn the_url_of_a_database_names_host_user_and_database() {
        for (url, problem) in [
            ("postgres://ken@db/ken", None),
            ("postgresql://ken@db:1,other:2/ken?sslmode=require", None),
            ("postgres://ken@%2Frun%2Fpostgresql/ken", None),
            ("postgres:///ken?user=ken&host=/run/postgresql", None),
            ("postgres://db?dbname=ken&user=ken", None),
            ("mysql://ken@db/ken", Some("does not begin with postgres://")),
            ("postgres:ken@db/ken", Some("does not begin with postgres://")),
            ("", Some("does not begin with postgres://")),
            ("postgres://", Some("names no host")),
            ("postgres://ken@/ken?user=host", Some("names no host")),
            ("postgres://db/ken", Some("needs a user and a database")),
            ("postgres://ken@db", Some("needs a user and a database")),
            ("postgres://ken:a%40b@db/ken?options=a@b", None),
            ("postgres://ken:a@b@db/ken", Some("has an @ or a / in its password; write them as %40 and %2F")),
            (
                "postgres://db/ken?user=k&password=a@b",
                Some("has an @ or a / in its password; write them as %40 and %2F"),
            ),
            ("postgres://ken:1/a@db/ken", Some("has an @ or a / in its password; write them as %40 and %2F")),
            ("postgres://ken@db/?options=a/b", Some("needs a user and a database")),
        ] {
            assert_eq!(database_problem(url), problem, "{url}");
        }
    }

    #[test]
    fn values_at_their_limits() {
        let expiry = |expiry_ms: u32| Approvals { expiry_ms, ..Approvals::default() }.problem().is_none();
        assert_eq!([999, 1_000, 604_800_000, 604_800_001].map(expiry), [false, true, true, false]);
        let otlp = |otlp: &str| Telemetry { otlp: otlp.to_owned(), ..Telemetry::default() }.problem().is_none();
        assert_eq!(
            ["", " ", "http://h:1", " https://h/ ", "h:1", "http://", "http://a:b@h:1"].map(otlp),
            [true, true, true, true, false, false, false]
        );
        let least = Limits { connections: 1, held_connections: 1, body_memory: 1_048_576, ..Limits::default() };
        assert_eq!(least.problems(), []);
        let less = Limits { connections: 0, held_connections: 0, body_memory: 1_048_575, ..least };
        let keys: Vec<&str> = less.problems().iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, ["connections", "held_connections", "body_memory"]);
    }

    #[test]
    fn an_address_to_listen_on_is_one_of_ip() {
        let listen = |text: &str| serde_json::from_value::<Gateway>(serde_json::json!({ "listen": text }));
        let error = listen("localhost").unwrap_err().to_string();
        assert!(error.starts_with("`localhost` is not an IP address, such as 127.0.0.1"), "{error}");
        for (text, has_secret, is_allowed) in [
            ("127.0.0.1", false, true),
            ("::1", false, true),
            ("0.0.0.0", false, false),
            ("0.0.0.0", true, true),
            ("::", false, false),
        ] {
            assert_eq!(listen(text).unwrap().listen_problem(has_secret).is_none(), is_allowed, "{text}");
        }
    }
}
