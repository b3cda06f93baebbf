//! Documents whose pieces are knowledge entries, the vectors of entries, and which turns used an entry.

use ken_types::Error;

use super::Database;
use crate::tables::DocumentTables;
use crate::tables::documents::{MAX_EMBEDDED_CHARACTERS, VECTORS};
use crate::tables::sql::{all, each, params};

impl DocumentTables for Database {
    fn unembedded(&self, model: &str, max: usize) -> Result<Vec<(i64, String, String)>, Error> {
        // Without INDEXED BY, SQLite looks up each entry in the table of vectors, and reads all vectors for that.
        let sql = "SELECT entry, title, substr(content, 1, ?3) AS text FROM knowledge AS k
                   WHERE NOT EXISTS (SELECT 1 FROM vectors AS v INDEXED BY vectors_by_model
                                     WHERE v.model = ?1 AND v.entry = k.entry)
                   ORDER BY entry LIMIT ?2";
        all(self, sql, params![model, max, MAX_EMBEDDED_CHARACTERS], |row| {
            Ok((row.get("entry")?, row.get("title")?, row.get("text")?))
        })
    }

    fn vectors(
        &self,
        model: &str,
        scope_words: &[String],
        max: u32,
        see: &mut dyn FnMut(i64, &[u8]),
    ) -> Result<(), Error> {
        let sql = "SELECT entry, scope, vector FROM vectors WHERE model = ?1 ORDER BY entry DESC LIMIT ?2";
        let seen = each(self, sql, params![model, max], VECTORS, &mut |row| {
            let scope_word = row.text(1)?;
            if scope_words.iter().any(|known| known == scope_word) {
                see(row.get(0)?, row.bytes(2)?);
            }
            Ok(true)
        });
        seen.map(drop)
    }
}
