//! A stream as server-sent events: the backlog, then live, without a seam.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ken_http::http::StatusCode;
use ken_http::{Failure, Frames, LongResponse, Outlet, Request, Response, SharedFrame, Shutdown};
use ken_types::Offset;
use ken_types::ops::store::{ReadStream, StreamPage};
use tokio::time::{sleep, sleep_until};

use crate::gateway::Gateway;
use crate::read::{Form, Kind, PAUSE, Reading, Subject, body, next_cursor, page};
use crate::seats::{Arrival, Waiting};
use crate::tail::{Followed, Piece};

const HEARTBEAT: Duration = Duration::from_secs(15);
const CONTROL: Duration = Duration::from_secs(30);
/// A page that one reader has for itself, unless a single entry is larger: it holds it for as long as it does not read.
const OWN_PAGE_BYTES: u32 = 16 * 1024;

/// Answers with the stream. The first page is read here, so that a stream which is not there is a 404.
pub(crate) async fn open(
    gateway: Arc<Gateway>,
    request: &Request,
    subject: Subject,
    reading: Reading,
) -> Result<Response, Failure> {
    let held = request.hold()?;
    let first = ReadStream {
        max_bytes: OWN_PAGE_BYTES,
        ..reading.first(&subject)
    };
    let first = page(&gateway, &subject, &first).await?;
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
            cursor: reading.cursor(),
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
    /// What the client had seen.
    cursor: Option<u64>,
    frames: Frames,
    outlet: Outlet,
    shutdown: Shutdown,
    /// Until it has been seen once.
    half_closed: Option<HalfClosed>,
    _held: LongResponse,
}

type HalfClosed = Pin<Box<dyn Future<Output = ()> + Send>>;

const COMMENT: Bytes = Bytes::from_static(b": heartbeat\n\n");

/// Where a reader is, and whether there is more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) next: u64,
    pub(crate) at_end: bool,
    pub(crate) closed: bool,
}

impl Place {
    pub(crate) fn after(page: &StreamPage) -> Place {
        Place {
            next: page.next,
            at_end: page.at_end(),
            closed: page.at_end() && page.closed,
        }
    }

    pub(crate) fn control(self, kind: Kind, cursor: u64) -> Bytes {
        let offset = kind.place(self.next);
        if self.closed {
            let text = format!(
                "event: control\ndata:{{\"streamNextOffset\":\"{offset}\",\"streamClosed\":true}}\n\n"
            );
            return text.into();
        }
        let up_to_date = if self.at_end { ",\"upToDate\":true" } else { "" };
        let data = format!("{{\"streamNextOffset\":\"{offset}\",\"streamCursor\":\"{cursor}\"{up_to_date}}}");
        format!("event: control\ndata:{data}\n\n").into()
    }
}

/// The stream is there no more.
struct Gone;

impl Reader {
    async fn run(mut self, first: StreamPage) {
        // A stream that goes ends its readers: they learn the rest when they come back.
        _ = self.follow(first).await;
    }

    async fn follow(&mut self, first: StreamPage) -> Result<(), Gone> {
        let mut place = self.backlog(first).await?;
        if place.closed {
            return Ok(());
        }
        // Followed from where the backlog ended: nothing can lie between.
        let tail = self.gateway.tails.follow(Followed {
            subject: self.subject.clone(),
            id: self.id,
            form: self.form,
            end: place.next,
        });
        while !place.closed {
            place = match tail.arrive(place, &self.outlet, self.cursor) {
                Arrival::Waits(waiting) => match self.wait(waiting).await {
                    Some(place) => place,
                    None => break,
                },
                Arrival::Behind(pieces) => self.pass_on(&pieces, place).await,
                Arrival::Lost => self.catch_up(place).await?,
                Arrival::Over => break,
            };
        }
        Ok(())
    }

    /// Sends pages until the end of the stream.
    async fn backlog(&mut self, first: StreamPage) -> Result<Place, Gone> {
        let mut page = first;
        loop {
            let place = Place::after(&page);
            let data = data_frame(page, self.form, self.subject.kind);
            self.send(data, place).await;
            if place.at_end {
                return Ok(place);
            }
            page = self.read(place.next).await?;
        }
    }

    /// A reader that was too slow for the shared tail reads by itself; also one whose tail was ahead of it.
    async fn catch_up(&mut self, place: Place) -> Result<Place, Gone> {
        let page = self.read(place.next).await?;
        let silent = page.is_empty() && !page.closed;
        if silent {
            Ok(place)
        } else {
            self.backlog(page).await
        }
    }

