//! Schedules. Recording a slot decides its outcome and adds its run. What follows for a run is a change of its own, which is found in the
//! tables: the run is admitted with a submission when there is a place, and ended, with its delivery, when the submission has settled. So
//! neither a crash nor a refusal between these changes loses anything, and a refusal ends only the run that it concerns.

use std::collections::HashMap;

use ken_types::event::{Block, Body, Event, Message, Outcome, Place, StopReason, Usage, VERSION};
use ken_types::id::{Origin, SessionId, SubmissionId};
use ken_types::limits::WAITING_PROMPTS;
use ken_types::ops::Nothing;
use ken_types::ops::outbox::PutMessage;
use ken_types::ops::schedules::*;
use ken_types::ops::store::*;
use ken_types::{Error, Timestamp};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::engine::change::{Change, Effect};
use crate::ops::queue::{self, Entry};
use crate::ops::{Read, Write, logs, outbox, schedule_runs, sessions, turns};
use crate::rules::cursor::List;
use crate::rules::queue::Ending;
use crate::rules::schedules::{Activity, Ended, attempt_end, initial_state};
use crate::rules::title::title;
use crate::rules::{check, digest, record};
use crate::tables::{
    ActiveRuns, LogRow, NewEvent, NewScheduleRun, NewSubmission, ScheduleRow, ScheduleRunRow, SessionRow,
    SubmissionRow, Tables,
};

/// The connector of the scope of scheduled turns. `OPERATOR` is the actor if the operator has created the schedule.
const CONNECTOR: &str = "schedule";
const OPERATOR: &str = "admin";
/// The maximum number of schedules that one answer of `schedules.advance` contains.
const MAX_DUE: usize = 2_000;
/// The maximum length of a result that is added to a session, in bytes. It is so small that the event stays within its limit even if all of
/// the text is escaped. The run keeps the complete result.
const MAX_POSTED_BYTES: usize = 32 * 1024;
/// The time after which a caller can try again when too many runs wait, in milliseconds.
const BUSY_RETRY_MS: u64 = 1_000;
/// The maximum number of deleted or ended schedules that one slice of background work removes.
const SLICE: usize = 20;

fn unknown(slug: &str) -> Error {
    Error::not_found(format!("there is no schedule {slug:?}")).hint("`ken schedule list` lists them")
}

/// Returns the schedule with this slug. If an owner is given, the schedule must belong to it.
fn find(tables: &dyn Tables, of: &OfSchedule) -> Result<ScheduleRow, Error> {
    let OfSchedule { slug, id, owner } = of;
    let found = tables.schedule_by_slug(slug, id.as_deref())?.ok_or_else(|| unknown(slug))?;
    match owner {
        Some(owner) if found.owner.is_none() || found.owner != tables.scope_key(owner)? => Err(unknown(slug)),
        _ => Ok(found),
    }
}

fn owner_of(tables: &dyn Tables, row: &ScheduleRow) -> Result<Option<Scope>, Error> {
    Ok(row.owner.map(|key| tables.scope(key)).transpose()?.flatten())
}

fn to_record(tables: &dyn Tables, row: ScheduleRow) -> Result<Schedule, Error> {
    let owner = owner_of(tables, &row)?;
    Ok(Schedule {
        owner_scope: owner.map_or_else(|| OPERATOR.to_owned(), |scope| scope_text(&scope)),
        protect: row.settings.overlap == Overlap::Skip,
        id: row.id,
        slug: row.slug,
        settings: row.settings,
        prompt: row.prompt,
        payload: row.payload,
        enabled: row.enabled,
        last_fired_at: row.last_fired,
        next_fire_at: row.progress.next.map(|next| next.fire),
        last_run_status: row.last_status,
        ended_at: row.ended_at.map(Timestamp::millis),
        created_at: row.created_at.millis(),
        updated_at: row.updated_at.millis(),
    })
}

fn scope_text(scope: &Scope) -> String {
    let thread = scope.thread_id.iter().map(String::as_str);
    let parts = [scope.connector.as_str(), &scope.actor_id, &scope.conversation_id];
    parts.into_iter().chain(thread).collect::<Vec<_>>().join(":")
}

/// Reports a change of a schedule on the system stream.
fn publish(kind: &'static str, slug: &str, change: &mut Change) {
    change.publish(kind, json!({"slug": slug}));
}

