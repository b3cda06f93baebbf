//! POST /agents/orchestrator/:id and abort; and the events that each kind of turn writes to its stream.

use std::time::{Duration, Instant};

use ken_tests::{Answer, Client, System, kinds, scripted, tui};
use serde_json::{Value, json};

const X: &str = "/agents/orchestrator/x";

fn prompt(system: &System, instance: &str, message: &str) -> Answer {
    let target = format!("/agents/orchestrator/{instance}?wait=result");
    system.post(&target, &json!({"message": message}))
}

fn events(system: &System, instance: &str) -> Vec<Value> {
    let answer = system.get(&format!("/agents/orchestrator/{instance}")).expect(200);
    answer.json().as_array().unwrap().clone()
}

#[test]
fn prompts() {
    let system = scripted();
    bodies(&system);
    admission(&system);
    of_a_session(&system);
    failures(&system);
    aborts(&system);
}

/// Errors are checked in this order: path, method, query, name, media type, size, JSON, schema.
fn bodies(system: &System) {
    let long = format!("/agents/orchestrator/{}", "x".repeat(1025));
    for (target, status, kind, at) in [
        ("/agents/orchestrator/a/b?wait=no", 404, "route_not_found", ""),
        ("/agents/worker/x?wait=no", 400, "invalid_request", "?wait"),
        ("/agents/orchestrator/x?wait=", 400, "invalid_request", "?wait"),
        ("/agents/orchestrator/x?wait=result&wait=result", 400, "invalid_request", "?wait"),
        ("/agents/research-worker/x", 404, "agent_not_found", ""),
        ("/agents/coding-worker/x", 404, "agent_not_found", ""),
        ("/agents/orchestrator/a%0Ab", 400, "invalid_request", ""),
        (&long, 400, "invalid_request", ""),
    ] {
        let mut client = system.client();
        let request = client.request("POST", target).header("Content-Type", "text/plain");
        request.body("{").send().refused(status, kind, at);
    }
    let image = json!({"type": "image", "data": "QUJD", "mimeType": "image/png"});
    let with = |name: &str, value: Value| {
        let mut image = image.clone();
        image[name] = value;
        json!({"message": "hello", "images": [image]})
    };
    for (body, at) in [
        (json!({}), "/message"),
        (json!({"message": 7}), "/message"),
        (json!({"message": "a", "policy": "never"}), "/policy"),
        (json!({"message": "a", "images": {}}), "/images"),
        (json!({"message": "a", "images": vec![image.clone(); 9]}), "/images"),
        (json!({"message": "a", "images": [7]}), "/images/0"),
        (with("type", json!("picture")), "/images/0/type"),
        (with("mimeType", json!("image/tiff")), "/images/0/mimeType"),
        (with("data", json!("QUJ")), "/images/0/data"),
        (with("data", json!("")), "/images/0/data"),
    ] {
        system.post(X, &body).refused(400, "invalid_request", at);
    }
    system.post(X, &json!([])).refused(400, "invalid_request", "");
    let large = with("data", json!("A".repeat(14_680_068)));
    system.post(X, &large).refused(413, "payload_too_large", "/images/0/data");
    // None of these was accepted as a prompt.
    system.get(X).refused(404, "stream_not_found", "");
    system.post(&format!("{X}/abort"), &json!({})).expect(200);
    system.get("/agents/worker/x").refused(404, "agent_not_found", "");
    system.post("/agents/worker/x/abort", &json!({})).refused(404, "agent_not_found", "");
    let images = json!({"message": "", "images": vec![image; 8]});
    system.post(X, &images).expect(202);
    let longest = format!("/agents/orchestrator/{}", "y".repeat(1024));
    system.post(&longest, &json!({"message": "hello"})).expect(202);
}

fn admission(system: &System) {
    let url = format!("{}/agents/orchestrator/fresh", system.url());
    let answer = system.post("/agents/orchestrator/fresh", &json!({"message": "hold"})).expect(202);
    assert_eq!((answer.text("/streamUrl"), answer.text("/offset")), (url.clone(), "-1".into()));
    assert_eq!(answer.header("location"), Some(url.as_str()));
    assert_eq!(answer.header("stream-next-offset"), Some("-1"));
    // The stream exists as soon as a prompt is accepted.
    system.get("/agents/orchestrator/fresh").expect(200);
    // The events of an earlier prompt that is still running come first, so readers select events by submission.
    let (address, target) = (system.address(), "/agents/orchestrator/fresh?wait=result");
    let second = std::thread::spawn(move || {
        Client::connect(address).checked_by_contract().post(target, &json!({"message": "hello", "policy": "interrupt"}))
    });
    let second = second.join().unwrap().expect(200);
    assert_eq!(second.at("/result/text"), "Hello there.");
    let offset = second.text("/offset");
    let after = system.get(&format!("/agents/orchestrator/fresh?offset={offset}")).expect(200).json();
    let mine: Vec<Value> = after
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["submissionId"] == second.at("/submissionId"))
        .cloned()
        .collect();
    assert_eq!(kinds(&mine).last(), Some(&"submission_settled"));
    // The usage is the sum over all turns of the prompt.
    let answer = prompt(system, "sum", "tools").expect(200);
    let turns = events(system, "sum").into_iter().filter(|event| event["type"] == "turn");
    let sum: u64 = turns
        .inspect(|turn| {
            let output = &turn["output"];
            assert!(output["role"] == "assistant" && output["content"].is_array(), "{turn}");
        })
        .map(|turn| turn["usage"]["totalTokens"].as_u64().unwrap())
        .sum();
    assert_eq!(answer.at("/result/usage/totalTokens"), json!(sum));
}

