//! Running out of descriptors. In a process of its own, because the limit is the process's.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::net::TcpStream;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

#[test]
fn a_listener_without_descriptors_continues_when_some_are_free() {
    let running = common::start();
    assert_eq!(running.get("/health").status, 200);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, 64, hard).unwrap();
    let mut clients = Vec::new();
    while let Ok(stream) = TcpStream::connect(running.address) {
        clients.push(stream);
        assert!(clients.len() < 64, "the limit does not hold");
    }
    // None is left, and some of these connections are still to be accepted.
    std::thread::sleep(std::time::Duration::from_millis(200));
    drop(clients);
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    for _ in 0..20 {
        assert_eq!(running.get("/health").status, 200);
    }
}
