//! Runs of workflows. Each is a submission in a stream of its own (`runs/<id>`) with one turn: the run. The stream is
//! closed by the change that makes the record final, so who sees it closed sees the final record.

use ken_types::event::{Body, Failure, Outcome, RunEvent};
use ken_types::id::{RunId, SubmissionId};
use ken_types::limits::{EVENT_BYTES, RUN_BYTES, RUNS, WAITING_RUNS};
use ken_types::ops::runs::*;
use ken_types::ops::store::*;
use ken_types::{Error, Timestamp};
use rusqlite::{Connection, Row, params};
use serde_json::{Value, json};

use super::fault::Done;
use super::settle::Ending;
use super::streams::{self, Stream};
use super::submissions::{self, Submission, outcome_state, state_name};
use super::{accept, all, first, run, settle, system, time};
use crate::backend::{Change, Effect};
use crate::cursor::List;

/// What stands before a run's id in the name of its stream.
pub(super) const RUN: &str = "runs/";
const BUSY_RETRY_MS: u64 = 1_000;
/// What an event has beside its payload or result, at most.
const ENVELOPE_BYTES: usize = 4 * 1024;

/// A run as it stands in this transaction.
struct Found {
    submission: i64,
    workflow: String,
    payload: String,
    started_at: Timestamp,
}

fn read_found(row: &Row<'_>) -> rusqlite::Result<Found> {
    Ok(Found {
        submission: row.get("submission")?,
        workflow: row.get("workflow")?,
        payload: row.get("text")?,
        started_at: time(row, "started_at")?,
    })
}

const RECORDS: &str = "SELECT s.id, s.submission, r.workflow, r.status, r.started_at, r.ended_at, r.result, r.error, e.text
                       FROM runs AS r JOIN submissions AS s USING (submission) JOIN events AS e USING (event)";

fn find(connection: &Connection, submission: i64) -> Done<Found> {
    let sql = "SELECT s.submission, r.workflow, r.started_at, e.text
               FROM runs AS r JOIN submissions AS s USING (submission) JOIN events AS e USING (event)
               WHERE r.submission = ?1";
    let found = first(connection, sql, [submission], read_found)?;
    found.ok_or_else(|| rusqlite::Error::QueryReturnedNoRows.into())
}

fn unknown(id: &RunId) -> Error {
    Error::not_found(format!("there is no run {id}")).at("/run_id")
}

fn run_id(found: &Submission) -> RunId {
    RunId(found.id.as_str().to_owned())
}

/// Takes a run in: event, stream, submission and record.
pub(super) fn admit(connection: &Connection, args: &AdmitRun, change: &mut Change) -> Done<()> {
    let id = SubmissionId(args.run_id.as_str().to_owned());
    if accept::answered(connection, id.as_str())?.is_some() {
        return Ok(());
    }
    check_size("/payload", &args.payload)?;
    check_room(connection)?;
    let mut stream = streams::of_run(connection, &args.run_id, change.now)?;
    let event = store_start(connection, args, change)?;
    let begin = Body::RunStart {
        workflow_name: args.workflow.clone(),
        started_at: change.now,
        payload: fitting(args.payload.clone()),
    };
    tell(connection, &mut stream, &id, 0, begin, change)?;
    let submission = submissions::insert_run(connection, &id, &stream, event, change)?;
    let sql = "INSERT INTO runs (submission, workflow, status, started_at) VALUES (?1, ?2, 'active', ?3)";
    run(
        connection,
        sql,
        params![submission, args.workflow, change.now.millis()],
    )?;
    system::happened(
        change,
        "run.started",
        json!({"runId": args.run_id, "workflowName": args.workflow}),
    );
    Ok(())
}

fn check_size(at: &str, value: &Value) -> Result<(), Error> {
    let bytes = value.to_string().len();
    if bytes <= RUN_BYTES {
        return Ok(());
    }
    Err(Error::too_large(format!("{bytes} bytes, at most {RUN_BYTES} are kept")).at(at))
}

fn check_room(connection: &Connection) -> Done<()> {
    let sql = "SELECT count(*) FROM submissions WHERE live = 1 AND kind = 'workflow' AND state = 'queued'";
    let waiting: Option<i64> = first(connection, sql, [], |row| row.get(0))?;
    if waiting.unwrap_or_default().cast_unsigned() < WAITING_RUNS {
        return Ok(());
    }
    Err(Error::busy(format!("{WAITING_RUNS} runs wait for their turn"), BUSY_RETRY_MS).into())
}

/// How many more may be held.
pub(super) fn room(connection: &Connection) -> Done<usize> {
    let sql = "SELECT count(*) FROM submissions WHERE live = 1 AND kind = 'workflow' AND state = 'running' AND open = 0";
    let held: Option<i64> = first(connection, sql, [], |row| row.get(0))?;
    let room = RUNS.saturating_sub(held.unwrap_or_default().cast_unsigned());
    Ok(usize::try_from(room).unwrap_or_default())
}

