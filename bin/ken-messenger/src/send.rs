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
use ken_types::ops::Op;
use ken_types::ops::outbox::{
    AttemptPiece, Due, DueMessage, DueMessages, OutboxAttempt, OutboxDue, OutboxSettle, PieceEnd, PutMessage,
    SettlePiece,
};
use ken_types::{Code, Error};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::api::{Answer, Api, CALL};
use crate::app::{App, CHANGE, NAME, TRY};
use crate::html::html;
use crate::split::{PIECE_UNITS, split, units};

/// How many chats are written to at the same time.
const CHATS: usize = 8;
/// How long one call waits for something to send.
const WAIT: Duration = Duration::from_secs(60);
/// How long to wait after a failed call of the store.
const PAUSE: Duration = Duration::from_millis(200);
/// The first and the longest wait between attempts while the platform is down.
const FIRST_PAUSE_MS: u64 = 1_000;
const LONGEST_PAUSE_MS: u64 = 60_000;
/// The wait after a rate limit that names no time.
const RATE_PAUSE_S: u64 = 5;

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
            due = due(&app, &held, free), if free > 0 => due,
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

async fn due(app: &App, held: &BTreeSet<i64>, free: usize) -> Due {
    let args = DueMessages {
        connector: NAME.to_owned(),
        max: u32::try_from(free).unwrap_or(1),
        held: held.iter().copied().collect(),
        wait_ms: u64::try_from(WAIT.as_millis()).unwrap_or_default(),
    };
    match app.store.call::<OutboxDue>(&args, WAIT + TRY).await {
        Ok(due) => due,
        Err(error) => {
            tracing::debug!("the outbox cannot be read: {error}");
            sleep(PAUSE).await;
            Due::default()
        }
    }
}

/// Sends the remaining pieces of a message, and stops at the first that is not accepted.
async fn deliver(app: &App, api: &Api, due: DueMessage, stop: Stop) {
    let pieces = split(&due.message.text, PIECE_UNITS);
    let count = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
    let mut first = due.piece;
    if due.in_doubt {
        let error = "the connector ended while the message was on its way".to_owned();
        settle(app, &due, first, count, PieceEnd::Unknown { error }, &stop).await;
        first += 1;
    }
    for (piece, text) in (0..).zip(&pieces).skip(first as usize) {
        let mark = Mark(app, AttemptPiece { id: due.id, piece });
        let end = send(api, &due, text, (piece == 0, piece + 1 == count), &mark).await;
        let goes_on = matches!(end, PieceEnd::Sent { .. } | PieceEnd::Unknown { .. });
        settle(app, &due, piece, count, end, &stop).await;
        if !goes_on {
            return;
        }
    }
}

async fn settle(app: &App, due: &DueMessage, piece: u32, count: u32, end: PieceEnd, stop: &Stop) {
    if let PieceEnd::Failed { error } | PieceEnd::Unknown { error } | PieceEnd::Later { error, .. } = &end {
        tracing::warn!(message = due.id, piece, "not sent: {error}");
    }
    let args = SettlePiece {
        id: due.id,
        piece,
        last: piece + 1 >= count,
        end,
    };
    if let Err(error) = surely::<OutboxSettle>(app, &args, stop).await {
        tracing::error!(message = due.id, piece, "the outcome is not recorded: {error}");
    }
}

/// Makes a change, and retries for as long as the store is away, so that the known outcome of a message is not lost.
async fn surely<O: Op>(app: &App, args: &O::Args, stop: &Stop) -> Result<O::Reply, Error> {
    loop {
        match app.store.change::<O>(args, TRY, CHANGE).await {
            Err(error) if may_pass(&error) && !stop.is_stopped() => sleep(PAUSE).await,
            result => return result,
        }
    }
}

fn may_pass(error: &Error) -> bool {
    matches!(
        error.code,
        Code::Unavailable | Code::Deadline | Code::Busy | Code::Cancelled
    )
}

