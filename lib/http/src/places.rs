//! The places of connections, and the choice of the one to close when all are taken.
//!
//! A connection without a request in progress costs its peer nothing, so it must not keep others out. If all places
//! are taken, the connection that has been idle for longest is closed in favour of the new one.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// A caller with fewer connections may also take the reserved places.
const FEW_CONNECTIONS: usize = 16;
/// One of this many places is reserved for callers with few connections.
const RESERVED: usize = 8;

#[derive(Debug)]
pub(crate) struct Places {
    limit: usize,
    /// Counts how often connections have become idle, which gives their order without a clock.
    idle_count: AtomicU64,
    open: Mutex<OpenConnections>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    by_number: HashMap<u64, (IpAddr, Arc<ConnectionState>)>,
    by_caller: HashMap<IpAddr, usize>,
    last_number: u64,
}

#[derive(Debug, Default)]
struct ConnectionState {
    /// `BUSY`, `CLOSED`, or the count when it became idle.
    state: AtomicU64,
    closed: Notify,
}

/// The state of a connection with a request in progress.
const BUSY: u64 = 0;
/// The state of a connection that has lost its place and accepts no more requests.
const CLOSED: u64 = u64::MAX;

/// The place of one connection, returned when dropped. At first it is idle.
#[derive(Debug)]
pub(crate) struct Place {
    number: u64,
    usage: Arc<ConnectionState>,
    places: Arc<Places>,
}

impl Places {
    pub(crate) fn new(limit: usize) -> Arc<Places> {
        Arc::new(Places { limit, idle_count: AtomicU64::new(BUSY + 1), open: Mutex::default() })
    }

    /// Takes a place for a connection from this address. `None` if all places that it may have are taken by connections with a
    /// request in progress.
    pub(crate) fn take(self: &Arc<Places>, peer: IpAddr) -> Option<Place> {
        let caller = caller_of(peer);
        let mut open = self.open.lock();
        let has_few = open.connections_of(caller) < FEW_CONNECTIONS;
        let room = if has_few { self.limit } else { self.limit - self.limit / RESERVED };
        if open.by_number.len() >= room && !open.close_idle(has_few) {
            return None;
        }
        let usage = Arc::new(ConnectionState {
            state: AtomicU64::new(self.idle_count.fetch_add(1, Relaxed)),
            closed: Notify::new(),
        });
        open.last_number += 1;
        let number = open.last_number;
        open.by_number.insert(number, (caller, usage.clone()));
        *open.by_caller.entry(caller).or_default() += 1;
        Some(Place { number, usage, places: self.clone() })
    }
}

impl OpenConnections {
    fn connections_of(&self, caller: IpAddr) -> usize {
        self.by_caller.get(&caller).copied().unwrap_or_default()
    }

    /// Closes the connection that has been idle for longest among the callers with many connections or, with `any`, among all
    /// callers if there is none.
    fn close_idle(&mut self, any: bool) -> bool {
        self.close_oldest(|open, caller| open.connections_of(caller) >= FEW_CONNECTIONS)
            || any && self.close_oldest(|_, _| true)
    }

    fn close_oldest(&mut self, is_considered: impl Fn(&OpenConnections, IpAddr) -> bool) -> bool {
        // An idle connection may get a request before it is closed; then the next one is tried.
        loop {
            let idle = self.by_number.iter().filter_map(|(number, (caller, usage))| {
                let since = usage.state.load(Relaxed);
                (since != BUSY && is_considered(self, *caller)).then_some((since, *number))
            });
            let Some((since, number)) = idle.min() else {
                return false;
            };
            let is_closed = self.by_number.get(&number).is_some_and(|(_, usage)| usage.close(since));
            if is_closed {
                self.remove(number);
                return true;
            }
        }
    }

    fn remove(&mut self, number: u64) {
        let Some((caller, _)) = self.by_number.remove(&number) else {
            return;
        };
        if let Some(count) = self.by_caller.get_mut(&caller) {
            *count -= 1;
            if *count == 0 {
                self.by_caller.remove(&caller);
            }
        }
    }
}

impl ConnectionState {
    fn close(&self, since: u64) -> bool {
        let closed = self.state.compare_exchange(since, CLOSED, Relaxed, Relaxed).is_ok();
        if closed {
            self.closed.notify_one();
        }
        closed
    }
}

impl Place {
    /// Notes that a request has arrived. Returns `false` if the place is lost, so that the request must not be answered.
    pub(crate) fn begin_request(&self) -> bool {
        self.usage.state.fetch_update(Relaxed, Relaxed, |state| (state != CLOSED).then_some(BUSY)).is_ok()
    }

    /// Notes that the request has been answered. Must not be called while idle, or the connection would seem to have become idle
    /// later.
    pub(crate) fn end_request(&self) {
        let now = self.places.idle_count.fetch_add(1, Relaxed);
        // It has a request, so nobody else changes its state.
        self.usage.state.store(now, Relaxed);
    }