impl Write for SchedulesPut {
    fn run(tables: &dyn Tables, args: &PutSchedule, change: &mut Change) -> Result<Schedule, Error> {
        check_delivery(tables, args)?;
        let old = tables.schedule_by_slug(&args.slug, None)?;
        let old = old.filter(|old| old.ended_at.is_none() || old.id == args.id);
        let row = match (old, args.expect) {
            (None, None) => insert(tables, args, change)?,
            // An earlier attempt of this call has created it.
            (Some(old), None) if old.id == args.id => old,
            (Some(_), None) => {
                let error = Error::conflict(format!("there is a schedule {:?}", args.slug)).at("/slug");
                return Err(error.hint("\"replace\": true overwrites it"));
            }
            (Some(old), Some(generation)) if old.generation == generation && old.ended_at.is_none() => {
                update(tables, old, args, change)?
            }
            (_, Some(_)) => {
                return Err(Error::conflict(format!("the schedule {:?} has just been changed", args.slug)));
            }
        };
        to_record(tables, row)
    }
}

fn insert(tables: &dyn Tables, args: &PutSchedule, change: &mut Change) -> Result<ScheduleRow, Error> {
    if tables.count_schedules()? >= SCHEDULES {
        return Err(Error::conflict(format!("there are {SCHEDULES} schedules, and no more fit")).hint("delete some"));
    }
    let owner = args.owner.as_ref().map(|owner| sessions::scope_key(tables, owner)).transpose()?;
    let mut row = ScheduleRow {
        key: 0,
        id: args.id.clone(),
        slug: args.slug.clone(),
        owner,
        generation: 1,
        settings: args.settings.clone(),
        prompt: args.prompt.clone(),
        payload: args.payload.clone(),
        enabled: args.enabled,
        progress: progress_of(args),
        last_fired: None,
        last_status: None,
        failures: 0,
        created_at: change.now,
        updated_at: change.now,
        ended_at: None,
        deleted: false,
        outside: turns::outside_of(tables, args.turn.as_ref())?,
        session: session_of(tables, args, None)?,
    };
    row.key = tables.insert_schedule(&row)?;
    publish("schedule.created", &row.slug, change);
    Ok(row)
}

fn update(
    tables: &dyn Tables,
    old: ScheduleRow,
    args: &PutSchedule,
    change: &mut Change,
) -> Result<ScheduleRow, Error> {
    let kind = match (old.enabled, args.enabled) {
        (true, false) => "schedule.paused",
        (false, true) => "schedule.resumed",
        _ => "schedule.updated",
    };
    // A new prompt has a new author: the agent that replaces the schedule, or a person.
    let outside = match (&args.turn, old.prompt == args.prompt) {
        (None, true) => old.outside.clone(),
        (turn, _) => turns::outside_of(tables, turn.as_ref())?,
    };
    let session = session_of(tables, args, Some(&old))?;
    let row = ScheduleRow {
        generation: old.generation + 1,
        settings: args.settings.clone(),
        prompt: args.prompt.clone(),
        payload: args.payload.clone(),
        failures: match kind {
            "schedule.resumed" => 0,
            _ => old.failures,
        },
        enabled: args.enabled,
        progress: progress_of(args),
        updated_at: change.now,
        outside,
        session,
        ..old
    };
    tables.update_schedule(&row)?;
    publish(kind, &row.slug, change);
    Ok(row)
}

/// Returns the session with which a schedule ends: that in which an agent has written its prompt, unless its results go elsewhere, where
/// somebody sees them.
fn session_of(tables: &dyn Tables, args: &PutSchedule, old: Option<&ScheduleRow>) -> Result<Option<i64>, Error> {
    let written = args.turn.as_ref().map(|turn| tables.submission(turn.as_str())).transpose()?.flatten();
    let kept = old.filter(|old| args.turn.is_none() && old.prompt == args.prompt).and_then(|old| old.session);
    let Some(stream) = written.map(|found| found.stream).or(kept) else { return Ok(None) };
    let is_here = match &args.settings.deliver_to {
        None => true,
        Some(DeliverTo::Session(to)) => tables.session(&to.session)?.is_some_and(|session| session.stream == stream),
        Some(DeliverTo::Chat(_)) => false,
    };
    Ok(is_here.then_some(stream))
}

/// Returns the progress to store. A schedule that is paused has no next slot: with one that has passed, it would be due for ever.
fn progress_of(args: &PutSchedule) -> Progress {
    Progress { next: args.progress.next.filter(|_| args.enabled), ..args.progress }
}

