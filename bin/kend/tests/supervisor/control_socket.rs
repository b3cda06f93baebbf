//! The control socket keeps the promises of ken-wire(5).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::common::Home;
use ken_wire::conformance::{Subject, check};
use serde_json::json;

#[test]
fn conformance() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"hang\"]\n");
    let child = home.command(&[]).spawn().unwrap();
    let socket = home.path("run/kend.sock");
    crate::common::until("kend listens", || UnixStream::connect(&socket).is_ok());
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

/// The processor time that a process has used so far, in clock ticks (proc_pid_stat(5)).
fn ticks(pid: nix::unistd::Pid) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit(") ").next().unwrap().split(' ');
    fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
}

/// The replies of a caller that does not read fill kend's buffer, so that its next line is not read either. When its time has
/// passed, kend neither spins nor takes itself for suspended, which would switch the watchdogs off.
#[test]
fn a_caller_that_reads_nothing_and_leaves_a_line_unfinished_disturbs_nobody() {
    let others = (0..8).map(|n| format!("[part.b{n}]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n"));
    let home = Home::new(&format!(
        "[part.a]\ncommand = [\"PROBE\", \"ready\", \"alive-for:14000\", \"hang\"]\nwatchdog_ms = 2000\n{}",
        others.collect::<String>()
    ));
    let kend = home.start();
    let mut caller = UnixStream::connect(home.path("run/kend.sock")).unwrap();
    const REQUESTS: usize = 2_000;
    let request = "{\"id\":1,\"op\":\"parts.status\"}\n";
    caller.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    // Its own buffer holds what kend no longer reads.
    let text = format!("{}{{\"id\":", request.repeat(REQUESTS));
    caller.write_all(text.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(11_500));
    let before = ticks(kend.pid());
    std::thread::sleep(Duration::from_secs(1));
    let used = ticks(kend.pid()) - before;
    assert!(used < 30, "{used} ticks of a hundred");
    crate::common::until("the watchdog ends the part", || !kend.part("a")["deaths"].as_array().unwrap().is_empty());
    // When it reads, it gets all its replies.
    caller.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let replies = BufReader::new(caller).lines().take(REQUESTS);
    assert!(replies.map(Result::unwrap).filter(|line| line.contains("\"ok\"")).count() == REQUESTS);
}

#[test]
fn sockets_are_their_owners_alone() {
    let home =
        Home::new("[part.a]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\nsockets = { wire = { unix = \"a.sock\" } }\n");
    let kend = home.start();
    kend.journal();
    let mode = |name: &str| std::fs::metadata(home.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("run"), 0o700);
    for name in ["run/kend.sock", "run/notify.sock", "run/a.sock"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    assert_eq!(mode("state/log"), 0o700);
    assert_eq!(mode("state/log/kend.log"), 0o600);
}
