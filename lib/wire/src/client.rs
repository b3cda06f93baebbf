//! The client: connections, calls and pools.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ken_types::limits::WIRE_OPEN_REQUESTS;
use ken_types::ops::{Nothing, Op};
use ken_types::{Code, Error, id};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout_at};

use crate::halves::{ReadHalf, split, write_lines};
use crate::line::{Line, LineReader};

/// How many streamed items are buffered for a caller. While the buffer is full, nothing more is read from the connection.
const MAX_BUFFERED_ITEMS: usize = 64;
/// How long to wait before another attempt to connect to a part whose backlog is full.
const CONNECT_PAUSE: Duration = Duration::from_millis(5);
/// How long to wait for a reply after its deadline: the callee answers `deadline` by itself.
const GRACE: Duration = Duration::from_millis(500);
/// How long a streamed call, whose own time may be ten minutes, waits for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long nobody may listen at the socket of a part until a change whose outcome is unknown waits no more for it. A part that was
/// started without kend is back sooner.
const CLOSED_TIME: Duration = Duration::from_secs(1);
/// The maximum number of unused connections that a pool keeps for streamed calls.
const MAX_UNUSED: usize = 16;

/// One connection to a part. Calls interleave on it. Clones share it; it closes when the last one is dropped.
#[derive(Debug, Clone)]
pub struct Connection {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    part: String,
    out: mpsc::Sender<Vec<u8>>,
    pending: Pending,
    reader: tokio::task::AbortHandle,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// The open calls; `None` once the connection has ended.
type Pending = Arc<Mutex<Option<Calls>>>;

#[derive(Debug, Default)]
struct Calls {
    last_id: u64,
    /// The calls that have not received their final line, by id.
    open: HashMap<u64, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    last: oneshot::Sender<Result<Box<RawValue>, Error>>,
    items: Option<mpsc::Sender<Box<RawValue>>>,
}

impl Calls {
    /// Adds a call and returns its id.
    fn begin(&mut self, call: Waiting) -> u64 {
        self.last_id += 1;
        self.open.insert(self.last_id, call);
        self.last_id
    }
}

/// Whether a request with this id has been made. It may have ended, because a reply and a cancellation can cross.
fn is_issued(pending: &Pending, id: u64) -> bool {
    pending.lock().as_ref().is_some_and(|calls| (1..=calls.last_id).contains(&id))
}

impl Connection {
    /// Connects to a part's socket. While the part restarts, the connection waits in the backlog of the socket, which
    /// `kend` holds, but not longer than the deadline.
    pub async fn open(socket: &Path, deadline: Instant) -> Result<Connection, Error> {
        let part = socket.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let stream = loop {
            match UnixStream::connect(socket).await {
                Ok(stream) => break stream,
                // EAGAIN: the backlog is full, and a non-blocking connect to a Unix socket does not wait.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                    sleep(CONNECT_PAUSE).await;
                }
                Err(error) => return Err(unreachable_part(&part, socket, &error)),
            }
        };
        let (read, write) = split(stream).map_err(|error| unreachable_part(&part, socket, &error))?;
        let pending: Pending = Arc::new(Mutex::new(Some(Calls::default())));
        let (out, lines) = mpsc::channel(WIRE_OPEN_REQUESTS);
        tokio::spawn(write_lines(write, lines, None));
        let reader = tokio::spawn(read_lines(read, pending.clone(), part.clone())).abort_handle();
        let shared = Shared { part, out, pending, reader };
        Ok(Connection { shared: Arc::new(shared) })
    }

    /// Calls an operation and waits for its final line. An error whose outcome is unknown says that the call was sent and
    /// may be done, or may still be done.
    pub async fn call<O: Op>(&self, args: &O::Args, time: Duration) -> Result<O::Reply, Error> {
        read_reply::<O>(&self.call_text(O::NAME, &args_text::<O>(args)?, time).await?)
    }

