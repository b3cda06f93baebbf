//! The server: one task per connection and one per call, all of them bounded in number.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use ken_types::Error;
use ken_types::limits::{WIRE_CONNECTIONS, WIRE_LINE_BYTES, WIRE_OPEN_REQUESTS};
use parking_lot::Mutex;
use tokio::net::unix::UCred;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};

use crate::gate::ChangeGate;
use crate::halves::{ReadHalf, closed, split, write_lines};
use crate::line::{Line, LineReader};
use crate::request::{Malformed, Request, refusal};
use crate::table::{ConnectionId, Daemon, FinalLine, RawCall, Table};

/// How long a peer may read nothing before it is disconnected.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The wait before the next attempt that the error `busy` suggests to a caller, in milliseconds.
const RETRY_MS: u64 = 50;
/// How long to wait after a failed accept, for instance when there are no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Stops a running server, and counts its calls and connections.
#[derive(Debug, Clone)]
pub struct Server {
    stop: watch::Sender<bool>,
    drain: Duration,
    permits: Arc<Semaphore>,
    connected: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
}

impl Server {
    /// Creates a server. `drain` is how long open calls may continue after [`Server::stop`]. After that they end with
    /// the error `unavailable`.
    pub fn new(drain: Duration) -> Server {
        Server {
            stop: watch::Sender::new(false),
            drain,
            permits: Arc::new(Semaphore::new(WIRE_CONNECTIONS)),
            connected: Arc::default(),
            open: Arc::default(),
        }
    }

