//! The operations of `ken-store` on the outbox: messages on their way to a chat. A message is stored before anything is
//! sent, and every piece of it is marked before it leaves, so that a crash in between is known afterwards.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Nothing;
use crate::Timestamp;

crate::operations! {
    /// Adds a message, unless one with its key is there. A draft that is there takes the new text.
    OutboxPut, "outbox.put": PutMessage => Put;
    /// The oldest unfinished message of each chat, if it may be sent now. Waits for one, at most `wait_ms`.
    OutboxDue, "outbox.due": DueMessages => Due;
    /// A piece is about to be sent. `conflict` when it is not the message's next piece.
    OutboxAttempt, "outbox.attempt": AttemptPiece => Nothing;
    /// Settles a piece. A repeat changes nothing.
    OutboxSettle, "outbox.settle": SettlePiece => Nothing;
    /// Records what the platform shows of a message that is or was a draft: before each piece that is sent, and at the end.
    OutboxShow, "outbox.show": ShowMessage => Nothing;
    /// The newest messages, without their texts.
    OutboxList, "outbox.list": ListMessages => MessageList;
}

/// A message to a chat. Whoever puts it decides what it says, and the connector how it is sent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PutMessage {
    /// `messenger`.
    pub connector: String,
    pub chat_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// The message of the platform that the first piece replies to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// The business connection in whose name it is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub business_id: Option<String>,
    /// Markdown, not blank, at most 1 MiB.
    pub text: String,
    /// Rows of buttons below the last piece: `[[{"text","data"}]]`, with `data` of at most 64 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buttons: Option<Value>,
    /// The key of an earlier message, whose last piece this one replaces. When that was never sent, nor is this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edits: Option<String>,
    /// Whether the text is still being written. A later message with its key replaces the text, and the first that is no draft
    /// is the last.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draft: bool,
    /// 1 to 255 characters, unique to the message: the same key is the same message.
    pub key: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Put {
    pub id: i64,
    /// Whether this call has added it.
    pub created: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DueMessages {
    pub connector: String,
    /// 1 to 64.
    pub max: u32,
    /// Messages that the caller is sending already.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<i64>,
    #[serde(default)]
    pub wait_ms: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Due {
    pub messages: Vec<DueMessage>,
}

/// A message that may be sent now, from piece `piece` on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DueMessage {
    pub id: i64,
    pub message: PutMessage,
    /// Pieces before it are done.
    pub piece: u32,
    /// Whether the piece was marked and not settled. If the caller is not sending it, a crash has left it so.
    pub in_doubt: bool,
    /// Failed attempts at this piece.
    pub tries: u32,
    /// The platform's id of the message that [`PutMessage::edits`] names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited_id: Option<String>,
    /// Set for a message that is or was a draft, which is sent with `outbox.show` instead of piece by piece.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<Shown>,
}

/// What the platform shows of a message whose text changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// Counts the texts that the message has had.
    pub revision: u64,
    pub pieces: Vec<ShownPiece>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownPiece {
    /// The platform's id. `None` while it is being sent, and when it is not known whether it arrived.
    pub message_id: Option<String>,
    /// Of its text.
    pub digest: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShowMessage {
    pub id: i64,
    /// The revision that is being shown.
    pub revision: u64,
    pub pieces: Vec<ShownPiece>,
    /// How it has ended; `None` before a piece without an id is sent. `Sent` when the platform shows the whole text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<PieceEnd>,
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
    /// It was the message's last piece.
    pub last: bool,
    pub end: PieceEnd,
}

/// How sending a piece has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PieceEnd {
    /// The platform has it, under this id.
    Sent { message_id: Option<String> },
    /// It was not accepted, and is tried again after this time. A day after the message was put, it counts as failed instead.
    Later { after_ms: u64, error: String },
    /// The platform refuses it. The rest of the message is not sent.
    Failed { error: String },
    /// It is not known whether the platform has it. It is not sent again; the rest of the message is sent.
    Unknown { error: String },
}

/// The states of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageState {
    Pending,
    /// A piece is being sent.
    Sending,
    Sent,
    Failed,
    /// At least one of its pieces may or may not have arrived.
    Unknown,
}

impl MessageState {
    pub fn name(self) -> &'static str {
        match self {
            MessageState::Pending => "pending",
            MessageState::Sending => "sending",
            MessageState::Sent => "sent",
            MessageState::Failed => "failed",
            MessageState::Unknown => "unknown",
        }
    }

    pub fn of(name: &str) -> MessageState {
        match name {
            "pending" => MessageState::Pending,
            "sending" => MessageState::Sending,
            "sent" => MessageState::Sent,
            "unknown" => MessageState::Unknown,
            _ => MessageState::Failed,
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListMessages {
    pub connector: String,
    /// 1 to 100.
    pub limit: u32,
}

/// Newest first.
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

/// The number of messages in each state. Finished ones stay counted after they are deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxCounts {
    pub pending: u64,
    pub sent: u64,
    pub failed: u64,
    pub unknown: u64,
}
