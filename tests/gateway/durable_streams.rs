//! /streams/*path: logs for other programs, with the public Durable Streams protocol. The public suite (`make torture`) does
//! not cover what is tested here: exact bytes, crashes, restarts, and web pages of other origins.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ken_tests::{Answer, Builder, Client, System, until};
use serde_json::json;

const TEXT: &[(&str, &str)] = &[("Content-Type", "text/plain")];
const JSON: &[(&str, &str)] = &[("Content-Type", "application/json")];
const BYTES: &[(&str, &str)] = &[("Content-Type", "application/octet-stream")];

fn send(client: &mut Client, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let request =
        headers.iter().fold(client.request(method, target), |request, (name, value)| request.header(name, value));
    match method {
        "PUT" | "POST" => request.body(body).send(),
        _ => request.send(),
    }
}

fn put(system: &System, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    send(&mut system.client(), "PUT", target, headers, body)
}

fn post(system: &System, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    send(&mut system.client(), "POST", target, headers, body)
}

fn place(entries: usize) -> String {
    format!("0000000000000000_{entries:016}")
}

#[test]
fn streams_of_other_programs() {
    let system = System::start();
    raw_bytes(&system);
    frames(&system);
    refusals(&system);
    producers(&system);
    pages_and_places(&system);
    types_that_run(&system);
    an_end_ends_its_readers(&system);
}

/// Answers with and without a body, and their headers.
fn raw_bytes(system: &System) {
    let made = put(system, "/streams/raw", TEXT, b"one").expect(201);
    assert_eq!(made.header("location"), Some(format!("{}/streams/raw", system.url()).as_str()));
    assert_eq!(made.header("content-type"), Some("text/plain"));
    assert_eq!(made.header("stream-next-offset"), Some(place(1).as_str()));
    put(system, "/streams/raw", &[("Content-Type", "TEXT/plain; charset=utf-8")], b"").expect(200);
    let read = system.get("/streams/raw").expect(200);
    assert_eq!((read.body.as_slice(), read.header("content-length")), (&b"one"[..], Some("3")));
    let etag = read.header("etag").unwrap().to_owned();
    let same = send(&mut system.client(), "GET", "/streams/raw", &[("If-None-Match", &etag)], b"").expect(304);
    assert_eq!((same.body.len(), same.header("content-length")), (0, None));
    assert_eq!(same.header("etag"), Some(etag.as_str()));

    let head = send(&mut system.client(), "HEAD", "/streams/raw", &[], b"").expect(200);
    assert_eq!((head.body.len(), head.header("content-type")), (0, Some("text/plain")));
    assert_eq!(head.header("stream-next-offset"), Some(place(1).as_str()));
    let closed = post(system, "/streams/raw", &[("Stream-Closed", "true")], b"").expect(204);
    assert_eq!(closed.header("stream-closed"), Some("true"));
    // On a closed stream, a long poll does not wait.
    let target = format!("/streams/raw?live=long-poll&offset={}", place(1));
    let end = system.get(&target).expect(204);
    assert_eq!((end.header("stream-closed"), end.header("content-length")), (Some("true"), None));
    assert_ne!(system.get("/streams/raw").header("etag"), Some(etag.as_str()));

    // A new stream with the same name and length has another ETag.
    system.delete("/streams/raw").expect(204);
    system.delete("/streams/raw").refused(404, "stream_not_found", "");
    put(system, "/streams/raw", TEXT, b"two").expect(201);
    let other = send(&mut system.client(), "GET", "/streams/raw", &[("If-None-Match", &etag)], b"").expect(200);
    assert_eq!(other.body, b"two");
    let ends = &[("Content-Type", "text/plain"), ("Stream-TTL", "60")];
    put(system, "/streams/raw/ttl", ends, b"").expect(201);
    let head = send(&mut system.client(), "HEAD", "/streams/raw/ttl", &[], b"").expect(200);
    assert_eq!((head.header("stream-ttl"), head.header("stream-expires-at")), (Some("60"), None));
    assert_eq!(head.header("stream-next-offset"), Some(place(0).as_str()));
    // The longest time has an end with a date.
    let longest = &[("Content-Type", "text/plain"), ("Stream-TTL", "100000000000")];
    put(system, "/streams/raw/longest", longest, b"").expect(201);
    put(system, "/streams/raw/longest", longest, b"").expect(200);
    let listed = system.get("/streams?prefix=raw/longest").expect(200).text("/streams/0/expiresAt");
    assert!(listed.starts_with("51"), "{listed}");
}

