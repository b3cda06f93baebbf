//! Fires schedules: sleeps until the next slot, has the store record its outcome, and ends runs that have reached their
//! time limit.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ken_service::Stop;
use ken_types::ops::Nothing;
use ken_types::ops::hosts::{Hosts, HostsList};
use ken_types::ops::schedules::{Advance, DueSchedule, Fire, Progress, Running, SchedulesAdvance};
use ken_types::ops::store::{ReadStream, StreamPage, StreamsRead};
use ken_types::{Offset, Timestamp};
use tokio::time::{Instant, sleep, sleep_until};

use crate::plan::Clock;
use crate::record::{fire_of, record_after_set_back, record_without_slots};
use crate::scheduler::Scheduler;

/// The pause after a failed call of the store.
const PAUSE: Duration = Duration::from_secs(1);
/// How often the clock of the server is read, and how long this may take.
const CLOCK_INTERVAL: Duration = Duration::from_secs(30);
const CLOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// How long one read of the system's stream waits for an event, in milliseconds.
const FOLLOW_MS: u64 = 60_000;
/// How long a read waits for further events after the first one, in milliseconds. Without this, a busy system would
/// wake the scheduler at every commit.
const GATHER_MS: u64 = 20;
const SYSTEM: &str = "system";

/// How long before a slot its schedule is fetched and the record prepared, in milliseconds. When the slot is due, only
/// the write remains.
const FETCH_AHEAD_MS: i64 = 1_000;
/// During this time before a slot, in milliseconds, changes of schedules are not processed, so that they do not delay
/// the slot.
const QUIET_MS: i64 = 50;

/// Fires schedules until `stop` resolves.
///
/// `has_clock` says that the clock of the store's server has just been read.
pub(crate) async fn run(scheduler: Arc<Scheduler>, has_clock: bool, mut stop: Stop) {
    tokio::select! {
        () = stop.stopped() => {}
        () = fire(&scheduler) => {}
        () = follow_clock(&scheduler, has_clock) => {}
    }
}

/// Follows the clock of the store's server, if it has one.
async fn follow_clock(scheduler: &Scheduler, mut is_read: bool) {
    loop {
        sleep(if is_read { CLOCK_INTERVAL } else { PAUSE }).await;
        is_read = read_clock(scheduler).await;
    }
}

/// Reads the clock of the store's server. Returns whether the store has answered.
pub(crate) async fn read_clock(scheduler: &Scheduler) -> bool {
    let begun = Timestamp::now().millis();
    let Ok(Hosts { server_time, .. }) = scheduler.store.call::<HostsList>(&Nothing {}, CLOCK_TIMEOUT).await else {
        return false;
    };
    let Some(now) = server_time else { return true };
    // It was read about in the middle of the call.
    let here = begun + (Timestamp::now().millis() - begun) / 2;
    if scheduler.clock.follow(now.millis(), here) {
        tracing::warn!(
            ahead_ms = now.millis() - here,
            "the clock of the database server is followed, not that of this machine"
        );
        scheduler.changes.send_modify(|changes| *changes += 1);
    }
    true
}

async fn fire(scheduler: &Scheduler) {
    let mut changes = scheduler.changes.subscribe();
    let mut times = AttemptDeadlines::default();
    let mut upcoming = VecDeque::new();
    let mut fires = Vec::new();
    let mut due_until = None;
    // The time of the last call of the store. The clock may have been set back while no scheduler ran.
    let mut shown = i64::MAX;
    loop {
        changes.mark_unchanged();
        let now = scheduler.clock.now();
        let recorded: usize = fires.iter().map(|fire: &Fire| fire.slots.len()).sum();
        let advance = Advance {
            now,
            fires: std::mem::take(&mut fires),
            timed_out: times.passed_ids(Instant::now()),
            due_until,
            clock_set_back: now < shown,
        };
        let advanced = match scheduler.change::<SchedulesAdvance>(&advance).await {
            Ok(advanced) => advanced,
            Err(error) => {
                tracing::warn!("the store does not record slots: {error}");
                sleep(PAUSE).await;
                continue;
            }
        };
        shown = now;
        scheduler.fired.fetch_add(recorded as u64, Ordering::Relaxed);
        times.replace(&advanced.running);
        let clock = scheduler.clock();
        if due_until.take().is_some() {
            upcoming = advanced.due.into_iter().map(|due| UpcomingFire::new(due, clock)).collect();
        }
        fires.extend(advanced.ahead.iter().filter_map(|ahead| record_after_set_back(ahead, now)));
        if !fires.is_empty() {
            continue;
        }
        // The next time comes from the store after each call, because other schedulers and clients create and change
        // schedules too.
        let prepared = upcoming.front().map(|first: &UpcomingFire| first.at);
        let wake_at = match next_step(prepared, advanced.next_fire, clock.now) {
            NextStep::Fetch => {
                due_until = Some(clock.now + FETCH_AHEAD_MS);
                continue;
            }
            NextStep::Sleep(wake_at) => wake_at,
        };
        let is_close = is_close(wake_at, clock.now);
        let retry = advanced.retry_in_ms.map(millis_from_now);
        let until = times.next().into_iter().chain(retry).min();
        tokio::select! {
            reached = scheduler.clock.reach(wake_at) => if let Err(error) = reached {
                tracing::error!("the timer has failed: {error}");
                sleep(PAUSE).await;
            },
            () = deadline_passed(until) => {}
            _ = changes.changed(), if !is_close => {}
        }
        let clock = scheduler.clock();
        fires.extend(take_due(&mut upcoming, clock));
    }
}

