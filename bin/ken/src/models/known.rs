//! The providers that ken knows without a table in ken.toml, as `ken setup` offers them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use ken_types::Engine;
use serde_json::Value;

/// A provider that ken knows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Known {
    pub(crate) name: &'static str,
    /// The name of its key. A server on this machine needs none.
    pub(crate) key: Option<&'static str>,
    /// The port on this machine, for a server.
    port: Option<u16>,
}

const fn service(name: &'static str, key: &'static str) -> Known {
    Known { name, key: Some(key), port: None }
}

const fn server(name: &'static str, port: u16) -> Known {
    Known { name, key: None, port: Some(port) }
}

pub(crate) const KNOWN: [Known; 12] = [
    server("ollama", 11434),
    server("lmstudio", 1234),
    server("llamacpp", 8080),
    service("openai", "OPENAI_API_KEY"),
    service("anthropic", "ANTHROPIC_API_KEY"),
    service("openrouter", "OPENROUTER_API_KEY"),
    service("gemini", "GEMINI_API_KEY"),
    service("mistral", "MISTRAL_API_KEY"),
    service("groq", "GROQ_API_KEY"),
    service("deepseek", "DEEPSEEK_API_KEY"),
    service("xai", "XAI_API_KEY"),
    service("together", "TOGETHER_API_KEY"),
];

pub(crate) fn named(name: &str) -> Option<Known> {
    usable().find(|known| known.name == name)
}

/// Returns those that this version of ken can call: by their name, or a server of this machine as any other with its format.
pub(crate) fn usable() -> impl Iterator<Item = Known> {
    KNOWN.into_iter().filter(|known| known.port.is_some() || is_provider(known.name))
}

/// Whether models of this provider have its name, as `NAME/MODEL`.
pub(crate) fn is_provider(name: &str) -> bool {
    Engine::list(&format!("{name}/model")).is_ok()
}

/// How long a server on this machine has to accept a connection, and to list its models.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(200);
const LIST_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum size of the list.
const MAX_LIST_BYTES: u64 = 1024 * 1024;

impl Known {
    /// Returns the address of a server of this machine.
    pub(crate) fn address(&self) -> Option<String> {
        self.port.map(|port| format!("http://127.0.0.1:{port}/v1"))
    }

    /// Returns the models of a server that runs on this machine. `None` if none listens on its usual port, or something else does.
    pub(crate) fn running(&self) -> Option<Vec<String>> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port?));
        let mut connection = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).ok()?;
        connection.set_read_timeout(Some(LIST_TIMEOUT)).ok()?;
        // The answer of HTTP/1.0 ends with the connection and has no chunks.
        connection.write_all(b"GET /v1/models HTTP/1.0\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n\r\n").ok()?;
        let mut answer = String::new();
        connection.take(MAX_LIST_BYTES).read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let is_good = head.split_whitespace().nth(1) == Some("200");
        let list: Value = serde_json::from_str(body).ok().filter(|_| is_good)?;
        let models = list.get("data")?.as_array()?.iter();
        Some(models.filter_map(|model| model.get("id")?.as_str().map(str::to_owned)).collect())
    }
}
