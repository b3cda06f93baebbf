//! Deleting what is older than the configuration allows. Once a day, in slices, old sessions and runs of schedules are handed to the
//! deletion for good.

use ken_types::config::Retention;
use ken_types::{Error, Timestamp};

use crate::engine::change::Change;
use crate::ops::purges;
use crate::rules::{record, stream_names};
use crate::tables::Tables;

/// The names under which the settings and the time of the last round are stored.
const SETTINGS: &str = "retention";
const ROUND_AT: &str = "retention.at";
/// The time between two rounds in milliseconds.
const ROUND_MS: i64 = 24 * 3_600_000;
/// The maximum number of sessions, and of runs, that one slice hands over.
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

/// Hands over some of what is too old. Returns true if there was anything: there may be more, and the deletion for good, which
/// stands before this in a slice, has to begin.
pub(super) fn slice(tables: &dyn Tables, change: &mut Change) -> Result<bool, Error> {
    let Some(settings) = tables.stored_value(SETTINGS)? else {
        return Ok(false);
    };
    let last = tables.stored_value(ROUND_AT)?.and_then(|at| at.parse().ok()).unwrap_or(i64::MIN);
    if change.now.millis() < last.saturating_add(ROUND_MS) {
        return Ok(false);
    }
    let retention: Retention = record::read(&settings)?;
    let before = |days: Option<i64>| days.map(|ms| change.now.plus_millis(-ms));
    let (sessions, runs) = (before(retention.sessions.millis()), before(retention.schedule_runs.millis()));
    if purge_sessions(tables, sessions, change)? || purge_runs(tables, runs, change)? {
        return Ok(true);
    }
    tables.set_stored_value(ROUND_AT, &change.now.millis().to_string())?;
    Ok(false)
}

fn purge_sessions(tables: &dyn Tables, before: Option<Timestamp>, change: &mut Change) -> Result<bool, Error> {
    let Some(before) = before else { return Ok(false) };
    let mut has_begun = false;
    for id in &tables.sessions_before(before, SLICE)? {
        let name = stream_names::of_instance(id.as_str());
        if let Some(log) = tables.log(&name)? {
            purges::begin(tables, &log, id, change)?;
            has_begun = true;
        }
    }
    Ok(has_begun)
}

fn purge_runs(tables: &dyn Tables, before: Option<Timestamp>, change: &mut Change) -> Result<bool, Error> {
    let Some(before) = before else { return Ok(false) };
    let old = tables.schedule_runs_before(before, SLICE)?;
    for run in &old {
        let name = stream_names::of_instance(&run.instance());
        if let Some(log) = tables.log(&name)? {
            tables.begin_purge(log.key, change.now)?;
        }
        tables.delete_schedule_run(run.key)?;
    }
    Ok(!old.is_empty())
}
