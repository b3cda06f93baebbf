//! A stream as server-sent events: first the backlog, then new entries, without a gap or a repetition between them.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ken_http::http::StatusCode;
use ken_http::{Failure, Frames, LongResponse, Outlet, Request, Response, SharedFrame, Shutdown};
use ken_types::Offset;
use ken_types::ops::store::{ReadStream, StreamPage};
use tokio::time::{sleep, sleep_until};

use super::cursor::next_cursor;
use super::follow::Target;
use super::frame::{Position, data_frame};
use super::live_readers::{Arrival, Waiting};
use super::page::{PAUSE, page};
use super::piece::Piece;
use super::reading::Reading;
use super::subject::{Form, Kind, Subject};
use crate::app::Gateway;

const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);
const CONTROL_INTERVAL: Duration = Duration::from_secs(30);
/// The maximum size of a page that is read for a single reader, in bytes. It stays in memory until the reader has read
/// it. A single entry can be larger.
const OWN_PAGE_BYTES: u32 = 16 * 1024;

/// Responds with the stream. The first page is read here, so that the response for a missing stream is 404.
pub(crate) async fn open(
    gateway: Arc<Gateway>,
    request: &Request,
    subject: Subject,
    reading: Reading,
) -> Result<Response, Failure> {
    let held = request.hold()?;
    let first = ReadStream { max_bytes: OWN_PAGE_BYTES, ..reading.first(&subject) };
    let first = page(&gateway.store, &subject, &first).await?;
    let shutdown = request.shutdown();
    let half_closed = Some(Box::pin(request.half_closed()) as HalfClosed);
    let outlet = request.outlet();
    let form = Form::of(&first);
    let response = Response::events(|frames| {
        let reader = Reader {
            gateway,
            subject,
            id: first.id,
            form,
            cursor: reading.cursor,
            frames,
            outlet,
            shutdown,
            half_closed,
            _held: held,
        };
        reader.run(first)
    });
    match form {
        Form::Json | Form::Text => Ok(response),
        Form::Bytes => response.text_header("stream-sse-data-encoding", "base64"),
    }
}

struct Reader {
    gateway: Arc<Gateway>,
    subject: Subject,
    id: u64,
    form: Form,
    /// The last cursor that the client has seen.
    cursor: Option<u64>,
    frames: Frames,
    outlet: Outlet,
    shutdown: Shutdown,
    /// Resolves when the client shuts down its write half. `None` after that.
    half_closed: Option<HalfClosed>,
    _held: LongResponse,
}

type HalfClosed = Pin<Box<dyn Future<Output = ()> + Send>>;

const COMMENT: Bytes = Bytes::from_static(b": heartbeat\n\n");

/// The stream no longer exists.
struct Gone;

impl Reader {
    async fn run(mut self, first: StreamPage) {
        // When a stream is deleted, its readers are disconnected. They get the reason when they reconnect.
        _ = self.follow(first).await;
    }

    async fn follow(&mut self, first: StreamPage) -> Result<(), Gone> {
        let mut position = self.send_backlog(first).await?;
        if position.closed {
            return Ok(());
        }
        // The stream is followed from where the backlog ended, so nothing is missed in between.
        let stream = self.gateway.followed.follow(Target {
            subject: self.subject.clone(),
            id: self.id,
            form: self.form,
            end: position.next,
        });
        while !position.closed {
            position = match stream.readers.arrive(position, &self.outlet, self.cursor) {
                Arrival::Waits(waiting) => match self.wait(waiting).await {
                    Some(position) => position,
                    None => break,
                },
                Arrival::Behind(pieces) => self.pass_on(&pieces, position).await,
                Arrival::Lost => self.catch_up(position).await?,
                Arrival::Over => {
                    // The session was deleted. The last offset tells the client that it missed nothing before that. A stream
                    // below /streams only ends: another one can have its name at once, and offsets of its own.
                    if self.subject.kind == Kind::Agent {
                        self.send(Bytes::new(), position).await;
                    }
                    break;
                }
            };
        }
        Ok(())
    }

