//! The PostgreSQL backend: one connection that writes, and a few that read. Most functions run a single statement.
//!
//! All that is SQL for PostgreSQL is below this folder. Text is compared byte by byte (`COLLATE "C"`), as SQLite does. JSON is text, because
//! `jsonb` refuses characters that JSON allows.

mod fault;
mod health;
mod hosts;
mod knowledge;
mod listener;
mod rows;
mod schema;
mod server;
mod session;
mod timeline;
mod values;
mod whole;

use std::cell::RefCell;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ken_types::Error;
use parking_lot::Mutex;
use tokio::sync::mpsc::Sender;

use crate::engine::clock::ServerClock;
use crate::tables::sql::{Dialect, Parameters, See, Sql, unique};
use crate::tables::{Backend, Begun, Hear, Purges, Reader, Tables, Tended, Writer};
use hosts::Host;
use listener::Announcement;
use server::Server;
use session::{Ended, READ, Session};
use timeline::Newest;

/// How long the outcome of a commit without an answer is asked for. The transaction ends before that, by the limits
/// that it has on the server.
const OUTCOME_TIMEOUT: Duration = Duration::from_secs(12);
const OUTCOME_PAUSE: Duration = Duration::from_millis(200);

/// The condition that a submission has the folder of its session on this host, or needs none.
const HAS_FOLDER: &str = " AND NOT EXISTS (SELECT 1 FROM sessions AS b WHERE b.stream = s.stream
   AND b.workspace IS NOT NULL AND b.home <> current_setting('ken.host'))";

/// Why the store does not use the database, if it does not: it has not reached it yet, or this host works no more.
type Standing = Arc<Mutex<Option<Error>>>;

/// A database on a server.
pub struct Postgres {
    server: Server,
    host: Host,
    standing: Standing,
    clock: Arc<ServerClock>,
    /// Whether hosts tell each other of changes. Without this each looks once a second.
    pub has_notices: bool,
    /// Whether the folders of sessions are on all hosts, so that each can work there. Otherwise the host that has begun a session does.
    pub shares_folders: bool,
    announcer: Option<Sender<Announcement>>,
    has_writer: bool,
}

impl Postgres {
    /// Reads the URL and, from the folder `state`, who this host is. Does not connect: the server may be down when the store starts.
    pub fn open(url: &str, state: &std::path::Path) -> Result<Postgres, Error> {
        let server = Server { newest: Arc::new(Newest::of(state)?), ..Server::of(url)? };
        let unknown = Error::unavailable(format!("{}: not connected yet", server.name));
        let standing = Arc::new(Mutex::new(Some(unknown)));
        let (host, clock) = (Host::of(state)?, Arc::default());
        let (has_notices, shares_folders) = (true, false);
        Ok(Postgres { server, host, standing, clock, has_notices, shares_folders, announcer: None, has_writer: false })
    }

    /// Returns the clock of the server, by which the clocks of the hosts need not agree.
    pub fn clock(&self) -> Arc<ServerClock> {
        self.clock.clone()
    }

    /// Refuses a server on which no commit waits for a standby.
    pub fn require_sync(&mut self, is_required: bool) {
        self.server.require_sync = is_required;
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

    /// Returns whether a URL has a password. Fails if it is none that the store can use.
    pub fn has_password(url: &str) -> Result<bool, Error> {
        Server::of(url).map(|server| server.config.get_password().is_some())
    }

    /// Checks the server of a URL and its schema, and calls `work` on one consistent state of it. Returns the URL without a password.
    pub fn read_whole(url: &str, work: &mut dyn FnMut(&dyn Tables) -> Result<(), Error>) -> Result<String, Error> {
        let server = Server::of(url)?;
        let name = server.name.to_string();
        let mut database = Database::new(server, Arc::default(), false)?;
        database.session.get_mut().connect()?;
        schema::check_present(database.session.get_mut())?;
        database.read(work)?;
        schema::check_objects(database.session.get_mut())?;
        Ok(name)
    }

    fn database(&self) -> Result<Database, Error> {
        Database::new(self.server.clone(), self.host.id.clone(), self.shares_folders)
    }
}

impl Backend for Postgres {
    fn writer(&mut self) -> Result<Box<dyn Writer>, Error> {
        if std::mem::replace(&mut self.has_writer, true) {
            return Err(Error::internal("the database has one writer, and it is taken"));
        }
        Ok(Box::new(PostgresWriter {
            database: self.database()?,
            host: self.host.clone(),
            standing: self.standing.clone(),
            clock: self.clock.clone(),
            announcer: self.announcer.take(),
            has_lost_announcement: false,
            has_joined: false,
            has_outcome_unknown: false,
            is_open: false,
        }))
    }

