//! The vectors of entries.

use ken_types::Error;

use super::Database;
use crate::tables::DocumentTables;
use crate::tables::documents::VECTORS;
use crate::tables::sql::{Sql, params};

impl DocumentTables for Database {
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
}
