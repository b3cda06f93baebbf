//! The test suite that every daemon must pass (ken-wire(5), "Conformance"). It uses plain bytes over a blocking socket,
//! so that it shares no code with the implementation that it tests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ken_types::limits::{WIRE_LINE_BYTES, WIRE_OPEN_REQUESTS};
use serde_json::{Value, json};

/// The daemon under test.
#[derive(Debug, Clone)]
pub struct Subject {
    pub socket: PathBuf,
    /// If the daemon has one: an operation and arguments with which a call takes seconds. Used to check cancellation
    /// and deadlines.
    pub slow: Option<(&'static str, Value)>,
}

/// The result of a check. The error describes the observed behaviour that violates the protocol.
pub type CheckResult = Result<(), String>;

/// A check and its name.
pub type Check = (&'static str, fn(&Subject) -> CheckResult);

/// All checks.
pub const CHECKS: [Check; 13] = [
    ("info, ping and stats are answered", answers_the_common_operations),
    ("an unknown operation is not_found", refuses_an_unknown_operation),
    ("an unknown field is invalid and named", names_an_unknown_field),
    ("a malformed line is invalid and the next one is answered", survives_malformed_lines),
    ("nesting deeper than 64 is invalid", refuses_deep_nesting),
    ("an over-long line is too_large, then the connection closes", closes_after_an_over_long_line),
    ("a line in single bytes is a line", joins_single_bytes),
    ("1 000 pipelined requests have 1 000 answers", answers_pipelined_requests),
    ("a cancelled request ends as cancelled", cancels),
    ("a passed deadline ends as deadline", keeps_deadlines),
    ("the 65th open request is busy at once", bounds_open_requests),
    ("a peer that never reads stalls only itself", survives_a_peer_that_never_reads),
    ("an end in mid-line is dropped", drops_a_begun_line),
];

/// Runs all checks, and returns the names and reasons of those that failed.
pub fn check(subject: &Subject) -> Vec<String> {
    let failed = CHECKS.iter().filter_map(|(name, check)| check(subject).err().map(|why| format!("{name}: {why}")));
    failed.collect()
}

struct Peer {
    to: UnixStream,
    from: BufReader<UnixStream>,
}

impl Peer {
    fn connect(subject: &Subject) -> Result<Peer, String> {
        let to = UnixStream::connect(&subject.socket).map_err(|error| format!("connect: {error}"))?;
        let limit = Some(Duration::from_secs(10));
        let from = to.try_clone().map_err(text)?;
        to.set_write_timeout(limit).map_err(text)?;
        from.set_read_timeout(limit).map_err(text)?;
        Ok(Peer { to, from: BufReader::new(from) })
    }

    fn send(&mut self, bytes: &[u8]) -> CheckResult {
        self.to.write_all(bytes).map_err(|error| format!("write: {error}"))
    }

    fn request(&mut self, request: &Value) -> CheckResult {
        self.send(format!("{request}\n").as_bytes())
    }

    fn line(&mut self) -> Result<Value, String> {
        let mut line = String::new();
        match self.from.read_line(&mut line) {
            Ok(0) => Err("the connection was closed".to_owned()),
            Ok(_) => serde_json::from_str(&line).map_err(|error| format!("{line:?} is no JSON: {error}")),
            Err(error) => Err(format!("read: {error}")),
        }
    }

    /// Returns the next final line. Items of streaming operations are skipped.
    fn last_line(&mut self) -> Result<Value, String> {
        loop {
            let line = self.line()?;
            if line.get("item").is_none() {
                return Ok(line);
            }
        }
    }

    fn ask(&mut self, request: &Value) -> Result<Value, String> {
        self.request(request)?;
        self.last_line()
    }

    fn expect_closed(mut self) -> CheckResult {
        let mut rest = Vec::new();
        match self.from.read_to_end(&mut rest) {
            Ok(0) => Ok(()),
            // The peer has closed the connection with unread bytes in its buffer. This causes a reset, which counts as closed.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(()),
            other => Err(format!("not closed: {other:?}")),
        }
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn expect(line: &Value, pointer: &str, wanted: &Value) -> CheckResult {
    let found = line.pointer(pointer).unwrap_or(&Value::Null);
    if found == wanted { Ok(()) } else { Err(format!("{pointer} is {found} instead of {wanted} in {line}")) }
}

fn ping(id: u64) -> Value {
    json!({"id": id, "op": "service.ping"})
}

fn answers_the_common_operations(subject: &Subject) -> CheckResult {
    let mut peer = Peer::connect(subject)?;
    let info = peer.ask(&json!({"id": 1, "op": "service.info", "args": {}}))?;
    expect(&info, "/ok/wire", &json!(1))?;
    let ops = info.pointer("/ok/ops").and_then(Value::as_array).cloned().unwrap_or_default();
    for name in ["service.info", "service.ping", "service.stats"] {
        if !ops.contains(&json!(name)) {
            return Err(format!("service.info does not list {name}"));
        }
        let answer = peer.ask(&json!({"id": 2, "op": name}))?;
        if !answer.pointer("/ok").is_some_and(Value::is_object) {
            return Err(format!("{name}: {answer}"));
        }
    }
    Ok(())
}

fn refuses_an_unknown_operation(subject: &Subject) -> CheckResult {
    let answer = Peer::connect(subject)?.ask(&json!({"id": 7, "op": "no.such", "args": {}}))?;
    expect(&answer, "/id", &json!(7))?;
    expect(&answer, "/error/code", &json!("not_found"))
}

fn names_an_unknown_field(subject: &Subject) -> CheckResult {
    let mut peer = Peer::connect(subject)?;
    let answer = peer.ask(&json!({"id": 1, "op": "service.ping", "args": {"surplus": 1}}))?;
    expect(&answer, "/error/code", &json!("invalid"))?;
    expect(&answer, "/error/at", &json!("/args/surplus"))
}

fn survives_malformed_lines(subject: &Subject) -> CheckResult {
    let mut peer = Peer::connect(subject)?;
    for bad in
        ["nonsense", "", "[]", "{\"id\":1", "{\"id\":1,\"id\":2,\"op\":\"service.ping\"}", "\u{0}", "{\"op\":\"x\"}"]
    {
        peer.send(format!("{bad}\n").as_bytes())?;
        expect(&peer.line()?, "/error/code", &json!("invalid"))?;
    }
    peer.send(b"\xff\xfe\n")?;
    expect(&peer.line()?, "/error/code", &json!("invalid"))?;
    expect(&peer.ask(&ping(9))?, "/id", &json!(9))
}

fn refuses_deep_nesting(subject: &Subject) -> CheckResult {
    let mut peer = Peer::connect(subject)?;
    let deep = format!("{{\"id\":1,\"op\":\"service.ping\",\"args\":{}{}}}\n", "[".repeat(64), "]".repeat(64));
    peer.send(deep.as_bytes())?;
    expect(&peer.line()?, "/error/code", &json!("invalid"))
}

fn closes_after_an_over_long_line(subject: &Subject) -> CheckResult {
    let mut peer = Peer::connect(subject)?;
    // The peer may close the connection before everything is written; only its reply matters.
    _ = peer.send(&vec![b'x'; WIRE_LINE_BYTES + 1]);
    expect(&peer.line()?, "/error/code", &json!("too_large"))?;
    peer.expect_closed()
}

fn joins_single_bytes(subject: &Subject) -> CheckResult {
    let mut peer = Peer::connect(subject)?;
    for byte in format!("{}\n", ping(5)).bytes() {
        peer.send(&[byte])?;
    }
    expect(&peer.line()?, "/id", &json!(5))
}

/// Sends requests in batches of the maximum number of open requests, because a daemon answers any more with `busy`.
fn answers_pipelined_requests(subject: &Subject) -> CheckResult {
    let mut peer = Peer::connect(subject)?;
    let mut seen = std::collections::HashSet::new();
    let window = WIRE_OPEN_REQUESTS as u64;
    for first in (0..1_000).step_by(WIRE_OPEN_REQUESTS) {
        let ids = first..(first + window).min(1_000);
        let lines: String = ids.clone().map(|id| format!("{}\n", ping(id))).collect();
        peer.send(lines.as_bytes())?;
        for _ in ids {
            let answer = peer.line()?;
            expect(&answer, "/ok", &json!({}))?;
            seen.insert(answer.get("id").and_then(Value::as_u64));
        }
    }
    if seen.len() == 1_000 { Ok(()) } else { Err(format!("{} different ids were answered", seen.len())) }
}

fn slow_request(subject: &Subject, id: u64, deadline_ms: u64) -> Option<Value> {
    let (op, args) = subject.slow.clone()?;
    Some(json!({"id": id, "op": op, "args": args, "deadline_ms": deadline_ms}))
}

fn cancels(subject: &Subject) -> CheckResult {
    let Some(slow) = slow_request(subject, 3, 10_000) else {
        return Ok(());
    };
    let mut peer = Peer::connect(subject)?;
    peer.request(&slow)?;
    let answer = peer.ask(&json!({"id": 3, "cancel": true}))?;
    expect(&answer, "/id", &json!(3))?;
    expect(&answer, "/error/code", &json!("cancelled"))?;
    expect(&peer.ask(&ping(4))?, "/id", &json!(4))
}

fn keeps_deadlines(subject: &Subject) -> CheckResult {
    let Some(slow) = slow_request(subject, 3, 50) else {
        return Ok(());
    };
    let begun = Instant::now();
    let answer = Peer::connect(subject)?.ask(&slow)?;
    expect(&answer, "/error/code", &json!("deadline"))?;
    let took = begun.elapsed();
    if took < Duration::from_secs(3) { Ok(()) } else { Err(format!("answered after {took:?}")) }
}

fn bounds_open_requests(subject: &Subject) -> CheckResult {
    let mut peer = Peer::connect(subject)?;
    for id in 0..WIRE_OPEN_REQUESTS as u64 {
        let Some(slow) = slow_request(subject, id, 10_000) else {
            return Ok(());
        };
        peer.request(&slow)?;
    }
    let answer = peer.ask(&ping(1_000))?;
    expect(&answer, "/id", &json!(1_000))?;
    expect(&answer, "/error/code", &json!("busy"))?;
    match answer.pointer("/error/retry_after_ms").and_then(Value::as_u64) {
        Some(_) => Ok(()),
        None => Err("busy without retry_after_ms".to_owned()),
    }
}

fn survives_a_peer_that_never_reads(subject: &Subject) -> CheckResult {
    let mut deaf = Peer::connect(subject)?;
    deaf.to.set_write_timeout(Some(Duration::from_millis(300))).map_err(text)?;
    let line = format!("{}\n", json!({"id": 1, "op": "service.info"})).repeat(100);
    let mut written = 0;
    while deaf.to.write_all(line.as_bytes()).is_ok() {
        written += line.len();
        if written > 64 * 1024 * 1024 {
            return Err("64 MiB of requests were taken from a peer that reads no answer".to_owned());
        }
    }
    expect(&Peer::connect(subject)?.ask(&ping(2))?, "/id", &json!(2))
}

fn drops_a_begun_line(subject: &Subject) -> CheckResult {
    let mut peer = Peer::connect(subject)?;
    peer.send(b"{\"id\":1,\"op\":\"service.ping\"")?;
    peer.to.shutdown(Shutdown::Write).map_err(text)?;
    peer.expect_closed()?;
    expect(&Peer::connect(subject)?.ask(&ping(2))?, "/id", &json!(2))
}
