//! Firing: sleeps until the next slot, records what became of it, and watches over the runs that go on.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ken_service::Stop;
use ken_types::Offset;
use ken_types::ops::schedules::{Advance, Advanced, Fire, Progress, Running, SchedulesAdvance};
use ken_types::ops::store::{ReadStream, StreamPage, StreamsRead};
use tokio::time::{Instant, sleep, sleep_until};

use crate::plan::Clock;
use crate::record::{fire_of, nothing};
use crate::scheduler::Scheduler;

/// How long to wait before the store is asked again after a failure.
const PAUSE: Duration = Duration::from_secs(1);
/// How long one read of the system's stream waits.
const FOLLOW_MS: u64 = 60_000;
const SYSTEM: &str = "system";

/// Fires until it is told to stop.
pub(crate) async fn run(scheduler: Arc<Scheduler>, mut stop: Stop) {
    tokio::select! {
        () = stop.stopped() => {}
        () = fire(&scheduler) => {}
    }
}

async fn fire(scheduler: &Scheduler) {
    let mut changes = scheduler.changes.subscribe();
    let mut times = Times::default();
    let mut fires = Vec::new();
    loop {
        changes.mark_unchanged();
        let recorded: usize = fires.iter().map(|fire: &Fire| fire.slots.len()).sum();
        let advance = Advance {
            now: scheduler.clock.now(),
            fires: std::mem::take(&mut fires),
            timed_out: times.over(),
        };
        let advanced = match scheduler.change::<SchedulesAdvance>(&advance).await {
            Ok(advanced) => advanced,
            Err(error) => {
                tracing::warn!("the store does not record slots: {error}");
                sleep(PAUSE).await;
                continue;
            }
        };
        scheduler.fired.fetch_add(recorded as u64, Ordering::Relaxed);
        times.note(&advanced.running);
        if advanced.due.is_empty() {
            let retry = advanced.retry_in_ms.map(millis_from_now);
            let until = times.next().into_iter().chain(retry).min();
            tokio::select! {
                reached = scheduler.clock.reach(advanced.next_fire) => if let Err(error) = reached {
                    tracing::error!("the timer has failed: {error}");
                    sleep(PAUSE).await;
                },
                () = passed(until) => {}
                _ = changes.changed() => {}
            }
        } else {
            fires = fires_of(&advanced, scheduler.clock());
        }
    }
}

fn fires_of(advanced: &Advanced, clock: Clock) -> Vec<Fire> {
    let fires = advanced.due.iter().map(|due| {
        fire_of(due, clock).unwrap_or_else(|error| {
            tracing::error!(schedule = due.id, "this schedule can fire no more: {error}");
            let progress = Progress {
                next: None,
                ..due.progress
            };
            Fire {
                progress,
                ..nothing(due)
            }
        })
    });
    fires.collect()
}

/// When the time of each run is over. It is measured here and not by the clock, which may be set.
#[derive(Debug, Default)]
struct Times(HashMap<(String, u32), Instant>);

impl Times {
    /// The attempts that go on now: a new one has the time that it has left, a known one keeps its end.
    fn note(&mut self, running: &[Running]) {
        let known = std::mem::take(&mut self.0);
        self.0 = running
            .iter()
            .map(|run| {
                let key = (run.run_id.clone(), run.attempt);
                let until = known
                    .get(&key)
                    .copied()
                    .unwrap_or_else(|| millis_from_now(run.left_ms));
                (key, until)
            })
            .collect();
    }

    fn next(&self) -> Option<Instant> {
        self.0.values().min().copied()
    }

    fn over(&self) -> Vec<String> {
        let now = Instant::now();
        let over = self.0.iter().filter(|(_, until)| **until <= now);
        over.map(|((run, _), _)| run.clone()).collect()
    }
}

fn millis_from_now(ms: i64) -> Instant {
    Instant::now() + Duration::from_millis(u64::try_from(ms).unwrap_or_default())
}

async fn passed(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// Reads the system's stream and counts what concerns schedules, whoever did it: another scheduler, the agent, the store.
pub(crate) async fn follow(scheduler: Arc<Scheduler>, mut stop: Stop) {
    let mut offset = Offset::Now;
    loop {
        // Without a position nothing is waited for: what has happened until it is known counts as a change.
        let wait_ms = if offset == Offset::Now { 0 } else { FOLLOW_MS };
        let read = ReadStream {
            stream: SYSTEM.to_owned(),
            offset,
            wait_ms,
            ..ReadStream::default()
        };
        let time = Duration::from_millis(wait_ms) + PAUSE;
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
