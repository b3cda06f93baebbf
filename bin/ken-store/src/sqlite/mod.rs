//! The SQLite backend: one file, WAL, one writer, read-only readers.

mod accept;
mod appends;
mod calls;
mod checkpoints;
mod claims;
mod fault;
mod files;
mod forks;
mod history;
mod keys;
mod knowledge;
mod memory;
mod migrations;
mod open;
mod public;
mod realm;
mod reindex;
mod runs;
mod scopes;
mod search;
mod sessions;
mod settle;
mod streams;
mod submissions;
mod system;
mod transcript;

use std::fs::File;
use std::path::{Path, PathBuf};

use ken_types::id::SubmissionId;
use ken_types::ops::Nothing;
use ken_types::ops::runs::*;
use ken_types::ops::store::*;
use ken_types::ops::streams::{AppendStream, Appending, CreateStream, Creation, DeleteStream};
use ken_types::{Error, Timestamp};
use rusqlite::{Connection, OptionalExtension, Params, Row};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::ConnectionId;
use crate::backend::{Backend, Change, Left, OldLease, Reads, Writes};
use checkpoints::Checkpoints;
use fault::{Done, Fault};
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
        Ok(Sqlite {
            path: path.to_owned(),
            writer: Some((writer, files)),
            found,
            _lock: lock,
        })
    }

    /// What was wrong with the files when they were opened.
    pub fn found(&self) -> &FilesFound {
        &self.found
    }

    /// Lets the file have at most so many pages of 4 KiB: beyond it every write is refused as on a full disk.
    pub fn limit_pages(&self, pages: u32) -> Result<(), Error> {
        let limit =
            |(connection, _): &(Connection, Files)| connection.pragma_update(None, "max_page_count", pages);
        let limited = self.writer.as_ref().map(limit).transpose();
        limited.map(drop).map_err(|error| Fault::from(error).into())
    }

    /// Reads the whole database, also beside a store that runs, and says whether it is sound.
    pub fn check(path: &Path, full: bool) -> Result<(), Error> {
        open::check(path, full)
    }
}

impl Backend for Sqlite {
    fn writer(&mut self) -> Result<Box<dyn Writes>, Error> {
        let Some((mut connection, files)) = self.writer.take() else {
            return Err(Error::internal("the database has one writer, and it is taken"));
        };
        let checkpoints = Checkpoints::start(&self.path, files, &mut connection)?;
        Ok(Box::new(SqliteWriter {
            connection,
            checkpoints,
        }))
    }

    fn reader(&mut self) -> Result<Box<dyn Reads>, Error> {
        let connection = open::reader(&self.path)?;
        Ok(Box::new(SqliteReader { connection }))
    }
}

/// Runs a statement that changes something; says how many rows.
fn run(connection: &Connection, sql: &str, params: impl Params) -> rusqlite::Result<usize> {
    connection.prepare_cached(sql)?.execute(params)
}

/// The first row of a query.
fn first<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    connection.prepare_cached(sql)?.query_row(params, read).optional()
}

/// All rows of a query.
fn all<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    connection.prepare_cached(sql)?.query_map(params, read)?.collect()
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

struct SqliteWriter {
    connection: Connection,
    checkpoints: Checkpoints,
}

impl Drop for SqliteWriter {
    fn drop(&mut self) {
        self.checkpoints.stop(&self.connection);
    }
}

impl SqliteWriter {
    fn command(&mut self, sql: &str) -> Result<(), Error> {
        run(&self.connection, sql, [])
            .map(drop)
            .map_err(|error| Fault::from(error).into())
    }
}

/// Hands a call on to the function that does it.
macro_rules! by {
    ($self:ident, $function:path $(, $args:expr)*) => {
        $function(&$self.connection $(, $args)*).map_err(Error::from)
    };
}

