//! Sends a single request with limits on size and time. It follows no redirects and requests no compression, so the
//! size limit counts the bytes that the server sends.

use std::io::Read;
use std::time::{Duration, Instant};

use ken_tls::roots;
use ken_types::Error;
use ken_types::address::{Allowed, Refused};
use ken_types::uri::host_of;
use serde_json::Value;
use ureq::http::header::HeaderMap;
use ureq::http::{Response, StatusCode};
use ureq::tls::TlsConfig;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, RequestBuilder};

use crate::address::Guard;

/// The User-Agent of ken. In robots.txt its name is `ken`.
const USER_AGENT: &str = concat!("ken/", env!("CARGO_PKG_VERSION"));
/// Sent with every request, as a proxy does: the model has chosen the address. A gateway of ken takes no such request for a
/// local one, so that nothing in `KEN_WEB_ALLOW` opens it.
const VIA: &str = "1.1 ken-web";
const CONNECT: Duration = Duration::from_secs(5);
/// The maximum time of one request, even if the caller has more time left.
const REQUEST: Duration = Duration::from_secs(8);
const HEADER_BYTES: usize = 32 * 1024;

/// Sends requests to allowed addresses.
#[derive(Debug)]
pub(crate) struct Http {
    agent: Agent,
}

/// The response to a request.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// Whether the body was longer than the limit.
    pub(crate) cut: bool,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Http {
    /// Returns a client. It trusts the root certificates in `SSL_CERT_FILE`, or else those of Mozilla.
    pub(crate) fn new(allowed: Allowed) -> Result<Http, Error> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            // A proxy would resolve names itself and bypass the check.
            .proxy(None)
            .user_agent(USER_AGENT)
            .max_response_header_size(HEADER_BYTES)
            .max_idle_connections(0)
            .timeout_connect(Some(CONNECT))
            .tls_config(TlsConfig::builder().root_certs(roots()?).build())
            .build();
        let guard = Guard { inner: DefaultResolver::default(), allowed };
        Ok(Http { agent: Agent::with_parts(config, DefaultConnector::new(), guard) })
    }

    /// Sends a GET request. At most `max` bytes of the body are read.
    pub(crate) fn get(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        max: usize,
        until: Instant,
    ) -> Result<Received, Error> {
        let request = prepared(self.agent.get(url), headers, until)?;
        read(url, request.call(), max)
    }

    pub(crate) fn post(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        body: &Value,
        max: usize,
        until: Instant,
    ) -> Result<Received, Error> {
        let request = self.agent.post(url).header("content-type", "application/json");
        let request = prepared(request, headers, until)?;
        read(url, request.send(body.to_string()), max)
    }
}

/// Adds the headers, and a timeout that ends at `until`. Fails if that time has passed.
fn prepared<B>(
    request: RequestBuilder<B>,
    headers: &[(&str, &str)],
    until: Instant,
) -> Result<RequestBuilder<B>, Error> {
    let request = request.header("accept-encoding", "identity").header("via", VIA);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    Ok(request.config().timeout_global(Some(left(until)?)).build())
}

fn left(until: Instant) -> Result<Duration, Error> {
    match until.saturating_duration_since(Instant::now()).min(REQUEST) {
        Duration::ZERO => Err(Error::deadline("the time is used up")),
        left => Ok(left),
    }
}

fn read(url: &str, answered: Result<Response<ureq::Body>, ureq::Error>, max: usize) -> Result<Received, Error> {
    let (head, body) = answered.map_err(|error| failed(url, error))?.into_parts();
    let encoding = head.headers.get("content-encoding").map(|value| value.as_bytes());
    if encoding.is_some_and(|encoding| !encoding.eq_ignore_ascii_case(b"identity")) {
        let message = format!("{} sent a compressed page, which was not asked for", host_of(url));
        return Err(Error::unavailable(message));
    }
    let mut bytes = Vec::new();
    let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    // This raises the library's own limit, which would cause an error; the body is cut off instead.
    let mut reader = body.into_with_config().limit(u64::MAX).reader().take(limit);
    reader.read_to_end(&mut bytes).map_err(|error| failed(url, ureq::Error::from(error)))?;
    let cut = bytes.len() > max;
    bytes.truncate(max);
    Ok(Received { status: head.status, headers: head.headers, body: bytes, cut })
}

fn failed(url: &str, error: ureq::Error) -> Error {
    let host = host_of(url);
    match error {
        ureq::Error::Timeout(_) => Error::deadline(format!("{host} did not answer in time")),
        ureq::Error::HostNotFound => Error::unavailable(format!("{host} has no address")),
        ureq::Error::BadUri(_) => Error::invalid("/url", format!("{host} is not an http or https address")),
        ureq::Error::Other(error) if error.is::<Refused>() => {
            Error::forbidden(format!("{error}; KEN_WEB_ALLOW can name exceptions"))
        }
        error => Error::unavailable(format!("cannot reach {host}: {error}")),
    }
}
