//! The listener: accepts, serves, drains.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use ken_types::Error;
use nix::sys::socket::{Backlog, listen};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};

use crate::access::is_loopback;
use crate::connection::Peer;
use crate::life;
use crate::listener::{Listener, Server};
use crate::owner::Owners;
use crate::places::Places;
use crate::shutdown::{Phase, Shutdown};

/// The length of the kernel's queue of connections that have not been accepted yet.
const BACKLOG: i32 = 1_024;
/// How long to wait after an accept that failed because descriptors or memory had run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Maximum number of connections that are answered with 429 at the same time because no place is free. Others are just closed.
const REFUSALS: usize = 64;

impl<S: Send + Sync + 'static> Server<S> {
    /// Serves until `stop` is ready, then drains: no connection is accepted, requests on open connections get 503, and
    /// waiting functions are told through [`crate::Request::shutdown`]. Returns when the last connection has ended; connections
    /// that are still open after the drain time are closed. Must run inside a tokio runtime with I/O and time.
    ///
    /// The socket is made non-blocking here. Fails only at the start, when the table or the socket is not usable.
    pub async fn run(self, socket: std::net::TcpListener, stop: impl Future<Output = ()>) -> Result<(), Error> {
        let unusable = |error: io::Error| Error::internal(format!("the listening socket: {error}"));
        socket.set_nonblocking(true).map_err(unusable)?;
        // An inherited socket may have a short queue, and a connection that does not fit waits a second or is refused.
        listen(&socket, Backlog::new(BACKLOG).unwrap_or(Backlog::MAXCONN)).map_err(|error| unusable(error.into()))?;
        let owners = if self.access.asks_for_owners() { Owners::of_connections_to(&socket) } else { None };
        let socket = TcpListener::from_std(socket).map_err(unusable)?;
        let (phase, shutdown) = Shutdown::channel();
        let (is_open, mut all_closed) = mpsc::channel(1);
        let listener = Arc::new(Listener::of(self, shutdown)?);
        tokio::select! {
            () = stop => {}
            () = accept_all(&socket, owners.as_ref(), &listener, &is_open) => {}
        }
        drop(is_open);
        let _ = phase.send(Phase::Draining);
        let _ = timeout(listener.resources.limits.drain, all_closed.recv()).await;
        let _ = phase.send(Phase::Stopped);
        // Connections that are still open see the phase and end when their tasks run.
        let _ = timeout(Duration::from_millis(100), all_closed.recv()).await;
        Ok(())
    }
}

/// Returns the listening socket that a supervisor passes, or else binds a new one. `section` of ken.toml has the port.
pub fn listening(passed: Option<OwnedFd>, address: SocketAddr, section: &str) -> Result<std::net::TcpListener, Error> {
    let bind = || std::net::TcpListener::bind(address);
    passed.map_or_else(bind, |socket| Ok(socket.into())).map_err(|error| {
        Error::unavailable(format!("cannot listen on {address}: {error}"))
            .hint(format!("set another port: [{section}] port in ken.toml"))
    })
}

/// Accepts connections forever, and refuses those for which no place is free. Every connection holds a copy of `is_open`.
async fn accept_all<S: Send + Sync + 'static>(
    socket: &TcpListener,
    owners: Option<&Owners>,
    listener: &Arc<Listener<S>>,
    is_open: &mpsc::Sender<Infallible>,
) {
    let places = Places::new(listener.resources.limits.connections);
    let refusals = Arc::new(Semaphore::new(REFUSALS));
    loop {
        let (stream, address) = accept(socket).await;
        let (listener, address, is_open) = (listener.clone(), address.ip(), is_open.clone());
        if let Some(place) = places.take(address) {
            let owner = owners.filter(|_| is_loopback(address)).and_then(|owners| owners.of_peer(&stream));
            let peer = Peer { address, owner };
            tokio::spawn(async move {
                life::serve(stream, peer, listener, place).await;
                drop(is_open);
            });
        } else if let Ok(turn) = refusals.clone().try_acquire_owned() {
            tokio::spawn(async move {
                life::refuse(stream, Peer { address, owner: None }, listener).await;
                drop((turn, is_open));
            });
        }
    }
}

/// Waits for the next connection. No error ends this: a connection that was reset in the queue is skipped, and when
/// descriptors or memory have run out it tries again.
async fn accept(socket: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match socket.accept().await {
            Ok(accepted) => return accepted,
            Err(error) if is_of_the_peer(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}
