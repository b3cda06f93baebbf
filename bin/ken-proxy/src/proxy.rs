//! The proxy server: accepts connections from the command, and forwards its requests or opens tunnels for them.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, HOST, HeaderName, HeaderValue, IF_RANGE,
    PROXY_AUTHORIZATION, RANGE, TRANSFER_ENCODING,
};
use hyper::http::uri::PathAndQuery;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use ken_tool::Error;
use ken_types::hex;
use ken_types::proxy::{Host, ProxyReady, ProxyRules};
use subtle::ConstantTimeEq;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit as Place, Semaphore};

use crate::redact::{RedactedBody, Secrets};
use crate::refused::Refused;
use crate::upstream::Upstream;

/// The maximum number of open connections. Further ones wait in the listener's queue.
const MAX_CONNECTIONS: usize = 128;
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a failed `accept`, which usually means that all descriptors of the process are in use.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const USER: &str = "ken";

/// Headers that are about one connection and not about the message (RFC 9110, section 7.6.1).
const HOP_BY_HOP_HEADERS: [&str; 8] = [
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
    "upgrade",
];

type Body = Either<RedactedBody, Full<Bytes>>;

/// A proxy that listens on a port of the loopback address.
pub(crate) struct Proxy {
    listener: TcpListener,
    rules: ProxyRules,
    upstream: Upstream,
    /// The expected value of `Proxy-Authorization`. It is required because every program of this machine can connect.
    password: String,
}

impl Proxy {
    /// Must be called within a Tokio runtime.
    pub(crate) fn open(listener: std::net::TcpListener, rules: ProxyRules) -> Result<(Proxy, ProxyReady), Error> {
        let unready = |error: &dyn std::fmt::Display| Error::unavailable(format!("the proxy cannot listen: {error}"));
        listener.set_nonblocking(true).map_err(|error| unready(&error))?;
        let listener = TcpListener::from_std(listener).map_err(|error| unready(&error))?;
        let address = listener.local_addr().map_err(|error| unready(&error))?.to_string();
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| unready(&error))?;
        let word = hex::encode(&random);
        let ready = ProxyReady { url: format!("http://{USER}:{word}@{address}"), address };
        let password = format!("Basic {}", BASE64_STANDARD.encode(format!("{USER}:{word}")));
        let upstream = Upstream::new(&rules)?;
        let proxy = Proxy { listener, rules, upstream, password };
        Ok((proxy, ready))
    }

    /// Accepts and serves connections. Never returns.
    pub(crate) async fn accept(self: Arc<Proxy>) {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            let Ok((connection, _)) = self.listener.accept().await else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let proxy = Arc::clone(&self);
            tokio::spawn(async move {
                // After CONNECT, the tunnel lives longer than the HTTP connection. Both share the permit, which counts
                // as one connection until both have ended.
                let place = Arc::new(place);
                let service = service_fn(|request| proxy.answer(request, &place));
                let served = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEADER_TIMEOUT)
                    .half_close(true)
                    .serve_connection(TokioIo::new(connection), service)
                    .with_upgrades();
                // The command sees that its connection has ended, so the error needs no report.
                let _ = served.await;
            });
        }
    }

    async fn answer(&self, request: Request<Incoming>, place: &Arc<Place>) -> Result<Response<Body>, Infallible> {
        let answered = match self.is_known(request.headers()) {
            false => Err(Refused(StatusCode::PROXY_AUTHENTICATION_REQUIRED, "no password".to_owned())),
            true if request.method() == Method::CONNECT => self.tunnel(request, Arc::clone(place)).await,
            true => self.forward(request).await,
        };
        Ok(answered.unwrap_or_else(Refused::response))
    }

    fn is_known(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(PROXY_AUTHORIZATION).map(HeaderValue::as_bytes);
        given.is_some_and(|given| given.ct_eq(self.password.as_bytes()).into())
    }

    async fn tunnel(&self, request: Request<Incoming>, place: Arc<Place>) -> Result<Response<Body>, Refused> {
        let host = request.uri().authority().map(|authority| authority.as_str().parse::<Host>());
        let host = host.and_then(Result::ok).ok_or_else(|| Refused::wrong("CONNECT needs HOST:PORT"))?;
        if !self.rules.allows_tunnel(&host) {
            return Err(Refused::forbidden(&host.to_string()));
        }
        let upstream = self.upstream.connect(&host).await?;
        tokio::spawn(async move {
            relay(request, upstream).await;
            drop(place);
        });
        Ok(Response::new(Either::Right(Full::default())))
    }

    async fn forward(&self, mut request: Request<Incoming>) -> Result<Response<Body>, Refused> {
        if request.method() == Method::TRACE {
            return Err(Refused::wrong("TRACE would tell the key back, so it is not forwarded"));
        }
        let uri = request.uri();
        let (Some("http"), Some(name)) = (uri.scheme_str(), uri.host()) else {
            return Err(Refused::wrong("a request to a proxy names its whole address, http://HOST/PATH"));
        };
        let name = name.trim_matches(['[', ']']);
        let route = self.rules.route(name, uri.port_u16());
        let route =
            route.ok_or_else(|| Refused::forbidden(&uri.authority().map_or_else(String::new, ToString::to_string)))?;
        let path = uri.path_and_query().cloned();
        *request.uri_mut() = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
        let headers = request.headers_mut();
        remove_hop_by_hop(headers);
        let scheme = if route.is_secure { "https" } else { "http" };
        headers.insert(HOST, header(&route.host.authority(scheme))?);
        if let Some(key) = route.key {
            let mut value = header(key)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
            // The key cannot be found in a compressed response.
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            // Nor in the parts of a response, of which each could end within the key.
            headers.remove(RANGE);
            headers.remove(IF_RANGE);
        }
        let secrets = Secrets::of(route.key);
        let mut response = self.upstream.send(&route.host, route.is_secure, request).await?;
        if !secrets.is_empty()
            && let Some(how) = hides_key(&response)
        {
            let why = format!("{} {how}, so the key cannot be removed from it", route.host);
            return Err(Refused(StatusCode::BAD_GATEWAY, why));
        }
        remove_hop_by_hop(response.headers_mut());
        Ok(secrets.removed_from(response).map(Either::Left))
    }
}

