//! The operations on schedules. This program checks the input and computes the next slot. All state is in the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ken_types::ops::messenger::ConnectorState;
use ken_types::ops::schedules::*;
use ken_types::ops::store::Scope;
use ken_types::ops::{Nothing, Op};
use ken_types::{Code, Error};
use ken_wire::{Context, Daemon, Pool, Table};
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::clock::WallClock;
use crate::definition::{Definition, check_slug};
use crate::plan::Clock;
use crate::preview;
use crate::record::{after_set_back, fire_of};
use crate::timing::Timing;

const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of the call that asks the messaging connector which users its settings admit.
const CONNECTOR_TIMEOUT: Duration = Duration::from_secs(2);
const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of attempts of an update, which fails while other callers change the same schedule.
const MAX_ATTEMPTS: u32 = 20;
/// The maximum time for which a caller can wait for the end of a run, in milliseconds.
const MAX_WAIT_MS: u64 = 600_000;

/// The state of a running scheduler.
pub(crate) struct Scheduler {
    pub(crate) store: Pool,
    pub(crate) messenger: Pool,
    pub(crate) clock: WallClock,
    /// When the scheduler started, in milliseconds since the epoch by the clock of the system.
    pub(crate) started: i64,
    /// The number of changes of schedules and runs, including those that other programs have made.
    pub(crate) changes: watch::Sender<u64>,
    pub(crate) fired: AtomicU64,
}

impl Daemon for Scheduler {
    fn stats(&self) -> Map<String, Value> {
        let fired = self.fired.load(Ordering::Relaxed);
        Map::from_iter([("slots_recorded".to_owned(), fired.into())])
    }
}

pub(crate) fn table(name: &'static str, version: &'static str) -> Table<Scheduler> {
    let table = Table::new(name, version)
        .op::<SchedulesCreate, _, _>(|scheduler: Arc<Scheduler>, _, args| async move { scheduler.create(args).await })
        .op::<SchedulesUpdate, _, _>(|scheduler: Arc<Scheduler>, _, args| async move {
            scheduler.update(&args.slug, args.owner.as_ref(), args.fields).await
        })
        .op::<SchedulesResume, _, _>(|scheduler: Arc<Scheduler>, _, args| async move {
            let fields = Fields { enabled: Some(true), ..Fields::default() };
            scheduler.update(&args.slug, args.owner.as_ref(), fields).await
        })
        .op::<SchedulesRun, _, _>(|scheduler: Arc<Scheduler>, call: Context<_>, args| async move {
            scheduler.run(args, call.deadline).await
        })
        .op::<SchedulesPreview, _, _>(|_: Arc<Scheduler>, _, args| async move { preview::answer(&args) });
    let table = forward::<SchedulesGet>(table);
    let table = forward::<SchedulesList>(table);
    let table = forward::<SchedulesPause>(table);
    let table = forward::<SchedulesDelete>(table);
    let table = forward::<SchedulesRuns>(table);
    forward::<SchedulesRunGet>(table)
}

/// Adds an operation that is passed to the store unchanged.
fn forward<O: Op>(table: Table<Scheduler>) -> Table<Scheduler>
where
    O::Args: Sync,
{
    table.op::<O, _, _>(|scheduler: Arc<Scheduler>, _, args: O::Args| async move { scheduler.change::<O>(&args).await })
}

impl Scheduler {
    pub(crate) fn clock(&self) -> Clock {
        Clock { now: self.clock.now(), started: self.clock.at(self.started) }
    }

    pub(crate) async fn change<O: Op>(&self, args: &O::Args) -> Result<O::Reply, Error> {
        self.store.change::<O>(args, CALL_TIMEOUT, CHANGE_TIMEOUT).await
    }

    async fn create(&self, args: CreateSchedule) -> Result<Schedule, Error> {
        check_slug(&args.slug)?;
        let definition = Definition::new(args.fields)?;
        let now = self.clock.now();
        for _ in 0..MAX_ATTEMPTS {
            let old = self.state(&args.slug, args.owner.as_ref(), args.replace).await?;
            let old = match old {
                Some(old) if self.catch_up(&old).await? => continue,
                old => old,
            };
            let id = old.as_ref().map_or(&args.id, |old| &old.schedule.id);
            let (timing, zone) = Timing::parse(id, &definition.settings, now)?;
            timing.check(now)?;
            let mark = old.as_ref().map_or(now, |old| after_set_back(old.progress, old.last_slot, now).mark.max(now));
            let put = PutSchedule {
                id: id.clone(),
                slug: args.slug.clone(),
                owner: args.owner.clone(),
                settings: Settings { timezone: zone, ..definition.settings.clone() },
                prompt: definition.prompt.clone(),
                payload: definition.payload.clone(),
                enabled: definition.enabled,
                progress: Progress { anchor: now, mark, next: timing.next(mark) },
                chat_is_configured: false,
                expect: old.as_ref().map(|old| old.generation),
                turn: args.turn.clone(),
            };
            match self.put(put).await {
                // Another caller has changed the schedule that this one replaces, so try again.
                Err(error) if error.code == Code::Conflict && args.replace => {}
                done => return done,
            }
        }
        Err(contended(&args.slug))
    }