/// The mark of a piece that is about to be sent.
struct Mark<'a>(&'a App, AttemptPiece);

impl Mark<'_> {
    /// False when the store does not have it in time: a connection that is kept waiting for long is closed by the other side.
    async fn set(&self) -> bool {
        let marked = self.0.store.change::<OutboxAttempt>(&self.1, TRY, TRY).await;
        marked.is_ok()
    }
}

/// Sends one piece: as HTML, and as plain text where the platform refuses that.
async fn send(api: &Api, due: &DueMessage, text: &str, place: (bool, bool), mark: &Mark<'_>) -> PieceEnd {
    let Some((method, mut fields)) = request(due, place) else {
        let error = "the message that this one replaces was not sent".to_owned();
        return PieceEnd::Failed { error };
    };
    let formatted = html(text);
    let with = |fields: &mut Value, name: &str, value: Value| {
        if let Some(fields) = fields.as_object_mut() {
            fields.insert(name.to_owned(), value);
        }
    };
    // The limit counts the text without its tags.
    if !formatted.is_empty() && visible(&formatted) <= PIECE_UNITS {
        let mut fields = fields.clone();
        with(&mut fields, "text", formatted.into());
        with(&mut fields, "parse_mode", "HTML".into());
        match api.call_after(method, fields, CALL, mark.set()).await {
            Answer::Refused(refusal) if refusal.code == 400 && !is_unchanged(&refusal.description) => {}
            answer => return end(answer, due.tries),
        }
    }
    with(&mut fields, "text", text.into());
    end(api.call_after(method, fields, CALL, mark.set()).await, due.tries)
}

/// The method and its fields other than the text; `None` when there is nothing to edit.
fn request(due: &DueMessage, (is_first, is_last): (bool, bool)) -> Option<(&'static str, Value)> {
    let PutMessage {
        chat_id,
        thread_id,
        reply_to,
        business_id,
        buttons,
        edits,
        ..
    } = &due.message;
    let mut fields = json!({"chat_id": id(chat_id), "link_preview_options": {"is_disabled": true}});
    let mut with = |name: &str, value: Value| {
        if let Some(fields) = fields.as_object_mut() {
            fields.insert(name.to_owned(), value);
        }
    };
    if let Some(business) = business_id {
        with("business_connection_id", business.as_str().into());
    }
    if let (Some(buttons), true) = (buttons, is_last) {
        with("reply_markup", json!({"inline_keyboard": keyboard(buttons)}));
    }
    if edits.is_some() {
        with("message_id", id(due.edited_id.as_deref()?));
        return Some(("editMessageText", fields));
    }
    if let Some(thread) = thread_id {
        with("message_thread_id", id(thread));
    }
    if let (Some(message), true) = (reply_to, is_first) {
        with(
            "reply_parameters",
            json!({"message_id": id(message), "allow_sending_without_reply": true}),
        );
    }
    Some(("sendMessage", fields))
}

fn keyboard(rows: &Value) -> Vec<Vec<Value>> {
    let button = |button: &Value| json!({"text": button.get("text"), "callback_data": button.get("data")});
    let row = |row: &Value| row.as_array().into_iter().flatten().map(button).collect();
    rows.as_array().into_iter().flatten().map(row).collect()
}

/// The chat as the platform takes it: an id as a number, the name of a channel as a string.
fn id(text: &str) -> Value {
    text.parse::<i64>().map_or_else(|_| text.into(), Value::from)
}

/// The length of a page without its tags, with entities as one character.
fn visible(html: &str) -> usize {
    let mut inside = (false, false);
    let shown = |letter: &char| {
        match letter {
            '<' => inside.0 = true,
            '&' => inside.1 = true,
            '>' => {
                inside.0 = false;
                return false;
            }
            ';' if inside.1 => {
                inside.1 = false;
                return !inside.0;
            }
            _ => {}
        }
        !inside.0 && !inside.1
    };
    units(&html.chars().filter(shown).collect::<String>())
}

