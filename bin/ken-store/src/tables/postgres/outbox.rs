//! Messages to chats.

use ken_types::{Error, Timestamp};

use super::Database;
use crate::tables::Outbox;
use crate::tables::sql::{all, params};

impl Outbox for Database {
    fn next_messages(&self, connector: &str) -> Result<Vec<(i64, Timestamp)>, Error> {
        let sql = "SELECT message, due_at FROM (
                     SELECT DISTINCT ON (chat) message, due_at FROM outbox
                     WHERE live = 1 AND connector = ?1 ORDER BY chat, message) AS oldest
                   ORDER BY message";
        all(self, sql, params![connector], |row| Ok((row.get("message")?, row.get("due_at")?)))
    }
}
