//! Benchmarks of the workflow engine: three steps per request with co-processes that are reused, and 16 clients on one thread. For
//! comparison, plain round trips over the same kind of pipes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

#[allow(dead_code)] // the other benches use the rest
mod figures;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use figures::{Samples, per_second, row, title};
use ken_flow::{Data, Definition, Engine, Mode, Protocols, Settings, Status};
use parking_lot::Mutex;
use serde_json::{Value, json};

const CLIENTS: usize = 16;
const STEPS: [&str; 3] = ["REP", "ESL", "VVP"];
const SPAN: Duration = Duration::from_secs(5);

fn main() {
    title("workflow engine: REP, ESL, VVP, 16 clients, one thread beside the tools");
    let floor = floor();
    row("a line to cat and back, one at a time", &per_second(floor), "the floor");
    for (name, rules) in [("3 rules", 3), ("a chain of 150 rules", 150)] {
        let (rate, times) = load(&chain(rules));
        let ratio = floor / (rate * STEPS.len() as f64);
        let note = format!("{ratio:.1} x the floor's time a step");
        row(&format!("requests, {name}"), &format!("{}, {}", per_second(rate), times.text()), &note);
    }
}

/// Round trips per second to a process that does nothing.
fn floor() -> f64 {
    let mut cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = cat.stdin.take().unwrap();
    let mut output = BufReader::new(cat.stdout.take().unwrap());
    let begun = Instant::now();
    let mut rounds = 0;
    let mut line = String::new();
    while begun.elapsed() < Duration::from_secs(1) {
        input.write_all(b"{\"a\":1}\n").unwrap();
        line.clear();
        output.read_line(&mut line).unwrap();
        rounds += 1;
    }
    drop(input);
    cat.wait().unwrap();
    f64::from(rounds) / begun.elapsed().as_secs_f64()
}

fn chain(rules: usize) -> String {
    let rules: Vec<Value> = (0..rules).map(|n| json!([[format!("s{n}")], format!("s{}", n + 1)])).collect();
    json!({"user_input": "I am worried that the server is down again.", "facts": ["s0"], "rules": rules}).to_string()
}

/// Requests per second, and their latencies.
fn load(data: &str) -> (f64, Samples) {
    let protocols = STEPS.iter().fold(Protocols::shipped(), |protocols, name| {
        let mut protocol = protocols.find(name).unwrap().clone();
        protocol.program = ken_tests::binary(protocol.program.to_str().unwrap());
        protocols.with(protocol)
    });
    let workflow = Arc::new(Definition::of_protocols(&STEPS, Mode::Sequential, &protocols).unwrap());
    let engine = Arc::new(Engine::new(protocols, Settings::default()));
    let times = Arc::new(Mutex::new(Vec::new()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let begun = Instant::now();
    runtime.block_on(async {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| tokio::spawn(client(engine.clone(), workflow.clone(), data.to_owned(), times.clone())))
            .collect();
        for client in clients {
            client.await.unwrap();
        }
    });
    let taken = begun.elapsed().as_secs_f64();
    let times = std::mem::take(&mut *times.lock());
    (times.len() as f64 / taken, Samples::of(times))
}

async fn client(engine: Arc<Engine>, workflow: Arc<Definition>, data: String, times: Arc<Mutex<Vec<Duration>>>) {
    let begun = Instant::now();
    while begun.elapsed() < SPAN {
        let begun = Instant::now();
        let data = Data::read(&data).unwrap();
        let outcome = engine.run(&workflow, &data, engine.request()).await.unwrap();
        assert_eq!(outcome.status, Status::Completed, "{outcome:?}");
        assert!(!serde_json::to_string(&outcome).unwrap().is_empty());
        times.lock().push(begun.elapsed());
    }
}
