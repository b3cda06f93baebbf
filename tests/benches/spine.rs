//! Benchmarks of gateway, agent and store, each beside a lower bound measured in the same run. `make bench` runs them with the
//! release binaries.
//!
//! Arguments select among `start`, `requests`, `turns` and `streams`; without any, all of them run.
//! `KEN_BENCH_EVENTS` sets the length of the long stream (1,000,000), `KEN_BENCH_SECONDS` that of each load (3).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod figures;
mod load;

use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use figures::{Samples, per_second, row, title};
use ken_tests::{Builder, Client, System, binary};
use ken_types::ops::store::{
    AppendEvents, ClaimSubmissions, Lease, SettleSubmission, SubmissionsAppend, SubmissionsClaim, SubmissionsSettle,
    Work,
};
use ken_wire::Connection;
use load::{load, wants};
use serde_json::{Value, json};

fn main() {
    title("floors of this run");
    let floor = floors();
    if wants("start") {
        title("start and memory");
        start(&floor);
        idle();
    }
    if wants("requests") {
        title("requests");
        let system = System::start();
        sessions(&system, &floor);
        turns(&system, &floor);
        transcripts(&system, &floor);
    }
    if wants("turns") {
        title("turns over a model that takes no time");
        instant_turns(&floor);
        first_delta_of_a_model(&floor);
    }
    if wants("streams") {
        title("streams");
        let system = System::start();
        first_delta(&system);
        long_stream(&system);
    }
}

struct Floor {
    sync: Samples,
    spawn: Samples,
    /// Empty answers of hyper per second, with one client and with sixteen.
    http: [f64; 2],
}

impl Floor {
    /// How often a durable write fits into the median of these samples.
    fn syncs(&self, samples: &Samples) -> String {
        format!("{:.1} x fdatasync", samples.median().as_secs_f64() / self.sync.median().as_secs_f64())
    }

    /// A rate of sixteen clients, beside that of empty answers.
    fn of_empty(&self, rate: f64) -> String {
        format!("{:.1} % of empty answers", 100.0 * rate / self.http[1].max(1.0))
    }
}

fn floors() -> Floor {
    let floor = Floor { sync: figures::sync_floor(), spawn: figures::spawn_floor(), http: http_floor() };
    row("write and fdatasync of 4 KiB", &floor.sync.text(), "");
    row("/bin/true, start to exit", &floor.spawn.text(), "");
    row("empty hyper answer, 1 client", &per_second(floor.http[0]), "");
    row("empty hyper answer, 16 clients", &per_second(floor.http[1]), "");
    floor
}

/// Measures the example `empty` of ken-http, which is only hyper.
fn http_floor() -> [f64; 2] {
    let Ok(mut server) =
        Command::new(binary("examples/empty")).arg("hyper").stdout(std::process::Stdio::piped()).spawn()
    else {
        return [0.0, 0.0];
    };
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(server.stdout.take().expect("stdout"));
    std::io::BufRead::read_line(&mut stdout, &mut line).expect("its address");
    let address =
        line.trim().rsplit(' ').next().expect("an address").trim_start_matches("http://").parse().expect("an address");
    let get = move |_| {
        let mut client = Client::connect(address);
        move || drop(client.get("/").expect(200))
    };
    let rates = [load(1, get).0, load(16, get).0];
    _ = server.kill();
    _ = server.wait();
    rates
}

fn start(floor: &Floor) {
    let mut first = Vec::new();
    let mut again = Vec::new();
    for _ in 0..10 {
        let begun = Instant::now();
        let mut system = System::start();
        first.push(begun.elapsed());
        system.down();
        let begun = Instant::now();
        system.up();
        again.push(begun.elapsed());
    }
    for (what, samples) in [("ken up to ready, new home", first), ("ken up to ready, used home", again)] {
        let samples = Samples::of(samples);
        let ratio = samples.median().as_secs_f64() / floor.spawn.median().as_secs_f64();
        row(what, &samples.text(), &format!("{ratio:.0} x /bin/true; goal: 100 ms"));
    }
}

