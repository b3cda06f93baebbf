//! Submissions: what their holders record, how they end, and the history that a new one gets.

use ken_types::Error;
use ken_types::id::SubmissionId;
use ken_types::ops::store::*;
use ken_types::ops::telemetry::ByWork;

use crate::engine::change::Change;
use crate::ops::{Read, Write, documents, governing, knowledge, leases, memory, queue, turns};
use crate::rules::queue::Ending;
use crate::rules::{check, stream_names};
use crate::tables::Tables;

/// The maximum number of exchanges in a history.
const HISTORY: u32 = 1_000;

impl Write for SubmissionsAppend {
    fn check(args: &AppendEvents) -> Result<(), Error> {
        check::events(&args.events)
    }

    fn run(tables: &dyn Tables, args: &AppendEvents, change: &mut Change) -> Result<Appended, Error> {
        turns::append(tables, args, change).map(|offset| Appended { offset })
    }
}

impl Write for SubmissionsSettle {
    fn check(args: &SettleSubmission) -> Result<(), Error> {
        check::events(&args.events)
    }

    fn run(tables: &dyn Tables, args: &SettleSubmission, change: &mut Change) -> Result<Appended, Error> {
        let found = turns::submission_of_lease(tables, &args.lease)?;
        if found.kind == SubmissionKind::Workflow {
            return Err(Error::invalid("/lease", "a run is ended with runs.end"));
        }
        if found.state.is_settled() {
            let offset = turns::end_of(tables, &found)?;
            return Ok(Appended { offset });
        }
        let mut log = tables.log_by_key(found.stream)?;
        turns::add_events(tables, &found, &mut log, args.first_index, &args.events, change)?;
        let ending = Ending {
            result: args.result.as_ref(),
            error: args.error.clone(),
            context_usage: args.context_usage.as_ref(),
            summary: args.summary.as_deref(),
            ..Ending::of(args.outcome)
        };
        turns::finish(tables, &found, &log, &ending, change)?;
        documents::record_uses(tables, &found, &args.used)?;
        let offset = log.end();
        Ok(Appended { offset })
    }
}

impl Write for SubmissionsAbort {
    fn run(tables: &dyn Tables, args: &OfInstance, change: &mut Change) -> Result<AbortedSubmissions, Error> {
        let submission_ids = match tables.log(&stream_names::of_instance(&args.instance))? {
            Some(log) => queue::stop_all(tables, log.key, change)?,
            None => Vec::new(),
        };
        Ok(AbortedSubmissions { submission_ids })
    }
}

/// Reads the history of an instance for the model, and what the searches find. All of it is read from one state of the tables.
impl Read for SubmissionsHistory {
    const COMES_FIRST: bool = false;

    fn check(args: &ReadHistory) -> Result<(), Error> {
        check::limit(args.limit, HISTORY)?;
        args.search.as_ref().map_or(Ok(()), |search| check::limit(search.limit, check::PAGE))
    }

    fn run(tables: &dyn Tables, args: &ReadHistory) -> Result<History, Error> {
        let mut history = history(tables, args)?;
        if let Some(search) = &args.search {
            let search = Search { session: Some(args.instance.clone()), ..search.clone() };
            history.known = knowledge::search(tables, &search)?.found;
            let scope = search.scope.as_ref().map(|scope| scope.of_memory(&args.instance));
            history.remembered = memory::search(tables, &Search { scope, ..search })?.found;
        }
        history.rules = governing::enabled(tables)?;
        Ok(history)
    }
}

impl Read for SubmissionsRecord {
    fn run(tables: &dyn Tables, args: &ByWork) -> Result<Claim, Error> {
        let work = tables.work(&args.id)?;
        let work = work.ok_or_else(|| Error::not_found(format!("there is no submission {}", args.id)).at("/id"))?;
        let found = &work.submission;
        if !found.state.is_settled() {
            return Err(Error::conflict(format!("submission {} has not ended", found.id)).at("/id"));
        }
        let log = tables.log_by_key(found.stream)?;
        leases::claim_of(tables, work, log)
    }
}

/// Returns the summary and the past exchanges of an instance. While a submission is not settled, all settled exchanges are before it,
/// because an instance runs one submission at a time.
fn history(tables: &dyn Tables, args: &ReadHistory) -> Result<History, Error> {
    let Some(log) = tables.log(&stream_names::of_instance(&args.instance))? else {
        return Ok(History::default());
    };
    let Some(instance) = tables.instance(log.key)? else {
        return Ok(History::default());
    };
    let turn = |id: &SubmissionId| tables.exchange_turn(log.key, id);
    let before = turn(&args.before)?.unwrap_or(i64::MAX);
    let known = args.after.as_ref().map(turn).transpose()?.flatten();
    let known = known.filter(|known| *known > instance.summary_after);
    let after = known.unwrap_or(instance.summary_after);
    let mut exchanges = tables.past_exchanges(log.key, after, before, args.limit)?;
    exchanges.reverse();
    // The prompts that were sent with marks are sent again with the same ones.
    for past in exchanges.iter_mut().filter(|past| past.forwarded.is_some() || past.quoted.is_some()) {
        past.mark = Some(turns::mark(tables, &past.id)?);
    }
    Ok(History {
        summary: instance.summary,
        exchanges,
        continues: known.is_some(),
        turns: instance.turns,
        compactions: instance.compactions,
        outside: tables.outside_of_stream(log.key)?,
        ..History::default()
    })
}

pub(crate) fn status(tables: &dyn Tables, args: &WaitSubmission) -> Result<SubmissionStatus, Error> {
    let found = tables.submission_status(&args.submission_id)?;
    found.ok_or_else(|| turns::unknown(&args.submission_id))
}
