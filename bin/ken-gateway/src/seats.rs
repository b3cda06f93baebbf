//! The readers of a stream that have everything. What comes is written to their sockets here, in one go: no task is
//! woken for it. Only a reader whose socket does not take it, or who wants frames of its own, has to see for itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ken_http::{Outlet, Sent};
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::Instant;

use crate::sse::Place;
use crate::tail::{Newest, Piece};

/// The end of a followed stream and who is there.
#[derive(Debug)]
pub(crate) struct Seats(Mutex<Seated>);

#[derive(Debug)]
struct Seated {
    newest: Newest,
    by_number: BTreeMap<u64, Arc<Seat>>,
    last_number: u64,
    /// The stream is followed no more.
    over: bool,
}

/// Of one reader.
#[derive(Debug)]
struct Seat {
    outlet: Outlet,
    cursor: Option<u64>,
    stand: Mutex<Stand>,
    called: Notify,
}

/// How far a reader is, and since when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stand {
    pub(crate) place: Place,
    pub(crate) since: Instant,
    left: bool,
}

/// What a reader finds that comes to the end.
#[derive(Debug)]
pub(crate) enum Arrival<'a> {
    /// It has everything, and a seat.
    Waits(Waiting<'a>),
    /// This came meanwhile.
    Behind(Vec<Piece>),
    /// What came meanwhile is kept here no more.
    Lost,
    /// Nothing comes any more.
    Over,
}

/// Readers that are written to before other work has its turn.
const AT_ONCE: usize = 64;

impl Seats {
    pub(crate) fn at(end: u64) -> Seats {
        Seats(Mutex::new(Seated {
            newest: Newest::at(end),
            by_number: BTreeMap::new(),
            last_number: 0,
            over: false,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Seated> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The end.
    pub(crate) fn place(&self) -> Place {
        self.lock().newest.place
    }

    /// Comes to the end with everything up to a place.
    pub(crate) fn arrive(&self, place: Place, outlet: &Outlet, cursor: Option<u64>) -> Arrival<'_> {
        let mut seated = self.lock();
        if seated.newest.is_beyond(place) {
            let since = seated.newest.since(place.next);
            return since.map_or(Arrival::Lost, Arrival::Behind);
        }
        if seated.over {
            return Arrival::Over;
        }
        let seat = Arc::new(Seat::new(place, outlet.clone(), cursor));
        seated.last_number += 1;
        let number = seated.last_number;
        seated.by_number.insert(number, seat.clone());
        Arrival::Waits(Waiting {
            seats: self,
            number,
            seat,
        })
    }

    /// Tells all who are there; whoever comes later finds it.
    pub(crate) async fn tell(&self, piece: Piece) {
        self.lock().newest.push(piece.clone());
        let mut from = 0;
        loop {
            let some = self.some(from);
            some.iter().for_each(|(_, seat)| seat.take(&piece));
            match some.last() {
                Some((last, _)) if some.len() == AT_ONCE => from = last + 1,
                _ => return,
            }
            yield_now().await;
        }
    }

    /// Some of the seats, from a number on.
    fn some(&self, from: u64) -> Vec<(u64, Arc<Seat>)> {
        let seated = self.lock();
        let some = seated.by_number.range(from..).take(AT_ONCE);
        some.map(|(number, seat)| (*number, seat.clone())).collect()
    }

    /// Nothing comes any more.
    pub(crate) fn finish(&self) {
        let mut seated = self.lock();
        seated.over = true;
        seated
            .by_number
            .values()
            .for_each(|seat| seat.called.notify_one());
    }
}

impl Seat {
    fn new(place: Place, outlet: Outlet, cursor: Option<u64>) -> Seat {
        let stand = Stand {
            place,
            since: Instant::now(),
            left: false,
        };
        Seat {
            outlet,
            cursor,
            stand: Mutex::new(stand),
            called: Notify::new(),
        }
    }

    fn stand(&self) -> MutexGuard<'_, Stand> {
        self.stand.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what has come to the reader, or calls it to fetch it.
    fn take(&self, piece: &Piece) {
        let mut stand = self.stand();
        let relation = stand.place.relation(piece.start, piece.place);
        if relation == Relation::Known || stand.left {
            return;
        }
        let sent = match piece.frames(self.cursor) {
            Some(frames) if relation == Relation::Next => self.outlet.send(frames),
            _ => Sent::Not,
        };
        if sent != Sent::Not {
            stand.place = piece.place;
            stand.since = Instant::now();
        }
        if sent != Sent::Whole || piece.place.closed {
            self.called.notify_one();
        }
    }
}

/// What a piece of the stream is to a reader at some place.
#[derive(Debug, PartialEq, Eq)]
enum Relation {
    /// The reader has all of it: a reader may be ahead of the one who follows the stream.
    Known,
    /// It begins where the reader is.
    Next,
    /// It begins elsewhere: sent as it is, the reader would miss entries or get some twice.
    Apart,
}

impl Place {
    fn relation(self, start: u64, end: Place) -> Relation {
        match start == self.next {
            _ if end.next <= self.next && !end.closed => Relation::Known,
            true => Relation::Next,
            false => Relation::Apart,
        }
    }
}

/// A reader that waits on its seat.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    seats: &'a Seats,
    number: u64,
    seat: Arc<Seat>,
}

impl Waiting<'_> {
    /// Returns when the reader has to see for itself.
    pub(crate) async fn called(&self) {
        self.seat.called.notified().await;
    }

    pub(crate) fn stand(&self) -> Stand {
        *self.seat.stand()
    }

    /// Where the reader is; from here on nobody else writes to it.
    pub(crate) fn leave(self) -> Place {
        let mut stand = self.seat.stand();
        stand.left = true;
        stand.place
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.seat.stand().left = true;
        self.seats.lock().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(next: u64, closed: bool) -> Place {
        Place {
            next,
            at_end: true,
            closed,
        }
    }

    #[test]
    fn a_piece_is_sent_only_where_it_begins() {
        let reader = place(10, false);
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
            let found = reader.relation(start, place(next, closed));
            assert_eq!(found, relation, "{start} to {next}");
        }
    }
}
