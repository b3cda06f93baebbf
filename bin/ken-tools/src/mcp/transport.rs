//! The pipes to a server, with one JSON-RPC message per line. The server is not trusted, so the length of a line and
//! the number of lines per second are limited.

use std::collections::VecDeque;
use std::io::{Error, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::RoleClient;
use rmcp::model::{ErrorCode, ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::Notify;
use tokio::time::Instant;

/// The maximum length of a line, in bytes.
pub(crate) const MAX_LINE_BYTES: usize = 4 * 1024 * 1024;
/// The maximum number of lines and bytes that a server can write per second. A server that writes more is ended.
const MAX_LINES_PER_SECOND: u32 = 1_000;
const MAX_BYTES_PER_SECOND: usize = 32 * 1024 * 1024;
const SECOND: Duration = Duration::from_secs(1);
/// The time limit for the server to read a message.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why this side closes the connection. Clones share it, and only the first reason that is set counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reason(Arc<Closed>);

#[derive(Debug, Default)]
struct Closed {
    why: Mutex<Option<String>>,
    closed: Notify,
}

impl Reason {
    pub(crate) fn set(&self, why: impl Into<String>) {
        self.0.why.lock().get_or_insert_with(|| why.into());
    }

    /// Wakes the task that waits in `closed`, because no more messages will arrive.
    pub(crate) fn close(&self) {
        self.0.closed.notify_one();
    }

    pub(crate) async fn closed(&self) {
        self.0.closed.notified().await;
    }

    pub(crate) fn get(&self) -> Option<String> {
        self.0.why.lock().clone()
    }
}

/// The pipes of a server.
pub(crate) struct Lines {
    from: BufReader<ChildStdout>,
    to: Arc<tokio::sync::Mutex<Option<ChildStdin>>>,
    /// The line that is being read. It is stored here because a read can be cancelled at any point.
    line: Vec<u8>,
    /// The rest of the messages of the last line.
    read: VecDeque<RxJsonRpcMessage<RoleClient>>,
    since: Instant,
    lines: u32,
    bytes: usize,
    /// Whether a message has arrived.
    has_spoken: bool,
    reason: Reason,
}

impl Lines {
    pub(crate) fn new(from: ChildStdout, to: ChildStdin, reason: Reason) -> Lines {
        Lines {
            from: BufReader::new(from),
            to: Arc::new(tokio::sync::Mutex::new(Some(to))),
            line: Vec::new(),
            read: VecDeque::new(),
            since: Instant::now(),
            lines: 0,
            bytes: 0,
            has_spoken: false,
            reason,
        }
    }

    /// Returns the next line, or `None` at the end or after an error, which then becomes the reason. This function is
    /// cancel safe.
    async fn next_line(&mut self) -> Option<Vec<u8>> {
        loop {
            let (taken, is_whole) = match self.from.fill_buf().await {
                Ok([]) => return None,
                Err(error) => {
                    self.reason.set(format!("its output cannot be read: {error}"));
                    return None;
                }
                Ok(bytes) => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let taken = end.map_or(bytes.len(), |end| end + 1);
                    self.line.extend(bytes.iter().take(taken));
                    (taken, end.is_some())
                }
            };
            self.from.consume(taken);
            if self.line.len() > MAX_LINE_BYTES {
                self.reason.set(format!("it wrote a line of more than {MAX_LINE_BYTES} bytes"));
                return None;
            }
            if self.is_flood(taken, is_whole) {
                let most = format!("{MAX_LINES_PER_SECOND} lines or {MAX_BYTES_PER_SECOND} bytes");
                self.reason.set(format!("it wrote more than {most} in a second"));
                return None;
            }
            if is_whole {
                return Some(std::mem::take(&mut self.line));
            }
        }
    }

    fn is_flood(&mut self, bytes: usize, is_line: bool) -> bool {
        if self.since.elapsed() > SECOND {
            (self.since, self.lines, self.bytes) = (Instant::now(), 0, 0);
        }
        self.lines += u32::from(is_line);
        self.bytes += bytes;
        self.lines > MAX_LINES_PER_SECOND || self.bytes > MAX_BYTES_PER_SECOND
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.reason.close();
    }
}

impl Transport<RoleClient> for Lines {
    type Error = Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static {
        let (to, reason) = (self.to.clone(), self.reason.clone());
        async move {
            let mut line = serde_json::to_vec(&message).map_err(Error::other)?;
            line.push(b'\n');
            let mut to = to.lock().await;
            let pipe = to.as_mut().ok_or_else(|| Error::from(ErrorKind::NotConnected))?;
            let write = async {
                pipe.write_all(&line).await?;
                pipe.flush().await
            };
            let written = tokio::time::timeout(WRITE_TIMEOUT, write).await;
            written.unwrap_or_else(|_| {
                // The pipe may hold half of the message, to which the next one would be added. So there is no next one.
                drop(to.take());
                reason.set("it does not read what it is sent");
                reason.close();
                Err(Error::from(ErrorKind::TimedOut))
            })
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            if let Some(message) = self.read.pop_front() {
                self.has_spoken = true;
                return Some(message);
            }
            let line = self.next_line().await?;
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_ascii().as_bytes();
            // Many programs also print other text on standard output. Lines that start neither a JSON object nor a batch of
            // them (version 2025-03-26 of the protocol) are ignored.
            let is_batch = line.strip_prefix(b"[").is_some_and(|rest| rest.trim_ascii_start().starts_with(b"{"));
            if !line.starts_with(b"{") && !is_batch {
                continue;
            }
            match messages(line) {
                Ok(messages) => self.read.extend(messages),
                // Before its first message, a server may print anything, such as its settings in braces. Later, a broken
                // line can be the answer for which a call waits. A broken batch is rather a list that a program prints.
                Err(_) if !self.has_spoken || is_batch => {}
                Err(why) => {
                    self.reason.set(why);
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Error> {
        drop(self.to.lock().await.take());
        Ok(())
    }
}

/// Parses the messages of a line, one or a batch, and redacts the secrets of this part, which a server could repeat.
fn messages(line: &[u8]) -> Result<Vec<RxJsonRpcMessage<RoleClient>>, String> {
    let value = ken_types::json::parse_output(line, 64)
        .map_err(|error| format!("it wrote broken JSON: {}", ken_service::redacted(error.message)))?;
    let values = match ken_service::redacted_value(value) {
        Value::Array(batch) => batch,
        one => vec![one],
    };
    Ok(values.into_iter().filter_map(message).collect())
}

/// Reads a message. A malformed response becomes an error with its id, so that its caller does not wait forever. Any other
/// malformed message is ignored (`None`).
fn message(value: Value) -> Option<RxJsonRpcMessage<RoleClient>> {
    let id = match (value.get("method"), value.get("id")) {
        (None, Some(id)) => serde_json::from_value::<RequestId>(id.clone()).ok(),
        _ => None,
    };
    serde_json::from_value(value).ok().or_else(|| {
        let what = "the answer is not one of the Model Context Protocol";
        Some(JsonRpcMessage::error(ErrorData::new(ErrorCode::INVALID_REQUEST, what, None), Some(id?)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_none_is_an_error_with_its_id() {
        let read = |line: &str| messages(line.as_bytes());
        let one = |line: &str| read(line).unwrap().pop();
        assert!(matches!(one(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#), Some(JsonRpcMessage::Response(_))));
        assert!(one(r#"{"jsonrpc":"2.0","id":1,"result":{"content":7}}"#).is_some());
        assert!(matches!(one(r#"{"jsonrpc":"2.0","id":1,"outcome":7}"#), Some(JsonRpcMessage::Error(_))));
        assert!(one(r#"{"jsonrpc":"3.0","method":7}"#).is_none());
        let batch = r#"[{"jsonrpc":"2.0","id":1,"result":{}}, 7, [], {"a": 1}, {"jsonrpc":"2.0","id":2,"outcome":7}]"#;
        assert!(matches!(read(batch).unwrap()[..], [JsonRpcMessage::Response(_), JsonRpcMessage::Error(_)]));
        // The call has been made, so its answer is not lost.
        let text = r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"a\u0000b"}]}}"#;
        assert!(serde_json::to_string(&one(text)).unwrap().contains("a␀b"));
        assert!(read(r#"{"jsonrpc": "#).unwrap_err().contains("broken JSON"));
    }
}
