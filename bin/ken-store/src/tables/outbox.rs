//! Messages to chats.

use ken_types::ops::outbox::{MessageRecord, MessageState, PutMessage};
use ken_types::{Error, Timestamp};

use super::Tables;
use super::columns::{stored, to_json, word};
use super::sql::{Row, all, first, params, unique};

#[derive(Debug, Clone)]
pub struct MessageRow {
    pub id: i64,
    pub message: PutMessage,
    pub state: MessageState,
    /// The number of the piece that is sent next.
    pub piece: u32,
    /// Whether it is unknown if an earlier piece was sent.
    pub doubtful: bool,
    pub tries: u32,
    /// The time from which it can be sent; for a finished message, the time when it was finished.
    pub due_at: Timestamp,
    pub created_at: Timestamp,
    /// The ids that the platform gave to the pieces, in order. The column `message_id` has them with blanks between.
    pub message_ids: Vec<String>,
    pub error: Option<String>,
}

impl MessageRow {
    /// Returns whether a part of the message still has to be sent.
    pub fn is_live(&self) -> bool {
        matches!(self.state, MessageState::Pending | MessageState::Sending)
    }
}

impl dyn Tables + '_ {
    pub fn message(&self, id: i64) -> Result<Option<MessageRow>, Error> {
        first(self, "SELECT * FROM outbox WHERE message = ?1", params![id], message)
    }

    pub fn message_by_key(&self, key: &str) -> Result<Option<MessageRow>, Error> {
        first(self, "SELECT * FROM outbox WHERE key = ?1", params![key], message)
    }

    /// Returns the keys of the messages of which the platform knows a piece by this id in a chat. There can be several, because a
    /// business connection counts for itself. An id consists of digits.
    pub fn keys_of_sent(&self, connector: &str, chat: &str, message_id: &str) -> Result<Vec<String>, Error> {
        let sql = "SELECT key FROM outbox WHERE connector = ?1 AND chat = ?2 AND ' ' || message_id || ' ' LIKE ?3";
        all(self, sql, params![connector, chat, format!("% {message_id} %")], |row| row.get("key"))
    }

    pub fn insert_message(&self, message: &PutMessage, now: Timestamp) -> Result<i64, Error> {
        let sql = "INSERT INTO outbox (key, connector, chat, body, due_at, created_at)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?5)";
        let values = params![message.key, message.connector, message.chat_id, to_json(message)?, now];
        self.insert(sql, "message", values)
    }

    /// Returns the oldest unfinished message of each chat, and the time from which it can be sent.
    pub fn next_messages(&self, connector: &str) -> Result<Vec<(i64, Timestamp)>, Error> {
        let sql = "SELECT message, due_at FROM outbox WHERE message IN (
                     SELECT min(message) FROM outbox WHERE live = 1 AND connector = ?1 GROUP BY chat)
                   ORDER BY message";
        all(self, sql, params![connector], |row| Ok((row.get("message")?, row.get("due_at")?)))
    }

    /// Stores all fields of the row except the message itself.
    pub fn update_message(&self, message: &MessageRow) -> Result<(), Error> {
        let sql = "UPDATE outbox SET state = ?2, live = ?3, piece = ?4, doubtful = ?5, tries = ?6, due_at = ?7,
                     message_id = ?8, error = ?9
                   WHERE message = ?1";
        let MessageRow { id, state, piece, doubtful, tries, due_at, message_ids, error, .. } = message;
        let (state, is_live) = (state.name(), message.is_live());
        // Without an id the column stays NULL, which no id is like, not even an empty one.
        let message_ids = (!message_ids.is_empty()).then(|| message_ids.join(" "));
        self.execute(sql, params![id, state, is_live, piece, doubtful, tries, due_at, message_ids, error])
    }

    /// Returns messages, newest first.
    pub fn list_messages(&self, connector: &str, limit: u32) -> Result<Vec<MessageRecord>, Error> {
        let sql = "SELECT message, key, chat, state, created_at, tries, error FROM outbox
                   WHERE connector = ?1 ORDER BY message DESC LIMIT ?2";
        all(self, sql, params![connector, limit], |row| {
            Ok(MessageRecord {
                id: row.get("message")?,
                key: row.get("key")?,
                chat_id: row.get("chat")?,
                state: state(row)?,
                created_at: row.get("created_at")?,
                tries: row.get("tries")?,
                error: row.get("error")?,
            })
        })
    }

    pub fn live_messages(&self, connector: &str) -> Result<u64, Error> {
        let sql = "SELECT count(*) AS number FROM outbox WHERE live = 1 AND connector = ?1";
        unique(self, sql, params![connector], |row| row.get("number"))
    }

    /// Deletes at most `max` messages that were finished before a time. Returns how many were deleted.
    pub fn prune_messages(&self, before: Timestamp, max: usize) -> Result<usize, Error> {
        let sql = "DELETE FROM outbox WHERE message IN (
                     SELECT message FROM outbox WHERE live = 0 AND due_at < ?1 LIMIT ?2
                   )";
        self.changed_rows(sql, params![before, max])
    }
}

fn message(row: &dyn Row) -> Result<MessageRow, Error> {
    let body: Option<PutMessage> = stored(row, "body")?;
    let message_ids: Option<String> = row.get("message_id")?;
    Ok(MessageRow {
        id: row.get("message")?,
        message: body.unwrap_or_default(),
        state: state(row)?,
        piece: row.get("piece")?,
        doubtful: row.get("doubtful")?,
        tries: row.get("tries")?,
        due_at: row.get("due_at")?,
        created_at: row.get("created_at")?,
        message_ids: message_ids.unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
        error: row.get("error")?,
    })
}

fn state(row: &dyn Row) -> Result<MessageState, Error> {
    word(row, "outbox.state", MessageState::named)
}
