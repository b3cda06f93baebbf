//! The streams below `streams/`, their producers and their entries.

use ken_types::ops::streams::Producer;
use ken_types::{Error, Timestamp};

use super::Tables;
use super::columns::place;
use super::sql::{Row, all, first, params, unique};

/// A stream below `streams/`. If it is a fork, the entries before `base` are stored with its source.
#[derive(Debug, Clone)]
pub struct PublicRow {
    pub key: i64,
    pub name: String,
    pub content_type: String,
    pub entries: u64,
    pub closed: bool,
    /// The time to live in seconds.
    pub ttl: Option<i64>,
    pub expires_at: Option<Timestamp>,
    pub last_seq: Option<String>,
    pub source: Option<i64>,
    pub base: u64,
    /// The request to create the fork, as JSON.
    pub fork_description: Option<String>,
    /// The number of forks of this stream.
    pub forks: u64,
    /// Whether the stream is deleted, but kept because it has forks.
    pub gone: bool,
}

impl dyn Tables + '_ {
    pub fn public(&self, name: &str) -> Result<Option<PublicRow>, Error> {
        first(self, "SELECT * FROM public_streams WHERE name = ?1", params![name], public)
    }

    pub fn public_by_key(&self, key: i64) -> Result<PublicRow, Error> {
        unique(self, "SELECT * FROM public_streams WHERE stream = ?1", params![key], public)
    }

    /// Returns the streams whose names begin with `prefix` and whose keys are less than `before`, in descending order of keys. Streams that
    /// are only kept for their forks are left out.
    pub fn list_public(&self, prefix: &str, before: i64, limit: u32) -> Result<Vec<PublicRow>, Error> {
        let begins = self.dialect().begins;
        let sql = format!(
            "SELECT * FROM public_streams WHERE stream < ?2 AND gone = 0 AND {begins} ORDER BY stream DESC LIMIT ?3"
        );
        all(self, &sql, params![prefix, before, limit], public)
    }

    /// Inserts a stream and returns its key. The number of entries is set later with `update_public`.
    pub fn insert_public(&self, stream: &PublicRow) -> Result<i64, Error> {
        let sql = "INSERT INTO public_streams (name, content_type, closed, ttl, expires_at, source, base, asked)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        let PublicRow { name, content_type, closed, ttl, expires_at, source, base, fork_description, .. } = stream;
        let values = params![name, content_type, closed, ttl, expires_at, source, base, fork_description];
        self.insert(sql, "stream", values)
    }

    /// Stores the number of entries, whether the stream is closed, its last sequence, and when it expires.
    pub fn update_public(&self, stream: &PublicRow) -> Result<(), Error> {
        let sql =
            "UPDATE public_streams SET entries = ?2, closed = ?3, last_seq = ?4, expires_at = ?5 WHERE stream = ?1";
        let values = params![stream.key, stream.entries, stream.closed, stream.last_seq, stream.expires_at];
        self.execute(sql, values)
    }

    pub fn count_fork(&self, key: i64, by: i64) -> Result<(), Error> {
        let sql = "UPDATE public_streams SET forks = forks + ?2 WHERE stream = ?1";
        self.execute(sql, params![key, by])
    }

    pub fn set_public_gone(&self, key: i64) -> Result<(), Error> {
        let sql = "UPDATE public_streams SET gone = 1, expires_at = NULL WHERE stream = ?1";
        self.execute(sql, params![key])
    }

    /// Removes the name of a stream. Its data is then deleted by background work. Returns the key of its source.
    pub fn unname_public(&self, key: i64) -> Result<Option<i64>, Error> {
        let sql = "UPDATE public_streams SET name = NULL, expires_at = NULL WHERE stream = ?1 RETURNING source";
        Ok(first(self, sql, params![key], |row| row.get(0))?.flatten())
    }

    pub fn expired(&self, now: Timestamp, max: usize) -> Result<Vec<i64>, Error> {
        let sql = "SELECT stream FROM public_streams WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2";
        all(self, sql, params![now, max], |row| row.get(0))
    }

    pub fn next_expiry(&self) -> Result<Option<Timestamp>, Error> {
        let sql = "SELECT expires_at FROM public_streams WHERE expires_at IS NOT NULL ORDER BY expires_at LIMIT 1";
        first(self, sql, params![], |row| row.get(0))
    }

    /// Returns the key of a stream without a name, whose data is to be deleted.
    pub fn unnamed_public(&self) -> Result<Option<i64>, Error> {
        let sql = "SELECT stream FROM public_streams WHERE name IS NULL LIMIT 1";
        first(self, sql, params![], |row| row.get(0))
    }

    pub fn delete_public(&self, key: i64) -> Result<(), Error> {
        self.execute("DELETE FROM public_streams WHERE stream = ?1", params![key])
    }

    /// Returns the stored epoch and sequence number of a producer.
    pub fn producer(&self, stream: i64, id: &str) -> Result<Option<Producer>, Error> {
        let sql = "SELECT epoch, seq FROM producers WHERE stream = ?1 AND id = ?2";
        first(self, sql, params![stream, id], |row| {
            Ok(Producer { id: id.to_owned(), epoch: row.get("epoch")?, seq: row.get("seq")? })
        })
    }

    pub fn put_producer(&self, stream: i64, producer: &Producer) -> Result<(), Error> {
        let sql = "INSERT INTO producers (stream, id, epoch, seq) VALUES (?1, ?2, ?3, ?4)
                   ON CONFLICT (stream, id) DO UPDATE SET epoch = excluded.epoch, seq = excluded.seq";
        let values = params![stream, producer.id, producer.epoch, producer.seq];
        self.execute(sql, values)
    }

    /// Deletes at most `max` producers of a stream. Returns how many were deleted.
    pub fn delete_producers(&self, stream: i64, max: usize) -> Result<usize, Error> {
        let sql = "DELETE FROM producers
                   WHERE (stream, id) IN (SELECT stream, id FROM producers WHERE stream = ?1 LIMIT ?2)";
        self.changed_rows(sql, params![stream, max])
    }
}

