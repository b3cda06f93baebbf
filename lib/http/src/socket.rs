//! The socket as hyper sees it. It passes on the bytes of one request at a time, after it has checked that the request is
//! well formed and arrives in time.
//!
//! A request that is refused is replaced by a small one, for which the service finds the refusal in the [`Connection`]. An
//! error in a head is therefore answered in order, and by the same code as every other error.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use hyper::rt::{Read, ReadBufCursor, Write};
use ken_types::{Code, Error};
use nix::sys::socket::{Shutdown as Direction, shutdown};
use std::os::fd::AsRawFd;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::time::{Instant, timeout};

use crate::chunks::ChunkReader;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::head::{self, BodyLength, Head, HeadReader};
use crate::lazy_timeout::LazyTimeout;
use crate::limits::Limits;

/// How many bytes are read at once: for heads and small bodies, and for large bodies.
const SMALL_READ: usize = 4 << 10;
const LARGE_READ: usize = 64 << 10;
/// The minimum that hyper reads at once, so it has all of a request up to this size.
const SKIPPED_BY_HYPER: usize = 8 << 10;
/// While the listener drains, a new connection has this long to send its first byte.
const FIRST_BYTE_TIMEOUT_IN_DRAIN: Duration = Duration::from_secs(1);

pub(crate) struct Socket {
    reader: OwnedReadHalf,
    connection: Arc<Connection>,
    input: BytesMut,
    /// Bytes at the front of `input` that may be passed to hyper.
    checked: usize,
    stage: Stage,
    /// Whether no request has arrived yet.
    is_unused: bool,
    /// Whether a request has arrived and hyper has not asked for the next one.
    is_busy: bool,
    peer_is_done: bool,
    write_is_blocked: bool,
    reading: LazyTimeout,
    writing: LazyTimeout,
    pace: Pace,
}

/// The part of a request that the unchecked bytes belong to.
enum Stage {
    Head(HeadReader),
    Body {
        left: u64,
    },
    Chunks(ChunkReader),
    /// Further bytes are ignored.
    Ended,
}

impl Socket {
    pub(crate) fn new(reader: OwnedReadHalf, connection: Arc<Connection>) -> Socket {
        Socket {
            reader,
            connection,
            input: BytesMut::new(),
            checked: 0,
            stage: Stage::Head(HeadReader::default()),
            is_unused: true,
            is_busy: false,
            peer_is_done: false,
            write_is_blocked: false,
            reading: LazyTimeout::default(),
            writing: LazyTimeout::default(),
            pace: Pace::default(),
        }
    }

    /// Ends the connection. The peer sees the end of the response at once. Further bytes are read and dropped for a while:
    /// closing a socket with unread bytes resets the connection, which could destroy a response that is on its way.
    pub(crate) async fn close(mut self) {
        let _ = shutdown(self.stream().as_raw_fd(), Direction::Write);
        self.set_idle();
        let known = !self.input.is_empty() || !matches!(self.stage, Stage::Head(_));
        if self.peer_is_done || !(known || self.has_more_input()) {
            return;
        }
        let limit = self.connection.resources.limits.linger;
        let _ = timeout(limit, self.discard()).await;
    }

    fn has_more_input(&self) -> bool {
        self.reader.try_read(&mut [0; 1]).is_ok_and(|count| count > 0)
    }

    async fn discard(&mut self) {
        self.input.reserve(SMALL_READ);
        while let Ok(1..) = self.reader.read_buf(&mut self.input).await {
            self.input.clear();
        }
    }

    fn stream(&self) -> &TcpStream {
        self.connection.writer.as_ref()
    }

    /// Checks what has arrived and moves `checked` as far as hyper may read, at most to the end of the request.
    fn check(&mut self) {
        if let Stage::Head(reader) = &mut self.stage {
            while reader.is_fresh() && self.input.starts_with(b"\r\n") {
                self.input.advance(2); // old clients send this after a body (RFC 9112, section 2.2)
            }
            if self.input.is_empty() {
                return;
            }
            match reader.read(&self.input, &self.connection.resources.limits) {
                Ok(None) => {}
                Ok(Some(head)) => self.begin_request(head),
                Err(failure) => self.refuse(failure),
            }
        } else {
            self.check_body();
        }
    }

