//! Conversations of callers who name no session, but send their messages each time. See `ken_chat::door`.

use ken_chat::door::{Conversation, StreamedText, owed, owed_text};
use ken_types::fence::Outside;
use ken_types::id::{EventId, SessionId, SubmissionId};
use ken_types::ops::Nothing;
use ken_types::ops::store::{
    Admission, BySubmission, Continuation, DeliveredEvent, DoorsDelete, DoorsDelivered, DoorsFind, DoorsNotice,
    FoundAnswer, ImportedExchange, OPENAI, OwnedSession, PastExchange, Scope, SentNotice, SessionsPurge, State,
    SubmissionKind,
};
use ken_types::{Error, Offset};
use serde_json::Value;

use crate::engine::change::Change;
use crate::ops::{Read, Write};
use crate::rules::digest;
use crate::rules::exchange::{Fold, Prompt};
use crate::rules::queue::Ending;
use crate::rules::record;
use crate::tables::{LogRow, NewEvent, NewExchange, NewSubmission, PromptRow, SessionRow, SubmissionRow, Tables};

/// The maximum number of exchanges that a new session begins with. A model is shown no more.
const MAX_IMPORTED: u32 = 1_000;
/// The origin of what a caller says was said before. Nobody knows who has written it.
const IMPORT: &str = "import";
const KIND: &str = "chat.imported";

impl Write for DoorsNotice {
    fn run(tables: &dyn Tables, args: &SentNotice, _: &mut Change) -> Result<Nothing, Error> {
        let Answer { found, .. } = answer(tables, &args.submission_id)?;
        match &args.tip {
            None => tables.set_event_noticed(found.event)?,
            Some(tip) if is_newest(tables, &found)? => tables.add_tip(found.stream, tip)?,
            Some(_) => {}
        }
        Ok(Nothing {})
    }
}

/// Whether no later prompt has gone on with the session.
fn is_newest(tables: &dyn Tables, found: &SubmissionRow) -> Result<bool, Error> {
    Ok(tables.newest_prompt(found.stream)?.is_none_or(|key| key == found.key))
}

/// Returns the turns whose answers the next prompt of a session owes, and notes that it gives them.
pub(super) fn take_owed(tables: &dyn Tables, stream: i64) -> Result<Vec<SubmissionId>, Error> {
    let Some(key) = tables.newest_prompt(stream)? else { return Ok(Vec::new()) };
    let found = tables.submission_by_key(key)?;
    if !tables.take_event_noticed(found.event)? {
        return Ok(Vec::new());
    }
    let context = tables.event(found.event)?.and_then(|event| event.context);
    Ok(owed(context.as_ref()).into_iter().chain([found.id]).collect())
}

impl Read for DoorsFind {
    fn run(tables: &dyn Tables, args: &BySubmission) -> Result<FoundAnswer, Error> {
        let Answer { found, log, event, scope } = answer(tables, &args.submission_id)?;
        Ok(FoundAnswer {
            event_id: event.id,
            received_at: event.received_at,
            scope,
            session_id: SessionId(log.instance().to_owned()),
            admission: Admission { submission_id: found.id, offset: Offset::end(found.recorded_from) },
            context: event.context,
        })
    }
}

impl Write for DoorsDelete {
    fn run(tables: &dyn Tables, args: &BySubmission, change: &mut Change) -> Result<Nothing, Error> {
        let Answer { found, log, .. } = answer(tables, &args.submission_id)?;
        tables.set_event_deleted(found.event)?;
        if !tables.has_other_prompts(log.key)? {
            let args = OwnedSession { scope: None, id: SessionId(log.instance().to_owned()) };
            return <SessionsPurge as Write>::run(tables, &args, change);
        }
        Ok(Nothing {})
    }
}

/// An answer to a caller who sends the whole conversation.
struct Answer {
    found: SubmissionRow,
    log: LogRow,
    event: PromptRow,
    scope: Scope,
}

fn answer(tables: &dyn Tables, id: &SubmissionId) -> Result<Answer, Error> {
    let unknown = || Error::not_found(format!("there is no answer {id}")).at("/submission_id");
    let found = tables.submission(id.as_str())?.ok_or_else(unknown)?;
    let event = tables.event(found.event)?.ok_or_else(unknown)?;
    let scope = event.scope.clone().filter(|scope| scope.connector == OPENAI && !found.hidden).ok_or_else(unknown)?;
    if tables.is_event_deleted(found.event)? {
        return Err(unknown());
    }
    let log = tables.log_by_key(found.stream)?;
    Ok(Answer { found, log, event, scope })
}

impl Write for DoorsDelivered {
    fn run(tables: &dyn Tables, args: &DeliveredEvent, _: &mut Change) -> Result<Nothing, Error> {
        tables.set_delivered(args.id.as_str())?;
        Ok(Nothing {})
    }
}

/// Returns the whole id of an event of which only the first part is given. A repetition has the id of the first request, until the
/// answer to that was sent to its end.
pub(super) fn counted(tables: &dyn Tables, first_part: &EventId) -> Result<EventId, Error> {
    let number = match tables.newest_equal(first_part.as_str())? {
        Some((id, false)) => return Ok(EventId(id)),
        Some((id, true)) => 1 + id.rsplit(':').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or_default(),
        None => 0,
    };
    // Padded, so that the ids sort by their numbers.
    Ok(EventId(format!("{first_part}:{number:010}")))
}