/// The entries of streams below `streams/`: bytes, numbered from 0.
impl dyn Tables + '_ {
    /// Calls `see` with each entry from `from` (inclusive) to `to` (exclusive), until it returns false. Returns false if it did.
    pub fn appends(&self, stream: i64, from: u64, to: u64, see: &mut dyn FnMut(&[u8]) -> bool) -> Result<bool, Error> {
        let sql = format!(
            "SELECT body FROM places {} JOIN appends USING (append) WHERE place >= ?1 AND place < ?2 ORDER BY place",
            self.dialect().in_order
        );
        let values = params![place(stream, from), place(stream, to)];
        self.query(&sql, values, Some(APPENDS), &mut |row| Ok(see(row.bytes(0)?)))
    }

    /// Returns the numbers of the first entries that are still stored, with their sizes in bytes.
    pub fn append_sizes(&self, stream: i64, max: usize) -> Result<Vec<(u64, u64)>, Error> {
        let sql = format!(
            "SELECT place - ?1 AS number, CAST(octet_length(body) AS bigint) AS size
             FROM places {} JOIN appends USING (append) WHERE place >= ?1 AND place < ?2 ORDER BY place LIMIT ?3",
            self.dialect().in_order
        );
        let values = params![place(stream, 0), place(stream + 1, 0), max];
        all(self, &sql, values, |row| Ok((row.get("number")?, row.get("size")?)))
    }

    /// Deletes the entries up to and including `last`.
    pub fn delete_appends(&self, stream: i64, last: u64) -> Result<(), Error> {
        let (from, to) = (place(stream, 0), place(stream, last));
        let sql = "DELETE FROM appends WHERE append IN (SELECT append FROM places WHERE place >= ?1 AND place <= ?2)";
        self.execute(sql, params![from, to])?;
        self.execute("DELETE FROM places WHERE place >= ?1 AND place <= ?2", params![from, to])
    }
}

fn public(row: &dyn Row) -> Result<PublicRow, Error> {
    Ok(PublicRow {
        key: row.get("stream")?,
        name: row.get::<Option<String>>("name")?.unwrap_or_default(),
        content_type: row.get("content_type")?,
        entries: row.get("entries")?,
        closed: row.get("closed")?,
        ttl: row.get("ttl")?,
        expires_at: row.get("expires_at")?,
        last_seq: row.get("last_seq")?,
        source: row.get("source")?,
        base: row.get("base")?,
        fork_description: row.get("asked")?,
        forks: row.get("forks")?,
        gone: row.get("gone")?,
    })
}

/// How many entries are fetched at a time.
const APPENDS: u32 = 64;
