//! What is not a request gets 400 (or 431) in JSON, and the end of the connection; never silence, never an answer that
//! means something.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{post, start};

/// Each is refused at the head, whose own tests have the rest: here is one of each kind, and what looks like another protocol.
const HEADS: &[&str] = &[
    "GET / HTTP/1.1\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
    "GET / HTTP/1.1\nHost: a\n\n",
    "GET / HTTP/1.1\r\nHost: a\r\n\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX: b\rc\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX: b\0c\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX: é\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
    "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\nx",
    "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    // A length of nothing is one, too: whoever goes by it takes the chunks for the next request.
    "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\x0bchunked\r\n\r\n",
    "GET\r\n\r\n",
    "GET http:/a HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET http://a:b:c/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "G@T / HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET / HTTP/0.9\r\nHost: a\r\n\r\n",
    "GET / HTTP/1.10\r\nHost: a\r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "\x16\x03\x01\x02\x00\x01\x00\x01\u{fc}",
    "\n",
    "\0",
    "{\"text\":\"hi\"}\n",
];

#[test]
fn malformed_heads_are_400_in_json_and_the_end() {
    let running = start();
    for head in HEADS {
        let mut client = running.connect();
        client.try_send(head);
        client.try_send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let answer = client.answer();
        answer.error(400, "invalid");
        assert_eq!(answer.header("connection"), Some("close"), "{head:?}");
        assert!(client.is_ended(), "{head:?}");
    }
    assert_eq!(running.get("/health").status, 200);
}

#[test]
fn a_head_that_ends_early_is_400() {
    let running = start();
    let whole = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for end in 1..whole.len() {
        let mut client = running.connect();
        client.send(&whole[..end]);
        client.shut_write();
        client.answer().error(400, "invalid");
        assert!(client.is_ended());
    }
}

#[test]
fn malformed_bodies_are_400_and_the_end() {
    let running = start();
    let chunked =
        |body: &str| format!("POST /api/echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
    for request in [
        chunked("x\r\n"),
        chunked("\r\n"),
        chunked("5\nhello\r\n0\r\n\r\n"),
        chunked("5\r\nhelloworld"),
        chunked("-5\r\nhello\r\n0\r\n\r\n"),
        chunked("ffffffffffffffffff\r\n"),
        chunked("5;\0\r\nhello\r\n0\r\n\r\n"),
        chunked(&format!("5;{}\r\nhello\r\n0\r\n\r\n", "e".repeat(10_000))),
        chunked("2\r\n{}\r\n0\r\nx: é\r\n\r\n"),
    ] {
        let mut client = running.connect();
        client.try_send(&request);
        let answer = client.answer();
        answer.error(400, "invalid");
        assert_eq!(answer.header("connection"), Some("close"), "{request:?}");
        assert!(client.is_ended(), "{request:?}");
    }
    for request in [chunked("5\r\nhel"), chunked("2\r\n{}\r\n"), post("/api/echo", "{\"a\":1}")] {
        let mut client = running.connect();
        client.send(&request[..request.len() - 1]);
        client.shut_write();
        client.answer().error(400, "invalid");
        assert!(client.is_ended(), "{request:?}");
    }
}

/// Each byte at each place of a good request: answered or refused in JSON, by this crate and not by hyper, and the
/// listener lives on.
#[test]
fn one_wrong_byte_anywhere_is_answered_in_json() {
    let running = start();
    let whole = b"POST /api/echo?a=b HTTP/1.1\r\nHost: localhost\r\nX-A: b\r\nContent-Length: 2\r\n\r\n{}";
    let head = whole.len() - 2;
    for byte in [0u8, b'\n', b'\r', b' ', b'\t', b':', b'"', b'/', b'%', b'?', b'<', b'`', b'^', b'0', b'\x7f', b'\xff']
    {
        for place in 0..head {
            let mut request = whole.to_vec();
            request[place] = byte;
            let mut client = running.connect();
            client.send(&request);
            client.shut_write();
            let answer = client.answer().checked();
            assert!(matches!(answer.status, 200 | 400 | 401 | 404 | 405 | 429), "{answer:?}");
            answer.json();
        }
    }
}
