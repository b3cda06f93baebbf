//! Deleting sessions for good. One change makes the session and its stream `gone`, and stops its turn. Its rows are deleted afterwards in
//! slices. Once no session has rows left to delete, one pass over the database follows for all of them. It deletes the answers of commands
//! and of idempotency keys that name them, merges the full-text indexes, because they keep the words of deleted rows until then, and
//! overwrites the unused parts of all pages. So the files do not contain it any more once the write-ahead log has been truncated.

use ken_types::id::SessionId;
use ken_types::ops::Nothing;
use ken_types::ops::store::{EndReason, OwnedSession, SessionsPurge};
use ken_types::{Error, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::engine::change::{Change, Effect, Left};
use crate::ops::{Write, indexes, knowledge, queue, schedules, sessions, turns};
use crate::rules::{record, stream_names};
use crate::tables::{LogRow, Merge, PurgeRow, Tables};

/// The maximum number of submissions, of entries, and of events and keys to examine, in one slice.
const SUBMISSIONS: usize = 4;
const ENTRIES: usize = 200;
const EVENTS: usize = 1_000;
const KEYS: usize = 200;
/// The maximum number of conversations of scheduled runs that one slice hands over.
const RUNS: usize = 16;
/// The number of pages that one slice reads, to overwrite what is unused in them.
const SCRUBBED: usize = 256;
/// How long a turn that was asked to stop has for it, and how often that is looked at, in milliseconds.
const STOP_MS: i64 = 15_000;
const POLL_MS: i64 = 100;
/// The name under which the state of the pass is stored.
const PASS: &str = "purges.pass";

/// How far the pass over the database has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Pass {
    phase: Phase,
    /// The last event, key or page that was examined; 1 if the indexes are being merged.
    reached: i64,
    /// Whether the rows of other sessions were deleted after the pass began, so that another one has to follow. A pass is not begun anew,
    /// because then it would never end while sessions are deleted again and again.
    again: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Phase {
    #[default]
    Events,
    Keys,
    Indexes,
    Pages,
}

impl Phase {
    fn next(self) -> Option<Phase> {
        match self {
            Phase::Events => Some(Phase::Keys),
            Phase::Keys => Some(Phase::Indexes),
            Phase::Indexes => Some(Phase::Pages),
            Phase::Pages => None,
        }
    }
}

impl Write for SessionsPurge {
    fn run(tables: &dyn Tables, args: &OwnedSession, change: &mut Change) -> Result<Nothing, Error> {
        if let Some(scope) = &args.scope {
            sessions::owned(tables, &args.id, scope)?;
        }
        // An instance that was used without an actor has a stream, but no session.
        let log = tables.log(&stream_names::of_instance(args.id.as_str()))?;
        begin(tables, &log.ok_or_else(|| sessions::missing(&args.id))?, &args.id, change)?;
        Ok(Nothing {})
    }
}

/// Makes a session and its stream `gone`, stops its turn, and deletes the schedules that end with it.
pub(super) fn begin(tables: &dyn Tables, log: &LogRow, id: &SessionId, change: &mut Change) -> Result<(), Error> {
    let session = tables.session(id.as_str())?;
    let scope = session.map(|session| tables.scope(session.scope)).transpose()?.flatten();
    queue::stop_all(tables, log.key, change)?;
    schedules::delete_of_session(tables, log.key, change)?;
    tables.begin_purge(log.key, change.now)?;
    change.publish("session.purged", json!({"sessionId": id, "connector": scope.map(|scope| scope.connector)}));
    change.push(Effect::Changed(log.name.clone()));
    change.push(Effect::Background);
    Ok(())
}

/// Deletes some rows of the sessions that are being deleted.
pub(super) fn slice(tables: &dyn Tables, change: &mut Change) -> Result<Left, Error> {
    match tables.next_purge()? {
        Some(purge) => delete_rows(tables, &purge, purge.purged_at.plus_millis(STOP_MS), change),
        None => Ok(Left::Nothing),
    }
}

/// Does one slice of all that is left in a copy of the database, where no turn runs that would have to be waited for. Returns whether there is
/// more.
pub fn delete_from_copy(tables: &dyn Tables, now: Timestamp) -> Result<bool, Error> {
    let left = match tables.next_purge()? {
        Some(purge) => delete_rows(tables, &purge, now, &mut Change::at(now))?,
        None => pass(tables)?,
    };
    Ok(left != Left::Nothing)
}

/// Does one slice of the pass over the database.
pub(super) fn pass(tables: &dyn Tables) -> Result<Left, Error> {
    let Some(pass) = current_pass(tables)? else {
        return Ok(Left::Nothing);
    };
    let reached = match pass.phase {
        Phase::Events => tables.purge_events(pass.reached, EVENTS)?,
        Phase::Keys => tables.purge_keys(pass.reached, KEYS)?,
        Phase::Indexes => {
            let merge = if pass.reached == 0 { Merge::Begin } else { Merge::Continue };
            tables.merge_indexes(indexes::PAGES, merge)?.then_some(1)
        }
        Phase::Pages => tables.scrub_pages(pass.reached, SCRUBBED)?,
    };
    let next = match reached {
        Some(reached) => Some(Pass { reached, ..pass }),
        None => pass.phase.next().map(|phase| Pass { phase, reached: 0, ..pass }),
    };
    match next {
        Some(next) => set_pass(tables, next)?,
        None if pass.again => set_pass(tables, Pass::default())?,
        None => {
            tables.remove_damaged_logs();
            tables.remove_stored_value(PASS)?;
        }
    }
    Ok(Left::More)
}

fn current_pass(tables: &dyn Tables) -> Result<Option<Pass>, Error> {
    tables.stored_value(PASS)?.map(|pass| record::read(&pass)).transpose()
}

fn set_pass(tables: &dyn Tables, pass: Pass) -> Result<(), Error> {
    tables.set_stored_value(PASS, &record::write(&pass)?)
}

fn ask_for_pass(tables: &dyn Tables) -> Result<(), Error> {
    match current_pass(tables)? {
        None => set_pass(tables, Pass::default()),
        Some(pass) if pass == Pass::default() => Ok(()),
        Some(pass) => set_pass(tables, Pass { again: true, ..pass }),
    }
}

/// Deletes some rows of a session. Its turn has time to stop until `stop_by`.
fn delete_rows(tables: &dyn Tables, purge: &PurgeRow, stop_by: Timestamp, change: &mut Change) -> Result<Left, Error> {
    let submissions = tables.submissions_to_purge(purge.stream, SUBMISSIONS)?;
    if let Some(first) = submissions.first().filter(|first| !first.is_settled) {
        if change.now < stop_by {
            return Ok(Left::At(change.now.plus_millis(POLL_MS)));
        }
        // Its holder has not stopped in time. Whatever it still sends is refused, because the submission has ended.
        let found = tables.submission_by_key(first.key)?;
        turns::close(tables, &found, tables.log_by_key(purge.stream)?, EndReason::Abort, change)?;
        return Ok(Left::More);
    }
    for submission in submissions.iter().filter(|submission| submission.is_settled) {
        tables.purge_submission(*submission)?;
    }
    let entries = tables.knowledge_to_purge(purge.stream, ENTRIES)?;
    for entry in &entries {
        knowledge::delete(tables, *entry)?;
    }
    let is_done = submissions.is_empty()
        && entries.is_empty()
        && delete_schedules(tables, purge.stream, change)?
        && tables.purge_entries(purge.stream, ENTRIES)? < ENTRIES;
    if is_done {
        tables.purge_instance(purge.stream, stream_names::instance(&purge.name))?;
        tables.end_purge(purge.stream)?;
        ask_for_pass(tables)?;
    }
    Ok(Left::More)
}

/// Hands the conversations of the runs of a session's schedules to the deletion, and then removes the schedules, whose prompts were written
/// in the session. Returns whether none is left.
fn delete_schedules(tables: &dyn Tables, stream: i64, change: &mut Change) -> Result<bool, Error> {
    let Some(schedule) = tables.schedules_of_session(stream)?.into_iter().next() else { return Ok(true) };
    let runs = tables.sessions_of_schedule(&schedule.id, RUNS)?;
    for id in &runs {
        if let Some(log) = tables.log(&stream_names::of_instance(id.as_str()))? {
            begin(tables, &log, id, change)?;
        }
    }
    if runs.is_empty() {
        tables.drop_schedule(schedule.key)?;
    }
    Ok(false)
}
