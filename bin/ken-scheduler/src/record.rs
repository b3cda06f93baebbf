//! The record that the store writes for a schedule that is due.

use ken_types::ops::schedules::{AheadSchedule, DueSchedule, Fire, Progress, Slot};
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

/// If the last recorded slot is further in the future than this, in milliseconds, the clock was wrong when it was recorded.
const WRONG_CLOCK_MS: i64 = 24 * 3_600_000;

/// Returns the progress with which a schedule goes on after the clock was set back to `now`; its next slot is not changed. No slot that has a
/// record fires again, unless the clock was wrong. Without such a slot, the mark only says when the schedule was made, changed or resumed, and
/// the schedule would fire nothing until the clock reaches that time.
pub(crate) fn after_set_back(progress: Progress, last_slot: Option<i64>, now: i64) -> Progress {
    if progress.mark <= now {
        return progress;
    }
    let mark = last_slot.filter(|slot| (now..=now + WRONG_CLOCK_MS).contains(slot)).unwrap_or(now);
    Progress { mark, anchor: progress.anchor.min(mark), ..progress }
}

/// Returns the record that makes a schedule go on from `now`; `None` if it goes on after its last slot, which is ahead.
pub(crate) fn record_after_set_back(ahead: &AheadSchedule, now: i64) -> Option<Fire> {
    let AheadSchedule { schedule, last_slot } = ahead;
    let progress = after_set_back(schedule.progress, *last_slot, now);
    let (timing, _) = Timing::parse(&schedule.id, &schedule.settings, progress.anchor).ok()?;
    let progress = Progress { next: timing.next(progress.mark), ..progress };
    (progress != schedule.progress).then(|| Fire { progress, ..record_without_slots(schedule) })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_goes_on_from_the_time_to_which_the_clock_was_put_back_or_after_its_last_slot() {
        let now = 1_000_000_000;
        let day = WRONG_CLOCK_MS;
        for (mark, last_slot, expected) in [
            (now - 1, Some(now - 1), now - 1),
            (now, None, now),
            (now + 1, None, now),
            (now + 1, Some(now + 1), now + 1),
            (now + 5, Some(now + 1), now + 1),
            (now + 5, Some(now - 1), now),
            (now + day, Some(now + day), now + day),
            (now + day + 1, Some(now + day + 1), now),
        ] {
            for (anchor, anchored) in [(now - 7, now - 7), (mark, expected)] {
                let progress = after_set_back(Progress { anchor, mark, next: None }, last_slot, now);
                assert_eq!((progress.mark, progress.anchor), (expected, anchored), "{} {last_slot:?}", mark - now);
            }
        }
    }
}
