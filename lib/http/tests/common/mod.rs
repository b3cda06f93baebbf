//! A listener of its own for each test, and a client that sees every byte.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)] // each test uses a part of it

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use ken_http::{
    Access, Area, Caller, Failure, Files, Frames, Limiter, Limits, Media, Outlet, Rate, Request, Response, Routes,
    Server, typed,
};
use ken_types::Error;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};

/// What the functions of the test table share.
#[derive(Default)]
pub struct App {
    /// Waiting functions go on when told.
    pub go: Notify,
    pub waiting: AtomicUsize,
    pub ended: AtomicUsize,
    pub frames: AtomicUsize,
    /// Of the streams that others write to.
    pub outlets: Mutex<Vec<Outlet>>,
}

/// Counts a function or a producer as long as it lives.
struct Alive<'a>(&'a App);

impl<'a> Alive<'a> {
    fn new(app: &'a App) -> Alive<'a> {
        app.waiting.fetch_add(1, SeqCst);
        Alive(app)
    }
}

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, SeqCst);
        self.0.ended.fetch_add(1, SeqCst);
    }
}

async fn health(_: Arc<App>, _: Request) -> Result<Response, Failure> {
    Response::json(200, &json!({"ok": true}))
}

async fn echo(_: Arc<App>, mut request: Request) -> Result<Response, Failure> {
    let value = request.value().await?;
    Response::json(200, &value)
}

async fn pause(_: Arc<App>, mut request: Request) -> Result<Response, Failure> {
    request.no_fields().await?;
    Response::json(200, &json!({"paused": true}))
}

async fn count(_: Arc<App>, mut request: Request) -> Result<Response, Failure> {
    let body = request.body().await?;
    Response::json(200, &json!({"bytes": body.len()}))
}

async fn unread(_: Arc<App>, _: Request) -> Result<Response, Failure> {
    Err(Error::conflict("not now").into())
}

async fn defect(_: Arc<App>, _: Request) -> Result<Response, Failure> {
    Err(Error::internal("the password is hunter2").into())
}

async fn list(_: Arc<App>, request: Request) -> Result<Response, Failure> {
    let limit = request.query()?.number("limit", 1..=100, 50)?;
    Response::json(200, &json!({"limit": limit, "path": request.segment("id")}))
}

async fn who(_: Arc<App>, request: Request) -> Result<Response, Failure> {
    let caller = match request.caller() {
        Caller::Local { .. } => "Local",
        Caller::Operator => "Operator",
        Caller::Anyone => "Anyone",
    };
    Response::json(200, &caller)
}

async fn nothing(_: Arc<App>, _: Request) -> Result<Response, Failure> {
    Ok(Response::empty(204))
}

async fn cancelled(_: Arc<App>, _: Request) -> Result<Response, Failure> {
    Err(Failure::from(Error::cancelled("the turn was cancelled")).with("result", Value::Null))
}

/// A prompt that waits: 200 when the work is done, 202 when the listener ends first.
async fn wait(app: Arc<App>, mut request: Request) -> Result<Response, Failure> {
    let _place = request.hold()?;
    let _alive = Alive::new(&app);
    request.body().await?;
    let mut shutdown = request.shutdown();
    tokio::select! {
        () = app.go.notified() => Response::json(200, &json!({"done": true})),
        () = shutdown.requested() => Response::json(202, &json!({"status": "running"})),
    }
}

async fn sleep(_: Arc<App>, request: Request) -> Result<Response, Failure> {
    let ms = request.query()?.number("ms", 0..=60_000, 0)?;
    tokio::time::sleep(Duration::from_millis(ms)).await;
    Response::json(200, &ms)
}

/// `count` frames of `size` bytes, then it waits for the end of the listener and says so.
async fn events(app: Arc<App>, request: Request) -> Result<Response, Failure> {
    let place = request.hold()?;
    let query = request.query()?;
    let count = query.number("count", 0..=u64::MAX, 0)?;
    let size = query.number("size", 0..=16 << 20, 10)? as usize;
    let open = query.has("open");
    let mut shutdown = request.shutdown();
    Ok(Response::events(move |mut frames: Frames| async move {
        let _place = place;
        let _alive = Alive::new(&app);
        for _ in 0..count {
            frames.send("d".repeat(size)).await;
            app.frames.fetch_add(1, SeqCst);
        }
        if open {
            shutdown.requested().await;
            frames.send("event: control\n").await;
        }
    }))
}

/// One frame, then whatever others write, and one more when told.
async fn shared(app: Arc<App>, request: Request) -> Result<Response, Failure> {
    let outlet = request.outlet();
    Ok(Response::events(move |mut frames: Frames| async move {
        let _alive = Alive::new(&app);
        frames.send("first").await;
        app.outlets.lock().push(outlet);
        app.go.notified().await;
        frames.send("last").await;
    }))
}

