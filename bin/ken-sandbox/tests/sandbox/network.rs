//! A command with the network reaches public addresses and what is named, and nothing else of this machine or its network.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use crate::common::{Kernel, World, users};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Everything that takes an address, and every kind of socket that would hide one.
const ATTEMPTS: [&str; 21] = [
    "tcp-connect", "tcp-mapped", "tcp-race", "tcp-fast-open", "tcp-fast-open-send", "tcp-fast-open-unaddressed",
    "tcp-listen", "tcp-listen-anywhere", "tcp-route", "metadata-service", "udp-send", "udp-message", "udp-messages",
    "mptcp", "sctp", "ping", "raw", "packet", "netlink", "unix", "unix-abstract",
];

#[test]
fn no_private_address_is_reached_with_the_network() {
    let kernels = [Kernel::This, Kernel::WithoutNamespaces, Kernel::Landlock(2)];
    for (user, kernel) in users().into_iter().flat_map(|user| kernels.map(|kernel| (user, kernel))) {
        let world = World::on(kernel, user);
        let mut reached = Vec::new();
        for attempt in ATTEMPTS {
            let output = world.probe_with(&["--network"], attempt);
            if output.status.code() != Some(1) {
                reached.push(format!("{attempt}: {output:?}"));
            }
        }
        assert!(reached.is_empty(), "as {user:?} with {kernel:?}:\n{}", reached.join("\n"));
        let named = format!("127.0.0.1:{}", world.port());
        // With named addresses alone not even the own port can be chosen.
        for attempt in ["udp", "tcp-listen", "tcp-listen-anywhere"] {
            let output = world.probe_with(&["--reach", &named], attempt);
            assert_eq!(output.status.code(), Some(1), "as {user:?}: {attempt}: {output:?}");
            let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output_text.contains("Operation not permitted"), "{attempt}: {output_text}");
        }
        // What is named is reached, by the same ways.
        for attempt in ["tcp-connect", "tcp-mapped", "udp-send", "udp-message"] {
            let output = world.probe_with(&["--network", "--reach", &named], attempt);
            assert!(output.status.success(), "as {user:?} with {kernel:?}: {attempt}: {output:?}");
        }
    }
}

/// The supervisor makes the calls: what they do and give back is what the command would have seen without it.
#[test]
fn a_named_address_is_all_that_is_reached() {
    reaches_the_named_address(&World::new(None));
    reaches_the_named_address(&World::on(Kernel::Landlock(2), None));
}

fn reaches_the_named_address(world: &World) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let named = server.local_addr().unwrap().to_string();
    let port = server.local_addr().unwrap().port();
    let serving = std::thread::spawn(move || {
        let (mut connection, _) = server.accept().unwrap();
        let mut query = [0; 4];
        connection.read_exact(&mut query).unwrap();
        connection.write_all(b"pong").unwrap();
        query
    });
    let script = format!(
        "for other in 127.0.0.1/{} 127.0.0.2/{port} 1.1.1.1/443; do (exec 3<>/dev/tcp/$other) 2>&1 && echo reached $other; done; \
         exec 3<>/dev/tcp/127.0.0.1/{port} && printf ping >&3 && cat <&3",
        world.port()
    );
    let output = world.sandbox(&["--reach", &named, "--timeout", "20"], &["bash", "-c", &script]).output().unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output_text.ends_with("pong") && !output_text.contains("reached"), "{output:?}");
    assert_eq!(output_text.matches("connect: Permission denied").count(), 3, "{output_text}");
    assert_eq!(&serving.join().unwrap(), b"ping");
}

/// Only calls that name an address wait for the supervisor: what goes to a peer that is connected is as quick as anywhere.
#[test]
fn a_send_to_a_connected_peer_does_not_ask_the_supervisor() {
    let world = World::new(None);
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let named = server.local_addr().unwrap().to_string();
    let script = format!(
        "import socket; peer = socket.create_connection(('127.0.0.1', {})); peer.send(b'up'); peer.recv(2); peer.send(b'ping'); peer.recv(3)",
        server.local_addr().unwrap().port()
    );
    let mut sandbox = world.sandbox(&["--reach", &named, "--timeout", "60"], &["python3", "-c", &script]);
    // The interpreter of the system, which the sandbox can read.
    let mut sandbox = sandbox.env("PATH", "/usr/bin:/bin").spawn().unwrap();
    let supervisor = Pid::from_raw(i32::try_from(sandbox.id()).unwrap());
    let (mut peer, _) = server.accept().unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // Only now has the supervisor answered the call of connect.
    peer.read_exact(&mut [0; 2]).unwrap();
    kill(supervisor, Signal::SIGSTOP).unwrap();
    peer.write_all(b"go").unwrap();
    let mut sent = [0; 4];
    let read = peer.read_exact(&mut sent);
    kill(supervisor, Signal::SIGCONT).unwrap();
    read.unwrap();
    assert_eq!(&sent, b"ping");
    peer.write_all(b"end").unwrap();
    assert!(sandbox.wait().unwrap().success());
}

#[test]
fn only_addresses_are_named() {
    let world = World::new(None);
    for wrong in ["localhost:80", "127.0.0.1:", "10.0.0.0/40", ""] {
        let output = world.sandbox(&["--reach", wrong], &["true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{wrong}: {output:?}");
        let output_text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output_text.contains("--reach"), "{output_text}");
    }
}
