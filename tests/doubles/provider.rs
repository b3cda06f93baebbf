//! A stand-in for a model provider on loopback. It answers requests with the replies of a script, in order, or with the
//! result of a function, and records the requests.

use std::collections::VecDeque;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tiny_http::{Header, Request, Response, Server};

/// One reply.
#[derive(Debug, Clone)]
pub enum Reply {
    /// An answer with this status, these headers and this body.
    Status(u16, Vec<(&'static str, String)>, String),
    /// An event stream. Each piece is one chunk.
    Stream(Vec<Piece>),
}

/// A piece of an event stream.
#[derive(Debug, Clone)]
pub enum Piece {
    Bytes(Vec<u8>),
    Pause(Duration),
    /// Waits until the test sets this.
    Until(Arc<AtomicBool>),
    /// Sends comments until the caller disconnects.
    UntilGone,
    /// Sends nothing more, and keeps the connection open.
    Silence,
    /// Sends an invalid chunk and closes the connection.
    Break,
}

/// A request that was received.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    pub method: String,
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// Null if the body is not JSON.
    pub body: Value,
    pub bytes: Vec<u8>,
}

impl ReceivedRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The content of the last message of the user in a chat request. The time before what the person has written, and what ken
    /// has found behind it, are left out of a text.
    pub fn prompt(&self) -> Value {
        let messages = self.body["messages"].as_array().expect("messages");
        let content =
            &messages.iter().rfind(|message| message["role"] == "user").expect("a message of the user")["content"];
        let Some(text) = content.as_str() else {
            return content.clone();
        };
        let text =
            text.strip_prefix("(The time").and_then(|text| text.split_once("\n\n")).map_or(text, |(_, text)| text);
        text.split_once("\n\nken has found this for the message above.").map_or(text, |(text, _)| text).into()
    }
}

/// A function that makes the reply to a request.
pub type Answering = Box<dyn Fn(&ReceivedRequest) -> Reply + Send + Sync>;

#[derive(Default)]
struct Shared {
    answering: Option<Answering>,
    replies: Mutex<VecDeque<Reply>>,
    received: Mutex<Vec<ReceivedRequest>>,
    gone: AtomicBool,
    over: AtomicBool,
}

/// The running provider. It stops when it is dropped.
pub struct Provider {
    server: Arc<Server>,
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Provider {
    pub fn start(replies: Vec<Reply>) -> Provider {
        let shared = Shared::default();
        shared.replies.lock().extend(replies);
        Provider::with(shared)
    }

    /// A provider whose reply depends only on the request, so that a repeated request gets the same reply.
    pub fn answering(answering: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static) -> Provider {
        Provider::with(Shared { answering: Some(Box::new(answering)), ..Shared::default() })
    }

    /// A provider at an address where nobody listens yet.
    pub fn answering_at(
        address: SocketAddr,
        answering: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static,
    ) -> Provider {
        Provider::at(address, Shared { answering: Some(Box::new(answering)), ..Shared::default() })
    }

    fn with(shared: Shared) -> Provider {
        Provider::at(SocketAddr::from(([127, 0, 0, 1], 0)), shared)
    }

    fn at(address: SocketAddr, shared: Shared) -> Provider {
        let server = Arc::new(Server::http(address).expect("a free port"));
        let address = server.server_addr().to_ip().expect("an address");
        let shared = Arc::new(shared);
        let (accepting, known) = (server.clone(), shared.clone());
        let thread = std::thread::spawn(move || {
            for request in accepting.incoming_requests() {
                let known = known.clone();
                // Each request has its own thread, so that one without an answer does not delay others.
                std::thread::spawn(move || answer(request, &known));
            }
        });
        Provider { server, address, shared, thread: Some(thread) }
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn push(&self, reply: Reply) {
        self.shared.replies.lock().push_back(reply);
    }

    pub fn received(&self) -> Vec<ReceivedRequest> {
        self.shared.received.lock().clone()
    }

    /// Whether a caller has disconnected during [`Piece::UntilGone`].
    pub fn is_gone(&self) -> bool {
        self.shared.gone.load(Ordering::Relaxed)
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

fn answer(mut request: Request, shared: &Shared) {
    let mut bytes = Vec::new();
    _ = request.as_reader().read_to_end(&mut bytes);
    let headers = request.headers().iter();
    let headers = headers.map(|header| (header.field.to_string().to_lowercase(), header.value.to_string()));
    let received = ReceivedRequest {
        method: request.method().to_string(),
        path: request.url().to_owned(),
        headers: headers.collect(),
        body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        bytes,
    };
    shared.received.lock().push(received.clone());
    let reply = match &shared.answering {
        Some(answering) => Some(answering(&received)),
        None => shared.replies.lock().pop_front(),
    };
    let reply = reply.unwrap_or_else(|| Reply::Status(500, Vec::new(), "no reply is scripted".into()));
    match reply {
        Reply::Status(status, headers, body) => {
            let mut response = Response::from_string(body).with_status_code(status);
            for (name, value) in headers {
                response.add_header(Header::from_bytes(name, value).expect("a header"));
            }
            _ = request.respond(response);
        }
        // tiny_http would buffer the stream, so the chunks are written directly.
        Reply::Stream(pieces) => _ = stream(&mut request.into_writer(), pieces, shared),
    }
}

fn stream(to: &mut dyn Write, pieces: Vec<Piece>, shared: &Shared) -> std::io::Result<()> {
    to.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")?;
    to.flush()?;
    let mut send = |bytes: &[u8]| {
        write!(to, "{:x}\r\n", bytes.len())?;
        to.write_all(bytes)?;
        to.write_all(b"\r\n")?;
        to.flush()
    };
    let is_over = || shared.over.load(Ordering::Relaxed);
    for piece in pieces {
        match piece {
            Piece::Bytes(bytes) => send(&bytes)?,
            Piece::Pause(time) => std::thread::sleep(time),
            Piece::Until(set) => {
                while !set.load(Ordering::Relaxed) && !is_over() {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            Piece::UntilGone => {
                while send(b": still here\n\n").is_ok() && !is_over() {
                    std::thread::sleep(Duration::from_millis(20));
                }
                shared.gone.store(!is_over(), Ordering::Relaxed);
                return Ok(());
            }
            Piece::Silence => {
                while !is_over() {
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            Piece::Break => {
                to.write_all(b"not a chunk\r\n")?;
                return to.flush();
            }
        }
    }
    to.write_all(b"0\r\n\r\n")?;
    to.flush()
}

fn frame(event: &Value) -> Piece {
    let text = match event["type"].as_str() {
        Some(kind) => format!("event: {kind}\ndata: {event}\n\n"),
        None => format!("data: {event}\n\n"),
    };
    Piece::Bytes(text.into_bytes())
}

/// An answer in the format of chat completions: texts as deltas, tool calls as `(id, name, arguments)`, and a usage of 9
/// input and 4 output tokens.
pub fn openai(texts: &[&str], calls: &[(&str, &str, &str)]) -> Vec<Piece> {
    let mut pieces = vec![frame(&json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}))];
    for text in texts {
        pieces.push(frame(&json!({"choices": [{"index": 0, "delta": {"content": text}}]})));
    }
    for (index, (id, name, arguments)) in calls.iter().enumerate() {
        let call = json!({"index": index, "id": id, "type": "function",
            "function": {"name": name, "arguments": arguments}});
        pieces.push(frame(&json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})));
    }
    let reason = if calls.is_empty() { "stop" } else { "tool_calls" };
    pieces.push(frame(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})));
    pieces.push(frame(
        &json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}}),
    ));
    pieces.push(Piece::Bytes(b"data: [DONE]\n\n".to_vec()));
    pieces
}

