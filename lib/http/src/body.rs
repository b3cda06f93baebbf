//! The body of a response: nothing, bytes, or a stream of frames that are produced as they are sent.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;

use crate::connection::Connection;
use crate::lazy_timeout::LazyTimeout;

pub(crate) enum Body {
    Full(Bytes),
    Stream(Box<Stream>),
}

/// A stream of frames. Its producer is polled only when the last frame has been written to the socket.
pub(crate) struct Stream {
    producer: Option<Producer>,
    slot: Slot,
    connection: Option<Arc<Connection>>,
    gone: Option<Producer>,
    /// Limits how long a reader may leave the rest of a shared frame unread.
    stall: LazyTimeout,
}

type Producer = Pin<Box<dyn Future<Output = ()> + Send>>;
type Slot = Arc<Mutex<Option<Bytes>>>;

/// The sending half, which a producer gets.
pub struct Frames(Slot);

impl Frames {
    /// Sends one frame and returns when it has been written to the socket, so that no frame is produced ahead of its
    /// reader. An empty frame is not sent. A frame is sent even if this future is dropped while it waits.
    pub async fn send(&mut self, frame: impl Into<Bytes>) {
        let frame = frame.into();
        if frame.is_empty() {
            return;
        }
        // The frame of a future that was dropped may still be waiting.
        self.sent().await;
        *self.0.lock() = Some(frame);
        self.sent().await;
    }

    /// Waits until the stream has taken the frame and written it.
    async fn sent(&self) {
        std::future::poll_fn(|_| if self.0.lock().is_none() { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

impl Body {
    pub(crate) fn stream<P, W>(produce: P) -> Body
    where
        P: FnOnce(Frames) -> W,
        W: Future<Output = ()> + Send + 'static,
    {
        let slot = Slot::default();
        Body::Stream(Box::new(Stream {
            producer: Some(Box::pin(produce(Frames(slot.clone())))),
            slot,
            connection: None,
            gone: None,
            stall: LazyTimeout::default(),
        }))
    }

    /// Gives a stream the connection that it is sent on.
    pub(crate) fn attach(&mut self, connection: &Arc<Connection>) {
        if let Body::Stream(stream) = self {
            let watched = connection.clone();
            stream.gone = Some(Box::pin(async move { watched.gone().await }));
            stream.connection = Some(connection.clone());
        }
    }
}

impl Stream {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if let Some(gone) = &mut self.gone
            && gone.as_mut().poll(cx).is_ready()
        {
            // The client closed the connection in the middle of the stream.
            return Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into())));
        }
        if let Some(connection) = &self.connection {
            if connection.frame_is_in_flight() {
                return Poll::Pending;
            }
            if connection.poll_rest(cx)?.is_pending() {
                return if self.stall.is_over(connection.resources.limits.stalled_reader, cx) {
                    Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())))
                } else {
                    Poll::Pending
                };
            }
            self.stall.end();
        }
        let produced = match &mut self.producer {
            Some(producer) => producer.as_mut().poll(cx),
            None => Poll::Ready(()),
        };
        if produced.is_ready() {
            self.producer = None;
        }
        let Some(frame) = self.slot.lock().take() else {
            ready!(produced);
            return Poll::Ready(None);
        };
        if let Some(connection) = &self.connection {
            connection.frame_sent();
        }
        Poll::Ready(Some(Ok(frame)))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let next = match self.get_mut() {
            Body::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Body::Full(bytes) => Poll::Ready(Some(Ok(std::mem::take(bytes)))),
            Body::Stream(stream) => stream.poll_next(cx),
        };
        next.map_ok(Frame::data)
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Full(bytes) => bytes.is_empty(),
            Body::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Body::Stream(_) => SizeHint::new(),
        }
    }
}
