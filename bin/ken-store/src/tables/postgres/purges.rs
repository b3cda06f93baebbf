//! The deletion of sessions for good. The server keeps deleted rows in its pages until its VACUUM removes them, and in its log until that is
//! recycled: see ken-postgres(7).

use ken_types::{Error, Timestamp};

use super::{Database, all, first, params, place, rows, run, time, unique};
use crate::rules::named_sessions::named_sessions;
use crate::rules::stream_names;
use crate::tables::{PurgeRow, PurgedSubmission, Purges};

/// A time before every deletion.
const EVER: Timestamp = Timestamp::from_millis(i64::MIN);

impl Purges for Database {
    fn begin_purge(&self, stream: i64, now: Timestamp) -> Result<(), Error> {
        run(self, "DELETE FROM sessions WHERE stream = $1", params![stream])?;
        run(self, "DELETE FROM tips WHERE stream = $1", params![stream])?;
        run(self, "UPDATE streams SET purged_at = $2 WHERE stream = $1", params![stream, now.millis()])?;
        run(self, "INSERT INTO purges (stream) VALUES ($1)", params![stream]).map(drop)
    }

    fn next_purge(&self) -> Result<Option<PurgeRow>, Error> {
        let sql = "SELECT stream, name, purged_at FROM purges JOIN streams USING (stream) ORDER BY stream LIMIT 1";
        first(self, sql, params![], |row| {
            Ok(PurgeRow { stream: row.get("stream")?, name: row.get("name")?, purged_at: time(row, "purged_at")? })
        })
    }

    fn end_purge(&self, stream: i64) -> Result<(), Error> {
        run(self, "DELETE FROM purges WHERE stream = $1", params![stream]).map(drop)
    }

    /// There are no logs beside a database on a server.
    fn remove_damaged_logs(&self) {}

    fn submissions_to_purge(&self, stream: i64, max: usize) -> Result<Vec<PurgedSubmission>, Error> {
        // Settled ones first, because the last ones may still run.
        let sql =
            "SELECT submission, event, live FROM submissions WHERE stream = $1 ORDER BY live, submission LIMIT $2";
        all(self, sql, params![stream, rows(max)], |row| {
            Ok(PurgedSubmission {
                key: row.get("submission")?,
                event: row.get("event")?,
                is_settled: !row.get::<bool>("live")?,
            })
        })
    }

