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
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::fault::{self, Failure};
use super::server::Server;
use super::timeline::{self, Timeline};
use super::values::Encoded;
use crate::tables::sql::{Parameters, Row, Value, params};

/// How long the server may take for the statements of one round trip before the connection counts as broken. It has to be longer than the
/// limits that the server itself is told for each statement (`statement_timeout`).
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// The same for a statement that works on a whole table. A connection that is dead is noticed then.
const LONG_ANSWER_TIMEOUT: Duration = Duration::from_secs(3_600);
/// The time after a failed attempt to connect in which no other is made. The calls meanwhile get the same error at once.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// How many statements are queued at most, and how many bytes their parameters have together, before they are sent.
const MAX_QUEUED: usize = 64;
const MAX_QUEUED_BYTES: usize = 1 << 20;

/// What each transaction sets for itself. A pooler may give the next one another session, and the limits bound how long a store that was
/// stopped in the middle of a transaction keeps others from taking its place. Warnings have to come, whatever the role or the database has set:
/// only a warning says that a commit did not wait for its standby, and the server ends these settings after that wait.
const LIMITS: &str = "SET LOCAL search_path = ken; SET LOCAL statement_timeout = '10s'; SET LOCAL lock_timeout = '5s'; \
                      SET LOCAL idle_in_transaction_session_timeout = '5s'; SET LOCAL client_min_messages = warning";
/// Makes changes wait for those of other hosts: "KEN2". The limit is longer than the server lets a transaction stand idle, so that a host which
/// was stopped in the middle of one does not fail the changes of the others.
pub(super) const ONE_AT_A_TIME: &str = "SET LOCAL lock_timeout = '6s'; SELECT pg_advisory_xact_lock(1262833202)";
/// The time of the server in milliseconds.
pub(super) const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
const BEGIN: &str = "BEGIN";
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

/// A statement that is sent together with the next one whose answer is needed, which saves a round trip.
enum Queued {
    /// Words that begin, part or end a transaction, or close a cursor.
    Control(String),
    Change {
        sql: String,
        values: Vec<(Encoded, Type)>,
    },
}

impl Queued {
    async fn send(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        match self {
            Queued::Control(sql) => client.batch_execute(sql).await,
            Queued::Change { sql, values } => client.execute_typed(sql, &sent(values)).await.map(drop),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Queued::Control(_) => 0,
            Queued::Change { values, .. } => values.iter().map(|(value, _)| value.len()).sum(),
        }
    }
}