/// What to do until the next schedule fires.
#[derive(Debug, PartialEq, Eq)]
enum NextStep {
    /// Fetch the schedules that fire soon.
    Fetch,
    /// Sleep until this time, or until something changes.
    Sleep(Option<i64>),
}

/// `prepared` is when the first of the fetched schedules fires, and `stored` when the next of all does.
fn next_step(prepared: Option<i64>, stored: Option<i64>, now: i64) -> NextStep {
    if prepared == stored {
        return NextStep::Sleep(prepared);
    }
    match stored.map(|next| next - FETCH_AHEAD_MS) {
        Some(fetch_at) if fetch_at <= now => NextStep::Fetch,
        fetch_at => NextStep::Sleep(fetch_at),
    }
}

/// Whether the time to wake is so near that changes have to wait.
fn is_close(wake_at: Option<i64>, now: i64) -> bool {
    wake_at.is_some_and(|at| at - now <= QUIET_MS)
}

/// Takes the schedules that fire now.
fn take_due(upcoming: &mut VecDeque<UpcomingFire>, clock: Clock) -> Vec<Fire> {
    let count = upcoming.iter().take_while(|next| next.at <= clock.now).count();
    upcoming.drain(..count).map(|next| next.fire(clock)).collect()
}

/// A schedule that fires soon, and the prepared record of it.
struct UpcomingFire {
    due: DueSchedule,
    /// When it fires, in milliseconds since the epoch.
    at: i64,
    /// The record for the time at which it fires.
    fire: Fire,
}

impl UpcomingFire {
    fn new(due: DueSchedule, clock: Clock) -> UpcomingFire {
        let at = due.progress.next.map_or(clock.now, |next| next.fire);
        let fire = fire_at(&due, Clock { now: at, ..clock });
        UpcomingFire { due, at, fire }
    }

    /// Returns the record to write now. This is the prepared one, unless the slot is late by now or the following slot
    /// is due too.
    fn fire(self, clock: Clock) -> Fire {
        let is_in_time = clock.now - self.at <= self.due.settings.grace_ms;
        let is_alone = self.fire.progress.next.is_none_or(|next| next.fire > clock.now);
        if is_in_time && is_alone { self.fire } else { fire_at(&self.due, clock) }
    }
}

/// Returns the record to write for a schedule. A schedule whose timing cannot be read gets no further slots.
fn fire_at(due: &DueSchedule, clock: Clock) -> Fire {
    fire_of(due, clock).unwrap_or_else(|error| {
        tracing::error!(schedule = due.id, "this schedule can fire no more: {error}");
        let progress = Progress { next: None, ..due.progress };
        Fire { progress, ..record_without_slots(due) }
    })
}

/// The deadline of each attempt of a run. It uses the monotonic clock, because the wall clock can be set.
#[derive(Debug, Default)]
struct AttemptDeadlines(HashMap<(String, u32), Instant>);

impl AttemptDeadlines {
    /// Replaces the list by the attempts that are running. A new one gets a deadline from its remaining time; a known
    /// one keeps its deadline.
    fn replace(&mut self, running: &[Running]) {
        let known = std::mem::take(&mut self.0);
        self.0 = running
            .iter()
            .map(|run| {
                let key = (run.run_id.clone(), run.attempt);
                let until = known.get(&key).copied().unwrap_or_else(|| millis_from_now(run.left_ms));
                (key, until)
            })
            .collect();
    }

