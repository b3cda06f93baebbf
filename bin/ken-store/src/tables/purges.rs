//! The deletion of sessions for good. Deleted content is overwritten with zeros (`secure_delete`), in the full-text indexes when they are
//! merged.

use ken_types::{Error, Timestamp};

use super::Tables;
use super::columns::place;
use super::sql::{Row, Sql, all, first, params, unique};
use crate::rules::named_sessions::named_sessions;
use crate::rules::stream_names;

/// A session that is being deleted for good and whose rows are still there.
#[derive(Debug, Clone)]
pub struct PurgeRow {
    pub stream: i64,
    pub name: String,
    pub purged_at: Timestamp,
}

/// A submission of a session that is being deleted.
#[derive(Debug, Clone, Copy)]
pub struct PurgedSubmission {
    pub key: i64,
    pub event: i64,
    pub is_settled: bool,
}

/// Whether a merge of the full-text indexes is begun or goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    Begin,
    Continue,
}

/// The deletion of sessions for good, in slices.
pub trait Purges: Sql {
    /// Removes the copies of damaged logs, which may contain what was deleted. A database on a server has none beside it.
    fn remove_damaged_logs(&self) {}

    /// Rewrites at most about `pages` pages into one segment of each full-text index, without the rows that were deleted. Returns whether there
    /// may be more. A server rewrites its indexes itself.
    fn merge_indexes(&self, _pages: i64, _merge: Merge) -> Result<bool, Error> {
        Ok(false)
    }

    /// Overwrites the unused parts of at most `max` pages after a page. Returns the number of the last page, or `None` at the end. The pages of
    /// a server are its own, and its VACUUM removes what was deleted.
    fn scrub_pages(&self, _after: i64, _max: usize) -> Result<Option<i64>, Error> {
        Ok(None)
    }
}

