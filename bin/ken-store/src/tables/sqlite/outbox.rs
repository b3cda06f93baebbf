//! Messages to chats.

use ken_types::{Error, Timestamp};

use super::Database;
use crate::tables::Outbox;
use crate::tables::sql::{all, params};

impl Outbox for Database {
    fn next_messages(&self, connector: &str) -> Result<Vec<(i64, Timestamp)>, Error> {
        // In a query with min(), SQLite takes the other columns from the row with the minimum.
        let sql = "SELECT min(message) AS message, due_at FROM outbox
                   WHERE live = 1 AND connector = ?1 GROUP BY chat ORDER BY 1";
        all(self, sql, params![connector], |row| Ok((row.get("message")?, row.get("due_at")?)))
    }
}
