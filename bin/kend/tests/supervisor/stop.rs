//! Stopping in reverse order, within time limits, and of single parts.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::common::{Home, is_running, kill9, until};
use ken_tests::free_port;
use nix::sys::signal::Signal;
use serde_json::json;

const CHAIN: &str = "[part.a]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n\
                     [part.b]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\nrequires = [\"a\"]\n\
                     [part.c]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\nrequires = [\"b\"]\n\
                     [part.d]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n";

#[test]
fn parts_end_before_what_they_are_started_after() {
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n\
         [part.b]\ncommand = [\"PROBE\", \"deaf\", \"ready\", \"hang\"]\nafter = [\"a\"]\nstop_timeout_ms = 300\n",
    );
    let kend = home.start();
    assert!(kend.stop().status.success());
    let log = home.read("state/log/kend.log");
    let place = |text: &str| log.find(text).unwrap_or_else(|| panic!("{text}: {log}"));
    assert!(place("ended (signal SIGKILL)") < place("ended (signal SIGTERM)"), "{log}");
}

#[test]
fn stopping_a_part_stops_no_other_unless_dependents_are_named() {
    let home = Home::new(CHAIN);
    let kend = home.start();
    let state = |name| kend.state(name);
    let stopped = kend.stop_part("b");
    assert_eq!((&stopped["state"], stopped.get("also")), (&json!("stopped"), None));
    assert_eq!(["a", "b", "c", "d"].map(state), ["ready", "stopped", "ready", "ready"]);
    let stopped = kend.call("parts.stop", json!({"name": "a", "dependents": true, "wait": "stopped"})).unwrap();
    assert_eq!((&stopped["state"], &stopped["also"]), (&json!("stopped"), &json!(["c"])));
    kend.start_part("b");
    assert_eq!(["a", "b", "c", "d"].map(state), ["ready", "ready", "stopped", "ready"]);
}

/// Callers of a stopped part are refused at once. Callers of a part that restarts are not, and its address stays the
/// same.
#[test]
fn the_sockets_of_a_stopped_part_are_closed_and_opened_again_at_start() {
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"ready\", \"accept\"]\nlimit = { n = 3, within_ms = 60000 }\n\
         sockets = { http = { tcp = \"gateway\" }, wire = { unix = \"a.sock\" } }\n",
    );
    let kend = home.start_with(&mut home.command(&["--announce", "--port", "0"]));
    let address = kend.gateway();
    let tcp = || TcpStream::connect(address).map_err(|error| error.kind());
    let unix = || UnixStream::connect(home.path("run/a.sock")).map_err(|error| error.kind());
    assert!(tcp().is_ok() && unix().is_ok());
    kend.stop_part("a");
    assert_eq!(tcp().unwrap_err(), ErrorKind::ConnectionRefused);
    assert_eq!(unix().unwrap_err(), ErrorKind::ConnectionRefused);
    kend.start_part("a");
    let mut answer = String::new();
    tcp().unwrap().read_to_string(&mut answer).unwrap();
    assert_eq!(answer.trim(), kend.part_pid("a").to_string());
    assert!(unix().is_ok());
    // A reload leaves the sockets of a stopped part closed.
    kend.stop_part("a");
    kend.reload();
    assert_eq!(tcp().unwrap_err(), ErrorKind::ConnectionRefused);
    // A failed part does not start again by itself either.
    kend.start_part("a");
    for _ in 0..3 {
        let starts = kend.part("a")["restarts"].clone();
        kill9(kend.part_pid("a"));
        until("its end", || {
            let part = kend.part("a");
            part["state"] == "failed" || part["restarts"] != starts && part["state"] == "ready"
        });
        if kend.state("a") == "failed" {
            break;
        }
        assert!(tcp().is_ok());
    }
    kend.until_state("a", "failed");
    assert_eq!(tcp().unwrap_err(), ErrorKind::ConnectionRefused);
}