    fn next(&self) -> Option<Instant> {
        self.0.values().min().copied()
    }

    fn passed_ids(&self, now: Instant) -> Vec<String> {
        let over = self.0.iter().filter(|(_, until)| **until <= now);
        over.map(|((run, _), _)| run.clone()).collect()
    }
}

fn millis_from_now(ms: i64) -> Instant {
    Instant::now() + Duration::from_millis(u64::try_from(ms).unwrap_or_default())
}

async fn deadline_passed(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// Reads the system's stream and counts changes of schedules and runs, including those that other parts make.
pub(crate) async fn follow(scheduler: Arc<Scheduler>, mut stop: Stop) {
    let mut offset = Offset::Now;
    loop {
        // Events may have been missed while the position was unknown, so this counts as a change.
        let wait_ms = if offset == Offset::Now { 0 } else { FOLLOW_MS };
        let stream = SYSTEM.to_owned();
        let read = ReadStream { stream, offset, wait_ms, gather_ms: GATHER_MS, ..ReadStream::default() };
        let time = Duration::from_millis(wait_ms + GATHER_MS) + PAUSE;
        let page = tokio::select! {
            () = stop.stopped() => return,
            page = scheduler.store.call::<StreamsRead>(&read, time) => page,
        };
        match page {
            Ok(page) => {
                if offset == Offset::Now || has_schedules(&page) {
                    scheduler.changes.send_modify(|changes| *changes += 1);
                }
                offset = Offset::After(page.next);
            }
            Err(error) => {
                tracing::warn!("the system's stream cannot be read: {error}");
                offset = Offset::Now;
                tokio::select! {
                    () = stop.stopped() => return,
                    () = sleep(PAUSE) => {}
                }
            }
        }
    }
}

fn has_schedules(page: &StreamPage) -> bool {
    let kind = |event: &serde_json::value::RawValue| event.get().starts_with(r#"{"v":1,"type":"schedule."#);
    page.entries.iter().any(|event| kind(event))
}

#[cfg(test)]
mod tests {
    use ken_types::ops::schedules::{Missed, NextSlot, Reason, ScheduleKind, Settings, SlotOutcome};

    use super::*;
    use crate::timing::tests::settings;

    const HOUR: i64 = 3_600_000;

    /// Returns the outcomes of the slots of an hourly schedule that was fetched at one time and is recorded at another.
    fn outcomes(grace_ms: i64, fetched: i64, recorded: i64) -> Vec<(i64, SlotOutcome)> {
        let hourly = settings(ScheduleKind::Every, "1h", "UTC");
        let due = DueSchedule {
            id: "01K2".into(),
            generation: 1,
            settings: Settings { missed: Missed::Skip, grace_ms, ..hourly },
            progress: Progress { anchor: 0, mark: 0, next: Some(NextSlot { slot: HOUR, fire: HOUR }) },
        };
        let upcoming = UpcomingFire::new(due, Clock { now: fetched, started: 0 });
        let fire = upcoming.fire(Clock { now: recorded, started: 0 });
        fire.slots.into_iter().map(|slot| (slot.at, slot.fate)).collect()
    }

    #[test]
    fn a_prepared_slot_that_is_later_than_its_grace_is_missed() {
        let late = SlotOutcome::Missed(Reason::Late);
        // Fetched before the slot, at it, and after it but in time.
        for fetched in [HOUR - FETCH_AHEAD_MS, HOUR, HOUR + 30_000, HOUR + 60_000] {
            assert_eq!(outcomes(60_000, fetched, HOUR + 60_000), [(HOUR, SlotOutcome::Run)], "{fetched}");
            assert_eq!(outcomes(60_000, fetched, HOUR + 60_001), [(HOUR, late)], "{fetched}");
        }
        assert_eq!(outcomes(0, HOUR - 1, HOUR), [(HOUR, SlotOutcome::Run)]);
        assert_eq!(outcomes(0, HOUR - 1, HOUR + 1), [(HOUR, late)]);
    }

    /// The clock is stepped over the times at which a schedule is fetched and at which changes have to wait for it.
    #[test]
    fn a_schedule_is_fetched_a_second_before_it_fires_and_then_slept_for() {
        use NextStep::{Fetch, Sleep};
        for (prepared, stored, now, expected) in [
            (None, None, 0, Sleep(None)),
            (None, Some(HOUR), HOUR - FETCH_AHEAD_MS - 1, Sleep(Some(HOUR - FETCH_AHEAD_MS))),
            (None, Some(HOUR), HOUR - FETCH_AHEAD_MS, Fetch),
            (None, Some(HOUR), HOUR + 1, Fetch),
            (Some(HOUR), Some(HOUR), HOUR - FETCH_AHEAD_MS, Sleep(Some(HOUR))),
            (Some(HOUR), Some(HOUR), HOUR + 1, Sleep(Some(HOUR))),
            // Somebody has changed the schedules meanwhile.
            (Some(HOUR), Some(HOUR - 1), HOUR - 1, Fetch),
            (Some(HOUR), Some(2 * HOUR), HOUR, Sleep(Some(2 * HOUR - FETCH_AHEAD_MS))),
            (Some(HOUR), None, HOUR, Sleep(None)),
        ] {
            assert_eq!(next_step(prepared, stored, now), expected, "{prepared:?} {stored:?} {now}");
        }
        for (wake_at, is) in
            [(None, false), (Some(HOUR), true), (Some(HOUR + QUIET_MS), true), (Some(HOUR + QUIET_MS + 1), false)]
        {
            assert_eq!(is_close(wake_at, HOUR), is, "{wake_at:?}");
        }
    }

    /// Others change schedules and runs too, and announce that among everything else that happens.
    #[test]
    fn news_of_schedules_are_told_from_all_others() {
        let page = |kinds: &[&str]| {
            let event = |kind: &&str| {
                let text = format!(r#"{{"v":1,"type":"{kind}","data":{{"type":"schedule."}}}}"#);
                serde_json::value::RawValue::from_string(text).unwrap()
            };
            StreamPage { entries: kinds.iter().map(event).collect(), ..StreamPage::default() }
        };
        for (kinds, has) in [
            (&[][..], false),
            (&["session.changed", "approval.decided"], false),
            (&["schedule.changed"], true),
            (&["session.changed", "schedule.run"], true),
        ] {
            assert_eq!(has_schedules(&page(kinds)), has, "{kinds:?}");
        }
    }

    #[test]
    fn only_what_is_due_is_taken() {
        let due = |number: i64| DueSchedule {
            id: number.to_string(),
            generation: 1,
            settings: settings(ScheduleKind::Every, "1h", "UTC"),
            progress: Progress {
                anchor: number,
                mark: number,
                next: Some(NextSlot { slot: HOUR + number, fire: HOUR + number }),
            },
        };
        let start = Clock { now: 0, started: 0 };
        let mut upcoming: VecDeque<_> = [1, 2, 3].map(|number| UpcomingFire::new(due(number), start)).into();
        let taken = take_due(&mut upcoming, Clock { now: HOUR + 2, started: 0 });
        assert_eq!(taken.into_iter().map(|fire| fire.id).collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(upcoming.len(), 1);
    }

    /// An attempt keeps the deadline that it got first, and the next attempt of a run gets its own.
    #[test]
    fn an_attempt_has_one_deadline() {
        let run = |attempt, left_ms| Running { run_id: "r".to_owned(), attempt, left_ms };
        let mut times = AttemptDeadlines::default();
        times.replace(&[run(1, 10_000)]);
        let first = times.next().unwrap();
        times.replace(&[run(1, 90_000)]);
        assert_eq!(times.next(), Some(first));
        let millisecond = Duration::from_millis(1);
        let passed = [first - millisecond, first].map(|now| times.passed_ids(now).len());
        assert_eq!(passed, [0, 1]);
        times.replace(&[run(2, 90_000)]);
        assert!(times.next().unwrap() > first && times.passed_ids(first).is_empty());
        times.replace(&[]);
        assert_eq!(times.next(), None);
    }

    #[test]
    fn a_slot_that_has_come_meanwhile_is_recorded_with_the_prepared_one() {
        let late = SlotOutcome::Missed(Reason::Late);
        let found = outcomes(60_000, HOUR - 1, 2 * HOUR);
        assert_eq!(found, [(HOUR, late), (2 * HOUR, SlotOutcome::Run)]);
        // Both in time, and exactly when the second one is due.
        let both = [(HOUR, SlotOutcome::Run), (2 * HOUR, SlotOutcome::Run)];
        assert_eq!(outcomes(2 * HOUR, HOUR - 1, 2 * HOUR), both);
        assert_eq!(outcomes(2 * HOUR, HOUR - 1, 2 * HOUR - 1), both[..1]);
    }
}
