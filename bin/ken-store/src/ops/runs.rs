//! Runs of workflows. Each run is a submission in a stream of its own (`runs/<id>`). The change that makes the record of a run final also
//! closes its stream, so a reader that sees the closed stream also sees the final record.

use ken_types::Error;
use ken_types::event::{Body, Failure, Outcome, RunEvent};
use ken_types::fence::Outside;
use ken_types::id::{RunId, SubmissionId};
use ken_types::limits::{EVENT_BYTES, PAGE_RUNS, RUN_BYTES, RUNS, WAITING_RUNS};
use ken_types::ops::Nothing;
use ken_types::ops::runs::*;
use ken_types::ops::store::*;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use crate::engine::change::{Change, Effect};
use crate::ops::{Read, Write, blobs, logs, telemetry, turns};
use crate::rules::cursor::List;
use crate::rules::queue::{Ending, elapsed};
use crate::rules::{check, record};
use crate::tables::{LogRow, NewEvent, NewSubmission, RunList, SubmissionRow, Tables};

const BUSY_RETRY_MS: u64 = 1_000;
/// The maximum size of an event without its payload or result, in bytes.
const ENVELOPE_BYTES: usize = 4 * 1024;

fn unknown(id: &RunId) -> Error {
    Error::not_found(format!("there is no run {id}")).at("/run_id")
}

fn run_id(found: &SubmissionRow) -> RunId {
    RunId(found.id.as_str().to_owned())
}

/// Accepts a run: stores its event, stream, submission and record.
impl Write for RunsAdmit {
    fn check(args: &AdmitRun) -> Result<(), Error> {
        check_size("/payload", &args.payload)
    }

    fn run(tables: &dyn Tables, args: &AdmitRun, change: &mut Change) -> Result<Nothing, Error> {
        let id = SubmissionId(args.run_id.as_str().to_owned());
        if tables.event_answer(id.as_str())?.is_some() {
            return Ok(Nothing {});
        }
        if tables.waiting_runs()? >= WAITING_RUNS {
            let message = format!("{WAITING_RUNS} runs wait for their turn");
            return Err(Error::busy(message, BUSY_RETRY_MS));
        }
        let mut log = logs::of_run(tables, &args.run_id, change.now)?;
        let payload = args.payload.to_string();
        let event = NewEvent::internal(args.run_id.as_str(), None, "workflow.start", &payload, change.now);
        tables.insert_event(&event)?;
        let start = Body::RunStart {
            workflow_name: args.workflow.clone(),
            started_at: change.now,
            payload: fit_into_event(args.payload.clone()),
        };
        add_event(tables, &mut log, &id, 0, start, change)?;
        tables.insert_submission(&NewSubmission {
            id: &id,
            stream: log.key,
            event: args.run_id.as_str(),
            kind: SubmissionKind::Workflow,
            hidden: false,
            open: true,
            place: 1,
            recorded_from: log.entries,
            next_index: log.entries,
            outside: &Outside::new(),
        })?;
        tables.insert_run(tables.submission_key(&id)?, &args.workflow, change.now)?;
        change.push(Effect::Claimable(Work::Runs));
        change.publish("run.started", json!({"runId": args.run_id, "workflowName": args.workflow}));
        Ok(Nothing {})
    }
}

fn check_size(at: &str, value: &Value) -> Result<(), Error> {
    let bytes = value.to_string().len();
    if bytes <= RUN_BYTES {
        return Ok(());
    }
    Err(Error::too_large(format!("{bytes} bytes, at most {RUN_BYTES} are kept")).at(at))
}

/// Returns how many more runs can be held at the same time.
pub(super) fn permits(tables: &dyn Tables) -> Result<usize, Error> {
    let free = RUNS.saturating_sub(tables.held_runs()?);
    Ok(usize::try_from(free).unwrap_or_default())
}

/// Returns the value if it fits into an event; otherwise a note that it was too long.
fn fit_into_event(value: Value) -> Value {
    let bytes = value.to_string().len();
    if bytes + ENVELOPE_BYTES <= EVENT_BYTES {
        return value;
    }
    json!({"truncated": true, "bytes": bytes, "note": "too long for an event; the run's record has it"})
}

/// Adds an event of the store itself, in contrast to one of the holder, to the stream of a run.
fn add_event(
    tables: &dyn Tables,
    log: &mut LogRow,
    id: &SubmissionId,
    index: u64,
    body: Body,
    change: &mut Change,
) -> Result<(), Error> {
    let timestamp = logs::next_timestamp(tables, log, change.now)?;
    let event = RunEvent::new(body, index, timestamp, RunId(id.as_str().to_owned()));
    let event = to_raw_value(&event).map_err(record::defect)?;
    logs::append(tables, log, &[event], change)
}

/// Returns the workflow and the index of the next event for a new holder. If the run had a holder before, an event is added that says that
/// the run continues.
pub(super) fn hand_out(
    tables: &dyn Tables,
    found: &SubmissionRow,
    log: &mut LogRow,
    change: &mut Change,
) -> Result<(Option<String>, u64), Error> {
    let run = tables.run(found.key)?;
    if found.attempt == 0 {
        return Ok((Some(run.workflow), found.next_index));
    }
    let resume = Body::RunResume {
        workflow_name: run.workflow.clone(),
        started_at: run.started_at,
        payload: fit_into_event(record::read(&run.payload)?),
    };
    add_event(tables, log, &found.id, found.next_index, resume, change)?;
    let next = found.next_index + 1;
    tables.set_next_index(found.key, next)?;
    Ok((Some(run.workflow), next))
}

