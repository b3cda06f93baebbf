//! Submissions on their way through an instance: first come, first served, one at a time.

use ken_types::Error;
use ken_types::Timestamp;
use ken_types::event::Outcome;
use ken_types::id::SubmissionId;
use ken_types::limits::{SUBMISSION_MS, WAITING_PROMPTS};
use ken_types::ops::store::*;
use rusqlite::{Connection, Row, params};
use serde_json::json;

use super::fault::{Done, Fault};
use super::settle::{self, Ending};
use super::streams::{self, Stream};
use super::{all, count, first, run, system};
use crate::backend::{Change, Effect};

const BUSY_RETRY_MS: u64 = 1_000;

/// What is to be queued.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: SubmissionId,
    pub(super) kind: SubmissionKind,
    pub(super) policy: Policy,
    /// An internal prompt, which transcripts and titles leave out.
    pub(super) hidden: bool,
}

/// How an instance stands when something is to be queued in it. The default is an instance with nothing to do.
#[derive(Debug, Default)]
pub(super) struct Room {
    running: bool,
    queued: u64,
    first_place: i64,
    last_place: i64,
}

/// A submission as it stands in this transaction.
#[derive(Debug)]
pub(super) struct Submission {
    pub(super) submission: i64,
    pub(super) id: SubmissionId,
    pub(super) stream: i64,
    pub(super) event: i64,
    pub(super) kind: SubmissionKind,
    pub(super) hidden: bool,
    pub(super) state: State,
    pub(super) open: bool,
    pub(super) recorded_from: u64,
    pub(super) next_index: u64,
    pub(super) lease: u64,
    pub(super) attempt: u32,
    pub(super) closings: u32,
    pub(super) abort: bool,
    pub(super) approvals: Vec<String>,
    first_claim_at: Option<i64>,
    waiting_since: Option<i64>,
    waited_ms: i64,
}

impl Submission {
    /// How long it may still run: an hour from its first claim, without the time spent waiting for decisions.
    pub(super) fn time_left(&self, now: Timestamp) -> i64 {
        let now = now.millis();
        let waiting = self.waiting_since.map_or(0, |since| now - since);
        let ran = self.first_claim_at.map_or(0, |first| now - first) - self.waited_ms - waiting;
        SUBMISSION_MS - ran.max(0)
    }
}

pub(super) fn kind_name(kind: SubmissionKind) -> &'static str {
    match kind {
        SubmissionKind::Prompt => "prompt",
        SubmissionKind::Compact => "compact",
        SubmissionKind::Workflow => "workflow",
    }
}

pub(super) fn state_name(state: State) -> &'static str {
    match state {
        State::Queued => "queued",
        State::Running => "running",
        State::Waiting => "waiting",
        State::Completed => "completed",
        State::Failed => "failed",
        State::Aborted => "aborted",
    }
}

pub(super) fn state(name: &str) -> State {
    match name {
        "queued" => State::Queued,
        "running" => State::Running,
        "waiting" => State::Waiting,
        "completed" => State::Completed,
        "aborted" => State::Aborted,
        _ => State::Failed,
    }
}

pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Submission> {
    let kind = match row.get_ref("kind")?.as_str()? {
        "compact" => SubmissionKind::Compact,
        "workflow" => SubmissionKind::Workflow,
        _ => SubmissionKind::Prompt,
    };
    Ok(Submission {
        submission: row.get("submission")?,
        id: SubmissionId(row.get("id")?),
        stream: row.get("stream")?,
        event: row.get("event")?,
        kind,
        hidden: row.get("hidden")?,
        state: state(row.get_ref("state")?.as_str()?),
        open: row.get("open")?,
        recorded_from: count(row, "recorded_from")?,
        next_index: count(row, "next_index")?,
        lease: count(row, "lease")?,
        attempt: row.get("attempt")?,
        closings: row.get("closings")?,
        abort: row.get("abort")?,
        approvals: approvals(row)?,
        first_claim_at: row.get("first_claim_at")?,
        waiting_since: row.get("waiting_since")?,
        waited_ms: row.get("waited_ms")?,
    })
}

fn approvals(row: &Row<'_>) -> rusqlite::Result<Vec<String>> {
    let stored: Option<String> = row.get("approvals")?;
    // What does not read was written by nobody of ours: then nothing is known to be waited for.
    Ok(stored
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default())
}

pub(super) fn find(connection: &Connection, id: &SubmissionId) -> Done<Submission> {
    let found = first(
        connection,
        "SELECT * FROM submissions WHERE id = ?1",
        [id.as_str()],
        read,
    )?;
    found.ok_or_else(|| {
        Error::not_found(format!("there is no submission {id}"))
            .at("/submission_id")
            .into()
    })
}

