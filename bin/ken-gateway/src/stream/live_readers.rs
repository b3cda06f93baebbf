//! The SSE clients that have caught up with a stream. New entries are written to their sockets here, one after the
//! other, without waking the task of each client. A task is woken only if its socket does not accept a whole frame or
//! if it needs its own frames.

use std::collections::BTreeMap;
use std::sync::Arc;

use ken_http::{Outlet, WriteResult};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::frame::Position;
use super::piece::{Newest, Piece};

/// The end of a followed stream, and the readers that wait there.
#[derive(Debug)]
pub(crate) struct LiveReaders(Mutex<Readers>);

#[derive(Debug)]
struct Readers {
    newest: Newest,
    by_number: BTreeMap<u64, Arc<LiveReader>>,
    last_number: u64,
    /// Whether following the stream has ended.
    ended: bool,
}

/// The state of one SSE client that has caught up with the stream.
#[derive(Debug)]
struct LiveReader {
    outlet: Outlet,
    cursor: Option<u64>,
    state: Mutex<ReaderState>,
    woken: Notify,
}

/// The position of a reader, and the time of the last write to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReaderState {
    pub(crate) position: Position,
    pub(crate) since: Instant,
    left: bool,
}

/// The result of [`LiveReaders::arrive`], for a reader that has read up to a position.
#[derive(Debug)]
pub(crate) enum Arrival<'a> {
    /// The reader has all entries and waits for new ones.
    Waits(Waiting<'a>),
    /// The pieces that arrived after the reader's position.
    Behind(Vec<Piece>),
    /// The pieces after the reader's position are no longer kept here.
    Lost,
    /// The stream has ended.
    Over,
}

/// How many readers are written to before other tasks get a turn.
const AT_ONCE: usize = 64;

impl LiveReaders {
    pub(crate) fn at(end: u64) -> LiveReaders {
        LiveReaders(Mutex::new(Readers {
            newest: Newest::at(end),
            by_number: BTreeMap::new(),
            last_number: 0,
            ended: false,
        }))
    }

    /// Returns the last known end of the stream.
    pub(crate) fn position(&self) -> Position {
        self.0.lock().newest.position
    }

    /// Adds a reader that has read everything up to a position.
    pub(crate) fn arrive(&self, position: Position, outlet: &Outlet, cursor: Option<u64>) -> Arrival<'_> {
        let mut readers = self.0.lock();
        if readers.newest.is_beyond(position) {
            let since = readers.newest.since(position.next);
            return since.map_or(Arrival::Lost, Arrival::Behind);
        }
        if readers.ended {
            return Arrival::Over;
        }
        let reader = Arc::new(LiveReader::new(position, outlet.clone(), cursor));
        readers.last_number += 1;
        let number = readers.last_number;
        readers.by_number.insert(number, reader.clone());
        Arrival::Waits(Waiting { readers: self, number, reader })
    }

    /// Sends a piece to all waiting readers. Readers that arrive later find it among the recent pieces.
    pub(crate) async fn send(&self, piece: Piece) {
        self.0.lock().newest.push(piece.clone());
        let mut from = 0;
        loop {
            let some = self.batch(from);
            some.iter().for_each(|(_, reader)| reader.take(&piece));
            match some.last() {
                Some((last, _)) if some.len() == AT_ONCE => from = last + 1,
                _ => return,
            }
            yield_now().await;
        }
    }

    /// Returns at most `AT_ONCE` readers, starting with a number.
    fn batch(&self, from: u64) -> Vec<(u64, Arc<LiveReader>)> {
        let readers = self.0.lock();
        let some = readers.by_number.range(from..).take(AT_ONCE);
        some.map(|(number, reader)| (*number, reader.clone())).collect()
    }

    /// Wakes all readers, because the stream has ended.
    pub(crate) fn finish(&self) {
        let mut readers = self.0.lock();
        readers.ended = true;
        readers.by_number.values().for_each(|reader| reader.woken.notify_one());
    }
}

impl LiveReader {
    fn new(position: Position, outlet: Outlet, cursor: Option<u64>) -> LiveReader {
        let state = ReaderState { position, since: Instant::now(), left: false };
        LiveReader { outlet, cursor, state: Mutex::new(state), woken: Notify::new() }
    }

    /// Writes a piece to the client, or wakes the task of the reader to fetch it.
    fn take(&self, piece: &Piece) {
        let mut state = self.state.lock();
        let relation = state.position.relation(piece.start, piece.end);
        if relation == Relation::Known || state.left {
            return;
        }
        let sent = match piece.frames(self.cursor) {
            Some(frames) if relation == Relation::Next => self.outlet.send(frames),
            _ => WriteResult::Nothing,
        };
        if sent != WriteResult::Nothing {
            state.position = piece.end;
            state.since = Instant::now();
        }
        if sent != WriteResult::Whole || piece.end.closed {
            self.woken.notify_one();
        }
    }
}

/// How a piece relates to the position of a reader.
#[derive(Debug, PartialEq, Eq)]
enum Relation {
    /// The reader already has all of it. This is possible because a reader can be ahead of the task that follows the
    /// stream.
    Known,
    /// It begins at the reader's position.
    Next,
    /// It begins elsewhere, so the reader would miss entries or get some twice.
    Apart,
}

impl Position {
    fn relation(self, start: u64, end: Position) -> Relation {
        match start == self.next {
            _ if end.next <= self.next && !end.closed => Relation::Known,
            true => Relation::Next,
            false => Relation::Apart,
        }
    }
}

/// A reader that waits for new entries.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    readers: &'a LiveReaders,
    number: u64,
    reader: Arc<LiveReader>,
}

impl Waiting<'_> {
    /// Returns when the task of the reader has something to do.
    pub(crate) async fn woken(&self) {
        self.reader.woken.notified().await;
    }

    pub(crate) fn state(&self) -> ReaderState {
        *self.reader.state.lock()
    }

    /// Ends the wait, after which no other task writes to the client. Returns the reader's position.
    pub(crate) fn into_position(self) -> Position {
        let mut state = self.reader.state.lock();
        state.left = true;
        state.position
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.reader.state.lock().left = true;
        self.readers.0.lock().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(next: u64, closed: bool) -> Position {
        Position { next, at_end: true, closed }
    }

    #[test]
    fn a_piece_is_sent_only_where_it_begins() {
        let reader = position(10, false);
        for (start, next, closed, relation) in [
            (10, 11, false, Relation::Next),
            (10, 10, true, Relation::Next),
            (8, 11, false, Relation::Apart),
            (9, 11, true, Relation::Apart),
            (11, 12, false, Relation::Apart),
            (8, 10, false, Relation::Known),
            (8, 9, false, Relation::Known),
            (8, 10, true, Relation::Apart),
        ] {
            let found = reader.relation(start, position(next, closed));
            assert_eq!(found, relation, "{start} to {next}");
        }
    }
}
