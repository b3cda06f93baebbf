//! Summaries of submissions and runs, usage, and what happened to a message. A summary is stored when its submission ends. Before that, it
//! is computed from the events.

use std::collections::BTreeMap;

use ken_types::event::Failure;
use ken_types::id::RunId;
use ken_types::ops::Nothing;
use ken_types::ops::messenger::UpdateRecord;
use ken_types::ops::schedules::{Delivery, Reason, RunState, target_agent};
use ken_types::ops::store::{Accepted, State, SubmissionKind};
use ken_types::ops::telemetry::*;
use ken_types::{Error, Offset, Timestamp};

use crate::engine::change::Change;
use crate::ops::{Read, Write};
use crate::rules::cursor::List;
use crate::rules::telemetry::{Fold, MAX_TROUBLES, Troubles};
use crate::rules::{check, record, stream_names};
use crate::tables::{LogRow, ScheduleRunRow, SubmissionRow, SummaryRow, Tables, UsageRow};

/// How long summaries are stored, in milliseconds, and the maximum number of them.
const RETENTION_MS: i64 = 30 * 24 * 3_600 * 1_000;
const MAX_SUMMARIES: usize = 10_000;
/// The maximum number of summaries that one slice of background work deletes.
const SLICE: usize = 256;
/// The number of rows that are read at a time.
const CHUNK: u32 = 256;
const MAX_PAGE: u32 = 100;
const MAX_FAILED: u32 = 50;

/// Stores the summary of a submission that is ending.
pub(super) fn keep(tables: &dyn Tables, found: &SubmissionRow, fold: &Fold, change: &Change) -> Result<(), Error> {
    let is_of_session = found.kind != SubmissionKind::Workflow;
    let duration = fold.started_at.map(|start| change.now.millis() - start.millis());
    let usage = UsageRow {
        model: fold.model.as_deref().unwrap_or("-"),
        stream: is_of_session.then_some(found.stream),
        duration: duration.filter(|_| is_of_session),
        tokens: &fold.usage,
        cost: fold.cost,
    };
    tables.insert_summary(found.key, &record::write(fold)?, &usage, change.now)
}

/// Stores a summary as [`keep`] does, but computes it from the events first.
pub(super) fn keep_folded(
    tables: &dyn Tables,
    found: &SubmissionRow,
    log: &LogRow,
    change: &Change,
) -> Result<(), Error> {
    keep(tables, found, &fold(tables, found, log.key, log.entries)?, change)
}

fn fold(tables: &dyn Tables, found: &SubmissionRow, log: i64, end: u64) -> Result<Fold, Error> {
    let mut fold = Fold::default();
    // The stream of a run contains only the run, and its first event is written before it is claimed.
    let from = match found.kind {
        SubmissionKind::Workflow => Some(0),
        // A submission that was never claimed has only one event, its end.
        _ => (found.lease > 0).then_some(found.recorded_from),
    };
    if let Some(from) = from {
        tables.entries(log, from, end, &mut |event| {
            fold.add_event(event);
            true
        })?;
    }
    Ok(fold)
}

/// Deletes old summaries. Returns true if there may be more.
pub(super) fn prune(tables: &dyn Tables, now: Timestamp) -> Result<bool, Error> {
    Ok(tables.prune_summaries(now.plus_millis(-RETENTION_MS), MAX_SUMMARIES, SLICE)? == SLICE)
}

fn folded(tables: &dyn Tables, row: &SummaryRow) -> Result<Fold, Error> {
    match &row.body {
        Some(body) => record::read(body),
        None => {
            let ended = tables.exchange_end(row.submission.key)?;
            fold(tables, &row.submission, row.submission.stream, ended.unwrap_or(row.entries))
        }
    }
}

fn kind(row: &SummaryRow) -> WorkKind {
    match row.submission.kind {
        SubmissionKind::Workflow => WorkKind::Workflow,
        SubmissionKind::Compact => WorkKind::Command,
        SubmissionKind::Prompt if stream_names::is_scheduled(stream_names::instance(&row.stream)) => WorkKind::Schedule,
        SubmissionKind::Prompt => WorkKind::Prompt,
    }
}

