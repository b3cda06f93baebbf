//! Answers that take long: frames as they are written, back-pressure, readers that stop.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use common::{Running, start, start_limited, until};
use ken_http::{Outlet, SharedFrame, WriteResult};

#[test]
fn each_frame_is_one_chunk_and_the_end_closes() {
    let running = start();
    let mut client = running.connect();
    client.send("GET /api/events?count=3&size=4 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let head = client.head().checked();
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    assert_eq!((head.header("cache-control"), head.header("connection")), (Some("no-cache"), Some("close")));
    assert_eq!((head.header("transfer-encoding"), head.header("content-length")), (Some("chunked"), None));
    for _ in 0..3 {
        assert_eq!(client.chunk(), b"dddd");
    }
    assert_eq!(client.chunk(), b"");
    assert!(client.is_ended());
}

#[test]
fn frames_are_sent_while_the_producer_continues() {
    let running = start();
    let mut client = running.connect();
    client.send("GET /api/events?count=1&size=4&open HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.head();
    assert_eq!(client.chunk(), b"dddd");
    running.until_waiting(1);
}

#[test]
fn a_stream_continues_for_a_client_that_shut_its_write_half() {
    let running = start();
    let mut client = running.connect();
    client.send("GET /api/events?count=200&size=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.shut_write();
    assert_eq!(client.answer().body.len(), 200_000);
}

#[test]
fn a_reader_that_does_not_read_stops_its_producer_and_nobody_else() {
    let running = start();
    let mut stalled: Vec<_> = (0..20).map(|_| running.connect()).collect();
    for client in &mut stalled {
        client.send("GET /api/events?count=1000000&size=100000 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    running.until_waiting(20);
    let mut last = usize::MAX;
    until(|| {
        std::thread::sleep(Duration::from_millis(50));
        let now = running.app.frames.load(SeqCst);
        std::mem::replace(&mut last, now) == now
    });
    // What was made lies in the kernel's buffers: some megabytes each, not the hundred gigabytes asked for.
    assert!(last < 20 * 200, "{last} frames were made for readers that do not read");
    assert_eq!(running.get("/health").status, 200);
    assert_eq!(running.get("/api/events?count=50&size=1000").body.len(), 50_000);
}

#[test]
fn a_reader_that_does_not_read_for_too_long_is_closed() {
    let running = start_limited(|limits| limits.stalled_reader = Duration::from_millis(300));
    let mut client = running.connect();
    client.send("GET /api/events?count=1000000&size=100000 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    running.until_waiting(1);
    running.until_waiting(0);
}

#[test]
fn a_slow_reader_that_goes_on_reading_is_not_closed() {
    use std::io::Read;
    let running = start_limited(|limits| limits.stalled_reader = Duration::from_millis(500));
    let mut client = running.connect();
    client.send("GET /api/events?count=100&size=1000000 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut buffer = vec![0; 4 << 20];
    for _ in 0..12 {
        std::thread::sleep(Duration::from_millis(100));
        assert!(client.stream.read(&mut buffer).unwrap() > 0);
    }
    assert_eq!(running.app.waiting.load(SeqCst), 1);
}

/// The outlet of the only shared stream, once its first frame has left.
fn outlet(running: &Running) -> Outlet {
    until(|| !running.app.outlets.lock().is_empty());
    running.app.outlets.lock().remove(0)
}

#[test]
fn a_shared_frame_is_a_chunk_between_others_and_bare_in_http_1_0() {
    let running = start();
    let frame = SharedFrame::of(&[b"sha", b"red"]);
    assert_eq!(frame.bytes(), "shared");
    let mut client = running.connect();
    client.send("GET /api/shared HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.head();
    let way = outlet(&running);
    for _ in 0..3 {
        assert_eq!(way.send(&frame), WriteResult::Whole);
    }
    running.app.go.notify_one();
    for expected in ["first", "shared", "shared", "shared", "last", ""] {
        assert_eq!(client.chunk(), expected.as_bytes());
    }
    assert!(client.is_ended());

    let mut client = running.connect();
    client.send("GET /api/shared HTTP/1.0\r\nHost: localhost\r\n\r\n");
    assert_eq!(outlet(&running).send(&frame), WriteResult::Whole);
    running.app.go.notify_one();
    assert_eq!(client.answer().body, b"firstsharedlast");
}

#[test]
fn the_rest_of_a_shared_frame_is_sent_before_anything_else() {
    let running = start();
    let frame = SharedFrame::of(&[&[b'x'; 100_000]]);
    let mut client = running.connect();
    client.send("GET /api/shared HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let way = outlet(&running);
    let mut taken = 0;
    let last = loop {
        match way.send(&frame) {
            WriteResult::Whole => taken += 1,
            other => break other,
        }
    };
    assert_eq!(way.send(&frame), WriteResult::Nothing);
    taken += usize::from(last == WriteResult::Part);
    running.app.go.notify_one();
    client.head();
    assert_eq!(client.chunk(), b"first");
    for _ in 0..taken {
        assert_eq!(&client.chunk(), frame.bytes());
    }
    assert_eq!((client.chunk(), client.chunk()), (b"last".to_vec(), Vec::new()));
}

#[test]
fn a_reader_that_does_not_finish_a_shared_frame_in_time_is_closed() {
    let running = start_limited(|limits| limits.stalled_reader = Duration::from_millis(300));
    let frame = SharedFrame::of(&[&[b'x'; 100_000]]);
    let mut client = running.connect();
    client.send("GET /api/shared HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let way = outlet(&running);
    while way.send(&frame) == WriteResult::Whole {}
    running.app.go.notify_one();
    running.until_waiting(0);
}
