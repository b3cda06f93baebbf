//! Idempotency-Key: repeated requests, also while the first one is in progress and after parts were killed.

use std::time::Duration;

use ken_tests::{Answer, Client, System, scripted, scripted_builder, tui, until};
use serde_json::{Value, json};

const CHAT: &str = "/api/chat/events";

fn send(system: &System, target: &str, key: &str, body: &Value) -> Answer {
    let mut client = system.client();
    client.request("POST", target).header("Idempotency-Key", key).json(body).send()
}

fn replayed(answer: &Answer) -> bool {
    answer.header("idempotency-replayed") == Some("true")
}

fn prompts(system: &System, session: &str) -> usize {
    let target = format!("/api/chat/sessions/{session}/transcript?connector=tui&actorId=a&conversationId=c");
    system.get(&target).expect(200).at("/exchanges").as_array().unwrap().len()
}

#[test]
fn repeats() {
    let system = scripted();
    repeats_get_the_first_answer(&system);
    keys(&system);
    not_kept(&system);
    kept_failures(&system);
    joined(&system);
    after_kills(&system);
}

/// A repeat gets the same status and body, on every POST.
fn repeats_get_the_first_answer(system: &System) {
    let session = system.session();
    let prompt = tui(&[("text", json!("hello")), ("session", json!(session))]);
    for (number, (target, body, status)) in [
        (CHAT.to_owned(), prompt.clone(), 200),
        (CHAT.to_owned(), tui(&[("text", json!("hello"))]), 200),
        (CHAT.to_owned(), tui(&[("text", json!("/new x"))]), 200),
        ("/api/chat/sessions".to_owned(), tui(&[]), 201),
        ("/api/chat/sessions/nothing/resume".to_owned(), tui(&[]), 201),
        (format!("/api/chat/sessions/{session}/cancel"), tui(&[]), 200),
        ("/api/knowledge".to_owned(), json!({"title": "t", "content": "c"}), 201),
        ("/api/knowledge/reindex".to_owned(), json!({}), 202),
        ("/agents/orchestrator/x".to_owned(), json!({"message": "hello"}), 202),
        ("/agents/orchestrator/x/abort".to_owned(), json!({}), 200),
    ]
    .into_iter()
    .enumerate()
    {
        let key = &format!("first-{number}");
        let first = send(system, &target, key, &body).expect(status);
        assert!(!replayed(&first), "{target}");
        let again = send(system, &target, key, &body).expect(status);
        assert!(replayed(&again), "{target}");
        assert_eq!(again.body, first.body, "{target}");
        assert_eq!(again.header("location"), first.header("location"), "{target}");
    }
    assert_eq!(prompts(system, &session), 1);
    // Another path, or another key, is another request.
    let other = send(system, CHAT, "second", &prompt).expect(200);
    assert!(!replayed(&other));
    assert_eq!(prompts(system, &session), 2);
    let at_another_path = send(system, "/agents/orchestrator/z", "second", &json!({"message": "hello"}));
    assert!(!replayed(&at_another_path.expect(202)));
    // The same key with another body is a conflict.
    send(system, CHAT, "second", &json!({"text": "other"})).refused(409, "conflict", "idempotency-key");
    send(system, "/agents/orchestrator/z", "second", &json!({"message": "other"}))
        .refused(409, "idempotency_conflict", "idempotency-key");
}

fn keys(system: &System) {
    for key in ["", "a b", &"x".repeat(256)] {
        send(system, CHAT, key, &json!({"text": "hello"})).refused(400, "invalid", "idempotency-key");
    }
    send(system, CHAT, &"!".repeat(255), &json!({"text": "hello"})).expect(200);
    let mut client = system.client();
    let twice = client.request("POST", CHAT).header("Idempotency-Key", "a").header("Idempotency-Key", "b");
    twice.json(&json!({"text": "hello"})).send().refused(400, "invalid", "idempotency-key");
}

/// If a request was not accepted, its answer is not stored, and the key can be used again.
fn not_kept(system: &System) {
    let session = system.session();
    for (key, body, status) in [
        ("n400", json!({"text": ""}), 400),
        ("n400c", tui(&[("text", json!("/rename x"))]), 400),
        ("n403", tui(&[("text", json!("hello")), ("session", json!(session)), ("actorId", json!("other"))]), 403),
        ("n404", tui(&[("text", json!("hello")), ("session", json!("nowhere"))]), 404),
    ] {
        for _ in 0..2 {
            assert!(!replayed(&send(system, CHAT, key, &body).expect(status)), "{key}");
        }
        assert!(!replayed(&send(system, CHAT, key, &tui(&[("text", json!("hello"))])).expect(200)));
    }
    let mut client = system.client();
    let held = client.request("POST", CHAT).header("Prefer", "respond-async");
    held.json(&tui(&[("text", json!("hold")), ("session", json!(session))])).send().expect(202);
    let body = tui(&[("text", json!("hello")), ("session", json!(session)), ("policy", json!("reject"))]);
    send(system, CHAT, "n409", &body).expect(409);
    system.post(&format!("/api/chat/sessions/{session}/cancel"), &tui(&[])).expect(200);
    until("the session is idle", || send(system, CHAT, "n409", &body).status == 200);
    assert!(replayed(&send(system, CHAT, "n409", &body).expect(200)));
}

