//! Deleting what is older than the configuration allows. Once a day, in slices, old sessions and runs of schedules are handed to the
//! deletion for good.

use ken_types::Error;
use ken_types::config::Retention;

use crate::engine::change::{Change, Left};
use crate::ops::purges;
use crate::rules::{record, stream_names};
use crate::tables::{SessionKind, Tables};

/// The names under which the settings and the time of the last round are stored.
const SETTINGS: &str = "retention";
const ROUND_AT: &str = "retention.at";
/// The time between two rounds in milliseconds.
const ROUND_MS: i64 = 24 * 3_600_000;
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

/// Hands over some of what is too old. There is more if there was anything: the deletion for good, which stands before this, has to begin.
pub(super) fn slice(tables: &dyn Tables, change: &mut Change) -> Result<Left, Error> {
    let Some(settings) = tables.stored_value(SETTINGS)? else {
        return Ok(Left::Nothing);
    };
    let last = tables.stored_value(ROUND_AT)?.and_then(|at| at.parse().ok()).unwrap_or(i64::MIN);
    if change.now.millis() < last.saturating_add(ROUND_MS) {
        return Ok(Left::Nothing);
    }
    let retention: Retention = record::read(&settings)?;
    let before = |days: Option<i64>| days.map(|ms| change.now.plus_millis(-ms));
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
    tables.set_stored_value(ROUND_AT, &change.now.millis().to_string())?;
    Ok(Left::Nothing)
}
