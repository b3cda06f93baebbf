//! Prompts and compactions: the events that their holders add, and how they end.

use std::sync::Arc;

use ken_types::event::{Body, Event, Outcome, Place, VERSION, is_dispatched};
use ken_types::fence::Outside;
use ken_types::id::SubmissionId;
use ken_types::ops::store::*;
use ken_types::{Error, Offset, Timestamp};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::engine::change::{Change, Effect};
use crate::ops::{approvals, blobs, doors, exchanges, logs, memory, outbox, telemetry};
use crate::rules::exchange::ExchangeError;
use crate::rules::queue::{Ending, with_approvals};
use crate::rules::stream_names::is_scheduled;
use crate::rules::telemetry::Fold;
use crate::rules::{check, digest, record};
use crate::tables::{LogRow, NewExchange, SubmissionRow, Tables};

/// The fields of an event `submission.*` of the system's stream.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SubmissionFields<'a> {
    session_id: &'a str,
    submission_id: &'a SubmissionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<Outcome>,
}

impl<'a> SubmissionFields<'a> {
    pub(super) fn of(session: &'a str, submission: &'a SubmissionId) -> SubmissionFields<'a> {
        SubmissionFields { session_id: session, submission_id: submission, outcome: None }
    }
}

/// Returns the submission of a lease. Fails with `conflict` if the lease is not the newest of its submission.
pub(super) fn submission_of_lease(tables: &dyn Tables, lease: &Lease) -> Result<SubmissionRow, Error> {
    let found = tables.submission(lease.submission_id.as_str())?;
    let found = found.ok_or_else(|| unknown(&lease.submission_id))?;
    if found.lease == lease.number && found.lease > 0 {
        return Ok(found);
    }
    let message = format!("lease {} of submission {} is not the newest", lease.number, lease.submission_id);
    let error = Error::conflict(message).at("/lease");
    Err(error.hint("stop: another holder has it"))
}

pub(super) fn unknown(id: &SubmissionId) -> Error {
    Error::not_found(format!("there is no submission {id}")).at("/submission_id")
}

/// Adds events of a submission that its holder runs. Returns the end of the stream.
pub(super) fn append(tables: &dyn Tables, args: &AppendEvents, change: &mut Change) -> Result<Offset, Error> {
    let found = submission_of_lease(tables, &args.lease)?;
    if found.state.is_settled() {
        return Err(Error::conflict(format!("submission {} is settled", found.id)).at("/lease"));
    }
    let mut log = tables.log_by_key(found.stream)?;
    add_events(tables, &found, &mut log, args.first_index, &args.events, change)?;
    Ok(log.end())
}

/// Adds those of the events that are not stored yet. Stores the next event index of the submission, but does not change it in `found`.
pub(super) fn add_events(
    tables: &dyn Tables,
    found: &SubmissionRow,
    log: &mut LogRow,
    first_index: u64,
    events: &[Box<RawValue>],
    change: &mut Change,
) -> Result<(), Error> {
    // A holder that did not get the answer to an append sends the same events again; those that are stored are left out.
    let Some(known) = found.next_index.checked_sub(first_index) else {
        let message = format!("the next event of submission {} has index {}", found.id, found.next_index);
        return Err(Error::invalid("/first_index", message));
    };
    let fresh = usize::try_from(known).ok().and_then(|known| events.get(known..));
    let fresh = fresh.unwrap_or_default();
    if fresh.is_empty() {
        return Ok(());
    }
    logs::append(tables, log, fresh, change)?;
    tables.set_next_index(found.key, first_index + events.len() as u64)?;
    blobs::refer_to_outputs(tables, found.key, fresh)?;
    follow_outside(tables, found, fresh)?;
    follow_approvals(tables, found, log, fresh, change)
}

/// Returns the mark of the lines around outside text in the prompts of a submission. Nobody who does not know the key can guess it: it is
/// half of the digest, from which the digest of a longer text cannot be computed.
pub(super) fn mark(tables: &dyn Tables, id: &SubmissionId) -> Result<String, Error> {
    let key = tables.stored_value("fence.key")?;
    Ok(digest::of(&[key.as_deref(), Some(id.as_str())], 16))
}

/// Returns the origins of outside text that a turn has read so far. A turn that is no longer stored has read none.
pub(super) fn outside_of(tables: &dyn Tables, turn: Option<&SubmissionId>) -> Result<Outside, Error> {
    let found = turn.map(|turn| tables.submission(turn.as_str())).transpose()?.flatten();
    Ok(found.map(|found| found.outside).unwrap_or_default())
}