/// Whether the platform refused an edit because it changes nothing; then it counts as done.
fn is_unchanged(description: &str) -> bool {
    description.contains("message is not modified")
}

fn end(answer: Answer, tries: u32) -> PieceEnd {
    let error = answer.error().unwrap_or_default();
    match answer {
        Answer::Done(result) => PieceEnd::Sent {
            message_id: result
                .get("message_id")
                .and_then(Value::as_i64)
                .map(|id| id.to_string()),
        },
        Answer::Unheard(_) => PieceEnd::Unknown { error },
        Answer::NotSent(_) => PieceEnd::Later {
            after_ms: pause_ms(tries),
            error,
        },
        Answer::Refused(refusal) if refusal.code == 429 => PieceEnd::Later {
            after_ms: refusal.retry_after.unwrap_or(RATE_PAUSE_S).saturating_mul(1_000),
            error,
        },
        Answer::Refused(refusal) if refusal.code >= 500 => PieceEnd::Later {
            after_ms: pause_ms(tries),
            error,
        },
        Answer::Refused(refusal) if is_unchanged(&refusal.description) => PieceEnd::Sent { message_id: None },
        Answer::Refused(_) => PieceEnd::Failed { error },
    }
}

fn pause_ms(tries: u32) -> u64 {
    (FIRST_PAUSE_MS << tries.min(10)).min(LONGEST_PAUSE_MS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Refusal;

    fn refused(code: i64, retry_after: Option<u64>) -> PieceEnd {
        let refusal = Refusal {
            code,
            description: "no".into(),
            retry_after,
        };
        end(Answer::Refused(refusal), 2)
    }

    #[test]
    fn what_is_tried_again() {
        let later = |end: &PieceEnd| match end {
            PieceEnd::Later { after_ms, .. } => Some(*after_ms),
            _ => None,
        };
        assert_eq!(later(&refused(429, Some(7))), Some(7_000));
        assert_eq!(later(&refused(429, None)), Some(5_000));
        assert_eq!(later(&refused(502, None)), Some(4_000));
        assert_eq!(later(&end(Answer::NotSent("x".into()), 30)), Some(60_000));
        assert!(matches!(refused(403, None), PieceEnd::Failed { .. }));
        assert!(matches!(
            end(Answer::Unheard("x".into()), 0),
            PieceEnd::Unknown { .. }
        ));
        let sent = end(Answer::Done(json!({"message_id": 5})), 0);
        assert_eq!(
            sent,
            PieceEnd::Sent {
                message_id: Some("5".into())
            }
        );
    }

    #[test]
    fn tags_do_not_count() {
        assert_eq!(visible("<b>a</b> &lt;b&gt;"), 5);
        assert_eq!(visible("<a href=\"x?a=1&amp;b\">c</a>;"), 2);
        assert_eq!(visible("\u{1F600}"), 2);
    }

    #[test]
    fn the_first_piece_replies_and_the_last_has_the_buttons() {
        let due = DueMessage {
            id: 1,
            piece: 0,
            in_doubt: false,
            tries: 0,
            edited_id: None,
            message: PutMessage {
                chat_id: "-100".into(),
                thread_id: Some("9".into()),
                reply_to: Some("5".into()),
                buttons: Some(json!([[{"text": "Yes", "data": "t"}]])),
                ..PutMessage::default()
            },
        };
        let (method, first) = request(&due, (true, false)).unwrap();
        assert_eq!(
            (method, &first["chat_id"], &first["message_thread_id"]),
            ("sendMessage", &json!(-100), &json!(9))
        );
        assert_eq!(first["reply_parameters"]["message_id"], 5);
        assert!(first.get("reply_markup").is_none());
        let (_, last) = request(&due, (false, true)).unwrap();
        assert_eq!(
            last["reply_markup"]["inline_keyboard"][0][0]["callback_data"],
            "t"
        );
        assert!(last.get("reply_parameters").is_none());
    }
}