async fn agent(_: Arc<App>, mut request: Request) -> Result<Response, Failure> {
    if request.segment("name") != "orchestrator" {
        return Err(Failure::from(Error::not_found("no such agent")).kind("agent_not_found"));
    }
    let value = request.value().await?;
    Response::json(202, &json!({"id": request.segment("id"), "body": value}))
}

fn table() -> Routes<App> {
    let few = Arc::new(Limiter::new(Rate::per_minute(3)));
    let guarded = |first| Area { guarded: true, ..Area::below(first) };
    Routes::new()
        .area(guarded("api"))
        .area(Area { media: Media::StrictJson, envelope: typed, body_limit: 16 << 20, ..guarded("agents") })
        .area(Area { media: Media::Any, envelope: typed, ..guarded("streams") })
        .on("GET     /health", health)
        .on("GET     /nothing", nothing)
        .on("POST    /api/echo", echo)
        .on("POST    /api/pause", pause)
        .on("POST    /api/count", count)
        .on("POST    /api/unread", unread)
        .on("GET     /api/defect", defect)
        .on("GET     /api/who", who)
        .on("GET     /api/wait", wait)
        .on("POST    /api/wait", wait)
        .on("GET     /api/sleep", sleep)
        .on("GET     /api/events", events)
        .on("GET     /api/shared", shared)
        .on("GET     /api/few", health)
        .limited(&few)
        .on("GET     /api/cancelled", cancelled)
        .on("GET     /api/items/:id", list)
        .on("GET     /api/items/special", health)
        .on("POST    /agents/:name/:id", agent)
        .on("PUT     /streams/*path", count)
}

/// A listener on a free port, ended with the value.
pub struct Running {
    pub address: SocketAddr,
    pub app: Arc<App>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

pub fn start() -> Running {
    start_with(|_| {}, |server| server)
}

pub fn start_limited(set: impl FnOnce(&mut Limits)) -> Running {
    start_with(set, |server| server)
}

/// A listener that also serves the files of a folder.
pub fn start_files(folder: PathBuf) -> Running {
    let headers = &[("content-security-policy", "default-src 'self'"), ("referrer-policy", "no-referrer")];
    let files = Arc::new(Files::new(folder, headers, "1.2"));
    let routes = table().otherwise(move |_, request| {
        let files = files.clone();
        async move { files.answer(&request).await }
    });
    start_table(routes, |_| {}, |server| server)
}

pub fn start_with(set: impl FnOnce(&mut Limits), build: impl FnOnce(Server<App>) -> Server<App>) -> Running {
    start_table(table(), set, build)
}

fn start_table(
    routes: Routes<App>,
    set: impl FnOnce(&mut Limits),
    build: impl FnOnce(Server<App>) -> Server<App>,
) -> Running {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let app = Arc::new(App::default());
    let mut limits = Limits { drain: Duration::from_secs(5), linger: Duration::from_secs(1), ..Limits::default() };
    set(&mut limits);
    let server = build(Server { access: Access::new(Some("s3cret")), limits, ..Server::new(routes, app.clone()) });
    let (stop, stopped) = oneshot::channel::<()>();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let stopped = async move {
            let _ = stopped.await;
        };
        runtime.block_on(server.run(socket, stopped)).unwrap();
    });
    Running { address, app, stop: Some(stop), thread: Some(thread) }
}

impl Running {
    pub fn connect(&self) -> Client {
        Client::new(TcpStream::connect(self.address).unwrap())
    }

    /// A connection from another loopback address.
    pub fn connect_from(&self, address: &str) -> Client {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let stream = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind((address.parse::<std::net::Ipv4Addr>().unwrap(), 0).into()).unwrap();
            socket.connect(self.address).await.unwrap().into_std().unwrap()
        });
        stream.set_nonblocking(false).unwrap();
        Client::new(stream)
    }

    /// One request on a connection of its own.
    pub fn ask(&self, request: &str) -> Answer {
        let mut client = self.connect();
        client.send(request);
        client.answer()
    }

    pub fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    pub fn post(&self, path: &str, body: &str) -> Answer {
        self.ask(&post(path, body))
    }

    /// Begins to drain; [`Running::join`] waits for the end.
    pub fn stop(&mut self) {
        self.stop.take();
    }

    pub fn join(mut self) {
        self.stop.take();
        self.thread.take().unwrap().join().unwrap();
    }

    /// Waits until so many functions or producers are at work.
    pub fn until_waiting(&self, count: usize) {
        until(|| self.app.waiting.load(SeqCst) == count);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.take();
    }
}

pub fn until(mut holds: impl FnMut() -> bool) {
    for _ in 0..5_000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("did not come true in 10 s");
}