    /// Returns the schedule that is to be replaced; `None` if there is none that has not ended, or if `replace` is false.
    async fn state(&self, slug: &str, owner: Option<&Scope>, replace: bool) -> Result<Option<ScheduleState>, Error> {
        if !replace {
            return Ok(None);
        }
        let of = OfSchedule { slug: slug.to_owned(), id: None, owner: owner.cloned() };
        match self.store.call::<SchedulesState>(&of, CALL_TIMEOUT).await {
            Ok(state) => Ok(Some(state).filter(|state| state.schedule.ended_at.is_none())),
            Err(error) if error.code == Code::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn update(&self, slug: &str, owner: Option<&Scope>, fields: Fields) -> Result<Schedule, Error> {
        let of = OfSchedule { slug: slug.to_owned(), id: None, owner: owner.cloned() };
        for _ in 0..MAX_ATTEMPTS {
            let old = self.store.call::<SchedulesState>(&of, CALL_TIMEOUT).await?;
            if old.schedule.ended_at.is_some() {
                return Err(has_ended(slug));
            }
            if self.catch_up(&old).await? {
                continue;
            }
            let definition = Definition::of(old.schedule.clone()).with(fields.clone())?;
            if definition == Definition::of(old.schedule.clone()) {
                return Ok(old.schedule);
            }
            let put = self.changed(old, definition, owner.cloned())?;
            match self.put(put).await {
                Err(error) if error.code == Code::Conflict => {}
                done => return done,
            }
        }
        Err(contended(slug))
    }

    fn changed(&self, old: ScheduleState, new: Definition, owner: Option<Scope>) -> Result<PutSchedule, Error> {
        let now = self.clock.now();
        let when = |settings: &Settings| (settings.schedule.clone(), settings.timezone.clone());
        let is_retimed = when(&old.schedule.settings) != when(&new.settings);
        let progress = after_set_back(old.progress, old.last_slot, now);
        let anchor = if is_retimed { now } else { progress.anchor };
        let (timing, zone) = Timing::parse(&old.schedule.id, &new.settings, anchor)?;
        if is_retimed {
            timing.check(now)?;
        }
        // The slots of the time in which a schedule was paused are skipped, and so are those of an earlier timing.
        let passes = is_retimed || !old.schedule.enabled;
        let mark = if passes { progress.mark.max(now) } else { progress.mark };
        Ok(PutSchedule {
            id: old.schedule.id,
            slug: old.schedule.slug,
            owner,
            settings: Settings { timezone: zone, ..new.settings },
            prompt: new.prompt,
            payload: new.payload,
            enabled: new.enabled,
            progress: Progress { anchor, mark, next: timing.next(mark) },
            chat_is_configured: false,
            expect: Some(old.generation),
            turn: None,
        })
    }

    /// Stores a schedule. If the stored policy does not admit the chat of `deliverTo`, this queries the connector, because only the
    /// connector knows which chats its settings admit.
    async fn put(&self, put: PutSchedule) -> Result<Schedule, Error> {
        let refused = match self.change::<SchedulesPut>(&put).await {
            Err(error) if error.at.as_deref() == Some("/deliverTo/chatId") => error,
            done => return done,
        };
        let Some(DeliverTo::Chat(to)) = &put.settings.deliver_to else {
            return Err(refused);
        };
        let Ok(connector) = self.messenger.call::<ConnectorState>(&Nothing {}, CONNECTOR_TIMEOUT).await else {
            let hint = "ken-messenger does not answer, so only stored users and groups are known: `ken messenger allow` admits a user";
            return Err(refused.hint(hint));
        };
        if !connector.configured_users.contains(&to.chat_id) {
            return Err(refused);
        }
        let put = PutSchedule { chat_is_configured: true, ..put };
        self.change::<SchedulesPut>(&put).await
    }

    /// Records the slots of a schedule that are due, before the schedule is changed. Returns true if there were any.
    async fn catch_up(&self, state: &ScheduleState) -> Result<bool, Error> {
        let clock = self.clock();
        if !is_due(state.progress.next, clock.now) {
            return Ok(false);
        }
        let due = DueSchedule {
            id: state.schedule.id.clone(),
            generation: state.generation,
            settings: state.schedule.settings.clone(),
            progress: state.progress,
        };
        let advance = Advance {
            now: clock.now,
            fires: vec![fire_of(&due, clock)?],
            timed_out: Vec::new(),
            due_until: None,
            clock_set_back: false,
        };
        self.change::<SchedulesAdvance>(&advance).await?;
        Ok(true)
    }

    async fn run(&self, args: RunSchedule, deadline: Instant) -> Result<ScheduleRun, Error> {
        let mut changes = self.changes.subscribe();
        let start = StartRun { slug: args.slug.clone(), owner: args.owner, run_id: args.run_id.clone() };
        let mut run = self.change::<SchedulesStart>(&start).await?;
        let until = Instant::now() + Duration::from_millis(args.wait_ms.min(MAX_WAIT_MS));
        let one = OneScheduleRun { slug: args.slug, run_id: args.run_id };
        while !run.status.is_terminal() && timeout_at(until.min(deadline), changes.changed()).await.is_ok() {
            run = self.store.call::<SchedulesRunGet>(&one, CALL_TIMEOUT).await?;
        }
        Ok(run)
    }
}

fn is_due(next: Option<NextSlot>, now: i64) -> bool {
    next.is_some_and(|next| next.fire <= now)
}

fn contended(slug: &str) -> Error {
    Error::busy(format!("the schedule {slug:?} is being changed by others"), 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_due_from_its_time_on() {
        let next = |fire| Some(NextSlot { slot: 1, fire });
        for (next, is) in [(None, false), (next(10), true), (next(9), true), (next(11), false)] {
            assert_eq!(is_due(next, 10), is, "{next:?}");
        }
    }
}