/// The whole response of an event stream, as it is sent.
fn sent(system: &System, target: &str) -> (Vec<(String, String)>, String) {
    let mut client = Client::connect(system.address());
    client.request("GET", target).start();
    let (status, headers) = client.head().unwrap();
    assert_eq!(status, 200);
    let mut text = Vec::new();
    loop {
        match client.chunk().unwrap() {
            chunk if chunk.is_empty() => return (headers, String::from_utf8(text).unwrap()),
            chunk => text.extend(chunk),
        }
    }
}

fn frames(system: &System) {
    let closed = |entries: usize| {
        let offset = place(entries);
        format!("event: control\ndata:{{\"streamNextOffset\":\"{offset}\",\"streamClosed\":true}}\n\n")
    };
    for (name, headers, bodies, data) in [
        ("json", JSON, vec![&b"[1,\n {\"a\": \"b\"}]"[..], b"[[2]]"], "data:[1,{\"a\": \"b\"},[2]]\n"),
        (
            "text",
            TEXT,
            vec![b"a\r\nb\rc", b"\n\ndata:d\n\r\n\r"],
            "data:a\ndata:b\ndata:c\ndata:\ndata:data:d\ndata:\ndata:\ndata:\n",
        ),
        // Readers take away one blank after the colon, and nothing else.
        (
            "blanks",
            TEXT,
            vec![b" one\n  two\n \n", b"\tno blank "],
            "data:  one\ndata:   two\ndata:  \ndata:\tno blank \n",
        ),
        ("bytes", BYTES, vec![b"\x00\xff", b"\r\n"], "data:AP8NCg==\n"),
    ] {
        let target = format!("/streams/frames/{name}");
        put(system, &target, headers, b"").expect(201);
        for body in &bodies {
            post(system, &target, headers, body).expect(204);
        }
        post(system, &target, &[("Stream-Closed", "true")], b"").expect(204);
        let (headers, text) = sent(system, &format!("{target}?offset=-1&live=sse"));
        let entries = if name == "json" { 3 } else { 2 };
        assert_eq!(text, format!("id: {}\nevent: data\n{data}\n{}", place(entries), closed(entries)), "{name}");
        let encoding = headers.iter().find(|(header, _)| header == "stream-sse-data-encoding");
        assert_eq!(encoding.map(|(_, value)| value.as_str()), (name == "bytes").then_some("base64"));
        let (_, text) = sent(system, &format!("{target}?offset=now&live=sse"));
        assert_eq!(text, closed(entries), "{name}");
    }
}