    /// Stops accepting connections and calls. Open calls continue for the time of `drain`.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// The number of calls that have not received their final line.
    pub fn open_requests(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// The number of open connections.
    pub fn connections(&self) -> usize {
        self.connected.load(Ordering::Relaxed)
    }
}

/// Answers calls on a listening socket until [`Server::stop`]. Returns when all open calls have received their final line.
pub async fn serve<S: Daemon>(server: Server, listener: UnixListener, table: Table<S>, state: Arc<S>) {
    let table = Arc::new(table);
    let next_id = AtomicU64::new(1);
    let mut tasks = JoinSet::new();
    let mut stop = server.stop.subscribe();
    loop {
        let accepted = tokio::select! {
            _ = stopped(&mut stop) => break,
            Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
            accepted = accept(&server, &listener) => accepted,
        };
        match accepted {
            Ok((stream, permit)) => {
                let connection = Connection {
                    id: next_id.fetch_add(1, Ordering::Relaxed),
                    server: server.clone(),
                    table: table.clone(),
                    state: state.clone(),
                };
                tasks.spawn(async move {
                    let connected = connection.server.connected.clone();
                    connected.fetch_add(1, Ordering::Relaxed);
                    connection.run(stream).await;
                    connected.fetch_sub(1, Ordering::Relaxed);
                    drop(permit);
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
    while tasks.join_next().await.is_some() {}
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the server has been dropped.
    _ = stop.wait_for(|stop| *stop).await;
}

type Permit = tokio::sync::OwnedSemaphorePermit;

/// Waits for a permit before it accepts, so that connections over the limit wait in the backlog.
async fn accept(server: &Server, listener: &UnixListener) -> io::Result<(UnixStream, Permit)> {
    let permit = server.permits.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, permit))
}

struct Connection<S> {
    id: ConnectionId,
    server: Server,
    table: Arc<Table<S>>,
    state: Arc<S>,
}

impl<S: Daemon> Connection<S> {
    async fn run(self, stream: UnixStream) {
        let peer = stream.peer_cred();
        let Ok((read, write)) = split(stream) else {
            return; // no more file descriptors: the connection is closed, and the caller connects again
        };
        let (out, lines) = mpsc::channel(WIRE_OPEN_REQUESTS);
        let writer = tokio::spawn(write_lines(write, lines, Some(STALL_TIMEOUT)));
        match refuse_stranger(peer) {
            Some(error) => _ = out.send(refusal(None, &error)).await,
            None => self.answer(read, &out).await,
        }
        drop(out);
        _ = writer.await;
    }

    /// Reads requests until the peer closes the connection, violates the format or stops reading. Then the open calls of the connection
    /// end.
    async fn answer(&self, read: ReadHalf, out: &mpsc::Sender<Vec<u8>>) {
        let calls = Calls { open: Arc::default(), all_ended: Arc::default(), count: self.server.open.clone() };
        let mut lines = LineReader::new(read);
        let mut stop = self.server.stop.subscribe();
        loop {
            let line = tokio::select! {
                line = lines.next() => line,
                _ = out.closed() => break,
                _ = stopped(&mut stop) => {
                    calls.finish(self.server.drain, out).await;
                    break;
                }
            };
            let answered = match line {
                Ok(Line::Text(line)) => self.handle(line, &calls, out).await,
                // A peer that has shut its write half (`nc -N`) sends no more requests and waits for the open ones.
                Ok(Line::End) => {
                    tokio::select! {
                        () = calls.ended() => {}
                        () = closed(lines.source()) => {}
                        _ = out.closed() => {}
                        _ = stopped(&mut stop) => calls.finish(self.server.drain, out).await,
                    }
                    break;
                }
                Err(_) => break,
                Ok(Line::TooLong) => {
                    let message = format!("a line has more than {WIRE_LINE_BYTES} bytes");
                    _ = out.send(refusal(None, &Error::too_large(message))).await;
                    break;
                }
                Ok(Line::TooSlow) => {
                    _ = out.send(refusal(None, &Error::deadline("a line took longer than 10 s"))).await;
                    break;
                }
            };
            if answered.is_err() {
                break;
            }
        }
        calls.abort_all();
        self.state.disconnected(self.id);
    }

    async fn handle(&self, line: &[u8], calls: &Calls, out: &mpsc::Sender<Vec<u8>>) -> Result<(), Gone> {
        let line = match Request::parse(line) {
            Ok(Request::Call { id, op, args, deadline }) => {
                let deadline = Instant::now() + deadline;
                let call = RawCall { connection: self.id, id, deadline, out: out.clone() };
                let started = calls.check(id).and_then(|()| self.table.start(self.state.clone(), call, &op, args));
                match started {
                    Ok(answer) => {
                        calls.spawn(id, deadline, answer, out.clone());
                        return Ok(());
                    }
                    Err(error) => refusal(Some(id), &error),
                }
            }
            Ok(Request::Cancel { id }) => match calls.cancel(id) {
                Some(gate) => refusal(Some(id), &gate.ended(Error::cancelled("cancelled by the caller"))),
                None => return Ok(()), // its final line is already queued
            },
            Err(Malformed { id, error }) => refusal(id, &error),
        };
        out.send(line).await.map_err(|_| Gone)
    }
}

/// The error that the peer no longer reads.
struct Gone;

/// The calls of one connection that have not received their final line. The code that removes a call from here sends its final line.
#[derive(Clone)]
struct Calls {
    open: Arc<Mutex<HashMap<u64, OpenCall>>>,
    /// Notified when the last open call has been removed.
    all_ended: Arc<Notify>,
    /// The number of open calls of all connections.
    count: Arc<AtomicUsize>,
}

struct OpenCall {
    gate: ChangeGate,
    /// `None` between the entry of the call and the start of its task.
    task: Option<AbortHandle>,
}

impl Calls {
    fn check(&self, id: u64) -> Result<(), Error> {
        let open = self.open.lock();
        if open.contains_key(&id) {
            return Err(Error::invalid("/id", format!("request {id} is still open")));
        }
        if open.len() >= WIRE_OPEN_REQUESTS {
            let message = format!("{WIRE_OPEN_REQUESTS} requests are open on this connection");
            return Err(Error::busy(message, RETRY_MS));
        }
        Ok(())
    }

    fn spawn(&self, id: u64, deadline: Instant, answer: FinalLine, out: mpsc::Sender<Vec<u8>>) {
        let gate = ChangeGate::new(deadline);
        // The call is entered before its task can run, because the task removes it when it ends.
        let open = OpenCall { gate: gate.clone(), task: None };
        self.open.lock().insert(id, open);
        self.count.fetch_add(1, Ordering::Relaxed);
        let calls = self.clone();
        let task = tokio::spawn(async move {
            let line = match timeout_at(deadline, gate.clone().scope(answer)).await {
                Ok(Ok(line)) => line,
                Ok(Err(error)) => refusal(Some(id), &error),
                Err(_) => refusal(Some(id), &gate.ended(Error::deadline("the deadline has passed"))),
            };
            if calls.remove(id).is_some() {
                _ = out.send(line).await;
            }
        });
        if let Some(call) = self.open.lock().get_mut(&id) {
            call.task = Some(task.abort_handle());
        }
    }

    fn remove(&self, id: u64) -> Option<OpenCall> {
        let mut open = self.open.lock();
        let removed = open.remove(&id);
        if removed.is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
            if open.is_empty() {
                self.all_ended.notify_one();
            }
        }
        removed
    }

    /// Returns when no call is open.
    async fn ended(&self) {
        while !self.open.lock().is_empty() {
            self.all_ended.notified().await;
        }
    }

    /// Ends an open call. If its change has not begun, the change is not made.
    fn cancel(&self, id: u64) -> Option<ChangeGate> {
        let OpenCall { gate, task } = self.remove(id)?;
        gate.give_up();
        if let Some(task) = task {
            task.abort();
        }
        Some(gate)
    }

    fn abort_all(&self) {
        for id in self.ids() {
            self.cancel(id);
        }
    }

    /// Waits for open calls for the time of `drain`, then ends those that are left.
    async fn finish(&self, drain: Duration, out: &mpsc::Sender<Vec<u8>>) {
        tokio::select! {
            _ = timeout(drain, self.ended()) => {}
            _ = out.closed() => {}
        }
        for id in self.ids() {
            let Some(gate) = self.cancel(id) else { continue };
            let stopping = gate.ended(Error::unavailable("the part is stopping"));
            _ = out.send(refusal(Some(id), &stopping)).await;
        }
    }

    fn ids(&self) -> Vec<u64> {
        self.open.lock().keys().copied().collect()
    }
}

/// Refuses a caller that is neither the same user nor root, even if the modes of socket and directory would admit it.
fn refuse_stranger(peer: io::Result<UCred>) -> Option<Error> {
    let own = nix::unistd::geteuid().as_raw();
    match peer.map(|peer| peer.uid()) {
        Ok(uid) if uid == 0 || uid == own => None,
        Ok(uid) => Some(Error::forbidden(format!("uid {uid} may not call this part"))),
        Err(error) => Some(Error::forbidden(format!("the caller is unknown: {error}"))),
    }
}
