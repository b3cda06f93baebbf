//! The life of one connection, from accept to close.

use std::pin::Pin;
use std::sync::Arc;

use hyper::server::conn::http1;
use ken_types::Error;
use tokio::net::TcpStream;

use crate::connection::{Connection, Peer};
use crate::failure::Failure;
use crate::listener::Listener;
use crate::places::Place;
use crate::service::Service;
use crate::shutdown::{Phase, Shutdown};
use crate::socket::Socket;

/// Serves one connection to its end, or until it loses its place.
pub(crate) async fn serve<S: Send + Sync + 'static>(
    stream: TcpStream,
    peer: Peer,
    listener: Arc<Listener<S>>,
    place: Place,
) {
    let (socket, connection) = open(stream, peer, &listener, Some(place));
    tokio::select! {
        biased;
        () = connection.place_lost() => {}
        () = run(socket, connection.clone(), listener) => {}
    }
}

/// Answers a connection for which there is no place, before it has sent anything.
pub(crate) async fn refuse<S: Send + Sync + 'static>(stream: TcpStream, peer: Peer, listener: Arc<Listener<S>>) {
    let (mut socket, connection) = open(stream, peer, &listener, None);
    let busy = Error::busy("all connections are taken by requests in progress", 1_000);
    socket.refuse(Failure::from(busy).closing().common());
    run(socket, connection, listener).await;
}

fn open<S>(stream: TcpStream, peer: Peer, listener: &Listener<S>, place: Option<Place>) -> (Socket, Arc<Connection>) {
    // Send frames and responses without delay. A socket that refuses the option is served all the same.
    let _ = stream.set_nodelay(true);
    let (reader, writer) = stream.into_split();
    let connection = Arc::new(Connection::new(peer, writer, listener.resources.clone(), place));
    (Socket::new(reader, connection.clone()), connection)
}

async fn run<S: Send + Sync + 'static>(socket: Socket, connection: Arc<Connection>, listener: Arc<Listener<S>>) {
    let shutdown = listener.resources.shutdown.clone();
    let service = Service::new(listener, connection);
    let requests = std::pin::pin!(protocol().serve_connection(socket, service).without_shutdown());
    if let Some(parts) = run_until_stopped(requests, shutdown).await {
        parts.io.close().await;
    }
}

/// Runs a connection to its end, or until the listener's drain time is over.
async fn run_until_stopped<T, E>(
    mut requests: Pin<&mut impl Future<Output = Result<T, E>>>,
    mut shutdown: Shutdown,
) -> Option<T> {
    tokio::select! {
        biased;
        ended = &mut requests => return ended.ok(),
        () = shutdown.requested() => {}
    }
    // This polls the socket once more, so that it notices the drain, and ends if it is idle.
    tokio::select! {
        biased;
        ended = &mut requests => ended.ok(),
        () = shutdown.reached(Phase::Stopped) => None,
    }
}

/// hyper's settings. Its own limits are off or wider than those of the socket, which apply first.
fn protocol() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.half_close(true).header_read_timeout(None).max_buf_size(64 << 10);
    builder
}
