//! Marks calls that must take effect once, although the store may receive them twice (see `CallMark`).

use ken_types::Error;
use ken_types::id::Mint;
use ken_types::ops::streams::CallMark;
use parking_lot::Mutex;

/// The deduplication slots of this process.
#[derive(Debug)]
pub(crate) struct DedupSlots {
    /// A ULID that identifies this process.
    process: String,
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    /// Slots without an open call, each with its number and the number of its last call.
    slots: Vec<(u64, u64)>,
    created: u64,
}

impl DedupSlots {
    pub(crate) fn new() -> Result<DedupSlots, Error> {
        Ok(DedupSlots { process: Mint::fresh()?.ulid(), free: Mutex::default() })
    }

    /// Takes a slot for one call. Dropping the slot returns it.
    pub(crate) fn take(&self) -> DedupSlot<'_> {
        let mut free = self.free.lock();
        let (slot, last) = free.slots.pop().unwrap_or_else(|| {
            free.created += 1;
            (free.created, 0)
        });
        DedupSlot { slots: self, slot, number: last + 1 }
    }
}

/// A slot that one call is using.
#[derive(Debug)]
pub(crate) struct DedupSlot<'a> {
    slots: &'a DedupSlots,
    slot: u64,
    number: u64,
}

impl DedupSlot<'_> {
    pub(crate) fn mark(&self) -> CallMark {
        CallMark { slot: format!("{}-{}", self.slots.process, self.slot), number: self.number }
    }
}

impl Drop for DedupSlot<'_> {
    fn drop(&mut self) {
        self.slots.free.lock().slots.push((self.slot, self.number));
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
