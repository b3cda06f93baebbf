//! The clients. Each makes one request after the other, and every request until it is accepted.

use ken_tests::bot_api::SECRET;
use ken_tests::{Answer, System, tui};
use serde_json::{Value, json};

use super::door::{Door, Request};
use super::setting::{USER, prompt};

pub(crate) type Client = Box<dyn FnMut(&mut Door) + Send>;

/// A new session is begun after so many prompts, so that no request to the model gets long.
const PROMPTS_PER_SESSION: usize = 20;

/// The eight clients by name.
pub(crate) fn plan(system: &System) -> Vec<(&'static str, Client)> {
    let mut client = system.client();
    client.request("PUT", "/streams/kills").header("Content-Type", "application/json").send().expect(201);
    let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params":
        {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "kills", "version": "1"}}});
    let mcp = system.post("/mcp", &initialize).expect(200).header("mcp-session-id").expect("a session").to_owned();
    system.post("/agents/orchestrator/kills-approval", &json!({"message": "Hello."})).expect(202);
    vec![
        ("chat", Box::new(chat(String::new()))),
        ("approval", Box::new(approval)),
        ("messenger", Box::new(update)),
        ("stream", Box::new(append)),
        ("workflow", Box::new(workflow)),
        ("knowledge", Box::new(entry)),
        ("openai", Box::new(completion)),
        ("mcp", Box::new(question(mcp))),
    ]
}

/// Two schedules that fire each second: one whose slots wait for each other, and one that skips.
pub(crate) fn schedules(system: &System, missed: &str) -> Vec<Value> {
    let made = ["queue", "skip"].map(|overlap| {
        let body = json!({"slug": overlap, "kind": "every", "schedule": "1s", "overlap": overlap, "missed": missed,
            "prompt": prompt("say", "schedule")});
        system.post("/api/schedules", &body).expect(201).at("/schedule")
    });
    made.to_vec()
}

fn post<'a>(target: &'a str, headers: &[(&'a str, &'a str)], body: Value) -> Request<'a> {
    Request { method: "POST", target, headers: headers.to_vec(), body }
}

/// Prompts whose turn calls a tool. The answer to the last one is read again, as a terminal does.
fn chat(mut session: String) -> impl FnMut(&mut Door) {
    move |door| {
        let label = door.label();
        if door.tally.accepted.len().is_multiple_of(PROMPTS_PER_SESSION) {
            let key = format!("session-{label}");
            let made = door.ask(&post("/api/chat/sessions", &[("Idempotency-Key", &key)], tui(&[])));
            session = made.text("/session/id");
        }
        let body = tui(&[("session", json!(session)), ("text", json!(prompt("note", &label)))]);
        door.accept(&label, &post("/api/chat/events", &[("Idempotency-Key", &label)], body));
    }
}

/// Prompts whose tool needs an approval, which two people decide at once; every third is denied. Also what a console asks for.
fn approval(door: &mut Door) {
    let label = door.label();
    let target = "/agents/orchestrator/kills-approval";
    let body = json!({"message": prompt("gated", &label)});
    door.accept(&label, &post(target, &[("Idempotency-Key", &label)], body));
    let request = pending(door, &label);
    let is_approved = is_approved(&label);
    let target = format!("/api/approvals/{request}/decision");
    let decided = ["ada", "grace"].map(|name| {
        let (key, body) = (format!("{request}-{name}"), json!({"decidedBy": name, "approved": is_approved}));
        let once = post(&target, &[("Idempotency-Key", &key)], body);
        door.ask_for(&once, |answer| [200, 409].contains(&answer.status)).status
    });
    assert_eq!(decided, [200, 409], "{label}: of two who decide one wins");
    let read = |target| Request { method: "GET", target, headers: Vec::new(), body: Value::Null };
    door.ask(&read("/api/inbox"));
    door.ask(&read("/api/chat/sessions?limit=20"));
}

pub(crate) fn is_approved(label: &str) -> bool {
    let number = label.rsplit('-').next().and_then(|number| number.parse::<u64>().ok());
    !number.expect("a number").is_multiple_of(3)
}

