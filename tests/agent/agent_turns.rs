//! Turns with the real parts: the order of the events of every kind of turn, and the state after a part was killed during a turn.

use std::collections::HashMap;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ken_tests::wire_tap::{Side, WireTap};
use ken_tests::{Answer, Builder, Client, System, tui, until};
use serde_json::{Value, json};

/// All events of an instance.
fn events(system: &System, instance: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let mut offset = "-1".to_owned();
    loop {
        let page = system.get(&format!("/agents/orchestrator/{instance}?offset={offset}")).expect(200);
        all.extend(page.json().as_array().expect("events").iter().cloned());
        if page.header("stream-up-to-date").is_some() {
            return all;
        }
        offset = page.header("stream-next-offset").expect("an offset").to_owned();
    }
}

fn types(events: &[Value]) -> String {
    let types: Vec<_> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    types.join(" ")
}

/// Sends a prompt to an instance and waits for its result.
fn prompt(system: &System, instance: &str, text: &str) -> Answer {
    system.post(&format!("/agents/orchestrator/{instance}?wait=result"), &json!({"message": text}))
}

/// Like [`prompt`], in a separate thread.
fn prompt_aside(system: &System, instance: &str, text: &str) -> JoinHandle<Answer> {
    let (address, target) = (system.address(), format!("/agents/orchestrator/{instance}?wait=result"));
    let body = json!({ "message": text });
    std::thread::spawn(move || Client::connect(address).post(&target, &body))
}

/// Checks that every start event has its end event and that these pairs are properly nested; that the indices are consecutive;
/// that the only `submission_settled` is at the end; and that the deltas add up to the texts.
fn check(events: &[Value]) {
    let shown = types(events);
    let mut open: Vec<&str> = Vec::new();
    let mut tools: HashMap<&str, i32> = HashMap::new();
    let mut text = String::new();
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event["eventIndex"], index, "{shown}");
        let kind = event["type"].as_str().expect("a type");
        let call = event["toolCallId"].as_str().unwrap_or_default();
        match kind {
            "operation_start" | "agent_start" | "turn_start" | "message_start" | "thinking_start"
            | "compaction_start" => {
                open.push(kind.trim_end_matches("_start"));
                text.clear();
            }
            "operation" | "agent_end" | "turn" | "message_end" | "thinking_end" | "compaction" => {
                assert_eq!(open.pop(), Some(kind.trim_end_matches("_end")), "{shown}");
            }
            "tool_start" => *tools.entry(call).or_default() += 1,
            "tool" => *tools.entry(call).or_default() -= 1,
            "text_delta" => text.push_str(event["text"].as_str().expect("a text")),
            _ => {}
        }
        if kind == "message_end" && event["message"]["role"] == "assistant" {
            let blocks = event["message"]["content"].as_array().expect("content");
            let texts = blocks.iter().filter_map(|block| block["text"].as_str());
            assert_eq!(texts.collect::<Vec<_>>(), [text.as_str()], "{shown}");
        }
    }
    assert!(open.is_empty() && tools.values().all(|count| *count == 0), "{shown}");
    assert_eq!(shown.matches("submission_settled").count(), 1, "{shown}");
    assert!(shown.ends_with("idle submission_settled"), "{shown}");
    let times: Vec<_> = events.iter().map(|event| event["timestamp"].as_str().expect("a time")).collect();
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn each_kind_of_turn_has_its_events_in_order() {
    let script = [
        json!({"when": "plain", "events": [{"text": "Hello "}, {"text": "there."}]}),
        json!({"when": "think", "events": [{"think": "hm"}, {"text": "Yes."}]}),
        json!({"when": "tool", "after_tools": 0, "events": [{"text": "See."}, {"tool": {"name": "a"}}, {"tool": {"name": "b"}}]}),
        json!({"when": "tool", "after_tools": 2, "events": [{"text": "No tools."}]}),
        json!({"when": "fail", "events": [{"text": "Well"}, {"error": {"class": "auth", "message": "wrong key"}}]}),
    ];
    let system = Builder::default().script(&script).start();
    let message = "message_start text_delta message_end";
    let result = "message_start message_end";
    let end = "turn_messages turn agent_end operation idle submission_settled";
    let begin = "operation_start agent_start message_start message_end turn_start";
    for (kind, status, wanted) in [
        ("plain", 200, format!("{begin} message_start text_delta text_delta message_end {end}")),
        (
            "think",
            200,
            format!("{begin} message_start thinking_start thinking_delta thinking_end text_delta message_end {end}"),
        ),
        (
            "tool",
            200,
            format!(
                "{begin} {message} tool_start tool_start tool tool {result} {result} turn_messages turn turn_start {message} {end}"
            ),
        ),
        ("fail", 500, format!("{begin} {message} {end}")),
    ] {
        let answer = prompt(&system, kind, kind).expect(status);
        let events = events(&system, kind);
        assert_eq!(types(&events), wanted);
        check(&events);
        let settled = events.last().expect("the end");
        let outcome = if status == 200 { "completed" } else { "failed" };
        assert_eq!(settled["outcome"], outcome, "{settled}");
        if kind == "tool" {
            let tools: Vec<_> = events.iter().filter(|event| event["type"] == "tool").collect();
            assert!(tools.iter().all(|tool| tool["isError"] == true), "{tools:?}");
            assert_eq!(answer.text("/result/text"), "No tools.");
        }
    }
}