fn store_start(connection: &Connection, args: &AdmitRun, change: &Change) -> Done<i64> {
    let sql = "INSERT INTO events (id, kind, text, received_at, answer) VALUES (?1, 'workflow.start', ?2, ?3, '{}')";
    let payload = args.payload.to_string();
    run(
        connection,
        sql,
        params![args.run_id.as_str(), payload, change.now.millis()],
    )?;
    Ok(connection.last_insert_rowid())
}

/// A value as an event can carry it.
fn fitting(value: Value) -> Value {
    let bytes = value.to_string().len();
    if bytes + ENVELOPE_BYTES <= EVENT_BYTES {
        return value;
    }
    json!({"truncated": true, "bytes": bytes, "note": "too long for an event; the run's record has it"})
}

/// Adds an event of the store's own to a run's stream.
fn tell(
    connection: &Connection,
    stream: &mut Stream,
    id: &SubmissionId,
    index: u64,
    body: Body,
    change: &mut Change,
) -> Done<()> {
    let last = settle::last_timestamp(connection, stream)?;
    let timestamp = last.map_or(change.now, |last| last.max(change.now));
    let event = RunEvent::new(body, index, timestamp, RunId(id.as_str().to_owned()));
    let event = serde_json::value::to_raw_value(&event)?;
    streams::append(connection, stream, &[event], change)
}

/// A holder after the first goes on with a run: says so in its stream. The workflow, and the next event's index.
pub(super) fn hand_out(
    connection: &Connection,
    found: &Submission,
    stream: &mut Stream,
    change: &mut Change,
) -> Done<(String, u64)> {
    let record = find(connection, found.submission)?;
    if found.attempt == 0 {
        return Ok((record.workflow, found.next_index));
    }
    let resume = Body::RunResume {
        workflow_name: record.workflow.clone(),
        started_at: record.started_at,
        payload: fitting(serde_json::from_str(&record.payload)?),
    };
    tell(connection, stream, &found.id, found.next_index, resume, change)?;
    let next = found.next_index + 1;
    let sql = "UPDATE submissions SET next_index = ?2 WHERE submission = ?1";
    run(connection, sql, params![found.submission, next.cast_signed()])?;
    Ok((record.workflow, next))
}

/// Its holder ends a run.
pub(super) fn end(connection: &Connection, args: &EndRun, change: &mut Change) -> Done<RunRecord> {
    let found = settle::held(connection, &args.lease)?;
    if found.kind != SubmissionKind::Workflow {
        return Err(unknown(&run_id(&found)).into());
    }
    if !found.state.is_settled() {
        check_size("/result", &args.result)?;
        let stream = streams::by_id(connection, found.stream)?;
        let ended = match &args.error {
            _ if found.abort => Ended::Failed(Outcome::Aborted, aborted()),
            Some(error) => Ended::Failed(Outcome::Failed, error.clone()),
            None => Ended::Completed(args.result.clone()),
        };
        finish(connection, &found, stream, ended, change)?;
    }
    get(
        connection,
        &ByRun {
            run_id: run_id(&found),
        },
    )
}

/// How a run ends.
enum Ended {
    Completed(Value),
    Failed(Outcome, Failure),
}

fn aborted() -> Failure {
    failure("Aborted", "The run was aborted.")
}

fn failure(name: &str, message: &str) -> Failure {
    Failure {
        name: name.to_owned(),
        message: message.to_owned(),
    }
}

/// Ends a run that nobody holds: one that waits for its turn, or one whose holders were all lost.
pub(super) fn by_store(
    connection: &Connection,
    found: &Submission,
    stream: Stream,
    ending: &Ending<'_>,
    change: &mut Change,
) -> Done<()> {
    let outcome = ending.outcome();
    let error = match (outcome, ending.error.as_ref().map(|error| error.name.as_str())) {
        (Outcome::Aborted, _) => aborted(),
        (_, Some("timeout")) => failure("Timeout", "The run took too long."),
        _ => failure("RetryExhausted", "The run was begun too often without an end."),
    };
    finish(connection, found, stream, Ended::Failed(outcome, error), change)
}

/// The last event, the closing and the record.
fn finish(
    connection: &Connection,
    found: &Submission,
    mut stream: Stream,
    ended: Ended,
    change: &mut Change,
) -> Done<()> {
    let record = find(connection, found.submission)?;
    let (status, outcome, result, error) = match ended {
        Ended::Completed(result) => (RunStatus::Completed, Outcome::Completed, Some(result), None),
        Ended::Failed(outcome, error) => (RunStatus::Errored, outcome, None, Some(error)),
    };
    let last = Body::RunEnd {
        result: fitting(result.clone().unwrap_or_default()),
        is_error: error.is_some(),
        error: error.clone(),
        duration_ms: since(record.started_at, change.now),
    };
    tell(connection, &mut stream, &found.id, found.next_index, last, change)?;
    streams::close(connection, &mut stream)?;
    let sql = "UPDATE runs SET status = ?2, ended_at = ?3, result = ?4, error = ?5 WHERE submission = ?1";
    let values = params![
        record.submission,
        status.name(),
        change.now.millis(),
        result.map(|result| result.to_string()),
        error.as_ref().map(serde_json::to_string).transpose()?,
    ];
    run(connection, sql, values)?;
    let state = outcome_state(outcome);
    let sql = "UPDATE submissions SET state = ?2, live = 0, open = 0, next_index = next_index + 1 WHERE submission = ?1";
    run(connection, sql, params![found.submission, state_name(state)])?;
    // Its place is free for one that waits.
    change.effects.push(Effect::Opened(Work::Runs));
    let told = json!({"runId": found.id, "workflowName": record.workflow, "status": status});
    system::happened(change, "run.ended", told);
    let ending = Ending {
        outcome: Some(outcome),
        error,
        ..Ending::default()
    };
    settle::tell(found, state, &ending, change);
    Ok(())
}