/// If the instance id is that of a session, the prompt belongs to this session, and is in its queue and transcript.
fn of_a_session(system: &System) {
    let session = system.session();
    prompt(system, &session, "hello from outside").expect(200);
    let target = format!("/api/chat/sessions/{session}/transcript?connector=tui&actorId=a&conversationId=c");
    let transcript = system.get(&target).expect(200);
    assert_eq!(transcript.at("/exchanges/0/prompt/text"), "hello from outside");
    assert_eq!(events(system, &session)[0]["instanceId"], json!(session));
}

fn failures(system: &System) {
    let failed = prompt(system, "failing", "refused").refused(500, "operation_failed", "");
    let settled = events(system, "failing").pop().unwrap();
    assert_eq!(failed.at("/error/meta/submissionId"), settled["submissionId"]);
    let address = system.address();
    let caller = std::thread::spawn(move || {
        let target = "/agents/orchestrator/aborted?wait=result";
        Client::connect(address).checked_by_contract().post(target, &json!({"message": "hold"}))
    });
    ken_tests::until("the turn has begun", || system.get("/agents/orchestrator/aborted").status == 200);
    system.post("/agents/orchestrator/aborted/abort", &json!({})).expect(200);
    let answer = caller.join().unwrap().refused(500, "submission_aborted", "");
    assert!(answer.at("/error/meta/submissionId").is_string());
}

