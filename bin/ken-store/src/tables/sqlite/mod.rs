//! The SQLite backend: one file, a write-ahead log, one writer, read-only readers. One statement a function.

mod approvals;
mod backup;
mod blobs;
mod budgets;
mod checkpoints;
mod documents;
mod exchanges;
mod fault;
mod files;
mod governing;
mod keys;
mod knowledge;
mod logs;
mod messenger;
mod migrations;
mod notes;
mod open;
mod outbox;
mod public;
mod schedules;
mod sessions;
mod submissions;

use std::fs::File;
use std::path::{Path, PathBuf};

use ken_types::ops::store::Scope;
use ken_types::{Error, Timestamp};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Params, Row, Statement};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::rules::record;
use crate::rules::stream_names::MOST_ENTRIES;
use crate::tables::{Backend, Reader, Tables, Writer};
use checkpoints::Checkpoints;
use files::Files;
pub use files::Found as FilesFound;

/// A database file, locked for this process.
#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    /// Opened first, since that makes and migrates the database; handed out once.
    writer: Option<(Connection, Files)>,
    found: FilesFound,
    _lock: File,
}

impl Sqlite {
    /// Locks, checks, makes or migrates. Errors name the file and what is wrong with it; then it is untouched.
    pub fn open(path: &Path) -> Result<Sqlite, Error> {
        let lock = open::lock(path)?;
        let (writer, files, found) = open::writer(path)?;
        Ok(Sqlite { path: path.to_owned(), writer: Some((writer, files)), found, _lock: lock })
    }

    /// What was wrong with the files when they were opened.
    pub fn found(&self) -> &FilesFound {
        &self.found
    }

    /// Lets the file have at most so many pages of 4 KiB: beyond it every write is refused as on a full disk.
    pub fn limit_pages(&self, pages: u32) -> Result<(), Error> {
        let limit = |(connection, _): &(Connection, Files)| connection.pragma_update(None, "max_page_count", pages);
        let limited = self.writer.as_ref().map(limit).transpose();
        limited.map(drop).map_err(fault::error)
    }

    /// Reads the whole database, also beside a store that runs, and says whether it is sound.
    pub fn check(path: &Path, full: bool) -> Result<(), Error> {
        open::check(path, full)
    }

    /// Copies the database to a new file, in one read transaction, which holds up no writer. The copy needs no file beside
    /// it; it is not synced.
    pub fn copy(from: &Path, to: &Path) -> Result<(), Error> {
        backup::copy(from, to).map_err(|error| Error::unavailable(format!("{}: {error}", from.display())))
    }
}

impl Backend for Sqlite {
    fn writer(&mut self) -> Result<Box<dyn Writer>, Error> {
        let Some((mut connection, files)) = self.writer.take() else {
            return Err(Error::internal("the database has one writer, and it is taken"));
        };
        let checkpoints = Checkpoints::start(&self.path, files, &mut connection)?;
        Ok(Box::new(SqliteWriter { database: Database(connection), checkpoints }))
    }

    fn reader(&mut self) -> Result<Box<dyn Reader>, Error> {
        Ok(Box::new(Database(open::reader(&self.path)?)))
    }
}

/// One connection, with all tables on it.
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
}

impl SqliteWriter {
    fn command(&self, sql: &str) -> Result<(), Error> {
        run(&self.database, sql, []).map(drop)
    }
}

impl Drop for SqliteWriter {
    fn drop(&mut self) {
        self.checkpoints.stop(&self.database.0);
    }
}

impl Writer for SqliteWriter {
    fn tables(&self) -> &dyn Tables {
        &self.database
    }

    fn begin(&mut self) -> Result<(), Error> {
        self.command("BEGIN IMMEDIATE")
    }

    fn mark(&mut self) -> Result<(), Error> {
        self.command("SAVEPOINT change")
    }

    fn keep(&mut self) -> Result<(), Error> {
        self.command("RELEASE change")
    }