/// A turn that was accepted and failed is not repeated.
fn kept_failures(system: &System) {
    let session = system.session();
    let body = tui(&[("text", json!("refused")), ("session", json!(session))]);
    let first = send(system, CHAT, "failed", &body).expect(500);
    let again = send(system, CHAT, "failed", &body).expect(500);
    assert!(replayed(&again) && again.body == first.body);
    assert_eq!(prompts(system, &session), 1);
    let target = "/agents/orchestrator/failed?wait=result";
    let first = send(system, target, "failed", &json!({"message": "refused"})).expect(500);
    let again = send(system, target, "failed", &json!({"message": "refused"})).expect(500);
    assert!(replayed(&again) && again.body == first.body);
}

/// A repeat of a request that is still in progress waits for the same result.
fn joined(system: &System) {
    let session = system.session();
    let body = tui(&[("text", json!("pause")), ("session", json!(session))]);
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let (address, body) = (system.address(), body.clone());
            std::thread::spawn(move || {
                let mut client = Client::connect(address).checked_by_contract();
                let request = client.request("POST", CHAT).header("Idempotency-Key", "joined");
                request.json(&body).send().expect(200).text("/submissionId")
            })
        })
        .collect();
    let ids: Vec<String> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(prompts(system, &session), 1);
}

fn after_kills(system: &System) {
    let session = system.session();
    let body = tui(&[("text", json!("hello")), ("session", json!(session))]);
    let first = send(system, CHAT, "kept", &body).expect(200);
    for part in ["store", "gateway"] {
        system.kill(part);
        until("it answers again", || {
            let mut client = Client::connect(system.address());
            let request = client.request("POST", CHAT).header("Idempotency-Key", "kept");
            request
                .json(&body)
                .try_send()
                .is_ok_and(|answer| answer.status == 200 && answer.body == first.body && replayed(&answer))
        });
    }
    // A part is killed while the request is in progress. The work continues, and the repeat waits for its result.
    for (number, part) in ["gateway", "store", "agent"].into_iter().enumerate() {
        let session = system.session();
        let body = tui(&[("text", json!("pause pause")), ("session", json!(session))]);
        let key = format!("cut-{part}");
        let (address, sent, name) = (system.address(), body.clone(), key.clone());
        let caller = std::thread::spawn(move || {
            let mut client = Client::connect(address);
            let request = client.request("POST", CHAT).header("Idempotency-Key", &name);
            request.json(&sent).try_send().is_ok()
        });
        until("it is accepted", || prompts(system, &session) == 1);
        system.kill(part);
        caller.join().unwrap();
        until("it is answered", || {
            let mut client = Client::connect(system.address());
            let request = client.request("POST", CHAT).header("Idempotency-Key", &key);
            request.json(&body).try_send().is_ok_and(|answer| answer.status == 200)
        });
        assert_eq!(prompts(system, &session), 1, "{part}, {number}");
    }
}

/// A 202 that is sent because the gateway stops, and a 503, say nothing about how the work ends: a repeat finds out.
#[test]
fn what_a_stopping_or_missing_part_answers_is_not_kept() {
    let slow = json!({"when": "slowly", "events": [{"sleep_ms": 4_000}, {"text": "Done."}]});
    let system = ken_tests::Builder::default().script(&[slow]).start();
    system.wait_until_stable("gateway");
    let targets =
        [(CHAT, json!({"text": "slowly"})), ("/agents/orchestrator/x?wait=result", json!({"message": "slowly"}))];
    for (target, body) in targets {
        let first = std::thread::scope(|scope| {
            let caller = scope.spawn(|| send(&system, target, "stopped", &body));
            until("the turn runs", || system.call("agent", "service.stats", &[])["running"] == 1);
            system.signal("gateway", nix::sys::signal::Signal::SIGTERM);
            caller.join().unwrap()
        });
        assert_eq!(first.status, 202, "{target}: {}", first.body_text());
        system.wait_until_stable("gateway");
        let again = send(&system, target, "stopped", &body).expect(200);
        assert!(!replayed(&again), "{target}: it has waited for the result");
        assert_eq!(again.at("/submissionId"), first.at("/submissionId"), "{target}");
        let kept = send(&system, target, "stopped", &body).expect(200);
        assert!(replayed(&kept) && kept.body == again.body, "{target}");
    }
    let schedule = json!({"slug": "later", "kind": "every", "schedule": "1h", "prompt": "Hello."});
    assert!(system.ken(&["stop", "scheduler"]).status.success());
    let target = "/api/schedules";
    for _ in 0..2 {
        assert!(!replayed(&send(&system, target, "down", &schedule).expect(503)));
    }
    assert!(system.ken(&["start", "scheduler"]).status.success());
    let made = send(&system, target, "down", &schedule);
    assert!((200..300).contains(&made.status) && !replayed(&made), "{}", made.body_text());
    assert!(replayed(&send(&system, target, "down", &schedule)));
}