    async fn read(&mut self, after: u64) -> Result<StreamPage, Gone> {
        let args = ReadStream {
            max_bytes: OWN_PAGE_BYTES,
            id: Some(self.id),
            ..self.subject.from(Offset::After(after))
        };
        loop {
            match page(&self.gateway, &self.subject, &args).await {
                Ok(page) => return Ok(page),
                Err(error) if matches!(error.status_code(), StatusCode::NOT_FOUND | StatusCode::GONE) => {
                    return Err(Gone);
                }
                // The store restarts; the reader only notices the delay.
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    /// What all readers of the stream get, as far as possible in the bytes that they share.
    async fn pass_on(&mut self, pieces: &[Piece], from: Place) -> Place {
        let shared: Option<Vec<&Bytes>> = pieces
            .iter()
            .map(|piece| piece.frames(self.cursor).map(SharedFrame::bytes))
            .collect();
        match shared.as_deref() {
            Some([frames]) => self.frames.send((*frames).clone()).await,
            Some(several) => {
                let several: Vec<&[u8]> = several.iter().map(|frames| frames.as_ref()).collect();
                self.frames.send(several.concat()).await;
            }
            None => {
                for piece in pieces {
                    self.send(piece.data.clone(), piece.place).await;
                }
            }
        }
        pieces.last().map_or(from, |piece| piece.place)
    }

    /// A control frame follows every data frame, and stands alone where there is no data.
    async fn send(&mut self, data: Bytes, place: Place) {
        let cursor = next_cursor(self.cursor).unwrap_or_default();
        let control = place.control(self.subject.kind, cursor);
        let frame = match data.is_empty() {
            true => control,
            false => Bytes::from([data.as_ref(), control.as_ref()].concat()),
        };
        self.frames.send(frame).await;
    }

    /// Waits while others write to this reader, and shows that the connection lives when they do not. Says where it
    /// then is; nothing at the end.
    async fn wait(&mut self, waiting: Waiting<'_>) -> Option<Place> {
        let mut since = waiting.stand().since;
        let (mut heartbeat, mut control) = (since + HEARTBEAT, since + CONTROL);
        loop {
            let alarm = heartbeat.min(control);
            tokio::select! {
                biased;
                () = waiting.called() => return Some(waiting.leave()),
                () = self.shutdown.requested() => {
                    let place = waiting.leave();
                    self.send(Bytes::new(), place).await;
                    return None;
                }
                () = half_closed(&mut self.half_closed) => {
                    // A reader that has closed looks the same as one that only ended its requests. Bytes tell them
                    // apart at once, so that one which comes and goes does not hold its place till the heartbeat.
                    self.half_closed = None;
                    self.frames.send(COMMENT).await;
                }
                () = sleep_until(alarm) => {
                    let stand = waiting.stand();
                    if stand.since > since {
                        // It was written to since then: both times count from there.
                        since = stand.since;
                        (heartbeat, control) = (since + HEARTBEAT, since + CONTROL);
                    } else if alarm == heartbeat {
                        heartbeat += HEARTBEAT;
                        self.frames.send(COMMENT).await;
                    } else {
                        control += CONTROL;
                        self.send(Bytes::new(), stand.place).await;
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

/// One page as an event, with the offset behind it as its id, from which a browser resumes by itself; nothing of an
/// empty one.
pub(crate) fn data_frame(mut page: StreamPage, form: Form, kind: Kind) -> Bytes {
    if page.is_empty() {
        return Bytes::new();
    }
    let body = body(&mut page);
    let mut frame = format!("id: {}\nevent: data\n", kind.place(page.next)).into_bytes();
    match form {
        // JSON text holds no line ends, so it is one line.
        Form::Json => push_line(&mut frame, &body),
        Form::Bytes => push_line(&mut frame, STANDARD.encode(&body).as_bytes()),
        Form::Text => lines(&body).for_each(|line| push_line(&mut frame, line)),
    }
    frame.push(b'\n');
    frame.into()
}

fn push_line(frame: &mut Vec<u8>, line: &[u8]) {
    frame.extend_from_slice(b"data:");
    frame.extend_from_slice(line);
    frame.push(b'\n');
}

/// Split at CR, LF and CRLF: each of them ends a line of the format, so none may stand in one.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(end) = text.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
            rest = None;
            return Some(text);
        };
        let (line, ended) = text.split_at_checked(end)?;
        rest = ended.strip_prefix(b"\r\n").or_else(|| ended.get(1..));
        Some(line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_end_splits_and_nothing_is_lost() {
        for (text, expected) in [
            ("", vec![""]),
            ("a", vec!["a"]),
            ("a\nb\rc\r\nd", vec!["a", "b", "c", "d"]),
            ("\n\r\n\r", vec!["", "", "", ""]),
        ] {
            let found: Vec<&[u8]> = lines(text.as_bytes()).collect();
            assert_eq!(
                found,
                expected.iter().map(|line| line.as_bytes()).collect::<Vec<_>>(),
                "{text:?}"
            );
        }
    }
}
