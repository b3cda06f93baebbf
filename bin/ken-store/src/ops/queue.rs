//! The queue of an instance: adding submissions and stopping them.

use ken_types::Error;
use ken_types::fence::Outside;
use ken_types::id::SubmissionId;
use ken_types::ops::store::*;

use crate::engine::change::{Change, Effect};
use crate::ops::turns::{self, SubmissionFields};
use crate::rules::queue::Queue;
use crate::tables::{LogRow, NewSubmission, SubmissionRow, Tables};

/// A submission that is to be added to a queue.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: SubmissionId,
    pub(super) kind: SubmissionKind,
    pub(super) policy: Policy,
    /// Whether this is an internal prompt, which transcripts and titles leave out.
    pub(super) hidden: bool,
    /// The origins of outside text in the prompt itself.
    pub(super) outside: Outside,
}

/// Returns the stream and the queue of an instance if it has room for another submission. Fails with `conflict` if it is not empty and the
/// policy is `reject`, and with `busy` if it is full.
pub(super) fn queue_if_not_full(tables: &dyn Tables, stream: i64, policy: Policy) -> Result<(LogRow, Queue), Error> {
    let (log, queue) = tables.log_with_queue(stream)?;
    let queue = Queue::of(&queue);
    queue.check(policy)?;
    Ok((log, queue))
}

/// Adds a submission to a queue.
pub(super) fn enqueue(
    tables: &dyn Tables,
    log: &LogRow,
    event: &str,
    entry: &Entry,
    queue: &Queue,
    change: &mut Change,
) -> Result<(), Error> {
    let entrance = queue.position(entry.policy);
    if entrance.first && queue.running {
        abort_running(tables, log.key, change)?;
    } else if entrance.first {
        tables.close_queued(log.key)?;
    }
    tables.forget_tips(log.key)?;
    tables.insert_submission(&NewSubmission {
        id: &entry.id,
        stream: log.key,
        event,
        kind: entry.kind,
        hidden: entry.hidden,
        open: entrance.open,
        place: entrance.place,
        recorded_from: log.entries,
        next_index: 0,
        outside: &entry.outside,
    })?;
    if entrance.open {
        change.push(Effect::Claimable(Work::Turns));
    }
    change.push(Effect::Queued(entry.id.clone()));
    change.publish("submission.queued", SubmissionFields::of(log.instance(), &entry.id));
    Ok(())
}

/// Requests that the running submission is aborted by its holder, or by its next holder if it has none now.
fn abort_running(tables: &dyn Tables, stream: i64, change: &mut Change) -> Result<Option<SubmissionId>, Error> {
    let Some(found) = tables.running(stream)? else {
        return Ok(None);
    };
    tables.set_abort(found.key)?;
    change.push(Effect::AbortRequested(found.id.clone()));
    Ok(Some(found.id))
}

fn abort_queued(tables: &dyn Tables, queued: &SubmissionRow, change: &mut Change) -> Result<(), Error> {
    let log = tables.log_by_key(queued.stream)?;
    turns::close(tables, queued, log, EndReason::Abort, change)
}

/// Stops the submission with this id. Without an id, stops the one that runs or is the next to run.
pub(super) fn stop(
    tables: &dyn Tables,
    stream: i64,
    named: Option<&SubmissionId>,
    change: &mut Change,
) -> Result<Option<SubmissionId>, Error> {
    let fits = |id: &SubmissionId| named.is_none_or(|named| named == id);
    if tables.running(stream)?.is_some_and(|found| fits(&found.id)) {
        return abort_running(tables, stream, change);
    }
    let waiting = tables.queued(stream)?;
    let Some(found) = waiting.iter().find(|waiting| fits(&waiting.id)) else {
        return Ok(None);
    };
    abort_queued(tables, found, change)?;
    Ok(Some(found.id.clone()))
}

pub(super) fn stop_all(tables: &dyn Tables, stream: i64, change: &mut Change) -> Result<Vec<SubmissionId>, Error> {
    let mut stopped = Vec::from_iter(abort_running(tables, stream, change)?);
    for waiting in tables.queued(stream)? {
        abort_queued(tables, &waiting, change)?;
        stopped.push(waiting.id);
    }
    Ok(stopped)
}
