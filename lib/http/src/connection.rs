//! The state that the socket, the requests and the responses of one connection share.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use tokio::io::Interest;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::Semaphore;

use crate::failure::Failure;
use crate::limits::Limits;
use crate::memory::BodyMemory;
use crate::places::Place;
use crate::shutdown::Shutdown;

/// Limits and counters that all connections of a listener share.
#[derive(Debug)]
pub(crate) struct Resources {
    pub limits: Limits,
    pub shutdown: Shutdown,
    pub long_responses: Arc<Semaphore>,
    pub body_memory: Arc<BodyMemory>,
}

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    pub address: IpAddr,
    /// The user of this machine whose socket it is; `None` if it is not of this machine, or cannot be seen.
    pub owner: Option<u32>,
}

/// Shared by the socket below hyper and the service above it. Only the connection's own task uses the flags, so relaxed
/// ordering is enough; they are atomic because a task can move between threads.
#[derive(Debug)]
pub(crate) struct Connection {
    pub peer: Peer,
    pub resources: Arc<Resources>,
    /// `None` for a connection that is refused because no place is free.
    place: Option<Place>,
    pub writer: OwnedWriteHalf,
    /// Why the current head was refused; hyper gets a replacement for it.
    refusal: Mutex<Option<Failure>>,
    /// Why the current body ended early.
    fault: Mutex<Option<Failure>>,
    body_is_open: AtomicBool,
    frames: Mutex<InFlight>,
    /// Whether the task must be woken when everything has been written.
    flush_awaited: AtomicBool,
}

/// Frames of a stream that have not been written yet. The lock is held while the socket is written to, which never blocks.
#[derive(Debug, Default)]
struct InFlight {
    /// Whether hyper has a frame.
    by_hyper: bool,
    /// The rest of a frame that was written directly to the socket.
    rest: Bytes,
}

/// The result of sending a shared frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteResult {
    /// All of it was written.
    Whole,
    /// A part of it was written. The stream's own task, which has to be woken, writes the rest.
    Part,
    /// Nothing was written: the stream's own task is in the middle of a frame, or the socket is full or broken.
    Nothing,
}

impl Resources {
    pub(crate) fn new(limits: Limits, shutdown: Shutdown) -> Resources {
        Resources {
            long_responses: Arc::new(Semaphore::new(limits.long_responses)),
            body_memory: BodyMemory::new(limits.body_memory),
            limits,
            shutdown,
        }
    }
}

impl Connection {
    pub(crate) fn new(
        peer: Peer,
        writer: OwnedWriteHalf,
        resources: Arc<Resources>,
        place: Option<Place>,
    ) -> Connection {
        Connection {
            peer,
            resources,
            place,
            writer,
            refusal: Mutex::new(None),
            fault: Mutex::new(None),
            body_is_open: AtomicBool::new(false),
            frames: Mutex::default(),
            flush_awaited: AtomicBool::new(false),
        }
    }

    /// Notes that the head of a request is complete. Returns `false` if the connection has lost its place and must not answer.
    pub(crate) fn begin_request(&self) -> bool {
        self.place.as_ref().is_none_or(Place::begin_request)
    }

    /// Notes that all requests have been answered.
    pub(crate) fn end_request(&self) {
        if let Some(place) = &self.place {
            place.end_request();
        }
    }

    /// Returns when this connection has lost its place to another one.
    pub(crate) async fn place_lost(&self) {
        match &self.place {
            Some(place) => place.closed().await,
            None => std::future::pending().await,
        }
    }

    pub(crate) fn refuse(&self, failure: Failure) {
        put(&self.refusal, failure);
        self.set_body_open(true);
    }

    pub(crate) fn take_refusal(&self) -> Option<Failure> {
        // A refusal leaves the body open, so the lock is taken only if the body is open.
        self.body_is_open().then(|| take(&self.refusal)).flatten()
    }

    pub(crate) fn fail_body(&self, failure: Failure) {
        put(&self.fault, failure);
    }

    pub(crate) fn take_fault(&self) -> Option<Failure> {
        take(&self.fault)
    }

    pub(crate) fn set_body_open(&self, is_open: bool) {
        self.body_is_open.store(is_open, Relaxed);
    }

    /// Whether bytes of the request body may still come when the response is ready, so that the connection cannot be reused.
    pub(crate) fn body_is_open(&self) -> bool {
        self.body_is_open.load(Relaxed)
    }

    /// Notes that hyper has a frame.
    pub(crate) fn frame_sent(&self) {
        self.frames.lock().by_hyper = true;
    }

    /// Whether hyper has a frame that is not written yet; if so, the task is woken when it is.
    pub(crate) fn frame_is_in_flight(&self) -> bool {
        let in_flight = self.frames.lock().by_hyper;
        if in_flight {
            self.await_flush();
        }
        in_flight
    }

    /// Writes bytes directly to the socket, between the frames of hyper.
    pub(crate) fn write_between(&self, bytes: &Bytes) -> WriteResult {
        let mut frames = self.frames.lock();
        if frames.by_hyper || !frames.rest.is_empty() {
            return WriteResult::Nothing;
        }
        match self.writer.try_write(bytes) {
            Ok(count) if count == bytes.len() => WriteResult::Whole,
            Ok(count) => {
                frames.rest = bytes.slice(count.min(bytes.len())..);
                WriteResult::Part
            }
            // If the socket is broken, the next write of the stream's own task fails.
            Err(_) => WriteResult::Nothing,
        }
    }

    /// Ready when the rest of a directly written frame is written.
    pub(crate) fn poll_rest(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.frames.lock().rest.is_empty() {
            ready!(self.writer.as_ref().poll_write_ready(cx))?;
            let mut frames = self.frames.lock();
            match self.writer.try_write(&frames.rest) {
                Ok(count) => frames.rest.advance(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Asks for the task to be woken when everything is written.
    pub(crate) fn await_flush(&self) {
        self.flush_awaited.store(true, Relaxed);
    }

    /// Notes that everything is written. Returns whether the task asked to be woken.
    pub(crate) fn flushed(&self) -> bool {
        self.frames.lock().by_hyper = false;
        self.flush_awaited.load(Relaxed) && self.flush_awaited.swap(false, Relaxed)
    }

    /// Returns when the peer has shut its write half. Only a write can show whether it has also closed the connection.
    pub(crate) async fn half_closed(&self) {
        match self.writer.ready(Interest::READABLE).await {
            Ok(ready) if !ready.is_read_closed() => {
                // The peer has sent more bytes. They are not read before this response ends, so an end cannot be seen.
                std::future::pending().await
            }
            _ => {}
        }
    }

    /// Returns when the peer has reset the connection. A peer that has only shut its write half is still there.
    pub(crate) async fn gone(&self) {
        // An error means the same: nothing more can be written.
        let _ = self.writer.ready(Interest::ERROR).await;
    }
}

fn put(cell: &Mutex<Option<Failure>>, failure: Failure) {
    *cell.lock() = Some(failure);
}

fn take(cell: &Mutex<Option<Failure>>) -> Option<Failure> {
    cell.lock().take()
}