/// Returns the session that a caller continues.
pub(super) fn session(tables: &dyn Tables, scope: i64, given: &Continuation) -> Result<Option<SessionRow>, Error> {
    let Some(id) = &given.after else {
        let tip = given.tip.as_deref();
        return Ok(tip.map(|tip| tables.session_with_tip(scope, tip)).transpose()?.flatten());
    };
    let (found, log) = continued(tables, scope, id)?;
    if is_newest(tables, &found)? { tables.session(log.instance()) } else { Ok(None) }
}

/// Returns the submission that a caller continues, with its stream.
fn continued(tables: &dyn Tables, scope: i64, id: &SubmissionId) -> Result<(SubmissionRow, LogRow), Error> {
    let unknown = || Error::not_found(format!("there is no answer {id} to continue")).at("/after");
    let Answer { found, log, .. } = answer(tables, id).map_err(|_| unknown())?;
    let session = tables.session(log.instance())?.filter(|session| session.scope == scope);
    if session.is_some() { Ok((found, log)) } else { Err(unknown()) }
}

/// Returns what was said before, for a session that begins with it.
pub(super) fn history(tables: &dyn Tables, scope: i64, given: &Continuation) -> Result<Vec<ImportedExchange>, Error> {
    let Some(id) = &given.after else {
        return Ok(given.imported.clone());
    };
    let (_, log) = continued(tables, scope, id)?;
    // Only a settled turn can have later ones.
    let turn = tables.exchange_turn(log.key, id)?.unwrap_or_default();
    let mut past = tables.past_exchanges(log.key, 0, turn + 1, MAX_IMPORTED)?;
    past.reverse();
    let imported = |past: PastExchange| ImportedExchange { prompt: past.prompt, answer: past.answer };
    Ok(past.into_iter().map(imported).collect())
}

/// Adds exchanges to a new session that it did not have itself: they are in its history and in its transcript, but not on its stream.
pub(super) fn import(
    tables: &dyn Tables,
    session: &SessionRow,
    imported: &[ImportedExchange],
    change: &mut Change,
) -> Result<(), Error> {
    let outside = Outside::from([IMPORT.to_owned()]);
    for (number, exchange) in imported.iter().enumerate() {
        let event_id = format!("import:{}:{number}", session.id);
        let event = NewEvent::internal(&event_id, Some(session.scope), KIND, &exchange.prompt, change.now);
        tables.insert_event(&event)?;
        let id = digest::submission_id(&event_id);
        tables.insert_submission(&NewSubmission {
            id: &id,
            stream: session.stream,
            event: &event_id,
            kind: SubmissionKind::Prompt,
            hidden: true,
            open: false,
            place: 0,
            recorded_from: 0,
            next_index: 0,
            outside: &outside,
        })?;
        let key = tables.submission_key(&id)?;
        tables.settle_submission(key, State::Completed)?;
        let prompt = Prompt::visible(event_id, exchange.prompt.clone(), change.now);
        let fold = Fold::of_answer(id, &exchange.answer, change.now);
        let body = record::write(&fold.exchange(State::Completed, Some(prompt)))?;
        tables.insert_exchange(&NewExchange {
            submission: key,
            stream: session.stream,
            turn: Some(tables.count_turn(session.stream)?),
            body: Some(&body),
            answer: &exchange.answer,
            result: None,
            error: None,
            context_usage: None,
            ended_at: 0,
            settled_at: change.now,
        })?;
    }
    Ok(())
}

/// The answer of a turn as its caller was sent it.
pub(super) struct Sent {
    conversation: Conversation,
    text: String,
    streamed: StreamedText,
    submission: SubmissionId,
    owed: Vec<SubmissionId>,
}

impl Sent {
    /// Returns `None` for a turn whose caller does not send the conversation each time.
    pub(super) fn of(prompt: Option<&PromptRow>, found: &SubmissionRow) -> Option<Sent> {
        let context = prompt.and_then(|prompt| prompt.context.as_ref());
        let conversation = Conversation::of_context(context);
        conversation.map(|conversation| Sent {
            conversation,
            text: String::new(),
            streamed: StreamedText::default(),
            submission: found.id.clone(),
            owed: owed(context),
        })
    }

    pub(super) fn add_event(&mut self, event: &str) {
        if let Ok(event) = serde_json::from_str::<Value>(event)
            && event.get("submissionId").is_some_and(|id| *id == *self.submission.as_str())
        {
            self.text += &self.streamed.add(&event);
        }
    }

    /// Stores with which messages the next request can begin. After a turn without an answer, it begins as the last one did.
    pub(super) fn keep_tips(
        &self,
        tables: &dyn Tables,
        found: &SubmissionRow,
        ending: &Ending<'_>,
    ) -> Result<(), Error> {
        // A later prompt of another client has gone on with the session, so these messages are no longer its end.
        if !is_newest(tables, found)? {
            return Ok(());
        }
        let status = |id: &SubmissionId| Ok(tables.submission_status(id)?.as_ref().map(owed_text).unwrap_or_default());
        let owed: Vec<String> = self.owed.iter().map(status).collect::<Result<_, Error>>()?;
        let tips = match ending.result.filter(|_| ending.state() == State::Completed) {
            Some(result) => self.conversation.tips_after(&owed, &self.text, result),
            None => self.conversation.before.iter().cloned().collect(),
        };
        tips.iter().try_for_each(|tip| tables.add_tip(found.stream, tip.as_str()))
    }
}

/// Returns the first thing that was said in a session, for its title.
pub(super) fn first_prompt(tables: &dyn Tables, session: &SessionRow) -> Result<Option<String>, Error> {
    let first = tables.past_exchanges(session.stream, 0, 2, 1)?;
    Ok(first.into_iter().next().map(|first| first.prompt))
}