/// Fails if the results of a schedule could not be delivered.
fn check_delivery(tables: &dyn Tables, args: &PutSchedule) -> Result<(), Error> {
    match &args.settings.deliver_to {
        Some(DeliverTo::Session(to)) => {
            let found = tables.session(&to.session)?;
            let owner = args.owner.as_ref().map(|owner| tables.scope_key(owner)).transpose()?;
            let is_owned = |session: &SessionRow| owner.is_none_or(|owner| owner == Some(session.scope));
            match found.filter(is_owned) {
                Some(_) => Ok(()),
                None => Err(Error::invalid(
                    "/deliverTo/session",
                    format!("deliverTo: there is no session {:?}", to.session),
                )),
            }
        }
        Some(DeliverTo::Chat(to)) => {
            let users = tables.allowed_users()?;
            let is_admitted = users.iter().any(|user| user.chat_id == to.chat_id);
            if is_admitted || args.chat_is_configured || tables.group(&to.chat_id)?.is_some() {
                return Ok(());
            }
            let message = format!("deliverTo: the conversation {:?} is not admitted", to.chat_id);
            Err(Error::invalid("/deliverTo/chatId", message).hint("`ken messenger allow` admits a user"))
        }
        None => Ok(()),
    }
}

impl Read for SchedulesGet {
    fn run(tables: &dyn Tables, args: &OfSchedule) -> Result<Schedule, Error> {
        to_record(tables, find(tables, args)?)
    }
}

impl Read for SchedulesState {
    fn run(tables: &dyn Tables, args: &OfSchedule) -> Result<ScheduleState, Error> {
        let row = find(tables, args)?;
        Ok(ScheduleState {
            owner: owner_of(tables, &row)?,
            generation: row.generation,
            progress: row.progress,
            last_slot: tables.last_slot(row.key)?,
            schedule: to_record(tables, row)?,
        })
    }
}

impl Read for SchedulesList {
    fn run(tables: &dyn Tables, args: &ListSchedules) -> Result<ScheduleList, Error> {
        let owner = args.owner.as_ref().map(|owner| tables.scope_key(owner)).transpose()?;
        // An owner that is not stored has no schedules.
        let schedules = match owner {
            Some(None) => Vec::new(),
            owner => tables.list_schedules(owner.flatten(), args.all)?,
        };
        Ok(ScheduleList { schedules })
    }
}

impl Write for SchedulesPause {
    fn run(tables: &dyn Tables, args: &OfSchedule, change: &mut Change) -> Result<Schedule, Error> {
        let mut row = find(tables, args)?;
        if row.enabled {
            pause(tables, &mut row, change)?;
        }
        to_record(tables, row)
    }
}

fn pause(tables: &dyn Tables, row: &mut ScheduleRow, change: &mut Change) -> Result<(), Error> {
    row.enabled = false;
    row.progress.next = None;
    row.generation += 1;
    row.updated_at = change.now;
    tables.update_schedule(row)?;
    publish("schedule.paused", &row.slug, change);
    Ok(())
}

impl Write for SchedulesDelete {
    fn run(tables: &dyn Tables, args: &OfSchedule, change: &mut Change) -> Result<Nothing, Error> {
        delete(tables, &find(tables, args)?, change)?;
        Ok(Nothing {})
    }
}

fn delete(tables: &dyn Tables, row: &ScheduleRow, change: &mut Change) -> Result<(), Error> {
    skip_queued(tables, row, change)?;
    tables.mark_schedule_deleted(row.key, change.now)?;
    publish("schedule.deleted", &row.slug, change);
    Ok(())
}

/// Deletes the schedules that end with a session.
pub(super) fn delete_of_session(tables: &dyn Tables, stream: i64, change: &mut Change) -> Result<(), Error> {
    let found = tables.schedules_of_session(stream)?;
    found.iter().filter(|row| !row.deleted).try_for_each(|row| delete(tables, row, change))
}

fn skip_queued(tables: &dyn Tables, row: &ScheduleRow, change: &mut Change) -> Result<(), Error> {
    for mut waiting in tables.queued_schedule_runs(row.key)? {
        waiting.reason = Some(Reason::Deleted);
        end(tables, row, &mut waiting, RunState::Skipped, change)?;
    }
    Ok(())
}

/// Ends a schedule of which a slot has run, and which is not to run again.
fn finish(tables: &dyn Tables, row: ScheduleRow, change: &mut Change) -> Result<(), Error> {
    skip_queued(tables, &row, change)?;
    // `row` was read before the queued runs were skipped, so its last status stays that of the run.
    let row = ScheduleRow {
        enabled: false,
        progress: Progress { next: None, ..row.progress },
        generation: row.generation + 1,
        updated_at: change.now,
        ended_at: Some(change.now),
        ..row
    };
    tables.update_schedule(&row)?;
    publish("schedule.updated", &row.slug, change);
    Ok(())
}

