//! Messages to chats. Each chat has a queue: a message is sent when all earlier ones of the chat are finished.

use ken_types::event::{CitedSource, Outcome};
use ken_types::ops::Nothing;
use ken_types::ops::outbox::*;
use ken_types::ops::store::SubmissionKind;
use ken_types::{Error, Timestamp};
use serde_json::{Value, json};

use crate::engine::change::{Change, Effect};
use crate::ops::{Read, Write, schedule_runs};
use crate::rules::check;
use crate::rules::queue::Ending;
use crate::tables::{MessageRow, SubmissionRow, Tables};

/// The maximum length of a message, in bytes.
const TEXT_BYTES: usize = 1024 * 1024;
const KEY_CHARACTERS: usize = 255;
/// The maximum number of messages that one call returns.
const MAX_DUE: u32 = 64;
/// For how long the attempts to send a message continue after its creation, in milliseconds.
const MAX_RETRY_MS: i64 = 24 * 3_600_000;
/// For how long a message and its key are kept after its end, in milliseconds.
const RETENTION_MS: i64 = 30 * 24 * 3_600_000;
/// The maximum number of messages that one slice of background work deletes.
const SLICE: usize = 200;
/// The maximum length of an error that is stored, in characters.
const ERROR_CHARACTERS: usize = 500;
/// What follows the id of an event in the key of the answer to it.
pub(super) const ANSWER: &str = ":answer";
/// The prefix of the ids of events that came in through the messaging connector.
const MESSENGER: &str = "messenger";

impl Write for OutboxPut {
    fn check(args: &PutMessage) -> Result<(), Error> {
        if args.text.trim().is_empty() || args.text.len() > TEXT_BYTES {
            let message = format!("a text has 1 to {TEXT_BYTES} bytes and is not blank");
            return Err(Error::invalid("/text", message));
        }
        if !(1..=KEY_CHARACTERS).contains(&args.key.chars().count()) {
            let message = format!("a key has 1 to {KEY_CHARACTERS} characters");
            return Err(Error::invalid("/key", message));
        }
        match [&args.connector, &args.chat_id].map(|name| name.is_empty()) {
            [true, _] => Err(Error::invalid("/connector", "connector is empty")),
            [_, true] => Err(Error::invalid("/chatId", "chatId is empty")),
            _ => Ok(()),
        }
    }

    fn run(tables: &dyn Tables, args: &PutMessage, change: &mut Change) -> Result<Put, Error> {
        put(tables, args, change)
    }
}

/// Adds a message, unless there is already one with its key.
pub(super) fn put(tables: &dyn Tables, message: &PutMessage, change: &mut Change) -> Result<Put, Error> {
    if let Some(known) = tables.message_by_key(&message.key)? {
        return Ok(Put { id: known.id, created: false });
    }
    let id = tables.insert_message(message, change.now)?;
    publish(&message.connector, id, MessageState::Pending, change);
    Ok(Put { id, created: true })
}

fn publish(connector: &str, id: i64, state: MessageState, change: &mut Change) {
    change.push(Effect::Outgoing);
    let fields = json!({"connector": connector, "id": id, "status": state});
    change.publish("connector.outbox", fields);
}

/// Queues the answer of a turn for the chat from which its message came, in the transaction that ends the turn.
pub(super) fn answer(
    tables: &dyn Tables,
    found: &SubmissionRow,
    ending: &Ending<'_>,
    answer: &str,
    change: &mut Change,
) -> Result<(), Error> {
    let Some(mut text) = text(found, ending, answer) else {
        return Ok(());
    };
    let sources = ending.result.map(|result| CitedSource::lines(&result.sources)).filter(|lines| !lines.is_empty());
    if let (Some(sources), Outcome::Completed) = (sources, ending.outcome) {
        text = format!("{}\n\n{sources}", text.trim_end());
    }
    match to_chat(tables, found, text)? {
        Some(message) => put(tables, &message, change).map(drop),
        None => Ok(()),
    }
}

