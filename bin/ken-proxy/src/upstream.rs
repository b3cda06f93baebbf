//! Connections to servers. Names are looked up here, and the proxy connects only to addresses that have passed the
//! check.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use ken_tls::root_store;
use ken_tool::Error;
use ken_types::address::Allowed;
use ken_types::proxy::{Host, ProxyRules};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::refused::Refused;

/// The timeout of the look-up, of each connection attempt, and of the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct Upstream {
    private: Allowed,
    tls: TlsConnector,
}

impl Upstream {
    pub(crate) fn new(rules: &ProxyRules) -> Result<Upstream, Error> {
        let config = ClientConfig::builder().with_root_certificates(root_store()?).with_no_client_auth();
        Ok(Upstream {
            private: Allowed::parse("/private", &rules.private.join(","))?,
            tls: TlsConnector::from(Arc::new(config)),
        })
    }

    /// Connects to the first address of the host that accepts. Fails with 403 if no address is allowed, and with 502 if
    /// none can be reached.
    pub(crate) async fn connect(&self, host: &Host) -> Result<TcpStream, Refused> {
        let mut why = format!("{} has no address", host.name);
        for address in self.addresses(host).await? {
            match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // Small requests must not wait until more data fills a packet. Failing to set this only costs
                    // speed.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(error)) => why = format!("{host} at {}: {error}", address.ip()),
                Err(_) => why = format!("{host} at {} did not answer in time", address.ip()),
            }
        }
        Err(unreachable(why))
    }

    /// Returns the addresses of a host to which the proxy is allowed to connect. Fails with 403 if the host has only
    /// other ones.
    async fn addresses(&self, host: &Host) -> Result<Vec<SocketAddr>, Refused> {
        if let Some(address) = host.address() {
            // The host is an IP address that a rule names, so it needs no further check.
            return Ok(vec![SocketAddr::new(address, host.port)]);
        }
        let found = timeout(CONNECT_TIMEOUT, lookup_host((host.name.as_str(), host.port))).await;
        let found = found
            .map_err(|_| unreachable(format!("{} was not looked up in time", host.name)))?
            .map_err(|error| unreachable(format!("{}: {error}", host.name)))?;
        let (reached, others): (Vec<_>, Vec<_>) = found.partition(|address| self.private.allows(&host.name, *address));
        match (reached.is_empty(), others.first()) {
            (true, Some(other)) => {
                let why = format!("{} is at {}, which is not a public address", host.name, other.ip());
                Err(Refused(StatusCode::FORBIDDEN, why))
            }
            _ => Ok(reached),
        }
    }

    /// Sends a request and returns the response as soon as its headers have arrived. The body is read later.
    pub(crate) async fn send(
        &self,
        host: &Host,
        is_secure: bool,
        request: Request<Incoming>,
    ) -> Result<Response<Incoming>, Refused> {
        let stream = self.connect(host).await?;
        if !is_secure {
            return exchange(host, stream, request).await;
        }
        let name = ServerName::try_from(host.name.clone())
            .map_err(|_| unreachable(format!("{} is no name for TLS", host.name)))?;
        let greeted = timeout(CONNECT_TIMEOUT, self.tls.connect(name, stream)).await;
        let stream = greeted
            .map_err(|_| unreachable(format!("{host} did not answer in time")))?
            .map_err(|error| unreachable(format!("{host}: TLS: {error}")))?;
        exchange(host, stream, request).await
    }
}

async fn exchange<S>(host: &Host, stream: S, request: Request<Incoming>) -> Result<Response<Incoming>, Refused>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed = |error: hyper::Error| unreachable(format!("{host}: {error}"));
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(failed)
}

fn unreachable(why: String) -> Refused {
    Refused(StatusCode::BAD_GATEWAY, why)
}
