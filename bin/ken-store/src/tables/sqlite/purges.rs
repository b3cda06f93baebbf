//! The deletion of sessions for good. Deleted content is overwritten with zeros (`secure_delete`), in the full-text indexes when they are
//! merged.

use std::collections::BTreeSet;
use std::path::Path;

use ken_types::uri::encode_segment;
use ken_types::{Error, Timestamp};
use rusqlite::params;

use super::files::remove_damaged_logs;
use super::{Database, all, first, pages, place, rows, run, time, to_json, unique};
use crate::tables::{Phase, PurgeRow, PurgedSubmission, Purges};

fn phase(number: i64) -> Phase {
    match number {
        0 => Phase::Rows,
        1 => Phase::Events,
        2 => Phase::Indexes,
        _ => Phase::Pages,
    }
}

/// Returns the two texts by which answers name a session: its id in an object, and the end of the address of its stream.
fn names_of(session: &str) -> Result<[String; 2], Error> {
    Ok([format!("\"id\":{}", to_json(&session)?), format!("/agents/orchestrator/{}\"", encode_segment(session))])
}

/// Returns the free pages whose content has no meaning.
fn free_leaves(database: &Database) -> Result<BTreeSet<i64>, Error> {
    let sql = "SELECT data FROM sqlite_dbpage WHERE pgno = ?1";
    let read = |number: i64| first(database, sql, [number], |row| row.get::<_, Vec<u8>>(0));
    let mut leaves = BTreeSet::new();
    let mut trunk = read(1)?.map_or(0, |page| pages::first_trunk(&page));
    while trunk > 0 {
        let Some(page) = read(trunk)? else { break };
        leaves.extend(pages::leaves(&page));
        trunk = pages::next_trunk(&page);
    }
    Ok(leaves)
}

impl Purges for Database {
    fn begin_purge(&self, stream: i64, now: Timestamp) -> Result<(), Error> {
        run(self, "DELETE FROM sessions WHERE stream = ?1", [stream])?;
        run(self, "UPDATE streams SET purged_at = ?2 WHERE stream = ?1", [stream, now.millis()])?;
        run(self, "INSERT INTO purges (stream) VALUES (?1)", [stream]).map(drop)
    }

    fn next_purge(&self) -> Result<Option<PurgeRow>, Error> {
        let sql = "SELECT stream, name, purged_at, phase, reached FROM purges JOIN streams USING (stream)
                   ORDER BY phase, stream LIMIT 1";
        first(self, sql, [], |row| {
            Ok(PurgeRow {
                stream: row.get("stream")?,
                name: row.get("name")?,
                purged_at: time(row, "purged_at")?,
                phase: phase(row.get("phase")?),
                reached: row.get("reached")?,
            })
        })
    }

    fn advance_purge(&self, stream: i64, phase: Phase, reached: i64) -> Result<(), Error> {
        let sql = "UPDATE purges SET phase = ?2, reached = ?3 WHERE stream = ?1";
        run(self, sql, [stream, phase as i64, reached]).map(drop)
    }

    fn advance_all_purges(&self, reached: i64) -> Result<(), Error> {
        let sql = "UPDATE purges SET phase = ?1, reached = ?2 WHERE phase >= ?3";
        run(self, sql, [Phase::Pages as i64, reached, Phase::Indexes as i64]).map(drop)
    }

    fn end_purges(&self) -> Result<(), Error> {
        // Copies of damaged logs may contain what was deleted.
        if let Some(database) = self.0.path()
            && let Err(error) = remove_damaged_logs(Path::new(database))
        {
            tracing::warn!("copies of damaged logs beside {database} could not be removed: {error}");
        }
        run(self, "DELETE FROM purges WHERE phase = ?1", [Phase::Pages as i64]).map(drop)
    }

    fn submissions_to_purge(&self, stream: i64, max: usize) -> Result<Vec<PurgedSubmission>, Error> {
        // Settled ones first, because the last ones may still run.
        let sql =
            "SELECT submission, event, live FROM submissions WHERE stream = ?1 ORDER BY live, submission LIMIT ?2";
        all(self, sql, [stream, rows(max)], |row| {
            Ok(PurgedSubmission {
                key: row.get("submission")?,
                event: row.get("event")?,
                is_settled: !row.get::<_, bool>("live")?,
            })
        })
    }

