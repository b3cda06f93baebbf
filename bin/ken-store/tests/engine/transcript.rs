//! Exchanges and their pages.

use ken_types::event::Outcome;
use ken_types::id::SessionId;
use ken_types::ops::store::*;
use ken_types::{Code, Error};
use serde_json::{Value, json};

use crate::kit::*;

async fn ready() -> Kit {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    kit
}

fn read_request(actor: &str, limit: u32, before: Option<&str>) -> ReadTranscript {
    ReadTranscript { scope: scope(actor), id: SessionId("tui-1".into()), limit, before: before.map(str::to_owned) }
}

async fn page(kit: &Kit, limit: u32, before: Option<&str>) -> Result<Value, Error> {
    let raw = kit.read::<SessionsTranscript>(read_request("a", limit, before)).await?;
    Ok(serde_json::from_str(raw.get()).unwrap())
}

#[tokio::test]
async fn a_plain_exchange_looks_as_the_contract_says() {
    let kit = ready().await;
    kit.talk("tui-1", "s1", "Do the tests pass?", "Two fail.").await;
    let wanted = json!({
        "session": {"id": "tui-1"},
        "exchanges": [{
            "id": "s1", "submissionId": "s1", "status": "completed",
            "prompt": {"id": "tui:0", "text": "Do the tests pass?", "receivedAt": START, "visibility": "user"},
            "activities": [],
            "assistant": {"id": "s1:message:0", "text": "Two fail.", "completedAt": START},
        }],
        "stream": {"nextOffset": "0000000000000000_0000000000000002", "upToDate": true},
        "page": {"limit": 50, "hasOlder": false},
    });
    assert_eq!(page(&kit, 50, None).await.unwrap(), wanted);
}

#[tokio::test]
async fn activities_show_names_times_and_outcomes_and_nothing_else() {
    let kit = ready().await;
    kit.prompt("tui-1", "s1").await;
    let lease = kit.claim_one(1).await.lease;
    let later = "2027-02-03T04:05:08.789Z";
    let text = |text: &str| json!({"role": "assistant", "content": [{"type": "text", "text": text}]});
    let events = [
        ("operation_start", json!({"operationKind": "prompt", "operationId": "op_1"})),
        ("thinking_start", json!({})),
        ("thinking_delta", json!({"delta": "hm"})),
        ("thinking_end", json!({"content": "h".repeat(600)})),
        ("tool_start", json!({"toolName": "run_tests", "toolCallId": "call_1", "args": {"secret": "planted"}})),
        ("tool_start", json!({"toolName": "read", "toolCallId": "call_2", "args": {}})),
        (
            "tool",
            json!({"toolName": "read", "toolCallId": "call_2", "isError": true, "durationMs": 5,
            "result": {"content": [{"type": "text", "text": "planted"}]}}),
        ),
        (
            "tool",
            json!({"toolName": "run_tests", "toolCallId": "call_1", "isError": false, "durationMs": 1710,
            "result": {"content": []}}),
        ),
        ("tool_start", json!({"toolName": "task", "toolCallId": "call_3", "args": {}})),
        ("task_start", json!({"taskId": "t1", "agent": "researcher", "taskName": "researcher", "prompt": "planted"})),
        ("tool_start", json!({"toolName": "web", "toolCallId": "w1", "args": {}, "parentSession": "default"})),
        ("message_end", json!({"message": text("planted"), "parentSession": "default"})),
        ("log", json!({"level": "warn", "message": "slow"})),
        ("message_end", json!({"message": {"role": "toolResult", "content": [{"type": "text", "text": "planted"}]}})),
        ("message_end", json!({"message": text("Here.")})),
        ("message_end", json!({"message": text(" ")})),
    ];
    let events = (0..).zip(events).map(|(index, (kind, fields))| {
        event_at("s1", index, kind, fields, if kind == "thinking_end" { later } else { START })
    });
    kit.add_events(&lease, 0, events.collect()).await.unwrap();
    let running = page(&kit, 50, None).await.unwrap();
    let exchange = &running["exchanges"][0];
    assert_eq!(exchange["status"], "running");
    let list = |exchange: &Value| -> Vec<String> {
        let show = |one: &Value| ["id", "name", "status"].map(|field| one[field].as_str().unwrap()).join(" ");
        exchange["activities"].as_array().unwrap().iter().map(show).collect()
    };
    assert_eq!(
        list(exchange),
        [
            "s1:thinking:1 thinking completed",
            "s1:tool:call_1 run_tests completed",
            "s1:tool:call_2 read failed",
            "s1:log:12 warn completed",
        ],
        "what still runs is left to the stream"
    );
    let activities = &exchange["activities"];
    assert_eq!(activities[0]["durationMs"], 2_000);
    assert_eq!(activities[0]["preview"].as_str().unwrap().len(), 500);
    assert_eq!((&activities[1]["durationMs"], &activities[1]["startedAt"]), (&json!(1710), &json!(START)));
    assert_eq!(activities[2]["error"], "The tool failed.");
    assert_eq!(activities[3]["preview"], "slow");
    assert_eq!(
        (&exchange["assistant"]["text"], &exchange["assistant"]["id"]),
        (&json!("Here."), &json!("s1:message:14"))
    );
    assert!(!running.to_string().contains("planted"));
    // Settled while a delegation is still running. It is shown as failed.
    let settle = SettleSubmission {
        events: vec![event("s1", 16, "submission_settled", json!({"outcome": "aborted"}))],
        ..Kit::settle_of(&lease, 16, Outcome::Aborted, "Here.")
    };
    kit.write::<SubmissionsSettle>(settle).await.unwrap();
    let settled = page(&kit, 50, None).await.unwrap();
    assert_eq!(settled["exchanges"][0]["status"], "cancelled");
    assert_eq!(list(&settled["exchanges"][0])[3], "s1:task:t1 researcher failed");
}