    fn reader(&mut self) -> Result<Box<dyn Reader>, Error> {
        Ok(Box::new(PostgresReader { database: self.database()?, standing: self.standing.clone() }))
    }

    fn listen(&mut self, hear: Hear) -> Result<bool, Error> {
        if self.has_notices {
            self.announcer = Some(listener::start(self.server.clone(), self.host.id.clone(), hear)?);
        }
        Ok(self.has_notices)
    }
}

/// The connection through which all tables are accessed.
pub(crate) struct Database {
    session: RefCell<Session>,
    host: Arc<str>,
    shares_folders: bool,
}

impl Purges for Database {}

struct PostgresReader {
    database: Database,
    standing: Standing,
}

impl Reader for PostgresReader {
    fn connect(&mut self) -> Result<(), Error> {
        // The connections of a role may be few. The writer has to have the first one, and until it works, the read says why it does not.
        if self.standing.lock().is_some() { Ok(()) } else { self.database.session.get_mut().connect().map(drop) }
    }

    fn read(&mut self, on_standby: bool, work: &mut dyn FnMut(&dyn Tables) -> Result<(), Error>) -> Result<(), Error> {
        if !on_standby && let Some(error) = &*self.standing.lock() {
            return Err(error.clone());
        }
        self.database.read(work)
    }
}

struct PostgresWriter {
    database: Database,
    host: Host,
    standing: Standing,
    clock: Arc<ServerClock>,
    announcer: Option<Sender<Announcement>>,
    /// Whether the last announcement did not fit into the queue.
    has_lost_announcement: bool,
    has_joined: bool,
    has_outcome_unknown: bool,
    is_open: bool,
}

impl PostgresWriter {
    fn session(&mut self) -> &mut Session {
        self.database.session.get_mut()
    }

    /// Begins a transaction that begins with the lock and the fence. A host that works no more writes nothing.
    fn begin_fenced(&mut self) -> Result<Begun, Error> {
        let session = self.database.session.get_mut();
        let is_new = session.connect()?;
        if is_new || !self.host.is_active() {
            schema::prepare(session, &self.host.id)?;
        }
        // Kept until a transaction has begun: who has not been told of it would go on with what was true before.
        if let Some(now) = self.host.join(session)? {
            self.clock.set(now);
            self.has_joined = true;
        }
        self.host.begin_change(session);
        self.is_open = true;
        self.host.fence(session)?;
        let is_unknown = std::mem::take(&mut self.has_outcome_unknown);
        Ok(match std::mem::take(&mut self.has_joined) {
            true => Begun::AfterOthers,
            false if is_unknown => Begun::AfterUnknown,
            false => Begun::AfterOwn,
        })
    }

    /// Notes whether reads are answered: they are as long as this host works.
    fn set_standing(&self, error: Option<&Error>) {
        *self.standing.lock() = error.filter(|_| !self.host.is_active()).cloned();
    }

    /// Finds out how a commit has ended of which the server has not told.
    fn find_outcome(&mut self, lost: Error, timeout: Duration) -> Result<(), Error> {
        let found = self.ask_outcome(lost, timeout);
        // It may have asked another server. Only a connection that `begin_fenced` makes is checked before something is written.
        self.session().cut();
        found
    }

    fn ask_outcome(&mut self, lost: Error, timeout: Duration) -> Result<(), Error> {
        let until = Instant::now() + timeout;
        loop {
            let session = self.database.session.get_mut();
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
        tracing::error!(
            "{}: whether the last changes were committed is not known",
            self.database.session.get_mut().server()
        );
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
        self.set_standing(begun.as_ref().err());
        begun
    }

    fn savepoint(&mut self) -> Result<(), Error> {
        // What is queued does not belong to the change, and neither does its error.
        self.session().send_changes()?;
        self.session().defer("SAVEPOINT change");
        Ok(())
    }

    fn release(&mut self) -> Result<(), Error> {
        self.session().defer("RELEASE change");
        self.session().send_changes()
    }

    fn rollback_to_savepoint(&mut self) -> Result<(), Error> {
        self.session().undo_change()
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
            Ended::Unknown(error) => self.find_outcome(error, OUTCOME_TIMEOUT),
            // The server has waited for the standby already.
            Ended::Unreplicated(error) => self.find_outcome(error, Duration::ZERO),
        }
    }

    fn rollback(&mut self) {
        if std::mem::take(&mut self.is_open) && self.session().rollback().is_err() {
            self.session().cut();
        }
        let session = self.database.session.get_mut();
        if session.take_loss_of_place() {
            *self.standing.lock() = Some(self.host.lose_place(session));
        }
    }

    fn is_open(&self) -> bool {
        self.is_open && self.database.session.borrow().is_connected()
    }

