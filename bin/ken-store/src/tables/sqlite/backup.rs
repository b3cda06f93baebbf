//! Copies the database with SQLite's backup API.

use std::path::Path;

use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags};

pub(super) fn copy(from: &Path, to: &Path) -> rusqlite::Result<()> {
    let source = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let mut target = Connection::open(to)?;
    Backup::new(&source, &mut target)?.step(-1)?;
    // The copy is one file, without a write-ahead log beside it.
    target.pragma_update(None, "journal_mode", "DELETE")
}