/// The memory of all parts, and what they use of a core while nothing happens. What they wrote themselves is told from the pages of
/// files, nearly all of them of their programs, which the kernel can take at any time.
fn idle() {
    const SAMPLES: u32 = 12;
    const BETWEEN: Duration = Duration::from_secs(5);
    let system = System::start();
    let parts =
        ["kend", "store", "model", "tools", "approver", "agent", "gateway", "scheduler", "messenger", "cognitive"];
    let pids = parts.map(|part| system.pid(part));
    let all = |pids: &[i32]| pids.iter().map(|pid| figures::pss_kib(*pid)).sum::<u64>();
    let used = || pids.iter().map(|pid| figures::processor(*pid)).sum::<Duration>();
    let started = all(&pids);
    std::thread::sleep(BETWEEN);
    let before = used();
    let mut samples: Vec<u64> = (0..SAMPLES)
        .map(|_| {
            std::thread::sleep(BETWEEN);
            all(&pids)
        })
        .collect();
    let share = 100.0 * (used() - before).as_secs_f64() / (SAMPLES * BETWEEN).as_secs_f64();
    for (part, pid) in parts.iter().zip(pids) {
        let (pss, own) = (figures::pss_kib(pid), figures::anonymous_kib(pid));
        let figure = format!("{:.1} MB: {:.1} its own, {:.1} of files", mb(pss), mb(own), mb(pss - own.min(pss)));
        row(&format!("idle PSS of {part}"), &figure, "");
    }
    samples.sort_unstable();
    let (median, most) = (samples[samples.len() / 2], samples[samples.len() - 1]);
    let own = pids.iter().map(|pid| figures::anonymous_kib(*pid)).sum();
    row("PSS of all, just started", &format!("{:.1} MB", mb(started)), "");
    row(
        "PSS of all, idle, over a minute",
        &format!("median {:.1} MB, most {:.1} MB; {:.1} MB their own", mb(median), mb(most), mb(own)),
        "goal: 20 MB",
    );
    row("the same of as many empty hyper servers", &format!("{:.1} MB", mb(empty_servers(parts.len()))), "");
    row("processor of all, idle", &format!("{share:.3} % of a core"), "goal: 0.1 %");
}