    fn begin_request(&mut self, head: Head) {
        if !self.is_busy && !self.connection.begin_request() {
            self.stage = Stage::Ended;
            return;
        }
        self.reading.end();
        self.pace = Pace::default();
        self.is_unused = false;
        self.is_busy = true;
        self.checked = head.length;
        self.stage = match head.body {
            BodyLength::Known(0) => Stage::Head(HeadReader::default()),
            BodyLength::Known(left) => Stage::Body { left },
            BodyLength::Chunked => Stage::Chunks(ChunkReader::new()),
        };
        self.check_body();
        // hyper skips a small body of known length that came with its head. Any other body is open until it is read.
        let is_whole = matches!(self.stage, Stage::Head(_)) && self.checked <= SKIPPED_BY_HYPER;
        self.connection.set_body_open(!is_whole || head.body == BodyLength::Chunked);
    }

    /// Notes that hyper asks for a request, so the previous ones have been answered.
    fn set_idle(&mut self) {
        if std::mem::take(&mut self.is_busy) {
            self.connection.end_request();
        }
    }

    fn check_body(&mut self) {
        let unchecked = self.input.get(self.checked..).unwrap_or_default();
        let (count, at_end) = match &mut self.stage {
            Stage::Body { left } => {
                let count = unchecked.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= count as u64;
                (count, *left == 0)
            }
            Stage::Chunks(reader) => match reader.read(unchecked) {
                Ok(count) => (count, reader.is_at_end()),
                Err(_) => return self.fail_body(malformed_body("the chunks of the body are malformed")),
            },
            Stage::Head(_) | Stage::Ended => return,
        };
        self.checked += count;
        if at_end {
            self.stage = Stage::Head(HeadReader::default());
        }
    }

    /// Replaces the input by a small request and notes why.
    pub(crate) fn refuse(&mut self, failure: Failure) {
        let mut request = BytesMut::from(&b"GET / HTTP/1.1\r\nhost: refused\r\n"[..]);
        if let Some(id) = head::request_id_in(&self.input) {
            request.extend_from_slice(b"x-request-id: ");
            request.extend_from_slice(id);
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        self.checked = request.len();
        self.input = request;
        self.stage = Stage::Ended;
        self.connection.refuse(failure);
    }

    /// Ends the body early for hyper and notes why.
    fn fail_body(&mut self, failure: Failure) {
        self.stage = Stage::Ended;
        self.connection.fail_body(failure);
    }

    /// Passes checked bytes to hyper.
    fn pass(&mut self, out: &mut ReadBufCursor<'_>) {
        let count = self.checked.min(out.remaining());
        out.put_slice(self.input.get(..count).unwrap_or_default());
        self.input.advance(count);
        self.checked -= count;
        if self.input.is_empty() && self.input.capacity() > SMALL_READ && self.is_between_requests() {
            self.input = BytesMut::new(); // an idle connection keeps no large buffer
        }
    }

    fn is_between_requests(&self) -> bool {
        matches!(self.stage, Stage::Head(_)) && self.input.is_empty()
    }

    /// Waits for more bytes, for as long as the stage allows. Ready when bytes or the stage have changed.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.write_is_blocked && self.is_between_requests() {
            // A peer that does not read responses may not send more requests.
            self.connection.await_flush();
            return Poll::Pending;
        }
        let room = match self.stage {
            Stage::Body { left } if left > SMALL_READ as u64 => LARGE_READ,
            Stage::Chunks(_) => LARGE_READ,
            _ => SMALL_READ,
        };
        self.input.reserve(room);
        match pin!(self.reader.read_buf(&mut self.input)).poll(cx) {
            Poll::Ready(count) => {
                self.received(count?);
                Poll::Ready(Ok(()))
            }
            Poll::Pending if self.waited_too_long(cx) => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        }
    }

    fn received(&mut self, count: usize) {
        if count > 0 {
            // The time of a head is counted from its first byte, that of a body from its last received byte.
            let is_head = matches!(self.stage, Stage::Head(_));
            if !is_head || self.input.len() == count {
                self.reading.end();
            }
            if !is_head && self.pace.is_too_slow(count as u64, &self.connection.resources.limits) {
                self.fail_body(Failure::too_slow("the body arrived too slowly"));
            }
            return;
        }
        self.peer_is_done = true;
        match self.stage {
            Stage::Head(_) if self.input.is_empty() => self.stage = Stage::Ended,
            Stage::Head(_) => self.refuse(malformed_body("the request ends inside its headers")),
            _ => self.fail_body(malformed_body("the body ends early")),
        }
    }

    /// Whether the time limit has passed; if so, the stage has changed.
    fn waited_too_long(&mut self, cx: &mut Context<'_>) -> bool {
        let limit = match self.stage {
            Stage::Head(_) if self.input.is_empty() => self.idle_limit(),
            Stage::Head(_) => self.connection.resources.limits.head_time,
            _ => self.connection.resources.limits.body_pause,
        };
        let over = self.reading.is_over(limit, cx);
        if over {
            self.give_up();
        }
        over
    }

    fn give_up(&mut self) {
        match self.stage {
            Stage::Head(_) if self.input.is_empty() => self.stage = Stage::Ended,
            Stage::Head(_) => self.refuse(Failure::too_slow("the headers took too long")),
            _ => self.fail_body(Failure::too_slow("the body paused too long")),
        }
    }

    fn idle_limit(&self) -> Duration {
        match (self.connection.resources.shutdown.is_requested(), self.is_unused) {
            (false, _) => self.connection.resources.limits.idle,
            (true, true) => self.connection.resources.limits.idle.min(FIRST_BYTE_TIMEOUT_IN_DRAIN),
            (true, false) => Duration::ZERO,
        }
    }
}

