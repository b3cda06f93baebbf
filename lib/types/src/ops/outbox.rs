//! The operations of `ken-store` on the outbox: messages to a chat. A message is stored before any of it is sent, and
//! each of its pieces is marked before it is sent. After a crash, the marks show which piece may have been sent.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Nothing;
use crate::Timestamp;

crate::operations! {
    /// Adds a message. If there is already one with the same key, none is added.
    OutboxPut, "outbox.put": PutMessage => Put;
    /// Returns the oldest unfinished message of each chat, if it may be sent now. Waits at most `wait_ms` for one.
    OutboxDue, "outbox.due": DueMessages => DueList;
    /// Marks a piece that is about to be sent. `conflict` if it is not the next piece of its message.
    OutboxAttempt, "outbox.attempt": AttemptPiece => Nothing;
    /// Records the result of sending a piece. A repetition changes nothing.
    OutboxSettle, "outbox.settle": SettlePiece => Nothing;
    /// Returns the newest messages, without their texts.
    OutboxList, "outbox.list": ListMessages => MessageList;
}

/// A message to a chat. The connector decides how it is split and sent.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PutMessage {
    /// The name of the connector: `messenger`.
    pub connector: String,
    pub chat_id: String,
    pub thread_id: Option<String>,
    /// The platform's id of the message to which the first piece replies.
    pub reply_to: Option<String>,
    /// The id of the business connection on whose behalf the message is sent.
    pub business_id: Option<String>,
    /// The text in Markdown, not blank, at most 1 MiB.
    pub text: String,
    /// Rows of buttons below the last piece: `[[{"text","data"}]]`, with `data` of at most 64 bytes.
    pub buttons: Option<Value>,
    /// The key of an earlier message whose last piece this one replaces. If that message was never sent, this one is
    /// not sent either.
    pub edits: Option<String>,
    /// 1 to 255 characters. Messages with the same key are the same message.
    pub key: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Put {
    pub id: i64,
    /// Whether this call added the message.
    pub created: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DueMessages {
    pub connector: String,
    /// The maximum number of messages, 1 to 64.
    pub max: u32,
    /// Ids of messages that the caller is already sending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<i64>,
    #[serde(default)]
    pub wait_ms: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct DueList {
    pub messages: Vec<DueMessage>,
}

/// A message that may be sent now, starting with piece `piece`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DueMessage {
    pub id: i64,
    pub message: PutMessage,
    /// The index of the next piece to send.
    pub piece: u32,
    /// Whether the piece was marked but its result was not recorded. If the caller is not sending it, a crash
    /// interrupted an attempt.
    pub in_doubt: bool,
    /// Whether it is unknown of an earlier piece whether it arrived.
    #[serde(default)]
    pub doubtful: bool,
    /// The number of failed attempts to send this piece.
    pub tries: u32,
    /// The platform's id of the message that [`PutMessage::edits`] names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited_id: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttemptPiece {
    pub id: i64,
    pub piece: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettlePiece {
    pub id: i64,
    pub piece: u32,
    /// Whether this is the last piece of the message.
    pub last: bool,
    pub end: PieceEnd,
}

/// The result of sending a piece.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PieceEnd {
    /// The platform accepted the piece under this id.
    Sent { message_id: Option<String> },
    /// The piece was not accepted, and is sent again after this time. It fails if the message was added more than a day
    /// ago.
    Later { after_ms: u64, error: String },
    /// The platform refused the piece. The rest of the message is not sent.
    Failed { error: String },
    /// It is unknown whether the platform accepted the piece. It is not sent again, but the rest of the message is.
    Unknown { error: String },
}

crate::named! {
    pub enum MessageState {
        Pending = "pending",
        /// A piece is being sent.
        Sending = "sending",
        Sent = "sent",
        Failed = "failed",
        /// It is unknown for at least one piece whether it was sent.
        Unknown = "unknown",
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListMessages {
    pub connector: String,
    /// The maximum number of messages, 1 to 100.
    pub limit: u32,
}

/// The messages, newest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct MessageList {
    pub messages: Vec<MessageRecord>,
}

/// A message without its text.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageRecord {
    pub id: i64,
    pub key: String,
    pub chat_id: String,
    pub state: MessageState,
    pub created_at: Timestamp,
    pub tries: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The number of messages in each state. Finished messages that were deleted still count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxCounts {
    pub pending: u64,
    pub sent: u64,
    pub failed: u64,
    pub unknown: u64,
}
