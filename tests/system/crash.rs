//! Single kills, stops and power cuts, and what a client sees of them. kills.rs has many at once.

use std::time::{Duration, Instant};

use ken_tests::{Answer, Builder, Client, System, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

const IDENTITY: &str = "connector=tui&actorId=a&conversationId=c";

/// All exchanges of a session, oldest first.
fn exchanges(system: &System, session: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let mut before = String::new();
    loop {
        let target = format!("/api/chat/sessions/{session}/transcript?{IDENTITY}&limit=100{before}");
        let page = system.get(&target).expect(200).json();
        let mut older = page["exchanges"].as_array().expect("exchanges").clone();
        older.append(&mut all);
        all = older;
        match page["page"]["before"].as_str() {
            Some(cursor) => before = format!("&before={cursor}"),
            None => return all,
        }
    }
}

/// All events of an instance.
fn events(system: &System, session: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let mut offset = "-1".to_owned();
    loop {
        let page = system.get(&format!("/agents/orchestrator/{session}?offset={offset}")).expect(200);
        all.extend(page.json().as_array().expect("events").iter().cloned());
        if page.header("stream-up-to-date").is_some() {
            return all;
        }
        offset = page.header("stream-next-offset").expect("an offset").to_owned();
    }
}

/// A part that hangs is restarted, and callers that wait for it are answered.
#[test]
fn a_part_that_hangs_is_restarted() {
    let system = Builder::default().config("[part.model]\nwatchdog_ms = 1000\n").start();
    let session = system.session();
    let still = system.pid("model");
    system.signal("model", Signal::SIGSTOP);
    system.say(&session, "Are you there?").expect(200);
    assert_ne!(system.pid("model"), still);
    // The kill of one part is not reported as a failure of the others.
    let down = system.ken(&["down"]);
    assert_eq!(String::from_utf8_lossy(&down.stderr), "");
}

#[test]
fn a_turn_continues_where_a_killed_agent_left_it() {
    let script = json!({"events": [{"text": "first "}, {"sleep_ms": 1_500}, {"text": "second"}]});
    let system = Builder::default().script(&[script]).start();
    let session = system.session();
    let mut stream = system.attach(&format!("/agents/orchestrator/{session}?offset=now&live=sse"));
    let (address, body) = (system.address(), say(&session, "go"));
    let received = std::thread::spawn(move || Client::connect(address).post("/api/chat/events", &body));
    let before = stream.until_event("text_delta");
    let killed = Instant::now();
    system.kill("agent");
    let resumed = stream.until_event("submission_resumed");
    assert!(killed.elapsed() < Duration::from_secs(3), "resumed after {:?}", killed.elapsed());
    let rest = stream.until_event("submission_settled");
    let answer: Answer = received.join().expect("the caller").expect(200);
    assert_eq!(answer.text("/result/text"), "first second");
    let seen: Vec<Value> = [before, resumed, rest].concat();
    assert_eq!(seen, events(&system, &session), "a live reader and a later one see the same log");
    let types: Vec<_> = seen.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(types.iter().filter(|kind| **kind == "submission_settled").count(), 1);
    assert_eq!(
        types.iter().filter(|kind| **kind == "message_start").count(),
        types.iter().filter(|kind| **kind == "message_end").count()
    );
}

/// ken-model ends while kend is suspended, and kend then stops without restarting it. The turn that waits for ken-model does not fail: it is
/// completed after the next start.
#[test]
fn a_turn_that_waits_for_a_model_part_is_done_after_a_stop() {
    let mut system = System::start();
    let session = system.session();
    let [kend, model] = ["kend", "model"].map(|part| Pid::from_raw(system.pid(part)));
    kill(kend, Signal::SIGSTOP).unwrap();
    kill(model, Signal::SIGKILL).unwrap();
    let mut client = system.client();
    let prompt = client.request("POST", "/api/chat/events").header("Prefer", "respond-async");
    prompt.json(&say(&session, "Are you there?")).send().expect(202);
    let status = |system: &System| exchanges(system, &session)[0]["status"].clone();
    until("the turn has begun", || status(&system) == "running");
    // kend handles this signal when it continues.
    kill(kend, Signal::SIGTERM).unwrap();
    kill(kend, Signal::SIGCONT).unwrap();
    assert_eq!(system.ended(), Some(0));
    system.up();
    until("the turn has ended", || status(&system) != "running" && status(&system) != "queued");
    assert_eq!(status(&system), "completed");
}

fn say(session: &str, text: &str) -> Value {
    json!({"connector": "tui", "actorId": "a", "conversationId": "c", "session": session, "text": text})
}

/// The agent is stopped until its lease has expired. When it continues, it must not write.
#[test]
fn a_prompt_waits_for_a_stopped_agent_and_is_answered_once() {
    let system = System::start();
    let session = system.session();
    system.signal("agent", Signal::SIGSTOP);
    let (address, body) = (system.address(), say(&session, "hello there"));
    let received = std::thread::spawn(move || Client::connect(address).post("/api/chat/events", &body));
    std::thread::sleep(Duration::from_millis(500));
    system.signal("agent", Signal::SIGCONT);
    received.join().expect("the caller").expect(200);
    assert_eq!(exchanges(&system, &session).len(), 1);
}

/// As in a paused container: all parts stand still for longer than a lease lasts, and the store is the first to go on. The holder of the turn
/// is not lost, so the model is not asked again.
#[test]
fn a_turn_goes_on_after_all_parts_have_stood_still() {
    let answer = [json!({"text": "One "}), json!({"sleep_ms": 3_000}), json!({"text": "two."})];
    let system = Builder::default().script(&[json!({"events": answer})]).start();
    let session = system.session();
    let (address, body) = (system.address(), say(&session, "hello there"));
    let received = std::thread::spawn(move || Client::connect(address).post("/api/chat/events", &body));
    until("it has begun", || events(&system, &session).iter().any(|event| event["type"] == "text_delta"));
    let parts = ["store", "model", "agent"];
    parts.iter().for_each(|part| system.signal(part, Signal::SIGSTOP));
    std::thread::sleep(Duration::from_millis(u64::try_from(ken_types::limits::LEASE_MS).unwrap() + 5_000));
    for part in parts {
        system.signal(part, Signal::SIGCONT);
        std::thread::sleep(Duration::from_millis(200));
    }
    let answer = received.join().expect("the caller").expect(200);
    assert_eq!(answer.text("/result/text"), "One two.");
    assert!(events(&system, &session).iter().all(|event| event["type"] != "submission_resumed"));
}

#[test]
fn everything_survives_a_power_cut() {
    let mut system = System::start();
    let entry = json!({"title": "Door code", "content": "The door code of the lab is 4711."});
    let id = system.post("/api/knowledge", &entry).expect(201).text("/record/id");
    let session = system.session();
    system.say(&session, "What is the door code of the lab?").expect(200);
    let transcript = format!("/api/chat/sessions/{session}/transcript?{IDENTITY}");
    let before = (system.get(&transcript).body, events(&system, &session));
    system.cut_power();
    system.up();
    assert_eq!((system.get(&transcript).body, events(&system, &session)), before);
    let again = system.say(&session, "And what is the door code again?").expect(200).json();
    assert!(again["result"]["text"].as_str().unwrap().contains("4711. [1]"), "{again}");
    assert_eq!(again["result"]["sources"][0]["id"], id, "{again}");
}

#[test]
fn two_homes_run_side_by_side() {
    let (one, two) = (System::start(), System::start());
    let session = one.session();
    one.say(&session, "only here").expect(200);
    two.get(&format!("/api/chat/sessions/{session}/transcript?{IDENTITY}")).expect(404);
    assert_eq!(two.get("/api/chat/sessions").expect(200).at("/sessions"), json!([]));
    assert_eq!(exchanges(&one, &session).len(), 1);
}

#[test]
fn adding_or_removing_an_empty_configuration_restarts_no_part() {
    let system = System::start();
    let file = system.home().join("ken.toml");
    let reload = || String::from_utf8(system.ken(&["reload"]).stdout).unwrap();
    let unchanged = reload();
    assert!(unchanged.starts_with("unchanged: ") && unchanged.contains("store"), "{unchanged}");
    std::fs::write(&file, "").unwrap();
    assert_eq!(reload(), unchanged);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(reload(), unchanged);
}