fn refusals(system: &System) {
    put(system, "/streams/no", JSON, b"").expect(201);
    for (headers, body, status, kind, at) in [
        (TEXT, &b"x"[..], 409, "stream_exists", "content-type"),
        (&[][..], b"1", 400, "invalid_request", "content-type"),
        (JSON, b"", 400, "invalid_request", ""),
        (JSON, b"[]", 400, "invalid_request", ""),
        (JSON, b"{", 400, "invalid_json", ""),
        (&[("Content-Type", "application/json"), ("Producer-Id", "p")], b"1", 400, "invalid_request", "producer-id"),
    ] {
        post(system, "/streams/no", headers, body).refused(status, kind, at);
    }
    let refused = post(system, "/streams/no", &[("Content-Type", "json")], b"1");
    let refused = refused.refused(400, "invalid_request", "content-type").body_text();
    assert!(refused.contains("must have the form type/subtype"), "{refused}");
    for (bytes, status) in [(1_024, 200), (1_025, 400)] {
        let id = "p".repeat(bytes);
        let headers = [JSON[0], ("Producer-Id", id.as_str()), ("Producer-Epoch", "0"), ("Producer-Seq", "0")];
        assert_eq!(post(system, "/streams/no", &headers, b"1").status, status, "{bytes}");
    }
    for (header, value, at) in [
        ("Stream-TTL", "01", "stream-ttl"),
        ("Stream-TTL", "100000000001", "stream-ttl"),
        ("Stream-TTL", "9223372036854775808", "stream-ttl"),
        ("Stream-Expires-At", "tomorrow", "stream-expires-at"),
        ("Stream-Fork-Offset", "-1", "stream-forked-from"),
    ] {
        put(system, "/streams/no/more", &[(header, value)], b"").refused(400, "invalid_request", at);
    }
    // A header without a value is not one that is absent.
    for (from, offset, at) in [
        ("/streams/no", "", "stream-fork-offset"),
        ("/streams/no", "1", "stream-fork-offset"),
        ("", "-1", "stream-forked-from"),
    ] {
        let headers = [("Stream-Forked-From", from), ("Stream-Fork-Offset", offset)];
        put(system, "/streams/no/more", &headers, b"").refused(400, "invalid_request", at);
    }
    put(system, "/streams/no/more", &[("Stream-Forked-From", "")], b"")
        .refused(400, "invalid_request", "stream-forked-from");
    put(system, "/streams/no/more", JSON, b"nul").refused(400, "invalid_json", "");
    put(system, "/streams/no/more", &[("Stream-Forked-From", "/streams/none")], b"")
        .refused(404, "stream_not_found", "");
    put(system, "/streams/no", TEXT, b"").refused(409, "stream_exists", "");
    system.get("/streams/no/more").refused(404, "stream_not_found", "");
    system.get("/streams/__ds/jwks.json").refused(404, "route_not_found", "");
    let too_large = vec![b'x'; (1 << 20) + 1];
    post(system, "/streams/no", BYTES, &too_large).refused(413, "payload_too_large", "");
    // Streams of agents are not listed.
    system.get("/streams/agents/orchestrator/x").refused(404, "stream_not_found", "");
}

fn producers(system: &System) {
    let target = "/streams/producers";
    put(system, target, TEXT, b"").expect(201);
    let by = |epoch: &str, seq: &str| {
        let headers =
            [("Content-Type", "text/plain"), ("Producer-Id", "p"), ("Producer-Epoch", epoch), ("Producer-Seq", seq)];
        post(system, target, &headers, format!("{epoch}.{seq} ").as_bytes())
    };
    let header = |answer: &Answer, name: &str| answer.header(name).map(str::to_owned);
    by("0", "1").refused(409, "sequence_conflict", "");
    for seq in ["0", "1", "2"] {
        assert_eq!(header(&by("0", seq).expect(200), "producer-seq").as_deref(), Some(seq));
    }
    let again = by("0", "1").expect(204);
    assert_eq!((header(&again, "producer-seq").as_deref(), again.header("producer-epoch")), (Some("2"), Some("0")));
    let gap = by("0", "5").refused(409, "sequence_conflict", "");
    assert_eq!(header(&gap, "producer-expected-seq").as_deref(), Some("3"));
    assert_eq!(header(&gap, "producer-received-seq").as_deref(), Some("5"));
    by("1", "1").refused(400, "invalid_request", "producer-seq");
    by("1", "0").expect(200);
    let fenced = by("0", "3").refused(403, "producer_fenced", "");
    assert_eq!(header(&fenced, "producer-epoch").as_deref(), Some("1"));
    let seq = [("Content-Type", "text/plain"), ("Stream-Seq", "b")];
    post(system, target, &seq, b"end").expect(204);
    post(system, target, &seq, b"end").refused(409, "sequence_conflict", "stream-seq");
    post(system, target, &[("Stream-Closed", "true")], b"").expect(204);
    let late = post(system, target, TEXT, b"late").refused(409, "stream_closed", "");
    assert_eq!(header(&late, "stream-next-offset"), Some(place(5)));
    by("1", "0").expect(204);
    assert_eq!(system.get(target).body, b"0.0 0.1 0.2 1.0 end");
}