/// Whether anything runs or waits in an instance.
pub(super) fn is_busy(connection: &Connection, stream: i64) -> Done<bool> {
    let sql = "SELECT 1 FROM submissions WHERE live = 1 AND stream = ?1";
    Ok(connection.prepare_cached(sql)?.exists([stream])?)
}

/// Whether one more may come in. `conflict` under policy `reject`, `busy` when the queue is full.
pub(super) fn room(connection: &Connection, stream: i64, policy: Policy) -> Done<Room> {
    let sql = "SELECT state, count(*) AS number, min(place) AS least, max(place) AS most
               FROM submissions WHERE live = 1 AND stream = ?1 GROUP BY state";
    let mut room = Room::default();
    let mut select = connection.prepare_cached(sql)?;
    let mut rows = select.query([stream])?;
    while let Some(row) = rows.next()? {
        let most: i64 = row.get("most")?;
        room.last_place = room.last_place.max(most);
        if row.get_ref("state")?.as_str().map_err(rusqlite::Error::from)? == "queued" {
            room.queued = count(row, "number")?;
            room.first_place = row.get("least")?;
        } else {
            room.running = true;
        }
    }
    if policy == Policy::Reject && (room.running || room.queued > 0) {
        return Err(Error::conflict("a turn runs or waits in this session").into());
    }
    if room.queued >= WAITING_PROMPTS {
        let message = format!("{WAITING_PROMPTS} prompts wait in this session");
        return Err(Error::busy(message, BUSY_RETRY_MS).into());
    }
    Ok(room)
}

/// Queues a submission. The caller has asked for room.
pub(super) fn admit(
    connection: &Connection,
    stream: &Stream,
    event: i64,
    entry: &Entry,
    room: &Room,
    change: &mut Change,
) -> Done<()> {
    let first = entry.policy == Policy::Interrupt;
    if first && room.running {
        abort_running(connection, stream.id, change)?;
    } else if first {
        let sql = "UPDATE submissions SET open = 0 WHERE live = 1 AND stream = ?1 AND state = 'queued' AND open = 1";
        run(connection, sql, [stream.id])?;
    }
    let place = if first && room.queued > 0 {
        room.first_place - 1
    } else {
        room.last_place + 1
    };
    let open = !room.running && (first || room.queued == 0);
    let sql = "INSERT INTO submissions (id, stream, event, kind, hidden, state, open, place, recorded_from)
               VALUES (?1, ?2, ?3, ?4, ?5, 'queued', ?6, ?7, ?8)";
    let values = params![
        entry.id.as_str(),
        stream.id,
        event,
        kind_name(entry.kind),
        entry.hidden,
        open,
        place,
        stream.entries.cast_signed(),
    ];
    run(connection, sql, values)?;
    if open {
        change.effects.push(Effect::Opened(Work::Turns));
    }
    let fields = json!({"sessionId": stream.instance(), "submissionId": entry.id});
    system::happened(change, "submission.queued", fields);
    Ok(())
}

/// Queues a run: it waits for no other in its stream, and may be claimed as soon as there is room. Its row.
pub(super) fn insert_run(
    connection: &Connection,
    id: &SubmissionId,
    stream: &Stream,
    event: i64,
    change: &mut Change,
) -> Done<i64> {
    let sql = "INSERT INTO submissions (id, stream, event, kind, hidden, state, open, place, recorded_from, next_index)
               VALUES (?1, ?2, ?3, 'workflow', 0, 'queued', 1, 1, ?4, ?4)";
    run(
        connection,
        sql,
        params![id.as_str(), stream.id, event, stream.entries.cast_signed()],
    )?;
    change.effects.push(Effect::Opened(Work::Runs));
    Ok(connection.last_insert_rowid())
}

/// What it can be claimed as.
pub(super) fn work(found: &Submission) -> Work {
    match found.kind {
        SubmissionKind::Workflow => Work::Runs,
        SubmissionKind::Prompt | SubmissionKind::Compact => Work::Turns,
    }
}

/// Tells consoles that a submission runs, or waits for a decision.
pub(super) fn moved(
    connection: &Connection,
    found: &Submission,
    state: State,
    change: &mut Change,
) -> Done<()> {
    let stream = streams::by_id(connection, found.stream)?;
    let kind = match state {
        State::Waiting => "submission.waiting",
        _ => "submission.running",
    };
    system::happened(
        change,
        kind,
        json!({"sessionId": stream.instance(), "submissionId": found.id}),
    );
    Ok(())
}