/// Removes schedules that were deleted or have ended long ago, with their runs. Returns true if there may be more.
pub(crate) fn prune(tables: &dyn Tables, now: Timestamp) -> Result<bool, Error> {
    let (deleted, ended) = (now.plus_millis(-DELETED_MS), now.plus_millis(-ENDED_MS));
    Ok(tables.drop_schedules(deleted, ended, SLICE)? == SLICE)
}

impl Write for SchedulesStart {
    fn run(tables: &dyn Tables, args: &StartRun, change: &mut Change) -> Result<ScheduleRun, Error> {
        let of = OfSchedule { slug: args.slug.clone(), id: None, owner: args.owner.clone() };
        let schedule = find(tables, &of)?;
        if tables.schedule_run(&args.run_id)?.is_none() {
            if schedule.ended_at.is_some() {
                return Err(has_ended(&schedule.slug));
            }
            check_not_full(tables)?;
            let run = NewScheduleRun {
                id: &args.run_id,
                schedule: schedule.key,
                generation: schedule.generation,
                slot_at: None,
                status: RunState::Queued,
                timeout_ms: schedule.settings.timeout_ms,
                reason: None,
                finished_at: None,
            };
            add_run(tables, &schedule.slug, &run, change)?;
        }
        let run = tables.schedule_run(&args.run_id)?;
        run.map(ScheduleRunRow::into_schedule_run).ok_or_else(|| unknown_run(&args.run_id))
    }
}

/// Fails if as many manual runs wait as prompts may wait in a session. Slots are limited where they are recorded.
fn check_not_full(tables: &dyn Tables) -> Result<(), Error> {
    if tables.count_waiting_manual_runs()? < WAITING_PROMPTS {
        return Ok(());
    }
    let message = format!("{WAITING_PROMPTS} manual runs of schedules wait");
    Err(Error::busy(message, BUSY_RETRY_MS).hint("at most 8 runs are active at a time; wait until some have ended"))
}

fn unknown_run(id: &str) -> Error {
    Error::not_found(format!("this schedule has no run {id:?}")).hint("the last 200 are kept")
}

impl Read for SchedulesRunGet {
    fn run(tables: &dyn Tables, args: &OneScheduleRun) -> Result<ScheduleRun, Error> {
        let found = tables.schedule_run_of_slug(&args.slug, &args.run_id)?;
        complete(tables, found.ok_or_else(|| unknown_run(&args.run_id))?)
    }
}

impl Read for SchedulesRuns {
    fn check(args: &ListScheduleRuns) -> Result<(), Error> {
        check::limit(args.limit, PAGE_SCHEDULE_RUNS)
    }

    fn run(tables: &dyn Tables, args: &ListScheduleRuns) -> Result<ScheduleRunPage, Error> {
        let of = |slug: &String| find(tables, &OfSchedule { slug: slug.clone(), id: args.id.clone(), owner: None });
        let schedule = args.slug.as_ref().map(of).transpose()?;
        let name = List::named("schedule_runs", &[schedule.as_ref().map(|schedule| schedule.id.as_str())]);
        let before = name.newest_or(args.after.as_ref(), "?after")?;
        let mut found = tables.list_schedule_runs(
            schedule.map(|schedule| schedule.key),
            before,
            args.limit + 1,
            LISTED_TEXT_BYTES,
        )?;
        let page = name.page(&mut found, args.limit, |(key, _)| [*key]);
        let runs = found.into_iter().map(|(_, run)| complete(tables, run));
        Ok(ScheduleRunPage { page, runs: runs.collect::<Result<_, _>>()? })
    }
}

impl Write for SchedulesAdvance {
    const COMES_FIRST: bool = true;

    fn run(tables: &dyn Tables, args: &Advance, change: &mut Change) -> Result<Advanced, Error> {
        let mut active =
            if args.fires.is_empty() { Active::new() } else { tables.active_schedule_runs()?.into_iter().collect() };
        for fire in &args.fires {
            record_slots(tables, fire, &mut active, args.now, change)?;
        }
        for id in &args.timed_out {
            time_out(tables, id, change)?;
        }
        // A run whose pause before its next attempt is over is not announced by any change.
        change.push(Effect::ScheduleRuns);
        let due = args.due_until.map(|until| tables.due_schedules(until, MAX_DUE));
        let due = due.transpose()?.unwrap_or_default();
        let now = change.now.millis();
        let running = tables.working_schedule_runs()?.into_iter().map(|run| Running {
            left_ms: run.admitted_at.unwrap_or(now) + run.timeout_ms - now,
            run_id: run.id,
            attempt: run.attempt,
        });
        Ok(Advanced {
            running: running.collect(),
            due,
            ahead: if args.clock_set_back { tables.schedules_ahead(args.now)? } else { Vec::new() },
            next_fire: tables.next_fire()?,
            retry_in_ms: tables.next_schedule_retry(now)?.map(|at| at - now),
        })
    }
}