/// A page has at most 1 MiB but any number of entries. Also tests `tail`.
fn pages_and_places(system: &System) {
    let numbers: Vec<u32> = (0..2_500).collect();
    put(system, "/streams/pages", JSON, json!(numbers).to_string().as_bytes()).expect(201);
    let page = system.get("/streams/pages").expect(200);
    assert_eq!(page.json(), json!(numbers));
    assert_eq!(
        (page.header("stream-next-offset"), page.header("stream-up-to-date")),
        (Some(place(2_500).as_str()), Some("true"))
    );
    for query in ["offset=-1&tail=2", "tail=2"] {
        let last = system.get(&format!("/streams/pages?{query}")).expect(200);
        assert_eq!(last.json(), json!([2_498, 2_499]));
    }
    // Clients send `tail` on every follow-up request, so it is ignored there.
    let follow_up = format!("/streams/pages?offset={}&tail=1", place(2_497));
    assert_eq!(system.get(&follow_up).expect(200).json(), json!([2_497, 2_498, 2_499]));
    // A long poll that is woken by an append gets all entries of this append.
    let address = system.address();
    let poll = format!("/streams/pages?offset={}&live=long-poll", place(2_500));
    let poll = std::thread::spawn(move || ken_tests::Client::connect(address).checked_by_contract().get(&poll));
    post(system, "/streams/pages", JSON, json!(numbers).to_string().as_bytes()).expect(204);
    assert_eq!(poll.join().unwrap().expect(200).json(), json!(numbers));
    let large = vec![0xff; 1 << 20];
    put(system, "/streams/large", BYTES, b"small").expect(201);
    for _ in 0..2 {
        post(system, "/streams/large", BYTES, &large).expect(204);
    }
    let first = system.get("/streams/large").expect(200);
    assert_eq!((first.body.len(), first.header("stream-up-to-date")), (5, None));
    let next = format!("/streams/large?offset={}", first.header("stream-next-offset").unwrap());
    assert!(system.get(&next).expect(200).body == large);
}

/// Stored content is served from the gateway's own origin, so a browser must not execute it.
fn types_that_run(system: &System) {
    for (name, content_type, runs) in [
        ("page", "text/html", true),
        ("picture", "image/svg+xml; charset=utf-8", true),
        ("note", "text/plain", false),
        ("list", "application/json", false),
        ("raw", "application/octet-stream", false),
    ] {
        let target = format!("/streams/types/{name}");
        put(system, &target, &[("Content-Type", content_type)], b"[1]").expect(201);
        let mut client = system.client();
        for answer in [client.get(&target), client.request("HEAD", &target).send()] {
            let found = (answer.header("content-security-policy"), answer.header("content-disposition"));
            let wanted = runs.then_some(("sandbox", "attachment")).unzip();
            assert_eq!(found, wanted, "{content_type}");
        }
    }
}

/// When a stream is deleted, the connections of its readers end, so they do not see a later stream of the same name.
fn an_end_ends_its_readers(system: &System) {
    put(system, "/streams/short", TEXT, b"first").expect(201);
    let mut stream = system.attach("/streams/short?offset=-1&live=sse");
    let first = stream.frame().unwrap().0;
    assert_eq!(first, format!("id: {}\nevent: data\ndata:first", place(1)));
    stream.frame().unwrap();
    system.delete("/streams/short").expect(204);
    put(system, "/streams/short", TEXT, b"second").expect(201);
    assert_eq!(stream.frame(), None);
}