fn since(start: Timestamp, now: Timestamp) -> u64 {
    u64::try_from(now.millis() - start.millis()).unwrap_or_default()
}

/// One that is held is ended by its holder, which is told; any other at once.
pub(super) fn abort(connection: &Connection, args: &ByRun, change: &mut Change) -> Done<AbortedRun> {
    let found = of(connection, &args.run_id)?;
    if found.state.is_settled() {
        return Ok(AbortedRun { aborted: false });
    }
    if found.state == State::Running && !found.open {
        let sql = "UPDATE submissions SET abort = 1 WHERE submission = ?1";
        run(connection, sql, [found.submission])?;
        change.effects.push(Effect::AbortWanted(found.id));
    } else {
        let stream = streams::by_id(connection, found.stream)?;
        by_store(connection, &found, stream, &Ending::aborted(), change)?;
    }
    Ok(AbortedRun { aborted: true })
}

fn of(connection: &Connection, id: &RunId) -> Done<Submission> {
    let sql = "SELECT * FROM submissions WHERE id = ?1 AND kind = 'workflow'";
    let found = first(connection, sql, [id.as_str()], submissions::read)?;
    Ok(found.ok_or_else(|| unknown(id))?)
}

pub(super) fn get(connection: &Connection, args: &ByRun) -> Done<RunRecord> {
    let sql = format!("{RECORDS} WHERE s.id = ?1");
    let row = first(connection, &sql, [args.run_id.as_str()], read_record)?;
    let (_, record, [payload, result, error]) = row.ok_or_else(|| unknown(&args.run_id))?;
    Ok(RunRecord {
        payload: payload.map(|text| serde_json::from_str(&text)).transpose()?,
        result: result.map(|text| serde_json::from_str(&text)).transpose()?,
        error: error.map(|text| serde_json::from_str(&text)).transpose()?,
        ..record
    })
}

/// A run's place, what lists show of it, and the rest as it is stored.
type Row3 = (i64, RunRecord, [Option<String>; 3]);

fn read_record(row: &Row<'_>) -> rusqlite::Result<Row3> {
    let status = RunStatus::named(row.get_ref("status")?.as_str()?).unwrap_or(RunStatus::Errored);
    let started_at = time(row, "started_at")?;
    let ended_at: Option<i64> = row.get("ended_at")?;
    let ended_at = ended_at.map(Timestamp::from_millis);
    let record = RunRecord {
        run_id: RunId(row.get("id")?),
        workflow_name: row.get("workflow")?,
        status,
        started_at,
        payload: None,
        ended_at,
        is_error: ended_at.map(|_| status == RunStatus::Errored),
        duration_ms: ended_at.map(|ended| since(started_at, ended)),
        result: None,
        error: None,
    };
    let rest = [row.get("text")?, row.get("result")?, row.get("error")?];
    Ok((row.get("submission")?, record, rest))
}

pub(super) fn list(connection: &Connection, args: &ListRuns) -> Done<RunPage> {
    let status = args.status.map(RunStatus::name);
    let name = List::named("runs", &[status, args.workflow.as_deref()]);
    let [before] = match &args.cursor {
        Some(cursor) => name.position(cursor, "?cursor")?,
        None => [i64::MAX],
    };
    // Each of the four lists has its index; a filter that is not asked for must not be in its way.
    let by = |asked: bool, term: &'static str| if asked { term } else { "" };
    let (by_status, by_workflow) = (
        by(status.is_some(), "AND r.status = ?2"),
        by(args.workflow.is_some(), "AND r.workflow = ?3"),
    );
    let sql = format!(
        "SELECT s.id, r.submission, r.workflow, r.status, r.started_at, r.ended_at, NULL AS result, NULL AS error, NULL AS text
         FROM runs AS r JOIN submissions AS s USING (submission)
         WHERE r.submission < ?1 AND ?2 IS ?2 AND ?3 IS ?3 {by_status} {by_workflow}
         ORDER BY r.submission DESC LIMIT ?4"
    );
    let values = params![before, status, args.workflow, i64::from(args.limit) + 1];
    let mut found = all(connection, &sql, values, read_record)?;
    let has_more = found.len() > args.limit as usize;
    found.truncate(args.limit as usize);
    let last = found.last().filter(|_| has_more);
    Ok(RunPage {
        next_cursor: last.map(|(place, ..)| name.cursor([*place])),
        runs: found.into_iter().map(|(_, record, _)| record).collect(),
    })
}