pub fn post(path: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// A client that reads answers from a raw connection.
pub struct Client {
    pub stream: TcpStream,
    bytes: Vec<u8>,
}

/// One answer as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub version: String,
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Client {
    pub fn new(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, bytes: Vec::new() }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends as far as the peer takes it.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref());
    }

    pub fn shut_write(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    pub fn answer(&mut self) -> Answer {
        self.answer_to("GET")
    }

    /// Reads one answer; one to HEAD has no body.
    pub fn answer_to(&mut self, method: &str) -> Answer {
        let mut answer = self.head();
        let has_body = method != "HEAD" && !matches!(answer.status, 204 | 304) && answer.status >= 200;
        if has_body {
            answer.body = self.body(&answer);
        }
        answer
    }

    pub fn head(&mut self) -> Answer {
        let end = loop {
            if let Some(end) = find(&self.bytes, b"\r\n\r\n") {
                break end + 4;
            }
            assert!(self.more(), "the connection ended inside a head: {:?}", String::from_utf8_lossy(&self.bytes));
        };
        let head: Vec<u8> = self.bytes.drain(..end).collect();
        Answer::parse(std::str::from_utf8(&head).unwrap())
    }

    fn body(&mut self, answer: &Answer) -> Vec<u8> {
        match (answer.header("transfer-encoding"), answer.header("content-length")) {
            (Some("chunked"), None) => self.chunks(),
            (None, Some(length)) => self.exactly(length.parse().unwrap()),
            (None, None) => self.rest(),
            _ => panic!("two ways to end a body: {answer:?}"),
        }
    }

    pub fn exactly(&mut self, length: usize) -> Vec<u8> {
        while self.bytes.len() < length {
            assert!(self.more(), "the connection ended inside a body");
        }
        self.bytes.drain(..length).collect()
    }

    /// One chunk; empty for the last.
    pub fn chunk(&mut self) -> Vec<u8> {
        let end = loop {
            if let Some(end) = find(&self.bytes, b"\r\n") {
                break end;
            }
            assert!(self.more(), "the connection ended inside a chunk");
        };
        let line: Vec<u8> = self.bytes.drain(..end + 2).collect();
        let size = usize::from_str_radix(std::str::from_utf8(&line[..end]).unwrap(), 16).unwrap();
        let mut data = self.exactly(size + 2);
        data.truncate(size);
        data
    }

    fn chunks(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let chunk = self.chunk();
            if chunk.is_empty() {
                return all;
            }
            all.extend(chunk);
        }
    }

    /// Everything up to the end of the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.more() {}
        std::mem::take(&mut self.bytes)
    }

    /// Whether the peer has ended the connection, and properly so.
    pub fn is_ended(&mut self) -> bool {
        self.bytes.is_empty() && !self.more()
    }

    /// Whether the peer has ended the connection, in whatever way.
    pub fn is_closed(&mut self) -> bool {
        match self.stream.read(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }

    fn more(&mut self) -> bool {
        let mut buffer = [0; 65_536];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(count) => {
                    self.bytes.extend(&buffer[..count]);
                    return count > 0;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("the connection broke: {error}"),
            }
        }
    }
}

impl Answer {
    fn parse(head: &str) -> Answer {
        let mut lines = head.trim_end().split("\r\n");
        let status_line = lines.next().unwrap();
        let mut words = status_line.split(' ');
        let version = words.next().unwrap().to_owned();
        let status = words.next().unwrap().parse().unwrap();
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_ascii_lowercase(), value.trim().to_owned())
        });
        Answer { version, status, headers: headers.collect(), body: Vec::new() }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(key, _)| key == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} is there twice: {self:?}");
        value
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts what every answer has.
    pub fn checked(self) -> Answer {
        let id = self.header("x-request-id").unwrap_or_else(|| panic!("no id: {self:?}"));
        assert!(!id.is_empty());
        assert_eq!(self.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(self.header("cross-origin-resource-policy"), Some("same-origin"));
        assert!(self.header("cache-control").is_some());
        self
    }

    /// Asserts an error in the plain envelope, and says at what.
    pub fn error(&self, status: u16, code: &str) -> Option<String> {
        assert_eq!(self.status, status, "{self:?} {}", String::from_utf8_lossy(&self.body));
        assert_eq!(self.header("content-type"), Some("application/json"));
        let body = self.clone().checked().json();
        assert_eq!(body["code"], code, "{body}");
        assert!(body["error"].as_str().is_some_and(|text| !text.is_empty()), "{body}");
        body["at"].as_str().map(str::to_owned)
    }

    /// Asserts an error in the typed envelope.
    pub fn typed_error(&self, status: u16, kind: &str) {
        assert_eq!(self.status, status, "{self:?} {}", String::from_utf8_lossy(&self.body));
        let body = self.clone().checked().json();
        assert_eq!(body["error"]["type"], kind, "{body}");
        assert!(body["error"]["message"].is_string() && body["error"]["details"].is_string(), "{body}");
        assert!(body["error"]["meta"].is_object(), "{body}");
    }
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}