/// Web pages of any origin can read the answers, but callers from other machines need the secret nevertheless.
#[test]
fn pages_of_other_origins() {
    let system = Builder::default().secrets("API_SECRET=s3cret\n").start();
    let foreign = ("Origin", "https://page.example");
    let options = send(&mut system.client(), "OPTIONS", "/streams/a", &[foreign], b"").expect(204);
    let allowed = options.header("access-control-allow-headers").unwrap().to_ascii_lowercase();
    for name in ["content-type", "if-none-match", "x-api-secret", "producer-id", "stream-fork-sub-offset"] {
        assert!(allowed.contains(name), "{name}");
    }
    let none = send(&mut system.client(), "PUT", "/streams/a", &[foreign], b"").expect(401);
    let secret = ("x-api-secret", "s3cret");
    let made = send(&mut system.client(), "PUT", "/streams/a", &[foreign, secret], b"").expect(201);
    let missing = send(&mut system.client(), "GET", "/streams/b", &[foreign, secret], b"").expect(404);
    for answer in [options, none, made, missing] {
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"), "{answer:?}");
        assert_eq!(answer.header("cross-origin-resource-policy"), Some("cross-origin"));
        assert!(answer.header("access-control-expose-headers").unwrap().contains("Producer-Expected-Seq"));
        assert_eq!(answer.header("access-control-allow-credentials"), None);
    }
    // Other routes do not allow other origins.
    send(&mut system.client(), "OPTIONS", "/api/knowledge", &[foreign, secret], b"").expect(405);
    let other = send(&mut system.client(), "GET", "/api/knowledge", &[foreign, secret], b"").expect(200);
    assert_eq!(other.header("access-control-allow-origin"), None);
}

/// Kills the store, the gateway, and both, with pauses so long that kend restarts them at once. Sets `over` at the end.
fn kill_parts(system: &System, over: &AtomicBool) {
    for parts in [&["store"][..], &["gateway"], &["store", "gateway"], &["gateway"], &["store"], &["gateway", "store"]]
    {
        std::thread::sleep(Duration::from_millis(1_100));
        parts.iter().for_each(|part| system.kill(part));
    }
    std::thread::sleep(Duration::from_millis(200));
    over.store(true, Ordering::Relaxed);
}

/// Makes one attempt. Returns `None` if there is no answer, or if the answer is 503.
fn try_post(client: &mut Option<Client>, system: &System, headers: &[(&str, &str)], body: &str) -> Option<u16> {
    let mut open = client.take().or_else(|| Client::try_connect(system.address()).ok())?;
    let request = headers
        .iter()
        .fold(open.request("POST", "/streams/crash"), |request, (name, value)| request.header(name, value));
    let answer = request.body(body).try_send().ok()?;
    *client = Some(open);
    (answer.status != 503).then_some(answer.status)
}

/// Sends numbered appends until `over` is set, and repeats each until it is answered. Returns their number.
fn produce(system: &System, producer: &str, over: &AtomicBool) -> usize {
    let mut client = None;
    let numbers = (0..).take_while(|_| !over.load(Ordering::Relaxed));
    let sent = numbers.map(|number: usize| {
        let seq = number.to_string();
        let headers = [TEXT[0], ("Producer-Id", producer), ("Producer-Epoch", "0"), ("Producer-Seq", seq.as_str())];
        let body = format!("{producer}{number} ");
        let end = Instant::now() + Duration::from_secs(30);
        let mut status = None;
        while status.is_none() {
            assert!(Instant::now() < end, "no answer in 30 s");
            status = try_post(&mut client, system, &headers, &body);
        }
        assert!(matches!(status, Some(200 | 204)), "{status:?}");
    });
    sent.count()
}