/// Returns why a key would not be found in a response. Hosts are asked for neither, but some have headers of their own by which a
/// command can ask for a part, such as `X-Ms-Range`.
fn hides_key(response: &Response<Incoming>) -> Option<&'static str> {
    let values = |name| response.headers().get_all(name).iter().map(HeaderValue::as_bytes);
    let words =
        values(CONTENT_ENCODING).chain(values(TRANSFER_ENCODING)).flat_map(|value| value.split(|byte| *byte == b','));
    let is_plain = |word: &[u8]| [&b"identity"[..], b"chunked"].iter().any(|plain| word.eq_ignore_ascii_case(plain));
    if response.status() == StatusCode::PARTIAL_CONTENT {
        return Some("sends a part of its response");
    }
    (!words.map(<[u8]>::trim_ascii).all(is_plain)).then_some("compresses its response")
}

fn header(text: &str) -> Result<HeaderValue, Refused> {
    HeaderValue::from_str(text).map_err(|_| Refused::wrong("a header cannot hold this value"))
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<HeaderName> =
        named.flat_map(|names| names.split(',')).filter_map(|name| name.trim().parse().ok()).collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP_HEADERS {
        headers.remove(name);
    }
}

/// Copies bytes in both directions until both directions have ended.
async fn relay(request: Request<Incoming>, mut upstream: TcpStream) {
    if let Ok(upgraded) = hyper::upgrade::on(request).await {
        // Both sides see that the connection has ended, so the error needs no report.
        let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(upgraded), &mut upstream).await;
    }
}