fn mb(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

/// The memory of so many programs that do nothing but answer over hyper. Each is a file of its own, as the parts are, so that they share
/// only the C library.
fn empty_servers(count: usize) -> u64 {
    let folder = tempfile::tempdir().expect("a folder");
    let mut servers: Vec<_> = (0..count)
        .map(|number| {
            let program = folder.path().join(number.to_string());
            std::fs::copy(binary("examples/empty"), &program).expect("a copy");
            Command::new(program).arg("hyper").stdout(std::process::Stdio::null()).spawn().expect("a server")
        })
        .collect();
    std::thread::sleep(Duration::from_secs(1));
    let memory = servers.iter().map(|server| figures::pss_kib(server.id().cast_signed())).sum();
    for server in &mut servers {
        _ = server.kill();
        _ = server.wait();
    }
    memory
}

fn identity() -> Value {
    json!({"connector": "tui", "actorId": "a", "conversationId": "c"})
}

fn sessions(system: &System, floor: &Floor) {
    let address = system.address();
    for (clients, goal, http) in [(1, "", floor.http[0]), (16, "; goal: 20 %", floor.http[1])] {
        let (rate, samples) = load(clients, move |_| {
            let mut client = Client::connect(address);
            move || drop(client.post("/api/chat/sessions", &identity()).expect(201))
        });
        let of_http = 100.0 * rate / http.max(1.0);
        let note = format!("{of_http:.0} % of empty answers{goal}");
        row(
            &format!("POST /api/chat/sessions, {clients} clients"),
            &format!("{}, {}", per_second(rate), samples.text()),
            &note,
        );
    }
}

fn turns(system: &System, floor: &Floor) {
    let address = system.address();
    let entry = json!({"title": "Deploy window", "content": "The site is deployed on Tuesdays at 14:00 UTC."});
    system.post("/api/knowledge", &entry).expect(201);
    for clients in [1, 16] {
        let (rate, samples) = load(clients, move |_| {
            let mut client = Client::connect(address);
            let session = client.post("/api/chat/sessions", &identity()).expect(201).text("/session/id");
            let mut body = identity();
            body["session"] = session.into();
            body["text"] = "When is the site deployed?".into();
            move || drop(client.post("/api/chat/events", &body).expect(200))
        });
        let what = format!("whole chat turn over rules, {clients} clients");
        row(&what, &format!("{}, {}", per_second(rate), samples.text()), &floor.syncs(&samples));
    }
}

/// The time that ken adds to a turn, durable commits included: the engine `script` answers at once.
fn instant_turns(floor: &Floor) {
    let call = |tool: &str, arguments: Value| json!({"tool": {"name": tool, "arguments": arguments}});
    let system = Builder::default()
        .script(&[
            json!({"when": "built-in", "after_tools": 0, "events": [call("todo_read", json!({}))]}),
            json!({"events": [{"text": "Done."}]}),
        ])
        .start();
    let address = system.address();
    for (text, what, clients, goal) in [
        ("plain", "no tool", 1, Some("4 x")),
        ("built-in", "one call of a tool of the agent", 1, Some("8 x")),
        ("plain", "no tool", 16, Some("4 %")),
        ("built-in", "one call of a tool of the agent", 16, None),
    ] {
        let (rate, samples) = load(clients, move |_| {
            let mut client = Client::connect(address);
            let session = client.post("/api/chat/sessions", &identity()).expect(201).text("/session/id");
            let mut body = identity();
            body["session"] = session.into();
            body["text"] = text.into();
            move || drop(client.post("/api/chat/events", &body).expect(200))
        });
        let ratio = if clients == 1 { floor.syncs(&samples) } else { floor.of_empty(rate) };
        let note = ratio + &goal.map(|goal| format!("; goal: {goal}")).unwrap_or_default();
        row(
            &format!("chat turn with {what}, {clients} clients"),
            &format!("{}, {}", per_second(rate), samples.text()),
            &note,
        );
    }
}

/// The time from the write of a provider's first delta until an SSE client has it.
fn first_delta_of_a_model(floor: &Floor) {
    const TURNS: usize = 100;
    /// A turn calls the model within milliseconds.
    const CALL_TIME: Duration = Duration::from_secs(10);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
    let (written, write_times) = std::sync::mpsc::channel();
    // Nobody waits for this thread: a call that does not come would make the bench last for ever.
    std::thread::spawn(move || {
        while let Ok((mut to, _)) = listener.accept() {
            if written.send(answer_slowly(&mut to)).is_err() {
                return;
            }
        }
    });
    let system = Builder::default()
        .env("KEN_MODEL", "openai/m")
        .env("OPENAI_BASE_URL", &url)
        .secrets("OPENAI_API_KEY=none\n")
        .start();
    let mut samples = Vec::new();
    for turn in 0..TURNS {
        let instance = format!("delta-{turn}");
        let target = format!("/agents/orchestrator/{instance}");
        let admitted = system.post(&target, &json!({"message": "x"})).expect(202);
        drop(admitted);
        let mut stream = system.attach(&format!("{target}?offset=-1&live=sse"));
        let seen = stream.until_event("text_delta");
        let received = Instant::now();
        samples.push(received.duration_since(write_times.recv_timeout(CALL_TIME).expect("a call of the model")));
        // On a busy machine, both events can arrive together.
        if !seen.iter().any(|event| event["type"] == "submission_settled") {
            stream.until_event("submission_settled");
        }
    }
    let samples = Samples::of(samples);
    let note = format!("{}; goal: 3 x", floor.syncs(&samples));
    row("first delta of a provider to SSE client has it", &samples.text(), &note);
}

/// Reads a request, waits a moment and answers it in one chunk. Returns the time of the write. The connection is then closed.
fn answer_slowly(to: &mut std::net::TcpStream) -> Instant {
    use std::io::{Read, Write};
    let mut seen = Vec::new();
    let mut buffer = [0; 64 * 1024];
    loop {
        let length = to.read(&mut buffer).expect("a request");
        seen.extend_from_slice(&buffer[..length]);
        let text = String::from_utf8_lossy(&seen).to_lowercase();
        let Some((head, _)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let needed: usize = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.trim().parse().expect("a length"));
        if length == 0 || seen.len() >= head.len() + 4 + needed {
            break;
        }
    }
    to.set_nodelay(true).expect("a socket");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    to.write_all(head.as_bytes()).expect("the head");
    // Gives the reader time to attach, and the store time to write the events before the delta.
    std::thread::sleep(Duration::from_millis(60));
    let delta = json!({"choices": [{"index": 0, "delta": {"content": "word"}}]});
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let begun = Instant::now();
    to.write_all(format!("data: {delta}\n\n").as_bytes()).expect("the delta");
    std::thread::sleep(Duration::from_millis(20));
    to.write_all(format!("data: {end}\n\ndata: [DONE]\n\n").as_bytes()).expect("the end");
    begun
}

fn transcripts(system: &System, floor: &Floor) {
    let session = system.session();
    for turn in 0..10 {
        system.say(&session, &format!("Question {turn}: when is the site deployed?")).expect(200);
    }
    let target = format!("/api/chat/sessions/{session}/transcript?connector=tui&actorId=a&conversationId=c&limit=10");
    let address = system.address();
    let (rate, samples) = load(16, move |_| {
        let (mut client, target) = (Client::connect(address), target.clone());
        move || drop(client.get(&target).expect(200))
    });
    let of_http = 100.0 * rate / floor.http[1].max(1.0);
    let note = format!("{of_http:.0} % of empty answers; goal: 8 000/s");
    row("transcript page of ten exchanges, 16 clients", &format!("{}, {}", per_second(rate), samples.text()), &note);
}

/// The bench acts as the agent, so that it knows when an event was emitted.
struct Holder {
    runtime: tokio::runtime::Runtime,
    connection: Connection,
    lease: Lease,
    index: u64,
}

const TIME: Duration = Duration::from_secs(10);

impl Holder {
    /// Admits a prompt to an instance and claims it; the real agent must be stopped.
    fn of(system: &System, instance: &str) -> Holder {
        system.post(&format!("/agents/orchestrator/{instance}"), &json!({"message": "x"})).expect(202);
        Holder::claim(system, instance)
    }

    /// Claims the prompt that waits in an instance.
    fn claim(system: &System, instance: &str) -> Holder {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let socket = system.socket("store");
        let (connection, lease) = runtime.block_on(async {
            let deadline = tokio::time::Instant::now() + TIME;
            let connection = Connection::open(&socket, deadline).await.expect("the store");
            let args = ClaimSubmissions { work: Work::Turns, holder: "bench".into(), max: 64, wait_ms: 5_000 };
            let claims = connection.call::<SubmissionsClaim>(&args, TIME).await.expect("claims").claims;
            let claim = claims.into_iter().find(|claim| claim.instance == instance).expect("the claim");
            (connection, claim.lease)
        });
        Holder { runtime, connection, lease, index: 0 }
    }

    fn append(&mut self, count: u64) {
        let event = |index: u64| {
            let text = format!(
                "{{\"v\":1,\"type\":\"text_delta\",\"text\":\"some words \",\"eventIndex\":{index},\"timestamp\":\"2027-02-03T04:05:06.789Z\",\"instanceId\":\"bench\",\"submissionId\":\"{}\",\"session\":\"default\",\"harness\":\"default\"}}",
                self.lease.submission_id
            );
            serde_json::value::RawValue::from_string(text).expect("an event")
        };
        let events = (self.index..self.index + count).map(event).collect();
        let args = AppendEvents { lease: self.lease.clone(), first_index: self.index, events };
        self.runtime.block_on(self.connection.call::<SubmissionsAppend>(&args, TIME)).expect("appended");
        self.index += count;
    }

    fn settle(self) {
        let args = SettleSubmission {
            lease: self.lease,
            first_index: self.index,
            events: Vec::new(),
            outcome: ken_types::event::Outcome::Completed,
            result: None,
            error: None,
            context_usage: None,
            summary: None,
            used: Vec::new(),
        };
        self.runtime.block_on(self.connection.call::<SubmissionsSettle>(&args, 6 * TIME)).expect("settled");
    }
}

/// The time from passing an event to the store until a client has it, over the native stream and over the interface of OpenAI.
fn first_delta(system: &System) {
    const EVENTS: usize = 1_000;
    system.ken(&["stop", "agent", "--wait", "stopped"]);
    let mut native = Holder::of(system, "delta");
    let mut stream = system.attach("/agents/orchestrator/delta?offset=now&live=sse");
    stream.until_control(&mut Vec::new());
    let arrivals = each_arrival(EVENTS, move || drop(stream.until_control(&mut Vec::new())));
    let mut door = DoorStream::open(system);
    let mut held = Holder::claim(system, &door.session);
    let door_arrivals = each_arrival(EVENTS, move || door.until_frame());
    let passed = |holder: &mut Holder, arrivals: &Receiver<Instant>| {
        let emitted = Instant::now();
        holder.append(1);
        arrivals.recv().expect("a frame").duration_since(emitted)
    };
    // The two alternate, so that both are measured under the same load of the machine.
    let pairs: Vec<_> =
        (0..EVENTS).map(|_| (passed(&mut native, &arrivals), passed(&mut held, &door_arrivals))).collect();
    native.settle();
    held.settle();
    let native = Samples::of(pairs.iter().map(|pair| pair.0).collect());
    let door = Samples::of(pairs.iter().map(|pair| pair.1).collect());
    let more = (door.median().as_secs_f64() - native.median().as_secs_f64()) * 1e3;
    row("event emitted to SSE client has it", &native.text(), "goal: 2 ms");
    row("the same over /v1/chat/completions", &door.text(), &format!("{more:+.3} ms; goal: at most 0.3 ms more"));
}

/// Returns the time of each of so many arrivals.
fn each_arrival(count: usize, mut wait: impl FnMut() + Send + 'static) -> Receiver<Instant> {
    let (sent, received) = channel();
    std::thread::spawn(move || {
        for _ in 0..count {
            wait();
            if sent.send(Instant::now()).is_err() {
                return;
            }
        }
    });
    received
}

/// A streamed answer of the interface of OpenAI.
struct DoorStream {
    client: Client,
    session: String,
    buffer: String,
}

impl DoorStream {
    /// Asks for an answer, and reads the frame that says whose it is.
    fn open(system: &System) -> DoorStream {
        let mut client = Client::connect(system.address());
        let body = json!({"model": "ken", "stream": true, "messages": [{"role": "user", "content": "x"}]});
        client.request("POST", "/v1/chat/completions").json(&body).start();
        let (status, headers) = client.head().expect("an answer");
        assert_eq!(status, 200);
        let session = headers.into_iter().find(|(name, _)| name == "x-ken-session").expect("a session").1;
        let mut stream = DoorStream { client, session, buffer: String::new() };
        stream.until_frame();
        stream
    }

    fn until_frame(&mut self) {
        loop {
            while let Some(end) = self.buffer.find("\n\n") {
                let frame: String = self.buffer.drain(..end + 2).collect();
                if frame.starts_with("data: ") {
                    return;
                }
            }
            let chunk = self.client.chunk().expect("a frame");
            assert!(!chunk.is_empty(), "the stream has ended");
            self.buffer += std::str::from_utf8(&chunk).expect("UTF-8");
        }
    }
}

/// Compares the time to attach to a long stream with that for a short one.
fn long_stream(system: &System) {
    let events = std::env::var("KEN_BENCH_EVENTS").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let mut short = Holder::of(system, "short");
    short.append(10);
    let mut long = Holder::of(system, "long");
    let begun = Instant::now();
    for _ in 0..events / 1_000 {
        long.append(1_000);
    }
    row(
        &format!("append {events} events by thousands"),
        &per_second(events as f64 / begun.elapsed().as_secs_f64()),
        "",
    );
    let attach = |instance: &str| {
        let target = format!("/agents/orchestrator/{instance}?offset=-1&tail=10&live=sse");
        let begun = Instant::now();
        system.attach(&target).until_control(&mut Vec::new());
        begun.elapsed()
    };
    // The two alternate, so that both are measured under the same load of the machine.
    let pairs: Vec<_> = (0..300).map(|_| (attach("short"), attach("long"))).collect();
    let short = Samples::of(pairs.iter().map(|pair| pair.0).collect());
    let long = Samples::of(pairs.iter().map(|pair| pair.1).collect());
    let ratio = long.median().as_secs_f64() / short.median().as_secs_f64();
    row("attach to a stream of 10 events", &short.text(), "");
    row(&format!("attach to a stream of {events} events"), &long.text(), &format!("{ratio:.2} x; goal: 1.20 x"));
}