    async fn call_text(&self, op: &'static str, args: &[u8], time: Duration) -> Result<Box<RawValue>, Error> {
        let until = Instant::now() + time + GRACE;
        let silent = || Error::deadline(format!("{} did not answer in time", self.shared.part));
        // If a part does not read, its socket and the queue before it are full, and nothing has been sent.
        let started = timeout_at(until, self.start(op, args, None, time)).await;
        let mut call = started.map_err(|_| silent())??;
        let received = timeout_at(until, &mut call.last).await;
        last_line(received.map_err(|_| silent().outcome_unknown())?)
    }

    /// Whether the part has closed the connection.
    pub fn is_closed(&self) -> bool {
        self.shared.pending.lock().is_none()
    }

    /// Resolves when the part has closed the connection.
    pub async fn closed(&self) {
        self.shared.out.closed().await;
    }

    fn open_calls(&self) -> Option<usize> {
        self.shared.pending.lock().as_ref().map(|calls| calls.open.len())
    }

    async fn start(
        &self,
        op: &'static str,
        args: &[u8],
        items: Option<mpsc::Sender<Box<RawValue>>>,
        time: Duration,
    ) -> Result<Call, Error> {
        let (last, received) = oneshot::channel();
        let id = match self.shared.pending.lock().as_mut() {
            Some(calls) => calls.begin(Waiting { last, items }),
            None => return Err(closed(&self.shared.part)),
        };
        let call = Call { id, connection: self.clone(), last: received };
        // A request that cannot be sent ends the call that has just begun.
        let line = request(id, op, args, time)?;
        self.shared.out.send(line).await.map_err(|_| closed(&self.shared.part))?;
        Ok(call)
    }
}

/// An open call. Dropping it before its final line cancels the call.
#[derive(Debug)]
struct Call {
    id: u64,
    connection: Connection,
    last: oneshot::Receiver<Result<Box<RawValue>, Error>>,
}

impl Drop for Call {
    fn drop(&mut self) {
        let waiting = self.connection.shared.pending.lock().as_mut().and_then(|calls| calls.open.remove(&self.id));
        if waiting.is_some() {
            let line = format!("{{\"id\":{},\"cancel\":true}}\n", self.id);
            // If the queue is full, the part does not read, and the deadline ends the call.
            _ = self.connection.shared.out.try_send(line.into_bytes());
        }
    }
}

/// The items of a call, then its reply. The call has a connection of its own, which serves another streamed call when this one has ended.
/// Dropping the items of an open call cancels it and closes its connection.
pub struct Items<O: Op> {
    call: Call,
    received: mpsc::Receiver<Box<RawValue>>,
    pool: Pool,
    op: PhantomData<fn() -> O>,
}

impl<O: Op> Items<O> {
    /// Returns the next item; `None` when the final line has arrived. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<O::Item, Error>> {
        let item = self.received.recv().await?;
        Some(O::read_item(item.get()).map_err(|error| not_understood(O::NAME, &error)))
    }

    /// Returns the reply. Items that have not been read are lost. The outcome of an error is unknown only if the connection has ended.
    pub async fn reply(mut self) -> Result<O::Reply, Error> {
        self.received.close();
        read_reply::<O>(&last_line((&mut self.call.last).await)?)
    }
}

impl<O: Op> Drop for Items<O> {
    fn drop(&mut self) {
        self.pool.keep(&self.call.connection);
    }
}

impl<O: Op> fmt::Debug for Items<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Items").field(&O::NAME).field(&self.call.id).finish()
    }
}

type Received = Result<Result<Box<RawValue>, Error>, oneshot::error::RecvError>;

fn last_line(received: Received) -> Result<Box<RawValue>, Error> {
    let ended = |_| Error::unavailable("the connection ended before the answer").outcome_unknown();
    received.map_err(ended)?
}

fn read_reply<O: Op>(reply: &RawValue) -> Result<O::Reply, Error> {
    O::read_reply(reply.get()).map_err(|error| not_understood("reply", &error))
}

fn args_text<O: Op>(args: &O::Args) -> Result<Vec<u8>, Error> {
    let mut text = Vec::with_capacity(256);
    O::write_args(args, &mut text)
        .map_err(|error| Error::internal(format!("a request could not be written as JSON: {error}")))?;
    Ok(text)
}

