//! What follows when the process of a part ends.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{Home, install, kill9, until, wait_for_restart};
use nix::sys::signal::{Signal, kill};
use serde_json::json;

#[test]
fn an_accident_is_repaired_at_once() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n");
    let kend = home.start();
    wait_for_restart();
    let old = kend.part_pid("a");
    kill9(old);
    until("a new process", || kend.state("a") == "ready" && kend.part_pid("a") != old);
    assert!(kend.notes("a").iter().any(|note| note.ends_with("; starting again at once")), "{:?}", kend.notes("a"));
    let part = kend.part("a");
    assert_eq!(part["restarts"], 1);
    assert_eq!(part["last_exit"], "signal SIGKILL");
    assert_eq!(part["deaths"][0]["pid"], old.as_raw());
    assert_eq!(part["deaths"][0]["signal"], 9);
    assert_eq!(part["deaths"][0]["ready"], true);
    assert_eq!(part["deaths"][0]["requested"], false);
}

#[test]
fn held_sockets_refuse_nobody_while_their_parts_are_killed() {
    // Four parts, each killed five times after it has been ready for a second.
    let entry = |name: &str| {
        format!(
            "[part.{name}]\ncommand = [\"PROBE\", \"ready\", \"accept\"]\nsockets = {{ wire = {{ unix = \"{name}.sock\" }} }}\n"
        )
    };
    let names = ["a", "b", "c", "d"];
    let home = Home::new(&names.map(entry).concat());
    let kend = home.start();
    let over = AtomicBool::new(false);
    let answered: usize = std::thread::scope(|scope| {
        let callers = names.map(|name| {
            let path = home.path(&format!("run/{name}.sock"));
            let over = &over;
            scope.spawn(move || {
                let mut answered = 0;
                while !over.load(Ordering::Relaxed) {
                    // A refused connection is an error here. A connection that the killed process had accepted may end
                    // without an answer.
                    let mut stream = UnixStream::connect(&path).expect("refused");
                    let mut text = String::new();
                    answered += usize::from(stream.read_to_string(&mut text).is_ok_and(|length| length > 0));
                }
                answered
            })
        });
        for round in 1..=5 {
            wait_for_restart();
            names.iter().for_each(|name| kill9(kend.part_pid(name)));
            let restarted = |name: &&str| kend.part(name)["restarts"] == round && kend.part(name)["state"] == "ready";
            until("all are back", || names.iter().all(restarted));
        }
        over.store(true, Ordering::Relaxed);
        callers.map(|caller| caller.join().unwrap()).iter().sum()
    });
    assert!(answered > 1_000, "only {answered} were answered");
}

/// A part that is not started again at once keeps its socket too: callers wait until it is back.
#[test]
fn held_sockets_refuse_nobody_during_backoff() {
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"exit-if:DIR/bad\", \"ready\", \"accept\"]\nsockets = { wire = { unix = \"a.sock\" } }\n",
    );
    let kend = home.start();
    std::fs::write(home.path("bad"), "").unwrap();
    kill9(kend.part_pid("a"));
    let mut waiting = Vec::new();
    let mut in_backoff = 0;
    until("three deaths and sixty callers", || {
        in_backoff += u32::from(kend.state("a") == "backoff");
        if waiting.len() < 60 {
            waiting.push(UnixStream::connect(home.path("run/a.sock")).expect("refused"));
        }
        waiting.len() == 60 && kend.part("a")["deaths"].as_array().unwrap().len() >= 3
    });
    assert!(in_backoff > 10, "{in_backoff}");
    std::fs::remove_file(home.path("bad")).unwrap();
    kend.start_part("a");
    for mut stream in waiting {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(!text.is_empty());
    }
}

/// A part that the watchdog ended has failed, no matter how long it was ready.
#[test]
fn a_watchdog_timeout_is_followed_by_a_delay() {
    let home =
        Home::new("[part.a]\ncommand = [\"PROBE\", \"ready\", \"alive-for:1500\", \"hang\"]\nwatchdog_ms = 1000\n");
    let kend = home.start();
    let mut note = String::new();
    until("the end of the first process", || {
        let notes = kend.notes("a");
        note = notes.into_iter().find(|note| note.starts_with("ended")).unwrap_or_default();
        !note.is_empty()
    });
    assert!(note.starts_with("ended (watchdog timeout after 1000 ms, signal SIGABRT) after "), "{note}");
    assert!(note.contains("; next start in 2"), "{note}");
    assert_eq!(kend.part("a")["deaths"][0]["ready"], true);
}

/// If the whole system is suspended for longer than the watchdog allows, no part is treated as hanging.
#[test]
fn a_pause_of_the_whole_system_kills_nobody() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"ready\", \"alive:20\"]\nwatchdog_ms = 1000\n");
    let kend = home.start();
    let part = kend.part_pid("a");
    for pid in [part, kend.pid()] {
        kill(pid, Signal::SIGSTOP).unwrap();
    }
    std::thread::sleep(Duration::from_millis(2500));
    kend.signal(Signal::SIGCONT);
    assert_eq!(kend.state("a"), "ready");
    kill(part, Signal::SIGCONT).unwrap();
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(kend.part("a")["deaths"], json!([]));
}

#[test]
fn a_program_that_cannot_be_executed_is_a_death_with_a_cause() {
    let home = Home::new("[part.a]\ncommand = [\"DIR/program\", \"ready\", \"hang\"]\n");
    install(crate::common::probe(), &home.path("program"));
    let kend = home.start();
    std::fs::write(home.path("program.new"), "no program").unwrap();
    std::fs::rename(home.path("program.new"), home.path("program")).unwrap();
    kill9(kend.part_pid("a"));
    until("a failed start", || {
        kend.part("a")["last_exit"].as_str().is_some_and(|cause| cause.starts_with("cannot start: execute: "))
    });
    install(crate::common::probe(), &home.path("program"));
    assert_eq!(kend.restart_part("a")["state"], "ready");
}

#[test]
fn a_report_of_a_stranger_counts_for_nobody() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"hang\"]\n");
    let mut command = home.command(&[]);
    let mut child = command.spawn().unwrap();
    until("kend is up", || home.read("state/log/kend.log").contains("started"));
    let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
    socket.send_to(b"READY=1", home.path("run/notify.sock")).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let mut caller = crate::common::Caller::connect(&home.path("run/kend.sock"));
    let status = caller.call("parts.status", json!({})).unwrap();
    assert_eq!(status["parts"][0]["state"], "starting");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_part_that_says_that_it_stops_is_no_longer_ready_and_comes_back() {
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"ready\", \"pid:DIR/pid\", \"sleep:1100\", \"stopping\", \"deaf\", \"hang\"]\nstop_timeout_ms = 300\n",
    );
    let kend = home.start();
    kend.until_state("a", "stopping");
    until("killed and started again", || home.numbers("pid").len() == 2);
    let part = kend.part("a");
    assert_eq!(part["deaths"][0]["signal"], 9);
    assert_eq!(part["deaths"][0]["requested"], false);
}
