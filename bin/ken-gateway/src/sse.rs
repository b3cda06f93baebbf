//! A stream as server-sent events: the backlog, then live, without a seam.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ken_http::{Failure, Frames, LongResponse, Request, Response, Shutdown};
use ken_types::Offset;
use ken_types::ops::store::StreamPage;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::gateway::Gateway;
use crate::read::{Reading, Subject, array, next_cursor, page};
use crate::tail::Newest;

const HEARTBEAT: Duration = Duration::from_secs(15);
const CONTROL: Duration = Duration::from_secs(30);
/// Between tries while the store restarts.
const PAUSE: Duration = Duration::from_millis(20);

/// Answers with the stream. The first page is read here, so that a stream which is not there is a 404.
pub(crate) async fn open(
    gateway: Arc<Gateway>,
    request: &Request,
    subject: Subject,
    reading: Reading,
) -> Result<Response, Failure> {
    let held = request.hold()?;
    let first = page(&gateway, &subject, &reading, 0).await?;
    let shutdown = request.shutdown();
    let half_closed = Some(Box::pin(request.half_closed()) as HalfClosed);
    Ok(Response::events(|frames| {
        let reader = Reader {
            gateway,
            subject,
            reading,
            frames,
            shutdown,
            half_closed,
            _held: held,
        };
        reader.run(first)
    }))
}

struct Reader {
    gateway: Arc<Gateway>,
    subject: Subject,
    reading: Reading,
    frames: Frames,
    shutdown: Shutdown,
    /// Until it has been seen once.
    half_closed: Option<HalfClosed>,
    _held: LongResponse,
}

type HalfClosed = Pin<Box<dyn Future<Output = ()> + Send>>;

const COMMENT: Bytes = Bytes::from_static(b": heartbeat\n\n");

/// Where a reader is, and whether there is more.
#[derive(Debug, Clone, Copy)]
struct Place {
    next: u64,
    at_end: bool,
    closed: bool,
}

impl Place {
    fn after(page: &StreamPage) -> Place {
        let at_end = page.next == page.end;
        Place {
            next: page.next,
            at_end,
            closed: at_end && page.closed,
        }
    }
}

impl Reader {
    async fn run(mut self, first: StreamPage) {
        let mut place = self.backlog(first).await;
        if place.closed {
            return;
        }
        // Followed from where the backlog ended: nothing can lie between.
        let tail = self.gateway.tails.follow(&self.subject.name, place.next);
        let mut newest = tail.watch();
        while !place.closed && self.wait(&mut newest, place).await {
            let latest = newest.borrow_and_update().clone();
            place = match latest.start == place.next && !latest.frame.is_empty() {
                true => {
                    self.send(
                        latest.frame,
                        Place {
                            next: latest.end,
                            at_end: true,
                            closed: latest.closed,
                        },
                    )
                    .await
                }
                false => self.catch_up(place).await,
            };
        }
    }

    /// Sends pages until the end of the stream.
    async fn backlog(&mut self, first: StreamPage) -> Place {
        let mut page = first;
        loop {
            let place = Place::after(&page);
            let frame = if page.entries.is_empty() {
                Bytes::new()
            } else {
                data_frame(&page)
            };
            self.send(frame, place).await;
            if place.at_end {
                return place;
            }
            page = self.read(place.next).await;
        }
    }

    /// A reader that was too slow for the shared tail reads by itself; also one whose tail was ahead of it.
    async fn catch_up(&mut self, place: Place) -> Place {
        let page = self.read(place.next).await;
        let silent = page.entries.is_empty() && !page.closed;
        if silent { place } else { self.backlog(page).await }
    }

    async fn read(&mut self, after: u64) -> StreamPage {
        self.reading.offset = Offset::After(after);
        self.reading.tail = None;
        loop {
            match page(&self.gateway, &self.subject, &self.reading, 0).await {
                Ok(page) => return page,
                // The store restarts; the reader only notices the delay.
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    /// A control frame follows every data frame, and stands alone where there is no data.
    async fn send(&mut self, data: Bytes, place: Place) -> Place {
        let control = self.control(place);
        let frame = match data.is_empty() {
            true => control,
            false => Bytes::from([data.as_ref(), control.as_ref()].concat()),
        };
        self.frames.send(frame).await;
        place
    }

    fn control(&self, place: Place) -> Bytes {
        let offset = Offset::end(place.next);
        if place.closed {
            let text = format!(
                "event: control\ndata:{{\"streamNextOffset\":\"{offset}\",\"streamClosed\":true}}\n\n"
            );
            return text.into();
        }
        let cursor = next_cursor(self.reading.cursor()).unwrap_or_default();
        let up_to_date = if place.at_end { ",\"upToDate\":true" } else { "" };
        let data = format!("{{\"streamNextOffset\":\"{offset}\",\"streamCursor\":\"{cursor}\"{up_to_date}}}");
        format!("event: control\ndata:{data}\n\n").into()
    }

    /// Waits for what is beyond `place`, and shows meanwhile that the connection lives. False at the end.
    async fn wait(&mut self, newest: &mut watch::Receiver<Newest>, place: Place) -> bool {
        let begun = Instant::now();
        let (mut heartbeat, mut control) = (begun + HEARTBEAT, begun + CONTROL);
        loop {
            tokio::select! {
                biased;
                there = more(newest, place) => return there,
                () = self.shutdown.requested() => {
                    self.send(Bytes::new(), place).await;
                    return false;
                }
                () = half_closed(&mut self.half_closed) => {
                    // A reader that has closed looks the same as one that only ended its requests. Bytes tell them
                    // apart at once, so that one which comes and goes does not hold its place till the heartbeat.
                    self.half_closed = None;
                    self.frames.send(COMMENT).await;
                }
                () = sleep_until(heartbeat) => {
                    heartbeat += HEARTBEAT;
                    self.frames.send(COMMENT).await;
                }
                () = sleep_until(control) => {
                    control += CONTROL;
                    self.send(Bytes::new(), place).await;
                }
            }
        }
    }
}

/// Returns true when there is something beyond `place`, false when the stream is followed no more.
async fn more(newest: &mut watch::Receiver<Newest>, place: Place) -> bool {
    newest
        .wait_for(|newest| newest.end > place.next || newest.closed)
        .await
        .is_ok()
}

async fn half_closed(seen: &mut Option<HalfClosed>) {
    match seen {
        Some(half_closed) => half_closed.await,
        None => std::future::pending().await,
    }
}

/// One page as an event. JSON text holds no line ends, so it is one line.
pub(crate) fn data_frame(page: &StreamPage) -> Bytes {
    let mut frame = b"event: data\ndata:".to_vec();
    frame.extend_from_slice(&array(page));
    frame.extend_from_slice(b"\n\n");
    frame.into()
}