impl Writes for SqliteWriter {
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
        !self.connection.is_autocommit()
    }

    fn rest(&mut self) -> bool {
        self.checkpoints.cut()
    }

    fn probe(&mut self) -> Result<(), Error> {
        self.begin()?;
        // Setting the version writes the first page, whatever it was.
        let set = || -> rusqlite::Result<()> {
            let version: i64 = self
                .connection
                .query_row("PRAGMA user_version", [], |row| row.get(0))?;
            self.connection.pragma_update(None, "user_version", version)
        };
        set().map_err(|error| Error::from(Fault::from(error)))?;
        self.commit()
    }

    fn create_session(&mut self, args: &CreateSession, change: &mut Change) -> Result<OpenSession, Error> {
        by!(self, sessions::create, args, change)
    }

    fn resume_session(&mut self, args: &ResumeSession, change: &mut Change) -> Result<OpenSession, Error> {
        by!(self, sessions::resume, args, change)
    }

    fn cancel_session(&mut self, args: &CancelSession, change: &mut Change) -> Result<Cancelled, Error> {
        by!(self, sessions::cancel, args, change)
    }

    fn archive_session(&mut self, args: &OwnedSession, change: &mut Change) -> Result<(), Error> {
        by!(self, sessions::archive, args, change)
    }

    fn accept(&mut self, args: &Accept, change: &mut Change) -> Result<Accepted, Error> {
        by!(self, accept::accept, args, change)
    }

    fn admit(&mut self, args: &Admit, change: &mut Change) -> Result<Admission, Error> {
        by!(self, accept::admit, args, change)
    }

    fn claim(&mut self, work: Work, most: u32, change: &mut Change) -> Result<Vec<Claim>, Error> {
        by!(self, claims::claim, work, most, change)
    }

    fn renew(
        &mut self,
        leases: &[Lease],
        connection: ConnectionId,
        change: &mut Change,
    ) -> Result<Vec<Lease>, Error> {
        by!(self, claims::renew, leases, connection, change)
    }

    fn release(&mut self, lease: &Lease, change: &mut Change) -> Result<(), Error> {
        by!(self, claims::release, lease, change)
    }

    fn time_left(&mut self, lease: &Lease, now: Timestamp) -> Result<Option<i64>, Error> {
        by!(self, claims::time_left, lease, now)
    }

    fn append(&mut self, args: &AppendEvents, change: &mut Change) -> Result<Appended, Error> {
        by!(self, settle::append, args, change)
    }

    fn settle(&mut self, args: &SettleSubmission, change: &mut Change) -> Result<Appended, Error> {
        by!(self, settle::settle, args, change)
    }

    fn abort(&mut self, args: &OfInstance, change: &mut Change) -> Result<AbortedSubmissions, Error> {
        by!(self, submissions::abort, args, change)
    }

    fn admit_run(&mut self, args: &AdmitRun, change: &mut Change) -> Result<(), Error> {
        by!(self, runs::admit, args, change)
    }

    fn end_run(&mut self, args: &EndRun, change: &mut Change) -> Result<RunRecord, Error> {
        by!(self, runs::end, args, change)
    }

    fn abort_run(&mut self, args: &ByRun, change: &mut Change) -> Result<AbortedRun, Error> {
        by!(self, runs::abort, args, change)
    }

    fn record(&mut self, change: &mut Change) -> Result<(), Error> {
        by!(self, system::record, change)
    }

    fn old_leases(&mut self) -> Result<Vec<OldLease>, Error> {
        by!(self, claims::old_leases)
    }

    fn put_knowledge(&mut self, args: &PutKnowledge, change: &mut Change) -> Result<KnowledgeRecord, Error> {
        by!(self, knowledge::put, args, change)
    }

    fn delete_knowledge(&mut self, args: &ById, change: &mut Change) -> Result<(), Error> {
        by!(self, knowledge::delete, args, change)
    }

    fn reindex(&mut self, args: &KeyedJob, change: &mut Change) -> Result<Job, Error> {
        by!(self, reindex::start, args, change)
    }

    fn begin_key(&mut self, args: &BeginKey, now: Timestamp) -> Result<KeyState, Error> {
        by!(self, keys::begin, args, now)
    }

    fn finish_key(&mut self, args: &FinishKey) -> Result<(), Error> {
        by!(self, keys::finish, args)
    }

    fn create_stream(&mut self, args: &CreateStream, change: &mut Change) -> Result<Creation, Error> {
        by!(self, public::create, args, change)
    }

    fn append_stream(&mut self, args: AppendStream, change: &mut Change) -> Result<Appending, Error> {
        by!(self, appends::append, args, change)
    }

    fn delete_stream(&mut self, args: &DeleteStream, change: &mut Change) -> Result<Nothing, Error> {
        by!(self, public::delete, args, change)
    }

    fn touch_stream(&mut self, id: u64, change: &mut Change) -> Result<(), Error> {
        by!(self, public::touch, id.cast_signed(), change)
    }

    fn background(&mut self, change: &mut Change) -> Result<Left, Error> {
        let indexing = by!(self, reindex::slice, change)?;
        let pruning = by!(self, keys::prune, change.now)?;
        let forgetting = by!(self, system::prune, change.now)?;
        let sweeping = by!(self, public::sweep, change)?;
        let cleaning = by!(self, public::clean)?;
        if indexing || pruning || forgetting || sweeping || cleaning {
            return Ok(Left::More);
        }
        by!(self, calls::prune, change.now)?;
        let next = by!(self, public::next_end)?;
        Ok(next.map_or(Left::Nothing, Left::At))
    }
}