#[test]
fn the_rules_engine_greets_and_remembers_within_a_scope() {
    let system = System::start();
    let session = system.session();
    let preflight = json!({"connector": "tui", "actorId": "a", "conversationId": "c", "session": session,
        "workflow": "tui.startup-preflight", "text": "gateway: ok\nUse the built-in greeting skill."});
    let greeting = system.post("/api/chat/events", &preflight).expect(200).text("/result/text");
    assert!(greeting.contains("I am ken") && greeting.contains("No language model is configured"), "{greeting}");
    system.say(&session, "My dog is called Rex.").expect(200);
    let other = system.session();
    let answer = system.say(&other, "What is my dog called?").expect(200).text("/result/text");
    assert!(answer.contains("“My dog is called Rex.” ["), "{answer}");
    let stranger = prompt(&system, "stranger", "What is my dog called?").expect(200).text("/result/text");
    assert!(!stranger.contains("Rex"), "an instance without an actor knows a past turn: {stranger}");
}

#[test]
fn a_compaction_keeps_the_conversation_and_reports_the_budget() {
    let system = System::start();
    let session = system.session();
    system.say(&session, "The door code of the lab is 4711.").expect(200);
    system.say(&session, "The boiler is in the cellar.").expect(200);
    let answer = system.say(&session, "/compact").expect(200);
    let budget = answer.at("/result/contextBudget");
    for field in [
        "modelSpecifier", "enforcedContextWindow", "outputReserveTokens", "usableInputTokens", "warningTokens",
        "compactionTokens", "hardStopTokens", "estimatedHistoryTokens", "estimatedPromptTokens", "estimatedUsedTokens",
        "remainingInputTokens", "overageTokens", "status", "shouldCompactBeforePrompt", "turns", "compactions",
        "compactedBeforePrompt", "prePromptStatus", "prePromptEstimatedUsedTokens", "lastPromptEstimateTokens",
    ] {
        assert!(!budget[field].is_null(), "{field} is missing in {budget}");
    }
    assert_eq!((&budget["turns"], &budget["compactions"]), (&json!(2), &json!(1)));
    let compaction = events(&system, &session);
    let from = compaction.iter().rposition(|event| event["type"] == "operation_start").unwrap();
    let compaction = compaction.get(from..).unwrap();
    assert_eq!(
        types(compaction),
        "operation_start compaction_start turn_start turn compaction operation idle submission_settled"
    );
    check(compaction);
    system.say(&session, "Where is the boiler?").expect(200);
}

/// The summary and the end of the turn are one change, so the conversation is never without its history nor has it twice.
#[test]
fn a_kill_around_the_write_of_a_compaction_compacts_once() {
    for side in [Side::Request, Side::Reply] {
        let system = System::start();
        let tap = WireTap::put_in(&system.socket("store"));
        // After its restart the agent calls the store through the tap.
        system.kill("agent");
        system.wait_until_stable("agent");
        let session = system.session();
        system.say(&session, "The door code of the lab is 4711.").expect(200);
        system.say(&session, "The boiler is in the cellar.").expect(200);
        tap.stop_at("submissions.settle", side);
        let (address, body) = (system.address(), tui(&[("session", json!(session)), ("text", json!("/compact"))]));
        let caller = std::thread::spawn(move || Client::connect(address).post("/api/chat/events", &body));
        tap.reached();
        system.kill("agent");
        let answer = caller.join().expect("the caller").expect(200);
        assert_eq!(answer.at("/result/contextBudget/compactions"), 1, "{side:?}: {answer:?}");
        let events = events(&system, &session);
        for kind in ["compaction", "submission_settled"] {
            let count = events.iter().filter(|event| event["type"] == kind).count();
            assert_eq!(count, if kind == "compaction" { 1 } else { 3 }, "{side:?}: {}", types(&events));
        }
        system.say(&session, "Where is the boiler?").expect(200);
        let again = system.say(&session, "/compact").expect(200);
        assert_eq!(again.at("/result/contextBudget/compactions"), 2, "{side:?}: {again:?}");
    }
}

