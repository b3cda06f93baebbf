//! The editor at the other end: JSON-RPC 2.0, one message a line. Nothing else is written to standard output.

use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use ken_client::lines::{self, Line};
use ken_types::{Code, Error, json};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// The maximum length of a message, in bytes. A prompt can hold images.
const MAX_LINE_BYTES: usize = 16 << 20;
const PARSE_ERROR: i64 = -32_700;
pub(super) const INVALID_REQUEST: i64 = -32_600;
pub(super) const METHOD_NOT_FOUND: i64 = -32_601;
const INVALID_PARAMS: i64 = -32_602;
const INTERNAL_ERROR: i64 = -32_603;

/// What the editor has sent.
#[derive(Debug)]
pub(super) enum Message {
    Request { id: Value, method: String, params: Value },
    Notification { method: String, params: Value },
}

/// Writes messages, and matches the editor's answers to the requests that were made to it.
#[derive(Debug, Default)]
pub(super) struct Peer {
    last_id: AtomicU64,
    /// The requests that the editor has not answered.
    asked: Mutex<HashMap<u64, SyncSender<Value>>>,
}

/// A request that the editor has not answered yet.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    peer: &'a Peer,
    id: u64,
    answer: Receiver<Value>,
}

impl Asked<'_> {
    /// Returns the result, if it has come. An error of the editor is null.
    pub(super) fn result(&self) -> Option<Value> {
        self.answer.try_recv().ok()
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.peer.asked.lock().remove(&self.id);
    }
}

impl Peer {
    /// Sends the editor an update of a session.
    pub(super) fn update(&self, session: &str, update: &Value) {
        let params = json!({"sessionId": session, "update": update});
        self.write(&json!({"jsonrpc": "2.0", "method": "session/update", "params": params}));
    }

    /// Sends the editor a piece of text of a session.
    pub(super) fn chunk(&self, session: &str, kind: &str, text: &str) {
        if !text.is_empty() {
            self.update(session, &json!({"sessionUpdate": kind, "content": {"type": "text", "text": text}}));
        }
    }

    pub(super) fn reply(&self, id: &Value, result: &Value) {
        self.write(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    pub(super) fn refuse(&self, id: &Value, code: i64, message: &str) {
        self.write(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}));
    }

    /// Replies with an error of ken.
    pub(super) fn fail(&self, id: &Value, error: &Error) {
        let code = match error.code {
            Code::Invalid | Code::NotFound | Code::Forbidden | Code::TooLarge => INVALID_PARAMS,
            _ => INTERNAL_ERROR,
        };
        let hint = error.hint.as_deref().map(|hint| format!(" ({hint})")).unwrap_or_default();
        self.refuse(id, code, &format!("{}{hint}", error.message));
    }

    /// Asks the editor something. The answer is looked for while other things go on.
    pub(super) fn ask(&self, method: &str, params: &Value) -> Asked<'_> {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = sync_channel(1);
        self.asked.lock().insert(id, sender);
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        Asked { peer: self, id, answer }
    }

    fn write(&self, message: &Value) {
        let mut out = io::stdout().lock();
        // If the editor is gone, standard input ends, too, and with it this program.
        _ = out.write_all(format!("{message}\n").as_bytes()).and_then(|()| out.flush());
    }

    /// Returns the next message; `None` at the end of the input. Answers of the editor go to those who wait for them, and lines
    /// that are no message are refused.
    pub(super) fn next(&self, input: &mut impl BufRead) -> io::Result<Option<Message>> {
        loop {
            let line = match lines::next(input, MAX_LINE_BYTES)? {
                None => return Ok(None),
                Some(Line::Whole(line)) => line,
                Some(Line::TooLong) => {
                    let message = format!("a message is longer than {MAX_LINE_BYTES} bytes");
                    self.refuse(&Value::Null, INVALID_REQUEST, &message);
                    continue;
                }
            };
            if line.trim_ascii().is_empty() {
                continue;
            }
            match json::parse(&line, json::MAX_DEPTH) {
                Err(error) => self.refuse(&Value::Null, PARSE_ERROR, &format!("not JSON: {}", error.message)),
                Ok(message) => {
                    if let Some(message) = self.sorted(message) {
                        return Ok(Some(message));
                    }
                }
            }
        }
    }

    fn sorted(&self, mut message: Value) -> Option<Message> {
        let id = message.get("id").cloned();
        let params = message.get_mut("params").map(Value::take).unwrap_or_else(|| json!({}));
        let is_id = |id: &Value| id.is_string() || id.is_i64() || id.is_u64();
        match (message.get("method").and_then(Value::as_str).map(str::to_owned), id) {
            (Some(method), Some(id)) if is_id(&id) => Some(Message::Request { id, method, params }),
            (Some(method), None) => Some(Message::Notification { method, params }),
            (None, Some(id)) if message.get("result").is_some() || message.get("error").is_some() => {
                let asked = id.as_u64().and_then(|id| self.asked.lock().remove(&id));
                if let Some(asked) = asked {
                    _ = asked.try_send(message.get_mut("result").map(Value::take).unwrap_or_default());
                }
                None
            }
            (_, id) => {
                let id = id.filter(is_id).unwrap_or_default();
                self.refuse(&id, INVALID_REQUEST, "a message has a method, or is an answer to a request");
                None
            }
        }
    }
}
