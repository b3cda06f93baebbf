//! Callers who send the whole conversation with each message: how their sessions end, and which answers were sent.

use ken_types::Error;

use super::sessions::session;
use super::{Database, first, params, run};
use crate::tables::{Doors, SessionRow};

/// Stand in the column `delivered` for an answer that was sent, for one that was deleted, and for one in whose place a notice was sent.
const SENT: i64 = 1;
const DELETED: i64 = 2;
const NOTICED: i64 = 3;

impl Doors for Database {
    fn newest_equal(&self, first_part: &str) -> Result<Option<(String, bool)>, Error> {
        // The semicolon follows the colon, so that this is a range of the index of ids.
        let sql = "SELECT id, delivered FROM events WHERE id > $1 || ':' AND id < $1 || ';' ORDER BY id DESC LIMIT 1";
        first(self, sql, params![first_part], |row| {
            Ok((row.get("id")?, row.get::<Option<i64>>("delivered")?.is_some()))
        })
    }

    fn set_delivered(&self, id: &str) -> Result<(), Error> {
        run(self, "UPDATE events SET delivered = 1 WHERE id = $1 AND delivered IS NULL", params![id]).map(drop)
    }

    fn set_event_noticed(&self, event: i64) -> Result<(), Error> {
        let sql = "UPDATE events SET delivered = $2 WHERE event = $1 AND delivered IS NULL";
        run(self, sql, params![event, NOTICED]).map(drop)
    }

    fn take_event_noticed(&self, event: i64) -> Result<bool, Error> {
        let sql = "UPDATE events SET delivered = $2 WHERE event = $1 AND delivered = $3";
        Ok(run(self, sql, params![event, SENT, NOTICED])? > 0)
    }

    fn set_event_deleted(&self, event: i64) -> Result<(), Error> {
        run(self, "UPDATE events SET delivered = $2 WHERE event = $1", params![event, DELETED]).map(drop)
    }

    fn is_event_deleted(&self, event: i64) -> Result<bool, Error> {
        let sql = "SELECT 1 FROM events WHERE event = $1 AND delivered = $2";
        Ok(first(self, sql, params![event, DELETED], |_| Ok(()))?.is_some())
    }

    fn has_other_prompts(&self, stream: i64) -> Result<bool, Error> {
        let sql = "SELECT 1 FROM submissions JOIN events USING (event)
                   WHERE stream = $1 AND submissions.kind = 'prompt' AND hidden = 0 AND delivered IS DISTINCT FROM $2 LIMIT 1";
        Ok(first(self, sql, params![stream, DELETED], |_| Ok(()))?.is_some())
    }

    fn session_with_tip(&self, scope: i64, digest: &str) -> Result<Option<SessionRow>, Error> {
        let sql = "SELECT s.* FROM tips JOIN sessions AS s USING (stream) WHERE digest = $2 AND scope = $1
                   ORDER BY updated_at DESC, stream DESC LIMIT 1";
        first(self, sql, params![scope, digest], session)
    }

    fn add_tip(&self, stream: i64, digest: &str) -> Result<(), Error> {
        run(self, "INSERT INTO tips (stream, digest) VALUES ($1, $2) ON CONFLICT DO NOTHING", params![stream, digest])
            .map(drop)
    }

    fn forget_tips(&self, stream: i64) -> Result<(), Error> {
        run(self, "DELETE FROM tips WHERE stream = $1", params![stream]).map(drop)
    }
}
