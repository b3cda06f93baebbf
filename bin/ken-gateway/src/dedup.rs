//! Marks for calls that must be done once, although a store that is killed may get them twice (see `CallMark`).

use std::sync::{Mutex, MutexGuard, PoisonError};

use ken_types::Error;
use ken_types::id::Mint;
use ken_types::ops::streams::CallMark;

/// The slots of this process.
#[derive(Debug)]
pub(crate) struct DedupSlots {
    /// A ULID.
    process: String,
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    /// DedupSlots that no call is open in, with the number of their last one.
    slots: Vec<(u64, u64)>,
    made: u64,
}

impl DedupSlots {
    pub(crate) fn new() -> Result<DedupSlots, Error> {
        Ok(DedupSlots {
            process: Mint::fresh()?.ulid(),
            free: Mutex::default(),
        })
    }

    /// A slot for one call, until it is dropped.
    pub(crate) fn take(&self) -> DedupSlot<'_> {
        let mut free = self.lock();
        let (slot, last) = free.slots.pop().unwrap_or_else(|| {
            free.made += 1;
            (free.made, 0)
        });
        DedupSlot {
            slots: self,
            slot,
            number: last + 1,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Taken for one call.
#[derive(Debug)]
pub(crate) struct DedupSlot<'a> {
    slots: &'a DedupSlots,
    slot: u64,
    number: u64,
}

impl DedupSlot<'_> {
    pub(crate) fn mark(&self) -> CallMark {
        CallMark {
            slot: format!("{}-{}", self.slots.process, self.slot),
            number: self.number,
        }
    }
}

impl Drop for DedupSlot<'_> {
    fn drop(&mut self) {
        self.slots.lock().slots.push((self.slot, self.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_one_call_and_counts_them() {
        let slots = DedupSlots::new().unwrap();
        let (first, second) = (slots.take(), slots.take());
        assert_ne!(first.mark().slot, second.mark().slot);
        let before = first.mark();
        drop(first);
        let again = slots.take().mark();
        assert_eq!((again.slot, again.number), (before.slot, before.number + 1));
    }
}