fn connector(row: &SummaryRow) -> &str {
    match (&row.connector, kind(row)) {
        (Some(connector), _) => connector,
        (None, WorkKind::Schedule) => "schedule",
        (None, _) => "api",
    }
}

fn summary(tables: &dyn Tables, row: &SummaryRow) -> Result<Summary, Error> {
    let fold = folded(tables, row)?;
    let found = &row.submission;
    let kind = kind(row);
    let is_workflow = kind == WorkKind::Workflow;
    let of = |wanted: &str| fold.events.iter().filter(|event| event.r#type == wanted).cloned().collect();
    let duration = |end: Timestamp| {
        let start = fold.started_at?;
        u64::try_from(end.millis() - start.millis()).ok()
    };
    Ok(Summary {
        run_id: found.id.as_str().to_owned(),
        kind,
        connector: connector(row).to_owned(),
        session_id: (!is_workflow).then(|| stream_names::instance(&row.stream).to_owned()),
        submission_id: (!is_workflow).then(|| found.id.clone()),
        status: match found.state {
            State::Queued => WorkStatus::Queued,
            State::Running | State::Waiting => WorkStatus::Running,
            State::Completed => WorkStatus::Completed,
            State::Failed => WorkStatus::Failed,
            State::Aborted => WorkStatus::Aborted,
        },
        started_at: fold.started_at,
        ended_at: row.settled_at,
        duration_ms: row.settled_at.and_then(duration),
        event_count: fold.event_count(),
        delegated_to_researcher: fold.delegated,
        called_web_research: fold.researched,
        counts: fold.counts,
        usage: fold.usage,
        cost: fold.cost,
        model: fold.model.clone(),
        task_starts: of("task_start"),
        tool_calls: of("tool"),
        operations: of("operation"),
        errors: fold.events.iter().filter(|event| event.is_error == Some(true)).cloned().collect(),
        events_truncated: fold.truncated,
        events: fold.events,
    })
}

impl Read for TelemetryList {
    fn check(args: &ListSummaries) -> Result<(), Error> {
        check::limit(args.limit, MAX_PAGE)
    }

    fn run(tables: &dyn Tables, args: &ListSummaries) -> Result<SummaryPage, Error> {
        let list = List::named("telemetry", &[args.connector.as_deref(), args.kind.map(WorkKind::name)]);
        let mut before = list.newest_or(args.after.as_ref(), "?after")?;
        let fits = |row: &SummaryRow| {
            args.kind.is_none_or(|wanted| wanted == kind(row))
                && args.connector.as_ref().is_none_or(|wanted| wanted == connector(row))
        };
        let mut found = Vec::new();
        loop {
            let rows = tables.summaries(before, CHUNK)?;
            let is_end = rows.len() < CHUNK as usize;
            before = rows.last().map_or(before, |row| row.submission.key);
            found.extend(rows.into_iter().filter(fits));
            if is_end || found.len() > args.limit as usize {
                break;
            }
        }
        let page = list.page(&mut found, args.limit, |row| [row.submission.key]);
        let runs = found.iter().map(|row| summary(tables, row));
        Ok(SummaryPage { runs: runs.collect::<Result<_, _>>()?, unscoped_event_count: 0, page })
    }
}

impl Read for TelemetryGet {
    fn run(tables: &dyn Tables, args: &ByWork) -> Result<Summary, Error> {
        let row = tables.summary(&args.id)?;
        let row =
            row.ok_or_else(|| Error::not_found(format!("there is no submission and no run {}", args.id)).at("/id"))?;
        summary(tables, &row)
    }
}

impl Read for TelemetryFailed {
    fn run(tables: &dyn Tables, args: &FailedSince) -> Result<FailedWorks, Error> {
        let rows = tables.failed_after(args.since, MAX_FAILED)?;
        let failed = rows.iter().filter_map(|row| failed_work(tables, row).transpose());
        Ok(FailedWorks { failed: failed.collect::<Result<_, _>>()? })
    }
}

fn failed_work(tables: &dyn Tables, row: &SummaryRow) -> Result<Option<FailedWork>, Error> {
    let Some(ended_at) = row.settled_at else {
        return Ok(None);
    };
    let (id, kind) = (row.submission.id.as_str().to_owned(), kind(row));
    let run = match kind {
        WorkKind::Workflow => tables.run_record(&RunId(id.clone()))?,
        _ => None,
    };
    let error = match &run {
        Some(run) => run.error.clone(),
        None => tables.submission_status(&row.submission.id)?.and_then(|status| status.error),
    };
    Ok(Some(FailedWork {
        id,
        kind,
        session_id: run.is_none().then(|| stream_names::instance(&row.stream).to_owned()),
        workflow_name: run.map(|run| run.workflow_name),
        ended_at,
        cause: describe(error.as_ref()),
    }))
}

impl Read for TelemetryUsage {
    fn run(tables: &dyn Tables, args: &GroupUsage) -> Result<UsageGroups, Error> {
        let mut groups: BTreeMap<String, UsageGroup> = BTreeMap::new();
        let session =
            args.session.as_deref().map(|session| tables.log(&stream_names::of_instance(session))).transpose()?;
        // A session that is not stored has used nothing.
        if session.as_ref().is_none_or(Option::is_some) {
            let used = tables.usage(args.by, session.flatten().map(|log| log.key))?;
            groups.extend(used.into_iter().map(|used| (used.key.clone(), used)));
        }
        // Vectors are computed outside of submissions, so their usage belongs to no session.
        let vectors = if args.session.is_none() { tables.vector_usage()? } else { Vec::new() };
        for (day, model, tokens, cost) in vectors {
            let group = match args.by {
                GroupBy::Day => group(&mut groups, day),
                GroupBy::Model => group(&mut groups, model),
                GroupBy::Session => group(&mut groups, "-".to_owned()),
            };
            group.usage.input += tokens;
            group.usage.total_tokens += tokens;
            group.cost = Some(group.cost.unwrap_or_default() + cost).filter(|cost| *cost > 0.0);
        }
        let mut groups: Vec<UsageGroup> = groups.into_values().collect();
        match args.by {
            GroupBy::Day => groups.reverse(),
            _ => groups.sort_by_key(|group| std::cmp::Reverse(group.usage.total_tokens)),
        }
        let others = others(groups.split_off(groups.len().min(args.limit.unwrap_or(usize::MAX))));
        if args.by == GroupBy::Session {
            // Only now, because there can be 10,000 sessions.
            for group in &mut groups {
                if let Ok(stream) = group.key.parse() {
                    group.key = stream_names::instance(&tables.log_by_key(stream)?.name).to_owned();
                }
            }
        }
        Ok(UsageGroups { groups, others })
    }
}

fn others(groups: Vec<UsageGroup>) -> Option<OtherGroups> {
    let sum = |mut sum: OtherGroups, group: UsageGroup| {
        sum.groups += 1;
        sum.runs += group.runs;
        sum.usage += group.usage;
        sum.cost = sum.cost.into_iter().chain(group.cost).reduce(|one, other| one + other);
        sum
    };
    (!groups.is_empty()).then(|| groups.into_iter().fold(OtherGroups::default(), sum))
}

fn group(groups: &mut BTreeMap<String, UsageGroup>, key: String) -> &mut UsageGroup {
    groups.entry(key.clone()).or_insert_with(|| UsageGroup { key, ..UsageGroup::default() })
}

/// The maximum number of submissions and runs that are exported at a time.
const MAX_EXPORTED: u32 = 256;
/// The names of two stored values: the time, in milliseconds, up to which everything is exported, and the number of summaries that were
/// lost.
const EXPORTED_UNTIL: &str = "telemetry.exported_until";
const LOST_COUNTER: &str = "telemetry.lost";
/// The time to wait before the submissions that ended in a millisecond are exported, in milliseconds. Others may still end in the same
/// millisecond.
const SETTLING_MS: i64 = 20;

impl Read for TelemetryEnded {
    fn run(tables: &dyn Tables, _: &Nothing) -> Result<Ended, Error> {
        let since = tables.stored_value(EXPORTED_UNTIL)?;
        let Some(since) = since.and_then(|since| since.parse().ok()).map(Timestamp::from_millis) else {
            return Ok(Ended { since: None, runs: Vec::new(), waiting: 0 });
        };
        if !tables.has_duties()? {
            return Ok(Ended { since: Some(since), runs: Vec::new(), waiting: 0 });
        }
        // The time of a server counts for all hosts.
        let now = tables.hosts()?.server_time.unwrap_or_else(Timestamp::now);
        let until = now.plus_millis(-SETTLING_MS);
        let (rows, all) = tables.ended(since, until, MAX_EXPORTED)?;
        let runs = rows.iter().filter_map(|row| ended_run(tables, row).transpose());
        let runs = runs.collect::<Result<Vec<EndedRun>, Error>>()?;
        Ok(Ended { since: Some(since), waiting: all.saturating_sub(runs.len() as u64), runs })
    }
}

fn ended_run(tables: &dyn Tables, row: &SummaryRow) -> Result<Option<EndedRun>, Error> {
    let Some(ended_at) = row.settled_at else {
        return Ok(None);
    };
    let of_workflow = row.submission.kind == SubmissionKind::Workflow;
    let context = tables.event(row.submission.event)?.and_then(|event| event.context);
    Ok(Some(EndedRun {
        id: row.submission.id.as_str().to_owned(),
        kind: kind(row),
        agent: (!of_workflow).then(|| target_agent(context.as_ref()).to_owned()),
        stream: row.stream.clone(),
        recorded_from: if of_workflow { Offset::Start } else { Offset::end(row.submission.recorded_from) },
        ended_at,
        host: tables.host_of(row.submission.key)?,
    }))
}

impl Write for TelemetryExported {
    fn run(tables: &dyn Tables, args: &Exported, _: &mut Change) -> Result<Nothing, Error> {
        tables.set_stored_value(EXPORTED_UNTIL, &args.until.millis().to_string())?;
        if args.lost > 0 {
            let known = tables.stored_value(LOST_COUNTER)?.and_then(|lost| lost.parse::<u64>().ok());
            tables.set_stored_value(LOST_COUNTER, &(known.unwrap_or_default() + args.lost).to_string())?;
        }
        Ok(Nothing {})
    }
}

impl Read for EventsWhy {
    fn run(tables: &dyn Tables, args: &ByWork) -> Result<Why, Error> {
        // The answer to a message contains the id of its submission. For a prompt to an instance and for a run, the event has the same id
        // as the submission.
        let accepted: Option<Accepted> = match tables.event_answer(&args.id)? {
            Some(answer) => serde_json::from_str(&answer).ok(),
            None => None,
        };
        let mut why = Why {
            id: args.id.clone(),
            status: String::new(),
            cause: String::new(),
            received_at: accepted.as_ref().map(|accepted| accepted.received_at),
            session_id: None,
            submission_id: None,
            refused: None,
            error: None,
            approvals: Vec::new(),
            attempts: None,
            host: None,
            failures: Vec::new(),
            tool_failures: Vec::new(),
            violations: Vec::new(),
            delivery: delivery(tables, &args.id)?,
            outputs: Vec::new(),
        };
        if let (None, Some(update)) = (&accepted, update(tables, &args.id)?) {
            of_update(&update, &mut why);
            return Ok(why);
        }
        if let (None, Some(run)) = (&accepted, tables.schedule_run(&args.id)?) {
            of_schedule_run(tables, run, &mut why)?;
            return Ok(why);
        }
        let mut work = args.id.clone();
        if let Some(accepted) = accepted {
            why.session_id = accepted.session.map(|session| session.id.as_str().to_owned());
            if let Some(error) = accepted.refused {
                why.status = "refused".to_owned();
                why.cause = format!("It was refused: {}.", error.message);
                why.refused = Some(error);
                return Ok(why);
            }
            match accepted.submission {
                Some(submission) => work = submission.submission_id.as_str().to_owned(),
                None => {
                    why.status = "handled".to_owned();
                    why.cause = "It was a command that needed no turn.".to_owned();
                    return Ok(why);
                }
            }
        }
        let row = tables.summary(&work)?.ok_or_else(|| {
            Error::not_found(format!("nothing was taken in under the id {}", args.id))
                .at("/id")
                .hint("an id is that of an event, a submission or a run; what was refused before it was read has none")
        })?;
        of_work(tables, &row, &mut why)?;
        Ok(why)
    }
}

/// Returns the update of the messaging platform with this id.
fn update(tables: &dyn Tables, id: &str) -> Result<Option<UpdateRecord>, Error> {
    let number = id.strip_prefix("messenger:").and_then(|number| number.parse().ok());
    number.map_or(Ok(None), |number| tables.update_record(number))
}

/// Explains what happened to an update that is not a message to an agent.
fn of_update(update: &UpdateRecord, why: &mut Why) {
    let reason = update.reason.as_deref().unwrap_or("no reason is known");
    let sender = match (&update.sender_id, &update.chat_id) {
        (Some(sender), Some(chat)) => format!(" by user {sender} in chat {chat}"),
        _ => String::new(),
    };
    why.received_at = Some(update.at);
    why.status.clone_from(&update.verdict);
    why.cause = match update.verdict.as_str() {
        "pressed" => format!("A button of an approval was pressed{sender}."),
        "ignored" => format!("The update ({}){sender} was ignored: {reason}.", update.kind),
        _ => format!("The update ({}){sender} was {}: {reason}.", update.kind, update.verdict),
    };
}

/// Explains what happened to a run of a schedule.
fn of_schedule_run(tables: &dyn Tables, run: ScheduleRunRow, why: &mut Why) -> Result<(), Error> {
    let reason = match run.reason {
        Some(Reason::Overlap) => "an earlier run was in progress",
        Some(Reason::Down) => "the scheduler was not running when it was due",
        Some(Reason::Late) => "the scheduler was too late, because the machine slept or its clock was set",
        Some(Reason::Deleted) => "the schedule was deleted",
        None => "no reason is known",
    };
    if let Some(turn) = &run.submission
        && let Some(row) = tables.summary(turn.as_str())?
    {
        add_troubles(tables, &row, why)?;
    }
    why.status = run.status.name().to_owned();
    why.cause = match (run.status, &run.error) {
        (RunState::Queued, _) => "It waits to be started.".to_owned(),
        (RunState::Admitted | RunState::Running, _) => "It is being worked on.".to_owned(),
        (RunState::Ok, _) => completed(why),
        (RunState::Skipped | RunState::Missed, _) => format!("It did not run: {reason}."),
        (_, Some(error)) => format!("It failed: {error}."),
        (_, None) => format!("It failed: {reason}."),
    };
    why.session_id = run.submission.is_some().then(|| run.instance());
    why.delivery = match (run.delivery, run.status, &run.error) {
        (Delivery::None, ..) => None,
        (Delivery::Failed, RunState::Ok, Some(error)) => Some(format!("failed: {error}")),
        (other, ..) => Some(other.name().to_owned()),
    };
    why.submission_id = run.submission;
    Ok(())
}

/// Returns the delivery state of the answer; `None` if it is not for a chat.
fn delivery(tables: &dyn Tables, id: &str) -> Result<Option<String>, Error> {
    let answer = tables.message_by_key(&format!("{id}:answer"))?;
    Ok(answer.map(|answer| match &answer.error {
        Some(error) => format!("{}: {error}", answer.state.name()),
        None => answer.state.name().to_owned(),
    }))
}

/// Explains what happened to a submission or a run.
fn of_work(tables: &dyn Tables, row: &SummaryRow, why: &mut Why) -> Result<(), Error> {
    let found = &row.submission;
    let (error, approvals) = match found.kind {
        SubmissionKind::Workflow => {
            let id = RunId(found.id.as_str().to_owned());
            (tables.run_record(&id)?.and_then(|record| record.error), Vec::new())
        }
        _ => {
            why.session_id = Some(stream_names::instance(&row.stream).to_owned());
            why.submission_id = Some(found.id.clone());
            let status = tables.submission_status(&found.id)?;
            status.map_or((None, Vec::new()), |status| (status.error, status.approvals))
        }
    };
    add_troubles(tables, row, why)?;
    let (status, cause) = match found.state {
        State::Queued | State::Running
            if found.open
                && let Some(host) = tables.absent_home(found.stream)? =>
        {
            let place = format!("its session works in a folder of the host {}, which is away", host.name);
            let cause = format!("It waits: {place}; it was last seen at {}. `ken hosts rm` ends it.", host.seen_at);
            (found.state.name(), cause)
        }
        State::Queued => ("queued", queued(tables, found)?),
        State::Running if found.abort => ("running", "It is being aborted.".to_owned()),
        State::Running if found.open => ("running", "Its holder is gone; it waits for another one.".to_owned()),
        State::Running => ("running", format!("It is being worked on, for the {} time.", ordinal(found.attempt))),
        State::Waiting => ("waiting", "It waits for a decision.".to_owned()),
        State::Completed => ("completed", completed(why)),
        State::Failed => ("failed", format!("It failed. {}.", describe(error.as_ref()))),
        State::Aborted => ("aborted", "It was aborted.".to_owned()),
    };
    why.status = status.to_owned();
    why.cause = cause;
    why.error = error;
    why.approvals = approvals;
    why.attempts = (found.attempt > 0).then_some(found.attempt);
    why.host = other_host(tables, found.key)?;
    why.outputs = tables.outputs_of(found.key)?;
    Ok(())
}

/// Returns the host that has worked on a submission last, if it is not this one.
fn other_host(tables: &dyn Tables, submission: i64) -> Result<Option<String>, Error> {
    let Some(found) = tables.host_of(submission)? else { return Ok(None) };
    let is_this = tables.hosts()?.hosts.iter().any(|host| host.here && host.id == found.id);
    Ok((!is_this).then(|| found.name.unwrap_or(found.id)))
}

/// Names the turn that keeps a queued submission waiting, and the decisions that this turn waits for.
fn queued(tables: &dyn Tables, found: &SubmissionRow) -> Result<String, Error> {
    let Some(before) = tables.running(found.stream)? else { return Ok("It waits for its turn.".to_owned()) };
    let decisions: Vec<String> = before.approvals.iter().map(|id| format!("`ken approvals {id}`")).collect();
    let decision = match decisions.len() {
        0 => String::new(),
        _ => format!(", which waits for a decision: {}", decisions.join(", ")),
    };
    Ok(format!("It waits for the end of the turn {}{decision}.", before.id))
}

fn describe(error: Option<&Failure>) -> String {
    match error {
        Some(error) => format!("{}: {}", error.name, error.message),
        None => "no reason is known".to_owned(),
    }
}

/// Adds what went wrong in a submission before its end.
fn add_troubles(tables: &dyn Tables, row: &SummaryRow, why: &mut Why) -> Result<(), Error> {
    let found = &row.submission;
    // A submission that was never claimed has no events of its own.
    if found.lease == 0 || found.kind == SubmissionKind::Workflow {
        return Ok(());
    }
    let ended = tables.exchange_end(found.key)?;
    let mut troubles = Troubles::default();
    tables.entries(found.stream, found.recorded_from, ended.unwrap_or(row.entries), &mut |event| {
        troubles.add_event(found.id.as_str(), event);
        true
    })?;
    (why.failures, why.tool_failures, why.violations) =
        (troubles.failures, troubles.tool_failures, troubles.violations);
    Ok(())
}

/// Returns the cause for work that was completed. An agent can answer although what it tried has failed.
fn completed(why: &Why) -> String {
    match why.tool_failures.len() {
        0 => "It was done.".to_owned(),
        1 => "It was done, but a tool call failed.".to_owned(),
        MAX_TROUBLES.. => format!("It was done, but {MAX_TROUBLES} or more tool calls failed."),
        number => format!("It was done, but {number} tool calls failed."),
    }
}

fn ordinal(number: u32) -> String {
    match number {
        0 | 1 => "first".to_owned(),
        2 => "second".to_owned(),
        3 => "third".to_owned(),
        more => format!("{more}th"),
    }
}
