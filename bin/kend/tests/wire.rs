//! The control socket keeps the promises of ken-wire(5).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::os::unix::fs::PermissionsExt;

use common::Home;
use ken_wire::conformance::{Subject, check};
use serde_json::json;

#[test]
fn conformance() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"hang\"]\n");
    let child = home.command(&[]).spawn().unwrap();
    let socket = home.path("run/kend.sock");
    common::until("kend is up", || socket.exists());
    let subject = Subject {
        socket,
        slow: Some(("parts.wait_ready", json!({}))),
    };
    let failed = check(&subject);
    assert_eq!(failed, [""; 0]);
    let mut child = child;
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn sockets_are_their_owners_alone() {
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\nsockets = { wire = { unix = \"a.sock\" } }\n",
    );
    let _kend = home.start();
    let mode = |name: &str| std::fs::metadata(home.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("run"), 0o700);
    for name in ["run/kend.sock", "run/notify.sock", "run/a.sock"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    assert_eq!(mode("state/log"), 0o700);
    assert_eq!(mode("state/log/kend.log"), 0o600);
}