/// The active runs by the id of their schedule.
type Active = HashMap<String, ActiveRuns>;

/// Records slots. Does nothing if another scheduler has recorded them, or if the schedule has changed in the meantime.
fn record_slots(
    tables: &dyn Tables,
    fire: &Fire,
    active: &mut Active,
    now: i64,
    change: &mut Change,
) -> Result<(), Error> {
    let mut count = active.get(&fire.id).copied().unwrap_or_default();
    let is_free = count == (0, 0);
    let fires = |slot: &Slot| slot.fate == SlotOutcome::CatchUp || slot.fate == SlotOutcome::Run && is_free;
    let fires_now = fire.slots.iter().any(fires);
    let Some(fired) = tables.advance_schedule(fire, fires_now.then_some(now))? else {
        return Ok(());
    };
    let mut ended = None;
    for slot in &fire.slots {
        let (status, reason) = initial_state(slot.fate, fire.overlap, count);
        let run = NewScheduleRun {
            id: &slot.run_id,
            schedule: fired.key,
            generation: fire.generation,
            slot_at: Some(slot.at),
            status,
            timeout_ms: fire.timeout_ms,
            reason,
            finished_at: status.is_terminal().then(|| change.now.millis()),
        };
        add_run(tables, &fired.slug, &run, change)?;
        match status {
            RunState::Queued => count.0 += 1,
            other => ended = Some(other),
        }
    }
    let has_fired = active.insert(fire.id.clone(), count).unwrap_or_default() != count;
    if has_fired && !fires_now || ended.is_some() {
        let mut schedule = tables.schedule_by_key(fired.key)?;
        schedule.last_fired = has_fired.then_some(now).or(schedule.last_fired);
        schedule.last_status = ended.or(schedule.last_status);
        tables.update_schedule(&schedule)?;
        tables.prune_schedule_runs(schedule.key, KEPT_RUNS)?;
    }
    Ok(())
}

fn add_run(tables: &dyn Tables, slug: &str, run: &NewScheduleRun<'_>, change: &mut Change) -> Result<(), Error> {
    if tables.insert_schedule_run(run)? {
        change.push(Effect::ScheduleRuns);
        schedule_runs::publish(slug, run.id, run.slot_at, run.status, change);
    }
    Ok(())
}

/// Stores the record of a run, and reports its state.
fn update_run(
    tables: &dyn Tables,
    schedule: &ScheduleRow,
    run: &ScheduleRunRow,
    change: &mut Change,
) -> Result<(), Error> {
    tables.update_schedule_run(run)?;
    schedule_runs::publish(&schedule.slug, &run.id, run.slot_at, run.status, change);
    Ok(())
}

/// What has to be done next for a run: to admit it or, if it has a submission, to follow that.
#[derive(Debug)]
pub(crate) struct Step {
    run: ScheduleRunRow,
    submission: Option<SubmissionRow>,
}

/// Returns the next step of any run. Both [`Step::take`] and [`Step::fail`] change the run so that this step is not returned again.
pub(crate) fn next_step(tables: &dyn Tables, now: Timestamp) -> Result<Option<Step>, Error> {
    let working = tables.working_schedule_runs()?;
    let is_full = working.len() as u64 >= SCHEDULE_RUNS;
    for run in working {
        let found = run.submission.as_ref().map(|id| tables.submission(id.as_str()));
        let found = found.transpose()?.flatten();
        let has_begun = |state| state != State::Queued && run.status == RunState::Admitted;
        let submission = found.filter(|found| found.state.is_settled() || has_begun(found.state));
        if submission.is_some() {
            return Ok(Some(Step { run, submission }));
        }
    }
    let next = if is_full { None } else { tables.next_schedule_run(now.millis())? };
    Ok(next.map(|run| Step { run, submission: None }))
}

impl Step {
    pub(crate) fn take(&self, tables: &dyn Tables, change: &mut Change) -> Result<(), Error> {
        let schedule = tables.schedule_by_key(self.run.schedule)?;
        match &self.submission {
            None => admit(tables, &schedule, self.run.clone(), change),
            Some(found) if found.state.is_settled() => settle(tables, &schedule, self.run.clone(), found, change),
            Some(found) => start(tables, &schedule, self.run.clone(), found, change),
        }
    }

