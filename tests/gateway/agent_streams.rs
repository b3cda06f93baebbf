//! GET and HEAD /agents/:name/:id: catch-up, long poll, server-sent events.

use std::time::{Duration, Instant};

use ken_tests::{Answer, Client, System, scripted, scripted_builder};
use serde_json::{Value, json};

const X: &str = "/agents/orchestrator/x";
const START: &str = "-1";
const BEYOND: &str = "0000000000000000_9999999999999999";

fn prompt(system: &System, message: &str) {
    system.post(&format!("{X}?wait=result"), &json!({"message": message})).expect(200);
}

fn read(system: &System, query: &str) -> Answer {
    system.get(&format!("{X}?{query}")).expect(200)
}

fn count(answer: &Answer) -> usize {
    answer.json().as_array().unwrap().len()
}

fn place(count: usize) -> String {
    format!("0000000000000000_{count:016}")
}

fn next(answer: &Answer) -> &str {
    answer.header("stream-next-offset").unwrap()
}

#[test]
fn streams() {
    let system = scripted();
    wrong(&system);
    catch_up(&system);
    etags(&system);
    long_polls(&system);
    frames(&system);
    empty(&system);
    pages(&system);
}

/// Requests with several errors: the answer is 400 for the first error in the order of the contract. These checks
/// precede 404.
fn wrong(system: &System) {
    for (query, at) in [
        ("offset=1&offset=x&tail=0&tail=1&live=x", "?offset"),
        ("offset=bad&tail=0&tail=1&live=x", "?tail"),
        ("offset=bad&tail=0&live=x", "?tail"),
        ("offset=bad&tail=01&live=x", "?tail"),
        ("offset=bad&tail=-1", "?tail"),
        ("offset=bad&tail=", "?tail"),
        ("tail=0&offset=now", "?tail"),
        ("live=x", "?offset"),
        ("live=sse", "?offset"),
        ("live=x&offset=bad", "?live"),
        ("live=&offset=bad", "?live"),
        ("live=SSE&offset=-1", "?live"),
        ("offset=bad", "?offset"),
        ("offset=", "?offset"),
        ("offset=-2", "?offset"),
        ("offset=1", "?offset"),
        ("offset=0_1_2", "?offset"),
        ("offset=NOW", "?offset"),
    ] {
        let target = format!("/agents/orchestrator/nobody?{query}");
        system.get(&target).refused(400, "invalid_request", at);
        let mut client = system.client();
        client.request("HEAD", &target).send().expect(400);
    }
    system.get("/agents/worker/x?offset=bad").refused(404, "agent_not_found", "");
    for query in ["", "offset=now", "offset=-1&live=sse", "offset=-1&live=long-poll", "offset=-1&tail=3"] {
        let target = format!("/agents/orchestrator/nobody?{query}");
        system.get(&target).refused(404, "stream_not_found", "");
    }
    let mut client = system.client();
    client.request("HEAD", "/agents/orchestrator/nobody").send().expect(404);
}

/// The number of events of a plain turn.
const TURN: usize = 15;

fn catch_up(system: &System) {
    prompt(system, "hello");
    let whole = read(system, "");
    let length = count(&whole);
    assert_eq!(length, TURN);
    assert_eq!((next(&whole), whole.header("stream-up-to-date")), (place(TURN).as_str(), Some("true")));
    assert_eq!((whole.header("content-type"), whole.header("stream-closed")), (Some("application/json"), None));
    assert_eq!(whole.header("cache-control"), Some("no-store"));
    for (query, expected) in [
        ("offset=-1", TURN),
        ("offset=0_3", TURN - 3),
        ("offset=now", 0),
        ("offset=now&tail=5", 0),
        ("other=1&other=2", TURN),
    ] {
        let answer = read(system, query);
        assert_eq!((count(&answer), next(&answer)), (expected, place(TURN).as_str()), "{query}");
        assert_eq!(answer.header("stream-up-to-date"), Some("true"));
    }
    // Only the events after the third.
    assert_eq!(read(system, &format!("offset={}", place(3))).at("/0"), whole.at("/3"));
    // An offset beyond the end is treated as the end.
    for query in [format!("offset={BEYOND}"), "offset=5_0".into(), format!("offset={}", place(TURN))] {
        let answer = read(system, &query);
        assert_eq!((answer.body.as_slice(), next(&answer)), (&b"[]"[..], place(TURN).as_str()), "{query}");
    }
    for (tail, expected) in [("1", 1), ("5", 5), ("15", TURN), ("99999999999999999999999", TURN)] {
        let answer = read(system, &format!("offset=-1&tail={tail}"));
        assert_eq!((count(&answer), next(&answer)), (expected, place(TURN).as_str()), "{tail}");
        assert_eq!(answer.at(&format!("/{}", expected - 1)), whole.at(&format!("/{}", TURN - 1)));
    }
    // An error has the common headers too.
    let error = system.get(&format!("{X}?offset=bad"));
    assert_eq!(error.header("cache-control"), Some("no-store"));
}

