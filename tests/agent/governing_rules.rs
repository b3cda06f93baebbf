//! Governing rules: each directive is enforced against a model that is scripted to break it, and `ken rules` manages
//! them.

use std::io::Write;
use std::process::{Output, Stdio};

use ken_tests::provider::{Provider, Reply, openai};
use ken_tests::{Answer, Builder, System};
use serde_json::{Value, json};

fn call(when: &str, after_tools: usize, name: &str, arguments: Value) -> Value {
    json!({"when": when, "after_tools": after_tools, "events": [{"tool": {"name": name, "arguments": arguments}}]})
}

fn script_line(when: &str, after_tools: usize, text: &str) -> Value {
    json!({"when": when, "after_tools": after_tools, "events": [{"text": text}]})
}

/// Runs `ken rules` with a rule on standard input.
fn rules(system: &System, arguments: &[&str], input: &str) -> Output {
    let mut command = system.command(&[&["rules"], arguments].concat());
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[track_caller]
fn add(system: &System, rule: &Value) {
    let output = rules(system, &["add", "-"], &rule.to_string());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), error.as_str()), (Some(0), ""));
}

/// Sends a message. Returns the answer and the events of the turn.
fn say(system: &System, session: &str, text: &str, more: &Value) -> (Answer, Vec<Value>) {
    let mut body = json!({"connector": "web-api", "session": format!("web-{session}"), "text": text});
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    let answer = system.post("/api/chat/events", &body);
    let page = system.get(&format!("/agents/orchestrator/web-{session}?offset=-1&tail=90")).expect(200).json();
    let submission = answer.text("/submissionId").to_owned();
    let of_turn = |event: &&Value| event["submissionId"] == submission.as_str();
    let events = page.as_array().unwrap().iter().filter(of_turn).cloned().collect();
    (answer, events)
}

/// The type and the text of each event, for the message of a failed assertion.
fn types(events: &[Value]) -> String {
    let shown = events.iter().map(|event| {
        let details = [&event["violations"], &event["text"], &event["message"]["content"][0]["text"], &event["error"]];
        let printed = details.iter().find(|said| !said.is_null());
        format!("{} {}\n", event["type"], printed.map_or(String::new(), |said| said.to_string()))
    });
    shown.collect()
}

fn tools(events: &[Value]) -> Vec<(String, bool)> {
    let ended = events.iter().filter(|event| event["type"] == "tool");
    ended
        .map(|event| {
            let name = event["toolName"].as_str().unwrap().to_owned();
            (name, event["isError"] == false)
        })
        .collect()
}

#[test]
fn a_model_cannot_use_denied_tools_or_delegation() {
    let task = json!({"agent": "coding-worker", "prompt": "dig"});
    let system = Builder::default()
        .script(&[
            call("deny", 0, "knowledge_search", json!({"query": "x"})),
            script_line("deny", 1, "Tried."),
            call("hands", 0, "note_write", json!({"name": "a", "text": "b"})),
            call("hands", 1, "task", task.clone()),
            call("hands", 2, "task", json!({"agent": "research-worker", "prompt": "dig"})),
            script_line("hands", 3, "Delegated."),
            call("dig", 0, "knowledge_search", json!({"query": "x"})),
            script_line("dig", 1, "Dug."),
        ])
        .start();
    add(
        &system,
        &json!({"name": "no-search", "when": {"project": "secret-*"}, "directives": [{"deny_tool": "knowledge_*"}]}),
    );
    add(
        &system,
        &json!({"name": "hands-off", "when": {"task": "big"}, "directives": [{"delegate_only": "research-worker"}]}),
    );
    // A field of the event selects the rule.
    let (_, events) = say(&system, "a", "deny", &json!({"projectId": "secret-7"}));
    assert_eq!(tools(&events), [("knowledge_search".to_owned(), false)]);
    assert!(json!(events).to_string().contains("the rule no-search denies the tool knowledge_search"));
    let (_, events) = say(&system, "b", "deny", &json!({"projectId": "open"}));
    assert_eq!(tools(&events), [("knowledge_search".to_owned(), true)]);
    let (answer, events) = say(&system, "c", "hands", &json!({"task": "big"}));
    assert_eq!(answer.expect(200).text("/result/text"), "Delegated.");
    let shown = [("note_write", false), ("task", false), ("knowledge_search", true), ("task", true)];
    assert_eq!(tools(&events), shown.map(|(name, ran)| (name.to_owned(), ran)));
    // A denied tool is denied to workers too.
    let both = json!({"task": "big", "projectId": "secret-7"});
    let (_, events) = say(&system, "d", "hands", &both);
    assert_eq!(tools(&events)[2], ("knowledge_search".to_owned(), false), "{events:?}");
    // A built-in tool cannot be approved, so a rule that requires its approval denies it.
    add(&system, &json!({"name": "ask", "directives": [{"require_approval": "knowledge_search"}]}));
    let (_, events) = say(&system, "e", "deny", &json!({}));
    assert!(json!(events).to_string().contains("the rule ask wants an approval"));
    // A rule that is switched off has no effect.
    for name in ["ask", "no-search"] {
        assert!(system.ken(&["rules", "disable", name]).status.success());
    }
    let (_, events) = say(&system, "f", "deny", &json!({"projectId": "secret-7"}));
    assert_eq!(tools(&events), [("knowledge_search".to_owned(), true)]);
}