impl dyn Tables + '_ {
    /// Deletes the row of the session, marks its stream as purged, and notes that everything else is to be deleted.
    pub fn begin_purge(&self, stream: i64, now: Timestamp) -> Result<(), Error> {
        self.execute("DELETE FROM sessions WHERE stream = ?1", params![stream])?;
        self.execute("DELETE FROM tips WHERE stream = ?1", params![stream])?;
        self.execute("UPDATE streams SET purged_at = ?2 WHERE stream = ?1", params![stream, now])?;
        self.execute("INSERT INTO purges (stream) VALUES (?1)", params![stream])
    }

    /// Returns the oldest session whose rows are still there.
    pub fn next_purge(&self) -> Result<Option<PurgeRow>, Error> {
        let sql = "SELECT stream, name, purged_at FROM purges JOIN streams USING (stream) ORDER BY stream LIMIT 1";
        first(self, sql, params![], |row| {
            Ok(PurgeRow { stream: row.get("stream")?, name: row.get("name")?, purged_at: row.get("purged_at")? })
        })
    }

    /// Notes that the rows of a session are deleted.
    pub fn end_purge(&self, stream: i64) -> Result<(), Error> {
        self.execute("DELETE FROM purges WHERE stream = ?1", params![stream])
    }

    pub fn submissions_to_purge(&self, stream: i64, max: usize) -> Result<Vec<PurgedSubmission>, Error> {
        // Settled ones first, because the last ones may still run.
        let sql =
            "SELECT submission, event, live FROM submissions WHERE stream = ?1 ORDER BY live, submission LIMIT ?2";
        all(self, sql, params![stream, max], |row| {
            Ok(PurgedSubmission {
                key: row.get("submission")?,
                event: row.get("event")?,
                is_settled: !row.get::<bool>("live")?,
            })
        })
    }

    /// Deletes a settled submission with its event, everything that belongs to it, and the blobs that nothing else uses.
    pub fn purge_submission(&self, submission: PurgedSubmission) -> Result<(), Error> {
        let PurgedSubmission { key, event, .. } = submission;
        let blobs: Vec<i64> = all(
            self,
            "SELECT blob FROM outputs WHERE submission = ?1 UNION SELECT blob FROM blob_uses WHERE event = ?2
             UNION SELECT blob FROM approvals JOIN blobs ON blobs.digest = approvals.whole WHERE submission = ?1",
            params![key, event],
            |row| row.get(0),
        )?;
        let messages = "DELETE FROM outbox WHERE key IN (
                          SELECT o.key FROM events AS e JOIN outbox AS o ON o.key >= e.id || ':' AND o.key < e.id || ';'
                          WHERE e.event = ?1
                          UNION ALL
                          SELECT o.key FROM approvals AS a JOIN outbox AS o
                            ON o.key = 'approval:' || a.id OR o.key = 'approval:' || a.id || ':end'
                          WHERE a.submission = ?2)";
        self.execute(messages, params![event, key])?;
        let result = "UPDATE schedule_runs SET result_text = NULL, error = NULL
                      WHERE submission = (SELECT id FROM submissions WHERE submission = ?1)";
        self.execute(result, params![key])?;
        self.unindex_exchange(key)?;
        for sql in [
            "DELETE FROM telemetry WHERE submission = ?1",
            "DELETE FROM usage WHERE submission = ?1",
            "DELETE FROM outputs WHERE submission = ?1",
            "DELETE FROM knowledge_uses WHERE submission = ?1",
            "DELETE FROM approvals WHERE submission = ?1",
            "DELETE FROM exchanges WHERE submission = ?1",
            "DELETE FROM runs WHERE submission = ?1",
            "DELETE FROM submissions WHERE submission = ?1",
        ] {
            self.execute(sql, params![key])?;
        }
        self.execute("DELETE FROM blob_uses WHERE event = ?1", params![event])?;
        self.execute("DELETE FROM events WHERE event = ?1", params![event])?;
        for blob in blobs {
            let unused = "DELETE FROM blobs WHERE blob = ?1
                            AND NOT EXISTS (SELECT 1 FROM blob_uses WHERE blob_uses.blob = blobs.blob)
                            AND NOT EXISTS (SELECT 1 FROM outputs WHERE outputs.blob = blobs.blob)
                            AND NOT EXISTS (SELECT 1 FROM approvals WHERE approvals.whole = blobs.digest)";
            if self.changed_rows(unused, params![blob])? > 0 {
                self.execute("DELETE FROM pieces WHERE blob = ?1", params![blob])?;
            }
        }
        Ok(())
    }

    /// Deletes at most `max` entries of a stream. Returns how many were deleted.
    pub fn purge_entries(&self, stream: i64, max: usize) -> Result<usize, Error> {
        let sql = "DELETE FROM entries WHERE place IN (
                     SELECT place FROM entries WHERE place >= ?1 AND place < ?2 ORDER BY place LIMIT ?3)";
        self.changed_rows(sql, params![place(stream, 0), place(stream + 1, 0), max])
    }

    /// Returns the keys of knowledge entries that agents wrote in this session.
    pub fn knowledge_to_purge(&self, stream: i64, max: usize) -> Result<Vec<i64>, Error> {
        all(self, "SELECT entry FROM knowledge WHERE stream = ?1 LIMIT ?2", params![stream, max], |row| row.get(0))
    }

    /// Deletes the notes, the history and the usage of an instance.
    pub fn purge_instance(&self, stream: i64, instance: &str) -> Result<(), Error> {
        self.execute("DELETE FROM notes WHERE stream = ?1", params![stream])?;
        self.execute("DELETE FROM instances WHERE stream = ?1", params![stream])?;
        self.execute("DELETE FROM budgets WHERE scope = 'session:' || ?1", params![instance])
    }

    /// Examines at most `max` events after a key, and deletes those without a submission, such as commands, whose answer names a session
    /// that was deleted for good. Returns the last key, or `None` at the end.
    pub fn purge_events(&self, after: i64, max: usize) -> Result<Option<i64>, Error> {
        let last = "SELECT max(event) FROM (SELECT event FROM events WHERE event > ?1 ORDER BY event LIMIT ?2) AS next";
        let Some(last) = unique(self, last, params![after, max], |row| row.get::<Option<i64>>(0))? else {
            return Ok(None);
        };
        let sql = "SELECT event, answer FROM events AS e WHERE event > ?1 AND event <= ?2
                     AND NOT EXISTS (SELECT 1 FROM submissions AS s WHERE s.event = e.event)";
        let answers: Vec<(i64, String)> = all(self, sql, params![after, last], |row| Ok((row.get(0)?, row.get(1)?)))?;
        for (event, answer) in answers {
            if self.names_purged(&answer, EVER)? {
                self.execute("DELETE FROM events WHERE event = ?1", params![event])?;
            }
        }
        Ok(Some(last))
    }

    /// Examines at most `max` idempotency keys after one. Removes the answers that name a session that was deleted for good, and marks
    /// these keys: see `key`. Returns the last key, or `None` at the end.
    pub fn purge_keys(&self, after: i64, max: usize) -> Result<Option<i64>, Error> {
        let sql = "SELECT id, answer FROM keys WHERE id > ?1 ORDER BY id LIMIT ?2";
        let read = |row: &dyn Row| Ok((row.get(0)?, row.get(1)?));
        let answers: Vec<(i64, Option<String>)> = all(self, sql, params![after, max], read)?;
        for (key, answer) in &answers {
            if let Some(answer) = answer
                && self.names_purged(answer, EVER)?
            {
                self.execute(
                    "UPDATE keys SET status = 410, answer = NULL, headers = NULL WHERE id = ?1",
                    params![key],
                )?;
            }
        }
        Ok(answers.last().map(|(key, _)| *key))
    }

    /// Returns whether an answer names a session that was deleted for good after a time.
    pub fn names_purged(&self, answer: &str, after: Timestamp) -> Result<bool, Error> {
        // The sessions of the answer are looked up. The other way round, each answer would be compared with every session that was
        // deleted, and those are very many after a round of retention.
        let sql = "SELECT purged_at FROM streams WHERE name = ?1 AND purged_at > ?2";
        for session in named_sessions(answer) {
            let values = params![stream_names::of_instance(&session), after];
            if first(self, sql, values, |_| Ok(()))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A time before every deletion.
const EVER: Timestamp = Timestamp::from_millis(i64::MIN);