    /// Ends the run as failed, because its step was refused, and delivers nothing.
    pub(crate) fn fail(&self, tables: &dyn Tables, error: &Error, change: &mut Change) -> Result<(), Error> {
        let schedule = tables.schedule_by_key(self.run.schedule)?;
        tracing::warn!(slug = schedule.slug, run = self.run.id, "a run of a schedule ends: {error}");
        let delivery = if schedule.settings.deliver_to.is_some() { Delivery::Failed } else { Delivery::None };
        let mut run = ScheduleRunRow { error: Some(error.message.clone()), delivery, ..self.run.clone() };
        close(tables, &schedule, &mut run, RunState::Error, change)
    }
}

/// Adds the event and the submission of the next attempt of a run. Each run has a session of its own.
fn admit(
    tables: &dyn Tables,
    schedule: &ScheduleRow,
    mut run: ScheduleRunRow,
    change: &mut Change,
) -> Result<(), Error> {
    run.attempt += 1;
    run.status = RunState::Admitted;
    run.admitted_at = Some(change.now.millis());
    run.started_at = None;
    let session = session(tables, schedule, &run, change)?;
    let id = digest::submission_id(&format!("{}:{}", run.id, run.attempt));
    let event = schedule_runs::event_id(&run);
    tables.insert_event(&NewEvent {
        context: Some(&context(schedule, &run)),
        ..NewEvent::internal(&event, Some(session.scope), "schedule.run", &schedule.prompt, change.now)
    })?;
    let outside = schedule.outside.clone();
    let entry = Entry { id: id.clone(), kind: SubmissionKind::Prompt, policy: Policy::Queue, hidden: false, outside };
    let (log, queue) = queue::queue_if_not_full(tables, session.stream, entry.policy)?;
    queue::enqueue(tables, &log, &event, &entry, &queue, change)?;
    run.submission = Some(id);
    update_run(tables, schedule, &run, change)
}

/// Returns the context that the agent gets for a scheduled turn.
fn context(schedule: &ScheduleRow, run: &ScheduleRunRow) -> Value {
    json!({"schedule": {
        "slug": schedule.slug,
        "scheduleId": schedule.id,
        "runId": run.id,
        "trigger": run.trigger,
        "slotAt": run.slot_at.map(Timestamp::from_millis),
        "timezone": schedule.settings.timezone,
        "targetAgent": schedule.settings.target_agent,
        "attempt": run.attempt,
        "payload": schedule.payload,
    }})
}

fn session(
    tables: &dyn Tables,
    schedule: &ScheduleRow,
    run: &ScheduleRunRow,
    change: &mut Change,
) -> Result<SessionRow, Error> {
    let instance = run.instance();
    if let Some(found) = tables.session(&instance)? {
        return Ok(found);
    }
    let owner = owner_of(tables, schedule)?;
    // All runs of a schedule of the operator share one memory. The runs of a schedule that an agent has created find the same knowledge as
    // the conversation in which it was created.
    let scope = match owner {
        Some(owner) => Scope { connector: CONNECTOR.to_owned(), ..owner },
        None => Scope {
            connector: CONNECTOR.to_owned(),
            actor_id: OPERATOR.to_owned(),
            conversation_id: format!("schedule:{}", schedule.id),
            thread_id: None,
        },
    };
    let scope = sessions::scope_key(tables, &scope)?;
    let fresh = FreshSession::new(SessionId(instance), Origin::Connector);
    let made = sessions::insert(tables, scope, &fresh, change)?;
    tables.set_session_title(made.stream, &title(&schedule.prompt))?;
    Ok(made)
}

/// Records that the agent has begun with a run.
fn start(
    tables: &dyn Tables,
    schedule: &ScheduleRow,
    mut run: ScheduleRunRow,
    found: &SubmissionRow,
    change: &mut Change,
) -> Result<(), Error> {
    run.status = RunState::Running;
    run.started_at = found.first_claim_at;
    update_run(tables, schedule, &run, change)
}

/// Records that the submission of a run has ended.
fn settle(
    tables: &dyn Tables,
    schedule: &ScheduleRow,
    mut run: ScheduleRunRow,
    found: &SubmissionRow,
    change: &mut Change,
) -> Result<(), Error> {
    let status = tables.submission_status(&found.id)?;
    run.result_text = status.as_ref().and_then(text_of);
    run.started_at = run.started_at.or(found.first_claim_at);
    let failure = status.and_then(|status| status.error);
    run.error = failure.as_ref().map(|failure| failure.message.clone());
    let activity = activity_of(tables, found)?;
    let attempts = (run.attempt, schedule.settings.max_attempts);
    match attempt_end(found.state, failure.as_ref(), &activity, attempts) {
        Ended::Final(state) => end(tables, schedule, &mut run, state, change),
        Ended::Retry(_) if schedule.deleted => end(tables, schedule, &mut run, RunState::Error, change),
        Ended::Retry(pause) => {
            run.status = RunState::Queued;
            run.not_before = change.now.millis() + pause;
            update_run(tables, schedule, &run, change)
        }
    }
}