fn etags(system: &System) {
    let etag = |query: &str| read(system, query).header("etag").map(str::to_owned);
    let whole = etag("").unwrap();
    assert!(whole.starts_with('"'), "{whole} is not strong");
    assert_eq!(etag("offset=now"), None);
    assert_eq!(etag("offset=-1").as_ref(), Some(&whole));
    assert_ne!(etag("offset=0_3").as_ref(), Some(&whole));
    let ask = |target: &str, known: &str| {
        let mut client = system.client();
        client.request("GET", target).header("If-None-Match", known).send()
    };
    for known in [whole.clone(), format!("\"x\", {whole}"), format!("W/{whole}"), "*".into()] {
        let answer = ask(X, &known).expect(304);
        assert_eq!((answer.body.as_slice(), answer.header("etag")), (&b""[..], Some(whole.as_str())));
        assert_eq!(next(&answer), place(TURN));
    }
    ask(X, "\"x\"").expect(200);
    ask(&format!("{X}?offset=0_3"), &whole).expect(200);
    // Another stream of the same length has another ETag.
    system.post("/agents/orchestrator/y?wait=result", &json!({"message": "hello"})).expect(200);
    let other = system.get("/agents/orchestrator/y").expect(200);
    assert_ne!(other.header("etag"), Some(whole.as_str()));
    let mut client = system.client();
    let head = client.request("HEAD", X).send().expect(200);
    assert_eq!((next(&head), head.header("stream-up-to-date")), (place(TURN).as_str(), Some("true")));
    assert!(head.header("etag").is_some());
    prompt(system, "hello");
    ask(X, &whole).expect(200);
    let later = client.request("HEAD", X).send().expect(200);
    assert_ne!(later.header("etag"), head.header("etag"));
}

/// The number of the current interval (20 s each, counted from 2024-10-09).
fn interval() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    (now.as_secs() - 1_728_432_000) / 20
}

fn long_polls(system: &System) {
    // Data is returned at once.
    let there = read(system, "offset=-1&live=long-poll");
    assert_eq!((count(&there), next(&there)), (2 * TURN, place(2 * TURN).as_str()));
    let cursor: u64 = there.header("stream-cursor").unwrap().parse().unwrap();
    assert!(interval().abs_diff(cursor) <= 1, "{cursor}");
    // If the client's cursor is not smaller than the current one, the answer has a larger cursor.
    for given in [cursor, cursor + 1_000] {
        let answer = read(system, &format!("offset=-1&live=long-poll&cursor={given}"));
        let beyond: u64 = answer.header("stream-cursor").unwrap().parse().unwrap();
        assert!((given + 1..=given + 180).contains(&beyond), "{given} {beyond}");
    }
    let unknown = read(system, "offset=-1&live=long-poll&cursor=abc");
    assert!(interval().abs_diff(unknown.header("stream-cursor").unwrap().parse().unwrap()) <= 1);
    // Without data it waits until there is some.
    let address = system.address();
    let poll = |query: &'static str| {
        std::thread::spawn(move || Client::connect(address).checked_by_contract().get(&format!("{X}?{query}")))
    };
    let (waiting, at_end) = (poll("offset=now&live=long-poll"), poll("offset=0_30&live=long-poll"));
    std::thread::sleep(Duration::from_millis(100));
    prompt(system, "hello");
    for answer in [waiting, at_end].map(|poll| poll.join().unwrap().expect(200)) {
        assert!(count(&answer) >= 1 && answer.at("/0/type") == "operation_start");
        assert!(answer.header("stream-cursor").is_some());
    }
    // It also waits across a restart of the store.
    let waiting = poll("offset=now&live=long-poll");
    std::thread::sleep(Duration::from_millis(100));
    system.kill("store");
    prompt(system, "hello");
    waiting.join().unwrap().expect(200);
}

