//! Benchmarks of the cognitive server, each beside a lower bound measured in the same run. `make bench` runs them with the release
//! binaries. `KEN_BENCH_SECONDS` sets the length of each load (3).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod figures;
mod load;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use figures::{Samples, per_second, row, title};
use ken_audit::{Record, Trail};
use ken_tests::{Asker, Client, KEY, binary, chain, children_of, server_with};
use load::load;
use serde_json::{Value, json};

fn main() {
    title("floors of this run");
    let sync = figures::sync_floor();
    let spawn = figures::spawn_floor();
    row("write and fdatasync of 4 KiB", &sync.text(), "");
    row("/bin/true, start to exit", &spawn.text(), "");
    title("ken-cognitive at rest");
    start(&spawn);
    let server = Server::start(&binary("ken-cognitive"), &[]);
    idle(&server);
    title("ken-cognitive at work");
    requests(&server);
    drop(server);
    late();
    title("the audit log");
    audit();
}

/// The time from exec to the first answer, without kend.
fn start(floor: &Samples) {
    let samples: Vec<Duration> = (0..20).map(|_| start_once()).collect();
    let samples = Samples::of(samples);
    let ratio = samples.median().as_secs_f64() / floor.median().as_secs_f64();
    row("start to its first answer", &samples.text(), &format!("{ratio:.0} x /bin/true; goal: 50 ms"));
}

fn start_once() -> Duration {
    let begun = Instant::now();
    let server = Server::start(&binary("ken-cognitive"), &[]);
    Client::connect(server.address).get("/health").expect(200);
    begun.elapsed()
}

/// The server alone, without kend, in its own home.
struct Server {
    process: Child,
    address: SocketAddr,
    _home: tempfile::TempDir,
}

impl Server {
    fn start(program: &Path, env: &[(&str, &str)]) -> Server {
        let home = tempfile::tempdir().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], ken_tests::free_port()));
        let config = format!("[cognitive]\nport = {}\n", address.port());
        std::fs::write(home.path().join("ken.toml"), config).unwrap();
        let process = Command::new(program)
            .arg("--home")
            .arg(home.path())
            .env("MCP_API_KEY", KEY)
            // The bench asks more often than the default limits allow.
            .envs(
                ["EXECUTE", "PROTOCOLS", "TEMPLATES", "SESSION", "METRICS"].map(|of| (format!("RATE_LIMIT_{of}"), "0")),
            )
            .envs(env.iter().copied())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Server { process, address, _home: home };
        let end = Instant::now() + Duration::from_secs(60);
        while Client::try_connect(address).is_err() {
            assert!(Instant::now() < end, "the server does not listen within a minute");
            std::thread::sleep(Duration::from_micros(200));
        }
        server
    }

    fn pid(&self) -> i32 {
        self.process.id().try_into().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

fn idle(server: &Server) {
    std::thread::sleep(Duration::from_millis(500));
    let pid = server.pid();
    let mb = |kib: u64| format!("{:.1} MB", kib as f64 / 1024.0);
    row("private memory, nothing asked yet", &mb(private_kib(pid)), "goal: 6 MB");
    row("idle PSS", &mb(figures::pss_kib(pid)), "");
    Asker::at(server.address).post("/v1/execute", &chain("chain-1", 3)).expect(200);
    for (pid, name) in children_of(pid) {
        row(&format!("private memory of an idle {name}"), &mb(private_kib(pid)), "goal: 1 MB");
    }
}

fn private_kib(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("smaps_rollup");
    let lines = text.lines().filter(|line| line.starts_with("Private_"));
    lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
}

fn requests(server: &Server) {
    let three = json!({
        "protocol_names": ["REP", "ESL", "VVP"],
        "data": {"user_input": "I am happy with how this went, but a little worried about tomorrow.",
            "facts": ["Rex is a dog", "Rex is hungry"],
            "rules": [[["?x is a dog"], "?x is an animal"], [["?x is an animal", "?x is hungry"], "?x eats"]]},
    });
    for (clients, goal) in [(1, ""), (16, "goal: 4 000/s, p99 10 ms")] {
        let (rate, samples) = execute(server.address, clients, &three);
        row(&format!("three steps, {clients} clients"), &format!("{}, {}", per_second(rate), samples.text()), goal);
    }
    row("private memory after that", &format!("{:.1} MB", private_kib(server.pid()) as f64 / 1024.0), "");
    let (rate, samples) = execute(server.address, 16, &chain("chain-1", 150));
    row("three steps over 150 rules, 16 clients", &format!("{}, {}", per_second(rate), samples.text()), "");
}

/// Repeats a request from this many clients until the time is over. Returns the answers per second and the latencies.
fn execute(address: SocketAddr, clients: usize, body: &Value) -> (f64, Samples) {
    let body = body.to_string();
    let request = format!(
        "POST /v1/execute HTTP/1.1\r\nHost: x\r\nX-API-Key: {KEY}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    load(clients, move |_| {
        let (mut client, request) = (Client::connect(address), request.clone());
        move || {
            client.write(request.as_bytes());
            client.answer().expect(200);
        }
    })
}

/// Measures when a request with a tool that sleeps is answered, under a limit of 200 ms.
fn late() {
    let script = "#!/bin/sh\nwhile read -r line; do sleep 600; done\n";
    let (folder, _) = server_with(&[("ken-rep", script)]);
    let server = Server::start(&folder.path().join("ken-cognitive"), &[("PROTOCOL_TIMEOUT_MS", "200")]);
    let mut asker = Asker::at(server.address);
    let samples = (0..10).map(|_| {
        let begun = Instant::now();
        asker.post("/v1/execute", &json!({"protocol_names": ["REP"], "data": {}})).expect(504);
        begun.elapsed()
    });
    row("a step over PROTOCOL_TIMEOUT_MS=200", &Samples::of(samples.collect()).text(), "goal: 400 ms");
}

const RECORDS: usize = 500_000;

fn audit() {
    let dir = tempfile::tempdir().unwrap();
    let record = Record::new("execute_completed", "01K2ABCDEFGHJKMNPQRSTVWXYZ", "anna")
        .with("workflow", "full_reasoning")
        .with("session_id", "session-01K2ABCDEFGHJKMNPQRSTVWXYZ")
        .with("status", "completed")
        .with("execution_time_ms", 3.25);
    let batch = vec![record; 16];
    let mut trail = Trail::open(dir.path()).unwrap();
    let begun = Instant::now();
    for _ in 0..RECORDS / batch.len() {
        trail.append(&batch).unwrap();
    }
    let rate = RECORDS as f64 / begun.elapsed().as_secs_f64();
    row("records appended, 16 to a sync", &per_second(rate), "");
    let begun = Instant::now();
    let output =
        Command::new(binary("ken")).args(["audit", "verify"]).arg(dir.path().join(ken_audit::FILE)).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let rate = RECORDS as f64 / begun.elapsed().as_secs_f64();
    row("records verified, by `ken audit verify`", &per_second(rate), "goal: 500 000/s");
}
