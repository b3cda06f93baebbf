//! The SQLite backend: one file, a write-ahead log, one writer, and read-only readers. Most functions run a single statement.

mod approvals;
mod backup;
mod blobs;
mod budgets;
mod checkpoints;
mod documents;
mod doors;
mod exchanges;
mod fault;
mod files;
mod governing;
mod ids;
mod keys;
mod knowledge;
mod logs;
mod messenger;
mod migrations;
mod notes;
mod open;
mod outbox;
mod pages;
mod public;
mod purges;
mod schedules;
mod sessions;
mod soundness;
mod submissions;
mod whole;

use std::fs::File;
use std::path::{Path, PathBuf};

use ken_types::ops::store::Scope;
use ken_types::{Error, Timestamp};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Params, Row, Statement};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::tables::columns::{UnknownWord, json, outside, place, rows, scope_text, to_json, turn_of};
use crate::tables::{Backend, Begun, Reader, Tables, Writer};
use checkpoints::Checkpoints;
use files::{Acknowledged, Moved, OpenFiles};
use open::Opened;
use soundness::Soundness;

/// A database file that is locked for this process.
#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    /// The connection that writes. It is opened first, because this creates and migrates the database, and is handed out only once.
    writer: Option<Opened>,
    _lock: File,
}

impl Sqlite {
    /// Opens a database: locks and checks it, and creates or migrates it. An error names the file and the problem; in that case the file is
    /// unchanged.
    pub fn open(path: &Path) -> Result<Sqlite, Error> {
        let lock = open::lock(path)?;
        let opened = open::writer(path)?;
        Ok(Sqlite { path: path.to_owned(), writer: Some(opened), _lock: lock })
    }

    /// Limits the size of the database to this number of pages of 4 KiB. When the limit is reached, every write fails as on a full disk.
    pub fn limit_pages(&self, pages: u32) -> Result<(), Error> {
        let limit = |opened: &Opened| opened.connection.pragma_update(None, "max_page_count", pages);
        let limited = self.writer.as_ref().map(limit).transpose();
        limited.map(drop).map_err(fault::error)
    }

    /// Reads the whole database and checks that it is sound. This also works while a store uses it.
    pub fn check(path: &Path, full: bool) -> Result<(), Error> {
        open::check(path, full)
    }

    /// Copies the database to a new file in one read transaction, which does not block the writer. The copy is a single file, and it is not
    /// synced.
    pub fn copy(from: &Path, to: &Path) -> Result<(), Error> {
        backup::copy(from, to).map_err(|error| Error::unavailable(format!("{}: {error}", from.display())))
    }
}

impl Backend for Sqlite {
    fn writer(&mut self) -> Result<Box<dyn Writer>, Error> {
        let Some(Opened { mut connection, acknowledged, newest, is_unclean }) = self.writer.take() else {
            return Err(Error::internal("the database has one writer, and it is taken"));
        };
        Ok(Box::new(SqliteWriter {
            checkpoints: Checkpoints::start(&self.path, &mut connection)?,
            soundness: is_unclean.then(|| Soundness::start(&self.path)).transpose()?,
            files: OpenFiles::of(&self.path),
            database: Database(connection),
            acknowledged,
            newest,
            rows_before: 0,
        }))
    }

    fn reader(&mut self) -> Result<Box<dyn Reader>, Error> {
        Ok(Box::new(Database(open::reader(&self.path)?)))
    }
}

/// The connection through which all tables are accessed.
struct Database(Connection);

impl Tables for Database {
    fn sizes(&self) -> Result<Map<String, Value>, Error> {
        let mut sizes = Map::new();
        for (name, sql) in [
            ("database_pages", "PRAGMA page_count"),
            ("free_pages", "PRAGMA freelist_count"),
            ("page_bytes", "PRAGMA page_size"),
        ] {
            let size: Option<i64> = first(self, sql, [], |row| row.get(0))?;
            sizes.insert(name.into(), size.into());
        }
        Ok(sizes)
    }
}

impl Reader for Database {
    fn read(&mut self, work: &mut dyn FnMut(&dyn Tables) -> Result<(), Error>) -> Result<(), Error> {
        run(self, "BEGIN", [])?;
        let done = work(self);
        let ended = run(self, "COMMIT", []);
        if !self.0.is_autocommit() {
            _ = run(self, "ROLLBACK", []);
        }
        done.and(ended.map(drop))
    }
}

struct SqliteWriter {
    database: Database,
    checkpoints: Checkpoints,
    /// After an unclean stop: the check in the background.
    soundness: Option<Soundness>,
    files: OpenFiles,
    acknowledged: Acknowledged,
    /// The number of the newest committed change.
    newest: u64,
    /// How many rows had been changed on this connection when the transaction began.
    rows_before: u64,
}

impl SqliteWriter {
    fn command(&self, sql: &str) -> Result<(), Error> {
        run(&self.database, sql, []).map(drop)
    }

    /// Ends the process if a file has moved away. What was committed since then is in a file without a name and ends with the process, so
    /// nothing may be acknowledged any more, not even by the calls that are being answered now.
    fn check_files(&self) {
        let Some(Moved { path, can_copy }) = self.files.moved() else {
            return;
        };
        tracing::error!("{} was removed or replaced while ken-store uses it; ken-store ends", path.display());
        // Through its descriptor SQLite can still read the log. If its name is all that has gone, nothing is lost.
        let copy = || unique(&self.database, "PRAGMA wal_checkpoint(FULL)", [], |row| row.get::<_, bool>("busy"));
        if can_copy && !matches!(copy(), Ok(false)) {
            tracing::error!("the log could not be copied into the database: its changes are lost");
        }
        std::process::abort();
    }
}

