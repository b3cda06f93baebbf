//! Schedules and their runs.

use ken_types::fence::Outside;
use ken_types::id::{SessionId, SubmissionId};
use ken_types::ops::schedules::{
    AheadSchedule, Delivery, DueSchedule, Fire, NextSlot, Progress, Reason, RunState, ScheduleRun, ScheduleSummary,
    Settings, Trigger,
};
use ken_types::{Error, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Tables;
use super::columns::{json, optional_word, outside, present, stored, to_json, word};
use super::sql::{Row, all, first, params, unique};

/// The number of queued runs of a schedule, and the number of its admitted or running ones.
pub type ActiveRuns = (u64, u64);

#[derive(Debug, Clone)]
pub struct ScheduleRow {
    pub key: i64,
    pub id: String,
    pub slug: String,
    /// The scope of the session in which an agent created the schedule; `None` for a schedule of the operator.
    pub owner: Option<i64>,
    pub generation: u64,
    pub settings: Settings,
    pub prompt: String,
    pub payload: Option<Value>,
    pub enabled: bool,
    pub progress: Progress,
    pub last_fired: Option<i64>,
    pub last_status: Option<RunState>,
    /// The number of consecutive failed runs.
    pub failures: u32,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// When it ended. Another schedule may have its slug since then.
    pub ended_at: Option<Timestamp>,
    pub deleted: bool,
    /// The origins of outside text that the turn of the agent had read that created the schedule.
    pub outside: Outside,
    /// The stream of the session with which it ends: an agent made it there, and its results go nowhere else.
    pub session: Option<i64>,
}

/// A schedule whose progress has been updated.
#[derive(Debug)]
pub struct FiredRow {
    pub key: i64,
    pub slug: String,
}

/// The record with which a scheduled run begins.
#[derive(Debug, Clone)]
pub struct NewScheduleRun<'a> {
    pub id: &'a str,
    pub schedule: i64,
    pub generation: u64,
    pub slot_at: Option<i64>,
    pub status: RunState,
    pub timeout_ms: i64,
    pub reason: Option<Reason>,
    pub finished_at: Option<i64>,
}

#[derive(Debug, Clone)]
pub struct ScheduleRunRow {
    pub key: i64,
    pub id: String,
    pub schedule: i64,
    pub schedule_id: String,
    pub slug: String,
    pub slot_at: Option<i64>,
    pub trigger: Trigger,
    pub status: RunState,
    pub attempt: u32,
    /// The time before which the run is not admitted, in milliseconds since the epoch.
    pub not_before: i64,
    /// The time limit of the run after it is admitted, in milliseconds.
    pub timeout_ms: i64,
    pub submission: Option<SubmissionId>,
    pub result_text: Option<String>,
    pub error: Option<String>,
    pub reason: Option<Reason>,
    pub delivery: Delivery,
    pub started_at: Option<i64>,
    pub admitted_at: Option<i64>,
    pub finished_at: Option<i64>,
}

impl ScheduleRunRow {
    pub fn instance(&self) -> String {
        format!("schedule:{}:{}", self.schedule_id, self.id)
    }

    /// Returns the run in the form in which the API shows it.
    pub fn into_schedule_run(self) -> ScheduleRun {
        let instance = self.instance();
        ScheduleRun {
            instance_id: instance.clone(),
            session_id: instance,
            run_id: self.id,
            schedule_id: self.schedule_id,
            slug: self.slug,
            slot_at: self.slot_at,
            trigger: self.trigger,
            status: self.status,
            attempt: self.attempt,
            dispatch_id: self.submission.clone(),
            submission_id: self.submission,
            result_text: self.result_text,
            error: self.error,
            reason: self.reason,
            delivery: self.delivery,
            started_at: self.started_at,
            admitted_at: self.admitted_at,
            finished_at: self.finished_at,
        }
    }
}

