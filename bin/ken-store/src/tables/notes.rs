//! Notes of instances.

use ken_types::fence::Outside;
use ken_types::ops::store::{Note, NoteKind, PutNote};
use ken_types::{Error, Timestamp};

use super::Tables;
use super::columns::{outside, stored};
use super::sql::{all, params};

/// The notes of instances, by kind and name.
impl dyn Tables + '_ {
    pub fn put_note(&self, stream: i64, note: &PutNote, origins: &Outside, now: Timestamp) -> Result<(), Error> {
        let sql = "INSERT INTO notes (stream, kind, name, body, updated_at, outside)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                   ON CONFLICT (stream, kind, name) DO UPDATE SET body = ?4, updated_at = ?5, outside = ?6";
        let values = params![stream, note.kind.name(), note.name, note.body, now, outside(origins)?];
        self.execute(sql, values)
    }

    pub fn delete_note(&self, stream: i64, kind: NoteKind, name: &str) -> Result<(), Error> {
        let sql = "DELETE FROM notes WHERE stream = ?1 AND kind = ?2 AND name = ?3";
        self.execute(sql, params![stream, kind.name(), name])
    }

    pub fn notes(&self, stream: i64, kind: NoteKind) -> Result<Vec<Note>, Error> {
        let sql = "SELECT name, body, updated_at, outside FROM notes WHERE stream = ?1 AND kind = ?2 ORDER BY name";
        all(self, sql, params![stream, kind.name()], |row| {
            Ok(Note {
                name: row.get("name")?,
                body: row.get("body")?,
                updated_at: row.get("updated_at")?,
                outside: stored(row, "outside")?.unwrap_or_default(),
            })
        })
    }
}