impl Read for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, mut out: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.checked == 0 {
                self.check();
            }
            if self.checked > 0 || matches!(self.stage, Stage::Ended) {
                self.pass(&mut out);
                return Poll::Ready(Ok(()));
            }
            if matches!(self.stage, Stage::Head(_)) {
                self.set_idle();
            }
            ready!(self.poll_more(cx))?;
        }
    }
}

impl Write for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            let Poll::Ready(ready) = self.stream().poll_write_ready(cx) else {
                self.write_is_blocked = true;
                let limit = self.connection.resources.limits.stalled_reader;
                return if self.writing.is_over(limit, cx) {
                    Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
                } else {
                    Poll::Pending
                };
            };
            ready?;
            match self.stream().try_write_vectored(parts) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => {
                    self.write_is_blocked = false;
                    self.writing.end();
                    return Poll::Ready(written);
                }
            }
        }
    }

    /// hyper calls this after it has written everything.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.connection.flushed() {
            cx.waker().wake_by_ref();
        }
        Poll::Ready(Ok(()))
    }

    /// hyper does not call this: [`Socket::close`] ends the connection.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn malformed_body(what: &str) -> Failure {
    Failure::from(Error::new(Code::Invalid, format!("malformed request: {what}"))).closing()
}

/// Checks whether a body arrives fast enough. Each period is measured separately, so a fast start does not compensate for a slow
/// rest.
#[derive(Default)]
struct Pace {
    since: Option<Instant>,
    bytes: u64,
}

impl Pace {
    /// Counts bytes that have arrived, and returns whether the body is too slow. A body that pauses is cut off earlier.
    fn is_too_slow(&mut self, count: u64, limits: &Limits) -> bool {
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        self.bytes += count;
        if now.duration_since(since) < limits.body_rate_time {
            return false;
        }
        let min = limits.body_rate * limits.body_rate_time.as_secs();
        let is_slow = self.bytes < min;
        *self = Pace { since: Some(now), bytes: 0 };
        is_slow
    }
}