impl dyn Tables + '_ {
    /// Returns the newest schedule with this slug and, if it is given, this id, that is not deleted. At most the newest has not ended.
    pub fn schedule_by_slug(&self, slug: &str, id: Option<&str>) -> Result<Option<ScheduleRow>, Error> {
        let sql = "SELECT * FROM schedules WHERE slug = ?1 AND (?2 IS NULL OR id = ?2) AND deleted_at IS NULL
                   ORDER BY schedule DESC LIMIT 1";
        first(self, sql, params![slug, id], schedule)
    }

    pub fn schedule_by_key(&self, key: i64) -> Result<ScheduleRow, Error> {
        unique(self, "SELECT * FROM schedules WHERE schedule = ?1", params![key], schedule)
    }

    /// Returns the number of schedules that have neither ended nor been deleted.
    pub fn count_schedules(&self) -> Result<u64, Error> {
        let sql = "SELECT count(*) AS number FROM schedules WHERE deleted_at IS NULL AND ended_at IS NULL";
        unique(self, sql, params![], |row| row.get("number"))
    }

    pub fn insert_schedule(&self, schedule: &ScheduleRow) -> Result<i64, Error> {
        let sql =
            "INSERT INTO schedules (id, slug, owner, generation, settings, prompt, payload, enabled, anchor, mark,
                     next_slot, next_fire, created_at, updated_at, outside, stream)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?13, ?14, ?15)";
        let next = schedule.progress.next;
        let values = params![
            schedule.id,
            schedule.slug,
            schedule.owner,
            schedule.generation,
            to_json(&schedule.settings)?,
            schedule.prompt,
            json(schedule.payload.as_ref())?,
            schedule.enabled,
            schedule.progress.anchor,
            schedule.progress.mark,
            next.map(|next| next.slot),
            next.map(|next| next.fire),
            schedule.created_at,
            outside(&schedule.outside)?,
            schedule.session,
        ];
        self.insert(sql, "schedule", values)
    }

    /// Stores the fields of a schedule that can change. `mark_schedule_deleted` marks it as deleted.
    pub fn update_schedule(&self, schedule: &ScheduleRow) -> Result<(), Error> {
        let sql =
            "UPDATE schedules SET slug = ?2, generation = ?3, settings = ?4, prompt = ?5, payload = ?6, enabled = ?7,
                     anchor = ?8, mark = ?9, next_slot = ?10, next_fire = ?11, last_fired = ?12, last_status = ?13,
                     failures = ?14, updated_at = ?15, outside = ?16, ended_at = ?17, stream = ?18
                   WHERE schedule = ?1";
        let next = schedule.progress.next;
        let values = params![
            schedule.key,
            schedule.slug,
            schedule.generation,
            to_json(&schedule.settings)?,
            schedule.prompt,
            json(schedule.payload.as_ref())?,
            schedule.enabled,
            schedule.progress.anchor,
            schedule.progress.mark,
            next.map(|next| next.slot),
            next.map(|next| next.fire),
            schedule.last_fired,
            name(&schedule.last_status)?,
            schedule.failures,
            schedule.updated_at,
            outside(&schedule.outside)?,
            schedule.ended_at,
            schedule.session,
        ];
        self.execute(sql, values)
    }

    /// Updates the progress of a schedule, and stores when it fired if it did. Returns `None`, and changes nothing, if the mark or the
    /// generation of the schedule differs from that in `fire`, or if it is paused or deleted.
    pub fn advance_schedule(&self, fire: &Fire, fired: Option<i64>) -> Result<Option<FiredRow>, Error> {
        let sql = "SELECT schedule, slug FROM schedules
                   WHERE id = ?1 AND generation = ?2 AND mark = ?3 AND enabled = 1 AND deleted_at IS NULL";
        let values = params![fire.id, fire.generation, fire.mark];
        let found = first(self, sql, values, |row| Ok(FiredRow { key: row.get(0)?, slug: row.get(1)? }))?;
        let Some(found) = found else {
            return Ok(None);
        };
        let sql = "UPDATE schedules SET anchor = ?2, mark = ?3, next_slot = ?4, next_fire = ?5,
                     last_fired = coalesce(?6, last_fired)
                   WHERE schedule = ?1";
        let Progress { anchor, mark, next } = fire.progress;
        let (next_slot, next_fire) = next.map(|next| (next.slot, next.fire)).unzip();
        self.execute(sql, params![found.key, anchor, mark, next_slot, next_fire, fired])?;
        Ok(Some(found))
    }

    /// Returns the schedules in the order of their slugs, those with the same slug newest first. `ended` includes those that have ended.
    pub fn list_schedules(&self, owner: Option<i64>, ended: bool) -> Result<Vec<ScheduleSummary>, Error> {
        let sql = "SELECT s.*, (
                     SELECT delivery FROM schedule_runs AS r
                     WHERE r.schedule = s.schedule AND active = 0 AND status NOT IN ('skipped', 'missed')
                     ORDER BY run DESC LIMIT 1) AS last_delivery
                   FROM schedules AS s
                   WHERE deleted_at IS NULL AND (?1 IS NULL OR owner = ?1) AND (?2 = 1 OR ended_at IS NULL)
                   ORDER BY slug, schedule DESC";
        all(self, sql, params![owner, ended], summary)
    }

    /// Marks a schedule as deleted. A new schedule can then have its slug.
    pub fn mark_schedule_deleted(&self, key: i64, now: Timestamp) -> Result<(), Error> {
        let sql = "UPDATE schedules SET deleted_at = ?2, next_slot = NULL, next_fire = NULL WHERE schedule = ?1";
        self.execute(sql, params![key, now])
    }

    /// Removes at most `max` schedules that were marked as deleted before one time or ended before another, with their runs. Returns how
    /// many were removed.
    pub fn drop_schedules(&self, deleted: Timestamp, ended: Timestamp, max: usize) -> Result<usize, Error> {
        let sql = "SELECT schedule FROM schedules WHERE deleted_at < ?1 OR ended_at < ?2 LIMIT ?3";
        let before = params![deleted, ended, max];
        let keys: Vec<i64> = all(self, sql, before, |row| row.get(0))?;
        keys.iter().try_for_each(|key| self.drop_schedule(*key))?;
        Ok(keys.len())
    }

    /// Removes a schedule with its runs.
    pub fn drop_schedule(&self, key: i64) -> Result<(), Error> {
        self.execute("DELETE FROM schedule_runs WHERE schedule = ?1", params![key])?;
        self.execute("DELETE FROM schedules WHERE schedule = ?1", params![key])
    }

    /// Returns the schedules that end with a session, also those that have ended or are marked as deleted.
    pub fn schedules_of_session(&self, stream: i64) -> Result<Vec<ScheduleRow>, Error> {
        all(self, "SELECT * FROM schedules WHERE stream = ?1", params![stream], schedule)
    }

    /// Returns the ids of at most `max` conversations of the runs of a schedule.
    pub fn sessions_of_schedule(&self, id: &str, max: usize) -> Result<Vec<SessionId>, Error> {
        // The semicolon follows the colon, so that this is a range of the index of ids.
        let sql =
            "SELECT id FROM sessions WHERE id > 'schedule:' || ?1 || ':' AND id < 'schedule:' || ?1 || ';' LIMIT ?2";
        all(self, sql, params![id, max], |row| Ok(SessionId(row.get(0)?)))
    }

    /// Returns the schedules that are due, in the order in which they fire.
    pub fn due_schedules(&self, now: i64, max: usize) -> Result<Vec<DueSchedule>, Error> {
        let sql = "SELECT * FROM schedules WHERE next_fire <= ?1 ORDER BY next_fire LIMIT ?2";
        all(self, sql, params![now, max], due)
    }

    /// Returns the schedules with a next slot whose mark is after a time.
    pub fn schedules_ahead(&self, now: i64) -> Result<Vec<AheadSchedule>, Error> {
        let sql = "SELECT s.*, (SELECT max(slot_at) FROM schedule_runs AS r WHERE r.schedule = s.schedule) AS last_slot
                   FROM schedules AS s WHERE next_fire IS NOT NULL AND mark > ?1";
        all(self, sql, params![now], |row| Ok(AheadSchedule { schedule: due(row)?, last_slot: row.get("last_slot")? }))
    }

    /// Returns the newest slot of a schedule that has a record.
    pub fn last_slot(&self, schedule: i64) -> Result<Option<i64>, Error> {
        let sql = "SELECT max(slot_at) FROM schedule_runs WHERE schedule = ?1";
        unique(self, sql, params![schedule], |row| row.get(0))
    }

    pub fn next_fire(&self) -> Result<Option<i64>, Error> {
        let sql = "SELECT min(next_fire) FROM schedules WHERE next_fire IS NOT NULL";
        unique(self, sql, params![], |row| row.get(0))
    }

    /// Inserts a run. Returns false if its slot already has a record.
    pub fn insert_schedule_run(&self, new: &NewScheduleRun<'_>) -> Result<bool, Error> {
        let sql = "INSERT INTO schedule_runs (id, schedule, generation, slot_at, status, active, attempt, not_before,
                     timeout_ms, reason, delivery, finished_at)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, 0, ?7, ?8, 'none', ?9) ON CONFLICT DO NOTHING";
        let values = params![
            new.id,
            new.schedule,
            new.generation,
            new.slot_at,
            new.status.name(),
            !new.status.is_terminal(),
            new.timeout_ms,
            name(&new.reason)?,
            new.finished_at,
        ];
        Ok(self.changed_rows(sql, values)? > 0)
    }

    pub fn schedule_run(&self, id: &str) -> Result<Option<ScheduleRunRow>, Error> {
        first(self, &format!("{RUN} WHERE r.id = ?1"), params![id], run_row)
    }

    /// Returns a run of a schedule with this slug, even if the schedule is deleted.
    pub fn schedule_run_of_slug(&self, slug: &str, id: &str) -> Result<Option<ScheduleRun>, Error> {
        let sql = format!("{RUN} WHERE r.id = ?1 AND s.slug = ?2");
        Ok(first(self, &sql, params![id, slug], run_row)?.map(ScheduleRunRow::into_schedule_run))
    }

    /// Stores the fields of a run that change while it is active.
    pub fn update_schedule_run(&self, row: &ScheduleRunRow) -> Result<(), Error> {
        let sql = "UPDATE schedule_runs SET status = ?2, active = ?3, attempt = ?4, not_before = ?5, submission = ?6,
                     result_text = ?7, error = ?8, reason = ?9, delivery = ?10, started_at = ?11, admitted_at = ?12,
                     finished_at = ?13
                   WHERE run = ?1";
        let values = params![
            row.key,
            row.status.name(),
            !row.status.is_terminal(),
            row.attempt,
            row.not_before,
            row.submission.as_ref().map(SubmissionId::as_str),
            row.result_text,
            row.error,
            name(&row.reason)?,
            name(&row.delivery)?,
            row.started_at,
            row.admitted_at,
            row.finished_at,
        ];
        self.execute(sql, values)
    }

    /// Returns the number of active runs of each schedule that has any, by the id of the schedule.
    pub fn active_schedule_runs(&self) -> Result<Vec<(String, ActiveRuns)>, Error> {
        let sql = "SELECT s.id, count(*) FILTER (WHERE r.status = 'queued') AS queued,
                     count(*) FILTER (WHERE r.status <> 'queued') AS working
                   FROM schedule_runs AS r JOIN schedules AS s USING (schedule)
                   WHERE r.active = 1 GROUP BY s.id";
        all(self, sql, params![], |row| Ok((row.get("id")?, (row.get("queued")?, row.get("working")?))))
    }

    pub fn queued_schedule_runs(&self, schedule: i64) -> Result<Vec<ScheduleRunRow>, Error> {
        let sql = format!("{RUN} WHERE r.schedule = ?1 AND r.active = 1 AND r.status = 'queued'");
        all(self, &sql, params![schedule], run_row)
    }

    /// Returns the admitted and the running runs of all schedules.
    pub fn working_schedule_runs(&self) -> Result<Vec<ScheduleRunRow>, Error> {
        let sql = format!("{RUN} WHERE r.active = 1 AND r.status IN ('admitted', 'running')");
        all(self, &sql, params![], run_row)
    }

    /// Returns how many queued runs were started by hand.
    pub fn count_waiting_manual_runs(&self) -> Result<u64, Error> {
        let sql = "SELECT count(*) AS number FROM schedule_runs
                   WHERE active = 1 AND status = 'queued' AND slot_at IS NULL";
        unique(self, sql, params![], |row| row.get("number"))
    }

    /// Returns the oldest queued run that can be admitted now. Schedules that already have an admitted or running one are left out.
    pub fn next_schedule_run(&self, now: i64) -> Result<Option<ScheduleRunRow>, Error> {
        let sql = format!(
            "{RUN} WHERE r.active = 1 AND r.status = 'queued' AND r.not_before <= ?1 AND NOT EXISTS (
               SELECT 1 FROM schedule_runs AS o
               WHERE o.schedule = r.schedule AND o.active = 1 AND o.status IN ('admitted', 'running'))
             ORDER BY r.run LIMIT 1"
        );
        first(self, &sql, params![now], run_row)
    }

    /// Returns the earliest time at which a run that waits for its next attempt can be admitted.
    pub fn next_schedule_retry(&self, now: i64) -> Result<Option<i64>, Error> {
        // The condition `not_before > 0` is that of the index `schedule_runs_retried`.
        let sql = "SELECT min(not_before) FROM schedule_runs
                   WHERE active = 1 AND not_before > 0 AND status = 'queued' AND not_before > ?1";
        unique(self, sql, params![now], |row| row.get(0))
    }

    /// Returns the runs of one schedule or of all before a key, newest first, each with its key. The text of a result is
    /// cut to `text` bytes.
    pub fn list_schedule_runs(
        &self,
        schedule: Option<i64>,
        before: i64,
        limit: u32,
        text: usize,
    ) -> Result<Vec<(i64, ScheduleRun)>, Error> {
        let order = "r.run < ?1 ORDER BY r.run DESC LIMIT ?2";
        let found = match schedule {
            Some(key) => {
                all(self, &format!("{RUN} WHERE r.schedule = ?3 AND {order}"), params![before, limit, key], run_row)?
            }
            None => all(self, &format!("{RUN} WHERE {order}"), params![before, limit], run_row)?,
        };
        let shown = found.into_iter().map(|mut row| {
            row.result_text = row.result_text.map(|result| ken_text::head(&result, text).to_owned());
            (row.key, row.into_schedule_run())
        });
        Ok(shown.collect())
    }

    /// Deletes the records of at most `max` runs that have finished before a time. Returns how many were deleted.
    pub fn delete_schedule_runs(&self, before: Timestamp, max: usize) -> Result<usize, Error> {
        let sql = "DELETE FROM schedule_runs WHERE run IN (
                     SELECT run FROM schedule_runs WHERE active = 0 AND finished_at < ?1 LIMIT ?2)";
        self.changed_rows(sql, params![before, max])
    }

    /// Deletes the finished runs of a schedule, except the newest `keep`.
    pub fn prune_schedule_runs(&self, schedule: i64, keep: usize) -> Result<(), Error> {
        let sql = "DELETE FROM schedule_runs WHERE schedule = ?1 AND active = 0 AND run <= (
                     SELECT run FROM schedule_runs WHERE schedule = ?1 AND active = 0
                     ORDER BY run DESC LIMIT 1 OFFSET ?2)";
        self.execute(sql, params![schedule, keep])
    }
}

