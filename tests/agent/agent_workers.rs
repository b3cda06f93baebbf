//! Workers with the real parts: a separate agent does the task, its events are on the stream of the delegating agent, and it
//! continues after a crash.

use std::thread::JoinHandle;

use ken_tests::{Answer, Builder, Client, System, until};
use serde_json::{Value, json};

/// An answer that delegates one task for each prompt.
fn tasks(when: &str, prompts: &[&str]) -> Value {
    let tasks = prompts
        .iter()
        .map(|prompt| json!({"tool": {"name": "task", "arguments": {"agent": "research-worker", "prompt": prompt}}}));
    json!({"when": when, "after_tools": 0, "events": tasks.collect::<Vec<_>>()})
}

fn script_line(when: &str, after_tools: usize, text: &str) -> Value {
    json!({"when": when, "after_tools": after_tools, "events": [{"text": text}]})
}

fn prompt(system: &System, instance: &str, text: &str) -> JoinHandle<Answer> {
    let (address, target) = (system.address(), format!("/agents/orchestrator/{instance}?wait=result"));
    let body = json!({ "message": text });
    std::thread::spawn(move || Client::connect(address).post(&target, &body))
}

fn events(system: &System, instance: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let mut offset = "-1".to_owned();
    loop {
        let page = system.get(&format!("/agents/orchestrator/{instance}?offset={offset}"));
        if page.status == 404 {
            return all;
        }
        all.extend(page.json().as_array().expect("events").iter().cloned());
        if page.header("stream-up-to-date").is_some() {
            return all;
        }
        offset = page.header("stream-next-offset").expect("an offset").to_owned();
    }
}

/// The types of the events of one session, or of all sessions.
fn types(events: &[Value], session: Option<&str>) -> String {
    let of = events.iter().filter(|event| session.is_none_or(|session| event["session"] == session));
    let types: Vec<_> = of.filter_map(|event| event["type"].as_str()).collect();
    types.join(" ")
}

fn count(events: &[Value], kind: &str) -> usize {
    events.iter().filter(|event| event["type"] == kind).count()
}

#[test]
fn a_worker_does_a_task_with_its_own_tools() {
    let search = json!({"tool": {"name": "knowledge_search", "arguments": {"query": "reactor valve"}}});
    let script = [
        tasks("go", &["dig"]),
        script_line("go", 1, "The valve opens at 40 bar."),
        json!({"when": "dig", "after_tools": 0, "events": [search]}),
        script_line("dig", 1, "40 bar, says the entry."),
    ];
    let system = Builder::default().script(&script).start();
    let entry = json!({"title": "Reactor", "content": "The reactor valve opens at 40 bar."});
    system.post("/api/knowledge", &entry).expect(201);
    let answer = prompt(&system, "one", "go").join().unwrap().expect(200);
    assert_eq!(answer.text("/result/text"), "The valve opens at 40 bar.");
    let events = events(&system, "one");
    let message = "message_start text_delta message_end";
    let given = "message_start message_end";
    assert_eq!(
        types(&events, Some("task:default:call_1")),
        format!(
            "operation_start agent_start turn_start {given} {given} tool_start tool {given} turn_messages turn turn_start \
             {message} turn_messages turn agent_end operation"
        )
    );
    assert_eq!(
        types(&events, Some("default")),
        format!(
            "operation_start agent_start {given} turn_start {given} tool_start task_start task tool {given} turn_messages turn \
             turn_start {message} turn_messages turn validation agent_end operation idle submission_settled"
        )
    );
    let of_worker: Vec<_> = events.iter().filter(|event| event["parentSession"] == "default").collect();
    assert!(of_worker.iter().all(|event| event["taskId"] == "call_1"), "{of_worker:?}");
    let found = of_worker.iter().find(|event| event["type"] == "tool").unwrap();
    assert!(found.to_string().contains("opens at 40 bar"), "{found}");
    let indices: Vec<_> = events.iter().map(|event| event["eventIndex"].as_u64().unwrap()).collect();
    assert!(indices.is_sorted_by(|one, next| one < next), "{indices:?}");
    let task = events.iter().find(|event| event["type"] == "task").unwrap();
    assert_eq!(
        (&task["agent"], &task["result"], &task["isError"]),
        (&json!("research-worker"), &json!("40 bar, says the entry."), &json!(false))
    );
    // The usage of the worker is included: four model calls.
    let used: u64 = events
        .iter()
        .filter(|event| event["type"] == "turn")
        .map(|event| event["usage"]["totalTokens"].as_u64().unwrap())
        .sum();
    assert_eq!(answer.at("/result/usage/totalTokens"), used);
}

