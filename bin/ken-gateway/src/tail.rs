//! The end of a stream, followed once for all who watch it: one open read to the store, however many readers.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use ken_http::{Outlet, SharedFrame};
use ken_types::ops::store::{ReadStream, StreamPage, StreamsRead};
use ken_types::{Code, Offset};
use ken_wire::Pool;
use tokio::time::sleep;

use crate::gateway::CALL;
use crate::read::{Form, PAUSE, Subject, next_cursor};
use crate::seats::{Arrival, Seats};
use crate::sse::{Place, data_frame};

/// One read waits so long; then it is made again.
const WAIT_MS: u64 = 300_000;

/// The end of a stream, and what was last appended to it.
#[derive(Debug)]
pub(crate) struct Newest {
    pub(crate) place: Place,
    /// Oldest first, without gaps, up to `place`: a reader that is a little behind goes on here, not in the store.
    recent: VecDeque<Piece>,
}

/// One page as it came, made into frames once and shared by all readers.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    /// Entries before its first.
    pub(crate) start: u64,
    /// Where that leads.
    pub(crate) place: Place,
    /// The entries as a data frame.
    pub(crate) data: Bytes,
    /// The same with the control frame that follows it, for readers whose own cursor is before `cursor`.
    frames: SharedFrame,
    cursor: u64,
}

/// What is kept for readers that are behind. One of them that does not read may hold a copy of all of it.
const RECENT_PIECES: usize = 32;
const RECENT_BYTES: usize = 16 * 1024;

impl Newest {
    pub(crate) fn at(end: u64) -> Newest {
        let place = Place {
            next: end,
            at_end: true,
            closed: false,
        };
        Newest {
            place,
            recent: VecDeque::new(),
        }
    }

    pub(crate) fn push(&mut self, piece: Piece) {
        self.place = piece.place;
        self.recent.push_back(piece);
        let mut bytes: usize = self.recent.iter().map(Piece::size).sum();
        while self.recent.len() > 1 && (self.recent.len() > RECENT_PIECES || bytes > RECENT_BYTES) {
            bytes -= self.recent.pop_front().map_or(0, |piece| piece.size());
        }
    }

    pub(crate) fn is_beyond(&self, place: Place) -> bool {
        self.place.next > place.next || self.place.closed
    }

    /// What came after a place; nothing if that is too long ago.
    pub(crate) fn since(&self, next: u64) -> Option<Vec<Piece>> {
        let first = self.recent.iter().position(|piece| piece.start == next)?;
        Some(self.recent.iter().skip(first).cloned().collect())
    }
}

impl Piece {
    fn of(page: StreamPage, followed: &Followed) -> Piece {
        let place = Place::after(&page);
        let start = page.start;
        let cursor = next_cursor(None).unwrap_or_default();
        let data = data_frame(page, followed.form, followed.subject.kind);
        let control = place.control(followed.subject.kind, cursor);
        Piece {
            start,
            place,
            frames: SharedFrame::of(&[&data, &control]),
            data,
            cursor,
        }
    }

    fn size(&self) -> usize {
        self.frames.bytes().len()
    }

    /// The frames for a reader with this cursor; none if it has to have its own control frame.
    pub(crate) fn frames(&self, cursor: Option<u64>) -> Option<&SharedFrame> {
        let shared = cursor.is_none_or(|cursor| cursor < self.cursor);
        shared.then_some(&self.frames)
    }
}

/// Which stream is followed, from where, and how its entries are sent.
#[derive(Debug, Clone)]
pub(crate) struct Followed {
    pub(crate) subject: Subject,
    /// One stream, not a later one of its name.
    pub(crate) id: u64,
    pub(crate) form: Form,
    /// Where it was just seen to end.
    pub(crate) end: u64,
}

/// A followed stream. It is followed as long as somebody holds this.
#[derive(Debug)]
pub(crate) struct Tail {
    seats: Arc<Seats>,
    follower: tokio::task::AbortHandle,
}

