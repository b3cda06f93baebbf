//! Leases: claims submissions, and releases them when their holders have ended.

use ken_types::ops::store::*;
use ken_types::{Error, Offset, Timestamp};

use crate::ConnectionId;
use crate::engine::change::{Change, Effect};
use crate::ops::{kinds, logs, turns};
use crate::rules::queue::{time_left as left, verdict};
use crate::tables::{LogRow, OpenRow, SessionSettings, SubmissionRow, Tables};

/// The number of claims to end a submission that can be lost before the store ends the submission itself.
const MAX_CLOSINGS: u32 = 2;

/// Claims at most `max` submissions of a kind of work, oldest first. The leases begin when the change is committed.
pub(crate) fn claim(tables: &dyn Tables, work: Work, max: u32, change: &mut Change) -> Result<Vec<Claim>, Error> {
    let limit = kinds::permits(tables, work)?.min(max as usize);
    let mut claims = Vec::new();
    loop {
        let max = limit - claims.len();
        let open = tables.open_submissions(work, max)?;
        let all_there_is = open.len() < max;
        for open in open {
            claims.extend(hand_out(tables, open, change)?);
        }
        // Some submissions were ended and not claimed, so there is room for others, and others may have become available.
        if all_there_is || claims.len() == limit {
            return Ok(claims);
        }
    }
}

fn hand_out(tables: &dyn Tables, open: OpenRow, change: &mut Change) -> Result<Option<Claim>, Error> {
    let found = &open.submission;
    let kind = kinds::of(found.kind);
    let mut log = tables.log_by_key(found.stream)?;
    let verdict = verdict(found, change.now);
    if let Some(verdict) = verdict.filter(|_| found.closings >= MAX_CLOSINGS || kind.closed_by_store) {
        tracing::warn!(submission = %found.id, ?verdict, "the store ends a submission that no holder could end");
        (kind.close)(tables, found, log, verdict, change)?;
        return Ok(None);
    }
    let (workflow, next_event_index) = (kind.hand_out)(tables, found, &mut log, change)?;
    let mut taken = found.clone();
    if found.state == State::Queued {
        // If the submission waits for a decision, it continues to wait under the new holder.
        taken.state = State::Running;
        if kind.recorded_from_claim {
            taken.recorded_from = log.entries;
            turns::publish_status(&log, &taken, change);
        }
    }
    tables.take_submission(&taken, verdict.is_some(), change.now)?;
    let (number, attempt, time_left_ms) = (found.lease + 1, found.attempt + 1, left(found, change.now));
    let last_timestamp = logs::last_timestamp(tables, &log)?;
    let claim = claim_of(tables, OpenRow { submission: taken, ..open }, log)?;
    Ok(Some(Claim {
        lease: Lease { number, ..claim.lease },
        attempt,
        workflow,
        next_event_index,
        last_timestamp,
        started_at: claim.started_at.or(Some(change.now)),
        time_left_ms,
        verdict,
        ..claim
    }))
}

/// Returns a submission with everything that its holder needs, as if nobody had it.
pub(super) fn claim_of(tables: &dyn Tables, open: OpenRow, log: LogRow) -> Result<Claim, Error> {
    let found = open.submission;
    let mark = turns::mark(tables, &found.id)?;
    let SessionSettings { workspace, model } = tables.session_settings(found.stream)?;
    Ok(Claim {
        lease: Lease { submission_id: found.id, number: 0 },
        attempt: 1,
        kind: found.kind,
        instance: log.instance().to_owned(),
        workflow: None,
        stream: log.name,
        text: open.text,
        images: open.images,
        scope: open.scope,
        context: open.context,
        message_kind: open.message_kind,
        next_event_index: found.next_index,
        recorded_from: Offset::end(found.recorded_from),
        last_timestamp: None,
        started_at: found.first_claim_at.map(Timestamp::from_millis),
        received_at: Some(open.received_at),
        time_left_ms: 0,
        verdict: None,
        mark,
        outside: found.outside,
        workspace,
        model,
    })
}

/// Returns the submission of a lease; `None` if it is not the newest lease of its submission, or if the submission is queued or settled.
fn of_lease(tables: &dyn Tables, lease: &Lease) -> Result<Option<SubmissionRow>, Error> {
    let found = tables.submission(lease.submission_id.as_str())?;
    Ok(found.filter(|found| found.lease == lease.number && !found.state.is_settled() && found.state != State::Queued))
}

/// Renews leases, including released ones, if they are still the newest of their submissions. Returns all other leases as lost.
pub(crate) fn renew(
    tables: &dyn Tables,
    leases: &[Lease],
    holder: ConnectionId,
    change: &mut Change,
) -> Result<LostLeases, Error> {
    let mut lost = Vec::new();
    for lease in leases {
        let Some(found) = of_lease(tables, lease)? else {
            lost.push(lease.clone());
            continue;
        };
        if found.open {
            tables.set_open(found.key, false)?;
        }
        change.push(Effect::Renewed { lease: lease.clone(), connection: holder });
        if found.abort {
            change.push(Effect::AbortRequested(found.id));
        }
    }
    Ok(LostLeases { lost })
}

/// Releases a lease, so that its submission can be claimed again. If the lease is not the newest of its submission, nothing changes.
pub(crate) fn release(tables: &dyn Tables, lease: &Lease, change: &mut Change) -> Result<(), Error> {
    if let Some(found) = of_lease(tables, lease)?
        && !found.open
    {
        let kind = kinds::of(found.kind);
        let verdict = verdict(&found, change.now).filter(|_| kind.closed_by_store);
        if let Some(verdict) = verdict {
            let log = tables.log_by_key(found.stream)?;
            (kind.close)(tables, &found, log, verdict, change)?;
        } else {
            tables.set_open(found.key, true)?;
            change.push(Effect::Claimable(kind.work));
        }
    }
    change.push(Effect::LeaseEnded(lease.clone()));
    Ok(())
}

/// Returns how long the submission of a lease can still run, in milliseconds; `None` if it is no longer held under this lease.
pub(crate) fn time_left(tables: &dyn Tables, lease: &Lease, now: Timestamp) -> Result<Option<i64>, Error> {
    let found = of_lease(tables, lease)?.filter(|found| !found.open);
    Ok(found.map(|found| left(&found, now)))
}
