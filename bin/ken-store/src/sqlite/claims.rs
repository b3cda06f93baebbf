//! Leases as the database knows them: their numbers, and what may be claimed.

use ken_types::id::SubmissionId;
use ken_types::limits::CLAIMS;
use ken_types::ops::store::*;
use ken_types::{Offset, Timestamp};
use rusqlite::{Connection, Row, params};
use serde::de::DeserializeOwned;

use super::fault::Done;
use super::settle::{self, Ending};
use super::streams::Stream;
use super::submissions::{self, Submission, state_name};
use super::{all, first, rows, run, runs, scopes, streams};
use crate::ConnectionId;
use crate::backend::{Change, Effect, OldLease};

/// Closing claims of one submission that may be lost; then the store closes it itself.
const CLOSINGS: u32 = 2;

/// An open submission with all that its holder needs.
struct Open {
    submission: Submission,
    text: String,
    images: Option<String>,
    context: Option<String>,
    scope: Option<Scope>,
}

fn read_open(row: &Row<'_>) -> rusqlite::Result<Open> {
    let scoped: Option<i64> = row.get("scope")?;
    Ok(Open {
        submission: submissions::read(row)?,
        text: row.get("text")?,
        images: row.get("images")?,
        context: row.get("context")?,
        scope: scoped.map(|_| scopes::read(row)).transpose()?,
    })
}

/// What the two kinds of holders are given, each from an index of its own.
const TURNS: &str =
    "SELECT s.*, e.text, e.images, e.context, c.scope, c.connector, c.actor, c.conversation, c.thread
     FROM submissions AS s JOIN events AS e USING (event) LEFT JOIN scopes AS c ON c.scope = e.scope
     WHERE s.open = 1 AND s.kind <> 'workflow' ORDER BY s.submission LIMIT ?1";
const RUNS: &str = "SELECT s.*, e.text, NULL AS images, NULL AS context, NULL AS scope
     FROM submissions AS s JOIN events AS e USING (event)
     WHERE s.open = 1 AND s.kind = 'workflow' ORDER BY s.submission LIMIT ?1";

pub(super) fn claim(connection: &Connection, work: Work, most: u32, change: &mut Change) -> Done<Vec<Claim>> {
    let (sql, asked) = match work {
        Work::Turns => (TURNS, most as usize),
        Work::Runs => (RUNS, runs::room(connection)?.min(most as usize)),
    };
    let mut claims = Vec::new();
    loop {
        let most = asked - claims.len();
        let open = all(connection, sql, [rows(most)], read_open)?;
        let all_there_is = open.len() < most;
        for open in open {
            claims.extend(hand_out(connection, open, change)?);
        }
        // What was closed instead of handed out has made room, and may have opened another.
        if all_there_is || claims.len() == asked {
            return Ok(claims);
        }
    }
}

fn hand_out(connection: &Connection, open: Open, change: &mut Change) -> Done<Option<Claim>> {
    let found = &open.submission;
    let mut stream = streams::by_id(connection, found.stream)?;
    let verdict = verdict(found, change.now);
    if let Some(verdict) = verdict.filter(|_| found.closings >= CLOSINGS || is_closed_by_store(found)) {
        tracing::warn!(submission = %found.id, ?verdict, "nobody could close a submission: the store does");
        settle::by_store(connection, found, stream, &ending(verdict), change)?;
        return Ok(None);
    }
    let (workflow, next_event_index) = match found.kind {
        SubmissionKind::Workflow => {
            let (workflow, next) = runs::hand_out(connection, found, &mut stream, change)?;
            (Some(workflow), next)
        }
        SubmissionKind::Prompt | SubmissionKind::Compact => (None, found.next_index),
    };
    let from = take(connection, found, &stream, verdict.is_some(), change)?;
    let last_timestamp = settle::last_timestamp(connection, &stream)?;
    Ok(Some(Claim {
        lease: Lease {
            submission_id: found.id.clone(),
            number: found.lease + 1,
        },
        attempt: found.attempt + 1,
        kind: found.kind,
        instance: stream.instance().to_owned(),
        workflow,
        images: parsed(open.images)?.unwrap_or_default(),
        context: parsed(open.context)?,
        text: open.text,
        scope: open.scope,
        next_event_index,
        recorded_from: Offset::end(from),
        last_timestamp,
        time_left_ms: found.time_left(change.now),
        verdict,
        stream: stream.name,
    }))
}

/// Whether there is nothing left to say by a holder when it has to end: a run has no message that could be cut.
fn is_closed_by_store(found: &Submission) -> bool {
    found.kind == SubmissionKind::Workflow
}