/// An answer in the format of Anthropic messages: texts as deltas of one block, tool calls as `(id, name, arguments)`,
/// and a usage of 9 input and 4 output tokens.
pub fn anthropic(texts: &[&str], calls: &[(&str, &str, &str)]) -> Vec<Piece> {
    let start = json!({"type": "message_start", "message": {"id": "msg_1", "role": "assistant",
        "usage": {"input_tokens": 9, "output_tokens": 1}}});
    let mut pieces = vec![frame(&start)];
    pieces.push(frame(
        &json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
    ));
    for text in texts {
        let delta = json!({"type": "text_delta", "text": text});
        pieces.push(frame(&json!({"type": "content_block_delta", "index": 0, "delta": delta})));
    }
    pieces.push(frame(&json!({"type": "content_block_stop", "index": 0})));
    for (index, (id, name, arguments)) in (1..).zip(calls) {
        let block = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
        pieces.push(frame(&json!({"type": "content_block_start", "index": index, "content_block": block})));
        let delta = json!({"type": "input_json_delta", "partial_json": arguments});
        pieces.push(frame(&json!({"type": "content_block_delta", "index": index, "delta": delta})));
        pieces.push(frame(&json!({"type": "content_block_stop", "index": index})));
    }
    let reason = if calls.is_empty() { "end_turn" } else { "tool_use" };
    let usage = json!({"output_tokens": 4});
    pieces.push(frame(&json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage})));
    pieces.push(frame(&json!({"type": "message_stop"})));
    pieces
}

/// Puts other token counts into an answer of either format: in OpenAI's all of them, in Anthropic's those of its start.
pub fn with_usage(pieces: Vec<Piece>, usage: &Value) -> Vec<Piece> {
    let counted = |piece: Piece| match piece {
        Piece::Bytes(bytes) => {
            let text = String::from_utf8(bytes).expect("a text");
            let event = text.lines().find_map(|line| line.strip_prefix("data: "));
            match event.and_then(|event| serde_json::from_str::<Value>(event).ok()) {
                Some(mut event) if event["message"]["usage"].is_object() => {
                    event["message"]["usage"] = usage.clone();
                    frame(&event)
                }
                Some(mut event) if event["choices"] == json!([]) => {
                    event["usage"] = usage.clone();
                    frame(&event)
                }
                _ => Piece::Bytes(text.into_bytes()),
            }
        }
        other => other,
    };
    pieces.into_iter().map(counted).collect()
}

/// An error in OpenAI's format.
pub fn refusal(status: u16, headers: Vec<(&'static str, String)>, code: &str, message: &str) -> Reply {
    let body = json!({"error": {"message": message, "type": "error", "code": code}});
    Reply::Status(status, headers, body.to_string())
}
