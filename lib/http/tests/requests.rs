//! Requests and answers: ids and headers, paths, methods, queries, JSON, media types, envelopes.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{post, start};
use serde_json::json;

fn request(line: &str, headers: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n")
}

#[test]
fn every_answer_has_the_same_headers() {
    let running = start();
    for path in ["/health", "/nothing", "/none", "/api/none", "/api/defect", "/api/few", "/api/events?count=1"] {
        let answer = running.get(path).checked();
        let expected = if path.starts_with("/api/events") { "no-cache" } else { "no-store" };
        assert_eq!(answer.header("cache-control"), Some(expected), "{path}");
    }
}

#[test]
fn the_request_id_is_the_callers_or_a_ulid() {
    let running = start();
    for id in ["a", "{\"weird\":1}", &"x".repeat(128)] {
        let answer = running.ask(&request("GET /health", &format!("X-Request-Id: {id}\r\n")));
        assert_eq!(answer.header("x-request-id"), Some(id));
    }
    let too_long = "x".repeat(129);
    for id in ["", "a b", too_long.as_str()] {
        let answer = running.ask(&request("GET /health", &format!("X-Request-Id: {id}\r\n")));
        let own = answer.header("x-request-id").unwrap();
        assert!(own.len() == 26 && own.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{own}");
    }
    let ids: std::collections::HashSet<_> =
        (0..50).map(|_| running.get("/health").header("x-request-id").unwrap().to_owned()).collect();
    assert_eq!(ids.len(), 50);
    let refused = running.ask("GET / HTTP/1.1\r\nX-Request-Id: mine\r\n\r\n");
    assert_eq!((refused.status, refused.header("x-request-id")), (400, Some("mine")));
}

#[test]
fn head_is_get_without_a_body() {
    let running = start();
    let mut client = running.connect();
    client.send(request("HEAD /health", ""));
    let head = client.answer_to("HEAD").checked();
    client.send(request("GET /health", ""));
    let get = client.answer();
    assert_eq!((head.status, head.header("content-length")), (200, get.header("content-length")));
    assert_eq!(head.header("content-type"), get.header("content-type"));
    client.send(request("HEAD /none", ""));
    assert_eq!(client.answer_to("HEAD").status, 404);
    client.send(request("HEAD /api/echo", ""));
    assert_eq!(client.answer_to("HEAD").header("allow"), Some("POST"));
}

#[test]
fn unknown_paths_are_404() {
    let running = start();
    for path in
        ["/none", "/health/", "//health", "/health/x", "/api", "/api/", "/api/items", "/api/items/", "/api/items//"]
    {
        assert_eq!(running.get(path).error(404, "not_found"), None, "{path}");
    }
    running.get("/agents/orchestrator").typed_error(404, "route_not_found");
    running.get("/streams/a//b").typed_error(404, "route_not_found");
}

#[test]
fn other_methods_are_405_with_allow() {
    let running = start();
    let answer = running.ask(&request("DELETE /health", ""));
    answer.error(405, "invalid");
    assert_eq!(answer.header("allow"), Some("GET, HEAD"));
    let answer = running.ask(&request("GET /agents/orchestrator/x", ""));
    answer.typed_error(405, "method_not_allowed");
    assert_eq!(answer.header("allow"), Some("POST"));
    running.ask(&request("BREW /health", "")).error(405, "invalid");
}

#[test]
fn segments_are_decoded_once_and_literals_have_priority() {
    let running = start();
    assert_eq!(running.get("/api/items/a%2Fb%2541").json()["path"], "a/b%41");
    assert_eq!(running.get("/api/items/special").json(), json!({"ok": true}));
    assert_eq!(running.get("/api/items/speci%61l").json(), json!({"ok": true}));
    for bad in ["/api/items/%", "/api/items/%g0", "/api/items/%ff"] {
        running.get(bad).error(400, "invalid");
    }
}

#[test]
fn query_parameters() {
    let running = start();
    assert_eq!(running.get("/api/items/a").json()["limit"], 50);
    assert_eq!(running.get("/api/items/a?limit=100&other=1&other=2").json()["limit"], 100);
    for bad in [
        "limit=", "limit", "limit=0", "limit=101", "limit=+5", "limit=5a", "limit=-1", "limit=5&limit=5",
        "limit=99999999999999999999",
    ] {
        let at = running.get(&format!("/api/items/a?{bad}")).error(400, "invalid");
        assert_eq!(at.as_deref(), Some("?limit"), "{bad}");
    }
    running.get("/api/items/a?x=%zz").error(400, "invalid");
}

#[test]
fn json_is_read_strictly() {
    let running = start();
    let deep = "[".repeat(64) + &"]".repeat(64);
    assert_eq!(running.post("/api/echo", &deep).status, 200);
    let deeper = "[".repeat(65) + &"]".repeat(65);
    for bad in ["{", "{\"a\":1,\"a\":2}", "\"\\u0000\"", "1 2", "nul", deeper.as_str(), "\u{feff}{}"] {
        running.post("/api/echo", bad).error(400, "invalid");
    }
    let mut client = running.connect();
    client.send(b"POST /api/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n\"\xff\"");
    client.answer().error(400, "invalid");
}

#[test]
fn no_body_and_an_empty_object_are_equivalent() {
    let running = start();
    for body in ["", "{}", " { } "] {
        assert_eq!(running.post("/api/pause", body).status, 200, "{body:?}");
    }
    assert_eq!(running.post("/api/pause", r#"{"a/b":1}"#).error(400, "invalid").as_deref(), Some("/a~1b"));
    running.post("/api/pause", "[]").error(400, "invalid");
}

#[test]
fn media_types() {
    let running = start();
    let with = |path: &str, media: &str| {
        running.ask(&format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{media}Content-Length: 2\r\n\r\n{{}}"))
    };
    for good in ["", "Content-Type: application/json\r\n", "Content-Type: Application/JSON ; charset=utf-8\r\n"] {
        assert_eq!(with("/api/echo", good).status, 200, "{good}");
    }
    for bad in ["text/plain", "application/jsonx", "application/x-www-form-urlencoded", ""] {
        let answer = with("/api/echo", &format!("Content-Type: {bad}\r\n"));
        assert_eq!(answer.error(415, "invalid").as_deref(), Some("content-type"), "{bad}");
    }
    with("/agents/orchestrator/x", "").typed_error(415, "unsupported_media_type");
    with("/agents/orchestrator/x", "Content-Type: text/plain\r\n").typed_error(415, "unsupported_media_type");
    assert_eq!(with("/agents/orchestrator/x", "Content-Type: application/json\r\n").status, 202);
    assert_eq!(running.post("/agents/orchestrator/x", "").json()["body"], json!({}));
    // The name comes before the media type.
    with("/agents/other/x", "").typed_error(404, "agent_not_found");
    let put = "PUT /streams/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nContent-Length: 2\r\n\r\nab";
    assert_eq!(running.ask(put).status, 200);
}

/// Also where the body may have any type.
#[test]
fn a_compressed_body_is_refused() {
    let running = start();
    for coding in ["gzip", "deflate", "br", "identity, gzip", "", "GZIP"] {
        for path in ["POST /api/echo", "PUT /streams/a"] {
            let answer = running.ask(&format!(
                "{path} HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: {coding}\r\nContent-Length: 2\r\n\r\n{{}}"
            ));
            assert_eq!((answer.status, answer.header("accept-encoding")), (415, Some("identity")), "{path} {coding}");
        }
    }
    let one = "Host: localhost\r\nContent-Encoding: Identity\r\nContent-Length: 2\r\n\r\n{}";
    assert_eq!(running.ask(&format!("POST /api/echo HTTP/1.1\r\n{one}")).status, 200);
    // Without a body, nothing is encoded.
    let none = "POST /api/pause HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(running.ask(none).status, 200);
}

#[test]
fn malformed_json_has_its_own_type_in_the_typed_envelope() {
    let running = start();
    let body = "POST /agents/orchestrator/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1\r\n\r\n{";
    running.ask(body).typed_error(400, "invalid_json");
}

#[test]
fn a_defect_names_only_its_log_line() {
    let running = start();
    let answer = running.ask(&request("GET /api/defect", "X-Request-Id: line-7\r\n"));
    answer.error(500, "internal");
    let body = answer.json();
    assert!(body["error"].as_str().unwrap().contains("line-7"), "{body}");
    assert!(!body.to_string().contains("hunter2"), "{body}");
}

#[test]
fn a_cancelled_turn_is_499() {
    let running = start();
    let answer = running.get("/api/cancelled");
    answer.error(499, "cancelled");
    assert!(answer.json()["result"].is_null());
}

#[test]
fn an_empty_answer_has_no_body_and_keeps_the_connection() {
    let running = start();
    let mut client = running.connect();
    for _ in 0..2 {
        client.send(request("GET /nothing", ""));
        let answer = client.answer().checked();
        assert_eq!((answer.status, answer.header("content-length")), (204, None));
    }
    client.send(post("/api/echo", "1"));
    assert_eq!(client.answer().json(), 1);
}
