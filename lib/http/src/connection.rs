//! One connection: what its socket, its requests and its answers know of each other, and its life from accept to close.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use hyper::server::conn::http1;
use ken_types::Error;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::Semaphore;

use crate::failure::Failure;
use crate::limits::Limits;
use crate::memory::BodyMemory;
use crate::outlet::Sent;
use crate::places::Place;
use crate::server::Listener;
use crate::service::Service;
use crate::shutdown::{Phase, Shutdown};
use crate::socket::Socket;

/// Shared by the socket below hyper and the service above it. All of it is touched by the connection's own task, so the
/// flags order nothing; they are atomic because a task may be sent between threads.
#[derive(Debug)]
pub(crate) struct Connection {
    pub peer: IpAddr,
    pub limits: Arc<Limits>,
    pub shutdown: Shutdown,
    pub long_responses: Arc<Semaphore>,
    pub body_memory: Arc<BodyMemory>,
    /// None of a connection that is only told that there is no place for it.
    place: Option<Place>,
    pub writer: OwnedWriteHalf,
    /// Why the head was refused that hyper is given next.
    refusal: Mutex<Option<Failure>>,
    /// Why the current body ended early.
    fault: Mutex<Option<Failure>>,
    body: AtomicU8,
    frames: Mutex<InFlight>,
    /// Somebody waits for everything to be written.
    flush_awaited: AtomicBool,
}

/// What of a stream's frames has not left. Held while a socket is written to, which never waits.
#[derive(Debug, Default)]
struct InFlight {
    /// A frame was handed to hyper.
    by_hyper: bool,
    /// Of a frame that was written past it.
    rest: Bytes,
}

/// What is left of the request body when an answer is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum BodyLeft {
    /// None, or read to its end, or here as a whole so that hyper skips it.
    Nothing,
    /// Bytes may still come, so the connection cannot be used again.
    Something,
}

impl Connection {
    fn new<S>(
        peer: IpAddr,
        writer: OwnedWriteHalf,
        listener: &Listener<S>,
        place: Option<Place>,
    ) -> Connection {
        Connection {
            peer,
            limits: listener.limits.clone(),
            shutdown: listener.shutdown.clone(),
            long_responses: listener.long_responses.clone(),
            body_memory: listener.body_memory.clone(),
            place,
            writer,
            refusal: Mutex::new(None),
            fault: Mutex::new(None),
            body: AtomicU8::new(BodyLeft::Nothing as u8),
            frames: Mutex::default(),
            flush_awaited: AtomicBool::new(false),
        }
    }

    /// A request has come whole as far as its head. `false`: this connection has lost its place and answers nothing.
    pub(crate) fn begin_request(&self) -> bool {
        self.place.as_ref().is_none_or(Place::begin_request)
    }

    /// Every request that came has been answered.
    pub(crate) fn end_request(&self) {
        if let Some(place) = &self.place {
            place.end_request();
        }
    }

    /// Returns when this connection has lost its place to another one.
    async fn place_lost(&self) {
        match &self.place {
            Some(place) => place.closed().await,
            None => std::future::pending().await,
        }
    }

    pub(crate) fn refuse(&self, failure: Failure) {
        put(&self.refusal, failure);
        self.set_body(BodyLeft::Something);
    }

    pub(crate) fn take_refusal(&self) -> Option<Failure> {
        // A refusal leaves the body open, so that the usual request pays no lock here.
        self.body_is_open().then(|| take(&self.refusal)).flatten()
    }

    pub(crate) fn fail_body(&self, failure: Failure) {
        put(&self.fault, failure);
    }

    pub(crate) fn take_fault(&self) -> Option<Failure> {
        take(&self.fault)
    }

    pub(crate) fn set_body(&self, left: BodyLeft) {
        self.body.store(left as u8, Relaxed);
    }

    pub(crate) fn body_is_open(&self) -> bool {
        self.body.load(Relaxed) == BodyLeft::Something as u8
    }

    /// A frame was handed to hyper.
    pub(crate) fn frame_sent(&self) {
        self.frames().by_hyper = true;
    }

    /// Whether hyper has a frame that has not left yet; if so, the task is woken when it has.
    pub(crate) fn frame_is_in_flight(&self) -> bool {
        let in_flight = self.frames().by_hyper;
        if in_flight {
            self.await_flush();
        }
        in_flight
    }