impl Tail {
    /// Comes to the end with everything up to a place.
    pub(crate) fn arrive(&self, place: Place, outlet: &Outlet, cursor: Option<u64>) -> Arrival<'_> {
        self.seats.arrive(place, outlet, cursor)
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

/// By name and id.
type ByStream = HashMap<(String, u64), Weak<Tail>>;

/// All followed streams.
#[derive(Debug)]
pub(crate) struct Tails {
    store: Pool,
    by_stream: Mutex<ByStream>,
}

impl Tails {
    pub(crate) fn new(store: Pool) -> Tails {
        Tails {
            store,
            by_stream: Mutex::default(),
        }
    }

    /// Follows a stream, or joins those who do already.
    pub(crate) fn follow(&self, followed: Followed) -> Arc<Tail> {
        let key = (followed.subject.name.clone(), followed.id);
        let mut tails = self.lock();
        if let Some(tail) = tails.get(&key).and_then(Weak::upgrade) {
            return tail;
        }
        tails.retain(|_, tail| tail.strong_count() > 0);
        let seats = Arc::new(Seats::at(followed.end));
        let (store, told) = (self.store.clone(), seats.clone());
        let follower = tokio::spawn(async move {
            follow(store, followed, &told).await;
            told.finish();
        });
        let tail = Arc::new(Tail {
            seats,
            follower: follower.abort_handle(),
        });
        tails.insert(key, Arc::downgrade(&tail));
        tail
    }

    pub(crate) fn count(&self) -> usize {
        self.lock()
            .values()
            .filter(|tail| tail.strong_count() > 0)
            .count()
    }

    fn lock(&self) -> MutexGuard<'_, ByStream> {
        self.by_stream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends with the stream, and when it is there no more.
async fn follow(store: Pool, followed: Followed, seats: &Seats) {
    loop {
        let next = seats.place().next;
        let args = ReadStream {
            wait_ms: WAIT_MS,
            id: Some(followed.id),
            // `After`, even at 0: `-1` of a long stream that has been cleared is another place.
            ..followed.subject.from(Offset::After(next))
        };
        let time = Duration::from_millis(WAIT_MS) + CALL;
        match store.call::<StreamsRead>(&args, time).await {
            Ok(page) => {
                // Nothing within the time of one read: it is made again.
                if page.is_empty() && !page.closed {
                    continue;
                }
                let piece = Piece::of(page, &followed);
                let closed = piece.place.closed;
                seats.tell(piece).await;
                if closed {
                    return;
                }
            }
            Err(error) if matches!(error.code, Code::NotFound | Code::Conflict) => return,
            // The store restarts: what was accepted is there when it is back.
            Err(_) => sleep(PAUSE).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::Kind;
    use ken_types::Octets;
    use ken_types::ops::streams::PublicPage;

    fn page(start: u64, bytes: usize) -> StreamPage {
        let public = PublicPage {
            content_type: "text/plain".into(),
            lifetime: None,
            bytes: Some(Octets(vec![b'x'; bytes])),
        };
        StreamPage {
            start,
            next: start + 1,
            end: start + 1,
            public: Some(public),
            ..StreamPage::default()
        }
    }

    #[test]
    fn who_is_a_little_behind_goes_on_without_the_store() {
        let subject = Subject {
            name: "streams/a".into(),
            kind: Kind::Public,
        };
        let followed = Followed {
            subject,
            id: 1,
            form: Form::Text,
            end: 5,
        };
        let mut newest = Newest::at(5);
        assert!(newest.since(5).is_none());
        for start in 5..60 {
            newest.push(Piece::of(page(start, 10), &followed));
        }
        assert_eq!(newest.place.next, 60);
        assert_eq!(newest.since(58).map(|pieces| pieces.len()), Some(2));
        assert_eq!(newest.since(28).map(|pieces| pieces.len()), Some(RECENT_PIECES));
        assert!(newest.since(27).is_none());
        // However large the last one is, it is there, and alone.
        newest.push(Piece::of(page(60, RECENT_BYTES), &followed));
        assert!(newest.since(59).is_none());
        let last = newest.since(60).unwrap();
        let frames = last[0].frames(None).unwrap();
        assert!(frames.bytes().ends_with(b"\"upToDate\":true}\n\n"));
        assert!(last[0].frames(Some(u64::MAX)).is_none());
    }
}