/// A key belongs to its sender: an authenticated caller from another machine, or this machine.
#[test]
fn a_key_belongs_to_its_sender() {
    let system = scripted_builder().secrets("API_SECRET=s3cret").start();
    let ask = |secret: Option<&str>| {
        let mut client = system.client();
        let request = client.request("POST", "/api/chat/sessions").header("Idempotency-Key", "shared");
        let request = match secret {
            Some(secret) => request.header("X-Forwarded-For", "10.0.0.1").header("X-Api-Secret", secret),
            None => request,
        };
        request.json(&tui(&[])).send().expect(201)
    };
    let (local, operator) = (ask(None), ask(Some("s3cret")));
    assert!(!replayed(&operator) && local.text("/session/id") != operator.text("/session/id"));
    assert!(replayed(&ask(None)) && replayed(&ask(Some("s3cret"))));
}

/// A request of another protocol, with its key, and the session of its answer.
struct Asking {
    target: &'static str,
    headers: Vec<(&'static str, String)>,
    body: Value,
}

impl Asking {
    fn chat(text: &str, stream: bool) -> Asking {
        let body = json!({"model": "ken", "stream": stream, "messages": [{"role": "user", "content": text}]});
        Asking { target: "/v1/chat/completions", headers: Vec::new(), body }
    }

    fn response(text: &str, previous: Option<&str>) -> Asking {
        let body = json!({"model": "ken", "input": text, "previous_response_id": previous});
        Asking { target: "/v1/responses", headers: Vec::new(), body }
    }

    fn mcp(tool: &str, arguments: Value) -> Asking {
        let version = "2026-07-28";
        let meta = json!({"io.modelcontextprotocol/protocolVersion": version, "io.modelcontextprotocol/clientCapabilities": {}});
        let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
        let named = [("mcp-protocol-version", version), ("mcp-method", "tools/call"), ("mcp-name", tool)];
        let headers = named.map(|(name, value)| (name, value.to_owned())).to_vec();
        Asking {
            target: "/mcp",
            headers,
            body: json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}),
        }
    }

    fn header(mut self, name: &'static str, value: &str) -> Asking {
        self.headers.push((name, value.to_owned()));
        self
    }

    fn send(&self, system: &System, key: &str) -> Answer {
        let mut client = system.client();
        let request = client.request("POST", self.target).header("Idempotency-Key", key);
        let request = self.headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        request.json(&self.body).send()
    }
}

fn session_of(answer: &Answer) -> String {
    match answer.header("x-ken-session") {
        Some(session) => session.to_owned(),
        None => answer.text("/result/structuredContent/session"),
    }
}

fn sessions(system: &System) -> usize {
    system.get("/api/chat/sessions?empty=1&limit=100").expect(200).at("/sessions").as_array().unwrap().len()
}