pub(super) struct Session {
    /// Always there, until it is dropped.
    runtime: Option<Runtime>,
    server: Server,
    link: Option<Link>,
    /// In their order, the first one to be sent first.
    queued: Vec<Queued>,
    /// Whether a transaction has failed because another host has taken the place of this one.
    has_lost_place: bool,
    /// The last failed attempt to connect.
    failed: Option<(Instant, Error)>,
    /// How long the server may take for an answer.
    answer_timeout: Duration,
    /// The number of cursors so far: their names differ within a transaction.
    cursors: u64,
}

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
        Ok(Session {
            runtime: Some(runtime),
            server,
            link: None,
            queued: Vec::new(),
            has_lost_place: false,
            failed: None,
            answer_timeout: ANSWER_TIMEOUT,
            cursors: 0,
        })
    }

    pub(super) fn server(&self) -> &str {
        &self.server.name
    }

    pub(super) fn requires_sync(&self) -> bool {
        self.server.require_sync
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
        let connected = self.connect_to_any();
        self.failed = connected.as_ref().err().map(|error| (Instant::now(), error.clone()));
        connected.map(|()| true)
    }

    /// Connects to the first host that can be used. Of several errors it returns the last one, unless one says that a primary was replaced.
    fn connect_to_any(&mut self) -> Result<(), Error> {
        let (mut replaced, mut last) = (None, None);
        for config in self.server.hosts.clone().iter() {
            match self.connect_to(config) {
                Ok(()) => match self.check_timeline() {
                    Ok(()) => return Ok(()),
                    Err(error) => replaced = Some(error),
                },
                Err(error) => last = Some(error),
            }
            self.cut();
        }
        Err(replaced.or(last).unwrap_or_else(|| Error::internal("the URL of the store names no host")))
    }

    fn connect_to(&mut self, config: &Config) -> Result<(), Error> {
        let tls = self.server.tls.clone();
        let connect = async { timeout(ANSWER_TIMEOUT, config.connect(tls)).await };
        let made = self.runtime.as_ref().ok_or(Failure::Cut).map(|runtime| runtime.block_on(connect));
        let made = made.and_then(|made| made.map_err(|_| Failure::Silent));
        let made = made.and_then(|made| made.map_err(Failure::Server)).map_err(|failure| self.error(&failure));
        let (client, connection) = made?;
        self.link = Some(Link { client, connection, is_warned: false });
        Ok(())
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
        self.queued.clear();
    }

    /// Queues words that begin, part or end a transaction.
    pub(super) fn defer(&mut self, sql: &str) {
        if let Some(Queued::Control(words)) = self.queued.last_mut() {
            words.push(';');
            words.push_str(sql);
        } else {
            self.queued.push(Queued::Control(sql.to_owned()));
        }
    }

    /// Queues a statement that changes something. The error is its own or that of an earlier one, if they had to be sent now.
    pub(super) fn queue(&mut self, sql: &str, parameters: Parameters<'_>) -> Result<(), Error> {
        let values = parameters.iter().map(|parameter| Encoded::of(parameter.value())).collect::<Result<_, _>>()?;
        self.queued.push(Queued::Change { sql: sql.to_owned(), values });
        let bytes: usize = self.queued.iter().map(Queued::bytes).sum();
        if self.queued.len() < MAX_QUEUED && bytes < MAX_QUEUED_BYTES { Ok(()) } else { self.send_changes() }
    }

    /// Sends what is queued, if a statement that changes something is among it, and waits for the answers.
    pub(super) fn send_changes(&mut self) -> Result<(), Error> {
        if self.has_changes() { self.run(async |_| Ok(())).map_err(|failure| self.error(&failure)) } else { Ok(()) }
    }

    fn has_changes(&self) -> bool {
        self.queued.iter().any(|queued| matches!(queued, Queued::Change { .. }))
    }

    /// Whether the server may take an hour for an answer, as a migration and a transfer need it.
    pub(super) fn wait_long(&mut self, long: bool) {
        self.answer_timeout = if long { LONG_ANSWER_TIMEOUT } else { ANSWER_TIMEOUT };
    }

    /// Executes statements without parameters.
    pub(super) fn batch(&mut self, sql: &str) -> Result<(), Error> {
        self.defer(sql);
        self.run(async |_| Ok(())).map_err(|failure| self.error(&failure))
    }

    /// Executes a statement and returns its rows.
    pub(super) fn query(&mut self, sql: &str, parameters: Parameters<'_>) -> Result<Vec<tokio_postgres::Row>, Error> {
        let values = typed(parameters);
        let rows = self.run(async |client| client.query_typed(sql, &sent(&values)).await);
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
        let values = typed(parameters);
        let rows = self.run(async |client| client.execute_typed(sql, &sent(&values)).await);
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
        let values = typed(parameters);
        let rows = self.run(async |client| {
            let opened = async { client.execute_typed(&declare, &sent(&values)).await.map(drop) };
            after(opened, client.query_typed(&fetch, &[])).await
        });
        rows.map(|rows| (name, rows)).map_err(|failure| self.error(&failure))
    }

    pub(super) fn fetch(&mut self, cursor: &str, portion: u32) -> Result<Vec<tokio_postgres::Row>, Error> {
        self.query(&fetch_sql(cursor, portion), params![])
    }

    pub(super) fn close_cursor(&mut self, cursor: &str) {
        self.defer(&format!("CLOSE {cursor}"));
    }

    pub(super) fn begin(&mut self, mode: &str) {
        self.queued.clear();
        self.defer(&format!("{BEGIN} {mode}"));
        self.defer(LIMITS);
    }

    /// Undoes what was done since the savepoint `change`.
    pub(super) fn undo_change(&mut self) -> Result<(), Error> {
        self.queued.retain(|queued| matches!(queued, Queued::Control(_)));
        self.batch("ROLLBACK TO change; RELEASE change")
    }

    /// Ends a transaction without a commit.
    pub(super) fn rollback(&mut self) -> Result<(), Error> {
        // Until the first statement is sent, the server knows of no transaction.
        let is_begun = !matches!(self.queued.first(), Some(Queued::Control(words)) if words.starts_with(BEGIN));
        self.queued.clear();
        if is_begun && self.is_connected() { self.batch("ROLLBACK") } else { Ok(()) }
    }

    /// Commits the transaction, in the same round trip as what is queued.
    pub(super) fn commit(&mut self) -> Ended {
        if let Some(link) = &mut self.link {
            link.is_warned = false;
        }
        // COMMIT of a transaction in which a statement has failed succeeds, and rolls it back. The SELECT fails then, and ends these words.
        self.defer("SELECT 1; COMMIT");
        match self.run(async |_| Ok(())) {
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

    /// Returns whether a transaction has failed since the last call because another host has taken the place of this one.
    pub(super) fn take_loss_of_place(&mut self) -> bool {
        std::mem::take(&mut self.has_lost_place)
    }

    /// Sends what is queued and then a request, and waits for the answers, and runs the connection meanwhile. The error is the first one:
    /// the server refuses what follows in the transaction.
    fn run<T>(&mut self, request: impl AsyncFnOnce(&Client) -> Result<T, tokio_postgres::Error>) -> Result<T, Failure> {
        let queued = std::mem::take(&mut self.queued);
        let (Some(link), Some(runtime)) = (&mut self.link, &self.runtime) else {
            return Err(Failure::Cut);
        };
        let (server, limit) = (&self.server, self.answer_timeout);
        let all = async |client: &Client| after(send_all(client, &queued), request(client)).await;
        let answer = runtime.block_on(async { timeout(limit, drive(server, link, all)).await });
        let answer = answer.unwrap_or(Err(Failure::Silent));
        self.has_lost_place |= answer.as_ref().is_err_and(Failure::is_loss_of_place);
        // A new connection is checked, which finds out why the tables are not there, or makes them.
        if answer.as_ref().is_err_and(|failure| failure.ends_connection() || failure.is_loss_of_tables()) {
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
        let ended = advance(server, connection, is_warned, context);
        match (answer.as_mut().poll(context), ended) {
            // What the server said before it ended the connection says why it did.
            (Poll::Ready(answer), _) => Poll::Ready(answer.map_err(Failure::Server)),
            (Poll::Pending, Err(failure)) => Poll::Ready(Err(failure)),
            (Poll::Pending, Ok(())) => Poll::Pending,
        }
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

/// Sends statements one after the other without waiting, and then waits for all.
async fn send_all(client: &Client, queued: &[Queued]) -> Result<(), tokio_postgres::Error> {
    match queued {
        [] => Ok(()),
        [first, others @ ..] => after(first.send(client), Box::pin(send_all(client, others))).await,
    }
}

fn sent<V: ToSql + Sync>(values: &[(V, Type)]) -> Vec<(&(dyn ToSql + Sync), Type)> {
    values.iter().map(|(value, ty)| (value as &(dyn ToSql + Sync), ty.clone())).collect()
}

fn typed<'a>(parameters: Parameters<'a>) -> Vec<(Value<'a>, Type)> {
    let values = parameters.iter().map(|parameter| parameter.value());
    values.map(|value| (value, value.sql_type())).collect()
}

fn fetch_sql(cursor: &str, portion: u32) -> String {
    format!("FETCH FORWARD {portion} FROM {cursor}")
}