    fn purge_submission(&self, submission: PurgedSubmission) -> Result<(), Error> {
        let PurgedSubmission { key, event, .. } = submission;
        let blobs: Vec<i64> = all(
            self,
            "SELECT blob FROM outputs WHERE submission = ?1 UNION SELECT blob FROM blob_uses WHERE event = ?2
             UNION SELECT blob FROM approvals JOIN blobs ON blobs.digest = approvals.whole WHERE submission = ?1",
            [key, event],
            |row| row.get(0),
        )?;
        let messages = "DELETE FROM outbox WHERE key IN (
                          SELECT o.key FROM events AS e JOIN outbox AS o ON o.key >= e.id || ':' AND o.key < e.id || ';'
                          WHERE e.event = ?1
                          UNION ALL
                          SELECT o.key FROM approvals AS a JOIN outbox AS o
                            ON o.key = 'approval:' || a.id OR o.key = 'approval:' || a.id || ':end'
                          WHERE a.submission = ?2)";
        run(self, messages, [event, key])?;
        let result = "UPDATE schedule_runs SET result_text = NULL, error = NULL
                      WHERE submission = (SELECT id FROM submissions WHERE submission = ?1)";
        run(self, result, [key])?;
        for sql in [
            "DELETE FROM memory_index WHERE rowid = ?1",
            "DELETE FROM telemetry WHERE submission = ?1",
            "DELETE FROM outputs WHERE submission = ?1",
            "DELETE FROM knowledge_uses WHERE submission = ?1",
            "DELETE FROM approvals WHERE submission = ?1",
            "DELETE FROM exchanges WHERE submission = ?1",
            "DELETE FROM runs WHERE submission = ?1",
            "DELETE FROM submissions WHERE submission = ?1",
        ] {
            run(self, sql, [key])?;
        }
        run(self, "DELETE FROM blob_uses WHERE event = ?1", [event])?;
        run(self, "DELETE FROM events WHERE event = ?1", [event])?;
        for blob in blobs {
            let unused = "DELETE FROM blobs WHERE blob = ?1
                            AND NOT EXISTS (SELECT 1 FROM blob_uses WHERE blob_uses.blob = blobs.blob)
                            AND NOT EXISTS (SELECT 1 FROM outputs WHERE outputs.blob = blobs.blob)
                            AND NOT EXISTS (SELECT 1 FROM approvals WHERE approvals.whole = blobs.digest)";
            if run(self, unused, [blob])? > 0 {
                run(self, "DELETE FROM pieces WHERE blob = ?1", [blob])?;
            }
        }
        Ok(())
    }

    fn purge_entries(&self, stream: i64, max: usize) -> Result<usize, Error> {
        let sql = "DELETE FROM entries WHERE place IN (
                     SELECT place FROM entries WHERE place >= ?1 AND place < ?2 ORDER BY place LIMIT ?3)";
        run(self, sql, [place(stream, 0), place(stream + 1, 0), rows(max)])
    }

    fn knowledge_to_purge(&self, stream: i64, max: usize) -> Result<Vec<i64>, Error> {
        all(self, "SELECT entry FROM knowledge WHERE stream = ?1 LIMIT ?2", [stream, rows(max)], |row| row.get(0))
    }

    fn purge_instance(&self, stream: i64, instance: &str) -> Result<(), Error> {
        run(self, "DELETE FROM notes WHERE stream = ?1", [stream])?;
        run(self, "DELETE FROM instances WHERE stream = ?1", [stream])?;
        run(self, "DELETE FROM budgets WHERE scope = 'session:' || ?1", [instance]).map(drop)
    }

    fn purge_events(&self, session: &str, after: i64, max: usize) -> Result<Option<i64>, Error> {
        let last = "SELECT max(event) FROM (SELECT event FROM events WHERE event > ?1 ORDER BY event LIMIT ?2)";
        let Some(last) = unique(self, last, [after, rows(max)], |row| row.get::<_, Option<i64>>(0))? else {
            return Ok(None);
        };
        let [id, _] = names_of(session)?;
        let sql = "DELETE FROM events WHERE event > ?1 AND event <= ?2 AND instr(answer, ?3) > 0
                     AND NOT EXISTS (SELECT 1 FROM submissions WHERE submissions.event = events.event)";
        run(self, sql, params![after, last, id])?;
        Ok(Some(last))
    }

    fn purge_keys(&self, session: &str) -> Result<(), Error> {
        let [id, address] = names_of(session)?;
        let sql = "UPDATE keys SET status = 410, answer = NULL, headers = NULL
                   WHERE instr(answer, ?1) > 0 OR instr(answer, ?2) > 0";
        run(self, sql, [id, address]).map(drop)
    }

    fn names_purged(&self, answer: &str, after: Timestamp) -> Result<bool, Error> {
        let sql = "SELECT name FROM streams WHERE purged_at > ?1";
        let purged: Vec<String> = all(self, sql, [after.millis()], |row| row.get(0))?;
        for name in purged {
            let session = crate::rules::stream_names::instance(&name);
            if names_of(session)?.iter().any(|name| answer.contains(name)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn merge_indexes(&self, pages: i64) -> Result<bool, Error> {
        let before = self.0.total_changes();
        // A negative number has all segments merged, in steps: fts5.html, 6.8.
        run(self, "INSERT INTO memory_index (memory_index, rank) VALUES ('merge', -?1)", [pages])?;
        run(self, "INSERT INTO knowledge_index (knowledge_index, rank) VALUES ('merge', -?1)", [pages])?;
        // Each command itself counts as a change.
        Ok(self.0.total_changes() > before + 2)
    }

    fn scrub_pages(&self, after: i64, max: usize) -> Result<Option<i64>, Error> {
        let free = free_leaves(self)?;
        let sql = "SELECT pgno, data FROM sqlite_dbpage WHERE pgno = ?1";
        let mut last = after;
        for number in (after + 1..).take(max) {
            let Some(mut page) = first(self, sql, [number], |row| row.get::<_, Vec<u8>>("data"))? else {
                return Ok(None);
            };
            if pages::scrub(&mut page, number, free.contains(&number)) {
                run(self, "UPDATE sqlite_dbpage SET data = ?2 WHERE pgno = ?1", params![number, page])?;
            }
            last = number;
        }
        Ok(Some(last))
    }
}
