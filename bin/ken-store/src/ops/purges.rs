//! Deleting sessions for good. One change makes the session and its stream `gone`, and stops its turn. Its rows are deleted afterwards in
//! slices. Then the full-text indexes are merged, because they keep the words of deleted rows until then, and the unused parts of all pages
//! are overwritten. So the files do not contain it any more once the write-ahead log has been truncated.

use ken_types::Error;
use ken_types::id::SessionId;
use ken_types::ops::Nothing;
use ken_types::ops::store::{EndReason, OwnedSession, SessionsPurge};
use serde_json::json;

use crate::engine::change::{Change, Effect, Left};
use crate::ops::{Host, Operations, Write, knowledge, queue, sessions, turns};
use crate::rules::stream_names;
use crate::tables::{LogRow, Phase, PurgeRow, Tables};

/// The maximum number of submissions, of entries, and of events to examine, in one slice.
const SUBMISSIONS: usize = 4;
const ENTRIES: usize = 200;
const EVENTS: usize = 1_000;
/// The number of pages of a full-text index that one slice rewrites.
const PAGES: i64 = 64;
/// The number of pages that one slice reads, to overwrite what is unused in them.
const SCRUBBED: usize = 256;
/// How long a turn that was asked to stop has for it, and how often that is looked at, in milliseconds.
const STOP_MS: i64 = 15_000;
const POLL_MS: i64 = 100;

pub(super) fn add<H: Host>(operations: Operations<H>) -> Operations<H> {
    operations.write::<SessionsPurge>()
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

/// Makes a session and its stream `gone`, and stops its turn.
pub(super) fn begin(tables: &dyn Tables, log: &LogRow, id: &SessionId, change: &mut Change) -> Result<(), Error> {
    let session = tables.session(id.as_str())?;
    let scope = session.map(|session| tables.scope(session.scope)).transpose()?.flatten();
    queue::stop_all(tables, log.key, change)?;
    tables.begin_purge(log.key, change.now)?;
    tables.purge_keys(id.as_str())?;
    change.publish("session.purged", json!({"sessionId": id, "connector": scope.map(|scope| scope.connector)}));
    change.push(Effect::Changed(log.name.clone()));
    change.push(Effect::Background);
    Ok(())
}

/// Does one slice of the deletion.
pub(super) fn slice(tables: &dyn Tables, change: &mut Change) -> Result<Left, Error> {
    let Some(purge) = tables.next_purge()? else {
        return Ok(Left::Nothing);
    };
    match purge.phase {
        Phase::Rows => return delete_rows(tables, &purge, change),
        Phase::Events => {
            let session = stream_names::instance(&purge.name);
            match tables.purge_events(session, purge.reached, EVENTS)? {
                Some(reached) => tables.advance_purge(purge.stream, Phase::Events, reached)?,
                None => tables.advance_purge(purge.stream, Phase::Indexes, 0)?,
            }
        }
        // This is the least advanced one, so the rows of all others are deleted, too.
        Phase::Indexes if tables.merge_indexes(PAGES)? => {}
        Phase::Indexes => tables.advance_all_purges(0)?,
        Phase::Pages => match tables.scrub_pages(purge.reached, SCRUBBED)? {
            Some(reached) => tables.advance_all_purges(reached)?,
            None => tables.end_purges()?,
        },
    }
    Ok(Left::More)
}

fn delete_rows(tables: &dyn Tables, purge: &PurgeRow, change: &mut Change) -> Result<Left, Error> {
    let submissions = tables.submissions_to_purge(purge.stream, SUBMISSIONS)?;
    if let Some(first) = submissions.first().filter(|first| !first.is_settled) {
        if change.now < purge.purged_at.plus_millis(STOP_MS) {
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
    let is_done =
        submissions.is_empty() && entries.is_empty() && tables.purge_entries(purge.stream, ENTRIES)? < ENTRIES;
    if is_done {
        tables.purge_instance(purge.stream, stream_names::instance(&purge.name))?;
        tables.advance_purge(purge.stream, Phase::Events, 0)?;
    }
    Ok(Left::More)
}
