//! What a holder writes: events as they happen, and the end.

use ken_types::event::{Body, Event, Failure, Outcome, Place, TurnResult, VERSION};
use ken_types::ops::store::*;
use ken_types::{Error, Offset, Timestamp};
use rusqlite::{Connection, params};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::sync::Arc;

use super::fault::Done;
use super::streams::{self, Stream};
use super::submissions::{self, Submission, outcome_state, state_name};
use super::{first, memory, run, runs, system, transcript};
use crate::backend::{Change, Effect};
use crate::check;

/// How a submission ends.
#[derive(Debug, Default)]
pub(super) struct Ending<'a> {
    pub(super) outcome: Option<Outcome>,
    pub(super) result: Option<&'a TurnResult>,
    pub(super) error: Option<Failure>,
    pub(super) context_usage: Option<&'a Value>,
    pub(super) summary: Option<&'a str>,
}

impl Ending<'_> {
    pub(super) fn aborted() -> Self {
        Ending::of(Outcome::Aborted, "aborted", "The turn was aborted.")
    }

    pub(super) fn failed(name: &str, message: &str) -> Self {
        Ending::of(Outcome::Failed, name, message)
    }

    fn of(outcome: Outcome, name: &str, message: &str) -> Self {
        Ending {
            outcome: Some(outcome),
            error: Some(Failure {
                name: name.to_owned(),
                message: message.to_owned(),
            }),
            ..Ending::default()
        }
    }

    pub(super) fn outcome(&self) -> Outcome {
        self.outcome.unwrap_or(Outcome::Failed)
    }
}

/// The submission of a lease that is the newest; else `conflict`.
pub(super) fn held(connection: &Connection, lease: &Lease) -> Done<Submission> {
    let found = submissions::find(connection, &lease.submission_id)?;
    if found.lease == lease.number && found.lease > 0 {
        return Ok(found);
    }
    let message = format!(
        "lease {} of submission {} is not the newest",
        lease.number, lease.submission_id
    );
    Err(Error::conflict(message)
        .at("/lease")
        .hint("stop: another holder has it")
        .into())
}

pub(super) fn append(connection: &Connection, args: &AppendEvents, change: &mut Change) -> Done<Appended> {
    let found = held(connection, &args.lease)?;
    if found.state.is_settled() {
        return Err(Error::conflict(format!("submission {} is settled", found.id))
            .at("/lease")
            .into());
    }
    let mut stream = streams::by_id(connection, found.stream)?;
    add(
        connection,
        &found,
        &mut stream,
        args.first_index,
        &args.events,
        change,
    )?;
    let offset = stream.end();
    Ok(Appended { offset })
}

/// Adds those events that are not there yet.
fn add(
    connection: &Connection,
    found: &Submission,
    stream: &mut Stream,
    first_index: u64,
    events: &[Box<RawValue>],
    change: &mut Change,
) -> Done<()> {
    check::events(events)?;
    let Some(known) = found.next_index.checked_sub(first_index) else {
        let message = format!(
            "the next event of submission {} has index {}",
            found.id, found.next_index
        );
        return Err(Error::invalid("/first_index", message).into());
    };
    let fresh = usize::try_from(known)
        .ok()
        .and_then(|known| events.get(known..))
        .unwrap_or_default();
    if fresh.is_empty() {
        return Ok(());
    }
    streams::append(connection, stream, fresh, change)?;
    let next = first_index + events.len() as u64;
    let sql = "UPDATE submissions SET next_index = ?2 WHERE submission = ?1";
    run(connection, sql, params![found.submission, next.cast_signed()])?;
    follow_approvals(connection, found, fresh, change)
}

/// A submission waits while one of its approvals is asked for and not decided.
fn follow_approvals(
    connection: &Connection,
    found: &Submission,
    fresh: &[Box<RawValue>],
    change: &mut Change,
) -> Done<()> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Approval {
        request_id: String,
    }
    let mut open = found.approvals.clone();
    for event in fresh {
        let kind = check::event_kind(event.get());
        if kind.starts_with("approval_requested\"") {
            open.push(serde_json::from_str::<Approval>(event.get())?.request_id);
        } else if kind.starts_with("approval_decided\"") {
            let decided = serde_json::from_str::<Approval>(event.get())?.request_id;
            open.retain(|request| *request != decided);
        }
    }
    if open != found.approvals {
        set_approvals(connection, found, open, change)?;
    }
    Ok(())
}

