//! Benchmarks of the terminal client: first frame, opening and scrolling a long session, memory, and activity while idle.
//!
//! `KEN_BENCH_EXCHANGES` sets the length of the session (10 000).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

#[allow(dead_code)] // the other benches use the rest
mod figures;

use std::process::Command;
use std::time::{Duration, Instant};

use figures::{Samples, pss_kib, row, title};
use ken_tests::{Builder, System, Terminal, binary};
use serde_json::{Value, json};

const PAGE_UP: &str = "\u{1b}[5~";
/// The sequence that ends each frame.
const FRAME: &str = "\u{1b}[?2026l";
const LIMIT: Duration = Duration::from_secs(20);
/// The repeat interval of a key that is held down.
const REPEAT: Duration = Duration::from_millis(33);

fn main() {
    let exchanges = std::env::var("KEN_BENCH_EXCHANGES").ok().and_then(|text| text.parse().ok());
    let exchanges = exchanges.unwrap_or(10_000);
    title("the terminal client, at 80x24");
    let system = Builder::default().script(&answers()).start();
    first_frame(&system);
    let session = long_session(&system, exchanges);
    opened(&system, &session, exchanges);
    scrolled(&system, &session, exchanges);
}

/// Most answers are one line. Some contain tables or code; the first piece of code loads the highlighter.
fn answers() -> Vec<Value> {
    let code = |language: &str, text: &str| {
        format!("Like this:\n\n```{language}\n{text}\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
    };
    vec![
        json!({"when": "in-rust", "events": [{"text": code("rust", "fn main() {\n    let x: u32 = \"1\".parse().unwrap(); // one\n}")}]}),
        json!({"when": "in-python", "events": [{"text": code("python", "def f(x):\n    return [y for y in x if y > 1]  # large")}]}),
        json!({"when": "in-sh", "events": [{"text": code("sh", "for f in *.log; do grep -c ERROR \"$f\"; done")}]}),
        json!({"events": [{"text": "An answer of a line, as most of them are."}]}),
    ]
}

fn client(system: &System, arguments: &[&str]) -> (Terminal, Instant) {
    let mut command = Command::new(binary("ken-tui"));
    command.env("KEN_HOME", system.home()).args(arguments);
    let begun = Instant::now();
    (Terminal::start(&command, 80, 24), begun)
}

fn leave(terminal: &mut Terminal) {
    terminal.type_line("/exit");
    terminal.wait_for_end();
}

fn first_frame(system: &System) {
    let floor = (0..20).map(|_| {
        let begun = Instant::now();
        let mut terminal = Terminal::start(&Command::new("/bin/true"), 80, 24);
        terminal.wait_for_end();
        begun.elapsed()
    });
    row("setsid and /bin/true on a terminal", &Samples::of(floor.collect()).with_worst(), "every start has its setsid");
    let samples = (0..20).map(|_| {
        let (mut terminal, begun) = client(system, &[]);
        let at = terminal.wait_for_written(0, FRAME, LIMIT).expect("a frame");
        terminal.wait_for_text("An answer");
        leave(&mut terminal);
        at.duration_since(begun)
    });
    row("start to first frame", &Samples::of(samples.collect()).with_worst(), "goal: 10 ms");
}

fn long_session(system: &System, exchanges: usize) -> String {
    let who = [("connector", "tui"), ("actorId", "local-tui"), ("conversationId", "local-tui")];
    let mut body: Value = who.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    let session = system.post("/api/chat/sessions", &body).expect(201).text("/session/id");
    body["session"] = json!(session);
    let begun = Instant::now();
    for number in 0..exchanges {
        let what = match number % 30 {
            3 => " in-rust",
            13 => " in-python",
            23 => " in-sh",
            _ => "",
        };
        body["text"] = json!(format!("question-{number:05}{what}"));
        system.post("/api/chat/events", &body).expect(200);
    }
    row(&format!("a session of {exchanges} exchanges is made"), &format!("{:.1} s", begun.elapsed().as_secs_f64()), "");
    session
}

fn opened(system: &System, session: &str, exchanges: usize) {
    let newest = format!("question-{:05}", exchanges - 1);
    let samples = (0..20).map(|_| {
        let (mut terminal, begun) = client(system, &["--session", session]);
        let at = terminal.wait_for_written(0, &newest, LIMIT).expect("the newest exchange");
        leave(&mut terminal);
        at.duration_since(begun)
    });
    row("start to the newest exchange on the screen", &Samples::of(samples.collect()).with_worst(), "goal: 50 ms");
}

fn scrolled(system: &System, session: &str, exchanges: usize) {
    let (mut terminal, _) = client(system, &["--session", session]);
    terminal.wait_for_written(0, &format!("question-{:05}", exchanges - 1), LIMIT).expect("the newest exchange");
    idle(&terminal);
    row("memory, newest page loaded", &memory(&terminal), "goal: 15 MB");
    // Simulates a key that is held down, while pages are loaded and code is coloured.
    let step = |terminal: &mut Terminal| {
        let from = terminal.length();
        let begun = Instant::now();
        terminal.press(PAGE_UP);
        terminal.wait_for_written(from, FRAME, LIMIT).map(|at| at.duration_since(begun))
    };
    let before = processor(&terminal);
    let mut samples = Vec::new();
    while samples.len() < 300 && !terminal.screen().contains("question-00000") {
        let next = Instant::now() + REPEAT;
        samples.push(step(&mut terminal).expect("another page"));
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let spent = (processor(&terminal) - before) / u32::try_from(samples.len()).expect("a few");
    let note = format!("goal: 16 ms; processor {:.2} ms a step", spent.as_secs_f64() * 1e3);
    row("a page up, 30 a second", &Samples::of(samples).with_worst(), &note);
    // Scrolls to the beginning as fast as pages are loaded.
    let begun = Instant::now();
    let mut pages = 0;
    while !terminal.screen().contains("question-00000") && begun.elapsed() < Duration::from_secs(120) {
        let before = terminal.length();
        terminal.press(PAGE_UP);
        _ = terminal.wait_for_written(before, FRAME, REPEAT);
        pages += 1;
    }
    let rate = f64::from(pages) / begun.elapsed().as_secs_f64();
    row("to the beginning", &format!("{pages} pages, {rate:.0}/s"), "");
    row("memory, while code is coloured", &memory(&terminal), "the languages are given back after 2 s");
    std::thread::sleep(Duration::from_secs(3));
    row("memory, all exchanges loaded", &memory(&terminal), "goal: 15 MB");
    idle(&terminal);
    leave(&mut terminal);
}

fn memory(terminal: &Terminal) -> String {
    format!("{:.1} MB", pss_kib(terminal.pid()) as f64 / 1024.0)
}

/// An idle client writes nothing and uses no CPU time.
fn idle(terminal: &Terminal) {
    std::thread::sleep(Duration::from_secs(1));
    let (bytes, before) = (terminal.length(), processor(terminal));
    std::thread::sleep(Duration::from_secs(10));
    let used = processor(terminal) - before;
    let figure = format!("{} bytes, {:.2} ms of processor", terminal.length() - bytes, used.as_secs_f64() * 1e3);
    row("idle for 10 s", &figure, "goal: 0 bytes, 0 %");
}

/// The CPU time of all threads, from /proc/PID/task/*/schedstat.
fn processor(terminal: &Terminal) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", terminal.pid())).expect("tasks");
    let used = tasks.flatten().filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(used.sum())
}
