//! One piece of a message: the request that sends it, and its outcome.

use ken_types::ops::outbox::{AttemptPiece, OutboxAttempt, PieceEnd, PutMessage};
use serde_json::{Value, json};

use crate::api::{Api, CALL_TIMEOUT, CallOutcome, id};
use crate::app::{ATTEMPT_TIMEOUT, App};
use crate::html::html;
use crate::split::{PIECE_UNITS, units};

/// The first and the longest wait between attempts while the platform is down.
const FIRST_PAUSE_MS: u64 = 1_000;
const LONGEST_PAUSE_MS: u64 = 60_000;
/// The wait after a rate limit that names no time.
const RATE_PAUSE_S: u64 = 5;
/// The error of a piece whose outcome a crash has left unknown.
pub(crate) const OUTCOME_UNKNOWN: &str = "the connector ended while the message was on its way";

pub(crate) struct Piece<'a> {
    pub(crate) message: &'a PutMessage,
    pub(crate) text: &'a str,
    /// The id of the platform's message to edit; `None` sends a new message.
    pub(crate) edited: Option<&'a str>,
    pub(crate) is_first: bool,
    /// Whether it has the buttons of the message.
    pub(crate) has_buttons: bool,
    /// The number of failed attempts so far.
    pub(crate) tries: u32,
}

/// Marks a piece in the store as one that is about to be sent. Returns false if the store does not do so in time: the platform closes a
/// connection that waits for its request too long.
async fn mark(app: &App, attempt: &AttemptPiece) -> bool {
    app.store.change::<OutboxAttempt>(attempt, ATTEMPT_TIMEOUT, ATTEMPT_TIMEOUT).await.is_ok()
}

/// Sends one piece: as HTML, and as plain text where the platform refuses that.
pub(crate) async fn send(app: &App, api: &Api, piece: &Piece<'_>, attempt: &AttemptPiece) -> PieceEnd {
    let (method, mut fields) = request(piece);
    let formatted = html(piece.text);
    // The limit counts the text without its tags.
    if !formatted.is_empty() && visible(&formatted) <= PIECE_UNITS {
        let mut fields = fields.clone();
        fields["text"] = formatted.into();
        fields["parse_mode"] = "HTML".into();
        match api.call_after(method, fields, CALL_TIMEOUT, mark(app, attempt)).await {
            CallOutcome::Refused(refusal) if refusal.code == 400 && !is_unchanged(&refusal.description) => {}
            answer => return end(answer, piece.tries),
        }
    }
    fields["text"] = piece.text.into();
    end(api.call_after(method, fields, CALL_TIMEOUT, mark(app, attempt)).await, piece.tries)
}

/// The method and its fields other than the text.
fn request(piece: &Piece<'_>) -> (&'static str, Value) {
    let PutMessage { chat_id, thread_id, reply_to, business_id, buttons, .. } = piece.message;
    let mut fields = json!({"chat_id": id(chat_id), "link_preview_options": {"is_disabled": true}});
    if let Some(business) = business_id {
        fields["business_connection_id"] = business.as_str().into();
    }
    if let (Some(buttons), true) = (buttons, piece.has_buttons) {
        fields["reply_markup"] = json!({"inline_keyboard": keyboard(buttons)});
    }
    if let Some(edited) = piece.edited {
        fields["message_id"] = id(edited);
        return ("editMessageText", fields);
    }
    if let Some(thread) = thread_id {
        fields["message_thread_id"] = id(thread);
    }
    if let (Some(message), true) = (reply_to, piece.is_first) {
        let reply = json!({"message_id": id(message), "allow_sending_without_reply": true});
        fields["reply_parameters"] = reply;
    }
    ("sendMessage", fields)
}

fn keyboard(rows: &Value) -> Vec<Vec<Value>> {
    let button = |button: &Value| json!({"text": button.get("text"), "callback_data": button.get("data")});
    let row = |row: &Value| row.as_array().into_iter().flatten().map(button).collect();
    rows.as_array().into_iter().flatten().map(row).collect()
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

/// The outcome of a request after `tries` failed attempts.
pub(crate) fn end(answer: CallOutcome, tries: u32) -> PieceEnd {
    let error = answer.error().unwrap_or_default();
    match answer {
        CallOutcome::Done(result) => {
            PieceEnd::Sent { message_id: result.get("message_id").and_then(Value::as_i64).map(|id| id.to_string()) }
        }
        CallOutcome::NoResponse(_) => PieceEnd::Unknown { error },
        CallOutcome::NotSent(_) => PieceEnd::Later { after_ms: pause_ms(tries), error },
        CallOutcome::Refused(refusal) if refusal.code == 429 => {
            PieceEnd::Later { after_ms: refusal.retry_after.unwrap_or(RATE_PAUSE_S).saturating_mul(1_000), error }
        }
        CallOutcome::Refused(refusal) if refusal.code >= 500 => PieceEnd::Later { after_ms: pause_ms(tries), error },
        CallOutcome::Refused(refusal) if is_unchanged(&refusal.description) => PieceEnd::Sent { message_id: None },
        CallOutcome::Refused(_) => PieceEnd::Failed { error },
    }
}

/// The pause before the next attempt, in milliseconds.
pub(crate) fn pause_ms(tries: u32) -> u64 {
    (FIRST_PAUSE_MS << tries.min(10)).min(LONGEST_PAUSE_MS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Refusal;

    fn refused(code: i64, retry_after: Option<u64>) -> PieceEnd {
        let refusal = Refusal { code, description: "no".into(), retry_after };
        end(CallOutcome::Refused(refusal), 2)
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
        assert_eq!(later(&end(CallOutcome::NotSent("x".into()), 30)), Some(60_000));
        assert!(matches!(refused(403, None), PieceEnd::Failed { .. }));
        assert!(matches!(end(CallOutcome::NoResponse("x".into()), 0), PieceEnd::Unknown { .. }));
        let sent = end(CallOutcome::Done(json!({"message_id": 5})), 0);
        assert_eq!(sent, PieceEnd::Sent { message_id: Some("5".into()) });
    }

    #[test]
    fn tags_do_not_count() {
        assert_eq!(visible("<b>a</b> &lt;b&gt;"), 5);
        assert_eq!(visible("<a href=\"x?a=1&amp;b\">c</a>;"), 2);
        assert_eq!(visible("\u{1F600}"), 2);
    }

    #[test]
    fn the_first_piece_replies_and_the_last_has_the_buttons() {
        let message = PutMessage {
            chat_id: "-100".into(),
            thread_id: Some("9".into()),
            reply_to: Some("5".into()),
            buttons: Some(json!([[{"text": "Yes", "data": "t"}]])),
            ..PutMessage::default()
        };
        let piece = |is_first, has_buttons| Piece {
            message: &message,
            text: "",
            edited: None,
            is_first,
            has_buttons,
            tries: 0,
        };
        let (method, first) = request(&piece(true, false));
        assert_eq!((method, &first["chat_id"], &first["message_thread_id"]), ("sendMessage", &json!(-100), &json!(9)));
        assert_eq!(first["reply_parameters"]["message_id"], 5);
        assert!(first.get("reply_markup").is_none());
        let (_, last) = request(&piece(false, true));
        assert_eq!(last["reply_markup"]["inline_keyboard"][0][0]["callback_data"], "t");
        assert!(last.get("reply_parameters").is_none());
    }
}
