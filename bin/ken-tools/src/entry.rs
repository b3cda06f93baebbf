//! The description of one tool: a JSON file in `tools.d`. See ken-tools(5).

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use ken_types::Error;
use ken_types::address::is_address;
use ken_types::json;
use ken_types::ops::model::SchemaText;
use ken_types::ops::tools::{Approval, Tool};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::reach::host_of;
use crate::schema::Schema;

/// The maximum size of a description, in bytes.
const MAX_BYTES: u64 = 256 * 1024;
const MAX_DEPTH: usize = 64;
const NAME_BYTES: usize = 64;
const DESCRIPTION_CHARACTERS: usize = 1024;
/// The default and the maximum timeout of a call, in milliseconds.
pub(crate) const TIMEOUT_MS: u64 = 30_000;
pub(crate) const MAX_TIMEOUT_MS: u64 = 600_000;
/// The agents that can call a tool by default: the workers, but not the orchestrator, which delegates to them.
pub(crate) const WORKERS: [&str; 2] = ["research-worker", "coding-worker"];
pub(crate) const ORCHESTRATOR: &str = "orchestrator";

/// The fields of a description file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    description: String,
    command: Vec<String>,
    input: Value,
    output: Option<Value>,
    #[serde(default)]
    writes: OutputFormat,
    #[serde(default)]
    touch: Permissions,
    #[serde(default)]
    sandbox: Confinement,
    #[serde(default)]
    env: Vec<String>,
    #[serde(default)]
    secrets: Vec<String>,
    shows: Option<String>,
    #[serde(default)]
    ok_status: Option<Vec<u8>>,
    #[serde(default)]
    timeout_ms: Option<u64>,
    #[serde(default)]
    idempotent: bool,
    #[serde(default)]
    approval: Approval,
    preview: Option<Vec<String>>,
    agents: Option<Vec<String>>,
    outside: Option<String>,
    #[serde(default)]
    needs: Vec<String>,
    #[serde(default)]
    pure: bool,
}

/// The format of the tool's standard output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OutputFormat {
    #[default]
    Json,
    Text,
}

/// What confines the tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Confinement {
    /// ken-sandbox(1), which allows what `touch` declares.
    #[default]
    Touch,
    /// The tool itself, which is a program of ken. Only this program knows what each call needs.
    Own,
}

/// What the tool can access besides the programs of the system and its own temporary directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Permissions {
    pub(crate) read: Vec<PathBuf>,
    pub(crate) write: Vec<PathBuf>,
    /// Whether it can reach public addresses.
    pub(crate) network: bool,
    /// Other addresses that it can reach: an address, `ADDRESS:PORT`, a network, `HOST:PORT`, a URL, or `$NAME` for the
    /// list in a variable.
    pub(crate) reach: Vec<String>,
    /// Folders below ken's state directory in which it can write. Missing ones are created.
    pub(crate) state: Vec<PathBuf>,
}

/// A description that has been read and checked.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) tool: Tool,
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
    /// The command that describes what a call would do.
    pub(crate) preview: Option<Vec<String>>,
    pub(crate) input: Schema,
    pub(crate) output: Option<Schema>,
    pub(crate) writes: OutputFormat,
    pub(crate) touch: Permissions,
    pub(crate) sandbox: Confinement,
    /// Names of environment variables that are passed on to it.
    pub(crate) env: Vec<String>,
    /// Names of secrets that are passed to it through a descriptor, as kend does for parts.
    pub(crate) secrets: Vec<String>,
    /// A JSON pointer to the text for the model in the tool's output.
    pub(crate) shows: Option<String>,
    /// The exit statuses with which the tool has given a result. Any other status is a failure.
    pub(crate) ok_status: Vec<u8>,
    pub(crate) timeout: Duration,
    /// The MCP server that provides the tool, and the tool's name there. `None` for a tool that is run by `command`.
    pub(crate) server: Option<(String, String)>,
    /// A hash of the settings of that server, of which `command` has only those that a person is shown; empty without one.
    pub(crate) server_settings: String,
}