fn set_approvals(
    connection: &Connection,
    found: &Submission,
    open: Vec<String>,
    change: &mut Change,
) -> Done<()> {
    let sql = "UPDATE submissions SET approvals = ?2, state = ?3,
                 waiting_since = iif(?4, NULL, coalesce(waiting_since, ?5)),
                 waited_ms = waited_ms + iif(?4, coalesce(?5 - waiting_since, 0), 0)
               WHERE submission = ?1";
    let state = if open.is_empty() {
        State::Running
    } else {
        State::Waiting
    };
    if state != found.state {
        submissions::moved(connection, found, state, change)?;
    }
    let (approvals, now) = (serde_json::to_string(&open)?, change.now.millis());
    run(
        connection,
        sql,
        params![
            found.submission,
            approvals,
            state_name(state),
            open.is_empty(),
            now
        ],
    )?;
    change.effects.push(Effect::Stands(Arc::new(Standing {
        submission_id: found.id.clone(),
        state,
        result: None,
        error: None,
        context_usage: None,
        approvals: open,
        stalled: None,
    })));
    Ok(())
}

pub(super) fn settle(
    connection: &Connection,
    args: &SettleSubmission,
    change: &mut Change,
) -> Done<Appended> {
    let found = held(connection, &args.lease)?;
    if found.kind == SubmissionKind::Workflow {
        return Err(Error::invalid("/lease", "a run is ended with runs.end").into());
    }
    if found.state.is_settled() {
        return settled_before(connection, &found);
    }
    let mut stream = streams::by_id(connection, found.stream)?;
    add(
        connection,
        &found,
        &mut stream,
        args.first_index,
        &args.events,
        change,
    )?;
    let ending = Ending {
        outcome: Some(args.outcome),
        result: args.result.as_ref(),
        error: args.error.clone(),
        context_usage: args.context_usage.as_ref(),
        summary: args.summary.as_deref(),
    };
    finish(connection, &found, &stream, &ending, change)?;
    let offset = stream.end();
    Ok(Appended { offset })
}

fn settled_before(connection: &Connection, found: &Submission) -> Done<Appended> {
    let sql = "SELECT ended_at FROM exchanges WHERE submission = ?1";
    let ended: Option<i64> = first(connection, sql, [found.submission], |row| row.get(0))?;
    let offset = Offset::end(ended.unwrap_or_default().cast_unsigned());
    Ok(Appended { offset })
}

/// Ends a submission that has no holder: one that waits for its turn, or one whose holders were all lost.
pub(super) fn by_store(
    connection: &Connection,
    found: &Submission,
    mut stream: Stream,
    ending: &Ending<'_>,
    change: &mut Change,
) -> Done<()> {
    if found.kind == SubmissionKind::Workflow {
        return runs::by_store(connection, found, stream, ending, change);
    }
    let last = last_timestamp(connection, &stream)?;
    let event = Event {
        v: VERSION,
        body: Body::SubmissionSettled {
            outcome: ending.outcome(),
            error: ending
                .error
                .as_ref()
                .filter(|_| ending.outcome() == Outcome::Failed)
                .map(|error| error.message.clone()),
        },
        place: Place {
            event_index: found.next_index,
            timestamp: last.map_or(change.now, |last| last.max(change.now)),
            instance_id: stream.instance().to_owned(),
            submission_id: found.id.clone(),
            dispatch_id: is_dispatched(connection, found)?.then(|| found.id.clone()),
            session: "default".into(),
            harness: "default".into(),
            operation_id: None,
            turn_id: None,
            task_id: None,
            parent_session: None,
        },
    };
    let event = serde_json::value::to_raw_value(&event)?;
    streams::append(connection, &mut stream, &[event], change)?;
    finish(connection, found, &stream, ending, change)
}

/// Whether its events carry a `dispatchId`: those of messenger turns do.
fn is_dispatched(connection: &Connection, found: &Submission) -> Done<bool> {
    let sql = "SELECT connector = 'messenger' FROM events JOIN scopes USING (scope) WHERE event = ?1";
    Ok(first(connection, sql, [found.event], |row| row.get(0))?.unwrap_or(false))
}

