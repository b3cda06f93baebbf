//! The transcript: pages of exchanges, and the offset at which the stream continues.

use ken_tests::{System, scripted, tui, until};
use serde_json::{Value, json};

const SCOPE: &str = "connector=tui&actorId=a&conversationId=c";

fn page(system: &System, session: &str, more: &str) -> Value {
    let target = format!("/api/chat/sessions/{session}/transcript?{SCOPE}{more}");
    system.get(&target).expect(200).json()
}

fn exchanges(page: &Value) -> Vec<Value> {
    page["exchanges"].as_array().unwrap().clone()
}

#[test]
fn transcripts() {
    let system = scripted();
    empty(&system);
    exchange(&system);
    pages(&system);
    a_turn_in_flight(&system);
    hidden(&system);
}

fn empty(system: &System) {
    let session = system.session();
    assert_eq!(
        page(system, &session, ""),
        json!({"session": {"id": session}, "exchanges": [], "stream": {"nextOffset": "-1", "upToDate": true},
            "page": {"limit": 50, "hasOlder": false}})
    );
}

fn exchange(system: &System) {
    let session = system.session();
    system.say(&session, "/rename Nightly").expect(200);
    let answer = system.say(&session, "use tools").expect(200);
    let page = page(system, &session, "");
    assert_eq!(page["session"], json!({"id": session, "title": "Nightly"}));
    assert_eq!(page["contextUsage"], answer.at("/contextUsage"));
    assert_eq!(page["contextUsage"]["available"], true);
    let one = &exchanges(&page)[0];
    let id = answer.text("/submissionId");
    assert_eq!((&one["id"], &one["submissionId"]), (&json!(id), &json!(id)));
    // If a tool fails, its turn is still completed.
    assert_eq!(one["status"], "completed");
    assert_eq!(one["prompt"]["id"], answer.at("/event/id"));
    assert_eq!(one["prompt"]["receivedAt"], answer.at("/event/receivedAt"));
    assert_eq!((&one["prompt"]["text"], &one["prompt"]["visibility"]), (&json!("use tools"), &json!("user")));
    assert_eq!(one["assistant"]["text"], "Tools are gone.");
    assert!(one["assistant"]["id"].as_str().unwrap().starts_with(&format!("{id}:message:")));
    let tools: Vec<Value> =
        one["activities"].as_array().unwrap().iter().filter(|one| one["kind"] == "tool").cloned().collect();
    assert_eq!(tools.len(), 2);
    for (tool, (call, name)) in tools.iter().zip([("call_1", "absent"), ("call_2", "missing")]) {
        assert_eq!(tool["id"], json!(format!("{id}:tool:{call}")));
        assert_eq!((&tool["name"], &tool["status"]), (&json!(name), &json!("failed")));
        assert!(tool["error"].is_string() && tool["completedAt"].is_string());
    }
    // Neither arguments nor raw results are included.
    assert!(!page.to_string().contains("secret"), "{page:#}");
    let thinking = system.say(&session, "think").expect(200).text("/submissionId");
    let failed = system.say(&session, "refused").expect(500).text("/submissionId");
    let all = exchanges(&whole(system, &session));
    let find = |id: &str| all.iter().find(|one| one["id"] == id).unwrap().clone();
    let thought = find(&thinking);
    let thought =
        thought["activities"].as_array().unwrap().iter().find(|one| one["kind"] == "thinking").unwrap().clone();
    assert_eq!(thought["preview"], "Hm. So.");
    assert_eq!(find(&failed)["status"], "failed");
}

fn whole(system: &System, session: &str) -> Value {
    page(system, session, "&limit=100")
}

