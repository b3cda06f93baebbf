//! The end of a stream, followed once for all who watch it: one open read to the store, however many readers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use ken_types::Offset;
use ken_types::limits::PAGE_EVENTS;
use ken_types::ops::store::{ReadStream, StreamsRead};
use ken_wire::Pool;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::gateway::CALL;
use crate::sse::data_frame;

/// One read waits so long; then it is made again.
const WAIT_MS: u64 = 300_000;
/// Between tries while the store restarts.
const PAUSE: Duration = Duration::from_millis(20);

/// What was last appended.
#[derive(Debug, Clone, Default)]
pub(crate) struct Newest {
    /// Entries before the first of `frame`, and in the stream after its last.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) closed: bool,
    /// The entries as a data frame, made once and shared by all readers.
    pub(crate) frame: Bytes,
}

/// A followed stream. It is followed as long as somebody holds this.
#[derive(Debug)]
pub(crate) struct Tail {
    newest: watch::Receiver<Newest>,
    follower: tokio::task::AbortHandle,
}

impl Tail {
    pub(crate) fn watch(&self) -> watch::Receiver<Newest> {
        self.newest.clone()
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

/// All followed streams.
#[derive(Debug)]
pub(crate) struct Tails {
    store: Pool,
    by_stream: Mutex<HashMap<String, Weak<Tail>>>,
}

impl Tails {
    pub(crate) fn new(store: Pool) -> Tails {
        Tails {
            store,
            by_stream: Mutex::default(),
        }
    }

    /// Follows a stream from a place where it was just seen to end, or joins those who do already.
    pub(crate) fn follow(&self, stream: &str, end: u64) -> Arc<Tail> {
        let mut tails = self.lock();
        if let Some(tail) = tails.get(stream).and_then(Weak::upgrade) {
            return tail;
        }
        tails.retain(|_, tail| tail.strong_count() > 0);
        let (sender, newest) = watch::channel(Newest {
            start: end,
            end,
            ..Newest::default()
        });
        let follower = tokio::spawn(follow(self.store.clone(), stream.to_owned(), sender)).abort_handle();
        let tail = Arc::new(Tail { newest, follower });
        tails.insert(stream.to_owned(), Arc::downgrade(&tail));
        tail
    }

    pub(crate) fn count(&self) -> usize {
        self.lock()
            .values()
            .filter(|tail| tail.strong_count() > 0)
            .count()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Weak<Tail>>> {
        self.by_stream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn follow(store: Pool, stream: String, newest: watch::Sender<Newest>) {
    loop {
        let end = newest.borrow().end;
        let args = ReadStream {
            stream: stream.clone(),
            // `After`, even at 0: `-1` of a long stream that has been cleared is another place.
            offset: Offset::After(end),
            limit: PAGE_EVENTS,
            tail: None,
            wait_ms: WAIT_MS,
            gather_ms: 0,
        };
        match store
            .call::<StreamsRead>(&args, Duration::from_millis(WAIT_MS) + CALL)
            .await
        {
            Ok(page) => {
                let frame = if page.entries.is_empty() {
                    Bytes::new()
                } else {
                    data_frame(&page)
                };
                let closed = page.closed && page.next == page.end;
                newest.send_replace(Newest {
                    start: page.start,
                    end: page.next,
                    closed,
                    frame,
                });
                if closed {
                    return;
                }
            }
            // The store restarts: what was accepted is there when it is back.
            Err(_) => sleep(PAUSE).await,
        }
    }
}