impl Entry {
    /// Whether the tool itself asks whether a call may go on, when it is about to act. Only programs of ken do.
    pub(crate) fn asks(&self) -> bool {
        self.sandbox == Confinement::Own && self.preview.is_some()
    }

    /// Reads a description. An `invalid` error names the field in `at`.
    pub(crate) fn read(path: &Path) -> Result<Entry, Error> {
        let bytes = ken_trusted::read(path, MAX_BYTES)?;
        let file: File = json::from_value(json::parse(&bytes, MAX_DEPTH)?)?;
        file.check()?;
        let missing = file.missing();
        let folder = path.parent().unwrap_or(Path::new("/"));
        Ok(Entry {
            input: Schema::compile("/input", &file.input)?,
            output: file.output.map(|schema| Schema::compile("/output", &schema)).transpose()?,
            command: resolved(file.command, folder),
            preview: file.preview.map(|command| resolved(command, folder)),
            writes: file.writes,
            sandbox: file.sandbox,
            env: file.env,
            secrets: file.secrets,
            shows: file.shows,
            ok_status: file.ok_status.unwrap_or(vec![0]),
            timeout: Duration::from_millis(file.timeout_ms.unwrap_or(TIMEOUT_MS)),
            server: None,
            server_settings: String::new(),
            tool: Tool {
                name: file.name,
                description: file.description,
                parameters: SchemaText::from(&file.input),
                idempotent: file.idempotent,
                approval: file.approval,
                agents: file.agents.unwrap_or(WORKERS.map(str::to_owned).into()),
                file: path.display().to_string(),
                // What a tool reads on a network may come from anybody.
                outside: file.outside.or_else(|| file.touch.is_networked().then(|| "network".to_owned())),
                missing,
                reports_progress: false,
                pure: file.pure,
            },
            touch: file.touch,
        })
    }
}

impl File {
    /// Returns the settings that it needs, if none of them is set. Those of a process never change.
    fn missing(&self) -> Vec<String> {
        let is_in = |names: &[String], name: &String| names.contains(name);
        let is_set = |name: &String| {
            let variable = || std::env::var_os(name).is_some_and(|value| !value.is_empty());
            let secret = || ken_service::secret(name).is_some_and(|value| !value.is_empty());
            is_in(&self.env, name) && variable() || is_in(&self.secrets, name) && secret()
        };
        if self.needs.iter().any(is_set) { Vec::new() } else { self.needs.clone() }
    }

    /// Whether nothing in the description contradicts that the result follows from the arguments alone.
    fn may_be_pure(&self) -> bool {
        let is_confined = self.touch == Permissions::default() && self.sandbox == Confinement::Touch;
        let knows_nothing = self.env.is_empty() && self.secrets.is_empty();
        is_confined && knows_nothing && self.idempotent && self.approval == Approval::None
    }