/// Sends numbered appends until `over` is set, each only once. Returns the numbers that were answered.
fn append_once(system: &System, over: &AtomicBool) -> Vec<usize> {
    let mut client = None;
    let numbers = (0..).take_while(|_| !over.load(Ordering::Relaxed));
    let answered = numbers.filter(|number| {
        let status = try_post(&mut client, system, TEXT, &format!("c{number} "));
        assert!(matches!(status, Some(204) | None), "{status:?}");
        status.is_some()
    });
    answered.collect()
}

/// The text of a stream, as a reader has put it together that begins again after every failure where it was.
struct RetryingReader {
    address: std::net::SocketAddr,
    offset: String,
    text: String,
}

impl RetryingReader {
    /// Reads until the text that the last append has written. Each attempt adds what it has read for certain.
    fn read_to_end(system: &System, attempt: impl Fn(&mut RetryingReader) -> std::io::Result<()>) -> String {
        let mut reader = RetryingReader { address: system.address(), offset: "-1".to_owned(), text: String::new() };
        let end = Instant::now() + Duration::from_secs(60);
        while !reader.text.ends_with(END) {
            assert!(Instant::now() < end, "{} bytes were read in 60 s", reader.text.len());
            if attempt(&mut reader).is_err() {
                std::thread::sleep(Duration::from_millis(10)); // the server is away
            }
        }
        reader.text
    }

    /// Asks for what follows, and waits for it. Only a complete answer counts.
    fn long_poll(&mut self) -> std::io::Result<()> {
        let mut client = Client::try_connect(self.address)?;
        let target = format!("/streams/crash?live=long-poll&offset={}", self.offset);
        let page = client.request("GET", &target).try_send()?;
        if let (200 | 204, Some(next)) = (page.status, page.header("stream-next-offset")) {
            self.offset = next.to_owned();
            self.text += std::str::from_utf8(&page.body).unwrap();
            return Ok(());
        }
        assert_eq!(page.status, 503, "{page:?}");
        Err(std::io::Error::other("unavailable"))
    }

    /// Follows the event stream. What stands before a control frame is certain; after a cut, the rest comes again.
    fn events(&mut self) -> std::io::Result<()> {
        let mut client = Client::try_connect(self.address)?;
        client.request("GET", &format!("/streams/crash?live=sse&offset={}", self.offset)).start();
        let (status, _) = client.head()?;
        if status != 200 {
            assert_eq!(status, 503);
            return Err(std::io::Error::other("unavailable"));
        }
        let (mut received, mut uncertain) = (String::new(), String::new());
        while !self.text.ends_with(END) {
            let chunk = client.chunk()?;
            if chunk.is_empty() {
                break;
            }
            received += std::str::from_utf8(&chunk).unwrap();
            while let Some((frame, rest)) = received.split_once("\n\n") {
                let data: Vec<&str> = frame.lines().filter_map(|line| line.strip_prefix("data:")).collect();
                if frame.contains("event: control") {
                    let control: serde_json::Value = serde_json::from_str(&data.concat()).unwrap();
                    self.offset = control["streamNextOffset"].as_str().unwrap().to_owned();
                    self.text += &std::mem::take(&mut uncertain);
                } else {
                    uncertain += &data.join("\n");
                }
                received = rest.to_owned();
            }
        }
        Ok(())
    }
}

/// The last append of the test.
const END: &str = "end.";

