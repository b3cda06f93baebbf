//! HTTP connections to a provider or a collector. Each call blocks a separate thread and has its own connection, so that
//! it can be cancelled alone: whoever waits for it holds a [`Connection`], and the call ends when that is dropped.

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::time::Duration;

use ken_tls::roots;
use ken_types::Error;
use ken_types::uri::host_of;
use parking_lot::Mutex;
use ureq::config::Config;
use ureq::http::Response;
use ureq::tls::TlsConfig;
use ureq::{Agent, Body, BodyReader, Proxy, RequestBuilder};

use crate::breaker::{Failed, Fault};

/// A host that does not accept a connection within this time is taken for down, and the next model is called.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a provider may send nothing, both before its answer begins and during the answer.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(120);
/// How long the end of a response is waited for when its content is complete. Without its end, the connection cannot be
/// used again, but a server may keep the response open.
pub(crate) const END_TIMEOUT: Duration = Duration::from_millis(250);
/// The maximum number of connections of a provider that are kept for later calls.
const MAX_IDLE: usize = 3;
/// The maximum size of an answer that is not streamed, and of the body of an error, in bytes.
const MAX_BODY_BYTES: u64 = 16 * 1024 * 1024;
const ERROR_BYTES: u64 = 64 * 1024;

/// Makes the calls of one provider, and keeps its connections open between them.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    config: Arc<Config>,
    idle: Arc<Mutex<Vec<Agent>>>,
}

impl Http {
    /// A provider may send nothing for `timeout_ms` of its table, else for `KEN_MODEL_TIMEOUT_MS`, else for two minutes. The trusted
    /// root certificates are those in `SSL_CERT_FILE`, or else those of Mozilla.
    pub(crate) fn of_provider(timeout_ms: Option<u64>, proxy: Option<Proxy>) -> Result<Http, Error> {
        const TIMEOUT: &str = "KEN_MODEL_TIMEOUT_MS";
        let silence = match (timeout_ms, std::env::var(TIMEOUT)) {
            (Some(ms), _) => Duration::from_millis(ms),
            (None, Ok(text)) if !text.is_empty() => {
                let wrong = |_| Error::invalid(TIMEOUT, format!("{text:?} is not a number of milliseconds"));
                Duration::from_millis(text.parse().map_err(wrong)?)
            }
            _ => SILENCE_TIMEOUT,
        };
        Http::new(silence, proxy)
    }

    /// Lets a server send nothing for at most this time.
    pub(crate) fn new(silence: Duration, proxy: Option<Proxy>) -> Result<Http, Error> {
        // The proxy looks up the name of the host, and connects to it.
        let connect = if proxy.is_some() { ken_tls::RESOLVE_TIMEOUT + CONNECT_TIMEOUT } else { CONNECT_TIMEOUT };
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("ken/", env!("CARGO_PKG_VERSION")))
            .timeout_resolve(Some(ken_tls::RESOLVE_TIMEOUT))
            .timeout_connect(Some(connect))
            .proxy(proxy)
            .timeout_per_read(Some(silence))
            .timeout_per_write(Some(silence))
            .tls_config(TlsConfig::builder().root_certs(roots()?).build())
            .build();
        Ok(Http { config: Arc::new(config), idle: Arc::default() })
    }

    /// Returns a connection for one call. It is an open one of an earlier call if there is one.
    pub(crate) fn connection(&self) -> Connection {
        let agent = self.idle.lock().pop().unwrap_or_else(|| self.config.new_agent());
        Connection { agent, idle: Arc::clone(&self.idle), is_kept: false }
    }
}

/// The connection of one call. Dropping it ends the call, in whatever thread that runs. Only the resolution of a name
/// and the opening of a connection are not interrupted.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Shutting down an agent ends all of its calls, so no two calls share one.
    agent: Agent,
    idle: Arc<Mutex<Vec<Agent>>>,
    is_kept: bool,
}

impl Connection {
    /// Returns the part that makes the call, for the thread that runs it.
    pub(crate) fn caller(&self) -> Caller {
        Caller(self.agent.clone())
    }