/// Gives the submission a new lease; how many entries are before its first own one.
fn take(
    connection: &Connection,
    found: &Submission,
    stream: &Stream,
    closing: bool,
    change: &mut Change,
) -> Done<u64> {
    // One that waits for a decision goes on waiting, whoever holds it.
    let (state, from) = match found.state {
        State::Queued if is_closed_by_store(found) => (State::Running, found.recorded_from),
        State::Queued => {
            submissions::moved(connection, found, State::Running, change)?;
            (State::Running, stream.entries)
        }
        state => (state, found.recorded_from),
    };
    let sql = "UPDATE submissions SET state = ?2, open = 0, lease = lease + 1, attempt = attempt + 1,
                 closings = closings + ?3, recorded_from = ?4, first_claim_at = coalesce(first_claim_at, ?5)
               WHERE submission = ?1";
    let now = change.now.millis();
    run(
        connection,
        sql,
        params![
            found.submission,
            state_name(state),
            closing,
            from.cast_signed(),
            now
        ],
    )?;
    Ok(from)
}

fn parsed<T: DeserializeOwned>(text: Option<String>) -> Done<Option<T>> {
    Ok(text.map(|text| serde_json::from_str(&text)).transpose()?)
}

/// Why a submission shall be closed instead of gone on with.
fn verdict(found: &Submission, now: Timestamp) -> Option<Verdict> {
    if found.abort {
        Some(Verdict::Abort)
    } else if found.attempt >= CLAIMS {
        Some(Verdict::RetryExhausted)
    } else if found.time_left(now) <= 0 {
        Some(Verdict::Timeout)
    } else {
        None
    }
}

fn ending(verdict: Verdict) -> Ending<'static> {
    match verdict {
        Verdict::Abort => Ending::aborted(),
        Verdict::RetryExhausted => {
            Ending::failed("retry_exhausted", "The turn was begun too often without an end.")
        }
        Verdict::Timeout => Ending::failed("timeout", "The turn took too long."),
    }
}

/// The submission of a lease while it is held or could be taken up again.
fn of_lease(connection: &Connection, lease: &Lease) -> Done<Option<Submission>> {
    let sql = "SELECT * FROM submissions WHERE id = ?1 AND lease = ?2 AND live = 1 AND state <> 'queued'";
    let values = params![lease.submission_id.as_str(), lease.number.cast_signed()];
    Ok(first(connection, sql, values, submissions::read)?)
}

pub(super) fn renew(
    connection: &Connection,
    leases: &[Lease],
    holder: ConnectionId,
    change: &mut Change,
) -> Done<Vec<Lease>> {
    let mut kept = Vec::with_capacity(leases.len());
    for lease in leases {
        let Some(found) = of_lease(connection, lease)? else {
            continue;
        };
        if found.open {
            run(
                connection,
                "UPDATE submissions SET open = 0 WHERE submission = ?1",
                [found.submission],
            )?;
        }
        change.effects.push(Effect::Renewed {
            lease: lease.clone(),
            connection: holder,
        });
        if found.abort {
            change.effects.push(Effect::AbortWanted(found.id));
        }
        kept.push(lease.clone());
    }
    Ok(kept)
}

pub(super) fn release(connection: &Connection, lease: &Lease, change: &mut Change) -> Done<()> {
    if let Some(found) = of_lease(connection, lease)?
        && !found.open
    {
        let verdict = verdict(&found, change.now).filter(|_| is_closed_by_store(&found));
        if let Some(verdict) = verdict {
            let stream = streams::by_id(connection, found.stream)?;
            settle::by_store(connection, &found, stream, &ending(verdict), change)?;
        } else {
            let sql = "UPDATE submissions SET open = 1 WHERE submission = ?1";
            run(connection, sql, [found.submission])?;
            change.effects.push(Effect::Opened(submissions::work(&found)));
        }
    }
    change.effects.push(Effect::LeaseOver(lease.clone()));
    Ok(())
}

pub(super) fn time_left(connection: &Connection, lease: &Lease, now: Timestamp) -> Done<Option<i64>> {
    let found = of_lease(connection, lease)?.filter(|found| !found.open);
    Ok(found.map(|found| found.time_left(now)))
}

pub(super) fn old_leases(connection: &Connection) -> Done<Vec<OldLease>> {
    let sql = "SELECT id, lease, abort FROM submissions WHERE live = 1 AND open = 0 AND state <> 'queued'";
    let read = |row: &Row<'_>| {
        Ok(OldLease {
            lease: Lease {
                submission_id: SubmissionId(row.get("id")?),
                number: super::count(row, "lease")?,
            },
            aborting: row.get("abort")?,
        })
    };
    Ok(all(connection, sql, [], read)?)
}