    fn undo(&mut self) -> Result<(), Error> {
        self.command("ROLLBACK TO change")?;
        self.keep()
    }

    fn commit(&mut self) -> Result<(), Error> {
        self.command("COMMIT")
    }

    fn rollback(&mut self) {
        if self.is_open() && self.command("ROLLBACK").is_err() {
            tracing::error!("a transaction could not be rolled back");
        }
    }

    fn is_open(&self) -> bool {
        !self.database.0.is_autocommit()
    }

    fn rest(&mut self) -> bool {
        self.checkpoints.cut()
    }

    fn probe(&mut self) -> Result<(), Error> {
        self.begin()?;
        // Setting the version writes the first page, whatever it was.
        let version: i64 = unique(&self.database, "PRAGMA user_version", [], |row| row.get(0))?;
        let set = self.database.0.pragma_update(None, "user_version", version);
        set.map_err(fault::error)?;
        self.commit()
    }
}

/// Runs a statement that changes something; says how many rows.
fn run(database: &Database, sql: &str, params: impl Params) -> Result<usize, Error> {
    statement(database, sql, |statement| statement.execute(params))
}

/// Runs a statement that inserts one row; its key.
fn insert(database: &Database, sql: &str, params: impl Params) -> Result<i64, Error> {
    run(database, sql, params)?;
    Ok(database.0.last_insert_rowid())
}

/// The first row of a query.
fn first<T>(
    database: &Database,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Option<T>, Error> {
    statement(database, sql, |statement| statement.query_row(params, read).optional())
}

/// The only row of a query. None is a defect.
fn unique<T>(
    database: &Database,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<T, Error> {
    statement(database, sql, |statement| statement.query_row(params, read))
}

/// All rows of a query.
fn all<T>(
    database: &Database,
    sql: &str,
    params: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, Error> {
    statement(database, sql, |statement| statement.query_map(params, read)?.collect())
}

/// Calls `see` with the text of each row's first column until that returns false.
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

/// Does something with a statement, which stays prepared.
fn statement<T>(
    database: &Database,
    sql: &str,
    work: impl FnOnce(&mut Statement<'_>) -> rusqlite::Result<T>,
) -> Result<T, Error> {
    let done = database.0.prepare_cached(sql).and_then(|mut statement| work(&mut statement));
    done.map_err(fault::error)
}

/// A number of rows as a parameter.
fn rows(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A time as a column holds it.
fn time(row: &Row<'_>, column: &str) -> rusqlite::Result<Timestamp> {
    row.get(column).map(Timestamp::from_millis)
}

/// A count as a column holds it.
fn count(row: &Row<'_>, column: &str) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(i64::cast_unsigned)
}

/// A value as JSON for a column.
fn to_json(value: &impl Serialize) -> Result<String, Error> {
    record::write(value)
}

/// As [`to_json`], of a value that may be missing.
fn json(value: Option<&(impl Serialize + ?Sized)>) -> Result<Option<String>, Error> {
    value.map(|value| record::write(&value)).transpose()
}

/// A value from a column that holds JSON or nothing.
fn stored<T: DeserializeOwned>(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<T>> {
    let text: Option<String> = row.get(column)?;
    let value = text.map(|text| serde_json::from_str(&text)).transpose();
    value.map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error)))
}

/// A scope from a row that has its columns.
fn scope(row: &Row<'_>) -> rusqlite::Result<Scope> {
    Ok(Scope {
        connector: row.get("connector")?,
        actor_id: row.get("actor")?,
        conversation_id: row.get("conversation")?,
        thread_id: row.get("thread")?,
    })
}

/// The key of an entry: stream and number, so that a stream is stored together and in order, and a page of it costs its own
/// length.
fn place(stream: i64, number: u64) -> i64 {
    (stream << 32) | number.min(MOST_ENTRIES).cast_signed()
}