/// Returns a message to the chat from which the prompt of a submission came. It has the key of the answer to that prompt. `None` if the
/// prompt did not come from a chat.
fn to_chat(tables: &dyn Tables, found: &SubmissionRow, text: String) -> Result<Option<PutMessage>, Error> {
    let Some(event) = tables.event(found.event)? else {
        return Ok(None);
    };
    let came_in = event.id.as_str().split(':').next() == Some(MESSENGER);
    let (Some(scope), true) = (event.scope, came_in) else {
        return Ok(None);
    };
    let context = event.context.unwrap_or_default();
    let named = |name: &str| context.get(name).and_then(Value::as_str).map(str::to_owned);
    Ok(Some(PutMessage {
        connector: scope.connector,
        chat_id: scope.conversation_id,
        thread_id: scope.thread_id,
        reply_to: named("messageId"),
        business_id: named("businessId"),
        text,
        key: format!("{}{ANSWER}", event.id),
        ..PutMessage::default()
    }))
}

/// Returns the text that the chat gets at the end of a turn; `None` if there is none.
fn text(found: &SubmissionRow, ending: &Ending<'_>, answer: &str) -> Option<String> {
    let why = ending.error.as_ref().map(|error| error.message.as_str());
    let text = match (found.kind, ending.outcome) {
        (SubmissionKind::Workflow, _) => return None,
        (SubmissionKind::Compact, Outcome::Completed) => "Compacted the history of this session.",
        (_, Outcome::Completed) => answer,
        (_, Outcome::Aborted) if answer.trim().is_empty() => "Stopped.",
        (_, Outcome::Aborted) => answer,
        (_, Outcome::Failed) => {
            return Some(format!("That did not work: {}", why.unwrap_or("the turn failed.")));
        }
    };
    Some(text.to_owned()).filter(|text| !text.trim().is_empty())
}

pub(crate) fn check_due(args: &DueMessages) -> Result<(), Error> {
    if (1..=MAX_DUE).contains(&args.max) {
        Ok(())
    } else {
        Err(Error::invalid("/max", format!("max is 1 to {MAX_DUE}")))
    }
}

/// Returns the messages that can be sent now, and the time at which the next one can be sent. There are none for a host without duties.
pub(crate) fn due(
    tables: &dyn Tables,
    args: &DueMessages,
    now: Timestamp,
) -> Result<(DueList, Option<Timestamp>), Error> {
    if !tables.has_duties()? {
        return Ok((DueList::default(), None));
    }
    let heads = tables.next_messages(&args.connector)?;
    let free = heads.into_iter().filter(|(id, _)| !args.held.contains(id));
    let (ready, later): (Vec<_>, Vec<_>) = free.partition(|(_, at)| *at <= now);
    let mut messages = Vec::new();
    for (id, _) in ready {
        if messages.len() == args.max as usize {
            break;
        }
        if let Some(row) = tables.message(id)? {
            messages.push(due_message(tables, row)?);
        }
    }
    let next = later.into_iter().map(|(_, at)| at).min();
    Ok((DueList { messages }, next))
}

fn due_message(tables: &dyn Tables, row: MessageRow) -> Result<DueMessage, Error> {
    let edited = match &row.message.edits {
        Some(key) => tables.message_by_key(key)?,
        None => None,
    };
    Ok(DueMessage {
        id: row.id,
        piece: row.piece,
        in_doubt: row.state == MessageState::Sending,
        doubtful: row.doubtful,
        tries: row.tries,
        edited_id: edited.and_then(|mut edited| edited.message_ids.pop()),
        message: row.message,
    })
}

fn by_id(tables: &dyn Tables, id: i64) -> Result<MessageRow, Error> {
    tables.message(id)?.ok_or_else(|| Error::not_found(format!("there is no message {id} in the outbox")))
}

impl Write for OutboxAttempt {
    fn run(tables: &dyn Tables, args: &AttemptPiece, _: &mut Change) -> Result<Nothing, Error> {
        let row = by_id(tables, args.id)?;
        if !row.is_live() || row.piece != args.piece {
            let message = format!("piece {} of message {} is not the next one", args.piece, args.id);
            return Err(Error::conflict(message));
        }
        tables.update_message(&MessageRow { state: MessageState::Sending, ..row })?;
        Ok(Nothing {})
    }
}

impl Write for OutboxSettle {
    fn run(tables: &dyn Tables, args: &SettlePiece, change: &mut Change) -> Result<Nothing, Error> {
        let row = by_id(tables, args.id)?;
        if !row.is_live() || row.piece != args.piece {
            return Ok(Nothing {});
        }
        note_error(tables, &row.message.connector, error_of(&args.end))?;
        finish(tables, &after_attempt(row, args, change.now), change)
    }
}