fn not_understood(what: &str, error: &serde_json::Error) -> Error {
    Error::internal(format!("{what} was not understood: {error}"))
}

fn closed(part: &str) -> Error {
    Error::unavailable(format!("{part} has closed the connection"))
}

fn unreachable_part(part: &str, socket: &Path, error: &io::Error) -> Error {
    Error::unavailable(format!("{part} cannot be reached at {}: {error}", socket.display()))
        .hint("`ken status` shows whether it runs")
}

/// Returns the line of a request. The name of an operation needs no escapes.
fn request(id: u64, op: &'static str, args: &[u8], time: Duration) -> Result<Vec<u8>, Error> {
    let deadline_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let deadline_ms = deadline_ms.min(ken_types::limits::WIRE_DEADLINE_MAX_MS);
    let begin = format!("{{\"id\":{id},\"op\":\"{op}\",\"args\":");
    let end = format!(",\"deadline_ms\":{deadline_ms}}}\n");
    let line = [begin.as_bytes(), args, end.as_bytes()].concat();
    match line.len() {
        length if length <= ken_types::limits::WIRE_LINE_BYTES => Ok(line),
        length => Err(Error::too_large(format!("the request has {length} bytes, more than a line may have"))),
    }
}

#[derive(Deserialize)]
struct Incoming<'a> {
    id: Option<u64>,
    #[serde(borrow, default)]
    item: Option<&'a RawValue>,
    #[serde(borrow, default)]
    ok: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<Error>,
}

async fn read_lines(read: ReadHalf, pending: Pending, part: String) {
    let mut lines = LineReader::new(read);
    let mut reason = closed(&part);
    while let Ok(Line::Text(line)) = lines.next().await {
        match serde_json::from_slice::<Incoming<'_>>(line) {
            // The part answers another caller or counts wrongly, so none of its answers can be trusted.
            Ok(Incoming { id: Some(id), .. }) if !is_issued(&pending, id) => {
                reason = Error::internal(format!("{part} answered request {id}, which was never made"));
                break;
            }
            Ok(Incoming { id: Some(id), item: Some(item), .. }) => deliver_item(&pending, id, item).await,
            Ok(Incoming { id: Some(id), ok: Some(ok), .. }) => deliver_last(&pending, id, Ok(ok.to_owned())),
            Ok(Incoming { id: Some(id), error: Some(error), .. }) => deliver_last(&pending, id, Err(error)),
            Ok(Incoming { error: Some(error), .. }) => reason = error, // it concerns the connection, which is now closed
            _ => break,
        }
    }
    let reason = reason.outcome_unknown();
    for (_, waiting) in pending.lock().take().unwrap_or_default().open {
        _ = waiting.last.send(Err(reason.clone()));
    }
}

async fn deliver_item(pending: &Pending, id: u64, item: &RawValue) {
    let items = pending.lock().as_ref().and_then(|calls| calls.open.get(&id)?.items.clone());
    if let Some(items) = items {
        _ = items.send(item.to_owned()).await;
    }
}

fn deliver_last(pending: &Pending, id: u64, last: Result<Box<RawValue>, Error>) {
    if let Some(waiting) = pending.lock().as_mut().and_then(|calls| calls.open.remove(&id)) {
        _ = waiting.last.send(last);
    }
}

/// Connections to one part, opened as calls need them: at most 64 open calls on each.
#[derive(Debug, Clone)]
pub struct Pool {
    socket: Arc<PathBuf>,
    connections: Arc<Mutex<Vec<Connection>>>,
    /// The connections of streamed calls that have ended. They have no open calls.
    unused: Arc<Mutex<Vec<Connection>>>,
    /// Locked while a connection is opened, so that a burst of calls does not open one each.
    opening: Arc<tokio::sync::Mutex<()>>,
}

impl Pool {
    /// Creates a pool for the part that listens on this socket. No connection is opened yet.
    pub fn new(socket: impl Into<PathBuf>) -> Pool {
        Pool {
            socket: Arc::new(socket.into()),
            connections: Arc::default(),
            unused: Arc::default(),
            opening: Arc::default(),
        }
    }

