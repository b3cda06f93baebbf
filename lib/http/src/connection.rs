//! What the socket, the requests and the answers of one connection know of each other.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::Interest;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::Semaphore;

use crate::failure::Failure;
use crate::limits::Limits;
use crate::memory::BodyMemory;
use crate::places::Place;
use crate::shutdown::Shutdown;

/// What all connections of a listener share.
#[derive(Debug)]
pub(crate) struct Resources {
    pub limits: Limits,
    pub shutdown: Shutdown,
    pub long_responses: Arc<Semaphore>,
    pub body_memory: Arc<BodyMemory>,
}

/// Shared by the socket below hyper and the service above it. All of it is touched by the connection's own task, so the
/// flags order nothing; they are atomic because a task may be sent between threads.
#[derive(Debug)]
pub(crate) struct Connection {
    pub peer: IpAddr,
    pub resources: Arc<Resources>,
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

/// What became of a shared frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// It was written.
    Whole,
    /// It counts as sent; the rest of it leaves when the stream's own task runs, which is to be woken.
    Part,
    /// Nothing was written: the stream's own task is in the middle of a frame, or the socket takes no more.
    Not,
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
        peer: IpAddr,
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
    pub(crate) async fn place_lost(&self) {
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