impl Drop for SqliteWriter {
    fn drop(&mut self) {
        // It reads, and the log cannot be cut while somebody does.
        self.soundness = None;
        self.checkpoints.stop(&self.database.0);
    }
}

impl Writer for SqliteWriter {
    fn tables(&self) -> &dyn Tables {
        &self.database
    }

    fn begin(&mut self) -> Result<Begun, Error> {
        self.rows_before = self.database.0.total_changes();
        self.command("BEGIN IMMEDIATE").map(|()| Begun::AfterOwn)
    }

    fn savepoint(&mut self) -> Result<(), Error> {
        self.command("SAVEPOINT change")
    }

    fn release(&mut self) -> Result<(), Error> {
        self.command("RELEASE change")
    }

    fn rollback_to_savepoint(&mut self) -> Result<(), Error> {
        self.command("ROLLBACK TO change")?;
        self.release()
    }

    fn commit(&mut self) -> Result<(), Error> {
        if self.database.0.total_changes() == self.rows_before {
            return self.command("COMMIT");
        }
        let newest = self.newest + 1;
        open::set_newest_change(&self.database.0, newest).map_err(fault::error)?;
        self.command("COMMIT")?;
        self.newest = newest;
        // In this order: the changes that a lost log has taken along must not count as acknowledged.
        self.check_files();
        self.acknowledged.record(newest);
        Ok(())
    }

    fn rollback(&mut self) {
        if self.is_open() && self.command("ROLLBACK").is_err() {
            tracing::error!("a transaction could not be rolled back");
        }
    }

    fn is_open(&self) -> bool {
        !self.database.0.is_autocommit()
    }

    fn run_idle(&mut self) -> Result<bool, Error> {
        Ok(self.checkpoints.request_truncation())
    }

    fn probe(&mut self) -> Result<(), Error> {
        self.begin()?;
        // Setting the version writes the first page, even if the version does not change.
        let version: i64 = unique(&self.database, "PRAGMA user_version", [], |row| row.get(0))?;
        let set = self.database.0.pragma_update(None, "user_version", version);
        set.map_err(fault::error)?;
        self.commit()
    }
}

/// Runs a statement that changes something. Returns the number of rows.
fn run(database: &Database, sql: &str, params: impl Params) -> Result<usize, Error> {
    statement(database, sql, |statement| statement.execute(params))
}

/// Runs a statement that inserts one row. Returns its key.
fn insert(database: &Database, sql: &str, params: impl Params) -> Result<i64, Error> {
    run(database, sql, params)?;
    Ok(database.0.last_insert_rowid())
}

/// Returns the first row of a query.
fn first<T>(
    database: &Database,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Option<T>, Error> {
    statement(database, sql, |statement| statement.query_row(params, read).optional())
}

/// Returns the only row of a query. It is a defect if there is none.
fn unique<T>(
    database: &Database,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<T, Error> {
    statement(database, sql, |statement| statement.query_row(params, read))
}

/// Returns all rows of a query.
fn all<T>(
    database: &Database,
    sql: &str,
    params: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, Error> {
    statement(database, sql, |statement| statement.query_map(params, read)?.collect())
}

/// Calls `see` with the text in the first column of each row, until it returns false.
fn each_text(
    database: &Database,
    sql: &str,
    params: impl Params,
    see: &mut dyn FnMut(&str) -> bool,
) -> Result<(), Error> {
    statement(database, sql, |statement| {
        let mut rows = statement.query(params)?;
        while let Some(row) = rows.next()? {
            if !see(row.get_ref(0)?.as_str()?) {
                break;
            }
        }
        Ok(())
    })
}

/// Calls a function with a prepared statement, which stays in the cache of the connection.
fn statement<T>(
    database: &Database,
    sql: &str,
    work: impl FnOnce(&mut Statement<'_>) -> rusqlite::Result<T>,
) -> Result<T, Error> {
    let done = database.0.prepare_cached(sql).and_then(|mut statement| work(&mut statement));
    done.map_err(fault::error)
}

/// Reads a time from a column that contains milliseconds.
fn time(row: &Row<'_>, column: &str) -> rusqlite::Result<Timestamp> {
    row.get(column).map(Timestamp::from_millis)
}

/// Reads a count from a column.
fn count(row: &Row<'_>, column: &str) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(i64::cast_unsigned)
}

/// Reads a value from a column that contains JSON or NULL.
fn stored<T: DeserializeOwned>(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<T>> {
    let text: Option<String> = row.get(column)?;
    let value = text.map(|text| serde_json::from_str(&text)).transpose();
    value.map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error)))
}

/// Reads a word from a column. `place` is the table and the column, with a dot between them.
fn word<T>(row: &Row<'_>, place: &'static str, named: impl FnOnce(&str) -> Option<T>) -> rusqlite::Result<T> {
    let column = place.rsplit('.').next().unwrap_or(place);
    let word = row.get_ref(column)?.as_str()?;
    named(word).ok_or_else(|| {
        let unknown = UnknownWord { place, word: word.to_owned() };
        rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(unknown))
    })
}

/// Reads a word from a column that may be NULL.
fn optional_word<T>(
    row: &Row<'_>,
    place: &'static str,
    named: impl FnOnce(&str) -> Option<T>,
) -> rusqlite::Result<Option<T>> {
    let column = place.rsplit('.').next().unwrap_or(place);
    let is_null = row.get_ref(column)?.as_str_or_null()?.is_none();
    if is_null { Ok(None) } else { word(row, place, named).map(Some) }
}

/// Reads a scope from a row that contains its columns.
fn scope(row: &Row<'_>) -> rusqlite::Result<Scope> {
    Ok(Scope {
        connector: row.get("connector")?,
        actor_id: row.get("actor")?,
        conversation_id: row.get("conversation")?,
        thread_id: row.get("thread")?,
    })
}
