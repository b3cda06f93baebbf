//! Faults of a model, in whole systems: the turn continues or ends with a clear outcome, and the next request to the model is
//! well-formed. tests/agent/providers.rs tests faults within one call.

use std::collections::BTreeSet;

use ken_tests::provider::{Piece, Provider, ReceivedRequest, Reply, openai, refusal};
use ken_tests::{Answer, Builder, System};
use serde_json::{Value, json};

fn system(provider: &Provider) -> System {
    Builder::default().env("KEN_MODEL", "openai/m").env("OPENAI_BASE_URL", &format!("{}/v1", provider.url())).start()
}

fn prompt(system: &System, instance: &str) -> Answer {
    system.post(&format!("/agents/orchestrator/{instance}?wait=result"), &json!({"message": instance}))
}

fn events(system: &System, instance: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let mut offset = "-1".to_owned();
    loop {
        let page = system.get(&format!("/agents/orchestrator/{instance}?offset={offset}")).expect(200);
        all.extend(page.json().as_array().unwrap().iter().cloned());
        if page.header("stream-up-to-date").is_some() {
            return all;
        }
        offset = page.header("stream-next-offset").unwrap().to_owned();
    }
}

fn count(events: &[Value], kind: &str) -> usize {
    events.iter().filter(|event| event["type"] == kind).count()
}

/// The prompt of a request, and the number of tool results in it.
fn prompt_and_results(request: &ReceivedRequest) -> (String, usize) {
    let messages = request.body["messages"].as_array().unwrap();
    let results = messages.iter().filter(|message| message["role"] == "tool").count();
    (request.prompt().as_str().unwrap_or_default().to_owned(), results)
}

/// Checks that each call of an assistant has exactly one result, directly after it, and that there is no result without a call:
/// providers refuse anything else.
fn check_pairs(provider: &Provider) {
    for request in provider.received() {
        let mut open = BTreeSet::new();
        for message in request.body["messages"].as_array().unwrap() {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            match message["role"].as_str().unwrap() {
                "tool" => assert!(open.remove(id), "a result of nothing: {message}"),
                role => {
                    assert!(open.is_empty(), "calls without results before {role}: {open:?}");
                    let calls = message["tool_calls"].as_array().into_iter().flatten();
                    for call in calls {
                        assert!(open.insert(call["id"].as_str().unwrap().to_owned()), "{call}");
                        // Malformed arguments are sent back as JSON that a provider accepts.
                        let arguments = call["function"]["arguments"].as_str().unwrap();
                        assert!(serde_json::from_str::<Value>(arguments).is_ok(), "{arguments}");
                    }
                }
            }
        }
        assert!(open.is_empty(), "calls without results: {open:?}");
    }
}

#[test]
fn the_model_gets_the_error_of_an_invalid_call_and_the_turn_continues() {
    let hundred: Vec<(String, String)> =
        (0..100).map(|n| (format!("c{n}"), format!("{{\"query\": \"q{n}\"}}"))).collect();
    let provider = Provider::answering(move |request| {
        let (prompt, results) = prompt_and_results(request);
        Reply::Stream(match (prompt.as_str(), results) {
            ("broken", 0) => openai(
                &[],
                &[
                    ("c1", "knowledge_search", "{\"query\": \"x"),
                    ("c2", "knowledge_search", "[7]"),
                    ("c3", "todo_write", "7"),
                ],
            ),
            ("unknown", 0) => {
                openai(&["I look."], &[("c1", "nonesuch", "{}"), ("c2", "", "{}"), ("c3", "../../bin/sh", "{}")])
            }
            ("same", 0) => openai(
                &[],
                &[("c1", "knowledge_search", "{\"query\": \"a\"}"), ("c1", "knowledge_search", "{\"query\": \"b\"}")],
            ),
            ("hundred", 0) => {
                let calls: Vec<_> = hundred
                    .iter()
                    .map(|(id, arguments)| (id.as_str(), "knowledge_search", arguments.as_str()))
                    .collect();
                openai(&[], &calls)
            }
            (prompt, results) => openai(&[&format!("{prompt}: {results} results.")], &[]),
        })
    });
    let system = system(&provider);
    for (name, calls, failed) in [("broken", 3, 3), ("unknown", 3, 3), ("same", 2, 0), ("hundred", 100, 0)] {
        let answer = prompt(&system, name).expect(200);
        assert_eq!(answer.text("/result/text"), format!("{name}: {calls} results."));
        let events = events(&system, name);
        assert_eq!((count(&events, "tool_start"), count(&events, "tool")), (calls, calls), "{name}");
        let errors = events.iter().filter(|event| event["type"] == "tool" && event["isError"] == true).count();
        assert_eq!(errors, failed, "{name}: {events:?}");
        assert_eq!(count(&events, "submission_settled"), 1);
    }
    check_pairs(&provider);
}