fn pages(system: &System) {
    let session = system.session();
    let sent: Vec<String> = (0..7)
        .map(|number| {
            let text = format!("hello {number}");
            system.say(&session, &text).expect(200);
            text
        })
        .collect();
    let texts = |page: &Value| -> Vec<String> {
        let prompt = |one: &Value| one["prompt"]["text"].as_str().unwrap().to_owned();
        exchanges(page).iter().map(prompt).collect()
    };
    let newest = page(system, &session, "&limit=3");
    assert!(newest["contextUsage"].is_object());
    assert_eq!(texts(&newest), sent[4..]);
    assert_eq!((&newest["page"]["limit"], &newest["page"]["hasOlder"]), (&json!(3), &json!(true)));
    // New exchanges do not change older pages.
    system.say(&session, "hello meanwhile").expect(200);
    let before = |page: &Value| format!("&limit=3&before={}", page["page"]["before"].as_str().unwrap());
    let older = page(system, &session, &before(&newest));
    assert_eq!(texts(&older), sent[1..4]);
    let oldest = page(system, &session, &before(&older));
    assert_eq!(texts(&oldest), sent[..1]);
    assert_eq!(oldest["page"], json!({"limit": 3, "hasOlder": false}));
    // Refuses a cursor of another session, and one that was never issued.
    let other = system.session();
    for (session, cursor) in [(&other, before(&newest)), (&session, "&before=x".into()), (&session, "&before=".into())]
    {
        let target = format!("/api/chat/sessions/{session}/transcript?{SCOPE}{cursor}");
        system.get(&target).refused(400, "invalid", "?before");
    }
    for limit in ["0", "101", "x"] {
        let target = format!("/api/chat/sessions/{session}/transcript?{SCOPE}&limit={limit}");
        system.get(&target).refused(400, "invalid", "?limit");
    }
}

/// If a page contains a running turn, it shows only finished activities, and its offset is the beginning of the turn.
fn a_turn_in_flight(system: &System) {
    let session = system.session();
    system.say(&session, "hello").expect(200);
    let stream = format!("/agents/orchestrator/{session}");
    let events = || system.get(&stream).expect(200).json().as_array().unwrap().clone();
    let before = events().len();
    let begin = |text: &str| {
        let mut client = system.client();
        let request = client.request("POST", "/api/chat/events").header("Prefer", "respond-async");
        let body = tui(&[("text", json!(text)), ("session", json!(session))]);
        request.json(&body).send().expect(202).text("/submissionId")
    };
    let running = begin("ponder");
    // A waiting prompt has no events yet, and does not affect the page.
    begin("hold too");
    until("the turn says something", || events().last().is_some_and(|last| last["type"] == "thinking_delta"));
    let seen = page(system, &session, "");
    let one = exchanges(&seen)[1].clone();
    assert_eq!((&one["id"], &one["status"]), (&json!(running), &json!("running")));
    let activities = one["activities"].as_array().unwrap();
    assert!(activities.iter().all(|one| one["status"] != "running"), "{one}");
    assert_eq!(seen["stream"]["upToDate"], false);
    let next = seen["stream"]["nextOffset"].as_str().unwrap().to_owned();
    assert_eq!(next, format!("0000000000000000_{before:016}"));
    // A page without the running turn has the same `nextOffset`.
    assert_eq!(page(system, &session, "&limit=1")["stream"]["nextOffset"], next.as_str());
    // The page is the same, byte for byte, until something happens.
    let target = format!("/api/chat/sessions/{session}/transcript?{SCOPE}");
    assert_eq!(system.get(&target).body, system.get(&target).body);
    // A reader that attaches at this offset gets the whole turn.
    let mut reader = system.attach(&format!("{stream}?offset={next}&live=sse"));
    system.post(&format!("{stream}/abort"), &json!({})).expect(200);
    let turn = reader.until_event("submission_settled");
    assert_eq!(turn[..], events()[before..before + turn.len()]);
    assert_eq!(turn[0]["submissionId"], running.as_str());
    until("both have ended", || exchanges(&page(system, &session, "")).iter().all(|one| one["status"] != "running"));
    let seen = page(system, &session, "");
    assert_eq!(seen["stream"]["upToDate"], true);
    let end = format!("0000000000000000_{:016}", events().len());
    assert_eq!(seen["stream"]["nextOffset"], end.as_str());
}

fn hidden(system: &System) {
    let body = tui(&[("text", json!("hello preflight")), ("workflow", json!("tui.startup-preflight"))]);
    let answer = system.post("/api/chat/events", &body).expect(200);
    let session = answer.text("/session/id");
    let seen = page(system, &session, "");
    let one = &exchanges(&seen)[0];
    assert!(one.get("prompt").is_none() && one["assistant"]["text"] == "Hello there.", "{one}");
    for text in ["/session", "/help", "/rename x"] {
        system.say(&session, text).expect(200);
    }
    assert_eq!(exchanges(&page(system, &session, "")).len(), 1);
    // It does not set the title of the session either; the first visible prompt does.
    system.say(&session, "hello visible").expect(200);
    let sessions = system.get(&format!("/api/chat/sessions?{SCOPE}&limit=1")).expect(200);
    assert_eq!(sessions.at("/sessions/0/title"), "hello visible");
}
