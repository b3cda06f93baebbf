//! Benchmarks of `/streams`, each beside a lower bound measured in the same run. `make bench` runs them with the release binaries.
//!
//! Arguments choose among `appends`, `large`, `reads`, `readers` and `stalled`; without any, all of them run.
//! `KEN_BENCH_SECONDS` sets the length of each load (3).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]
#![allow(dead_code, reason = "the other benches use more of the figures")]

mod figures;
mod load;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use figures::{Samples, per_second, private_kib, row, title};
use ken_tests::{Builder, System};
use load::{load, seconds, wants};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;

/// Number of connections that append and read concurrently.
const CLIENTS: usize = 16;
const READERS: usize = 1_000;
const STALLED: usize = 256;

fn main() {
    title("floors of this run");
    let sync = figures::sync_floor();
    row("write and fdatasync of 4 KiB", &sync.text(), "");
    let disk = disk_floor();
    row("16 times 64 KiB, then fdatasync", &megabytes(disk), "the disk's own");
    title("streams of other programs");
    // Each part gets a new system, so that memory used by one is not counted for the next.
    if wants("appends") {
        appends(&system(), &sync);
    }
    if wants("large") {
        large(&system(), disk);
    }
    if wants("reads") {
        reads(&system());
    }
    if wants("readers") {
        readers(&system());
    }
    if wants("stalled") {
        stalled(&system());
    }
}

fn system() -> System {
    Builder::default().config("[limits]\nconnections = 4096\nheld_connections = 2048\n").start()
}

fn megabytes(rate: f64) -> String {
    format!("{:.0} MB/s", rate / 1e6)
}

/// Bytes per second that the disk accepts when each sync covers as much as sixteen appends.
fn disk_floor() -> f64 {
    let mut file = tempfile::tempfile().expect("a file");
    let block = vec![7; 64 << 10];
    let begun = Instant::now();
    let mut written = 0;
    while begun.elapsed() < seconds() / 2 {
        for _ in 0..CLIENTS {
            file.write_all(&block).expect("a write");
            written += block.len();
        }
        file.sync_data().expect("a sync");
    }
    written as f64 / begun.elapsed().as_secs_f64()
}

/// How long anything is waited for. An event stream that does not end has comments for ever.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A keep-alive connection with a minimal HTTP client.
struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Wire {
    fn open(address: SocketAddr) -> Wire {
        let stream = TcpStream::connect(address).expect("connect");
        stream.set_nodelay(true).expect("nodelay");
        stream
            .set_read_timeout(Some(TIMEOUT))
            .and_then(|()| stream.set_write_timeout(Some(TIMEOUT)))
            .expect("a timeout");
        Wire { stream, buffer: vec![0; 256 << 10] }
    }

    /// Sends a request and reads the whole answer: its status and the length of its body.
    fn exchange(&mut self, request: &[u8]) -> (u16, usize) {
        self.stream.write_all(request).expect("a write");
        let mut filled = 0;
        loop {
            let free = self.buffer.get_mut(filled..).expect("room");
            filled += match self.stream.read(free).expect("a read") {
                0 => panic!("the connection ended"),
                count => count,
            };
            let text = &self.buffer[..filled];
            let Some(head) = text.windows(4).position(|end| end == b"\r\n\r\n") else {
                continue;
            };
            let length = content_length(&text[..head]);
            if filled >= head + 4 + length {
                return (std::str::from_utf8(&text[9..12]).unwrap().parse().unwrap(), length);
            }
        }
    }
}

fn content_length(head: &[u8]) -> usize {
    let name = b"content-length: ";
    let Some(at) = head.windows(name.len()).position(|part| part == name) else {
        return 0;
    };
    let digits = head[at + name.len()..].split(|byte| *byte == b'\r').next().unwrap();
    std::str::from_utf8(digits).unwrap().parse().unwrap()
}