/// Returns the name of an enum value in the form in which columns contain it.
fn name(value: &impl Serialize) -> Result<Option<String>, Error> {
    match serde_json::to_value(value) {
        Ok(Value::String(name)) => Ok(Some(name)),
        Ok(_) => Ok(None),
        Err(error) => Err(crate::rules::record::defect(error)),
    }
}

fn named<T: DeserializeOwned>(name: &str) -> Option<T> {
    serde_json::from_value(Value::from(name)).ok()
}

fn settings(row: &dyn Row) -> Result<Settings, Error> {
    present(row, stored(row, "settings")?, "settings")
}

fn progress(row: &dyn Row) -> Result<Progress, Error> {
    let next: (Option<i64>, Option<i64>) = (row.get("next_slot")?, row.get("next_fire")?);
    Ok(Progress {
        anchor: row.get("anchor")?,
        mark: row.get("mark")?,
        next: next.0.zip(next.1).map(|(slot, fire)| NextSlot { slot, fire }),
    })
}

fn schedule(row: &dyn Row) -> Result<ScheduleRow, Error> {
    Ok(ScheduleRow {
        key: row.get("schedule")?,
        id: row.get("id")?,
        slug: row.get("slug")?,
        owner: row.get("owner")?,
        generation: row.get("generation")?,
        settings: settings(row)?,
        prompt: row.get("prompt")?,
        payload: stored(row, "payload")?,
        enabled: row.get("enabled")?,
        progress: progress(row)?,
        last_fired: row.get("last_fired")?,
        last_status: optional_word(row, "schedules.last_status", named)?,
        failures: row.get("failures")?,
        created_at: row.get("created_at")?,
        updated_at: row.get("updated_at")?,
        ended_at: row.get("ended_at")?,
        deleted: row.get::<Option<i64>>("deleted_at")?.is_some(),
        outside: stored(row, "outside")?.unwrap_or_default(),
        session: row.get("stream")?,
    })
}

