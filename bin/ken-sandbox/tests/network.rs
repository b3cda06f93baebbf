//! A command with the network reaches public addresses and what is named, and nothing else of this machine or its network.

mod common;

use std::io::{Read, Write};
use std::net::TcpListener;

use common::{World, users};

/// Everything that takes an address, and every kind of socket that would hide one.
const ATTEMPTS: [&str; 18] = [
    "tcp-connect",
    "tcp-mapped",
    "tcp-race",
    "tcp-fast-open",
    "tcp-fast-open-send",
    "tcp-route",
    "metadata-service",
    "udp-send",
    "udp-message",
    "udp-messages",
    "mptcp",
    "sctp",
    "ping",
    "raw",
    "packet",
    "netlink",
    "unix",
    "unix-abstract",
];

#[test]
fn no_private_address_is_reached_with_the_network() {
    for user in users() {
        let world = World::new(user);
        let mut reached = Vec::new();
        for attempt in ATTEMPTS {
            let output = world.probe_with(&["--network"], attempt);
            if output.status.code() != Some(1) {
                reached.push(format!("{attempt}: {output:?}"));
            }
        }
        assert!(reached.is_empty(), "as {user:?}:\n{}", reached.join("\n"));
        // What is named is reached, by the same ways.
        let named = format!("127.0.0.1:{}", world.port());
        for attempt in ["tcp-connect", "tcp-mapped", "udp-send", "udp-message"] {
            let output = world.probe_with(&["--network", "--reach", &named], attempt);
            assert!(output.status.success(), "as {user:?}: {attempt}: {output:?}");
        }
    }
}

/// The supervisor makes the calls: what they do and give back is what the command would have seen without it.
#[test]
fn a_named_address_is_all_that_is_reached() {
    let world = World::new(None);
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let named = server.local_addr().unwrap().to_string();
    let port = server.local_addr().unwrap().port();
    let serving = std::thread::spawn(move || {
        let (mut connection, _) = server.accept().unwrap();
        let mut asked = [0; 4];
        connection.read_exact(&mut asked).unwrap();
        connection.write_all(b"pong").unwrap();
        asked
    });
    let script = format!(
        "for other in 127.0.0.1/{} 127.0.0.2/{port} 1.1.1.1/443; do (exec 3<>/dev/tcp/$other) 2>&1 && echo reached $other; done; \
         exec 3<>/dev/tcp/127.0.0.1/{port} && printf ping >&3 && cat <&3",
        world.port()
    );
    let output = world
        .sandbox(&["--reach", &named, "--timeout", "20"], &["bash", "-c", &script])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.ends_with("pong") && !said.contains("reached"), "{output:?}");
    assert_eq!(said.matches("connect: Permission denied").count(), 3, "{said}");
    assert_eq!(&serving.join().unwrap(), b"ping");
}

#[test]
fn only_addresses_are_named() {
    let world = World::new(None);
    for wrong in ["localhost:80", "127.0.0.1:", "10.0.0.0/40", ""] {
        let output = world.sandbox(&["--reach", wrong], &["true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{wrong}: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("--reach"), "{said}");
    }
}