    /// Calls an operation. If the part cannot be reached, or dies before it has answered, the call is repeated once after a
    /// short pause, since every operation of ken may be repeated (`ken_types::ops`).
    ///
    /// An error whose outcome is unknown means that one of the attempts may have been done, or may still be done.
    pub async fn call<O: Op>(&self, args: &O::Args, time: Duration) -> Result<O::Reply, Error> {
        read_reply::<O>(&self.call_text(O::NAME, &args_text::<O>(args)?, time).await?)
    }

    async fn call_text(&self, op: &'static str, args: &[u8], time: Duration) -> Result<Box<RawValue>, Error> {
        let deadline = Instant::now() + time;
        let first = match self.call_once(op, args, time, deadline).await {
            Err(error) if error.code == Code::Unavailable => error,
            result => return result,
        };
        sleep(jitter()).await;
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(first);
        }
        let second = self.call_once(op, args, left, deadline).await;
        second.map_err(|second| keep_unknown_outcome(&first, second))
    }

    /// Makes a change and finds out its outcome: repeats the call with the same ids until there is an answer, for at most `time`. The
    /// change is not made if it has not begun within `try_time` of the arrival of a call; then the error is certain. An error whose outcome
    /// is unknown means that `time` has passed without an answer, or that the part has been stopped.
    pub async fn change<O: Op>(&self, args: &O::Args, try_time: Duration, time: Duration) -> Result<O::Reply, Error> {
        read_reply::<O>(&self.change_text(O::NAME, &args_text::<O>(args)?, try_time, time).await?)
    }

    async fn change_text(
        &self,
        op: &'static str,
        args: &[u8],
        try_time: Duration,
        time: Duration,
    ) -> Result<Box<RawValue>, Error> {
        let deadline = Instant::now() + time;
        let mut closed_since = None;
        let mut result = self.call_text(op, args, try_time.min(time)).await;
        while let Err(unknown) = &result
            && unknown.is_outcome_unknown()
        {
            sleep(jitter()).await;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            // kend closes the socket of a part that is stopped. Nobody knows when it comes back, and while the system stops, it does
            // not.
            closed_since = if self.is_closed().await { closed_since.or_else(|| Some(Instant::now())) } else { None };
            if closed_since.is_some_and(|since| since.elapsed() > CLOSED_TIME) {
                break;
            }
            let again = self.call_text(op, args, try_time.min(left)).await;
            result = again.map_err(|error| keep_unknown_outcome(unknown, error));
        }
        result
    }

    /// Whether nobody listens at the socket.
    async fn is_closed(&self) -> bool {
        let refused = [io::ErrorKind::ConnectionRefused, io::ErrorKind::NotFound];
        UnixStream::connect(&*self.socket).await.is_err_and(|error| refused.contains(&error.kind()))
    }

    /// Calls an operation that streams, on a connection of its own, so that a caller that reads its items slowly does not delay other
    /// calls. The call is not repeated, because items that have been delivered cannot be taken back.
    pub async fn stream<O: Op>(&self, args: &O::Args, time: Duration) -> Result<Items<O>, Error> {
        let args = args_text::<O>(args)?;
        let (items, received) = mpsc::channel(MAX_BUFFERED_ITEMS);
        let call = self.start_stream(O::NAME, &args, items, time).await?;
        Ok(Items { call, received, pool: self.clone(), op: PhantomData })
    }

    async fn start_stream(
        &self,
        op: &'static str,
        args: &[u8],
        items: mpsc::Sender<Box<RawValue>>,
        time: Duration,
    ) -> Result<Call, Error> {
        while let Some(connection) = self.take_unused() {
            match connection.start(op, args, Some(items.clone()), time).await {
                // The part has closed it just now, and nothing was sent.
                Err(error) if error.code == Code::Unavailable => {}
                result => return result,
            }
        }
        let connection = self.open(Instant::now() + time.min(CONNECT_TIMEOUT)).await?;
        connection.start(op, args, Some(items), time).await
    }

    fn take_unused(&self) -> Option<Connection> {
        let mut unused = self.unused.lock();
        unused.retain(|connection| !connection.is_closed());
        unused.pop()
    }

    /// Keeps the connection of a streamed call for the next one, if the call has ended and the connection has not.
    fn keep(&self, connection: &Connection) {
        let mut unused = self.unused.lock();
        if unused.len() < MAX_UNUSED && connection.open_calls() == Some(0) {
            unused.push(connection.clone());
        }
    }

    async fn open(&self, deadline: Instant) -> Result<Connection, Error> {
        timeout_at(deadline, Connection::open(&self.socket, deadline)).await.map_err(no_connection)?
    }

    async fn call_once(
        &self,
        op: &'static str,
        args: &[u8],
        time: Duration,
        until: Instant,
    ) -> Result<Box<RawValue>, Error> {
        self.connection(until).await?.call_text(op, args, time).await
    }

    /// Returns a connection with room for another call, and opens one if there is none.
    pub async fn connection(&self, deadline: Instant) -> Result<Connection, Error> {
        if let Some(connection) = self.connection_with_room() {
            return Ok(connection);
        }
        let _opening = timeout_at(deadline, self.opening.lock()).await.map_err(no_connection)?;
        if let Some(connection) = self.connection_with_room() {
            return Ok(connection);
        }
        let connection = self.open(deadline).await?;
        self.connections.lock().push(connection.clone());
        Ok(connection)
    }

    /// Returns the first connection with room, so that connections that were opened for a burst of calls become unused.
    fn connection_with_room(&self) -> Option<Connection> {
        let mut open = self.connections.lock();
        open.retain(|connection| !connection.is_closed());
        let has_room = |connection: &&Connection| connection.open_calls().is_some_and(|open| open < WIRE_OPEN_REQUESTS);
        open.iter().find(has_room).cloned()
    }
}

