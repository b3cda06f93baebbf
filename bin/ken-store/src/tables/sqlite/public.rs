//! The streams below `streams/`, their producers and their entries.

use ken_types::Error;

use super::Database;
use crate::tables::columns::place;
use crate::tables::public::{APPENDS, public};
use crate::tables::sql::{Sql, all, each, params};
use crate::tables::{Appends, PublicRow, PublicStreams};

impl PublicStreams for Database {
    fn list_public(&self, prefix: &str, before: i64, limit: u32) -> Result<Vec<PublicRow>, Error> {
        let sql = "SELECT * FROM public_streams
                   WHERE stream < ?2 AND gone = 0 AND substr(name, 1, length(?1)) = ?1
                   ORDER BY stream DESC LIMIT ?3";
        all(self, sql, params![prefix, before, limit], public)
    }
}

impl Appends for Database {
    fn insert_append(&self, stream: i64, number: u64, body: &[u8]) -> Result<(), Error> {
        let key = self.insert("INSERT INTO appends (body) VALUES (?1)", "append", params![body])?;
        let sql = "INSERT INTO places (place, append) VALUES (?1, ?2)";
        self.execute(sql, params![place(stream, number), key])
    }

    fn appends(&self, stream: i64, from: u64, to: u64, see: &mut dyn FnMut(&[u8]) -> bool) -> Result<bool, Error> {
        let sql = "SELECT body FROM places CROSS JOIN appends USING (append)
                   WHERE place >= ?1 AND place < ?2 ORDER BY place";
        let values = params![place(stream, from), place(stream, to)];
        each(self, sql, values, APPENDS, &mut |row| Ok(see(row.bytes(0)?)))
    }

    fn append_sizes(&self, stream: i64, max: usize) -> Result<Vec<(u64, u64)>, Error> {
        let first = place(stream, 0);
        let sql = "SELECT place - ?1 AS number, length(body) AS size FROM places CROSS JOIN appends USING (append)
                   WHERE place >= ?1 AND place < ?2 ORDER BY place LIMIT ?3";
        let values = params![first, place(stream + 1, 0), max];
        all(self, sql, values, |row| Ok((row.get("number")?, row.get("size")?)))
    }
}
