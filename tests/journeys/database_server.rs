//! A home whose store is on a PostgreSQL server: it works as with a file, loses nothing when the store or the server is killed, waits for a
//! server that is away, and a second home takes over when the first one stops.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use ken_tests::{Builder, Client, NO_POSTGRES, Postgres, System, skip, until};
use nix::sys::signal::Signal;
use serde_json::json;

fn home_on(url: &str) -> System {
    Builder::default().config(&format!("[store]\nurl = \"{url}\"\n")).start()
}

/// Runs a command that must succeed, and returns what it prints.
#[track_caller]
fn runs(system: &System, arguments: &[&str]) -> String {
    let output = system.ken(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Appends numbers to a stream, one after the other, and keeps those that were acknowledged.
struct Writer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<String>>,
}

impl Writer {
    fn start(system: &System, name: &'static str) -> Writer {
        let (address, stop) = (system.address(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut acknowledged = Vec::new();
            for number in 0.. {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let text = format!("{name}{number};");
                let Ok(mut client) = Client::try_connect(address) else {
                    sleep(Duration::from_millis(20));
                    continue;
                };
                let sent = client
                    .request("POST", "/streams/numbers")
                    .header("Content-Type", "text/plain")
                    .body(text.as_bytes());
                match sent.try_send() {
                    Ok(answer) if answer.status < 300 => acknowledged.push(text),
                    // Each number is sent once: what was not acknowledged may be there, but not twice.
                    _ => sleep(Duration::from_millis(20)),
                }
            }
            acknowledged
        });
        Writer { stop, thread }
    }

    fn end(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// How often each number is in the stream.
fn stored(system: &System) -> BTreeMap<String, usize> {
    let mut counted = BTreeMap::new();
    let mut offset = "-1".to_owned();
    loop {
        let answer = system.get(&format!("/streams/numbers?offset={offset}")).expect(200);
        for number in String::from_utf8(answer.body.clone()).unwrap().split_inclusive(';') {
            *counted.entry(number.to_owned()).or_default() += 1;
        }
        let next = answer.header("stream-next-offset").unwrap().to_owned();
        if answer.header("stream-up-to-date").is_some() || next == offset {
            return counted;
        }
        offset = next;
    }
}

fn is_ready(system: &System) -> bool {
    Client::try_connect(system.address()).is_ok_and(|mut client| client.get("/ready").status == 200)
}

#[test]
fn nothing_is_lost_or_doubled_when_the_store_and_the_server_are_killed() {
    let Some(server) = Postgres::start(&[]) else {
        return skip(NO_POSTGRES);
    };
    let mut system = home_on(&server.url(&server.database()));
    let session = system.session();
    system.say(&session, "what is 2+2").expect(200);
    runs(&system, &["knowledge", "add", "Zones", "The office is in Zone 7."]);
    assert!(runs(&system, &["knowledge", "list", "--json"]).contains("Zones"));
    system.client().request("PUT", "/streams/numbers").header("Content-Type", "text/plain").send().expect(201);
    let writers = ["a", "b", "c"].map(|name| Writer::start(&system, name));
    let mut longest = Duration::ZERO;
    for round in 0..4 {
        sleep(Duration::from_millis(700));
        let begun = Instant::now();
        if round % 2 == 0 {
            system.kill("store");
        } else {
            server.crash();
            sleep(Duration::from_millis(300));
            server.resume();
        }
        until("it works again", || is_ready(&system));
        longest = longest.max(begun.elapsed());
    }
    sleep(Duration::from_millis(500));
    let acknowledged: Vec<String> = writers.into_iter().flat_map(Writer::end).collect();
    let stored = stored(&system);
    let lost: Vec<&String> = acknowledged.iter().filter(|number| !stored.contains_key(*number)).collect();
    let doubled: Vec<_> = stored.iter().filter(|(_, times)| **times > 1).collect();
    println!("{} acknowledged, 4 kills, longest outage {longest:?}", acknowledged.len());
    assert!(acknowledged.len() > 50 && lost.is_empty() && doubled.is_empty(), "lost {lost:?}, doubled {doubled:?}");
    system.say(&session, "and now?").expect(200);
    assert_eq!(system.down(), Some(0));
}

#[test]
fn a_server_that_is_away_is_named_and_waited_for() {
    let Some(server) = Postgres::start(&[]) else {
        return skip(NO_POSTGRES);
    };
    let database = server.database();
    server.crash();
    let system = home_on(&server.socket_url(&database));
    let refused = system.post("/api/knowledge", &json!({"title": "t", "content": "c"})).expect(503);
    assert!(refused.text("/error").contains(&database), "{refused:?}");
    let status = system.ken(&["status"]);
    let said = String::from_utf8(status.stderr).unwrap();
    assert!(said.contains("store: postgres://ken@"), "{said}");
    let pid = system.pid("store");
    server.resume();
    until("the store has found its server", || is_ready(&system));
    system.post("/api/knowledge", &json!({"title": "t", "content": "c"})).expect(201);
    assert_eq!(system.pid("store"), pid, "the store was restarted");
    let backup = system.ken(&["backup", "/tmp/never.tar"]);
    assert!(String::from_utf8(backup.stderr).unwrap().contains("pg_dump"));
}

#[test]
fn a_second_home_takes_over_and_a_store_that_was_stopped_writes_nothing() {
    let Some(server) = Postgres::start(&[]) else {
        return skip(NO_POSTGRES);
    };
    let database = server.database();
    let mut first = home_on(&server.url(&database));
    let add = |system: &System, title: &str| {
        let mut client = Client::connect(system.address());
        client.request("POST", "/api/knowledge").json(&json!({"title": title, "content": "c"})).send().status
    };
    assert_eq!(add(&first, "by the first"), 201);
    let second = home_on(&server.url(&database));
    assert_eq!(add(&second, "too early"), 503);
    until("the second home says that it waits", || {
        String::from_utf8(second.ken(&["status"]).stderr).unwrap().contains("standby")
    });
    assert_eq!(add(&first, "by the first again"), 201);
    // The first store is stopped and not killed: it does not know that its time is over.
    let store = first.pid("store");
    first.signal("store", Signal::SIGSTOP);
    let begun = Instant::now();
    until("the second home takes over", || is_ready(&second));
    let took = begun.elapsed();
    println!("taken over after {took:?}");
    assert!(took > Duration::from_secs(8) && took < Duration::from_secs(25), "{took:?}");
    assert_eq!(add(&second, "by the second"), 201);
    assert!(runs(&second, &["knowledge", "list", "--json"]).contains("by the first again"));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(store), Signal::SIGCONT).unwrap();
    for number in 0..20 {
        assert_eq!(add(&first, &format!("too late {number}")), 503);
    }
    let titles = server.sql(&database, "SELECT title FROM ken.knowledge ORDER BY entry");
    assert_eq!(titles, "by the first\nby the first again\nby the second");
    // The first home takes over again when the second one has ended.
    drop(second);
    until("the first home takes over", || is_ready(&first));
    assert_eq!(add(&first, "by the first in the end"), 201);
    first.down();
}
