//! The PostgreSQL backend: one connection that writes, and a few that read. Most functions run a single statement.
//!
//! All that is SQL for PostgreSQL is below this folder. Text is compared byte by byte (`COLLATE "C"`), as SQLite does. JSON is text, because
//! `jsonb` refuses characters that JSON allows.

mod approvals;
mod blobs;
mod budgets;
mod documents;
mod doors;
mod exchanges;
mod fault;
mod governing;
mod hosts;
mod ids;
mod keys;
mod knowledge;
mod logs;
mod messenger;
mod notes;
mod outbox;
mod public;
mod purges;
mod schedules;
mod schema;
mod server;
mod session;
mod sessions;
mod submissions;
mod values;
mod whole;

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ken_types::Error;
use ken_types::ops::store::Scope;
use serde_json::{Map, Value};

use crate::tables::columns::{json, outside, place, rows, scope_text, to_json, turn_of};
use crate::tables::{Backend, Begun, Reader, Tables, Writer};
use hosts::Host;
use server::Server;
use session::{Ended, READ, Session, WRITE};
use values::{Parameters, Row, count, optional_word, params, stored, time, word};

/// How long the outcome of a commit without an answer is asked for. The transaction ends before that, by the limits
/// that it has on the server.
const OUTCOME_TIMEOUT: Duration = Duration::from_secs(12);
const OUTCOME_PAUSE: Duration = Duration::from_millis(200);

/// Why the store does not use the database, if it does not: it has not reached it yet, or another host is active.
type Standing = Arc<Mutex<Option<Error>>>;

/// A database on a server.
pub struct Postgres {
    server: Server,
    host: Host,
    standing: Standing,
    has_writer: bool,
}

impl Postgres {
    /// Reads the URL and, from the folder `state`, who this host is. Does not connect: the server may be down when the store starts.
    pub fn open(url: &str, state: &std::path::Path) -> Result<Postgres, Error> {
        let server = Server::of(url)?;
        let unknown = Error::unavailable(format!("{}: not connected yet", server.name));
        let standing = Arc::new(Mutex::new(Some(unknown)));
        Ok(Postgres { server, host: Host::of(state)?, standing, has_writer: false })
    }

    /// Returns the URL without a password.
    pub fn name(&self) -> &str {
        &self.server.name
    }

    /// Returns an error if the URL cannot be used, or if it names another place than `other`, apart from the passwords.
    pub fn check_same(url: &str, other: &str) -> Result<(), Error> {
        if Server::of(url)?.is_same_place(&Server::of(other)?) {
            return Ok(());
        }
        Err(Error::invalid("store.url", "KEN_STORE_URL and [store] url name different databases")
            .hint("remove one of them"))
    }
}

impl Backend for Postgres {
    fn writer(&mut self) -> Result<Box<dyn Writer>, Error> {
        if std::mem::replace(&mut self.has_writer, true) {
            return Err(Error::internal("the database has one writer, and it is taken"));
        }
        Ok(Box::new(PostgresWriter {
            database: Database(RefCell::new(Session::new(self.server.clone())?)),
            host: self.host.clone(),
            standing: self.standing.clone(),
            has_outcome_unknown: false,
            is_open: false,
        }))
    }

    fn reader(&mut self) -> Result<Box<dyn Reader>, Error> {
        let database = Database(RefCell::new(Session::new(self.server.clone())?));
        Ok(Box::new(PostgresReader { database, standing: self.standing.clone() }))
    }
}

fn lock(standing: &Standing) -> MutexGuard<'_, Option<Error>> {
    standing.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The connection through which all tables are accessed.
pub(crate) struct Database(RefCell<Session>);

impl Tables for Database {
    fn sizes(&self) -> Result<Map<String, Value>, Error> {
        let sql = "SELECT pg_database_size(current_database()) AS bytes";
        let bytes = unique(self, sql, params![], |row| count(row, "bytes"))?;
        Ok([("server_bytes".to_owned(), bytes.into())].into_iter().collect())
    }
}

struct PostgresReader {
    database: Database,
    standing: Standing,
}

impl Reader for PostgresReader {
    fn read(&mut self, work: &mut dyn FnMut(&dyn Tables) -> Result<(), Error>) -> Result<(), Error> {
        if let Some(error) = &*lock(&self.standing) {
            return Err(error.clone());
        }
        let session = self.database.0.get_mut();
        session.connect()?;
        session.begin(READ);
        let done = work(&self.database);
        let ended = self.database.0.get_mut().end_read();
        done.and(ended)
    }
}

struct PostgresWriter {
    database: Database,
    host: Host,
    standing: Standing,
    has_outcome_unknown: bool,
    is_open: bool,
}

impl PostgresWriter {
    fn session(&mut self) -> &mut Session {
        self.database.0.get_mut()
    }

    /// Begins a transaction whose first statement is the fence. Whoever is no longer the active host writes nothing.
    fn begin_fenced(&mut self) -> Result<Begun, Error> {
        let session = self.database.0.get_mut();
        let is_new = session.connect()?;
        if is_new {
            schema::prepare(session)?;
        }
        let begun = match self.host.take(session)? {
            true => Begun::AfterOthers,
            false if std::mem::take(&mut self.has_outcome_unknown) => Begun::AfterUnknown,
            false => Begun::AfterOwn,
        };
        session.begin(WRITE);
        self.is_open = true;
        self.host.fence(session)?;
        Ok(begun)
    }

