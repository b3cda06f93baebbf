//! Many connections and large bodies from abusive callers: others are still served, and memory is bounded.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use ken_tests::{Client, System};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the limit of open files, because the test holds more connections than the default allows.
fn allow_many_files() {
    let (_, max) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, max.min(16_384), max).unwrap();
}

/// Checks that a normal caller gets an answer within this many seconds.
fn is_served(address: SocketAddr, seconds: u64) {
    let begun = Instant::now();
    Client::connect(address).get("/health").expect(200);
    let taken = begun.elapsed();
    assert!(taken < Duration::from_secs(seconds), "{taken:?} at {address}");
}

#[test]
fn silent_connections_do_not_block_others() {
    allow_many_files();
    let system = System::start();
    for address in [system.address(), system.cognitive()] {
        let mut silent = Vec::new();
        for count in 1..=1_100 {
            let mut connection = TcpStream::connect(address).unwrap();
            if count % 3 == 0 {
                // An incomplete request must not block others either.
                _ = connection.write_all(b"GET /health HTTP/1.1\r\nHost: ");
            }
            silent.push(connection);
            if count > 800 && count % 10 == 0 {
                is_served(address, 1);
            }
        }
        (0..20).for_each(|_| is_served(address, 1));
    }
}

#[test]
fn unfinished_large_bodies_use_little_memory() {
    allow_many_files();
    let system = System::start();
    let address = system.address();
    let head = format!(
        "POST /agents/orchestrator/x HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: 16777216\r\n\r\n"
    );
    let part = vec![b'1'; 256 << 10];
    let mut unfinished = Vec::new();
    for count in 0..1_024 {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
        _ = connection.write_all(head.as_bytes());
        _ = connection.write_all(&part);
        unfinished.push(connection);
        if count % 50 == 0 {
            is_served(address, 5);
        }
    }
    let resident = resident_mb(system.pid("gateway"));
    assert!(resident < 150, "{resident} MB");
    is_served(address, 5);
}

fn resident_mb(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kib: u64 = line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap();
    kib / 1_000
}
