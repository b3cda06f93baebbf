//! A TLS proxy in front of a provider. The root of its certificate is trusted by no system.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::page::root;
use crate::provider::Provider;

/// The proxy. Its thread ends with the test.
pub struct Tls {
    address: SocketAddr,
}

impl Tls {
    /// Starts a proxy that decrypts connections and forwards them to a provider.
    pub fn before(provider: &Provider) -> Tls {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let config = Arc::new(config());
        let provider = provider.address();
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let config = config.clone();
                // This fails if the client refuses the certificate.
                std::thread::spawn(move || _ = pass(socket, config, provider));
            }
        });
        Tls { address }
    }

    /// `https://127.0.0.1:PORT`; the certificate is for this address and no name.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The file of the root that signed the certificate.
    pub fn trusted() -> PathBuf {
        file("root.pem")
    }
}

fn file(name: &str) -> PathBuf {
    root().join("tests/doubles/tls").join(name)
}

fn config() -> ServerConfig {
    let certificates = CertificateDer::pem_file_iter(file("server.pem")).expect("a certificate");
    let certificates = certificates.collect::<Result<Vec<_>, _>>().expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(file("server.key")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.expect("versions").with_no_client_auth();
    builder.with_single_cert(certificates, key).expect("a pair")
}

/// Forwards one request, and the answer as it arrives.
fn pass(socket: TcpStream, config: Arc<ServerConfig>, provider: SocketAddr) -> io::Result<()> {
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    let connection = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut outside = StreamOwned::new(connection, socket);
    let request = read_request(&mut outside)?;
    let mut inside = TcpStream::connect(provider)?;
    inside.write_all(&request)?;
    // Tells the provider that no further request follows, so that it closes the connection after its answer.
    inside.shutdown(std::net::Shutdown::Write)?;
    io::copy(&mut inside, &mut outside)?;
    outside.conn.send_close_notify();
    outside.flush()
}

fn read_request(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        from.read_exact(&mut byte)?;
        request.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&request).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length = length.map_or(0, |length| length.trim().parse().expect("a length"));
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    request.extend(body);
    Ok(request)
}
