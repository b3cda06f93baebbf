//! Messages to chats. Each chat has a queue: a message is sent when all earlier ones of the chat are finished.

use std::collections::BTreeSet;
use std::sync::Arc;

use ken_types::event::{CitedSource, Outcome};
use ken_types::ops::Nothing;
use ken_types::ops::messenger::{Draft, ReadUpTo};
use ken_types::ops::outbox::*;
use ken_types::ops::store::SubmissionKind;
use ken_types::{Error, Timestamp};
use serde_json::{Value, json};

use crate::engine::change::{Change, Effect};
use crate::ops::{Host, Operations, Read, Write};
use crate::rules::check;
use crate::rules::queue::Ending;
use crate::rules::written::Written;
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
/// The maximum number of events of a turn that one call reads to build a draft.
const DRAFT_EVENTS: u64 = 1_000;
/// The minimum time between two versions of a draft, in milliseconds.
const DRAFT_MS: i64 = 1_000;
/// The maximum length of an error that is stored, in characters.
const ERROR_CHARACTERS: usize = 500;
/// The prefix of the ids of events that came in through the messaging connector.
const MESSENGER: &str = "messenger";

pub(super) fn add<H: Host>(operations: Operations<H>) -> Operations<H> {
    let Operations(table) = operations
        .write::<OutboxPut>()
        .write::<OutboxAttempt>()
        .write::<OutboxSettle>()
        .write::<OutboxShow>()
        .read::<OutboxList>();
    Operations(table.op::<OutboxDue, _, _>(|host: Arc<H>, _, args| async move { host.due(args).await }))
}

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

/// Adds a message. If there is already one with its key, nothing is added. If that one is a draft, it gets the new text, or it ends and the
/// message is added after it.
pub(super) fn put(tables: &dyn Tables, message: &PutMessage, change: &mut Change) -> Result<Put, Error> {
    if let Some(known) = tables.message_by_key(&message.key)? {
        let id = known.id;
        if !known.message.draft {
            return Ok(Put { id, created: false });
        }
        if !must_follow(tables, &known, message)? {
            rewrite(tables, known, message, change)?;
            return Ok(Put { id, created: false });
        }
        let key = format!("{}:{id}", known.message.key);
        let ended = PutMessage { draft: false, key, ..known.message.clone() };
        rewrite(tables, known, &ended, change)?;
    }
    let id = tables.insert_message(message, change.now)?;
    publish(&message.connector, id, MessageState::Pending, change);
    Ok(Put { id, created: true })
}

/// Returns whether a message must follow a draft instead of replacing its text. That is so if its text does not continue that of the draft,
/// and another message, such as a request for an approval, follows the draft. A reader of the chat would not notice the new text above that
/// message.
fn must_follow(tables: &dyn Tables, known: &MessageRow, message: &PutMessage) -> Result<bool, Error> {
    let continues = message.text.trim().starts_with(known.message.text.trim());
    Ok(!continues && known.state != MessageState::Failed && tables.has_later_message(known.id)?)
}

/// Replaces the text of a draft. The time before which it is not sent is kept, because the platform may have requested that pause.
fn rewrite(tables: &dyn Tables, known: MessageRow, message: &PutMessage, change: &mut Change) -> Result<(), Error> {
    // If the platform has refused a draft, it is sent again only when its text is final.
    if message.draft && (known.message == *message || known.state == MessageState::Failed) {
        return Ok(());
    }
    // The time limit for sending the final text begins now, no matter how long the turn took.
    let is_whole = !message.draft;
    tables.rewrite_message(known.id, message, if is_whole { change.now } else { known.created_at })?;
    let shown = known.shown.unwrap_or_default();
    let next = MessageRow {
        shown: Some(DisplayedMessage { revision: shown.revision + 1, ..shown }),
        tries: if is_whole { 0 } else { known.tries },
        state: match known.state {
            MessageState::Sending => MessageState::Sending,
            _ => MessageState::Pending,
        },
        ..known
    };
    tables.update_message(&next)?;
    change.push(Effect::Outgoing);
    Ok(())
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
    let mut text = text(found, ending, answer);
    let sources = ending.result.map(|result| CitedSource::lines(&result.sources)).filter(|lines| !lines.is_empty());
    if let (Some(text), Some(sources), Outcome::Completed) = (&mut text, sources, ending.outcome()) {
        *text = format!("{}\n\n{sources}", text.trim_end());
    }
    let Some(message) = to_chat(tables, found, text.unwrap_or_default())? else {
        return Ok(());
    };
    if !message.text.is_empty() {
        return put(tables, &message, change).map(drop);
    }
    // The turn has no final text, so the text that the chat shows becomes final.
    match tables.message_by_key(&message.key)? {
        Some(shown) if shown.message.draft => {
            put(tables, &PutMessage { draft: false, ..shown.message }, change).map(drop)
        }
        _ => Ok(()),
    }
}

