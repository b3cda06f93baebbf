//! Connections: half-closed clients, slow ones, keep-alive, pipelining, bodies, limits, the drain.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::io::Write;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use common::{post, start, start_limited, until};
use serde_json::json;

#[test]
fn a_client_that_shuts_its_write_half_is_answered_200_times_of_200() {
    let running = start();
    for _ in 0..200 {
        let mut client = running.connect();
        client.send(post("/api/echo", r#"{"a":1}"#));
        client.shut_write();
        let answer = client.answer();
        assert_eq!((answer.status, answer.json()), (200, json!({"a": 1})));
        assert!(client.is_ended());
    }
}

#[test]
fn a_half_closed_client_is_answered_while_the_function_waits() {
    let running = start();
    let mut clients: Vec<_> = (0..200).map(|_| running.connect()).collect();
    for client in &mut clients {
        client.send(post("/api/wait", "{}"));
        client.shut_write();
    }
    running.until_waiting(200);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(running.app.waiting.load(SeqCst), 200, "a half-closed client was given up");
    running.app.go.notify_waiters();
    for client in &mut clients {
        assert_eq!(client.answer().json(), json!({"done": true}));
        assert!(client.is_ended());
    }
}

/// Closes with a reset instead of an end.
fn reset(client: common::Client) {
    let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    nix::sys::socket::setsockopt(&client.stream, nix::sys::socket::sockopt::Linger, &linger).unwrap();
}

#[test]
fn a_reset_ends_a_stream() {
    let running = start();
    let mut client = running.connect();
    client.send("GET /api/events?open HTTP/1.1\r\nHost: localhost\r\n\r\n");
    running.until_waiting(1);
    reset(client);
    running.until_waiting(0);
}

#[test]
fn keep_alive_and_close() {
    let running = start();
    let mut client = running.connect();
    for _ in 0..3 {
        client.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(client.answer().status, 200);
    }
    client.send("GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!(client.answer().header("connection"), Some("close"));
    assert!(client.is_ended());
}

#[test]
fn http_1_0_closes_unless_asked_to_stay() {
    let running = start();
    let mut client = running.connect();
    client.send("GET /health HTTP/1.0\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.status, answer.version.as_str()), (200, "HTTP/1.0"));
    assert!(client.is_ended());

    let mut client = running.connect();
    for _ in 0..2 {
        client.send("GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("connection")), (200, Some("keep-alive")));
    }
}

#[test]
fn an_http_1_0_stream_ends_with_its_connection_and_has_no_chunks() {
    let running = start();
    let mut client = running.connect();
    client.send("GET /api/events?count=3&size=2 HTTP/1.0\r\nHost: localhost\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.header("transfer-encoding"), answer.body.as_slice()), (None, &b"dddddd"[..]));
}

#[test]
fn slow_headers_are_408_counted_from_the_first_byte() {
    let running = start_limited(|limits| limits.head_time = Duration::from_millis(300));
    let mut client = running.connect();
    std::thread::sleep(Duration::from_millis(400)); // nothing sent: not counted
    client.send("GET /health HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: mine\r\nX: ");
    for _ in 0..12 {
        std::thread::sleep(Duration::from_millis(50)); // each byte comes soon, the whole does not
        client.try_send("a");
    }
    client.try_send("\r\n\r\n"); // whole, but too late
    let answer = client.answer();
    answer.error(408, "deadline");
    assert_eq!((answer.header("x-request-id"), answer.header("connection")), (Some("mine"), Some("close")));
    assert!(client.is_ended());
}

#[test]
fn a_body_that_pauses_is_408() {
    let running = start_limited(|limits| limits.body_pause = Duration::from_millis(300));
    for body in ["Content-Length: 10\r\n\r\n12345", "Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n"] {
        let mut client = running.connect();
        client.send(format!("POST /api/echo HTTP/1.1\r\nHost: localhost\r\n{body}"));
        let answer = client.answer();
        answer.error(408, "deadline");
        assert_eq!(answer.header("connection"), Some("close"));
        assert!(client.is_ended());
    }
}

#[test]
fn a_slow_body_that_never_pauses_is_taken() {
    let running = start_limited(|limits| limits.body_pause = Duration::from_millis(500));
    let mut client = running.connect();
    client.send("POST /api/count HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12\r\n\r\n");
    for _ in 0..12 {
        std::thread::sleep(Duration::from_millis(80));
        client.send("x");
    }
    assert_eq!(client.answer().json(), json!({"bytes": 12}));
}

#[test]
fn an_idle_connection_is_closed() {
    let running = start_limited(|limits| limits.idle = Duration::from_millis(200));
    assert!(running.connect().is_ended());
    let mut client = running.connect();
    client.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(client.answer().status, 200);
    assert!(client.is_ended());
}

#[test]
fn a_waiting_function_is_not_idle() {
    let running = start_limited(|limits| limits.idle = Duration::from_millis(100));
    assert_eq!(running.get("/api/sleep?ms=500").json(), json!(500));
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let running = start();
    let mut client = running.connect();
    let mut all = String::new();
    for number in 0..200 {
        all += &post("/api/echo", &number.to_string());
        all += "POST /api/count HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    }
    client.send(all);
    for number in 0..200 {
        assert_eq!(client.answer().json(), json!(number));
        assert_eq!(client.answer().json(), json!({"bytes": 3}));
    }
}

#[test]
fn garbage_behind_a_request_is_answered_after_it() {
    let running = start();
    for garbage in ["\x16\x03\x01\x02", "hello\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "\r\n\nGET / HTTP/1.1"] {
        let mut client = running.connect();
        client.send(post("/api/echo", "7") + garbage);
        client.shut_write();
        assert_eq!(client.answer().json(), json!(7));
        let answer = client.answer();
        answer.error(400, "invalid");
        assert_eq!(answer.header("connection"), Some("close"));
        assert!(client.is_ended(), "{garbage:?}");
    }
}

#[test]
fn empty_lines_before_a_request_are_passed_over() {
    let running = start();
    let mut client = running.connect();
    client.send(post("/api/echo", "1") + "\r\n" + &post("/api/echo", "2"));
    assert_eq!((client.answer().json(), client.answer().json()), (json!(1), json!(2)));
}

#[test]
fn a_request_may_come_byte_by_byte() {
    let running = start();
    let mut client = running.connect();
    let request =
        "POST /api/count HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    for byte in request.bytes() {
        client.send([byte]);
    }
    assert_eq!(client.answer().json(), json!({"bytes": 3}));
    client.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(client.answer().status, 200);
}

#[test]
fn expect_continue() {
    let running = start();
    let mut client = running.connect();
    client.send("POST /api/count HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    assert_eq!(client.answer().status, 100);
    client.send("abc");
    assert_eq!(client.answer().json(), json!({"bytes": 3}));

    let mut client = running.connect();
    client
        .send("POST /api/count HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 9999999\r\n\r\n");
    client.answer().error(413, "too_large");
}

#[test]
fn body_limits_count_before_the_body_is_read() {
    let running = start();
    let mebibyte = 1 << 20;
    let answer = running.post("/api/count", &"x".repeat(mebibyte));
    assert_eq!(answer.json(), json!({"bytes": mebibyte}));

    let mut client = running.connect();
    client.send(format!("POST /api/count HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", mebibyte + 1));
    let answer = client.answer();
    answer.error(413, "too_large");
    assert_eq!(answer.header("connection"), Some("close"));
    assert!(client.is_ended());

    let answer = running.post("/agents/orchestrator/x", "");
    assert_eq!(answer.status, 202);
    let mut client = running.connect();
    let agent = "POST /agents/orchestrator/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    client.send(format!("{agent}Content-Length: {}\r\n\r\n", (16 << 20) + 1));
    client.answer().typed_error(413, "payload_too_large");
}

#[test]
fn an_oversized_body_that_is_sent_all_the_same_does_not_lose_the_answer() {
    let running = start();
    for _ in 0..20 {
        let mut client = running.connect();
        client.try_send(post("/api/count", &"x".repeat(3 << 20)));
        client.answer().error(413, "too_large");
    }
}

#[test]
fn chunks_are_counted_as_they_come() {
    let running = start();
    let mut client = running.connect();
    client.send("POST /api/count HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    for _ in 0..17 {
        client.try_send(format!("10000\r\n{}\r\n", "x".repeat(65_536)));
    }
    client.answer().error(413, "too_large");
}

#[test]
fn sixteen_mebibytes_pass_where_they_may() {
    let running = start();
    let body = format!("\"{}\"", "x".repeat((16 << 20) - 2));
    let request = format!(
        "POST /agents/orchestrator/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    assert_eq!(running.ask(&request).status, 202);
}

#[test]
fn a_small_body_that_nobody_reads_keeps_the_connection() {
    let running = start();
    let mut client = running.connect();
    for _ in 0..3 {
        client.send(post("/api/unread", r#"{"a":"b"}"#));
        let answer = client.answer();
        answer.error(409, "conflict");
        assert_eq!(answer.header("connection"), None);
    }
    for unread in [post("/api/unread", &"x".repeat(100_000)), chunked("/api/unread")] {
        let mut client = running.connect();
        client.try_send(unread);
        let answer = client.answer();
        answer.error(409, "conflict");
        assert_eq!(answer.header("connection"), Some("close"));
        assert!(client.is_ended());
    }
}

fn chunked(path: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
}

#[test]
fn headers_of_16_kib_are_taken_and_more_are_431() {
    let running = start();
    let request = |size: usize| {
        let start = "GET /health HTTP/1.1\r\nHost: localhost\r\nx: ";
        format!("{start}{}\r\n\r\n", "y".repeat(size - start.len() - 4))
    };
    assert_eq!(running.ask(&request(16_384)).status, 200);
    for size in [16_385, 40_000, 2_000_000] {
        let mut client = running.connect();
        client.try_send(request(size));
        client.answer().error(431, "too_large");
    }
    let many = "a: b\r\n".repeat(100);
    running.ask(&format!("GET /health HTTP/1.1\r\nHost: localhost\r\n{many}\r\n")).error(431, "too_large");
    let fewer = "a: b\r\n".repeat(99);
    assert_eq!(running.ask(&format!("GET /health HTTP/1.1\r\nHost: localhost\r\n{fewer}\r\n")).status, 200);
}

#[test]
fn the_connection_that_is_idle_for_longest_makes_room() {
    let running = start_limited(|limits| limits.connections = 3);
    let mut waiting = running.connect();
    waiting.send("GET /api/wait HTTP/1.1\r\nHost: localhost\r\n\r\n");
    running.until_waiting(1);
    let mut used = running.connect();
    // One whose headers never end is as idle as one that says nothing.
    let mut begun = running.connect();
    begun.send("GET /health HTTP/1.1\r\nHost: loc");
    // Its answer makes this one younger than the other.
    used.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(used.answer().status, 200);
    assert_eq!(running.get("/health").status, 200);
    assert!(begun.is_closed());
    used.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(used.answer().status, 200, "it was not the oldest");
    running.app.go.notify_waiters();
    assert_eq!(waiting.answer().json(), json!({"done": true}));
}

#[test]
fn when_every_connection_has_a_request_a_new_one_is_429() {
    let running = start_limited(|limits| limits.connections = 8);
    let mut held: Vec<_> = (0..8).map(|_| running.connect()).collect();
    for client in &mut held {
        client.send("GET /api/events?open HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    running.until_waiting(8);
    for _ in 0..3 {
        let mut refused = running.connect();
        let answer = refused.answer();
        answer.error(429, "busy");
        assert_eq!((answer.header("retry-after"), answer.header("connection")), (Some("1"), Some("close")));
        assert!(refused.is_ended());
    }
    reset(held.remove(0));
    until(|| {
        let mut client = running.connect();
        client.try_send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
        client.answer().status == 200
    });
}

#[test]
fn unfinished_bodies_share_one_budget() {
    let running = start_limited(|limits| limits.body_memory = 4 << 20);
    let agent = "POST /agents/orchestrator/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let mebibyte = format!("\"{}\"", "x".repeat((1 << 20) - 2));
    let mut first = running.connect();
    first.send(format!("{agent}Content-Length: {}\r\n\r\n", mebibyte.len()));
    let (begin, end) = mebibyte.split_at(500_000);
    first.send(begin);
    until(|| {
        let mut other = running.connect();
        other.send(format!("{agent}Content-Length: 20000\r\n\r\n"));
        other.try_send("1".repeat(20_000));
        let answer = other.answer();
        // The first one may not have been seen yet.
        if answer.status == 429 {
            answer.error(429, "busy");
            assert_eq!((answer.header("retry-after"), answer.header("connection")), (Some("1"), Some("close")));
        }
        answer.status == 429
    });
    let mut chunked = running.connect();
    chunked.send(format!("{agent}Transfer-Encoding: chunked\r\n\r\n"));
    chunked.try_send(format!("8000\r\n{}\r\n", "1".repeat(0x8000)));
    chunked.answer().error(429, "busy");
    // Small bodies are taken all the same, and the first one is taken when it is complete.
    assert_eq!(running.post("/api/echo", "1").json(), json!(1));
    first.send(end);
    assert_eq!(first.answer().status, 202);
    let again = format!("{agent}Content-Length: {}\r\n\r\n{mebibyte}", mebibyte.len());
    assert_eq!(running.ask(&again).status, 202);
}

#[test]
fn a_body_that_trickles_is_408() {
    let running = start_limited(|limits| limits.body_rate_time = Duration::from_secs(1));
    for body in ["Content-Length: 9000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n1000\r\n"] {
        let mut client = running.connect();
        client.send(format!("POST /api/count HTTP/1.1\r\nHost: localhost\r\n{body}"));
        client.stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        // Never a pause, and never as much as 1 KiB in a second.
        for _ in 0..500 {
            client.try_send("x");
            if client.stream.peek(&mut [0]).is_ok() {
                break;
            }
        }
        client.stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        client.answer().error(408, "deadline");
    }
    // A body may come in pieces, as long as they are large enough.
    let mut client = running.connect();
    client.send("POST /api/count HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20000\r\n\r\n");
    for _ in 0..10 {
        client.send("x".repeat(2_000));
        std::thread::sleep(Duration::from_millis(250));
    }
    assert_eq!(client.answer().json(), json!({"bytes": 20_000}));
}

#[test]
fn long_responses_over_the_limit_are_429() {
    let running = start_limited(|limits| limits.long_responses = 2);
    let mut held: Vec<_> = (0..2).map(|_| running.connect()).collect();
    held[0].send("GET /api/wait HTTP/1.1\r\nHost: localhost\r\n\r\n");
    held[1].send("GET /api/events?open HTTP/1.1\r\nHost: localhost\r\n\r\n");
    running.until_waiting(2);
    let answer = running.get("/api/wait");
    answer.error(429, "busy");
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(answer.json()["retry_after_ms"], 1_000);
    assert_eq!(running.get("/health").status, 200);
    drop(held);
    until(|| {
        running.app.go.notify_waiters();
        running.app.waiting.load(SeqCst) == 0
    });
}

#[test]
fn a_drain_answers_waiting_callers_ends_streams_and_accepts_nothing_new() {
    let mut running = start();
    let mut waiting = running.connect();
    waiting.send("GET /api/wait HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut stream = running.connect();
    stream.send("GET /api/events?open&count=1&size=3 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut idle = running.connect();
    idle.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(idle.answer().status, 200);
    let mut begun = running.connect();
    begun.send("GET /health HTTP/1.1\r\nHost: loc");
    let mut busy = running.connect();
    busy.send(
        "GET /api/sleep?ms=300 HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    );
    running.until_waiting(2);
    std::thread::sleep(Duration::from_millis(50));
    running.stop();
    std::thread::sleep(Duration::from_millis(50));

    let answer = waiting.answer();
    assert_eq!((answer.status, answer.header("connection")), (202, Some("close")));
    assert!(waiting.is_ended());
    assert_eq!(stream.answer().body, b"dddevent: control\n");
    assert!(stream.is_ended() && idle.is_ended());
    begun.send("alhost\r\n\r\n");
    let answer = begun.answer();
    answer.error(503, "unavailable");
    assert_eq!((answer.header("connection"), answer.header("retry-after")), (Some("close"), Some("1")));
    assert_eq!(busy.answer().json(), json!(300));
    assert!(busy.is_ended());
    running.join();
}

#[test]
fn a_drain_ends_even_if_a_function_does_not() {
    let mut running = start_limited(|limits| limits.drain = Duration::from_millis(200));
    let mut client = running.connect();
    client.send("GET /api/sleep?ms=60000 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.stream.flush().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    running.stop();
    running.join();
    assert!(client.is_ended());
}