struct SqliteReader {
    connection: Connection,
}

impl SqliteReader {
    /// Reads in one transaction, so that all of the answer is of one state.
    fn read<T>(&mut self, read: impl FnOnce(&Connection) -> Done<T>) -> Result<T, Error> {
        let all = |connection: &Connection| -> Done<T> {
            run(connection, "BEGIN", [])?;
            let found = read(connection);
            run(connection, "COMMIT", [])?;
            found
        };
        let found = all(&self.connection);
        if !self.connection.is_autocommit() {
            _ = run(&self.connection, "ROLLBACK", []);
        }
        found.map_err(Error::from)
    }
}

impl Reads for SqliteReader {
    fn list_sessions(&mut self, args: &ListSessions) -> Result<SessionPage, Error> {
        self.read(|connection| sessions::list(connection, args))
    }

    fn transcript(&mut self, args: &ReadTranscript) -> Result<Box<RawValue>, Error> {
        self.read(|connection| transcript::page(connection, args))
    }

    fn standing(&mut self, id: &SubmissionId) -> Result<Standing, Error> {
        self.read(|connection| submissions::standing(connection, id))
    }

    fn history(&mut self, args: &ReadHistory) -> Result<History, Error> {
        self.read(|connection| history::read_about(connection, args))
    }

    fn get_run(&mut self, args: &ByRun) -> Result<RunRecord, Error> {
        self.read(|connection| runs::get(connection, args))
    }

    fn list_runs(&mut self, args: &ListRuns) -> Result<RunPage, Error> {
        self.read(|connection| runs::list(connection, args))
    }

    fn read_stream(&mut self, args: &ReadStream, now: Timestamp) -> Result<StreamPage, Error> {
        self.read(|connection| match args.stream.as_str() {
            system::SYSTEM => system::read(connection, args),
            _ => streams::read(connection, args, now),
        })
    }

    fn get_knowledge(&mut self, args: &ById) -> Result<KnowledgeRecord, Error> {
        self.read(|connection| knowledge::get(connection, args))
    }

    fn list_knowledge(&mut self, args: &ListKnowledge) -> Result<KnowledgePage, Error> {
        self.read(|connection| knowledge::list(connection, args))
    }

    fn search_knowledge(&mut self, args: &Search) -> Result<Found<KnowledgeRecord>, Error> {
        self.read(|connection| knowledge::search(connection, args))
    }

    fn knowledge_job(&mut self, args: &ById) -> Result<Job, Error> {
        self.read(|connection| reindex::job(connection, args))
    }

    fn search_memory(&mut self, args: &Search) -> Result<Found<PastExchange>, Error> {
        self.read(|connection| memory::search(connection, args))
    }

    fn sizes(&mut self) -> Result<Map<String, Value>, Error> {
        self.read(|connection| {
            let mut sizes = Map::new();
            for (name, sql) in [
                ("database_pages", "PRAGMA page_count"),
                ("free_pages", "PRAGMA freelist_count"),
                ("page_bytes", "PRAGMA page_size"),
            ] {
                let size: Option<i64> = first(connection, sql, [], |row| row.get(0))?;
                sizes.insert(name.into(), size.into());
            }
            Ok(sizes)
        })
    }
}