/// Kills the agent after different events of a turn with a tool call. The script pauses between the events.
#[test]
fn a_turn_is_complete_wherever_the_agent_is_killed() {
    let pause = json!({"sleep_ms": 250});
    let script = [
        json!({"after_tools": 0, "events": [pause, {"think": "hm "}, pause, {"text": "one "}, pause, {"text": "two "}, pause,
            {"tool": {"name": "a"}}]}),
        json!({"after_tools": 1, "events": [pause, {"text": "three "}, pause, {"text": "four"}, pause]}),
    ];
    let system = Builder::default().script(&script).start();
    for (round, (kind, nth)) in [
        ("turn_start", 1),
        ("thinking_delta", 1),
        ("text_delta", 1),
        ("text_delta", 2),
        ("turn_start", 2),
        ("text_delta", 3),
        ("text_delta", 4),
    ]
    .into_iter()
    .enumerate()
    {
        let instance = format!("killed-{round}");
        let caller = prompt_aside(&system, &instance, "go");
        let seen = |events: &[Value]| events.iter().filter(|event| event["type"] == kind).count() >= nth;
        until("the turn is under way", || {
            let page = system.get(&format!("/agents/orchestrator/{instance}?offset=-1"));
            page.status == 200 && seen(page.json().as_array().expect("events"))
        });
        system.kill("agent");
        let answer = caller.join().expect("the caller").expect(200);
        assert_eq!(answer.text("/result/text"), "three four");
        let events = events(&system, &instance);
        check(&events);
        let resumed = events.iter().filter(|event| event["type"] == "submission_resumed").count();
        assert_eq!(resumed, 1, "{}", types(&events));
        let stops: Vec<_> = events.iter().filter(|event| event["type"] == "message_end").collect();
        let finals = stops.iter().filter(|end| end["message"]["stopReason"] == "stop").count();
        assert_eq!(finals, 1, "{}", types(&events));
    }
}

#[test]
fn killing_the_model_or_the_store_only_delays_a_turn() {
    let pause = json!({"sleep_ms": 700});
    let system = Builder::default().script(&[json!({"events": [{"text": "one "}, pause, {"text": "two"}]})]).start();
    for part in ["model", "store"] {
        let caller = prompt_aside(&system, part, "go");
        until("the first word is there", || {
            let page = system.get(&format!("/agents/orchestrator/{part}?offset=-1"));
            page.status == 200 && types(page.json().as_array().expect("events")).contains("text_delta")
        });
        system.kill(part);
        let answer = caller.join().expect("the caller").expect(200);
        assert_eq!(answer.text("/result/text"), "one two", "{part}");
        let events = events(&system, part);
        check(&events);
        if part == "model" {
            let wanted = "operation_start agent_start message_start message_end turn_start message_start text_delta text_delta message_end \
                          turn_messages turn agent_end operation idle submission_settled";
            assert_eq!(types(&events), wanted);
        }
    }
}

#[test]
fn an_abort_ends_the_model_call_and_keeps_the_partial_text() {
    let script = json!({"events": [{"text": "partial"}, {"sleep_ms": 60_000}, {"text": " never"}]});
    let system = Builder::default().script(&[script]).start();
    let caller = prompt_aside(&system, "long", "go");
    until("the first word is there", || {
        let page = system.get("/agents/orchestrator/long?offset=-1");
        page.status == 200 && types(page.json().as_array().expect("events")).contains("text_delta")
    });
    let begun = Instant::now();
    let aborted = system.post("/agents/orchestrator/long/abort", &json!({})).expect(200);
    assert_eq!(aborted.at("/aborted"), true);
    let answer = caller.join().expect("the caller").expect(500);
    assert!(begun.elapsed() < Duration::from_secs(2), "aborted after {:?}", begun.elapsed()); // the limit that the contract sets
    assert_eq!(answer.text("/error/type"), "submission_aborted");
    let events = events(&system, "long");
    check(&events);
    let end = events.iter().rfind(|event| event["type"] == "message_end").expect("message_end");
    assert_eq!(end["message"]["stopReason"], "aborted");
    assert_eq!(end["message"]["content"][0]["text"], "partial");
    assert_eq!(events.last().expect("the end")["outcome"], "aborted");
}