/// Tests each field of a selector with an event that has the value and one that has another value.
#[test]
fn the_stored_event_selects_the_rules_of_a_turn() {
    let system = Builder::default()
        .script(&[
            call("go", 0, "knowledge_search", json!({"query": "x"})),
            // Statements of the model or the user about the event have no effect.
            script_line("go", 1, "My project is open, my actor is somebody else."),
        ])
        .start();
    let fields = [
        ("actor", "actorId"),
        ("client", "clientId"),
        ("project", "projectId"),
        ("task", "task"),
        ("workflow", "workflow"),
    ];
    for (field, _) in fields {
        let mut when = json!({});
        when[field] = json!(["other", "held-*"]);
        add(
            &system,
            &json!({"name": format!("by-{field}"), "when": when, "directives": [{"deny_tool": "knowledge_search"}]}),
        );
    }
    let held = |events: &[Value], rule: &str| {
        assert_eq!(tools(events).len(), 1, "{}", types(events));
        let is_denied = !tools(events)[0].1;
        let names_it = json!(events).to_string().contains(&format!("the rule {rule} denies"));
        assert_eq!(is_denied, names_it, "{rule}: {}", types(events));
        is_denied
    };
    for (number, (field, name)) in fields.into_iter().enumerate() {
        let rule = format!("by-{field}");
        for (value, wanted) in [("held-7", true), ("free", false)] {
            let (_, events) =
                say(&system, &format!("{number}-{value}"), "go, task held-1, project held-1", &json!({name: value}));
            assert_eq!(held(&events, &rule), wanted, "{field} {value}");
        }
    }
    // A rule does not apply to a turn without its field. A rule with two fields applies only if both match.
    let (_, events) = say(&system, "none", "go", &json!({}));
    assert!(!held(&events, "by-task"));
    for (field, _) in fields {
        assert!(system.ken(&["rules", "rm", &format!("by-{field}")]).status.success());
    }
    add(
        &system,
        &json!({"name": "both", "when": {"connector": "web-api", "messageKind": "chat.message"},
            "directives": [{"deny_tool": "knowledge_search"}]}),
    );
    let (_, events) = say(&system, "web", "go", &json!({}));
    assert!(held(&events, "both"));
    for (path, body) in [
        ("/api/chat/events", ken_tests::tui(&[("text", json!("go"))])),
        ("/agents/orchestrator/direct?wait=result", json!({"message": "go"})),
    ] {
        let answer = system.post(path, &body).expect(200).json();
        let instance = answer["session"]["id"].as_str().unwrap_or("direct").to_owned();
        let page = system.get(&format!("/agents/orchestrator/{instance}?offset=-1")).expect(200).json();
        assert!(!held(page.as_array().unwrap(), "both"), "{path}");
    }
    add(
        &system,
        &json!({"name": "direct", "when": {"messageKind": "agent.prompt"}, "directives": [{"deny_tool": "knowledge_search"}]}),
    );
    system.post("/agents/orchestrator/second?wait=result", &json!({"message": "go"})).expect(200);
    let page = system.get("/agents/orchestrator/second?offset=-1").expect(200).json();
    assert!(held(page.as_array().unwrap(), "direct"));
}