#[test]
fn ten_megabytes_of_text_are_cut_and_the_conversation_continues() {
    let provider = Provider::answering(|request| {
        let long = "A sentence that says the same again and again. ".repeat(1 << 14);
        Reply::Stream(match request.prompt().as_str().unwrap_or_default() {
            "much" => openai(&[long.as_str(); 14], &[]),
            _ => openai(&["Short."], &[]),
        })
    });
    let system = system(&provider);
    let session = system.session();
    let answer = system.say(&session, "much");
    let answer = answer.expect(200).json();
    let text = answer["result"]["text"].as_str().unwrap();
    assert!(text.starts_with("A sentence") && text.len() < 6 << 20, "{}", text.len());
    // The events can be read, none is longer than 256 KiB, and the next turn works.
    for event in events(&system, &session) {
        assert!(event.to_string().len() <= 256 * 1024, "{} bytes of {}", event.to_string().len(), event["type"]);
    }
    let answer = system.say(&session, "and now?").expect(200);
    assert_eq!(answer.text("/result/text"), "Short.");
    let transcript =
        system.get(&format!("/api/chat/sessions/{session}/transcript?connector=tui&actorId=a&conversationId=c"));
    assert_eq!(transcript.expect(200).json()["exchanges"].as_array().unwrap().len(), 2);
}

#[test]
fn an_endless_answer_is_ended() {
    let provider = Provider::answering(|request| {
        let (prompt, results) = prompt_and_results(request);
        let other = format!("{{\"query\": \"number {results}\"}}");
        let arguments = if prompt == "same" { "{\"query\": \"x\"}" } else { other.as_str() };
        Reply::Stream(openai(&[], &[(&format!("c{results}"), "knowledge_search", arguments)]))
    });
    let system = system(&provider);
    for name in ["same", "other"] {
        let answer = prompt(&system, name).expect(500).json();
        let events = events(&system, name);
        let settled = events.last().unwrap();
        assert_eq!((&settled["type"], &settled["outcome"]), (&json!("submission_settled"), &json!("failed")));
        assert!(settled["error"].as_str().is_some_and(|error| !error.is_empty()), "{settled}");
        assert_eq!(count(&events, "turn_start"), count(&events, "turn"));
        assert_eq!(answer["error"]["type"], "operation_failed", "{answer}");
    }
    // A turn in which the model repeats the same call is ended earlier than one with a different call each time.
    let turns = |name: &str| count(&events(&system, name), "turn");
    assert!(turns("same") <= 6 && turns("other") > turns("same"), "{} {}", turns("same"), turns("other"));
    check_pairs(&provider);
}

/// Temporary failures are retried; others are reported at once.
#[test]
fn a_failing_provider_is_retried_or_reported() {
    let half = openai(&["Half ", "of it."], &[])[..2].to_vec();
    let long = Piece::Bytes(format!("data: {}", "x".repeat(8 << 20)).into_bytes());
    for (first, reported) in [
        (refusal(429, Vec::new(), "", "slow down"), None),
        (Reply::Stream(half.clone()), None),
        (Reply::Stream([half, vec![Piece::Break]].concat()), None),
        (refusal(404, Vec::new(), "model_not_found", "there is no model m"), Some("there is no model m")),
        (Reply::Stream(vec![long]), Some("the server sent an event of more than 8 MiB")),
    ] {
        let provider = Provider::start(vec![first, Reply::Stream(openai(&["Whole."], &[]))]);
        let system = system(&provider);
        let answer = prompt(&system, "go");
        let tries = match reported {
            Some(why) => {
                let body = answer.expect(500).json().to_string();
                assert!(body.contains("openai/m") && body.contains(why), "{body}");
                1
            }
            None => {
                assert_eq!(answer.expect(200).text("/result/text"), "Whole.");
                2
            }
        };
        assert_eq!(provider.received().len(), tries);
        assert_eq!(count(&events(&system, "go"), "turn"), tries);
        assert_eq!(count(&events(&system, "go"), "submission_settled"), 1);
    }
}

/// A model that says nothing is called once more. If it says nothing again, the turn fails, and every caller is told.
#[test]
fn an_empty_answer_is_called_for_once_more_and_is_then_an_error() {
    let empty = || Reply::Stream(openai(&[], &[]));
    let provider = Provider::start(vec![empty(), Reply::Stream(openai(&["Whole."], &[]))]);
    let with_answer = system(&provider);
    assert_eq!(prompt(&with_answer, "go").expect(200).text("/result/text"), "Whole.");
    let messages = |request: &ReceivedRequest| request.body["messages"].clone();
    let received = provider.received();
    assert_eq!((received.len(), messages(&received[0])), (2, messages(&received[1])));
    // No client can take the empty message for the final text.
    let events = events(&with_answer, "go");
    let ends = events.iter().filter(|event| event["type"] == "message_end" && event["message"]["role"] == "assistant");
    let reasons: Vec<&Value> = ends.map(|event| &event["message"]["stopReason"]).collect();
    assert_eq!(reasons, ["error", "stop"]);

    let silent = Provider::answering(|_| Reply::Stream(openai(&["\n"], &[])));
    let without = system(&silent);
    let failed = without.say(&without.session(), "go").expect(500);
    assert_eq!(failed.text("/code"), "empty_answer");
    assert_eq!(failed.text("/error"), "The model openai/m gave an empty answer twice.");
    assert_eq!(silent.received().len(), 2);
    prompt(&without, "go").refused(500, "operation_failed", "");
    let output = without.ken(&["chat", "go"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("gave an empty answer twice"), "{stderr}");
}