    /// Keeps the connection for later calls. The call has to be over.
    pub(crate) fn keep(mut self) {
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE {
            idle.push(self.agent.clone());
            drop(idle);
            self.is_kept = true;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.is_kept {
            self.agent.clone().shutdown();
        }
    }
}

pub(crate) type Header<N> = (N, String);

/// Makes the call of a [`Connection`].
#[derive(Debug)]
pub(crate) struct Caller(Agent);

impl Caller {
    /// Sends a body. Blocks until the head of the response has arrived.
    pub(crate) fn post(
        &self,
        url: &str,
        headers: &[Header<impl AsRef<str>>],
        body: &[u8],
    ) -> Result<Response<Body>, Failed> {
        let request = with_headers(self.0.post(url), headers);
        request.send(body).map_err(|error| self.unreachable(url, error)).and_then(|response| plain(url, response))
    }

    pub(crate) fn get(&self, url: &str, headers: &[Header<impl AsRef<str>>]) -> Result<Response<Body>, Failed> {
        let request = with_headers(self.0.get(url), headers);
        request.call().map_err(|error| self.unreachable(url, error)).and_then(|response| plain(url, response))
    }

    /// Returns the error for a server that cannot be reached. It names only the host, because a URL can contain secrets.
    fn unreachable(&self, url: &str, error: ureq::Error) -> Failed {
        let host = match self.0.config().proxy() {
            Some(proxy) => format!("{} through the proxy {}", host_of(url), ken_tls::address(proxy)),
            None => host_of(url).to_owned(),
        };
        let (message, fault) = match error {
            ureq::Error::Timeout(ureq::Timeout::Resolve) => {
                let seconds = ken_tls::RESOLVE_TIMEOUT.as_secs();
                let message = format!("the address of {host} was not found within {seconds} s: no name server answers");
                (message, Fault::Provider)
            }
            ureq::Error::Timeout(ureq::Timeout::Connect) => {
                (format!("{host} does not accept connections"), Fault::Provider)
            }
            ureq::Error::Timeout(_) => (format!("{host} did not answer in time"), Fault::Server),
            ureq::Error::HostNotFound => (format!("{host} has no address"), Fault::Provider),
            ureq::Error::BadUri(_) => {
                let error = Error::invalid("", format!("{host} is not an http or https address"));
                return Failed::new(error, Fault::Provider);
            }
            // The connection was accepted and then lost, which a server that restarts does, too.
            ureq::Error::Io(error)
                if matches!(
                    error.kind(),
                    ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe
                ) =>
            {
                (format!("{host} closed the connection: {error}"), Fault::Server)
            }
            ureq::Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused => {
                (format!("cannot reach {host}: it refuses connections"), Fault::Provider)
            }
            error => (format!("cannot reach {host}: {error}"), Fault::Provider),
        };
        Failed::new(Error::unavailable(message), fault)
    }
}

/// Returns a response whose body can be read as it is. No encoding is asked for.
fn plain(url: &str, response: Response<Body>) -> Result<Response<Body>, Failed> {
    let encoding = response.headers().get("content-encoding").map(|value| value.as_bytes());
    if encoding.is_none_or(|encoding| encoding.eq_ignore_ascii_case(b"identity")) {
        return Ok(response);
    }
    let message = format!("{} sent a compressed answer, which was not asked for", host_of(url));
    Err(Failed::new(Error::unavailable(message), Fault::Provider))
}

fn with_headers<B>(request: RequestBuilder<B>, headers: &[Header<impl AsRef<str>>]) -> RequestBuilder<B> {
    headers.iter().fold(request, |request, (name, value)| request.header(name.as_ref(), value))
}

/// Returns the whole body as text. Fails if it exceeds the limit for its status.
pub(crate) fn text(response: Response<Body>) -> Result<String, Error> {
    let is_answer = response.status().is_success();
    let limit = if is_answer { MAX_BODY_BYTES } else { ERROR_BYTES };
    let mut bytes = Vec::new();
    let mut reader = response.into_body().into_reader().take(limit);
    reader.read_to_end(&mut bytes).map_err(broken)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the next bytes of a stream, or none at its end.
pub(crate) fn read<'a>(reader: &mut BodyReader<'static>, buffer: &'a mut [u8]) -> Result<&'a [u8], Error> {
    loop {
        match reader.read(buffer) {
            Ok(length) => return Ok(buffer.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(broken(error)),
        }
    }
}

/// Reads the rest of a response whose content is complete, so that the connection can be used again.
pub(crate) fn drain(reader: &mut BodyReader<'static>) {
    _ = std::io::copy(reader, &mut std::io::sink());
}

fn broken(error: std::io::Error) -> Error {
    match ureq::Error::from(error) {
        ureq::Error::Timeout(_) => Error::unavailable("the provider sent nothing for too long"),
        error => Error::unavailable(format!("the connection to the provider broke: {error}")),
    }
}