/// The text of a rule goes to the agents that it names, and a built-in rule applies to every tool that an operator
/// adds.
#[test]
fn texts_of_rules_reach_the_model_by_priority_and_the_orchestrator_has_no_hands() {
    let provider = Provider::answering(|request| {
        let messages = request.body["messages"].as_array().unwrap();
        let results = messages.iter().filter(|message| message["role"] == "tool").count();
        Reply::Stream(match (messages[1].to_string().contains("dig"), results) {
            (false, 0) => openai(
                &[],
                &[("c1", "run_it", "{}"), ("c2", "task", "{\"agent\": \"research-worker\", \"prompt\": \"dig\"}")],
            ),
            _ => openai(&["Done."], &[]),
        })
    });
    let system = Builder::default()
        .env("KEN_MODEL", "openai/m")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .start();
    let folder = system.home().join("tools.d");
    std::fs::create_dir(&folder).unwrap();
    let entry = json!({"name": "run_it", "description": "x", "command": ["touch", system.home().join("ran")],
        "input": {"type": "object"}, "approval": "none", "agents": ["orchestrator"],
        "touch": {"write": [system.home()]}});
    std::fs::write(folder.join("run_it.json"), entry.to_string()).unwrap();
    ken_tests::until("the tool is listed", || system.call("tools", "tools.list", &[]).to_string().contains("run_it"));
    for (name, priority, text, when) in [
        ("low", -1, "Third text.", json!({})),
        ("high", 7, "First text.", json!({})),
        ("middle", 3, "Second text.", json!({"agent": "orchestrator"})),
        ("worker", 9, "Worker text.", json!({"agent": "*-worker"})),
    ] {
        add(&system, &json!({"name": name, "priority": priority, "when": when, "directives": [{"text": text}]}));
    }
    let (answer, events) = say(&system, "a", "go", &json!({}));
    assert_eq!(answer.expect(200).text("/result/text"), "Done.");
    assert_eq!(tools(&events)[0], ("run_it".to_owned(), false), "{events:?}");
    assert!(json!(events).to_string().contains("the rule orchestrator-has-no-hands denies the tool run_it"));
    assert!(!system.home().join("ran").exists());
    let requests = provider.received();
    let system_text = |number: usize| requests[number].body["messages"][0]["content"].as_str().unwrap().to_owned();
    let order = |text: &str, wanted: &[&str]| {
        let places: Vec<usize> = wanted.iter().map(|part| text.find(part).unwrap()).collect();
        assert!(places.is_sorted(), "{places:?}");
    };
    assert!(!requests[0].body["tools"].to_string().contains("run_it"), "it is not offered");
    order(&system_text(0), &["First text.", "Second text.", "Third text."]);
    assert!(!system_text(0).contains("Worker text."));
    order(&system_text(1), &["Worker text.", "First text.", "Third text."]);
    assert!(!system_text(1).contains("Second text."));
}

#[test]
fn a_required_tool_is_demanded_and_an_answer_without_it_fails() {
    let system = Builder::default()
        .script(&[
            script_line("obey", 0, "Too early."),
            script_line("defy", 0, "Never."),
            // The text of the rule is the newest message in the request to the model.
            json!({"when": "The rule look wants", "after_tools": 0, "events": [
                {"tool": {"name": "knowledge_search", "arguments": {"query": "x"}}}]}),
            script_line("The rule look wants", 1, "Looked up."),
            script_line("The rule note wants", 0, "I will not."),
        ])
        .start();
    add(
        &system,
        &json!({"name": "look", "when": {"task": "look"}, "directives": [{"require_tool": "knowledge_search"}]}),
    );
    add(&system, &json!({"name": "note", "when": {"task": "note"}, "directives": [{"require_tool": ["note_write"]}]}));
    let (answer, events) = say(&system, "a", "obey", &json!({"task": "look"}));
    assert_eq!(answer.expect(200).text("/result/text"), "Looked up.");
    let notes = events.iter().filter(|event| event["type"] == "message_end" && event["message"]["role"] == "signal");
    assert_eq!(notes.count(), 1);
    let (answer, events) = say(&system, "b", "defy", &json!({"task": "note"}));
    let failed = answer.expect(500);
    assert!(failed.text("/error").contains("without the tool note_write"), "{}", failed.json());
    let turns = events.iter().filter(|event| event["type"] == "turn").count();
    assert_eq!(turns, 3, "the answer, and two reminders");
    let (answer, _) = say(&system, "c", "defy", &json!({}));
    assert_eq!(answer.expect(200).text("/result/text"), "Never.");
}

/// A call that failed is no use of the tool that a rule requires.
#[test]
fn a_failed_call_of_a_required_tool_does_not_count() {
    let system = Builder::default()
        .script(&[
            // The arguments lack the query.
            json!({"when": "obey", "after_tools": 0, "events": [{"tool": {"name": "knowledge_search", "arguments": {}}}]}),
            script_line("obey", 1, "It failed, never mind."),
            json!({"when": "The rule look wants", "after_tools": 0, "events": [
                {"tool": {"name": "knowledge_search", "arguments": {"query": "x"}}}]}),
            script_line("The rule look wants", 1, "Looked up."),
        ])
        .start();
    add(&system, &json!({"name": "look", "directives": [{"require_tool": "knowledge_search"}]}));
    let (answer, events) = say(&system, "a", "obey", &json!({}));
    assert_eq!(answer.expect(200).text("/result/text"), "Looked up.");
    let ended: Vec<&Value> =
        events.iter().filter(|event| event["type"] == "tool").map(|event| &event["isError"]).collect();
    assert_eq!(ended, [&json!(true), &json!(false)]);
}

