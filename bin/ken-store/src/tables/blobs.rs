//! Blobs, in pieces.

use ken_types::event::Output;
use ken_types::id::SubmissionId;
use ken_types::ops::store::Image;
use ken_types::{Error, Timestamp};

use super::Tables;
use super::columns::stored;
use super::sql::{Row, all, first, params, unique};

/// A blob without its bytes.
#[derive(Debug, Clone, Copy)]
pub struct BlobRow {
    pub key: i64,
    /// The length in bytes. `stored` is the number of bytes received so far.
    pub length: u64,
    pub stored: u64,
}

/// Blobs: bytes that are identified by their SHA-256.
impl dyn Tables + '_ {
    pub fn blob(&self, digest: &str) -> Result<Option<BlobRow>, Error> {
        first(self, "SELECT blob, length, stored FROM blobs WHERE digest = ?1", params![digest], blob)
    }

    pub fn insert_blob(&self, digest: &str, length: u64, now: Timestamp) -> Result<BlobRow, Error> {
        let sql = "INSERT INTO blobs (digest, length, used_at) VALUES (?1, ?2, ?3)";
        let key = self.insert(sql, "blob", params![digest, length, now])?;
        Ok(BlobRow { key, length, stored: 0 })
    }

    /// Stores a piece that begins at byte `offset`.
    pub fn insert_piece(&self, blob: i64, offset: u64, bytes: &[u8], now: Timestamp) -> Result<(), Error> {
        let sql = "INSERT INTO pieces (blob, start, bytes) VALUES (?1, ?2, ?3)";
        self.execute(sql, params![blob, offset, bytes])?;
        let sql = "UPDATE blobs SET stored = ?2, used_at = ?3 WHERE blob = ?1";
        let stored = offset + bytes.len() as u64;
        self.execute(sql, params![blob, stored, now])
    }

    /// Calls `see` with the offset and the bytes of each piece that ends after byte `from`, in order, until it returns false.
    pub fn pieces(&self, blob: i64, from: u64, see: &mut dyn FnMut(u64, &[u8]) -> bool) -> Result<(), Error> {
        // The first piece to return is the last one that starts at `from` or before.
        let sql = "SELECT start, bytes FROM pieces WHERE blob = ?1 AND start >= (
                     SELECT coalesce(max(start), 0) FROM pieces WHERE blob = ?1 AND start <= ?2
                   ) ORDER BY start";
        let values = params![blob, from];
        self.query(sql, values, Some(PIECES), &mut |row| Ok(see(row.get("start")?, row.bytes("bytes")?))).map(drop)
    }

    pub fn touch_blob(&self, blob: i64, now: Timestamp) -> Result<(), Error> {
        self.execute("UPDATE blobs SET used_at = ?2 WHERE blob = ?1", params![blob, now])
    }

    /// Deletes the pieces of a blob, so that it can be sent again from the beginning.
    pub fn clear_blob(&self, blob: i64) -> Result<(), Error> {
        self.execute("DELETE FROM pieces WHERE blob = ?1", params![blob])?;
        self.execute("UPDATE blobs SET stored = 0 WHERE blob = ?1", params![blob])
    }

    pub fn refer_to_blob(&self, digest: &str, event: &str) -> Result<(), Error> {
        let sql = "INSERT INTO blob_uses (blob, event) SELECT blob, (SELECT event FROM events WHERE id = ?2) FROM blobs WHERE digest = ?1
                   ON CONFLICT DO NOTHING";
        self.execute(sql, params![digest, event])
    }

    /// Records that an event of a submission refers to the output of a tool.
    pub fn refer_to_output(&self, digest: &str, submission: i64) -> Result<(), Error> {
        let sql = "INSERT INTO outputs (blob, submission) SELECT blob, ?2 FROM blobs WHERE digest = ?1 ON CONFLICT DO NOTHING";
        self.execute(sql, params![digest, submission])
    }

    /// Returns a blob that is an output of a submission of the stream. `id` is the beginning of its digest.
    pub fn output(&self, stream: &str, id: &str) -> Result<Option<BlobRow>, Error> {
        // The letter `g` sorts after all hexadecimal digits, so this range contains all digests that begin with the id.
        let sql = "SELECT b.blob, b.length, b.stored FROM blobs AS b JOIN outputs AS o USING (blob)
                     JOIN submissions AS s USING (submission) JOIN streams AS l USING (stream)
                   WHERE b.digest >= ?1 AND b.digest < ?1 || 'g' AND l.name = ?2 LIMIT 1";
        first(self, sql, params![id, stream], blob)
    }

    pub fn outputs_of(&self, submission: i64) -> Result<Vec<Output>, Error> {
        let sql = "SELECT digest, length FROM outputs JOIN blobs USING (blob) WHERE submission = ?1 ORDER BY blob";
        all(self, sql, params![submission], |row| Ok(Output { blob: row.get("digest")?, bytes: row.get("length")? }))
    }

    /// Returns an image of a prompt of the stream. The first has the number 0.
    pub fn image(&self, stream: &str, submission: &SubmissionId, number: u32) -> Result<Option<Image>, Error> {
        let sql = format!(
            "SELECT CAST(e.images{json} -> CAST(?3 AS int) AS text) AS image
             FROM submissions AS s JOIN streams AS l USING (stream) JOIN events AS e USING (event)
             WHERE s.id = ?2 AND l.name = ?1",
            json = self.dialect().json
        );
        Ok(first(self, &sql, params![stream, submission.as_str(), number], |row| stored(row, "image"))?.flatten())
    }

    pub fn unused_blobs(&self, before: Timestamp, max: usize) -> Result<Vec<i64>, Error> {
        let sql = "SELECT blob FROM blobs WHERE used_at < ?1
                     AND NOT EXISTS (SELECT 1 FROM blob_uses WHERE blob_uses.blob = blobs.blob)
                     AND NOT EXISTS (SELECT 1 FROM outputs WHERE outputs.blob = blobs.blob)
                     AND NOT EXISTS (SELECT 1 FROM approvals WHERE approvals.whole = blobs.digest)
                   ORDER BY used_at LIMIT ?2";
        all(self, sql, params![before, max], |row| row.get(0))
    }

    pub fn delete_blob(&self, blob: i64) -> Result<(), Error> {
        self.execute("DELETE FROM pieces WHERE blob = ?1", params![blob])?;
        self.execute("DELETE FROM blobs WHERE blob = ?1", params![blob])
    }

    /// Returns the total length of all blobs in bytes.
    pub fn blob_bytes(&self) -> Result<u64, Error> {
        unique(self, "SELECT CAST(coalesce(sum(length), 0) AS bigint) AS bytes FROM blobs", params![], |row| {
            row.get("bytes")
        })
    }
}

fn blob(row: &dyn Row) -> Result<BlobRow, Error> {
    Ok(BlobRow { key: row.get("blob")?, length: row.get("length")?, stored: row.get("stored")? })
}

/// How many pieces are fetched at a time.
const PIECES: u32 = 4;
