//! Who may call: the matrix of signs and secrets, and the rate limits.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Running, start, start_with};
use ken_http::{Access, Clock, Limiter, Rate, Server, Trust};
use parking_lot::Mutex;

const LOCAL: &str = "Host: localhost\r\n";
const FOREIGN: &str = "Host: ken.example\r\n";

fn get(running: &Running, path: &str, headers: &str) -> common::Answer {
    running.ask(&format!("GET {path} HTTP/1.1\r\n{headers}\r\n"))
}

#[test]
fn local_callers_need_no_secret_and_a_wrong_one_does_not_hurt() {
    let running = start();
    for headers in ["", "X-Api-Secret: wrong\r\n", "Origin: http://localhost\r\n"] {
        assert_eq!(get(&running, "/api/who", &format!("{LOCAL}{headers}")).json(), "Local", "{headers}");
    }
    assert_eq!(running.ask("GET /api/who HTTP/1.0\r\nHost: localhost\r\n\r\n").json(), "Local");
    running.ask("GET /api/who HTTP/1.0\r\n\r\n").error(401, "unauthenticated");
}

#[test]
fn each_sign_of_a_remote_sender_requires_the_secret() {
    let running =
        start_with(|_| {}, |server| Server { wrong_secrets: Limiter::new(Rate::per_minute(1_000)), ..server });
    for signs in [
        FOREIGN,
        "Host: localhost\r\nX-Forwarded-For: 127.0.0.1\r\n",
        "Host: localhost\r\nForwarded: for=127.0.0.1\r\n",
        "Host: localhost\r\nX-Real-IP: ::1\r\n",
        "Host: localhost\r\nX-Forwarded-For:\r\n",
        "Host: localhost\r\nVia: 1.1 proxy\r\n",
        "Host: localhost\r\nOrigin: https://evil.example\r\n",
        "Host: localhost\r\nOrigin: null\r\n",
        "Host: localhost\r\nOrigin: http://localhost:5173\r\n",
        "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n",
    ] {
        for path in ["/api/who", "/api/none", "/api", "/agents/orchestrator/x", "/streams/x", "/%61pi/who"] {
            let at = get(&running, path, signs).error(401, "unauthenticated");
            assert_eq!(at.as_deref(), Some("x-api-secret"));
            get(&running, path, &format!("{signs}X-Api-Secret: wrong\r\n")).error(401, "unauthenticated");
            let twice = format!("{signs}X-Api-Secret: s3cret\r\nX-Api-Secret: s3cret\r\n");
            get(&running, path, &twice).error(401, "unauthenticated");
        }
        let right = format!("{signs}X-Api-Secret: s3cret\r\n");
        assert_eq!(get(&running, "/api/who", &right).json(), "Operator");
        get(&running, "/api/none", &right).error(404, "not_found");
        assert_eq!(get(&running, "/health", signs).status, 200);
        get(&running, "/none", signs).error(404, "not_found");
    }
}

#[test]
fn without_a_configured_secret_callers_from_elsewhere_are_refused() {
    let running = start_with(|_| {}, |server| Server { access: Access::new(Some(" ")), ..server });
    for secret in ["", "X-Api-Secret: \r\n", "X-Api-Secret: s3cret\r\n"] {
        get(&running, "/api/who", &format!("{FOREIGN}{secret}")).error(403, "forbidden");
        get(&running, "/api/who", &format!("{LOCAL}Origin: null\r\n{secret}")).error(403, "forbidden");
        get(&running, "/api/who", &format!("{LOCAL}Via: 1.1 proxy\r\n{secret}")).error(503, "unavailable");
    }
    assert_eq!(get(&running, "/api/who", LOCAL).json(), "Local");
}

