//! Vectors, entries of streams, and summaries: the statements that both databases need, each in its own way.

use ken_types::{Error, Timestamp};
use serde_json::value::RawValue;

use super::Database;
use crate::tables::Tables;
use crate::tables::columns::place;
use crate::tables::documents::VECTORS;
use crate::tables::sql::{Sql, params};

impl Tables for Database {
    fn vectors(
        &self,
        model: &str,
        scope_words: &[String],
        max: u32,
        see: &mut dyn FnMut(i64, &[u8]),
    ) -> Result<(), Error> {
        let sql = "SELECT entry, vector FROM (
                     SELECT entry, scope, vector FROM vectors WHERE model = ?1 ORDER BY entry DESC LIMIT ?2) AS newest
                   WHERE scope = ANY (?3) ORDER BY entry DESC";
        let seen = self.query(sql, params![model, max, scope_words], Some(VECTORS), &mut |row| {
            see(row.get(0)?, row.bytes(1)?);
            Ok(true)
        });
        seen.map(drop)
    }

    fn insert_entries(&self, log: i64, first: u64, entries: &[Box<RawValue>]) -> Result<(), Error> {
        // One statement for all of them, because each statement is a round trip.
        let sql = "INSERT INTO entries (place, body) SELECT ?1 + number - 1, body
                   FROM unnest(?2::text[]) WITH ORDINALITY AS new (body, number)";
        let bodies: Vec<String> = entries.iter().map(|entry| entry.get().to_owned()).collect();
        self.execute(sql, params![place(log, first), bodies])
    }

    fn insert_append(&self, stream: i64, number: u64, body: &[u8]) -> Result<(), Error> {
        let sql = "WITH new AS (INSERT INTO appends (body) VALUES (?2) RETURNING append)
                   INSERT INTO places (place, append) SELECT ?1, append FROM new";
        self.execute(sql, params![place(stream, number), body])
    }

    fn prune_summaries(&self, before: Timestamp, kept: usize, max: usize) -> Result<usize, Error> {
        // `usage` has the same keys in far fewer pages: summaries are counted there. What is kept as long as a summary goes with it.
        let sql = "WITH old AS MATERIALIZED (
              SELECT submission FROM (SELECT submission FROM telemetry WHERE settled_at < ?1 LIMIT ?3) AS aged
              UNION SELECT submission FROM usage WHERE submission <= coalesce(
                (SELECT submission FROM usage ORDER BY submission DESC LIMIT 1 OFFSET ?2), 0)
              ORDER BY 1 LIMIT ?3),
            used AS (DELETE FROM usage USING old WHERE usage.submission = old.submission),
            put_out AS (DELETE FROM outputs USING old WHERE outputs.submission = old.submission),
            found AS (DELETE FROM knowledge_uses USING old WHERE knowledge_uses.submission = old.submission)
            DELETE FROM telemetry USING old WHERE telemetry.submission = old.submission";
        self.changed_rows(sql, params![before, kept, max])
    }
}
