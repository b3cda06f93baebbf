//! Many at once: resets, and a client that sends requests and reads no answer. In a process of its own, for its memory.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::io::{ErrorKind, Write};
use std::time::{Duration, Instant};

use common::{start, until};
use parking_lot::Mutex;

/// The tests measure the process, so one at a time.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn three_thousand_resets() {
    let _alone = ALONE.lock();
    let running = start();
    let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    for round in 0..3_000 {
        let mut client = running.connect();
        nix::sys::socket::setsockopt(&client.stream, nix::sys::socket::sockopt::Linger, &linger).unwrap();
        match round % 5 {
            0 => {}
            1 => client.try_send("GET /hea"),
            2 => client.try_send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            3 => client.try_send(common::post("/api/echo", "{}").repeat(5)),
            _ => client.try_send("GET /api/events?open HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        }
    }
    assert_eq!(running.get("/health").status, 200);
    running.until_waiting(0);
    running.join();
}

#[test]
fn a_client_that_pipelines_and_never_reads_uses_little_memory() {
    let _alone = ALONE.lock();
    let running = start();
    for path in ["/health", "/nothing", "/none"] {
        let before = resident_kib();
        let mut client = running.connect();
        client.stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        let block = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").repeat(1_000);
        let mut sent = 0usize;
        // Until the listener takes no more; a listener that reads on would take all of it.
        let stopped = (0..20_000).any(|_| match client.stream.write_all(block.as_bytes()) {
            Ok(()) => {
                sent += block.len();
                false
            }
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        });
        assert!(stopped, "{sent} bytes of requests were taken from a client that does not read");
        let grown = resident_kib().saturating_sub(before);
        assert!(grown < 8 << 10, "{grown} KiB for one client at {path}");
        assert_eq!(running.get("/health").status, 200);
    }
}

#[test]
fn silent_connections_do_not_block_others() {
    let _alone = ALONE.lock();
    let running = start();
    let mut silent = Vec::new();
    for round in 0..11 {
        silent.extend((0..100).map(|_| running.connect()));
        if round % 2 == 0 {
            silent.iter_mut().rev().take(50).for_each(|client| client.try_send("GET /hea"));
        }
        let begun = Instant::now();
        assert_eq!(running.get("/health").status, 200);
        assert!(begun.elapsed() < Duration::from_secs(1), "{round}");
    }
}

#[test]
fn unfinished_large_bodies_use_little_memory() {
    let _alone = ALONE.lock();
    let running = start();
    let before = resident_kib();
    let head = "POST /agents/orchestrator/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Content-Length: 16777216\r\n\r\n";
    let part = "1".repeat(64 << 10);
    let mut held = Vec::new();
    for _ in 0..1_024 {
        let mut client = running.connect();
        client.try_send(head);
        client.try_send(&part);
        held.push(client);
    }
    assert_eq!(running.post("/api/echo", "1").status, 200);
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 100 << 10, "{grown} KiB");
}

#[test]
fn a_thousand_idle_connections_leave_room_for_one_more() {
    let _alone = ALONE.lock();
    let running = start();
    let mut held = Vec::new();
    for _ in 0..500 {
        let mut client = running.connect();
        client.send("GET /api/events?count=1&size=9&open HTTP/1.1\r\nHost: localhost\r\n\r\n");
        held.push(client);
    }
    running.until_waiting(500);
    held.extend((0..500).map(|_| running.connect()));
    assert_eq!(running.get("/health").status, 200);
    drop(held);
    until(|| running.app.waiting.load(std::sync::atomic::Ordering::SeqCst) == 0);
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}
