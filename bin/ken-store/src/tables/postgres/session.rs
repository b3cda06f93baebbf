//! A connection to the server for one thread. It waits for answers with a runtime of its own, on the thread that asks, so that a notice of
//! the server is seen before the answer that it belongs to.
//!
//! Nothing is kept in the session of the server between two transactions: no settings, no prepared statements by name, no temporary tables
//! and no advisory locks. It may therefore be that of a pooler, which gives each transaction another one.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::future::try_join;
use ken_types::Error;
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tokio::time::timeout;
use tokio_postgres::error::{DbError, Severity};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::fault::{self, Failure};
use super::server::Server;
use super::timeline::{self, Timeline};
use crate::tables::sql::{Parameters, Row, Value, params};

/// How long the server may take for one statement before the connection counts as broken. It has to be longer than the limits that the server
/// itself is told for each transaction (`statement_timeout`).
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// The time after a failed attempt to connect in which no other is made. The calls meanwhile get the same error at once.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// What each transaction sets for itself. A pooler may give the next one another session, and the limits bound how long a store that was
/// stopped in the middle of a transaction keeps others from taking its place.
const LIMITS: &str = "SET LOCAL search_path = ken; SET LOCAL statement_timeout = '10s'; SET LOCAL lock_timeout = '5s'; \
                      SET LOCAL idle_in_transaction_session_timeout = '5s'";
/// The modes of transactions.
pub(super) const READ: &str = "ISOLATION LEVEL REPEATABLE READ READ ONLY";
/// The fence makes transactions that write wait for each other, so each sees what the one before it has committed.
pub(super) const WRITE: &str = "ISOLATION LEVEL READ COMMITTED READ WRITE";

type Stream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

struct Link {
    client: Client,
    connection: Connection<Socket, Stream>,
    /// Whether a warning has come since this was last set to false.
    is_warned: bool,
}

pub(super) struct Session {
    /// Always there, until it is dropped.
    runtime: Option<Runtime>,
    server: Server,
    link: Option<Link>,
    /// Statements that are sent together with the next one.
    deferred: String,
    /// The last failed attempt to connect.
    failed: Option<(Instant, Error)>,
    /// The number of cursors so far: their names differ within a transaction.
    cursors: u64,
}

/// How a commit has ended.
pub(super) enum Ended {
    Committed,
    /// The transaction was certainly not committed.
    Refused(Error),
    /// The server has not said what it did.
    Unknown(Error),
    /// It was committed, but the synchronous standby has not said that it has it: if that one is promoted, it may never have been.
    Unreplicated(Error),
}