/// Lets the next one of an instance be claimed, unless one runs.
pub(super) fn open_next(connection: &Connection, stream: i64, change: &mut Change) -> Done<()> {
    let sql = "UPDATE submissions SET open = 1 WHERE submission = (
                 SELECT submission FROM submissions WHERE live = 1 AND stream = ?1 AND state = 'queued' ORDER BY place LIMIT 1
               ) AND NOT EXISTS (
                 SELECT 1 FROM submissions WHERE live = 1 AND stream = ?1 AND state IN ('running', 'waiting')
               )";
    if run(connection, sql, [stream])? > 0 {
        change.effects.push(Effect::Opened(Work::Turns));
    }
    Ok(())
}

fn running(connection: &Connection, stream: i64) -> Done<Option<Submission>> {
    let sql = "SELECT * FROM submissions WHERE live = 1 AND stream = ?1 AND state IN ('running', 'waiting')";
    Ok(first(connection, sql, [stream], read)?)
}

/// Asks the holder of the running submission, or its next one, to end it.
fn abort_running(connection: &Connection, stream: i64, change: &mut Change) -> Done<Option<SubmissionId>> {
    let Some(found) = running(connection, stream)? else {
        return Ok(None);
    };
    run(
        connection,
        "UPDATE submissions SET abort = 1 WHERE submission = ?1",
        [found.submission],
    )?;
    change.effects.push(Effect::AbortWanted(found.id.clone()));
    Ok(Some(found.id))
}

/// Ends one that waits for its turn.
fn abort_queued(connection: &Connection, queued: &Submission, change: &mut Change) -> Done<()> {
    let stream = streams::by_id(connection, queued.stream)?;
    settle::by_store(connection, queued, stream, &Ending::aborted(), change)
}

fn queued(connection: &Connection, stream: i64) -> Done<Vec<Submission>> {
    let sql = "SELECT * FROM submissions WHERE live = 1 AND stream = ?1 AND state = 'queued' ORDER BY place";
    Ok(all(connection, sql, [stream], read)?)
}

/// Stops the named submission of an instance, or else the one whose turn it is.
pub(super) fn stop(
    connection: &Connection,
    stream: i64,
    named: Option<&SubmissionId>,
    change: &mut Change,
) -> Done<Option<SubmissionId>> {
    let fits = |id: &SubmissionId| named.is_none_or(|named| named == id);
    match running(connection, stream)? {
        Some(found) if fits(&found.id) => return abort_running(connection, stream, change),
        _ => {}
    }
    let waiting = queued(connection, stream)?;
    let Some(found) = waiting.iter().find(|waiting| fits(&waiting.id)) else {
        return Ok(None);
    };
    abort_queued(connection, found, change)?;
    Ok(Some(found.id.clone()))
}

/// Ends everything that runs or waits in an instance.
pub(super) fn abort(
    connection: &Connection,
    args: &OfInstance,
    change: &mut Change,
) -> Done<AbortedSubmissions> {
    let mut aborted = AbortedSubmissions {
        submission_ids: Vec::new(),
    };
    let Some(stream) = streams::find(connection, &[streams::AGENT, &args.instance].concat())? else {
        return Ok(aborted);
    };
    aborted
        .submission_ids
        .extend(abort_running(connection, stream.id, change)?);
    for waiting in queued(connection, stream.id)? {
        abort_queued(connection, &waiting, change)?;
        aborted.submission_ids.push(waiting.id);
    }
    Ok(aborted)
}

/// Where a submission stands.
pub(super) fn standing(connection: &Connection, id: &SubmissionId) -> Done<Standing> {
    let sql = "SELECT state, approvals, result, error, context_usage
               FROM submissions LEFT JOIN exchanges USING (submission) WHERE id = ?1";
    let found = first(connection, sql, [id.as_str()], |row| {
        let texts: [Option<String>; 3] = [row.get("result")?, row.get("error")?, row.get("context_usage")?];
        Ok((state(row.get_ref("state")?.as_str()?), approvals(row)?, texts))
    })?;
    let Some((state, approvals, [result, error, context_usage])) = found else {
        return Err(Error::not_found(format!("there is no submission {id}"))
            .at("/submission_id")
            .into());
    };
    Ok(Standing {
        submission_id: id.clone(),
        state,
        result: parsed(result)?,
        error: parsed(error)?,
        context_usage: parsed(context_usage)?,
        approvals,
        stalled: None,
    })
}

fn parsed<T: serde::de::DeserializeOwned>(text: Option<String>) -> Result<Option<T>, Fault> {
    Ok(text.map(|text| serde_json::from_str(&text)).transpose()?)
}

pub(super) fn outcome_state(outcome: Outcome) -> State {
    match outcome {
        Outcome::Completed => State::Completed,
        Outcome::Failed => State::Failed,
        Outcome::Aborted => State::Aborted,
    }
}
