//! Blobs, in pieces.

use ken_types::event::Output;
use ken_types::id::SubmissionId;
use ken_types::ops::store::Image;
use ken_types::{Error, Timestamp};
use rusqlite::{Row, params};

use super::{Database, all, count, first, insert, rows, run, statement, stored, unique};
use crate::tables::{BlobRow, Blobs};

fn blob(row: &Row<'_>) -> rusqlite::Result<BlobRow> {
    Ok(BlobRow { key: row.get("blob")?, length: count(row, "length")?, stored: count(row, "stored")? })
}

impl Blobs for Database {
    fn blob(&self, digest: &str) -> Result<Option<BlobRow>, Error> {
        first(self, "SELECT blob, length, stored FROM blobs WHERE digest = ?1", [digest], blob)
    }

    fn insert_blob(&self, digest: &str, length: u64, now: Timestamp) -> Result<BlobRow, Error> {
        let sql = "INSERT INTO blobs (digest, length, used_at) VALUES (?1, ?2, ?3)";
        let key = insert(self, sql, params![digest, length.cast_signed(), now.millis()])?;
        Ok(BlobRow { key, length, stored: 0 })
    }

    fn insert_piece(&self, blob: i64, offset: u64, bytes: &[u8], now: Timestamp) -> Result<(), Error> {
        let sql = "INSERT INTO pieces (blob, start, bytes) VALUES (?1, ?2, ?3)";
        run(self, sql, params![blob, offset.cast_signed(), bytes])?;
        let sql = "UPDATE blobs SET stored = ?2, used_at = ?3 WHERE blob = ?1";
        let stored = offset + bytes.len() as u64;
        run(self, sql, [blob, stored.cast_signed(), now.millis()]).map(drop)
    }

    fn pieces(&self, blob: i64, from: u64, see: &mut dyn FnMut(u64, &[u8]) -> bool) -> Result<(), Error> {
        // The first piece to return is the last one that starts at `from` or before.
        let sql = "SELECT start, bytes FROM pieces WHERE blob = ?1 AND start >= (
                     SELECT coalesce(max(start), 0) FROM pieces WHERE blob = ?1 AND start <= ?2
                   ) ORDER BY start";
        statement(self, sql, |select| {
            let mut rows = select.query([blob, from.cast_signed()])?;
            while let Some(row) = rows.next()? {
                if !see(count(row, "start")?, row.get_ref("bytes")?.as_bytes()?) {
                    break;
                }
            }
            Ok(())
        })
    }

    fn touch_blob(&self, blob: i64, now: Timestamp) -> Result<(), Error> {
        run(self, "UPDATE blobs SET used_at = ?2 WHERE blob = ?1", [blob, now.millis()]).map(drop)
    }

    fn clear_blob(&self, blob: i64) -> Result<(), Error> {
        run(self, "DELETE FROM pieces WHERE blob = ?1", [blob])?;
        run(self, "UPDATE blobs SET stored = 0 WHERE blob = ?1", [blob]).map(drop)
    }

    fn refer_to_blob(&self, digest: &str, event: i64) -> Result<(), Error> {
        let sql = "INSERT OR IGNORE INTO blob_uses (blob, event) SELECT blob, ?2 FROM blobs WHERE digest = ?1";
        run(self, sql, params![digest, event]).map(drop)
    }

    fn refer_to_output(&self, digest: &str, submission: i64) -> Result<(), Error> {
        let sql = "INSERT OR IGNORE INTO outputs (blob, submission) SELECT blob, ?2 FROM blobs WHERE digest = ?1";
        run(self, sql, params![digest, submission]).map(drop)
    }

    fn output(&self, stream: &str, id: &str) -> Result<Option<BlobRow>, Error> {
        // The letter `g` sorts after all hexadecimal digits, so this range contains all digests that begin with the id.
        let sql = "SELECT b.blob, b.length, b.stored FROM blobs AS b JOIN outputs AS o USING (blob)
                     JOIN submissions AS s USING (submission) JOIN streams AS l USING (stream)
                   WHERE b.digest >= ?1 AND b.digest < ?1 || 'g' AND l.name = ?2 LIMIT 1";
        first(self, sql, params![id, stream], blob)
    }

    fn outputs_of(&self, submission: i64) -> Result<Vec<Output>, Error> {
        let sql = "SELECT digest, length FROM outputs JOIN blobs USING (blob) WHERE submission = ?1 ORDER BY blob";
        all(self, sql, [submission], |row| Ok(Output { blob: row.get("digest")?, bytes: count(row, "length")? }))
    }

    fn image(&self, stream: &str, submission: &SubmissionId, number: u32) -> Result<Option<Image>, Error> {
        let sql = "SELECT json_extract(e.images, '$[' || ?3 || ']') AS image
                   FROM submissions AS s JOIN streams AS l USING (stream) JOIN events AS e USING (event)
                   WHERE s.id = ?2 AND l.name = ?1";
        Ok(first(self, sql, params![stream, submission.as_str(), number], |row| stored(row, "image"))?.flatten())
    }

    fn unused_blobs(&self, before: Timestamp, max: usize) -> Result<Vec<i64>, Error> {
        let sql = "SELECT blob FROM blobs WHERE used_at < ?1
                     AND NOT EXISTS (SELECT 1 FROM blob_uses WHERE blob_uses.blob = blobs.blob)
                     AND NOT EXISTS (SELECT 1 FROM outputs WHERE outputs.blob = blobs.blob)
                     AND NOT EXISTS (SELECT 1 FROM approvals WHERE approvals.whole = blobs.digest)
                   ORDER BY used_at LIMIT ?2";
        all(self, sql, [before.millis(), rows(max)], |row| row.get(0))
    }

    fn delete_blob(&self, blob: i64) -> Result<(), Error> {
        run(self, "DELETE FROM pieces WHERE blob = ?1", [blob])?;
        run(self, "DELETE FROM blobs WHERE blob = ?1", [blob]).map(drop)
    }

    fn blob_bytes(&self) -> Result<u64, Error> {
        unique(self, "SELECT coalesce(sum(length), 0) AS bytes FROM blobs", [], |row| count(row, "bytes"))
    }
}