/// Keys mean the same for requests of other protocols, also after a conversation was deleted for good.
#[test]
fn keys_of_other_protocols() {
    let system = scripted();
    for (number, asking) in [
        Asking::chat("hello", false),
        Asking::chat("hello", true),
        Asking::response("hello", None),
        Asking::mcp("ask_ken", json!({"question": "hello"})),
    ]
    .into_iter()
    .enumerate()
    {
        let (name, key) = (format!("{number} {}", asking.target), format!("other-{number}"));
        let first = asking.send(&system, &key).expect(200);
        assert!(!replayed(&first), "{name}");
        let again = asking.send(&system, &key).expect(200);
        assert!(replayed(&again), "{name}");
        assert_eq!((again.body_text(), session_of(&again)), (first.body_text(), session_of(&first)), "{name}");
        let other = asking.send(&system, &format!("{key}-2")).expect(200);
        assert_ne!(session_of(&other), session_of(&first), "{name}: another key");
        let mut changed = Asking { headers: asking.headers.clone(), ..asking };
        let is_mcp = changed.target == "/mcp";
        changed.body["user"] = "ann".into();
        if is_mcp {
            changed.body["params"]["arguments"]["question"] = "hello, you".into();
        }
        changed.send(&system, &key).expect(409);
        changed.body.as_object_mut().unwrap().remove("user");
        if is_mcp {
            changed.body["params"]["arguments"]["question"] = "hello".into();
        }
        // With the last answer of a session, the session is deleted.
        let purge = format!("/api/chat/sessions/{}?purge=true", session_of(&first));
        let is_response = changed.target == "/v1/responses";
        let target = if is_response { format!("/v1/responses/{}", first.text("/id")) } else { purge };
        let scope = if is_mcp { "&connector=web-api&actorId=web-api&conversationId=web-api" } else { "" };
        let scope =
            if is_response || is_mcp { scope } else { "&connector=openai&actorId=openai&conversationId=openai" };
        system.delete(&format!("{target}{scope}")).expect(200);
        let left = sessions(&system);
        for _ in 0..2 {
            let gone = changed.send(&system, &key).expect(410);
            assert!(gone.body_text().contains("deleted for good"), "{name}: {}", gone.body_text());
        }
        assert_eq!(sessions(&system), left, "{name}: nothing runs again");
        assert!(replayed(&changed.send(&system, &format!("{key}-2")).expect(200)), "{name}");
    }
    a_deleted_answer(&system);
    a_turn_that_goes_on(&system);
    refusals_are_not_kept(&system);
}

/// An answer of a session that goes on is deleted alone, and given to nobody again.
fn a_deleted_answer(system: &System) {
    let first = Asking::response("hello", None).send(system, "one").expect(200);
    let second = Asking::response("think", Some(&first.text("/id")));
    let answer = second.send(system, "two").expect(200);
    assert_eq!(session_of(&answer), session_of(&first));
    system.delete(&format!("/v1/responses/{}", answer.text("/id"))).expect(200);
    second.send(system, "two").expect(410);
    assert!(replayed(&Asking::response("hello", None).send(system, "one").expect(200)));
}

/// A repetition waits for a turn that runs, also over MCP, where the end of a connection would otherwise cancel it. A failed turn is
/// not repeated.
fn a_turn_that_goes_on(system: &System) {
    for asking in [Asking::chat("pause", false), Asking::mcp("ask_ken", json!({"question": "pause"}))] {
        let before = sessions(system);
        let mut client = Client::connect(system.address());
        let request = client.request("POST", asking.target).header("Idempotency-Key", "joined");
        let request = asking.headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        request.json(&asking.body).start();
        until("the turn is there", || sessions(system) > before);
        client.reset();
        std::thread::sleep(Duration::from_millis(20));
        let again = asking.send(system, "joined").expect(200);
        assert!(again.body_text().contains("Rested."), "{}", again.body_text());
        assert_eq!(sessions(system), before + 1, "{}", asking.target);
    }
    let failing = Asking::chat("refused", false);
    let first = failing.send(system, "failed").expect(500);
    let again = failing.send(system, "failed").expect(500);
    assert!(replayed(&again) && again.body == first.body);
}

/// What accepted nothing is tried again with the same key.
fn refusals_are_not_kept(system: &System) {
    let started = Asking::chat("hello", false).send(system, "started").expect(200);
    let session = session_of(&started);
    let named = Asking::chat("hello", false).header("x-ken-session", "later");
    named.send(system, "named").expect(404);
    let scope = "connector=openai&actorId=openai&conversationId=openai";
    let mut client = system.client();
    let target = format!("/api/chat/sessions/{session}?{scope}");
    client.request("PATCH", &target).json(&json!({"displayName": "later"})).send().expect(200);
    let taken = named.send(system, "named").expect(200);
    assert_eq!((session_of(&taken), replayed(&taken)), (session.clone(), false));

    let agent = format!("/agents/orchestrator/{session}");
    system.post(&agent, &json!({"message": "hold"})).expect(202);
    for number in 0..256 {
        system.post(&agent, &json!({"message": format!("waiting {number}")})).expect(202);
    }
    let chat = Asking::chat("hello", false).header("x-ken-session", &session);
    for _ in 0..2 {
        assert!(chat.send(system, "full").expect(429).header("retry-after").is_some());
    }
    system.post(&format!("{agent}/abort"), &json!({})).expect(200);
    let answered = chat.send(system, "full").expect(200);
    assert!(!replayed(&answered) && replayed(&chat.send(system, "full").expect(200)));
    let unknown = Asking::mcp("ask_ken", json!({"question": "hello", "session": "nowhere"}));
    for _ in 0..2 {
        assert_eq!(unknown.send(system, "mcp").expect(200).at("/result/isError"), true);
    }
    let other = Asking::mcp("ask_ken", json!({"question": "hello"})).send(system, "mcp").expect(200);
    assert_eq!(other.at("/result/isError"), false);
}
