//! Sends an answer while it is being written, and edits the messages as its text grows.
//!
//! The store records which of the platform's messages shows which piece of the text. A piece that has changed is edited, and an
//! additional piece is sent as a new message. An edit may be repeated after a crash, but a new message may not: like any other, it
//! is marked in the store before it is sent. If its outcome is unknown, nothing more is sent until the answer is complete. Then the
//! piece is sent as a new message, unless it is exactly the text whose outcome is unknown.

use ken_service::Stop;
use ken_types::hex;
use ken_types::ops::outbox::{DisplayedMessage, DisplayedPiece, DueMessage, OutboxShow, PieceEnd, ShowMessage};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::api::{Api, CALL_TIMEOUT, id};
use crate::app::App;
use crate::piece::{Mark, OUTCOME_UNKNOWN, Piece, end, pause_ms, send};
use crate::split::{PIECE_UNITS, split};

/// The length of a stored digest, in bytes.
const DIGEST_BYTES: usize = 16;

/// Brings the platform's messages up to date with the text, and records the outcome in the store.
pub(crate) async fn show(app: &App, api: &Api, due: &DueMessage, shown: DisplayedMessage, stop: &Stop) {
    let mut pieces = shown.pieces;
    let end = update(app, api, due, shown.revision, &mut pieces).await;
    if let PieceEnd::Failed { error } | PieceEnd::Unknown { error } | PieceEnd::Later { error, .. } = &end {
        tracing::warn!(message = due.id, "not shown: {error}");
    }
    let args = ShowMessage { id: due.id, revision: shown.revision, pieces, end: Some(end) };
    if let Err(error) = app.change_until_done::<OutboxShow>(&args, stop).await {
        tracing::error!(message = due.id, "the outcome is not recorded: {error}");
    }
}

/// Edits, sends and deletes messages until the platform shows the text, and records in `pieces` what it shows. Stops at the first
/// piece that is not accepted.
async fn update(app: &App, api: &Api, due: &DueMessage, revision: u64, pieces: &mut Vec<DisplayedPiece>) -> PieceEnd {
    let texts = split(&due.message.text, PIECE_UNITS);
    let mut ended = PieceEnd::Sent { message_id: None };
    for (number, text) in texts.iter().enumerate() {
        let digest = digest(text);
        let new = |message_id| Some(DisplayedPiece { message_id, digest: digest.clone() });
        let piece = |edited| Piece {
            message: &due.message,
            text,
            edited,
            is_first: number == 0,
            has_buttons: number + 1 == texts.len(),
            tries: due.tries,
        };
        let known = pieces.get(number).cloned();
        let is_unchanged = known.as_ref().is_some_and(|known| known.digest == digest);
        match known.as_ref().map(|known| known.message_id.as_deref()) {
            Some(None) if due.message.draft => return ended,
            Some(None) if is_unchanged => {
                ended = PieceEnd::Unknown { error: OUTCOME_UNKNOWN.to_owned() };
                continue;
            }
            Some(Some(_)) if is_unchanged => continue,
            Some(Some(id)) => match repeatable(send(api, &piece(Some(id)), &Mark::Edit).await, due.tries) {
                later @ PieceEnd::Later { .. } => return later,
                // Otherwise a platform that refuses edits would get a new message for each revision.
                failed @ PieceEnd::Failed { .. } if due.message.draft => return failed,
                // Most likely somebody has deleted the message, so the piece is sent again.
                PieceEnd::Failed { .. } => {}
                _ => {
                    set(pieces, number, new(Some(id.to_owned())));
                    continue;
                }
            },
            _ => {}
        }
        set(pieces, number, new(None));
        let mark = ShowMessage { id: due.id, revision, pieces: pieces.clone(), end: None };
        match send(api, &piece(None), &Mark::Show(app, mark)).await {
            PieceEnd::Sent { message_id } => set(pieces, number, new(message_id)),
            unknown @ PieceEnd::Unknown { .. } => ended = unknown,
            not_sent => {
                set(pieces, number, known);
                return not_sent;
            }
        }
    }
    delete_from(api, due, texts.len(), pieces).await.unwrap_or(ended)
}

/// Replaces or appends a piece; `None` removes the last one.
fn set(pieces: &mut Vec<DisplayedPiece>, number: usize, piece: Option<DisplayedPiece>) {
    match (pieces.get_mut(number), piece) {
        (Some(known), Some(piece)) => *known = piece,
        (None, Some(piece)) => pieces.push(piece),
        (_, None) => pieces.truncate(number),
    }
}

/// Deletes the messages of pieces that a shorter text no longer has. Returns the outcome if a deletion must be retried.
async fn delete_from(api: &Api, due: &DueMessage, count: usize, pieces: &mut Vec<DisplayedPiece>) -> Option<PieceEnd> {
    while pieces.len() > count {
        if let Some(message) = pieces.last().and_then(|piece| piece.message_id.as_deref()) {
            let (method, fields) = match &due.message.business_id {
                Some(business) => (
                    "deleteBusinessMessages",
                    json!({"business_connection_id": business, "message_ids": [id(message)]}),
                ),
                None => ("deleteMessage", json!({"chat_id": id(&due.message.chat_id), "message_id": id(message)})),
            };
            let answer = api.call(method, fields, CALL_TIMEOUT).await;
            let end = repeatable(end(answer, due.tries), due.tries);
            if matches!(end, PieceEnd::Later { .. }) {
                return Some(end);
            }
        }
        pieces.pop();
    }
    None
}

/// The outcome of a call that may be repeated: it is retried if its outcome is unknown.
fn repeatable(end: PieceEnd, tries: u32) -> PieceEnd {
    match end {
        PieceEnd::Unknown { error } => PieceEnd::Later { after_ms: pause_ms(tries), error },
        end => end,
    }
}

fn digest(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    hex::encode(digest.get(..DIGEST_BYTES).unwrap_or(&digest))
}
