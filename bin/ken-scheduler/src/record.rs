//! The record that the store writes for a schedule that is due.

use ken_types::ops::schedules::{DueSchedule, Fire, Progress, Slot};
use ken_types::{Error, id};
use sha2::{Digest, Sha256};

use crate::plan::{Clock, plan};
use crate::timing::Timing;

/// Returns a record without slots, which leaves the progress of the schedule unchanged.
pub(crate) fn record_without_slots(due: &DueSchedule) -> Fire {
    Fire {
        id: due.id.clone(),
        generation: due.generation,
        mark: due.progress.mark,
        slots: Vec::new(),
        progress: due.progress,
        overlap: due.settings.overlap,
        timeout_ms: due.settings.timeout_ms,
    }
}

/// Returns the record of the slots that have passed. Fails if the timing of the schedule cannot be read.
pub(crate) fn fire_of(due: &DueSchedule, clock: Clock) -> Result<Fire, Error> {
    let (timing, _) = Timing::parse(&due.id, &due.settings, due.progress.anchor)?;
    let planned = plan(&timing, &due.settings, due.progress.mark, clock);
    let slots = planned.slots.into_iter().map(|(at, fate)| Slot { at, run_id: run_id(due, at), fate });
    Ok(Fire {
        slots: slots.collect(),
        progress: Progress { anchor: due.progress.anchor, mark: planned.mark, next: planned.next },
        ..record_without_slots(due)
    })
}

/// Returns the id of a slot's run. It is derived from the slot, so that every scheduler uses the same id.
fn run_id(due: &DueSchedule, slot: i64) -> String {
    let mut hash = Sha256::new();
    hash.update(due.id.as_bytes());
    hash.update(due.generation.to_le_bytes());
    hash.update(slot.to_le_bytes());
    let mut seed = [0; 16];
    let digest = <[u8; 32]>::from(hash.finalize());
    seed.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
    id::Mint::of(ken_types::Timestamp::from_millis(slot), &seed).ulid()
}
