//! The server under the conformance suite, and the client against the server.

#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ken_types::ops::Nothing;
use ken_types::ops::service::{ServiceInfo, ServicePing};
use ken_types::{Code, Error};
use ken_wire::conformance::{Subject, check};
use ken_wire::{CachedReply, ChangeGate, Connection, Context, Daemon, Pool, Server, Table, serve};
use parking_lot::Mutex;
use tokio::net::UnixListener;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

#[derive(serde::Serialize, serde::Deserialize)]
pub struct Number {
    n: u64,
}

ken_types::operations! {
    Sleep, "test.sleep": Number => Nothing;
    Fill, "test.fill": String => Nothing;
    Change, "test.change": Number => Nothing;
    Count, "test.count": Number => u64, items u64;
    Times, "test.times": Nothing => usize;
}

#[derive(Default)]
struct Probe {
    calls: AtomicUsize,
    disconnected: AtomicUsize,
    dropped: Arc<AtomicUsize>,
    /// Connections on which items are being streamed.
    streaming: Arc<Mutex<HashSet<u64>>>,
}

impl Daemon for Probe {
    fn disconnected(&self, _: u64) {
        self.disconnected.fetch_add(1, Ordering::SeqCst);
    }
}

struct CountDrop(Arc<AtomicUsize>);
impl Drop for CountDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

async fn sleep_ms(state: Arc<Probe>, _: Context<Sleep>, Number { n: ms }: Number) -> Result<Nothing, Error> {
    let _count = CountDrop(state.dropped.clone());
    tokio::time::sleep(Duration::from_millis(ms)).await;
    Ok(Nothing {})
}

/// A call that never ends. Its change begins at once if the argument is not 0, and otherwise never.
async fn change(_: Arc<Probe>, _: Context<Change>, Number { n: begins }: Number) -> Result<Nothing, Error> {
    let gate = ChangeGate::current();
    if begins > 0 {
        assert!(gate.begin());
    }
    std::future::pending::<()>().await;
    Ok(Nothing {})
}

/// Removes a connection from a set when it is dropped.
struct Streaming(Arc<Mutex<HashSet<u64>>>, u64);
impl Drop for Streaming {
    fn drop(&mut self) {
        self.0.lock().remove(&self.1);
    }
}

/// Streams numbers. Refuses a second stream on a connection while another is open.
async fn count(state: Arc<Probe>, context: Context<Count>, Number { n: to }: Number) -> Result<u64, Error> {
    if !state.streaming.lock().insert(context.connection) {
        return Err(Error::conflict("this connection has an open stream"));
    }
    let _streaming = Streaming(state.streaming.clone(), context.connection);
    for number in 0..to {
        context.item(&number).await?;
    }
    Ok(to)
}

async fn times(state: Arc<Probe>, _: Context<Times>, Nothing {}: Nothing) -> Result<usize, Error> {
    Ok(state.calls.fetch_add(1, Ordering::SeqCst) + 1)
}

struct Running {
    _dir: tempfile::TempDir,
    socket: PathBuf,
    server: Server,
    state: Arc<Probe>,
    task: tokio::task::JoinHandle<()>,
}

fn start() -> Running {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("probe.sock");
    let state = Arc::new(Probe::default());
    let (server, task) = listen(&socket, state.clone());
    Running { _dir: dir, socket, server, state, task }
}

fn listen(socket: &Path, state: Arc<Probe>) -> (Server, tokio::task::JoinHandle<()>) {
    let listener = UnixListener::bind(socket).unwrap();
    let table = Table::new("probe", "0")
        .op::<Sleep, _, _>(sleep_ms)
        .op::<Change, _, _>(change)
        .op::<Count, _, _>(count)
        .op::<Times, _, _>(times);
    let server = Server::new(Duration::from_millis(200));
    let task = tokio::spawn(serve(server.clone(), listener, table, state));
    (server, task)
}

#[tokio::test]
async fn the_server_conforms() {
    let running = start();
    let subject =
        Subject { socket: running.socket.clone(), slow: Some(("test.sleep", serde_json::json!({"n": 5_000}))) };
    let failed = tokio::task::spawn_blocking(move || check(&subject)).await.unwrap();
    assert!(failed.is_empty(), "{failed:#?}");
}

