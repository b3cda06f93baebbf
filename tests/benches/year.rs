//! A home after a year beside a new one: start, a turn, lists, retention, a backup. `make bench` runs it with the release binaries.
//!
//! `KEN_BENCH_SESSIONS` sets the number of sessions (20,000; a year of heavy use is 600,000). There are eight events a session and
//! one knowledge entry for thirty.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod figures;

use std::process::Command;
use std::time::{Duration, Instant};

use figures::{Samples, row, title};
use ken_tests::{Client, System, binary, number};

/// How many sessions a year of heavy use has.
const YEAR: u64 = 600_000;

fn main() {
    let sessions = number("KEN_BENCH_SESSIONS", 20_000);
    title("floors of this run");
    row("write and fdatasync of 4 KiB", &figures::sync_floor().text(), "");
    row("/bin/true, start to exit", &figures::spawn_floor().text(), "");
    let mut new = System::start();
    let mut old = System::start();
    for system in [&new, &old] {
        assert!(system.ken(&["knowledge", "add", "Zones", "The office is in Zone 7."]).status.success());
        assert!(system.ken(&["chat", "Where is the office?"]).status.success());
    }
    let (events, knowledge) = (sessions * 5_000_000 / YEAR, sessions * 20_000 / YEAR);
    old.down();
    let database = old.home().join("state/store/ken.db");
    let begun = Instant::now();
    let filled = Command::new(binary("ken").with_file_name("examples/year"))
        .arg(&database)
        .args([sessions, events, knowledge].map(|count| count.to_string()))
        .status();
    assert!(filled.expect("the example `year` is built").success());
    let size = std::fs::metadata(&database).expect("a database").len() >> 20;
    title(&format!("{sessions} sessions, {events} events, {knowledge} knowledge entries: {size} MiB"));
    row("written by the generator in", &format!("{:.0} s", begun.elapsed().as_secs_f64()), "");
    old.up();
    old.get("/ready").expect(200);
    let starts = [&mut new, &mut old].map(|system| repeated(7, || start(system)));
    compare("start until ready", &starts, "goal: 200 ms");
    for (what, count, words, goal) in [
        ("a turn, `ken chat`", 30, &["chat", "Where is the office?"][..], "goal: within 10 %"),
        ("ken usage", 15, &["usage"], "goal: 50 ms"),
        ("ken usage --by session", 15, &["usage", "--by", "session"], ""),
        ("ken sessions", 15, &["sessions"], "goal: 50 ms"),
        ("ken knowledge search", 15, &["knowledge", "search", "zu17k zu4711k"], ""),
    ] {
        compare(what, &by_turns(count, [&new, &old], |system| command(system, words)), goal);
    }
    // A word of one turn in a hundred, two such words, and one that no session has in its name.
    for (what, query) in [
        ("sessions in which a word was said", "text=zu17k"),
        ("sessions in which two words were said", "text=zu17k%20zu4711k"),
        ("sessions with a name that none has", "q=zzz&empty=0"),
    ] {
        let target = format!("/api/chat/sessions?{query}");
        compare(what, &by_turns(15, [&new, &old], |system| request(system, &target)), "goal: 50 ms");
    }
    retention(&mut old);
    let backups = [&new, &old].map(|system| {
        let file = system.home().join("backup.tar");
        Samples::of(vec![command(system, &["backup", file.to_str().expect("a path")])])
    });
    compare("ken backup", &backups, "goal: 60 s for a year");
}

fn repeated(count: usize, mut one: impl FnMut() -> Duration) -> Samples {
    one(); // the first one reads what the others find in memory
    Samples::of((0..count).map(|_| one()).collect())
}

/// Measures both systems alternately, so that other load on the machine affects both.
fn by_turns(count: usize, systems: [&System; 2], one: impl Fn(&System) -> Duration) -> [Samples; 2] {
    systems.iter().for_each(|system| _ = one(system));
    let both: Vec<[Duration; 2]> = (0..count).map(|_| systems.map(&one)).collect();
    [0, 1].map(|at| Samples::of(both.iter().map(|pair| pair[at]).collect()))
}

fn start(system: &mut System) -> Duration {
    system.down();
    let begun = Instant::now();
    system.up();
    begun.elapsed()
}

fn command(system: &System, words: &[&str]) -> Duration {
    let begun = Instant::now();
    let output = system.ken(words);
    let took = begun.elapsed();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    took
}

fn request(system: &System, target: &str) -> Duration {
    // A client that compares no answer with the contract: that takes longer than the answer.
    let mut client = Client::connect(system.address());
    let begun = Instant::now();
    drop(client.get(target).expect(200));
    begun.elapsed()
}

fn compare(what: &str, [new, old]: &[Samples; 2], goal: &str) {
    let ms = |samples: &Samples| samples.median().as_secs_f64() * 1e3;
    let ratio = ms(old) / ms(new);
    row(what, &format!("new {:.1} ms, after a year {:.1} ms", ms(new), ms(old)), &format!("{ratio:.2} x  {goal}"));
}

/// Turns while a fifth of all sessions is deleted because of their age.
fn retention(system: &mut System) {
    let turn = |system: &System| command(system, &["chat", "Where is the office?"]);
    let quiet = Samples::of((0..30).map(|_| turn(system)).collect());
    system.down();
    std::fs::write(system.home().join("ken.toml"), "[retention]\nsessions = 292\n").expect("ken.toml");
    system.up();
    let end = Instant::now() + Duration::from_secs(10);
    let mut during = Vec::new();
    while Instant::now() < end {
        during.push(turn(system));
    }
    row("a turn before retention", &quiet.with_worst(), "");
    row("a turn while it deletes a fifth of the sessions", &Samples::of(during).with_worst(), "");
}