/// Ends a run on behalf of its holder.
impl Write for RunsEnd {
    fn run(tables: &dyn Tables, args: &EndRun, change: &mut Change) -> Result<RunRecord, Error> {
        let found = turns::submission_of_lease(tables, &args.lease)?;
        if found.kind != SubmissionKind::Workflow {
            return Err(unknown(&run_id(&found)));
        }
        if !found.state.is_settled() {
            check_size("/result", &args.result)?;
            blobs::refer(tables, &args.blobs, found.id.as_str())?;
            let log = tables.log_by_key(found.stream)?;
            let ended = match &args.error {
                _ if found.abort => Ended::Failed(Outcome::Aborted, EndReason::Abort.of_run()),
                Some(error) => Ended::Failed(Outcome::Failed, error.clone()),
                None => Ended::Completed(args.result.clone()),
            };
            finish(tables, &found, log, ended, change)?;
        }
        let id = run_id(&found);
        tables.run_record(&id)?.ok_or_else(|| unknown(&id))
    }
}

enum Ended {
    Completed(Value),
    Failed(Outcome, Failure),
}

/// Ends a run that has no holder, because it was still queued or because all its holders were lost.
pub(super) fn close(
    tables: &dyn Tables,
    found: &SubmissionRow,
    log: LogRow,
    verdict: EndReason,
    change: &mut Change,
) -> Result<(), Error> {
    let ended = Ended::Failed(verdict.outcome(), verdict.of_run());
    finish(tables, found, log, ended, change)
}

/// Adds the last event, closes the stream and stores the final record.
fn finish(
    tables: &dyn Tables,
    found: &SubmissionRow,
    mut log: LogRow,
    ended: Ended,
    change: &mut Change,
) -> Result<(), Error> {
    let run = tables.run(found.key)?;
    let (status, outcome, result, error) = match ended {
        Ended::Completed(result) => (RunStatus::Completed, Outcome::Completed, Some(result), None),
        Ended::Failed(outcome, error) => (RunStatus::Errored, outcome, None, Some(error)),
    };
    let last = Body::RunEnd {
        result: fit_into_event(result.clone().unwrap_or_default()),
        is_error: error.is_some(),
        error: error.clone(),
        duration_ms: elapsed(run.started_at, change.now),
    };
    add_event(tables, &mut log, &found.id, found.next_index, last, change)?;
    telemetry::keep_folded(tables, found, &log, change)?;
    tables.close_log(log.key)?;
    tables.end_run(found.key, status, change.now, result.as_ref(), error.as_ref())?;
    let ending = Ending { error, ..Ending::of(outcome) };
    tables.set_next_index(found.key, found.next_index + 1)?;
    tables.settle_submission(found.key, ending.state())?;
    // A queued run can now be claimed.
    change.push(Effect::Claimable(Work::Runs));
    let fields = json!({"runId": found.id, "workflowName": run.workflow, "status": status});
    change.publish("run.ended", fields);
    turns::report_end(found, &ending, change);
    Ok(())
}

/// Aborts a run. If it has a holder, the holder is asked to end it; otherwise it ends at once.
impl Write for RunsAbort {
    fn run(tables: &dyn Tables, args: &ByRun, change: &mut Change) -> Result<AbortedRun, Error> {
        let found = tables.submission(args.run_id.as_str())?;
        let found = found.filter(|found| found.kind == SubmissionKind::Workflow);
        let found = found.ok_or_else(|| unknown(&args.run_id))?;
        if found.state.is_settled() {
            return Ok(AbortedRun { aborted: false });
        }
        if found.state == State::Running && !found.open {
            tables.set_abort(found.key)?;
            change.push(Effect::AbortRequested(found.id));
        } else {
            let log = tables.log_by_key(found.stream)?;
            close(tables, &found, log, EndReason::Abort, change)?;
        }
        Ok(AbortedRun { aborted: true })
    }
}

impl Read for RunsGet {
    fn run(tables: &dyn Tables, args: &ByRun) -> Result<RunRecord, Error> {
        tables.run_record(&args.run_id)?.ok_or_else(|| unknown(&args.run_id))
    }
}

impl Read for RunsList {
    fn check(args: &ListRuns) -> Result<(), Error> {
        check::limit(args.limit, PAGE_RUNS)
    }

    fn run(tables: &dyn Tables, args: &ListRuns) -> Result<RunPage, Error> {
        let status = args.status.map(RunStatus::name);
        let name = List::named("runs", &[status, args.workflow.as_deref()]);
        let list = RunList {
            status: args.status,
            workflow: args.workflow.as_deref(),
            before: name.newest_or(args.cursor.as_ref(), "?cursor")?,
            limit: args.limit + 1,
        };
        let mut found = tables.list_runs(&list)?;
        let page = name.page(&mut found, args.limit, |(key, _)| [*key]);
        Ok(RunPage { next_cursor: page.after, runs: found.into_iter().map(|(_, record)| record).collect() })
    }
}