    /// Sends pages until the reader reaches the end of the stream.
    async fn send_backlog(&mut self, first: StreamPage) -> Result<Position, Gone> {
        let mut page = first;
        loop {
            let position = Position::after(&page);
            let data = data_frame(page, self.form, self.subject.kind);
            self.send(data, position).await;
            if position.at_end {
                return Ok(position);
            }
            page = self.read(position.next).await?;
        }
    }

    /// Reads entries from the store that are no longer among the recent pieces.
    async fn catch_up(&mut self, position: Position) -> Result<Position, Gone> {
        let page = self.read(position.next).await?;
        if page.is_empty() && !page.closed { Ok(position) } else { self.send_backlog(page).await }
    }

    async fn read(&mut self, after: u64) -> Result<StreamPage, Gone> {
        let args =
            ReadStream { max_bytes: OWN_PAGE_BYTES, id: Some(self.id), ..self.subject.read_from(Offset::After(after)) };
        loop {
            match page(&self.gateway.store, &self.subject, &args).await {
                Ok(page) => return Ok(page),
                Err(error) if matches!(error.status_code(), StatusCode::NOT_FOUND | StatusCode::GONE) => {
                    return Err(Gone);
                }
                // The store is restarting. The reader only notices a delay.
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    /// Sends recent pieces. Where possible, it sends the bytes that all readers share.
    async fn pass_on(&mut self, pieces: &[Piece], from: Position) -> Position {
        let shared: Option<Vec<&Bytes>> =
            pieces.iter().map(|piece| piece.frames(self.cursor).map(SharedFrame::bytes)).collect();
        match shared.as_deref() {
            Some([frames]) => self.frames.send((*frames).clone()).await,
            Some(several) => {
                let several: Vec<&[u8]> = several.iter().map(|frames| frames.as_ref()).collect();
                self.frames.send(several.concat()).await;
            }
            None => {
                for piece in pieces {
                    self.send(piece.data.clone(), piece.end).await;
                }
            }
        }
        pieces.last().map_or(from, |piece| piece.end)
    }

    /// Sends a data frame followed by a control frame, or a control frame alone if there is no data.
    async fn send(&mut self, data: Bytes, position: Position) {
        let cursor = next_cursor(self.cursor).unwrap_or_default();
        let control = position.control(self.subject.kind, cursor);
        let frame = if data.is_empty() { control } else { Bytes::from([data.as_ref(), control.as_ref()].concat()) };
        self.frames.send(frame).await;
    }

    /// Waits while another task writes new entries to this client, and sends heartbeats and control frames when there
    /// are none. Returns the client's position, or `None` at the end.
    async fn wait(&mut self, waiting: Waiting<'_>) -> Option<Position> {
        let mut since = waiting.state().since;
        let (mut heartbeat, mut control) = (since + HEARTBEAT_INTERVAL, since + CONTROL_INTERVAL);
        loop {
            let alarm = heartbeat.min(control);
            tokio::select! {
                biased;
                () = waiting.woken() => return Some(waiting.into_position()),
                () = self.shutdown.requested() => {
                    let position = waiting.into_position();
                    self.send(Bytes::new(), position).await;
                    return None;
                }
                () = half_closed(&mut self.half_closed) => {
                    // A client that has closed the connection looks the same as one that has only shut down its write
                    // half. A write tells them apart at once. Without it, a closed connection would be kept until the
                    // heartbeat.
                    self.half_closed = None;
                    self.frames.send(COMMENT).await;
                }
                () = sleep_until(alarm) => {
                    let state = waiting.state();
                    if state.since > since {
                        // Entries were written in the meantime, so both intervals start again.
                        since = state.since;
                        (heartbeat, control) = (since + HEARTBEAT_INTERVAL, since + CONTROL_INTERVAL);
                    } else if alarm == heartbeat {
                        heartbeat += HEARTBEAT_INTERVAL;
                        self.frames.send(COMMENT).await;
                    } else {
                        control += CONTROL_INTERVAL;
                        self.send(Bytes::new(), state.position).await;
                    }
                }
            }
        }
    }
}

async fn half_closed(seen: &mut Option<HalfClosed>) {
    match seen {
        Some(half_closed) => half_closed.await,
        None => std::future::pending().await,
    }
}