#[test]
fn where_loopback_is_not_trusted_every_caller_needs_the_secret() {
    let untrusted =
        |access| start_with(|_| {}, |server| Server { access: Access { trust: Trust::Nobody, ..access }, ..server });
    let running = untrusted(Access::new(Some("s3cret")));
    for headers in [LOCAL, FOREIGN] {
        get(&running, "/api/who", headers).error(401, "unauthenticated");
        let right = format!("{headers}X-Api-Secret: s3cret\r\n");
        assert_eq!(get(&running, "/api/who", &right).json(), "Operator");
    }
    assert_eq!(get(&running, "/health", LOCAL).status, 200);
    get(&untrusted(Access::new(None)), "/api/who", LOCAL).error(503, "unavailable");
}

#[test]
fn wrong_secrets_count_against_their_own_caller() {
    let running = start_with(|_| {}, |server| Server { wrong_secrets: Limiter::new(Rate::per_minute(1)), ..server });
    let ask = |from: &str| {
        let mut client = running.connect_from(from);
        client.send(format!("GET /api/who HTTP/1.1\r\n{FOREIGN}X-Api-Secret: wrong\r\n\r\n"));
        client.answer()
    };
    ask("127.0.0.1").error(401, "unauthenticated");
    ask("127.0.0.1").error(429, "busy");
    // Every program of this machine has all of its loopback addresses.
    ask("127.0.0.2").error(429, "busy");
}

#[test]
fn the_check_comes_before_route_and_body() {
    let running = start();
    let mut client = running.connect();
    client.send(format!("POST /api/none HTTP/1.1\r\n{FOREIGN}Content-Length: 9999999\r\n\r\n"));
    client.answer().error(401, "unauthenticated");
    assert!(client.is_ended());
}

/// A clock that the test turns.
fn clock() -> (Clock, Arc<Mutex<Duration>>) {
    let hand = Arc::new(Mutex::new(Duration::ZERO));
    let (start, turned) = (Instant::now(), hand.clone());
    (Arc::new(move || start + *turned.lock()), hand)
}

#[test]
fn wrong_secrets_are_limited_and_right_ones_are_not() {
    let (clock, hand) = clock();
    let limiter = Limiter::with_clock(Rate::per_minute(20), clock);
    let running = start_with(|_| {}, |server| Server { wrong_secrets: limiter, ..server });
    let ask = |secret: &str| get(&running, "/api/who", &format!("{FOREIGN}X-Api-Secret: {secret}\r\n"));
    for _ in 0..20 {
        ask("wrong").error(401, "unauthenticated");
    }
    let answer = ask("wrong");
    answer.error(429, "busy");
    assert_eq!(answer.header("retry-after"), Some("3"));
    assert_eq!(ask("s3cret").json(), "Operator");
    *hand.lock() += Duration::from_millis(3_001);
    ask("wrong").error(401, "unauthenticated");
    ask("wrong").error(429, "busy");
}

#[test]
fn a_limited_route_reports_its_limit() {
    let running = start();
    let ask = || get(&running, "/api/few", &format!("{FOREIGN}X-Api-Secret: s3cret\r\n"));
    for left in ["2", "1", "0"] {
        let answer = ask();
        assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (200, Some(left)));
        assert_eq!(answer.header("x-ratelimit-limit"), Some("3"));
        assert!(answer.header("x-ratelimit-reset").unwrap().parse::<u64>().unwrap() <= 60);
    }
    let answer = ask();
    answer.error(429, "busy");
    assert_eq!((answer.header("retry-after"), answer.header("x-ratelimit-remaining")), (Some("20"), Some("0")));
    // Others are not touched, nor are local callers.
    assert_eq!(get(&running, "/api/who", &format!("{FOREIGN}X-Api-Secret: s3cret\r\n")).status, 200);
    for _ in 0..5 {
        let answer = get(&running, "/api/few", LOCAL);
        assert_eq!((answer.status, answer.header("x-ratelimit-limit")), (200, None));
    }
}

#[test]
fn local_callers_are_limited_if_configured() {
    let running = start_with(|_| {}, |server| Server { limit_loopback: true, ..server });
    for _ in 0..3 {
        assert_eq!(get(&running, "/api/few", LOCAL).status, 200);
    }
    get(&running, "/api/few", LOCAL).error(429, "busy");
}