fn request(method: &str, target: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut bytes =
        format!("{method} {target} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {length}\r\n\r\n")
            .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

fn make(system: &System, target: &str, content_type: &str) {
    let put = request("PUT", target, &format!("content-type: {content_type}\r\n"), b"");
    let (status, _) = Wire::open(system.address()).exchange(&put);
    assert_eq!(status, 201, "{target}");
}

/// Repeats these requests, each on its own connection. Returns the answers per second and the latencies.
fn repeat(system: &System, expected: u16, requests: Vec<Vec<u8>>) -> (f64, Samples) {
    let address = system.address();
    load(requests.len(), move |number| {
        let (mut wire, request) = (Wire::open(address), requests[number].clone());
        move || assert_eq!(wire.exchange(&request).0, expected)
    })
}

const TEXT: &str = "content-type: text/plain\r\n";
const BYTES: &str = "content-type: application/octet-stream\r\n";
const JSON: &str = "content-type: application/json\r\n";

fn appends(system: &System, sync: &Samples) {
    let line = "a line of the log that some other program keeps here 0123456789\n".repeat(16);
    let message = json!({"at": "2027-02-03T04:05:06.789Z", "text": "some words ".repeat(88)}).to_string();
    for (what, content_type, header, body) in
        [("text", "text/plain", TEXT, line.into_bytes()), ("JSON", "application/json", JSON, message.into_bytes())]
    {
        let requests: Vec<Vec<u8>> = (0..CLIENTS)
            .map(|client| {
                let target = format!("/streams/bench/{what}/{client}");
                make(system, &target, content_type);
                request("POST", &target, header, &body)
            })
            .collect();
        let (rate, samples) = repeat(system, 204, requests);
        let figure = format!("{}, {}", per_second(rate), samples.text());
        let in_one_sync = rate * sync.median().as_secs_f64();
        let note = format!("{in_one_sync:.1} in the time of one fdatasync; goal: 3");
        row(&format!("1 KB of {what}, {CLIENTS} connections"), &figure, &note);
    }
}

fn large(system: &System, disk: f64) {
    // Binary data.
    let bytes: Vec<u8> = (0..64u32 << 10).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let requests: Vec<Vec<u8>> = (0..CLIENTS)
        .map(|client| {
            let target = format!("/streams/bench/large/{client}");
            make(system, &target, "application/octet-stream");
            request("POST", &target, BYTES, &bytes)
        })
        .collect();
    let (rate, samples) = repeat(system, 204, requests);
    let rate = rate * bytes.len() as f64;
    let figure = format!("{}, {}", megabytes(rate), samples.text());
    let note = format!("{:.0} % of the disk's own; goal: 150 MB/s or 80 %", 100.0 * rate / disk);
    row(&format!("64 KB of bytes, {CLIENTS} connections"), &figure, &note);
}

fn reads(system: &System) {
    let target = "/streams/bench/reads";
    make(system, target, "application/json");
    let messages: Vec<Value> = (0..10).map(|number| json!({"number": number, "text": "x".repeat(80)})).collect();
    let (status, _) =
        Wire::open(system.address()).exchange(&request("POST", target, JSON, json!(messages).to_string().as_bytes()));
    assert_eq!(status, 204);
    let requests = vec![request("GET", &format!("{target}?offset=-1"), "", b""); CLIENTS];
    let (rate, samples) = repeat(system, 200, requests);
    let figure = format!("{}, {}", per_second(rate), samples.text());
    row(&format!("a page of ten messages, {CLIENTS} connections"), &figure, "goal: 20 000/s");
}

fn private(system: &System) -> u64 {
    private_kib(system.pid("gateway")) + private_kib(system.pid("store"))
}

/// The lower bound for a thousand readers: one thread writes as many bytes to each socket, another reads them.
fn fan_out_floor() -> Samples {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = listener.local_addr().expect("an address");
    // A connection that this thread has made waits in the backlog. To accept those of another thread could wait for ever, if
    // it had failed, for instance at the limit of open files.
    let (mut readers, mut sockets) = (Vec::new(), Vec::new());
    for _ in 0..READERS {
        let reader = TcpStream::connect(address).expect("a reader; `ulimit -n` must be above 2 100");
        reader.set_nonblocking(true).expect("a mode");
        readers.push(reader);
        sockets.push(listener.accept().expect("a reader; `ulimit -n` must be above 2 100").0);
    }
    let begun = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let reading = std::thread::spawn(move || {
        runtime.block_on(async move {
            collected(readers.into_iter().map(|reader| tokio::spawn(read_bare_times(reader, begun))).collect()).await
        })
    });
    for _ in 0..100 {
        let mut frame = [0; FRAME];
        frame[..16].copy_from_slice(&begun.elapsed().as_nanos().to_be_bytes());
        for socket in &mut sockets {
            socket.write_all(&frame).expect("a write");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(sockets);
    Samples::of(reading.join().expect("the readers"))
}

/// The length of the frames of one entry in `readers`, in bytes.
const FRAME: usize = 155;

/// The delays that all readers have seen, when each has come to the end.
async fn collected(readers: Vec<tokio::task::JoinHandle<Vec<Duration>>>) -> Vec<Duration> {
    let all = async {
        let mut delays = Vec::new();
        for reader in readers {
            delays.extend(reader.await.expect("a reader"));
        }
        delays
    };
    // They begin before the load, which takes its own time.
    tokio::time::timeout(2 * TIMEOUT + seconds(), all).await.expect("the readers come to the end")
}

async fn read_bare_times(reader: TcpStream, begun: Instant) -> Vec<Duration> {
    let mut stream = tokio::net::TcpStream::from_std(reader).expect("a reader");
    let mut delays = Vec::new();
    let mut frame = [0; FRAME];
    while stream.read_exact(&mut frame).await.is_ok() {
        let sent = u128::from_be_bytes(frame[..16].try_into().expect("16 bytes"));
        let sent = Duration::from_nanos(u64::try_from(sent).expect("a time"));
        delays.push(begun.elapsed().saturating_sub(sent));
    }
    delays
}

/// Measures a thousand readers of one stream that gets a hundred appends a second. Each entry contains the time at which it was
/// sent.
fn readers(system: &System) {
    let target = "/streams/bench/readers";
    make(system, target, "text/plain");
    let address = system.address();
    let begun = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (ready, all_ready) = std::sync::mpsc::channel();
    let reading = std::thread::spawn(move || {
        runtime.block_on(async move {
            collected((0..READERS).map(|_| tokio::spawn(read_times(address, begun, ready.clone()))).collect()).await
        })
    });
    (0..READERS).for_each(|_| all_ready.recv_timeout(Duration::from_secs(60)).expect("a reader within a minute"));
    let mut wire = Wire::open(address);
    let mut memory = 0;
    let count = seconds().as_secs() * 100;
    let started = Instant::now();
    for number in 0..count {
        let now = format!("{} ", begun.elapsed().as_nanos());
        assert_eq!(wire.exchange(&request("POST", target, TEXT, now.as_bytes())).0, 204);
        if number == count / 2 {
            memory = private(system);
        }
        let next = started + Duration::from_millis(10) * u32::try_from(number + 1).unwrap();
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let took = started.elapsed();
    let close = request("POST", target, "stream-closed: true\r\n", b"");
    assert_eq!(wire.exchange(&close).0, 204);
    let delays = Samples::of(reading.join().expect("the readers"));
    let what = format!("{READERS} readers, {:.0} appends/s: delay", count as f64 / took.as_secs_f64());
    let floor = fan_out_floor();
    row(&format!("{READERS} bare sockets, 100/s: delay"), &floor.text(), "the machine's own");
    let ratio = delays.median().as_secs_f64() / floor.median().as_secs_f64();
    row(&what, &delays.text(), &format!("{ratio:.1} x; goal: median 5 ms"));
    let what = format!("{READERS} readers: private in gateway and store");
    row(&what, &format!("{:.1} MB", memory as f64 / 1024.0), "goal: 60 MB");
}

/// Reads an event stream to its end. Records the age of each entry when it arrived.
async fn read_times(address: SocketAddr, begun: Instant, ready: std::sync::mpsc::Sender<()>) -> Vec<Duration> {
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("connect");
    let get = request("GET", "/streams/bench/readers?offset=now&live=sse", "", b"");
    stream.write_all(&get).await.expect("a write");
    let mut delays = Vec::new();
    let mut buffer = vec![0; 4096];
    let mut is_ready = false;
    loop {
        let count = stream.read(&mut buffer).await.expect("a read");
        let now = begun.elapsed();
        let text = String::from_utf8_lossy(&buffer[..count]);
        if !is_ready && text.contains("upToDate") {
            is_ready = true;
            _ = ready.send(());
        }
        let times = text.lines().filter_map(|line| line.strip_prefix("data:")).flat_map(str::split_whitespace);
        let sent = times.filter_map(|time| time.parse().ok()).map(Duration::from_nanos);
        delays.extend(sent.map(|sent| now.saturating_sub(sent)));
        if count == 0 || text.contains("streamClosed") {
            return delays;
        }
    }
}

/// Measures the memory for readers that never read, while their stream grows by more than their socket buffers can hold.
fn stalled(system: &System) {
    let target = "/streams/bench/stalled";
    make(system, target, "application/octet-stream");
    let append = request("POST", target, BYTES, &vec![0xff; 16 << 10]);
    let mut wire = Wire::open(system.address());
    let mut grow = |times: usize| (0..times).for_each(|_| assert_eq!(wire.exchange(&append).0, 204));
    // This fills the cache of the store, so that later growth of memory is due to the readers.
    grow(2_000);
    let before = private(system);
    let readers: Vec<Wire> = (0..STALLED)
        .map(|_| {
            let mut reader = Wire::open(system.address());
            let get = request("GET", &format!("{target}?offset=now&live=sse"), "", b"");
            reader.stream.write_all(&get).expect("a write");
            reader
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    grow(800);
    std::thread::sleep(Duration::from_secs(1));
    let after = private(system);
    drop(readers);
    let each = after.saturating_sub(before) as f64 / STALLED as f64;
    row(&format!("{STALLED} readers that do not read, each"), &format!("{each:.1} KiB private"), "goal: 64 KiB");
}