    fn check(&self) -> Result<(), Error> {
        let invalid = |at: &str, message: String| Err(Error::invalid(at, message));
        if !is_name(&self.name) {
            let wanted = format!("1 to {NAME_BYTES} of a-z, 0-9 and _, beginning with a letter");
            return invalid("/name", format!("{:?} is not {wanted}", self.name));
        }
        if !(1..=DESCRIPTION_CHARACTERS).contains(&self.description.trim().chars().count()) {
            let wanted = format!("1 to {DESCRIPTION_CHARACTERS} characters");
            return invalid("/description", wanted);
        }
        if self.outside.as_deref().is_some_and(|origin| !is_name(origin)) {
            return invalid("/outside", "an origin is one word of a-z, 0-9 and _, beginning with a letter".to_owned());
        }
        if lacks_program(&self.command) {
            return invalid("/command", "the program is missing".to_owned());
        }
        if self.preview.is_some() != (self.approval == Approval::Preview) {
            let message = "the command `preview` and the approval `preview` belong together";
            return invalid("/preview", message.to_owned());
        }
        if self.preview.as_deref().is_some_and(lacks_program) {
            return invalid("/preview", "the program is missing".to_owned());
        }
        if self.input.get("type").and_then(Value::as_str) != Some("object") {
            return invalid("/input/type", "the arguments of a tool are an object".to_owned());
        }
        let timeout = self.timeout_ms.unwrap_or(TIMEOUT_MS);
        if !(1..=MAX_TIMEOUT_MS).contains(&timeout) {
            let message = format!("{timeout} is not 1 to {MAX_TIMEOUT_MS} ms");
            return invalid("/timeout_ms", message);
        }
        let mut programs = self.preview.iter().chain([&self.command]).filter_map(|words| words.first());
        if self.sandbox == Confinement::Own
            && (self.touch != Permissions::default() || !programs.all(|program| is_own_program(program)))
        {
            let message = "`own` is for programs of ken, named without a path, and has no `touch`";
            return invalid("/sandbox", message.to_owned());
        }
        self.touch.check("/touch")?;
        if self.pure && !self.may_be_pure() {
            let message =
                "a pure tool has the approval `none` and is idempotent, without touch, sandbox, env or secrets";
            return invalid("/pure", message.to_owned());
        }
        if let Some(name) = self.needs.iter().find(|name| !self.env.contains(name) && !self.secrets.contains(name)) {
            return invalid("/needs", format!("{name} stands neither in env nor in secrets"));
        }
        if self.shows.as_ref().is_some_and(|place| !place.starts_with('/')) {
            return invalid("/shows", "a JSON pointer begins with /".to_owned());
        }
        let mut agents = self.agents.iter().flatten();
        if self.touch.is_networked() && agents.any(|agent| agent == ORCHESTRATOR) {
            let message = "a tool with network access is not for the orchestrator";
            return invalid("/agents", message.to_owned());
        }
        Ok(())
    }
}

impl Permissions {
    /// Checks the values. An `invalid` error names the field below `at`.
    pub(crate) fn check(&self, at: &str) -> Result<(), Error> {
        for (field, paths) in [("read", &self.read), ("write", &self.write)] {
            if let Some(path) = paths.iter().find(|path| !path.is_absolute()) {
                let message = format!("{} is not an absolute path", path.display());
                return Err(Error::invalid(format!("{at}/{field}"), message));
            }
        }
        let is_below = |path: &PathBuf| path.components().all(|part| matches!(part, Component::Normal(_)));
        if let Some(path) = self.state.iter().find(|path| !is_below(path)) {
            let message = format!("{} is not a path below the state directory", path.display());
            return Err(Error::invalid(format!("{at}/state"), message));
        }
        let is_unknown = |entry: &&String| !(entry.starts_with('$') || is_address(entry) || host_of(entry).is_some());
        match self.reach.iter().find(is_unknown) {
            Some(entry) => {
                let message = format!("{entry:?} is neither an address, a network, HOST:PORT, a URL nor $NAME");
                Err(Error::invalid(format!("{at}/reach"), message))
            }
            None => Ok(()),
        }
    }

    /// Whether anything on a network can be reached.
    pub(crate) fn is_networked(&self) -> bool {
        self.network || !self.reach.is_empty()
    }
}

fn lacks_program(command: &[String]) -> bool {
    command.first().is_none_or(String::is_empty)
}

fn is_own_program(program: &str) -> bool {
    program.starts_with("ken-") && !program.contains('/')
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_lowercase())
        && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && name.len() <= NAME_BYTES
}

/// Makes the program's path absolute. A name with a slash is relative to the folder of the description; any other name
/// is searched for.
fn resolved(mut command: Vec<String>, folder: &Path) -> Vec<String> {
    if let Some(program) = command.first_mut().filter(|program| program.contains('/')) {
        *program = folder.join(&*program).display().to_string();
    }
    command
}