    /// Writes bytes past hyper, between its frames.
    pub(crate) fn write_between(&self, bytes: &Bytes) -> Sent {
        let mut frames = self.frames();
        if frames.by_hyper || !frames.rest.is_empty() {
            return Sent::Not;
        }
        match self.writer.try_write(bytes) {
            Ok(count) if count == bytes.len() => Sent::Whole,
            Ok(count) => {
                frames.rest = bytes.slice(count.min(bytes.len())..);
                Sent::Part
            }
            // Also one that is broken: whoever sends next finds that out.
            Err(_) => Sent::Not,
        }
    }

    /// Ready when nothing is left of what was written past hyper.
    pub(crate) fn poll_rest(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.frames().rest.is_empty() {
            ready!(self.writer.as_ref().poll_write_ready(cx))?;
            let mut frames = self.frames();
            match self.writer.try_write(&frames.rest) {
                Ok(count) => frames.rest.advance(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn frames(&self) -> MutexGuard<'_, InFlight> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the task once everything is written.
    pub(crate) fn await_flush(&self) {
        self.flush_awaited.store(true, Relaxed);
    }

    /// Everything is written. Whether somebody waited for that.
    pub(crate) fn flushed(&self) -> bool {
        self.frames().by_hyper = false;
        self.flush_awaited.load(Relaxed) && self.flush_awaited.swap(false, Relaxed)
    }

    /// Returns when the peer has ended its write half. It may have gone altogether; only a write can tell.
    pub(crate) async fn half_closed(&self) {
        match self.writer.ready(Interest::READABLE).await {
            Ok(ready) if !ready.is_read_closed() => {
                // It has sent more meanwhile, which nobody reads before this answer has ended: no telling any more.
                std::future::pending().await
            }
            _ => {}
        }
    }

    /// Returns when the peer has reset the connection. One that only shut its write half is still there.
    pub(crate) async fn gone(&self) {
        // An error here says the same: nothing can be written any more.
        let _ = self.writer.ready(Interest::ERROR).await;
    }
}

fn put(cell: &Mutex<Option<Failure>>, failure: Failure) {
    *cell.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
}

fn take(cell: &Mutex<Option<Failure>>) -> Option<Failure> {
    cell.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Serves one connection to its end, or until it loses its place.
pub(crate) async fn serve<S: Send + Sync + 'static>(
    stream: TcpStream,
    peer: IpAddr,
    listener: Arc<Listener<S>>,
    place: Place,
) {
    let (socket, connection) = open(stream, peer, &listener, Some(place));
    tokio::select! {
        biased;
        () = connection.place_lost() => {}
        () = talk(socket, connection.clone(), listener) => {}
    }
}

/// Answers a connection for which there is no place, before it has sent anything.
pub(crate) async fn refuse<S: Send + Sync + 'static>(
    stream: TcpStream,
    peer: IpAddr,
    listener: Arc<Listener<S>>,
) {
    let (mut socket, connection) = open(stream, peer, &listener, None);
    let busy = Error::busy("all connections are taken by requests in progress", 1_000);
    socket.refuse(Failure::from(busy).closing().common());
    talk(socket, connection, listener).await;
}

fn open<S>(
    stream: TcpStream,
    peer: IpAddr,
    listener: &Listener<S>,
    place: Option<Place>,
) -> (Socket, Arc<Connection>) {
    // Frames and answers leave as they are written; a socket that refuses this is served all the same.
    let _ = stream.set_nodelay(true);
    let (reader, writer) = stream.into_split();
    let connection = Arc::new(Connection::new(peer, writer, listener, place));
    (Socket::new(reader, connection.clone()), connection)
}

async fn talk<S: Send + Sync + 'static>(
    socket: Socket,
    connection: Arc<Connection>,
    listener: Arc<Listener<S>>,
) {
    let shutdown = listener.shutdown.clone();
    let service = Service::new(listener, connection);
    let talk = std::pin::pin!(protocol().serve_connection(socket, service).without_shutdown());
    if let Some(parts) = until_stopped(talk, shutdown).await {
        parts.io.close().await;
    }
}

/// Follows a conversation to its end, or to the end of the listener's patience.
async fn until_stopped<T, E>(
    mut talk: Pin<&mut impl Future<Output = Result<T, E>>>,
    mut shutdown: Shutdown,
) -> Option<T> {
    tokio::select! {
        biased;
        ended = &mut talk => return ended.ok(),
        () = shutdown.requested() => {}
    }
    // Polled once more by this, the socket sees that the listener drains, and ends here if it is idle.
    tokio::select! {
        biased;
        ended = &mut talk => ended.ok(),
        () = shutdown.reached(Phase::Stopped) => None,
    }
}

/// hyper as this listener uses it. Its own limits are off or wider than the socket's, which come first.
fn protocol() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .half_close(true)
        .header_read_timeout(None)
        .max_buf_size(64 << 10);
    builder
}