    /// Returns when the place is lost.
    pub(crate) async fn closed(&self) {
        self.usage.closed.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.open.lock().remove(self.number);
    }
}

/// The caller of a connection: its IPv4 address, or its IPv6 network of 64 bits, which one host may have to itself. The
/// loopback addresses of both families are one caller.
pub fn caller_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        // Everybody on this machine has all of 127.0.0.0/8.
        address if address.is_loopback() => IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
        IpAddr::V6(address) => {
            let network = address.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use super::*;

    fn is_closed(place: &Place) -> bool {
        place.usage.state.load(Relaxed) == CLOSED
    }

    #[test]
    fn the_oldest_idle_connection_makes_room() {
        let places = Places::new(3);
        let peer = "10.0.0.1".parse().unwrap();
        let open: Vec<Place> = (0..3).map(|_| places.take(peer).unwrap()).collect();
        assert!(open[0].begin_request() && open[1].begin_request());
        open[0].end_request();
        // Idle are 2, since its accept, then 0; 1 has a request.
        let first = places.take(peer).unwrap();
        assert!(is_closed(&open[2]) && !open[2].begin_request());
        assert!(first.begin_request());
        let second = places.take(peer).unwrap();
        assert!(is_closed(&open[0]));
        assert!(second.begin_request());
        assert!(places.take(peer).is_none(), "all have a request");
        drop(second);
        assert!(places.take(peer).is_some());
        // The places that were lost are not given back twice.
        drop(open);
        assert_eq!(places.open.lock().by_number.len(), 1);
    }

    #[test]
    fn a_share_is_kept_for_callers_with_few_connections() {
        let places = Places::new(64);
        let (many, few): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let busy = |peer| {
            let place: Option<Place> = places.take(peer);
            place.inspect(|place| assert!(place.begin_request()))
        };
        let held: Vec<Place> = std::iter::from_fn(|| busy(many)).collect();
        assert_eq!(held.len(), 56);
        let others: Vec<Place> = std::iter::from_fn(|| busy(few)).collect();
        assert_eq!(others.len(), 8);
        // Not at the cost of a caller with few, while there is one with many.
        others[0].end_request();
        held[0].end_request();
        let third = places.take("10.0.0.3".parse().unwrap()).unwrap();
        assert!(is_closed(&held[0]) && !is_closed(&others[0]));
        // A caller with many closes no connection of others.
        assert!(third.begin_request() && places.take(many).is_none());
    }

    #[test]
    fn few_are_fewer_than_sixteen() {
        let places = Places::new(256);
        let of = |n: u8| IpAddr::from([10, 0, 0, n]);
        let fill = |n: u8, count: usize| -> Vec<Place> {
            (0..count).map_while(|_| places.take(of(n)).inspect(|place| assert!(place.begin_request()))).collect()
        };
        // One caller takes all places but the 32 that are reserved. Another one then gets places up to the number from which on it counts as a
        // caller with many.
        let held = fill(1, 256);
        assert_eq!((held.len(), fill(2, 256).len()), (224, FEW_CONNECTIONS));
        drop(held);
        assert!(places.open.lock().by_caller.is_empty(), "nothing is kept of a caller that has gone");
        // Room is made at the cost of the caller with sixteen, though one with fifteen has been idle for longer.
        let (few, many) = (fill(3, FEW_CONNECTIONS - 1), fill(4, FEW_CONNECTIONS));
        let busy = fill(5, 256 - few.len() - many.len());
        assert_eq!(busy.len(), 224 - few.len() - many.len());
        let rest: Vec<Place> = (10..).flat_map(|n| fill(n, 1)).take(256 - 224).collect();
        few.iter().chain(&many).for_each(Place::end_request);
        let _last = places.take(of(9)).unwrap();
        assert!(few.iter().all(|place| !is_closed(place)) && is_closed(&many[0]) && rest.len() == 32);
        // Whoever waits for the end of its place is told.
        let is_told = |place: &Place| {
            std::pin::pin!(place.closed())
                .as_mut()
                .poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
                .is_ready()
        };
        assert!(is_told(&many[0]) && !is_told(&many[1]));
    }

    #[test]
    fn one_host_is_one_caller() {
        let same = |one: &str, other: &str| caller_of(one.parse().unwrap()) == caller_of(other.parse().unwrap());
        assert!(same("::1", "127.0.0.1") && same("::ffff:10.0.0.1", "10.0.0.1"));
        assert!(same("127.9.0.1", "127.0.0.1") && same("::ffff:127.255.0.9", "::1"));
        assert!(same("2001:db8::1", "2001:db8::ffff:2"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1") && !same("10.0.0.1", "10.0.0.2"));
    }
}