/// If another program has taken the port of a stopped part, starting the part fails with an error that names the port.
#[test]
fn a_port_that_was_taken_meanwhile_is_named_by_start() {
    let home =
        Home::new("[part.a]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\nsockets = { http = { tcp = \"gateway\" } }\n");
    let kend = home.start_with(&mut home.command(&["--announce", "--port", &free_port().to_string()]));
    let address = kend.gateway();
    kend.stop_part("a");
    let taken = std::net::TcpListener::bind(address).unwrap();
    let error = kend.call("parts.start", json!({"name": "a", "wait": "ready"})).unwrap_err();
    assert_eq!(error["code"], "unavailable");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains(&format!("another program listens on {address}")), "{message}");
    drop(taken);
    kend.start_part("a");
}

#[test]
fn a_signal_reaches_the_process_of_a_part() {
    let home = Home::new(CHAIN);
    let kend = home.start();
    let pid = kend.part_pid("a").as_raw();
    let killed = kend.call("parts.kill", json!({"name": "a"})).unwrap();
    assert_eq!(killed, json!({"name": "a", "pid": pid, "signal": "SIGKILL"}));
    until("its end", || kend.part("a")["last_exit"] == "signal SIGKILL");
    kend.stop_part("d");
    for (args, code) in [
        (json!({"name": "d"}), "conflict"),
        (json!({"name": "b", "signal": "NOPE"}), "invalid"),
        (json!({"name": "x"}), "not_found"),
    ] {
        assert_eq!(kend.call("parts.kill", args).unwrap_err()["code"], code);
    }
    kend.call("parts.kill", json!({"name": "b", "signal": "usr1"})).unwrap();
    until("its end", || kend.part("b")["last_exit"] == "signal SIGUSR1");
}

#[test]
fn a_second_signal_has_no_patience() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"deaf\", \"ready\", \"hang\"]\nstop_timeout_ms = 600000\n");
    let mut kend = home.start();
    kend.signal(Signal::SIGINT);
    kend.until_state("a", "stopping");
    kend.signal(Signal::SIGINT);
    assert!(kend.end().status.success());
}

#[test]
fn the_stop_operation_answers_when_all_are_gone() {
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"deaf\", \"pid:DIR/pid\", \"ready\", \"hang\"]\nstop_timeout_ms = 100\n",
    );
    let mut kend = home.start();
    let done = kend.call("kend.stop", json!({})).unwrap();
    assert_eq!(done["killed"], json!(["a"]));
    assert!(!is_running(home.numbers("pid")[0]));
    assert!(kend.end().status.success());
    assert!(!home.path("run/kend.sock").exists());
}

#[test]
fn waiting_ends_with_the_deadline_or_with_bad_news() {
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n\
         [part.slow]\ncommand = [\"PROBE\", \"hang\"]\nenabled = false\n\
         [part.bad]\ncommand = [\"PROBE\", \"say:no moon\", \"exit:1\"]\nenabled = false\nlimit = { n = 2, within_ms = 60000 }\n\
         [part.needs-bad]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\nenabled = false\nrequires = [\"bad\"]\n",
    );
    let kend = home.start();
    let late = kend.call("parts.start", json!({"name": "slow", "wait": "ready", "timeout_ms": 50})).unwrap_err();
    assert_eq!(late["code"], "deadline");
    assert_eq!(late["message"], "slow is still starting");
    let started = Instant::now();
    for (name, start) in [
        ("bad", "bad ended (exit 1) before it was ready, after "),
        ("needs-bad", "needs-bad waits for bad: bad ended (exit 1) "),
    ] {
        let bad = kend.call("parts.start", json!({"name": name, "wait": "ready"})).unwrap_err();
        assert_eq!(bad["code"], "unavailable");
        let message = bad["message"].as_str().unwrap();
        assert!(message.starts_with(start) && message.contains("no moon"), "{message}");
    }
    assert!(started.elapsed() < Duration::from_secs(10), "it waited for its deadline");
    kend.until_state("bad", "failed");
    assert_eq!(kend.part("bad")["last_exit"], "exit 1");
    let restarted = kend.call("parts.restart", json!({"name": "bad", "wait": "ready"})).unwrap_err();
    assert!(restarted["message"].as_str().unwrap().contains("(exit 1)"), "{restarted}");
    let unknown = kend.call("parts.start", json!({"name": "nope"})).unwrap_err();
    assert_eq!(unknown["code"], "not_found");
    let odd = kend.call("parts.stop", json!({"name": "a", "wait": "ready"})).unwrap_err();
    assert_eq!(odd["at"], "/args/wait");
}
