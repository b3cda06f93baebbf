//! The listener: accepts, serves, drains.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ken_types::{Error, Rate};
use nix::sys::socket::{Backlog, listen};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};

use crate::access::Access;
use crate::connection::Resources;
use crate::failure::Envelope;
use crate::life;
use crate::limits::Limits;
use crate::listener::{Listener, RequestIds};
use crate::places::Places;
use crate::rate::Limiter;
use crate::routes::Routes;
use crate::shutdown::{Phase, Shutdown};

/// A listener before it runs: its table, what its functions share, who may call, and its limits.
pub struct Server<S> {
    routes: Routes<S>,
    state: Arc<S>,
    access: Access,
    limits: Limits,
    wrong_secrets: Limiter,
    limit_loopback: bool,
    envelope: Option<Envelope>,
}

/// Connections that wait in the kernel to be accepted.
const BACKLOG: i32 = 1_024;
/// How long to wait after an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Connections that are told at one time that there is no place for them. Further ones are closed without a word.
const REFUSALS: usize = 64;

impl<S: Send + Sync + 'static> Server<S> {
    /// A listener that nobody from elsewhere may call, with the limits of the contract.
    pub fn new(routes: Routes<S>, state: Arc<S>) -> Server<S> {
        Server {
            routes,
            state,
            access: Access::new(None),
            limits: Limits::default(),
            wrong_secrets: Limiter::new(Rate::per_minute(20)),
            limit_loopback: false,
            envelope: None,
        }
    }

    /// Every error has this envelope: those of all areas, of unknown paths and of the listener itself.
    pub fn envelope(mut self, envelope: Envelope) -> Server<S> {
        self.envelope = Some(envelope);
        self
    }

    pub fn access(mut self, access: Access) -> Server<S> {
        self.access = access;
        self
    }

    pub fn limits(mut self, limits: Limits) -> Server<S> {
        self.limits = limits;
        self
    }

    /// Local callers are rate limited like others.
    pub fn limit_loopback(mut self, yes: bool) -> Server<S> {
        self.limit_loopback = yes;
        self
    }

    /// How many wrong secrets an address has; 20 a minute unless set.
    pub fn wrong_secrets(mut self, limiter: Limiter) -> Server<S> {
        self.wrong_secrets = limiter;
        self
    }

    /// Serves until `stop` is ready, then drains: nothing is accepted, requests on open connections get 503, waiting
    /// functions see [`crate::Request::shutdown`]. Returns when the last connection has ended or the time to drain is
    /// over; what was left is then closed. Must run inside a tokio runtime with I/O and time.
    ///
    /// The socket is made non-blocking here. The error is one of the table or of the socket; none comes later.
    pub async fn run(
        self,
        socket: std::net::TcpListener,
        stop: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let unusable = |error: io::Error| Error::internal(format!("the listening socket: {error}"));
        socket.set_nonblocking(true).map_err(unusable)?;
        // Whoever made the socket may have made its queue short, and what does not fit waits a second or is refused.
        listen(&socket, Backlog::new(BACKLOG).unwrap_or(Backlog::MAXCONN))
            .map_err(|error| unusable(error.into()))?;
        let socket = TcpListener::from_std(socket).map_err(unusable)?;
        let (phase, shutdown) = Shutdown::channel();
        let (is_open, mut all_closed) = mpsc::channel(1);
        let listener = Arc::new(self.open(shutdown)?);
        tokio::select! {
            () = stop => {}
            () = accept_all(&socket, &listener, &is_open) => {}
        }
        drop(is_open);
        let _ = phase.send(Phase::Draining);
        let _ = timeout(listener.resources.limits.drain, all_closed.recv()).await;
        let _ = phase.send(Phase::Stopped);
        // The connections still open are told, and end as their tasks run.
        let _ = timeout(Duration::from_millis(100), all_closed.recv()).await;
        Ok(())
    }

    fn open(self, shutdown: Shutdown) -> Result<Listener<S>, Error> {
        Ok(Listener {
            routes: self.routes.check()?,
            state: self.state,
            access: self.access,
            resources: Arc::new(Resources::new(self.limits, shutdown)),
            wrong_secrets: self.wrong_secrets,
            limit_loopback: self.limit_loopback,
            envelope: self.envelope,
            ids: RequestIds::new()?,
        })
    }
}

/// Accepts for ever. Whoever gets no place is told so, as long as not too many have to be told at once. Every
/// connection holds a copy of `is_open`.
async fn accept_all<S: Send + Sync + 'static>(
    socket: &TcpListener,
    listener: &Arc<Listener<S>>,
    is_open: &mpsc::Sender<Infallible>,
) {
    let places = Places::new(listener.resources.limits.connections);
    let refusals = Arc::new(Semaphore::new(REFUSALS));
    loop {
        let (stream, peer) = accept(socket).await;
        let (listener, peer, is_open) = (listener.clone(), peer.ip(), is_open.clone());
        if let Some(place) = places.take(peer) {
            tokio::spawn(async move {
                life::serve(stream, peer, listener, place).await;
                drop(is_open);
            });
        } else if let Ok(turn) = refusals.clone().try_acquire_owned() {
            tokio::spawn(async move {
                life::refuse(stream, peer, listener).await;
                drop((turn, is_open));
            });
        }
    }
}

/// The next connection, however long it takes. No error ends this: one that was reset in the queue is passed over, and
/// when descriptors or memory have run out, others end meanwhile.
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