/// Returns the text that a submission has written, in the length that the record of a run keeps.
fn text_of(status: &SubmissionStatus) -> Option<String> {
    let result = status.result.as_ref();
    result.map(|result| ken_text::head(&result.text, RESULT_TEXT_BYTES).to_owned())
}

/// Returns what a submission did, according to its events.
fn activity_of(tables: &dyn Tables, found: &SubmissionRow) -> Result<Activity, Error> {
    #[derive(serde::Deserialize)]
    struct Turn {
        error: Option<ken_types::event::Failure>,
    }
    let log = tables.log_by_key(found.stream)?;
    let mut activity = Activity::default();
    tables.entries(log.key, found.recorded_from, log.entries, &mut |event| {
        let kind = check::event_type(event);
        if !event.contains(found.id.as_str()) {
            return true;
        }
        activity.called_tools |= kind == "tool_start";
        if kind == "turn" {
            let turn = serde_json::from_str::<Turn>(event).ok();
            activity.failure = turn.and_then(|turn| turn.error).map(|error| error.name);
        }
        true
    })?;
    Ok(activity)
}

/// Ends a run that has reached its time limit. Its submission ends when its holder receives the request to abort.
fn time_out(tables: &dyn Tables, id: &str, change: &mut Change) -> Result<(), Error> {
    let Some(mut run) = tables.schedule_run(id)?.filter(|run| !run.status.is_terminal()) else {
        return Ok(());
    };
    let schedule = tables.schedule_by_key(run.schedule)?;
    run.error = Some(format!("The run took longer than its {} ms.", run.timeout_ms));
    end(tables, &schedule, &mut run, RunState::Timeout, change)?;
    if let (Some(session), Some(submission)) = (tables.session(&run.instance())?, &run.submission) {
        queue::stop(tables, session.stream, Some(submission), change)?;
    }
    Ok(())
}

/// Ends a run: stores its record, delivers its result, and updates its schedule. The schedule may be paused or deleted by this.
fn end(
    tables: &dyn Tables,
    schedule: &ScheduleRow,
    run: &mut ScheduleRunRow,
    state: RunState,
    change: &mut Change,
) -> Result<(), Error> {
    run.status = state;
    if state != RunState::Skipped {
        run.delivery = deliver(tables, schedule, run, change)?;
    }
    close(tables, schedule, run, state, change)
}

/// Stores the record of a run that has ended, and updates its schedule.
fn close(
    tables: &dyn Tables,
    schedule: &ScheduleRow,
    run: &mut ScheduleRunRow,
    state: RunState,
    change: &mut Change,
) -> Result<(), Error> {
    run.status = state;
    run.finished_at = Some(change.now.millis());
    update_run(tables, schedule, run, change)?;
    // There is a place for the next one.
    change.push(Effect::ScheduleRuns);
    if schedule.deleted {
        return Ok(());
    }
    let mut row = tables.schedule_by_key(schedule.key)?;
    row.last_status = Some(state);
    row.failures = match state {
        RunState::Ok => 0,
        RunState::Skipped => row.failures,
        _ => row.failures.saturating_add(1),
    };
    tables.update_schedule(&row)?;
    tables.prune_schedule_runs(row.key, KEPT_RUNS)?;
    let is_too_often = row.settings.disable_after_failures.is_some_and(|max| row.failures >= max);
    if is_too_often && row.enabled {
        tracing::warn!(slug = row.slug, failures = row.failures, "a schedule is paused after failed runs");
        pause(tables, &mut row, change)?;
    }
    let has_run = state != RunState::Skipped;
    let is_done = has_run && run.trigger == Trigger::Slot && row.settings.delete_after_run;
    if is_done {
        finish(tables, row, change)?;
    }
    Ok(())
}