#[tokio::test]
async fn queued_failed_and_internal_prompts_and_commands() {
    let kit = ready().await;
    let mut preflight = kit.accept_of("a", "planted", Target::Selector("tui-1".into()), queued("s1"));
    preflight.event.context = Some(json!({"workflow": "tui.startup-preflight"}));
    kit.write::<ChatAccept>(preflight).await.unwrap();
    kit.prompt("tui-1", "s2").await;
    let accept = kit.accept_of("a", "/session", Target::Selector("tui-1".into()), Action::Find);
    kit.write::<ChatAccept>(accept).await.unwrap();
    let action = Action::Compact { submission_id: sub("c1") };
    let accept = kit.accept_of("a", "/compact", Target::Selector("tui-1".into()), action);
    kit.write::<ChatAccept>(accept).await.unwrap();
    let lease = kit.claim_one(1).await.lease;
    kit.write::<SubmissionsSettle>(Kit::settle_of(&lease, 0, Outcome::Failed, "")).await.unwrap();
    let found = page(&kit, 50, None).await.unwrap();
    let exchanges = found["exchanges"].as_array().unwrap();
    assert_eq!(exchanges.len(), 2);
    assert_eq!((&exchanges[0]["status"], exchanges[0].get("prompt")), (&json!("failed"), None));
    assert!(exchanges[0].get("assistant").is_none());
    assert_eq!((&exchanges[1]["status"], &exchanges[1]["prompt"]["text"]), (&json!("running"), &json!("question s2")));
    assert!(!found.to_string().contains("planted"));
}

#[tokio::test]
async fn pages_go_back_without_gap_or_repeat_while_turns_go_on() {
    let mut kit = ready().await;
    for number in 0..23 {
        kit.talk("tui-1", &format!("s{number:02}"), "q", "a").await;
    }
    let mut seen: Vec<String> = Vec::new();
    let mut before: Option<String> = None;
    loop {
        let found = page(&kit, 5, before.as_deref()).await.unwrap();
        let ids = found["exchanges"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned());
        seen.splice(0..0, ids);
        kit.talk("tui-1", &format!("new{}", seen.len()), "q", "a").await;
        kit.restart();
        assert_eq!(found["page"]["hasOlder"].as_bool(), Some(found["page"].get("before").is_some()));
        before = found["page"]["before"].as_str().map(str::to_owned);
        if before.is_none() {
            break;
        }
    }
    let wanted: Vec<String> = (0..23).map(|number| format!("s{number:02}")).collect();
    assert_eq!(seen, wanted);
}

#[tokio::test]
async fn whose_it_is_and_which_cursor_is_checked() {
    let kit = ready().await;
    kit.session("tui-2", "a").await;
    for number in 0..3 {
        kit.talk("tui-1", &format!("s{number}"), "q", "a").await;
    }
    let cursor = page(&kit, 1, None).await.unwrap()["page"]["before"].as_str().unwrap().to_owned();
    let other = ReadTranscript { id: SessionId("tui-2".into()), ..read_request("a", 1, Some(&cursor)) };
    let error = kit.read::<SessionsTranscript>(other).await.unwrap_err();
    assert_eq!((error.code, error.at.as_deref()), (Code::Invalid, Some("?before")));
    assert_eq!(page(&kit, 1, Some("Q2x")).await.unwrap_err().code, Code::Invalid);
    assert_eq!(page(&kit, 0, None).await.unwrap_err().code, Code::Invalid);
    assert_eq!(kit.read::<SessionsTranscript>(read_request("b", 1, None)).await.unwrap_err().code, Code::Forbidden);
    let unknown = ReadTranscript { id: SessionId("tui-9".into()), ..read_request("a", 1, None) };
    assert_eq!(kit.read::<SessionsTranscript>(unknown).await.unwrap_err().code, Code::NotFound);
}

/// A reader of a page continues at the end of the stream or, if a turn is running, at the beginning of that turn.
#[tokio::test]
async fn the_place_to_go_on_from_is_the_end_or_the_beginning_of_a_turn() {
    let kit = ready().await;
    let place = async || {
        let page = page(&kit, 1, None).await.unwrap();
        let stream = &page["stream"];
        (stream["nextOffset"].as_str().unwrap().to_owned(), stream["upToDate"] == true)
    };
    assert_eq!(place().await, ("-1".into(), true));
    kit.talk("tui-1", "s0", "hello", "hi").await;
    let (end, up_to_date) = place().await;
    assert!(up_to_date);
    kit.prompt("tui-1", "s1").await;
    assert_eq!(place().await, (end.clone(), true));
    let lease = kit.claim_one(1).await.lease;
    for index in 0..5 {
        kit.add_events(&lease, index, deltas("s1", index, 1)).await.unwrap();
        assert_eq!(place().await, (end.clone(), false));
        let turn = kit.page("tui-1", end.parse().unwrap()).await.unwrap();
        assert_eq!(turn.entries.len() as u64, index + 1);
    }
    kit.write::<SubmissionsSettle>(Kit::settle_of(&lease, 5, Outcome::Completed, "hi")).await.unwrap();
    assert!(place().await.1);
}