/// Store and gateway are killed between append and answer. A repeat with the same producer id, epoch and sequence number writes nothing
/// twice, and the gateway's own retry writes appends without these headers only once. Readers that begin again where they were have
/// the whole content, in order.
#[test]
fn kills_lose_nothing_and_write_nothing_twice() {
    let system = System::start();
    put(&system, "/streams/crash", TEXT, b"").expect(201);
    let over = AtomicBool::new(false);
    let (sent, answered, read) = std::thread::scope(|scope| {
        let polled = scope.spawn(|| RetryingReader::read_to_end(&system, RetryingReader::long_poll));
        let followed = scope.spawn(|| RetryingReader::read_to_end(&system, RetryingReader::events));
        let producers = ["a", "b"].map(|producer| {
            let (system, over) = (&system, &over);
            scope.spawn(move || (producer, produce(system, producer, over)))
        });
        let single = scope.spawn(|| append_once(&system, &over));
        kill_parts(&system, &over);
        let (sent, answered) = (producers.map(|producer| producer.join().unwrap()), single.join().unwrap());
        until("the parts are back", || {
            let producer = [TEXT[0], ("Producer-Id", "end"), ("Producer-Epoch", "0"), ("Producer-Seq", "0")];
            matches!(try_post(&mut None, &system, &producer, END), Some(200 | 204))
        });
        (sent, answered, [polled.join().unwrap(), followed.join().unwrap()])
    });
    let mut text = String::new();
    let mut offset = "-1".to_owned();
    loop {
        let page = system.get(&format!("/streams/crash?offset={offset}")).expect(200);
        text.push_str(std::str::from_utf8(&page.body).unwrap());
        offset = page.header("stream-next-offset").unwrap().to_owned();
        if page.header("stream-up-to-date").is_some() {
            break;
        }
    }
    for read in read {
        assert!(read == text, "a reader has {} bytes, the stream {}", read.len(), text.len());
    }
    let of = |producer: &str| -> Vec<String> {
        let own = text.split_whitespace().filter(|word| word.starts_with(producer));
        own.map(str::to_owned).collect()
    };
    for (producer, sent) in sent {
        let all: Vec<String> = (0..sent).map(|number| format!("{producer}{number}")).collect();
        assert_eq!(of(producer), all);
    }
    let single = of("c");
    let distinct: std::collections::BTreeSet<&String> = single.iter().collect();
    assert_eq!(distinct.len(), single.len(), "written twice: {single:?}");
    assert!(!answered.is_empty());
    for number in answered {
        assert!(distinct.contains(&format!("c{number}")), "c{number} was answered and is not there");
    }
}

/// After a power cut, deleted and expired streams stay ended, entries that a fork needs are kept, and entries that no stream
/// needs are deleted.
#[test]
fn forks_and_ended_streams_survive_a_restart() {
    let mut system = System::start();
    put(&system, "/streams/source", TEXT, b"abc").expect(201);
    let fork = |from, offset, beyond| {
        [("Stream-Forked-From", from), ("Stream-Fork-Offset", offset), ("Stream-Fork-Sub-Offset", beyond)]
    };
    put(&system, "/streams/fork", &fork("source", "-1", "2"), b"").expect(201);
    put(&system, "/streams/fork/of/fork", &fork("/streams/fork", "now", "0"), b"!").expect(201);
    post(&system, "/streams/fork", TEXT, b"...").expect(204);
    let short_lived = [("Content-Type", "text/plain"), ("Stream-TTL", "1")];
    put(&system, "/streams/soon", &short_lived, b"x").expect(201);
    system.delete("/streams/source").expect(204);
    system.delete("/streams/fork").expect(204);

    system.cut_power();
    system.up();
    for gone in ["/streams/source", "/streams/fork"] {
        system.get(gone).refused(410, "stream_gone", "/stream");
        put(&system, gone, TEXT, b"").refused(409, "stream_exists", "");
        system.delete(gone).refused(410, "stream_gone", "/stream");
    }
    put(&system, "/streams/third", &fork("source", "-1", "0"), b"").refused(409, "stream_exists", "");
    assert_eq!(system.get("/streams/fork/of/fork").expect(200).body, b"ab!");
    let head = |system: &System| send(&mut system.client(), "HEAD", "/streams/soon", &[], b"").status;
    until("its time is over", || head(&system) == 404);
    put(&system, "/streams/soon", JSON, b"").expect(201);

    system.delete("/streams/fork/of/fork").expect(204);
    for free in ["/streams/fork/of/fork", "/streams/fork", "/streams/source"] {
        put(&system, free, JSON, b"").expect(201);
    }
}
