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
        let sql = "SELECT entry, vector FROM (
                     SELECT entry, scope, vector FROM vectors WHERE model = ?1 ORDER BY entry DESC LIMIT ?2) AS newest
                   WHERE scope = ANY (?3) ORDER BY entry DESC";
        let seen = self.query(sql, params![model, max, scope_words], Some(VECTORS), &mut |row| {
            see(row.get(0)?, row.bytes(1)?);
            Ok(true)
        });
        seen.map(drop)
    }
}
