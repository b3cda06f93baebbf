//! Sends the outbox: the messages of a chat in order, and several chats at a time.
//!
//! Nothing is sent twice. Each piece of a message is marked in the store after the connection is made and before its first byte
//! is sent, and settled when the platform has answered. After a crash, a piece that is marked and not settled has an unknown
//! outcome, and is not sent again. So a crash between the mark and the first byte loses that piece; marking it later could
//! send it twice.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ken_service::Stop;
use ken_types::Error;
use ken_types::ops::Nothing;
use ken_types::ops::messenger::{MessengerState, MessengerStatus};
use ken_types::ops::outbox::{
    AttemptPiece, DueList, DueMessage, DueMessages, OutboxDue, OutboxSettle, PieceEnd, SettlePiece,
};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::api::Api;
use crate::app::{ATTEMPT_TIMEOUT, App, NAME, READ_TIMEOUT, RETRY_PAUSE};
use crate::piece::{OUTCOME_UNKNOWN, Piece, send};
use crate::split::{PIECE_UNITS, split};

/// How many chats are written to at the same time.
const CHATS: usize = 8;
/// How long one call waits for something to send.
const WAIT: Duration = Duration::from_secs(60);
/// The beginning of the keys that the store gives the results of schedules.
const OF_SCHEDULE: &str = "schedule:";

/// Sends until it is told to stop, then finishes the messages under way.
pub(crate) async fn run(app: Arc<App>, api: Api, mut stop: Stop) {
    let mut tasks: JoinSet<i64> = JoinSet::new();
    let mut held = BTreeSet::new();
    loop {
        let free = CHATS.saturating_sub(held.len());
        let due = tokio::select! {
            () = stop.stopped() => break,
            Some(done) = tasks.join_next() => {
                // After a panic of a task, its message stays aside until the next start.
                if let Ok(id) = done {
                    held.remove(&id);
                }
                continue;
            }
            due = claim_due(&app, &held, free), if free > 0 => due,
        };
        for message in due.messages {
            held.insert(message.id);
            let (app, api, stop) = (app.clone(), api.clone(), stop.clone());
            tasks.spawn(async move {
                let id = message.id;
                deliver(&app, &api, message, stop).await;
                id
            });
        }
    }
    while tasks.join_next().await.is_some() {}
}

async fn claim_due(app: &App, held: &BTreeSet<i64>, free: usize) -> DueList {
    let args = DueMessages {
        connector: NAME.to_owned(),
        max: u32::try_from(free).unwrap_or(1),
        held: held.iter().copied().collect(),
        wait_ms: u64::try_from(WAIT.as_millis()).unwrap_or_default(),
    };
    match app.store.call::<OutboxDue>(&args, WAIT + ATTEMPT_TIMEOUT).await {
        Ok(due) => due,
        Err(error) => {
            tracing::debug!("the outbox cannot be read: {error}");
            sleep(RETRY_PAUSE).await;
            DueList::default()
        }
    }
}

/// Sends the remaining pieces of a message, and stops at the first that is not accepted.
async fn deliver(app: &App, api: &Api, due: DueMessage, stop: Stop) {
    let pieces = split(&due.message.text, PIECE_UNITS);
    let count = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
    let mut first = due.piece;
    if let Some(error) = unsendable(&due, &pieces) {
        let error = error.to_owned();
        return settle(app, &due, first, count, PieceEnd::Failed { error }, &stop).await;
    }
    if due.message.key.starts_with(OF_SCHEDULE) && first == 0 && !due.in_doubt {
        match is_admitted(app, &due.message.chat_id).await {
            Ok(true) => {}
            Ok(false) => {
                let error = format!("the conversation {:?} is not admitted any more", due.message.chat_id);
                return settle(app, &due, first, count, PieceEnd::Failed { error }, &stop).await;
            }
            // It stays due.
            Err(_) => return sleep(RETRY_PAUSE).await,
        }
    }
    if due.in_doubt {
        let error = OUTCOME_UNKNOWN.to_owned();
        settle(app, &due, first, count, PieceEnd::Unknown { error }, &stop).await;
        first += 1;
    }
    // A person must not press a button below a text of which a part may be missing.
    let mut is_doubtful = due.doubtful || due.in_doubt;
    for (piece, text) in (0..).zip(&pieces).skip(first as usize) {
        let request = Piece {
            message: &due.message,
            text,
            edited: due.edited_id.as_deref(),
            is_first: piece == 0,
            has_buttons: piece + 1 == count && !is_doubtful,
            tries: due.tries,
        };
        let end = send(app, api, &request, &AttemptPiece { id: due.id, piece }).await;
        let goes_on = matches!(end, PieceEnd::Sent { .. } | PieceEnd::Unknown { .. });
        is_doubtful |= matches!(end, PieceEnd::Unknown { .. });
        settle(app, &due, piece, count, end, &stop).await;
        if !goes_on {
            return;
        }
    }
}

/// Whether somebody may still speak with the agent in a chat. A schedule can outlive that.
async fn is_admitted(app: &App, chat: &str) -> Result<bool, Error> {
    let MessengerState { allowed_users, groups, .. } =
        app.store.call::<MessengerStatus>(&Nothing {}, READ_TIMEOUT).await?;
    let is_stored =
        allowed_users.iter().any(|user| user.chat_id == chat) || groups.iter().any(|group| group.group_id == chat);
    Ok(is_stored || app.settings.users.iter().any(|user| user == chat))
}

/// The reason why no part of a message can be sent, if there is one.
fn unsendable(due: &DueMessage, pieces: &[String]) -> Option<&'static str> {
    if pieces.is_empty() {
        return Some("the message has no text");
    }
    let is_edit = due.message.edits.is_some();
    (is_edit && due.edited_id.is_none()).then_some("the message that this one replaces was not sent")
}

async fn settle(app: &App, due: &DueMessage, piece: u32, count: u32, end: PieceEnd, stop: &Stop) {
    if let PieceEnd::Failed { error } | PieceEnd::Unknown { error } | PieceEnd::Later { error, .. } = &end {
        tracing::warn!(message = due.id, piece, "not sent: {error}");
    }
    let args = SettlePiece { id: due.id, piece, last: piece + 1 >= count, end };
    if let Err(error) = app.change_until_done::<OutboxSettle>(&args, stop).await {
        tracing::error!(message = due.id, piece, "the outcome is not recorded: {error}");
    }
}