#[test]
fn a_turn_over_its_cost_limit_ends() {
    let usage = json!({"input": 1, "output": 1, "totalTokens": 2, "cost": {"total": 0.3}});
    let call = json!({"tool": {"name": "note_read", "arguments": {}}});
    let task = json!({"tool": {"name": "task", "arguments": {"agent": "research-worker", "prompt": "dear"}}});
    let system = Builder::default()
        .script(&[
            json!({"when": "once", "events": [{"text": "Cheap."}], "usage": usage}),
            json!({"when": "dear", "after_tools": 0, "events": [call], "usage": usage}),
            json!({"when": "dear", "after_tools": 1, "events": [call], "usage": usage}),
            json!({"when": "dear", "after_tools": 2, "events": [{"text": "Dear."}], "usage": usage}),
            json!({"when": "give", "after_tools": 0, "events": [task], "usage": usage}),
            json!({"when": "give", "after_tools": 1, "events": [{"text": "Given."}], "usage": usage}),
        ])
        .start();
    add(&system, &json!({"name": "thrift", "directives": [{"max_cost": 0.5}]}));
    let (answer, _) = say(&system, "a", "once", &json!({}));
    assert_eq!(answer.expect(200).text("/result/text"), "Cheap.");
    // Two calls are within the limit; the third is not made.
    let (answer, events) = say(&system, "b", "dear", &json!({}));
    assert!(answer.expect(500).text("/error").contains("The rule thrift allows a cost of $0.5"));
    assert_eq!(events.iter().filter(|event| event["type"] == "turn").count(), 2);
    // The cost of a worker counts too, and can end the turn.
    let (answer, events) = say(&system, "c", "give", &json!({}));
    answer.expect(500);
    let turns = events.iter().filter(|event| event["type"] == "turn").count();
    assert!(turns <= 3, "{}", types(&events));
    let last: Vec<_> = events.iter().rev().take(3).map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(last, ["submission_settled", "idle", "operation"]);
}

#[test]
fn an_answer_is_judged_and_revised_once() {
    let good = "The deployment runs on Tuesday. We checked the log of the last run, because one step failed before.";
    let system = Builder::default()
        .script(&[
            script_line("Your answer does not pass", 0, "The reactor valve opens at 40 bar."),
            script_line("valve", 0, "The reactor valve opens at 90 bar."),
            script_line("law", 0, good),
        ])
        .start();
    let entry = json!({"title": "Reactor", "content": "The reactor valve opens at 40 bar."});
    system.post("/api/knowledge", &entry).expect(201);
    // The sources contradict the answer, so the model gets the reason and one more attempt.
    let (answer, events) = say(&system, "a", "At which pressure does the reactor valve open?", &json!({}));
    let answer = answer.expect(200);
    assert_eq!(answer.text("/result/text"), "The reactor valve opens at 40 bar.", "{}", types(&events));
    let validation = answer.at("/result/validation");
    assert_eq!((&validation["verdict"], &validation["revisions"]), (&json!("pass"), &json!(1)), "{validation}");
    let verdicts: Vec<_> = events
        .iter()
        .filter(|event| event["type"] == "validation")
        .map(|event| event["verdict"].as_str().unwrap())
        .collect();
    assert_eq!(verdicts, ["fail", "pass"]);
    assert!(json!(events).to_string().contains("contradicts: “The reactor valve opens at 90 bar.”"));
    // A rule requires scores. An answer that does not reach them after one revision is sent with its scores.
    add(
        &system,
        &json!({"name": "strict", "when": {"task": "strict"},
        "directives": [{"require_validation": {"law3_truth_foundation": 100}}]}),
    );
    let (answer, events) = say(&system, "b", "law", &json!({"task": "strict"}));
    let validation = answer.expect(200).at("/result/validation");
    assert!(validation["scores"]["overall_compliance"].is_number(), "{validation}");
    let judged = events.iter().filter(|event| event["type"] == "validation").count();
    assert_eq!((&validation["revisions"], judged), (&json!(1), 2), "{validation}");
    // Without knowledge and without a rule, no answer is judged.
    let (answer, events) = say(&system, "c", "law", &json!({}));
    assert!(answer.expect(200).at("/result/validation").is_null());
    assert!(events.iter().all(|event| event["type"] != "validation"));
    // An answer that cannot be judged is not sent.
    system.call("kend", "parts.stop", &["name=tools"]);
    let (answer, _) = say(&system, "d", "law", &json!({"task": "strict"}));
    assert!(answer.expect(500).text("/error").contains("The rule strict wants the answer judged"));
}

