//! What the store writes to the disk, what happens when the disk is full, and how long a stop takes.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ken_tests::until;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::process::*;

/// A library that appends a byte to the file named by `SYNCS` for each sync of a file.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
static void count(void) {
    int file = open(getenv("SYNCS"), O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (file >= 0) { (void)!write(file, ".", 1); close(file); }
}
int fdatasync(int fd) { count(); return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd); }
int fsync(int fd) { count(); return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd); }
"#;

/// Checks the system calls. Killing the process would show nothing, because SIGKILL loses no data that was written but not synced.
#[test]
fn every_answered_change_has_been_synced_before() {
    let home = tempfile::tempdir().unwrap();
    let [source, shim, syncs] = ["shim.c", "shim.so", "syncs"].map(|name| home.path().join(name));
    std::fs::write(&source, SHIM).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&shim).arg(&source).arg("-ldl").status();
    assert!(built.unwrap().success());
    let mut command = command(home.path());
    command.stderr(Stdio::null()).env("LD_PRELOAD", &shim).env("SYNCS", &syncs);
    let daemon = Daemon::start_as(command, home.path());
    let mut peer = Peer::connect(&daemon.socket());
    let count = || std::fs::metadata(&syncs).map_or(0, |meta| meta.len());
    for number in 0..20 {
        let before = count();
        peer.call("chat.accept", prompt(0, number));
        assert!(count() > before, "prompt {number} was answered without a sync");
    }
    assert_eq!(daemon.end(Signal::SIGTERM), Some(0));
}

/// Starts a daemon whose files may have at most this many bytes.
fn limited(home: &Path, bytes: u64) -> Daemon {
    let inner = command(home);
    let mut command = Command::new("prlimit");
    command.arg(format!("--fsize={bytes}:")).arg("--").arg(EXE).args(inner.get_args());
    command.stderr(Stdio::null()).stdout(Stdio::null());
    Daemon::start_as(command, home)
}

#[test]
fn callers_and_waiters_learn_of_a_full_disk_and_it_is_tried_again() {
    let home = tempfile::tempdir().unwrap();
    let daemon = limited(home.path(), 2 << 20);
    let mut peer = Peer::connect(&daemon.socket());
    peer.call("chat.accept", prompt(0, 0));
    let waiting = {
        let mut peer = Peer::connect(&daemon.socket());
        let args = json!({"submission_id": "s0-0", "wait_ms": 60_000});
        std::thread::spawn(move || peer.call("submissions.wait", args))
    };
    let entry = |number: usize| json!({"title": format!("t{number}"), "content": "x".repeat(200_000), "source": "api", "createdBy": "api"});
    let error = (0..40).find_map(|number| peer.try_call("knowledge.put", &entry(number)).unwrap().err());
    let error = error.expect("40 entries went into 2 MiB");
    assert_eq!(error["code"], "unavailable", "{error}");
    // The daemon continues to run and to read, and reports that it cannot write.
    let stats = |peer: &mut Peer| -> Value { peer.call("service.stats", json!({})) };
    assert_eq!(stats(&mut peer)["writable"], 0);
    assert!(peer.call("knowledge.list", json!({}))["records"].as_array().unwrap().len() > 1);
    let status = waiting.join().unwrap();
    assert!(status["stalled"].as_str().unwrap().contains("disk"), "{status}");
    assert_eq!(status["state"], "queued");
    let pid = daemon.child.id().to_string();
    let raised = Command::new("prlimit").args(["--fsize=unlimited:", "--pid", &pid]).status();
    assert!(raised.unwrap().success());
    until("it tries again by itself", || stats(&mut peer)["writable"] != 0);
    peer.call("knowledge.put", entry(99));
}

/// The limit ends each write of a change in turn, at its first byte and in the middle. It is lifted after each refusal.
#[test]
fn a_disk_that_is_full_at_any_write_keeps_exactly_what_was_answered() {
    const STEP: u64 = 2_060; // half a frame of the write-ahead log
    let home = tempfile::tempdir().unwrap();
    let daemon = limited(home.path(), 1 << 40);
    let pid = daemon.child.id().to_string();
    let limit = |bytes: &str| {
        let limited = Command::new("prlimit").args([&format!("--fsize={bytes}:"), "--pid", &pid]).status();
        assert!(limited.unwrap().success());
    };
    let log = daemon.database().with_extension("db-wal");
    let mut peer = Peer::connect(&daemon.socket());
    let entry = |title: &str| json!({"title": title, "content": "some words", "source": "api", "createdBy": "api"});
    let (mut answered, mut refused) = (Vec::new(), 0);
    for round in 0..24 {
        let size = std::fs::metadata(&log).map_or(0, |meta| meta.len());
        limit(&(size + round * STEP).to_string());
        let title = format!("limited {round}");
        match peer.try_call("knowledge.put", &entry(&title)).unwrap() {
            Ok(_) => answered.push(title),
            Err(error) => {
                assert_eq!(error["code"], "unavailable", "{error}");
                refused += 1;
            }
        }
        limit("unlimited");
        let title = format!("free {round}");
        until("it goes on by itself", || peer.try_call("knowledge.put", &entry(&title)).unwrap().is_ok());
        answered.push(title);
    }
    assert!(refused > 5, "only {refused} were refused");
    daemon.end(Signal::SIGKILL);
    let daemon = Daemon::start(home.path());
    let mut peer = Peer::connect(&daemon.socket());
    let list = peer.call("knowledge.list", json!({"limit": 100}));
    let titles = list["records"].as_array().unwrap().iter().map(|record| record["title"].as_str().unwrap().to_owned());
    let (mut found, mut answered) = (titles.collect::<Vec<_>>(), answered);
    found.sort();
    answered.sort();
    assert_eq!(found, answered);
}

/// Calls that wait end with an error at once and do not delay a stop.
#[test]
fn a_stop_takes_as_long_as_its_work() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(home.path());
    let mut peer = Peer::connect(&daemon.socket());
    let accepted = peer.call("chat.accept", prompt(0, 0));
    let session = accepted["session"]["id"].as_str().unwrap();
    let stream = format!("agents/orchestrator/{session}");
    let waits = [
        ("submissions.claim", json!({"holder": "t", "work": "runs", "max": 1, "wait_ms": 60_000})),
        ("submissions.wait", json!({"submission_id": "s0-0", "wait_ms": 60_000})),
        ("streams.read", json!({"stream": stream, "wait_ms": 60_000})),
    ];
    let waiting: Vec<_> = waits
        .map(|(op, args)| {
            let mut peer = Peer::connect(&daemon.socket());
            let id = peer.begin(op, &args);
            std::thread::spawn(move || peer.answer(id))
        })
        .into();
    until("two calls wait", || peer.call("service.stats", json!({}))["waiters"] == 2);
    let begun = Instant::now();
    assert_eq!(daemon.end(Signal::SIGTERM), Some(0));
    let took = begun.elapsed();
    for answer in waiting {
        let error = answer.join().unwrap().expect("no answer").unwrap_err();
        assert_eq!(error["code"], "unavailable");
    }
    assert!(took < Duration::from_millis(1_500), "{took:?}");
}
