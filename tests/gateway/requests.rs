//! Connections, requests and responses of the assembled gateway. `lib/http` tests every rule; this tests one rule of
//! each kind, on the real routes.

use ken_tests::{Client, Contract, System, scripted, tui};
use serde_json::{Value, json};

/// A JSON text with this depth of nesting.
fn nested(depth: usize) -> String {
    "[".repeat(depth) + &"]".repeat(depth)
}

#[test]
fn requests() {
    let system = scripted();
    bodies(&system);
    sizes(&system);
    content_types(&system);
    content_codings(&system);
    paths(&system);
    queries(&system);
    fields(&system);
    headers(&system);
    connections(&system);
}

fn bodies(system: &System) {
    for body in [
        "{",
        "[]x",
        r#"{"text":"a","text":"b"}"#,
        r#"{"text":"a\u0000b"}"#,
        &format!(r#"{{"text":"a","raw":{}}}"#, nested(64)),
        "{\"text\":\"\u{1}\"}",
    ] {
        let send = |target: &str| {
            let mut client = system.client();
            let request = client.request("POST", target).header("Content-Type", "application/json");
            request.body(body).send().expect(400)
        };
        for target in ["/api/chat/events", "/api/knowledge", "/api/chat/sessions"] {
            assert_eq!(send(target).at("/code"), "invalid", "{target} {body}");
        }
        assert_eq!(send("/agents/orchestrator/x").at("/error/type"), "invalid_json", "{body}");
    }
    let depth_64 = format!(r#"{{"text":"hello","raw":{}}}"#, nested(63));
    let mut client = system.client();
    client.request("POST", "/api/chat/events").body(depth_64).send().expect(200);
    for body in ["[]", "null", "\"x\"", "7"] {
        let answer = client.request("POST", "/api/chat/events").body(body).send();
        answer.refused(400, "invalid", "");
    }
    // Where no body is needed, no body and {} are equivalent.
    for body in ["", "{}"] {
        client.request("POST", "/api/knowledge/reindex").body(body).send().expect(202);
    }
    client.request("POST", "/api/chat/events").body("").send().refused(400, "invalid", "/text");
    // Bodies in chunks, and with `Expect: 100-continue`.
    let head = format!("POST /api/knowledge HTTP/1.1\r\nHost: {}\r\n", system.address());
    let chunks =
        "Transfer-Encoding: chunked\r\n\r\na\r\n{\"title\":\"\r\n19\r\nchunks\",\"content\":\"text\"}\r\n0\r\n\r\n";
    client.write((head.clone() + chunks).as_bytes());
    client.answer().expect(201);
    client.write((head + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n").as_bytes());
    assert_eq!(client.answer().status, 100);
    client.write(b"{}");
    client.answer().refused(400, "invalid", "/title");
}

fn sizes(system: &System) {
    // The announced length is enough for the refusal; no byte of the body is sent.
    for (target, length) in [
        ("/api/chat/events", (1 << 20) + 1),
        ("/api/knowledge", (1 << 20) + 1),
        ("/agents/orchestrator/x", (16 << 20) + 1),
    ] {
        let mut client = system.client();
        let request = client.request("POST", target).header("Content-Type", "application/json");
        request.header("Content-Length", &length.to_string()).send().expect(413);
    }
    let text = "x".repeat(256 << 10);
    let post = |text: &str| system.post("/api/chat/events", &json!({"text": text}));
    post(&text).expect(200);
    post(&format!("{text}x")).refused(413, "too_large", "/text");
    let prompt = |text: &str| system.post("/agents/orchestrator/long", &json!({"message": text}));
    prompt(&text).expect(202);
    prompt(&format!("{text}x")).refused(413, "payload_too_large", "/message");
    let mut client = system.client();
    let head = client.request("GET", "/health").header("X-Long", &"x".repeat(16 << 10));
    head.send().expect(431);
}

fn content_types(system: &System) {
    let post = |target: &str, media: Option<&str>, body: &Value| {
        let mut client = system.client();
        let request = client.request("POST", target);
        let request = match media {
            Some(media) => request.header("Content-Type", media),
            None => request,
        };
        request.body(body.to_string()).send()
    };
    let (chat, agent) = ("/api/chat/events", "/agents/orchestrator/media");
    for media in [None, Some("application/json"), Some("Application/JSON; charset=utf-8")] {
        post(chat, media, &json!({"text": "hello"})).expect(200);
    }
    post(agent, Some("application/json;charset=utf-8"), &json!({"message": "hello"})).expect(202);
    for media in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx"] {
        post(chat, Some(media), &json!({"text": "hello"})).refused(415, "invalid", "content-type");
    }
    post(agent, None, &json!({"message": "hello"})).refused(415, "unsupported_media_type", "content-type");
}

/// No route decodes a body, so all refuse one that is compressed; also the routes where it may have any type, and those that
/// need none.
fn content_codings(system: &System) {
    let gzip = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xab, 0xae, 5, 0, 0x43, 0xbf, 0xa6, 0xa3, 2, 0, 0, 0];
    let mut asked = 0;
    for (path, methods) in Contract::get().document()["paths"].as_object().unwrap() {
        let target =
            [("name", "orchestrator"), ("path", "coded"), ("slug", "coded"), ("id", "coded"), ("runId", "coded")]
                .iter()
                .fold(path.clone(), |path, (name, value)| path.replace(&format!("{{{name}}}"), value));
        let target = target.replace("/workflows/orchestrator", "/workflows/full_reasoning");
        for method in ["post", "put", "patch"].iter().filter(|method| methods.get(**method).is_some()) {
            let mut client = system.client();
            let request = client.request(&method.to_uppercase(), &target).header("Content-Encoding", "gzip");
            let answer = request.header("Content-Type", "application/json").body(gzip).send();
            assert_eq!(answer.status, 415, "{method} {target}: {}", answer.body_text());
            assert_eq!(answer.header("accept-encoding"), Some("identity"), "{method} {target}");
            asked += 1;
        }
    }
    assert!(asked > 20, "{asked}");
}

fn paths(system: &System) {
    for path in ["/health/", "/api", "/api/", "/api//chat", "/api/knowledge/", "/api/knowledge/a/b", "/Health"] {
        system.get(path).refused(404, "not_found", "");
    }
    for path in ["/agents/orchestrator/", "/agents/orchestrator/a/b", "/agents/x", "/streams/a//b"] {
        system.get(path).refused(404, "route_not_found", "");
    }
    let mut client = system.client();
    let answer = client.request("PUT", "/agents/orchestrator/a").header("Content-Length", "0").send();
    assert_eq!(answer.refused(405, "method_not_allowed", "").header("allow"), Some("GET, HEAD, POST"));
    let answer = client.request("GET", "/agents/orchestrator/a/abort").send();
    assert_eq!(answer.refused(405, "method_not_allowed", "").header("allow"), Some("POST"));
    let answer = client.request("DELETE", "/api/knowledge").send();
    assert_eq!(answer.refused(405, "invalid", "").header("allow"), Some("GET, HEAD, POST"));
    // A path is decoded once, and a literal segment has priority over a parameter.
    system.client().request("GET", "/%68ealth").send().expect(200);
    let instance = "/agents/orchestrator/a%2Fb%2520%E2%82%AC";
    let url = client.post(instance, &json!({"message": "hello"})).expect(202).text("/streamUrl");
    assert!(url.ends_with(instance), "{url}");
    client.get("/api/knowledge/reindex").refused(405, "invalid", "");
    let head = client.request("HEAD", "/health").send().expect(200);
    assert_eq!(head.header("content-length"), Some("11"));
    client.request("HEAD", "/api/knowledge?limit=x").send().expect(400);
}

fn queries(system: &System) {
    for (target, at) in [
        ("/api/knowledge?limit=1&limit=2", "?limit"),
        ("/api/knowledge?limit=0", "?limit"),
        ("/api/knowledge?limit=101", "?limit"),
        ("/api/knowledge?limit=+5", "?limit"),
        ("/api/knowledge?limit=5x", "?limit"),
        ("/api/knowledge?limit=", "?limit"),
        ("/api/knowledge?q=a&q=b", "?q"),
        ("/api/knowledge?after=", "?after"),
        ("/api/knowledge?after=never-issued", "?after"),
        ("/api/knowledge?actorId=", "?actorId"),
        ("/api/chat/sessions?limit=101", "?limit"),
        ("/api/chat/sessions?archived=yes", "?archived"),
        ("/api/chat/sessions?after=never-issued", "?after"),
        // One field of an identity asks for all of them.
        ("/api/chat/sessions?actorId=a", "?connector"),
        ("/api/chat/sessions?conversationId=c", "?connector"),
        ("/api/chat/sessions?threadId=t", "?connector"),
        ("/api/chat/sessions?connector=tui", "?actorId"),
        ("/api/chat/sessions?connector=tui&actorId=a", "?conversationId"),
        ("/api/chat/sessions?connector=x&actorId=a&conversationId=c", "?connector"),
        ("/api/chat/sessions?connector=tui&actorId=%20&conversationId=c", "?actorId"),
        ("/api/chat/sessions?connector=tui&actorId=a&actorId=b&conversationId=c", "?actorId"),
        ("/api/chat/sessions?connector=tui&actorId=a&conversationId=c&threadId=", "?threadId"),
        (&format!("/api/chat/sessions?connector=tui&actorId={}&conversationId=c", "x".repeat(257)), "?actorId"),
    ] {
        system.get(target).refused(400, "invalid", at);
    }
    system.get("/api/knowledge?other=1&other=2&limit=001").expect(200);
    // An invalid request is reported before a missing object.
    let nobody = "/api/chat/sessions/tui-nobody";
    system
        .get(&format!("{nobody}/transcript?limit=x&connector=tui&actorId=a&conversationId=c"))
        .refused(400, "invalid", "?limit");
    system.get(&format!("{nobody}/transcript")).refused(400, "invalid", "?connector");
    system.post(&format!("{nobody}/cancel"), &json!({"connector": "tui"})).refused(400, "invalid", "/actorId");
}

fn fields(system: &System) {
    let more = |body: Value| {
        let mut body = body;
        body["more"] = json!({"a": 1});
        body
    };
    system.post("/api/chat/events", &more(json!({"text": "hello"}))).expect(200);
    system.post("/agents/orchestrator/more", &more(json!({"message": "hello"}))).expect(202);
    system.post("/agents/orchestrator/more/abort", &more(json!({}))).expect(200);
    let session = system.session();
    for (target, body) in [
        ("/api/chat/sessions".to_owned(), tui(&[])),
        (format!("/api/chat/sessions/{session}/resume"), tui(&[])),
        (format!("/api/chat/sessions/{session}/cancel"), tui(&[])),
        ("/api/knowledge".to_owned(), json!({"title": "t", "content": "c"})),
        ("/api/knowledge/reindex".to_owned(), json!({})),
    ] {
        system.post(&target, &more(body)).refused(400, "invalid", "/more");
    }
    for (body, at) in [
        (json!({}), "/text"),
        (json!({"text": 7}), "/text"),
        (json!({"text": " \n\t"}), "/text"),
        (json!({"text": "a", "policy": "never"}), "/policy"),
        (json!({"text": "a", "session": " "}), "/session"),
        (json!({"text": "a", "actorId": ""}), "/actorId"),
        (json!({"text": "a", "conversationId": "x".repeat(257)}), "/conversationId"),
        (json!({"text": "a", "threadId": ""}), "/threadId"),
        (json!({"text": "a", "task": "x".repeat(257)}), "/task"),
        (json!({"text": "a", "connector": "tui"}), "/actorId"),
        (json!({"text": "a", "connector": "tui", "actorId": "a"}), "/conversationId"),
    ] {
        system.post("/api/chat/events", &body).refused(400, "invalid", at);
    }
}

fn headers(system: &System) {
    let mut client = system.client();
    let ask = |client: &mut Client, id: &str| {
        let answer = client.request("GET", "/health").header("X-Request-Id", id).send();
        answer.expect(200).header("x-request-id").unwrap().to_owned()
    };
    assert_eq!(ask(&mut client, "mine-1"), "mine-1");
    for other in ["", "a b", &"x".repeat(129)] {
        let id = ask(&mut client, other);
        assert!(id.len() == 26 && id != other, "{id}");
    }
    assert_eq!(client.get("/health").body, b"{\"ok\":true}");
    for target in ["/health", "/api/nothing", "/agents/orchestrator/none"] {
        let answer = client.get(target);
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert!(answer.header("access-control-allow-origin").is_none());
    }
}

fn connections(system: &System) {
    let mut client = system.client();
    let host = system.address();
    // Pipelined requests are answered in order, and the connection is closed on request.
    let one = |id: u8, more: &str| format!("GET /health HTTP/1.1\r\nHost: {host}\r\nX-Request-Id: {id}\r\n{more}\r\n");
    client.write((one(1, "") + &one(2, "") + &one(3, "Connection: close\r\n")).as_bytes());
    for id in ["1", "2", "3"] {
        assert_eq!(client.answer().expect(200).header("x-request-id"), Some(id));
    }
    assert_eq!(client.rest().unwrap(), b"");
    for head in [
        "GET /health HTTP/1.1\r\n\r\n".to_owned(),
        format!("GET /health HTTP/1.1\r\nHost: {host}\r\nHost: {host}\r\n\r\n"),
        format!("GET /health HTTP/1.1\r\nHost: {host}\r\nX: a\rb\r\n\r\n"),
        format!(
            "POST /api/knowledge HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
        ),
        "nonsense\r\n\r\n".to_owned(),
    ] {
        let mut client = system.client();
        client.write(head.as_bytes());
        let answer = client.answer().expect(400);
        assert_eq!(answer.at("/code"), "invalid");
        assert_eq!(answer.header("connection"), Some("close"));
        assert_eq!(client.rest().unwrap(), b"");
    }
    let mut client = system.client();
    client.write(b"GET /health HTTP/1.0\r\n\r\n");
    client.answer().expect(200);
}

/// `nc -N` and many scripts close their half of the connection after the request, and wait.
#[test]
fn half_closed_clients_are_answered_200_times_of_200() {
    let system = scripted();
    let address = system.address();
    let workers = (0..8).map(|_| {
        std::thread::spawn(move || {
            (0..25)
                .filter(|_| {
                    let mut client = Client::connect(address);
                    let body = json!({"text": "pause"}).to_string();
                    client.request("POST", "/api/chat/events").body(body).start();
                    client.shut_write();
                    client.answer().status == 200
                })
                .count()
        })
    });
    let workers: Vec<_> = workers.collect();
    let answered: usize = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
    assert_eq!(answered, 200);
}
