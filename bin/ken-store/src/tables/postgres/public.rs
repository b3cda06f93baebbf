//! The streams below `streams/`, their producers and their entries.

use ken_types::ops::streams::Producer;
use ken_types::{Error, Timestamp};

use super::{Database, Row, all, count, each, first, insert, params, place, rows, run, unique};
use crate::tables::{Appends, PublicRow, PublicStreams};

fn public(row: &Row) -> Result<PublicRow, Error> {
    let expires_at: Option<i64> = row.get("expires_at")?;
    Ok(PublicRow {
        key: row.get("stream")?,
        name: row.get::<Option<String>>("name")?.unwrap_or_default(),
        content_type: row.get("content_type")?,
        entries: count(row, "entries")?,
        closed: row.get("closed")?,
        ttl: row.get("ttl")?,
        expires_at: expires_at.map(Timestamp::from_millis),
        last_seq: row.get("last_seq")?,
        source: row.get("source")?,
        base: count(row, "base")?,
        fork_description: row.get("asked")?,
        forks: count(row, "forks")?,
        gone: row.get("gone")?,
    })
}

/// How many entries are fetched at a time.
const APPENDS: u32 = 64;

impl PublicStreams for Database {
    fn public(&self, name: &str) -> Result<Option<PublicRow>, Error> {
        first(self, "SELECT * FROM public_streams WHERE name = $1", params![name], public)
    }

    fn public_by_key(&self, key: i64) -> Result<PublicRow, Error> {
        unique(self, "SELECT * FROM public_streams WHERE stream = $1", params![key], public)
    }

    fn list_public(&self, prefix: &str, before: i64, limit: u32) -> Result<Vec<PublicRow>, Error> {
        let sql = "SELECT * FROM public_streams
                   WHERE stream < $2 AND gone = 0 AND starts_with(name, $1)
                   ORDER BY stream DESC LIMIT $3";
        all(self, sql, params![prefix, before, limit], public)
    }

    fn insert_public(&self, stream: &PublicRow) -> Result<i64, Error> {
        let sql = "INSERT INTO public_streams (name, content_type, closed, ttl, expires_at, source, base, asked)
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING stream";
        let values = params![
            stream.name,
            stream.content_type,
            stream.closed,
            stream.ttl,
            stream.expires_at.map(Timestamp::millis),
            stream.source,
            stream.base.cast_signed(),
            stream.fork_description
        ];
        insert(self, sql, values)
    }

    fn update_public(&self, stream: &PublicRow) -> Result<(), Error> {
        let sql =
            "UPDATE public_streams SET entries = $2, closed = $3, last_seq = $4, expires_at = $5 WHERE stream = $1";
        let values = params![
            stream.key,
            stream.entries.cast_signed(),
            stream.closed,
            stream.last_seq,
            stream.expires_at.map(Timestamp::millis)
        ];
        run(self, sql, values).map(drop)
    }

    fn count_fork(&self, key: i64, by: i64) -> Result<(), Error> {
        let sql = "UPDATE public_streams SET forks = forks + $2 WHERE stream = $1";
        run(self, sql, params![key, by]).map(drop)
    }

    fn set_public_gone(&self, key: i64) -> Result<(), Error> {
        let sql = "UPDATE public_streams SET gone = 1, expires_at = NULL WHERE stream = $1";
        run(self, sql, params![key]).map(drop)
    }

    fn unname_public(&self, key: i64) -> Result<Option<i64>, Error> {
        let sql = "UPDATE public_streams SET name = NULL, expires_at = NULL WHERE stream = $1 RETURNING source";
        Ok(first(self, sql, params![key], |row| row.get(0))?.flatten())
    }

    fn expired(&self, now: Timestamp, max: usize) -> Result<Vec<i64>, Error> {
        let sql = "SELECT stream FROM public_streams WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2";
        all(self, sql, params![now.millis(), rows(max)], |row| row.get(0))
    }

    fn next_expiry(&self) -> Result<Option<Timestamp>, Error> {
        let sql = "SELECT expires_at FROM public_streams WHERE expires_at IS NOT NULL ORDER BY expires_at LIMIT 1";
        Ok(first(self, sql, params![], |row| row.get(0))?.map(Timestamp::from_millis))
    }

    fn unnamed_public(&self) -> Result<Option<i64>, Error> {
        let sql = "SELECT stream FROM public_streams WHERE name IS NULL LIMIT 1";
        first(self, sql, params![], |row| row.get(0))
    }

    fn delete_public(&self, key: i64) -> Result<(), Error> {
        run(self, "DELETE FROM public_streams WHERE stream = $1", params![key]).map(drop)
    }

    fn producer(&self, stream: i64, id: &str) -> Result<Option<Producer>, Error> {
        let sql = "SELECT epoch, seq FROM producers WHERE stream = $1 AND id = $2";
        first(self, sql, params![stream, id], |row| {
            Ok(Producer { id: id.to_owned(), epoch: count(row, "epoch")?, seq: count(row, "seq")? })
        })
    }

    fn put_producer(&self, stream: i64, producer: &Producer) -> Result<(), Error> {
        let sql = "INSERT INTO producers (stream, id, epoch, seq) VALUES ($1, $2, $3, $4)
                   ON CONFLICT (stream, id) DO UPDATE SET epoch = excluded.epoch, seq = excluded.seq";
        let values = params![stream, producer.id, producer.epoch.cast_signed(), producer.seq.cast_signed()];
        run(self, sql, values).map(drop)
    }

    fn delete_producers(&self, stream: i64, max: usize) -> Result<usize, Error> {
        let sql = "DELETE FROM producers
                   WHERE (stream, id) IN (SELECT stream, id FROM producers WHERE stream = $1 LIMIT $2)";
        run(self, sql, params![stream, rows(max)])
    }
}

impl Appends for Database {
    fn insert_append(&self, stream: i64, number: u64, body: &[u8]) -> Result<(), Error> {
        let sql = "WITH new AS (INSERT INTO appends (body) VALUES ($2) RETURNING append)
                   INSERT INTO places (place, append) SELECT $1, append FROM new";
        run(self, sql, params![place(stream, number), body]).map(drop)
    }

    fn appends(&self, stream: i64, from: u64, to: u64, see: &mut dyn FnMut(&[u8]) -> bool) -> Result<bool, Error> {
        let sql = "SELECT body FROM places JOIN appends USING (append)
                   WHERE place >= $1 AND place < $2 ORDER BY place";
        let values = params![place(stream, from), place(stream, to)];
        each(self, sql, values, APPENDS, &mut |row| Ok(see(row.bytes(0)?)))
    }

    fn append_sizes(&self, stream: i64, max: usize) -> Result<Vec<(u64, u64)>, Error> {
        let first = place(stream, 0);
        let sql =
            "SELECT place - $1 AS number, octet_length(body)::bigint AS size FROM places JOIN appends USING (append)
                   WHERE place >= $1 AND place < $2 ORDER BY place LIMIT $3";
        let values = params![first, place(stream + 1, 0), rows(max)];
        all(self, sql, values, |row| Ok((count(row, "number")?, count(row, "size")?)))
    }

    fn delete_appends(&self, stream: i64, last: u64) -> Result<(), Error> {
        let (from, to) = (place(stream, 0), place(stream, last));
        let sql = "DELETE FROM appends WHERE append IN (SELECT append FROM places WHERE place >= $1 AND place <= $2)";
        run(self, sql, params![from, to])?;
        run(self, "DELETE FROM places WHERE place >= $1 AND place <= $2", params![from, to]).map(drop)
    }
}