/// Returns what a turn has written after the position `read`; `None` if its prompt did not come from a chat.
pub(super) fn draft(tables: &dyn Tables, found: &SubmissionRow, read: ReadUpTo) -> Result<Option<Draft>, Error> {
    let Some(answer) = to_chat(tables, found, String::new())? else {
        return Ok(None);
    };
    let log = tables.log_by_key(found.stream)?;
    let from = read.position.max(found.recorded_from);
    let to = log.entries.min(from.saturating_add(DRAFT_EVENTS));
    let mut written = Written::of(found.id.clone(), read.is_new);
    tables.entries(log.key, from, to, &mut |event| {
        written.add_event(event);
        true
    })?;
    Ok(Some(Draft {
        submission_id: found.id.clone(),
        read: ReadUpTo { position: to, is_new: written.is_new },
        has_more: to < log.entries,
        begins: written.begins,
        text: written.text,
        answer,
    }))
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
        key: format!("{}:answer", event.id),
        ..PutMessage::default()
    }))
}

/// Returns the text that the chat gets at the end of a turn; `None` if there is none.
fn text(found: &SubmissionRow, ending: &Ending<'_>, answer: &str) -> Option<String> {
    let why = ending.error.as_ref().map(|error| error.message.as_str());
    let text = match (found.kind, ending.outcome()) {
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

/// Returns the messages that can be sent now, and the time at which the next one can be sent.
pub(crate) fn due(
    tables: &dyn Tables,
    args: &DueMessages,
    now: Timestamp,
) -> Result<(DueList, Option<Timestamp>), Error> {
    let heads = tables.next_messages(&args.connector)?;
    let free = heads.into_iter().filter(|(id, _)| !args.held.contains(id));
    let (ready, later): (Vec<_>, Vec<_>) = free.partition(|(_, at)| *at <= now);
    // A draft that gets a new text may be older than a message of its chat that is being sent. It still has to wait for that message.
    let mut busy = BTreeSet::new();
    for id in &args.held {
        busy.extend(tables.message(*id)?.map(|row| row.message.chat_id));
    }
    let mut messages = Vec::new();
    for (id, _) in ready {
        if messages.len() == args.max as usize {
            break;
        }
        if let Some(row) = tables.message(id)?.filter(|row| !busy.contains(&row.message.chat_id)) {
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
        edited_id: edited.and_then(|edited| edited.message_id),
        shown: row.shown,
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
    if next.is_live() || next.message.draft {
        change.push(Effect::Outgoing);
    } else {
        let connector = &next.message.connector;
        tables.count_up(&format!("outbox.{connector}.{}", next.state.name()))?;
        publish(connector, next.id, next.state, change);
    }
    Ok(Nothing {})
}

impl Write for OutboxShow {
    fn run(tables: &dyn Tables, args: &ShowMessage, change: &mut Change) -> Result<Nothing, Error> {
        let row = by_id(tables, args.id)?;
        if args.end.is_some() && !row.is_live() {
            return Ok(Nothing {});
        }
        let Some(known) = row.shown.clone().filter(|_| row.is_live()) else {
            let message = format!("message {} is no draft that waits to be sent", args.id);
            return Err(Error::conflict(message));
        };
        let row = MessageRow { shown: Some(DisplayedMessage { pieces: args.pieces.clone(), ..known }), ..row };
        let Some(end) = &args.end else {
            tables.update_message(&MessageRow { state: MessageState::Sending, ..row })?;
            return Ok(Nothing {});
        };
        note_error(tables, &row.message.connector, error_of(end))?;
        let is_newest = args.revision == known.revision;
        finish(tables, &after_edit(row, end, is_newest, change.now), change)
    }
}

/// Returns the new state of a message that is or was a draft, after an attempt to send it has ended with `end`. `is_newest` says whether
/// that attempt sent its newest text.
fn after_edit(row: MessageRow, end: &PieceEnd, is_newest: bool, now: Timestamp) -> MessageRow {
    let is_over = is_over(&row, now);
    let is_doubtful = row.shown.iter().flat_map(|shown| &shown.pieces).any(|piece| piece.message_id.is_none());
    let mut next = MessageRow {
        error: error_of(end).map(str::to_owned).or(row.error.clone()),
        tries: 0,
        due_at: now.plus_millis(DRAFT_MS),
        ..row
    };
    next.state = match end {
        PieceEnd::Later { after_ms, .. } if !is_over => {
            next.tries = row.tries + 1;
            next.due_at = later(now, *after_ms);
            MessageState::Pending
        }
        _ if !is_newest => MessageState::Pending,
        PieceEnd::Later { .. } | PieceEnd::Failed { .. } => MessageState::Failed,
        _ if is_doubtful && !next.message.draft => MessageState::Unknown,
        _ => MessageState::Sent,
    };
    next
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
                next.message_id.clone_from(message_id);
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