    fn run_idle(&mut self) -> Result<bool, Error> {
        Ok(true)
    }

    fn tend(&mut self) -> Result<Option<Tended>, Error> {
        let session = self.database.session.get_mut();
        if !session.is_connected() || !self.host.is_active() {
            return Ok(None);
        }
        let tended = self.host.tend(session);
        self.set_standing(tended.as_ref().err());
        let (tended, now) = tended?;
        self.clock.set(now);
        Ok(Some(tended))
    }

    fn leave(&mut self) {
        if let Err(error) = self.host.leave(self.database.session.get_mut()) {
            tracing::warn!("the other hosts see this one for some seconds: {}", error.message);
        }
    }

    fn pause(&mut self) {
        let session = self.database.session.get_mut();
        // A server that is away is not waited for.
        if session.is_connected() && self.host.is_active() {
            _ = self.host.pause(session);
        }
    }

    fn announce(&mut self, marks: Vec<u64>) {
        let announcement = Announcement { batch: self.host.batch, marks, follows_lost: self.has_lost_announcement };
        if let Some(announcer) = &self.announcer {
            self.has_lost_announcement = announcer.try_send(announcement).is_err();
        }
    }

    fn probe(&mut self) -> Result<(), Error> {
        let begun = self.begin()?;
        // Who begins the next transaction has to be told.
        self.has_joined = begun == Begun::AfterOthers;
        self.has_outcome_unknown = begun == Begun::AfterUnknown;
        self.commit()
    }
}

impl Database {
    fn new(server: Server, host: Arc<str>, shares_folders: bool) -> Result<Database, Error> {
        Ok(Database { session: RefCell::new(Session::new(server)?), host, shares_folders })
    }

    fn read(&mut self, work: &mut dyn FnMut(&dyn Tables) -> Result<(), Error>) -> Result<(), Error> {
        let session = self.session.get_mut();
        session.connect()?;
        session.begin(READ);
        let done = work(self);
        let ended = self.session.get_mut().rollback();
        done.and(ended)
    }

    fn each(&self, sql: &str, values: Parameters<'_>, portion: u32, see: See<'_>) -> Result<bool, Error> {
        // The session is borrowed only while a request runs, because `see` may run other statements.
        let (name, mut rows) = self.session.borrow_mut().open_cursor(sql, values, portion)?;
        loop {
            let is_last = rows.len() < portion as usize;
            let goes_on = see_all(&rows, see)?;
            if is_last || !goes_on {
                self.session.borrow_mut().close_cursor(&name);
                return Ok(goes_on);
            }
            rows = self.session.borrow_mut().fetch(&name, portion)?;
        }
    }
}

fn see_all(rows: &[tokio_postgres::Row], see: See<'_>) -> Result<bool, Error> {
    for row in rows {
        if !see(row)? {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Sql for Database {
    fn execute(&self, sql: &str, values: Parameters<'_>) -> Result<(), Error> {
        self.session.borrow_mut().queue(&numbered(sql), values)
    }

    fn changed_rows(&self, sql: &str, values: Parameters<'_>) -> Result<usize, Error> {
        let rows = self.session.borrow_mut().execute(&numbered(sql), values)?;
        Ok(usize::try_from(rows).unwrap_or(usize::MAX))
    }

    fn insert(&self, sql: &str, key: &str, values: Parameters<'_>) -> Result<i64, Error> {
        unique(self, &format!("{sql} RETURNING {key}"), values, |row| row.get(0))
    }

    fn query(&self, sql: &str, values: Parameters<'_>, portion: Option<u32>, see: See<'_>) -> Result<bool, Error> {
        let sql = numbered(sql);
        let Some(portion) = portion else {
            let rows = self.session.borrow_mut().query(&sql, values)?;
            return see_all(&rows, see);
        };
        self.each(&sql, values, portion, see)
    }

    fn dialect(&self) -> Dialect {
        Dialect {
            json: "::json",
            position: "strpos",
            begins: "starts_with(name, ?1)",
            in_order: "",
            of_model: "",
            sessions_of_exchanges: "(SELECT stream, max(submission) AS newest FROM exchanges
                WHERE submission IN (SELECT value::bigint FROM json_array_elements_text(?4::json)) GROUP BY stream) AS t
              JOIN sessions AS s ON s.stream = t.stream JOIN scopes ON scopes.scope = s.scope",
            hold_here: ", holder = current_setting('ken.host')",
            is_held_here: " AND holder = current_setting('ken.host')",
            is_done_here: if self.shares_folders { "" } else { HAS_FOLDER },
        }
    }
}

/// Returns a statement with its parameters as PostgreSQL writes them.
fn numbered(sql: &str) -> String {
    sql.replace('?', "$")
}
