//! Stopping: in reverse order, with patience, and by name.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Home, lives, until};
use nix::sys::signal::Signal;
use serde_json::json;

const CHAIN: &str = "[part.a]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n\
                     [part.b]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\nrequires = [\"a\"]\n\
                     [part.c]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\nrequires = [\"b\"]\n\
                     [part.d]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n";

#[test]
fn parts_end_before_what_they_require() {
    let home = Home::new(CHAIN);
    let kend = home.start();
    assert!(kend.stop().status.success());
    let log = home.read("state/log/kend.log");
    let ended: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("ended (signal"))
        .filter_map(|line| line.split_once("\"part\":\"")?.1.get(..1))
        .filter(|name| *name != "d")
        .collect();
    assert_eq!(ended, ["c", "b", "a"]);
}

#[test]
fn stopping_a_part_takes_down_what_requires_it_and_starting_brings_up_what_it_requires() {
    let home = Home::new(CHAIN);
    let kend = home.start();
    let stopped = kend
        .call("parts.stop", json!({"name": "b", "wait": "stopped"}))
        .unwrap();
    assert_eq!(stopped["state"], "stopped");
    let state = |name: &str| kend.part(name)["state"].as_str().unwrap().to_owned();
    assert_eq!(
        ["a", "b", "c", "d"].map(state),
        ["ready", "stopped", "stopped", "ready"]
    );
    kend.call("parts.stop", json!({"name": "a", "wait": "stopped"}))
        .unwrap();
    kend.call("parts.start", json!({"name": "b", "wait": "ready"}))
        .unwrap();
    assert_eq!(
        ["a", "b", "c", "d"].map(state),
        ["ready", "ready", "stopped", "ready"]
    );
}

#[test]
fn a_stubborn_part_is_killed_and_named() {
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"deaf\", \"pid:DIR/pid\", \"child:DIR/pid\", \"sleep:50\", \"ready\", \"hang\"]\nstop_timeout_ms = 100\n",
    );
    let kend = home.start();
    until("the child", || home.numbers("pid").len() == 2);
    let ended = kend.stop();
    assert!(ended.status.success());
    assert!(
        ended.stderr.contains("a did not end within its time; killed: "),
        "{}",
        ended.stderr
    );
    for pid in home.numbers("pid") {
        assert!(
            ended.stderr.contains(&format!("{pid} (probe)")),
            "{}",
            ended.stderr
        );
        until("gone", || !lives(pid));
    }
}

#[test]
fn a_second_signal_has_no_patience() {
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"deaf\", \"ready\", \"hang\"]\nstop_timeout_ms = 600000\n",
    );
    let mut kend = home.start();
    kend.signal(Signal::SIGINT);
    until("stopping", || kend.part("a")["state"] == "stopping");
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
    assert!(!lives(home.numbers("pid")[0]));
    assert!(kend.end().status.success());
    assert!(!home.path("run/kend.sock").exists());
}

#[test]
fn waiting_ends_with_the_deadline_or_with_bad_news() {
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n\
         [part.slow]\ncommand = [\"PROBE\", \"hang\"]\nenabled = false\n\
         [part.bad]\ncommand = [\"PROBE\", \"exit:1\"]\nenabled = false\nlimit = { n = 2, within_ms = 60000 }\n",
    );
    let kend = home.start();
    let late = kend
        .call(
            "parts.start",
            json!({"name": "slow", "wait": "ready", "timeout_ms": 50}),
        )
        .unwrap_err();
    assert_eq!(late["code"], "deadline");
    assert_eq!(late["message"], "slow is still starting");
    let bad = kend
        .call("parts.start", json!({"name": "bad", "wait": "ready"}))
        .unwrap_err();
    assert_eq!(bad["code"], "unavailable");
    let unknown = kend.call("parts.start", json!({"name": "nope"})).unwrap_err();
    assert_eq!(unknown["code"], "not_found");
    let odd = kend
        .call("parts.stop", json!({"name": "a", "wait": "ready"}))
        .unwrap_err();
    assert_eq!(odd["at"], "/args/wait");
}