#[test]
fn rules_are_listed_checked_and_switched() {
    let system = System::start();
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let listed = text(&system.ken(&["rules", "list"]));
    assert!(listed.contains("orchestrator-has-no-hands") && listed.contains("base"), "{listed}");
    // A built-in rule cannot be disabled, and an unknown name is reported.
    for (name, wanted, status) in [("orchestrator-has-no-hands", "stays on", 1), ("nonesuch", "no rule nonesuch", 1)] {
        let output = system.ken(&["rules", "disable", name]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(wanted), "{error}");
        assert!(output.status.code().unwrap() >= status);
    }
    // An unknown directive is refused; the error lists the known ones.
    for arguments in [&["check", "-"], &["add", "-"]] {
        let output = rules(&system, arguments, r#"{"name":"x","directives":[{"allow_tool":"y"}]}"#);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("allow_tool") && error.contains("deny_tool"), "{error}");
    }
    // A rule that could never apply is refused, and so is a rule with the name of a built-in one.
    for (rule, wanted) in [
        (r#"{"name":"x","when":{"task":[]},"directives":[{"text":"y"}]}"#, "/when/task"),
        (r#"{"name":"x","when":{"agent":"coder"},"directives":[{"text":"y"}]}"#, "coding-worker"),
        (r#"{"name":"x","directives":[{"delegate_only":"coder"}]}"#, "/directives/0/delegate_only"),
        (r#"{"name":"orchestrator-has-no-hands","directives":[{"text":"y"}]}"#, "the name of a built-in rule"),
    ] {
        let output = rules(&system, &["add", "-"], rule);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(wanted), "{error}");
    }
    // All files are checked, and the errors name every invalid one.
    let file = |name: &str, text: &str| {
        let path = system.home().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let files = [
        file("a.json", "["),
        file("b.json", r#"{"name":"b","directives":[{"text":"y"}]}"#),
        file("c.json", r#"{"name":"c"}"#),
    ];
    let output = system.ken(&["rules", "check", &files[0], &files[1], &files[2]]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), error.lines().count()), (Some(2), 2), "{error}");
    assert_eq!(text(&output), format!("{}: b\n", files[1]));
    let rule = json!({"name": "mine", "priority": 3, "directives": [{"text": "Be brief."}, {"max_cost": 2}]});
    assert!(rules(&system, &["check", "-"], &rule.to_string()).status.success());
    add(&system, &rule);
    let listed = text(&system.ken(&["rules", "list"]));
    let line = listed.lines().find(|line| line.starts_with("mine")).unwrap().to_owned();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words, ["mine", "on", "3", "text", "max_cost"]);
    assert!(system.ken(&["rules", "disable", "mine"]).status.success());
    assert!(text(&system.ken(&["rules", "list", "--json"])).contains(r#""state":"off""#));
    assert!(system.ken(&["rules", "rm", "mine"]).status.success());
    assert!(!text(&system.ken(&["rules", "list"])).contains("mine"));
}

/// While the store contains a rule that this version cannot read, because a newer version of ken has stored it, no turn
/// runs.
#[test]
fn no_turn_runs_under_rules_that_cannot_be_read() {
    let mut system = System::start();
    add(&system, &json!({"name": "odd", "directives": [{"text": "Be brief."}]}));
    system.down();
    let database = system.home().join("state/store/ken.db");
    let sql = r#"UPDATE governing_rules SET rule = '{"name":"odd","directives":[{"levitate":true}]}'"#;
    let python = format!(
        "import sqlite3\nc = sqlite3.connect({:?})\nc.execute({sql:?})\nc.commit()",
        database.display().to_string()
    );
    let changed = std::process::Command::new("python3").args(["-c", &python]).status();
    if !changed.is_ok_and(|status| status.success()) {
        ken_tests::skip("python3 is not installed");
        return;
    }
    system.up();
    let (answer, events) = say(&system, "a", "hello", &json!({}));
    assert!(answer.expect(500).text("/error").contains("the governing rule odd cannot be read"));
    assert!(events.iter().all(|event| event["type"] != "turn_start"), "{events:?}");
    assert!(system.ken(&["rules", "rm", "odd"]).status.success());
    let (answer, _) = say(&system, "b", "hello", &json!({}));
    answer.expect(200);
}