/// The cached reply of a part to an operation without arguments. It is used for a second, or until the part closes the connection; then the
/// part is called again. This is for data that rarely changes and is needed for every request.
#[derive(Debug)]
pub struct CachedReply<O: Op> {
    pool: Pool,
    known: Mutex<Option<(Connection, O::Reply, Instant)>>,
}

/// How long a cached reply is used.
const CACHE_TIME: Duration = Duration::from_secs(1);

impl<O> CachedReply<O>
where
    O: Op<Args = Nothing>,
    O::Reply: Clone,
{
    /// Creates a cache for the part behind this pool. This makes no call.
    pub fn new(pool: Pool) -> CachedReply<O> {
        CachedReply { pool, known: Mutex::default() }
    }

    /// Returns the reply. While the part is down this is an error, not the last reply.
    pub async fn get(&self, time: Duration) -> Result<O::Reply, Error> {
        let known = self.known.lock().clone();
        let is_current = |(connection, _, at): &(Connection, O::Reply, Instant)| {
            !connection.is_closed() && at.elapsed() < CACHE_TIME
        };
        if let Some((_, reply, _)) = known.filter(is_current) {
            return Ok(reply);
        }
        let connection = self.pool.connection(Instant::now() + time).await?;
        let reply = connection.call::<O>(&Nothing {}, time).await?;
        *self.known.lock() = Some((connection, reply.clone(), Instant::now()));
        Ok(reply)
    }
}

fn no_connection(_: Elapsed) -> Error {
    Error::deadline("no connection in time")
}

/// Returns the error of a repeated attempt. If it does not determine the outcome, the outcome remains as unknown as it was before.
fn keep_unknown_outcome(earlier: &Error, error: Error) -> Error {
    let says_nothing = matches!(error.code, Code::Unavailable | Code::Deadline | Code::Busy | Code::Cancelled);
    if earlier.is_outcome_unknown() && says_nothing { error.outcome_unknown() } else { error }
}

/// Returns 5 to 25 ms, so that many callers do not repeat their calls at the same time.
fn jitter() -> Duration {
    let [random] = id::random::<1>().unwrap_or([0]);
    Duration::from_micros(5_000 + u64::from(random) * 78)
}
