//! A stand-in for the web on loopback: pages by path, and three search services with JSON answers, which find every page
//! that has a title. It records the requests.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tiny_http::{Header, Request, Response, Server};

/// A response that is served at a path.
#[derive(Debug, Clone)]
pub struct Served {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Body,
    /// The title in search results. Without one, no search finds it.
    pub title: Option<String>,
    pub snippet: String,
}

#[derive(Debug, Clone)]
pub enum Body {
    Bytes(Vec<u8>),
    /// Endless paragraphs, until the caller disconnects.
    Endless,
    /// No response at all.
    Silence,
}

impl Served {
    /// A page that a search finds.
    pub fn page(title: &str, html: &str) -> Served {
        Served { title: Some(title.to_owned()), ..Served::hidden(html) }
    }

    /// A page that no search finds.
    pub fn hidden(html: &str) -> Served {
        Served {
            status: 200,
            headers: vec![("Content-Type", "text/html; charset=utf-8".to_owned())],
            body: Body::Bytes(html.as_bytes().to_vec()),
            title: None,
            snippet: String::new(),
        }
    }

    pub fn redirect(to: &str) -> Served {
        Served { status: 302, headers: vec![("Location", to.to_owned())], ..Served::hidden("") }
    }

    pub fn status(self, status: u16) -> Served {
        Served { status, ..self }
    }

    pub fn header(mut self, name: &'static str, value: &str) -> Served {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.to_owned()));
        self
    }

    pub fn body(self, body: Body) -> Served {
        Served { body, ..self }
    }

    pub fn snippet(self, snippet: &str) -> Served {
        Served { snippet: snippet.to_owned(), ..self }
    }
}

/// A request that was received.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    /// The path with its query.
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl ReceivedRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

#[derive(Debug, Default)]
struct Shared {
    pages: Mutex<BTreeMap<String, Served>>,
    received: Mutex<Vec<ReceivedRequest>>,
    over: AtomicBool,
}

/// The running server. It stops when it is dropped.
pub struct Pages {
    server: Arc<Server>,
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Pages {
    pub fn start() -> Pages {
        let server = Arc::new(Server::http("127.0.0.1:0").expect("a free port"));
        let address = server.server_addr().to_ip().expect("an address");
        let shared = Arc::new(Shared::default());
        let (accepting, known) = (server.clone(), shared.clone());
        let thread = std::thread::spawn(move || {
            for request in accepting.incoming_requests() {
                let known = known.clone();
                std::thread::spawn(move || answer(request, address, &known));
            }
        });
        Pages { server, address, shared, thread: Some(thread) }
    }

    /// Serves a response at a path. Replaces an earlier one.
    pub fn put(&self, path: &str, served: Served) -> &Pages {
        self.shared.pages.lock().insert(path.to_owned(), served);
        self
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// `127.0.0.1:PORT`, as `KEN_WEB_ALLOW` names it.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    pub fn received(&self) -> Vec<ReceivedRequest> {
        self.shared.received.lock().clone()
    }

    /// The number of requests for a path, with any query.
    pub fn count(&self, path: &str) -> usize {
        let of_path = |request: &&ReceivedRequest| request.path.split('?').next() == Some(path);
        self.shared.received.lock().iter().filter(of_path).count()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

fn answer(mut request: Request, address: SocketAddr, shared: &Shared) {
    let mut body = String::new();
    _ = request.as_reader().read_to_string(&mut body);
    let headers = request.headers().iter();
    let headers = headers.map(|header| (header.field.to_string().to_lowercase(), header.value.to_string()));
    let received = ReceivedRequest { path: request.url().to_owned(), headers: headers.collect(), body };
    let path = received.path.split('?').next().unwrap_or_default().to_owned();
    let served = shared.pages.lock().get(&path).cloned();
    let served = served.or_else(|| found(&path, &received, address, shared));
    shared.received.lock().push(received);
    let served = served.unwrap_or_else(|| Served::hidden("nothing is here").status(404));
    match served.body {
        Body::Bytes(bytes) => {
            let mut response = Response::from_data(bytes).with_status_code(served.status);
            for (name, value) in served.headers {
                response.add_header(Header::from_bytes(name, value).expect("a header"));
            }
            _ = request.respond(response);
        }
        Body::Endless => {
            let mut to = request.into_writer();
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<title>Endless</title>";
            _ = to.write_all(head.as_bytes());
            let paragraph = format!("<p>{}</p>", "More of the same. ".repeat(1_000));
            while !shared.over.load(Ordering::Relaxed) {
                if to.write_all(paragraph.as_bytes()).is_err() {
                    return;
                }
            }
        }
        Body::Silence => {
            while !shared.over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// The answer of a search service.
fn found(path: &str, request: &ReceivedRequest, address: SocketAddr, shared: &Shared) -> Option<Served> {
    let results = |text: &str| -> Vec<Value> {
        let pages = shared.pages.lock();
        let titled = pages.iter().filter_map(|(path, served)| Some((path, served, served.title.as_ref()?)));
        titled
            .map(|(path, served, title)| {
                let url = if path.contains("://") { path.clone() } else { format!("http://{address}{path}") };
                json!({"title": title, "url": url, text: served.snippet})
            })
            .collect()
    };
    let key = |name: &str, value: &str| request.header(name) == Some(value);
    let answer = match path {
        "/search" => json!({"results": results("content")}),
        "/res/v1/web/search" if key("x-subscription-token", "brave-key") => {
            json!({"web": {"results": results("description")}})
        }
        "/api/web_search" if key("authorization", "Bearer ollama-key") => {
            json!({"results": results("content")})
        }
        "/res/v1/web/search" | "/api/web_search" => return Some(Served::hidden("{}").status(401)),
        _ => return None,
    };
    Some(Served::hidden(&answer.to_string()).header("Content-Type", "application/json"))
}