/// Delivers the result of a run. Failures and empty results are reported too. Otherwise they would look like a success, or like a schedule
/// that does not fire.
fn deliver(
    tables: &dyn Tables,
    schedule: &ScheduleRow,
    run: &ScheduleRunRow,
    change: &mut Change,
) -> Result<Delivery, Error> {
    let text = match (run.status, run.result_text.as_deref()) {
        (RunState::Ok, Some(text)) if !text.trim().is_empty() => text.to_owned(),
        (status, _) => {
            let why = run.error.as_deref().unwrap_or("It has no text.");
            format!("The scheduled run {} of {:?} ended with {}. {why}", run.id, schedule.slug, status.name())
        }
    };
    match &schedule.settings.deliver_to {
        None => Ok(Delivery::None),
        Some(DeliverTo::Chat(to)) => {
            let message = PutMessage {
                connector: to.connector.clone(),
                chat_id: to.chat_id.clone(),
                thread_id: to.thread_id.clone(),
                text,
                key: schedule_runs::message_key(run),
                ..PutMessage::default()
            };
            outbox::put(tables, &message, change).map(|_| Delivery::Pending)
        }
        Some(DeliverTo::Session(to)) => {
            let session = tables.session(&to.session)?.ok_or_else(|| sessions::unknown(&to.session))?;
            post(tables, &session, schedule, run, &text, change).map(|()| Delivery::Sent)
        }
    }
}

/// Returns the run with what changes after it has ended: the text of a turn that was aborted because the run had reached its time limit.
fn complete(tables: &dyn Tables, mut run: ScheduleRun) -> Result<ScheduleRun, Error> {
    if run.status.is_terminal()
        && run.result_text.is_none()
        && let Some(id) = &run.submission_id
    {
        run.result_text = tables.submission_status(id)?.as_ref().and_then(text_of);
    }
    Ok(run)
}

/// Adds a text to a session, as an exchange whose prompt is hidden. The text appears on the stream and in the transcript of the session,
/// and the agent sees it in the next turn.
fn post(
    tables: &dyn Tables,
    session: &SessionRow,
    schedule: &ScheduleRow,
    run: &ScheduleRunRow,
    text: &str,
    change: &mut Change,
) -> Result<(), Error> {
    let text = ken_text::head(text.trim_end(), MAX_POSTED_BYTES);
    let id = digest::submission_id(&format!("{}:delivery", run.id));
    let mut log = tables.log_by_key(session.stream)?;
    let event = format!("schedule:{}:delivery", run.id);
    let prompt = format!("The schedule {:?} has run, and this is its result.", schedule.slug);
    let scope = Some(session.scope);
    tables.insert_event(&NewEvent::internal(&event, scope, "schedule.delivery", &prompt, change.now))?;
    let recorded_from = log.entries;
    tables.insert_submission(&NewSubmission {
        id: &id,
        stream: log.key,
        event: &event,
        kind: SubmissionKind::Prompt,
        hidden: true,
        open: false,
        place: 0,
        recorded_from,
        next_index: 0,
        outside: &turns::outside_of(tables, run.submission.as_ref())?,
    })?;
    let key = tables.submission_key(&id)?;
    let message = |content, stop_reason| Message::Assistant {
        content,
        api: CONNECTOR.to_owned(),
        provider: CONNECTOR.to_owned(),
        model: schedule.slug.clone(),
        usage: Usage::default(),
        stop_reason,
        error: None,
        timestamp: change.now.millis(),
    };
    let bodies = [
        Body::MessageStart { message: message(Vec::new(), None) },
        Body::MessageEnd { message: message(vec![Block::text(text)], Some(StopReason::Stop)) },
        Body::SubmissionSettled { outcome: Outcome::Completed, error: None },
    ];
    let at = logs::next_timestamp(tables, &log, change.now)?;
    let turn = format!("turn_{}", run.id);
    let events = (0..).zip(bodies).map(|(index, body)| event_of(&log, (&id, &turn), index, at, body));
    let events: Vec<Box<RawValue>> = events.collect::<Result<_, _>>()?;
    logs::append(tables, &mut log, &events, change)?;
    // The submission was never claimed. A lease number above 0 shows that it has events, as a claimed one has.
    let found = SubmissionRow { lease: 1, ..tables.submission_by_key(key)? };
    turns::finish(tables, &found, &log, &Ending::of(Outcome::Completed), change)?;
    sessions::touch(tables, session, change)
}

fn event_of(
    log: &LogRow,
    (id, turn): (&SubmissionId, &str),
    event_index: u64,
    timestamp: Timestamp,
    body: Body,
) -> Result<Box<RawValue>, Error> {
    let is_message = !matches!(body, Body::SubmissionSettled { .. });
    let turn_id = is_message.then(|| turn.to_owned());
    let place = Place { turn_id, ..turns::place(log, id, Some(CONNECTOR), event_index, timestamp) };
    to_raw_value(&Event { v: VERSION, body, place }).map_err(record::defect)
}
