//! Many readers of one stream, readers that never read, and senders that never end.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ken_tests::{Client, System, private_kib, until};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{setsockopt, sockopt};
use parking_lot::Mutex;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::probes;
use super::rest::{descriptors, ms};
use super::table::Row;

const READERS: usize = 1_000;
/// The events that all of them get, and the time between two.
const EVENTS: usize = 20;
const PAUSE: Duration = Duration::from_millis(250);
const SILENT: usize = 100;
/// What a reader that never reads may cost.
const SILENT_KIB: u64 = 64;
/// How much more is sent than the sockets of a silent reader can hold.
const PIECES: usize = 32;
const PIECE: usize = 512 << 10;
const SLOW: usize = 100;
/// Connections to the store that the gateway opens for many readers, and keeps: one for 64 of their calls at a time, and sixteen for calls that
/// stream.
const STORE_CONNECTIONS: u64 = 32;
const PAGES: usize = 100;

/// Raises the limit of open files, because the test holds more connections than the default allows.
pub(crate) fn allow_many_files() {
    let (_, max) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, max.min(16_384), max).expect("a limit");
}

pub(crate) fn rows(system: &System) -> Vec<Row> {
    let gateway = system.pid("gateway");
    let before = descriptors(gateway);
    let mut rows = many(system, gateway);
    until("the places of the readers are free", || descriptors(gateway) <= before + STORE_CONNECTIONS);
    rows.extend(silent(system, gateway));
    rows.push(slow(system));
    rows
}

fn make_stream(system: &System, target: &str) {
    system.client().request("PUT", target).header("Content-Type", "application/json").send().expect(201);
}

/// When each event arrived last, and how often it arrived.
type Arrivals = Vec<(Option<Instant>, usize)>;

#[derive(Default)]
struct Shared {
    attached: AtomicUsize,
    over: AtomicBool,
    arrivals: Mutex<Arrivals>,
    faults: Mutex<Vec<String>>,
}

fn many(system: &System, gateway: i32) -> Vec<Row> {
    make_stream(system, "/streams/many");
    let shared = Arc::new(Shared::default());
    shared.arrivals.lock().resize(EVENTS, (None, 0));
    let memory = private_kib(gateway);
    let (address, seen) = (system.address(), shared.clone());
    let readers = std::thread::spawn(move || read_all(address, &seen));
    until("all readers are attached", || shared.attached.load(Ordering::SeqCst) == READERS);
    let cost = private_kib(gateway).saturating_sub(memory);
    let mut client = Client::connect(address);
    let posted: Vec<Instant> = (0..EVENTS)
        .map(|event| {
            std::thread::sleep(PAUSE);
            let now = Instant::now();
            client.post("/streams/many", &json!([{"event": event}])).expect(204);
            now
        })
        .collect();
    let has_arrived = || shared.arrivals.lock().iter().all(|(_, count)| *count >= READERS);
    until("all readers have all events", has_arrived);
    shared.over.store(true, Ordering::SeqCst);
    readers.join().expect("the readers");
    let arrivals = shared.arrivals.lock().clone();
    let mut took: Vec<Duration> =
        arrivals.iter().zip(&posted).filter_map(|((last, _), posted)| Some((*last)?.duration_since(*posted))).collect();
    took.sort_unstable();
    let faults = shared.faults.lock().clone();
    let exact = faults.is_empty() && arrivals.iter().all(|(_, count)| *count == READERS);
    vec![
        Row {
            what: format!("{READERS} readers of one stream, {EVENTS} events"),
            figure: if exact { "each event once, in order".to_owned() } else { format!("{arrivals:?} {faults:?}") },
            goal: "each event once, in order",
            is_met: exact,
            takes_long: false,
        },
        Row {
            what: "from append to the last reader, ms".to_owned(),
            figure: format!("median {:.1}, worst {:.1}", ms(took[EVENTS / 2]), ms(took[EVENTS - 1])),
            goal: "",
            is_met: true,
            takes_long: true,
        },
        Row {
            what: "private memory per reader, KiB".to_owned(),
            figure: format!("{:.1}", cost as f64 / READERS as f64),
            goal: "at most 64",
            is_met: cost <= SILENT_KIB * READERS as u64,
            takes_long: false,
        },
    ]
}

