//! The SQLite backend: one file, a write-ahead log, one writer, and read-only readers. Most functions run a single statement.

mod backup;
mod checkpoints;
mod fault;
mod files;
mod knowledge;
mod migrations;
mod open;
mod pages;
mod purges;
mod rows;
mod soundness;
mod whole;

use std::fs::File;
use std::path::{Path, PathBuf};

use ken_types::Error;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, ToSql, params_from_iter};

use crate::tables::sql::{Column, Content, Dialect, Parameters, Row, See, Sql, Value, params, unique};
use crate::tables::{Backend, Begun, HostTable, Reader, Tables, Writer};
use checkpoints::Checkpoints;
use files::{Acknowledged, Moved, OpenFiles};
pub use files::{beside, keep, temporary_error};
use open::{ChangeNumber, Opened};
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

    /// Copies the database to a new file in one read transaction, which does not block the writer. If sessions are being deleted for good, calls
    /// `delete` on the copy, each time in a transaction, until it returns that nothing is left. The copy is a single file, and it is not synced.
    pub fn copy(
        from: &Path,
        to: &Path,
        mut delete: impl FnMut(&dyn Tables) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let failed = |error: rusqlite::Error| Error::unavailable(format!("{}: {error}", from.display()));
        let copy = backup::copy(from, to).map_err(failed)?;
        // Any other copy keeps its version, so that an earlier release can be given the backup that was made before an upgrade.
        if !backup::has_purges(&copy).map_err(failed)? {
            return Ok(());
        }
        open::prepare_copy(to, &copy)?;
        let (copy, mut has_more) = (Database(copy), true);
        while has_more {
            copy.in_transaction(&mut |tables| delete(tables).map(|more| has_more = more))?;
        }
        Ok(())
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

impl Reader for Database {
    fn read(&mut self, _: bool, work: &mut dyn FnMut(&dyn Tables) -> Result<(), Error>) -> Result<(), Error> {
        self.in_transaction(work)
    }
}

impl Database {
    fn in_transaction(&self, work: &mut dyn FnMut(&dyn Tables) -> Result<(), Error>) -> Result<(), Error> {
        self.execute("BEGIN", params![])?;
        let done = work(self);
        let ended = self.execute("COMMIT", params![]);
        if !self.0.is_autocommit() {
            _ = self.execute("ROLLBACK", params![]);
        }
        done.and(ended)
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
    newest: ChangeNumber,
    /// How many rows had been changed on this connection when the transaction began.
    rows_before: u64,
}

impl SqliteWriter {
    fn command(&self, sql: &str) -> Result<(), Error> {
        self.database.execute(sql, params![])
    }

    /// Ends the process if a file has moved away. What was committed since then is in a file without a name and ends with the process, so
    /// nothing may be acknowledged any more, not even by the calls that are being answered now.
    fn check_files(&self) {
        let Some(Moved { path, can_copy }) = self.files.moved() else {
            return;
        };
        tracing::error!("{} was removed or replaced while ken-store uses it; ken-store ends", path.display());
        // Through its descriptor SQLite can still read the log. If its name is all that has gone, nothing is lost.
        let copy = || unique(&self.database, "PRAGMA wal_checkpoint(FULL)", params![], |row| row.get::<bool>("busy"));
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
        let newest = self.newest.next(&self.database.0).map_err(fault::error)?;
        self.command("COMMIT")?;
        self.newest = newest;
        // In this order: the changes that a lost log has taken along must not count as acknowledged.
        self.check_files();
        self.acknowledged.record(newest.sum());
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
        let version: i64 = unique(&self.database, "PRAGMA user_version", params![], |row| row.get(0))?;
        let set = self.database.0.pragma_update(None, "user_version", version);
        set.map_err(fault::error)?;
        self.commit()
    }
}

impl Sql for Database {
    fn execute(&self, sql: &str, values: Parameters<'_>) -> Result<(), Error> {
        self.changed_rows(sql, values).map(drop)
    }

    fn changed_rows(&self, sql: &str, values: Parameters<'_>) -> Result<usize, Error> {
        let run = |mut statement: CachedStatement<'_>| statement.execute(bound(values));
        self.0.prepare_cached(sql).and_then(run).map_err(fault::error)
    }

    fn insert(&self, sql: &str, _: &str, values: Parameters<'_>) -> Result<i64, Error> {
        // RETURNING would create a temporary table each time and take twice as long.
        self.execute(sql, values)?;
        Ok(self.0.last_insert_rowid())
    }

    fn query(&self, sql: &str, values: Parameters<'_>, _: Option<u32>, see: See<'_>) -> Result<bool, Error> {
        let mut statement = self.0.prepare_cached(sql).map_err(fault::error)?;
        let mut rows = statement.query(bound(values)).map_err(fault::error)?;
        while let Some(row) = rows.next().map_err(fault::error)? {
            if !see(row)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn dialect(&self) -> Dialect {
        Dialect {
            json: "",
            position: "instr",
            begins: "substr(name, 1, length(?1)) = ?1",
            in_order: "CROSS",
            // Without it, SQLite looks up each entry in the table of vectors, and reads all vectors for that.
            of_model: "INDEXED BY vectors_by_model",
            // CROSS JOIN keeps SQLite from beginning with all sessions or all exchanges.
            sessions_of_exchanges: "(SELECT x.stream, max(x.submission) AS newest
                FROM json_each(?4) AS found CROSS JOIN exchanges AS x ON x.submission = found.value GROUP BY x.stream) AS t
              CROSS JOIN sessions AS s ON s.stream = t.stream CROSS JOIN scopes ON scopes.scope = s.scope",
            hold_here: "",
            is_held_here: "",
            is_done_here: "",
        }
    }
}

fn bound<'a>(values: Parameters<'a>) -> impl rusqlite::Params + 'a {
    params_from_iter(values.iter().map(|value| value.value()))
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let borrowed = match self {
            Value::Whole(number) => number.map(ValueRef::Integer),
            Value::Real(number) => number.map(ValueRef::Real),
            Value::Text(text) => text.map(|text| ValueRef::Text(text.as_bytes())),
            Value::Bytes(bytes) => bytes.map(ValueRef::Blob),
            // There are no arrays; `json_each` reads one as JSON.
            Value::Texts(texts) => {
                let json = serde_json::to_string(texts);
                return Ok(json.map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?.into());
            }
        };
        Ok(ToSqlOutput::Borrowed(borrowed.unwrap_or(ValueRef::Null)))
    }
}

impl Row for rusqlite::Row<'_> {
    fn content(&self, column: Column<'_>) -> Result<Content<'_>, Error> {
        let content = match column {
            Column::Name(name) => self.get_ref(name),
            Column::Number(number) => self.get_ref(number),
        };
        Ok(match content.map_err(fault::error)? {
            ValueRef::Null => Content::Null,
            ValueRef::Integer(number) => Content::Whole(number),
            ValueRef::Real(number) => Content::Real(number),
            ValueRef::Blob(bytes) => Content::Bytes(bytes),
            ValueRef::Text(text) => {
                let text = std::str::from_utf8(text);
                Content::Text(text.map_err(|error| (self as &dyn Row).unreadable(column, &error))?)
            }
        })
    }

    fn manual(&self) -> &'static str {
        "ken-store(8)"
    }
}

impl HostTable for Database {}