/// Stores a message after an attempt to send a part of it. If the message is finished, counts it.
fn finish(tables: &dyn Tables, next: &MessageRow, change: &mut Change) -> Result<Nothing, Error> {
    tables.update_message(next)?;
    if next.is_live() {
        change.push(Effect::Outgoing);
    } else {
        let connector = &next.message.connector;
        tables.count_up(&format!("outbox.{connector}.{}", next.state.name()))?;
        publish(connector, next.id, next.state, change);
        schedule_runs::settle_delivery(tables, next, change)?;
    }
    Ok(Nothing {})
}

/// Counts an error of a connector, and stores its text for the connector's status. Without an error, the connector works, and its last
/// error is forgotten.
pub(super) fn note_error(tables: &dyn Tables, connector: &str, error: Option<&str>) -> Result<(), Error> {
    let name = format!("{connector}.last_error");
    let Some(error) = error else {
        return tables.remove_stored_value(&name);
    };
    let error: String = error.chars().take(ERROR_CHARACTERS).collect();
    tables.count_up(&format!("{connector}.errors"))?;
    tables.set_stored_value(&name, &error)
}

fn error_of(end: &PieceEnd) -> Option<&str> {
    match end {
        PieceEnd::Sent { .. } => None,
        PieceEnd::Later { error, .. } | PieceEnd::Failed { error } | PieceEnd::Unknown { error } => Some(error),
    }
}

/// Returns whether the time limit for sending a message has passed.
fn is_over(row: &MessageRow, now: Timestamp) -> bool {
    now.millis().saturating_sub(row.created_at.millis()) >= MAX_RETRY_MS
}

fn later(now: Timestamp, after_ms: u64) -> Timestamp {
    now.plus_millis(i64::try_from(after_ms).unwrap_or(MAX_RETRY_MS).min(MAX_RETRY_MS))
}

/// Returns the new state of a message after an attempt to send its next piece has ended.
fn after_attempt(row: MessageRow, args: &SettlePiece, now: Timestamp) -> MessageRow {
    let is_over = is_over(&row, now);
    let doubtful = row.doubtful || matches!(args.end, PieceEnd::Unknown { .. });
    let mut next = MessageRow {
        state: MessageState::Pending,
        error: error_of(&args.end).map(str::to_owned).or(row.error.clone()),
        ..row
    };
    match &args.end {
        PieceEnd::Later { after_ms, .. } if !is_over => {
            next.tries += 1;
            next.due_at = later(now, *after_ms);
        }
        PieceEnd::Later { .. } | PieceEnd::Failed { .. } => next.state = MessageState::Failed,
        PieceEnd::Sent { .. } | PieceEnd::Unknown { .. } => {
            if let PieceEnd::Sent { message_id } = &args.end {
                next.message_ids.extend(message_id.clone());
            }
            next.doubtful = doubtful;
            next.piece += 1;
            next.tries = 0;
            next.due_at = now;
            next.state = match (args.last, doubtful) {
                (false, _) => MessageState::Pending,
                (true, false) => MessageState::Sent,
                (true, true) => MessageState::Unknown,
            };
        }
    }
    if !next.is_live() {
        next.due_at = now;
    }
    next
}

impl Read for OutboxList {
    fn check(args: &ListMessages) -> Result<(), Error> {
        check::limit(args.limit, check::PAGE)
    }

    fn run(tables: &dyn Tables, args: &ListMessages) -> Result<MessageList, Error> {
        let messages = tables.list_messages(&args.connector, args.limit)?;
        Ok(MessageList { messages })
    }
}

pub(super) fn counts(tables: &dyn Tables, connector: &str) -> Result<OutboxCounts, Error> {
    let mut counts = OutboxCounts { pending: tables.live_messages(connector)?, ..OutboxCounts::default() };
    for (name, value) in tables.counters(&format!("outbox.{connector}."))? {
        match MessageState::named(&name) {
            Some(MessageState::Sent) => counts.sent = value,
            Some(MessageState::Unknown) => counts.unknown = value,
            Some(MessageState::Failed) => counts.failed = value,
            _ => return Err(Error::internal(format!("table counters, column name: {name:?} is not known"))),
        }
    }
    Ok(counts)
}

/// Deletes some of the messages that were finished long ago. Returns true if there may be more.
pub(super) fn prune(tables: &dyn Tables, now: Timestamp) -> Result<bool, Error> {
    Ok(tables.prune_messages(now.plus_millis(-RETENTION_MS), SLICE)? == SLICE)
}