/// Frames, byte for byte.
fn frames(system: &System) {
    // The events fit into one frame; a longer log would be split.
    let whole = read(system, "offset=-1&tail=5");
    let events = whole.body.clone();
    let events = String::from_utf8(events).unwrap();
    let end = next(&whole).to_owned();
    let mut client = Client::connect(system.address());
    client.request("GET", &format!("{X}?offset=-1&tail=5&live=sse")).start();
    let (status, headers) = client.head().unwrap();
    let header = |name: &str| headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    assert_eq!((status, header("content-type")), (200, Some("text/event-stream")));
    assert_eq!((header("cache-control"), header("transfer-encoding")), (Some("no-cache"), Some("chunked")));
    assert!(header("content-length").is_none() && header("etag").is_none());
    assert!(!headers.iter().any(|(name, _)| name.starts_with("stream-")), "{headers:?}");
    let mut text = String::new();
    while text.matches("\n\n").count() < 2 {
        text += std::str::from_utf8(&client.chunk().unwrap()).unwrap();
    }
    let (data, control) = text.split_once("\n\n").unwrap();
    assert_eq!(data, format!("id: {end}\nevent: data\ndata:{events}"));
    let control = control.strip_suffix("\n\n").unwrap();
    let cursor = control.split("streamCursor\":\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(interval().abs_diff(cursor.parse().unwrap()) <= 1);
    let expected = format!(
        "event: control\ndata:{{\"streamNextOffset\":\"{}\",\"streamCursor\":\"{cursor}\",\"upToDate\":true}}",
        end
    );
    assert_eq!(control, expected);
    // If there is no data, only a control frame is sent.
    let mut stream = system.attach(&format!("{X}?offset=now&live=sse"));
    let frame = stream.frame().unwrap();
    assert_eq!((frame.kind(), &frame.data()["streamNextOffset"]), ("control", &json!(end)));
    // A control frame follows every live data frame, and a later reader gets the same data.
    prompt(system, "think");
    let (mut seen, mut last) = (Vec::new(), "");
    while seen.last().is_none_or(|event: &Value| event["type"] != "submission_settled") || last == "data" {
        let frame = stream.frame().unwrap();
        last = match frame.kind() {
            "data" => {
                assert_ne!(last, "data", "two data frames without a control frame");
                seen.extend(frame.data().as_array().unwrap().iter().cloned());
                "data"
            }
            kind => {
                assert_eq!(kind, "control");
                "control"
            }
        };
    }
    assert_eq!(json!(seen), read(system, &format!("offset={}", end)).json());
    // A heartbeat is a comment. When the gateway stops, it sends a last control frame and completes the response.
    system.signal("gateway", nix::sys::signal::Signal::SIGTERM);
    let frame = stream.frame().expect("a last frame");
    assert_eq!(frame.kind(), "control");
    assert!(stream.frame().is_none());
    ken_tests::until("the gateway is back", || {
        system.client().request("GET", "/ready").try_send().is_ok_and(|answer| answer.status == 200)
    });
}

fn empty(system: &System) {
    let session = system.session();
    let target = format!("/agents/orchestrator/{session}");
    for query in ["", "?offset=-1", "?offset=now", "?offset=0_9"] {
        let answer = system.get(&format!("{target}{query}")).expect(200);
        assert_eq!((answer.body.as_slice(), next(&answer)), (&b"[]"[..], START), "{query}");
        assert_eq!(answer.header("stream-up-to-date"), Some("true"));
    }
    let mut client = system.client();
    assert_eq!(next(&client.request("HEAD", &target).send().expect(200)), START);
    let mut stream = system.attach(&format!("{target}?offset=-1&live=sse"));
    assert_eq!(stream.frame().unwrap().data()["streamNextOffset"], START);
}

/// A page has at most 100 events and 1 MiB, but at least one event.
fn pages(system: &System) {
    for _ in 0..6 {
        prompt(system, "tools");
    }
    let first = read(system, "");
    assert_eq!((count(&first), next(&first)), (100, place(100).as_str()));
    assert_eq!(first.header("stream-up-to-date"), None);
    let (mut seen, mut offset) = (Vec::new(), START.to_owned());
    loop {
        let page = read(system, &format!("offset={offset}"));
        seen.extend(page.json().as_array().unwrap().iter().cloned());
        offset = next(&page).to_owned();
        if page.header("stream-up-to-date").is_some() {
            break;
        }
    }
    // The frames contain the same events, and only the last control frame has `upToDate`.
    let mut stream = system.attach(&format!("{X}?offset=-1&live=sse"));
    let mut events = Vec::new();
    loop {
        let control = stream.until_control(&mut events);
        assert_eq!(control["streamNextOffset"], json!(place(events.len())));
        match control.get("upToDate") {
            Some(_) => break,
            None => assert!(events.len() < seen.len()),
        }
    }
    assert_eq!(events, seen);
    let last = read(system, "offset=-1&tail=250");
    assert_eq!(count(&last), 100.min(seen.len()));
    assert_eq!(last.at("/0"), seen[seen.len().saturating_sub(250)]);
}

/// Without data, a long poll ends after 30 s, and an event stream sends heartbeats.
#[test]
fn silence() {
    let system = scripted();
    let session = system.session();
    let target = format!("/agents/orchestrator/{session}?offset=now");
    let mut stream = system.attach(&format!("{target}&live=sse"));
    let begun = Instant::now();
    let reader = std::thread::spawn(move || {
        let mut frames: Vec<(Duration, String)> = Vec::new();
        while frames.len() < 4 {
            frames.push((begun.elapsed(), stream.frame().unwrap().0));
        }
        frames
    });
    let answer = system.get(&format!("{target}&live=long-poll")).expect(204);
    assert!(begun.elapsed() > Duration::from_secs(25));
    assert_eq!((next(&answer), answer.header("stream-up-to-date")), (START, Some("true")));
    assert!(answer.header("stream-cursor").is_some() && answer.header("stream-closed").is_none());
    let frames = reader.join().unwrap();
    let mut after_the_first: Vec<&str> = frames[1..].iter().map(|(_, frame)| frame.lines().next().unwrap()).collect();
    assert_eq!(after_the_first[0], ": heartbeat", "{frames:?}");
    after_the_first.sort_unstable();
    assert_eq!(after_the_first, [": heartbeat", ": heartbeat", "event: control"], "{frames:?}");
}

/// If the maximum number of held connections is reached, further long requests are refused before anything is accepted.
#[test]
fn places_for_long_answers() {
    let system = scripted_builder().config("[limits]\nheld_connections = 1\n").start();
    let session = system.session();
    let target = format!("/agents/orchestrator/{session}?offset=-1");
    let held = system.attach(&format!("{target}&live=sse"));
    for mode in ["sse", "long-poll"] {
        let refused = system.get(&format!("{target}&live={mode}")).refused(429, "busy", "");
        assert!(refused.header("retry-after").is_some());
    }
    system.say(&session, "hello").refused(429, "busy", "");
    let prompt = json!({"message": "hello"});
    let waiting = format!("/agents/orchestrator/{session}?wait=result");
    system.post(&waiting, &prompt).refused(429, "busy", "");
    let seen = system.get(&target).expect(200);
    assert_eq!(seen.body, b"[]", "nothing of this was accepted");
    // A request that does not wait is not limited, and when a held connection ends, another one is accepted.
    system.post(&format!("/agents/orchestrator/{session}"), &prompt).expect(202);
    drop(held);
    ken_tests::until("the place is free", || system.say(&session, "hello").status == 200);
}