fn read_all(address: SocketAddr, shared: &Arc<Shared>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        for number in 0..READERS {
            let shared = shared.clone();
            tokio::spawn(async move {
                if let Err(error) = read(address, &shared).await {
                    shared.faults.lock().push(format!("reader {number}: {error}"));
                }
            });
        }
        while !shared.over.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

async fn read(address: SocketAddr, shared: &Shared) -> std::io::Result<()> {
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    stream.write_all(get(address, "/streams/many").as_bytes()).await?;
    let (mut text, mut next, mut is_attached) = (String::new(), 0, false);
    let mut buffer = vec![0; 4096];
    loop {
        let length = stream.read(&mut buffer).await?;
        if length == 0 {
            return Err(std::io::Error::other("the stream has ended"));
        }
        text += &String::from_utf8_lossy(&buffer[..length]);
        if !is_attached && text.contains("event: control") {
            is_attached = true;
            shared.attached.fetch_add(1, Ordering::SeqCst);
        }
        while let Some((at, mark)) = text.match_indices("{\"event\":").next() {
            let Some(end) = text[at..].find('}') else { break };
            let event: usize = text[at + mark.len()..at + end].parse().map_err(std::io::Error::other)?;
            text.drain(..at + end);
            if event != next {
                return Err(std::io::Error::other(format!("{event} in place of {next}")));
            }
            next += 1;
            let mut arrivals = shared.arrivals.lock();
            arrivals[event] = (Some(Instant::now()), arrivals[event].1 + 1);
        }
    }
}

fn get(address: SocketAddr, target: &str) -> String {
    format!("GET {target}?offset=-1&live=sse HTTP/1.1\r\nHost: {address}\r\n\r\n")
}

fn silent(system: &System, gateway: i32) -> Vec<Row> {
    make_stream(system, "/streams/silent");
    let (_, mut page) = probes::session(system);
    let alone = probes::median(PAGES, &mut page);
    let memory = private_kib(gateway);
    let readers: Vec<TcpStream> = (0..SILENT).map(|_| silent_reader(system.address())).collect();
    let mut client = Client::connect(system.address());
    let piece = json!([{"text": "x".repeat(PIECE)}]);
    let mut most = 0;
    for _ in 0..PIECES {
        client.post("/streams/silent", &piece).expect(204);
        most = most.max(private_kib(gateway));
    }
    let with = probes::median(PAGES, &mut page);
    most = most.max(private_kib(gateway));
    drop(readers);
    let cost = most.saturating_sub(memory);
    vec![
        Row {
            what: format!("private memory of each of {SILENT} that never read, KiB"),
            figure: format!("{:.1}", cost as f64 / SILENT as f64),
            goal: "at most 64",
            is_met: cost <= SILENT_KIB * SILENT as u64,
            takes_long: false,
        },
        beside(&format!("a page beside {SILENT} readers that never read, ms"), alone, with),
    ]
}

fn silent_reader(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("connect");
    setsockopt(&stream, sockopt::RcvBuf, &4096).expect("a small buffer");
    stream.write_all(get(address, "/streams/silent").as_bytes()).expect("a request");
    stream
}

/// Half of the senders send a head without end, the others a body. They pause in between, so that all requests have the same machine.
fn slow(system: &System) -> Row {
    let address = system.address();
    let (_, mut page) = probes::session(system);
    let (over, is_sending) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (ended, sends) = (over.clone(), is_sending.clone());
    let senders = std::thread::spawn(move || {
        let mut senders: Vec<TcpStream> = (0..SLOW).map(|number| sender(address, number)).collect();
        while !ended.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(100));
            for (number, one) in senders.iter_mut().enumerate().filter(|_| sends.load(Ordering::SeqCst)) {
                if one.write_all(b"x").is_err() {
                    *one = sender(address, number);
                }
            }
        }
    });
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..PAGES / 5 {
        is_sending.store(round % 2 == 1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(150));
        times[round % 2].push(probes::median(9, &mut page));
    }
    over.store(true, Ordering::SeqCst);
    senders.join().expect("the senders");
    let [alone, with] = times.map(probes::middle);
    beside(&format!("a page beside {SLOW} senders of a byte each 100 ms, ms"), alone, with)
}

fn sender(address: SocketAddr, number: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("connect");
    let head = format!("POST /api/chat/events HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n");
    let rest = if number.is_multiple_of(2) { "X-Slow: " } else { "Content-Length: 100000\r\n\r\n" };
    stream.write_all((head + rest).as_bytes()).expect("a request");
    stream
}

fn beside(what: &str, alone: Duration, with: Duration) -> Row {
    Row {
        what: what.to_owned(),
        figure: format!("alone {:.2}, beside them {:.2}", ms(alone), ms(with)),
        goal: "at most half as much more",
        is_met: with < alone + alone / 2,
        takes_long: true,
    }
}
