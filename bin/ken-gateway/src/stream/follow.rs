//! Streams that have live readers. Each has a single open read at the store, regardless of the number of readers.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ken_types::ops::store::{ReadStream, StreamsRead};
use ken_types::{Code, Offset};
use ken_wire::Pool;
use parking_lot::Mutex;
use tokio::time::sleep;

use super::live_readers::LiveReaders;
use super::page::PAUSE;
use super::piece::Piece;
use super::subject::{Form, Subject};
use crate::part::CALL_TIMEOUT;

/// How long one read waits for entries before it is repeated.
const WAIT_MS: u64 = 300_000;

/// Which stream to follow, from where, and how its entries are sent.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) subject: Subject,
    /// The id of the stream, which distinguishes it from a later one of the same name.
    pub(crate) id: u64,
    pub(crate) form: Form,
    /// The last known number of its entries.
    pub(crate) end: u64,
}

/// A followed stream. Following ends when the last reference is dropped.
#[derive(Debug)]
pub(crate) struct FollowedStream {
    pub(crate) readers: Arc<LiveReaders>,
    follower: tokio::task::AbortHandle,
}

impl Drop for FollowedStream {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

/// Followed streams, by name and id.
type ByStream = HashMap<(String, u64), Weak<FollowedStream>>;

#[derive(Debug)]
pub(crate) struct FollowedStreams {
    store: Pool,
    by_stream: Mutex<ByStream>,
}

impl FollowedStreams {
    pub(crate) fn new(store: Pool) -> FollowedStreams {
        FollowedStreams { store, by_stream: Mutex::default() }
    }

    /// Returns a followed stream. Starts following it if needed.
    pub(crate) fn follow(&self, target: Target) -> Arc<FollowedStream> {
        let key = (target.subject.name.clone(), target.id);
        let mut streams = self.by_stream.lock();
        if let Some(stream) = streams.get(&key).and_then(Weak::upgrade) {
            return stream;
        }
        streams.retain(|_, stream| stream.strong_count() > 0);
        let readers = Arc::new(LiveReaders::at(target.end));
        let (store, followers) = (self.store.clone(), readers.clone());
        let follower = tokio::spawn(async move {
            follow(store, target, &followers).await;
            followers.finish();
        });
        let stream = Arc::new(FollowedStream { readers, follower: follower.abort_handle() });
        streams.insert(key, Arc::downgrade(&stream));
        stream
    }

    pub(crate) fn count(&self) -> usize {
        self.by_stream.lock().values().filter(|stream| stream.strong_count() > 0).count()
    }
}

/// Reads new entries until the stream is closed or deleted.
async fn follow(store: Pool, target: Target, readers: &LiveReaders) {
    loop {
        let next = readers.position().next;
        let args = ReadStream {
            wait_ms: WAIT_MS,
            id: Some(target.id),
            // `After` is used even for 0, because `-1` means the oldest entry that still exists.
            ..target.subject.read_from(Offset::After(next))
        };
        let time = Duration::from_millis(WAIT_MS) + CALL_TIMEOUT;
        match store.call::<StreamsRead>(&args, time).await {
            Ok(page) => {
                // Nothing arrived while the read waited.
                if page.is_empty() && !page.closed {
                    continue;
                }
                let piece = Piece::of(page, target.form, target.subject.kind);
                let closed = piece.end.closed;
                readers.send(piece).await;
                if closed {
                    return;
                }
            }
            Err(error) if matches!(error.code, Code::NotFound | Code::Conflict | Code::Gone) => return,
            // The store is restarting. It has all accepted entries when it is back.
            Err(_) => sleep(PAUSE).await,
        }
    }
}
