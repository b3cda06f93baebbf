//! The budget of memory for the request bodies of all connections together.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use ken_types::Error;
use parking_lot::Mutex;

use crate::failure::Failure;

/// Bodies up to this size are not counted: they fit into the buffers that every connection has.
pub(crate) const UNCOUNTED_BYTES: u64 = 16 << 10;
/// One caller may use one of this many parts of the budget.
const CALLER_SHARES: u64 = 4;

/// The budget of one listener, in bytes.
#[derive(Debug)]
pub(crate) struct BodyMemory {
    limit: u64,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: u64,
    by_caller: HashMap<IpAddr, u64>,
}

/// The part of the budget that one body uses, returned when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    memory: Arc<BodyMemory>,
    caller: IpAddr,
    bytes: u64,
}

impl BodyMemory {
    pub(crate) fn new(limit: u64) -> Arc<BodyMemory> {
        Arc::new(BodyMemory { limit, taken: Mutex::default() })
    }

    /// An empty share for a body of this caller.
    pub(crate) fn share(self: &Arc<BodyMemory>, caller: IpAddr) -> Share {
        Share { memory: self.clone(), caller, bytes: 0 }
    }
}

impl Share {
    /// Grows the share to a body of this length. The failure is 429 if the caller's part or the whole budget is used up.
    pub(crate) fn grow_to(&mut self, length: u64) -> Result<(), Failure> {
        let more = length.saturating_sub(self.bytes);
        if length <= UNCOUNTED_BYTES || more == 0 {
            return Ok(());
        }
        let limit = self.memory.limit;
        let mut taken = self.memory.taken.lock();
        let own = taken.by_caller.get(&self.caller).copied().unwrap_or_default() + more;
        if own > limit / CALLER_SHARES {
            return Err(busy("the unfinished requests of this caller use all the memory that it may have"));
        }
        if taken.all + more > limit {
            return Err(busy("unfinished requests use all the memory that is reserved for bodies"));
        }
        taken.all += more;
        taken.by_caller.insert(self.caller, own);
        self.bytes += more;
        Ok(())
    }

    /// Attaches the share to the body, which keeps it for as long as it is in memory.
    pub(crate) fn hold(self, body: Bytes) -> Bytes {
        match self.bytes {
            0 => body,
            _ => Bytes::from_owner(CountedBody { body, _share: self }),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut taken = self.memory.taken.lock();
        taken.all -= self.bytes;
        let own = taken.by_caller.get(&self.caller).copied().unwrap_or_default();
        match own - self.bytes {
            0 => taken.by_caller.remove(&self.caller),
            left => taken.by_caller.insert(self.caller, left),
        };
    }
}

struct CountedBody {
    body: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for CountedBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

fn busy(message: &str) -> Failure {
    Failure::from(Error::busy(message, 1_000)).common()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_has_a_quarter_and_all_have_the_whole() {
        let memory = BodyMemory::new(4 << 20);
        let caller = |n: u8| IpAddr::from([10, 0, 0, n]);
        let take = |n: u8, length: u64| {
            let mut share = memory.share(caller(n));
            share.grow_to(length).map(|()| share)
        };
        let first = take(1, 1 << 20).unwrap();
        let refused = take(1, UNCOUNTED_BYTES + 1).unwrap_err();
        assert_eq!(refused.status_code().as_u16(), 429);
        assert!(take(1, UNCOUNTED_BYTES).is_ok(), "small bodies are not counted");
        let others: Vec<Share> = (2..=4).map(|n| take(n, 1 << 20).unwrap()).collect();
        assert!(take(5, UNCOUNTED_BYTES + 1).is_err(), "the whole is taken");
        drop(others);
        // A body keeps its share for as long as it is in memory.
        let body = first.hold(Bytes::from_static(b"body"));
        let part = body.slice(1..2);
        drop(body);
        assert!(take(1, 1 << 20).is_err());
        drop(part);
        assert!(take(1, 1 << 20).is_ok());
        assert!(memory.taken.lock().by_caller.is_empty() && memory.taken.lock().all == 0);
    }

    #[test]
    fn a_body_of_unknown_length_takes_its_share_as_it_comes() {
        let memory = BodyMemory::new(4 << 20);
        let mut share = memory.share(IpAddr::from([10, 0, 0, 1]));
        for length in [1, UNCOUNTED_BYTES, UNCOUNTED_BYTES + 1, 100_000, 1 << 20] {
            share.grow_to(length).unwrap();
            let counted = if length > UNCOUNTED_BYTES { length } else { 0 };
            assert_eq!(memory.taken.lock().all, counted);
        }
        assert!(share.grow_to((1 << 20) + 1).is_err());
    }
}