/// Of the newest event of a stream.
pub(super) fn last_timestamp(connection: &Connection, stream: &Stream) -> Done<Option<Timestamp>> {
    #[derive(serde::Deserialize)]
    struct Stamped {
        timestamp: Timestamp,
    }
    let last = streams::last(connection, stream)?;
    Ok(last
        .and_then(|event| serde_json::from_str(&event).ok())
        .map(|Stamped { timestamp }| timestamp))
}

/// The end of a submission whose events are all there: state, exchange, history, memory, and who is next.
fn finish(
    connection: &Connection,
    found: &Submission,
    stream: &Stream,
    ending: &Ending<'_>,
    change: &mut Change,
) -> Done<()> {
    let state = outcome_state(ending.outcome());
    let sql = "UPDATE submissions SET state = ?2, live = 0, open = 0, waiting_since = NULL, approvals = NULL WHERE submission = ?1";
    run(connection, sql, params![found.submission, state_name(state)])?;
    let text = ending.result.map(|result| result.text.as_str());
    let (body, answer) = match found.kind {
        SubmissionKind::Prompt => {
            let exchange = transcript::settled(connection, found, stream, state)?;
            (
                Some(exchange.body),
                text.map(str::to_owned).or(exchange.answer).unwrap_or_default(),
            )
        }
        SubmissionKind::Compact | SubmissionKind::Workflow => (None, text.unwrap_or_default().to_owned()),
    };
    let turn = count_turn(connection, found, ending)?;
    let sql = "INSERT INTO exchanges
                 (submission, stream, turn, body, answer, result, error, context_usage, ended_at, settled_at)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    let values = params![
        found.submission,
        found.stream,
        turn,
        body,
        answer,
        ending.result.map(serde_json::to_string).transpose()?,
        ending.error.as_ref().map(serde_json::to_string).transpose()?,
        ending.context_usage.map(serde_json::to_string).transpose()?,
        stream.entries.cast_signed(),
        change.now.millis(),
    ];
    run(connection, sql, values)?;
    if found.kind == SubmissionKind::Prompt && !found.hidden && !answer.is_empty() {
        memory::remember(connection, found, &answer)?;
    }
    submissions::open_next(connection, found.stream, change)?;
    let fields =
        json!({"sessionId": stream.instance(), "submissionId": found.id, "outcome": ending.outcome()});
    system::happened(change, "submission.settled", fields);
    tell(found, state, ending, change);
    Ok(())
}

/// Counts the submission in its instance's history; its number among the prompts.
fn count_turn(connection: &Connection, found: &Submission, ending: &Ending<'_>) -> Done<Option<i64>> {
    let sql = match (found.kind, ending.outcome()) {
        (SubmissionKind::Prompt, _) => {
            "INSERT INTO instances (stream, turns) VALUES (?1, 1)
             ON CONFLICT DO UPDATE SET turns = turns + 1 RETURNING turns"
        }
        (SubmissionKind::Compact, Outcome::Completed) => {
            "INSERT INTO instances (stream, compactions) VALUES (?1, 1)
             ON CONFLICT DO UPDATE SET compactions = compactions + 1 RETURNING NULL"
        }
        (SubmissionKind::Compact | SubmissionKind::Workflow, _) => return Ok(None),
    };
    let turn = first(connection, sql, [found.stream], |row| row.get(0))?.flatten();
    if let Some(summary) = ending.summary {
        let sql = "UPDATE instances SET summary = ?2, summary_after = turns WHERE stream = ?1";
        run(connection, sql, params![found.stream, summary])?;
    }
    Ok(turn)
}

/// Who held it and who waits for it.
pub(super) fn tell(found: &Submission, state: State, ending: &Ending<'_>, change: &mut Change) {
    if found.lease > 0 {
        change.effects.push(Effect::LeaseOver(Lease {
            submission_id: found.id.clone(),
            number: found.lease,
        }));
    }
    change.effects.push(Effect::Stands(Arc::new(Standing {
        submission_id: found.id.clone(),
        state,
        result: ending.result.cloned(),
        error: ending.error.clone(),
        context_usage: ending.context_usage.cloned(),
        approvals: Vec::new(),
        stalled: None,
    })));
}
