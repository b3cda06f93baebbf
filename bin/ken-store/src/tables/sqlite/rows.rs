//! Vectors, entries of streams, and summaries: the statements that both databases need, each in its own way.

use ken_types::{Error, Timestamp};
use serde_json::value::RawValue;

use super::{Database, fault};
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
        let sql = "SELECT entry, scope, vector FROM vectors WHERE model = ?1 ORDER BY entry DESC LIMIT ?2";
        let seen = self.query(sql, params![model, max], Some(VECTORS), &mut |row| {
            let scope_word = row.text(1)?;
            if scope_words.iter().any(|known| known == scope_word) {
                see(row.get(0)?, row.bytes(2)?);
            }
            Ok(true)
        });
        seen.map(drop)
    }

    fn insert_entries(&self, log: i64, first: u64, entries: &[Box<RawValue>]) -> Result<(), Error> {
        let sql = "INSERT INTO entries (place, body) VALUES (?1, ?2)";
        let mut insert = self.0.prepare_cached(sql).map_err(fault::error)?;
        for (number, entry) in (first..).zip(entries) {
            insert.execute((place(log, number), entry.get())).map_err(fault::error)?;
        }
        Ok(())
    }

    fn insert_append(&self, stream: i64, number: u64, body: &[u8]) -> Result<(), Error> {
        let key = self.insert("INSERT INTO appends (body) VALUES (?1)", "append", params![body])?;
        let sql = "INSERT INTO places (place, append) VALUES (?1, ?2)";
        self.execute(sql, params![place(stream, number), key])
    }

    fn prune_summaries(&self, before: Timestamp, kept: usize, max: usize) -> Result<usize, Error> {
        // `usage` has the same keys in far fewer pages: summaries are counted there.
        let sql = "DELETE FROM telemetry WHERE submission IN (
            SELECT * FROM (SELECT submission FROM telemetry WHERE settled_at < ?1 LIMIT ?3)
            UNION SELECT submission FROM usage WHERE submission <= coalesce(
                (SELECT submission FROM usage ORDER BY submission DESC LIMIT 1 OFFSET ?2), 0)
            ORDER BY 1 LIMIT ?3)";
        self.changed_rows(sql, params![before, kept, max])
    }
}