    /// Finds out how a commit has ended of which the server has not told.
    fn find_outcome(&mut self, lost: Error) -> Result<(), Error> {
        let until = Instant::now() + OUTCOME_TIMEOUT;
        loop {
            let session = self.database.0.get_mut();
            let known = session.connect().and_then(|_| self.host.is_committed(session));
            match known {
                Ok(Some(true)) => return Ok(()),
                Ok(Some(false)) => return Err(lost),
                Ok(None) => break,
                Err(_) if Instant::now() >= until => break,
                Err(_) => sleep(OUTCOME_PAUSE),
            }
        }
        self.has_outcome_unknown = true;
        tracing::error!("{}: whether the last changes were committed is not known", self.database.0.get_mut().server());
        Err(lost.outcome_unknown())
    }
}

impl Writer for PostgresWriter {
    fn tables(&self) -> &dyn Tables {
        &self.database
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn begin(&mut self) -> Result<Begun, Error> {
        let begun = self.begin_fenced();
        *lock(&self.standing) = match &begun {
            Ok(_) => None,
            // Reads are answered as long as this host is the active one.
            Err(error) => (!self.host.is_active()).then(|| error.clone()),
        };
        begun
    }

    fn savepoint(&mut self) -> Result<(), Error> {
        self.session().defer("SAVEPOINT change");
        Ok(())
    }

    fn release(&mut self) -> Result<(), Error> {
        self.session().defer("RELEASE change");
        Ok(())
    }

    fn rollback_to_savepoint(&mut self) -> Result<(), Error> {
        self.session().batch("ROLLBACK TO change; RELEASE change")
    }

    fn commit(&mut self) -> Result<(), Error> {
        self.is_open = false;
        match self.session().commit() {
            Ended::Committed => Ok(()),
            Ended::Refused(error) => {
                // The transaction may still be there, with a statement that has failed.
                self.is_open = true;
                self.rollback();
                Err(error)
            }
            Ended::Unknown(error) => self.find_outcome(error),
        }
    }

    fn rollback(&mut self) {
        if std::mem::take(&mut self.is_open)
            && self.session().is_connected()
            && self.session().batch("ROLLBACK").is_err()
        {
            self.session().cut();
        }
    }

    fn is_open(&self) -> bool {
        self.is_open && self.database.0.borrow().is_connected()
    }

    fn run_idle(&mut self) -> Result<bool, Error> {
        let session = self.database.0.get_mut();
        let renewed = if session.is_connected() { self.host.renew(session) } else { Ok(()) };
        match renewed {
            Ok(()) => Ok(false),
            Err(error) => {
                if !self.host.is_active() {
                    *lock(&self.standing) = Some(error.clone());
                }
                Err(error)
            }
        }
    }

    fn probe(&mut self) -> Result<(), Error> {
        self.begin()?;
        self.commit()
    }
}

/// Runs a statement that changes something. Returns the number of rows.
fn run(database: &Database, sql: &str, values: Parameters<'_>) -> Result<usize, Error> {
    let rows = database.0.borrow_mut().execute(sql, values)?;
    Ok(usize::try_from(rows).unwrap_or(usize::MAX))
}

/// Runs a statement that inserts one row and returns its key.
fn insert(database: &Database, sql: &str, values: Parameters<'_>) -> Result<i64, Error> {
    unique(database, sql, values, |row| row.get(0))
}

/// Returns the first row of a query.
fn first<T>(
    database: &Database,
    sql: &str,
    values: Parameters<'_>,
    read: impl FnOnce(&Row) -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    let rows = database.0.borrow_mut().query(sql, values)?;
    rows.first().map(read).transpose()
}

/// Returns the only row of a query. It is a defect if there is none.
fn unique<T>(
    database: &Database,
    sql: &str,
    values: Parameters<'_>,
    read: impl FnOnce(&Row) -> Result<T, Error>,
) -> Result<T, Error> {
    first(database, sql, values, read)?.ok_or_else(|| fault::unreadable(&"none", &format_args!("no row: {sql}")))
}

/// Returns all rows of a query.
fn all<T>(
    database: &Database,
    sql: &str,
    values: Parameters<'_>,
    read: impl FnMut(&Row) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    let rows = database.0.borrow_mut().query(sql, values)?;
    rows.iter().map(read).collect()
}

/// Calls `see` with each row of a query until it returns false. The rows are fetched in portions, because a query may have far more rows than
/// are looked at. Returns false if `see` did.
fn each(
    database: &Database,
    sql: &str,
    values: Parameters<'_>,
    portion: u32,
    see: &mut dyn FnMut(&Row) -> Result<bool, Error>,
) -> Result<bool, Error> {
    let cursor = database.0.borrow_mut().open_cursor(sql, values, portion)?;
    let (name, mut rows) = cursor;
    loop {
        for row in &rows {
            if !see(row)? {
                database.0.borrow_mut().close_cursor(&name);
                return Ok(false);
            }
        }
        if rows.len() < portion as usize {
            database.0.borrow_mut().close_cursor(&name);
            return Ok(true);
        }
        rows = database.0.borrow_mut().fetch(&name, portion)?;
    }
}

/// Calls `see` with the text in the first column of each row, until it returns false.
fn each_text(
    database: &Database,
    sql: &str,
    values: Parameters<'_>,
    see: &mut dyn FnMut(&str) -> bool,
) -> Result<(), Error> {
    each(database, sql, values, ENTRIES, &mut |row| Ok(see(row.text(0)?))).map(drop)
}

/// How many entries of a stream are fetched at a time.
const ENTRIES: u32 = 64;

/// Reads a scope from a row that contains its columns.
fn scope(row: &Row) -> Result<Scope, Error> {
    Ok(Scope {
        connector: row.get("connector")?,
        actor_id: row.get("actor")?,
        conversation_id: row.get("conversation")?,
        thread_id: row.get("thread")?,
    })
}
