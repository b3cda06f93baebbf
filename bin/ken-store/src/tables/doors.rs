//! Callers who send the whole conversation with each message: how their sessions end, and which answers were sent.

use ken_types::Error;

use super::Tables;
use super::sessions::{SessionRow, session};
use super::sql::{first, params};

/// What is stored of callers who send the whole conversation with each message.
impl dyn Tables + '_ {
    /// Returns the newest event whose id is this text, a colon and a number, and whether its answer was sent to its end.
    pub fn newest_equal(&self, first_part: &str) -> Result<Option<(String, bool)>, Error> {
        // The semicolon follows the colon, so that this is a range of the index of ids.
        let sql = "SELECT id, delivered FROM events WHERE id > ?1 || ':' AND id < ?1 || ';' ORDER BY id DESC LIMIT 1";
        first(self, sql, params![first_part], |row| {
            Ok((row.get("id")?, row.get::<Option<i64>>("delivered")?.is_some()))
        })
    }

    pub fn set_delivered(&self, id: &str) -> Result<(), Error> {
        self.execute("UPDATE events SET delivered = 1 WHERE id = ?1 AND delivered IS NULL", params![id])
    }

    /// Notes that a notice was sent in place of the answer to an event.
    pub fn set_event_noticed(&self, event: i64) -> Result<(), Error> {
        let sql = "UPDATE events SET delivered = ?2 WHERE event = ?1 AND delivered IS NULL";
        self.execute(sql, params![event, NOTICED])
    }

    /// Notes that the answer to an event is sent now, if a notice was sent before. Returns whether one was.
    pub fn take_event_noticed(&self, event: i64) -> Result<bool, Error> {
        let sql = "UPDATE events SET delivered = ?2 WHERE event = ?1 AND delivered = ?3";
        Ok(self.changed_rows(sql, params![event, SENT, NOTICED])? > 0)
    }

    /// Notes that nobody may read the answer to an event any more.
    pub fn set_event_deleted(&self, event: i64) -> Result<(), Error> {
        self.execute("UPDATE events SET delivered = ?2 WHERE event = ?1", params![event, DELETED])
    }

    pub fn is_event_deleted(&self, event: i64) -> Result<bool, Error> {
        let sql = "SELECT 1 FROM events WHERE event = ?1 AND delivered = ?2";
        Ok(first(self, sql, params![event, DELETED], |_| Ok(()))?.is_some())
    }

    /// Returns whether a stream has a prompt of which the answer is not deleted. Those that a session began with do not count.
    pub fn has_other_prompts(&self, stream: i64) -> Result<bool, Error> {
        let sql = "SELECT 1 FROM submissions JOIN events USING (event)
                   WHERE stream = ?1 AND submissions.kind = 'prompt' AND hidden = 0 AND delivered IS DISTINCT FROM ?2 LIMIT 1";
        Ok(first(self, sql, params![stream, DELETED], |_| Ok(()))?.is_some())
    }

    /// Returns the most recently used session of a scope that ends with the messages of this digest.
    pub fn session_with_tip(&self, scope: i64, digest: &str) -> Result<Option<SessionRow>, Error> {
        let sql = "SELECT s.* FROM tips JOIN sessions AS s USING (stream) WHERE digest = ?2 AND scope = ?1
                   ORDER BY updated_at DESC, stream DESC LIMIT 1";
        first(self, sql, params![scope, digest], session)
    }

    pub fn add_tip(&self, stream: i64, digest: &str) -> Result<(), Error> {
        self.execute(
            "INSERT INTO tips (stream, digest) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
            params![stream, digest],
        )
    }

    pub fn forget_tips(&self, stream: i64) -> Result<(), Error> {
        self.execute("DELETE FROM tips WHERE stream = ?1", params![stream])
    }
}

/// Stand in the column `delivered` for an answer that was sent, for one that was deleted, and for one in whose place a notice was sent.
const SENT: i64 = 1;

const DELETED: i64 = 2;

const NOTICED: i64 = 3;