fn summary(row: &dyn Row) -> Result<ScheduleSummary, Error> {
    let settings = settings(row)?;
    Ok(ScheduleSummary {
        id: row.get("id")?,
        slug: row.get("slug")?,
        kind: settings.kind,
        schedule: settings.schedule,
        timezone: settings.timezone,
        target_agent: settings.target_agent,
        enabled: row.get("enabled")?,
        next_fire_at: row.get("next_fire")?,
        last_fired_at: row.get("last_fired")?,
        last_run_status: optional_word(row, "schedules.last_status", named)?,
        last_delivery: optional_word(row, "schedules.last_delivery", named)?,
        ended_at: row.get("ended_at")?,
    })
}

fn due(row: &dyn Row) -> Result<DueSchedule, Error> {
    Ok(DueSchedule {
        id: row.get("id")?,
        generation: row.get("generation")?,
        settings: settings(row)?,
        progress: progress(row)?,
    })
}

fn run_row(row: &dyn Row) -> Result<ScheduleRunRow, Error> {
    let slot_at: Option<i64> = row.get("slot_at")?;
    Ok(ScheduleRunRow {
        key: row.get("run")?,
        id: row.get("id")?,
        schedule: row.get("schedule")?,
        schedule_id: row.get("schedule_id")?,
        slug: row.get("slug")?,
        slot_at,
        trigger: if slot_at.is_some() { Trigger::Slot } else { Trigger::Manual },
        status: word(row, "schedule_runs.status", named)?,
        attempt: row.get("attempt")?,
        not_before: row.get("not_before")?,
        timeout_ms: row.get("timeout_ms")?,
        submission: row.get::<Option<String>>("submission")?.map(SubmissionId),
        result_text: row.get("result_text")?,
        error: row.get("error")?,
        reason: optional_word(row, "schedule_runs.reason", named)?,
        delivery: word(row, "schedule_runs.delivery", named)?,
        started_at: row.get("started_at")?,
        admitted_at: row.get("admitted_at")?,
        finished_at: row.get("finished_at")?,
    })
}

/// Selects runs with all their columns, and the ids and slugs of their schedules.
const RUN: &str =
    "SELECT r.*, s.id AS schedule_id, s.slug FROM schedule_runs AS r JOIN schedules AS s USING (schedule)";
