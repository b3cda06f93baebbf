//! A server on loopback, with and without TLS. It serves git repositories through git's own HTTP back end, and a page
//! that shows the request.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The `Authorization` headers of the requests, in order.
type Keys = Arc<Mutex<Vec<Option<String>>>>;

pub(crate) struct Server {
    pub(crate) plain: SocketAddr,
    pub(crate) secure: SocketAddr,
    keys: Keys,
    server: Arc<tiny_http::Server>,
    _runtime: tokio::runtime::Runtime,
}

/// The certificate that clients of [`Server::secure`] must trust.
pub(crate) fn certificate() -> PathBuf {
    beside("localhost.pem")
}

fn beside(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/coder/common").join(name)
}

impl Server {
    /// Serves the bare repositories below a folder.
    pub(crate) fn start(repositories: &Path) -> Server {
        let server = Arc::new(tiny_http::Server::http("127.0.0.1:0").unwrap());
        let plain = server.server_addr().to_ip().unwrap();
        let keys = Keys::default();
        for _ in 0..4 {
            let (server, keys, folder) = (server.clone(), keys.clone(), repositories.to_owned());
            std::thread::spawn(move || {
                while let Ok(request) = server.recv() {
                    answer(request, &folder, &keys);
                }
            });
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let secure = listener.local_addr().unwrap();
        runtime.spawn(accept(listener, plain));
        Server { plain, secure, keys, server, _runtime: runtime }
    }

    pub(crate) fn keys(&self) -> Vec<Option<String>> {
        self.keys.lock().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for _ in 0..4 {
            self.server.unblock();
        }
    }
}

/// Accepts TLS connections and forwards their decrypted content to `to`.
async fn accept(listener: tokio::net::TcpListener, to: SocketAddr) {
    let certificates = CertificateDer::pem_file_iter(certificate()).unwrap();
    let key = PrivateKeyDer::from_pem_file(beside("localhost.key")).unwrap();
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(certificates.map(Result::unwrap).collect(), key)
        .unwrap();
    let tls = TlsAcceptor::from(Arc::new(config));
    while let Ok((connection, _)) = listener.accept().await {
        let tls = tls.clone();
        tokio::spawn(async move {
            if let (Ok(mut inside), Ok(mut plain)) =
                (tls.accept(connection).await, tokio::net::TcpStream::connect(to).await)
            {
                let _ = tokio::io::copy_bidirectional(&mut inside, &mut plain).await;
            }
        });
    }
}

/// Sends the key back in a header, and in a body whose chunks have one byte each.
fn repeat(to: &mut dyn Write, key: &str) -> std::io::Result<()> {
    write!(to, "HTTP/1.1 200 {key}\r\nx-sent: {key}\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n")?;
    let token = key.split_once(' ').unwrap().1;
    for byte in format!("sent {key}, {token} and Bearer no more\n").bytes() {
        to.write_all(&[b'1', b'\r', b'\n', byte, b'\r', b'\n'])?;
        to.flush()?;
    }
    to.write_all(b"0\r\n\r\n")?;
    to.flush()
}

/// Sends the key back as a part of a file, if the request names a part.
fn repeat_in_part(to: &mut dyn Write, (key, part): (&str, Option<&str>)) -> std::io::Result<()> {
    let text = format!("sent {key}\n");
    let ends = part.and_then(|part| part.strip_prefix("bytes=")?.split_once('-'));
    let ends = ends.and_then(|(from, to)| Some((from.parse::<usize>().ok()?, to.parse::<usize>().ok()?)));
    let (status, text) = match ends.and_then(|(from, to)| text.get(from..=to)) {
        Some(text) => (206, text),
        None => (200, text.as_str()),
    };
    let length = text.len();
    write!(to, "HTTP/1.1 {status} OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{text}")?;
    to.flush()
}

fn answer(mut request: tiny_http::Request, folder: &Path, keys: &Keys) {
    let header = |name: &'static str| {
        let mut headers = request.headers().iter();
        headers.find(|header| header.field.equiv(name)).map(|header| header.value.to_string())
    };
    keys.lock().push(header("Authorization"));
    let url = request.url().to_owned();
    let (path, query) = url.split_once('?').unwrap_or((&url, ""));
    if path == "/show" {
        let shown: Vec<String> = request.headers().iter().map(|header| format!("{header}")).collect();
        let _ = request.respond(tiny_http::Response::from_string(shown.join("\n")));
        return;
    }
    if let ("/repeat", Some(key)) = (path, header("Authorization")) {
        return repeat(&mut request.into_writer(), &key).unwrap();
    }
    if let ("/part", Some(key)) = (path, header("Authorization")) {
        let part = header("Range").or_else(|| header("X-Ms-Range"));
        return repeat_in_part(&mut request.into_writer(), (&key, part.as_deref())).unwrap();
    }
    if path == "/squeezed" {
        let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: gzip, chunked\r\n\r\n";
        let mut to = request.into_writer();
        to.write_all(format!("{head}2\r\nxy\r\n0\r\n\r\n").as_bytes()).unwrap();
        return to.flush().unwrap();
    }
    let mut backend = Command::new("git");
    backend
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", folder)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_CONFIG_COUNT", "2")
        .env("GIT_CONFIG_KEY_0", "safe.directory")
        .env("GIT_CONFIG_VALUE_0", "*")
        .env("GIT_CONFIG_KEY_1", "http.receivepack")
        .env("GIT_CONFIG_VALUE_1", "true")
        .env("REQUEST_METHOD", request.method().as_str())
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("CONTENT_TYPE", header("Content-Type").unwrap_or_default())
        .env("HTTP_CONTENT_ENCODING", header("Content-Encoding").unwrap_or_default());
    let mut child = backend.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut body = Vec::new();
    request.as_reader().read_to_end(&mut body).unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::spawn(move || stdin.write_all(&body));
    let output = child.wait_with_output().unwrap().stdout;
    let end = output.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&output[..end]).into_owned();
    let mut response = tiny_http::Response::from_data(&output[end + 4..]);
    for line in head.lines() {
        let (name, value) = line.split_once(": ").unwrap();
        match name {
            "Status" => response = response.with_status_code(value[..3].parse::<u16>().unwrap()),
            _ => response.add_header(tiny_http::Header::from_bytes(name, value).unwrap()),
        }
    }
    let _ = request.respond(response);
}
