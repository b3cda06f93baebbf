//! The cognitive server for tests: its keys, a client that checks answers against the contract, and replaced tools.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::contract::Contract;
use crate::http::{Answer, Client, Exchange};
use crate::system::copy_program;
use crate::system::{Builder, System, binary};

/// The admin key of [`cognitive`].
pub const KEY: &str = "the-admin-key-of-the-tests";

/// A system whose cognitive server has [`KEY`] and no rate limits.
pub fn cognitive() -> Builder {
    limited_cognitive()
        .env("RATE_LIMIT_EXECUTE", "0")
        .env("RATE_LIMIT_PROTOCOLS", "0")
        .env("RATE_LIMIT_TEMPLATES", "0")
        .env("RATE_LIMIT_SESSION", "0")
        .env("RATE_LIMIT_METRICS", "0")
}

/// Like [`cognitive`], with the default rate limits.
pub fn limited_cognitive() -> Builder {
    Builder::default().secrets(&format!("MCP_API_KEY={KEY}\n"))
}

/// A client with a key.
pub struct Asker {
    client: Client,
    key: String,
}

impl System {
    /// A client of the cognitive server with the admin key.
    pub fn asker(&self) -> Asker {
        self.asker_with(KEY)
    }

    pub fn asker_with(&self, key: &str) -> Asker {
        Asker { key: key.to_owned(), ..Asker::at(self.cognitive()) }
    }

    /// Executes the protocols of a request, such as [`chain`], with the admin key.
    pub fn execute(&self, body: &Value) -> Answer {
        self.asker().post("/v1/execute", body)
    }
}

impl Asker {
    /// A client of the server at this address, with the admin key.
    pub fn at(address: SocketAddr) -> Asker {
        Asker { client: Client::connect(address).checked_against(Contract::cognitive()), key: KEY.to_owned() }
    }

    /// Resets the connection, like a client that has crashed.
    pub fn reset(self) {
        self.client.reset();
    }

    pub fn request(&mut self, method: &str, target: &str) -> Exchange<'_> {
        let key = self.key.clone();
        self.client.request(method, target).header("X-API-Key", &key)
    }

    pub fn get(&mut self, target: &str) -> Answer {
        self.request("GET", target).send()
    }

    pub fn post(&mut self, target: &str, body: &Value) -> Answer {
        self.request("POST", target).json(body).send()
    }

    pub fn delete(&mut self, target: &str) -> Answer {
        self.request("DELETE", target).send()
    }

    /// Like `post`, but returns an error if the connection breaks.
    pub fn try_post(&mut self, target: &str, body: &Value) -> std::io::Result<Answer> {
        self.request("POST", target).json(body).try_send()
    }
}

/// A request with three steps over a chain of this many rules. All statements begin with `name`.
pub fn chain(name: &str, rules: usize) -> Value {
    let rules: Vec<Value> =
        (0..rules).map(|n| json!([[format!("{name} step {n}")], format!("{name} step {}", n + 1)])).collect();
    json!({
        "protocol_names": ["ESL", "REP", "VVP"],
        "data": {"user_input": format!("{name} is happy to see this"), "facts": [format!("{name} step 0")], "rules": rules},
    })
}

/// Makes a folder with the server and its tools, some of which are replaced by scripts (name and text). Returns the
/// folder, and text for `ken.toml` that starts this server.
pub fn server_with(scripts: &[(&str, &str)]) -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    for program in ["ken-cognitive", "ken-esl", "ken-rep", "ken-vvp", "ken-laws"] {
        put(&binary(program), &folder.path().join(program));
    }
    for (name, script) in scripts {
        let path = folder.path().join(name);
        _ = std::fs::remove_file(&path);
        std::fs::write(&path, script).expect("a script");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    }
    let program = folder.path().join("ken-cognitive");
    let config = format!("[part.cognitive]\ncommand = [{:?}]\n", program.display().to_string());
    (folder, config)
}

/// The running children of a process, with process id and name.
pub fn children_of(parent: i32) -> Vec<(i32, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else {
            continue;
        };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let Some((name, rest)) = stat.rsplit_once(") ") else {
            continue;
        };
        let mut fields = rest.split(' ');
        let lives = fields.next() != Some("Z");
        if lives && fields.next().and_then(|parent| parent.parse().ok()) == Some(parent) {
            let name = name.split_once('(').map_or("", |(_, name)| name);
            found.push((pid, name.to_owned()));
        }
    }
    found
}

/// Memory that a process shares with no other, without pages of files, in KiB.
pub fn private_kib(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("smaps_rollup");
    let line = text.lines().find_map(|line| line.strip_prefix("Private_Dirty:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Makes a hard link to a file, or a copy if that is not possible.
fn put(from: &Path, to: &Path) {
    if std::fs::hard_link(from, to).is_err() {
        copy_program(from, to);
    }
}
