//! Decides the outcome of the slots that have passed. It depends only on the schedule, the last recorded slot and the
//! time.

use ken_types::ops::schedules::{KEPT_RUNS, MAX_CAUGHT_UP, Missed, NextSlot, Reason, Settings, SlotOutcome};

use crate::timing::Timing;

/// The record to write for a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The slots in order, each with its outcome. Only the newest [`KEPT_RUNS`] are included, because older records
    /// would be deleted at once.
    pub(crate) slots: Vec<(i64, SlotOutcome)>,
    /// The time of the last slot that has been decided.
    pub(crate) mark: i64,
    pub(crate) next: Option<NextSlot>,
}

/// The time of a scheduler. All times are milliseconds since the epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    pub(crate) now: i64,
    /// When the scheduler started. It missed earlier slots because it was not running.
    pub(crate) started: i64,
}

/// Plans the slots after `mark`. If the clock was set back, there are none until it reaches `mark` again.
pub(crate) fn plan(timing: &Timing, settings: &Settings, mark: i64, clock: Clock) -> Plan {
    let now = clock.now;
    let mut passed: Vec<(i64, i64)> =
        timing.newest(mark, now, KEPT_RUNS).into_iter().map(|slot| (slot, timing.fire(slot))).collect();
    // The jitter of a slot ends before the next slot, so only the last slot can still be waiting for it.
    passed.retain(|(_, fire)| *fire <= now);
    let surplus = passed.len().saturating_sub(KEPT_RUNS);
    passed.drain(..surplus);
    let is_late = |fire: i64| now - fire > settings.grace_ms;
    let late = passed.iter().filter(|(_, fire)| is_late(*fire)).count();
    let caught_up = match settings.missed {
        Missed::Skip => 0,
        // If a later slot fires in time, it counts for the missed slots before it too.
        Missed::Last => usize::from(late == passed.len()),
        Missed::All => MAX_CAUGHT_UP,
    };
    let outcome = |number: usize, fire: i64| match (is_late(fire), number + caught_up >= late) {
        (false, _) => SlotOutcome::Run,
        (true, true) if settings.missed == Missed::All => SlotOutcome::CatchUp,
        (true, true) => SlotOutcome::Run,
        (true, false) if fire < clock.started => SlotOutcome::Missed(Reason::Down),
        (true, false) => SlotOutcome::Missed(Reason::Late),
    };
    let slots: Vec<(i64, SlotOutcome)> =
        passed.iter().enumerate().map(|(number, (slot, fire))| (*slot, outcome(number, *fire))).collect();
    let mark = slots.last().map_or(mark, |(slot, _)| *slot);
    Plan { slots, mark, next: timing.next(mark) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ken_types::ops::schedules::ScheduleKind;

    use super::*;
    use crate::timing::tests::{settings, timing};

    const HOUR: i64 = 3_600_000;
    const DAY: i64 = 24 * HOUR;

    fn hourly(missed: Missed) -> Settings {
        Settings { missed, ..settings(ScheduleKind::Every, "1h", "UTC") }
    }

    fn planned(settings: &Settings, mark: i64, now: i64, started: i64) -> Vec<(i64, SlotOutcome)> {
        plan(&timing(settings), settings, mark, Clock { now, started }).slots
    }

    #[test]
    fn missed_slots_are_skipped_or_the_last_or_all_are_run() {
        let late = SlotOutcome::Missed(Reason::Late);
        let down = SlotOutcome::Missed(Reason::Down);
        let now = 3 * HOUR + 60_001;
        for (missed, started, expected) in [
            (Missed::Skip, 0, [late, late, late]),
            (Missed::Skip, now, [down, down, down]),
            (Missed::Last, now, [down, down, SlotOutcome::Run]),
            (Missed::All, now, [SlotOutcome::CatchUp; 3]),
            (Missed::Last, 2 * HOUR, [down, late, SlotOutcome::Run]),
        ] {
            let outcomes: Vec<SlotOutcome> =
                planned(&hourly(missed), 0, now, started).iter().map(|slot| slot.1).collect();
            assert_eq!(outcomes, expected, "{missed:?}");
        }
    }

    #[test]
    fn a_slot_in_time_makes_up_for_the_ones_before_it() {
        let slots = planned(&hourly(Missed::Last), 0, 2 * HOUR + 60_000, 0);
        assert_eq!(slots, [(HOUR, SlotOutcome::Missed(Reason::Late)), (2 * HOUR, SlotOutcome::Run)]);
    }

    #[test]
    fn of_many_missed_slots_the_newest_are_recorded_and_at_most_100_run() {
        let secondly = Settings { missed: Missed::All, ..settings(ScheduleKind::Cron, "* * * * * *", "UTC") };
        let now = 3_650 * DAY;
        let slots = planned(&secondly, 0, now, 0);
        assert_eq!(slots.len(), KEPT_RUNS);
        assert_eq!(slots.last(), Some(&(now, SlotOutcome::Run)));
        assert_eq!(slots.iter().filter(|slot| slot.1 == SlotOutcome::CatchUp).count(), MAX_CAUGHT_UP);
    }

    #[test]
    fn a_clock_that_goes_back_fires_nothing_twice() {
        let settings = hourly(Missed::Last);
        let clock = Clock { now: 9 * HOUR, started: 0 };
        let planned = plan(&timing(&settings), &settings, 10 * HOUR, clock);
        assert!(planned.slots.is_empty());
        assert_eq!((planned.mark, planned.next.unwrap().slot), (10 * HOUR, 11 * HOUR));
    }

    #[test]
    fn a_slot_is_decided_when_its_jitter_is_over_and_not_before() {
        let settings = Settings { jitter_ms: HOUR / 2, ..hourly(Missed::Last) };
        let timing = timing(&settings);
        for number in 1..50 {
            let (before, slot) = ((number - 1) * HOUR, number * HOUR);
            let fire = timing.fire(slot);
            let at = |now| plan(&timing, &settings, before, Clock { now, started: 0 });
            for now in [slot, fire - 1] {
                let early = at(now);
                let is_decided = fire <= now;
                assert_eq!((early.slots.is_empty(), early.mark == before), (!is_decided, !is_decided), "{number}");
            }
            let planned = at(fire);
            assert_eq!((planned.slots, planned.mark), (vec![(slot, SlotOutcome::Run)], slot));
            // The grace begins when the slot fires.
            assert_eq!(at(fire + settings.grace_ms).slots, [(slot, SlotOutcome::Run)]);
        }
    }

    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: i64) -> i64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 1).cast_signed() % limit
        }
    }

    /// Simulates ten years of schedules in five time zones, with outages and changes of the clock. Every slot must be
    /// recorded exactly once, and nothing else.
    #[test]
    fn over_ten_years_every_slot_has_one_record() {
        let from = ken_types::Timestamp::from_rfc3339("2026-01-01T00:00:00Z").unwrap().millis();
        let until = from + 3_652 * DAY;
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        for (schedule, zone, missed, jitter) in [
            ("@hourly", "Europe/Zurich", Missed::Last, 0),
            ("30 2 * * *", "America/New_York", Missed::All, 600_000),
            ("15 */3 * * *", "Australia/Lord_Howe", Missed::Skip, 0),
            ("0 0,12 * * MON-FRI", "Africa/Cairo", Missed::Last, 3_600_000),
            ("45 1,2,3 1,15 * *", "America/Santiago", Missed::All, 0),
        ] {
            let settings = Settings { missed, jitter_ms: jitter, ..settings(ScheduleKind::Cron, schedule, zone) };
            let timing = timing(&settings);
            let mut outages: Vec<i64> = (0..200).map(|_| from + random.below(until - from)).collect();
            outages.sort_unstable();
            let (mut mark, mut started, mut clock, mut next) = (from, from, from, timing.next(from));
            let mut records = BTreeMap::new();
            while clock < until {
                // The scheduler wakes slightly after the next slot fires, or after an outage of up to eight days. Its
                // clock is sometimes set back while it sleeps.
                let outage = outages.first().copied().filter(|at| next.is_some_and(|next| *at < next.fire));
                match outage {
                    Some(at) => {
                        outages.remove(0);
                        clock = clock.max(at + random.below(8 * DAY));
                        started = clock;
                    }
                    None => clock = clock.max(next.unwrap().fire + random.below(20)),
                }
                if random.below(100) == 0 {
                    clock -= HOUR;
                }
                let planned = plan(&timing, &settings, mark, Clock { now: clock, started });
                assert!(clock < mark || planned.mark <= clock, "{schedule}");
                for (slot, fate) in planned.slots {
                    assert_eq!(records.insert(slot, fate), None, "{schedule}: {slot} twice");
                }
                (mark, next) = (planned.mark, planned.next);
            }
            let slots = std::iter::successors(timing.slot_after(from), |slot| timing.slot_after(*slot));
            let slots: Vec<i64> = slots.take_while(|slot| *slot <= mark).collect();
            assert!(slots.len() > 200, "{schedule}");
            assert!(records.keys().eq(slots.iter()), "{schedule}: {} records of {} slots", records.len(), slots.len());
        }
    }
}