/// Adds the origins that the model is shown from now on. Each event with them is stored before the model is called, and so before
/// anything is written that the model has made of them.
fn follow_outside(tables: &dyn Tables, found: &SubmissionRow, fresh: &[Box<RawValue>]) -> Result<(), Error> {
    #[derive(serde::Deserialize)]
    struct Shown {
        #[serde(default)]
        outside: Outside,
    }
    let mut outside = found.outside.clone();
    for event in fresh.iter().filter(|event| check::event_type(event.get()) == "turn_start") {
        outside.extend(record::read::<Shown>(event.get())?.outside);
    }
    if outside != found.outside {
        tables.set_outside(found.key, &outside)?;
    }
    Ok(())
}

/// Updates the list of approvals that a submission waits for.
fn follow_approvals(
    tables: &dyn Tables,
    found: &SubmissionRow,
    log: &LogRow,
    fresh: &[Box<RawValue>],
    change: &mut Change,
) -> Result<(), Error> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Approval {
        request_id: String,
    }
    let mut open = found.approvals.clone();
    for event in fresh {
        let kind = check::event_type(event.get());
        if kind == "approval_requested" {
            open.push(record::read::<Approval>(event.get())?.request_id);
        } else if kind == "approval_decided" {
            let decided = record::read::<Approval>(event.get())?.request_id;
            open.retain(|request| *request != decided);
        }
    }
    if open == found.approvals {
        return Ok(());
    }
    let next = with_approvals(found, open, change.now);
    tables.set_waiting(&next)?;
    if next.state != found.state {
        publish_status(log, &next, change);
    }
    change.push(Effect::Status(Arc::new(SubmissionStatus {
        submission_id: next.id,
        state: next.state,
        result: None,
        error: None,
        context_usage: None,
        approvals: next.approvals,
        stalled: None,
    })));
    Ok(())
}

/// Reports to consoles that a submission runs or waits for a decision.
pub(super) fn publish_status(log: &LogRow, found: &SubmissionRow, change: &mut Change) {
    let kind = match found.state {
        State::Waiting => "submission.waiting",
        _ => "submission.running",
    };
    change.publish(kind, SubmissionFields::of(log.instance(), &found.id));
    update_schedule_runs(log, change);
}

/// Has the run of a schedule updated whose submission has begun or ended.
fn update_schedule_runs(log: &LogRow, change: &mut Change) {
    if is_scheduled(log.instance()) {
        change.push(Effect::ScheduleRuns);
    }
}

/// Returns the end of the stream at the time when a settled submission ended.
pub(super) fn end_of(tables: &dyn Tables, found: &SubmissionRow) -> Result<Offset, Error> {
    let end = tables.exchange_end(found.key)?;
    Ok(Offset::end(end.unwrap_or_default()))
}

/// Ends a submission that has no holder, because it was still queued or because all its holders were lost.
pub(super) fn close(
    tables: &dyn Tables,
    found: &SubmissionRow,
    log: LogRow,
    verdict: EndReason,
    change: &mut Change,
) -> Result<(), Error> {
    end(tables, found, log, &Ending::by(verdict), change)
}

/// Ends a submission that has no holder in this way.
pub(super) fn end(
    tables: &dyn Tables,
    found: &SubmissionRow,
    mut log: LogRow,
    ending: &Ending<'_>,
    change: &mut Change,
) -> Result<(), Error> {
    let scope = tables.event(found.event)?.and_then(|event| event.scope);
    let connector = scope.as_ref().map(|scope| scope.connector.as_str());
    let error = ending.error.as_ref().filter(|_| ending.outcome == Outcome::Failed);
    let settled = Body::SubmissionSettled { outcome: ending.outcome, error: error.map(|error| error.message.clone()) };
    let timestamp = logs::next_timestamp(tables, &log, change.now)?;
    // Clients that show whether a prompt is still at work go by `idle`, so a prompt that was only queued has one, too.
    let events = (found.next_index..).zip([Body::Idle, settled]).map(|(index, body)| {
        let place = place(&log, &found.id, connector, index, timestamp);
        to_raw_value(&Event { v: VERSION, body, place }).map_err(record::defect)
    });
    let events: Vec<_> = events.collect::<Result<_, _>>()?;
    logs::append(tables, &mut log, &events, change)?;
    finish(tables, found, &log, ending, change)
}

/// Returns the place of an event that the store itself adds to the stream of an instance.
pub(super) fn place(
    log: &LogRow,
    id: &SubmissionId,
    connector: Option<&str>,
    event_index: u64,
    timestamp: Timestamp,
) -> Place {
    Place {
        event_index,
        timestamp,
        instance_id: log.instance().to_owned(),
        submission_id: id.clone(),
        dispatch_id: is_dispatched(connector, log.instance()).then(|| id.clone()),
        session: "default".to_owned(),
        harness: "default".to_owned(),
        operation_id: None,
        turn_id: None,
        task_id: None,
        parent_session: None,
    }
}