#[tokio::test]
async fn calls_interleave_and_a_pool_opens_what_it_needs() {
    let running = start();
    let pool = Pool::new(&running.socket);
    let sleeps: Vec<_> = (0..100)
        .map(|_| {
            let pool = pool.clone();
            tokio::spawn(async move { pool.call::<Sleep>(&Number { n: 200 }, 5 * SECOND).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(pool.call::<ServiceInfo>(&Nothing {}, SECOND).await.unwrap().name, "probe");
    assert_eq!(running.server.connections(), 2);
    for sleep in sleeps {
        sleep.await.unwrap().unwrap();
    }
    assert_eq!(running.server.open_requests(), 0);
}

#[tokio::test]
async fn items_come_in_order_and_wait_for_a_slow_caller() {
    let running = start();
    let pool = Pool::new(&running.socket);
    let mut items = pool.stream::<Count>(&Number { n: 10_000 }, 10 * SECOND).await.unwrap();
    let mut wanted = 0;
    while let Some(item) = items.next().await {
        assert_eq!(item.unwrap(), wanted);
        wanted += 1;
    }
    assert_eq!((wanted, items.reply().await.unwrap()), (10_000, 10_000));
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_in_the_part() {
    let running = start();
    let pool = Pool::new(&running.socket);
    let call = tokio::time::timeout(Duration::from_millis(50), pool.call::<Sleep>(&Number { n: 60_000 }, 100 * SECOND));
    assert!(call.await.is_err());
    until("the call is dropped", || running.state.dropped.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn calls_of_a_lost_connection_fail_and_its_end_is_reported() {
    let running = start();
    let connection = Connection::open(&running.socket, Instant::now() + SECOND).await.unwrap();
    let other = connection.clone();
    let call = tokio::spawn(async move { other.call::<Sleep>(&Number { n: 60_000 }, 100 * SECOND).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    call.abort();
    _ = call.await;
    drop(connection);
    until("its end is reported", || running.state.disconnected.load(Ordering::SeqCst) == 1).await;
    assert_eq!(running.state.dropped.load(Ordering::SeqCst), 1);
}

/// Waits for a condition, at most five seconds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + 5 * SECOND;
    while !holds() {
        assert!(Instant::now() < end, "not within 5 s: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn request(id: u64, op: &str, args: &str) -> String {
    format!("{{\"id\":{id},\"op\":\"{op}\",\"args\":{args}}}\n")
}

/// A client that sends these lines and then shuts its write half, as `nc -N` does. Returns everything that it
/// receives.
fn half_closing(socket: &Path, lines: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(10 * SECOND)).unwrap();
    stream.write_all(lines.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    answers
}

#[tokio::test]
async fn a_client_that_shuts_its_write_half_is_answered_before_the_connection_ends() {
    let running = start();
    let socket = running.socket.clone();
    let lines = request(1, "test.sleep", r#"{"n":20}"#) + &request(2, "service.ping", "{}");
    let client = tokio::task::spawn_blocking(move || {
        for _ in 0..100 {
            let answers = half_closing(&socket, &lines);
            assert_eq!(answers, "{\"id\":2,\"ok\":{}}\n{\"id\":1,\"ok\":{}}\n");
        }
    });
    client.await.unwrap();
    // When such a client closes the connection, its calls end nevertheless.
    let mut gone = UnixStream::connect(&running.socket).unwrap();
    gone.write_all(request(1, "test.sleep", r#"{"n":60000}"#).as_bytes()).unwrap();
    gone.shutdown(Shutdown::Write).unwrap();
    until("the call is open", || running.server.open_requests() == 1).await;
    drop(gone);
    until("the call is dropped", || running.server.open_requests() == 0).await;
    assert_eq!(running.state.dropped.load(Ordering::SeqCst), 101);
}

#[tokio::test]
async fn open_calls_do_not_outlive_their_client() {
    let running = start();
    let mut client = UnixStream::connect(&running.socket).unwrap();
    for id in 1..=3 {
        let line = request(id, "test.sleep", r#"{"n":60000}"#);
        client.write_all(line.as_bytes()).unwrap();
    }
    until("three calls are open", || running.server.open_requests() == 3).await;
    drop(client);
    until("the server is told", || running.state.disconnected.load(Ordering::SeqCst) == 1).await;
    until("all calls are dropped", || running.state.dropped.load(Ordering::SeqCst) == 3).await;
    assert_eq!(running.server.open_requests(), 0);
}

#[tokio::test]
async fn a_stream_that_nobody_reads_delays_no_other_call() {
    let running = start();
    let pool = Pool::new(&running.socket);
    pool.call::<ServicePing>(&Nothing {}, SECOND).await.unwrap();
    let mut items = pool.stream::<Count>(&Number { n: 1_000_000 }, 60 * SECOND).await.unwrap();
    assert_eq!(items.next().await.unwrap().unwrap(), 0);
    // By now, the items of the call have filled every buffer between the two.
    tokio::time::sleep(Duration::from_millis(100)).await;
    for _ in 0..100 {
        pool.call::<ServicePing>(&Nothing {}, 5 * SECOND).await.unwrap();
    }
    assert_eq!(items.next().await.unwrap().unwrap(), 1);
}

#[tokio::test]
async fn the_connection_of_a_finished_stream_serves_the_next_one() {
    let running = start();
    let pool = Pool::new(&running.socket);
    for _ in 0..100 {
        // The connection can be used again whether the items of the first call were read or not.
        let mut items = pool.stream::<Count>(&Number { n: 3 }, SECOND).await.unwrap();
        items.next().await.unwrap().unwrap();
        assert_eq!(items.reply().await.unwrap(), 3);
    }
    // The connection can also be used again after a call that ended with an error.
    let refused = pool.stream::<Sleep>(&Number { n: 60_000 }, Duration::ZERO).await.unwrap().reply().await;
    assert_eq!(refused.unwrap_err().code, Code::Deadline);
    assert_eq!(running.server.connections(), 1);
    assert_eq!(running.state.disconnected.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_dropped_stream_is_cancelled_and_its_connection_closed() {
    let running = start();
    let pool = Pool::new(&running.socket);
    let mut items = pool.stream::<Count>(&Number { n: 1_000_000 }, 60 * SECOND).await.unwrap();
    assert_eq!(items.next().await.unwrap().unwrap(), 0);
    drop(items);
    until("the stream is cancelled", || running.server.open_requests() == 0).await;
    until("its connection is closed", || running.server.connections() == 0).await;
}

#[tokio::test]
async fn streams_of_any_order_share_no_connection_and_leave_few_behind() {
    let running = start();
    let pool = Pool::new(&running.socket);
    let mut open = Vec::new();
    let mut seed = 7_u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    for _ in 0..300 {
        if random(2) == 0 && open.len() < 40 {
            // Some series are longer than all buffers together, so they remain open until they are dropped.
            let length = [1, 100, 1_000_000][random(3)];
            open.push((pool.stream::<Count>(&Number { n: length }, 60 * SECOND).await.unwrap(), length));
        } else if !open.is_empty() {
            let (mut items, length) = open.swap_remove(random(open.len()));
            // The part refuses this if another stream is open on the connection.
            assert_eq!(items.next().await.unwrap().unwrap(), 0);
            if length < 1_000_000 {
                assert_eq!(items.reply().await.unwrap(), length);
            }
        }
    }
    drop(open);
    until("at most 16 connections are kept", || running.server.connections() <= 16).await;
    until("all streams have ended", || running.state.streaming.lock().is_empty()).await;
}

#[tokio::test]
async fn a_kept_connection_that_its_part_has_closed_is_not_used() {
    let running = start();
    let pool = Pool::new(&running.socket);
    assert_eq!(pool.stream::<Count>(&Number { n: 1 }, SECOND).await.unwrap().reply().await.unwrap(), 1);
    running.server.stop();
    running.task.await.unwrap();
    until("its connections are closed", || running.server.connections() == 0).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    std::fs::remove_file(&running.socket).unwrap();
    let _again = listen(&running.socket, running.state.clone());
    assert_eq!(pool.stream::<Count>(&Number { n: 2 }, SECOND).await.unwrap().reply().await.unwrap(), 2);
}

#[tokio::test]
async fn a_reply_to_an_unknown_request_ends_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("liar.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let liar = tokio::task::spawn_blocking(move || {
        for reply in ["\"ok\":7", "\"item\":7", "\"error\":{\"code\":\"busy\",\"message\":\"\"}"] {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap());
            lines.read_line(&mut String::new()).unwrap();
            // The correct reply follows, but is not trusted any more.
            write!(&stream, "{{\"id\":99,{reply}}}\n{{\"id\":1,\"ok\":3}}\n").unwrap();
            _ = lines.read_line(&mut String::new());
        }
    });
    for _ in 0..3 {
        let connection = Connection::open(&socket, Instant::now() + SECOND).await.unwrap();
        let error = connection.call::<Times>(&Nothing {}, 5 * SECOND).await.unwrap_err();
        assert_eq!(error.code, Code::Internal);
        assert_eq!(error.message, "liar answered request 99, which was never made");
        assert!(connection.is_closed());
    }
    liar.await.unwrap();
}

#[tokio::test]
async fn a_stopping_part_answers_open_calls_and_accepts_no_new_ones() {
    let running = start();
    let pool = Pool::new(&running.socket);
    let call = |ms: u64| {
        let pool = pool.clone();
        tokio::spawn(async move { pool.call::<Sleep>(&Number { n: ms }, 50 * SECOND).await })
    };
    let (short, long) = (call(100), call(30_000));
    tokio::time::sleep(Duration::from_millis(50)).await;
    running.server.stop();
    assert!(short.await.unwrap().is_ok());
    assert_eq!(long.await.unwrap().unwrap_err().code, Code::Unavailable);
    running.task.await.unwrap();
}

/// If the callee knows that a change was not begun, the caller is told so.
#[tokio::test]
async fn a_deadline_reports_whether_the_change_had_begun() {
    let running = start();
    let pool = Pool::new(&running.socket);
    let call = async |n| pool.call::<Change>(&Number { n }, SECOND / 10).await.unwrap_err();
    for (begins, unknown) in [(0, false), (1, true)] {
        let error = call(begins).await;
        assert_eq!((error.code, error.is_outcome_unknown()), (Code::Deadline, unknown));
    }
    // The same holds when the part stops.
    let open = |n| {
        let pool = pool.clone();
        tokio::spawn(async move { pool.call::<Change>(&Number { n }, 50 * SECOND).await })
    };
    let (not_begun, begun) = (open(0), open(1));
    while running.server.open_requests() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    running.server.stop();
    for (call, unknown) in [(not_begun, false), (begun, true)] {
        let error = call.await.unwrap().unwrap_err();
        assert_eq!((error.code, error.is_outcome_unknown()), (Code::Unavailable, unknown));
    }
}

/// For a part that does not read: a request that was sent can still take effect later, and a request for which
/// there was no room was never sent.
#[tokio::test]
async fn a_part_that_does_not_read_leaves_the_outcome_unknown_once_it_was_sent() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("probe.sock");
    let _still = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let connection = Connection::open(&socket, Instant::now() + SECOND).await.unwrap();
    let call = async || connection.call::<ServicePing>(&Nothing {}, SECOND / 10).await.unwrap_err();
    let sent = call().await;
    assert!(sent.code == Code::Deadline && sent.is_outcome_unknown());
    // There are more calls than fit into the socket and the queue before it.
    let large = Arc::new("x".repeat(1 << 16));
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let (connection, large) = (connection.clone(), large.clone());
        calls.spawn(async move { connection.call::<Fill>(&large, SECOND / 100).await.unwrap_err() });
    }
    let ended = calls.join_all().await;
    assert!(ended.iter().all(|error| error.code == Code::Deadline), "{ended:?}");
    assert!(ended.iter().any(Error::is_outcome_unknown) && !ended.iter().all(Error::is_outcome_unknown), "{ended:?}");
}

/// The request for a change is repeated until its outcome is known.
#[tokio::test]
async fn a_change_is_repeated_if_its_connection_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("probe.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let dying = listener.try_clone().unwrap();
    // Five lost connections in a row require more than one repetition.
    let deaths = tokio::task::spawn_blocking(move || {
        for _ in 0..5 {
            drop(dying.accept().unwrap());
        }
    });
    let pool = Pool::new(&socket);
    let other = pool.clone();
    let change = tokio::spawn(async move { other.change::<ServicePing>(&Nothing {}, 5 * SECOND, 20 * SECOND).await });
    deaths.await.unwrap();
    listener.set_nonblocking(true).unwrap();
    let listener = UnixListener::from_std(listener).unwrap();
    let probe = Table::new("probe", "0");
    let server = tokio::spawn(serve(Server::new(SECOND), listener, probe, Arc::new(Probe::default())));
    change.await.unwrap().unwrap();
    server.abort();
    _ = server.await;
    // Without a reply the outcome remains unknown after the first attempt, even if a later attempt cannot connect.
    std::fs::remove_file(&socket).unwrap();
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let pool = Pool::new(&socket);
    let death = tokio::task::spawn_blocking(move || {
        let (caller, _) = listener.accept().unwrap();
        std::fs::remove_file(&socket).unwrap();
        drop((caller, listener));
    });
    let error = pool.change::<ServicePing>(&Nothing {}, SECOND, SECOND).await.unwrap_err();
    assert!(error.code == Code::Unavailable && error.is_outcome_unknown(), "{error:?}");
    death.await.unwrap();
    // If the part could not be reached at all, the change was not made.
    let nobody = pool.change::<ServicePing>(&Nothing {}, SECOND, SECOND).await.unwrap_err();
    assert!(nobody.code == Code::Unavailable && !nobody.is_outcome_unknown(), "{nobody:?}");
}

/// A part has died with a change that it may have made, and is then stopped: nobody waits for it.
#[tokio::test]
async fn a_change_does_not_wait_for_a_part_that_is_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("stopped.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let pool = Pool::new(&socket);
    let began = Instant::now();
    let change = tokio::spawn(async move { pool.change::<ServicePing>(&Nothing {}, 20 * SECOND, 60 * SECOND).await });
    let (mut caller, _) = listener.accept().await.unwrap();
    tokio::io::AsyncReadExt::read_u8(&mut caller).await.unwrap();
    drop((caller, listener));
    let error = change.await.unwrap().unwrap_err();
    assert!(error.code == Code::Unavailable && error.is_outcome_unknown(), "{error:?}");
    assert!(began.elapsed() < 5 * SECOND, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_call_is_repeated_once_if_the_part_dies() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("probe.sock");
    let std_listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    // Simulates kill -9 under kend: the first connection closes without a reply, but the socket still exists.
    let first = std_listener.try_clone().unwrap();
    let death = tokio::task::spawn_blocking(move || drop(first.accept().unwrap()));
    let pool = Pool::new(&socket);
    let call = tokio::spawn(async move { pool.call::<ServicePing>(&Nothing {}, 5 * SECOND).await });
    death.await.unwrap();
    std_listener.set_nonblocking(true).unwrap();
    let listener = UnixListener::from_std(std_listener).unwrap();
    tokio::spawn(serve(Server::new(SECOND), listener, Table::new("probe", "0"), Arc::new(Probe::default())));
    call.await.unwrap().unwrap();
}

#[tokio::test]
async fn constant_answers_are_requested_once_per_process_of_a_part() {
    let running = start();
    let times = CachedReply::<Times>::new(Pool::new(&running.socket));
    assert_eq!(times.get(SECOND).await.unwrap(), 1);
    assert_eq!(times.get(SECOND).await.unwrap(), 1);
    running.server.stop();
    running.task.await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(times.get(SECOND).await.unwrap_err().code, Code::Unavailable);
    std::fs::remove_file(&running.socket).unwrap();
    let (_server, _task) = listen(&running.socket, running.state.clone());
    assert_eq!(times.get(SECOND).await.unwrap(), 2);
}

#[tokio::test]
async fn a_missing_part_is_named() {
    let pool = Pool::new("/nonexistent/store.sock");
    let error = pool.call::<ServicePing>(&Nothing {}, SECOND).await.unwrap_err();
    assert_eq!(error.code, Code::Unavailable);
    assert!(error.message.contains("store cannot be reached"), "{error}");
}