impl Session {
    pub(super) fn new(server: Server) -> Result<Session, Error> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Error::unavailable(format!("a connection cannot be made: {error}")))?;
        Ok(Session { runtime: Some(runtime), server, link: None, deferred: String::new(), failed: None, cursors: 0 })
    }

    pub(super) fn server(&self) -> &str {
        &self.server.name
    }

    pub(super) fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    /// Connects if there is no connection. Returns whether it is a new one.
    pub(super) fn connect(&mut self) -> Result<bool, Error> {
        if self.is_usable() {
            return Ok(false);
        }
        self.cut();
        if let Some((at, error)) = &self.failed
            && at.elapsed() < RETRY_AFTER
        {
            return Err(error.clone());
        }
        let (config, tls) = (&self.server.config, self.server.tls.clone());
        let connect = async { timeout(ANSWER_TIMEOUT, config.connect(tls)).await };
        let made = self.runtime.as_ref().ok_or(Failure::Cut).map(|runtime| runtime.block_on(connect));
        let made = made.and_then(|made| made.map_err(|_| Failure::Silent));
        let made = made.and_then(|made| made.map_err(Failure::Server)).map_err(|failure| self.error(&failure));
        let checked = made.and_then(|(client, connection)| {
            self.link = Some(Link { client, connection, is_warned: false });
            self.check_timeline()
        });
        self.failed = checked.as_ref().err().map(|error| (Instant::now(), error.clone()));
        if checked.is_err() {
            self.cut();
        }
        checked.map(|()| true)
    }

    /// Returns whether there is a connection that the server has not ended since it was last used.
    fn is_usable(&mut self) -> bool {
        let (Some(link), Some(runtime)) = (&mut self.link, &self.runtime) else {
            return false;
        };
        let (server, Link { client, connection, is_warned }) = (&self.server, link);
        let is_ended = runtime.block_on(async {
            // Between the polls the runtime asks the kernel what has come.
            yield_now().await;
            poll_fn(|context| Poll::Ready(advance(server, connection, is_warned, context).is_err())).await
        });
        !is_ended && !client.is_closed()
    }

    /// A server that does not tell its timeline is not checked.
    fn check_timeline(&mut self) -> Result<(), Error> {
        match self.first(timeline::QUERY, params![], Timeline::of) {
            Ok(Some(found)) => self.server.newest.check(&self.server.name, found),
            _ => Ok(()),
        }
    }

    /// Gives the connection up. The server rolls back what was not committed.
    pub(super) fn cut(&mut self) {
        self.link = None;
        self.deferred.clear();
    }

    /// Adds a statement that is sent together with the next one, which saves a round trip. It has no parameters.
    pub(super) fn defer(&mut self, sql: &str) {
        self.deferred.push_str(sql);
        self.deferred.push(';');
    }

    /// Executes statements without parameters.
    pub(super) fn batch(&mut self, sql: &str) -> Result<(), Error> {
        self.defer(sql);
        let deferred = std::mem::take(&mut self.deferred);
        self.run(async |client| client.batch_execute(&deferred).await).map_err(|failure| self.error(&failure))
    }

    /// Executes a statement and returns its rows.
    pub(super) fn query(&mut self, sql: &str, parameters: Parameters<'_>) -> Result<Vec<tokio_postgres::Row>, Error> {
        let values: Vec<(Value<'_>, Type)> = typed(parameters);
        let deferred = std::mem::take(&mut self.deferred);
        let rows = self.run(async |client| {
            let values: Vec<_> = values.iter().map(|(value, ty)| (value as &(dyn ToSql + Sync), ty.clone())).collect();
            let query = client.query_typed(sql, &values);
            if deferred.is_empty() { query.await } else { after(client.batch_execute(&deferred), query).await }
        });
        rows.map_err(|failure| self.error(&failure))
    }

    /// Executes a statement and reads its first row.
    pub(super) fn first<T>(
        &mut self,
        sql: &str,
        parameters: Parameters<'_>,
        read: impl FnOnce(&dyn Row) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        self.query(sql, parameters)?.first().map(|row| read(row)).transpose()
    }

    /// Executes a statement and returns the number of rows that it has changed.
    pub(super) fn execute(&mut self, sql: &str, parameters: Parameters<'_>) -> Result<u64, Error> {
        let values: Vec<(Value<'_>, Type)> = typed(parameters);
        let deferred = std::mem::take(&mut self.deferred);
        let rows = self.run(async |client| {
            let values: Vec<_> = values.iter().map(|(value, ty)| (value as &(dyn ToSql + Sync), ty.clone())).collect();
            let execute = client.execute_typed(sql, &values);
            if deferred.is_empty() { execute.await } else { after(client.batch_execute(&deferred), execute).await }
        });
        rows.map_err(|failure| self.error(&failure))
    }

    /// Opens a cursor for a query. Returns its name and the first rows.
    pub(super) fn open_cursor(
        &mut self,
        sql: &str,
        parameters: Parameters<'_>,
        portion: u32,
    ) -> Result<(String, Vec<tokio_postgres::Row>), Error> {
        self.cursors += 1;
        let name = format!("cursor_{}", self.cursors);
        let (declare, fetch) = (format!("DECLARE {name} NO SCROLL CURSOR FOR {sql}"), fetch_sql(&name, portion));
        let values: Vec<(Value<'_>, Type)> = typed(parameters);
        let deferred = std::mem::take(&mut self.deferred);
        let rows = self.run(async |client| {
            let values: Vec<_> = values.iter().map(|(value, ty)| (value as &(dyn ToSql + Sync), ty.clone())).collect();
            let opened = async { client.execute_typed(&declare, &values).await.map(drop) };
            let both = after(opened, client.query_typed(&fetch, &[]));
            if deferred.is_empty() { both.await } else { after(client.batch_execute(&deferred), both).await }
        });
        rows.map(|rows| (name, rows)).map_err(|failure| self.error(&failure))
    }

    /// Returns the next rows of a cursor.
    pub(super) fn fetch(&mut self, cursor: &str, portion: u32) -> Result<Vec<tokio_postgres::Row>, Error> {
        self.query(&fetch_sql(cursor, portion), params![])
    }

    pub(super) fn close_cursor(&mut self, cursor: &str) {
        self.defer(&format!("CLOSE {cursor}"));
    }

    /// Begins a transaction. The statement is sent with the first one of the transaction.
    pub(super) fn begin(&mut self, mode: &str) {
        self.deferred.clear();
        self.defer(&format!("BEGIN {mode}"));
        self.defer(LIMITS);
    }

    /// Ends a transaction that has only read.
    pub(super) fn end_read(&mut self) -> Result<(), Error> {
        // If nothing was read, the transaction was not begun.
        if self.deferred.starts_with("BEGIN") {
            self.deferred.clear();
            return Ok(());
        }
        self.deferred.clear();
        if self.is_connected() { self.batch("ROLLBACK") } else { Ok(()) }
    }

    /// Commits the transaction.
    pub(super) fn commit(&mut self) -> Ended {
        if let Some(link) = &mut self.link {
            link.is_warned = false;
        }
        // COMMIT of a transaction in which a statement has failed succeeds, and rolls it back. The SELECT fails then.
        self.defer("SELECT 1");
        self.defer("COMMIT");
        let deferred = std::mem::take(&mut self.deferred);
        match self.run(async |client| client.batch_execute(&deferred).await) {
            // Of a wait for a standby that was cancelled the server tells in a warning only.
            Ok(()) if self.link.as_ref().is_some_and(|link| link.is_warned) => {
                Ended::Unreplicated(Error::unavailable(format!("{}: the synchronous standby is away", self.server())))
            }
            Ok(()) => Ended::Committed,
            Err(failure) if failure.ends_connection() && !matches!(failure, Failure::Cut) => {
                Ended::Unknown(self.error(&failure))
            }
            Err(failure) => Ended::Refused(self.error(&failure)),
        }
    }

    /// Commits the transaction. It is an error, too, if it is not known whether it was committed, also on a standby that has to have it.
    pub(super) fn commit_for_certain(&mut self) -> Result<(), Error> {
        match self.commit() {
            Ended::Committed => Ok(()),
            Ended::Refused(error) | Ended::Unknown(error) | Ended::Unreplicated(error) => Err(error),
        }
    }

    fn error(&self, failure: &Failure) -> Error {
        fault::error(&self.server, failure)
    }

    /// Sends a request and waits for its answer, and runs the connection meanwhile.
    fn run<T>(&mut self, request: impl AsyncFnOnce(&Client) -> Result<T, tokio_postgres::Error>) -> Result<T, Failure> {
        let (Some(link), Some(runtime)) = (&mut self.link, &self.runtime) else {
            return Err(Failure::Cut);
        };
        let server = &self.server;
        let answer = runtime.block_on(async { timeout(ANSWER_TIMEOUT, drive(server, link, request)).await });
        let answer = answer.unwrap_or(Err(Failure::Silent));
        if answer.as_ref().is_err_and(Failure::ends_connection) {
            self.cut();
        }
        answer
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.link = None;
        // A store is dropped where other calls are served, and waiting is not allowed there.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn drive<T>(
    server: &Server,
    link: &mut Link,
    request: impl AsyncFnOnce(&Client) -> Result<T, tokio_postgres::Error>,
) -> Result<T, Failure> {
    let Link { client, connection, is_warned } = link;
    let mut answer = pin!(request(client));
    poll_fn(|context| {
        // Asked first so that the request is sent, and again afterwards because the connection may have brought its answer.
        if let Poll::Ready(answer) = answer.as_mut().poll(context) {
            return Poll::Ready(answer.map_err(Failure::Server));
        }
        if let Err(failure) = advance(server, connection, is_warned, context) {
            return Poll::Ready(Err(failure));
        }
        answer.as_mut().poll(context).map_err(Failure::Server)
    })
    .await
}

/// Runs the connection until it waits for the server.
fn advance(
    server: &Server,
    connection: &mut Connection<Socket, Stream>,
    is_warned: &mut bool,
    context: &mut Context<'_>,
) -> Result<(), Failure> {
    loop {
        match connection.poll_message(context) {
            Poll::Pending => return Ok(()),
            Poll::Ready(Some(Ok(AsyncMessage::Notice(notice)))) => *is_warned |= is_warning(server, &notice),
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(Some(Err(error))) => return Err(Failure::Server(error)),
            Poll::Ready(None) => return Err(Failure::Closed),
        }
    }
}

fn is_warning(server: &Server, notice: &DbError) -> bool {
    let is_warning = matches!(notice.parsed_severity(), Some(Severity::Warning));
    if is_warning {
        let said = server.without_password(notice.message().to_owned());
        tracing::warn!(code = notice.code().code(), "the database server warns: {said}");
    }
    is_warning
}

/// Waits for both, which are sent together, and returns the second.
async fn after<T>(
    first: impl Future<Output = Result<(), tokio_postgres::Error>>,
    second: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, tokio_postgres::Error> {
    let ((), second) = try_join(first, second).await?;
    Ok(second)
}

fn typed<'a>(parameters: Parameters<'a>) -> Vec<(Value<'a>, Type)> {
    let values = parameters.iter().map(|parameter| parameter.value());
    values.map(|value| (value, value.sql_type())).collect()
}

fn fetch_sql(cursor: &str, portion: u32) -> String {
    format!("FETCH FORWARD {portion} FROM {cursor}")
}