    fn purge_submission(&self, submission: PurgedSubmission) -> Result<(), Error> {
        let PurgedSubmission { key, event, .. } = submission;
        let blobs: Vec<i64> = all(
            self,
            "SELECT blob FROM outputs WHERE submission = $1 UNION SELECT blob FROM blob_uses WHERE event = $2
             UNION SELECT blob FROM approvals JOIN blobs ON blobs.digest = approvals.whole WHERE submission = $1",
            params![key, event],
            |row| row.get(0),
        )?;
        let messages = "DELETE FROM outbox WHERE key IN (
                          SELECT o.key FROM events AS e JOIN outbox AS o ON o.key >= e.id || ':' AND o.key < e.id || ';'
                          WHERE e.event = $1
                          UNION ALL
                          SELECT o.key FROM approvals AS a JOIN outbox AS o
                            ON o.key = 'approval:' || a.id OR o.key = 'approval:' || a.id || ':end'
                          WHERE a.submission = $2)";
        run(self, messages, params![event, key])?;
        let result = "UPDATE schedule_runs SET result_text = NULL, error = NULL
                      WHERE submission = (SELECT id FROM submissions WHERE submission = $1)";
        run(self, result, params![key])?;
        for sql in [
            "DELETE FROM memory_index WHERE submission = $1",
            "DELETE FROM telemetry WHERE submission = $1",
            "DELETE FROM usage WHERE submission = $1",
            "DELETE FROM outputs WHERE submission = $1",
            "DELETE FROM knowledge_uses WHERE submission = $1",
            "DELETE FROM approvals WHERE submission = $1",
            "DELETE FROM exchanges WHERE submission = $1",
            "DELETE FROM runs WHERE submission = $1",
            "DELETE FROM submissions WHERE submission = $1",
        ] {
            run(self, sql, params![key])?;
        }
        run(self, "DELETE FROM blob_uses WHERE event = $1", params![event])?;
        run(self, "DELETE FROM events WHERE event = $1", params![event])?;
        for blob in blobs {
            let unused = "DELETE FROM blobs WHERE blob = $1
                            AND NOT EXISTS (SELECT 1 FROM blob_uses WHERE blob_uses.blob = blobs.blob)
                            AND NOT EXISTS (SELECT 1 FROM outputs WHERE outputs.blob = blobs.blob)
                            AND NOT EXISTS (SELECT 1 FROM approvals WHERE approvals.whole = blobs.digest)";
            if run(self, unused, params![blob])? > 0 {
                run(self, "DELETE FROM pieces WHERE blob = $1", params![blob])?;
            }
        }
        Ok(())
    }

    fn purge_entries(&self, stream: i64, max: usize) -> Result<usize, Error> {
        let sql = "DELETE FROM entries WHERE place IN (
                     SELECT place FROM entries WHERE place >= $1 AND place < $2 ORDER BY place LIMIT $3)";
        run(self, sql, params![place(stream, 0), place(stream + 1, 0), rows(max)])
    }

    fn knowledge_to_purge(&self, stream: i64, max: usize) -> Result<Vec<i64>, Error> {
        all(self, "SELECT entry FROM knowledge WHERE stream = $1 LIMIT $2", params![stream, rows(max)], |row| {
            row.get(0)
        })
    }

    fn purge_instance(&self, stream: i64, instance: &str) -> Result<(), Error> {
        run(self, "DELETE FROM notes WHERE stream = $1", params![stream])?;
        run(self, "DELETE FROM instances WHERE stream = $1", params![stream])?;
        run(self, "DELETE FROM budgets WHERE scope = 'session:' || $1", params![instance]).map(drop)
    }

    fn purge_events(&self, after: i64, max: usize) -> Result<Option<i64>, Error> {
        let last = "SELECT max(event) FROM (SELECT event FROM events WHERE event > $1 ORDER BY event LIMIT $2) AS next";
        let Some(last) = unique(self, last, params![after, rows(max)], |row| row.get::<Option<i64>>(0))? else {
            return Ok(None);
        };
        let sql = "SELECT event, answer FROM events AS e WHERE event > $1 AND event <= $2
                     AND NOT EXISTS (SELECT 1 FROM submissions AS s WHERE s.event = e.event)";
        let answers: Vec<(i64, String)> = all(self, sql, params![after, last], |row| Ok((row.get(0)?, row.get(1)?)))?;
        for (event, answer) in answers {
            if self.names_purged(&answer, EVER)? {
                run(self, "DELETE FROM events WHERE event = $1", params![event])?;
            }
        }
        Ok(Some(last))
    }

    fn purge_keys(&self, after: i64, max: usize) -> Result<Option<i64>, Error> {
        let sql = "SELECT id, answer FROM keys WHERE id > $1 ORDER BY id LIMIT $2";
        let read = |row: &super::Row| Ok((row.get(0)?, row.get(1)?));
        let answers: Vec<(i64, Option<String>)> = all(self, sql, params![after, rows(max)], read)?;
        for (key, answer) in &answers {
            if let Some(answer) = answer
                && self.names_purged(answer, EVER)?
            {
                run(self, "UPDATE keys SET status = 410, answer = NULL, headers = NULL WHERE id = $1", params![key])?;
            }
        }
        Ok(answers.last().map(|(key, _)| *key))
    }

    fn names_purged(&self, answer: &str, after: Timestamp) -> Result<bool, Error> {
        // The sessions of the answer are looked up. The other way round, each answer would be compared with every session that was
        // deleted, and those are very many after a round of retention.
        let sql = "SELECT purged_at FROM streams WHERE name = $1 AND purged_at > $2";
        for session in named_sessions(answer) {
            let values = params![stream_names::of_instance(&session), after.millis()];
            if first(self, sql, values, |_| Ok(()))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The server itself rewrites its indexes.
    fn merge_indexes(&self, _pages: i64) -> Result<bool, Error> {
        Ok(false)
    }

    /// The pages are those of the server, whose VACUUM removes what was deleted.
    fn scrub_pages(&self, _after: i64, _max: usize) -> Result<Option<i64>, Error> {
        Ok(None)
    }
}
