//! A stand-in for a messaging platform with the Telegram Bot API, on loopback: it records every call, accepts messages,
//! returns updates to callers that poll, and fails in the ways that a test chooses.
//!
//! It uses plain sockets, because it must be able to stop answering or to disconnect at any moment of an exchange.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};

pub const TOKEN: &str = "17:planted-bot-token";
pub const SECRET: &str = "planted-webhook-secret";

/// A failure with which a call is answered.
#[derive(Debug, Clone)]
pub enum InjectedFailure {
    /// `ok:false` with this code and text, and `retry_after` in seconds.
    Refuse(i64, &'static str, Option<u64>),
    /// The call has its effect, but the connection is closed without an answer.
    TakeAndClose,
    /// The call has its effect, but is never answered.
    TakeAndHang,
    /// The call is executed and answered after a delay.
    Slow(Duration),
    /// An answer with this status and a body that is not JSON, as a proxy sends it.
    Proxy(u16),
}

/// A call that was received.
#[derive(Debug, Clone)]
pub struct ReceivedCall {
    pub method: String,
    pub body: Value,
    pub at: Instant,
    /// Whether the call had its effect.
    pub done: bool,
    /// The id of the message that the call has sent, if it has sent one.
    pub sent: Option<i64>,
}

#[derive(Default)]
struct Shared {
    calls: Mutex<Vec<ReceivedCall>>,
    troubles: Mutex<HashMap<String, VecDeque<InjectedFailure>>>,
    /// The failure of every call of a method for which `troubles` has no entry.
    always: Mutex<HashMap<String, InjectedFailure>>,
    updates: Mutex<VecDeque<Value>>,
    message: AtomicI64,
    over: AtomicBool,
}

/// The running platform. It stops when it is dropped.
pub struct BotApi {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl BotApi {
    pub fn start() -> BotApi {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared::default());
        let known = shared.clone();
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if known.over.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let known = known.clone();
                std::thread::spawn(move || answer(stream, &known));
            }
        });
        BotApi { address, shared, thread: Some(thread) }
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the failure of the next call of a method. Failures that were set earlier are used first.
    pub fn next(&self, method: &str, trouble: InjectedFailure) {
        let mut troubles = self.shared.troubles.lock();
        troubles.entry(method.to_owned()).or_default().push_back(trouble);
    }

    /// Sets or removes the failure of all calls of a method.
    pub fn always(&self, method: &str, trouble: Option<InjectedFailure>) {
        let mut always = self.shared.always.lock();
        match trouble {
            Some(trouble) => always.insert(method.to_owned(), trouble),
            None => always.remove(method),
        };
    }

    /// Adds an update for callers that poll.
    pub fn push(&self, update: Value) {
        self.shared.updates.lock().push_back(update);
    }

    /// The calls of a method, in order.
    pub fn calls(&self, method: &str) -> Vec<ReceivedCall> {
        let calls = self.shared.calls.lock();
        calls.iter().filter(|call| call.method == method).cloned().collect()
    }

    /// The messages that a chat has received, in order.
    pub fn texts(&self, chat: i64) -> Vec<String> {
        let sent = self.calls("sendMessage").into_iter();
        sent.filter(|call| call.done && call.body["chat_id"] == chat)
            .map(|call| call.body["text"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// The texts of the messages in a chat, in order, after all edits.
    pub fn shown_texts(&self, chat: i64) -> Vec<String> {
        let mut shown = BTreeMap::new();
        let calls = self.shared.calls.lock();
        for call in calls.iter().filter(|call| call.done) {
            if call.body["chat_id"] != chat {
                continue;
            }
            let text = call.body["text"].as_str().unwrap_or_default().to_owned();
            let edited = call.body["message_id"].as_i64();
            if let ("sendMessage" | "editMessageText", Some(id)) = (call.method.as_str(), call.sent.or(edited)) {
                shown.insert(id, text);
            }
        }
        shown.into_values().collect()
    }
}

impl Drop for BotApi {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        // Wakes the listener, so that it sees the flag.
        _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// Reads one request and answers it.
fn answer(mut stream: TcpStream, shared: &Shared) {
    let Some((path, body)) = request(&stream) else {
        return;
    };
    let method = path.rsplit('/').next().unwrap_or_default().to_owned();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    if path != format!("/bot{TOKEN}/{method}") {
        let refusal = json!({"ok": false, "error_code": 401, "description": "Unauthorized"});
        return write(&mut stream, 401, &refusal.to_string());
    }
    let next = shared.troubles.lock().get_mut(&method).and_then(VecDeque::pop_front);
    let trouble = next.or_else(|| shared.always.lock().get(&method).cloned());
    if let Some(InjectedFailure::Slow(time)) = trouble {
        std::thread::sleep(time);
    }
    let malformed = (method == "sendMessage" && body["parse_mode"] == "HTML").then(|| wrong_entity(&body));
    let refused = matches!(trouble, Some(InjectedFailure::Refuse(..) | InjectedFailure::Proxy(_)));
    let done = !refused && malformed.flatten().is_none();
    let is_message = method == "sendMessage" && done;
    let sent = is_message.then(|| 100 + shared.message.fetch_add(1, Ordering::Relaxed));
    shared.calls.lock().push(ReceivedCall {
        method: method.clone(),
        body: body.clone(),
        at: Instant::now(),
        done,
        sent,
    });
    match trouble {
        Some(InjectedFailure::Refuse(code, description, retry_after)) => {
            let mut refusal = json!({"ok": false, "error_code": code, "description": description});
            if let Some(seconds) = retry_after {
                refusal["parameters"] = json!({"retry_after": seconds});
            }
            write(&mut stream, 400, &refusal.to_string());
        }
        Some(InjectedFailure::Proxy(status)) => write(&mut stream, status, "<html>Bad Gateway</html>"),
        Some(InjectedFailure::TakeAndClose) => {}
        Some(InjectedFailure::TakeAndHang) => {
            while !shared.over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        None | Some(InjectedFailure::Slow(_)) if done => {
            let result = result(&method, &body, sent, shared);
            write(&mut stream, 200, &json!({"ok": true, "result": result}).to_string());
        }
        _ => {
            let description = "Bad Request: can't parse entities: unsupported start tag";
            let refusal = json!({"ok": false, "error_code": 400, "description": description});
            write(&mut stream, 400, &refusal.to_string());
        }
    }
}

/// Returns `Some` if a text contains an HTML tag that the platform does not support.
fn wrong_entity(body: &Value) -> Option<()> {
    let text = body["text"].as_str().unwrap_or_default();
    let known = ["b>", "i>", "s>", "code", "pre>", "a ", "a>", "blockquote>"];
    let tags = text.split('<').skip(1).map(|tag| tag.trim_start_matches('/'));
    tags.into_iter().any(|tag| !known.iter().any(|known| tag.starts_with(known))).then_some(())
}

fn result(method: &str, body: &Value, sent: Option<i64>, shared: &Shared) -> Value {
    match method {
        "sendMessage" => {
            json!({"message_id": sent, "chat": {"id": body["chat_id"]}, "text": body["text"]})
        }
        "editMessageText" => json!({"message_id": body["message_id"]}),
        "getUpdates" => updates(body["offset"].as_i64().unwrap_or_default(), shared),
        _ => json!(true),
    }
}

/// Returns the updates from the offset on, and removes the ones before it. Waits a moment if there are none.
fn updates(offset: i64, shared: &Shared) -> Value {
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        let mut updates = shared.updates.lock();
        updates.retain(|update| update["update_id"].as_i64().unwrap_or_default() >= offset);
        if !updates.is_empty() || Instant::now() > end || shared.over.load(Ordering::Relaxed) {
            return updates.iter().cloned().collect();
        }
        drop(updates);
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn request(stream: &TcpStream) -> Option<(String, Vec<u8>)> {
    let mut from = BufReader::new(stream);
    let mut line = String::new();
    from.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if from.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().ok()?;
            }
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body).ok()?;
    Some((path, body))
}

fn write(stream: &mut TcpStream, status: u16, body: &str) {
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    _ = stream.write_all(head.as_bytes());
    _ = stream.write_all(body.as_bytes());
}