/// The id of the request for the approval of this call.
fn pending(door: &mut Door, label: &str) -> String {
    let target = "/api/approvals/pending?wait_ms=200";
    let is_it = |record: &&Value| record["request"]["metadata"]["toolCallId"] == label;
    let is_there = |body: &Value| body.as_array().is_some_and(|list| list.iter().any(|record| is_it(&record)));
    let get = Request { method: "GET", target, headers: Vec::new(), body: Value::Null };
    let begun = std::time::Instant::now();
    loop {
        let list = door.ask(&get).json();
        if is_there(&list) {
            let record = list.as_array().into_iter().flatten().find(is_it).expect("it is there");
            return record["requestId"].as_str().expect("an id").to_owned();
        }
        assert!(begun.elapsed().as_secs() < 90, "{label}: the call does not ask for its approval");
    }
}

/// Updates of a messaging platform, which repeats each until it is acknowledged.
fn update(door: &mut Door) {
    let label = door.label();
    let id = door.tally.accepted.len() + 1;
    let body = json!({"update_id": id, "message": {"message_id": id + 1_000, "date": 1, "text": prompt("say", &label),
        "from": {"id": USER, "is_bot": false, "first_name": "Ada"}, "chat": {"id": USER, "type": "private"}}});
    let secret = [("X-Telegram-Bot-Api-Secret-Token", SECRET)];
    door.accept(&label, &post("/channels/messenger/webhook", &secret, body));
    // A session has a limited number of waiting prompts; a further one is refused in the chat.
    let health = Request { method: "GET", target: HEALTH, headers: Vec::new(), body: Value::Null };
    while !door.is_over() {
        std::thread::sleep(std::time::Duration::from_millis(150));
        let outbox = door.ask(&health).at("/outbox");
        let count = |name: &str| outbox[name].as_u64().unwrap_or_default();
        if count("sent") + count("unknown") + count("failed") + MAX_UNANSWERED >= id as u64 {
            return;
        }
    }
}

const HEALTH: &str = "/api/connectors/messenger/health";
const MAX_UNANSWERED: u64 = 20;

fn append(door: &mut Door) {
    let label = door.label();
    let number = door.tally.accepted.len().to_string();
    let producer = [("Producer-Id", "kills"), ("Producer-Epoch", "0"), ("Producer-Seq", number.as_str())];
    door.accept(&label, &post("/streams/kills", &producer, json!({"label": label})));
    std::thread::sleep(std::time::Duration::from_millis(10));
}

fn workflow(door: &mut Door) {
    let label = door.label();
    let body = json!({"message": format!("I am glad about {label}."), "label": label});
    door.accept(&label, &post("/workflows/analyze_only", &[("Idempotency-Key", &label)], body));
    std::thread::sleep(std::time::Duration::from_millis(100));
}

fn entry(door: &mut Door) {
    let label = door.label();
    let body = json!({"title": label, "content": format!("The number of {label} is written here.")});
    door.accept(&label, &post("/api/knowledge", &[("Idempotency-Key", &label)], body));
    std::thread::sleep(std::time::Duration::from_millis(100));
}

/// The interface of OpenAI: each request begins a conversation.
fn completion(door: &mut Door) {
    let label = door.label();
    let body = json!({"model": "ken", "messages": [{"role": "user", "content": prompt("say", &label)}]});
    door.accept(&label, &post("/v1/chat/completions", &[("Idempotency-Key", &label)], body));
}

/// A client of the Model Context Protocol, which asks the same question again if it has lost the answer.
fn question(session: String) -> impl FnMut(&mut Door) {
    move |door| {
        let label = door.label();
        let call = json!({"jsonrpc": "2.0", "id": door.tally.accepted.len() + 1, "method": "tools/call", "params":
            {"name": "ask_ken", "arguments": {"question": prompt("say", &label)}}});
        let headers = [("mcp-session-id", session.as_str())];
        // What keeps the tool from answering is said in its result.
        let is_answered = |answer: &Answer| answer.status == 200 && answer.at("/result/isError") != true;
        let answer = door.accept_if(&label, &post("/mcp", &headers, call), is_answered);
        assert!(answer.at("/error").is_null(), "{label}: {}", answer.body_text());
    }
}
