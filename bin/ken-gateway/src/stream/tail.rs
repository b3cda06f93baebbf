//! The end of a stream, followed once for all who watch it: one open read to the store, however many readers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ken_http::Outlet;
use ken_types::ops::store::{ReadStream, StreamsRead};
use ken_types::{Code, Offset};
use ken_wire::Pool;
use tokio::time::sleep;

use super::frame::Position;
use super::live_readers::{Arrival, LiveReaders};
use super::page::PAUSE;
use super::piece::Piece;
use super::subject::{Form, Subject};
use crate::store::CALL;

/// One read waits so long; then it is made again.
const WAIT_MS: u64 = 300_000;

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
    readers: Arc<LiveReaders>,
    follower: tokio::task::AbortHandle,
}

impl Tail {
    /// Comes to the end with everything up to a position.
    pub(crate) fn arrive(&self, position: Position, outlet: &Outlet, cursor: Option<u64>) -> Arrival<'_> {
        self.readers.arrive(position, outlet, cursor)
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
        let readers = Arc::new(LiveReaders::at(followed.end));
        let (store, told) = (self.store.clone(), readers.clone());
        let follower = tokio::spawn(async move {
            follow(store, followed, &told).await;
            told.finish();
        });
        let tail = Arc::new(Tail {
            readers,
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
async fn follow(store: Pool, followed: Followed, readers: &LiveReaders) {
    loop {
        let next = readers.position().next;
        let args = ReadStream {
            wait_ms: WAIT_MS,
            id: Some(followed.id),
            // `After`, even at 0: `-1` of a long stream that has been cleared is another position.
            ..followed.subject.from(Offset::After(next))
        };
        let time = Duration::from_millis(WAIT_MS) + CALL;
        match store.call::<StreamsRead>(&args, time).await {
            Ok(page) => {
                // Nothing within the time of one read: it is made again.
                if page.is_empty() && !page.closed {
                    continue;
                }
                let piece = Piece::of(page, followed.form, followed.subject.kind);
                let closed = piece.end.closed;
                readers.tell(piece).await;
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
