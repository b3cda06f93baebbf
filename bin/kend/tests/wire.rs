//! The control socket keeps the promises of ken-wire(5).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use common::Home;
use ken_wire::conformance::{Subject, check};
use serde_json::json;

#[test]
fn conformance() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"hang\"]\n");
    let child = home.command(&[]).spawn().unwrap();
    let socket = home.path("run/kend.sock");
    common::until("kend listens", || UnixStream::connect(&socket).is_ok());
    let subject = Subject { socket, slow: Some(("parts.wait_ready", json!({}))) };
    let failed = check(&subject);
    assert_eq!(failed, [""; 0]);
    let mut child = child;
    child.kill().unwrap();
    child.wait().unwrap();
}

/// As with `printf … | nc -NU kend.sock`: the caller sends a request and shuts down its write half.
#[test]
fn a_caller_that_shuts_its_write_half_is_answered() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n");
    let _kend = home.start();
    for op in ["parts.status", "parts.wait_ready"].repeat(50) {
        let mut stream = UnixStream::connect(home.path("run/kend.sock")).unwrap();
        stream.write_all(format!("{{\"id\":1,\"op\":\"{op}\"}}\n").as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("{\"id\":1,\"ok\":{") && answer.ends_with("}\n"), "{op}: {answer:?}");
    }
}

#[test]
fn sockets_are_their_owners_alone() {
    let home =
        Home::new("[part.a]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\nsockets = { wire = { unix = \"a.sock\" } }\n");
    let _kend = home.start();
    let mode = |name: &str| std::fs::metadata(home.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("run"), 0o700);
    for name in ["run/kend.sock", "run/notify.sock", "run/a.sock"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    assert_eq!(mode("state/log"), 0o700);
    assert_eq!(mode("state/log/kend.log"), 0o600);
}