#[test]
fn tasks_run_in_parallel_up_to_four_levels_and_failures_are_reported() {
    let script = [
        tasks("wide", &["left", "right", "broken"]),
        script_line("wide", 3, "Two of three."),
        script_line("left", 0, "L"),
        script_line("right", 0, "R"),
        json!({"when": "broken", "events": [{"error": {"class": "invalid", "message": "no"}}]}),
        json!({"when": "nobody", "after_tools": 0, "events": [{"tool": {"name": "task",
            "arguments": {"agent": "gardener", "prompt": "dig"}}}]}),
        script_line("nobody", 1, "Nobody."),
        tasks("deep-1", &["deep-2"]),
        tasks("deep-2", &["deep-3"]),
        tasks("deep-3", &["deep-4"]),
        tasks("deep-4", &["deep-5"]),
        tasks("deep-5", &["deep-6"]),
        script_line("deep", 1, "Up."),
    ];
    let system = Builder::default().script(&script).start();
    let answer = prompt(&system, "wide", "wide").join().unwrap().expect(200);
    assert_eq!(answer.text("/result/text"), "Two of three.");
    let wide = events(&system, "wide");
    let results: Vec<_> = wide
        .iter()
        .filter(|event| event["type"] == "task")
        .map(|event| (event["taskId"].as_str().unwrap(), event["isError"] == true))
        .collect();
    assert_eq!(results.len(), 3);
    assert!(results.contains(&("call_3", true)) && results.contains(&("call_1", false)), "{results:?}");
    prompt(&system, "nobody", "nobody").join().unwrap().expect(200);
    let stream = events(&system, "nobody");
    assert!(types(&stream, None).contains("tool_start tool ") && count(&stream, "task") == 0);
    // The fourth nested worker cannot delegate another task. It gets an error, and all agents continue.
    prompt(&system, "deep", "deep-1").join().unwrap().expect(200);
    let deep = events(&system, "deep");
    assert_eq!((count(&deep, "task_start"), count(&deep, "task")), (4, 4));
    let refused = deep.iter().find(|event| event["type"] == "tool" && event["isError"] == true).unwrap();
    assert_eq!(refused["session"], "task:task:task:task:default:call_1:call_1:call_1:call_1");
    assert!(refused.to_string().contains("four deep"), "{refused}");
}

/// A worker that calls a tool and then answers slowly.
fn slow() -> Vec<Value> {
    let note = json!({"tool": {"name": "note_write", "arguments": {"name": "step", "text": "one"}}});
    vec![
        tasks("go", &["dig"]),
        script_line("go", 1, "All done."),
        json!({"when": "dig", "after_tools": 0, "events": [note]}),
        json!({"when": "dig", "after_tools": 1, "events": [{"text": "half "}, {"sleep_ms": 1_500}, {"text": "whole"}]}),
    ]
}

#[test]
fn a_worker_continues_after_a_crash() {
    let system = Builder::default().script(&slow()).start();
    for (round, kind) in ["task_start", "text_delta"].into_iter().enumerate() {
        let instance = format!("crash-{round}");
        let answer = prompt(&system, &instance, "go");
        until("the worker is under way", || count(&events(&system, &instance), kind) > 0);
        system.kill("agent");
        let answer = answer.join().unwrap().expect(200);
        assert_eq!(answer.text("/result/text"), "All done.");
        let events = events(&system, &instance);
        let shown = types(&events, None);
        assert_eq!(
            (count(&events, "task_start"), count(&events, "task"), count(&events, "submission_resumed")),
            (1, 1, 1),
            "{shown}"
        );
        // A finished step is not repeated, and the result is the complete text of the worker.
        assert_eq!(shown.matches("tool_start").count(), 2, "{shown}");
        let task = events.iter().find(|event| event["type"] == "task").unwrap();
        assert_eq!(task["result"], "half whole", "{shown}");
    }
}

#[test]
fn an_abort_ends_the_worker_and_its_open_steps() {
    let system = Builder::default().script(&slow()).start();
    let answer = prompt(&system, "cut", "go");
    until("the worker speaks", || count(&events(&system, "cut"), "text_delta") > 0);
    system.post("/agents/orchestrator/cut/abort", &json!({})).expect(200);
    assert_eq!(answer.join().unwrap().expect(500).text("/error/type"), "submission_aborted");
    let shown = types(&events(&system, "cut"), None);
    assert!(
        shown.ends_with(
            "text_delta message_end turn_messages turn agent_end operation task tool message_start message_end turn_messages \
             turn agent_end operation idle submission_settled"
        ),
        "{shown}"
    );
    // It sends no further events.
    std::thread::sleep(std::time::Duration::from_millis(1_600));
    assert_eq!(types(&events(&system, "cut"), None), shown);
}