/// Ends a submission after its last event has been added. Sets its state, stores its exchange, updates history and memory, and makes the
/// next submission available.
pub(super) fn finish(
    tables: &dyn Tables,
    found: &SubmissionRow,
    log: &LogRow,
    ending: &Ending<'_>,
    change: &mut Change,
) -> Result<(), Error> {
    let state = ending.state();
    // All of this is one transaction: a crash leaves the turn either running or ended, with its answer on the way.
    tables.settle_submission(found.key, state)?;
    approvals::cancel_of(tables, found.key, change)?;
    let text = ending.result.map(|result| result.text.clone());
    let prompt = if found.kind == SubmissionKind::Prompt { tables.event(found.event)? } else { None };
    let (body, answer) = match found.kind {
        SubmissionKind::Prompt => {
            let (mut summary, mut sent) = (Fold::default(), doors::Sent::of(prompt.as_ref(), found));
            let mut exchange = exchanges::fold(tables, found, log, prompt.clone(), &mut |event| {
                summary.add_event(event);
                sent.iter_mut().for_each(|sent| sent.add_event(event));
            })?;
            if let Some(sent) = sent {
                sent.keep_tips(tables, found, ending)?;
            }
            telemetry::keep(tables, found, &summary, change)?;
            exchange.status = state;
            exchange.close();
            exchange.error = ending.error.as_ref().filter(|_| state == State::Failed).map(ExchangeError::from);
            let body = record::write(&exchange)?;
            let answer = exchange.assistant.map(|assistant| assistant.text);
            (Some(body), text.or(answer).unwrap_or_default())
        }
        _ => {
            telemetry::keep_folded(tables, found, log, change)?;
            (None, text.unwrap_or_default())
        }
    };
    let turn = count(tables, found, ending)?;
    tables.insert_exchange(&NewExchange {
        submission: found.key,
        stream: found.stream,
        turn,
        body: body.as_deref(),
        answer: &answer,
        result: ending.result,
        error: ending.error.as_ref(),
        context_usage: ending.context_usage,
        ended_at: log.entries,
        settled_at: change.now,
    })?;
    if let Some(prompt) = prompt.filter(|_| !found.hidden && !answer.is_empty()) {
        memory::index(tables, found.key, log, &prompt, &answer)?;
    }
    outbox::answer(tables, found, ending, &answer, change)?;
    open_next(tables, found.stream, change)?;
    let fields = SubmissionFields::of(log.instance(), &found.id);
    change.publish("submission.settled", SubmissionFields { outcome: Some(ending.outcome), ..fields });
    update_schedule_runs(log, change);
    report_end(found, ending, change);
    Ok(())
}

/// Counts a submission in the history of its instance. If it is a prompt, returns its number among the prompts.
fn count(tables: &dyn Tables, found: &SubmissionRow, ending: &Ending<'_>) -> Result<Option<i64>, Error> {
    let turn = match (found.kind, ending.outcome) {
        (SubmissionKind::Prompt, _) => Some(tables.count_turn(found.stream)?),
        (SubmissionKind::Compact, Outcome::Completed) => {
            tables.count_compaction(found.stream)?;
            None
        }
        _ => return Ok(None),
    };
    if let Some(summary) = ending.summary {
        tables.set_summary(found.stream, summary)?;
    }
    Ok(turn)
}

/// Makes the next submission of an instance available for claims, unless one is running.
fn open_next(tables: &dyn Tables, stream: i64, change: &mut Change) -> Result<(), Error> {
    if tables.running(stream)?.is_some() {
        return Ok(());
    }
    if let Some(next) = tables.next_queued(stream)? {
        tables.set_open(next, true)?;
        change.push(Effect::Claimable(Work::Turns));
    }
    Ok(())
}

/// Reports the end of a submission to its holder and to the calls that wait for it.
pub(super) fn report_end(found: &SubmissionRow, ending: &Ending<'_>, change: &mut Change) {
    if found.lease > 0 {
        change.push(Effect::LeaseEnded(Lease { submission_id: found.id.clone(), number: found.lease }));
    }
    change.push(Effect::Status(Arc::new(SubmissionStatus {
        submission_id: found.id.clone(),
        state: ending.state(),
        result: ending.result.cloned(),
        error: ending.error.clone(),
        context_usage: ending.context_usage.cloned(),
        approvals: Vec::new(),
        stalled: None,
    })));
}