fn aborts(system: &System) {
    let ids: Vec<Value> = (0..3)
        .map(|_| system.post("/agents/orchestrator/many", &json!({"message": "hold"})).expect(202).at("/submissionId"))
        .collect();
    let mut stream = system.attach("/agents/orchestrator/many?offset=-1&live=sse");
    stream.until_event("text_delta");
    let begun = Instant::now();
    let mut client = system.client();
    let answer = client.request("POST", "/agents/orchestrator/many/abort").send().expect(200);
    assert_eq!(answer.json(), json!({"aborted": true, "submissionIds": ids}));
    let mut seen = Vec::new();
    while kinds(&seen).iter().filter(|kind| **kind == "submission_settled").count() < 3 {
        stream.until_control(&mut seen);
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let outcomes = seen.iter().filter(|event| event["type"] == "submission_settled");
    assert!(outcomes.into_iter().all(|event| event["outcome"] == "aborted"));
    // A prompt that was only queued has an end that all clients know.
    for id in &ids {
        let of = seen.iter().filter(|event| event["submissionId"] == *id).cloned().collect::<Vec<_>>();
        assert!(kinds(&of).ends_with(&["idle", "submission_settled"]), "{of:?}");
    }
    let cut = seen.iter().find(|event| event["message"]["stopReason"] == "aborted").unwrap();
    assert_eq!(
        (&cut["message"]["stopReason"], &cut["message"]["content"][0]["text"]),
        (&json!("aborted"), &json!("part"))
    );
    let again = system.post("/agents/orchestrator/many/abort", &json!({})).expect(200);
    assert_eq!(again.json(), json!({"aborted": false, "submissionIds": []}));
    prompt(system, "many", "hello").expect(200);
}

#[test]
fn events_of_each_kind_of_turn() {
    let system = scripted();
    let plain = "operation_start agent_start message_start message_end turn_start message_start text_delta text_delta message_end turn_messages turn \
        agent_end operation idle submission_settled";
    let thinking = "operation_start agent_start message_start message_end turn_start message_start thinking_start thinking_delta thinking_delta \
        thinking_end text_delta text_delta message_end turn_messages turn agent_end operation idle submission_settled";
    let tools = "operation_start agent_start message_start message_end turn_start message_start text_delta message_end tool_start tool_start tool tool \
        message_start message_end message_start message_end turn_messages turn turn_start message_start text_delta message_end \
        turn_messages turn agent_end operation idle submission_settled";
    let failing = "operation_start agent_start message_start message_end turn_start message_start text_delta message_end turn_messages turn agent_end \
        operation idle submission_settled";
    for (message, status, expected) in [
        ("hello", 200, plain),
        ("think", 200, thinking),
        ("tools", 200, tools),
        ("refused", 500, failing),
        ("length", 200, failing),
    ] {
        let instance = format!("kind-{message}");
        prompt(&system, &instance, message).expect(status);
        let events = events(&system, &instance);
        assert_eq!(kinds(&events), expected.split_whitespace().collect::<Vec<_>>(), "{message}");
        envelope(&events, &instance);
        every_start_has_its_end(&events);
        outcome(message, &events);
    }
    let second = prompt(&system, "kind-hello", "hello").expect(200);
    let all = events(&system, "kind-hello");
    assert_eq!(all[15]["eventIndex"], 0, "counted from 0 per submission");
    assert_eq!(all[15]["submissionId"], second.at("/submissionId"));
}

fn envelope(events: &[Value], instance: &str) {
    let mut last = (None, "");
    for event in events {
        assert_eq!(
            (&event["v"], &event["instanceId"], &event["session"], &event["harness"]),
            (&json!(1), &json!(instance), &json!("default"), &json!("default"))
        );
        assert_eq!(event["submissionId"], events[0]["submissionId"]);
        for absent in ["runId", "parentSession", "dispatchId", "taskId"] {
            assert!(event.get(absent).is_none(), "{event}");
        }
        let (index, time) = (event["eventIndex"].as_u64(), event["timestamp"].as_str().unwrap());
        assert!(index > last.0 && time >= last.1, "{event} after {last:?}");
        last = (index, time);
    }
    assert_eq!(events[0]["eventIndex"], 0);
    assert!(events[0]["operationId"].as_str().unwrap().starts_with("op_"));
}

fn every_start_has_its_end(events: &[Value]) {
    let count = |kind: &str| kinds(events).iter().filter(|one| **one == kind).count();
    for (start, end) in [
        ("operation_start", "operation"),
        ("agent_start", "agent_end"),
        ("turn_start", "turn"),
        ("message_start", "message_end"),
        ("thinking_start", "thinking_end"),
        ("tool_start", "tool"),
    ] {
        assert_eq!(count(start), count(end), "{start}");
    }
}

fn outcome(message: &str, events: &[Value]) {
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).cloned().collect::<Vec<_>>();
    let ends: Vec<Value> =
        of("message_end").into_iter().filter(|event| event["message"]["role"] == "assistant").collect();
    let end = &ends.last().unwrap()["message"];
    let (reason, text, settled) = match message {
        "hello" => ("stop", "Hello there.", "completed"),
        "think" => ("stop", "I see.", "completed"),
        "tools" => ("stop", "Tools are gone.", "completed"),
        "length" => ("length", "And so", "completed"),
        _ => ("error", "I ", "failed"),
    };
    // One block of an assistant's message contains its whole text. The thoughts stand before it, as they came.
    let blocks = end["content"].as_array().unwrap().iter().map(|block| block["type"].as_str().unwrap());
    let wanted: &[&str] = if message == "think" { &["thinking", "text"] } else { &["text"] };
    assert_eq!(blocks.filter(|block| *block != "toolCall").collect::<Vec<_>>(), wanted, "{end}");
    let shown = end["content"].as_array().unwrap().iter().find(|block| block["type"] == "text").unwrap();
    assert_eq!((&end["stopReason"], &shown["text"]), (&json!(reason), &json!(text)), "{end}");
    // The prompt comes first, as it was sent.
    let prompt = &of("message_end")[0];
    assert_eq!(prompt["message"]["content"], json!([{"type": "text", "text": message}]));
    assert_eq!((&prompt["message"]["role"], prompt.get("turnId")), (&json!("user"), None));
    assert_eq!(of("submission_settled")[0]["outcome"], settled);
    assert_eq!(of("message_start")[1]["message"]["content"], json!([]));
    let failed = settled == "failed";
    for event in of("turn").iter().chain(&of("operation")) {
        assert_eq!((&event["isError"], event.get("error").is_some()), (&json!(failed), failed), "{event}");
    }
    if message == "think" {
        assert_eq!(of("thinking_end")[0]["content"], "Hm. So.");
    }
    if message == "tools" {
        assert_eq!(ends[0]["message"]["stopReason"], "toolUse");
        assert!(of("tool").iter().all(|tool| tool["isError"] == true));
        assert_eq!(of("tool_start")[0]["args"], json!({"secret": "x"}));
        assert_eq!(of("turn_messages")[0]["toolResults"].as_array().unwrap().len(), 2);
    }
}

/// A reader that attaches right after the session was created sees the first delta of its first turn.
#[test]
fn in_a_new_session_offset_now_is_before_the_first_turn() {
    let system = scripted();
    for _ in 0..20 {
        let session = system.session();
        let mut stream = system.attach(&format!("/agents/orchestrator/{session}?offset=now&live=sse"));
        system.say(&session, "hello").expect(200);
        let seen = stream.until_event("submission_settled");
        assert_eq!(seen, events(&system, &session));
        let first = seen.iter().find(|event| event["type"] == "text_delta").unwrap();
        assert_eq!(first["text"], "Hello");
    }
    // An accepted prompt is not yet completed, and closing the connection does not cancel it.
    let session = system.session();
    let mut client = system.client();
    let body = tui(&[("text", json!("pause")), ("session", json!(session))]);
    client.request("POST", "/api/chat/events").json(&body).start();
    ken_tests::until("it is accepted", || !events(&system, &session).is_empty());
    drop(client);
    ken_tests::until("it is done", || kinds(&events(&system, &session)).last() == Some(&"submission_settled"));
    assert_eq!(events(&system, &session).last().unwrap()["outcome"], "completed");
}
