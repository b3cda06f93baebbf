//! Copies the database with SQLite's backup API.

use std::path::Path;

use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags};

/// Returns a connection to the copy, which is one file, without a write-ahead log beside it.
pub(super) fn copy(from: &Path, to: &Path) -> rusqlite::Result<Connection> {
    let source = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let mut target = Connection::open(to)?;
    Backup::new(&source, &mut target)?.step(-1)?;
    target.pragma_update(None, "journal_mode", "DELETE")?;
    Ok(target)
}

/// Whether sessions are being deleted for good. A database of an earlier release may lack the tables.
pub(super) fn has_purges(copy: &Connection) -> rusqlite::Result<bool> {
    let has = |table: &str, sql: &str| -> rusqlite::Result<bool> {
        Ok(copy.table_exists(None, table)? && copy.prepare(sql)?.exists([])?)
    };
    Ok(has("purges", "SELECT 1 FROM purges")? || has("facts", "SELECT 1 FROM facts WHERE name = 'purges.pass'")?)
}
