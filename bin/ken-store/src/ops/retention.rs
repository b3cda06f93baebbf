//! Deleting what is older than the configuration allows. Once a day, in slices, old sessions and runs of schedules are handed to the
//! deletion for good.

use ken_types::config::Retention;
use ken_types::{Error, Timestamp};

use crate::engine::change::{Change, Left};
use crate::ops::purges;
use crate::rules::{record, stream_names};
use crate::tables::{SessionKind, Tables};

/// The names under which the settings and the progress are stored: the time that the last round took for the current one, and the time that
/// the clock showed during that round. Changed settings remove the second, so that a round begins at once.
const SETTINGS: &str = "retention";
const BELIEVED: &str = "retention.at";
const ROUND_AT: &str = "retention.round";
/// The time between two rounds in milliseconds, and the most by which the time that a round goes by is later than that of the round before.
const STEP_MS: i64 = 24 * 3_600_000;
/// The time between two rounds that catch up, in milliseconds: a little less than the interval at which background work is done in any case.
/// While there is much to do, it is done far more often.
const PAUSE_MS: i64 = 590_000;
/// The maximum number of sessions of each kind, and of records of runs, that one slice takes.
const SLICE: usize = 16;

/// Stores the settings. If they have changed, a round begins at once.
pub(crate) fn set(tables: &dyn Tables, retention: Retention) -> Result<(), Error> {
    let settings = record::write(&retention)?;
    if tables.stored_value(SETTINGS)?.as_deref() == Some(settings.as_str()) {
        return Ok(());
    }
    tables.set_stored_value(SETTINGS, &settings)?;
    tables.remove_stored_value(ROUND_AT)
}

/// Returns the time that a round takes for the current one when it decides what is too old; `None` if no round is due. A clock that is wrong
/// for a moment must not delete everything, and there is no other clock to compare it with. So this time moves on by a day in each round at
/// most; several rounds catch up after a longer pause.
fn round(tables: &dyn Tables, now: Timestamp) -> Result<Option<Timestamp>, Error> {
    let stored = |name| {
        let value = tables.stored_value(name)?;
        Ok::<_, Error>(value.and_then(|ms| ms.parse().ok()).map(Timestamp::from_millis))
    };
    let believed = match stored(BELIEVED)? {
        Some(at) if at > now => {
            // The clock was ahead during the last round. Without this correction, no round would be due before that time.
            store(tables, BELIEVED, now)?;
            now
        }
        Some(at) => at,
        None => tables.newest_use()?.unwrap_or(now).min(now),
    };
    let until = believed.plus_millis(STEP_MS);
    let is_due = match stored(ROUND_AT)? {
        // Whether the clock was put forward or back meanwhile.
        Some(last) => now >= until && (now.millis() - last.millis()).abs() >= PAUSE_MS,
        None => true,
    };
    Ok(is_due.then_some(until.min(now)))
}

fn store(tables: &dyn Tables, name: &str, time: Timestamp) -> Result<(), Error> {
    tables.set_stored_value(name, &time.millis().to_string())
}

/// Hands over some of what is too old. There is more if there was anything: the deletion for good, which stands before this, has to begin.
pub(super) fn slice(tables: &dyn Tables, change: &mut Change) -> Result<Left, Error> {
    let Some(settings) = tables.stored_value(SETTINGS)? else {
        return Ok(Left::Nothing);
    };
    let Some(until) = round(tables, change.now)? else {
        return Ok(Left::Nothing);
    };
    let retention: Retention = record::read(&settings)?;
    let before = |days: Option<i64>| days.map(|ms| until.plus_millis(-ms));
    let (sessions, runs) = (before(retention.sessions.millis()), before(retention.schedule_runs.millis()));
    let mut has_begun = false;
    for (kind, before) in [(SessionKind::Talk, sessions), (SessionKind::Run, runs)] {
        let Some(before) = before else { continue };
        for id in &tables.sessions_before(kind, before, SLICE)? {
            if let Some(log) = tables.log(&stream_names::of_instance(id.as_str()))? {
                purges::begin(tables, &log, id, change)?;
                has_begun = true;
            }
        }
    }
    if let Some(before) = runs {
        has_begun |= tables.delete_schedule_runs(before, SLICE)? > 0;
    }
    if has_begun {
        return Ok(Left::More);
    }
    store(tables, BELIEVED, until)?;
    store(tables, ROUND_AT, change.now)?;
    Ok(Left::Nothing)
}
