//! Servers of models that run on this machine, as `ken setup` offers them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ken_types::providers::KnownProvider;
use serde_json::Value;

/// How long a server on this machine has to accept a connection, and to list its models.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(200);
const LIST_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum size of the list.
const MAX_LIST_BYTES: u64 = 1024 * 1024;

/// Returns the models of a server that runs on this machine. `None` if none listens on its usual port, or something else does.
pub(crate) fn running(known: &KnownProvider) -> Option<Vec<String>> {
    let address = known.base_url?.strip_prefix("http://")?.split('/').next()?.parse::<SocketAddr>().ok()?;
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
